//! The first phase of one call: the rules that its arguments are held to, and the operands that its work gets.

use super::{
    Operand,
    argument::Tensor,
    kernels::{Listed, Types, listed},
    stage::Slot,
};
use crate::{
    chip::Chip,
    element::Type,
    status::{OPERATOR_RUNTIME, PARAMETER_INVALID, Refusal},
    view::View,
};

/// A call whose arguments are being judged.
pub struct Call {
    /// The operator with `aclnn`.
    pub name: &'static str,
    /// The chip of the thread's card.
    pub chip: &'static Chip,
    /// What the work gets.
    pub operands: Vec<Operand>,
    /// Bytes of workspace that it asks for.
    pub workspace: u64,
    /// Whether the device may find numbers of an operand wrong, and end in an error.
    pub traps: bool,
    apart: bool,
}

/// Sizes as text.
pub fn sizes(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

/// The shape that two shapes stretch to; none where they do not fit.
pub fn broadcast(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let pair = |axis| match (size(a, axis), size(b, axis)) {
        (a, b) if a == b => Some(a),
        (1, b) => Some(b),
        (a, 1) => Some(a),
        _ => None,
    };
    (0..rank).map(pair).collect()
}

impl Call {
    /// A call of an operator.
    pub fn new(name: &'static str, chip: &'static Chip) -> Self {
        Self { name, chip, operands: Vec::new(), workspace: 0, traps: false, apart: false }
    }

    /// A refusal about an argument: 161002.
    pub fn refusal(&self, argument: &str, what: impl AsRef<str>) -> Refusal {
        Refusal::new(PARAMETER_INVALID, format!("{}: {argument} {}", self.name, what.as_ref()))
    }

    /// Refuses unless a rule holds.
    pub fn require(&self, holds: bool, argument: &str, what: impl FnOnce() -> String) -> Result<(), Refusal> {
        if holds { Ok(()) } else { Err(self.refusal(argument, what())) }
    }

    /// Refuses an optional argument that the operator does not do here.
    pub fn absent<T>(&self, given: &Option<T>, argument: &str) -> Result<(), Refusal> {
        self.require(given.is_none(), argument, || {
            "is not null, and the simulator supports only the form without it".to_owned()
        })
    }

    /// Refuses a chip without the operator: 361001.
    pub fn on_chip(&self, has: bool) -> Result<(), Refusal> {
        let message = || format!("{}: no kernel exists for {}", self.name, self.chip.soc);
        if has { Ok(()) } else { Err(Refusal::new(OPERATOR_RUNTIME, message())) }
    }

    /// Judges the first operand's type: by the pages' list and by the chip's list for the kernel.
    pub fn kernel(&self, tensor: &Tensor, kernel: &str, pages: &str) -> Result<(), Refusal> {
        let pages = Types::of(pages);
        let types = match listed(kernel, self.chip) {
            Listed::Absent => return self.on_chip(false),
            Listed::Open => pages,
            Listed::Of(types) => types.and(pages),
        };
        self.typed_in(tensor, types)
    }

    /// Judges a tensor's type by a list.
    pub fn typed(&self, tensor: &Tensor, types: &str) -> Result<(), Refusal> {
        self.typed_in(tensor, Types::of(types))
    }

    fn typed_in(&self, tensor: &Tensor, mut types: Types) -> Result<(), Refusal> {
        if !self.chip.bf16 {
            types = types.without(Type::Bf16);
        }
        if !self.chip.int4 {
            types = types.without(Type::I4);
        }
        self.plain(tensor)?;
        self.require(types.contains(tensor.ty()), tensor.argument, || {
            format!("is {}, {} supports {}", tensor.ty(), self.chip.soc, types.names())
        })
    }

    /// Refuses a private format.
    pub fn plain(&self, tensor: &Tensor) -> Result<(), Refusal> {
        self.require(!tensor.is_nz(), tensor.argument, || "is FRACTAL_NZ, which only products support".to_owned())
    }

    /// Refuses a type other than one.
    pub fn type_is(&self, tensor: &Tensor, ty: Type) -> Result<(), Refusal> {
        self.plain(tensor)?;
        self.require(tensor.ty() == ty, tensor.argument, || format!("is {}, {ty} is expected", tensor.ty()))
    }

    /// Refuses a rank outside of a range.
    pub fn rank(&self, tensor: &Tensor, ranks: std::ops::RangeInclusive<usize>) -> Result<(), Refusal> {
        self.require(ranks.contains(&tensor.rank()), tensor.argument, || {
            format!("has {} axes, {} to {} are taken", tensor.rank(), ranks.start(), ranks.end())
        })
    }

    /// Refuses another shape.
    pub fn shape(&self, tensor: &Tensor, shape: &[u64]) -> Result<(), Refusal> {
        self.require(tensor.shape() == shape, tensor.argument, || {
            format!("has the shape {}, {} is expected", sizes(tensor.shape()), sizes(shape))
        })
    }

    /// Refuses a view that is not packed.
    pub fn packed(&self, tensor: &Tensor) -> Result<(), Refusal> {
        self.require(tensor.view.is_packed(), tensor.argument, || {
            "is not contiguous, and this operator does not support strided views".to_owned()
        })
    }

    /// The axis that a number means: negative ones count from the end.
    pub fn axis(&self, tensor: &Tensor, axis: i64, argument: &str) -> Result<usize, Refusal> {
        let rank = tensor.rank().max(1) as i64;
        let found = if axis < 0 { axis + rank } else { axis };
        self.require((0..rank).contains(&found), argument, || {
            format!("is {axis}, {} has {} axes", tensor.argument, tensor.rank())
        })?;
        Ok(found as usize)
    }

    /// The axes that a list means, each once, rising; none for a tensor without axes.
    pub fn axes(&self, tensor: &Tensor, axes: &[i64], argument: &str) -> Result<Vec<usize>, Refusal> {
        let mut found = axes.iter().map(|&axis| self.axis(tensor, axis, argument)).collect::<Result<Vec<_>, _>>()?;
        found.sort_unstable();
        let once = found.windows(2).all(|pair| pair[0] != pair[1]);
        self.require(once, argument, || "refers to an axis twice".to_owned())?;
        found.truncate(tensor.rank());
        Ok(found)
    }

    /// The type of a code given as an argument.
    pub fn type_of_code(&self, code: i32, argument: &str) -> Result<Type, Refusal> {
        Type::of(code).ok_or_else(|| {
            self.refusal(
                argument,
                format!(
                    "is {code}, which is not a type that simulated \
                operators support"
                ),
            )
        })
    }

    /// The type in which two tensors meet.
    pub fn promoted(&self, a: &Tensor, b: &Tensor) -> Result<Type, Refusal> {
        let meeting = a.ty().promoted(b.ty());
        meeting.ok_or_else(|| {
            self.refusal(b.argument, format!("is {}, which does not meet {} ({})", b.ty(), a.ty(), a.argument))
        })
    }

    /// Refuses a result type that a type does not convert to: no float becomes an integer unasked.
    pub fn converts(&self, from: Type, out: &Tensor) -> Result<(), Refusal> {
        self.typed_in(out, Types::common())?;
        let loses = from.is_float() && !out.ty().is_float();
        self.require(!loses, out.argument, || format!("is {}, and {from} does not convert to it", out.ty()))
    }

    /// Says that the results may not lie where any operand lies, not even at the same place.
    pub fn keep_apart(&mut self) {
        self.apart = true;
    }

    /// An operand that is read, and of which the device may find numbers wrong.
    pub fn trapped(&mut self, tensor: &Tensor) -> Slot {
        self.traps = true;
        self.input(tensor)
    }

    fn operand(&mut self, tensor: &Tensor, reads: bool, writes: bool) -> Slot {
        let operand = Operand { argument: tensor.argument, view: tensor.view.clone(), reads, writes, place: None };
        self.operands.push(operand);
        Slot(self.operands.len() - 1)
    }

    /// An operand that is read.
    pub fn input(&mut self, tensor: &Tensor) -> Slot {
        self.operand(tensor, true, false)
    }

    /// An operand that may be missing.
    pub fn optional(&mut self, tensor: Option<&Tensor>) -> Option<Slot> {
        tensor.map(|tensor| self.input(tensor))
    }

    /// The members of a list, read.
    pub fn inputs(&mut self, tensors: &[Tensor]) -> Vec<Slot> {
        let slots = tensors.iter().map(|tensor| self.input(tensor)).collect::<Vec<_>>();
        for (place, slot) in slots.iter().enumerate() {
            self.operands[slot.0].place = Some(place);
        }
        slots
    }

    /// An operand that is written.
    pub fn output(&mut self, tensor: &Tensor) -> Slot {
        self.operand(tensor, false, true)
    }

    /// The members of a list, written.
    pub fn outputs(&mut self, tensors: &[Tensor]) -> Vec<Slot> {
        let slots = tensors.iter().map(|tensor| self.output(tensor)).collect::<Vec<_>>();
        for (place, slot) in slots.iter().enumerate() {
            self.operands[slot.0].place = Some(place);
        }
        slots
    }

    /// An operand that is read and written.
    pub fn in_place(&mut self, tensor: &Tensor) -> Slot {
        self.operand(tensor, true, true)
    }

    /// Bytes of workspace, at least these; rounded up as the vendor does.
    pub fn asks(&mut self, bytes: u64) {
        self.workspace = self.workspace.max(bytes.next_multiple_of(512));
    }

    /// The rules for where results lie: no element twice, and none on bytes of an operand, unless it is the same view.
    pub fn finish(&self) -> Result<(), Refusal> {
        for (index, out) in self.operands.iter().enumerate().filter(|(_, operand)| operand.writes) {
            self.require(!out.view.repeats_elements(), out.argument, || {
                "is written, and two of its indices lead to one element".to_owned()
            })?;
            for other in
                self.operands.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, operand)| operand)
            {
                let same = are_same(&out.view, &other.view) && !other.writes && !self.apart;
                self.require(same || !overlap(&out.view, &other.view), out.argument, || {
                    format!("overlaps bytes of {}, which the hardware would mix up", other.argument)
                })?;
            }
        }
        Ok(())
    }
}

/// Whether two views show the same bytes in the same order, however each says it.
fn are_same(a: &View, b: &View) -> bool {
    let first = |view: &View| view.at * 8 + view.offset * view.ty.bits();
    let steps = |view: &View| {
        let axes = view.shape.iter().zip(&view.strides).filter(|(size, _)| **size > 1);
        axes.map(|(_, stride)| *stride).collect::<Vec<_>>()
    };
    a.ty == b.ty && a.shape == b.shape && first(a) == first(b) && steps(a) == steps(b)
}

/// Whether two views share a byte. Those of more runs than are compared do, unless they are other columns of the same
/// rows.
fn overlap(a: &View, b: &View) -> bool {
    let (Some(a), Some(b)) = (a.runs(), b.runs()) else { return false };
    a.meet_runs(&b)
}
