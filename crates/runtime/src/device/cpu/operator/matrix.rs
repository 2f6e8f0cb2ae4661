//! Products of the matrices of a stack with rows of activations.
//!
//! ```text
//! 32 per block, 4 to 8   activations in 8 bits ─▶ packed tiles, integers in blocks    (panel_product.rs)
//! f32, f16, bf16         few tokens:  32 lanes over K                                 (dots.rs)
//!                        many tokens: transposed, lane after lane, the same bits      (turned_product.rs)
//! other block types      some rows at a time are decoded to f32, then as f32
//! ```
//!
//! Threads take strips of 32 rows of all matrices that take part, as one list. Tokens are processed in tiles of up to
//! eighteen. All packed tiles of a strip use the same few token tiles, which stay in a core's cache, before the next
//! ones. The order of summation over K does not depend on the number of tokens or on the position in the stack.

use super::panel_strip::PanelStrip;
use super::{Means, Operand, pieces_min};
use crate::device::cpu::columns::{Columns, Piece};
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::kernel::{self, ActivationBlock, Rows, TILE, TURNED_ROWS, Turned};
use crate::device::cpu::memory::View;
use crate::device::cpu::panels::{BLOCK_LEN, PANEL_ROWS, Packed};
use crate::device::cpu::spare::{Lent, Spare};
use crate::profile::{Accumulator, Activations, Products, Profile, Rounding};
use half::{bf16, f16};
use std::ops::Range;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::Gated;

/// Sums in f32 of plain products.
const FLOATS: Profile = Profile { lanes: kernel::DOT_LANES, ..Profile::F32 };

/// Sums of integers per block, exact, and of blocks in f32 one after the other, each with the rounded product of two
/// scales, and behind it a block's minimum times the sum of its activations.
const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    ..Profile::F32
};

/// How weights of this type are multiplied.
pub fn profile(weights: DType) -> Result<Profile, String> {
    match weights {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(FLOATS),
        dtype if Packed::takes(dtype) => Ok(INTEGERS),
        // The decoded weight is exact in f32.
        DType::Q3K | DType::Q6K | DType::Iq4Nl => Ok(FLOATS),
        // `d * q + m` is rounded once, which is as much as a rounded product.
        DType::Q2K | DType::Q4K | DType::Q5K => Ok(Profile { products: Products::Rounded, ..FLOATS }),
        dtype => Err(format!(
            "{dtype} weights cannot be multiplied on this device; use f32, f16, bf16 or a type with \
                32 elements per block"
        )),
    }
}

/// Bytes of activations that all rows see before the next: about half of a core's cache of the second level.
const SEEN_BYTES: usize = 512 << 10;

/// The same of floats: weights that are read again for every few tokens cost more than activations from the cache of
/// all cores.
const SEEN_FLOATS_BYTES: usize = 2 << 20;

/// The same of floats that were turned over: turning rows over once more costs more still.
const SEEN_TURNED_BYTES: usize = 8 << 20;

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
        Matrix::apply_each(self.stack, &[Group { index: self.index, first: 0, tokens }], means, x, y)
    }

    /// Applies a matrix of the stack to each group of tokens of `x[len, tokens]`, all in one list of work. The results,
    /// `rows` for each token, are stored group after group. Neither `rows` nor the tokens of a group are 0. Groups use
    /// different tokens in the order of `x`, or the same single token.
    pub fn apply_each(stack: &Operand, groups: &[Group], means: Means, x: &[f32], y: &mut [f32]) -> Result<(), String> {
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
        products.each_tile(x, y, 2, strips, |(gate, up), xs, [sums, gates, ups]| {
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
        let (instructions, tokens) = (means.instructions, xs.floats.count());
        match self {
            Strip::TurnedF32(rows) => kernel::turned_product_f32(instructions, rows, xs.turned, tokens, sums),
            Strip::TurnedF16(rows) => kernel::turned_product_f16(instructions, rows, xs.turned, tokens, sums),
            Strip::TurnedBf16(rows) => kernel::turned_product_bf16(instructions, rows, xs.turned, tokens, sums),
            Strip::Panels(panels) => panels.multiply(instructions, xs.codes, tokens, sums),
            Strip::F32(rows) => {
                spread(rows.count(), tokens, sums, |dots| kernel::dots_f32(instructions, *rows, xs.floats, dots))
            }
            Strip::F16(rows) => {
                spread(rows.count(), tokens, sums, |dots| kernel::dots_f16(instructions, *rows, xs.floats, dots))
            }
            Strip::Bf16(rows) => {
                spread(rows.count(), tokens, sums, |dots| kernel::dots_bf16(instructions, *rows, xs.floats, dots));
            }
            Strip::Decoded(cells, len) => {
                let rows = Rows::dense(cells, cells.len() / len.max(&1), *len);
                spread(rows.count(), tokens, sums, |dots| kernel::dots_f32(instructions, rows, xs.floats, dots));
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

/// Activations of some tokens.
struct Tile<'x> {
    floats: Rows<'x, f32>,
    /// Block after block, of each those of all tokens; empty where weights take floats.
    codes: &'x [ActivationBlock],
    /// Place after place, of each those of all tokens; empty where weights are not turned over.
    turned: &'x [f32],
}

/// Activations of all tokens, in the form that weights are multiplied with.
struct Taken<'x> {
    floats: &'x [f32],
    codes: Lent<'x, ActivationBlock>,
    turned: Lent<'x, f32>,
}

impl Taken<'_> {
    /// The tile of a group that begins with this token of the group.
    fn tile(&self, product: &Product, first: usize) -> Tile<'_> {
        let Product { len, tokens, tile, .. } = *product;
        let count = tile.min(tokens - first);
        let first = product.first + first;
        let floats = Rows::dense(&self.floats[first * len..][..count * len], count, len);
        let (blocks, places) = product.taken_len();
        let codes = &self.codes[first * blocks..][..count * blocks];
        Tile { floats, codes, turned: &self.turned[first * places..][..count * places] }
    }
}

/// Tokens that one matrix of a stack is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The number of the matrix, counted over the outer dimensions.
    pub index: usize,
    /// The first token.
    pub first: usize,
    /// How many tokens there are.
    pub tokens: usize,
}

/// The product `[rows, tokens]` of one matrix `[len, rows]` with the activations `[len, tokens]` of its group.
struct Product {
    /// The number of the matrix.
    index: usize,
    len: usize,
    rows: usize,
    /// The group's first token in the activations.
    first: usize,
    tokens: usize,
    /// Tokens of a tile, but for the last.
    tile: usize,
    form: Form,
}

/// What activations are brought into before they are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Blocks of 8 bits.
    Codes,
    /// Nothing else.
    Floats,
    /// The order of turned rows.
    Turned,
}

/// The products of some matrices of a stack.
struct Grouped<'m> {
    means: Means<'m>,
    all: Vec<Product>,
}

impl<'m> Grouped<'m> {
    /// Those of each group with its matrix, and of other matrices that take activations in the same form.
    fn new(stack: &Operand, means: Means<'m>, groups: &[Group]) -> Result<Grouped<'m>, String> {
        let TensorType { dtype, shape } = stack.ty;
        let turned_from = kernel::turned_from(means.instructions.isa());
        let takes_codes = profile(dtype)?.activations != Activations::Unchanged;
        dtype.decoder().ok_or_else(|| format!("{dtype} cannot be decoded"))?;
        let product = |Group { index, first, tokens }: &Group| {
            let form = if takes_codes {
                Form::Codes
            } else if turned_from.is_some_and(|from| *tokens >= from) {
                Form::Turned
            } else {
                Form::Floats
            };
            // Tiles as even as can be.
            let tile = tokens.div_ceil(tokens.div_ceil(TILE).max(1)).max(1);
            Product { index: *index, len: shape[0], rows: shape[1], first: *first, tokens: *tokens, tile, form }
        };
        Ok(Grouped { means, all: groups.iter().map(product).collect() })
    }

    /// What the first group's activations are brought into.
    fn form(&self) -> Option<Form> {
        self.all.first().map(|product| product.form)
    }

    /// Lets threads take strips of rows, of `matrices` matrices at once, and multiply each by tile after tile. The
    /// first of the three results that a tile finds room for is taken.
    fn each_tile<P>(
        &self,
        x: &[f32],
        y: &mut [f32],
        matrices: usize,
        strip: impl Fn(&Product, Range<usize>) -> P + Sync,
        multiply: impl Fn(&P, &Tile, [&mut Sums; 3]) + Sync,
    ) {
        let xs = self.taken(x);
        // Of each group the tokens that are seen first, then those that are seen next.
        let mut rounds: Vec<Vec<(&Product, usize, Piece)>> = Vec::new();
        let mut rest = y;
        for product in &self.all {
            let (cells, others) = rest.split_at_mut(product.tokens * product.rows);
            rest = others;
            let seen = product.tokens_seen();
            for (round, cells) in cells.chunks_mut(seen * product.rows).enumerate() {
                if round == rounds.len() {
                    rounds.push(Vec::new());
                }
                let pieces = Columns::new(cells, product.rows, STRIP_ROWS);
                rounds[round].extend(pieces.map(|piece| (product, round * seen, piece)));
            }
        }
        for pieces in rounds {
            let work = |(product, _, piece): &(&Product, usize, Piece)| product.len * STRIP_ROWS * piece.tokens();
            let grain = pieces_min(matrices * pieces.iter().map(work).min().unwrap_or(0));
            self.means.team.each(pieces.into_iter(), grain, |(product, first, mut piece)| {
                let strip = strip(product, piece.first()..piece.first() + piece.count());
                let multiply = |xs: &Tile, sums: [&mut Sums; 3]| multiply(&strip, xs, sums);
                // Zeros cost time, too, where a strip is read once.
                if product.tile == 1 {
                    product.tiles::<2>(&mut piece, &xs, first, multiply);
                } else {
                    product.tiles::<{ 2 * TILE }>(&mut piece, &xs, first, multiply);
                }
            });
        }
    }

    /// Activations as these products take them.
    fn taken<'x>(&self, x: &'x [f32]) -> Taken<'x>
    where
        'm: 'x,
    {
        let Means { instructions, team, spares } = self.means;
        let mut end = 0;
        let distinct = self.all.iter().filter(|product| {
            let is_new = product.first >= end;
            end = end.max(product.first + product.tokens);
            is_new
        });
        let lens: Vec<(&Product, (usize, usize))> = distinct.map(|product| (product, product.taken_len())).collect();
        let total =
            |len: fn((usize, usize)) -> usize| lens.iter().map(|(product, lens)| product.tokens * len(*lens)).sum();
        let (mut codes, mut turned) =
            (spares.codes.lend(total(|lens| lens.0)), spares.turned.lend(total(|lens| lens.1)));
        let (mut rest_of_codes, mut rest_of_turned) = (&mut *codes, &mut *turned);
        let (mut quantized, mut put) = (Vec::new(), Vec::new());
        for (product, (blocks, places)) in lens {
            let tokens = &x[product.first * product.len..][..product.tokens * product.len];
            let tiles = tokens.chunks((product.tile * product.len).max(1));
            let (codes, others) = std::mem::take(&mut rest_of_codes).split_at_mut(product.tokens * blocks);
            rest_of_codes = others;
            let (turned, others) = std::mem::take(&mut rest_of_turned).split_at_mut(product.tokens * places);
            rest_of_turned = others;
            match product.form {
                Form::Codes => quantized.extend(
                    tiles.zip(codes.chunks_mut((product.tile * blocks).max(1))).map(|(x, codes)| (product, x, codes)),
                ),
                Form::Turned => {
                    put.extend(
                        tiles.zip(turned.chunks_mut((product.tile * places).max(1))).map(|(x, y)| (product, x, y)),
                    );
                }
                Form::Floats => {}
            }
        }
        let grain = |x: Option<&[f32]>| pieces_min(2 * x.map_or(0, <[f32]>::len));
        let grains = (grain(quantized.first().map(|item| item.1)), grain(put.first().map(|item| item.1)));
        team.each(quantized.into_iter(), grains.0, |(product, x, codes)| product.quantize(instructions, x, codes));
        team.each(put.into_iter(), grains.1, |(product, x, turned)| {
            kernel::turn_vectors(instructions, Rows::dense(x, x.len() / product.len, product.len), turned);
        });
        Taken { floats: x, codes, turned }
    }
}

impl Product {
    /// The results of a strip, tile after tile, of which each has `SUMS` panels' results at most; `first_token` is the
    /// first of the group's tokens that the piece has.
    fn tiles<const SUMS: usize>(
        &self,
        piece: &mut Piece,
        xs: &Taken,
        first_token: usize,
        multiply: impl Fn(&Tile, [&mut Sums; 3]),
    ) {
        let panels = piece.count().div_ceil(PANEL_ROWS);
        let mut sums = [[[0.0; PANEL_ROWS]; SUMS]; 3];
        for first in (0..piece.tokens()).step_by(self.tile) {
            let tokens = self.tile.min(piece.tokens() - first);
            let [results, others @ ..] = sums.each_mut().map(|sums| &mut sums[..panels * tokens]);
            let [second, third] = others;
            multiply(&xs.tile(self, first_token + first), [&mut *results, second, third]);
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

    /// Tokens whose activations stay in a core's cache, in codes, or in that of all cores, which are four times as
    /// large: whole tiles.
    fn tokens_seen(&self) -> usize {
        let (row_bytes, seen_bytes) = match self.form {
            Form::Codes => (self.len / BLOCK_LEN * size_of::<ActivationBlock>(), SEEN_BYTES),
            Form::Floats => (self.len * size_of::<f32>(), SEEN_FLOATS_BYTES),
            Form::Turned => (self.len * size_of::<f32>(), SEEN_TURNED_BYTES),
        };
        (seen_bytes / row_bytes.max(1) / self.tile).max(1) * self.tile
    }

    /// Blocks of codes and turned places of a token.
    fn taken_len(&self) -> (usize, usize) {
        match self.form {
            Form::Codes => (self.len / BLOCK_LEN, 0),
            Form::Floats => (0, 0),
            Form::Turned => (0, kernel::turned_len(self.len)),
        }
    }

    /// Quantizes the tokens of a tile and puts their blocks side by side.
    fn quantize(&self, instructions: Instructions, x: &[f32], codes: &mut [ActivationBlock]) {
        let tokens = x.len() / self.len;
        if tokens == 1 {
            return kernel::quantize(instructions, x, codes);
        }
        let mut blocks = vec![ActivationBlock::default(); self.len / BLOCK_LEN];
        for (token, x) in x.chunks_exact(self.len).enumerate() {
            kernel::quantize(instructions, x, &mut blocks);
            for (codes, block) in codes.chunks_exact_mut(tokens).zip(&blocks) {
                codes[token] = *block;
            }
        }
    }
}
