//! Traces: what a program computed on the way through a model, tensor by tensor.
//!
//! ```text
//!   ours, others' safetensors   "STEP/NODE" or "NODE": arrays; texts "ids", "tokens", ...     ┐
//!   NumPy's .npz                the same names; integer arrays "ids" and "tokens"             ├─ Trace: step, node, shape, values
//!   text of llama.cpp           what its eval-callback example prints: first, last, sum       ┘
//! ```
//!
//! Which of them a file is shows in its first bytes. Every size in it is checked before it is used, and values are read
//! one tensor at a time. docs/traces.md describes the forms.

mod eval_callback;
mod npz;
mod writer;
mod zip;

pub use eval_callback::Shown;
pub use writer::TraceWriter;

use crate::error::{Error, Result, listed, quote};
use crate::safetensors_dir::SafetensorsFile;
use crate::source_file::SourceFile;
use crate::tensor_range::check_unique;
use eval_callback::PrintedTrace;
use npz::NpzFile;
use std::collections::HashMap;
use std::path::Path;
use trueup_blocks::DType;

/// Array or text that holds the token IDs, of the prompt and of what followed.
pub const KEY_IDS: &str = "ids";

/// Array or text that holds how many of the ids each step computed.
pub const KEY_TOKENS: &str = "tokens";

/// Text that holds the instruction sets that llama.cpp was built with, as it prints them.
pub const KEY_SYSTEM_INFO: &str = "system_info";

/// The metadata key of a repro file, which is not a trace.
const KEY_REPRO: &str = "trueup.repro";

/// Types that values can have; i32 where a node chose indices.
const VALUE_TYPES: [DType; 5] = [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32];

/// Tokens of a trace at most.
const TOKENS_MAX: usize = 1 << 20;

/// Steps whose tokens a message names.
const STEPS_SHOWN: usize = 8;

/// An open trace.
#[derive(Debug)]
pub struct Trace {
    source: Store,
    tensors: Vec<TraceTensor>,
    /// The place of each name among the tensors.
    places: HashMap<String, usize>,
    ids: Option<Vec<u32>>,
    tokens: Option<Vec<usize>>,
}

/// Where the values are.
#[derive(Debug)]
enum Store {
    Safetensors(SafetensorsFile),
    Npz(NpzFile),
    Printed(PrintedTrace),
}

/// One tensor of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceTensor {
    /// The step: a pass over one or more tokens, counted from 0.
    pub step: usize,
    /// The node that computed it; for a text of llama.cpp the name that this program gives to the same node.
    pub node: String,
    /// Innermost size first.
    pub shape: Vec<u64>,
    /// The type that the values were kept in.
    pub dtype: DType,
    /// Its number in the file.
    place: usize,
}

/// What is known of a tensor's values.
#[derive(Clone, PartialEq, Debug)]
pub enum TraceValues<'a> {
    /// All of them, innermost first.
    All(Vec<f64>),
    /// Some, and their sum.
    Shown(&'a Shown),
}

impl Trace {
    /// Opens a trace of any form. Everything but the values is checked here.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace> {
        let path = path.as_ref();
        let source = SourceFile::open(path)?;
        let mut head = [0; 9];
        let known = usize::try_from(source.bytes()).unwrap_or(usize::MAX).min(head.len());
        source.read_at(0, head.get_mut(..known).unwrap_or_default())?;
        let mut trace = if head.starts_with(zip::SIGNATURE_LOCAL) {
            Trace::from_npz(NpzFile::open(source)?)
        } else if head.ends_with(b"{") {
            Trace::from_safetensors(SafetensorsFile::open(path)?)
        } else {
            Trace::from_text(PrintedTrace::read(source)?)
        }?;
        let names: Vec<String> = trace.tensors.iter().map(TraceTensor::name).collect();
        check_unique(path, names.iter().map(String::as_str))?;
        trace.places = names.into_iter().enumerate().map(|(place, name)| (name, place)).collect();
        trace.check_tokens()?;
        Ok(trace)
    }

    /// The file.
    pub fn source(&self) -> &SourceFile {
        match &self.source {
            Store::Safetensors(file) => file.source(),
            Store::Npz(file) => file.source(),
            Store::Printed(text) => text.source(),
        }
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TraceTensor] {
        &self.tensors
    }

    /// The tensor of a node in a step.
    pub fn find(&self, step: usize, node: &str) -> Option<&TraceTensor> {
        self.places.get(&format!("{step}/{node}")).and_then(|place| self.tensors.get(*place))
    }

    /// The token IDs, if the file says them: those of the prompt, and those that followed.
    pub fn ids(&self) -> Option<&[u32]> {
        self.ids.as_deref()
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.step).max().map_or(0, |last| last.saturating_add(1))
    }

    /// How many of `ids` tokens each step computed: as the file says, or else all but one for each further step at
    /// first. Steps that the file announces and holds nothing of are among them.
    pub fn tokens(&self, ids: usize) -> Result<Vec<usize>> {
        let steps = self.steps().max(1);
        let tokens = self.tokens.clone().unwrap_or_else(|| {
            let further = steps.saturating_sub(1);
            std::iter::once(ids.saturating_sub(further)).chain(std::iter::repeat_n(1, further)).collect()
        });
        let sum = tokens.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count));
        if sum != Some(ids) || tokens.contains(&0) || tokens.len() < steps {
            let shown: Vec<String> = tokens.iter().take(STEPS_SHOWN).map(usize::to_string).collect();
            let more = if tokens.len() > shown.len() { ", ..." } else { "" };
            let shown = shown.join(", ");
            let problem =
                format!("expected {steps} steps that add up to {ids} token IDs, found steps of {shown}{more} tokens");
            return Err(
                Error::new(self.source().path(), problem).help("pass the token IDs that the trace was recorded with")
            );
        }
        Ok(tokens)
    }

    /// A free text that the file holds beside the tensors.
    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.source {
            Store::Safetensors(file) => {
                file.metadata().iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str())
            }
            Store::Printed(text) => text.system_info().filter(|_| key == KEY_SYSTEM_INFO),
            Store::Npz(_) => None,
        }
    }

    /// Whether this is a text of llama.cpp, which shows few values and no inputs exactly.
    pub fn is_printed(&self) -> bool {
        matches!(self.source, Store::Printed(_))
    }

    /// Whether this is a text of llama.cpp with flash attention, which sums in f16.
    pub fn has_fused_attention(&self) -> bool {
        matches!(&self.source, Store::Printed(text) if text.has_fused_attention())
    }

    /// Whether the file says that no row of the node was wanted in that step: of a piece of a prompt no logits are.
    pub fn is_unwanted(&self, step: usize, node: &str) -> bool {
        matches!(&self.source, Store::Printed(text) if text.is_unwanted(step, node))
    }

    /// The values of one of the tensors.
    pub fn read(&self, tensor: &TraceTensor) -> Result<TraceValues<'_>> {
        match &self.source {
            Store::Safetensors(file) => {
                let bytes = file.tensors().get(tensor.place).map_or(0, |info| info.bytes);
                let mut data = vec![0; usize::try_from(bytes).unwrap_or(0)];
                file.read(tensor.place, 0, &mut data)?;
                Ok(TraceValues::All(decode(tensor.dtype, &data)))
            }
            Store::Npz(file) => Ok(TraceValues::All(decode(tensor.dtype, &file.read(tensor.place)?))),
            Store::Printed(text) => Ok(TraceValues::Shown(text.shown(tensor.place))),
        }
    }

    fn from_safetensors(file: SafetensorsFile) -> Result<Trace> {
        let arrays = file.tensors().iter().map(|info| (info.name.clone(), info.shape.clone(), info.dtype)).collect();
        let text = |key| file.metadata().iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str());
        let path = file.source().path();
        if text(KEY_REPRO).is_some() {
            return Err(
                Error::new(path, "expected a trace, found a repro file").help("run it with `trueup repro FILE`")
            );
        }
        let ids = text(KEY_IDS).map(|text| integers(path, KEY_IDS, text)).transpose()?;
        let tokens = text(KEY_TOKENS).map(|text| integers(path, KEY_TOKENS, text)).transpose()?;
        Trace::from_arrays(Store::Safetensors(file), arrays, ids, tokens)
    }

    fn from_npz(file: NpzFile) -> Result<Trace> {
        let arrays = file.arrays().to_vec();
        Trace::from_arrays(Store::Npz(file), arrays, None, None)
    }

    fn from_text(text: PrintedTrace) -> Result<Trace> {
        let tensors = text
            .tensors()
            .enumerate()
            .map(|(place, (step, node, shape))| TraceTensor { step, node, shape, dtype: DType::F32, place })
            .collect();
        let ids = text.ids().map(<[u32]>::to_vec);
        let path = text.source().path();
        let tokens = text.tokens().map(|tokens| narrow(path, KEY_TOKENS, tokens)).transpose()?;
        Ok(Trace { source: Store::Printed(text), tensors, places: HashMap::new(), ids, tokens })
    }

    /// A trace over named arrays; ids may be among them.
    fn from_arrays(
        source: Store,
        arrays: Vec<(String, Vec<u64>, DType)>,
        ids: Option<Vec<u64>>,
        tokens: Option<Vec<u64>>,
    ) -> Result<Trace> {
        let mut trace = Trace { source, tensors: Vec::new(), places: HashMap::new(), ids: None, tokens: None };
        let (mut ids, mut tokens) = (ids, tokens);
        let mut refused = Vec::new();
        for (place, (name, shape, dtype)) in arrays.into_iter().enumerate() {
            if name == KEY_IDS || name == KEY_TOKENS {
                let values = trace.integer_array(place, &name, dtype)?;
                *(if name == KEY_IDS { &mut ids } else { &mut tokens }) = Some(values);
                continue;
            }
            let (step, node) = step_and_node(&name);
            if !VALUE_TYPES.contains(&dtype) {
                refused.push(format!("{} ({dtype})", quote(&name)));
                continue;
            }
            trace.tensors.push(TraceTensor { step, node, shape, dtype, place });
        }
        if !refused.is_empty() {
            let problem = format!("tensors of types that no graph node has: {}", listed(&refused, ", "));
            return Err(Error::new(trace.source().path(), problem).help("save values as f32 or f64"));
        }
        let path = trace.source().path().to_owned();
        trace.ids = ids.map(|ids| narrow(&path, KEY_IDS, ids)).transpose()?;
        trace.tokens = tokens.map(|tokens| narrow(&path, KEY_TOKENS, tokens)).transpose()?;
        Ok(trace)
    }

    /// The elements of an array of indices.
    fn integer_array(&self, place: usize, name: &str, dtype: DType) -> Result<Vec<u64>> {
        let fault = |problem: String| Error::new(self.source().path(), problem).at(format!("array {name}"));
        let width = match dtype {
            DType::I32 => 4,
            DType::I64 => 8,
            other => return Err(fault(format!("expected i32 or i64, found {other}"))),
        };
        let bytes = match &self.source {
            Store::Safetensors(file) => {
                let bytes = file.tensors().get(place).map_or(0, |info| info.bytes);
                let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= TOKENS_MAX.saturating_mul(width));
                let mut data = vec![0; bytes.ok_or_else(|| fault(format!("more than {TOKENS_MAX} tokens")))?];
                file.read(place, 0, &mut data)?;
                data
            }
            Store::Npz(file) => file.read(place)?,
            Store::Printed(_) => Vec::new(),
        };
        let value = |bytes: &[u8]| match *bytes {
            [a, b, c, d] => u64::try_from(i32::from_le_bytes([a, b, c, d])).ok(),
            [a, b, c, d, e, f, g, h] => u64::try_from(i64::from_le_bytes([a, b, c, d, e, f, g, h])).ok(),
            _ => None,
        };
        let values: Option<Vec<u64>> = bytes.chunks(width).map(value).collect();
        values.ok_or_else(|| fault("an index is below 0".to_owned()))
    }

    fn check_tokens(&self) -> Result<()> {
        let fault = |problem: String| Err(Error::new(self.source().path(), problem));
        if self.tensors.is_empty() {
            return fault("expected the tensors of a trace, found none".to_owned());
        }
        let count = self.ids.as_ref().map(Vec::len);
        if let Some(count) = count.filter(|count| !(1..=TOKENS_MAX).contains(count)) {
            return fault(format!("expected 1 to {TOKENS_MAX} token IDs, found {count}"));
        }
        if self.steps() > TOKENS_MAX {
            return fault(format!("expected at most {TOKENS_MAX} steps, found {}", self.steps()));
        }
        Ok(())
    }
}

impl TraceTensor {
    /// `STEP/NODE`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.step, self.node)
    }
}

/// Step and node of an array's name; without a number in front it is of step 0.
fn step_and_node(name: &str) -> (usize, String) {
    let named = name.split_once('/').and_then(|(step, node)| Some((step.parse().ok()?, node.to_owned())));
    named.unwrap_or_else(|| (0, name.to_owned()))
}

/// Numbers behind each other, separated by spaces or commas.
fn integers(path: &Path, what: &str, text: &str) -> Result<Vec<u64>> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let fault =
        |word: &str| Error::new(path, format!("expected numbers, found {}", quote(word))).at(format!("text {what}"));
    words.map(|word| word.parse().map_err(|_| fault(word))).collect()
}

/// The numbers in a smaller type.
fn narrow<T: TryFrom<u64>>(path: &Path, what: &str, numbers: Vec<u64>) -> Result<Vec<T>> {
    let fault = |number| Error::new(path, format!("{number} is too large")).at(what);
    numbers.into_iter().map(|number| T::try_from(number).map_err(|_| fault(number))).collect()
}

/// Elements as exact numbers.
fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0; bytes.len().checked_div(dtype.block_bytes()).unwrap_or(0)];
    if let Some(codec) = dtype.codec() {
        (codec.decode_exact)(bytes, &mut values);
    } else {
        let integers = bytes.as_chunks::<4>().0.iter().map(|bytes| f64::from(i32::from_le_bytes(*bytes)));
        values.iter_mut().zip(integers).for_each(|(value, integer)| *value = integer);
    }
    values
}
