//! Fusion: which groups become one node, which stay, and that nothing else of the graph changes.

use trueup_blocks::DType::{F16, F32, Q8_0};
use trueup_graph::fuse::{Candidate, Fused, fuse};
use trueup_graph::op::{Arithmetic, Gated, MulMat, MulMatGated, Unary};
use trueup_graph::{Graph, Input, Op, Origin, TensorType, ValueId};

const WIDTH: usize = 64;
const HIDDEN: usize = 160;

/// What differs from a feed-forward as models have it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// The gate's product is read by a node behind the group too.
    SecondReader,
    /// Something stands between product and gated activation.
    Between,
    /// Gate and up are of different activations.
    OtherActivations,
    /// One product serves as both.
    SameProduct,
    /// The up product is of an activation, not of a weight.
    NoWeight,
}

/// Layers of embedding, products, gated activation and sum.
fn graph(gated: Gated, layers: usize, change: Change) -> Graph {
    let mut graph = Graph::default();
    let tokens = graph.input(Input::Tokens, TensorType::new(trueup_blocks::DType::I32, &[5]));
    let table = graph.weight("table", TensorType::new(F16, &[WIDTH, 20]));
    let mut x = graph.node("inp_embd", None, Op::get_rows(F32), &[table, tokens]).unwrap();
    for layer in 0..layers {
        x = feed_forward(&mut graph, gated, layer, x, change);
    }
    graph
}

fn feed_forward(graph: &mut Graph, gated: Gated, layer: usize, x: ValueId, change: Change) -> ValueId {
    let name = |node: &str| format!("{node}-{layer}");
    let node = |graph: &mut Graph, called: &str, op: Op, inputs: &[ValueId]| {
        graph.node(name(called), Some(layer), op, inputs).unwrap()
    };
    let weight =
        |graph: &mut Graph, called: &str, sizes: &[usize]| graph.weight(&name(called), TensorType::new(Q8_0, sizes));
    let (gate_weight, up_weight) =
        (weight(graph, "gate.weight", &[WIDTH, HIDDEN]), weight(graph, "up.weight", &[WIDTH, HIDDEN]));
    let other = node(graph, "other", Unary::Silu.into(), &[x]);
    let mut gate = node(graph, "ffn_gate", MulMat.into(), &[gate_weight, x]);
    let up = match change {
        Change::OtherActivations => node(graph, "ffn_up", MulMat.into(), &[up_weight, other]),
        Change::SameProduct => gate,
        Change::NoWeight => {
            let wide = weight(graph, "wide.weight", &[WIDTH, WIDTH * HIDDEN / 5]);
            let made = node(graph, "made", MulMat.into(), &[wide, x]);
            let matrix = node(graph, "matrix", Op::reshape(&[WIDTH, HIDDEN]), &[made]);
            node(graph, "ffn_up", MulMat.into(), &[matrix, x])
        }
        Change::None | Change::SecondReader | Change::Between => node(graph, "ffn_up", MulMat.into(), &[up_weight, x]),
    };
    if change == Change::Between {
        gate = node(graph, "biased", Arithmetic::Add.into(), &[gate, gate]);
    }
    let hidden = node(graph, "ffn_gated", gated.into(), &[gate, up]);
    let down_weight = weight(graph, "down.weight", &[HIDDEN, WIDTH]);
    let down = node(graph, "ffn_out", MulMat.into(), &[down_weight, hidden]);
    if change == Change::SecondReader {
        node(graph, "looked_at", Unary::Neg.into(), &[gate]);
    }
    node(graph, "l_out", Arithmetic::Add.into(), &[down, x])
}

fn all(_: &Candidate) -> bool {
    true
}

fn names(fused: &Fused, group: usize) -> Vec<&str> {
    fused.pieces(fused.groups[group].node).unwrap().nodes().map(|node| node.name.as_str()).collect()
}

#[test]
fn every_member_of_the_family_is_fused_in_every_layer() {
    for gated in Gated::ALL {
        let before = graph(gated, 3, Change::None);
        let fused = fuse(before.clone(), &all);
        assert_eq!((fused.unfused.clone(), fused.groups.len()), (before.clone(), 3));
        assert_eq!(fused.graph.nodes().len(), before.nodes().len() - 2 * 3);
        for (layer, group) in fused.groups.iter().enumerate() {
            let node = &fused.graph.nodes()[group.node];
            assert_eq!((node.name.clone(), node.layer), (format!("ffn_gated-{layer}"), Some(layer)));
            assert_eq!(node.op, Op::from(MulMatGated { gated }));
            let inputs: Vec<&str> = node.inputs.iter().map(|id| fused.graph.value(*id).name.as_str()).collect();
            let x = if layer == 0 { "inp_embd".to_owned() } else { format!("l_out-{}", layer - 1) };
            assert_eq!(inputs, [&format!("gate.weight-{layer}"), &format!("up.weight-{layer}"), x.as_str()]);
            let pieces = [format!("ffn_gate-{layer}"), format!("ffn_up-{layer}"), format!("ffn_gated-{layer}")];
            assert_eq!(names(&fused, layer), pieces);
            assert!(pieces.iter().all(|piece| fused.holder(piece) == Some(node)));
        }
    }
}

/// Every other node, with the names and types of what it reads and gives, is as it was, and so is the order.
#[test]
fn the_rest_of_the_graph_stays() {
    let before = graph(Gated::Swiglu, 2, Change::None);
    let fused = fuse(before.clone(), &all);
    let listed = |graph: &Graph| -> Vec<String> {
        let nodes =
            graph.nodes().iter().filter(|node| !node.name.starts_with("ffn_g") && !node.name.starts_with("ffn_up"));
        let value = |id: ValueId| format!("{} {}", graph.value(id).name, graph.value(id).ty);
        nodes
            .map(|node| {
                format!(
                    "{:?} {:?} {}",
                    node.op,
                    node.inputs.iter().map(|id| value(*id)).collect::<Vec<_>>(),
                    value(node.output)
                )
            })
            .collect()
    };
    assert_eq!(listed(&fused.graph), listed(&before));
    for (place, node) in fused.graph.nodes().iter().enumerate() {
        assert_eq!(fused.graph.value(node.output).origin, Origin::Node(place));
        let types: Vec<TensorType> = node.inputs.iter().map(|id| fused.graph.value(*id).ty).collect();
        assert_eq!(node.op.infer(&types).unwrap(), fused.graph.value(node.output).ty, "{}", node.name);
    }
    assert_eq!((fused.holder("ffn_out-0"), fused.pieces(0).is_none()), (None, true));
}

#[test]
fn what_another_node_reads_or_is_no_feed_forward_is_not_fused() {
    let changes =
        [Change::SecondReader, Change::Between, Change::OtherActivations, Change::SameProduct, Change::NoWeight];
    for change in changes {
        let before = graph(Gated::Swiglu, 1, change);
        assert_eq!(fuse(before.clone(), &all), Fused::none(before));
    }
}

#[test]
fn only_what_is_accepted_is_fused_and_the_question_is_whole() {
    let before = graph(Gated::Geglu, 3, Change::None);
    let one = fuse(before.clone(), &|candidate: &Candidate| {
        let weights = [TensorType::new(Q8_0, &[WIDTH, HIDDEN]); 2];
        assert_eq!(candidate.inputs, [weights[0], weights[1], TensorType::new(F32, &[WIDTH, 5])]);
        assert_eq!(candidate.output, TensorType::new(F32, &[HIDDEN, 5]));
        assert_eq!((candidate.op.name(), candidate.pieces.len()), ("mul_mat_geglu", 3));
        candidate.name() == "ffn_gated-1"
    });
    assert_eq!((one.groups.len(), names(&one, 0)), (1, vec!["ffn_gate-1", "ffn_up-1", "ffn_gated-1"]));
    assert_eq!(fuse(before.clone(), &|_| false), Fused::none(before));
}

#[test]
fn the_fused_operator_takes_what_both_products_take() {
    let op = Op::from(MulMatGated { gated: Gated::Swiglu });
    let ty = |dtype, sizes: &[usize]| TensorType::new(dtype, sizes);
    let infer = |gate: &[usize], up: &[usize], x: &[usize]| op.infer(&[ty(Q8_0, gate), ty(F16, up), ty(F32, x)]);
    assert_eq!(infer(&[64, 10], &[64, 10], &[64, 3]), Ok(ty(F32, &[10, 3])));
    assert_eq!(infer(&[64, 10, 2], &[64, 10, 2], &[64, 3, 4]), Ok(ty(F32, &[10, 3, 4])));
    assert!(infer(&[64, 10], &[64, 11], &[64, 3]).unwrap_err().contains("must have one shape"));
    assert!(infer(&[64, 10], &[64, 10], &[32, 3]).unwrap_err().contains("lengths must be equal"));
    assert!(op.infer(&[ty(F32, &[8, 2]), ty(F32, &[8, 2])]).unwrap_err().contains("takes 3 inputs"));
}
