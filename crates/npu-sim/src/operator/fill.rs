//! Making numbers: ranges and constants.
//!
//! Arange: element i is start + i * step, computed in f64 (integers in i64) and rounded once; the count is ceil((end -
//! start) / step) of f32 numbers for f32 and narrower types, as the pages say that it is computed in the type.

use super::{
    Work,
    argument::{Scalar, Tensor},
    call::Call,
    operators, work,
};
use crate::{
    element::{Form, Type},
    status::Refusal,
};

const FILLED: &str = "f32,f16,u8,i8,i16,i32,i64,f64,b,bf16,u16,u32,u64";

fn arange(call: &mut Call, start: Scalar, end: Scalar, step: Scalar, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&out, "Range", "f16,f32,f64,i32,i64,bf16")?;
    call.rank(&out, 1..=1)?;
    let (from, to, by) = (start.value.real, end.value.real, step.value.real);
    call.require(by != 0.0 && by.is_finite(), "step", || format!("is {by}"))?;
    call.require(from.is_finite() && to.is_finite(), "start or end", || "is not finite".to_owned())?;
    call.require((to - from) * by >= 0.0, "step", || format!("is {by}, which does not lead from {from} to {to}"))?;
    let count = match out.ty().form() {
        Form::Single => ((to as f32 - from as f32) / by as f32).ceil() as u64,
        Form::Double | Form::Whole => ((to - from) / by).ceil() as u64,
    };
    call.shape(&out, &[count])?;
    let (whole, first, each) = (out.ty().form() == Form::Whole, start.value.whole, step.value.whole);
    let out = call.output(&out);
    work(move |stage| {
        if whole {
            let values: Vec<i64> =
                (0..count as i64).map(|index| first.wrapping_add(index.wrapping_mul(each))).collect();
            return stage.write(out, &values);
        }
        let values: Vec<f64> = (0..count).map(|index| from + index as f64 * by).collect();
        stage.write(out, &values)
    })
}

fn constant(call: &mut Call, target: Tensor, real: f64, whole: i64) -> Result<Work, Refusal> {
    call.kernel(&target, "FillConstant", FILLED)?;
    let is_whole = target.ty().form() == Form::Whole;
    let count = target.view.count() as usize;
    let target = call.output(&target);
    work(
        move |stage| {
            if is_whole { stage.write(target, &vec![whole; count]) } else { stage.write(target, &vec![real; count]) }
        },
    )
}

fn fill(call: &mut Call, target: Tensor, value: Scalar) -> Result<Work, Refusal> {
    let truth = i64::from(value.value.real != 0.0);
    let whole = if target.ty() == Type::Bool { truth } else { value.value.whole };
    constant(call, target, value.value.real, whole)
}

operators! {
    "Arange"(start: Scalar, end: Scalar, step: Scalar, out: Tensor) => arange;
    "InplaceFillScalar"(selfRef: Tensor, value: Scalar) => fill;
    "InplaceZero"(selfRef: Tensor) => |call: &mut Call, target| constant(call, target, 0.0, 0);
    "InplaceOne"(selfRef: Tensor) => |call: &mut Call, target| constant(call, target, 1.0, 1);
}
