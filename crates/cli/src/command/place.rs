//! Device and memory options, shared by `run`, `chat`, `plan`, `bench`, `compare`, `trace`, `verify` and `repro`.

use crate::failure::{Failure, Result};
use crate::output;
use crate::target::Targets;
use crate::value;
use clap::{Args, ValueEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::{self, Description, OpenOptions, quote};
use trueup::runtime::device::Device;
use trueup::runtime::device::cpu::system_memory;
use trueup::runtime::plan::{Plan, ReportedDevice};
use trueup::runtime::{
    DeviceOptions, KvDevice, Linear, ModelFile, Session, SessionOptions, Weights, open_device, open_devices,
    open_fallback,
};
use trueup::text;
use trueup::tokenizer::Tokenizer;

/// Opens a GGUF file, even if its tokenizer cannot be read: [`ModelFile::tokenizer`] gives the error where text needs
/// it. For a model in another format, the error names the format and the command that converts it.
pub fn open_model(path: &Path) -> Result<Arc<ModelFile>> {
    let error = match ModelFile::open_for_other_tokenizer(path) {
        Ok(model) => {
            model.model().notes().iter().for_each(|note| output::note(note));
            return Ok(Arc::new(model));
        }
        Err(error) => error,
    };
    match formats::open(path, &OpenOptions::default()) {
        Ok(other) if matches!(other.description(), Description::Json(_)) => {
            let (path, format) = (quote(&path.to_string_lossy()), other.format());
            Err(Failure::new(format!(
                "{path}: expected a GGUF file, found {format}; convert it first with `trueup convert {path} model.gguf`"
            )))
        }
        Err(reason) if path.is_dir() => Err(reason.into()),
        Ok(_) | Err(_) => Err(error.into()),
    }
}

/// Prints a note for each device that stores weights of the model as another type.
pub fn note_weight_types(model: &ModelFile, devices: &[Arc<dyn Device>]) {
    let types: BTreeSet<DType> = model.tensors().iter().map(|tensor| tensor.dtype).collect();
    for device in devices {
        let mut by_target: BTreeMap<DType, Vec<&str>> = BTreeMap::new();
        for dtype in &types {
            let stored_as = device.weight_type(*dtype);
            if stored_as != *dtype {
                by_target.entry(stored_as).or_default().push(dtype.name());
            }
        }
        for (stored_as, types) in by_target {
            let (name, types) = (device.name(), types.join(", "));
            output::note(&format!("{name} stores {types} weights as {stored_as}; `trueup plan` shows the memory"));
        }
    }
}

/// A model and the tokenizer for its texts: the one of `--tokenizer`, otherwise the one of the model.
pub struct ModelWithTokenizer {
    /// The model.
    pub model: Arc<ModelFile>,
    replacement: Option<Tokenizer>,
}

impl ModelWithTokenizer {
    /// A model with the tokenizer of its file.
    pub fn of(model: Arc<ModelFile>) -> ModelWithTokenizer {
        ModelWithTokenizer { model, replacement: None }
    }

    /// Opens the model as [`open_model`] does, and the replacement of its tokenizer if there is one.
    pub fn open(path: &Path, replacement: Option<&Path>) -> Result<ModelWithTokenizer> {
        let model = open_model(path)?;
        let replacement = replacement.map(|file| text::open_tokenizer(model.path(), Some(file))).transpose()?;
        Ok(ModelWithTokenizer { model, replacement })
    }

    /// The tokenizer; an error if there is none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        match &self.replacement {
            Some(tokenizer) => Ok(tokenizer),
            None => Ok(self.model.tokenizer()?),
        }
    }

    /// Whether [`ModelWithTokenizer::tokenizer`] is not the one of the model.
    pub fn is_replaced(&self) -> bool {
        self.replacement.is_some()
    }
}

/// Prints the notes on a tokenizer: what was assumed or corrected while it was read.
pub fn note_tokenizer(tokenizer: &Tokenizer) {
    tokenizer.vocabulary().notes().iter().for_each(|note| output::note(note));
}

/// Checks before any work that `target` can be written and does not replace the model or one of the files `read`.
pub fn check_target(target: Option<&Path>, model: &ModelFile, read: &[&Path]) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    let checkpoint = formats::open(model.path(), &OpenOptions::default())?;
    Targets::files([target]).check(&checkpoint.sources(), read)
}

/// Device options.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct Place {
    /// Device to compute on: ref, cpu, cuda[:N], npu[:N], cuda-sim or npu-sim[:CHIP]
    ///
    /// With several devices, such as cuda:0,cuda:1,cpu, each device takes as many layers as fit in its memory, in this
    /// order. `trueup devices` lists the devices of this machine.
    #[arg(long, visible_alias = "dev", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[command(flatten)]
    shares: Shares,
    /// Mark each node as a named range for NVIDIA profilers such as nsys
    ///
    /// Requires libnvToolsExt or libnvtx3interop. Computes node by node, which is slower and does not change the
    /// results.
    #[arg(long)]
    nvtx: bool,
    #[command(flatten)]
    machine: Machine,
}

/// Memory options.
#[derive(Args, Clone)]
pub struct Shares {
    /// Limit the memory used on each device, such as 6GiB,8GiB [default: all free memory]
    ///
    /// The limit covers weights, the KV cache and intermediate results.
    #[arg(long, value_name = "SIZES", value_parser = value::size, value_delimiter = ',')]
    device_memory: Vec<u64>,
    /// Memory that stores the KV cache of cuda and npu devices
    #[arg(long, value_name = "DEVICE", value_enum, default_value = "same")]
    kv_device: KvPlace,
}

impl Shares {
    /// Opens the devices of a comma-separated list.
    pub fn open(&self, list: &str, machine: &Machine) -> Result<Vec<Arc<dyn Device>>> {
        Ok(open_devices(list, &self.device_memory, &self.options(machine))?)
    }

    /// Opens the device that computes the operators the listed devices lack. `None` if they lack none.
    pub fn fallback(&self, list: &str, machine: &Machine) -> Result<Option<Arc<dyn Device>>> {
        Ok(open_fallback(list, &self.options(machine))?)
    }

    /// The options that differ from their defaults, each with its value.
    pub fn arguments(&self) -> Vec<String> {
        if self.kv_device == KvPlace::Cpu { vec!["--kv-device cpu".to_owned()] } else { Vec::new() }
    }

    /// Fails if the place of the KV cache was given and the model has no KV cache.
    pub fn expect_use(&self, model: &ModelFile) -> Result<()> {
        match self.kv_device {
            KvPlace::Cpu if !model.model().spec().has_kv_cache() => {
                Err(Failure::new("--kv-device: the model has no KV cache; remove the option"))
            }
            KvPlace::Cpu | KvPlace::Same => Ok(()),
        }
    }

    fn options(&self, machine: &Machine) -> DeviceOptions {
        let kv_device = match self.kv_device {
            KvPlace::Same => KvDevice::Same,
            KvPlace::Cpu => KvDevice::Cpu,
        };
        DeviceOptions { kv_device, ..machine.options() }
    }
}

/// Locations of the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KvPlace {
    /// The memory of the device that computes the layer
    Same,
    /// The memory of the host; attention is then computed on the CPU, and the device has more memory for weights
    Cpu,
}

/// Options for computing on this machine.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct Machine {
    #[command(flatten)]
    kernels: Kernels,
    /// Context size in tokens, per sequence [default: the model's context size, at most 4096]
    #[arg(short, long = "ctx-size", value_name = "TOKENS", value_parser = value::tokens,
        allow_negative_numbers = true)]
    context: Option<usize>,
    /// Type of the KV cache [default: f16; on ref, f64]
    ///
    /// q8_0 uses about half the memory of f16. It requires a head size that is a multiple of 32.
    #[arg(long, value_name = "TYPE", value_enum)]
    kv: Option<KvType>,
    /// Fuse nodes that the device can compute in one step; on cpu and cuda, this does not change the results
    #[arg(long, value_name = "SWITCH", value_enum, default_value = "on")]
    fusion: Switch,
}

/// Options for the kernels of a device.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct Kernels {
    /// Number of threads; does not change the results [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Instruction set of the cpu device [default: the best one available]
    #[arg(long, value_name = "NAME", value_parser = value::instruction_sets())]
    isa: Option<String>,
    #[command(flatten)]
    repack: Repack,
    #[command(flatten)]
    matmul: Matmul,
}

impl Kernels {
    /// Opens a device.
    pub fn open(&self, name: &str) -> Result<Arc<dyn Device>> {
        Ok(open_device(name, &self.options())?)
    }

    /// Options to open a device with.
    pub fn options(&self) -> DeviceOptions {
        DeviceOptions {
            threads: self.threads,
            isa: self.isa.clone(),
            repack: self.repack.is_on(),
            linear: self.matmul.mode(),
            ..DeviceOptions::default()
        }
    }
}

/// Whether weights are repacked when they are loaded.
#[derive(Args, Clone)]
pub struct Repack {
    /// Do not repack weights into the layout of the fast kernels
    ///
    /// On cpu, weights are then read from the mapped file, which needs the least memory. On cuda, the plain kernels are
    /// used, which are the reference for tests of the fast kernels.
    #[arg(long)]
    no_repack: bool,
    /// The former spelling of `--no-repack`: `--repack off`.
    #[arg(long, hide = true, value_name = "SWITCH", value_enum, conflicts_with = "no_repack")]
    repack: Option<Switch>,
}

impl Repack {
    /// Whether weights are repacked.
    pub fn is_on(&self) -> bool {
        !self.no_repack && self.repack != Some(Switch::Off)
    }
}

/// Matrix multiplication of cuda.
#[derive(Args, Clone)]
pub struct Matmul {
    /// Select how cuda multiplies by weights that are quantized in blocks of 32
    #[arg(long, alias = "linear", value_name = "MODE", value_enum, default_value = "q8_1")]
    matmul: MatmulMode,
}

impl Matmul {
    /// The mode in the form that devices take.
    pub fn mode(&self) -> Linear {
        match self.matmul {
            MatmulMode::Q8_1 => Linear::Q8_1,
            MatmulMode::Dequantize => Linear::Dequantize,
        }
    }
}

/// Matmul modes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MatmulMode {
    /// Quantize activations to 8 bits and multiply integers
    #[value(name = "q8_1")]
    Q8_1,
    /// Decode the weights; use plain kernels for a few tokens, and f16 tensor cores for prompts
    Dequantize,
}

/// Types of the KV cache.
#[derive(Clone, Copy, ValueEnum)]
enum KvType {
    F16,
    F32,
    #[value(name = "q8_0")]
    Q8_0,
}

/// A switch.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// The devices of a [`Place`].
pub struct Opened {
    devices: Vec<Arc<dyn Device>>,
    /// Computes the operators that the devices lack. `None` if they lack none.
    fallback: Option<Arc<dyn Device>>,
}

impl Place {
    /// Places the weights of a model on the devices.
    pub fn weights(&self, model: Arc<ModelFile>) -> Result<Arc<Weights>> {
        self.shares.expect_use(&model)?;
        self.weights_on(self.open()?, model)
    }

    /// Opens the devices.
    pub fn open(&self) -> Result<Opened> {
        let devices = self.shares.open(&self.device, &self.machine)?;
        Ok(Opened { devices, fallback: self.shares.fallback(&self.device, &self.machine)? })
    }

    /// Places the weights of a model on devices that are open.
    pub fn weights_on(&self, opened: Opened, model: Arc<ModelFile>) -> Result<Arc<Weights>> {
        self.shares.expect_use(&model)?;
        let Opened { devices, fallback } = opened;
        note_weight_types(&model, &devices);
        Ok(Arc::new(Weights::over(model, devices, fallback)))
    }

    /// Session options for this number of sequences.
    pub fn session(&self, sequences: usize) -> SessionOptions {
        SessionOptions { ranges: self.nvtx, ..self.machine.session(sequences) }
    }

    /// The number of threads, if given.
    pub fn threads(&self) -> Option<usize> {
        self.machine.threads()
    }

    /// Fails if node ranges were asked for.
    pub fn expect_no_nvtx(&self) -> Result<()> {
        match self.nvtx {
            true => Err(Failure::new("--nvtx: this command computes nothing; remove the option")),
            false => Ok(()),
        }
    }

    /// Starts a session for as many sequences as `prompts`. Prints a note if weights do not fit in memory.
    pub fn begin(&self, weights: Arc<Weights>, prompts: &[Vec<u32>]) -> Result<Session> {
        let source = prompts.iter().map(Vec::len).max();
        self.open_session(weights, &SessionOptions { source, ..self.session(prompts.len()) })
    }

    /// Starts a session for one conversation. Prints a note if weights do not fit in memory.
    pub fn begin_one(&self, weights: Arc<Weights>) -> Result<Session> {
        self.open_session(weights, &self.session(1))
    }

    /// Starts a session with these options. Prints a note if weights do not fit in memory.
    pub fn open_session(&self, weights: Arc<Weights>, options: &SessionOptions) -> Result<Session> {
        let session = Session::new(weights, options)?;
        let held = session.weights().held();
        let again = from_disk(held.mapped_bytes);
        if held.crowded_out_bytes > 0 {
            let (cause, help) = match self.shares.device_memory.is_empty() {
                true => ("do not fit in memory", "use a smaller context (-c) or a smaller model"),
                false => ("exceed --device-memory", "raise the limit"),
            };
            output::note(&format!(
                "{:.1} MB of weights {cause} and are read from the mapped file, which is slower{again}; {help}",
                megabytes(held.crowded_out_bytes)
            ));
        } else if !again.is_empty() {
            output::note(&format!(
                "{:.1} MB of weights are read from the mapped file{again}",
                megabytes(held.mapped_bytes)
            ));
        }
        Ok(session)
    }

    /// Prints a note if memory is too small for the plans of a session, which share it except for inputs.
    pub fn foresee(&self, weights: &Weights, plans: &[&Plan]) -> Result<()> {
        let is_host = |device: &Arc<dyn Device>| device.name() == HOST;
        let Some(index) = weights.devices().iter().position(is_host) else { return Ok(()) };
        let (_, free) = weights.devices()[index].about().memory.unwrap_or((u64::MAX, u64::MAX));
        let hosts: Vec<ReportedDevice> = plans.iter().map(|plan| plan.report().devices.swap_remove(index)).collect();
        let most = |bytes: fn(&ReportedDevice) -> usize| hosts.iter().map(bytes).max().unwrap_or(0) as u64;
        let sum = |bytes: fn(&ReportedDevice) -> usize| hosts.iter().map(|host| bytes(host) as u64).sum::<u64>();
        let others = [
            most(|host| host.kv_bytes),
            most(|host| host.arena_bytes),
            most(|host| host.scratch_bytes),
            sum(|host| host.input_bytes),
        ];
        let with = |weights: u64| others.iter().fold(weights, |sum, bytes| sum.saturating_add(*bytes));
        let needed = with(weights.copied_bytes(plans, index)?);
        let again = from_disk(with(Weights::stored_bytes(plans, index)));
        if needed > free {
            output::note(&format!(
                "{HOST} needs {:.1} MB of memory, but {:.1} MB are free; weights that do not fit are read from the \
                 mapped file{again}",
                megabytes(needed),
                megabytes(free)
            ));
        } else if !again.is_empty() {
            output::note(&format!("the weights of {HOST} are read from the mapped file{again}"));
        }
        Ok(())
    }
}

/// The device that uses the memory of the host.
const HOST: &str = "cpu";

/// Describes the cost of reading weights from disk, if `bytes` of memory are needed and the system has less.
fn from_disk(bytes: u64) -> String {
    // Cached pages of files count as free memory.
    let again = system_memory().map_or(0, |(_, free)| bytes.saturating_sub(free));
    if again == 0 {
        return String::new();
    }
    format!(" (at least {:.1} MB of them from disk for each token)", megabytes(again))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Machine {
    /// Opens a device.
    pub fn open(&self, name: &str) -> Result<Arc<dyn Device>> {
        self.kernels.open(name)
    }

    /// Options to open a device with.
    pub fn options(&self) -> DeviceOptions {
        self.kernels.options()
    }

    /// The number of threads, if given.
    pub fn threads(&self) -> Option<usize> {
        self.kernels.threads
    }

    /// Session options for this number of sequences.
    pub fn session(&self, sequences: usize) -> SessionOptions {
        SessionOptions {
            context: self.context,
            sequences,
            kv: self.kv(),
            fusion: self.fusion(),
            ..SessionOptions::default()
        }
    }

    /// The options of the device that differ from their defaults, each with its value.
    pub fn arguments(&self) -> Vec<String> {
        let value = |name: &str, value: Option<&str>| value.map(|value| format!("--{name} {value}"));
        let all = [
            value("kv", self.kv().map(DType::name)),
            value("isa", self.kernels.isa.as_deref()),
            (!self.kernels.repack.is_on()).then(|| "--no-repack".to_owned()),
            (self.kernels.matmul.mode() == Linear::Dequantize).then(|| "--matmul dequantize".to_owned()),
            (!self.fusion()).then(|| "--fusion off".to_owned()),
        ];
        all.into_iter().flatten().collect()
    }

    /// Whether nodes are fused.
    pub fn fusion(&self) -> bool {
        self.fusion == Switch::On
    }

    /// The type of the KV cache, if given.
    pub fn kv(&self) -> Option<DType> {
        self.kv.map(|kv| match kv {
            KvType::F16 => DType::F16,
            KvType::F32 => DType::F32,
            KvType::Q8_0 => DType::Q8_0,
        })
    }
}
