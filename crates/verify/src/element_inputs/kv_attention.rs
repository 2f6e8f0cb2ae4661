//! What an element of attention over the KV cache was computed from: the values of its column that weigh most.

use super::{ElementInputs, at, first_row, products, row_of};
use crate::bound::{Case, biases, slope};
use trueup_graph::op::KvAttention;

/// The largest products of the mixture, by weights in f64.
pub(super) fn of(attention: &KvAttention, case: &Case, [row, token, ..]: [usize; 4]) -> Option<ElementInputs> {
    let [q, keys, values, sequences, mask] = case.inputs else { return None };
    let [size, heads, ..] = q.ty.shape.sizes();
    let kv_heads = keys.ty.shape[0].checked_div(size)?;
    let (width, group) = (values.ty.shape[0].checked_div(kv_heads)?, heads.checked_div(kv_heads)?.max(1));
    let head = row.checked_div(width)?;
    let (query, first) = (row_of(q, token * heads + head)?, first_row(keys, sequences, token)?);
    let biases = biases(Some(mask), [token, head, 0], mask.ty.shape[0], slope(attention.max_bias, head, heads));
    let score = |(position, bias): (usize, &f64)| {
        let key = row_of(keys, first + position)?;
        let sum = key.get(head / group * size..)?.iter().zip(&query).fold(0.0, |sum, (k, q)| sum + k * q);
        Some(if *bias == f64::NEG_INFINITY { *bias } else { f64::from(attention.scale) * sum + bias })
    };
    let scores: Vec<f64> = biases.iter().enumerate().map(score).collect::<Option<_>>()?;
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weight = |score: &f64| if *score == f64::NEG_INFINITY { 0.0 } else { (score - largest).exp() };
    let total: f64 = scores.iter().map(weight).sum();
    let column = head / group * width + row % width;
    let looked_at = scores.iter().map(weight).enumerate().filter(|(_, weight)| *weight != 0.0);
    let pair =
        |(position, weight): (usize, f64)| Some((position, [at(values, first + position, column)?, weight / total]));
    Some(products(["value", "probability"], looked_at.filter_map(pair)))
}
