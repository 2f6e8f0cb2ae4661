//! The effective number of noise samples among elements.
//!
//! A token that occurs several times in a prompt is computed from nearly the same numbers each time and has nearly the
//! same errors, so its elements count as one sample. Elements whose expected values agree in 14 bits are treated as
//! such. This matters only if there are few different values.

use std::collections::BTreeSet;

/// More samples than this spread so little that their number no longer matters: `1 + 8 sqrt(2 / n)` is less than 1.3^2
/// beyond 269.
const MANY: usize = 512;

/// Bits of an f32 that are left out: 14 of the fraction remain.
const BITS_LEFT_OUT: u32 = 9;

/// The distinct values among some elements, while they are few. Their number does not depend on the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Samples {
    /// Their first bits.
    Few(BTreeSet<u32>),
    /// More than [`MANY`].
    Many,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples::Few(BTreeSet::new())
    }
}

impl Samples {
    /// Adds an element of which this is expected.
    pub fn add(&mut self, expected: f64) {
        if let Samples::Few(known) = self {
            known.insert((expected as f32).to_bits() >> BITS_LEFT_OUT);
            self.forget_many();
        }
    }

    /// Adds all that `other` has.
    pub fn merge(&mut self, other: &Samples) {
        match (&mut *self, other) {
            (Samples::Few(known), Samples::Few(more)) => {
                known.extend(more);
                self.forget_many();
            }
            (_, Samples::Many) => *self = Samples::Many,
            (Samples::Many, Samples::Few(_)) => {}
        }
    }

    /// How many there are; `None` where there are many.
    pub fn distinct(&self) -> Option<u64> {
        match self {
            Samples::Few(known) => Some(known.len() as u64),
            Samples::Many => None,
        }
    }

    fn forget_many(&mut self) {
        if matches!(self, Samples::Few(known) if known.len() > MANY) {
            *self = Samples::Many;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f64>) -> Samples {
        let mut samples = Samples::default();
        values.into_iter().for_each(|value| samples.add(value));
        samples
    }

    #[test]
    fn values_that_come_again_count_once_and_many_are_not_counted() {
        assert_eq!(of([1.5, 1.5 + 1e-7, -1.5, 0.0]).distinct(), Some(3));
        assert_eq!(of((0..MANY).map(|i| i as f64)).distinct(), Some(MANY as u64));
        assert_eq!(of((0..=MANY).map(|i| i as f64)).distinct(), None);
    }

    #[test]
    fn parts_in_any_order_are_the_whole() {
        let (first, second) = (of((0..300).map(f64::from)), of((200..500).map(f64::from)));
        let mut both = first.clone();
        both.merge(&second);
        assert_eq!((both.distinct(), &both), (Some(500), &of((0..500).map(f64::from))));
        let mut most = of((400..700).map(f64::from));
        most.merge(&both);
        both.merge(&of((400..700).map(f64::from)));
        assert_eq!((&most, &both), (&Samples::Many, &Samples::Many));
    }
}
