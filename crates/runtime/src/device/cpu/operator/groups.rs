//! Groups of tokens, each with the matrix that it is multiplied with, and their activations in the form that products
//! take.
//!
//! ```text
//! activations  t0 t1 t2 t3 ... ─ order ─▶ group 0: t2 t0 │ group 1: t1 │ ... ─ quantized or turned ─▶ tiles
//! ```

use super::pieces_min;
use crate::device::cpu::means::Means;
use crate::device::cpu::spare::Lent;
use std::ops::Range;
use trueup_kernels::BLOCK_LEN;
use trueup_kernels::Instructions;
use trueup_kernels::{self as kernel, ActivationBlock, Rows, TILE};

/// Bytes of activations that all rows see before the next: about half of a core's cache of the second level.
const SEEN_BYTES: usize = 512 << 10;

/// The same of floats: weights that are read again for every few tokens cost more than activations from the cache of
/// all cores.
const SEEN_FLOATS_BYTES: usize = 2 << 20;

/// The same of floats that were turned over: turning rows over once more costs more still.
const SEEN_TURNED_BYTES: usize = 8 << 20;

/// Tokens that one matrix of a stack is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The number of the matrix, counted over the outer dimensions.
    pub index: usize,
    /// Its first token, in the order of the groups.
    pub first: usize,
    /// How many tokens there are.
    pub tokens: usize,
}

/// Activations of all tokens, and which of them the groups use.
#[derive(Clone, Copy)]
pub struct Inputs<'x> {
    /// Row after row.
    pub cells: &'x [f32],
    /// The row of each token of the groups; without it they use the rows as they are.
    pub rows: Option<&'x [usize]>,
}

impl<'x> Inputs<'x> {
    /// The activations of a token of the groups.
    fn token(&self, token: usize, len: usize) -> &'x [f32] {
        let row = self.rows.map_or(token, |rows| rows[token]);
        &self.cells[row * len..][..len]
    }
}

/// What activations are brought into before they are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Blocks of 8 bits.
    Codes,
    /// Nothing else.
    Floats,
    /// The order of turned rows.
    Turned,
}

/// The product `[rows, tokens]` of one matrix `[len, rows]` with the activations `[len, tokens]` of its group.
pub struct Product {
    /// The number of the matrix.
    pub index: usize,
    /// Elements of a row.
    pub len: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// The group's first token.
    pub first: usize,
    /// Tokens of the group.
    pub tokens: usize,
    /// Tokens of a tile, but for the last.
    pub tile: usize,
    /// What the activations are brought into.
    pub form: Form,
}

impl Product {
    /// Of a group with a matrix of these sizes.
    pub fn new(group: &Group, [len, rows]: [usize; 2], form: Form) -> Product {
        let Group { index, first, tokens } = *group;
        // Tiles as even as can be.
        let tile = tokens.div_ceil(tokens.div_ceil(TILE).max(1)).max(1);
        Product { index, len, rows, first, tokens, tile, form }
    }

    /// Tokens whose activations stay in a core's cache, in codes, or in that of all cores, which are four times as
    /// large: whole tiles.
    pub fn tokens_seen(&self) -> usize {
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

    /// The tiles, as tokens of the groups.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> {
        let end = self.first + self.tokens;
        (self.first..end).step_by(self.tile).map(move |first| first..end.min(first + self.tile))
    }

    /// Quantizes the tokens of a tile and puts their blocks side by side.
    fn quantize(&self, instructions: Instructions, x: Inputs, tile: Range<usize>, codes: &mut [ActivationBlock]) {
        if tile.len() == 1 {
            return kernel::quantize(instructions, x.token(tile.start, self.len), codes);
        }
        let mut blocks = vec![ActivationBlock::default(); self.len / BLOCK_LEN];
        for (place, token) in tile.clone().enumerate() {
            kernel::quantize(instructions, x.token(token, self.len), &mut blocks);
            for (codes, block) in codes.chunks_exact_mut(tile.len()).zip(&blocks) {
                codes[place] = *block;
            }
        }
    }
}

/// Activations of a tile.
pub struct Tile<'x> {
    /// How many tokens there are.
    pub tokens: usize,
    /// Token after token; empty where weights take codes.
    pub floats: &'x [f32],
    /// Block after block, of each those of all tokens; empty where weights take floats.
    pub codes: &'x [ActivationBlock],
    /// Place after place, of each those of all tokens; empty where weights are not turned over.
    pub turned: &'x [f32],
}

/// Activations of all groups, in the form that weights are multiplied with.
pub struct Taken<'x> {
    floats: Floats<'x>,
    codes: Lent<'x, ActivationBlock>,
    turned: Lent<'x, f32>,
}

/// Floats in the order of the groups.
enum Floats<'x> {
    Given(&'x [f32]),
    Gathered(Lent<'x, f32>),
}

impl<'x> Taken<'x> {
    /// Those that these products take, of which all take codes or none.
    pub fn new(products: &[Product], x: Inputs<'x>, Means { instructions, team, spares }: Means<'x>) -> Taken<'x> {
        let mut end = 0;
        let distinct = products.iter().filter(|product| {
            let is_new = product.first >= end;
            end = end.max(product.first + product.tokens);
            is_new
        });
        let distinct: Vec<&Product> = distinct.collect();
        let has = |form| distinct.iter().any(|product| product.form == form);
        let (len, tokens) = (distinct.first().map_or(0, |product| product.len), end);
        let blocks = if has(Form::Codes) { len / BLOCK_LEN } else { 0 };
        let places = if has(Form::Turned) { kernel::turned_len(len) } else { 0 };
        let (mut codes, mut turned) = (spares.codes.lend(tokens * blocks), spares.turned.lend(tokens * places));
        let floats = match x.rows {
            Some(rows) if !has(Form::Codes) => {
                let mut gathered = spares.gathered.lend(len * rows.len());
                let targets = gathered.chunks_exact_mut(len.max(1)).enumerate();
                team.each(targets, pieces_min(len), |(token, target)| target.copy_from_slice(x.token(token, len)));
                Floats::Gathered(gathered)
            }
            _ => Floats::Given(x.cells),
        };
        let grain = pieces_min(2 * len * distinct.iter().map(|product| product.tile).min().unwrap_or(0));
        if blocks > 0 {
            let tiles = dealt(&distinct, blocks, &mut codes).into_iter();
            team.each(tiles, grain, |(product, tile, codes)| product.quantize(instructions, x, tile, codes));
        }
        if places > 0 {
            let tiles = dealt(&distinct, places, &mut turned).into_iter();
            team.each(tiles, grain, |(product, tile, turned)| {
                if product.form == Form::Turned {
                    let x = &floats.cells()[tile.start * len..][..tile.len() * len];
                    kernel::turn_vectors(instructions, Rows::dense(x, tile.len(), len), turned);
                }
            });
        }
        Taken { floats, codes, turned }
    }

    /// The tile of a group that begins with this token of the group.
    pub fn tile(&self, product: &Product, first: usize) -> Tile<'_> {
        let tokens = product.tile.min(product.tokens - first);
        let first = product.first + first;
        let (blocks, places) = product.taken_len();
        let floats: &[f32] = match product.form {
            Form::Codes => &[],
            Form::Floats | Form::Turned => &self.floats.cells()[first * product.len..][..tokens * product.len],
        };
        let codes = &self.codes[first * blocks..][..tokens * blocks];
        Tile { tokens, floats, codes, turned: &self.turned[first * places..][..tokens * places] }
    }
}

impl Floats<'_> {
    fn cells(&self) -> &[f32] {
        match self {
            Floats::Given(cells) => cells,
            Floats::Gathered(cells) => cells,
        }
    }
}

/// The tiles of all products, each with its cells, of which a token has `len`.
fn dealt<'c, 'p, T>(
    products: &[&'p Product],
    len: usize,
    mut cells: &'c mut [T],
) -> Vec<(&'p Product, Range<usize>, &'c mut [T])> {
    let tiles = products.iter().flat_map(|product| product.tiles().map(move |tile| (*product, tile)));
    let deal = |(product, tile): (&'p Product, Range<usize>)| {
        let (own, others) = std::mem::take(&mut cells).split_at_mut(tile.len() * len);
        cells = others;
        (product, tile, own)
    };
    tiles.map(deal).collect()
}
