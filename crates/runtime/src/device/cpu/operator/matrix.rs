//! One matrix of a stack, applied to rows of activations.
//!
//! ```text
//!  q4_0, q8_0             activations to 8 bits ─▶ panels of sixteen rows, integers within blocks      (panel_product.rs)
//!  f32, f16, bf16         32 lanes over K                                                               (dots.rs)
//!  other block types      some rows at a time are decoded to f32, then as f32
//! ```
//!
//! Threads take rows. The order of summation over K is the same for any number of tokens, and for any place in the stack.

use super::Operand;
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::kernel::{self, ActivationBlock, Rows};
use crate::device::cpu::memory::View;
use crate::device::cpu::panels::{BLOCK_LEN, PANEL_ROWS, PanelBlock, Panels, pack_panel};
use crate::profile::{Accumulator, Activations, Products, Profile, Rounding};
use rayon::prelude::*;
use std::borrow::Cow;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::Gated;

/// Sums in f32 of plain products.
const FLOATS: Profile = Profile { lanes: kernel::DOT_LANES, ..Profile::F32 };

/// Sums of integers per block, exact, and of blocks in f32 one after the other, each with the rounded product of two scales.
const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    ..Profile::F32
};

/// How weights of this type are multiplied.
pub fn profile(weights: DType) -> Result<Profile, String> {
    match weights {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(FLOATS),
        DType::Q4_0 | DType::Q8_0 => Ok(INTEGERS),
        // The decoded weight is exact in f32.
        DType::Q5_0 | DType::Q8_1 | DType::Q3K | DType::Q6K | DType::Iq4Nl => Ok(FLOATS),
        // `d * q + m` is rounded once, which is as much as a rounded product.
        DType::Q4_1 | DType::Q5_1 | DType::Q2K | DType::Q4K | DType::Q5K => {
            Ok(Profile { products: Products::Rounded, ..FLOATS })
        }
        dtype => {
            Err(format!("{dtype} weights cannot be multiplied here; use f32, f16, bf16 or a type with 32 per block"))
        }
    }
}

/// Matrix number `index` of a stack `[len, rows, ...]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    stack: &'a Operand<'a>,
    index: usize,
}

impl<'a> Matrix<'a> {
    /// The matrix with this number, counted over the outer dimensions.
    pub fn of(stack: &'a Operand<'a>, index: usize) -> Matrix<'a> {
        Matrix { stack, index }
    }

    /// `y[rows, tokens]` from `x[len, tokens]`; neither `rows` nor `tokens` is 0.
    pub fn apply(self, instructions: Instructions, x: &[f32], tokens: usize, y: &mut [f32]) -> Result<(), String> {
        let product = Product::new(self, instructions, tokens)?;
        let xs = product.taken(x);
        product.for_rows(y, |first, count, sums| product.rows_of(self, &xs, first, count, sums));
        Ok(())
    }

    /// `y[rows, tokens] = f(gate x) (up x)`, with the bits that the two products and the gated activation by themselves have: activations are
    /// brought into the weights' form once, and each piece of rows is multiplied by both matrices and gated where it lies. Fails where they
    /// take activations in two forms; neither `rows` nor `tokens` is 0.
    pub fn apply_gated(
        [gate, up]: [Matrix; 2],
        gated: Gated,
        instructions: Instructions,
        x: &[f32],
        tokens: usize,
        y: &mut [f32],
    ) -> Result<(), String> {
        let product = Product::new(gate, instructions, tokens)?;
        if Product::new(up, instructions, tokens)?.in_codes != product.in_codes {
            return Err("gate and up take activations in two forms; compute them one by one".to_owned());
        }
        let xs = product.taken(x);
        product.for_rows(y, |first, count, y| {
            let mut products = vec![0.0; 2 * y.len()];
            let (gates, ups) = products.split_at_mut(y.len());
            product.rows_of(gate, &xs, first, count, gates);
            product.rows_of(up, &xs, first, count, ups);
            kernel::gated(instructions, gated, gates, ups, y);
        });
        Ok(())
    }

    /// Panel `index` of this matrix: one of the stack's where the matrix begins with a panel, else packed again.
    fn panel<const GROUPS: usize>(self, panels: &'a Panels<GROUPS>, index: usize) -> Cow<'a, [PanelBlock<GROUPS>]> {
        let rows = self.stack.ty.shape[1];
        let first = self.index * rows;
        if first.is_multiple_of(PANEL_ROWS) {
            return Cow::Borrowed(panels.panel(first / PANEL_ROWS + index));
        }
        let taken = PANEL_ROWS.min(rows - index * PANEL_ROWS);
        let mut bytes = vec![0; taken * panels.row_bytes()];
        for (row, bytes) in bytes.chunks_exact_mut(panels.row_bytes()).enumerate() {
            panels.unpack_row(first + index * PANEL_ROWS + row, bytes);
        }
        unpacked_panel(&bytes, self.stack.ty.shape[0], 0)
    }
}

/// Packs a panel of a matrix that is kept as in the file.
fn unpacked_panel<const GROUPS: usize>(bytes: &[u8], len: usize, index: usize) -> Cow<'static, [PanelBlock<GROUPS>]> {
    let mut panel = vec![PanelBlock::ZERO; len / BLOCK_LEN];
    let panel_bytes = size_of_val(&panel[..]);
    let start = index * panel_bytes;
    pack_panel(&bytes[start..bytes.len().min(start + panel_bytes)], &mut panel);
    Cow::Owned(panel)
}

/// Activations of all tokens in the form that weights are multiplied with.
struct Taken<'x> {
    floats: Rows<'x, f32>,
    /// The same in 8 bits; empty where weights take floats.
    codes: Vec<ActivationBlock>,
}

/// A kernel of [`kernel::panel_product_q8_0`]'s form.
type PanelProduct<const GROUPS: usize> =
    fn(Instructions, &[PanelBlock<GROUPS>], Rows<ActivationBlock>, &mut [[f32; PANEL_ROWS]]);

/// Products `[rows, tokens]` of matrices `[len, rows]` of one kind with activations `[len, tokens]`.
#[derive(Clone, Copy)]
struct Product {
    instructions: Instructions,
    len: usize,
    rows: usize,
    tokens: usize,
    /// Whether activations are multiplied in 8 bits.
    in_codes: bool,
}

impl Product {
    /// Products of this matrix and of others that take activations in the same form.
    fn new(matrix: Matrix, instructions: Instructions, tokens: usize) -> Result<Product, String> {
        let TensorType { dtype, shape } = matrix.stack.ty;
        let in_codes = profile(dtype)?.activations != Activations::Unchanged;
        dtype.decoder().ok_or_else(|| format!("{dtype} cannot be decoded"))?;
        Ok(Product { instructions, len: shape[0], rows: shape[1], tokens, in_codes })
    }

    /// Activations as these products take them.
    fn taken(self, x: &[f32]) -> Taken<'_> {
        let codes = if self.in_codes { self.quantize(x) } else { Vec::new() };
        Taken { floats: Rows::dense(x, self.tokens, self.len), codes }
    }

    /// `count` rows of a matrix from row `first` on, by all tokens: `sums[r + count * t]`.
    fn rows_of(self, matrix: Matrix, xs: &Taken, first: usize, count: usize, sums: &mut [f32]) {
        let start = (matrix.index * self.rows + first) * self.len;
        let cells = start..start + count * self.len;
        let (instructions, len) = (self.instructions, self.len);
        match matrix.stack.view {
            View::F32(all) => kernel::dots_f32(instructions, Rows::dense(&all[cells], count, len), xs.floats, sums),
            View::F16(all) => kernel::dots_f16(instructions, Rows::dense(&all[cells], count, len), xs.floats, sums),
            View::Bf16(all) => kernel::dots_bf16(instructions, Rows::dense(&all[cells], count, len), xs.floats, sums),
            View::Blocks(bytes) => self.rows_of_blocks(matrix, bytes, xs, first, count, sums),
            View::Q4Panels(panels) => {
                let panel = |index| matrix.panel(panels, index);
                self.quantized(panel, xs, first, count, sums, kernel::panel_product_q4_0);
            }
            View::Q8Panels(panels) => {
                let panel = |index| matrix.panel(panels, index);
                self.quantized(panel, xs, first, count, sums, kernel::panel_product_q8_0);
            }
        }
    }

    /// Rows of blocks as in the file: packed, or decoded to f32, just before they are used.
    fn rows_of_blocks(self, matrix: Matrix, all: &[u8], xs: &Taken, first: usize, count: usize, sums: &mut [f32]) {
        let dtype = matrix.stack.ty.dtype;
        let row_bytes = self.len / dtype.block_len() * dtype.block_bytes();
        let bytes = &all[matrix.index * self.rows * row_bytes..][..self.rows * row_bytes];
        match (dtype, dtype.decoder()) {
            (DType::Q4_0, _) => {
                let panel = |index| unpacked_panel(bytes, self.len, index);
                self.quantized(panel, xs, first, count, sums, kernel::panel_product_q4_0);
            }
            (DType::Q8_0, _) => {
                let panel = |index| unpacked_panel(bytes, self.len, index);
                self.quantized(panel, xs, first, count, sums, kernel::panel_product_q8_0);
            }
            (_, Some(decoder)) => {
                let mut rows = vec![0.0; count * self.len];
                (decoder.decode)(&bytes[first * row_bytes..][..count * row_bytes], &mut rows);
                kernel::dots_f32(self.instructions, Rows::dense(&rows, count, self.len), xs.floats, sums);
            }
            (_, None) => unreachable!("{dtype} was found to be decoded when the product began"),
        }
    }

    /// Rows in panels by quantized activations.
    fn quantized<'a, const GROUPS: usize>(
        self,
        panel: impl Fn(usize) -> Cow<'a, [PanelBlock<GROUPS>]>,
        xs: &Taken,
        first: usize,
        count: usize,
        sums: &mut [f32],
        product: PanelProduct<GROUPS>,
    ) {
        let xs = Rows::dense(&xs.codes, self.tokens, self.len / BLOCK_LEN);
        let mut tile = vec![[0.0; PANEL_ROWS]; self.tokens];
        for row in (0..count).step_by(PANEL_ROWS) {
            product(self.instructions, &panel((first + row) / PANEL_ROWS), xs, &mut tile);
            let rows = PANEL_ROWS.min(count - row);
            for (sums, tile) in sums.chunks_exact_mut(count).zip(&tile) {
                sums[row..row + rows].copy_from_slice(&tile[..rows]);
            }
        }
    }

    fn quantize(self, x: &[f32]) -> Vec<ActivationBlock> {
        let mut blocks = vec![ActivationBlock::default(); self.tokens * self.len / BLOCK_LEN];
        if self.len > 0 {
            let tokens = blocks.par_chunks_mut(self.len / BLOCK_LEN).zip(x.par_chunks(self.len));
            let tokens = tokens.with_min_len(super::pieces_min(2 * self.len));
            tokens.for_each(|(blocks, x)| kernel::quantize(self.instructions, x, blocks));
        }
        blocks
    }

    /// Cuts the rows into pieces of whole panels; `compute(first row, rows, sums)` fills `sums[r + rows * t]`.
    fn for_rows(self, y: &mut [f32], compute: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let piece = self.rows_per_piece();
        if self.tokens == 1 {
            let pieces = y.par_chunks_mut(piece).enumerate();
            pieces.for_each(|(index, sums)| compute(index * piece, sums.len(), sums));
            return;
        }
        let pieces = pieces_of_rows(y, self.rows, piece);
        pieces.into_par_iter().enumerate().for_each(|(index, mut targets)| {
            let count = targets[0].len();
            let mut sums = vec![0.0; count * self.tokens];
            compute(index * piece, count, &mut sums);
            for (target, sums) in targets.iter_mut().zip(sums.chunks_exact(count)) {
                target.copy_from_slice(sums);
            }
        });
    }

    /// Enough rows to be worth a thread's while, at most as many as keep their weights in a core's cache over all tokens.
    fn rows_per_piece(self) -> usize {
        const WORK_MIN: usize = 1 << 16;
        const ROWS_MAX: usize = PANEL_ROWS;
        let rows = (WORK_MIN / (self.len * self.tokens).max(1)).next_multiple_of(PANEL_ROWS);
        rows.clamp(PANEL_ROWS, if self.tokens == 1 { usize::MAX / 2 } else { ROWS_MAX })
    }
}

/// Cuts `y[rows, tokens]` along its rows: `pieces[i][t]` holds rows `i * piece ...` of token `t`.
fn pieces_of_rows(y: &mut [f32], rows: usize, piece: usize) -> Vec<Vec<&mut [f32]>> {
    let mut pieces: Vec<Vec<&mut [f32]>> = (0..rows.div_ceil(piece)).map(|_| Vec::new()).collect();
    for token in y.chunks_exact_mut(rows) {
        for (piece, target) in pieces.iter_mut().zip(token.chunks_mut(piece)) {
            piece.push(target);
        }
    }
    pieces
}
