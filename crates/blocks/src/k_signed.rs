//! Encoding that `q3_k` and `q6_k` share: sixteen groups with a signed scale, as a code under one f16 scale.

use crate::codec::{encode_blocks, encode_blocks_weighted, whole_blocks};
use crate::decoder::K_LEN;
use crate::f16;
use crate::k_lanes::{self, BLOCKS_MAX, Batch, BatchImportance, Importance};
use crate::parts::multiples;
use crate::search::lanes::{self, Columns, LANES_MAX, Lanes, Swept};
use crate::search::{descent, nearest, nearest_quotients, peak, squares, sum_of_squares};

/// Groups of a block.
pub(crate) const GROUPS: usize = 16;
/// Weights of a group.
pub(crate) const GROUP: usize = K_LEN / GROUPS;

/// What differs between the formats: blocks of `BYTES` bytes.
pub(crate) trait Format<const BYTES: usize> {
    /// Codes are `-LEVELS .. LEVELS`.
    const LEVELS: i32;

    /// The search of a group: see [`signed`](crate::search::signed::search).
    fn search(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32;

    /// The search when importance is given.
    fn search_weighted(weights: &[f32; GROUP], counts: &[f32; GROUP], codes: &mut [u8; GROUP]) -> f32;

    /// How much the error of each weight counts when importance is given.
    fn counts(weights: &[f32; GROUP], importance: &[f32; GROUP], square_sum: f32) -> [f32; GROUP];

    /// [`Format::search`] of several groups, with at most `sweeps` sweeps over the codes. A search without sweeps
    /// ignores the limit.
    fn search_lanes<V: Lanes>(
        sweeps: usize,
        weights: [&Columns<V, GROUP>; VECTORS],
        counts: [&Columns<V, GROUP>; VECTORS],
    ) -> Swept<V, VECTORS>;

    /// [`Format::search_weighted`] of several groups: the scales.
    #[inline(always)]
    fn search_weighted_lanes<V: Lanes>(
        weights: [&Columns<V, GROUP>; VECTORS],
        counts: [&Columns<V, GROUP>; VECTORS],
    ) -> [V; VECTORS] {
        let mut scales = [V::splat(0.0); VECTORS];
        for ((scale, weights), counts) in scales.iter_mut().zip(weights).zip(counts) {
            *scale = lanes::signed(Self::LEVELS, weights, counts).scale;
        }
        scales
    }

    /// [`Format::counts`] of several groups.
    fn counts_lanes<V: Lanes>(
        importance: &BatchImportance,
        batch: &Batch<GROUP>,
        weights: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP>;

    /// The header of a block; `None` if all of its bytes are 0. `peak` is the scale of largest magnitude.
    fn header(found: &Found, peak: f32) -> Option<Header>;

    /// The header when importance is given.
    fn weighted_header(found: &Found) -> Option<Header>;

    /// [`Format::weighted_header`] of several blocks.
    #[inline(always)]
    fn weighted_headers_lanes<V: Lanes>(found: &[Found]) -> [Option<Header>; BLOCKS_MAX] {
        let mut headers = [None; BLOCKS_MAX];
        for (header, found) in headers.iter_mut().zip(found) {
            *header = Self::weighted_header(found);
        }
        headers
    }

    /// The bytes of a block. `LEVELS` are added to the codes.
    fn pack(header: &Header, codes: &[u8; K_LEN], block: &mut [u8; BYTES]);
}

/// Vectors of groups that are searched at once.
pub(crate) const VECTORS: usize = 4;
/// Blocks per batch in [`encode_lanes`].
const BATCH_BLOCKS: usize = 16;

/// What the search finds in a block.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub scales: [f32; GROUPS],
    /// How much each group counts: the sum over its weights.
    pub counts: [f32; GROUPS],
}

impl Found {
    const NOTHING: Found = Found { scales: [0.0; GROUPS], counts: [0.0; GROUPS] };
}

/// What a block stores for its groups.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub scale: [u8; f16::BYTES],
    pub steps: [i8; GROUPS],
}

impl Header {
    /// The scale of each group.
    #[inline(always)]
    fn scales(&self) -> [f32; GROUPS] {
        multiples(f16::widen(self.scale), self.steps)
    }
}

/// The rule without importance, block by block.
pub(crate) fn encode<F: Format<BYTES>, const BYTES: usize>(weights: &[f32], bytes: &mut [u8]) {
    encode_blocks(weights, bytes, |weights, block| {
        let (found, codes) = search(weights, |_, weights| squares(weights), F::search);
        write::<F, BYTES>(F::header(&found, peak(&found.scales)), weights, codes, block);
    });
}

/// The rule with importance, block by block.
pub(crate) fn encode_weighted<F: Format<BYTES>, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    encode_blocks_weighted(weights, importance, bytes, |weights, importance: &[f32; K_LEN], block| {
        let square_sum = sum_of_squares(weights);
        let counts = |group: usize, weights: &_| F::counts(weights, &importance.as_chunks().0[group], square_sum);
        let (found, codes) = search(weights, counts, F::search_weighted);
        write::<F, BYTES>(F::weighted_header(&found), weights, codes, block);
    });
}

/// [`encode`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize>(weights: &[f32], bytes: &mut [u8]) {
    let (sources, blocks) = whole_blocks(weights.as_chunks::<K_LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (weights, blocks) in sources.chunks(BATCH_BLOCKS).zip(blocks.chunks_mut(BATCH_BLOCKS)) {
        let (mut found, mut unsettled) = ([Found::NOTHING; BATCH_BLOCKS], Unsettled::default());
        for batches in Batch::all::<V, VECTORS, GROUPS, GROUP>(weights) {
            let swept = search_lanes::<F, V, BYTES, false>(
                &batches,
                |_, columns, counts| lanes::write_squares(columns, counts),
                &mut found,
            );
            unsettled.add(&batches, &swept.changes);
        }
        search_unsettled::<F, V, BYTES>(weights.as_flattened(), &unsettled, &mut found);
        let peaks = peaks_lanes::<V>(&found);
        for ((weights, (found, peak)), block) in weights.iter().zip(found.iter().zip(peaks)).zip(blocks) {
            write_lanes::<F, BYTES>(F::header(found, peak), weights, block, |_, weights| {
                codes_of_group(weights, &squares(weights), F::search)
            });
        }
    }
}

/// The scale of largest magnitude of each block.
#[inline(always)]
fn peaks_lanes<V: Lanes>(found: &[Found; BATCH_BLOCKS]) -> [f32; BATCH_BLOCKS] {
    let mut peaks = [0.0; BATCH_BLOCKS];
    for (peaks, found) in peaks.chunks_exact_mut(V::LANES).zip(found.chunks_exact(V::LANES)) {
        let mut scales = [[0.0; GROUPS]; LANES_MAX];
        for (scales, found) in scales.iter_mut().zip(found) {
            *scales = found.scales;
        }
        let found = lanes::peak(&lanes::columns::<V, GROUPS>(&scales[..V::LANES]));
        peaks.copy_from_slice(&found.store()[..V::LANES]);
    }
    peaks
}

/// [`encode_weighted`] with a group in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    let mut importance = Importance::of(weights, importance);
    for (weights, blocks) in k_lanes::batches::<BYTES, GROUPS>(weights, bytes) {
        let importance = importance.next(weights, |sum| 2.0 * sum / K_LEN as f32);
        let mut found = [Found::NOTHING; BLOCKS_MAX];
        for batches in Batch::all::<V, VECTORS, GROUPS, GROUP>(weights) {
            let counts = |batch: &Batch<'_, GROUP>, columns: &Columns<V, GROUP>, counts: &mut Columns<V, GROUP>| {
                *counts = F::counts_lanes::<V>(&importance, batch, columns);
            };
            search_lanes::<F, V, BYTES, true>(&batches, counts, &mut found);
        }
        let headers = F::weighted_headers_lanes::<V>(&found[..weights.len()]);
        for (number, ((weights, header), block)) in weights.iter().zip(headers).zip(blocks).enumerate() {
            let square_sum = || sum_of_squares(weights);
            write_lanes::<F, BYTES>(header, weights, block, |group, weights| {
                let (columns, _) = importance.of_block(number);
                let counts = F::counts(weights, &columns.as_chunks().0[group], square_sum());
                codes_of_group(weights, &counts, F::search_weighted)
            });
        }
    }
}

/// Searches each group; returns its codes too. `counts` says how much the error of each weight of a group counts.
fn search(
    weights: &[f32; K_LEN],
    counts: impl Fn(usize, &[f32; GROUP]) -> [f32; GROUP],
    search: impl Fn(&[f32; GROUP], &[f32; GROUP], &mut [u8; GROUP]) -> f32,
) -> (Found, [u8; K_LEN]) {
    let (mut found, mut codes) = (Found::NOTHING, [0; K_LEN]);
    let groups = weights.as_chunks().0.iter().zip(codes.as_chunks_mut().0);
    let results = found.scales.iter_mut().zip(&mut found.counts);
    for (number, ((weights, codes), (scale, sum))) in groups.zip(results).enumerate() {
        let counts = counts(number, weights);
        *sum = counts.iter().fold(0.0, |sum, count| sum + count);
        *scale = search(weights, &counts, codes);
    }
    (found, codes)
}

/// The codes that the search of a group finds.
#[cold]
fn codes_of_group(
    weights: &[f32; GROUP],
    counts: &[f32; GROUP],
    search: impl Fn(&[f32; GROUP], &[f32; GROUP], &mut [u8; GROUP]) -> f32,
) -> [u8; GROUP] {
    let mut codes = [0; GROUP];
    search(weights, counts, &mut codes);
    codes
}

/// Indices of the groups whose codes the first sweep changed, which need more sweeps.
struct Unsettled {
    groups: [u16; BATCH_BLOCKS * GROUPS],
    count: usize,
}

impl Default for Unsettled {
    #[inline(always)]
    fn default() -> Unsettled {
        Unsettled { groups: [0; BATCH_BLOCKS * GROUPS], count: 0 }
    }
}

impl Unsettled {
    /// Adds the groups in `batches` whose codes the sweep changed.
    #[inline(always)]
    fn add<V: Lanes>(&mut self, batches: &[Batch<GROUP>; VECTORS], changes: &[V; VECTORS]) {
        for (batch, changes) in batches.iter().zip(changes) {
            let changes = changes.store();
            for (group, change) in (batch.first..).zip(&changes[..batch.groups.len()]) {
                self.groups[self.count] = group as u16;
                self.count += usize::from(*change > 0.0);
            }
        }
    }
}

/// Searches the groups in `batches`, and stores their scales and counts in `found`. A search with sweeps stops after
/// the first one.
///
/// `IS_WEIGHTED` selects the search. The search is not passed as a closure, because a large function is not inlined if
/// it is called through an argument.
#[inline(always)]
fn search_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize, const IS_WEIGHTED: bool>(
    batches: &[Batch<GROUP>; VECTORS],
    counts: impl Fn(&Batch<GROUP>, &Columns<V, GROUP>, &mut Columns<V, GROUP>),
    found: &mut [Found],
) -> Swept<V, VECTORS> {
    let mut columns = [[V::splat(0.0); GROUP]; VECTORS];
    let mut columns_counts = [[V::splat(0.0); GROUP]; VECTORS];
    for ((batch, columns), of_columns) in batches.iter().zip(&mut columns).zip(&mut columns_counts) {
        lanes::read_columns(batch.groups, columns);
        counts(batch, columns, of_columns);
    }
    let (weights, counts) = (columns.each_ref(), columns_counts.each_ref());
    let swept = if IS_WEIGHTED {
        Swept { scales: F::search_weighted_lanes(weights, counts), changes: [V::splat(0.0); VECTORS] }
    } else {
        F::search_lanes(1, weights, counts)
    };
    for (n, (batch, counts)) in batches.iter().zip(&columns_counts).enumerate() {
        let (sums, scales) = (lanes::sum(counts).store(), swept.scales[n].store());
        for (lane, (block, group)) in batch.places::<GROUPS>().enumerate() {
            found[block].scales[group] = scales[lane];
            found[block].counts[group] = sums[lane];
        }
    }
    swept
}

/// Repeats the search with all sweeps for the unsettled groups. They are packed together, so that settled groups do not
/// occupy lanes.
#[inline(always)]
fn search_unsettled<F: Format<BYTES>, V: Lanes, const BYTES: usize>(
    weights: &[f32],
    unsettled: &Unsettled,
    found: &mut [Found],
) {
    let groups = weights.as_chunks::<GROUP>().0;
    for numbers in unsettled.groups[..unsettled.count].chunks(VECTORS * V::LANES) {
        let mut rows = [[0.0; GROUP]; VECTORS * LANES_MAX];
        for (row, number) in rows.iter_mut().zip(numbers) {
            *row = groups[usize::from(*number)];
        }
        let mut columns = [[V::splat(0.0); GROUP]; VECTORS];
        let mut counts = [[V::splat(0.0); GROUP]; VECTORS];
        for (n, rows) in rows[..numbers.len()].chunks(V::LANES).enumerate() {
            lanes::read_columns(rows, &mut columns[n]);
            lanes::write_squares(&columns[n], &mut counts[n]);
        }
        let swept = F::search_lanes(descent::SWEEPS, columns.each_ref(), counts.each_ref());
        for (n, numbers) in numbers.chunks(V::LANES).enumerate() {
            let scales = swept.scales[n].store();
            for (lane, number) in numbers.iter().enumerate() {
                let (block, group) = (usize::from(*number) / GROUPS, usize::from(*number) % GROUPS);
                found[block].scales[group] = scales[lane];
            }
        }
    }
}

/// Writes a block: replaces the codes of the search, stored as `code + LEVELS`, by those nearest under the rounded
/// scales. A group whose scale became 0 keeps its codes.
fn write<F: Format<BYTES>, const BYTES: usize>(
    header: Option<Header>,
    weights: &[f32; K_LEN],
    mut codes: [u8; K_LEN],
    block: &mut [u8; BYTES],
) {
    let Some(header) = header else { return block.fill(0) };
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for ((weights, codes), scale) in groups.zip(header.scales()) {
        if scale != 0.0 {
            for (code, weight) in codes.iter_mut().zip(weights) {
                *code = (nearest(weight / scale).clamp(-F::LEVELS, F::LEVELS - 1) + F::LEVELS) as u8;
            }
        }
    }
    F::pack(&header, &codes, block);
}

/// [`write`]; `search` finds the codes of a group whose scale became 0.
#[inline(always)]
fn write_lanes<F: Format<BYTES>, const BYTES: usize>(
    header: Option<Header>,
    weights: &[f32; K_LEN],
    block: &mut [u8; BYTES],
    search: impl Fn(usize, &[f32; GROUP]) -> [u8; GROUP],
) {
    let Some(header) = header else { return block.fill(0) };
    let mut codes = [0; K_LEN];
    let groups = weights.as_chunks::<GROUP>().0.iter().zip(codes.as_chunks_mut::<GROUP>().0);
    for (number, ((weights, codes), scale)) in groups.zip(header.scales()).enumerate() {
        if scale == 0.0 {
            *codes = search(number, weights);
            continue;
        }
        for (code, integer) in codes.iter_mut().zip(nearest_quotients(weights, scale)) {
            *code = (integer.clamp(-F::LEVELS, F::LEVELS - 1) + F::LEVELS) as u8;
        }
    }
    F::pack(&header, &codes, block);
}
