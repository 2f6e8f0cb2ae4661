//! State space models: the short convolution tap by tap, the scan token by token.

use super::{Call, ELEMENTWISE, FUNCTION_ULP, ONE, expect_f32, expect_plain};
use crate::device::ascend::acl::{Array, Scalar, Type};
use crate::profile::{Products, Profile};
use trueup_graph::TensorType;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("the first input", &inputs[0])?;
    inputs.iter().filter(|ty| ty.dtype.is_float()).try_for_each(|ty| expect_plain("an input", ty))?;
    Ok(Profile { products: Products::Rounded, function_ulp: FUNCTION_ULP, ..ELEMENTWISE })
}

/// `x [1, sequences, channels, taps - 1 + tokens]`, `w [channels, taps]`, `out [1, sequences, tokens, channels]`.
pub fn conv(call: &Call) -> Result<(), String> {
    let (queue, x, w, out) = (&call.engine.queue, call.input(0)?, call.input_f32(1)?, call.output()?);
    let (taps, tokens) = (w.sizes[3], out.sizes[2]);
    let sum = call.room(Type::F32, &[x.sizes[0], x.sizes[1], x.sizes[2], tokens])?;
    let product = call.room(Type::F32, &sum.sizes)?;
    for tap in 0..taps {
        // [1, 1, channels, 1]
        let weights = w.clone().part(3, tap, 1);
        queue.mul(&x.clone().part(3, tap, tokens), &weights, if tap == 0 { &sum } else { &product })?;
        if tap > 0 {
            queue.add_to(&sum, &product, ONE)?;
        }
    }
    queue.copy_to(&out, &sum.clone().exchanged(2, 3))
}

/// Beyond it softplus is its argument, to the last bit of f32.
const SOFTPLUS_LINEAR: f32 = 20.0;

pub fn scan(call: &Call) -> Result<(), String> {
    let queue = &call.engine.queue;
    let (states, x) = (call.input(0)?, call.input(1)?);
    let [heads, size, state] = [states.sizes[1], states.sizes[2], states.sizes[3]];
    let [sequences, tokens] = [x.sizes[0], x.sizes[1]];
    let ids = call.indices(6, states.sizes[0].unsigned_abs() as usize)?;
    let all = call.output()?.under(&[call.output()?.elements()]);
    let results = sequences * tokens * heads * size;
    let out = Array { sizes: vec![results], ..all.clone() }.under(&[sequences, tokens, heads, size]);
    let last = all.part(0, results, sequences * heads * size * state);
    let last = Array { address: last.address + last.offset.unsigned_abs() * 4, offset: 0, ..last }
        .under(&[sequences, heads, size, state]);
    for (sequence, id) in ids.iter().enumerate() {
        queue.copy_to(&last.clone().part(0, sequence as i64, 1), &states.clone().part(0, i64::from(*id), 1))?;
    }
    if results == 0 {
        return Ok(());
    }
    let factors = Factors::new(call, [sequences, tokens, heads, state])?;
    let (next, product) = (call.room(Type::F32, &last.sizes)?, call.room(Type::F32, &last.sizes)?);
    let sums = call.room(Type::F32, &[sequences, heads, size])?;
    for token in 0..tokens {
        let of_token = |array: &Array| array.clone().part(1, token, 1).ordered(&[0, 2, 3]);
        // [sequences, heads, size, 1] by [sequences, heads, 1, state]
        queue.mul(&last, &of_token(&factors.decay).inserted(2), &next)?;
        queue.mul(&of_token(&x).inserted(3), &of_token(&factors.b).inserted(2), &product)?;
        queue.add(&next, &product, ONE, &last)?;
        queue.mul(&last, &of_token(&factors.c).inserted(2), &product)?;
        queue.sum(&product, &[3], false, Type::F32, &sums)?;
        queue.copy_to(&of_token(&out), &sums)?;
    }
    Ok(())
}

/// What all tokens are multiplied with, `[sequences, tokens, heads, state]`.
struct Factors {
    /// `exp(d A)`, of one element where `A` is the same for the whole state.
    decay: crate::device::ascend::pool::Room,
    /// `d B`.
    b: crate::device::ascend::pool::Room,
    /// `C` for each head.
    c: crate::device::ascend::pool::Room,
}

impl Factors {
    fn new(call: &Call, sizes: [i64; 4]) -> Result<Factors, String> {
        let queue = &call.engine.queue;
        let [sequences, tokens, heads, state] = sizes;
        let steps = call.room(Type::F32, &[sequences, tokens, heads, 1])?;
        let dt = call.input(2)?.ordered(&[1, 2, 3]).inserted(3);
        queue.softplus(&dt, ONE, Scalar::F32(SOFTPLUS_LINEAR), &steps)?;
        let a = call.input_f32(3)?;
        // [1, 1, heads, state or 1]
        let exponents = call.room(Type::F32, &[sequences, tokens, heads, a.sizes[3]])?;
        queue.mul(&steps, &a, &exponents)?;
        let decay = call.room(Type::F32, &exponents.sizes)?;
        queue.exp(&exponents, &decay)?;
        let by_head = |place: usize, target: &Array| {
            let groups = call.ty(place).shape[1] as i64;
            let source = call.input(place)?.inserted(3);
            queue.copy_to(&target.clone().split(2, groups), &source)
        };
        let (b, c) = (call.room(Type::F32, &sizes)?, call.room(Type::F32, &[sequences, tokens, heads, state])?);
        by_head(4, &b)?;
        by_head(5, &c)?;
        queue.mul_by(&b, &steps)?;
        Ok(Factors { decay, b, c })
    }
}
