//! The interface of a device: it allocates memory, and executes steps on tensors in that memory.
//!
//! A device implements [`Device`]. Seven methods are required: `about`, `supports`, `alloc`, `upload`, `download`,
//! `execute` and `sync`. The others have defaults that are correct for every device: copy through the host, do not map
//! weights, need no scratch memory, report no hardware limit. Streams, events, memory pools and weight layouts are
//! internal to a device.
//!
//! `supports` returns the arithmetic of an operator as a [`Profile`]. The same table must drive `execute`, because the
//! verifier derives its error bounds from the profile.

pub mod ascend;
mod bounded;
mod cacheless;
pub mod cpu;
pub mod cuda;
mod decorator;
mod kept;
mod pair;
pub mod reference;
mod shown;
mod staging;

use crate::error::{Error, Result};
use crate::profile::Profile;
use crate::roof::Roof;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::{Op, TensorType};

pub use bounded::Bounded;
pub use cacheless::Cacheless;
pub(crate) use cacheless::is_on_cache;
pub use decorator::Decorator;
pub use pair::Pair;

/// Something that computes. Calls may return before the work is done; [`Device::sync`] waits for it, and `download`
/// sees it.
pub trait Device: Send + Sync {
    /// What it is.
    fn about(&self) -> About;

    /// The device name. Cheaper than [`Device::about`], which also queries the free memory.
    fn name(&self) -> String {
        self.about().name
    }

    /// How the device would compute this operator on these types, or why it does not. Every device takes `reshape`,
    /// which is no work. Types may be views: a device that does not read them where they lie copies what they show
    /// first, or says that it does not take them.
    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String>;

    /// Bytes that computing this operator, which it supports, takes at most beside its tensors, in each of the rooms
    /// that the device keeps for the next one: as far as they grow with the model or the context. By default there are
    /// none.
    fn scratch_bytes(&self, _op: &Op, _inputs: &[TensorType]) -> Rooms {
        Rooms::default()
    }

    /// Bytes of each of these rooms that the device keeps already, whoever asked for them: nothing has to be found for
    /// these again. By default none.
    fn scratch_held(&self) -> Rooms {
        Rooms::default()
    }

    /// Bytes of its memory that one allocation of so many takes: no fewer. By default as many.
    fn taken_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Bytes of its memory that a weight takes. `is_multiplied` says whether products alone read it. By default an
    /// allocation of its size.
    fn weight_bytes(&self, ty: &TensorType, _is_multiplied: bool) -> u64 {
        self.taken_bytes(ty.bytes() as u64)
    }

    /// The type that the device stores weights of this type as. By default the same. Another type shows in
    /// [`Device::weight_bytes`] and in the profiles of operators that read the weight.
    fn weight_type(&self, dtype: DType) -> DType {
        dtype
    }

    /// Memory for one tensor, or for many behind each other (`Usage::Arena`). States are zero at first.
    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer>;

    /// Takes a weight where the file is mapped instead of allocating and uploading it, and keeps the map. `None` where
    /// the device needs, or computes faster with, bytes of its own, unless there is no `room` for these. Fails where
    /// there are not as many bytes as `ty` has.
    fn adopt(&self, _bytes: &MappedBytes, _ty: &TensorType, _room: CopyRoom) -> Result<Option<Buffer>> {
        Ok(None)
    }

    /// Copies host bytes in GGUF layout into a tensor that is not a view, or into consecutive rows of a state. The
    /// device may keep them in another layout.
    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()>;

    /// Reads the tensor's bytes in GGUF layout, bit for bit as uploaded or computed. For a view or consecutive rows of
    /// a state, reads only their elements. Fails for a weight that is stored as another type.
    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()>;

    /// Copies a tensor of the same type from another device, or rows of a state to others, by default through the host.
    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        through_host(source, from, &mut |bytes| self.upload(bytes, target))
    }

    /// Completes a tensor whose first half this device has computed and whose second half another device of its kind,
    /// in both devices' memory, faster than copies would. The name of what does it; `None`, by default, where nothing
    /// does: then nothing was changed. A device that does takes parts of a tensor by their offsets in any buffer, not
    /// only in an arena.
    fn gather(&self, _ours: &Tensor, _theirs: &Tensor) -> Result<Option<&str>> {
        Ok(None)
    }

    /// Computes the steps in order.
    fn execute(&self, steps: &[Step]) -> Result<()>;

    /// Waits until all that was asked for is done.
    fn sync(&self) -> Result<()>;

    /// Measures what it can do at most, now. `None` where that is not known.
    fn roof(&self) -> Result<Option<Roof>> {
        Ok(None)
    }
}

/// Bytes of each room that a device keeps beside tensors; which is which, it knows alone. A room is as large as the
/// operator needs it that needs most.
pub type Rooms = [usize; 6];

/// Gives the bytes of a tensor of another device to an upload.
fn through_host(source: &Tensor, from: &dyn Device, upload: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut bytes = vec![0; source.ty.bytes()];
    from.download(source, &mut bytes)?;
    upload(&bytes)
}

/// Facts about a device, for people and schedulers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// The name that selects it: `cpu`, `cuda:0`.
    pub name: String,
    /// What it is: the processor's or card's name, instruction set, versions.
    pub description: String,
    /// Whether another machine is imitated.
    pub simulated: bool,
    /// Bytes of its memory, all and free, where it can tell.
    pub memory: Option<(u64, u64)>,
    /// Bytes that `--device-memory` allows, if it was given.
    pub memory_limit: Option<u64>,
    /// Whether it promises each token the same bits in any batch as alone; the verifier holds it to that.
    pub batch_invariant: bool,
}

impl About {
    /// The error for `what`, which needs more bytes than are available.
    pub(crate) fn too_little_memory(&self, what: &str, needed: u64, remedy: &str) -> Error {
        let free = self.memory.map_or(u64::MAX, |(_, free)| free);
        let (of_limit, raise) = match self.memory_limit {
            Some(limit) => (format!(" of the {limit} that --device-memory allows"), "raise the limit, "),
            None => (String::new(), ""),
        };
        let problem =
            format!("{what} {needed} bytes of memory, but only {free}{of_limit} are available; {raise}{remedy}");
        Error::Device { device: self.name.clone(), problem }
    }
}

/// What a buffer is for; a device may place it accordingly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// A tensor of the model: uploaded once, read often.
    Weight,
    /// Lives from one computation to the next: the KV cache.
    State,
    /// Filled in by the host before each computation.
    Input,
    /// Room for intermediate results; the type is `I8[bytes]`, and tensors lie in it at offsets that are multiples of
    /// [`ARENA_ALIGN_BYTES`].
    Arena,
}

/// Whether a device's memory has room for a copy of a weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyRoom {
    /// It has: what computes fastest is best.
    Enough,
    /// It has not: what takes no memory is best.
    TooLittle,
}

impl Usage {
    /// What to do where there is no memory for it.
    fn remedy(self) -> &'static str {
        match self {
            Usage::Weight => "use a smaller model, or quantize this one to fewer bits",
            Usage::State => "reduce the context (-c), or use fewer sequences",
            Usage::Input | Usage::Arena => "reduce the context (-c), or use shorter prompts",
        }
    }
}

/// Most threads that a device of this machine's processor starts.
pub const THREADS_MAX: usize = 1024;

/// The threads that were asked for, or as many as the machine has; a problem where there would be none or too many.
fn expect_threads(threads: Option<usize>) -> std::result::Result<usize, String> {
    match threads {
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)),
        Some(0) => Err("expected at least 1 thread, found 0".to_owned()),
        Some(threads) if threads > THREADS_MAX => {
            Err(format!("expected at most {THREADS_MAX} threads, found {threads}"))
        }
        Some(threads) => Ok(threads),
    }
}

/// Offsets in an arena are multiples of this.
pub const ARENA_ALIGN_BYTES: usize = 256;

/// A device's memory, known to the device alone.
#[derive(Clone)]
pub struct Buffer(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:p})", Arc::as_ptr(&self.0))
    }
}

/// A tensor in a device's memory.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The memory it lies in.
    pub buffer: Buffer,
    /// Offset in the buffer: 0, except in an arena or for consecutive rows of a state. Such rows can be uploaded,
    /// downloaded and copied, but not used in computation.
    pub offset_bytes: usize,
    /// Shape and data type.
    pub ty: TensorType,
}

/// One node with its tensors.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node's index in its graph.
    pub node: usize,
    /// What to compute.
    pub op: Op,
    /// In the operator's order. Their memory does not overlap the output's unless the operator [is an
    /// alias](Op::is_alias); then the first input is the output.
    pub inputs: Vec<Tensor>,
    /// Where the result goes.
    pub output: Tensor,
}

/// Fails where an operator gives something else than `output`, or takes no such inputs.
fn expect_inferred(op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<(), String> {
    match op.infer(inputs) {
        Ok(inferred) if inferred == *output => Ok(()),
        Ok(inferred) => Err(format!("{} gives {inferred}, not {output}", op.name())),
        Err(problem) => Err(format!("{}: {problem}", op.name())),
    }
}
