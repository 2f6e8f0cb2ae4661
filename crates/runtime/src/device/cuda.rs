//! NVIDIA cards, and their imitation: kernels of our own, launched one behind the other.
//!
//! ```text
//!  Device ──▶ cuda.rs ──▶ operator.rs: what each declares, which kernels it launches ──▶ kernels/cuda/*.cu
//!                ├──▶ driver.rs: the vendor's library, or ours in its place (`cuda-sim`)
//!                └──▶ memory.rs: where tensors lie; kernels.rs: the kernels that come with the program
//! ```
//!
//! Tensors lie on the card as in a GGUF file, but for weights of 32 codes a block, which are repacked into planes (split.rs) for kernels that
//! read them by wide loads. With `repack` off they stay as they are, and every sum has one order, whatever else is in the batch.

#[allow(unsafe_code, reason = "calls into the vendor's library")]
mod driver;
mod kernels;
mod memory;
mod operator;
mod split;

use super::{About, Buffer, Device, Step, Tensor, Usage};
use crate::devices::Linear;
use crate::error::{Error, Result};
use crate::profile::Profile;
use driver::{Allocation, Card, Library};
use memory::{Memory, Room};
use operator::{Call, Means, Operand};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trueup_graph::{Op, TensorType};

/// How the device is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CudaOptions {
    /// Which card is used.
    pub place: Place,
    /// Whether weights are repacked at upload and multiplied by the fast kernels; else by the plain ones.
    pub repack: bool,
    /// How weights of 32 codes a block are multiplied; decoded, they stay as they are.
    pub linear: Linear,
}

/// Which card is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The card with this number.
    Card(usize),
    /// An imitation, computed on the processor, with so many bytes of memory.
    Simulated {
        /// Bytes of its memory.
        memory_bytes: u64,
    },
}

/// The file of the simulator, which lies beside the program.
const SIMULATOR: &str = "libtrueup_cuda_sim.so";

/// Operators of a call that can tell of an index outside of its tensor, before the host looks.
const FAULTS: usize = 256;

/// Bytes of `Fault` in `kernels/cuda/device.cuh`: whether it happened, the index, how many there are.
const FAULT_BYTES: usize = 12;

/// The devices `cuda` and `cuda-sim`.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    description: String,
    simulated: bool,
    card: Arc<Card>,
    /// Where kernels tell of indices that lie outside.
    faults: Allocation,
    /// Room of one operator, as large as any needed so far. Held by one call at a time.
    scratch: Mutex<Room>,
    /// What products are computed by.
    means: Means,
}

impl Cuda {
    /// Opens a card. Fails where there is no driver, no such card, or no simulator.
    pub fn new(options: &CudaOptions) -> Result<Cuda> {
        let (name, simulator) = match &options.place {
            Place::Card(number) => (if *number == 0 { "cuda".to_owned() } else { format!("cuda:{number}") }, None),
            Place::Simulated { memory_bytes } => ("cuda-sim".to_owned(), Some(*memory_bytes)),
        };
        let failure = |problem| Error::Device { device: name.clone(), problem };
        let path = simulator.map(|_| simulator_path()).transpose().map_err(failure)?;
        let library = match (simulator, &path) {
            (Some(memory_bytes), Some(path)) => Library::Simulator { path, memory_bytes },
            (None, _) | (_, None) => Library::Driver,
        };
        let number = if let Place::Card(number) = options.place { number } else { 0 };
        let opened = || -> std::result::Result<Cuda, String> {
            driver::load(library)?;
            let card = Card::open(number)?;
            let facts = card.facts()?;
            let faults = card.alloc(FAULTS * FAULT_BYTES)?.ok_or("the card has no memory left")?;
            faults.clear()?;
            let (major, minor) = facts.capability;
            let description = format!("{}, sm_{major}{minor}", facts.name);
            Ok(Cuda {
                name: name.clone(),
                description,
                simulated: simulator.is_some(),
                card,
                faults,
                scratch: Mutex::default(),
                means: Means {
                    repack: options.repack,
                    linear: options.linear,
                    tensor_cores: major >= 8,
                    processors: facts.processors,
                },
            })
        };
        opened().map_err(failure)
    }

    fn failure(&self, problem: String) -> Error {
        Error::Device { device: self.name.clone(), problem }
    }

    /// The room to compute in, which is the caller's until it is dropped.
    fn room(&self) -> MutexGuard<'_, Room> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches the kernels of all steps, and looks for indices that lay outside.
    fn compute(&self, steps: &[Step]) -> std::result::Result<(), String> {
        let mut scratch = self.room();
        for steps in steps.chunks(FAULTS) {
            let mut may_fail = false;
            for (slot, step) in steps.iter().enumerate() {
                let launched = self.launch(step, self.faults.address() + (slot * FAULT_BYTES) as u64, &mut scratch);
                // What kernels before it told is of this call, which fails: the next one begins without.
                may_fail |= launched.inspect_err(|_| drop(self.faults.clear()))?;
            }
            if may_fail {
                self.look_for_faults(steps)?;
            }
        }
        Ok(())
    }

    /// Launches the kernels of one step; whether they can tell of an index.
    fn launch(&self, step: &Step, fault: u64, scratch: &mut Room) -> std::result::Result<bool, String> {
        let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
        operator::profile(&step.op, &types, &step.output.ty, &self.means)?;
        if step.op.is_view() || step.output.ty.shape.elements() == 0 {
            return Ok(false);
        }
        let operand = |tensor: &Tensor| {
            let memory = Memory::of(tensor)?;
            Ok(Operand { ty: tensor.ty, view: memory.view(tensor), divided: memory.divided(tensor) })
        };
        let inputs = step.inputs.iter().map(operand).collect::<std::result::Result<Vec<Operand>, String>>()?;
        let mut call = Call::new(&self.card, &self.means, inputs, operand(&step.output)?, fault, scratch);
        operator::launch(&step.op, &mut call)?;
        Ok(call.may_fault())
    }

    /// Fails where a kernel told of an index, and forgets that it did.
    fn look_for_faults(&self, steps: &[Step]) -> std::result::Result<(), String> {
        let mut bytes = vec![0; steps.len() * FAULT_BYTES];
        self.faults.read(0, &mut bytes)?;
        let words: Vec<i32> = bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word)).collect();
        let (faults, _) = words.as_chunks::<3>();
        let Some((step, [_, index, len])) = steps.iter().zip(faults).find(|(_, [happened, ..])| *happened != 0) else {
            return Ok(());
        };
        self.faults.clear()?;
        Err(format!("{}: index {index} must lie between 0 and {len}, exclusive", step.op.name()))
    }
}

/// The simulator beside the program.
fn simulator_path() -> std::result::Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("the program's own folder cannot be found: {error}"))?;
    let found = Some(program.with_file_name(SIMULATOR)).filter(|path| path.is_file());
    let folder = program.parent().unwrap_or(&program).display();
    found.ok_or_else(|| {
        format!(
            "no card is simulated, for {SIMULATOR} does not lie beside the program; build it there: scripts/cuda_sim.sh {folder}"
        )
    })
}

impl Device for Cuda {
    fn about(&self) -> About {
        About {
            name: self.name.clone(),
            description: self.description.clone(),
            simulated: self.simulated,
            memory: self.card.facts().ok().map(|facts| facts.memory),
            batch_invariant: !self.means.repack,
        }
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        operator::profile(op, inputs, output, &self.means)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let memory =
            Memory::new(&self.card, ty, usage, self.means.divides()).map_err(|problem| self.failure(problem))?;
        Ok(Buffer(Arc::new(memory)))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        let write = || {
            let memory = Memory::of(target)?;
            expect_bytes(source.len(), &target.ty)?;
            if !target.ty.shape.is_dense() {
                return Err(format!("a view cannot be written: {}", target.ty));
            }
            memory.write(target, source, &mut self.room())
        };
        write().map_err(|problem| self.failure(problem))
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        let mut read = || {
            let memory = Memory::of(source)?;
            expect_bytes(target.len(), &source.ty)?;
            memory.read(source, target, &mut self.room())
        };
        read().map_err(|problem| self.failure(problem))
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.compute(steps).map_err(|problem| self.failure(problem))
    }

    fn sync(&self) -> Result<()> {
        self.card.wait().map_err(|problem| self.failure(problem))
    }
}

fn expect_bytes(found: usize, ty: &TensorType) -> std::result::Result<(), String> {
    if found == ty.bytes() {
        Ok(())
    } else {
        Err(format!("{ty} has {} bytes, not {found}; pass the whole tensor", ty.bytes()))
    }
}
