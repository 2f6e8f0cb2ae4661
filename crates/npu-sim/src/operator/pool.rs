//! Pictures: im2col, pooling, nearest upsampling, convolution. Tensors are (N, C, H, W) or (C, H, W); pads count as
//! zeros (for the largest: as nothing).

use super::{
    Work,
    argument::{Ints, Tensor},
    call::{Call, sizes},
    operators,
    product::{Cube, Sizes, product},
    stage::Stage,
    work,
};
use crate::status::Refusal;

/// A window that slides over rows and columns.
#[derive(Debug, Clone, Copy)]
struct Window {
    kernel: [u64; 2],
    stride: [u64; 2],
    pad: [u64; 2],
    dilation: [u64; 2],
}

impl Window {
    /// Places of the window along an axis; none where it does not fit once.
    fn places(&self, axis: usize, size: u64, ceil: bool) -> Option<u64> {
        let span = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        let room = (size + 2 * self.pad[axis]).checked_sub(span)?;
        let places = if ceil { room.div_ceil(self.stride[axis]) } else { room / self.stride[axis] } + 1;
        let last_starts_outside = ceil && (places - 1) * self.stride[axis] >= size + self.pad[axis];
        Some(places - u64::from(last_starts_outside))
    }

    /// The input's index for a place and a tap; none in the pad.
    fn index(&self, axis: usize, place: u64, tap: u64, size: u64) -> Option<usize> {
        let index = (place * self.stride[axis] + tap * self.dilation[axis]).checked_sub(self.pad[axis])?;
        (index < size).then_some(index as usize)
    }
}

const SIDE_MAX: i64 = 1 << 20;

/// Two numbers from a list of one or two; `default` for an empty list where that is allowed.
fn pair(call: &Call, list: &[i64], argument: &str, least: i64, default: Option<[u64; 2]>) -> Result<[u64; 2], Refusal> {
    call.require(list.iter().all(|value| (least..SIDE_MAX).contains(value)), argument, || {
        format!("is {list:?}, numbers from {least} on are expected")
    })?;
    match (list, default) {
        ([], Some(default)) => Ok(default),
        ([one], _) => Ok([*one as u64; 2]),
        ([first, second], _) => Ok([*first as u64, *second as u64]),
        _ => Err(call.refusal(argument, format!("is {list:?}, one or two numbers are expected"))),
    }
}

/// Planes, rows and columns of a picture of 3 or 4 axes.
fn planes(shape: &[u64]) -> (u64, u64, u64) {
    let rank = shape.len();
    (shape[..rank - 2].iter().product(), shape[rank - 2], shape[rank - 1])
}

fn judge_picture(call: &Call, x: &Tensor) -> Result<(), Refusal> {
    call.rank(x, 3..=4)?;
    call.require(x.view.count() > 0, x.argument, || "is empty".to_owned())
}

/// The windows' places over a picture.
fn placed(call: &Call, x: &Tensor, window: &Window, ceil: bool) -> Result<[u64; 2], Refusal> {
    let (_, rows, columns) = planes(x.shape());
    match (window.places(0, rows, ceil), window.places(1, columns, ceil)) {
        (Some(down), Some(across)) => Ok([down, across]),
        _ => Err(call.refusal(x.argument, format!("has the shape {}, the window is larger", sizes(x.shape())))),
    }
}

fn im2col(
    call: &mut Call,
    x: Tensor,
    kernel: Ints,
    dilation: Ints,
    padding: Ints,
    stride: Ints,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "Im2col", if call.chip.is_c220() { "f16,f32,bf16" } else { "f16" })?;
    judge_picture(call, &x)?;
    let window = Window {
        kernel: pair(call, &kernel, "kernelSize", 1, None)?,
        dilation: pair(call, &dilation, "dilation", 1, None)?,
        pad: pair(call, &padding, "padding", 0, None)?,
        stride: pair(call, &stride, "stride", 1, None)?,
    };
    let [down, across] = placed(call, &x, &window, false)?;
    let rank = x.rank();
    let taps = window.kernel[0] * window.kernel[1];
    let shape = [&x.shape()[..rank - 3], &[x.shape()[rank - 3] * taps, down * across]].concat();
    call.type_is(&out, x.ty())?;
    call.shape(&out, &shape)?;
    call.keep_apart();
    let (planes, rows, columns) = planes(x.shape());
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let values: Vec<f32> = stage.read(x)?;
        let mut unfolded = Vec::with_capacity((planes * taps * down * across) as usize);
        for plane in values.chunks((rows * columns) as usize) {
            for tap in 0..taps {
                let (tap_row, tap_column) = (tap / window.kernel[1], tap % window.kernel[1]);
                for place in 0..down * across {
                    let row = window.index(0, place / across, tap_row, rows);
                    let column = window.index(1, place % across, tap_column, columns);
                    unfolded.push(row.zip(column).map_or(0.0, |(row, column)| plane[row * columns as usize + column]));
                }
            }
        }
        stage.write(out, &unfolded)
    })
}

/// Applies `reduce` to the numbers under each place of the window; it gets the count of pads within the padded picture
/// too.
fn pooled(
    values: &[f32],
    (rows, columns): (u64, u64),
    window: Window,
    [down, across]: [u64; 2],
    reduce: impl Fn(&[f32], u64) -> f32,
) -> Vec<f32> {
    let mut pooled = Vec::new();
    let mut under = Vec::new();
    for plane in values.chunks((rows * columns) as usize) {
        for place in 0..down * across {
            under.clear();
            let mut cells = 0;
            for tap in 0..window.kernel[0] * window.kernel[1] {
                let (row_tap, column_tap) = (tap / window.kernel[1], tap % window.kernel[1]);
                let (row_place, column_place) = (place / across, place % across);
                let within = row_place * window.stride[0] + row_tap < rows + 2 * window.pad[0];
                let within = within && column_place * window.stride[1] + column_tap < columns + 2 * window.pad[1];
                cells += u64::from(within);
                let row = window.index(0, row_place, row_tap, rows);
                let column = window.index(1, column_place, column_tap, columns);
                under.extend(row.zip(column).map(|(row, column)| plane[row * columns as usize + column]));
            }
            pooled.push(reduce(&under, cells));
        }
    }
    pooled
}

/// The shape of a pooled picture.
fn pooled_shape(x: &Tensor, places: [u64; 2]) -> Vec<u64> {
    [&x.shape()[..x.rank() - 2], &places].concat()
}

#[allow(clippy::too_many_arguments)]
fn average(
    call: &mut Call,
    x: Tensor,
    kernel: Ints,
    strides: Ints,
    paddings: Ints,
    ceil: bool,
    count_pads: bool,
    divisor: i64,
    math: i8,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "AvgPool", "f32,f16,bf16")?;
    judge_picture(call, &x)?;
    let cube = Cube::of(call, math, x.ty())?;
    let kernel = pair(call, &kernel, "kernelSize", 1, None)?;
    let window = Window {
        kernel,
        stride: pair(call, &strides, "strides", 1, Some(kernel))?,
        pad: pair(call, &paddings, "paddings", 0, Some([0, 0]))?,
        dilation: [1, 1],
    };
    let small = window.pad[0] <= kernel[0] / 2 && window.pad[1] <= kernel[1] / 2;
    call.require(small, "paddings", || format!("is {paddings:?}, at most half of the window is taken"))?;
    let places = placed(call, &x, &window, ceil)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &pooled_shape(&x, places))?;
    call.keep_apart();
    call.asks(1024);
    let (_, rows, columns) = planes(x.shape());
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        cube.round(&mut values, stage.chip);
        let mean = |under: &[f32], cells: u64| {
            let count = if divisor != 0 {
                divisor as f32
            } else if count_pads {
                cells as f32
            } else {
                under.len() as f32
            };
            stage.sum(under) / count
        };
        stage.write(out, &pooled(&values, (rows, columns), window, places, mean))
    })
}

#[allow(clippy::too_many_arguments)]
fn largest(
    call: &mut Call,
    x: Tensor,
    kernel: Ints,
    strides: Ints,
    auto_pad: i64,
    pads: Ints,
    dilations: Ints,
    ceil: i64,
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "MaxPoolV3", "f16,f32")?;
    judge_picture(call, &x)?;
    call.require(auto_pad == 0, "autoPad", || format!("is {auto_pad}, 0 is expected"))?;
    call.require(dilations.iter().all(|&dilation| dilation == 1), "dilations", || {
        format!("is {dilations:?}, 1 is expected")
    })?;
    call.require((0..=1).contains(&ceil), "ceilMode", || format!("is {ceil}"))?;
    let pads = match pads[..] {
        [top, left, bottom, right] => {
            call.require(top == bottom && left == right, "pads", || {
                format!("is {pads:?}, and the simulator supports only equal sides")
            })?;
            vec![top, left]
        }
        _ => pads,
    };
    let kernel = pair(call, &kernel, "kernelShape", 1, None)?;
    let window = Window {
        kernel,
        stride: pair(call, &strides, "strides", 1, Some(kernel))?,
        pad: pair(call, &pads, "pads", 0, Some([0, 0]))?,
        dilation: [1, 1],
    };
    let small = window.pad[0] <= kernel[0] / 2 && window.pad[1] <= kernel[1] / 2;
    call.require(small, "pads", || "are more than half of the window".to_owned())?;
    let places = placed(call, &x, &window, ceil == 1)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &pooled_shape(&x, places))?;
    call.keep_apart();
    let (_, rows, columns) = planes(x.shape());
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let values: Vec<f32> = stage.read(x)?;
        let top = |under: &[f32], _: u64| under.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        stage.write(out, &pooled(&values, (rows, columns), window, places, top))
    })
}

/// NCHW of `aclFormat`.
const NCHW: i32 = 0;

fn nearest(call: &mut Call, x: Tensor, size: Ints, out: Tensor) -> Result<Work, Refusal> {
    call.kernel(&x, "ResizeNearestNeighborV2", "f32,bf16,f16")?;
    call.rank(&x, 4..=4)?;
    for tensor in [&x, &out] {
        call.require(tensor.format == NCHW, tensor.argument, || {
            format!("has the format {}, and the simulator supports only NCHW", tensor.format)
        })?;
    }
    call.require(x.view.count() > 0, x.argument, || "is empty".to_owned())?;
    let [down, across] = pair(call, &size, "outputSize", 1, None)?;
    call.type_is(&out, x.ty())?;
    call.shape(&out, &[x.shape()[0], x.shape()[1], down, across])?;
    call.keep_apart();
    let (_, rows, columns) = planes(x.shape());
    let (x, out) = (call.input(&x), call.output(&out));
    work(move |stage| {
        let values: Vec<f32> = stage.read(x)?;
        let place = |index: u64, to: u64, from: u64| (index * from / to) as usize;
        let of_plane = |plane: &[f32]| {
            let cells = (0..down).flat_map(|row| (0..across).map(move |column| (row, column)));
            cells
                .map(|(row, column)| plane[place(row, down, rows) * columns as usize + place(column, across, columns)])
                .collect::<Vec<f32>>()
        };
        stage.write(out, &values.chunks((rows * columns) as usize).flat_map(of_plane).collect::<Vec<_>>())
    })
}

/// A convolution over (N, C, H, W); one row for a line of (N, C, L).
#[derive(Clone, Copy)]
struct Convolution {
    window: Window,
    groups: u64,
    transposed: bool,
    channels: u64,
    outputs: u64,
    rows: u64,
    columns: u64,
    places: [u64; 2],
    cube: Cube,
}

impl Convolution {
    /// The inputs under a place for one group, (places, channels of the group * taps).
    fn unfolded(&self, picture: &[f32], group: u64) -> Vec<f32> {
        let channels = self.channels / self.groups;
        let taps = self.window.kernel[0] * self.window.kernel[1];
        let value = |place: u64, term: u64| {
            let (channel, tap) = (group * channels + term / taps, term % taps);
            let row = self.index(0, place / self.places[1], tap / self.window.kernel[1], self.rows);
            let column = self.index(1, place % self.places[1], tap % self.window.kernel[1], self.columns);
            let plane = &picture[(channel * self.rows * self.columns) as usize..];
            row.zip(column).map_or(0.0, |(row, column)| plane[row * self.columns as usize + column])
        };
        (0..self.places[0] * self.places[1])
            .flat_map(|place| (0..channels * taps).map(move |term| value(place, term)))
            .collect()
    }

    fn index(&self, axis: usize, place: u64, tap: u64, size: u64) -> Option<usize> {
        if !self.transposed {
            return self.window.index(axis, place, tap, size);
        }
        let from = (place + self.window.pad[axis]).checked_sub(tap * self.window.dilation[axis])?;
        let index = from / self.window.stride[axis];
        (from.is_multiple_of(self.window.stride[axis]) && index < size).then_some(index as usize)
    }

    /// Weights of an output channel of a group, (channels of the group * taps).
    fn weights(&self, weight: &[f32], group: u64, output: u64, row: &mut [f32]) {
        let (channels, outputs) = (self.channels / self.groups, self.outputs / self.groups);
        let taps = self.window.kernel[0] * self.window.kernel[1];
        for (term, value) in (0..channels * taps).zip(row) {
            let (channel, tap) = (term / taps, term % taps);
            let at = match self.transposed {
                true => ((group * channels + channel) * outputs + output) * taps + tap,
                false => ((group * outputs + output) * channels + channel) * taps + tap,
            };
            *value = weight[at as usize];
        }
    }

    fn run(&self, stage: &Stage, input: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let cells = (self.places[0] * self.places[1]) as usize;
        let outputs = self.outputs / self.groups;
        let terms = self.channels / self.groups * self.window.kernel[0] * self.window.kernel[1];
        let sizes = Sizes { m: cells, n: outputs as usize, k: terms as usize };
        let mut out = Vec::new();
        for picture in input.chunks((self.channels * self.rows * self.columns) as usize) {
            for group in 0..self.groups {
                let left = self.unfolded(picture, group);
                let values = product(stage, sizes, self.cube, left, |output, row| {
                    self.weights(weight, group, output as u64, row)
                });
                for output in 0..sizes.n {
                    let added = bias.map_or(0.0, |bias| bias[(group * outputs) as usize + output]);
                    out.extend((0..cells).map(|cell| values[cell * sizes.n + output] + added));
                }
            }
        }
        out
    }
}

/// A line (N, C, L) as a picture of one row.
fn as_picture(tensor: &Tensor) -> Tensor {
    let mut tensor = tensor.clone();
    if tensor.rank() == 3 {
        tensor.view.shape.insert(2, 1);
        tensor.view.strides.insert(2, 0);
    }
    tensor
}

/// Numbers for rows and columns: a line has only columns.
fn for_axes(
    call: &Call,
    list: &[i64],
    line: bool,
    argument: &str,
    least: i64,
    alone: u64,
) -> Result<[u64; 2], Refusal> {
    if !line {
        return pair(call, list, argument, least, None);
    }
    call.require(list.len() == 1, argument, || format!("is {list:?}, one number is expected for a line"))?;
    let [_, columns] = pair(call, list, argument, least, None)?;
    Ok([alone, columns])
}

#[allow(clippy::too_many_arguments)]
fn convolution(
    call: &mut Call,
    input: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: i64,
    output: Tensor,
    math: i8,
) -> Result<Work, Refusal> {
    call.kernel(&input, "Conv2D", "f32,f16,bf16")?;
    judge_picture(call, &input)?;
    call.type_is(&weight, input.ty())?;
    call.rank(&weight, input.rank()..=input.rank())?;
    let line = input.rank() == 3;
    for tensor in [&input, &weight, &output] {
        call.require(tensor.format == if line { 47 } else { NCHW }, tensor.argument, || {
            format!("has the format {}, {} is expected", tensor.format, if line { "NCL (47)" } else { "NCHW (0)" })
        })?;
    }
    let (x, w) = (as_picture(&input), as_picture(&weight));
    call.require((1..1 << 20).contains(&groups), "groups", || format!("is {groups}"))?;
    let groups = groups as u64;
    let (channels, outputs) = (x.shape()[1], if transposed { w.shape()[1] * groups } else { w.shape()[0] });
    let own = if transposed { w.shape()[0] } else { w.shape()[1] * groups };
    let fits =
        own == channels && channels.is_multiple_of(groups) && outputs.is_multiple_of(groups) && w.view.count() > 0;
    call.require(fits, "weight", || {
        format!("has the shape {} for {channels} channels in {groups} groups", sizes(weight.shape()))
    })?;
    let window = Window {
        kernel: [w.shape()[2], w.shape()[3]],
        stride: for_axes(call, &stride, line, "stride", 1, 1)?,
        pad: for_axes(call, &padding, line, "padding", 0, 0)?,
        dilation: for_axes(call, &dilation, line, "dilation", 1, 1)?,
    };
    let places =
        if transposed { spread(call, &x, &window, &output_padding, line)? } else { placed(call, &x, &window, false)? };
    let shape =
        if line { vec![x.shape()[0], outputs, places[1]] } else { vec![x.shape()[0], outputs, places[0], places[1]] };
    call.shape(&output, &shape)?;
    call.type_is(&output, input.ty())?;
    if let Some(bias) = &bias {
        call.type_is(bias, input.ty())?;
        call.shape(bias, &[outputs])?;
    }
    let cube = Cube::of(call, math, input.ty())?;
    call.keep_apart();
    call.asks(32 * 1024);
    let (rows, columns) = (x.shape()[2], x.shape()[3]);
    let plan = Convolution { window, groups, transposed, channels, outputs, rows, columns, places, cube };
    let (input, weight, bias, output) =
        (call.input(&input), call.input(&weight), call.optional(bias.as_ref()), call.output(&output));
    work(move |stage| {
        let (mut x, w): (Vec<f32>, Vec<f32>) = (stage.read(input)?, stage.read(weight)?);
        plan.cube.round(&mut x, stage.chip);
        let bias: Option<Vec<f32>> = bias.map(|bias| stage.read(bias)).transpose()?;
        stage.write(output, &plan.run(stage, &x, &w, bias.as_deref()))
    })
}

/// The places of a transposed convolution.
fn spread(call: &Call, x: &Tensor, window: &Window, more: &[i64], line: bool) -> Result<[u64; 2], Refusal> {
    let more = if more.is_empty() { [0, 0] } else { for_axes(call, more, line, "outputPadding", 0, 0)? };
    let along = |axis: usize| {
        let size = x.shape()[axis + 2];
        let full =
            (size - 1) * window.stride[axis] + window.dilation[axis] * (window.kernel[axis] - 1) + 1 + more[axis];
        full.checked_sub(2 * window.pad[axis]).filter(|&places| places > 0)
    };
    match (along(0), along(1)) {
        (Some(rows), Some(columns)) => Ok([rows, columns]),
        _ => Err(call.refusal("padding", "removes the whole result")),
    }
}

operators! {
    "Im2col"(self_: Tensor, kernelSize: Ints, dilation: Ints, padding: Ints, stride: Ints, out: Tensor) => im2col;
    "AvgPool2d"(self_: Tensor, kernelSize: Ints, strides: Ints, paddings: Ints, ceilMode: bool, countIncludePad: bool, divisorOverride: i64, cubeMathType: i8, out: Tensor) => average;
    "MaxPool"(self_: Tensor, kernelShape: Ints, strides: Ints, autoPad: i64, pads: Ints, dilations: Ints, ceilMode: i64, out: Tensor) => largest;
    "UpsampleNearest2d"(self_: Tensor, outputSize: Ints, out: Tensor) => nearest;
    "Convolution"(input: Tensor, weight: Tensor, bias: Option<Tensor>, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, outputPadding: Ints, groups: i64, output: Tensor, cubeMathType: i8) => convolution;
}
