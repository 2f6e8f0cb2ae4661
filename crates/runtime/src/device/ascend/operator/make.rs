//! Tensors made from parameters: on the host where nothing else is needed.

use super::{Call, ELEMENTWISE, FUNCTION_ULP};
use crate::device::ascend::acl::{Scalar, Type};
use crate::device::ascend::table::Numbers;
use crate::profile::Profile;
use trueup_graph::op::{Make, Making};

pub fn profile(op: &Make) -> Profile {
    match op.rule {
        Making::TimestepEmbedding { .. } => Profile { function_ulp: FUNCTION_ULP, ..ELEMENTWISE },
        Making::Arange { .. } | Making::Fill { .. } | Making::AlibiSlopes { .. } => ELEMENTWISE,
    }
}

pub fn compose(op: &Make, call: &Call) -> Result<(), String> {
    let (queue, out) = (&call.engine.queue, call.output()?);
    match op.rule {
        Making::Fill { value, .. } => queue.fill(&out, Scalar::F32(value)),
        Making::Arange { start, step, .. } => {
            let len = out.elements().unsigned_abs() as usize;
            let number = move |i: usize| (f64::from(start) + i as f64 * f64::from(step)) as f32;
            copied(call, &format!("arange {start} {step} {len}"), Box::new(move |_| (0..len).map(number).collect()))
        }
        Making::AlibiSlopes { heads, bias_max } => {
            copied(call, &format!("slopes {heads} {bias_max}"), Box::new(move |_| slopes(heads, bias_max)))
        }
        Making::TimestepEmbedding { dimensions, period_max } => {
            let half = dimensions / 2;
            let steps = out.sizes[2];
            if dimensions % 2 == 1 {
                queue.zero(&out)?;
            }
            if half == 0 {
                return Ok(());
            }
            let frequency = move |j: usize| f64::from(period_max).powf(-(j as f64) / half as f64) as f32;
            let key = format!("timesteps {half} {period_max}");
            let frequencies = Box::new(move |_: &[Vec<u8>]| (0..half).map(frequency).collect());
            let table = call.table(&key, &[1, half as i64], &[], frequencies)?;
            let angles = call.room(Type::F32, &[steps, half as i64])?;
            queue.mul(&call.input(0)?.ordered(&[3]).inserted(1), &table, &angles)?;
            let wave = call.room(Type::F32, &[steps, half as i64])?;
            let place = |first: usize| out.clone().ordered(&[2, 3]).part(1, first as i64, half as i64);
            queue.cos(&angles, &wave)?;
            queue.copy_to(&place(0), &wave)?;
            queue.sin(&angles, &wave)?;
            queue.copy_to(&place(half), &wave)
        }
    }
}

/// Numbers of the host, copied to the output.
fn copied(call: &Call, key: &str, numbers: Numbers) -> Result<(), String> {
    let out = call.output()?;
    let table = call.table(key, &out.sizes, &[], numbers)?;
    call.engine.queue.copy_to(&out, &table)
}

/// How steeply the attention of each head falls with distance.
pub fn slopes(heads: usize, bias_max: f32) -> Vec<f32> {
    let power = if heads == 0 { 1 } else { 1 << heads.ilog2() };
    let slope = |h: usize| {
        let (number, of) = if h < power { (h + 1, power) } else { (2 * (h - power) + 1, 2 * power) };
        (-f64::from(bias_max) * number as f64 / of as f64).exp2() as f32
    };
    (0..heads).map(slope).collect()
}
