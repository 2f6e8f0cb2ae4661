//! A plan with its buffers: steps that a device can execute as they are.

use super::cache::State;
use crate::device::{ARENA_ALIGN_BYTES, Buffer, Device, Rooms, Step, Tensor, Usage};
use crate::error::Result;
use crate::plan::{Place, Plan, WeightUses};
use crate::weights::Weights;
use std::collections::HashMap;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Input, Origin, StateKind, TensorType, ValueId};

/// Weights leave 1/`FREE_SHARE` of the free memory unused.
const FREE_SHARE: u64 = 16;

/// A plan whose tensors lie in buffers.
pub(super) struct BoundPlan {
    pub plan: Arc<Plan>,
    pub pieces: Vec<BoundPiece>,
    /// What the host fills in: which input, on which device, where.
    pub inputs: Vec<(Input, usize, Tensor)>,
}

impl BoundPlan {
    /// Bytes of memory that its inputs take, on all devices.
    pub fn input_bytes(&self) -> usize {
        self.inputs.iter().map(|(_, _, tensor)| tensor.ty.bytes()).sum()
    }
}

/// Steps that one device executes without a break, and what it needs from others before.
pub(super) struct BoundPiece {
    pub device: usize,
    pub copies: Vec<BoundCopy>,
    pub steps: Vec<Step>,
}

/// A tensor that another device computed.
pub(super) struct BoundCopy {
    pub from: usize,
    pub source: Tensor,
    pub target: Tensor,
}

/// Buffers that outlive a plan: arenas, which grow, and states.
#[derive(Default)]
pub(super) struct Buffers {
    arenas: HashMap<usize, (usize, Buffer)>,
    /// Scratch memory of each device: for each slot, the maximum over the plans that fit so far.
    rooms: HashMap<usize, Rooms>,
    /// Bytes of inputs on each device: the maximum over the plans that fit so far.
    inputs: HashMap<usize, usize>,
    pub(super) states: HashMap<(usize, String), State>,
}

impl Buffers {
    /// Whether a plan fits into the existing arenas and the scratch and input memory already accounted for.
    pub fn hold(&self, plan: &Plan) -> bool {
        (0..plan.devices()).all(|device| {
            let found = self.rooms.get(&device).copied().unwrap_or_default();
            let has_rooms = plan.rooms(device).into_iter().zip(found).all(|(needed, found)| needed <= found);
            let has_inputs = self.inputs.get(&device).is_some_and(|found| *found >= input_bytes(plan, device));
            has_rooms && has_inputs && self.arena_bytes(device) >= plan.arena_bytes(device)
        })
    }

    /// Checks that the memory that a plan still needs is free on each device that reports its free memory. Weights of
    /// layers that do not fit stay in the mapped file if the device can compute from it. `largest` returns the largest
    /// plans expected later. Returns an error if the plan does not fit even with mapped weights.
    pub fn expect_room(&self, plan: &Plan, largest: &dyn Fn() -> Vec<Plan>, weights: &Weights) -> Result<()> {
        let uses = WeightUses::new(plan.graph());
        for (index, device) in weights.devices().iter().enumerate() {
            let about = device.about();
            let free = about.memory.map_or(u64::MAX, |(_, free)| free);
            let held = || plan.held(index).map(|id| plan.graph().value(id));
            let taken = |bytes: usize| device.taken_bytes(bytes as u64);
            let arena = taken(plan.arena_bytes(index)).saturating_sub(taken(self.arena_bytes(index)));
            let others = held().filter(|value| match value.origin {
                Origin::State(_) => !self.states.contains_key(&(index, value.name.clone())),
                Origin::Input(_) => true,
                Origin::Weight | Origin::Node(_) => false,
            });
            let counted = arena.saturating_add(self.missing_scratch(plan, index, &**device));
            let others = others.fold(counted, |sum, value| sum.saturating_add(taken(value.ty.bytes())));
            let missing = || {
                let of_file = held().filter(|value| value.origin == Origin::Weight);
                of_file.filter(|value| !weights.is_uploaded(index, &value.name))
            };
            let expect = |what: &str, needed: u64| {
                let remedy = "reduce the context (-c), or use fewer sequences, shorter prompts or a smaller model";
                if needed <= free { Ok(()) } else { Err(about.too_little_memory(what, needed, remedy)) }
            };
            expect("KV cache and intermediate results need", others)?;
            let to_place: Vec<(&str, TensorType)> = missing().map(|value| (value.name.as_str(), value.ty)).collect();
            if !to_place.is_empty() {
                let gathered = missing().filter(|value| uses.is_gathered(value));
                gathered
                    .map(|value| (value.name.as_str(), value.ty))
                    .try_for_each(|weight| weights.leave(index, weight))?;
                let later = later_bytes(plan, &largest(), index, counted);
                let kept_free = others.saturating_add(later).saturating_add(free / FREE_SHARE);
                weights.place(index, &to_place, free.saturating_sub(kept_free))?;
            }
            let needed = missing().fold(others, |sum, value| sum.saturating_add(uses.bytes(value, &**device)));
            // A smaller session may find room for what this one would have left in the file.
            expect("weights, KV cache and intermediate results need", needed)
                .inspect_err(|_| weights.forget_mapped(index, &to_place))?;
        }
        Ok(())
    }

    /// Makes arenas large enough. Plans bound before still point to the old ones and must be dropped first.
    pub fn grow(&mut self, plan: &Plan, devices: &[Arc<dyn Device>]) -> Result<()> {
        for (index, device) in devices.iter().enumerate() {
            let bytes = plan.arena_bytes(index).next_multiple_of(ARENA_ALIGN_BYTES);
            if bytes > self.arena_bytes(index) {
                self.arenas.remove(&index);
                let buffer = device.alloc(&TensorType::new(DType::I8, &[bytes]), Usage::Arena)?;
                self.arenas.insert(index, (bytes, buffer));
            }
            let rooms = self.rooms.entry(index).or_default();
            rooms.iter_mut().zip(plan.rooms(index)).for_each(|(room, needed)| *room = needed.max(*room));
            let inputs = self.inputs.entry(index).or_default();
            *inputs = input_bytes(plan, index).max(*inputs);
        }
        Ok(())
    }

    /// Assigns a buffer to every tensor of a plan. Arenas must be large enough.
    pub fn bind(&mut self, plan: &Arc<Plan>, weights: &Weights) -> Result<BoundPlan> {
        let mut owned: HashMap<(usize, ValueId), Tensor> = HashMap::new();
        let mut inputs = Vec::new();
        for device in 0..plan.devices() {
            for id in plan.held(device) {
                let value = plan.graph().value(id);
                let tensor = match value.origin {
                    Origin::Weight => weights.tensor(device, &value.name, &value.ty)?,
                    Origin::State(kind) => self.state(device, &value.name, (kind, &value.ty), weights)?,
                    Origin::Input(input) => {
                        let tensor = alloc(&*weights.devices()[device], &value.ty, Usage::Input)?;
                        inputs.push((input, device, tensor.clone()));
                        tensor
                    }
                    Origin::Node(_) => unreachable!("{} has its place in the arena", value.name),
                };
                owned.insert((device, id), tensor);
            }
        }
        let pieces = plan.pieces().iter().map(|piece| self.bind_piece(plan, piece, &owned)).collect();
        Ok(BoundPlan { pieces, inputs, plan: plan.clone() })
    }

    fn bind_piece(
        &self,
        plan: &Plan,
        piece: &crate::plan::Piece,
        owned: &HashMap<(usize, ValueId), Tensor>,
    ) -> BoundPiece {
        let tensor = |id: ValueId, device: usize| {
            let ty = plan.graph().value(id).ty;
            match plan.place(id, device) {
                Place::Arena(offset_bytes) => Tensor { buffer: self.arenas[&device].1.clone(), offset_bytes, ty },
                Place::Own(root) => Tensor { ty, ..owned[&(device, root)].clone() },
            }
        };
        let copy = |(id, from): &(ValueId, usize)| BoundCopy {
            from: *from,
            source: tensor(*id, *from),
            target: tensor(*id, piece.device),
        };
        let step = |index: usize| {
            let node = &plan.graph().nodes()[index];
            let inputs = node.inputs.iter().map(|input| tensor(*input, piece.device)).collect();
            Step { node: index, op: node.op.clone(), inputs, output: tensor(node.output, piece.device) }
        };
        BoundPiece {
            device: piece.device,
            copies: piece.copies.iter().map(copy).collect(),
            steps: piece.nodes.clone().map(step).collect(),
        }
    }

    fn state(
        &mut self,
        device: usize,
        name: &str,
        (kind, ty): (StateKind, &TensorType),
        weights: &Weights,
    ) -> Result<Tensor> {
        let key = (device, name.to_owned());
        if let Some(State { tensor, .. }) = self.states.get(&key) {
            return Ok(tensor.clone());
        }
        let tensor = alloc(&*weights.devices()[device], ty, Usage::State)?;
        self.states.insert(key, State { kind, tensor: tensor.clone() });
        Ok(tensor)
    }

    /// Bytes of additional scratch memory that a device needs for a plan, in excess of what it holds or what was
    /// already accounted for.
    fn missing_scratch(&self, plan: &Plan, index: usize, device: &dyn Device) -> u64 {
        let found = self.rooms.get(&index).copied().unwrap_or_default();
        let there = found.into_iter().zip(device.scratch_held()).map(|(found, held)| found.max(held));
        let taken = |bytes: usize| device.taken_bytes(bytes as u64);
        let missing = plan.rooms(index).into_iter().zip(there);
        missing.map(|(needed, there)| taken(needed).saturating_sub(taken(there))).fold(0, u64::saturating_add)
    }

    fn arena_bytes(&self, device: usize) -> usize {
        self.arenas.get(&device).map_or(0, |(bytes, _)| *bytes)
    }
}

/// Bytes of the inputs on a device.
fn input_bytes(plan: &Plan, device: usize) -> usize {
    let values = plan.held(device).map(|id| plan.graph().value(id));
    values.filter(|value| matches!(value.origin, Origin::Input(_))).map(|value| value.ty.bytes()).sum()
}

/// Additional bytes that the largest plans need on device `index`: intermediate results and scratch memory, less the
/// `counted` bytes of `plan` itself, plus the growth of the cache compared with `plan`. The plans share their
/// memory for intermediate results.
fn later_bytes(plan: &Plan, largest: &[Plan], index: usize, counted: u64) -> u64 {
    let cache = |plan: &Plan| {
        let states = plan.held(index).map(|id| plan.graph().value(id)).filter(|value| value.origin.is_state());
        states.map(|value| value.ty.bytes() as u64).fold(0, u64::saturating_add)
    };
    let most = |bytes: &dyn Fn(&Plan) -> u64| largest.iter().map(bytes).max().unwrap_or(0);
    let results =
        most(&|plan| plan.arena_bytes(index) as u64).saturating_add(most(&|plan| plan.scratch_bytes(index) as u64));
    results.saturating_sub(counted).saturating_add(most(&cache).saturating_sub(cache(plan)))
}

fn alloc(device: &dyn Device, ty: &TensorType, usage: Usage) -> Result<Tensor> {
    Ok(Tensor { buffer: device.alloc(ty, usage)?, offset_bytes: 0, ty: *ty })
}
