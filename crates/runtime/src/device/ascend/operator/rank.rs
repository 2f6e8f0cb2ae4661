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
        // All in order and the first of them: the operator for that alone wants f16 on one chip.
        RankRule::TopK { k } => {
            let order = call.room(Type::I64, &x.sizes)?;
            queue.argsort(&x, 3, true, &order)?;
            queue.copy_to(&out, &order.clone().part(3, 0, k as i64))
        }
    }
}
