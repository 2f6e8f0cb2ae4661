//! Flash attention: softmax(q k^T * scale + pse, masked) v, for each head.
//!
//! | step | precision |
//! |---|---|
//! | q k^T | inputs f16 or bf16 as they are, sums f32 |
//! | scale, then the pse added, then the mask | f32 |
//! | e^(s - max), its sum | f32 |
//! | p v | p rounded to the type of q, sums f32 |
//! | division by the sum | f32, then one rounding |
//!
//! Rows without any key are zero. The page says that operands are contiguous, a user of the interface passes strided
//! keys and a pse with a stride of 0: views are taken.

use super::{
    Work,
    argument::{Ints, Tensor, Tensors, Text},
    call::{Call, broadcast, sizes},
    operators,
    product::{dot, drop_group, spoil_tile},
    stage::{Slot, Stage, round_to},
    work,
};
use crate::{
    element::Type,
    memory::Fault,
    status::{OPERATOR_RUNTIME, Refusal},
    view::View,
};
use rayon::prelude::*;

/// The axes of an operand as (batch, head, position, column).
fn by_head(call: &Call, tensor: &Tensor, layout: &str, heads: u64) -> Result<View, Refusal> {
    call.rank(tensor, if layout == "BSH" { 3..=3 } else { 4..=4 })?;
    match layout {
        "BSND" => Ok(tensor.view.permuted(&[0, 2, 1, 3])),
        "BNSD" | "BNSD_BSND" => Ok(tensor.view.clone()),
        _ => {
            let mut view = tensor.view.clone();
            let width = view.shape[2];
            call.require(width.is_multiple_of(heads), tensor.argument, || {
                format!("has {width} columns for {heads} heads")
            })?;
            let columns = width / heads;
            let stride = view.strides[2];
            view.shape.splice(2..3, [heads, columns]);
            view.strides.splice(2..3, [stride * columns, stride]);
            Ok(view.permuted(&[0, 2, 1, 3]))
        }
    }
}

/// Which keys a query may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Band {
    sparse_mode: i64,
    before: i64,
    after: i64,
}

impl Band {
    /// The band that holds: a single query has none, and mode 0 has none without a mask, whatever the distances.
    fn holding(self, queries: u64, masked: bool) -> Option<Self> {
        (queries > 1 && (self.sparse_mode > 0 || masked)).then_some(self)
    }

    /// Whether the mode and the distances let query `q` of `queries` see key `k` of `keys`.
    fn sees(self, q: i64, k: i64, queries: i64, keys: i64) -> bool {
        match self.sparse_mode {
            2 => k <= q,
            3 => k <= q + keys - queries,
            4 => {
                k <= (q + keys - queries).saturating_add(self.after)
                    && k >= (q + keys - queries).saturating_sub(self.before)
            }
            0 => k <= q.saturating_add(self.after) && k >= q.saturating_sub(self.before),
            _ => true,
        }
    }
}

/// An attention whose arguments were judged.
struct Attention {
    query: Slot,
    key: Slot,
    value: Slot,
    shift: Option<Slot>,
    mask: Option<Slot>,
    out: Slot,
    views: [View; 4],
    heads_a_key: u64,
    scale: f32,
    band: Option<Band>,
    keys_used: Option<Vec<i64>>,
    ty: Type,
}

impl Attention {
    fn at(&self, stage: &Stage, slot: Slot, which: usize) -> View {
        View { at: stage.view(slot).at, ..self.views[which].clone() }
    }

    fn run(&self, stage: &Stage) -> Result<(), Fault> {
        let (q, out) = (self.at(stage, self.query, 0), self.at(stage, self.out, 3));
        let (batches, heads) = (q.shape[0], q.shape[1]);
        let places: Vec<(u64, u64)> =
            (0..batches).flat_map(|batch| (0..heads).map(move |head| (batch, head))).collect();
        let results: Vec<Vec<f32>> =
            places.par_iter().map(|&(batch, head)| self.head(stage, batch, head)).collect::<Result<_, Fault>>()?;
        places
            .iter()
            .zip(results)
            .try_for_each(|(&(batch, head), rows)| stage.write_view(&out.at_index(0, batch).at_index(0, head), &rows))
    }

    /// An operand (..., queries, keys) for a batch and a head, as numbers.
    fn plane(
        &self,
        stage: &Stage,
        slot: Slot,
        batch: u64,
        head: u64,
        queries: u64,
        keys: u64,
    ) -> Result<Vec<f32>, Fault> {
        let shape = [self.views[0].shape[0], self.views[0].shape[1], queries, keys];
        let stretched = stage.view(slot).broadcast(&shape).unwrap_or_else(|| stage.view(slot).clone());
        stage.read_view(&stretched.at_index(0, batch).at_index(0, head))
    }

    /// The rows of one head, packed (queries, columns).
    fn head(&self, stage: &Stage, batch: u64, head: u64) -> Result<Vec<f32>, Fault> {
        let part = |view: View, head: u64| stage.read_view::<f32>(&view.at_index(0, batch).at_index(0, head));
        let key_head = head / self.heads_a_key;
        let mut q = part(self.at(stage, self.query, 0), head)?;
        let k = part(self.at(stage, self.key, 1), key_head)?;
        let v = part(self.at(stage, self.value, 2), key_head)?;
        let (queries, columns) = (self.views[0].shape[2] as usize, self.views[0].shape[3] as usize);
        let (all_keys, value_columns) = (self.views[1].shape[2] as usize, self.views[2].shape[3] as usize);
        let used = self
            .keys_used
            .as_ref()
            .map_or(all_keys as i64, |used| used[if used.len() == 1 { 0 } else { batch as usize }]);
        let keys = (used.max(0) as usize).min(all_keys);
        let plane = |slot: Option<Slot>| {
            slot.map(|slot| self.plane(stage, slot, batch, head, queries as u64, all_keys as u64)).transpose()
        };
        q.chunks_mut(columns.max(1)).for_each(|row| drop_group(stage, row));
        let (shift, mask) = (plane(self.shift)?, plane(self.mask)?);
        let turned: Vec<f32> = (0..value_columns)
            .flat_map(|column| (0..keys).map(move |key| (column, key)))
            .map(|(column, key)| v[key * value_columns + column])
            .collect();
        let mut out = vec![0f32; queries * value_columns];
        for row in 0..queries {
            let seen = |key: usize| {
                let sees = |band: Band| band.sees(row as i64, key as i64, queries as i64, keys as i64);
                self.band.is_none_or(sees) && mask.as_ref().is_none_or(|mask| mask[row * all_keys + key] == 0.0)
            };
            let score = |key: usize| match seen(key) {
                true => {
                    dot(&q[row * columns..][..columns], &k[key * columns..][..columns]) * self.scale
                        + shift.as_ref().map_or(0.0, |shift| shift[row * all_keys + key])
                }
                false => f32::NEG_INFINITY,
            };
            let mut scores: Vec<f32> = (0..keys).map(score).collect();
            let sum = exponents(stage, &mut scores);
            round_to(&mut scores, self.ty, stage.chip);
            drop_group(stage, &mut scores);
            let target = &mut out[row * value_columns..][..value_columns];
            if sum > 0.0 {
                target
                    .iter_mut()
                    .enumerate()
                    .for_each(|(column, out)| *out = dot(&scores, &turned[column * keys..][..keys]) / sum);
            }
        }
        spoil_tile(stage, &mut out, queries, value_columns);
        Ok(out)
    }
}

/// Scores become e^(score - largest); gives their sum. Rows without any score become zeros.
fn exponents(stage: &Stage, scores: &mut [f32]) -> f32 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest == f32::NEG_INFINITY {
        scores.fill(0.0);
        return 0.0;
    }
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    stage.sum(scores)
}

/// What all forms share.
struct Asked {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    shift: Option<Tensor>,
    mask: Option<Tensor>,
    keys_used: Option<Ints>,
    heads: i64,
    scale: f64,
    key_heads: i64,
    layout: Text,
    band: Band,
    inner_precise: i64,
    out: Tensor,
}

fn one(call: &Call, list: Tensors, argument: &str) -> Result<Tensor, Refusal> {
    let [tensor] = <[Tensor; 1]>::try_from(list).map_err(|_| {
        call.refusal(
            argument,
            "does not contain exactly one tensor, and the simulator supports only \
            one",
        )
    })?;
    Ok(tensor)
}

fn judge_modes(call: &Call, asked: &Asked) -> Result<(), Refusal> {
    let layouts = ["BSH", "BSND", "BNSD", "BNSD_BSND"];
    call.require(layouts.contains(&asked.layout.as_str()), "inputLayout", || {
        format!("is {:?}, one of {} is expected", asked.layout, layouts.join(", "))
    })?;
    let mode = asked.band.sparse_mode;
    call.require((0..=4).contains(&mode), "sparseMode", || format!("is {mode}, 0 to 4 are expected"))?;
    call.require((0..=3).contains(&asked.inner_precise), "innerPrecise", || {
        format!("is {}, 0 to 3 are expected", asked.inner_precise)
    })?;
    call.require(asked.heads > 0, "numHeads", || format!("is {}", asked.heads))?;
    let (heads, key_heads) = (asked.heads, if asked.key_heads == 0 { asked.heads } else { asked.key_heads });
    let divides = key_heads > 0 && heads % key_heads == 0 && heads / key_heads <= 64;
    call.require(divides, "numKeyValueHeads", || {
        format!("is {key_heads} for {heads} heads: a divisor, at least a 64th, is expected")
    })
}

fn judge_mask(call: &Call, mask: &Tensor, queries: u64, keys: u64, batches: u64, mode: i64) -> Result<(), Refusal> {
    call.typed(mask, "b,i8,u8")?;
    let shape = mask.shape();
    if mode >= 2 {
        return call.require(shape.ends_with(&[2048, 2048]), "attenMask", || {
            format!("has the shape {}, sparseMode {mode} wants the compressed 2048 x 2048", sizes(shape))
        });
    }
    let fits = [
        &[queries, keys][..],
        &[batches, queries, keys],
        &[batches, 1, queries, keys],
        &[1, 1, queries, keys],
        &[1, queries, keys],
    ]
    .contains(&shape);
    call.require(fits, "attenMask", || format!("has the shape {} for {queries} queries and {keys} keys", sizes(shape)))
}

/// The rules for the shift, the mask and the lengths, for (batches, heads, queries, keys).
fn judge_optional(call: &Call, asked: &Asked, shape: [u64; 4]) -> Result<(), Refusal> {
    let [batches, _, queries, keys] = shape;
    if let Some(shift) = &asked.shift {
        call.type_is(shift, asked.query.ty())?;
        let stretches = broadcast(shift.shape(), &shape).is_some_and(|stretched| stretched == shape);
        let fits = shift.rank() == 4 && stretches && shift.shape()[1..] == shape[1..];
        call.require(fits, "pseShift", || {
            format!("has the shape {}, {} is expected", sizes(shift.shape()), sizes(&shape))
        })?;
    }
    let mode = asked.band.holding(queries, asked.mask.is_some()).map_or(0, |band| band.sparse_mode);
    call.require(mode == 0 || asked.mask.is_some(), "attenMask", || format!("is null for sparseMode {mode}"))?;
    if let Some(mask) = &asked.mask {
        judge_mask(call, mask, queries, keys, batches, mode)?;
    }
    if let Some(used) = &asked.keys_used {
        let fits = (used.len() == 1 || used.len() as u64 == batches)
            && used.iter().all(|used| (0..=keys as i64).contains(used));
        call.require(fits, "actualSeqLengthsKv", || format!("is {used:?} for {batches} batches of {keys} keys"))?;
    }
    Ok(())
}

fn attention(call: &mut Call, asked: Asked) -> Result<Work, Refusal> {
    call.kernel(&asked.query, "FusedInferAttentionScore", "f16,bf16")?;
    judge_modes(call, &asked)?;
    let (heads, layout) = (asked.heads as u64, asked.layout.as_str());
    let key_heads = if asked.key_heads == 0 { heads } else { asked.key_heads as u64 };
    let ty = asked.query.ty();
    for tensor in [&asked.key, &asked.value, &asked.out] {
        call.type_is(tensor, ty)?;
    }
    let q = by_head(call, &asked.query, layout, heads)?;
    let (k, v) = (by_head(call, &asked.key, layout, key_heads)?, by_head(call, &asked.value, layout, key_heads)?);
    let out = by_head(call, &asked.out, if layout == "BNSD_BSND" { "BSND" } else { layout }, heads)?;
    let [batches, found_heads, queries, columns] = [q.shape[0], q.shape[1], q.shape[2], q.shape[3]];
    call.require(found_heads == heads, "query", || format!("has {found_heads} heads, numHeads is {heads}"))?;
    call.require(columns.is_multiple_of(16) && columns <= 512, "query", || {
        format!("has a head size of {columns}, a multiple of 16 up to 512 is expected")
    })?;
    call.require(layout != "BNSD_BSND" || queries > 1, "inputLayout", || "is BNSD_BSND with one query".to_owned())?;
    let keys = k.shape[2];
    for (tensor, view) in [(&asked.key, &k), (&asked.value, &v)] {
        let fits = view.shape == [batches, key_heads, keys, columns];
        call.require(fits, tensor.argument, || {
            format!(
                "has the shape {}, which does not match the query's {}",
                sizes(tensor.shape()),
                sizes(asked.query.shape())
            )
        })?;
    }
    call.require(out.shape == q.shape, "attentionOut", || format!("has the shape {}", sizes(asked.out.shape())))?;
    judge_optional(call, &asked, [batches, heads, queries, keys])?;
    let band = asked.band.holding(queries, asked.mask.is_some());
    let compressed = band.is_some_and(|band| band.sparse_mode >= 2);
    call.keep_apart();
    call.asks(32 * 1024);
    let mask = asked.mask.as_ref().map(three_axes_as_four);
    let [key, value] = [&asked.key, &asked.value].map(|only| call.inputs(std::slice::from_ref(only))[0]);
    let query = call.input(&asked.query);
    let (shift, mask, out_slot) =
        (call.optional(asked.shift.as_ref()), call.optional(mask.as_ref()), call.output(&asked.out));
    let attention = Attention {
        query,
        key,
        value,
        shift,
        mask: if compressed { None } else { mask },
        out: out_slot,
        views: [q, k, v, out],
        heads_a_key: heads / key_heads,
        scale: asked.scale as f32,
        band,
        keys_used: asked.keys_used,
        ty,
    };
    work(move |stage| attention.run(stage))
}

/// A mask (batches, queries, keys) as (batches, 1, queries, keys).
fn three_axes_as_four(mask: &Tensor) -> Tensor {
    let mut mask = mask.clone();
    if mask.rank() == 3 {
        mask.view.shape.insert(1, 1);
        mask.view.strides.insert(1, 0);
    }
    mask
}

/// Refuses what belongs to quantized, paged or shared keys.
fn only_plain(call: &Call, given: &[(&str, bool)]) -> Result<(), Refusal> {
    match given.iter().find(|(_, given)| *given) {
        Some((argument, _)) => Err(Refusal::new(
            OPERATOR_RUNTIME,
            format!("{}: {argument} is not null, and the simulator supports only attention without it", call.name),
        )),
        None => Ok(()),
    }
}

type O = Option<Tensor>;
type I = Option<Ints>;

#[allow(clippy::too_many_arguments, non_snake_case)]
fn fused(
    call: &mut Call,
    query: Tensor,
    key: Tensors,
    value: Tensors,
    pseShift: O,
    attenMask: O,
    _seq: I,
    seqKv: I,
    d1: O,
    q1: O,
    d2: O,
    q2: O,
    qo2: O,
    aqs: O,
    aqo: O,
    bt: O,
    qps: O,
    kps: O,
    numHeads: i64,
    scale: f64,
    pre: i64,
    next: i64,
    layout: Text,
    kvHeads: i64,
    sparse: i64,
    inner: i64,
    _block: i64,
    _antiquant: i64,
    lse: bool,
    out: Tensor,
    lseOut: O,
) -> Result<Work, Refusal> {
    let names = [
        "deqScale1",
        "quantScale1",
        "deqScale2",
        "quantScale2",
        "quantOffset2",
        "antiquantScale",
        "antiquantOffset",
        "blockTable",
        "queryPaddingSize",
        "kvPaddingSize",
    ];
    let given = [&d1, &q1, &d2, &q2, &qo2, &aqs, &aqo, &bt, &qps, &kps].map(Option::is_some);
    only_plain(call, &names.into_iter().zip(given).collect::<Vec<_>>())?;
    only_plain(call, &[("softmaxLseFlag", lse)])?;
    let _ = lseOut;
    let (key, value) = (one(call, key, "key")?, one(call, value, "value")?);
    let band = Band { sparse_mode: sparse, before: pre, after: next };
    attention(
        call,
        Asked {
            query,
            key,
            value,
            shift: pseShift,
            mask: attenMask,
            keys_used: seqKv,
            heads: numHeads,
            scale,
            key_heads: kvHeads,
            layout,
            band,
            inner_precise: inner,
            out,
        },
    )
}

operators! {
    "FusedInferAttentionScore"(query: Tensor, key: Tensors, value: Tensors, pseShift: O, attenMask: O, actualSeqLengths: I, actualSeqLengthsKv: I, deqScale1: O, quantScale1: O, deqScale2: O, quantScale2: O, quantOffset2: O, antiquantScale: O, antiquantOffset: O, blockTable: O, queryPaddingSize: O, kvPaddingSize: O, numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: Text, numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, blockSize: i64, antiquantMode: i64, softmaxLseFlag: bool, attentionOut: Tensor, softmaxLse: O) => fused;
    "FusedInferAttentionScoreV2"(query: Tensor, key: Tensors, value: Tensors, pseShiftOptional: O, attenMaskOptional: O, actualSeqLengthsOptional: I, actualSeqLengthsKvOptional: I, deqScale1Optional: O, quantScale1Optional: O, deqScale2Optional: O, quantScale2Optional: O, quantOffset2Optional: O, antiquantScaleOptional: O, antiquantOffsetOptional: O, blockTableOptional: O, queryPaddingSizeOptional: O, kvPaddingSizeOptional: O, keyAntiquantScaleOptional: O, keyAntiquantOffsetOptional: O, valueAntiquantScaleOptional: O, valueAntiquantOffsetOptional: O, keySharedPrefixOptional: O, valueSharedPrefixOptional: O, actualSharedPrefixLenOptional: I, numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: Text, numKeyValueHeads: i64, sparseMode: i64, innerPrecise: i64, blockSize: i64, antiquantMode: i64, softmaxLseFlag: bool, keyAntiquantMode: i64, valueAntiquantMode: i64, attentionOut: Tensor, softmaxLse: O) =>
        |call: &mut Call, query, key, value, shift, mask, seq, seq_kv, d1, q1, d2, q2, qo2, aqs, aqo, bt, qps, kps, kas: O, kao: O, vas: O, vao: O, ksp: O, vsp: O, shared: I, heads, scale, pre, next, layout, kv_heads, sparse, inner, block, antiquant, lse, _k_mode: i64, _v_mode: i64, out, lse_out| {
            only_plain(call, &[("keyAntiquantScale", kas.is_some()), ("keyAntiquantOffset", kao.is_some()), ("valueAntiquantScale", vas.is_some()), ("valueAntiquantOffset", vao.is_some()), ("keySharedPrefix", ksp.is_some()), ("valueSharedPrefix", vsp.is_some()), ("actualSharedPrefixLen", shared.is_some())])?;
            fused(call, query, key, value, shift, mask, seq, seq_kv, d1, q1, d2, q2, qo2, aqs, aqo, bt, qps, kps, heads, scale, pre, next, layout, kv_heads, sparse, inner, block, antiquant, lse, out, lse_out)
        };
}
