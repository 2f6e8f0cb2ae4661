//! Indices of a row's elements by rank: a stable sort, so that of equal elements the first comes first.

use crate::host_tensor::HostTensor;
use std::cmp::Ordering;
use trueup_graph::op::{Rank, RankRule};

pub(super) fn evaluate(rank: &Rank, inputs: &[&HostTensor]) -> Vec<f64> {
    let x = inputs[0].values();
    let len = inputs[0].ty().shape[0];
    let mut y = Vec::new();
    for row in x.chunks(len.max(1)) {
        let mut places: Vec<usize> = (0..len).collect();
        match rank.rule {
            RankRule::Ascending => places.sort_by(|a, b| compare(row[*a], row[*b])),
            RankRule::ArgMax | RankRule::Descending | RankRule::TopK { .. } => {
                places.sort_by(|a, b| compare(row[*b], row[*a]));
            }
        }
        let wanted = match rank.rule {
            RankRule::ArgMax => 1,
            RankRule::Ascending | RankRule::Descending => len,
            RankRule::TopK { k } => k,
        };
        y.extend(places[..wanted].iter().map(|place| *place as f64));
    }
    y
}

/// NaN is larger than all numbers and equal to itself.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
