//! Encoding that `q2_k`, `q4_k` and `q5_k` share: groups with a scale and a minimum, both as codes under one f16 scale
//! each.
//!
//! ```text
//!  256 weights ──search──▶ scale, minimum and codes per group
//!                             │
//!                             ├─▶ header: two f16 scales; step and offset per group
//!                             └─▶ codes again, from what the header decodes to
//! ```

use crate::codec::{encode_blocks, encode_blocks_weighted};
use crate::decoder::K_LEN;
use crate::f16;
use crate::k_lanes::{self, BLOCKS_MAX, Batch, Importance};
use crate::search::affine::{self, Affine, Tries};
use crate::search::lanes::{self, Columns, LANES_MAX, Lanes};
use crate::search::{greatest, importance_of, nearest, nearest_quotients, nested, sum_of_squares};

/// What differs between the formats: `GROUPS` groups of `GROUP` weights in `BYTES` bytes.
pub(crate) trait Format<const BYTES: usize, const GROUPS: usize, const GROUP: usize> {
    /// The search when no importance is given.
    const PLAIN: Tries;
    /// The largest step and offset.
    const STEP_TOP: u8;
    /// The mean square of a block, in the weights of errors, counts this many times.
    const MEAN_SQUARES: f32;

    /// How much the error of each weight of a group counts when no importance is given.
    fn counts(weights: &[f32; GROUP]) -> [f32; GROUP];

    /// [`Format::counts`] of several groups.
    fn counts_lanes<V: Lanes>(weights: &Columns<V, GROUP>) -> Columns<V, GROUP>;

    /// The bytes of a block.
    fn pack(header: &Header<GROUPS>, codes: &[u8; K_LEN], block: &mut [u8; BYTES]);
}

/// The tries of every affine format when importance is given.
pub(crate) const fn weighted_tries(top: i32) -> Tries {
    Tries { top, first: -0.9, step: 0.05, last: 36, is_absolute: false }
}

/// What the search finds in a block of `GROUPS` groups.
#[derive(Clone, Copy)]
struct Found<const GROUPS: usize> {
    pairs: [Affine; GROUPS],
    /// How much each group counts: the sum over its weights.
    counts: [f32; GROUPS],
}

impl<const GROUPS: usize> Found<GROUPS> {
    const NOTHING: Found<GROUPS> =
        Found { pairs: [Affine { scale: 0.0, minimum: 0.0 }; GROUPS], counts: [0.0; GROUPS] };
}

/// What a block stores for its groups.
pub(crate) struct Header<const GROUPS: usize> {
    pub scale: [u8; f16::BYTES],
    pub low: [u8; f16::BYTES],
    pub steps: [u8; GROUPS],
    pub offsets: [u8; GROUPS],
}

/// The rule without importance, block by block.
pub(crate) fn encode<F, const BYTES: usize, const GROUPS: usize, const GROUP: usize>(weights: &[f32], bytes: &mut [u8])
where
    F: Format<BYTES, GROUPS, GROUP>,
{
    encode_blocks(weights, bytes, |weights, block| {
        let (found, mut codes) = search(F::PLAIN, weights, |_, weights| F::counts(weights));
        let header = plain_header(F::STEP_TOP, &found);
        settle(F::PLAIN.top, &header, weights, &mut codes);
        F::pack(&header, &codes, block);
    });
}

/// The rule with importance, block by block.
pub(crate) fn encode_weighted<F, const BYTES: usize, const GROUPS: usize, const GROUP: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) where
    F: Format<BYTES, GROUPS, GROUP>,
{
    encode_blocks_weighted(weights, importance, bytes, |weights, importance: &[f32; K_LEN], block| {
        let mean_square = F::MEAN_SQUARES * sum_of_squares(weights) / K_LEN as f32;
        let (found, mut codes) = search(weighted_tries(F::PLAIN.top), weights, |group, weights: &[f32; GROUP]| {
            importance_of(weights, &importance.as_chunks().0[group], mean_square)
        });
        let header = weighted_header(F::STEP_TOP, &found);
        settle(F::PLAIN.top, &header, weights, &mut codes);
        F::pack(&header, &codes, block);
    });
}

/// Vectors of groups that are searched at once.
const VECTORS: usize = 2;

/// [`encode`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_lanes<F, V, const BYTES: usize, const GROUPS: usize, const GROUP: usize>(
    weights: &[f32],
    bytes: &mut [u8],
) where
    F: Format<BYTES, GROUPS, GROUP>,
    V: Lanes,
{
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let mut found = [Found::NOTHING; BLOCKS_MAX];
        for batches in Batch::all::<V, VECTORS, GROUPS, GROUP>(weights) {
            search_lanes(F::PLAIN, &batches, |_, columns| F::counts_lanes::<V>(columns), &mut found);
        }
        for ((weights, found), block) in weights.iter().zip(&found).zip(blocks) {
            let header = plain_header(F::STEP_TOP, found);
            let codes = codes(F::PLAIN.top, &header, weights, |_, weights: &[f32; GROUP]| {
                codes_of_group(F::PLAIN, weights, &F::counts(weights))
            });
            F::pack(&header, &codes, block);
        }
    }
}

/// [`encode_weighted`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<F, V, const BYTES: usize, const GROUPS: usize, const GROUP: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) where
    F: Format<BYTES, GROUPS, GROUP>,
    V: Lanes,
{
    let (mut importance, tries) = (Importance::of(weights, importance), weighted_tries(F::PLAIN.top));
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let importance = importance.next(weights, |sum| F::MEAN_SQUARES * sum / K_LEN as f32);
        let mut found = [Found::NOTHING; BLOCKS_MAX];
        for batches in Batch::all::<V, VECTORS, GROUPS, GROUP>(weights) {
            let counts = |batch: &Batch<'_, GROUP>, columns: &Columns<V, GROUP>| {
                importance.counts::<V, GROUPS, GROUP>(batch, columns)
            };
            search_lanes(tries, &batches, counts, &mut found);
        }
        let headers = weighted_headers_lanes::<V, GROUPS>(F::STEP_TOP, &found[..weights.len()]);
        for (number, ((weights, header), block)) in weights.iter().zip(headers).zip(blocks).enumerate() {
            let codes = codes(F::PLAIN.top, &header, weights, |group, weights: &[f32; GROUP]| {
                let (columns, mean_square) = importance.of_block(number);
                codes_of_group(tries, weights, &importance_of(weights, &columns.as_chunks().0[group], mean_square))
            });
            F::pack(&header, &codes, block);
        }
    }
}

/// Searches each group; returns its codes too. `counts` says how much the error of each weight of a group counts.
fn search<const GROUPS: usize, const GROUP: usize>(
    tries: Tries,
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
) -> (Found<GROUPS>, [u8; K_LEN]) {
    const { assert!(GROUPS * GROUP == K_LEN) };
    let (mut found, mut codes) = (Found::NOTHING, [0; K_LEN]);
    let groups = weights.as_chunks().0.iter().zip(codes.as_chunks_mut().0);
    let results = found.pairs.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (pair, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *pair = affine::search(tries, weights, &counts, codes);
    }
    (found, codes)
}

/// The codes that the search of a group finds.
#[cold]
fn codes_of_group<const GROUP: usize>(tries: Tries, weights: &[f32; GROUP], counts: &[f32; GROUP]) -> [u8; GROUP] {
    let mut codes = [0; GROUP];
    affine::search(tries, weights, counts, &mut codes);
    codes
}

/// Searches the groups of batches and puts what is found to their blocks.
#[inline(always)]
fn search_lanes<V: Lanes, const GROUPS: usize, const GROUP: usize>(
    tries: Tries,
    batches: &[Batch<GROUP>; VECTORS],
    counts: impl Fn(&Batch<GROUP>, &Columns<V, GROUP>) -> Columns<V, GROUP>,
    found: &mut [Found<GROUPS>],
) {
    let mut columns = [[V::splat(0.0); GROUP]; VECTORS];
    let mut columns_counts = [[V::splat(0.0); GROUP]; VECTORS];
    for ((batch, columns), of_columns) in batches.iter().zip(&mut columns).zip(&mut columns_counts) {
        lanes::read_columns(batch.groups, columns);
        *of_columns = counts(batch, columns);
    }
    let lines = lanes::affine(tries, columns.each_ref(), columns_counts.each_ref());
    for ((batch, line), counts) in batches.iter().zip(&lines).zip(&columns_counts) {
        let (sums, scales, minima) = (lanes::sum(counts).store(), line.scale.store(), line.minimum.store());
        for (lane, (block, group)) in batch.places::<GROUPS>().enumerate() {
            found[block].pairs[group] = Affine { scale: scales[lane], minimum: minima[lane] };
            found[block].counts[group] = sums[lane];
        }
    }
}

/// The header when no importance is given: the greatest scale and the greatest minimum get the code `top`.
#[inline(always)]
fn plain_header<const GROUPS: usize>(top: u8, found: &Found<GROUPS>) -> Header<GROUPS> {
    let codes = |numbers: [f32; GROUPS]| {
        let greatest = greatest(&numbers);
        let inverse = if greatest > 0.0 { f32::from(top) / greatest } else { 0.0 };
        let codes = numbers.map(|number| (nearest(inverse * number) as u8).min(top));
        (f16::narrow(greatest / f32::from(top)), codes)
    };
    let (scale, steps) = codes(found.pairs.map(|pair| pair.scale));
    let (low, offsets) = codes(found.pairs.map(|pair| pair.minimum));
    Header { scale, low, steps, offsets }
}

/// The header when importance is given.
#[inline(always)]
fn weighted_header<const GROUPS: usize>(top: u8, found: &Found<GROUPS>) -> Header<GROUPS> {
    let codes = |numbers: [f32; GROUPS]| {
        let mut codes = [0; GROUPS];
        let scale = nested::search(top.into(), &numbers, &found.counts, &mut codes);
        (f16::narrow(scale), codes)
    };
    let (scale, steps) = codes(found.pairs.map(|pair| pair.scale));
    let (low, offsets) = codes(found.pairs.map(|pair| pair.minimum));
    Header { scale, low, steps, offsets }
}

/// [`weighted_header`] of several blocks. Two lanes search a block: one for its scales, one for its minima.
#[inline(always)]
fn weighted_headers_lanes<V: Lanes, const GROUPS: usize>(
    top: u8,
    found: &[Found<GROUPS>],
) -> [Header<GROUPS>; BLOCKS_MAX] {
    const ROWS_MAX: usize = 2 * BLOCKS_MAX;
    let (mut numbers, mut counts) = ([[0.0; LANES_MAX]; ROWS_MAX], [[0.0; LANES_MAX]; ROWS_MAX]);
    for (block, found) in found.iter().enumerate() {
        for (group, pair) in found.pairs.iter().enumerate() {
            (numbers[2 * block][group], numbers[2 * block + 1][group]) = (pair.scale, pair.minimum);
        }
        for row in &mut counts[2 * block..2 * block + 2] {
            row[..GROUPS].copy_from_slice(&found.counts);
        }
    }
    let (mut scales, mut codes) = ([0.0; ROWS_MAX], [[0; GROUPS]; ROWS_MAX]);
    for first in (0..2 * found.len()).step_by(V::LANES) {
        let rows = first..(first + V::LANES).min(2 * found.len());
        let (numbers, counts) = (lanes::columns(&numbers[rows.clone()]), lanes::columns(&counts[rows.clone()]));
        let (found, columns) = lanes::nested::<V, GROUPS>(top.into(), &numbers, &counts);
        let (found, columns) = (found.store(), lanes::bytes(&columns));
        for (lane, row) in rows.enumerate() {
            scales[row] = found[lane];
            for (code, column) in codes[row].iter_mut().zip(&columns) {
                *code = column[lane];
            }
        }
    }
    std::array::from_fn(|block| {
        let (scale, low) = (f16::narrow(scales[2 * block]), f16::narrow(scales[2 * block + 1]));
        Header { scale, low, steps: codes[2 * block], offsets: codes[2 * block + 1] }
    })
}

/// The scale and the minimum of each group under a rounded header.
#[inline(always)]
fn lines<const GROUPS: usize>(header: &Header<GROUPS>) -> [(f32, f32); GROUPS] {
    let (scale, low) = (f16::widen(header.scale), f16::widen(header.low));
    let mut lines = [(0.0, 0.0); GROUPS];
    for (line, (step, offset)) in lines.iter_mut().zip(header.steps.iter().zip(header.offsets)) {
        *line = (scale * f32::from(*step), low * f32::from(offset));
    }
    lines
}

/// Replaces the codes of the search by those nearest under the rounded header. A group whose scale became 0 keeps its
/// codes.
fn settle<const GROUPS: usize>(top: i32, header: &Header<GROUPS>, weights: &[f32; K_LEN], codes: &mut [u8; K_LEN]) {
    let group = K_LEN / GROUPS;
    let groups = weights.chunks(group).zip(codes.chunks_mut(group));
    for ((weights, codes), (scale, minimum)) in groups.zip(lines(header)) {
        if scale != 0.0 {
            for (code, weight) in codes.iter_mut().zip(weights) {
                *code = nearest((weight + minimum) / scale).clamp(0, top) as u8;
            }
        }
    }
}

/// The codes that [`settle`] leaves. `search` finds those of a group whose scale became 0.
#[inline(always)]
fn codes<const GROUPS: usize, const GROUP: usize>(
    top: i32,
    header: &Header<GROUPS>,
    weights: &[f32; K_LEN],
    search: impl Fn(usize, &[f32; GROUP]) -> [u8; GROUP],
) -> [u8; K_LEN] {
    let mut codes = [0; K_LEN];
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for (number, ((weights, codes), (scale, minimum))) in groups.zip(lines(header)).enumerate() {
        if scale == 0.0 {
            *codes = search(number, weights);
            continue;
        }
        let mut dividends = *weights;
        for dividend in &mut dividends {
            *dividend += minimum;
        }
        for (code, integer) in codes.iter_mut().zip(nearest_quotients(&dividends, scale)) {
            *code = integer.clamp(0, top) as u8;
        }
    }
    codes
}
