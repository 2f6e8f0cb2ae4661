//! The quantization error of a tensor, summed in chunk order for any number of threads.

use std::sync::{Mutex, PoisonError};
use trueup_blocks::{Deviation, DeviationSums};
use trueup_formats::gguf::Measure;

/// The (possibly partial) quantization error of one tensor.
#[derive(Debug)]
pub struct Loss(Mutex<State>);

#[derive(Debug)]
enum State {
    /// The number of missing elements, and the first element and the sums of each finished chunk.
    Going(u64, Vec<(u64, DeviationSums)>),
    Done(Deviation),
}

impl Loss {
    /// Creates the accumulator for a tensor of `elements` elements (at least 1).
    pub fn new(elements: u64) -> Loss {
        Loss(Mutex::new(State::Going(elements, Vec::new())))
    }

    /// The quantization error from the record of an earlier run; `None` if [`Loss::measure`] cannot have written the
    /// record.
    pub fn of_measure(measure: &Measure) -> Option<Loss> {
        let (numbers, _) = measure.as_chunks::<8>();
        let [rmse, cosine, max_abs] = [0, 1, 2].map(|number| f64::from_le_bytes(numbers[number]));
        let is_loss = rmse >= 0.0 && max_abs >= 0.0 && (-1.01..=1.01).contains(&cosine);
        let deviation = Deviation { rmse, cosine, max_abs, not_finite: 0 };
        (is_loss && rmse.is_finite() && max_abs.is_finite()).then(|| Loss(Mutex::new(State::Done(deviation))))
    }

    /// The record of a finished tensor, for a later run.
    pub fn measure(deviation: &Deviation) -> Measure {
        let mut measure = Measure::default();
        let numbers = [deviation.rmse, deviation.cosine, deviation.max_abs];
        measure
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(numbers)
            .for_each(|(bytes, number)| *bytes = number.to_le_bytes());
        measure
    }

    /// Adds a chunk; returns the quantization error if this was the last missing chunk.
    pub fn add(&self, first: u64, elements: u64, sums: DeviationSums) -> Option<Deviation> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Going(left, chunks) = &mut *state else { return None };
        chunks.push((first, sums));
        *left -= elements;
        if *left > 0 {
            return None;
        }
        chunks.sort_unstable_by_key(|(first, _)| *first);
        let mut total = DeviationSums::default();
        chunks.iter().for_each(|(_, sums)| total.merge(sums));
        let deviation = total.deviation();
        *state = State::Done(deviation);
        Some(deviation)
    }

    /// The quantization error; `None` while chunks are missing.
    pub fn deviation(&self) -> Option<Deviation> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Done(deviation) => Some(*deviation),
            State::Going(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(source: &[f32]) -> DeviationSums {
        let mut sums = DeviationSums::default();
        sums.add(source, &vec![0.25; source.len()]);
        sums
    }

    #[test]
    fn chunks_in_any_order_give_the_same_numbers() {
        let chunks = [sums(&[0.1; 7]), sums(&[0.2; 5]), sums(&[-3.0; 9])];
        let starts = [0, 7, 12];
        let lens = [7, 5, 9];
        let of_order = |order: [usize; 3]| {
            let loss = Loss::new(21);
            let added = order.map(|chunk| loss.add(starts[chunk], lens[chunk], chunks[chunk]));
            assert!(added[0].is_none() && added[1].is_none());
            assert_eq!(added[2], loss.deviation());
            added[2].unwrap()
        };
        let mut whole = DeviationSums::default();
        chunks.iter().for_each(|chunk| whole.merge(chunk));
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            assert_eq!(of_order(order), whole.deviation());
        }
    }

    #[test]
    fn a_measure_comes_back_and_nonsense_does_not() {
        let deviation = sums(&[0.5; 40]).deviation();
        let loss = Loss::of_measure(&Loss::measure(&deviation)).unwrap();
        assert_eq!(loss.deviation(), Some(deviation));
        for (rmse, cosine, max_abs) in
            [(f64::NAN, 1.0, 0.0), (-1.0, 1.0, 0.0), (0.0, 2.0, 0.0), (0.0, f64::NAN, 0.0), (0.0, 1.0, f64::INFINITY)]
        {
            let measure = Loss::measure(&Deviation { rmse, cosine, max_abs, not_finite: 0 });
            assert!(Loss::of_measure(&measure).is_none(), "{rmse} {cosine} {max_abs}");
        }
    }
}
