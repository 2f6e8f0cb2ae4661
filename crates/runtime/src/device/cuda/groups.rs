//! Groups of neighbouring steps that run as one launch. A token of a large model has hundreds of short steps, and each
//! launch has a cost.
//!
//! ```text
//! norm, products of it         a norm, a gated product or attention also writes the 8-bit activation blocks
//! gated, attention: the same   for the products that follow
//! products of the same x       one grid for the rows of up to three matrices
//! product, sum with it         one kernel writes both, and the norm of the sum with its 8-bit blocks, if there is one
//! queries, keys, values        epilogue of the products: biases, head norms, rope, stores; or one kernel for all
//! of many tokens               one kernel rotates queries and keys, one stores keys and values
//! ```
//!
//! Groups are launches, not nodes of the graph. A group writes every tensor that its steps would write, with the same
//! bits, so references, bounds and reports are unaffected, and observing single steps changes nothing. `verify` checks
//! this.
//!
//! The steps of a group run concurrently, so none may write what another one reads or writes; this is checked each
//! time. Plans reuse the memory of small results a few nodes late, so that neighbours do not overlap. The graph
//! builder places nodes of one kind next to each other.

mod codes;
mod heads;
mod memory;
mod pairs;
mod products;
mod sum;

use super::launches::Recorder;
use super::operator::Way;
use crate::device::{Step, Tensor};
use memory::is_same;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// Finds a group at the beginning of some steps and records its launch: how many steps it takes, none where there is no
/// such group.
type Group = fn(&Recorder, &[Step]) -> Result<usize, String>;

/// All groups.
const GROUPS: [Group; 8] = [
    codes::norm,
    codes::gated,
    codes::attention,
    products::products,
    sum::sum,
    heads::heads,
    pairs::ropes,
    pairs::stores,
];

/// Records the launch of as many of the first steps as are computed together; how many these are, 0 where they are not.
pub fn record(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    if !recorder.means().repack {
        return Ok(0);
    }
    for group in GROUPS {
        let taken = group(recorder, steps)?;
        if taken > 0 {
            return Ok(taken);
        }
    }
    Ok(0)
}

/// The type of the weights that the next step, but for views, multiplies with the result of a step in 8 bits; `None`
/// where it does not.
fn product_behind(recorder: &Recorder, step: &Step, rest: &[Step]) -> Option<DType> {
    let next = rest.iter().find(|step| !step.op.is_view())?;
    let takes = next.inputs.len() > 1 && next.inputs.last().is_some_and(|x| is_same(x, &step.output));
    let codes = takes && way(recorder, next).is_some_and(|(_, codes)| codes);
    codes.then(|| next.inputs[0].ty.dtype)
}

/// How a product is computed, and whether its activations are taken in 8 bits; `None` of other operators.
fn way(recorder: &Recorder, step: &Step) -> Option<(Way, bool)> {
    let weights: Vec<TensorType> = step.inputs.iter().take(step.inputs.len().saturating_sub(1)).map(|w| w.ty).collect();
    let product = matches!(step.op, Op::MulMat(_) | Op::MulMatGated(_));
    let way = |x: &Tensor| recorder.means().way(&weights, &x.ty);
    let codes = weights.first().is_some_and(|w| recorder.means().takes_codes(w.dtype));
    step.inputs.last().filter(|_| product).map(|x| (way(x), codes))
}

fn by_rows(recorder: &Recorder, step: &Step) -> bool {
    way(recorder, step).is_some_and(|(way, _)| way == Way::Rows)
}

fn is_matrix(ty: &TensorType) -> bool {
    ty.shape[2] == 1 && ty.shape[3] == 1
}
