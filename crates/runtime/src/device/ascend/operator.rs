//! The operators of this device: one file per family with the declared arithmetic and the composition of vendor
//! operators. This file is the list.
//!
//! ```text
//!  supports ──▶ profile(op, inputs, output, chip) ◀── compute, which then composes
//! ```
//!
//! The vendor's functions are called through one table of signatures (`acl/operators.rs`). Most operators that move
//! elements are one copy between two views; a repeated dimension becomes two dimensions.

mod arithmetic;
mod arrange;
mod attention;
mod cast;
mod diag_mask;
mod encode;
mod gated;
mod get_rows;
mod index;
mod kv_attention;
mod make;
mod mul_mat;
mod mul_mat_id;
mod norm;
mod overlay;
mod rank;
mod reduce;
mod rope;
mod soft_max;
mod state_space;
mod unary;
mod windows;

use super::acl::{Array, Scalar, Type};
use super::chip::Chip;
use super::engine::Engine;
use super::memory::{Memory, element_type};
use super::notes::{Must, integers, outside};
use super::pool::Room;
use super::split::Matrix;
use super::table::Numbers;
use crate::device::{Step, Tensor, expect_inferred};
use crate::profile::{Order, Profile};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// Why no composition is made of an operator of the list.
const ABSENT: [(&str, &str); 1] = [(
    "mul_mat_gated",
    "CANN has no operator for the gated product of two matrices; it is composed of other \
        operators",
)];

/// What is declared of an operator, or why it is not composed.
fn declared(op: &Op, inputs: &[TensorType], chip: &Chip) -> Result<Profile, String> {
    match op {
        Op::Arithmetic(op) => arithmetic::profile(op, inputs),
        Op::Arrange(_) | Op::Concat(_) | Op::Upscale(_) => arrange::profile(inputs),
        Op::Cast(_) => cast::profile(op, inputs, chip),
        Op::DiagMask(_) => expect_f32("x", &inputs[0]).map(|()| ELEMENTWISE),
        Op::FlashAttn(_) => attention::profile_whole(inputs, chip),
        Op::Gated(op) => unary::profile(&op.function(), inputs),
        Op::GetRows(_) => get_rows::profile(inputs, chip),
        Op::Im2Col(_) | Op::Pool2d(_) => windows::profile(inputs),
        Op::IndexFill(_) | Op::SetRows(_) => index::profile(inputs),
        Op::KvMix(_) | Op::KvScores(_) => attention::profile(inputs, chip),
        Op::KvStore(_) => index::profile_store(inputs, chip),
        Op::Make(op) => Ok(make::profile(op)),
        Op::MulMat(_) => mul_mat::profile(inputs, chip),
        Op::MulMatId(_) => mul_mat_id::profile(inputs, chip),
        Op::Norm(_) => norm::profile(inputs),
        Op::Overlay(_) => overlay::profile(inputs),
        Op::Rank(_) => expect_f32("x", &inputs[0]).map(|()| ELEMENTWISE),
        Op::Reduce(_) => reduce::profile(inputs),
        Op::Reshape(_) => Ok(ELEMENTWISE),
        Op::RmsNorm(_) => norm::profile_rms(inputs),
        Op::Rope(_) => expect_f32("x", &inputs[0]).map(|()| ELEMENTWISE),
        Op::SoftMax(_) => soft_max::profile(inputs),
        Op::SsmConv(_) | Op::SsmScan(_) => state_space::profile(inputs),
        Op::Unary(op) => unary::profile(op, inputs),
        Op::KvAttention(op) => kv_attention::profile(op, inputs, chip),
        Op::MulMatGated(_) => Err(absent("mul_mat_gated")),
    }
}

fn absent(name: &str) -> String {
    ABSENT.iter().find(|(known, _)| *known == name).map_or("it is not composed", |(_, reason)| reason).to_owned()
}

fn compose(op: &Op, call: &Call) -> Result<(), String> {
    match op {
        Op::Arithmetic(op) => arithmetic::compose(op, call),
        Op::Arrange(op) => arrange::compose(op, call),
        Op::Cast(_) => cast::compose(call),
        Op::Concat(op) => arrange::concat(op, call),
        Op::DiagMask(op) => diag_mask::compose(op, call),
        Op::FlashAttn(op) => attention::whole(op, call),
        Op::Gated(op) => gated::compose(op, call),
        Op::GetRows(_) => get_rows::compose(call),
        Op::Im2Col(op) => windows::im2col(op, call),
        Op::IndexFill(op) => index::fill(op, call),
        Op::KvAttention(op) => kv_attention::compose(op, call),
        Op::KvMix(op) => attention::mix(op, call),
        Op::KvScores(op) => attention::scores(op, call),
        Op::KvStore(_) => index::store(call),
        Op::Make(op) => make::compose(op, call),
        Op::MulMat(_) => mul_mat::compose(call),
        Op::MulMatId(_) => mul_mat_id::compose(call),
        Op::Norm(op) => norm::compose(op, call),
        Op::Overlay(op) => overlay::compose(op, call),
        Op::Pool2d(op) => windows::pool(op, call),
        Op::Rank(op) => rank::compose(op, call),
        Op::Reduce(op) => reduce::compose(op, call),
        Op::RmsNorm(op) => norm::rms(op, call),
        Op::Rope(op) => rope::compose(op, call),
        Op::SetRows(_) => index::set_rows(call),
        Op::SoftMax(op) => soft_max::compose(op, call),
        Op::SsmConv(_) => state_space::conv(call),
        Op::SsmScan(_) => state_space::scan(call),
        Op::Unary(op) => unary::compose(op, call),
        Op::Upscale(op) => arrange::upscale(op, call),
        Op::MulMatGated(_) | Op::Reshape(_) => Err(format!("{} is not composed", op.name())),
    }
}

/// How an operator is computed on tensors of these types, or why it is not.
pub fn profile(op: &Op, inputs: &[TensorType], output: &TensorType, chip: &Chip) -> Result<Profile, String> {
    let named = |problem: String| format!("{}: {problem}", op.name());
    expect_inferred(op, inputs, output)?;
    if !chip.bf16 && inputs.iter().chain([output]).any(|ty| ty.dtype == DType::Bf16) && !op.is_view() {
        return Err(named(format!("chip {} has no bf16", chip.name)));
    }
    let profile = declared(op, inputs, chip).map_err(named)?;
    let rounded = if profile.output == DType::F16 { DType::F16 } else { output.dtype };
    Ok(Profile { output: rounded, order: order(op), ..profile })
}

/// The order of the operator's sums. The vendor publishes none.
fn order(op: &Op) -> Order {
    let adds = matches!(
        op,
        Op::FlashAttn(_)
            | Op::KvAttention(_)
            | Op::KvMix(_)
            | Op::KvScores(_)
            | Op::MulMat(_)
            | Op::MulMatId(_)
            | Op::Norm(_)
            | Op::Pool2d(_)
            | Op::Reduce(_)
            | Op::RmsNorm(_)
            | Op::SoftMax(_)
            | Op::SsmConv(_)
            | Op::SsmScan(_)
    );
    if adds { Order::Any } else { Order::Lanes }
}

/// Asks the card for an operator.
pub fn compute(engine: &Engine, step: &Step) -> Result<(), String> {
    let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
    let told = |problem: String| {
        let inputs: Vec<String> = types.iter().map(TensorType::to_string).collect();
        format!("node {}, {}({}) -> {}: {problem}", step.node, step.op.name(), inputs.join(", "), step.output.ty)
    };
    profile(&step.op, &types, &step.output.ty, engine.chip)?;
    if step.op.is_view() {
        return Ok(());
    }
    let here = |tensor| Memory::here(tensor, engine.card()).map_err(told);
    step.inputs.iter().try_for_each(|input| here(input).map(drop))?;
    here(&step.output)?.is_written_by_operator();
    if step.output.ty.shape.elements() == 0 {
        return Ok(());
    }
    compose(&step.op, &Call { engine, step }).map_err(told)
}

/// Elements in f32, one by one.
const ELEMENTWISE: Profile = Profile::F32;

/// Error of the vendor's functions in units in the last place of f32: no document says it; the simulator's are exact.
const FUNCTION_ULP: f32 = 8.0;

/// `USE_FP16`: both matrices are rounded to f16, sums are f32.
const F16_PRODUCTS: i8 = 2;
/// `KEEP_DTYPE`: both matrices are used as they are.
const KEPT_PRODUCTS: i8 = 0;

/// One.
const ONE: Scalar = Scalar::F32(1.0);

/// One operator's tensors, and where it is computed.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Where operators are asked for.
    pub engine: &'a Engine,
    step: &'a Step,
}

impl Call<'_> {
    /// The type of an input.
    fn ty(&self, place: usize) -> &TensorType {
        &self.step.inputs[place].ty
    }

    /// How many inputs there are.
    fn inputs(&self) -> usize {
        self.step.inputs.len()
    }

    /// An input as operators see it, outermost dimension first; of blocks see [`Call::matrices`].
    fn input(&self, place: usize) -> Result<Array, String> {
        array(&self.step.inputs[place])
    }

    /// An input in f32.
    fn input_f32(&self, place: usize) -> Result<Seen, String> {
        let array = self.input(place)?;
        if array.ty == Type::F32 {
            return Ok(Seen::Here(array));
        }
        let room = self.engine.room(Type::F32, &array.sizes)?;
        self.engine.queue.cast(&array, Type::F32, &room)?;
        Ok(Seen::There(room))
    }

    /// Whether operators see an input as blocks.
    fn is_in_blocks(&self, place: usize) -> Result<bool, String> {
        let tensor = &self.step.inputs[place];
        Ok(Memory::of(tensor)?.is_in_blocks(tensor))
    }

    /// The type that a weight is stored as.
    fn weight_type(&self, place: usize) -> DType {
        let dtype = self.ty(place).dtype;
        self.engine.chip.decoded_type(dtype).unwrap_or(dtype)
    }

    /// The matrices of an input in blocks.
    fn matrices(&self, place: usize) -> Result<Vec<Matrix>, String> {
        let tensor = &self.step.inputs[place];
        Memory::of(tensor)?.matrices(tensor)
    }

    /// The matrices of a result in blocks.
    fn output_matrices(&self) -> Result<Vec<Matrix>, String> {
        Memory::of(&self.step.output)?.matrices(&self.step.output)
    }

    /// Where the result goes: without gaps.
    fn output(&self) -> Result<Array, String> {
        array(&self.step.output)
    }

    /// What an input holds: as the host wrote it, or as the card computed it, which is waited for.
    fn bytes(&self, place: usize) -> Result<Vec<u8>, String> {
        let tensor = &self.step.inputs[place];
        let memory = Memory::of(tensor)?;
        if let Some(written) = memory.written(tensor) {
            return Ok(written);
        }
        self.engine.looks_at_results()?;
        let mut bytes = vec![0; tensor.ty.bytes()];
        memory.read(&self.engine.transfers, tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// Indices of an input, each below `count`: the card follows them without a look. What is composed of them fits
    /// these alone.
    fn indices(&self, place: usize, count: usize) -> Result<Vec<i32>, String> {
        let indices = self.checked(place, count)?;
        self.engine.needs(place, Must::Be(indices.clone()));
        Ok(indices)
    }

    /// How many indices an input has, each below `count`. What is composed fits any such.
    fn index_count(&self, place: usize, count: usize) -> Result<i64, String> {
        let indices = self.checked(place, count)?;
        self.engine.needs(place, Must::LieBelow(count));
        Ok(indices.len() as i64)
    }

    /// Indices of an input, each below `count`; what relies on them says so itself.
    fn checked(&self, place: usize, count: usize) -> Result<Vec<i32>, String> {
        let indices = integers(&self.bytes(place)?);
        match outside(&indices, count) {
            Some(index) => Err(format!("index {index} is out of the range 0 to {}", count as i64 - 1)),
            None => Ok(indices),
        }
    }

    /// Numbers of the host, which follow from the bytes of some inputs and from what the name says.
    fn table(&self, name: &str, sizes: &[i64], places: &[usize], numbers: Numbers) -> Result<Array, String> {
        let bytes = places.iter().map(|place| self.bytes(*place)).collect::<Result<Vec<_>, String>>()?;
        let place = |place: &usize| {
            let tensor = &self.step.inputs[*place];
            format!("{:p}+{} {}", Arc::as_ptr(&tensor.buffer.0), tensor.offset_bytes, tensor.ty)
        };
        let inputs: Vec<String> = places.iter().map(place).collect();
        let name = format!("{name} {sizes:?} of {}", inputs.join(", "));
        self.engine.table(name, sizes, (places, &bytes), numbers)
    }

    /// Room for elements behind each other.
    fn room(&self, ty: Type, sizes: &[i64]) -> Result<Room, String> {
        self.engine.room(ty, sizes)
    }

    /// Gives elements without gaps to work that writes them, and copies them to where they belong if that has gaps.
    fn dense(&self, out: &Array, work: impl FnOnce(&Array) -> Result<(), String>) -> Result<(), String> {
        if out.is_dense() {
            return work(out);
        }
        let room = self.room(out.ty, &out.sizes)?;
        work(&room)?;
        self.engine.queue.copy_to(out, &room)
    }

    /// An array of the same elements without gaps.
    fn gathered(&self, array: &Array, ty: Type) -> Result<Seen, String> {
        if array.is_dense() && array.ty == ty {
            return Ok(Seen::Here(array.clone()));
        }
        let room = self.room(ty, &array.sizes)?;
        self.engine.queue.copy_to(&room, array)?;
        Ok(Seen::There(room))
    }
}

/// Elements where they lie, or in lent room.
enum Seen {
    Here(Array),
    There(Room),
}

impl std::ops::Deref for Seen {
    type Target = Array;

    fn deref(&self) -> &Array {
        match self {
            Seen::Here(array) => array,
            Seen::There(room) => room,
        }
    }
}

fn array(tensor: &Tensor) -> Result<Array, String> {
    Memory::of(tensor)?.array(tensor)
}

/// Brings arrays, each repeated along some dimensions to the sizes of the first, into forms in which operators repeat
/// dimensions of size 1 only: where `[6]` meets `[3]`, `[2, 3]` meets `[1, 3]`.
fn broadcast<const N: usize>(arrays: [Array; N]) -> Result<[Array; N], String> {
    let mut arrays = arrays;
    for d in (0..arrays[0].sizes.len()).rev() {
        let whole = arrays[0].sizes[d];
        let part = arrays.iter().map(|array| array.sizes[d]).filter(|size| *size != 1 && *size != whole).min();
        let Some(part) = part else { continue };
        let fits = |size: i64| size == 1 || size == part || size == whole;
        if !arrays.iter().all(|array| fits(array.sizes[d])) {
            return Err("inputs are broadcast in more than one way along a dimension".to_owned());
        }
        arrays = arrays.map(|array| match array.sizes[d] {
            size if size == whole => array.split(d, whole / part),
            _ => array.inserted(d),
        });
    }
    Ok(arrays)
}

fn expect_f32(what: &str, ty: &TensorType) -> Result<(), String> {
    if ty.dtype == DType::F32 { Ok(()) } else { Err(format!("{what} must be f32, not {}", ty.dtype)) }
}

fn expect_plain(what: &str, ty: &TensorType) -> Result<(), String> {
    let plain = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16);
    if plain { Ok(()) } else { Err(format!("{what} must be f32, f16 or bf16, not {}", ty.dtype)) }
}

fn expect_known(what: &str, ty: &TensorType) -> Result<(), String> {
    element_type(ty.dtype).map(|_| ()).ok_or_else(|| format!("{what} cannot be {}", ty.dtype))
}
