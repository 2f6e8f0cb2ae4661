//! From steps to launches: what the kernels of some steps are given, in the order in which they run. Nothing runs here.
//!
//! ```text
//!  steps ─ operator.rs, one by one ─▶ Recorder ─▶ launches: kernel, grid, arguments ─▶ replay.rs: run, or a graph made of them
//! ```
//!
//! All that may wait or take memory happens here: modules are loaded, and the room in which operators compute is made large enough. A list can
//! be run as often as its tensors and that room stay where they are.

use super::driver::{Allocation, Argument, Card, Grid, Launch};
use super::faults::Faults;
use super::memory::{Divided, Memory};
use super::operator::{self, Call, Means, Operand};
use crate::device::{Step, Tensor};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use trueup_graph::TensorType;

/// Room in which operators compute one after the other, as large as any needed so far.
#[derive(Default, Debug)]
pub struct Scratch {
    room: Option<Allocation>,
}

impl Scratch {
    fn bytes(&self) -> usize {
        self.room.as_ref().map_or(0, Allocation::bytes)
    }

    /// Makes it larger. It lies elsewhere then, and launches that were recorded before must not run again.
    fn grow(&mut self, card: &Arc<Card>, bytes: usize) -> Result<(), String> {
        // What is too small goes first: both may not find room.
        self.room = None;
        let room = Allocation::new(card, bytes)?.ok_or_else(|| format!("no room for {bytes} bytes to compute in"))?;
        self.room = Some(room);
        Ok(())
    }
}

/// What takes the launches of operators while they are called.
#[derive(Debug)]
pub struct Recorder<'a> {
    card: &'a Card,
    means: &'a Means,
    faults: &'a Faults,
    /// Where the room is; 0 where there is none yet.
    room: u64,
    room_bytes: Cell<usize>,
    launches: RefCell<Vec<Launch>>,
}

impl<'a> Recorder<'a> {
    /// What products are computed by.
    pub fn means(&self) -> &'a Means {
        self.means
    }

    /// Takes the launch that brings a weight in planes into the file's form at an address; gives where its view begins there.
    pub fn join(&self, divided: &Divided, file: u64) -> Result<u64, String> {
        let (launch, address) = divided.join(self.card, file)?;
        self.launches.borrow_mut().push(launch);
        Ok(address)
    }

    /// Takes a launch.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<(), String> {
        self.launches.borrow_mut().push(self.card.launch(kernel, grid, arguments)?);
        Ok(())
    }

    /// Where kernels of an operator tell of an index that lies outside.
    pub fn fault(&self, operator: &str) -> u64 {
        self.faults.address(operator)
    }

    /// Where the room is. Where it is smaller than this, all is recorded once more when it is not.
    pub fn scratch(&self, bytes: usize) -> u64 {
        self.room_bytes.set(self.room_bytes.get().max(bytes));
        self.room
    }
}

/// The launches of steps, and whether the room lies elsewhere now.
pub fn record(
    card: &Arc<Card>,
    means: &Means,
    faults: &Faults,
    scratch: &mut Scratch,
    steps: &[Step],
) -> Result<(Vec<Launch>, bool), String> {
    let (launches, needed) = record_once(card, means, faults, scratch, steps)?;
    if needed <= scratch.bytes() {
        return Ok((launches, false));
    }
    scratch.grow(card, needed)?;
    record_once(card, means, faults, scratch, steps).map(|(launches, _)| (launches, true))
}

/// The launches, and the bytes of room that they need: they can run where there are as many.
fn record_once(
    card: &Card,
    means: &Means,
    faults: &Faults,
    scratch: &Scratch,
    steps: &[Step],
) -> Result<(Vec<Launch>, usize), String> {
    let room = scratch.room.as_ref().map_or(0, Allocation::address);
    let recorder = Recorder { card, means, faults, room, room_bytes: Cell::new(0), launches: RefCell::default() };
    steps.iter().try_for_each(|step| record_step(&recorder, step))?;
    Ok((recorder.launches.into_inner(), recorder.room_bytes.get()))
}

fn record_step(recorder: &Recorder, step: &Step) -> Result<(), String> {
    let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
    operator::profile(&step.op, &types, &step.output.ty, recorder.means)?;
    if step.op.is_view() || step.output.ty.shape.elements() == 0 {
        return Ok(());
    }
    let operand = |tensor: &Tensor| {
        let memory = Memory::of(tensor)?;
        Ok(Operand { ty: tensor.ty, view: memory.view(tensor), divided: memory.divided(tensor) })
    };
    let inputs = step.inputs.iter().map(operand).collect::<Result<Vec<Operand>, String>>()?;
    operator::launch(&step.op, &mut Call::new(recorder, step.op.name(), inputs, operand(&step.output)?))
}
