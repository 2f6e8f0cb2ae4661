//! Encoding that `q2_k`, `q4_k` and `q5_k` share: groups with a scale and a minimum, both as codes under one f16 scale
//! each.
//!
//! ```text
//!  256 weights ──search──▶ a scale, a minimum and codes a group
//!                             │
//!                             ├─▶ header: two f16 scales; a step and an offset a group
//!                             └─▶ codes again, from what the header decodes to
//! ```

use crate::codec::{encode_blocks, encode_blocks_weighted};
use crate::decoder::K_LEN;
use crate::f16;
use crate::k_lanes::{self, Batch, Importance};
use crate::search::affine::{self, Affine, Tries};
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::{greatest, importance_of, nearest, nested, sum_of_squares};

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
    codes: [u8; K_LEN],
}

impl<const GROUPS: usize> Found<GROUPS> {
    const NOTHING: Found<GROUPS> =
        Found { pairs: [Affine { scale: 0.0, minimum: 0.0 }; GROUPS], counts: [0.0; GROUPS], codes: [0; K_LEN] };
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
        let found = search(F::PLAIN, weights, |_, weights| F::counts(weights));
        write::<F, BYTES, GROUPS, GROUP>(weights, &found, plain_header(F::STEP_TOP, &found), block);
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
        let found = search(weighted_tries(F::PLAIN.top), weights, |group, weights: &[f32; GROUP]| {
            importance_of(weights, &importance.as_chunks().0[group], mean_square)
        });
        write::<F, BYTES, GROUPS, GROUP>(weights, &found, weighted_header(F::STEP_TOP, &found), block);
    });
}

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
        let mut found = [Found::NOTHING; k_lanes::BLOCKS_MAX];
        for batch in Batch::all::<V, GROUPS, GROUP>(weights) {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            search_lanes(F::PLAIN, &batch, &columns, &F::counts_lanes(&columns), &mut found);
        }
        for ((weights, found), block) in weights.iter().zip(&found).zip(blocks) {
            write::<F, BYTES, GROUPS, GROUP>(weights, found, plain_header(F::STEP_TOP, found), block);
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
    let mut importance = Importance::of(weights, importance);
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let importance = importance.next(weights, |sum| F::MEAN_SQUARES * sum / K_LEN as f32);
        let mut found = [Found::NOTHING; k_lanes::BLOCKS_MAX];
        for batch in Batch::all::<V, GROUPS, GROUP>(weights) {
            let columns = lanes::columns::<V, GROUP>(batch.groups);
            let counts = importance.counts::<V, GROUPS, GROUP>(&batch, &columns);
            search_lanes(weighted_tries(F::PLAIN.top), &batch, &columns, &counts, &mut found);
        }
        for ((weights, found), block) in weights.iter().zip(&found).zip(blocks) {
            write::<F, BYTES, GROUPS, GROUP>(weights, found, weighted_header(F::STEP_TOP, found), block);
        }
    }
}

/// Searches each group. `counts` says how much the error of each weight of a group counts.
fn search<const GROUPS: usize, const GROUP: usize>(
    tries: Tries,
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
) -> Found<GROUPS> {
    const { assert!(GROUPS * GROUP == K_LEN) };
    let mut found = Found::NOTHING;
    let groups = weights.as_chunks().0.iter().zip(found.codes.as_chunks_mut().0);
    let results = found.pairs.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (pair, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *pair = affine::search(tries, weights, &counts, codes);
    }
    found
}

/// Searches the groups of a batch and puts what is found to their blocks.
#[inline(always)]
fn search_lanes<V: Lanes, const GROUPS: usize, const GROUP: usize>(
    tries: Tries,
    batch: &Batch<GROUP>,
    columns: &Columns<V, GROUP>,
    counts: &Columns<V, GROUP>,
    found: &mut [Found<GROUPS>],
) {
    let results = lanes::affine(tries, columns, counts);
    let (sums, scales, minima) = (lanes::sum(counts).store(), results.scale.store(), results.minimum.store());
    let codes = lanes::bytes(&results.codes);
    for lane in 0..batch.groups.len() {
        let (found, group) = (&mut found[(batch.first + lane) / GROUPS], (batch.first + lane) % GROUPS);
        found.pairs[group] = Affine { scale: scales[lane], minimum: minima[lane] };
        found.counts[group] = sums[lane];
        for (code, column) in found.codes[group * GROUP..][..GROUP].iter_mut().zip(&codes) {
            *code = column[lane];
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

/// Writes a block: the codes of the search are replaced by those nearest under the rounded header. A group whose scale
/// became 0 keeps its codes.
#[inline(always)]
fn write<F, const BYTES: usize, const GROUPS: usize, const GROUP: usize>(
    weights: &[f32; K_LEN],
    found: &Found<GROUPS>,
    header: Header<GROUPS>,
    block: &mut [u8; BYTES],
) where
    F: Format<BYTES, GROUPS, GROUP>,
{
    let (scale, low, mut codes) = (f16::widen(header.scale), f16::widen(header.low), found.codes);
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for ((weights, codes), (step, offset)) in groups.zip(header.steps.iter().zip(header.offsets)) {
        let (scale, minimum) = (scale * f32::from(*step), low * f32::from(offset));
        if scale != 0.0 {
            for (code, weight) in codes.iter_mut().zip(weights) {
                *code = nearest((weight + minimum) / scale).clamp(0, F::PLAIN.top) as u8;
            }
        }
    }
    F::pack(&header, &codes, block);
}
