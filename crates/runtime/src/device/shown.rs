//! Copies the elements that a strided view selects, for devices that need dense tensors.

use trueup_graph::TensorType;

/// Brings what a view shows behind each other: elements, or blocks.
pub fn gather(ty: &TensorType, held: &[u8], target: &mut [u8]) {
    let (bytes, len) = (ty.dtype.block_bytes(), ty.dtype.block_len());
    let ([n0, n1, n2, _], strides) = (ty.shape.sizes(), ty.shape.strides());
    let across = n0 / len;
    for (number, target) in target.chunks_exact_mut(bytes).enumerate() {
        let row = number / across;
        let place = [number % across * len, row % n1, row / n1 % n2, row / n1 / n2];
        let distance: usize = place.iter().zip(strides.steps).map(|(place, step)| place * step).sum();
        target.copy_from_slice(&held[(strides.offset + distance) / len * bytes..][..bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;
    use trueup_graph::{Shape, Strides};

    fn view(dtype: DType, sizes: &[usize], offset: usize, steps: [usize; 4]) -> TensorType {
        TensorType { dtype, shape: Shape::new(sizes).seen_by(Strides { offset, steps }) }
    }

    #[test]
    fn what_a_view_shows_is_brought_behind_each_other() {
        // Every second column of a matrix of four.
        let ty = view(DType::F16, &[2, 3], 1, [2, 4, 12, 12]);
        let held: Vec<u8> = (0..2 * 12).collect();
        let mut found = vec![0; ty.bytes()];
        gather(&ty, &held, &mut found);
        assert_eq!(found, [2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23]);

        // The second of each two rows of blocks.
        let ty = view(DType::Q8_0, &[32, 2], 32, [1, 64, 128, 128]);
        let held: Vec<u8> = (0..4).flat_map(|row| [row; 34]).collect();
        let mut found = vec![0; ty.bytes()];
        gather(&ty, &held, &mut found);
        assert_eq!(found, [[1; 34], [3; 34]].concat());
    }
}
