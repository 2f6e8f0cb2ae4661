//! Where elements of some rank lie.

use super::Call;
use crate::device::ascend::acl::Type;
use trueup_graph::op::{Rank, RankRule};

pub fn compose(op: &Rank, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    match op.rule {
        RankRule::ArgMax => queue.argmax(&x, 3, false, &out.under(&x.sizes[..3])),
        RankRule::Ascending | RankRule::Descending => {
            let order = call.room(Type::I64, &x.sizes)?;
            queue.argsort(&x, 3, op.rule == RankRule::Descending, &order)?;
            queue.cast(&order, Type::I32, &out)
        }
        RankRule::TopK { k } => {
            let (values, indices) = (call.room(Type::F32, &out.sizes)?, call.room(Type::I64, &out.sizes)?);
            queue.topk(&x, k as i64, 3, true, true, &values, &indices)?;
            queue.cast(&indices, Type::I32, &out)
        }
    }
}
