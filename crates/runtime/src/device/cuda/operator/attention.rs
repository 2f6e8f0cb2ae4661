//! Attention, of both operators that compute it: which kernels for which shapes, what these declare, and their
//! launches.
//!
//! ```text
//!  few tokens                   attention_split                       positions divided among blocks, heads that share keys together
//!  many tokens of a sequence    attention_bounds ─▶ attention_tiles   tensor cores, on a cache of f16 or q8_0
//!  anything else                kv_attention, flash_attn              the plain kernels: a block for each head of a token
//! ```
//!
//! Whose tokens stand together only the card knows: where a cache has several sequences, tiles and splits are both
//! launched, and each block asks whether it is its turn.

use super::kv_scores::KEY_LANES;
use super::soft_max::{self, EXPONENTIAL_ULP};
use super::{Argument, Call, Grid, Means, Needed, Operand, View, suffix};
use crate::profile::Profile;
use trueup_blocks::DType;

/// Attention with views in the order of dimensions that the fast kernels take, whatever an operator's own is; types are
/// the operator's.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Queries, `[D, tokens, heads, batch]`.
    pub q: Operand,
    /// Keys, `[D, positions, kv heads, sequences]`.
    pub k: Operand,
    /// Values, `[E, positions, kv heads, sequences]`.
    pub v: Operand,
    /// The mask, `[positions, tokens, ...]`.
    pub mask: Option<Operand>,
    /// Which sequence each token looks at, `[tokens]`; its own batch where there is none.
    pub sequences: Option<View>,
    /// Multiplies scores.
    pub scale: f32,
    /// The operator's parameter for ALiBi.
    pub max_bias: f32,
}

/// The kernels that compute it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Those of the operator itself.
    Plain,
    /// Positions are divided among blocks.
    Split,
    /// Tiles of tokens and positions.
    Tiles,
    /// Tiles where all tokens of one are of one sequence, else splits.
    Both,
}

/// Tokens up to which positions are divided.
const TOKENS_FEW: i64 = 8;

/// Elements of a row that a lane of `attention_split` has, and the longest row.
const PIECE: i64 = 8;
const SPLIT_SIZE_MAX: i64 = 256;

/// What rows of `attention_tiles` are rounded up to, the shortest first.
const TILES_SIZES: [usize; 2] = [64, 128];

/// Threads of a block of either, and the warps.
const THREADS: u32 = 128;
const WARPS: usize = 4;

/// Positions of a chunk, rows and positions of a tile, elements of a scale: as `attention_split.cu` and
/// `attention_tiles.cu` have them.
const CHUNK: usize = 32;
const TILE_ROWS: usize = 64;
const TILE: usize = 32;
const SCALE_LEN: usize = 32;

/// Blocks of `attention_split` that a processor has at once; how many of them it is given so that lengths balance, and
/// positions of one then.
const BLOCKS_AT_ONCE: usize = 3;
const BLOCKS_IN_TURN: usize = 16;
const POSITIONS_EACH: usize = 1024;

/// Parts of a row at most.
const SPLITS_MAX: usize = 256;

impl Attention {
    /// Which kernels compute it. Types and views decide, but for their addresses.
    pub fn way(&self, means: &Means) -> Way {
        if !means.repack || !self.is_split() {
            return Way::Plain;
        }
        let many = self.q.view.sizes[1] > TOKENS_FEW;
        if !many || !means.tensor_cores || !self.has_tiles(means) {
            Way::Split
        } else if self.sequences.is_some() && self.k.view.sizes[3] > 1 {
            Way::Both
        } else {
            Way::Tiles
        }
    }

    /// Whether `attention_split` takes it: rows of whole pieces that begin at multiples of 16 bytes (those of `q8_0` of
    /// two), one type of keys and values, one mask for all heads.
    fn is_split(&self) -> bool {
        let rows = [&self.k, &self.v].into_iter().all(|rows| {
            let size = rows.view.sizes[0];
            size % PIECE == 0 && size <= SPLIT_SIZE_MAX && rows.begins_at(16)
        });
        let types = self.q.ty.dtype == DType::F32 && self.k.ty.dtype == self.v.ty.dtype;
        types && rows && self.mask.is_none_or(|mask| mask.view.sizes[2] == 1)
    }

    /// Whether `attention_tiles` takes it too: a cache of f16 or q8_0, rows for which a block of threads has room, a
    /// mask without slopes whose positions lie behind each other.
    fn has_tiles(&self, means: &Means) -> bool {
        let room = self.tile_size().is_some_and(|size| self.tile_shared_bytes(size) <= means.shared_bytes_max);
        let plain = self.max_bias == 0.0 && self.mask.is_none_or(|mask| mask.view.steps[0] == 1);
        matches!(self.k.ty.dtype, DType::F16 | DType::Q8_0) && room && plain
    }

    /// The size that tiles are compiled for.
    fn tile_size(&self) -> Option<usize> {
        let longest = self.k.view.sizes[0].max(self.v.view.sizes[0]) as usize;
        TILES_SIZES.into_iter().find(|size| longest <= *size)
    }

    /// Shared memory of a block: low parts of queries, keys and values of two tiles, and the scales of codes.
    fn tile_shared_bytes(&self, size: usize) -> usize {
        // Of short rows the high parts of queries are in registers, of long ones tiles have half as many positions.
        let numbers = (TILE_ROWS + 4 * TILE) * size;
        let scales = if self.k.ty.dtype == DType::Q8_0 { 4 * TILE * size / SCALE_LEN } else { 0 };
        numbers * DType::F16.block_bytes() + scales * size_of::<f32>()
    }

    /// What the kernels of this way declare. `attention_split` sums a score in lanes of eight neighbours. Tensor cores
    /// add the products of 16 elements at a time, and cut off what does not fit instead of rounding it: one chain of as
    /// many roundings as there are elements is declared for these D / 16 larger errors, and for those of queries and
    /// weights in two parts of f16, which keep 22 bits.
    pub fn profile(&self, way: Way) -> Profile {
        let pieces = self.q.view.sizes[0] / PIECE;
        let lanes = match way {
            Way::Plain => KEY_LANES,
            Way::Split => usize::try_from(pieces).unwrap_or(1).max(1),
            Way::Tiles | Way::Both => 1,
        };
        Profile { lanes, function_ulp: EXPONENTIAL_ULP, ..Profile::F32 }
    }

    /// What the kernels of a way take: the bounds of the mask's rows, the parts of splits, and their counters.
    pub fn needed(&self, way: Way, means: &Means) -> Needed {
        let split = Split::of(self, means);
        let counters = if matches!(way, Way::Split | Way::Both) && split.count > 1 { split.rows } else { 0 };
        Needed { operators: self.bounds_bytes(way) + self.parts_bytes(way, means), counters, ..Needed::default() }
    }

    fn bounds_bytes(&self, way: Way) -> usize {
        let with_bounds = matches!(way, Way::Tiles | Way::Both);
        let rows = self.mask.filter(|_| with_bounds).map_or(0, |mask| mask.ty.shape.rows());
        (rows * 2 * size_of::<i32>()).next_multiple_of(256)
    }

    fn parts_bytes(&self, way: Way, means: &Means) -> usize {
        let splits = if matches!(way, Way::Split | Way::Both) { Split::of(self, means).count } else { 1 };
        let parts = if splits > 1 { self.rows() * self.q.view.sizes[2] as usize * splits } else { 0 };
        parts * (self.width() + 2) * size_of::<f32>()
    }

    /// Heads that share keys and values.
    fn group(&self) -> usize {
        (self.q.view.sizes[2] / self.k.view.sizes[2]) as usize
    }

    /// Rows of queries of one head: tokens of all batches.
    fn rows(&self) -> usize {
        (self.q.view.sizes[1] * self.q.view.sizes[3]) as usize
    }

    /// Heads of keys and values.
    fn kv_heads(&self) -> usize {
        self.k.view.sizes[2] as usize
    }

    /// Length of values.
    fn width(&self) -> usize {
        self.v.view.sizes[0] as usize
    }
}

/// Launches the kernels of a way that is not [`Way::Plain`]. `y` is `[E, tokens, heads, batch]`. Where `codes` is not
/// 0, [`Way::Split`] brings the result into 8-bit blocks there: of one batch, with E a multiple of 32.
pub fn launch(attention: &Attention, way: Way, y: View, codes: u64, call: &mut Call) -> Result<(), String> {
    let split = way != Way::Tiles;
    let splits = if split { Split::of(attention, call.means).count } else { 1 };
    let bounds_bytes = attention.bounds_bytes(way);
    let room = call.scratch(bounds_bytes + attention.parts_bytes(way, call.means))?;
    let fault = if attention.sequences.is_some() { call.fault() } else { Argument::Address(0) };
    if way != Way::Split {
        launch_tiles(attention, y, (bounds_bytes > 0).then_some(room), fault, call)?;
    }
    if split {
        let tile_tokens = if way == Way::Both { TILE_ROWS / attention.group().min(TILE_ROWS) } else { 0 };
        launch_splits(attention, y, [splits, tile_tokens], [room + bounds_bytes as u64, codes], fault, call)?;
    }
    Ok(())
}

/// The arguments that all kernels begin with, up to the scale.
fn arguments(attention: &Attention, y: View) -> Vec<Argument> {
    let [mask, mask_type] = soft_max::mask(attention.mask.as_ref(), &attention.q);
    let sequences = attention.sequences.unwrap_or(attention.q.view);
    let has_sequences = Argument::Int(attention.sequences.is_some().into());
    let [q, k, v, sequences, y] =
        [attention.q.view, attention.k.view, attention.v.view, sequences, y].map(Argument::View);
    vec![q, k, v, mask, mask_type, sequences, has_sequences, y, Argument::Float(attention.scale)]
}

fn launch_tiles(
    attention: &Attention,
    y: View,
    bounds: Option<u64>,
    fault: Argument,
    call: &Call,
) -> Result<(), String> {
    if let (Some(mask), Some(bounds)) = (attention.mask, bounds) {
        let [view, mask_type] = soft_max::mask(Some(&mask), &mask);
        let grid = Grid::elements(mask.ty.shape.rows() * CHUNK)?;
        call.launch("attention_bounds", grid, &[view, mask_type, Argument::Address(bounds)])?;
    }
    let size = attention.tile_size().ok_or("rows are too long for tiles")?;
    let together = attention.group().min(TILE_ROWS);
    let [tokens, batch] = [1, 3].map(|dimension| attention.q.view.sizes[dimension] as usize);
    let columns = attention.kv_heads() * attention.group().div_ceil(together) * batch;
    let shared_bytes = attention.tile_shared_bytes(size) as u32;
    let grid =
        Grid { threads: THREADS, ..Grid::blocks(tokens.div_ceil(TILE_ROWS / together) * columns, shared_bytes)? };
    let rest = [Argument::Int(together as i32), Argument::Address(bounds.unwrap_or(0)), fault];
    let kernel = format!("attention_tiles_{}_{size}", suffix(attention.k.ty.dtype));
    call.launch(&kernel, grid, &[&arguments(attention, y)[..], &rest].concat())
}

fn launch_splits(
    attention: &Attention,
    y: View,
    [splits, tile_tokens]: [usize; 2],
    [parts, codes]: [u64; 2],
    fault: Argument,
    call: &Call,
) -> Result<(), String> {
    let split = Split::of(attention, call.means);
    let shared_bytes = (WARPS * split.heads * (attention.width() + 2) * size_of::<f32>()) as u32;
    let grid = Grid { threads: THREADS, ..Grid::blocks(split.rows * splits, shared_bytes)? };
    let mut arguments = arguments(attention, y);
    arguments.push(Argument::Float(attention.max_bias));
    arguments.extend([splits, tile_tokens].map(|number| Argument::Int(number as i32)));
    let counters = if splits == 1 { 0 } else { call.counters(split.rows) };
    arguments.extend([parts, codes, counters].map(Argument::Address));
    arguments.push(fault);
    call.launch(&format!("attention_split_{}_{}", suffix(attention.k.ty.dtype), split.heads), grid, &arguments)
}

/// How `attention_split` divides its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Split {
    /// Heads of a warp, which the kernel's name says.
    heads: usize,
    /// Blocks of each split.
    rows: usize,
    /// Into how many parts positions are divided.
    count: usize,
}

impl Split {
    /// One token fills the card with as many blocks as it has at once. Of several some may see little: they are divided
    /// further, into parts that follow each other.
    fn of(attention: &Attention, means: &Means) -> Split {
        let group = attention.group();
        let heads = if group == 1 { 1 } else { 4 };
        // Warps that look at the same positions, for other heads.
        let sets = group.div_ceil(heads).next_power_of_two().min(WARPS);
        let rows = attention.rows() * attention.kv_heads() * group.div_ceil(sets * heads);
        let positions = attention.k.view.sizes[1] as usize;
        let most = positions.div_ceil(CHUNK * WARPS / sets).clamp(1, SPLITS_MAX);
        let processors = means.processors as usize;
        let at_once = (BLOCKS_AT_ONCE * processors).div_ceil(rows.max(1));
        let in_turn = (BLOCKS_IN_TURN * processors / rows.max(1)).min(positions / POSITIONS_EACH);
        Split { heads, rows, count: at_once.max(in_turn).clamp(1, most) }
    }
}
