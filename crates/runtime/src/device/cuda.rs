//! NVIDIA cards, and their imitation: kernels of our own, launched one behind the other.
//!
//! ```text
//!  Device ──▶ cuda.rs ──▶ replay.rs: steps that come again are one launch ──▶ launches.rs: from steps to launches
//!                │                      operator.rs: what each declares, which kernels it launches ──▶ kernels/cuda/*.cu
//!                ├──▶ driver.rs: the vendor's library, or ours in its place (`cuda-sim`)
//!                └──▶ memory.rs: where tensors lie; faults.rs: what kernels tell; kernels.rs: the kernels that come with the program
//! ```
//!
//! Every sum has one order, whatever else is in the batch. Tensors lie on the card as in a GGUF file.

#[allow(unsafe_code, reason = "calls into the vendor's library")]
mod driver;
mod faults;
mod kernels;
mod launches;
mod memory;
mod operator;
mod replay;

use super::{About, Buffer, Device, Step, Tensor, Usage, through_host};
use crate::error::{Error, Result};
use crate::profile::Profile;
use driver::{Card, Library, Transfers};
use faults::Faults;
use memory::Memory;
pub use replay::Launched;
use replay::Replay;
use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trueup_graph::{Op, TensorType};

/// Which card is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CudaOptions {
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

impl CudaOptions {
    /// The name that selects it, but for its memory.
    fn name(&self) -> String {
        match self {
            CudaOptions::Card(0) => "cuda".to_owned(),
            CudaOptions::Card(number) => format!("cuda:{number}"),
            CudaOptions::Simulated { cards: 1, .. } => "cuda-sim".to_owned(),
            CudaOptions::Simulated { cards, card, .. } => format!("cuda-simx{cards}:{card}"),
        }
    }

    fn is_simulated(&self) -> bool {
        matches!(self, CudaOptions::Simulated { .. })
    }
}

/// The file of the simulator, which lies beside the program.
const SIMULATOR: &str = "libtrueup_cuda_sim.so";

/// The devices `cuda` and `cuda-sim`.
#[derive(Debug)]
pub struct Cuda {
    name: String,
    description: String,
    simulated: bool,
    card: Arc<Card>,
    transfers: Transfers,
    replay: Mutex<Replay>,
    faults: Faults,
}

impl Cuda {
    /// Opens a card. Fails where there is no driver, no such card, or no simulator.
    pub fn new(options: &CudaOptions) -> Result<Cuda> {
        let name = options.name();
        let failure = |problem| Error::Device { device: name.clone(), problem };
        let path = options.is_simulated().then(simulator_path).transpose().map_err(failure)?;
        let (number, library) = match (options, &path) {
            (CudaOptions::Simulated { cards, card, memory_bytes }, Some(path)) => {
                let cards = c_int::try_from(*cards).map_err(|_| failure(format!("{cards} cards are too many")))?;
                (*card, Library::Simulator { path, cards, memory_bytes: *memory_bytes })
            }
            (CudaOptions::Card(number), _) | (CudaOptions::Simulated { card: number, .. }, None) => {
                (*number, Library::Driver)
            }
        };
        let opened = || -> std::result::Result<Cuda, String> {
            driver::load(library)?;
            let card = Card::open(number)?;
            let facts = card.facts()?;
            let faults = Faults::new(&card)?;
            let (major, minor) = facts.capability;
            let description = format!("{}, sm_{major}{minor}", facts.name);
            Ok(Cuda {
                name: name.clone(),
                description,
                simulated: options.is_simulated(),
                transfers: Transfers::new(&card),
                card,
                replay: Mutex::default(),
                faults,
            })
        };
        opened().map_err(failure)
    }

    fn failure(&self, problem: String) -> Error {
        Error::Device { device: self.name.clone(), problem }
    }

    /// How often the card was asked for work so far.
    pub fn launched(&self) -> Launched {
        self.replay().launched()
    }

    fn replay(&self) -> MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
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
            batch_invariant: true,
        }
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        operator::profile(op, inputs, output)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        self.replay().forget_freed();
        let memory = Memory::new(&self.card, ty, usage).map_err(|problem| self.failure(problem))?;
        Ok(Buffer(Arc::new(memory)))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        let write = || {
            let memory = Memory::of(target)?;
            expect_bytes(source.len(), &target.ty)?;
            if !target.ty.shape.is_dense() {
                return Err(format!("a view cannot be written: {}", target.ty));
            }
            memory.write(&self.transfers, target, source)
        };
        write().map_err(|problem| self.failure(problem))
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        let mut read = || {
            let memory = Memory::of(source)?;
            expect_bytes(target.len(), &source.ty)?;
            memory.read(&self.transfers, source, target)?;
            self.faults.look()
        };
        read().map_err(|problem| self.failure(problem))
    }

    /// From another card without the host.
    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        let Ok(memory) = Memory::of(source) else {
            return through_host(source, from, &mut |bytes| self.upload(bytes, target));
        };
        if !(source.ty == target.ty && source.ty.shape.is_dense()) {
            return Err(self.failure(format!("{} cannot be copied to {}", source.ty, target.ty)));
        }
        Memory::of(target).and_then(|own| own.copy(target, memory, source)).map_err(|problem| self.failure(problem))
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.replay().run(&self.card, &self.faults, steps).map_err(|problem| self.failure(problem))
    }

    fn sync(&self) -> Result<()> {
        self.card.wait().and_then(|()| self.faults.look()).map_err(|problem| self.failure(problem))
    }
}

fn expect_bytes(found: usize, ty: &TensorType) -> std::result::Result<(), String> {
    if found == ty.bytes() {
        Ok(())
    } else {
        Err(format!("{ty} has {} bytes, not {found}; pass the whole tensor", ty.bytes()))
    }
}
