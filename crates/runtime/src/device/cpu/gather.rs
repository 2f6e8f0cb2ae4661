//! Elements to other places.
//!
//! ```text
//!   y[i0, i1, i2, i3] = x[places[0][i0] + places[1][i1] + places[2][i2] + places[3][i3]]      where all four have one
//! ```

use super::team::Team;
use std::array;

/// For each dimension of the target and each index in it, how much it adds to the place of the element in the source;
/// `None` where no element of the source goes.
pub struct Places([Vec<Option<usize>>; 4]);

impl Places {
    /// From a function of the dimension and the index in it, for a target of these sizes.
    pub fn new(sizes: [usize; 4], place: impl Fn(usize, usize) -> Option<usize>) -> Places {
        Places(array::from_fn(|dimension| (0..sizes[dimension]).map(|index| place(dimension, index)).collect()))
    }

    /// The source's places of row `row` of the target, less those of the innermost dimension.
    fn row(&self, row: usize) -> Option<usize> {
        let [_, first, second, third] = &self.0;
        let (i, j, k) = (row % first.len(), row / first.len() % second.len(), row / first.len() / second.len());
        Some(first[i]? + second[j]? + third[k]?)
    }

    /// Runs of neighbours in a row that are neighbours in the source too: from where in the row, from where in the
    /// source, how many.
    fn runs(&self) -> Vec<(usize, usize, usize)> {
        let mut runs: Vec<(usize, usize, usize)> = Vec::new();
        for (index, place) in self.0[0].iter().enumerate() {
            let Some(place) = *place else { continue };
            match runs.last_mut() {
                Some((to, from, len)) if *to + *len == index && *from + *len == place => *len += 1,
                _ => runs.push((index, place, 1)),
            }
        }
        runs
    }
}

/// Takes elements of `source` into the target, and leaves those that have no place as they are. Panics where a place
/// lies outside the source.
pub fn gather<T: Copy + Send + Sync>(team: &Team, source: &[T], places: &Places, target: &mut [T]) {
    const PIECE_MIN: usize = 1 << 15;
    let len = places.0[0].len();
    if target.is_empty() {
        return;
    }
    let runs = places.runs();
    team.each(target.chunks_mut(len).enumerate(), (PIECE_MIN / len).max(1), |(row, target)| {
        let Some(start) = places.row(row) else { return };
        for (to, from, len) in &runs {
            match len {
                1 => target[*to] = source[start + from],
                len => target[*to..to + len].copy_from_slice(&source[start + from..][..*len]),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_part_goes_where_it_belongs() {
        let source: Vec<i32> = (0..12).collect();
        let places = Places::new([4, 3, 1, 1], |dimension, index| match dimension {
            0 => (index > 0).then(|| (index - 1) * 4),
            1 => Some(index + 1),
            _ => Some(0),
        });
        let mut target = [-1; 12];
        gather(&Team::new(1).unwrap(), &source, &places, &mut target);
        assert_eq!(target, [-1, 1, 5, 9, -1, 2, 6, 10, -1, 3, 7, 11]);
    }

    #[test]
    fn neighbours_are_copied_together() {
        let places =
            Places::new([6, 1, 1, 1], |dimension, index| Some(if dimension == 0 { (index + 2) % 6 } else { 0 }));
        assert_eq!(places.runs(), [(0, 2, 4), (4, 0, 2)]);
    }
}
