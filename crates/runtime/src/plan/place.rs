//! Which device computes each node: the main one, or the one to fall back on where the main one says why not.
//!
//! The KV cache stays where it is: all nodes on one state go to the first device that can compute all of them. A view of memory, which is
//! no work, lies where that memory lies; every device therefore takes `reshape`.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::profile::Profile;
use trueup_graph::{Graph, Node, Origin, TensorType, ValueId};

/// Where a node is computed, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedNode {
    /// The device, by its place in the list: 0 is the main one.
    pub device: usize,
    /// What that device declares about its arithmetic there.
    pub profile: Profile,
    /// Why the main device does not compute it.
    pub fell_back: Option<String>,
}

/// The value whose memory `value` is: itself, unless it comes from an alias.
pub(super) fn root(graph: &Graph, value: ValueId) -> ValueId {
    let mut value = value;
    while let Origin::Node(index) = graph.value(value).origin {
        let node = &graph.nodes()[index];
        match node.inputs.first() {
            Some(first) if node.op.is_alias() => value = *first,
            _ => break,
        }
    }
    value
}

/// Places all nodes, or lists every one that no device computes.
pub(super) fn place(graph: &Graph, devices: &[&dyn Device]) -> Result<Vec<PlannedNode>> {
    let answers: Vec<Vec<Answer>> = devices.iter().map(|device| answers(graph, *device)).collect();
    let mut homes: Vec<Option<usize>> = graph.iter_values().map(|(id, _)| state_home(graph, id, &answers)).collect();
    let mut placed = Vec::with_capacity(graph.nodes().len());
    let mut faults = Vec::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        let bound = node.inputs.iter().find_map(|input| bound_to(graph, node, *input, &homes));
        let device = bound.or_else(|| (0..devices.len()).find(|device| answers[*device][index].is_ok()));
        match device.and_then(|device| Some((device, answers[device][index].as_ref().ok()?))) {
            Some((device, profile)) => {
                homes[node.output.index()] = Some(device);
                placed.push(PlannedNode {
                    device,
                    profile: *profile,
                    fell_back: why_not_main(device, &answers, index),
                });
            }
            None => faults.push(refusal(node, devices, answers.iter().map(|answers| &answers[index]))),
        }
    }
    if faults.is_empty() { Ok(placed) } else { Err(Error::Request(faults.join("; "))) }
}

type Answer = std::result::Result<Profile, String>;

fn answers(graph: &Graph, device: &dyn Device) -> Vec<Answer> {
    let answer = |node: &Node| {
        let inputs: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
        device.supports(&node.op, &inputs, &graph.value(node.output).ty)
    };
    graph.nodes().iter().map(answer).collect()
}

/// The device of a state: the first that computes every node on it. The main one when none does, so that its reasons are reported.
fn state_home(graph: &Graph, state: ValueId, answers: &[Vec<Answer>]) -> Option<usize> {
    if graph.value(state).origin != Origin::State {
        return None;
    }
    let touches = |node: &Node| node.inputs.iter().any(|input| root(graph, *input) == state);
    let nodes: Vec<usize> = (0..graph.nodes().len()).filter(|index| touches(&graph.nodes()[*index])).collect();
    let all = |answers: &Vec<Answer>| nodes.iter().all(|index| answers[*index].is_ok());
    Some(answers.iter().position(all).unwrap_or(0))
}

/// The device that an input forces on its node: a state's, or the one an alias is made on.
fn bound_to(graph: &Graph, node: &Node, input: ValueId, homes: &[Option<usize>]) -> Option<usize> {
    let root = root(graph, input);
    let is_state = graph.value(root).origin == Origin::State;
    let is_alias = node.op.is_alias() && node.inputs.first() == Some(&input);
    if is_state || is_alias { homes[root.index()] } else { None }
}

fn why_not_main(device: usize, answers: &[Vec<Answer>], node: usize) -> Option<String> {
    if device == 0 {
        return None;
    }
    let reason = answers[0][node].as_ref().err().cloned();
    Some(reason.unwrap_or_else(|| "its KV cache or its input lies there".to_owned()))
}

fn refusal<'a>(node: &Node, devices: &[&dyn Device], answers: impl Iterator<Item = &'a Answer>) -> String {
    let reasons = devices.iter().zip(answers).map(|(device, answer)| {
        let reason = answer.as_ref().err().map_or("its KV cache or its input lies elsewhere", String::as_str);
        format!("{}: {reason}", device.about().name)
    });
    format!("no device computes {} ({}): {}", node.name, node.op.name(), reasons.collect::<Vec<_>>().join(", "))
}
