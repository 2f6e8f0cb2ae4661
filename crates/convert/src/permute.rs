//! The order of rows that a rotation of neighbours needs, and its inverse.
//!
//! ```text
//! rows of a head of 8, pairs as halves      0 1 2 3 | 4 5 6 7      pair i = rows (i, i + 4)
//! the same, pairs as neighbours             0 4 1 5 2 6 3 7        pair i = rows (2 i, 2 i + 1)
//! ```
//!
//! Both functions work on whole heads, so that a chunk of heads can be sorted without the rest of the tensor.

/// Row `2 i + half` of each head becomes row `i + half * n / 2` of `source`, `n` rows of `row_len` items to a head:
/// bytes, or elements. Both slices hold the same whole heads; a head has an even number of rows.
pub fn sort_rope_rows<T: Copy>(source: &[T], target: &mut [T], head_rows: usize, row_len: usize) {
    move_rows(source, target, head_rows, row_len, |row| (row % 2) * (head_rows / 2) + row / 2);
}

/// The inverse of [`sort_rope_rows`].
pub fn restore_rope_rows<T: Copy>(source: &[T], target: &mut [T], head_rows: usize, row_len: usize) {
    move_rows(source, target, head_rows, row_len, |row| {
        let half = head_rows / 2;
        2 * (row % half) + row / half
    });
}

fn move_rows<T: Copy>(source: &[T], target: &mut [T], head_rows: usize, row_len: usize, from: impl Fn(usize) -> usize) {
    assert!(head_rows > 0 && head_rows.is_multiple_of(2), "a head of {head_rows} rows has no pairs");
    assert_eq!(source.len(), target.len(), "source and target differ in size");
    let head_len = head_rows * row_len;
    assert!(
        head_len > 0 && source.len().is_multiple_of(head_len),
        "{} items cannot be split into whole heads",
        source.len()
    );
    for (source, target) in source.chunks_exact(head_len).zip(target.chunks_exact_mut(head_len)) {
        for (row, target) in target.chunks_exact_mut(row_len).enumerate() {
            let start = from(row) * row_len;
            target.copy_from_slice(&source[start..start + row_len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `numpy.arange(16).reshape(2, 2, 4).swapaxes(1, 2).ravel()`: two heads of eight rows.
    #[test]
    fn two_heads_as_numpy_sorts_them() {
        let source: Vec<u8> = (0..16).collect();
        let mut target = vec![0; 16];
        sort_rope_rows(&source, &mut target, 8, 1);
        assert_eq!(target, [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
    }

    proptest! {
        #[test]
        fn restoring_undoes_sorting(heads in 1usize..5, half in 1usize..9, row_bytes in 1usize..9, seed in any::<u8>()) {
            let bytes = heads * 2 * half * row_bytes;
            let source: Vec<u8> = (0..bytes).map(|place| (place as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            let (mut sorted, mut restored) = (vec![0; bytes], vec![0; bytes]);
            sort_rope_rows(&source, &mut sorted, 2 * half, row_bytes);
            restore_rope_rows(&sorted, &mut restored, 2 * half, row_bytes);
            prop_assert_eq!(&restored, &source);
            // Pair i of a head comes from its rows i and i + half.
            for head in 0..heads {
                for pair in 0..half {
                    for side in 0..2 {
                        let row = |index: usize| (head * 2 * half + index) * row_bytes;
                        let (new, old) = (row(2 * pair + side), row(pair + side * half));
                        prop_assert_eq!(&sorted[new..new + row_bytes], &source[old..old + row_bytes]);
                    }
                }
            }
        }
    }
}
