//! Attention over the KV cache becomes one node, but where something of it is read elsewhere or a cache is written in
//! between.

use trueup_blocks::DType::{F16, F32, I32};
use trueup_graph::fuse::{Candidate, Fused, fuse};
use trueup_graph::op::{Arithmetic, KvAttention, KvMix, KvScores, KvStore, SoftMax};
use trueup_graph::{Graph, Input, Op, StateKind, TensorType, ValueId};

const SIZE: usize = 16;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const TOKENS: usize = 5;
const CAPACITY: usize = 64;

/// What differs from attention as models have it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    None,
    /// Scores are read by a node behind the group too.
    SecondReader,
    /// No mask.
    NoMask,
    /// Values of other sequences than the keys.
    OtherSequences,
    /// Heads of values are larger than those of keys.
    OtherHeads,
    /// Keys are written again behind the scores.
    KeysWritten,
    /// Values are written between scores and mixture.
    ValuesWritten,
    /// Another cache is written there.
    OtherWritten,
    /// Keys are written again behind all of it.
    WrittenBehind,
}

fn graph(change: Change) -> Graph {
    let mut graph = Graph::default();
    let node =
        |graph: &mut Graph, name: &str, op: Op, inputs: &[ValueId]| graph.node(name, Some(0), op, inputs).unwrap();
    let indices = |graph: &mut Graph, input| graph.input(input, TensorType::new(I32, &[TOKENS]));
    let sequences = indices(&mut graph, Input::Sequences);
    let (rows, others) = (indices(&mut graph, Input::KvRows), indices(&mut graph, Input::Positions));
    let mask = graph.input(Input::Mask, TensorType::new(F32, &[CAPACITY, TOKENS]));
    let table = graph.weight("table", TensorType::new(F32, &[SIZE * HEADS, 9]));
    let embedded = node(&mut graph, "embedded", Op::get_rows(F32), &[table, sequences]);
    let q = node(&mut graph, "q", Op::reshape(&[SIZE, HEADS, TOKENS]), &[embedded]);
    let kv_table = graph.weight("kv_table", TensorType::new(F32, &[SIZE * KV_HEADS, 9]));
    let x = node(&mut graph, "x", Op::get_rows(F32), &[kv_table, sequences]);
    let mut cache = |name: &str| graph.state(name, StateKind::Rows, TensorType::new(F16, &[SIZE * KV_HEADS, 80, 3]));
    let (keys, values, other) = (cache("keys"), cache("values"), cache("other"));
    let stored_keys = node(&mut graph, "cache_k", KvStore.into(), &[keys, x, rows]);
    let stored_values = node(&mut graph, "cache_v", KvStore.into(), &[values, x, rows]);
    let scores = node(&mut graph, "kq", KvScores { capacity: CAPACITY }.into(), &[q, stored_keys, sequences]);
    let written = [(Change::KeysWritten, stored_keys), (Change::ValuesWritten, values), (Change::OtherWritten, other)];
    for (_, cache) in written.into_iter().filter(|(wanted, _)| *wanted == change) {
        node(&mut graph, "again", KvStore.into(), &[cache, x, rows]);
    }
    let op = SoftMax { scale: 0.25, max_bias: 0.0 }.into();
    let inputs = if change == Change::NoMask { vec![scores] } else { vec![scores, mask] };
    let weights = node(&mut graph, "kq_soft_max", op, &inputs);
    let of_values = if change == Change::OtherSequences { others } else { sequences };
    let kv_heads = if change == Change::OtherHeads { 1 } else { KV_HEADS };
    let mixed = node(&mut graph, "kqv_out", KvMix { kv_heads }.into(), &[weights, stored_values, of_values]);
    if change == Change::SecondReader {
        node(&mut graph, "looked_at", Arithmetic::Add.into(), &[scores, scores]);
    }
    if change == Change::WrittenBehind {
        node(&mut graph, "again", KvStore.into(), &[stored_keys, x, rows]);
    }
    node(&mut graph, "sum", Arithmetic::Add.into(), &[mixed, mixed]);
    graph
}

fn all(_: &Candidate) -> bool {
    true
}

#[test]
fn attention_over_the_cache_becomes_one_node() {
    for change in [Change::None, Change::OtherWritten, Change::WrittenBehind] {
        let before = graph(change);
        let fused = fuse(before.clone(), &all);
        assert_eq!((fused.groups.len(), fused.graph.nodes().len()), (1, before.nodes().len() - 2), "{change:?}");
        let node = &fused.graph.nodes()[fused.groups[0].node];
        assert_eq!((node.name.as_str(), &node.op), ("kqv_out", &KvAttention { scale: 0.25, max_bias: 0.0 }.into()));
        let inputs: Vec<&str> = node.inputs.iter().map(|id| fused.graph.value(*id).name.as_str()).collect();
        assert_eq!(inputs, ["q", "cache_k", "cache_v", "inp_seq", "inp_mask"]);
        let pieces: Vec<&str> =
            fused.pieces(fused.groups[0].node).unwrap().nodes().map(|node| node.name.as_str()).collect();
        assert_eq!(pieces, ["kq", "kq_soft_max", "kqv_out"]);
    }
}

#[test]
fn what_is_read_elsewhere_or_written_in_between_stays_in_pieces() {
    let changes = [
        Change::SecondReader,
        Change::NoMask,
        Change::OtherSequences,
        Change::OtherHeads,
        Change::KeysWritten,
        Change::ValuesWritten,
    ];
    for change in changes {
        let before = graph(change);
        assert_eq!(fuse(before.clone(), &all), Fused::none(before), "{change:?}");
    }
}

#[test]
fn the_rule_refuses_what_does_not_fit_together() {
    let op = Op::from(KvAttention { scale: 1.0, max_bias: 0.0 });
    let infer = |q: &[usize], keys: &[usize], values: &[usize], tokens: usize, mask: &[usize]| {
        let ty = TensorType::new;
        op.infer(&[ty(F32, q), ty(F16, keys), ty(F32, values), ty(I32, &[tokens]), ty(F32, mask)])
    };
    let fits = infer(&[16, 6, 5], &[32, 80, 3], &[10, 80, 3], 5, &[64, 5]);
    assert_eq!(fits, Ok(TensorType::new(F32, &[30, 5])));
    for (q, keys, values, tokens, mask, words) in [
        ([16, 6, 5], [40, 80, 3], [10, 80, 3], 5, [64, 5], "do not share rows of 40"),
        ([16, 5, 5], [32, 80, 3], [10, 80, 3], 5, [64, 5], "5 heads of 16 do not share"),
        ([0, 6, 5], [32, 80, 3], [10, 80, 3], 5, [64, 5], "do not share"),
        ([16, 6, 5], [32, 80, 3], [11, 80, 3], 5, [64, 5], "values"),
        ([16, 6, 5], [32, 80, 3], [10, 81, 3], 5, [64, 5], "values"),
        ([16, 6, 5], [32, 80, 3], [10, 80, 3], 4, [64, 5], "sequences must be i32[5]"),
        ([16, 6, 5], [32, 80, 3], [10, 80, 3], 5, [81, 5], "not 81"),
        ([16, 6, 5], [32, 80, 3], [10, 80, 3], 5, [0, 5], "not 0"),
        ([16, 6, 5], [32, 80, 3], [10, 80, 3], 5, [64, 4], "mask must be"),
    ] {
        let problem = infer(&q, &keys, &values, tokens, &mask).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
}
