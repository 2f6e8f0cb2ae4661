//! Fault injection: shows that the verifier fails when a device is wrong.
//!
//! ```text
//!   correct device ─┬─ every other node: unchanged
//!                   └─ one node: input, parameter, weight, sum or result is changed ──▶ verify must name it
//! ```
//!
//! The table in this file lists all faults. `--inject-fault`, the tests and docs/faults.md use it. The faulty device
//! wraps the real one between session and device, so everything else runs as in production.

mod alone;
mod bits;
mod device;
mod forms;
mod fused;
mod input;
mod output;
mod parameter;
mod product;
mod stages;
mod weight;

use crate::report::PlantedFacts;
pub(crate) use alone::{fits_alone, planted_alone};
use device::{Fusion, Planted};
use forms::{Answers, Asked};
use fused::FusedFault;
use input::InputFault;
use output::OutputFault;
use parameter::ParameterFault;
use product::ProductFault;
use stages::{Stages, graphs};
use std::sync::Arc;
use trueup_formats::quote;
use trueup_graph::fuse::{Fused, fuse};
use trueup_graph::{Graph, Node};
use trueup_runtime::device::Device;
use trueup_runtime::plan::fuse_for;
use trueup_runtime::{Error, ModelFile, Result};
use weight::WeightFault;

/// A fault that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// What selects it.
    pub name: &'static str,
    /// What goes wrong, in one sentence without its end.
    pub what: &'static str,
    /// Operators it can be planted at.
    pub ops: &'static [&'static str],
    fault: Fault,
}

/// What is changed at the node.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Input(InputFault),
    Parameter(ParameterFault),
    Weight(WeightFault),
    Product(ProductFault),
    Output(OutputFault),
    Fused(FusedFault),
}

const fn plant(name: &'static str, ops: &'static [&'static str], fault: Fault, what: &'static str) -> Plant {
    Plant { name, what, ops, fault }
}

const PRODUCT: &[&str] = &["mul_mat"];
const NORM: &[&str] = &["rms_norm"];
const ROPE: &[&str] = &["rope"];
const SOFT_MAX: &[&str] = &["soft_max"];
const SCORES: &[&str] = &["kv_scores"];
const MIX: &[&str] = &["kv_mix"];
const CACHED: &[&str] = &["kv_scores", "kv_mix"];
const STORE: &[&str] = &["kv_store"];
const ADD: &[&str] = &["add"];
const GATED: &[&str] = &["swiglu"];
const ROWS: &[&str] = &["get_rows"];
const EXPERTS: &[&str] = &["mul_mat_id"];
const CHOICE: &[&str] = &["top_k"];
const DIVISION: &[&str] = &["div"];
const FUSED: &[&str] = &["mul_mat_swiglu"];
const ATTENTION: &[&str] = &["kv_attention"];

/// Nodes that a refusal names.
const PLACES_SHOWN: usize = 4;

/// All faults, by what they hurt.
pub const PLANTS: &[Plant] = &[
    plant(
        "activations-truncated",
        PRODUCT,
        Fault::Input(InputFault::Truncated),
        "8-bit activations are truncated toward zero instead of rounded",
    ),
    plant("activations-7-bit", PRODUCT, Fault::Input(InputFault::SevenBits), "activations are quantized to 7 bits"),
    plant(
        "activations-per-128",
        PRODUCT,
        Fault::Input(InputFault::Per128),
        "activations have one scale for 128 values instead of 32",
    ),
    plant(
        "activations-saturate",
        PRODUCT,
        Fault::Input(InputFault::Saturated),
        "codes of activations saturate at 126 instead of 127",
    ),
    plant("activations-bf16", PRODUCT, Fault::Input(InputFault::Bf16), "activations are rounded to bf16 first"),
    plant(
        "activations-stale",
        PRODUCT,
        Fault::Input(InputFault::Stale),
        "the activations of the previous call are used again",
    ),
    plant("k-tail-1", PRODUCT, Fault::Input(InputFault::Tail(1)), "the last element of K is dropped"),
    plant("k-tail-32", PRODUCT, Fault::Input(InputFault::Tail(32)), "the last block of K is dropped"),
    plant(
        "block-scale",
        PRODUCT,
        Fault::Weight(WeightFault::Scale),
        "the scale of one block of the weight is 5% too large",
    ),
    plant(
        "blocks-swapped",
        PRODUCT,
        Fault::Weight(WeightFault::SwappedBlocks),
        "two neighboring blocks of the weight are exchanged",
    ),
    plant(
        "neighbor-scale",
        PRODUCT,
        Fault::Weight(WeightFault::NeighbourScale),
        "one block of the weight uses its neighbor's scale",
    ),
    plant(
        "nibble-order",
        PRODUCT,
        Fault::Weight(WeightFault::NibbleOrder),
        "low and high halves of 4-bit codes are exchanged",
    ),
    plant("weights-swapped", PRODUCT, Fault::Weight(WeightFault::SwappedWeights), "two weights of a row are exchanged"),
    plant("high-bits-lost", PRODUCT, Fault::Weight(WeightFault::HighBits), "high bits of 5- and 6-bit codes are lost"),
    plant("minimum-dropped", PRODUCT, Fault::Weight(WeightFault::Minimum), "the minimum of each block is ignored"),
    plant(
        "rows-shifted",
        PRODUCT,
        Fault::Weight(WeightFault::ShiftedRows),
        "the rows of the weight are shifted by one",
    ),
    plant("weight-transposed", PRODUCT, Fault::Weight(WeightFault::Transposed), "a square weight is transposed"),
    plant("accumulator-f16", PRODUCT, Fault::Product(ProductFault::F16), "sums are kept in f16"),
    plant("accumulator-half2", PRODUCT, Fault::Product(ProductFault::Half2), "sums are kept in pairs of f16"),
    plant("gain", PRODUCT, Fault::Output(OutputFault::Gain), "the result is 0.1% too large"),
    plant(
        "gain-of-block",
        PRODUCT,
        Fault::Output(OutputFault::GainOfBlock),
        "the first 32 rows of the result are 1% too large",
    ),
    plant(
        "decode-gain",
        PRODUCT,
        Fault::Output(OutputFault::DecodeGain),
        "the result is 0.1% too large when one token is computed",
    ),
    plant(
        "prompt-gain",
        PRODUCT,
        Fault::Output(OutputFault::PromptGain),
        "the result is 0.1% too large when many tokens are computed",
    ),
    plant("output-f16", PRODUCT, Fault::Output(OutputFault::F16), "the result is rounded to f16"),
    plant(
        "row-unwritten",
        PRODUCT,
        Fault::Output(OutputFault::UnwrittenRow),
        "the last row of the result is not written",
    ),
    plant(
        "block-unwritten",
        PRODUCT,
        Fault::Output(OutputFault::UnwrittenBlock),
        "the last elements of the result are not written",
    ),
    plant("sign-flip", PRODUCT, Fault::Output(OutputFault::SignFlip), "one element of the result has the wrong sign"),
    plant(
        "rows-swapped",
        PRODUCT,
        Fault::Output(OutputFault::SwappedRows),
        "the first two rows of the result are exchanged",
    ),
    plant(
        "rows-rotated",
        PRODUCT,
        Fault::Output(OutputFault::RotatedRows),
        "the rows of the result are shifted by one",
    ),
    plant(
        "tokens-swapped",
        PRODUCT,
        Fault::Output(OutputFault::SwappedTokens),
        "the results of the first and the last token are exchanged",
    ),
    plant("always-42", PRODUCT, Fault::Output(OutputFault::Constant), "every element of the result is 42"),
    plant("zeros", PRODUCT, Fault::Output(OutputFault::Zeros), "every element of the result is 0"),
    plant("not-a-number", PRODUCT, Fault::Output(OutputFault::NotANumber), "one element of the result is NaN"),
    plant("infinite", PRODUCT, Fault::Output(OutputFault::Infinite), "one element of the result is infinite"),
    plant("race", PRODUCT, Fault::Output(OutputFault::Race), "one element of the result is wrong in every second run"),
    plant("norm-epsilon", NORM, Fault::Parameter(ParameterFault::Epsilon), "epsilon is ten times too large"),
    plant(
        "norm-centered",
        NORM,
        Fault::Product(ProductFault::CentredNorm),
        "the mean is subtracted first, as in layer norm",
    ),
    plant("norm-weight-ignored", NORM, Fault::Weight(WeightFault::Ones), "the weight of the norm is ignored"),
    plant("norm-output-bf16", NORM, Fault::Output(OutputFault::Bf16), "the result of the norm is rounded to bf16"),
    plant("rope-position", ROPE, Fault::Input(InputFault::NextIndex), "positions are one too large"),
    plant(
        "rope-pairs",
        ROPE,
        Fault::Parameter(ParameterFault::Pairs),
        "rope pairs neighbors instead of halves, or halves instead of neighbors",
    ),
    plant(
        "rope-base",
        ROPE,
        Fault::Parameter(ParameterFault::Base),
        "the base of the frequencies is ten times too large",
    ),
    plant(
        "rope-partial",
        ROPE,
        Fault::Parameter(ParameterFault::Dimensions),
        "only the first half of each head is rotated",
    ),
    plant(
        "rope-first-position",
        ROPE,
        Fault::Input(InputFault::FirstIndex),
        "all tokens are rotated by the position of the first",
    ),
    plant("mask-none", SOFT_MAX, Fault::Input(InputFault::NoMask), "the mask hides nothing"),
    plant("mask-off-by-one", SOFT_MAX, Fault::Input(InputFault::MaskOneOff), "the mask exposes the next position"),
    plant("window-ignored", SOFT_MAX, Fault::Input(InputFault::NoWindow), "the sliding window of the mask is ignored"),
    plant("scale-forgotten", SOFT_MAX, Fault::Parameter(ParameterFault::Scale), "scores are not scaled"),
    plant(
        "soft-max-row-rest",
        SOFT_MAX,
        Fault::Product(ProductFault::SumOfAll),
        "masked positions are included in the sum of a row",
    ),
    plant("probabilities-f16", SOFT_MAX, Fault::Output(OutputFault::F16), "probabilities are rounded to f16"),
    plant(
        "sequence-ignored",
        CACHED,
        Fault::Input(InputFault::FirstSequence),
        "the cache of the first sequence is read for every token",
    ),
    plant(
        "heads-interleaved",
        SCORES,
        Fault::Input(InputFault::InterleavedHeads),
        "query heads are mapped to KV heads round-robin instead of in groups",
    ),
    plant("values-gain", MIX, Fault::Output(OutputFault::Gain), "the weighted sum of the values is 0.1% too large"),
    plant(
        "values-sign",
        MIX,
        Fault::Output(OutputFault::SignFlip),
        "one element of the weighted sum of the values has the wrong sign",
    ),
    plant("kv-slot", STORE, Fault::Input(InputFault::NextIndex), "keys or values are written to the next slot"),
    plant(
        "kv-sequence",
        STORE,
        Fault::Input(InputFault::FirstCache),
        "keys or values of all sequences are written to the cache of the first one",
    ),
    plant(
        "kv-bf16",
        STORE,
        Fault::Input(InputFault::Bf16),
        "keys or values are rounded to bf16 before they are stored",
    ),
    plant("kv-negated", STORE, Fault::Input(InputFault::Negated), "keys or values are stored with the wrong sign"),
    plant("residual-dropped", ADD, Fault::Input(InputFault::Dropped), "the second operand is omitted"),
    plant("sum-sign", ADD, Fault::Input(InputFault::Negated), "the second operand is subtracted"),
    plant("gate-exchanged", GATED, Fault::Input(InputFault::Exchanged), "gate and up are exchanged"),
    plant("gelu-for-silu", GATED, Fault::Product(ProductFault::Gelu), "gelu is applied to the gate instead of silu"),
    plant("gate-stale", GATED, Fault::Output(OutputFault::Zeros), "the gated product is not computed and stays 0"),
    plant("token-off-by-one", ROWS, Fault::Input(InputFault::NextIndex), "the rows after the requested ones are read"),
    plant(
        "token-first",
        ROWS,
        Fault::Input(InputFault::FirstIndices),
        "the first rows are read instead of the requested ones",
    ),
    plant(
        "expert-off-by-one",
        EXPERTS,
        Fault::Input(InputFault::NextIndex),
        "the expert after each chosen one is used",
    ),
    plant(
        "expert-first",
        EXPERTS,
        Fault::Input(InputFault::FirstIndex),
        "the first expert of the first token is used for all tokens",
    ),
    plant(
        "expert-rows-swapped",
        EXPERTS,
        Fault::Output(OutputFault::SwappedRows),
        "the first two rows of every expert are exchanged",
    ),
    plant(
        "expert-tokens-swapped",
        EXPERTS,
        Fault::Output(OutputFault::SwappedTokens),
        "the results of the first and the last expert that is used are exchanged",
    ),
    plant(
        "router-smallest",
        CHOICE,
        Fault::Input(InputFault::Negated),
        "the experts with the smallest scores are chosen",
    ),
    plant(
        "weights-not-normalized",
        DIVISION,
        Fault::Input(InputFault::Ones),
        "the weights of the chosen experts are not divided by their sum",
    ),
    plant("fused-exchanged", FUSED, Fault::Input(InputFault::Exchanged), "the fused operator exchanges gate and up"),
    plant(
        "fused-gelu",
        FUSED,
        Fault::Parameter(ParameterFault::Function),
        "the fused operator applies gelu to the gate instead of silu",
    ),
    plant(
        "fused-no-function",
        FUSED,
        Fault::Fused(FusedFault::NoFunction),
        "the fused operator omits the activation function of the gate",
    ),
    plant(
        "fused-early-gate",
        FUSED,
        Fault::Fused(FusedFault::EarlyGate),
        "the fused operator applies the activation function before the last block of K is added",
    ),
    plant(
        "fused-neighbor-up",
        FUSED,
        Fault::Fused(FusedFault::NeighbourUp),
        "one row of the fused operator uses the up product of the next row",
    ),
    plant(
        "fused-stale-ups",
        FUSED,
        Fault::Fused(FusedFault::StaleUps),
        "the last eight rows of the fused operator use the up products of the previous eight",
    ),
    plant("fused-up-f16", FUSED, Fault::Fused(FusedFault::HalfUp), "the fused operator rounds up products to f16"),
    plant(
        "fused-up-weight",
        FUSED,
        Fault::Weight(WeightFault::Scale),
        "the scale of one block of the up weight is 5% too large, in the fused operator and in its parts",
    ),
    plant(
        "attention-sequence",
        ATTENTION,
        Fault::Input(InputFault::FirstSequence),
        "fused attention reads the cache of the first sequence for every token",
    ),
    plant(
        "attention-mask",
        ATTENTION,
        Fault::Input(InputFault::MaskOneOff),
        "fused attention includes the next position",
    ),
    plant(
        "attention-window",
        ATTENTION,
        Fault::Input(InputFault::NoWindow),
        "fused attention ignores the sliding window of the mask",
    ),
    plant(
        "attention-scale",
        ATTENTION,
        Fault::Parameter(ParameterFault::Scale),
        "fused attention does not scale the scores",
    ),
    plant(
        "attention-exchanged",
        ATTENTION,
        Fault::Input(InputFault::Exchanged),
        "fused attention exchanges keys and values",
    ),
    plant(
        "attention-f16",
        ATTENTION,
        Fault::Output(OutputFault::F16),
        "the result of fused attention is rounded to f16",
    ),
];

/// A device with a fault, and where it sits.
pub struct PlantedDevice {
    /// To be verified.
    pub device: Arc<dyn Device>,
    /// The fault.
    pub plant: &'static Plant,
    /// The node that computes wrongly.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Whether the device fuses nothing, so that the node is there: a fused one would hold it.
    pub unfused: bool,
}

impl PlantedDevice {
    /// What the report says about it.
    pub fn facts(&self) -> PlantedFacts {
        let text = str::to_owned;
        PlantedFacts {
            name: text(self.plant.name),
            what: text(self.plant.what),
            node: self.node.clone(),
            op: text(self.op),
            unfused: self.unfused,
        }
    }
}

/// `device`, which computes one node of the model wrongly. `choice` is `NAME` or `NAME@NODE`; without a node the middle
/// one of those that can have the fault is taken. A node that lies in a fused one is there only without fusion: the
/// device then refuses the fused operators.
///
/// Fails on unknown names and where no such node can have the fault: a nibble order needs 4-bit weights.
pub fn planted(choice: &str, model: &ModelFile, device: Arc<dyn Device>) -> Result<PlantedDevice> {
    planted_in(choice, model, device, true)
}

/// As [`planted`], for sessions with or without fusion.
pub fn planted_in(choice: &str, model: &ModelFile, device: Arc<dyn Device>, fusion: bool) -> Result<PlantedDevice> {
    let (name, wanted) = choice.split_once('@').map_or((choice, None), |(name, node)| (name, Some(node)));
    let plant = known(name)?;
    expect_f32(&*device)?;
    let unfused = graphs(model)?;
    let asked = |graph: &Graph| match fusion {
        true => fused(graph, &*device),
        false => (Fused::none(graph.clone()), Answers::new()),
    };
    let (fused, answers): (Vec<Fused>, Vec<Answers>) = unfused.iter().map(asked).unzip();
    let fused: Vec<Graph> = fused.into_iter().map(|fused| fused.graph).collect();
    let (graphs, (stage, place), fusion) = if let Some(place) = plant.place(&fused, wanted) {
        (&fused, place, Fusion { answers: answers.into_iter().flatten().collect(), ..Fusion::default() })
    } else if let Some(place) = plant.place(&unfused, wanted) {
        (&unfused, place, Fusion { refused: unfused.iter().flat_map(fusible).collect(), ..Fusion::default() })
    } else {
        return Err(plant.refusal(wanted, fusion, [&fused, &unfused]));
    };
    let (node, is_unfused) = (&graphs[stage].nodes()[place], !fusion.refused.is_empty());
    let (stages, op) = (Stages::of(graphs, stage), node.op.name());
    let device = Arc::new(Planted::new(device, plant.fault, (place, op), stages, fusion));
    Ok(PlantedDevice { device, plant, node: node.name.clone(), op, unfused: is_unfused })
}

/// The graph with what the device fuses, and what it answered when it was asked.
fn fused(graph: &Graph, device: &dyn Device) -> (Fused, Answers) {
    let asked = Asked::new(device);
    let fused = fuse_for(graph.clone(), &[&asked], 1);
    (fused, asked.into_answers())
}

/// Every fused operator that this graph has the pieces of, whatever a device says of it.
fn fusible(graph: &Graph) -> Vec<&'static str> {
    let all = fuse(graph.clone(), &|_| true);
    all.groups.iter().map(|group| all.graph.nodes()[group.node].op.name()).collect()
}

/// The fault of that name.
fn known(name: &str) -> Result<&'static Plant> {
    PLANTS.iter().find(|plant| plant.name == name).ok_or_else(|| {
        Error::Request(format!("unknown fault {name:?}; `trueup verify --inject-fault list` shows all faults"))
    })
}

/// Fails on a device that faults do not fit.
fn expect_f32(device: &dyn Device) -> Result<()> {
    if device.name() == "ref" {
        let problem = "--inject-fault: expected a device that computes in f32, found ref, which computes in f64; \
                       use --device cpu";
        return Err(Error::Request(problem.to_owned()));
    }
    Ok(())
}

impl Plant {
    /// The node that gets the fault, by its graph and its place: the wanted one, or the middle one of those that can
    /// have it.
    fn place(&self, graphs: &[Graph], wanted: Option<&str>) -> Option<(usize, usize)> {
        let candidates: Vec<(usize, usize)> = (0..graphs.len())
            .flat_map(|stage| self.places_in(graphs, stage).into_iter().map(move |place| (stage, place)))
            .collect();
        match wanted {
            Some(node) => candidates.iter().copied().find(|(stage, place)| graphs[*stage].nodes()[*place].name == node),
            None => candidates.get(candidates.len() / 2).copied(),
        }
    }

    /// The nodes of one of the graphs that can have the fault, by their places.
    fn places_in(&self, graphs: &[Graph], stage: usize) -> Vec<usize> {
        let (graph, stages) = (&graphs[stage], Stages::of(graphs, stage));
        let fits = |place: &usize| stages.knows(*place) && self.fits(graph, &graph.nodes()[*place]);
        (0..graph.nodes().len()).filter(fits).collect()
    }

    /// Why no node can have the fault.
    fn refusal(&self, wanted: Option<&str>, fusion: bool, graphs: [&[Graph]; 2]) -> Error {
        let (name, ops, needs) = (self.name, self.ops.join(" or "), self.fault.needs());
        let found = wanted.map(|wanted| {
            let nodes = graphs.into_iter().flatten().flat_map(Graph::nodes);
            let mut ops: Vec<&str> = nodes.filter(|node| node.name == wanted).map(|node| node.op.name()).collect();
            ops.dedup();
            (quote(wanted), ops)
        });
        let choice = wanted.map_or_else(|| name.to_owned(), |wanted| format!("{name}@{}", quote(wanted)));
        let found = match &found {
            None => "no such node in the model".to_owned(),
            Some((node, ops)) if ops.is_empty() => format!("no node {node}"),
            Some((node, ops)) => format!("{node} ({})", ops.join(", unfused ")),
        };
        let fused =
            if fusion || ![FUSED, ATTENTION].contains(&self.ops) { "" } else { ", which exists only with --fusion on" };
        let has_stages = graphs.iter().any(|graphs| graphs.len() > 1);
        let after = if has_stages { " after the operators with which both encoder and decoder begin" } else { "" };
        let places = self.places(graphs);
        let article = if ops.starts_with('a') { "an" } else { "a" };
        Error::Request(format!(
            "--inject-fault {choice}: expected {article} {ops} node{needs}{fused}{after}, found {found}{places}"
        ))
    }

    /// Remedy that names the first few nodes that can have the fault; empty if there are none.
    fn places(&self, graphs: [&[Graph]; 2]) -> String {
        let mut names: Vec<String> = Vec::new();
        let stages = graphs.into_iter().flat_map(|graphs| (0..graphs.len()).map(move |stage| (graphs, stage)));
        for (graphs, stage) in stages {
            let fitting =
                self.places_in(graphs, stage).into_iter().map(|place| quote(&graphs[stage].nodes()[place].name));
            let new: Vec<String> = fitting.filter(|name| !names.contains(name)).collect();
            names.extend(new);
        }
        let (shown, more) = (names.len().min(PLACES_SHOWN), names.len().saturating_sub(PLACES_SHOWN));
        let listed = names.get(..shown).unwrap_or_default().join(", ");
        match (names.len(), more) {
            (0, _) => self.fault.remedy().map_or(String::new(), |remedy| format!("; {remedy}")),
            (1, _) => format!("; use {listed}"),
            (_, 0) => format!("; use one of {listed}"),
            (_, 1) => format!("; use one of {listed}, or 1 other"),
            (_, more) => format!("; use one of {listed}, or one of {more} others"),
        }
    }

    /// Whether the node can have the fault.
    fn fits(&self, graph: &Graph, node: &Node) -> bool {
        let fits = match self.fault {
            Fault::Input(fault) => fault.fits(graph, node),
            Fault::Parameter(fault) => fault.fits(&node.op, node.inputs.len()),
            Fault::Weight(fault) => fault.fits(graph, node),
            Fault::Fused(fault) => fault.fits(graph.value(node.output).ty.shape[0]),
            Fault::Product(_) | Fault::Output(_) => true,
        };
        fits && self.ops.contains(&node.op.name())
    }
}

impl Fault {
    /// What to do if no node of the model can have the fault, where that is known.
    fn remedy(self) -> Option<&'static str> {
        if let Fault::Weight(fault) = self { fault.remedy() } else { None }
    }

    /// What else the node needs, for a message.
    fn needs(self) -> &'static str {
        match self {
            Fault::Input(fault) => fault.needs(),
            Fault::Weight(fault) => fault.needs(),
            Fault::Fused(fault) => fault.needs(),
            Fault::Parameter(_) | Fault::Product(_) | Fault::Output(_) => "",
        }
    }
}
