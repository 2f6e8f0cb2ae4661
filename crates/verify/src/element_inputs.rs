//! What an element was computed from, in few numbers: the largest products of its sum, the elements it was made of, or
//! its row.
//!
//! ```text
//!   mul_mat, kv_scores, kv_mix    the 4 largest |w x| of the sum; of kv_attention that of the values
//!   elementwise, moves, rope      the input elements themselves; of a fused feed-forward its two sums
//!   norms, soft_max               the row in summary, the element's own score or weight
//! ```
//!
//! Taken for the worst elements only, while the inputs are at hand, as the device had them: without the rounding that
//! it declares.

mod kv_attention;

use crate::bound::{Case, pair_places};
use crate::operand::Operand;
use serde::Serialize;
use trueup_graph::op::{Norm, Rope};
use trueup_graph::{Op, Shape};

/// Products that are kept of a sum.
const PRODUCTS: usize = 4;

/// Largest input that is summed up whole, where an operator has no rule of its own here.
const WHOLE_MAX: usize = 1 << 16;

/// What one element was computed from.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ElementInputs {
    /// A sum of products.
    Products {
        /// What the two factors are: `w` and `x`.
        factors: [&'static str; 2],
        /// Products in the sum.
        terms: usize,
        /// The largest of them without their sign, the largest first; what is no number before all others.
        largest: Vec<Product>,
    },
    /// Single elements of the inputs.
    Values {
        /// Each by its name.
        values: Vec<InputValue>,
    },
    /// A whole row.
    Row {
        /// The row in summary.
        row: RowSummary,
        /// Single elements beside it.
        values: Vec<InputValue>,
    },
}

/// One product of a sum.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Product {
    /// Its place in the sum, from 0: for `kv_mix` the row of the cache.
    pub k: usize,
    /// The first factor; null where it is no finite number.
    pub first: Option<f64>,
    /// The second factor.
    pub second: Option<f64>,
}

/// One element of an input.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct InputValue {
    /// What it is.
    pub name: &'static str,
    /// Its value; null where it is no finite number.
    pub value: Option<f64>,
}

/// A row in few numbers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RowSummary {
    /// Elements of the row.
    pub elements: usize,
    /// Those that are finite, and not masked.
    pub counted: usize,
    /// The smallest of them; null where there is none.
    pub min: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
    /// Root of their mean square.
    pub rms: Option<f64>,
}

/// What element `index` of the case's result was computed from; `None` where the inputs do not say.
pub(crate) fn of(case: &Case, index: usize) -> Option<ElementInputs> {
    let places = coordinates(&case.output.ty.shape, index);
    match case.op {
        Op::MulMat(_) => mul_mat(case, places),
        Op::MulMatGated(_) => mul_mat_gated(case, places),
        Op::MulMatId(_) => mul_mat_id(case, places),
        Op::KvScores(_) => kv_scores(case, places),
        Op::KvAttention(attention) => kv_attention::of(attention, case, places),
        Op::KvMix(mix) => kv_mix(mix.kv_heads, case, places),
        Op::Arithmetic(_) => repeated(case, index, &["a", "b"]),
        Op::Gated(_) => repeated(case, index, &["gate", "up"]),
        Op::Unary(_) | Op::Cast(_) | Op::DiagMask(_) => repeated(case, index, &["x"]),
        Op::Reshape(_) => {
            let x = case.inputs.first()?;
            let width = x.ty.shape[0].max(1);
            Some(ElementInputs::Values { values: vec![value("x", at(x, index / width, index % width)?)] })
        }
        Op::GetRows(_) => get_rows(case, index),
        Op::KvStore(_) => kv_store(case, index),
        Op::Rope(rope) => rotated(rope, case, index),
        Op::RmsNorm(_) => normed(case, index),
        Op::Norm(norm) => run(norm, case, index),
        Op::SoftMax(_) => soft_max(case, index),
        Op::Arrange(_) | Op::Concat(_) | Op::IndexFill(_) | Op::SetRows(_) | Op::Overlay(_) => whole(case),
        Op::Im2Col(_) | Op::Make(_) | Op::Pool2d(_) | Op::Rank(_) | Op::Reduce(_) | Op::Upscale(_) => whole(case),
        Op::FlashAttn(_) | Op::SsmConv(_) | Op::SsmScan(_) => whole(case),
    }
}

/// The indices of an element, innermost first.
fn coordinates(shape: &Shape, index: usize) -> [usize; 4] {
    let mut rest = index;
    shape.sizes().map(|size| {
        let place = rest % size.max(1);
        rest /= size.max(1);
        place
    })
}

/// An element of a row; `None` beyond the tensor.
fn at(input: &Operand, row: usize, column: usize) -> Option<f64> {
    let inside = row < input.ty.shape.rows() && column < input.ty.shape[0];
    inside.then(|| input.at(row, column))
}

fn row_of(input: &Operand, row: usize) -> Option<Vec<f64>> {
    (row < input.ty.shape.rows()).then(|| input.row(row, &mut Vec::new()).to_vec())
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn value(name: &'static str, value: f64) -> InputValue {
    InputValue { name, value: finite(value) }
}

/// The largest products of a sum over pairs of factors.
fn products(factors: [&'static str; 2], pairs: impl Iterator<Item = (usize, [f64; 2])>) -> ElementInputs {
    let size = |[first, second]: [f64; 2]| {
        let product = (first * second).abs();
        if product.is_nan() { f64::INFINITY } else { product }
    };
    let (mut terms, mut largest) = (0, Vec::with_capacity(PRODUCTS + 1));
    for (k, pair) in pairs {
        terms += 1;
        let place = largest.partition_point(|(_, known)| size(*known) >= size(pair));
        if place < PRODUCTS && size(pair) > 0.0 {
            largest.insert(place, (k, pair));
            largest.truncate(PRODUCTS);
        }
    }
    let product = |(k, [first, second]): (usize, [f64; 2])| Product { k, first: finite(first), second: finite(second) };
    ElementInputs::Products { factors, terms, largest: largest.into_iter().map(product).collect() }
}

fn pairs(first: Vec<f64>, second: Vec<f64>) -> impl Iterator<Item = (usize, [f64; 2])> {
    first.into_iter().zip(second).map(|(first, second)| [first, second]).enumerate()
}

fn mul_mat(case: &Case, places: [usize; 4]) -> Option<ElementInputs> {
    let [w, x] = case.inputs else { return None };
    let [own, seen] = factors(w, x, places)?;
    Some(products(["w", "x"], pairs(own, seen)))
}

/// The rows of `w` and `x` whose product an element is.
fn factors(w: &Operand, x: &Operand, [row, token, n2, n3]: [usize; 4]) -> Option<[Vec<f64>; 2]> {
    let ([_, rows, b2, b3], [_, tokens, x2, x3]) = (w.ty.shape.sizes(), x.ty.shape.sizes());
    // Neighbouring batches share a matrix.
    let matrix = n2 / (x2 / b2).max(1) + b2 * (n3 / (x3 / b3).max(1));
    Some([row_of(w, matrix * rows + row)?, row_of(x, token + tokens * (n2 + x2 * n3))?])
}

fn mul_mat_gated(case: &Case, places: [usize; 4]) -> Option<ElementInputs> {
    let [gate, up, x] = case.inputs else { return None };
    let sum = |w| factors(w, x, places).map(|[w, x]| w.iter().zip(&x).map(|(w, x)| w * x).sum());
    Some(ElementInputs::Values { values: vec![value("gate", sum(gate)?), value("up", sum(up)?)] })
}

fn mul_mat_id(case: &Case, [row, place, token, _]: [usize; 4]) -> Option<ElementInputs> {
    let [w, x, ids] = case.inputs else { return None };
    let used = case.output.ty.shape[1];
    let expert = usize::try_from(*ids.indices().get(token * used + place)?).ok()?;
    let own = row_of(w, expert.checked_mul(w.ty.shape[1])?.checked_add(row)?)?;
    let seen = x.ty.shape[1];
    Some(products(["w", "x"], pairs(own, row_of(x, place % seen + seen * token)?)))
}

/// The first row of the cache of a token's sequence.
fn first_row(cache: &Operand, sequences: &Operand, token: usize) -> Option<usize> {
    let sequence = usize::try_from(*sequences.indices().get(token)?).unwrap_or(0);
    sequence.checked_mul(cache.ty.shape[1])
}

fn kv_scores(case: &Case, [position, token, head, _]: [usize; 4]) -> Option<ElementInputs> {
    let [q, keys, sequences] = case.inputs else { return None };
    let [size, heads, ..] = q.ty.shape.sizes();
    let group = heads.checked_div(keys.ty.shape[0].checked_div(size)?)?;
    let key = row_of(keys, first_row(keys, sequences, token)? + position)?;
    let key = key.get(head / group.max(1) * size..)?.to_vec();
    Some(products(["key", "query"], pairs(key, row_of(q, token * heads + head)?)))
}

fn kv_mix(kv_heads: usize, case: &Case, [element, token, ..]: [usize; 4]) -> Option<ElementInputs> {
    let [p, values, sequences] = case.inputs else { return None };
    let [_, tokens, heads, _] = p.ty.shape.sizes();
    let size = values.ty.shape[0].checked_div(kv_heads)?;
    let (head, group) = (element.checked_div(size)?, heads.checked_div(kv_heads)?.max(1));
    let (column, first) = (head / group * size + element % size, first_row(values, sequences, token)?);
    let looked_at = row_of(p, head * tokens + token)?.into_iter().enumerate().filter(|(_, p)| *p != 0.0);
    let pair = |(position, p): (usize, f64)| Some((position, [at(values, first + position, column)?, p]));
    Some(products(["value", "probability"], looked_at.filter_map(pair)))
}

/// Elements at the same place of each input; a smaller one is repeated.
fn repeated(case: &Case, index: usize, names: &[&'static str]) -> Option<ElementInputs> {
    let places = coordinates(&case.output.ty.shape, index);
    let of = |(name, input): (&&'static str, &Operand)| {
        let sizes = input.ty.shape.sizes();
        let [column, i, j, k] = [0, 1, 2, 3].map(|axis| places[axis] % sizes[axis].max(1));
        Some(value(name, at(input, i + sizes[1] * (j + sizes[2] * k), column)?))
    };
    let values: Vec<InputValue> = names.iter().zip(case.inputs).map(of).collect::<Option<_>>()?;
    Some(ElementInputs::Values { values })
}

fn get_rows(case: &Case, index: usize) -> Option<ElementInputs> {
    let [table, rows] = case.inputs else { return None };
    let width = table.ty.shape[0].max(1);
    let row = *rows.indices().get(index / width)?;
    let mut values = vec![value("row", f64::from(row))];
    let first = index / width / rows.ty.shape[0].max(1) * table.ty.shape[1];
    let place = usize::try_from(row).ok().map(|row| first + row);
    values.extend(place.and_then(|place| at(table, place, index % width)).map(|x| value("stored", x)));
    Some(ElementInputs::Values { values })
}

fn kv_store(case: &Case, index: usize) -> Option<ElementInputs> {
    let [before, x, rows] = case.inputs else { return None };
    let width = before.ty.shape[0].max(1);
    let (row, column) = (index / width, index % width);
    // Of several tokens with one place the last one stays.
    let token = rows.indices().iter().rposition(|place| usize::try_from(*place).is_ok_and(|place| place == row));
    let values = match token {
        Some(token) => vec![value("x", at(x, token, column)?)],
        None => vec![value("before", at(before, row, column)?)],
    };
    Some(ElementInputs::Values { values })
}

fn rotated(rope: &Rope, case: &Case, index: usize) -> Option<ElementInputs> {
    let [x, positions, ..] = case.inputs else { return None };
    let [size, heads, ..] = x.ty.shape.sizes();
    let (row, place) = (index / size.max(1), index % size.max(1));
    let part = place.checked_div(rope.dimensions)?;
    let [tokens, parts, ..] = positions.ty.shape.sizes();
    if part >= parts {
        return Some(ElementInputs::Values { values: vec![value("x", at(x, row, place)?)] });
    }
    let inside = place % rope.dimensions;
    let [first, second] =
        (0..rope.dimensions / 2).map(|pair| pair_places(rope, pair)).find(|pair| pair.contains(&inside))?;
    let position = *positions.indices().get(part * tokens + row / heads.max(1))?;
    let own = |place: usize| at(x, row, part * rope.dimensions + place);
    let values =
        vec![value("first", own(first)?), value("second", own(second)?), value("position", f64::from(position))];
    Some(ElementInputs::Values { values })
}

fn normed(case: &Case, index: usize) -> Option<ElementInputs> {
    let [x, w] = case.inputs else { return None };
    let width = x.ty.shape[0].max(1);
    let values = vec![value("x", at(x, index / width, index % width)?), value("w", at(w, 0, index % width)?)];
    Some(ElementInputs::Row { row: RowSummary::of(&row_of(x, index / width)?), values })
}

fn run(norm: &Norm, case: &Case, index: usize) -> Option<ElementInputs> {
    let [x] = case.inputs else { return None };
    let (all, len) = (x.all(), norm.run(&x.ty.shape).max(1));
    let start = index / len * len;
    let row = RowSummary::of(all.get(start..start + len)?);
    Some(ElementInputs::Row { row, values: vec![value("x", all[index])] })
}

fn soft_max(case: &Case, index: usize) -> Option<ElementInputs> {
    let x = case.inputs.first()?;
    let [len, tokens, heads, _] = x.ty.shape.sizes();
    let (row, column) = (index / len.max(1), index % len.max(1));
    let mut scores = row_of(x, row)?;
    let mut values = vec![value("score", *scores.get(column)?)];
    if let Some(mask) = case.inputs.get(1) {
        let [_, own, m2, m3] = mask.ty.shape.sizes();
        let (head, batch) = (row / tokens % heads, row / tokens / heads);
        let mask = row_of(mask, row % tokens + own * (head % m2 + m2 * (batch % m3)))?;
        values.push(value("mask", *mask.get(column)?));
        scores.iter_mut().zip(&mask).filter(|(_, mask)| !mask.is_finite()).for_each(|(score, _)| *score = f64::NAN);
    }
    Some(ElementInputs::Row { row: RowSummary::of(&scores), values })
}

/// The first input in summary, for operators that take it together.
fn whole(case: &Case) -> Option<ElementInputs> {
    let x = case.inputs.first().filter(|x| x.ty.shape.elements() <= WHOLE_MAX)?;
    Some(ElementInputs::Row { row: RowSummary::of(&x.all()), values: Vec::new() })
}

impl RowSummary {
    fn of(row: &[f64]) -> RowSummary {
        let numbers = || row.iter().copied().filter(|x| x.is_finite());
        let counted = numbers().count();
        let rms = (numbers().fold(0.0, |sum, x| sum + x * x) / counted as f64).sqrt();
        RowSummary {
            elements: row.len(),
            counted,
            min: numbers().reduce(f64::min),
            max: numbers().reduce(f64::max),
            rms: finite(rms),
        }
    }
}

#[cfg(test)]
mod tests;
