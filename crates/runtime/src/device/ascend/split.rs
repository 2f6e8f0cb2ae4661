//! Blocks on a card: all codes of a matrix behind each other, and behind them all scales; of a stack, matrix by matrix.
//!
//! ```text
//!  │ codes of matrix 0 │ scales of matrix 0 │ codes of matrix 1 │ scales of matrix 1 │       each begins at a multiple of 128 bytes
//! ```
//!
//! So each matrix of a stack is one that operators can be given, and none of its parts is unaligned.

use super::acl::{Array, Type};
use trueup_blocks::{DType, SplitScale};
use trueup_graph::TensorType;

/// Elements of a block.
pub const LEN: usize = 32;

/// Parts begin at multiples of this.
const ALIGNMENT: usize = 128;

/// Where the parts of a tensor in blocks lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    layout: SplitScale,
    matrices: usize,
    /// Of one matrix.
    blocks: usize,
    /// Parts begin at multiples of this.
    alignment: usize,
}

impl Split {
    /// How a tensor of this type lies; `None` for types that stay as they are in a file.
    pub fn of(ty: &TensorType) -> Option<Split> {
        let layout = SplitScale::of(ty.dtype)?;
        let [columns, rows, n2, n3] = ty.shape.sizes();
        Some(Split { layout, matrices: n2 * n3, blocks: columns / LEN * rows, alignment: ALIGNMENT })
    }

    /// How a KV cache of this type lies: as one matrix, of whose rows any can be written at once.
    pub fn cache(ty: &TensorType) -> Option<Split> {
        Split::tight(ty).map(|split| Split { alignment: ALIGNMENT, ..split })
    }

    /// How an intermediate result of this type lies, in as many bytes as it has in a file: as one matrix without gaps.
    pub fn tight(ty: &TensorType) -> Option<Split> {
        let layout = SplitScale::of(ty.dtype)?;
        Some(Split { layout, matrices: 1, blocks: ty.shape.elements() / LEN, alignment: 1 })
    }

    fn code_bytes(&self) -> usize {
        (self.blocks * self.layout.value_bytes()).next_multiple_of(self.alignment)
    }

    fn matrix_bytes(&self) -> usize {
        self.code_bytes() + (self.blocks * SplitScale::SCALE_BYTES).next_multiple_of(self.alignment)
    }

    /// Bytes on the card.
    pub fn bytes(&self) -> usize {
        self.matrices * self.matrix_bytes()
    }

    /// From the file's form to the card's.
    pub fn split(&self, file: &[u8]) -> Vec<u8> {
        let mut card = vec![0; self.bytes()];
        let file_bytes = self.blocks * self.layout.dtype().block_bytes();
        for (file, card) in file.chunks_exact(file_bytes.max(1)).zip(card.chunks_exact_mut(self.matrix_bytes().max(1)))
        {
            let (codes, scales) = card.split_at_mut(self.code_bytes());
            let codes = &mut codes[..self.blocks * self.layout.value_bytes()];
            self.layout.split(file, codes, &mut scales[..self.blocks * SplitScale::SCALE_BYTES]);
        }
        card
    }

    /// Blocks of the file from one of it on, in the card's form: where on the card they go, codes and scales of each
    /// matrix.
    pub fn pieces(&self, first: usize, file: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let file_bytes = self.layout.dtype().block_bytes();
        let (mut block, mut rest, mut pieces) = (first, file, Vec::new());
        while rest.len() >= file_bytes && self.blocks > 0 {
            let (matrix, within) = (block / self.blocks, block % self.blocks);
            let count = (self.blocks - within).min(rest.len() / file_bytes);
            let (here, behind) = rest.split_at(count * file_bytes);
            let [mut codes, mut scales] =
                [self.layout.value_bytes(), SplitScale::SCALE_BYTES].map(|bytes| vec![0; count * bytes]);
            self.layout.split(here, &mut codes, &mut scales);
            let start = matrix * self.matrix_bytes();
            pieces.push((start + within * self.layout.value_bytes(), codes));
            pieces.push((start + self.code_bytes() + within * SplitScale::SCALE_BYTES, scales));
            (block, rest) = (block + count, behind);
        }
        pieces
    }

    /// From the card's form to the file's.
    pub fn join(&self, card: &[u8], file: &mut [u8]) {
        let file_bytes = self.blocks * self.layout.dtype().block_bytes();
        for (file, card) in file.chunks_exact_mut(file_bytes.max(1)).zip(card.chunks_exact(self.matrix_bytes().max(1)))
        {
            let (codes, scales) = card.split_at(self.code_bytes());
            let codes = &codes[..self.blocks * self.layout.value_bytes()];
            self.layout.join(codes, &scales[..self.blocks * SplitScale::SCALE_BYTES], file);
        }
    }

    /// What operators see of one matrix of `rows` by `columns`, whose first element has this number: codes `[rows,
    /// columns]` and scales `[rows, columns / 32]`.
    pub fn matrix(&self, address: u64, first: usize, [rows, columns]: [usize; 2]) -> Result<Matrix, String> {
        let block = first / LEN;
        let (matrix, block) = (block / self.blocks.max(1), block % self.blocks.max(1));
        if !first.is_multiple_of(LEN) || block + rows * columns / LEN > self.blocks {
            return Err(format!(
                "{rows} rows of {columns} from element {first} on split blocks or matrices of {}",
                self.layout.dtype()
            ));
        }
        let start = address + (matrix * self.matrix_bytes()) as u64;
        let ty = if self.layout.dtype() == DType::Q4_0 { Type::I4 } else { Type::I8 };
        let codes = start + (block * self.layout.value_bytes()) as u64;
        let scales = start + (self.code_bytes() + block * SplitScale::SCALE_BYTES) as u64;
        let [rows, columns] = [rows, columns].map(|size| size as i64);
        Ok(Matrix {
            codes: Array::dense(ty, codes, &[rows, columns]),
            scales: Array::dense(Type::F16, scales, &[rows, columns / LEN as i64]),
        })
    }
}

/// One matrix of weights in blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    /// Signed integers, `[rows, columns]`.
    pub codes: Array,
    /// What they are multiplied with, `[rows, columns / 32]`.
    pub scales: Array,
}

impl Matrix {
    /// Some of its rows.
    pub fn rows(&self, first: i64, rows: i64) -> Matrix {
        let part = |array: &Array| array.clone().part(0, first, rows);
        Matrix { codes: part(&self.codes), scales: part(&self.scales) }
    }

    /// The codes as bytes, whatever they hold.
    pub fn code_bytes(&self) -> Array {
        self.codes_as(Type::I8)
    }

    /// The codes as words, whatever they hold: a block has whole ones.
    pub fn code_words(&self) -> Array {
        self.codes_as(Type::I32)
    }

    fn codes_as(&self, ty: Type) -> Array {
        let together = (ty.bits() / self.codes.ty.bits()) as i64;
        let mut codes = self.codes.clone().of(ty);
        codes.offset /= together;
        codes.sizes[1] /= together;
        codes.steps[0] /= together;
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_from_the_card_as_they_were() {
        for dtype in SplitScale::DTYPES {
            let ty = TensorType::new(dtype, &[96, 5, 3]);
            let split = Split::of(&ty).unwrap();
            let file: Vec<u8> = (0..ty.bytes()).map(|i| (i * 37 % 251) as u8).collect();
            let card = split.split(&file);
            let mut found = vec![0; file.len()];
            split.join(&card, &mut found);
            assert_eq!(found, file);
            assert!(card.len() > file.len() && card.len().is_multiple_of(128));
            let tight = Split::tight(&ty).unwrap();
            let card = tight.split(&file);
            assert_eq!(card.len(), file.len());
            tight.join(&card, &mut found);
            assert_eq!(found, file);
        }
    }

    #[test]
    fn pieces_go_where_the_whole_puts_them() {
        for (dtype, layout) in SplitScale::DTYPES.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            let ty = TensorType::new(dtype, &[96, 5, 3]);
            let split = if layout { Split::cache(&ty) } else { Split::of(&ty) }.unwrap();
            let file: Vec<u8> = (0..ty.bytes()).map(|i| (i * 37 % 251) as u8).collect();
            let mut card = vec![0; split.bytes()];
            let (blocks, bytes) = (45, dtype.block_bytes());
            for (first, end) in [(0, 7), (7, 31), (31, blocks)] {
                for (place, piece) in split.pieces(first, &file[first * bytes..end * bytes]) {
                    card[place..place + piece.len()].copy_from_slice(&piece);
                }
            }
            assert_eq!(card, split.split(&file));
        }
    }

    #[test]
    fn matrices_of_a_stack_begin_at_aligned_places() {
        let split = Split::of(&TensorType::new(DType::Q4_0, &[32, 3, 2])).unwrap();
        let second = split.matrix(4096, 96, [3, 32]).unwrap();
        assert_eq!((second.codes.address, second.scales.address), (4096 + 256, 4096 + 256 + 128));
        assert_eq!(second.rows(1, 2).codes.offset, 32);
        assert!(split.matrix(4096, 64, [3, 32]).unwrap_err().contains("split blocks or matrices"));
    }
}
