//! Rotary position: y = x cos + rotate(x) sin.
//!
//! | mode | rotate(x) | cos and sin hold |
//! |---|---|---|
//! | 0 half | (-x2, x1) of the halves | the angles of D/2 twice in sequence |
//! | 1 interleaved | (-x[2i + 1], x[2i]) | each angle twice in place |
//!
//! Computed in f32, rounded once.

use super::{
    Work,
    argument::{Tensor, Text},
    call::{Call, broadcast, sizes},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{memory::Fault, status::Refusal};

/// Which elements turn with which.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Half,
    Interleaved,
}

impl Mode {
    /// The partner of a column and its sign.
    fn partner(self, column: usize, width: usize) -> (usize, f32) {
        match self {
            Self::Half if column < width / 2 => (column + width / 2, -1.0),
            Self::Half => (column - width / 2, 1.0),
            Self::Interleaved if column.is_multiple_of(2) => (column + 1, -1.0),
            Self::Interleaved => (column - 1, 1.0),
        }
    }
}

fn turn(stage: &Stage, x: Slot, cos: Slot, sin: Slot, out: Slot, mode: Mode) -> Result<(), Fault> {
    let shape = stage.view(x).shape.clone();
    let width = stage.view(x).last() as usize;
    let values: Vec<f32> = stage.read(x)?;
    let (cos, sin): (Vec<f32>, Vec<f32>) = (stage.read_as(cos, &shape)?, stage.read_as(sin, &shape)?);
    let turned = |at: usize| {
        let (partner, sign) = mode.partner(at % width, width);
        values[at] * cos[at] + sign * values[at / width * width + partner] * sin[at]
    };
    stage.write(out, &(0..values.len()).map(turned).collect::<Vec<f32>>())
}

/// The rules for tables of cos and sin.
fn judge_tables(call: &Call, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<(), Refusal> {
    for table in [cos, sin] {
        call.type_is(table, x.ty())?;
        call.rank(table, 4..=4)?;
        let stretches = broadcast(table.shape(), x.shape()).is_some_and(|shape| shape == x.shape())
            && table.view.last() == x.view.last();
        call.require(stretches, table.argument, || {
            format!("has the shape {}, which cannot be broadcast to {}", sizes(table.shape()), sizes(x.shape()))
        })?;
    }
    call.shape(sin, cos.shape())
}

fn rotary(call: &mut Call, x: Tensor, cos: Tensor, sin: Tensor, mode: i64, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "RotaryPositionEmbedding", "bf16,f16,f32")?;
    call.rank(&x, 4..=4)?;
    let mode = match mode {
        0 => Mode::Half,
        1 => Mode::Interleaved,
        other => return Err(call.refusal("mode", format!("is {other}, 0 (half) or 1 (interleaved) is expected"))),
    };
    let width = x.view.last();
    call.require(width.is_multiple_of(2) && width < 896, "x", || {
        format!("has {width} columns, an even number below 896 is expected")
    })?;
    judge_tables(call, &x, &cos, &sin)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, x.shape())?;
    call.packed(&out)?;
    call.asks(1024);
    let (x, cos, sin, out) = (call.input(&x), call.input(&cos), call.input(&sin), call.output(&out));
    work(move |stage| turn(stage, x, cos, sin, out, mode))
}

fn apply(
    call: &mut Call,
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: i64,
    mode: Mode,
) -> Result<Work, Refusal> {
    call.kernel(&query, "ApplyRotaryPosEmb", "bf16,f16,f32")?;
    call.on_chip(call.chip.is_c220())?;
    call.require(layout == 1, "layout", || format!("is {layout}, 1 (BSND) is expected"))?;
    for tensor in [&query, &key] {
        call.rank(tensor, 4..=4)?;
        call.type_is(tensor, query.ty())?;
        call.require(tensor.view.last() == 128, tensor.argument, || {
            format!("has {} columns, 128 are expected", tensor.view.last())
        })?;
        call.packed(tensor)?;
        judge_tables(call, tensor, &cos, &sin)?;
    }
    call.asks(1024);
    let (query, key, cos, sin) = (call.in_place(&query), call.in_place(&key), call.input(&cos), call.input(&sin));
    work(move |stage| {
        turn(stage, query, cos, sin, query, mode)?;
        turn(stage, key, cos, sin, key, mode)
    })
}

fn apply_of_mode(
    call: &mut Call,
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: i64,
    mode: Text,
) -> Result<Work, Refusal> {
    let mode = match mode.as_str() {
        "half" => Mode::Half,
        "interleave" => Mode::Interleaved,
        other => {
            return Err(call.refusal("rotaryMode", format!("is {other:?}, \"half\" or \"interleave\" is expected")));
        }
    };
    apply(call, query, key, cos, sin, layout, mode)
}

operators! {
    "RotaryPositionEmbedding"(x: Tensor, cos: Tensor, sin: Tensor, mode: i64, out: Tensor) => rotary;
    "ApplyRotaryPosEmb"(queryRef: Tensor, keyRef: Tensor, cos: Tensor, sin: Tensor, layout: i64) => |call: &mut Call, q, k, cos, sin, layout| apply(call, q, k, cos, sin, layout, Mode::Half);
    "ApplyRotaryPosEmbV2"(queryRef: Tensor, keyRef: Tensor, cos: Tensor, sin: Tensor, layout: i64, rotaryMode: Text) => apply_of_mode;
}
