//! A plan for people (`Display`) and for scripts (`serde`).

use super::{Place, Plan, held_bytes};
use crate::profile::Profile;
use serde::Serialize;
use std::fmt;
use trueup_blocks::DType;
use trueup_graph::fuse::Pieces;
use trueup_graph::{Origin, Value};

/// A plan of more pieces is a fault: copies cost more than computing elsewhere gains.
const PIECES_MAX: usize = 100;

/// The plan of one batch shape.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlanReport {
    /// Into how many runs of one device the graph was cut; more than 100 are a fault, and the text says so.
    pub pieces: usize,
    /// Values copied between devices in each computation.
    pub copies: usize,
    /// What each device holds.
    pub devices: Vec<ReportedDevice>,
    /// The nodes in order.
    pub nodes: Vec<ReportedNode>,
}

/// Memory of one device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ReportedDevice {
    /// The name that selects it.
    pub name: String,
    /// Nodes that it computes.
    pub nodes: usize,
    /// The first and the last layer that it has nodes of.
    pub layers: Option<(usize, usize)>,
    /// Room for intermediate results.
    pub arena_bytes: usize,
    /// Scratch memory in addition to them, for example for attention scores, as far as it grows with the context.
    pub scratch_bytes: usize,
    /// Weights that its nodes read, as they are stored in the file.
    pub weight_bytes: usize,
    /// Those of them that the device stores as another type, by their type.
    pub decoded: Vec<DecodedWeights>,
    /// The KV cache as it is with sequences of this length.
    pub kv_bytes: usize,
    /// The KV cache of sequences that fill the context.
    pub kv_bytes_max: usize,
    /// What the host fills in for each computation.
    pub input_bytes: usize,
}

/// Weights of one type that a device stores as another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DecodedWeights {
    /// Their type in the file.
    #[serde(rename = "type")]
    pub dtype: DType,
    /// Their type on the device.
    pub stored_as: DType,
    /// Their bytes in the file.
    pub bytes: u64,
    /// Their bytes on the device.
    pub device_bytes: u64,
}

/// One node of the plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReportedNode {
    /// Its name in the graph.
    pub name: String,
    /// Its operator.
    pub op: &'static str,
    /// Type and shape of its output.
    pub output: String,
    /// Names and types of its inputs.
    pub inputs: Vec<String>,
    /// The device that computes it.
    pub device: String,
    /// The nodes that it was fused of; none of a node that is as models have it.
    pub fused: Vec<String>,
    /// Why the device of its layer does not compute it.
    pub fell_back: Option<String>,
    /// Offset of its output in the arena; `None` if the output has a separate buffer.
    pub offset: Option<usize>,
    /// Inputs that are copied from another device right before it.
    pub copied: Vec<String>,
    /// How the device computes it.
    pub profile: Profile,
}

impl PlanReport {
    pub(super) fn new(plan: &Plan) -> PlanReport {
        PlanReport {
            pieces: plan.pieces.len(),
            copies: plan.pieces.iter().map(|piece| piece.copies.len()).sum(),
            devices: (0..plan.devices()).map(|device| ReportedDevice::new(plan, device)).collect(),
            nodes: (0..plan.nodes.len()).map(|node| ReportedNode::new(plan, node)).collect(),
        }
    }
}

impl ReportedDevice {
    fn new(plan: &Plan, device: usize) -> ReportedDevice {
        let nodes = || plan.graph().nodes().iter().zip(&plan.nodes).filter(|(_, planned)| planned.device == device);
        let layers = || nodes().filter_map(|(node, _)| node.layer);
        let grown = |value: &Value| match (value.origin, plan.cache_max) {
            (Origin::State(kind), Some((room, ring))) => kind.with_room(&value.ty, room, ring).bytes(),
            (Origin::State(_), None) => value.ty.bytes(),
            (Origin::Input(_) | Origin::Weight | Origin::Node(_), _) => 0,
        };
        let held = plan.held(device).map(|value| plan.graph().value(value));
        ReportedDevice {
            name: plan.devices[device].name.clone(),
            nodes: nodes().count(),
            layers: layers().min().zip(layers().max()),
            arena_bytes: plan.arena_bytes(device),
            scratch_bytes: plan.scratch_bytes(device),
            weight_bytes: held_bytes(plan, device, |origin| origin == Origin::Weight),
            decoded: plan.devices[device].decoded.clone(),
            kv_bytes: held_bytes(plan, device, Origin::is_state),
            kv_bytes_max: held.map(grown).sum(),
            input_bytes: held_bytes(plan, device, |origin| matches!(origin, Origin::Input(_))),
        }
    }
}

impl ReportedNode {
    fn new(plan: &Plan, index: usize) -> ReportedNode {
        let (node, planned) = (&plan.graph().nodes()[index], &plan.nodes[index]);
        let value = |id| {
            let value = plan.graph().value(id);
            format!("{} {}", value.name, value.ty)
        };
        let copies = plan.pieces.iter().find(|piece| piece.nodes.start == index).map(|piece| &piece.copies);
        let place = plan.place(node.output, planned.device);
        ReportedNode {
            name: node.name.clone(),
            op: node.op.name(),
            output: plan.graph().value(node.output).ty.to_string(),
            inputs: node.inputs.iter().map(|id| value(*id)).collect(),
            device: plan.devices[planned.device].name.clone(),
            fused: plan.fused_of(index).into_iter().flat_map(Pieces::nodes).map(|piece| piece.name.clone()).collect(),
            fell_back: planned.fell_back.clone(),
            offset: if let Place::Arena(offset) = place { Some(offset) } else { None },
            copied: copies.into_iter().flatten().map(|(id, _)| value(*id)).collect(),
            profile: planned.profile,
        }
    }
}

impl fmt::Display for PlanReport {
    /// A line for each node and one for each device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&ReportedNode) -> usize| self.nodes.iter().map(of).max().unwrap_or(0);
        let (names, outputs) = (width(|node| node.name.chars().count()), width(|node| node.output.len()));
        let ops = width(|node| node.op.len());
        for node in &self.nodes {
            for copied in &node.copied {
                writeln!(f, "copy {copied} to {}", node.device)?;
            }
            let offset = node.offset.map_or_else(|| "in place".to_owned(), |offset| format!("at {offset}"));
            let (name, op, output) = (&node.name, node.op, &node.output);
            write!(f, "{name:names$}  {op:ops$}  {output:outputs$}  {}  {offset:>12}  {}", node.device, node.profile)?;
            if let [inner @ .., _] = node.fused.as_slice()
                && !inner.is_empty()
            {
                write!(f, "; with {}", inner.join(" and "))?;
            }
            node.fell_back.as_ref().map_or(Ok(()), |reason| write!(f, "; fell back: {reason}"))?;
            writeln!(f)?;
        }
        for device in &self.devices {
            let ReportedDevice { name, nodes, layers, arena_bytes, scratch_bytes, weight_bytes, input_bytes, .. } =
                device;
            let ReportedDevice { kv_bytes, kv_bytes_max, .. } = device;
            let of = match layers {
                Some((first, last)) if self.devices.len() > 1 => format!(" of layers {first} to {last}"),
                _ => String::new(),
            };
            write!(f, "{name}: {nodes} nodes{of}, {weight_bytes} bytes of weights, {kv_bytes} of KV cache (")?;
            write!(f, "{kv_bytes_max} when the context is full), ")?;
            writeln!(f, "{arena_bytes} of intermediate results, {scratch_bytes} of scratch, {input_bytes} of inputs")?;
            for DecodedWeights { dtype, stored_as, bytes, device_bytes } in &device.decoded {
                writeln!(
                    f,
                    "{name}: {dtype} weights are stored as {stored_as}: {device_bytes} bytes instead of {bytes}"
                )?;
            }
        }
        write!(f, "segments: {}, copies between devices: {}", self.pieces, self.copies)?;
        if self.pieces > PIECES_MAX {
            write!(
                f,
                "\nproblem: more than {PIECES_MAX} segments; choose a main device that supports the operators \
                    that fell back"
            )?;
        }
        Ok(())
    }
}
