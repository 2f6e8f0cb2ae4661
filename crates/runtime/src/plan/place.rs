//! Which device computes each node: its layer's, or the one to fall back on where that one says why not.
//!
//! The KV cache stays where it is: all nodes on one state go to the first device that can compute all of them. A view
//! of memory, which is no work, lies where that memory lies; every device therefore takes `reshape`.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::profile::Profile;
use trueup_formats::counted;
use trueup_graph::{Graph, Node, Origin, TensorType, ValueId};

/// Where a node is computed, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedNode {
    /// The device, by its place in the list.
    pub device: usize,
    /// What that device declares about its arithmetic there.
    pub profile: Profile,
    /// Why the device of its layer, which is the main one where there is one only, does not compute it.
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

/// Places all nodes, or says how many no device computes, and why for the first of them. `homes` has each node's device
/// by its layer, one of the first `count`; a node that it does not compute goes to the devices after these, then to
/// another of them.
pub(super) fn place(
    graph: &Graph,
    devices: &[&dyn Device],
    answers: &[Vec<Answer>],
    count: usize,
    homes: &[usize],
) -> Result<Vec<PlannedNode>> {
    let order = Order { devices: devices.len(), count };
    let mut places = state_homes(graph, answers, &order, homes);
    let mut placed = Vec::with_capacity(graph.nodes().len());
    let mut refused: Vec<usize> = Vec::new();
    for (index, node) in graph.nodes().iter().enumerate() {
        let home = homes[index];
        let bound = node.inputs.iter().find_map(|input| bound_to(graph, node, *input, &places));
        let device = bound.or_else(|| order.from(home).find(|device| answers[*device][index].is_ok()));
        match device.and_then(|device| Some((device, answers[device][index].as_ref().ok()?))) {
            Some((device, profile)) => {
                places[node.output.index()] = Some(device);
                let fell_back = why_not_home(home, device, answers, index);
                placed.push(PlannedNode { device, profile: *profile, fell_back });
            }
            None => refused.push(index),
        }
    }
    match refused.first() {
        None => Ok(placed),
        Some(first) => {
            let name = &graph.nodes()[*first].name;
            Err(Error::Request(refusal(refused.len(), name, *first, devices, answers)))
        }
    }
}

/// In which order devices are asked.
struct Order {
    devices: usize,
    /// Those that take layers.
    count: usize,
}

impl Order {
    /// The device of the layer first.
    fn from(&self, home: usize) -> impl Iterator<Item = usize> {
        let others = (self.count..self.devices).chain(0..self.count);
        std::iter::once(home).chain(others.filter(move |device| *device != home))
    }
}

pub(super) type Answer = std::result::Result<Profile, String>;

/// What a device says of each node.
pub(super) fn answers(graph: &Graph, device: &dyn Device) -> Vec<Answer> {
    let answer = |node: &Node| {
        let inputs: Vec<TensorType> = node.inputs.iter().map(|input| graph.value(*input).ty).collect();
        device.supports(&node.op, &inputs, &graph.value(node.output).ty)
    };
    graph.nodes().iter().map(answer).collect()
}

/// For each value that is a state, its device: of those that compute every node on it the one of its layer, or the
/// next. The layer's when none does, so that its reasons are reported.
fn state_homes(graph: &Graph, answers: &[Vec<Answer>], order: &Order, homes: &[usize]) -> Vec<Option<usize>> {
    let mut touching: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        let roots = node.inputs.iter().map(|input| root(graph, *input));
        roots.filter(|root| graph.value(*root).origin.is_state()).for_each(|state| touching[state.index()].push(index));
    }
    let home_of = |nodes: &[usize]| {
        let home = nodes.first().map_or(0, |node| homes[*node]);
        let all = |device: &usize| nodes.iter().all(|node| answers[*device][*node].is_ok());
        order.from(home).find(all).unwrap_or(home)
    };
    let is_state = |id: ValueId| graph.value(id).origin.is_state();
    graph.iter_values().map(|(id, _)| is_state(id).then(|| home_of(&touching[id.index()]))).collect()
}

/// The device that an input forces on its node: a state's, or the one an alias is made on.
fn bound_to(graph: &Graph, node: &Node, input: ValueId, homes: &[Option<usize>]) -> Option<usize> {
    let root = root(graph, input);
    let is_state = graph.value(root).origin.is_state();
    let is_alias = node.op.is_alias() && node.inputs.first() == Some(&input);
    if is_state || is_alias { homes[root.index()] } else { None }
}

fn why_not_home(home: usize, device: usize, answers: &[Vec<Answer>], node: usize) -> Option<String> {
    if device == home {
        return None;
    }
    let reason = answers[home][node].as_ref().err().cloned();
    Some(reason.unwrap_or_else(|| "its KV cache or its input is on that device".to_owned()))
}

/// `device a: cannot compute 3 nodes, first Qcur-0: mul_mat: has no q4_0`; with several devices, the reason of each.
fn refusal(count: usize, name: &str, first: usize, devices: &[&dyn Device], answers: &[Vec<Answer>]) -> String {
    let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
    let reason = |answers: &Vec<Answer>| match &answers[first] {
        Ok(_) => "its KV cache or its input is on another device".to_owned(),
        Err(reason) => reason.clone(),
    };
    let reasons = match answers {
        [one] => reason(one),
        _ => names
            .iter()
            .zip(answers)
            .map(|(name, each)| format!("{name}: {}", reason(each)))
            .collect::<Vec<_>>()
            .join("; "),
    };
    let noun = if names.len() == 1 { "device" } else { "devices" };
    let nodes = if count == 1 { name.to_owned() } else { format!("{}, first {name}", counted(count, "node")) };
    format!("{noun} {}: cannot compute {nodes}: {reasons}", names.join(", "))
}
