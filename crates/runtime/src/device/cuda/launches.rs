//! Translates steps into an ordered list of kernel launches with their arguments. Nothing runs here.
//!
//! ```text
//! steps ─ groups.rs: several at once; operator.rs: one by one ─▶ Recorder ─▶ launches: kernel, grid, arguments
//!                                                       ─▶ replay.rs: run one by one, or as a graph
//! ```
//!
//! Everything that may block or allocate happens here: modules are loaded, and scratch memory is made large enough. A
//! list can run repeatedly, as long as its tensors and the scratch memory stay in place.

use super::driver::{Allocation, Argument, BlasLibrary, Card, Grid, Launch, Sizes};
use super::faults::Faults;
use super::groups;
use super::memory::{Divided, Memory};
use super::operator::{self, Call, Form, Means, Operand};
use crate::device::{Rooms, Step, Tensor};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use trueup_graph::{Op, TensorType};

/// Rooms, each as large as any needed so far: where operators compute one after the other; two for activations in the
/// form that products take them in, which several may take, so that a launch which reads one can write the other, as
/// large as each other; and counters of what is done in a launch, which every launch finds and leaves zero.
#[derive(Default, Debug)]
pub struct Scratch {
    rooms: [Option<Allocation>; ROOMS],
}

const ROOMS: usize = 4;
const OPERATORS: usize = 0;
const ACTIVATIONS: [usize; 2] = [1, 2];
const COUNTERS: usize = 3;

/// What computing an operator takes beside tensors: what plans count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needed {
    /// Where it computes.
    pub operators: usize,
    /// Activations in the form that products take them in.
    pub activations: usize,
    /// How many counters.
    pub counters: usize,
    /// Where the vendor's library computes.
    pub workspace: usize,
    /// Where weights are repacked.
    pub repacked: usize,
}

impl Needed {
    /// For each room of the device: these, and behind them those that are not of launches.
    pub fn rooms(self) -> Rooms {
        let Needed { operators, activations, counters, workspace, repacked } = self;
        [operators, activations, activations, counters * size_of::<u32>(), workspace, repacked]
    }
}

impl Scratch {
    /// Where they begin; 0 where there is none yet.
    fn addresses(&self) -> [u64; ROOMS] {
        self.rooms.each_ref().map(|room| room.as_ref().map_or(0, Allocation::address))
    }

    /// Bytes of each room of the device that are taken, as [`Needed::rooms`] has them; those of weights that are
    /// repacked come and go.
    pub fn held(&self, blas: &BlasLibrary) -> Rooms {
        let [operators, one, other, counters] =
            self.rooms.each_ref().map(|room| room.as_ref().map_or(0, Allocation::bytes));
        [operators, one, other, counters, blas.workspace_bytes(), 0]
    }

    /// Makes what is smaller than this larger; whether there was something. That lies elsewhere then, and launches that
    /// were recorded before must not run again.
    fn grow(&mut self, card: &Arc<Card>, needed: [usize; ROOMS]) -> Result<bool, String> {
        let mut grown = false;
        let counters = self.rooms[COUNTERS].as_ref().map_or(0, Allocation::bytes);
        for (room, bytes) in self.rooms.iter_mut().zip(needed) {
            if room.as_ref().map_or(0, Allocation::bytes) < bytes {
                // What is too small goes first: both may not find room.
                *room = None;
                let larger = Allocation::new(card, bytes)?;
                *room = Some(larger.ok_or_else(|| format!("not enough memory for {bytes} bytes of scratch memory"))?);
                grown = true;
            }
        }
        if counters < needed[COUNTERS] {
            self.clear_counters()?;
        }
        Ok(grown)
    }

    /// Makes the counters zero, behind all that was asked for before: those that are new, and those that a launch which
    /// failed may have left.
    pub fn clear_counters(&self) -> Result<(), String> {
        self.rooms[COUNTERS].as_ref().map_or(Ok(()), Allocation::clear)
    }
}

/// What steps are recorded for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Where launches run.
    pub card: &'a Arc<Card>,
    /// What products are computed by.
    pub means: &'a Means,
    /// Where kernels tell of indices that lie outside.
    pub faults: &'a Faults,
    /// The vendor's library of products, where it is installed.
    pub blas: &'a BlasLibrary,
}

/// Activations in the form that products take them in.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Taken {
    form: Form,
    from: Operand,
}

/// What takes the launches of operators while they are called.
#[derive(Debug)]
pub struct Recorder<'a> {
    target: &'a Target<'a>,
    /// Where the rooms are; 0 where there is none yet.
    rooms: [u64; ROOMS],
    /// How large they must be.
    needed: Cell<[usize; ROOMS]>,
    /// What was brought last into a room for activations, and which of the two that is.
    taken: Cell<Option<Taken>>,
    last: Cell<usize>,
    launches: RefCell<Vec<Launch>>,
}

impl<'a> Recorder<'a> {
    /// What products are computed by.
    pub fn means(&self) -> &'a Means {
        self.target.means
    }

    /// Takes the launch that brings a weight in planes into the file's form at an address; gives where its view begins
    /// there.
    pub fn join(&self, divided: &Divided, file: u64) -> Result<u64, String> {
        let (launch, address) = divided.join(self.target.card, file)?;
        self.launches.borrow_mut().push(launch);
        Ok(address)
    }

    /// Takes a launch.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<(), String> {
        self.launches.borrow_mut().push(self.target.card.launch(kernel, grid, arguments)?);
        Ok(())
    }

    /// Takes a product by the vendor's library, of matrices at these addresses; whether it is installed and has a way
    /// for these sizes.
    pub fn multiply(&self, sizes: Sizes, matrices: [u64; 3]) -> bool {
        let product = self.target.blas.get().and_then(|blas| blas.product(sizes, matrices));
        let taken = product.map(|product| self.launches.borrow_mut().push(product.into()));
        taken.is_some()
    }

    /// How many blocks of so many threads a processor has of a kernel at once.
    pub fn resident(&self, kernel: &str, threads: u32) -> Result<usize, String> {
        self.target.card.resident(kernel, threads)
    }

    /// The vendor's library of products.
    pub fn library(&self) -> &'a BlasLibrary {
        self.target.blas
    }

    /// Where kernels of an operator tell of an index that lies outside.
    pub fn fault(&self, operator: &str) -> u64 {
        self.target.faults.address(operator)
    }

    /// Where the room is. Where it is smaller than this, all is recorded once more when it is not.
    pub fn scratch(&self, bytes: usize) -> u64 {
        self.need(OPERATORS, bytes)
    }

    /// Where activations lie in a form of so many bytes, from now on, and whether they do already. What was taken
    /// before them lies there still, until others are.
    pub fn taken(&self, form: Form, from: &Operand, bytes: usize) -> (u64, bool) {
        let asked = Some(Taken { form, from: *from });
        let is_there = self.taken.replace(asked) == asked;
        if !is_there {
            self.last.set(1 - self.last.get());
        }
        (self.need(ACTIVATIONS[self.last.get()], bytes), is_there)
    }

    /// So many counters, which are zero and which a launch leaves zero.
    pub fn counters(&self, count: usize) -> u64 {
        self.need(COUNTERS, count * size_of::<u32>())
    }

    /// What lies there is not what this tensor holds behind a launch that writes it.
    fn forget(&self, written: &Operand) {
        self.taken.set(self.taken.get().filter(|taken| !taken.from.overlaps(written)));
    }

    fn need(&self, room: usize, bytes: usize) -> u64 {
        let mut needed = self.needed.get();
        needed[room] = needed[room].max(bytes);
        self.needed.set(needed);
        self.rooms[room]
    }
}

/// The launches of steps, and whether the room lies elsewhere now.
pub fn record(target: &Target, scratch: &mut Scratch, steps: &[Step]) -> Result<(Vec<Launch>, bool), String> {
    let (launches, needed) = record_once(target, scratch, steps)?;
    if !scratch.grow(target.card, needed)? {
        return Ok((launches, false));
    }
    record_once(target, scratch, steps).map(|(launches, _)| (launches, true))
}

/// The launches, and the bytes of room that they need: they can run where there are as many.
fn record_once(target: &Target, scratch: &Scratch, steps: &[Step]) -> Result<(Vec<Launch>, [usize; ROOMS]), String> {
    let (rooms, needed) = (scratch.addresses(), Cell::default());
    let (taken, last) = (Cell::default(), Cell::default());
    let recorder = Recorder { target, rooms, needed, taken, last, launches: RefCell::default() };
    let mut rest = steps;
    while let [step, behind @ ..] = rest {
        rest = match groups::record(&recorder, rest)? {
            0 => {
                record_step(&recorder, step)?;
                behind
            }
            together => rest.get(together..).unwrap_or_default(),
        };
    }
    let mut needed = recorder.needed.get();
    // Which of the two is asked for more follows from how many products there are.
    let [one, other] = ACTIVATIONS;
    needed[one] = needed[one].max(needed[other]);
    needed[other] = needed[one];
    debug_assert!(are_declared(target, steps, needed), "{needed:?} bytes of scratch memory exceed the plan");
    Ok((recorder.launches.into_inner(), needed))
}

/// Whether steps take no more room than plans count; weights that had to be brought into the file's form take more.
fn are_declared(target: &Target, steps: &[Step], needed: [usize; ROOMS]) -> bool {
    let is_divided = |input: &Tensor| operand(input).is_ok_and(|operand| operand.divided.is_some());
    let joins = |step: &Step| !operator::reads_planes(&step.op) && step.inputs.iter().any(is_divided);
    let declared = |step: &Step| {
        let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
        operator::needed(&step.op, &types, target.means, target.blas).rooms()
    };
    let each: Vec<Rooms> = steps.iter().map(declared).collect();
    let fits = |(room, needed): (usize, usize)| each.iter().any(|declared| declared[room] >= needed);
    steps.iter().any(joins) || needed.into_iter().enumerate().all(|(room, needed)| needed == 0 || fits((room, needed)))
}

fn record_step(recorder: &Recorder, step: &Step) -> Result<(), String> {
    let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
    operator::profile(&step.op, &types, &step.output.ty, recorder.target.means, recorder.target.blas)?;
    // Indices are looked at though there is nothing to fill.
    let is_nothing = step.output.ty.shape.elements() == 0 && !matches!(step.op, Op::IndexFill(_));
    if step.op.is_view() || is_nothing {
        return Ok(());
    }
    operator::launch(&step.op, &mut call(recorder, step)?)
}

/// The call of a step's operator, which writes its output.
pub fn call<'a>(recorder: &'a Recorder<'a>, step: &Step) -> Result<Call<'a>, String> {
    let inputs = step.inputs.iter().map(operand).collect::<Result<Vec<Operand>, String>>()?;
    let output = operand(&step.output)?;
    recorder.forget(&output);
    Ok(Call::new(recorder, step.op.name(), inputs, output))
}

/// A tensor as kernels see it.
pub fn operand(tensor: &Tensor) -> Result<Operand, String> {
    let memory = Memory::of(tensor)?;
    Ok(Operand { ty: tensor.ty, view: memory.view(tensor), divided: memory.divided(tensor) })
}
