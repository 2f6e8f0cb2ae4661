//! Mixtures of experts: the choice of experts.
//!
//! MoeGatingTopKSoftmax: p = softmax(x) over the last axis in f32; y and expertIdx are the k largest and their places;
//! rowIdx of (row r, place j) is j * rows + r, the order in which the following operators lay the copies of rows out
//! (the page is not stored: inferred from the frameworks' use).

use super::{Work, argument::Tensor, call::Call, operators, work};
use crate::{element::Type, status::Refusal};

/// Experts at most.
const EXPERTS_MAX: u64 = 1024;

fn gate(
    call: &mut Call,
    x: Tensor,
    finished: Option<Tensor>,
    k: i64,
    y: Tensor,
    experts: Tensor,
    rows: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "MoeGatingTopKSoftmax", "f16,f32,bf16")?;
    call.absent(&finished, "finishedOptional")?;
    call.rank(&x, 2..=3)?;
    let count = x.view.last();
    call.require(count <= EXPERTS_MAX, "x", || format!("has {count} experts, at most {EXPERTS_MAX} are taken"))?;
    call.require(k > 0 && k as u64 <= count, "k", || format!("is {k} of {count} experts"))?;
    let mut shape = x.shape().to_vec();
    let lines: u64 = shape[..shape.len() - 1].iter().product();
    if let Some(last) = shape.last_mut() {
        *last = k as u64;
    }
    call.type_is(&y, x.ty())?;
    call.type_is(&experts, Type::I32)?;
    call.type_is(&rows, Type::I32)?;
    for out in [&y, &experts, &rows] {
        call.shape(out, &shape)?;
    }
    call.keep_apart();
    call.asks(4096);
    let (x, y, experts, rows) = (call.input(&x), call.output(&y), call.output(&experts), call.output(&rows));
    let (count, k) = (count as usize, k as usize);
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        let (mut chosen, mut places) = (Vec::new(), Vec::new());
        for row in values.chunks_mut(count) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|x| *x = (*x - largest).exp());
            let sum = stage.sum(row);
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            chosen.extend(order[..k].iter().map(|&place| row[place] / sum));
            places.extend(order[..k].iter().map(|&place| place as i64));
        }
        stage.write(y, &chosen)?;
        stage.write(experts, &places)?;
        let numbers: Vec<i64> = (0..lines as usize * k).map(|at| (at % k * lines as usize + at / k) as i64).collect();
        stage.write(rows, &numbers)
    })
}

operators! {
    "MoeGatingTopKSoftmax"(x: Tensor, finishedOptional: Option<Tensor>, k: i64, yOut: Tensor, expertIdxOut: Tensor, rowIdxOut: Tensor) => gate;
}
