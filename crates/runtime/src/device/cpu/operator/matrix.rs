//! Products of the matrices of a stack with rows of activations.
//!
//! ```text
//! 32 per block, 4 to 8   activations in 8 bits ─▶ packed tiles, integers in blocks    (`PackedFormat`)
//! other block types      activations in 8 bits ─▶ packed tiles, integers in sub-blocks (`PackedFormat`)
//! f32, f16, bf16         few tokens:  32 lanes over K                                 (`dots_f32`)
//!                        many tokens: transposed, lane after lane, the same bits      (`turned_product_f32`)
//! tq1_0                  some rows at a time are decoded to f32, then as f32
//! ```
//!
//! Threads take strips of 32 rows of all matrices that take part, as one list. Tokens are processed in tiles of up to
//! eighteen. All packed tiles of a strip use the same few token tiles, which stay in a core's cache, before the next
//! ones. The order of summation over K does not depend on the number of tokens or on the position in the stack.

use super::groups::{Form, Group, Inputs, Product, Taken, Tile};
use super::panel_strip::PanelStrip;
use super::{Means, Operand, pieces_min};
use crate::device::cpu::columns::{Outputs, Piece};
use crate::device::cpu::memory::View;
use crate::device::cpu::prefetch_tuner::PREFETCH_TUNER;
use crate::device::cpu::spare::{Lent, Spare};
use crate::profile::{Accumulator, Activations, Profile, Rounding};
use half::{bf16, f16};
use std::ops::Range;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::Gated;
use trueup_kernels::Instructions;
use trueup_kernels::{
    self as kernel, PANEL_ROWS, PackedFormat, Prefetch, Rows, STREAMED_TOKENS, TILE, TURNED_ROWS, Turned,
};

/// Sums in f32 of plain products.
const FLOATS: Profile = Profile { lanes: kernel::DOT_LANES, ..Profile::F32 };

/// Exact sums of integers per block or sub-block with one scale, added up in f32 one after the other, each times the
/// rounded product of two scales, followed by the minimum times the sum of the activations.
const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    ..Profile::F32
};

/// How weights of this type are multiplied.
pub fn profile(weights: DType) -> Result<Profile, String> {
    match weights {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(FLOATS),
        dtype if PackedFormat::of(dtype).is_some() => Ok(INTEGERS),
        // The decoded weight is exact in f32.
        DType::Tq1_0 => Ok(FLOATS),
        dtype => Err(format!(
            "{dtype} weights cannot be multiplied on this device; use f32, f16, bf16, a K type or a type with \
                32 elements per block"
        )),
    }
}

/// Matrix number `index` of a stack `[len, rows, ...]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    stack: &'a Operand<'a>,
    index: usize,
}

/// Rows that are multiplied at once: those of two panels.
const STRIP_ROWS: usize = TURNED_ROWS;

/// Results of a tile: those of the first panel's rows for each token, then the second's.
type Sums = [[f32; PANEL_ROWS]];

impl<'a> Matrix<'a> {
    /// The matrix with this number, counted over the outer dimensions.
    pub fn of(stack: &'a Operand<'a>, index: usize) -> Matrix<'a> {
        Matrix { stack, index }
    }

    /// `y[rows, tokens]` from `x[len, tokens]`; neither `rows` nor `tokens` is 0.
    pub fn apply(self, means: Means, x: &[f32], tokens: usize, y: &mut [f32]) -> Result<(), String> {
        let group = Group { index: self.index, first: 0, tokens };
        Matrix::apply_each(self.stack, &[group], means, Inputs { cells: x, rows: None }, Outputs::in_order(y))
    }

    /// Applies a matrix of the stack to each group of tokens, all in one list of work. Neither the rows of a matrix nor
    /// the tokens of a group are 0. Groups have different tokens in ascending order, or all have the same single token.
    pub fn apply_each(stack: &Operand, groups: &[Group], means: Means, x: Inputs, y: Outputs) -> Result<(), String> {
        let products = Grouped::new(stack, means, groups)?;
        let strip = |product: &Product, rows| Matrix::of(stack, product.index).strip(rows, product, means);
        products.each_tile(x, y, 1, strip, |strip, xs, [sums, ..]| strip.multiply(means, xs, sums));
        Ok(())
    }

    /// `y[rows, tokens] = f(gate x) (up x)`, with the bits that the two products and the gated activation by themselves
    /// have: activations are brought into the weights' form once, and each tile is multiplied by both matrices and
    /// gated where it lies. Fails where they take activations in two forms; neither `rows` nor `tokens` is 0.
    pub fn apply_gated(
        [gate, up]: [Matrix; 2],
        gated: Gated,
        means: Means,
        x: &[f32],
        tokens: usize,
        y: &mut [f32],
    ) -> Result<(), String> {
        let group = |matrix: Matrix| Group { index: matrix.index, first: 0, tokens };
        let products = Grouped::new(gate.stack, means, &[group(gate)])?;
        if Grouped::new(up.stack, means, &[group(up)])?.form() != products.form() {
            return Err("gate and up need activations in two formats; compute them separately".to_owned());
        }
        let strips = |product: &Product, rows: Range<usize>| {
            (gate.strip(rows.clone(), product, means), up.strip(rows, product, means))
        };
        let x = Inputs { cells: x, rows: None };
        products.each_tile(x, Outputs::in_order(y), 2, strips, |(gate, up), xs, [sums, gates, ups]| {
            gate.multiply(means, xs, gates);
            up.multiply(means, xs, ups);
            kernel::gated(means.instructions, gated, gates.as_flattened(), ups.as_flattened(), sums.as_flattened_mut());
        });
        Ok(())
    }

    /// Up to a strip's rows from a multiple of these on, in the form that they are multiplied in.
    fn strip<'s>(self, rows: Range<usize>, product: &Product, means: Means<'s>) -> Strip<'s>
    where
        'a: 's,
    {
        let [len, all_rows, ..] = self.stack.ty.shape.sizes();
        let first = self.index * all_rows + rows.start;
        let cells = first * len..(first + rows.len()) * len;
        let count = rows.len();
        let strip = match self.stack.view {
            View::F32(all) => Strip::F32(Rows::dense(&all[cells], count, len)),
            View::F16(all) => Strip::F16(Rows::dense(&all[cells], count, len)),
            View::Bf16(all) => Strip::Bf16(Rows::dense(&all[cells], count, len)),
            View::Packed(packed) => Strip::Panels(PanelStrip::of(packed, first, count, means)),
            View::Blocks(bytes) => {
                let dtype = self.stack.ty.dtype;
                let row_bytes = len / dtype.block_len() * dtype.block_bytes();
                Strip::of_blocks(dtype, &bytes[first * row_bytes..][..count * row_bytes], len, means)
            }
        };
        if product.form == Form::Turned { strip.turned(means) } else { strip }
    }
}

/// Weights of up to [`STRIP_ROWS`] rows.
enum Strip<'a> {
    F32(Rows<'a, f32>),
    F16(Rows<'a, f16>),
    Bf16(Rows<'a, bf16>),
    /// Decoded, of this length.
    Decoded(Lent<'a, f32>, usize),
    TurnedF32(Lent<'a, Turned<f32>>),
    TurnedF16(Lent<'a, Turned<f16>>),
    TurnedBf16(Lent<'a, Turned<bf16>>),
    Panels(PanelStrip<'a>),
}

impl<'a> Strip<'a> {
    /// Rows of `len` weights in blocks as in the file: packed or decoded.
    fn of_blocks(dtype: DType, bytes: &[u8], len: usize, means: Means<'a>) -> Strip<'a> {
        if let Some(panels) = PanelStrip::of_blocks(dtype, bytes, len, means) {
            return Strip::Panels(panels);
        }
        let Some(decoder) = dtype.decoder() else {
            unreachable!("{dtype} was found to be decoded when the product began");
        };
        let mut rows = means.spares.decoded.lend(bytes.len() / dtype.block_bytes() * dtype.block_len());
        (decoder.decode)(bytes, &mut rows);
        Strip::Decoded(rows, len)
    }

    /// The same rows turned over, where they are multiplied with floats.
    fn turned(self, Means { instructions, spares, .. }: Means<'a>) -> Strip<'a> {
        let of_f32 = |rows| Strip::TurnedF32(turned(rows, &spares.turned_f32, instructions, kernel::turn_f32));
        match self {
            Strip::F32(rows) => of_f32(rows),
            Strip::F16(rows) => Strip::TurnedF16(turned(rows, &spares.turned_f16, instructions, kernel::turn_f16)),
            Strip::Bf16(rows) => Strip::TurnedBf16(turned(rows, &spares.turned_bf16, instructions, kernel::turn_bf16)),
            Strip::Decoded(cells, len) => of_f32(Rows::dense(&cells, cells.len() / len.max(1), len)),
            Strip::Panels(_) | Strip::TurnedF32(_) | Strip::TurnedF16(_) | Strip::TurnedBf16(_) => self,
        }
    }

    /// The results of a tile's tokens; those behind the last row are of no meaning.
    fn multiply(&self, means: Means, xs: &Tile, sums: &mut Sums) {
        let (instructions, tokens) = (means.instructions, xs.tokens);
        let floats = |len: usize| Rows::dense(xs.floats, tokens, len);
        match self {
            Strip::TurnedF32(rows) => kernel::turned_product_f32(instructions, rows, xs.turned, tokens, sums),
            Strip::TurnedF16(rows) => kernel::turned_product_f16(instructions, rows, xs.turned, tokens, sums),
            Strip::TurnedBf16(rows) => kernel::turned_product_bf16(instructions, rows, xs.turned, tokens, sums),
            Strip::Panels(panels) => panels.multiply(instructions, xs.codes, tokens, sums),
            Strip::F32(rows) => spread(rows.count(), tokens, sums, |dots| {
                kernel::dots_f32(instructions, *rows, floats(rows.len()), dots)
            }),
            Strip::F16(rows) => spread(rows.count(), tokens, sums, |dots| {
                kernel::dots_f16(instructions, *rows, floats(rows.len()), dots)
            }),
            Strip::Bf16(rows) => {
                spread(rows.count(), tokens, sums, |dots| {
                    kernel::dots_bf16(instructions, *rows, floats(rows.len()), dots)
                });
            }
            Strip::Decoded(cells, len) => {
                let rows = Rows::dense(cells, cells.len() / len.max(&1), *len);
                spread(rows.count(), tokens, sums, |dots| kernel::dots_f32(instructions, rows, floats(*len), dots));
            }
        }
    }
}

/// Rows that a kernel turns over.
fn turned<'s, E: Copy + Default>(
    rows: Rows<E>,
    spare: &'s Spare<Turned<E>>,
    instructions: Instructions,
    turn: fn(Instructions, Rows<E>, &mut [Turned<E>]),
) -> Lent<'s, Turned<E>> {
    let mut cells = spare.lend(kernel::turned_len(rows.len()));
    turn(instructions, rows, &mut cells);
    cells
}

/// Brings results `[rows, tokens]` to where those of panels lie.
fn spread(rows: usize, tokens: usize, sums: &mut Sums, compute: impl FnOnce(&mut [f32])) {
    if rows == PANEL_ROWS {
        return compute(sums.as_flattened_mut());
    }
    let mut dots = [0.0; STRIP_ROWS * TILE];
    let dots = &mut dots[..rows * tokens];
    compute(dots);
    for (token, dots) in dots.chunks_exact(rows).enumerate() {
        for (panel, dots) in dots.chunks(PANEL_ROWS).enumerate() {
            sums[token + tokens * panel][..dots.len()].copy_from_slice(dots);
        }
    }
}

/// The products of some matrices of a stack.
struct Grouped<'m> {
    means: Means<'m>,
    all: Vec<Product>,
    /// Whether the kernels read each weight only once, and use the current prefetch strategy.
    is_streamed: bool,
}

impl<'m> Grouped<'m> {
    /// Those of each group with its matrix, and of other matrices that take activations in the same form.
    fn new(stack: &Operand, means: Means<'m>, groups: &[Group]) -> Result<Grouped<'m>, String> {
        let TensorType { dtype, shape } = stack.ty;
        let turned_from = kernel::turned_from(means.instructions.isa());
        let takes_codes = profile(dtype)?.activations != Activations::Unchanged;
        dtype.decoder().ok_or_else(|| format!("{dtype} cannot be decoded"))?;
        let product = |group: &Group| {
            let form = if takes_codes {
                Form::Codes
            } else if turned_from.is_some_and(|from| group.tokens >= from) {
                Form::Turned
            } else {
                Form::Floats
            };
            Product::new(group, [shape[0], shape[1]], form)
        };
        let all: Vec<Product> = groups.iter().map(product).collect();
        let tokens_max = match stack.view {
            View::Packed(_) => STREAMED_TOKENS,
            View::F32(_) | View::F16(_) | View::Bf16(_) => 1,
            View::Blocks(_) => 0,
        };
        let is_streamed = Prefetch::is_used_by(means.instructions.isa())
            && all.iter().all(|product| product.tokens <= tokens_max && product.form != Form::Turned);
        Ok(Grouped { means, all, is_streamed })
    }

    /// What the first group's activations are brought into.
    fn form(&self) -> Option<Form> {
        self.all.first().map(|product| product.form)
    }

    /// Lets threads take strips of rows, of `matrices` matrices at once, and multiply each by tile after tile. The
    /// first of the three results that a tile finds room for is taken.
    fn each_tile<P>(
        &self,
        x: Inputs,
        mut y: Outputs,
        matrices: usize,
        strip: impl Fn(&Product, Range<usize>) -> P + Sync,
        multiply: impl Fn(&P, &Tile, [&mut Sums; 3]) + Sync,
    ) {
        let xs = Taken::new(&self.all, x, self.means);
        // Of each group the tokens that are seen first, then those that are seen next.
        let mut rounds: Vec<Vec<(&Product, usize, Piece)>> = Vec::new();
        for product in &self.all {
            let seen = product.tokens_seen();
            for (round, first) in (0..product.tokens).step_by(seen).enumerate() {
                if round == rounds.len() {
                    rounds.push(Vec::new());
                }
                let columns = y.take(seen.min(product.tokens - first), product.rows, STRIP_ROWS);
                rounds[round].extend(columns.map(|piece| (product, first, piece)));
            }
        }
        for pieces in rounds {
            let work = |(product, _, piece): &(&Product, usize, Piece)| product.len * STRIP_ROWS * piece.tokens();
            let grain = pieces_min(matrices * pieces.iter().map(work).min().unwrap_or(0));
            let compute = |pieces: Vec<(&Product, usize, Piece)>| {
                self.means.team.each(pieces.into_iter(), grain, |(product, first, mut piece)| {
                    let strip = strip(product, piece.first()..piece.first() + piece.count());
                    let multiply = |xs: &Tile, sums: [&mut Sums; 3]| multiply(&strip, xs, sums);
                    // Zeros cost time, too, where a strip is read once.
                    if product.tile == 1 {
                        tiles::<2>(product, &mut piece, &xs, first, multiply);
                    } else {
                        tiles::<{ 2 * TILE }>(product, &mut piece, &xs, first, multiply);
                    }
                });
            };
            if self.is_streamed {
                let elements = matrices * self.all.iter().map(|product| product.rows * product.len).sum::<usize>();
                PREFETCH_TUNER.run(elements, pieces, compute);
            } else {
                compute(pieces);
            }
        }
    }
}

/// The results of a strip, tile after tile, of which each has `SUMS` panels' results at most; `first_token` is the
/// first of the group's tokens that the piece has.
fn tiles<const SUMS: usize>(
    product: &Product,
    piece: &mut Piece,
    xs: &Taken,
    first_token: usize,
    multiply: impl Fn(&Tile, [&mut Sums; 3]),
) {
    let panels = piece.count().div_ceil(PANEL_ROWS);
    let mut sums = [[[0.0; PANEL_ROWS]; SUMS]; 3];
    for first in (0..piece.tokens()).step_by(product.tile) {
        let tokens = product.tile.min(piece.tokens() - first);
        let [results, others @ ..] = sums.each_mut().map(|sums| &mut sums[..panels * tokens]);
        let [second, third] = others;
        multiply(&xs.tile(product, first_token + first), [&mut *results, second, third]);
        for token in 0..tokens {
            let (whole, rest) = piece.token(first + token).as_chunks_mut::<PANEL_ROWS>();
            let panels = results[token..].iter().step_by(tokens);
            for (part, sums) in whole.iter_mut().zip(panels.clone()) {
                *part = *sums;
            }
            if let Some(sums) = panels.clone().nth(whole.len()) {
                rest.copy_from_slice(&sums[..rest.len()]);
            }
        }
    }
}
