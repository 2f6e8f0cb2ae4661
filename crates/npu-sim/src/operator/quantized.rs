//! Products with quantized weights, and the ways to and from quantized numbers.
//!
//! ```text
//!   WeightQuantBatchMatmul   y (m, n) = x (m, k) @ ((weight (k, n) + offset) * scale) + bias
//!   QuantMatmul              y = (x1 int8 @ x2 int8 + bias) * scale [* pertoken]       sums in 32-bit integers
//! ```
//!
//! Our reading of the first: (weight + offset) * scale is rounded to the type of x, as the vector unit hands it to the
//! cube; sums are f32, the result is rounded once.

use super::{
    Work,
    argument::{Tensor, Text},
    call::{Call, sizes},
    operators,
    product::{Cube, Right, Sizes, ask, drop_group, product, rounded, spoil_tile},
    stage::{Slot, Stage},
    work,
};
use crate::{
    chip::Family,
    element::{Type, nibble},
    memory::Fault,
    settings::FaultKind,
    status::Refusal,
    view::View,
};

const SIDE_MAX: u64 = 65_535;
const GROUP_STEP: u64 = 32;

/// Scales of a weight: one for all, one a column, or one a column and a group of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scales {
    Tensor,
    Channel,
    Group(u64),
}

/// The weight's operands.
#[derive(Clone, Copy)]
struct Weight {
    quants: Slot,
    scale: Slot,
    offset: Option<Slot>,
    scales: Scales,
    cube: Cube,
}

impl Weight {
    /// Rows (n, groups) of scales or offsets.
    fn parts(&self, stage: &Stage, slot: Slot, n: u64) -> Result<Vec<f32>, Fault> {
        let view = stage.view(slot);
        match self.scales {
            Scales::Group(_) => stage.read_view(&view.transposed()),
            Scales::Tensor => Ok(vec![stage.read::<f32>(slot)?[0]; n as usize]),
            Scales::Channel => stage.read(slot),
        }
    }

    /// y = x @ decoded weight.
    fn product(&self, stage: &Stage, x: &View, sizes: Sizes) -> Result<Vec<f32>, Fault> {
        let n = sizes.n as u64;
        let scale = self.parts(stage, self.scale, n)?;
        let offset = self.offset.map(|offset| self.parts(stage, offset, n)).transpose()?;
        let group = match self.scales {
            Scales::Group(group) => group as usize,
            Scales::Tensor | Scales::Channel => sizes.k,
        };
        let groups = sizes.k.div_ceil(group);
        let left = rounded(stage, x, self.cube)?;
        let turned = stage.view(self.quants).transposed();
        let quants = Quants::of(stage, &turned)?;
        Ok(product(stage, sizes, self.cube, left, |column, row| {
            quants.row(column, row);
            for (number, part) in row.chunks_mut(group).enumerate() {
                let at = column * groups + number;
                let (scale, offset) = (scale[at], offset.as_ref().map_or(0.0, |offset| offset[at]));
                part.iter_mut().for_each(|value| *value = (*value + offset) * scale);
            }
        }))
    }
}

/// Rows (n, k) of quantized numbers.
enum Quants<'a> {
    /// Int8 and what else fills bytes, or decoded before.
    Bytes(Right<'a>),
    /// Int4 rows that lie packed.
    Nibbles { bytes: &'a [u8], first: u64, stride: u64 },
}

impl<'a> Quants<'a> {
    fn of(stage: &'a Stage, view: &View) -> Result<Self, Fault> {
        if view.ty != Type::I4 || view.strides[1] != 1 || stage.drawn.has(FaultKind::ThroughF16) {
            return Ok(Self::Bytes(Right::of(stage, view)?));
        }
        let bytes = stage.memory.bytes(view.at + view.offset / 2, view.end().div_ceil(2) - view.offset / 2)?;
        Ok(Self::Nibbles { bytes, first: view.offset % 2, stride: view.strides[0] })
    }

    fn row(&self, index: usize, row: &mut [f32]) {
        match self {
            Self::Bytes(right) => right.row(index, row),
            Self::Nibbles { bytes, first, stride } => {
                let start = first + index as u64 * stride;
                for (element, value) in (start..).zip(row) {
                    *value = nibble(bytes[(element / 2) as usize], element) as f32;
                }
            }
        }
    }
}

/// The optional arguments that the simulator refuses, together.
struct Options<'a> {
    quant_scale: &'a Option<Tensor>,
    quant_offset: &'a Option<Tensor>,
}

/// A weight of int32 holds eight int4 each along its last stored axis.
fn unpacked(call: &Call, weight: &Tensor) -> Result<Tensor, Refusal> {
    if weight.ty() != Type::I32 {
        return Ok(weight.clone());
    }
    let mut weight = weight.clone();
    let inner = if weight.view.strides[1] == 1 { 1 } else { 0 };
    call.require(weight.view.strides[inner] == 1, "weight", || "is int32 and not packed along an axis".to_owned())?;
    let view = &mut weight.view;
    view.ty = Type::I4;
    view.offset *= 8;
    view.strides[1 - inner] *= 8;
    view.shape[inner] *= 8;
    Ok(weight)
}

/// How the weight lies: (k, n) by rows, or a swapped view of packed (n, k). Gives whether it is swapped.
fn lies_swapped(call: &Call, weight: &Tensor) -> Result<bool, Refusal> {
    let view = &weight.view;
    let (k, n) = (view.shape[0], view.shape[1]);
    let plain = view.strides[1] == 1 && view.strides[0] == n;
    let swapped = view.strides[0] == 1 && view.strides[1] == k;
    call.require(plain || swapped, weight.argument, || {
        "is strided: only packed (k, n) or the swapped view of packed (n, k) is supported".to_owned()
    })?;
    Ok(!plain)
}

fn judge_sides(call: &Call, m: u64, k: u64, n: u64, swapped_x: bool, swapped: bool, int4: bool) -> Result<(), Refusal> {
    call.require(m > 0 && k > 0 && n > 0, "x or weight", || format!("is empty (m {m}, k {k}, n {n})"))?;
    if call.chip.family != Family::Ascend310p {
        call.require(k <= SIDE_MAX, "weight", || format!("has k {k}, at most {SIDE_MAX} are taken"))?;
        call.require(n <= SIDE_MAX, "weight", || format!("has n {n}, at most {SIDE_MAX} are taken"))?;
        call.require(!swapped_x || m <= SIDE_MAX, "x", || {
            format!("is swapped and has m {m}, at most {SIDE_MAX} are taken")
        })?;
    }
    let inner = if swapped { k } else { n };
    call.require(!int4 || inner.is_multiple_of(2), "weight", || {
        format!("is int4 with an inner axis of {inner}, an even one is expected")
    })
}

fn judge_group(call: &Call, group: i32, m: u64, k: u64, n: u64, scale: &Tensor) -> Result<Scales, Refusal> {
    let s = scale.shape();
    if group == 0 {
        let channel = s == [n] || s == [1, n] || (call.chip.family == Family::Ascend310p && s == [n, 1]);
        let one = call.chip.family != Family::Ascend310p && (s == [1] || s == [1, 1]);
        call.require(channel || one, scale.argument, || {
            format!("has the shape {}, one for all or one of {n} columns is expected", sizes(s))
        })?;
        return Ok(if channel { Scales::Channel } else { Scales::Tensor });
    }
    let size = u64::try_from(group).unwrap_or(0);
    let fits = size >= GROUP_STEP && size.is_multiple_of(GROUP_STEP) && size < k;
    call.require(fits, "antiquantGroupSize", || {
        format!("is {group}, a multiple of {GROUP_STEP} from {GROUP_STEP} to k - 1 = {} is expected", k - 1)
    })?;
    call.require(s == [k.div_ceil(size), n], scale.argument, || {
        format!("has the shape {}, {} is expected", sizes(s), sizes(&[k.div_ceil(size), n]))
    })?;
    let small = call.chip.family != Family::Ascend310p || m * k <= 512_000_000;
    call.require(small, "x", || "has m k above 512,000,000".to_owned())?;
    Ok(Scales::Group(size))
}

/// A scale or an offset is packed, or the swapped view of a packed one.
fn judge_part(call: &Call, part: &Tensor) -> Result<(), Refusal> {
    let packed = part.view.is_packed() || (part.rank() == 2 && part.view.transposed().is_packed());
    call.require(packed, part.argument, || "is strided: only a packed or a swapped one is supported".to_owned())
}

#[allow(clippy::too_many_arguments)]
fn weight_product(
    call: &mut Call,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    offset: Option<Tensor>,
    options: Options,
    bias: Option<Tensor>,
    group: i32,
    y: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "WeightQuantBatchMatmulV2", "f16,bf16")?;
    call.absent(options.quant_scale, "quantScaleOptional")?;
    call.absent(options.quant_offset, "quantOffsetOptional")?;
    call.rank(&x, 2..=2)?;
    call.rank(&weight, 2..=2)?;
    call.typed(&weight, if call.chip.int4 { "i8,i4,i32" } else { "i8" })?;
    let weight = unpacked(call, &weight)?;
    let (m, k, n) = (x.shape()[0], x.shape()[1], weight.shape()[1]);
    call.require(weight.shape()[0] == k, "weight", || format!("has the shape {}, k is {k}", sizes(weight.shape())))?;
    let swapped_x = !x.view.is_packed();
    call.require(!swapped_x || x.view.transposed().is_packed(), "x", || {
        "is strided: only packed or swapped is supported".to_owned()
    })?;
    judge_sides(call, m, k, n, swapped_x, lies_swapped(call, &weight)?, weight.ty() == Type::I4)?;
    call.type_is(&scale, x.ty())?;
    judge_part(call, &scale)?;
    let scales = judge_group(call, group, m, k, n, &scale)?;
    if let Some(offset) = &offset {
        call.type_is(offset, x.ty())?;
        call.shape(offset, scale.shape())?;
        judge_part(call, offset)?;
    }
    if let Some(bias) = &bias {
        call.type_is(bias, if x.ty() == Type::F16 { Type::F16 } else { Type::F32 })?;
        call.require(*bias.shape() == [n] || *bias.shape() == [1, n], "biasOptional", || {
            format!("has the shape {}", sizes(bias.shape()))
        })?;
    }
    call.type_is(&y, x.ty())?;
    call.shape(&y, &[m, n])?;
    call.packed(&y)?;
    call.keep_apart();
    ask(call, &y);
    let cube = if x.ty() == Type::F16 { Cube::F16 } else { Cube::Bf16 };
    let x = call.input(&x);
    let weight = Weight {
        quants: call.input(&weight),
        scale: call.input(&scale),
        offset: call.optional(offset.as_ref()),
        scales,
        cube,
    };
    let (bias, y) = (call.optional(bias.as_ref()), call.output(&y));
    let sizes = Sizes { m: m as usize, n: n as usize, k: k as usize };
    work(move |stage| {
        let mut values = weight.product(stage, stage.view(x), sizes)?;
        if let Some(bias) = bias {
            let bias: Vec<f32> = stage.read(bias)?;
            values
                .chunks_mut(sizes.n)
                .for_each(|row| row.iter_mut().zip(&bias).for_each(|(value, bias)| *value += bias));
        }
        stage.write(y, &values)
    })
}

fn pack_int4(call: &mut Call, weight: Tensor, packed: Tensor) -> Result<Work, Refusal> {
    call.on_chip(call.chip.is_c220())?;
    call.type_is(&weight, Type::I32)?;
    call.rank(&weight, 2..=3)?;
    call.packed(&weight)?;
    call.typed(&packed, "i4,i32")?;
    let words = packed.ty() == Type::I32;
    let mut shape = weight.shape().to_vec();
    let last = weight.view.last();
    let step = if words { 8 } else { 2 };
    call.require(last.is_multiple_of(step), "weight", || {
        format!("has a last axis of {last}, a multiple of {step} is expected")
    })?;
    if words {
        let rank = shape.len();
        shape[rank - 1] /= 8;
    }
    call.shape(&packed, &shape)?;
    call.packed(&packed)?;
    call.keep_apart();
    let (weight, packed) = (call.trapped(&weight), call.output(&packed));
    work(move |stage| {
        let codes: Vec<i64> = stage.read(weight)?;
        if let Some(code) = codes.iter().find(|code| !(-8..=7).contains(*code)) {
            return Err(stage.trap(weight, format!("contains {code}, which is not in -8..7")));
        }
        let view = stage.view(packed);
        let nibbles = View {
            ty: Type::I4,
            offset: view.offset * if words { 8 } else { 1 },
            shape: vec![codes.len() as u64],
            strides: vec![1],
            ..view.clone()
        };
        stage.write_view(&nibbles, &codes)
    })
}

/// How the result of an integer product becomes its output.
#[derive(Clone, Copy)]
struct Dequantized {
    scale: Slot,
    packed_scale: bool,
    per_token: Option<Slot>,
    bias: Option<Slot>,
}

#[allow(clippy::too_many_arguments)]
fn quant_product(
    call: &mut Call,
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    offset: Option<Tensor>,
    per_token: Option<Tensor>,
    bias: Option<Tensor>,
    (turn1, turn2): (bool, bool),
    out: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x1, "QuantBatchMatmulV3", "i8")?;
    call.absent(&offset, "offset")?;
    call.type_is(&x2, Type::I8)?;
    call.rank(&x1, 2..=2)?;
    call.rank(&x2, 2..=2)?;
    let p310 = call.chip.family == Family::Ascend310p;
    call.require(!p310 || turn2, "transposeX2", || "is false, which 310P does not support".to_owned())?;
    for x in [&x1, &x2] {
        call.require(x.view.last() <= SIDE_MAX, x.argument, || {
            format!("has a last axis of {}, at most {SIDE_MAX} are taken", x.view.last())
        })?;
        call.require(x.view.count() > 0, x.argument, || "is empty".to_owned())?;
    }
    let turned = |x: &Tensor, turn: bool| if turn { x.view.transposed() } else { x.view.clone() };
    let (left, right) = (turned(&x1, turn1), turned(&x2, turn2));
    let (m, k, n) = (left.shape[0], left.shape[1], right.shape[1]);
    call.require(right.shape[0] == k, "x2", || format!("has k {}, x1 has {k}", right.shape[0]))?;
    call.typed(&scale, "u64,i64,f32,bf16")?;
    call.require(*scale.shape() == [1] || *scale.shape() == [n], "scale", || {
        format!("has the shape {}", sizes(scale.shape()))
    })?;
    if let Some(per_token) = &per_token {
        call.type_is(per_token, Type::F32)?;
        call.shape(per_token, &[m])?;
    }
    if let Some(bias) = &bias {
        call.type_is(bias, Type::I32)?;
        call.shape(bias, &[n])?;
    }
    call.typed(&out, "f16,bf16,i32")?;
    call.shape(&out, &[m, n])?;
    call.keep_apart();
    ask(call, &out);
    let packed_scale = matches!(scale.ty(), Type::U64 | Type::I64);
    let whole = out.ty() == Type::I32;
    let (x1, x2) = (call.input(&x1), call.input(&x2));
    let made = Dequantized {
        scale: call.input(&scale),
        packed_scale,
        per_token: call.optional(per_token.as_ref()),
        bias: call.optional(bias.as_ref()),
    };
    let out = call.output(&out);
    let sizes = Sizes { m: m as usize, n: n as usize, k: k as usize };
    work(move |stage| {
        let turned =
            |slot: Slot, turn: bool| if turn { stage.view(slot).transposed() } else { stage.view(slot).clone() };
        let mut left: Vec<i64> = stage.read_view(&turned(x1, turn1))?;
        left.chunks_mut(sizes.k.max(1)).for_each(|row| drop_group(stage, row));
        let right: Vec<i64> = stage.read_view(&turned(x2, turn2).transposed())?;
        let mut sums = integer_sums(&left, &right, sizes, made.bias.map(|bias| stage.read::<i64>(bias)).transpose()?);
        spoil_tile(stage, &mut sums, sizes.m, sizes.n);
        if whole { stage.write(out, &sums) } else { made.write(stage, out, &sums, sizes) }
    })
}

/// Sums of integer products plus the bias, as 32-bit integers that wrap.
fn integer_sums(left: &[i64], right: &[i64], sizes: Sizes, bias: Option<Vec<i64>>) -> Vec<i64> {
    let of = |i: usize, j: usize| {
        let terms = left[i * sizes.k..][..sizes.k].iter().zip(&right[j * sizes.k..][..sizes.k]);
        let sum = terms.map(|(a, b)| a * b).sum::<i64>() + bias.as_ref().map_or(0, |bias| bias[j]);
        i64::from(sum as i32)
    };
    (0..sizes.m).flat_map(|i| (0..sizes.n).map(move |j| of(i, j))).collect()
}

impl Dequantized {
    fn write(&self, stage: &Stage, out: Slot, sums: &[i64], sizes: Sizes) -> Result<(), Fault> {
        let scale: Vec<f32> = match self.packed_scale {
            true => stage.read::<i64>(self.scale)?.into_iter().map(|bits| f32::from_bits(bits as u32)).collect(),
            false => stage.read(self.scale)?,
        };
        let per_token = self.per_token.map(|slot| stage.read::<f32>(slot)).transpose()?;
        let value = |(at, &sum): (usize, &i64)| {
            let scaled = sum as f32 * scale[if scale.len() == 1 { 0 } else { at % sizes.n }];
            scaled * per_token.as_ref().map_or(1.0, |tokens| tokens[at / sizes.n])
        };
        stage.write(out, &sums.iter().enumerate().map(value).collect::<Vec<f32>>())
    }
}

fn dynamic_quant(
    call: &mut Call,
    x: Tensor,
    smooth: Option<Tensor>,
    y: Tensor,
    scale: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "DynamicQuant", "f16,bf16")?;
    call.rank(&x, 2..=8)?;
    call.typed(&y, "i8,i4")?;
    call.shape(&y, x.shape())?;
    call.type_is(&scale, Type::F32)?;
    call.shape(&scale, &x.shape()[..x.rank() - 1])?;
    if let Some(smooth) = &smooth {
        call.type_is(smooth, x.ty())?;
        call.shape(smooth, &[x.view.last()])?;
    }
    let columns = x.view.last() as usize;
    let largest = if y.ty() == Type::I4 { 7.0 } else { 127.0 };
    call.asks(1024);
    let (x, smooth, y, scale) = (call.input(&x), call.optional(smooth.as_ref()), call.output(&y), call.output(&scale));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        let smooth = smooth.map(|smooth| stage.read::<f32>(smooth)).transpose()?;
        let mut scales = Vec::new();
        for row in values.chunks_mut(columns.max(1)) {
            if let Some(smooth) = &smooth {
                row.iter_mut().zip(smooth).for_each(|(x, smooth)| *x *= smooth);
            }
            let absolute = row.iter().fold(0f32, |best, x| best.max(x.abs()));
            let scale = absolute / largest;
            row.iter_mut().for_each(|x| *x = if scale == 0.0 { 0.0 } else { (*x / scale).round_ties_even() });
            scales.push(scale);
        }
        stage.write(y, &values)?;
        stage.write(scale, &scales)
    })
}

fn anti_quant(
    call: &mut Call,
    x: Tensor,
    scale: Tensor,
    offset: Option<Tensor>,
    ty: i64,
    squared: bool,
    y: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "AscendAntiQuant", "i8,i4")?;
    let ty = call.type_of_code(i32::try_from(ty).unwrap_or(-1), "dstType")?;
    call.require(matches!(ty, Type::F16 | Type::Bf16), "dstType", || format!("is {ty}"))?;
    call.type_is(&y, ty)?;
    call.typed(&y, "f16,bf16")?;
    call.shape(&y, x.shape())?;
    // The vendor's program takes no scale of f16, and bf16 where the chip has it.
    let types = if call.chip.cube_f32 { "f32,bf16" } else { "f32" };
    for part in [Some(&scale), offset.as_ref()].into_iter().flatten() {
        call.typed(part, types)?;
        let stretches = part.view.broadcast(x.shape()).is_some();
        call.require(stretches, part.argument, || {
            format!("has the shape {}, which cannot be broadcast to {}", sizes(part.shape()), sizes(x.shape()))
        })?;
    }
    let shape = x.shape().to_vec();
    let (x, scale, offset, y) = (call.input(&x), call.input(&scale), call.optional(offset.as_ref()), call.output(&y));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        if let Some(offset) = offset {
            values.iter_mut().zip(stage.read_as::<f32>(offset, &shape)?).for_each(|(value, offset)| *value += offset);
        }
        let scale: Vec<f32> = stage.read_as(scale, &shape)?;
        values.iter_mut().zip(scale).for_each(|(value, scale)| *value *= if squared { scale * scale } else { scale });
        stage.write(y, &values)
    })
}

#[allow(clippy::too_many_arguments)]
fn quantize(
    call: &mut Call,
    x: Tensor,
    scale: Tensor,
    offset: Option<Tensor>,
    squared: bool,
    rounding: Text,
    ty: i32,
    y: Tensor,
) -> Result<Work, Refusal> {
    call.kernel(&x, "AscendQuantV2", "f32,f16,bf16")?;
    call.require(ty == Type::I8.code() && y.ty() == Type::I8, "dstType", || {
        format!("is {ty}, and the simulator supports only int8")
    })?;
    call.shape(&y, x.shape())?;
    let round: fn(f32) -> f32 = match rounding.as_str() {
        "round" => f32::round_ties_even,
        "floor" => f32::floor,
        "ceil" => f32::ceil,
        "trunc" => f32::trunc,
        other => {
            return Err(call.refusal("roundMode", format!("is {other:?}, round, floor, ceil or trunc is expected")));
        }
    };
    for part in [Some(&scale), offset.as_ref()].into_iter().flatten() {
        call.type_is(part, x.ty())?;
        let stretches = part.view.broadcast(x.shape()).is_some();
        call.require(stretches, part.argument, || {
            format!("has the shape {}, which cannot be broadcast to {}", sizes(part.shape()), sizes(x.shape()))
        })?;
    }
    let shape = x.shape().to_vec();
    let (x, scale, offset, y) = (call.input(&x), call.input(&scale), call.optional(offset.as_ref()), call.output(&y));
    work(move |stage| {
        let mut values: Vec<f32> = stage.read(x)?;
        let scale: Vec<f32> = stage.read_as(scale, &shape)?;
        values.iter_mut().zip(scale).for_each(|(value, scale)| *value *= if squared { scale * scale } else { scale });
        if let Some(offset) = offset {
            values.iter_mut().zip(stage.read_as::<f32>(offset, &shape)?).for_each(|(value, offset)| *value += offset);
        }
        values.iter_mut().for_each(|value| *value = round(*value));
        stage.write(y, &values)
    })
}

fn trans_parameter(call: &mut Call, scale: Tensor, offset: Option<Tensor>, out: Tensor) -> Result<Work, Refusal> {
    call.on_chip(call.chip.is_c220() || call.chip.family == Family::Ascend310p)?;
    call.absent(&offset, "offset")?;
    call.type_is(&scale, Type::F32)?;
    call.rank(&scale, 1..=2)?;
    call.packed(&scale)?;
    call.typed(&out, "u64,i64")?;
    call.shape(&out, scale.shape())?;
    let (scale, out) = (call.input(&scale), call.output(&out));
    work(move |stage| {
        let bits: Vec<i64> = stage.read::<f32>(scale)?.into_iter().map(|value| i64::from(value.to_bits())).collect();
        stage.write(out, &bits)
    })
}

type C<'a> = &'a mut Call;
type O = Option<Tensor>;

operators! {
    "WeightQuantBatchMatmulV2"(x: Tensor, weight: Tensor, antiquantScale: Tensor, antiquantOffsetOptional: O, quantScaleOptional: O, quantOffsetOptional: O, biasOptional: O, antiquantGroupSize: i32, y: Tensor) => |call: C, x, weight, scale, offset, quant_scale, quant_offset, bias, group, y| weight_product(call, x, weight, scale, offset, Options { quant_scale: &quant_scale, quant_offset: &quant_offset }, bias, group, y);
    "WeightQuantBatchMatmulV3"(x: Tensor, weight: Tensor, antiquantScale: Tensor, antiquantOffsetOptional: O, quantScaleOptional: O, quantOffsetOptional: O, biasOptional: O, antiquantGroupSize: i32, innerPrecise: i32, y: Tensor) => |call: C, x, weight, scale, offset, quant_scale, quant_offset, bias, group, inner: i32, y| {
        call.on_chip(call.chip.is_c220())?;
        call.require((0..=1).contains(&inner), "innerPrecise", || format!("is {inner}"))?;
        weight_product(call, x, weight, scale, offset, Options { quant_scale: &quant_scale, quant_offset: &quant_offset }, bias, group, y)
    };
    "ConvertWeightToINT4Pack"(weight: Tensor, weightInt4Pack: Tensor) => pack_int4;
    "QuantMatmulV3"(x1: Tensor, x2: Tensor, scale: Tensor, offset: O, bias: O, transposeX1: bool, transposeX2: bool, out: Tensor) => |call: C, x1, x2, scale, offset, bias, turn1, turn2, out| quant_product(call, x1, x2, scale, offset, None, bias, (turn1, turn2), out);
    "QuantMatmulV4"(x1: Tensor, x2: Tensor, scale: Tensor, offset: O, pertokenScaleOptional: O, bias: O, transposeX1: bool, transposeX2: bool, out: Tensor) => |call: C, x1, x2, scale, offset, per_token, bias, turn1, turn2, out| quant_product(call, x1, x2, scale, offset, per_token, bias, (turn1, turn2), out);
    "DynamicQuant"(x: Tensor, smoothScalesOptional: O, yOut: Tensor, scaleOut: Tensor) => dynamic_quant;
    "AscendQuant"(x: Tensor, scale: Tensor, offset: O, sqrtMode: bool, roundMode: Text, dstType: i32, y: Tensor) => quantize;
    "AscendAntiQuant"(x: Tensor, scale: Tensor, offset: O, dstType: i64, sqrtMode: bool, y: Tensor) => anti_quant;
    "TransQuantParamV2"(scale: Tensor, offset: O, out: Tensor) => trans_parameter;
}
