//! Attention over the KV cache: the plain kernel, a block of threads for each head of a token, some positions at a
//! time; and how the cache looks to the fast ones.

use super::attention::{self, Attention, Way};
use super::kv_scores::expect_kv_cache;
use super::matrix::Form;
use super::soft_max;
use super::{Argument, Call, Grid, Means, Needed, Operand, View, expect_f32, suffix};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::KvAttention;

/// Positions at once and threads of a block, as `kernels/cuda/attention.cuh` has them.
const SEEN: u32 = 128;

pub fn profile(op: &KvAttention, inputs: &[TensorType], means: &Means) -> Result<Profile, String> {
    expect_f32("q", &inputs[0])?;
    expect_kv_cache("keys", &inputs[1])?;
    expect_kv_cache("values", &inputs[2])?;
    let operands: Vec<Operand> = inputs.iter().map(Operand::unplaced).collect();
    let attention = arranged(op, &operands);
    let way = attention.way(means);
    if way == Way::Plain {
        shared_bytes([&attention.k, &attention.v].map(|rows| rows.view.sizes[0] as usize), means)?;
    }
    Ok(attention.profile(way))
}

pub fn needed(op: &KvAttention, inputs: &[Operand], means: &Means) -> Needed {
    let attention = arranged(op, inputs);
    attention.needed(attention.way(means), means)
}

pub fn launch(op: &KvAttention, call: &mut Call) -> Result<(), String> {
    let attention = arranged(op, &call.inputs);
    match attention.way(call.means) {
        Way::Plain => launch_plain(op, call),
        way => attention::launch(&attention, way, result(&attention, call), 0, call),
    }
}

/// As [`launch`], and brings the result into the 8-bit blocks that products behind it take; whether it did: not where
/// many tokens go other ways, or where heads are not whole blocks. Then nothing is launched.
pub fn launch_for_products(op: &KvAttention, call: &mut Call) -> Result<bool, String> {
    let attention = arranged(op, &call.inputs);
    if attention.way(call.means) != Way::Split || attention.v.view.sizes[0] % 32 != 0 {
        return Ok(false);
    }
    let (codes, _) = call.taken(Form::Codes, &call.output, Form::Codes.bytes(&call.output.ty));
    attention::launch(&attention, Way::Split, result(&attention, call), codes, call).map(|()| true)
}

/// The result as the fast kernels write it, `[E, tokens, heads, 1]`.
fn result(attention: &Attention, call: &Call) -> View {
    let ([_, tokens, heads, _], width) = (attention.q.view.sizes, attention.v.view.sizes[0]);
    let View { data, steps: [step, of_tokens, ..], .. } = call.output.view;
    View { data, sizes: [width, tokens, heads, 1], steps: [step, of_tokens, width * step, of_tokens * tokens] }
}

fn launch_plain(op: &KvAttention, call: &mut Call) -> Result<(), String> {
    let (q, keys, values, sequences) = (call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[3]);
    let y = call.output;
    let [mask, mask_type] = soft_max::mask(call.inputs.get(4), &q);
    let [size, heads, tokens, _] = q.ty.shape.sizes();
    let kernel = format!("kv_attention_{}_{}", suffix(keys.ty.dtype), suffix(values.ty.dtype));
    let grid = grid(heads * tokens, [size, y.ty.shape[0] / heads], call.means)?;
    let [q, keys, values, sequences] = [q, keys, values, sequences].map(|operand| Argument::View(operand.view));
    let (scale, max_bias) = (Argument::Float(op.scale), Argument::Float(op.max_bias));
    let y = Argument::View(y.view);
    let arguments = [q, keys, values, sequences, mask, mask_type, y, scale, max_bias, call.fault()];
    call.launch(&kernel, grid, &arguments)
}

/// The inputs as the fast kernels take them: only as many positions as the mask has.
fn arranged(op: &KvAttention, inputs: &[Operand]) -> Attention {
    let (q, mask) = (inputs[0], inputs[4]);
    let ([size, heads, tokens, _], [s0, s1, s2, s3]) = (q.view.sizes, q.view.steps);
    let queries = View { data: q.view.data, sizes: [size, tokens, heads, 1], steps: [s0, s2, s1, s3] };
    let kv_heads = inputs[1].view.sizes[0] / size;
    let cache = |operand: Operand| {
        let View { data, sizes: [all, _, sequences, _], steps: [s0, s1, s2, _] } = operand.view;
        let width = all / kv_heads;
        let view =
            View { data, sizes: [width, mask.view.sizes[0], kv_heads, sequences], steps: [s0, s1, width * s0, s2] };
        Operand { view, ..operand }
    };
    Attention {
        q: Operand { view: queries, ..q },
        k: cache(inputs[1]),
        v: cache(inputs[2]),
        mask: Some(mask),
        sequences: Some(inputs[3].view),
        scale: op.scale,
        max_bias: op.max_bias,
    }
}

/// A block for each head of a token, of keys and values of these lengths.
pub fn grid(blocks: usize, lengths: [usize; 2], means: &Means) -> Result<Grid, String> {
    Ok(Grid { threads: SEEN, ..Grid::blocks(blocks, shared_bytes(lengths, means)?)? })
}

/// What a block keeps: a query, its result, weights, and a number for each warp.
pub fn shared_bytes([size, width]: [usize; 2], means: &Means) -> Result<u32, String> {
    let bytes = (size + width + SEEN as usize + 32) * size_of::<f32>();
    let fits = u32::try_from(bytes).ok().filter(|_| bytes <= means.shared_bytes_max);
    fits.ok_or_else(|| {
        format!(
            "key heads of {size} and value heads of {width} exceed the capacity of a thread \
        block"
        )
    })
}
