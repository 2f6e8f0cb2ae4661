//! Maps each GGUF tensor to its source tensors in a checkpoint and the transform.
//!
//! ```text
//! rule      blk.{l}.attn_q  <-  model.layers.{l}.self_attn.q_proj      both suffixes: .weight and .bias
//! pieces    rows of a source that become consecutive rows of the tensor; every rearrangement of rows is a list of them
//! ```

use crate::fused::{FusedPart, fused};
use crate::number::wide;
use crate::source_names::SourceNames;
use crate::spec::{ModelSpec, ProjectionStorage, ScaledHead};
use crate::tensor::{OUTPUT, TOKEN_EMBEDDING, TensorKind, TensorSpec};
use crate::transform::{Piece, Transform, Transposed, ValueChange};
use trueup_blocks::DType;

/// One tensor of a GGUF file, and its source tensors in a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct ExpectedTensor {
    /// Its name in the GGUF file.
    pub name: String,
    /// Its layer; `None` outside of the layers.
    pub layer: Option<usize>,
    /// Its sizes in the GGUF file, innermost first.
    pub shape: Vec<u64>,
    /// The kind of tensor.
    pub kind: TensorKind,
    /// The source tensors, in the order in which the transform numbers them; empty if the tensor has no source.
    pub sources: Vec<SourceTensor>,
    /// How the tensor is computed from its sources.
    pub transform: Transform,
}

impl ExpectedTensor {
    /// The element of a source that is element `element` of its rows, which differs if the source is transposed.
    pub fn source_element(&self, element: u64) -> u64 {
        let (Some(&columns), Some(source)) = (self.shape.first(), self.sources.first()) else { return element };
        match (source.shape.first(), element.checked_div(columns), element.checked_rem(columns)) {
            (Some(width), Some(row), Some(column)) if self.transform.transposed.is_some() => {
                let place = self.transform.transposed.map(|transposed| transposed.place(row, column));
                let (row, column) = place.unwrap_or((row, column));
                row.saturating_mul(*width).saturating_add(column)
            }
            (_, Some(row), Some(column)) => {
                let mut left = column;
                for run in self.transform.source_columns() {
                    let count = run.end.saturating_sub(run.start);
                    if left < count {
                        let column = run.start.saturating_add(left);
                        return row.saturating_mul(columns).saturating_add(column);
                    }
                    left = left.saturating_sub(count);
                }
                element
            }
            _ => element,
        }
    }
}

/// A tensor of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceTensor {
    /// Its name.
    pub name: String,
    /// Its sizes, innermost first.
    pub shape: Vec<u64>,
    /// Its required type; `None` allows any floating-point type.
    pub dtype: Option<DType>,
}

/// A rule in the table of an architecture: the GGUF name of a tensor, its name in a checkpoint, and its transform.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// The GGUF name; `{l}` is the layer index. A name without `.weight` or `.bias` means both.
    pub name: &'static str,
    /// The name in a checkpoint, with the same suffix or without one. `{l}` is the layer index, `{e}` the index of each
    /// expert.
    pub source: &'static str,
    /// The transform of the tensor.
    pub(crate) how: How,
    /// The models that the rule applies to. If several rules apply to a tensor, the first is used.
    pub(crate) when: fn(&ModelSpec) -> bool,
    /// Whether the rule applies only to checkpoints that have its source.
    pub(crate) is_optional: bool,
    /// The shape of the source, compared with that of the tensor.
    pub(crate) axes: Axes,
}

/// The shape of a source, compared with that of the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axes {
    /// The same shape.
    Same,
    /// An additional dimension of size 1 between the two dimensions.
    UnitBetween,
    /// All elements in one dimension.
    One,
}

/// The transform of a tensor of the table, for a model and a layer.
pub(crate) type How = fn(&Target) -> Transform;

/// A tensor to compute.
pub(crate) struct Target<'a> {
    pub spec: &'a ModelSpec,
    pub layer: usize,
    pub shape: &'a [u64],
    /// Number of source tensors.
    pub sources: usize,
}

impl Target<'_> {
    /// Number of rows, or of elements of a bias.
    pub fn rows(&self) -> u64 {
        match self.shape {
            [size] => *size,
            _ => self.shape.iter().skip(1).fold(1, |rows: u64, size| rows.saturating_mul(*size)),
        }
    }
}

impl TensorRule {
    /// A rule for a tensor that is a copy of its source.
    pub(crate) const fn new(name: &'static str, source: &'static str) -> TensorRule {
        TensorRule { name, source, how: same, when: |_| true, is_optional: false, axes: Axes::Same }
    }

    /// The same rule, only for checkpoints that have the source; a later rule applies to other checkpoints.
    pub(crate) const fn if_present(self) -> TensorRule {
        TensorRule { is_optional: true, ..self }
    }

    /// The same rule for a source of shape `[rows, 1, columns]`.
    pub(crate) const fn with_unit_axis(self) -> TensorRule {
        TensorRule { axes: Axes::UnitBetween, ..self }
    }

    /// The same rule for a source with one dimension.
    pub(crate) const fn with_one_axis(self) -> TensorRule {
        TensorRule { axes: Axes::One, ..self }
    }

    /// The same rule, only for some models of the architecture.
    pub(crate) const fn when(self, when: fn(&ModelSpec) -> bool) -> TensorRule {
        TensorRule { when, ..self }
    }

    /// The same rule with another transform.
    pub(crate) const fn with(self, how: How) -> TensorRule {
        TensorRule { how, ..self }
    }

    /// The checkpoint name of the GGUF tensor `name` of this layer, if the rule applies to it. Keeps `{e}`.
    pub(crate) fn source_of(&self, name: &str, layer: Option<usize>) -> Option<String> {
        let layer = layer.map(|layer| layer.to_string()).unwrap_or_default();
        let ours = self.name.replace("{l}", &layer);
        let rest = name.strip_prefix(ours.as_str())?;
        matches!(rest, "" | ".weight" | ".bias").then(|| format!("{}{rest}", self.source.replace("{l}", &layer)))
    }
}

/// The tensors of a model, with their source tensors in a checkpoint.
pub fn expected_tensors(spec: &ModelSpec, names: &SourceNames) -> Vec<ExpectedTensor> {
    spec.tensors().into_iter().map(|tensor| expected(spec, names, tensor)).collect()
}

fn expected(spec: &ModelSpec, names: &SourceNames, tensor: TensorSpec) -> ExpectedTensor {
    let TensorSpec { name, layer, shape, kind, .. } = tensor;
    let nothing = Transform::same(0, 0);
    if kind == TensorKind::RopeFactors {
        return ExpectedTensor { name, layer, shape, kind, sources: Vec::new(), transform: nothing };
    }
    let scaled = spec.head.scaled.filter(|_| name == OUTPUT);
    let of_embedding = scaled.is_some_and(|scaled| scaled.is_embedding);
    let Some((rule, pattern, part)) = rule_for(spec, names, if of_embedding { TOKEN_EMBEDDING } else { &name }, layer)
    else {
        return ExpectedTensor { name, layer, shape, kind, sources: Vec::new(), transform: nothing };
    };
    let is_stacked = pattern.contains("{e}");
    let experts = match is_stacked {
        true => shape.last().and_then(|count| usize::try_from(*count).ok()).unwrap_or(0),
        false => 1,
    };
    let target = Target { spec, layer: layer.unwrap_or(0), shape: &shape, sources: experts };
    let mut transform = match part {
        Some(part) => within((rule.how)(&target), part.place(&target)),
        None => (rule.how)(&target),
    };
    if let Some(ScaledHead { factor, .. }) = scaled.filter(|scaled| scaled.factor != 1.0) {
        transform.values = ValueChange::Affine { scale: factor, offset: 0.0 };
    } else if of_embedding && spec.head.has_unit_rows {
        transform.values = ValueChange::NormalizeRows;
    }
    let rows_of = |source: usize| {
        let ends = transform.pieces.iter().filter(|piece| piece.source == source);
        ends.map(|piece| piece.groups.saturating_mul(piece.stride)).max().unwrap_or(0)
    };
    let source = |number: usize| {
        let rows = rows_of(number);
        let columns = shape.first().copied().unwrap_or(0);
        // A stack that is one tensor of the checkpoint is a stack there too.
        let shape = match (shape.len(), shape.get(2)) {
            (1, _) => vec![rows],
            // A stack of vectors.
            (2, _) if is_stacked => vec![columns],
            (_, Some(matrices)) if transform.transposed.is_some() => {
                let stride = transform.transposed.map_or(0, |transposed| transposed.stride);
                vec![rows.checked_div(*matrices).unwrap_or(0), stride.saturating_mul(*matrices)]
            }
            (_, Some(matrices)) if !is_stacked && !transform.is_from_matrix => {
                vec![columns, rows.checked_div(*matrices).unwrap_or(0), *matrices]
            }
            _ if transform.transposed.is_some() => vec![rows, columns],
            _ if rule.axes == Axes::UnitBetween => vec![columns, 1, rows],
            _ if rule.axes == Axes::One => vec![columns.saturating_mul(rows)],
            _ => vec![columns, rows],
        };
        let table = pattern.replace("{e}", &number.to_string());
        SourceTensor { name: names.stored(&table), shape, dtype: None }
    };
    let mut sources: Vec<SourceTensor> = (0..experts).map(source).collect();
    if let ValueChange::PackedTernary { .. } = transform.values {
        pack(&mut sources, &names.stored(&format!("{pattern}_scale")));
    }
    ExpectedTensor { name, layer, shape, kind, sources, transform }
}

/// Adjusts the sources for packed ternary values: a quarter of the rows, and a scale.
fn pack(sources: &mut Vec<SourceTensor>, scale: &str) {
    for source in sources.iter_mut() {
        source.dtype = Some(DType::I8);
        if let Some(rows) = source.shape.last_mut() {
            *rows = rows.div_ceil(4);
        }
    }
    sources.push(SourceTensor { name: scale.to_owned(), shape: vec![1], dtype: None });
}

/// The rule for a tensor, the name of its source, and the part of the source if FastLLM fused it.
fn rule_for(
    spec: &ModelSpec,
    names: &SourceNames,
    name: &str,
    layer: Option<usize>,
) -> Option<(&'static TensorRule, String, Option<FusedPart>)> {
    let exists = |pattern: &str| names.find(&pattern.replace("{e}", "0")).is_some();
    let rules = spec.architecture.rules().filter(|rule| (rule.when)(spec));
    for (rule, pattern) in rules.filter_map(|rule| Some((rule, rule.source_of(name, layer)?))) {
        // A separate tensor is not used if the fused tensor exists, and is reported as unknown.
        if let Some((whole, part)) = fused(&pattern).filter(|(whole, _)| names.has(whole)) {
            return Some((rule, whole, Some(part)));
        }
        if !rule.is_optional || exists(&pattern) {
            return Some((rule, pattern, None));
        }
    }
    None
}

/// The same transform of rows that start at row `first` of a larger tensor.
fn within(mut transform: Transform, (first, total): (u64, u64)) -> Transform {
    for piece in &mut transform.pieces {
        (piece.offset, piece.stride) = (piece.offset.saturating_add(first), total);
    }
    transform
}

/// The first row of the queries, keys or values in a fused tensor, and the number of rows of the tensor.
pub(crate) fn qkv_place(target: &Target, part: Part) -> (u64, u64) {
    let Some(attention) = target.spec.attention(target.layer) else { return (0, target.rows()) };
    let [query, key, value] =
        [attention.query_elements(), attention.key_elements(), attention.value_elements()].map(wide);
    let keys_end = query.saturating_add(key);
    let first = match part {
        Part::Query => 0,
        Part::Key => query,
        Part::Value => keys_end,
    };
    (first, keys_end.saturating_add(value))
}

/// Selects the queries of a fused tensor of queries, keys and values.
pub(crate) fn queries(target: &Target) -> Transform {
    within(same(target), qkv_place(target, Part::Query))
}

/// Selects the keys of a fused tensor of queries, keys and values.
pub(crate) fn keys(target: &Target) -> Transform {
    within(same(target), qkv_place(target, Part::Key))
}

/// Selects the values of a fused tensor of queries, keys and values.
pub(crate) fn values(target: &Target) -> Transform {
    within(same(target), qkv_place(target, Part::Value))
}

/// As [`queries`], if GGUF rotates adjacent pairs and the class rotates halves.
pub(crate) fn interleaved_queries(target: &Target) -> Transform {
    within(interleave_heads(target), qkv_place(target, Part::Query))
}

/// As [`keys`], if GGUF rotates adjacent pairs and the class rotates halves.
pub(crate) fn interleaved_keys(target: &Target) -> Transform {
    within(interleave_heads(target), qkv_place(target, Part::Key))
}

/// Copies the source; stacks several sources.
pub(crate) fn same(target: &Target) -> Transform {
    let rows = target.rows().checked_div(wide(target.sources)).unwrap_or(0);
    Transform::same(target.sources, rows)
}

/// Projection to queries or keys, if GGUF rotates adjacent pairs and the class rotates halves.
pub(crate) fn interleave_heads(target: &Target) -> Transform {
    let head_size = target.spec.attention(target.layer).map(|attention| attention.key_size);
    Transform { interleaved_heads: head_size, ..same(target) }
}

/// Divides each row by its norm if the model does so.
pub(crate) fn unit_rows(target: &Target) -> Transform {
    let values = if target.spec.head.has_unit_rows { ValueChange::NormalizeRows } else { ValueChange::None };
    Transform { values, ..same(target) }
}

/// A matrix that its class stores transposed, as GPT-2's `Conv1D` does. Biases are kept as they are.
pub(crate) fn transposed(target: &Target) -> Transform {
    let whole = Transposed { stride: 0, offset: 0, rows: target.rows() };
    Transform { transposed: Some(whole).filter(|_| target.shape.len() > 1), ..same(target) }
}

/// A norm whose class multiplies by `1 + w`; GGUF stores the sum.
pub(crate) fn plus_one(target: &Target) -> Transform {
    Transform { values: ValueChange::Affine { scale: 1.0, offset: 1.0 }, ..same(target) }
}

/// A matrix of attention or feed-forward in a model whose matrices are ternary.
pub(crate) fn ternary(target: &Target) -> Transform {
    let values = match target.spec.projections {
        ProjectionStorage::Plain => ValueChange::None,
        ProjectionStorage::Latent => ValueChange::Ternary,
        ProjectionStorage::Packed { is_divided } => ValueChange::PackedTernary { is_divided },
    };
    Transform { values, ..same(target) }
}

/// Queries of heads that share keys with every `kv_heads`-th head, sorted so that adjacent heads share them.
pub(crate) fn adjacent_queries(target: &Target) -> Transform {
    Transform { pieces: adjacent_heads(target), ..Transform::same(0, 0) }
}

/// The attention output matrix, with its columns in the order of these heads.
pub(crate) fn adjacent_outputs(target: &Target) -> Transform {
    Transform { columns: adjacent_heads(target), ..same(target) }
}

fn adjacent_heads(target: &Target) -> Vec<Piece> {
    let Some(attention) = target.spec.attention(target.layer) else { return Vec::new() };
    let (kv_heads, size) = (wide(attention.kv_heads), wide(attention.key_size));
    let groups = wide(attention.heads).checked_div(kv_heads).unwrap_or(0);
    let stride = kv_heads.saturating_mul(size);
    let piece = |kv_head: u64| Piece { source: 0, groups, stride, offset: kv_head.saturating_mul(size), rows: size };
    (0..kv_heads).map(piece).collect()
}

/// The first half of the rows of each matrix of the source.
pub(crate) fn first_half_rows(target: &Target) -> Transform {
    half_rows(target, 0)
}

/// The second half of the rows of each matrix of the source.
pub(crate) fn second_half_rows(target: &Target) -> Transform {
    half_rows(target, 1)
}

fn half_rows(target: &Target, half: u64) -> Transform {
    let groups = target.shape.get(2).copied().unwrap_or(1);
    let rows = target.rows().checked_div(groups).unwrap_or(0);
    let piece = Piece { source: 0, groups, stride: rows.saturating_mul(2), offset: rows.saturating_mul(half), rows };
    Transform { pieces: vec![piece], ..same(target) }
}

/// The matrices that map queries to the latent vector, from a matrix with the keys and values of each head.
pub(crate) fn latent_keys(target: &Target) -> Transform {
    let [keys, values] = latent_sizes(target);
    let rows = target.shape.get(1).copied().unwrap_or(1);
    let transposed = Transposed { stride: keys.saturating_add(values), offset: 0, rows };
    Transform { transposed: Some(transposed), is_from_matrix: true, ..same(target) }
}

/// The matrices that map latent vectors to values, from a matrix with the keys and values of each head.
pub(crate) fn latent_values(target: &Target) -> Transform {
    let [keys, values] = latent_sizes(target);
    let groups = target.shape.get(2).copied().unwrap_or(1);
    let piece = Piece { source: 0, groups, stride: keys.saturating_add(values), offset: keys, rows: values };
    Transform { pieces: vec![piece], is_from_matrix: true, ..same(target) }
}

/// Elements of a head's key that are not rotated, and of its value.
fn latent_sizes(target: &Target) -> [u64; 2] {
    let attention = target.spec.attention(target.layer);
    let sizes = attention.and_then(|attention| Some(attention.latent.as_ref()?.sizes(attention)));
    sizes.unwrap_or([1, 1]).map(wide)
}

/// Rates of decay whose class stores the logarithm of their magnitude.
pub(crate) fn negated_exponential(target: &Target) -> Transform {
    Transform { values: ValueChange::NegatedExponential, ..same(target) }
}

/// Queries of all heads, then keys, then values, from a tensor with one group of `q k v` for each head.
pub(crate) fn split_by_head(target: &Target) -> Transform {
    let heads = target.spec.attention(target.layer).map_or(1, |attention| wide(attention.heads));
    split_groups(target, heads, [0, 1, 2])
}

/// The same from a tensor with one group for each KV head: its queries, its key, its value.
pub(crate) fn split_by_kv_head(target: &Target) -> Transform {
    let pieces = [Part::Query, Part::Key, Part::Value].map(|part| kv_group_piece(target, part));
    Transform { pieces: pieces.into_iter().flatten().collect(), ..Transform::same(0, 0) }
}

/// Only the queries of such a tensor.
pub(crate) fn query_of_kv_heads(target: &Target) -> Transform {
    kv_group_rows(target, Part::Query)
}

/// Only the keys of such a tensor.
pub(crate) fn key_of_kv_heads(target: &Target) -> Transform {
    kv_group_rows(target, Part::Key)
}

/// Only the values of such a tensor.
pub(crate) fn value_of_kv_heads(target: &Target) -> Transform {
    kv_group_rows(target, Part::Value)
}

fn kv_group_rows(target: &Target, part: Part) -> Transform {
    Transform { pieces: kv_group_piece(target, part).into_iter().collect(), ..Transform::same(0, 0) }
}

/// A part of a fused tensor of queries, keys and values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Query,
    Key,
    Value,
}

/// The rows of one part in groups of one KV head each; `None` for a layer without attention.
fn kv_group_piece(target: &Target, part: Part) -> Option<Piece> {
    let attention = target.spec.attention(target.layer)?;
    let (key, value) = (wide(attention.key_size), wide(attention.value_size));
    let groups = wide(attention.kv_heads);
    let queries = wide(attention.heads).checked_div(groups)?.saturating_mul(key);
    let stride = queries.saturating_add(key).saturating_add(value);
    let (offset, rows) = match part {
        Part::Query => (0, queries),
        Part::Key => (queries, key),
        Part::Value => (queries.saturating_add(key), value),
    };
    Some(Piece { source: 0, groups, stride, offset, rows })
}

/// Queries of all heads, then keys, then values, from a tensor with one group of `q v k` for each quarter of the heads.
pub(crate) fn split_by_quarter(target: &Target) -> Transform {
    split_groups(target, 4, [0, 2, 1])
}

/// Queries, keys and values of `groups` groups; `places` are their indices in a group. The result is empty if the rows
/// cannot be split; the caller rejects it.
fn split_groups(target: &Target, groups: u64, places: [u64; 3]) -> Transform {
    let is_even = target
        .spec
        .attention(target.layer)
        .is_some_and(|attention| attention.heads == attention.kv_heads && wide(attention.heads).is_multiple_of(groups));
    let nothing = Transform::same(0, 0);
    if !is_even {
        return nothing;
    }
    let rows = target.rows().checked_div(groups.saturating_mul(3)).unwrap_or(0);
    let piece = |place: u64| Piece {
        source: 0,
        groups,
        stride: rows.saturating_mul(3),
        offset: place.saturating_mul(rows),
        rows,
    };
    Transform { pieces: places.map(piece).to_vec(), ..nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn rows(transform: &Transform, rows: Range<u64>) -> Vec<u64> {
        transform.source_rows(rows).into_iter().flat_map(|(_, run)| run).collect()
    }

    fn split(groups: u64, size: u64, places: [u64; 3]) -> Transform {
        let piece = |place: u64| Piece { source: 0, groups, stride: 3 * size, offset: place * size, rows: size };
        Transform { pieces: places.map(piece).to_vec(), ..Transform::same(0, 0) }
    }

    /// `numpy.arange(12).reshape(2, 3, 2).swapaxes(0, 1).ravel()`: two heads of two rows of each kind.
    #[test]
    fn two_heads_are_split_as_numpy_splits_them() {
        let by_head = split(2, 2, [0, 1, 2]);
        assert_eq!(rows(&by_head, 0..12), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(rows(&by_head, 3..6), [7, 2, 3]);
        // Values before keys: the same with `[:, [0, 2, 1]]` before.
        assert_eq!(rows(&split(2, 2, [0, 2, 1]), 0..12), [0, 1, 6, 7, 4, 5, 10, 11, 2, 3, 8, 9]);
    }

    #[test]
    fn the_inverse_gives_the_source_back() {
        for (groups, size) in [(1, 1), (2, 3), (5, 4), (7, 1)] {
            let forward = split(groups, size, [0, 2, 1]);
            let total = 3 * groups * size;
            let back = Transform { pieces: forward.inverse().unwrap(), ..forward.clone() };
            let there = rows(&forward, 0..total);
            let again: Vec<u64> = rows(&back, 0..total).into_iter().map(|row| there[row as usize]).collect();
            assert_eq!(again, (0..total).collect::<Vec<u64>>());
        }
        let lossy = Transform { pieces: vec![Piece { stride: 3, ..Piece::whole(0, 2) }], ..Transform::same(1, 2) };
        assert_eq!((Transform::same(2, 3).inverse(), lossy.inverse().map(|_| ())), (None, Some(())));
    }

    /// `numpy.arange(12).reshape(2, 3, 2).swapaxes(0, 1).ravel()`: columns of three KV heads that two heads share each.
    #[test]
    fn columns_of_shared_heads_become_adjacent() {
        let piece = |kv_head: u64| Piece { source: 0, groups: 2, stride: 6, offset: 2 * kv_head, rows: 2 };
        let transform = Transform { columns: (0..3).map(piece).collect(), ..Transform::same(1, 4) };
        let columns: Vec<u64> = transform.source_columns().into_iter().flatten().collect();
        assert_eq!(columns, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
    }

    #[test]
    fn stacked_sources_follow_each_other() {
        let stack = Transform::same(3, 2);
        assert_eq!(stack.source_rows(1..5), [(0, 1..2), (1, 0..2), (2, 0..1)]);
        assert!(stack.gathers() && !Transform::same(1, 5).gathers());
    }
}
