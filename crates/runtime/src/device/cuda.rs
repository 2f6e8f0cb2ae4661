//! The devices `cuda` and `cuda-sim`: NVIDIA GPUs, or their simulator, with our own kernels launched on one stream.
//!
//! ```text
//!  Device ──▶ cuda.rs ──▶ replay.rs: repeated steps become one graph ──▶ launches.rs, groups.rs: steps to launches
//!                │                      operator.rs: declared arithmetic, kernels to launch ──▶ kernels/cuda/*.cu
//!                ├──▶ driver.rs: the driver library, or the simulator in its place (`cuda-sim`)
//!                └──▶ memory.rs: tensors; faults.rs: errors reported by kernels; kernels.rs: embedded kernels
//! ```
//!
//! Tensors have the layout of a GGUF file, except weights with 32 codes per block. These are repacked into planes
//! (`split.rs`) for kernels that use wide loads. Without repacking (`--no-repack`), weights stay as in the file and
//! every sum has one order, independent of the batch. The fast paths are tested against that readable path.
//!
//! `cuda-sim` is a library in place of the driver (`kernels/cuda/sim`). The same host code opens it, and it runs the
//! same `.cu` files with one fiber per thread. So kernels, arguments, grids and copies are tested without a GPU.

mod carrier;
#[allow(unsafe_code, reason = "calls into the vendor's library")]
mod driver;
mod faults;
mod groups;
mod kernels;
mod launches;
mod memory;
mod operator;
mod replay;
mod roof;
mod split;

use super::{About, Buffer, Device, Rooms, Step, Tensor, Usage, through_host};
use crate::devices::Linear;
use crate::error::{Error, Result};
use crate::profile::Profile;
use crate::roof::Roof;
use carrier::Carrier;
pub(crate) use driver::packages;
use driver::{Allocation, BlasLibrary, Card, Library, NcclLibrary};
use faults::Faults;
use launches::Target;
use memory::Memory;
use operator::Means;
pub use replay::Launched;
use replay::Replay;
use std::ffi::c_int;
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
    /// An imitation, computed on the processor.
    Simulated {
        /// How many cards this process has: the same for all that it opens.
        cards: usize,
        /// Which one, counted from 0.
        card: usize,
        /// Bytes of memory of each.
        memory_bytes: u64,
    },
}

impl Place {
    /// The name that selects it, but for its memory.
    fn name(&self) -> String {
        match self {
            Place::Card(0) => "cuda".to_owned(),
            Place::Card(number) => format!("cuda:{number}"),
            Place::Simulated { cards: 1, .. } => "cuda-sim".to_owned(),
            Place::Simulated { cards, card, .. } => format!("cuda-simx{cards}:{card}"),
        }
    }

    fn is_simulated(&self) -> bool {
        matches!(self, Place::Simulated { .. })
    }
}

/// The file of the simulator, which lies beside the program.
const SIMULATOR: &str = "libtrueup_cuda_sim.so";

/// The oldest generation of cards that there are kernels for.
const CAPABILITY_LEAST: (i32, i32) = (7, 5);

/// The devices `cuda` and `cuda-sim`.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    description: String,
    card: Arc<Card>,
    simulated: bool,
    blas: BlasLibrary,
    nccl: NcclLibrary,
    carrier: Carrier,
    replay: Mutex<Replay>,
    faults: Faults,
    /// What products are computed by.
    means: Means,
}

impl Cuda {
    /// Opens a card. Fails where there is no driver, no such card, or no simulator.
    pub fn new(options: &CudaOptions) -> Result<Cuda> {
        let name = options.place.name();
        let failure = |problem| Error::Device { device: name.clone(), problem };
        let path = options.place.is_simulated().then(simulator_path).transpose().map_err(failure)?;
        let (number, library) = match (&options.place, &path) {
            (Place::Simulated { cards, card, memory_bytes }, Some(path)) => {
                let cards = c_int::try_from(*cards).map_err(|_| failure(format!("{cards} cards are too many")))?;
                (*card, Library::Simulator { path, cards, memory_bytes: *memory_bytes })
            }
            (Place::Card(number), _) | (Place::Simulated { card: number, .. }, None) => (*number, Library::Driver),
        };
        let opened = || -> std::result::Result<Cuda, String> {
            driver::load(library)?;
            let card = Card::open(number)?;
            let facts = card.facts()?;
            let faults = Faults::new(&card)?;
            let (major, minor) = facts.capability;
            if facts.capability < CAPABILITY_LEAST {
                return Err(format!(
                    "{} has compute capability sm_{major}{minor}, but the kernels need sm_75 or \
                    later",
                    facts.name
                ));
            }
            let description = format!("{}, sm_{major}{minor}", facts.name);
            Ok(Cuda {
                name: name.clone(),
                description,
                carrier: Carrier::new(&card),
                blas: BlasLibrary::new(&card, path.clone()),
                nccl: NcclLibrary::new(path.clone()),
                card,
                replay: Mutex::default(),
                faults,
                simulated: path.is_some(),
                means: Means {
                    repack: options.repack,
                    linear: options.linear,
                    tensor_cores: major >= 8,
                    processors: facts.processors,
                    shared_bytes_max: facts.shared_bytes_max,
                },
            })
        };
        opened().map_err(failure)
    }

    /// How many cards there are. Fails where there is no driver.
    pub fn count() -> Result<usize> {
        let count = driver::load(Library::Driver).and_then(|()| Card::count());
        count.map_err(|problem| Error::Device { device: "cuda".to_owned(), problem })
    }

    /// Where the simulator lies. Fails where it was not built.
    pub fn simulator() -> Result<PathBuf> {
        simulator_path().map_err(|problem| Error::Device { device: "cuda-sim".to_owned(), problem })
    }

    fn failure(&self, problem: String) -> Error {
        Error::Device { device: self.name.clone(), problem }
    }

    /// How often the card was asked for work so far.
    pub fn launched(&self) -> Launched {
        self.replay().launched()
    }

    /// The card, by what it computes, and what it could not do.
    fn describe(&self) -> String {
        let mut parts = vec![self.description.clone()];
        if self.means.tensor_cores {
            parts.push(self.blas.says());
        }
        parts.extend(self.replay().refused().map(|why| format!("steps are launched without a CUDA graph: {why}")));
        parts.join(", ")
    }

    /// What steps are recorded for.
    fn target(&self) -> Target<'_> {
        Target { card: &self.card, means: &self.means, faults: &self.faults, blas: &self.blas }
    }

    fn replay(&self) -> MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The simulator beside the program.
fn simulator_path() -> std::result::Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("the program's directory cannot be determined: {error}"))?;
    let found = Some(program.with_file_name(SIMULATOR)).filter(|path| path.is_file());
    let folder = program.parent().unwrap_or(&program).display();
    found.ok_or_else(|| {
        format!(
            "expected the simulator {SIMULATOR} in the program's directory, {folder}, found no such file; build it \
                with `scripts/cuda_sim.sh {folder}`"
        )
    })
}

impl Device for Cuda {
    fn about(&self) -> About {
        About {
            name: self.name.clone(),
            description: self.describe(),
            simulated: self.simulated,
            memory: self.card.facts().ok().map(|facts| facts.memory),
            memory_limit: None,
            batch_invariant: !self.means.repack,
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        operator::profile(op, inputs, output, &self.means, &self.blas)
    }

    fn scratch_bytes(&self, op: &Op, inputs: &[TensorType]) -> Rooms {
        operator::needed(op, inputs, &self.means, &self.blas).rooms()
    }

    fn taken_bytes(&self, bytes: u64) -> u64 {
        Allocation::taken_bytes(bytes)
    }

    fn scratch_held(&self) -> Rooms {
        self.replay().held(&self.blas)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        self.replay().forget_freed();
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
            memory.write(&self.carrier, target, source)
        };
        write().map_err(|problem| self.failure(problem))
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        let mut read = || {
            let memory = Memory::of(source)?;
            expect_bytes(target.len(), &source.ty)?;
            memory.read(&self.carrier, source, target)?;
            self.faults.look()
        };
        read().map_err(|problem| self.failure(problem))
    }

    /// From another card without the host.
    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        let planes = |tensor| Memory::of(tensor).map_or(true, Memory::is_in_planes);
        let memory = Memory::of(source).ok().filter(|_| !planes(source) && !planes(target));
        let Some(memory) = memory else {
            return through_host(source, from, &mut |bytes| self.upload(bytes, target));
        };
        if !(source.ty == target.ty && source.ty.shape.is_dense()) {
            return Err(self.failure(format!("{} cannot be copied to {}", source.ty, target.ty)));
        }
        Memory::of(target).and_then(|own| own.copy(target, memory, source)).map_err(|problem| self.failure(problem))
    }

    /// By NCCL, where it is installed.
    fn gather(&self, ours: &Tensor, theirs: &Tensor) -> Result<Option<&str>> {
        let [Ok(own), Ok(other)] = [ours, theirs].map(Memory::of) else { return Ok(None) };
        let Some(nccl) = self.nccl.get() else { return Ok(None) };
        let has_halves = ours.ty.shape.is_dense() && ours.ty.bytes().is_multiple_of(2);
        if ours.ty != theirs.ty || !has_halves || own.is_in_planes() || other.is_in_planes() {
            return Err(self.failure(format!("{} and {} have no halves that can be gathered", ours.ty, theirs.ty)));
        }
        own.gather(ours, other, theirs, nccl).map_err(|problem| self.failure(problem))?;
        Ok(Some(nccl.name()))
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.faults.expect();
        self.replay().run(&self.target(), steps).map_err(|problem| self.failure(problem))
    }

    fn sync(&self) -> Result<()> {
        self.card.wait().and_then(|()| self.faults.look()).map_err(|problem| self.failure(problem))
    }

    fn roof(&self) -> Result<Option<Roof>> {
        roof::measure(&self.card, self.blas.get(), self.simulated, &|problem| self.failure(problem)).map(Some)
    }
}

fn expect_bytes(found: usize, ty: &TensorType) -> std::result::Result<(), String> {
    if found == ty.bytes() {
        Ok(())
    } else {
        Err(format!("{ty} has {} bytes, not {found}; pass the whole tensor", ty.bytes()))
    }
}
