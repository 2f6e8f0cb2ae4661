//! Flags that say where and with how much memory to compute; `run`, `chat`, `plan`, `bench` and `verify` share them.

use crate::failure::{Failure, Result};
use crate::output;
use crate::target::Targets;
use crate::value;
use clap::{Args, ValueEnum};
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::{self, Description, OpenOptions, quote};
use trueup::runtime::device::Device;
use trueup::runtime::device::cpu::system_memory;
use trueup::runtime::plan::{Plan, PlanReport};
use trueup::runtime::{
    DeviceOptions, KvDevice, Linear, ModelFile, Session, SessionOptions, Weights, open_device, open_devices,
    open_fallback,
};

/// The GGUF file to compute. Models in other formats are named, with what to do about them.
pub fn open_model(path: &Path) -> Result<Arc<ModelFile>> {
    let error = match ModelFile::open(path) {
        Ok(model) => return Ok(Arc::new(model)),
        Err(error) => error,
    };
    match formats::open(path, &OpenOptions::default()) {
        Ok(other) if matches!(other.description(), Description::Json(_)) => {
            let (path, format) = (quote(&path.to_string_lossy()), other.format());
            Err(Failure::new(format!(
                "{path}: is {format}, not GGUF; convert it first: trueup convert {path} model.gguf"
            )))
        }
        Err(reason) if path.is_dir() => Err(reason.into()),
        Ok(_) | Err(_) => Err(error.into()),
    }
}

/// Fails before any work where a side result would overwrite the model or one of the files `read`, or has nowhere to go.
pub fn check_target(target: Option<&Path>, model: &ModelFile, read: &[&Path]) -> Result<()> {
    let Some(target) = target else { return Ok(()) };
    let checkpoint = formats::open(model.path(), &OpenOptions::default())?;
    Targets::files([target]).check(&checkpoint.sources(), read)
}

/// Where to compute.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct Place {
    /// The device that computes: ref, cpu, cuda[:N], npu[:N], and simulated cuda-sim, npu-sim[:CHIP]; or several, like cuda:0,cuda:1,cpu: each takes as
    /// many layers as it has room for, in this order
    #[arg(long, visible_alias = "dev", value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[command(flatten)]
    shares: Shares,
    /// Compute node by node, each in a range of NVIDIA's profilers (nsys) with its name; needs libnvToolsExt. Slower, with the same results
    #[arg(long)]
    nvtx: bool,
    #[command(flatten)]
    machine: Machine,
}

/// How much of each device's memory is used.
#[derive(Args, Clone)]
pub struct Shares {
    /// Memory that may be used of each device, like 6GiB,8GiB: for weights, KV cache and intermediate results; all that is free by default
    #[arg(long, value_name = "SIZES", value_parser = value::size, value_delimiter = ',')]
    device_memory: Vec<u64>,
    /// Where the KV cache of cards lies: same is the card; cpu is this machine's memory, where attention is computed then, which leaves the card's to weights
    #[arg(long, value_name = "DEVICE", value_enum, default_value = "same")]
    kv_device: KvPlace,
}

impl Shares {
    /// The devices of a list of names.
    pub fn open(&self, list: &str, machine: &Machine) -> Result<Vec<Arc<dyn Device>>> {
        Ok(open_devices(list, &self.device_memory, &self.options(machine))?)
    }

    /// What computes behind them, where they leave something to it.
    pub fn fallback(&self, list: &str, machine: &Machine) -> Result<Option<Arc<dyn Device>>> {
        Ok(open_fallback(list, &self.options(machine))?)
    }

    /// The flags that say where what is computed lies, where they are not as by default, each with its value.
    pub fn arguments(&self) -> Vec<String> {
        if self.kv_device == KvPlace::Cpu { vec!["--kv-device cpu".to_owned()] } else { Vec::new() }
    }

    fn options(&self, machine: &Machine) -> DeviceOptions {
        let kv_device = match self.kv_device {
            KvPlace::Same => KvDevice::Same,
            KvPlace::Cpu => KvDevice::Cpu,
        };
        DeviceOptions { kv_device, ..machine.options() }
    }
}

/// Places of the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KvPlace {
    Same,
    Cpu,
}

/// How devices use this machine.
#[derive(Args, Clone)]
#[command(next_help_heading = "Device")]
pub struct Machine {
    /// Threads; one per core by default. Results do not depend on it
    #[arg(short, long, value_name = "N", value_parser = value::threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Tokens that each sequence can hold; the model's context by default, or 4096 where that is less
    #[arg(short, long = "ctx-size", value_name = "TOKENS", value_parser = value::tokens, allow_negative_numbers = true)]
    context: Option<usize>,
    /// The type of the KV cache; f16 by default, f64 on ref. q8_0 takes about half of f16's memory and needs heads of a multiple of 32
    #[arg(long, value_name = "TYPE", value_enum)]
    kv: Option<KvType>,
    /// Instruction set of the cpu device; the best that is here by default
    #[arg(long, value_name = "NAME", value_parser = value::instruction_sets())]
    isa: Option<String>,
    #[command(flatten)]
    repack: Repack,
    #[command(flatten)]
    matmul: Matmul,
    /// Whether nodes that the device computes at once, like the first half of a feed-forward, become one; changes no result of cpu
    #[arg(long, value_name = "SWITCH", value_enum, default_value = "on")]
    fusion: Switch,
}

/// Whether weights are repacked when they are loaded.
#[derive(Args, Clone)]
pub struct Repack {
    /// Do not repack weights for the fast kernels when loading
    ///
    /// On cpu, computes directly on the mapped file, which needs the least memory. On cuda, uses the plain kernels that the
    /// fast ones are checked against.
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

/// How cuda multiplies quantized matrices.
#[derive(Args, Clone)]
pub struct Matmul {
    /// Set how cuda multiplies weights that are quantized in blocks of 32
    #[arg(long, alias = "linear", value_name = "MODE", value_enum, default_value = "q8_1")]
    matmul: MatmulMode,
}

impl Matmul {
    /// As devices take it.
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
    /// Decode the weights: plain kernels for a few tokens, tensor cores in f16 for prompts
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

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Place {
    /// A model on the device, or on several.
    pub fn weights(&self, model: Arc<ModelFile>) -> Result<Arc<Weights>> {
        let (devices, fallback) =
            (self.shares.open(&self.device, &self.machine)?, self.shares.fallback(&self.device, &self.machine)?);
        Ok(Arc::new(Weights::over(model, devices, fallback)))
    }

    /// A session with room for so many sequences.
    pub fn session(&self, sequences: usize) -> SessionOptions {
        SessionOptions { ranges: self.nvtx, ..self.machine.session(sequences) }
    }

    /// Begins a session, and says where memory is too small for what computes fastest.
    pub fn begin(&self, weights: Arc<Weights>, sequences: usize) -> Result<Session> {
        let session = Session::new(weights, &self.session(sequences))?;
        let held = session.weights().held();
        let again = from_disk(held.mapped_bytes);
        if held.crowded_out_bytes > 0 {
            output::note(&format!(
                "{:.1} MB of weights find no room in memory and are read where the file is mapped, which is slower{again}; a smaller context \
                 (-c) or a smaller model leaves more room",
                megabytes(held.crowded_out_bytes)
            ));
        } else if !again.is_empty() {
            output::note(&format!(
                "{:.1} MB of weights are read where the file is mapped{again}",
                megabytes(held.mapped_bytes)
            ));
        }
        Ok(session)
    }

    /// Says where memory is too small for what is planned.
    pub fn foresee(&self, weights: &Weights, plan: &Plan, report: &PlanReport) -> Result<()> {
        let is_host = |device: &Arc<dyn Device>| device.about().name == HOST;
        let Some(index) = weights.devices().iter().position(is_host) else { return Ok(()) };
        let (host, (_, free)) =
            (&report.devices[index], weights.devices()[index].about().memory.unwrap_or((u64::MAX, u64::MAX)));
        let others = [host.kv_bytes, host.arena_bytes, host.scratch_bytes, host.input_bytes];
        let with = |weights: u64| others.iter().fold(weights, |sum, bytes| sum.saturating_add(*bytes as u64));
        let needed = with(weights.copied_bytes(plan, index)?);
        let again = from_disk(with(host.weight_bytes as u64));
        if needed > free {
            output::note(&format!(
                "{HOST} would need {:.1} MB of memory, and {:.1} MB are free: weights without room are read where the file is mapped{again}",
                megabytes(needed),
                megabytes(free)
            ));
        } else if !again.is_empty() {
            output::note(&format!("weights of {HOST} are read where the file is mapped{again}"));
        }
        Ok(())
    }
}

/// The device that computes with this machine's memory.
const HOST: &str = "cpu";

/// What it costs where the system has less memory than so many bytes for what is asked of it, of a file and beside it.
fn from_disk(bytes: u64) -> String {
    // Pages of files that the system keeps count as free.
    let again = system_memory().map_or(0, |(_, free)| bytes.saturating_sub(free));
    if again == 0 {
        return String::new();
    }
    format!(", and about {:.1} MB or more come from the disk again for each token", megabytes(again))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Machine {
    /// The device of that name.
    pub fn open(&self, name: &str) -> Result<Arc<dyn Device>> {
        Ok(open_device(name, &self.options())?)
    }

    /// How devices are opened.
    pub fn options(&self) -> DeviceOptions {
        DeviceOptions {
            threads: self.threads,
            isa: self.isa.clone(),
            repack: self.repack.is_on(),
            linear: self.matmul.mode(),
            ..DeviceOptions::default()
        }
    }

    /// Threads, where a number was asked for.
    pub fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// A session with room for so many sequences.
    pub fn session(&self, sequences: usize) -> SessionOptions {
        SessionOptions {
            context: self.context,
            sequences,
            kv: self.kv(),
            fusion: self.fusion(),
            ..SessionOptions::default()
        }
    }

    /// The flags that say how the device computes, where they are not as by default, each with its value.
    pub fn arguments(&self) -> Vec<String> {
        let value = |name: &str, value: Option<&str>| value.map(|value| format!("--{name} {value}"));
        let all = [
            value("kv", self.kv().map(DType::name)),
            value("isa", self.isa.as_deref()),
            (!self.repack.is_on()).then(|| "--no-repack".to_owned()),
            (self.matmul.mode() == Linear::Dequantize).then(|| "--matmul dequantize".to_owned()),
            (!self.fusion()).then(|| "--fusion off".to_owned()),
        ];
        all.into_iter().flatten().collect()
    }

    /// Whether nodes are fused.
    pub fn fusion(&self) -> bool {
        self.fusion == Switch::On
    }

    /// The type of the KV cache, where one was asked for.
    pub fn kv(&self) -> Option<DType> {
        self.kv.map(|kv| match kv {
            KvType::F16 => DType::F16,
            KvType::F32 => DType::F32,
            KvType::Q8_0 => DType::Q8_0,
        })
    }
}
