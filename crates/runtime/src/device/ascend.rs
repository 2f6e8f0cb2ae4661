//! The devices `npu` and `npu-sim`: Ascend cards, or their simulator, with operators composed of the vendor's.
//!
//! ```text
//!  Device ──▶ ascend.rs ──▶ operator.rs: declared arithmetic, and the vendor operators to compose
//!                │                └──▶ engine.rs: issues them and manages their workspace (pool.rs)
//!                ├──▶ replay.rs: repeated steps as graphs; notes.rs: what the graphs rely on; table.rs: host tables
//!                ├──▶ acl.rs: the vendor's libraries, or the simulator in their place (`npu-sim`)
//!                ├──▶ chip.rs: features of each chip
//!                └──▶ memory.rs: tensors; split.rs: blocks with separate scales
//! ```
//!
//! All work is issued to one stream of a card, which executes it in order. Weights with 32 codes per block are stored
//! with separate scales, as the vendor's products require; downloads return the form of the file. Weights in other
//! blocks are decoded to f16.

#[allow(unsafe_code, reason = "calls into the vendor's libraries")]
mod acl;
mod chip;
mod engine;
mod memory;
mod notes;
mod operator;
mod pool;
mod replay;
mod split;
mod table;

use super::{About, Buffer, Device, Step, Tensor, Usage, through_host};
use crate::error::{Error, Result};
use crate::profile::Profile;
use acl::{Card, Library, Link, Settings, Source, Transfers};
pub use chip::Chip;
use engine::Engine;
use memory::{Memory, decoded_bytes};
pub use replay::Launched;
use replay::Replay;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// How the device is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AscendOptions {
    /// Which card is used.
    pub place: Place,
}

/// Which card is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The card with this number.
    Card(usize),
    /// An imitation, computed on the processor.
    Simulated {
        /// Which chip.
        chip: &'static Chip,
        /// How many cards this process has: the same for all that it opens.
        cards: usize,
        /// Which one, counted from 0.
        card: usize,
        /// Bytes of memory of each.
        memory_bytes: u64,
        /// More settings of the simulator, in JSON without the braces.
        more: String,
    },
}

impl Place {
    /// The name that selects it, but for its memory.
    fn name(&self) -> String {
        match self {
            Place::Card(0) => "npu".to_owned(),
            Place::Card(number) => format!("npu:{number}"),
            Place::Simulated { chip, cards: 1, .. } => format!("npu-sim:{}", chip.name),
            Place::Simulated { chip, cards, card, .. } => format!("npu-sim:{}x{cards}:{card}", chip.name),
        }
    }
}

/// The file of the simulator, which lies beside the program.
const SIMULATOR: &str = "libtrueup_npu_sim.so";

/// The devices `npu` and `npu-sim`.
#[derive(Debug)]
pub struct Ascend {
    name: String,
    description: String,
    chip: &'static Chip,
    simulated: bool,
    card: Arc<Card>,
    transfers: Arc<Transfers>,
    replay: Mutex<Replay>,
    /// From other cards, one each.
    links: Mutex<Vec<Link>>,
}

impl Ascend {
    /// Opens a card. Fails where there is no CANN, no such card, or no simulator.
    pub fn new(options: &AscendOptions) -> Result<Ascend> {
        let name = options.place.name();
        let failure = |problem| Error::Device { device: name.clone(), problem };
        let opened = || -> std::result::Result<Ascend, String> {
            let (source, number) = source(&options.place)?;
            let card = Card::open(&Library::open(&source)?, number)?;
            let facts = card.facts()?;
            let chip = Chip::from_soc(&facts.soc)
                .ok_or_else(|| format!("unknown chip {}; expected one of {}", facts.soc, Chip::names().join(", ")))?;
            let transfers = Arc::new(Transfers::new(&card));
            let replay = Replay::new(Engine::new(&card, &transfers, chip));
            let cores = facts.cube_cores.map_or(String::new(), |cores| format!(", {cores} cube cores"));
            let interface =
                facts.version.map_or(String::new(), |(major, minor, patch)| format!(", ACL {major}.{minor}.{patch}"));
            let description = format!("{}{cores}{interface}, scratch memory from {}", facts.soc, replay.pool_name());
            let simulated = matches!(source, Source::Simulator(..));
            let description = if simulated { format!("simulated {description}") } else { description };
            let replay = Mutex::new(replay);
            let links = Mutex::default();
            Ok(Ascend { name: name.clone(), description, chip, simulated, card, transfers, replay, links })
        };
        opened().map_err(failure)
    }

    /// How many cards there are. Fails where there is no CANN.
    pub fn count() -> Result<usize> {
        let count = Library::open(&Source::Vendor).and_then(|library| Card::count(&library));
        count.map_err(|problem| Error::Device { device: "npu".to_owned(), problem })
    }

    /// Where the simulator lies. Fails where it was not built.
    pub fn simulator() -> Result<PathBuf> {
        simulator_path().map_err(|problem| Error::Device { device: "npu-sim".to_owned(), problem })
    }

    fn failure(&self, problem: String) -> Error {
        Error::Device { device: self.name.clone(), problem }
    }

    /// How often the card was asked for work.
    pub fn launched(&self) -> Launched {
        self.replay().launched()
    }

    /// Does a copy behind what the other card was asked for, and waits for it.
    fn linked(
        &self,
        other: &Arc<Card>,
        copy: impl FnOnce() -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(Link::is_used);
        let place = match links.iter().position(|link| link.is_of(&self.card, other)) {
            Some(place) => place,
            None => {
                links.push(Link::new(&self.card, other)?);
                links.len() - 1
            }
        };
        links[place].around(copy)
    }

    fn replay(&self) -> std::sync::MutexGuard<'_, Replay> {
        self.replay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The libraries to open, and the number of the card.
fn source(place: &Place) -> std::result::Result<(Source, usize), String> {
    match place {
        Place::Card(number) => Ok((Source::Vendor, *number)),
        Place::Simulated { chip, cards, card, memory_bytes, more } => {
            let settings =
                Settings { chip: chip.name.to_owned(), cards: *cards, memory_bytes: *memory_bytes, more: more.clone() };
            Ok((Source::Simulator(simulator_path()?, settings), *card))
        }
    }
}

/// The simulator beside the program, or where cargo puts libraries that tests need.
fn simulator_path() -> std::result::Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("the program's directory cannot be determined: {error}"))?;
    let folder = program.parent().unwrap_or(&program);
    let beside = [folder.join(SIMULATOR), folder.with_file_name(SIMULATOR)];
    beside.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "expected the simulator {SIMULATOR} in the program's directory, {0}, found no such file; build it with \
                `scripts/npu_sim.sh {0}`",
            folder.display()
        )
    })
}

impl Device for Ascend {
    fn about(&self) -> About {
        About {
            name: self.name.clone(),
            description: match self.replay().refusal() {
                Some(problem) => format!("{}, cannot capture graphs: {problem}", self.description),
                None => self.description.clone(),
            },
            simulated: self.simulated,
            memory: self.card.facts().ok().map(|facts| facts.memory),
            memory_limit: None,
            batch_invariant: false,
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        operator::profile(op, inputs, output, self.chip)
    }

    fn weight_bytes(&self, ty: &TensorType, _is_multiplied: bool) -> u64 {
        let is_decoded = self.chip.decoded_type(ty.dtype).is_some();
        self.taken_bytes(if is_decoded { decoded_bytes(ty) } else { ty.bytes() } as u64)
    }

    fn weight_type(&self, dtype: DType) -> DType {
        self.chip.decoded_type(dtype).unwrap_or(dtype)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        self.replay().forget_freed();
        let memory = Memory::new(&self.card, self.chip, ty, usage).or_else(|_| {
            self.replay().forget();
            Memory::new(&self.card, self.chip, ty, usage)
        });
        let memory = memory.map_err(|problem| self.failure(problem))?;
        Ok(Buffer(Arc::new(memory)))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        let write = || {
            let memory = Memory::here(target, &self.card)?;
            expect_bytes(source.len(), &target.ty)?;
            if !target.ty.shape.is_dense() {
                return Err(format!("a view cannot be written: {}", target.ty));
            }
            memory.write(&self.transfers, target, source)
        };
        write().map_err(|problem| self.failure(problem))
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        let read = |target: &mut [u8]| {
            let memory = Memory::here(source, &self.card)?;
            expect_bytes(target.len(), &source.ty)?;
            memory.read(&self.transfers, source, target)
        };
        read(target).map_err(|problem| self.failure(problem))
    }

    /// From another card without the host, where they reach each other.
    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        let plain = |tensor| Memory::of(tensor).ok().filter(|memory| memory.is_as_in_file());
        let (Some(memory), Some(_)) = (plain(source), plain(target)) else {
            return through_host(source, from, &mut |bytes| self.upload(bytes, target));
        };
        if !(source.ty == target.ty && source.ty.shape.is_dense()) {
            return Err(self.failure(format!("{} cannot be copied to {}", source.ty, target.ty)));
        }
        let copied = || {
            let own = Memory::here(target, &self.card)?;
            if Arc::ptr_eq(memory.card(), &self.card) {
                return own.copy(target, memory, source).map(|()| true);
            }
            if !self.card.reaches(memory.card())? {
                return Ok(false);
            }
            self.linked(memory.card(), || own.copy(target, memory, source)).map(|()| true)
        };
        if copied().map_err(|problem| self.failure(problem))? {
            return Ok(());
        }
        through_host(source, from, &mut |bytes| self.upload(bytes, target))
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.replay().run(steps).map_err(|problem| self.failure(problem))
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
