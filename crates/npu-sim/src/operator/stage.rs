//! What an operator's work stands on when it runs: the memory, its operands, the chip, and what was drawn for this
//! launch.

use super::Operand;
use crate::{
    chip::Chip,
    element::{Number, Type, through_bf16, through_f16},
    memory::{Fault, Memory},
    settings::FaultKind,
    status::AICORE_EXCEPTION,
    view::View,
};
use std::any::TypeId;

/// An operand of the work, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub usize);

/// What the seed drew for a launch.
#[derive(Debug, Clone, Default)]
pub struct Drawn {
    /// What goes wrong in it.
    pub faults: Vec<FaultKind>,
    /// Where further draws begin.
    pub seed: u64,
    /// Whether sums are made in a drawn order.
    pub permuted: bool,
}

/// The order in which the terms of a sum are added: index i is taken in the place (i * step + start) mod n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    start: u64,
    step: u64,
    terms: u64,
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl Order {
    /// The `place`-th term's index.
    pub fn index(&self, place: usize) -> usize {
        ((place as u64 * self.step + self.start) % self.terms) as usize
    }

    /// Whether it is the rising order.
    pub fn is_forward(&self) -> bool {
        self.start == 0 && self.step == 1
    }

    /// Moves terms to the places where they are taken.
    pub fn apply(&self, terms: &mut [f32], spare: &mut Vec<f32>) {
        if self.is_forward() {
            return;
        }
        spare.clear();
        spare.extend((0..terms.len()).map(|place| terms[self.index(place)]));
        terms.copy_from_slice(spare);
    }
}

impl Drawn {
    /// A number drawn for a purpose.
    pub fn number(&self, purpose: u64) -> u64 {
        let mut state =
            self.seed.wrapping_add(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ state >> 31
    }

    /// The order of sums of so many terms.
    pub fn order(&self, terms: usize) -> Order {
        let terms = terms.max(1) as u64;
        if !self.permuted {
            return Order { start: 0, step: 1, terms };
        }
        let from = 1 + self.number(1) % terms;
        let step = (from..).find(|&step| common_divisor(step, terms) == 1).unwrap_or(1);
        Order { start: self.number(2) % terms, step: step % terms.max(2), terms }
    }

    /// Whether a fault was drawn.
    pub fn has(&self, fault: FaultKind) -> bool {
        self.faults.contains(&fault)
    }
}

/// Rounds f32 numbers to a type and back.
pub fn round_to(values: &mut [f32], ty: Type, chip: &Chip) {
    match ty {
        Type::F16 => through_f16(values, chip.f16_saturates),
        Type::Bf16 => through_bf16(values),
        _ => {}
    }
}

/// Rounds f64 numbers to f32 and then to a type.
pub fn round_doubles(values: &mut [f64], ty: Type, chip: &Chip) {
    let mut single: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    round_to(&mut single, ty, chip);
    values.iter_mut().zip(single).for_each(|(value, single)| *value = single.into());
}

/// The place of an operator's work.
pub struct Stage<'a> {
    /// The card's memory.
    pub memory: &'a Memory,
    /// The operands, at the addresses of this launch.
    pub operands: &'a [Operand],
    /// The chip.
    pub chip: &'static Chip,
    /// What was drawn.
    pub drawn: &'a Drawn,
}

impl Stage<'_> {
    /// The view of an operand.
    pub fn view(&self, slot: Slot) -> &View {
        &self.operands[slot.0].view
    }

    /// What the device does with an operand that holds what it must not: the launch ends in 507015.
    pub fn trap(&self, slot: Slot, what: impl Into<String>) -> Fault {
        Fault { argument: self.operands[slot.0].argument, ..Fault::new(AICORE_EXCEPTION, what) }
    }

    /// The elements of an operand, packed.
    pub fn read<T: Number>(&self, slot: Slot) -> Result<Vec<T>, Fault> {
        self.read_view(self.view(slot))
    }

    /// The elements of an operand stretched to a shape.
    pub fn read_as<T: Number>(&self, slot: Slot, shape: &[u64]) -> Result<Vec<T>, Fault> {
        let stretched = self.view(slot).broadcast(shape);
        self.read_view(stretched.as_ref().unwrap_or(self.view(slot)))
    }

    /// The elements of a view; through f16 where that fault was drawn.
    pub fn read_view<T: Number>(&self, view: &View) -> Result<Vec<T>, Fault> {
        let mut values: Vec<T> = view.read(self.memory)?;
        if view.ty == Type::F32 && TypeId::of::<T>() == TypeId::of::<f32>() && self.drawn.has(FaultKind::ThroughF16) {
            let mut rounded: Vec<f32> = values.iter().map(|value| value.f32()).collect();
            through_f16(&mut rounded, self.chip.f16_saturates);
            values = rounded.into_iter().map(T::of_f32).collect();
        }
        Ok(values)
    }

    /// Writes an operand from packed numbers.
    pub fn write<T: Number>(&self, slot: Slot, values: &[T]) -> Result<(), Fault> {
        self.write_view(self.view(slot), values)
    }

    /// Writes a view from packed numbers.
    pub fn write_view<T: Number>(&self, view: &View, values: &[T]) -> Result<(), Fault> {
        view.write(self.memory, values, self.chip.f16_saturates)
    }

    /// The sum of numbers in this launch's order, in f32.
    pub fn sum(&self, values: &[f32]) -> f32 {
        let order = self.drawn.order(values.len());
        if order.is_forward() {
            return values.iter().sum();
        }
        (0..values.len()).map(|place| values[order.index(place)]).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_order_takes_each_term_once() {
        for terms in [1usize, 2, 3, 16, 31, 257] {
            for seed in 0..20 {
                let order = Drawn { seed, permuted: true, ..Drawn::default() }.order(terms);
                let mut taken: Vec<usize> = (0..terms).map(|place| order.index(place)).collect();
                taken.sort_unstable();
                assert_eq!(taken, (0..terms).collect::<Vec<_>>(), "{terms} terms, seed {seed}");
            }
        }
        assert!(Drawn::default().order(5).is_forward());
    }
}
