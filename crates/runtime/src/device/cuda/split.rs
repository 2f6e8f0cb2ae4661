//! Weights with 32 codes per block, as stored on the card: planes, each with the same part of all blocks
//! (`kernels/cuda/split_blocks.cuh`).
//!
//! ```text
//!   file      head rest codes │ head rest codes │ ...
//!   planes    codes codes ... │ rest rest ... │ head head ...      each starts at a multiple of 256
//! ```
//!
//! The card converts between the two forms: `carrier.rs` at upload and download, `launches.rs` if an operator needs
//! the form of the file.

use super::driver::{Argument, Card, Grid, Launch};
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Planes begin at multiples of this.
const ALIGNMENT: usize = 256;

/// How the blocks of a weight are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    dtype: DType,
    blocks: usize,
    /// Bytes of a block's codes in the first plane, of what lies in the second and of its head.
    parts: [usize; 3],
}

/// Where parts of blocks lie on the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planes {
    /// 16 bytes of codes a block.
    pub codes: u64,
    /// The fifth bits of codes, or the last 16 of 8 bits.
    pub rest: u64,
    /// Scales, and minima or sums.
    pub heads: u64,
}

impl Planes {
    /// As kernels take them beside a view of the codes.
    pub fn beside(&self) -> [Argument; 2] {
        [self.rest, self.heads].map(Argument::Address)
    }
}

impl Split {
    /// How weights of this type are divided; `None` for those that stay as they are.
    pub fn of(ty: &TensorType) -> Option<Split> {
        let parts = match ty.dtype {
            DType::Q4_0 => [16, 0, 2],
            DType::Q4_1 => [16, 0, 4],
            DType::Q5_0 => [16, 4, 2],
            DType::Q5_1 => [16, 4, 4],
            DType::Q8_0 => [16, 16, 2],
            DType::Q8_1 => [16, 16, 4],
            _ => return None,
        };
        Some(Split { dtype: ty.dtype, blocks: ty.shape.elements() / ty.dtype.block_len(), parts })
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> usize {
        self.planes(0, self.blocks)[2] as usize
    }

    /// The planes of a weight at an address, from a block on.
    pub fn planes_from(&self, address: u64, block: usize) -> Planes {
        let [rest, heads, _] = self.planes(address, self.blocks);
        let [codes, rest, heads] = [(address, self.parts[0]), (rest, self.parts[1]), (heads, self.parts[2])]
            .map(|(plane, bytes)| plane + (block * bytes) as u64);
        Planes { codes, rest, heads }
    }

    /// Where the second and the third plane of so many blocks begin, and where the last one ends.
    fn planes(&self, address: u64, blocks: usize) -> [u64; 3] {
        let mut end = address;
        self.parts.map(|bytes| {
            end += (blocks * bytes).next_multiple_of(ALIGNMENT) as u64;
            end
        })
    }

    /// Bytes of the file's form.
    pub fn file_bytes(&self) -> usize {
        self.blocks * self.dtype.block_bytes()
    }

    /// Bytes of a block in the file.
    pub fn block_bytes(&self) -> usize {
        self.dtype.block_bytes()
    }

    /// What divides a range of the file's bytes, which lie at `file`: where it begins, and its length, whole blocks.
    pub fn dividing(&self, card: &Card, address: u64, file: u64, range: [usize; 2]) -> Result<Launch, String> {
        self.converting(card, "split", address, file, range)
    }

    /// What brings such a range into the file's form.
    pub fn joining(&self, card: &Card, address: u64, file: u64, range: [usize; 2]) -> Result<Launch, String> {
        self.converting(card, "join", address, file, range)
    }

    /// A launch of a kernel of `split_weights.cu`.
    fn converting(
        &self,
        card: &Card,
        kernel: &str,
        address: u64,
        file: u64,
        range: [usize; 2],
    ) -> Result<Launch, String> {
        let [first, count] = range.map(|bytes| bytes / self.dtype.block_bytes());
        let Planes { codes, rest, heads } = self.planes_from(address, 0);
        let arguments = [codes, rest, heads, file].map(Argument::Address);
        let blocks = [first, count].map(|blocks| Argument::Index(blocks as i64));
        // No card takes a grid of no block; the kernel looks at its numbers.
        let grid = Grid::elements(count.max(1))?;
        card.launch(&format!("{kernel}_{}", self.dtype.name()), grid, &[&arguments[..], &blocks].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_begin_at_multiples_of_256_and_hold_all_bytes_of_the_file() {
        for (dtype, parts) in [(DType::Q4_0, [48, 0, 6]), (DType::Q5_1, [48, 12, 12]), (DType::Q8_0, [48, 48, 6])] {
            let split = Split::of(&TensorType::new(dtype, &[32, 3])).unwrap();
            assert_eq!(split.file_bytes(), parts.iter().sum::<usize>());
            let Planes { codes, rest, heads } = split.planes_from(1024, 0);
            assert_eq!((codes, rest, split.bytes() as u64), (1024, 1280, heads - 1024 + 256));
            assert_eq!(heads - rest, if parts[1] == 0 { 0 } else { 256 });
            let second = split.planes_from(1024, 1);
            let steps = [second.codes - codes, second.rest - rest, second.heads - heads];
            assert_eq!(steps, parts.map(|bytes| bytes as u64 / 3));
        }
        assert_eq!(Split::of(&TensorType::new(DType::F16, &[32, 3])), None);
    }
}
