//! Places and orders: argmax, sort, top-k. Equal numbers keep their order, the first of the largest wins; NaN counts as
//! the largest.

use super::{
    Work,
    argument::Tensor,
    call::Call,
    norm::{axes_last, reduced},
    operators,
    stage::{Slot, Stage},
    work,
};
use crate::{
    element::{Form, Type},
    memory::Fault,
    status::Refusal,
    view::View,
};
use std::cmp::Ordering;

const SORTED: &str = "bf16,f16,f32,i8,i16,i32,i64,u8,u16,u32";

/// Numbers that are compared: floats with NaN above all, or integers.
enum Numbers {
    Real(Vec<f64>),
    Whole(Vec<i64>),
}

impl Numbers {
    fn read(stage: &Stage, view: &View) -> Result<Self, Fault> {
        Ok(if view.ty.form() == Form::Whole {
            Self::Whole(view.read(stage.memory)?)
        } else {
            Self::Real(view.read(stage.memory)?)
        })
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            Self::Whole(values) => values[a].cmp(&values[b]),
            Self::Real(values) => {
                let nan = |value: f64| value.is_nan();
                values[a].partial_cmp(&values[b]).unwrap_or_else(|| nan(values[a]).cmp(&nan(values[b])))
            }
        }
    }

    /// Places of a row's elements in order.
    fn order(&self, start: usize, length: usize, descending: bool) -> Vec<usize> {
        let mut places: Vec<usize> = (start..start + length).collect();
        places.sort_by(|&a, &b| if descending { self.compare(b, a) } else { self.compare(a, b) });
        places
    }

    fn write(&self, stage: &Stage, target: &View, places: &[usize]) -> Result<(), Fault> {
        match self {
            Self::Whole(values) => {
                stage.write_view(target, &places.iter().map(|&place| values[place]).collect::<Vec<_>>())
            }
            Self::Real(values) => {
                stage.write_view(target, &places.iter().map(|&place| values[place]).collect::<Vec<_>>())
            }
        }
    }
}

/// The axis of a number given as argument; none for a tensor without axes.
fn one_axis(call: &Call, x: &Tensor, dim: i64) -> Result<Vec<usize>, Refusal> {
    let axis = call.axis(x, dim, "dim")?;
    Ok(if x.rank() == 0 { Vec::new() } else { vec![axis] })
}

fn length(view: &View, axes: &[usize]) -> usize {
    axes.first().map_or(1, |&axis| view.shape[axis]) as usize
}

fn arg_max(call: &mut Call, x: Tensor, dim: i64, keep: bool, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ArgMaxV2", "f32,f16,bf16,f64,i8,i16,i32,i64,u8")?;
    let axes = one_axis(call, &x, dim)?;
    call.typed(&out, "i32,i64")?;
    call.shape(&out, &reduced(x.shape(), &axes, keep))?;
    let row = length(&x.view, &axes);
    call.require(row > 0, "self", || "is empty along dim".to_owned())?;
    call.asks(2048);
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let numbers = Numbers::read(stage, &axes_last(stage.view(x), &axes))?;
        let count = stage.view(out).count() as usize;
        let best = |start: usize| {
            (start..start + row)
                .reduce(|best, at| if numbers.compare(at, best) == Ordering::Greater { at } else { best })
        };
        let places: Vec<i64> =
            (0..count).map(|line| best(line * row).map_or(0, |place| (place - line * row) as i64)).collect();
        stage.write(out, &places)
    })
}

/// Sorted rows: the first `kept` of each, as values and as places.
#[derive(Clone)]
struct Sorting {
    x: Slot,
    values: Option<Slot>,
    places: Slot,
    axes: Vec<usize>,
    kept: usize,
    descending: bool,
}

impl Sorting {
    fn run(&self, stage: &Stage) -> Result<(), Fault> {
        let view = axes_last(stage.view(self.x), &self.axes);
        let numbers = Numbers::read(stage, &view)?;
        let row = length(stage.view(self.x), &self.axes);
        let lines = (view.count() as usize).checked_div(row).unwrap_or(0);
        let mut order = Vec::with_capacity(lines * self.kept);
        for line in 0..lines {
            order.extend(numbers.order(line * row, row, self.descending).into_iter().take(self.kept));
        }
        if let Some(values) = self.values {
            numbers.write(stage, &axes_last(stage.view(values), &self.axes), &order)?;
        }
        let places: Vec<i64> = order.iter().map(|place| (place % row.max(1)) as i64).collect();
        stage.write_view(&axes_last(stage.view(self.places), &self.axes), &places)
    }
}

fn sorting(
    call: &mut Call,
    x: &Tensor,
    axes: Vec<usize>,
    kept: usize,
    descending: bool,
    values: Option<&Tensor>,
    places: &Tensor,
) -> Result<Work, Refusal> {
    let mut shape = x.shape().to_vec();
    axes.iter().for_each(|&axis| shape[axis] = kept as u64);
    if let Some(values) = values {
        call.type_is(values, x.ty())?;
        call.shape(values, &shape)?;
    }
    call.type_is(places, Type::I64)?;
    call.shape(places, &shape)?;
    call.keep_apart();
    call.asks(1024 + (x.view.count() * 8).min(1 << 20));
    let sorting = Sorting {
        x: call.input(x),
        values: values.map(|values| call.output(values)),
        places: call.output(places),
        axes,
        kept,
        descending,
    };
    work(move |stage| sorting.run(stage))
}

fn arg_sort(call: &mut Call, x: Tensor, dim: i64, descending: bool, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "Sort", SORTED)?;
    let axes = one_axis(call, &x, dim)?;
    let kept = length(&x.view, &axes);
    sorting(call, &x, axes, kept, descending, None, &out)
}

fn sort(
    call: &mut Call,
    x: Tensor,
    _stable: bool,
    dim: i64,
    descending: bool,
    values: Tensor,
    places: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "Sort", SORTED)?;
    let axes = one_axis(call, &x, dim)?;
    let kept = length(&x.view, &axes);
    sorting(call, &x, axes, kept, descending, Some(&values), &places)
}

#[allow(clippy::too_many_arguments)]
fn top_k(
    call: &mut Call,
    x: Tensor,
    k: i64,
    dim: i64,
    largest: bool,
    sorted: bool,
    values: Tensor,
    places: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "TopKV2", "f16,f32,bf16")?;
    call.require(sorted, "sorted", || "is false".to_owned())?;
    let axes = one_axis(call, &x, dim)?;
    let row = length(&x.view, &axes) as i64;
    call.require((0..=row).contains(&k), "k", || format!("is {k}, the axis has {row}"))?;
    sorting(call, &x, axes, k as usize, largest, Some(&values), &places)
}

operators! {
    "ArgMax"(self_: Tensor, dim: i64, keepdim: bool, out: Tensor) => arg_max;
    "Argsort"(self_: Tensor, dim: i64, descending: bool, out: Tensor) => arg_sort;
    "Sort"(self_: Tensor, stable: bool, dim: i64, descending: bool, valuesOut: Tensor, indicesOut: Tensor) => sort;
    "Topk"(self_: Tensor, k: i64, dim: i64, largest: bool, sorted: bool, valuesOut: Tensor, indicesOut: Tensor) => top_k;
}
