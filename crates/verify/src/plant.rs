//! Fault injection: shows that the verifier fails when a device is wrong.
//!
//! ```text
//!   correct device ─┬─ every other node: unchanged
//!                   └─ one node: input, parameter, weight, sum or result is changed ──▶ verify must name it
//! ```
//!
//! [`PLANTS`] lists all faults. The faulty device wraps the real one between session and device, so everything else
//! runs as in production.

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
mod table;
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
pub use table::PLANTS;
use table::{ATTENTION, FUSED};
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

/// Nodes that a refusal names.
const PLACES_SHOWN: usize = 4;

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
            Fault::Parameter(fault) => fault.fits(&node.op, node.inputs.len()) && fault.fits_graph(&node.op, graph),
            Fault::Weight(fault) => fault.fits(graph, node),
            Fault::Fused(fault) => fault.fits(graph.value(node.output).ty.shape[0]),
            Fault::Product(fault) => fault.fits(graph, node),
            Fault::Output(_) => true,
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
            Fault::Parameter(fault) => fault.needs(),
            Fault::Product(fault) => fault.needs(),
            Fault::Output(_) => "",
        }
    }
}
