//! The list of devices: which names there are, what is here, and what is not and why.

use crate::device::ascend::{self, Ascend, AscendOptions, Chip};
use crate::device::cpu::{Cpu, CpuOptions, Isa};
use crate::device::cuda::{self, Cuda, CudaOptions};
use crate::device::reference::Reference;
use crate::device::{About, Bounded, Cacheless, Device, Pair};
use crate::error::{Error, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup_formats::counted;

/// How a device is opened. Nothing here changes a bit of what `ref` and `cpu` compute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Threads that compute, at most [`THREADS_MAX`](crate::device::THREADS_MAX); `None` takes as many as the machine
    /// has.
    pub threads: Option<usize>,
    /// The instruction set of `cpu` by its name; `None` takes the best that the machine has.
    pub isa: Option<String>,
    /// Whether `cpu` and `cuda` pack weights for their fast kernels at upload. Without it, `cuda` computes by its plain
    /// kernels, whose sums have other orders.
    pub repack: bool,
    /// How `cuda` multiplies weights of 32 codes a block.
    pub linear: Linear,
    /// Where [`open_devices`] has cards keep the KV cache.
    pub kv_device: KvDevice,
}

/// Where the KV cache lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KvDevice {
    /// On the device of each layer.
    #[default]
    Same,
    /// In this machine's memory, where `cpu` computes attention too; the layers of `ref`, which are there anyway, keep
    /// theirs.
    Cpu,
}

/// How weights of 32 codes a block are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Linear {
    /// With activations in 8 bits, by integers: fast.
    #[default]
    Q8_1,
    /// Each weight decoded: few tokens as they are, prompts with both rounded to f16 where tensor cores multiply them.
    Dequantize,
}

impl Default for DeviceOptions {
    fn default() -> DeviceOptions {
        DeviceOptions {
            threads: None,
            isa: None,
            repack: true,
            linear: Linear::default(),
            kv_device: KvDevice::default(),
        }
    }
}

/// A kind of device, by the first part of its name.
struct Kind {
    name: &'static str,
    listed: Listed,
    /// Opens the device whose name has this behind the kind's.
    open: fn(&str, &DeviceOptions) -> Result<Arc<dyn Device>>,
}

/// All kinds. A new device is one line here.
static KINDS: [Kind; 6] = [
    Kind { name: "ref", listed: Listed::One, open: open_reference },
    Kind { name: "cpu", listed: Listed::One, open: open_cpu },
    Kind { name: "cuda", listed: Listed::Cards(Cuda::count), open: open_cuda },
    Kind { name: "npu", listed: Listed::Cards(Ascend::count), open: open_npu },
    Kind { name: "cuda-sim", listed: Listed::Simulator(Cuda::simulator), open: open_cuda_sim },
    Kind { name: "npu-sim", listed: Listed::Simulator(Ascend::simulator), open: open_npu_sim },
];

/// What is listed of a kind.
enum Listed {
    /// The only one.
    One,
    /// Every card, of which there are so many.
    Cards(fn() -> Result<usize>),
    /// Whether its library is here, which lies there. It is not opened: a process has real cards or simulated ones, and
    /// has looked at the real ones.
    Simulator(fn() -> Result<PathBuf>),
}

impl Kind {
    fn is_simulated(&self) -> bool {
        matches!(self.listed, Listed::Simulator(_))
    }

    /// What there is of it; where there is nothing, why.
    fn reports(&self, options: &DeviceOptions) -> Vec<DeviceReport> {
        let named = |rest: &str| match (self.open)(rest, options) {
            Ok(device) => DeviceReport::of(device.about()),
            Err(error) => DeviceReport::unavailable(self, rest, error.to_string()),
        };
        let unavailable = |error: Error| vec![DeviceReport::unavailable(self, "", error.to_string())];
        match self.listed {
            Listed::One => vec![named("")],
            // Where there is none, opening the first says so.
            Listed::Cards(count) => count()
                .map_or_else(unavailable, |count| (0..count.max(1)).map(|card| named(&card_rest(card))).collect()),
            Listed::Simulator(file) => {
                file().map_or_else(unavailable, |file| vec![DeviceReport::simulator(self, &file)])
            }
        }
    }
}

/// What stands behind the kind in a card's name: nothing for the first.
fn card_rest(card: usize) -> String {
    if card == 0 { String::new() } else { format!(":{card}") }
}

/// What `trueup devices` says about one device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceReport {
    /// The name that selects it.
    pub name: String,
    /// Whether it can be used here and now.
    pub available: bool,
    /// Whether it imitates another machine.
    pub simulated: bool,
    /// What it is, or why it cannot be used.
    pub description: String,
    /// Bytes of its memory, where it can tell.
    pub memory_bytes: Option<u64>,
    /// How many of them are free, where it can tell.
    pub memory_free_bytes: Option<u64>,
}

/// Opens the device of that name: `ref`, `cpu`, `cuda`, `cuda:1`, `cuda-sim`, `cuda-simx2:1`; `cuda:0+1` for two cards
/// that divide each product between them, `cuda:0+1+2+3` for four. The error says why others cannot be had.
pub fn open_device(name: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    if let Some([first, second]) = halves(name) {
        return Ok(Arc::new(Pair::new(open_device(&first, options)?, open_device(&second, options)?)));
    }
    let Some(kind) = kind_of(name) else {
        return Err(Error::Request(format!(
            "unknown device {}; expected one of {}",
            trueup_formats::quote(name),
            device_kinds().join(", ")
        )));
    };
    (kind.open)(&name[kind.name.len()..], options)
}

/// The names of all kinds of devices.
pub fn device_kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// Whether a name selects a kind of device, available or not.
pub fn is_device_name(name: &str) -> bool {
    kind_of(name).is_some()
}

/// The kind of device that a name selects.
fn kind_of(name: &str) -> Option<&'static Kind> {
    let kind_name = name.split([':', '@']).next().unwrap_or_default();
    // The number of cards belongs to the simulators' names: `npu-simx2`.
    KINDS.iter().find(|kind| match kind_name.strip_prefix(kind.name) {
        Some("") => true,
        Some(rest) => kind.is_simulated() && rest.starts_with('x'),
        None => false,
    })
}

/// The cards that `cuda:0+1`, `npu:0+1` or `cuda-simx2:0+1@4GiB` divides products between; of more than two cards,
/// which half of them each half of the rows goes to.
fn halves(name: &str) -> Option<[String; 2]> {
    let (card, memory) = name.split_at(name.find('@').unwrap_or(name.len()));
    let divides = |kind: &str| kind.starts_with("cuda") || kind.starts_with("npu");
    let (kind, numbers) = card.rsplit_once(':').filter(|(kind, _)| divides(kind))?;
    let numbers: Vec<&str> = numbers.split('+').collect();
    let is_twice = numbers.iter().enumerate().any(|(place, number)| numbers[..place].contains(number));
    if numbers.len() < 2 || is_twice {
        return None;
    }
    let (first, second) = numbers.split_at(numbers.len().div_ceil(2));
    Some([first, second].map(|numbers| format!("{kind}:{}{memory}", numbers.join("+"))))
}

/// Every kind of device, whether it can be used or not: of cards each that is here. Opens all but simulators.
pub fn list_devices(options: &DeviceOptions) -> Vec<DeviceReport> {
    KINDS.iter().flat_map(|kind| kind.reports(options)).collect()
}

impl DeviceReport {
    fn of(about: About) -> DeviceReport {
        DeviceReport {
            name: about.name,
            available: true,
            simulated: about.simulated,
            description: about.description,
            memory_bytes: about.memory.map(|(all, _)| all),
            memory_free_bytes: about.memory.map(|(_, free)| free),
        }
    }

    fn unavailable(kind: &Kind, rest: &str, description: String) -> DeviceReport {
        DeviceReport {
            name: format!("{}{rest}", kind.name),
            available: false,
            simulated: kind.is_simulated(),
            description,
            memory_bytes: None,
            memory_free_bytes: None,
        }
    }

    fn simulator(kind: &Kind, file: &Path) -> DeviceReport {
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        let description = format!("simulated cards, computed on the CPU ({file} is next to the program)");
        DeviceReport { available: true, ..DeviceReport::unavailable(kind, "", description) }
    }
}

fn open_reference(rest: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    expect_no_more("ref", rest)?;
    Ok(Arc::new(Reference::new(options.threads.unwrap_or(0))?))
}

fn open_cpu(rest: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    expect_no_more("cpu", rest)?;
    let isa = options.isa.as_deref().map(|name| {
        let known = || Isa::ALL.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
        let unknown = || {
            Error::Request(format!("no kernels exist for {}; expected one of {}", trueup_formats::quote(name), known()))
        };
        Isa::from_name(name).ok_or_else(unknown)
    });
    let defaults = CpuOptions::default();
    let threads = options.threads.unwrap_or(defaults.threads);
    Ok(Arc::new(Cpu::new(CpuOptions { threads, isa: isa.transpose()?, repack: options.repack })?))
}

/// Fails where more stands behind the name of a kind that has one device only.
fn expect_no_more(kind: &str, rest: &str) -> Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let name = trueup_formats::quote(&format!("{kind}{rest}"));
    Err(Error::Request(format!("device {name}: expected {kind}, because there is only one")))
}

/// The number of a card: what stands behind `cuda` or `npu`.
fn card_number(kind: &str, rest: &str) -> Result<usize> {
    let number = if rest.is_empty() { Some(0) } else { rest.strip_prefix(':').and_then(|number| number.parse().ok()) };
    number.ok_or_else(|| {
        let name = trueup_formats::quote(&format!("{kind}{rest}"));
        Error::Request(format!("device {name}: expected a card number, like {kind}:1"))
    })
}

/// `cuda`, `cuda:N`.
fn open_cuda(rest: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    let place = cuda::Place::Card(card_number("cuda", rest)?);
    Ok(Arc::new(Cuda::new(&CudaOptions { place, repack: options.repack, linear: options.linear })?))
}

/// Bytes of memory that a simulated card has, unless its name says how many.
const SIMULATED_BYTES: u64 = 8 << 30;

/// What stands behind `cuda-sim`, or behind the chip of `npu-sim`, in a name.
struct SimulatedCards {
    cards: usize,
    /// Which one; `None` names all.
    card: Option<usize>,
    memory_bytes: u64,
}

impl SimulatedCards {
    /// `x2:1@4GiB`: how many cards, which one, bytes of memory of each, `bytes` unless they are named. An error says
    /// which of the three is wrong.
    fn parse(rest: &str, bytes: u64) -> std::result::Result<SimulatedCards, String> {
        let found = |text: &str| trueup_formats::quote(text);
        let (rest, memory_bytes) = match rest.split_once('@') {
            Some((rest, named)) => {
                let expected = || format!("memory: expected a size such as 4GiB or 512MiB, found {}", found(named));
                (rest, memory_bytes(named).ok_or_else(expected)?)
            }
            None => (rest, bytes),
        };
        let (rest, card) = match rest.split_once(':') {
            Some((rest, card)) => (rest, Some(card)),
            None => (rest, None),
        };
        let cards = match rest.strip_prefix('x') {
            Some(number) => {
                number.parse().ok().filter(|cards| (1..=SIMULATED_CARDS_MAX).contains(cards)).ok_or_else(|| {
                    format!("number of cards: expected 1 to {SIMULATED_CARDS_MAX}, found {}", found(number))
                })?
            }
            None if rest.is_empty() => 1,
            None => return Err(format!("expected the number of cards, such as x2, found {}", found(rest))),
        };
        let number = |card: &str| {
            let expected = || format!("card: expected 0 to {}, found {}", cards - 1, found(card));
            card.parse().ok().filter(|card| *card < cards).ok_or_else(expected)
        };
        Ok(SimulatedCards { cards, card: card.map(number).transpose()?, memory_bytes })
    }
}

/// Cards that a process can simulate.
const SIMULATED_CARDS_MAX: usize = 8;

/// The one card that a name means, or why there is none.
fn simulated_card(
    kind: &str,
    rest: &str,
    cards: std::result::Result<SimulatedCards, String>,
) -> Result<(SimulatedCards, usize)> {
    let name = || trueup_formats::quote(&format!("{kind}{rest}"));
    let cards = cards
        .map_err(|problem| Error::Request(format!("device {}: {problem}; a full name is {kind}x2:1@4GiB", name())))?;
    let (count, card) = (cards.cards, cards.card.or((cards.cards == 1).then_some(0)));
    let several = || {
        let first = rest.split('@').next().unwrap_or_default();
        Error::Request(format!("device {}: {count} cards; select one of them, like {kind}{first}:0", name()))
    };
    Ok((cards, card.ok_or_else(several)?))
}

/// `cuda-sim`, `cuda-sim@4GiB`, `cuda-simx2:1`.
fn open_cuda_sim(rest: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
    let (cards, card) = simulated_card("cuda-sim", rest, SimulatedCards::parse(rest, SIMULATED_BYTES))?;
    let place = cuda::Place::Simulated { cards: cards.cards, card, memory_bytes: cards.memory_bytes };
    Ok(Arc::new(Cuda::new(&CudaOptions { place, repack: options.repack, linear: options.linear })?))
}

/// `npu`, `npu:N`.
fn open_npu(rest: &str, _: &DeviceOptions) -> Result<Arc<dyn Device>> {
    let place = ascend::Place::Card(card_number("npu", rest)?);
    Ok(Arc::new(Ascend::new(&AscendOptions { place })?))
}

/// The chip that is simulated unless the name says which.
const SIMULATED_CHIP: &str = "910b";

/// The chip that stands behind `npu-sim`, and what stands behind it: `:310px2` is a 310p and `x2`.
fn simulated_chip(rest: &str) -> Option<(&'static Chip, &str)> {
    let named = rest.strip_prefix(':').and_then(|rest| {
        let behind =
            |name: &&str| rest.strip_prefix(*name).filter(|rest| rest.is_empty() || rest.starts_with(['x', ':', '@']));
        Chip::names().into_iter().find_map(|name| behind(&name).map(|rest| (name, rest)))
    });
    let (name, rest) = match named {
        Some(named) => named,
        None if rest.starts_with(':') => return None,
        None => (SIMULATED_CHIP, rest),
    };
    Chip::from_name(name).map(|chip| (chip, rest))
}

/// `npu-sim`, `npu-sim:310p`, `npu-sim:910bx2:1@4GiB`.
fn open_npu_sim(rest: &str, _: &DeviceOptions) -> Result<Arc<dyn Device>> {
    let unknown = || {
        let name = trueup_formats::quote(&format!("npu-sim{rest}"));
        let known = Chip::names().join(", ");
        let found = trueup_formats::quote(rest.trim_start_matches(':'));
        Error::Request(format!("device {name}: expected a chip ({known}), found {found}; for example npu-sim:310p"))
    };
    let (chip, behind) = simulated_chip(rest).ok_or_else(unknown)?;
    let cards = SimulatedCards::parse(behind, chip.memory_bytes);
    let (cards, card) = simulated_card(&format!("npu-sim:{}", chip.name), behind, cards)?;
    let (cards, memory_bytes) = (cards.cards, cards.memory_bytes);
    let place = ascend::Place::Simulated { chip, cards, card, memory_bytes, more: String::new() };
    Ok(Arc::new(Ascend::new(&AscendOptions { place })?))
}

/// How many simulated cards a name means, where it means several and none of them.
fn several_simulated(name: &str) -> Option<usize> {
    let cards = match (name.strip_prefix("cuda-sim"), name.strip_prefix("npu-sim")) {
        (Some(rest), _) => SimulatedCards::parse(rest, SIMULATED_BYTES).ok(),
        (None, Some(rest)) => {
            simulated_chip(rest).and_then(|(chip, rest)| SimulatedCards::parse(rest, chip.memory_bytes).ok())
        }
        (None, None) => None,
    };
    cards.filter(|cards| cards.card.is_none() && cards.cards > 1).map(|cards| cards.cards)
}

/// The names of a list, in order: `cuda:0,cuda:1,cpu`. `cuda-simx2` stands for all of its cards.
fn names(list: &str) -> Vec<String> {
    let each = |name: &str| match several_simulated(name) {
        Some(cards) => {
            let (kind, memory) = name.split_at(name.find('@').unwrap_or(name.len()));
            (0..cards).map(|card| format!("{kind}:{card}{memory}")).collect()
        }
        None => vec![name.to_owned()],
    };
    list.split(',').map(str::trim).flat_map(each).collect()
}

/// Opens the devices of a list of names, over which the layers of a model are placed in this order. Of each as many
/// bytes of memory are used as `memory_bytes` says for its place, and of those behind its end as many as are free.
pub fn open_devices(list: &str, memory_bytes: &[u64], options: &DeviceOptions) -> Result<Vec<Arc<dyn Device>>> {
    let names = names(list);
    if memory_bytes.len() > names.len() {
        let (budgets, devices) = (memory_bytes.len(), names.len());
        return Err(Error::Request(format!(
            "{} for {}; pass at most one per device",
            counted(budgets, "memory size"),
            counted(devices, "device")
        )));
    }
    if let Some(twice) = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
        return Err(Error::Request(format!(
            "device {} is listed twice; list each device once",
            trueup_formats::quote(twice.1)
        )));
    }
    let open = |(place, name): (usize, &String)| {
        let device = open_device(name, options)?;
        let device: Arc<dyn Device> = match memory_bytes.get(place) {
            Some(bytes) => Arc::new(Bounded::new(device, *bytes)),
            None => device,
        };
        let leaves_cache = options.kv_device == KvDevice::Cpu && is_card(name);
        Ok(if leaves_cache { Arc::new(Cacheless::new(device)) } else { device })
    };
    let devices = names.iter().enumerate().map(open).collect::<Result<Vec<Arc<dyn Device>>>>()?;
    let opened: Vec<String> = devices.iter().map(|device| device.name()).collect();
    let twice = opened
        .iter()
        .enumerate()
        .find_map(|(place, name)| Some((opened[..place].iter().position(|other| shares_card(other, name))?, place)));
    let Some((first, second)) = twice else { return Ok(devices) };
    let [first, second] = [&names[first], &names[second]].map(|name| trueup_formats::quote(name));
    Err(Error::Request(format!("devices {first} and {second} share a card; use each card once")))
}

/// Whether two devices, by the names that they have themselves, are or hold the same card: `cuda:0` and `cuda:0+1`.
fn shares_card(one: &str, other: &str) -> bool {
    let parts = |name: &str| -> (String, Vec<String>) {
        let (kind, numbers) = name.rsplit_once(':').unwrap_or((name, ""));
        (kind.to_owned(), numbers.split('+').map(str::to_owned).collect())
    };
    let ((kind, cards), (other_kind, other_cards)) = (parts(one), parts(other));
    kind == other_kind && cards.iter().any(|card| other_cards.contains(card))
}

/// The device behind those of a list: `cpu`, where cards leave the KV cache to it and the list does not name it.
pub fn open_fallback(list: &str, options: &DeviceOptions) -> Result<Option<Arc<dyn Device>>> {
    let names = names(list);
    let is_needed = options.kv_device == KvDevice::Cpu && names.iter().any(|name| is_card(name));
    if !is_needed || names.iter().any(|name| name == "cpu") {
        return Ok(None);
    }
    open_device("cpu", options).map(Some)
}

/// Whether a device has memory of its own.
fn is_card(name: &str) -> bool {
    !KINDS.iter().any(|kind| matches!(kind.listed, Listed::One) && kind.name == name)
}

/// `4GiB`, `512MiB`, in bytes.
fn memory_bytes(text: &str) -> Option<u64> {
    let (number, unit) = match (text.strip_suffix("GiB"), text.strip_suffix("MiB")) {
        (Some(number), _) => (number, 1 << 30),
        (None, Some(number)) => (number, 1 << 20),
        (None, None) => return None,
    };
    number.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_open_what_they_say_and_nothing_else() {
        let cases = [
            ("ref", None),
            ("cpu", None),
            ("cpu:1", Some("expected cpu, because there is only one")),
            ("cuda:one", Some("expected a card number")),
            ("cuda-sim@4", Some("cuda-sim@4: memory: expected a size such as 4GiB or 512MiB, found 4")),
            ("cuda-sim@0GiB", Some("memory: expected a size such as 4GiB or 512MiB, found 0GiB")),
            ("cuda-simx2:2", Some("card: expected 0 to 1, found 2; a full name is cuda-simx2:1@4GiB")),
            ("npu-sim:910bx2:one", Some("card: expected 0 to 1, found one")),
            ("cuda-simx", Some("number of cards: expected 1 to 8, found ")),
            ("npu-sim:910bx", Some("number of cards: expected 1 to 8, found ")),
            ("cuda-simx9:1", Some("number of cards: expected 1 to 8, found 9")),
            ("npu-sim:910bx2@4GiB", Some("select one of them, like npu-sim:910bx2:0")),
            ("npu-sim:910c", Some("expected a chip (910b")),
            ("npu:x", Some("expected a card number, like npu:1")),
            ("cuda-simx2", Some("select one of them, like cuda-simx2:0")),
            ("cudax2", Some("unknown device")),
            ("gpu", Some("expected one of ref, cpu")),
        ];
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        for (name, expected) in cases {
            match (open_device(name, &options), expected) {
                (Ok(device), None) => assert_eq!(device.name(), name),
                (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{name}: {error}"),
                (opened, expected) => panic!("{name}: expected {expected:?}, opened: {}", opened.is_ok()),
            }
        }
    }

    #[test]
    fn lists_name_devices_in_order() {
        assert_eq!(names("cuda:0, cuda:1,cpu"), ["cuda:0", "cuda:1", "cpu"]);
        assert_eq!(names("cuda-simx2@1GiB,cpu"), ["cuda-simx2:0@1GiB", "cuda-simx2:1@1GiB", "cpu"]);
        assert_eq!(names("cuda-simx2:1"), ["cuda-simx2:1"]);
        assert_eq!(names("npu-sim:310px2@1GiB"), ["npu-sim:310px2:0@1GiB", "npu-sim:310px2:1@1GiB"]);
        assert_eq!(names("npu-simx2"), ["npu-simx2:0", "npu-simx2:1"]);
        assert_eq!(names("cuda-simx2:0+1"), ["cuda-simx2:0+1"]);
        assert_eq!(halves("cuda-simx2:0+1@1GiB").unwrap(), ["cuda-simx2:0@1GiB", "cuda-simx2:1@1GiB"]);
        assert_eq!(halves("npu-sim:310px2:0+1").unwrap(), ["npu-sim:310px2:0", "npu-sim:310px2:1"]);
        assert_eq!(halves("cuda:3+0+1@1GiB").unwrap(), ["cuda:3+0@1GiB", "cuda:1@1GiB"]);
        assert_eq!(halves("npu:0+1+2+3").unwrap(), ["npu:0+1", "npu:2+3"]);
        assert_eq!((halves("cuda:1"), halves("cuda:1+1"), halves("cpu:0+1")), (None, None, None));
        assert_eq!((halves("npu:0+1+0"), halves("npu")), (None, None));
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let open = |list, memory: &[u64]| match open_devices(list, memory, &options) {
            Ok(devices) => devices.iter().map(|device| device.name()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(open("cpu,ref", &[1 << 20]), "cpu ref");
        assert!(open("cpu", &[1, 2]).contains("2 memory sizes for 1 device;"));
        assert!(open("cpu,ref,cpu", &[]).contains("cpu is listed twice"));
    }

    #[test]
    fn a_card_under_two_names_is_the_same() {
        for (one, other, expected) in [
            ("cuda:0", "cuda:0", true),
            ("cuda:0", "cuda:1", false),
            ("cuda:0+1", "cuda:1", true),
            ("cuda:0+1", "cuda:2+3", false),
            ("npu:0+1+2+3", "npu:3", true),
            ("npu:0", "cuda:0", false),
            ("npu-sim:910b", "npu-sim:910b", true),
            ("npu-sim:310p:0", "npu-sim:310p:1", false),
            ("cpu", "ref", false),
        ] {
            assert_eq!((shares_card(one, other), shares_card(other, one)), (expected, expected), "{one}, {other}");
        }
    }

    #[test]
    fn every_kind_is_reported() {
        let reports = list_devices(&DeviceOptions { threads: Some(1), ..DeviceOptions::default() });
        for kind in &KINDS {
            assert!(reports.iter().any(|report| report.name.split(':').next() == Some(kind.name)), "{}", kind.name);
        }
        assert!(reports.iter().all(|report| !report.simulated || report.description.contains("simulat")));
        // What else is here depends on the machine; what is not says why.
        assert!(reports[..2].iter().all(|report| report.available));
        assert!(reports.iter().all(|report| report.available || !report.description.is_empty()));
    }
    /// Three cards, the second of which cannot be used.
    fn open_card(rest: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>> {
        match card_number("card", rest)? {
            1 => Err(Error::Device { device: "card:1".to_owned(), problem: "taken".to_owned() }),
            _ => open_reference("", options),
        }
    }

    #[test]
    fn every_card_is_listed_and_what_is_wrong_with_one_hides_no_other() {
        let told = |listed| {
            let reports = Kind { name: "card", listed, open: open_card }.reports(&DeviceOptions::default());
            reports.into_iter().map(|report| (report.name, report.available)).collect::<Vec<_>>()
        };
        let named = |names: [(&str, bool); 3]| names.map(|(name, here)| (name.to_owned(), here)).to_vec();
        assert_eq!(told(Listed::Cards(|| Ok(3))), named([("ref", true), ("card:1", false), ("ref", true)]));
        let none = Listed::Cards(|| Err(Error::Request("no driver".to_owned())));
        assert_eq!(told(none), [("card".to_owned(), false)]);
    }

    /// A process that has real cards cannot open a simulator, which is here all the same.
    #[test]
    fn a_simulator_is_listed_and_not_opened() {
        let kind = |listed| Kind { name: "card-sim", listed, open: |_, _| panic!("it is not opened") };
        let here = kind(Listed::Simulator(|| Ok(PathBuf::from("/programs/libcards.so"))));
        let [report] = &here.reports(&DeviceOptions::default())[..] else { panic!("one simulator") };
        assert!(report.available && report.simulated && report.name == "card-sim", "{report:?}");
        assert!(report.description.contains("simulated") && report.description.contains("libcards.so"), "{report:?}");
        let gone = kind(Listed::Simulator(|| Err(Error::Request("build it".to_owned()))));
        let [report] = &gone.reports(&DeviceOptions::default())[..] else { panic!("one simulator") };
        assert!(!report.available && report.simulated && report.description == "build it", "{report:?}");
    }
}
