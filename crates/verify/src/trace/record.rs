//! Writes down what a device computes: each node's result as it comes, and afterwards what the trace must say about
//! itself.
//!
//! ```text
//!   prompt ─ step 0 ─ a token ─ step 1 ─ a token ...      each node stops: shown to the sink, then forgotten
//! ```
//!
//! Of a KV cache only the rows are kept that a step stores.

use super::free::stored_rows;
use super::model_facts::{KEY_MODEL, KEY_TENSORS};
use super::program::{DeclaredProfile, FusedNodes, KEY_DEVICE, KEY_FUSED, KEY_KV, KEY_PROFILES, KEY_PROGRAM};
use crate::model_hash::{model_hash, tensor_facts};
use crate::operand;
use crate::record::result_shape;
use crate::tokens::top;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Graph, Node, Op, TensorType};
use trueup_runtime::profile::Profile;
use trueup_runtime::{Entry, Error, HostTensor, Observer, Result, Seen, Session, SessionOptions, Weights};

/// What follows the prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Follow {
    /// So many tokens, each the most likely one.
    Greedy(usize),
    /// These tokens.
    Given(Vec<u32>),
}

/// A node's result.
pub struct Recorded<'a> {
    /// The step: a pass over one or more tokens.
    pub step: usize,
    /// The graph of the step.
    pub graph: &'a Graph,
    /// The node.
    pub node: &'a Node,
    /// Shape and type of the result; of a cache the rows of this step.
    pub ty: TensorType,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What a trace says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// All ids: the prompt's, and those that followed.
    pub ids: Vec<u32>,
    /// How many of them each step computed.
    pub tokens: Vec<usize>,
    /// Program, device, profiles, fused nodes, type of the KV cache, the model's tensors.
    pub texts: Vec<(String, String)>,
}

/// Computes a prompt and what follows, and shows the results of the nodes that `selects` names to `sink`, in the order
/// of computation.
///
/// Fails on prompts that the model cannot take, where the device fails, and where the sink does.
pub fn record(
    weights: &Arc<Weights>,
    options: &SessionOptions,
    prompt: &[u32],
    follow: &Follow,
    selects: &dyn Fn(&str) -> bool,
    sink: &mut dyn FnMut(&Recorded<'_>) -> Result<()>,
) -> Result<Recording> {
    if prompt.is_empty() {
        return Err(Error::Request("a trace needs at least one token; pass text or at least one id".to_owned()));
    }
    let further = match follow {
        Follow::Greedy(count) => *count,
        Follow::Given(ids) => ids.len(),
    };
    // Traces have scores in the order of positions.
    let mut session = Session::new(weights.clone(), &SessionOptions { rewind: usize::MAX, ..*options })?;
    session.expect_length(0, prompt.len().saturating_add(further));
    let (profiles, fused, tokens) = (Vec::new(), Vec::new(), Vec::new());
    let mut recorder = Recorder { selects, sink, profiles, fused, tokens, kv: DType::F16 };
    let mut all = prompt.to_vec();
    let mut ids = prompt.to_vec();
    for step in 0..=further {
        let entry = |token: &u32| Entry { token: *token, sequence: 0, wants_logits: true };
        let logits = session.compute(&ids.iter().map(entry).collect::<Vec<_>>(), Some(&mut recorder))?;
        if step < further {
            let best = logits.rows().checked_sub(1).map_or(0, |row| top(logits.row(row)) as u32);
            let next = match follow {
                Follow::Greedy(_) => best,
                Follow::Given(given) => given.get(step).copied().unwrap_or(best),
            };
            all.push(next);
            ids = vec![next];
        }
    }
    let model = session.model();
    model.unwritten()?;
    let facts = tensor_facts(model)?;
    let devices: Vec<String> = weights.devices().iter().map(|device| device.name()).collect();
    let texts = vec![
        (KEY_PROGRAM.to_owned(), format!("trueup {}", env!("CARGO_PKG_VERSION"))),
        (KEY_DEVICE.to_owned(), devices.first().cloned().unwrap_or_default()),
        (KEY_KV.to_owned(), recorder.kv.name().to_owned()),
        (KEY_MODEL.to_owned(), model_hash(&facts)),
        (KEY_TENSORS.to_owned(), serde_json::to_string(&facts).map_err(unwritable)?),
        (KEY_PROFILES.to_owned(), serde_json::to_string(&recorder.profiles).map_err(unwritable)?),
        (KEY_FUSED.to_owned(), serde_json::to_string(&recorder.fused).map_err(unwritable)?),
    ];
    Ok(Recording { ids: all, tokens: recorder.tokens, texts })
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::Request(format!("the metadata of the trace cannot be written: {error}"))
}

/// Sees every node, for its profile, and downloads the selected ones.
struct Recorder<'a> {
    selects: &'a dyn Fn(&str) -> bool,
    sink: &'a mut dyn FnMut(&Recorded<'_>) -> Result<()>,
    profiles: Vec<DeclaredProfile>,
    fused: Vec<FusedNodes>,
    tokens: Vec<usize>,
    kv: DType,
}

impl Recorder<'_> {
    fn declared(&mut self, profile: Profile, node: &str, tokens: usize) {
        let place = self.profiles.iter().position(|known| known.profile == profile);
        let place = place.unwrap_or_else(|| {
            self.profiles.push(DeclaredProfile { profile, many: Vec::new(), one: Vec::new() });
            self.profiles.len() - 1
        });
        let known = &mut self.profiles[place];
        add(if tokens == 1 { &mut known.one } else { &mut known.many }, node);
    }

    fn fused(&mut self, op: &str, node: &str, tokens: usize) {
        let place = self.fused.iter().position(|known| known.op == op).unwrap_or_else(|| {
            self.fused.push(FusedNodes { op: op.to_owned(), many: Vec::new(), one: Vec::new() });
            self.fused.len() - 1
        });
        let known = &mut self.fused[place];
        add(if tokens == 1 { &mut known.one } else { &mut known.many }, node);
    }
}

/// Takes note of a node, once.
fn add(names: &mut Vec<String>, node: &str) {
    if !names.iter().any(|name| name == node) {
        names.push(node.to_owned());
    }
}

impl Observer for Recorder<'_> {
    fn wants(&self, _node: &Node) -> bool {
        true
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let (node, tokens) = (seen.node(), seen.tokens.len());
        if seen.node == 0 {
            self.tokens.push(tokens);
        }
        self.declared(seen.planned.profile, &node.name, tokens);
        if seen.fused_of.is_some() {
            self.fused(node.op.name(), &node.name, tokens);
        }
        let stored = matches!(node.op, Op::KvStore(_));
        if stored {
            self.kv = seen.graph.value(node.output).ty.dtype;
        }
        if !(self.selects)(&node.name) {
            return Ok(());
        }
        let output = seen.output()?;
        let shape = result_shape(seen.graph, node, tokens);
        let ty = TensorType { dtype: output.ty().dtype, shape };
        let mut bytes = output.to_bytes().into_owned();
        if stored {
            let row_bytes = shape[0] / ty.dtype.block_len() * ty.dtype.block_bytes();
            let row = |row: usize| bytes[row * row_bytes..(row + 1) * row_bytes].to_vec();
            bytes = stored_rows(seen).into_iter().flat_map(row).collect();
        }
        let (ty, bytes) = as_floats(ty, bytes);
        (self.sink)(&Recorded { step: seen.batch, graph: seen.graph, node, ty, bytes })
    }
}

/// Rows of blocks, which files of traces do not have, as the numbers that they decode to: each is an f32.
fn as_floats(ty: TensorType, bytes: Vec<u8>) -> (TensorType, Vec<u8>) {
    if !ty.dtype.is_quantized() {
        return (ty, bytes);
    }
    let floats = TensorType { dtype: DType::F32, ..ty };
    let bytes = HostTensor::real(floats, operand::decode(&ty, &bytes)).into_bytes();
    (floats, bytes)
}
