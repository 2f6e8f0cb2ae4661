//! Candidates for the wrong input at the right operator: indices, sequences, heads, ends of rows.

use super::sums::listed;
use super::{Candidate, CandidateKind, Guesses};
use crate::scene::{Content, Scene};
use trueup_graph::Op;
use trueup_graph::op::Arithmetic;
use trueup_runtime::device::Usage;

macro_rules! candidates {
    ($($name:literal: $guess:expr;)*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] =
            &[$(Candidate { name: $name, kind: CandidateKind::Formula, guess: $guess }),*];
    };
}

candidates! {
    "reads the cache of sequence 0 for every token": |scene| sequences(scene, |_| 0);
    "reads the cache of the first token's sequence for every token": first_sequence;
    "reads the cache of the next sequence": |scene| sequences(scene, |sequence| sequence + 1);
    "reads the cache of the previous sequence": |scene| sequences(scene, |sequence| sequence - 1);
    "reads the row after the index": |scene| indices(scene, |index| index + 1);
    "reads the row before the index": |scene| indices(scene, |index| index - 1);
    "starts from the empty recurrent state": |scene| slots(scene, |_| 0);
    "reads the recurrent state of the first sequence for every sequence": |scene| slots(scene, |first| first);
    "uses the expert after the chosen one": |scene| experts(scene, |expert, _, count| (expert + 1) % count);
    "uses the expert before the chosen one": |scene| experts(scene, |expert, _, count| (expert + count - 1) % count);
    "uses the first expert of the first token for all tokens": |scene| experts(scene, |_, first, _| first);
    "interleaves the query heads that share a KV head instead of grouping them": |scene| heads(scene, |head, kv_heads, _| head % kv_heads);
    "reads KV head 0 for every head": |scene| heads(scene, |_, _, _| 0);
    "reads the next KV head": |scene| heads(scene, |head, kv_heads, group| (head / group + 1) % kv_heads);
    "swaps the order of the heads": |scene| heads(scene, |head, kv_heads, group| kv_heads - 1 - head / group);
    "swaps gate and up": exchanged;
    "subtracts instead of adding": |scene| second(scene, |b| -b);
    "does not add": |scene| second(scene, |_| 0.0);
}

/// The scene with each index of input `input` changed; `None` where that leaves the tensor or changes nothing.
fn reindexed(scene: &Scene, input: usize, limit: usize, change: impl Fn(usize, i32) -> i32) -> Option<Guesses> {
    let mut scene = scene.clone();
    let Content::Integers(integers) = &mut scene.inputs.get_mut(input)?.content else { return None };
    let before = integers.clone();
    integers.iter_mut().enumerate().for_each(|(place, index)| *index = change(place, *index));
    let inside = integers.iter().all(|index| usize::try_from(*index).is_ok_and(|index| index < limit));
    (inside && before != *integers).then(|| listed(scene.judged().1))
}

fn sequences(scene: &Scene, change: fn(i32) -> i32) -> Option<Guesses> {
    reindexed(scene, place_of_sequences(&scene.op)?, scene.inputs[1].ty.shape[2], |_, sequence| change(sequence))
}

/// Which input says whose cache each token looks into.
fn place_of_sequences(op: &Op) -> Option<usize> {
    let alone = matches!(op, Op::KvScores(_) | Op::KvMix(_));
    if alone { Some(2) } else { matches!(op, Op::KvAttention(_)).then_some(3) }
}

/// The first token is in every sample.
fn first_sequence(scene: &Scene) -> Option<Guesses> {
    let place = place_of_sequences(&scene.op)?;
    let Content::Integers(sequences) = &scene.inputs.get(place)?.content else { return None };
    let first = *sequences.first().filter(|first| **first != 0)?;
    reindexed(scene, place, scene.inputs[1].ty.shape[2], |_, _| first)
}

fn indices(scene: &Scene, change: fn(i32) -> i32) -> Option<Guesses> {
    let rows = matches!(scene.op, Op::GetRows(_));
    rows.then(|| reindexed(scene, 1, scene.inputs[0].ty.shape[1], |_, index| change(index))).flatten()
}

/// Each sequence reads another slot of its recurrent state: `change` gets the slot of the first sequence.
fn slots(scene: &Scene, change: fn(i32) -> i32) -> Option<Guesses> {
    let state = scene.inputs.first().filter(|state| state.usage == Usage::State)?;
    let (place, slots) = match scene.op {
        Op::SsmScan(_) => (6, state.ty.shape[3]),
        Op::GetRows(_) => (1, state.ty.shape[1]),
        _ => return None,
    };
    let Content::Integers(indices) = &scene.inputs.get(place)?.content else { return None };
    let first = *indices.first()?;
    reindexed(scene, place, slots, |_, _| change(first))
}

/// Each token uses other experts: `change` gets a chosen expert, the first chosen one and the number of experts.
fn experts(scene: &Scene, change: fn(i32, i32, i32) -> i32) -> Option<Guesses> {
    let experts = matches!(scene.op, Op::MulMatId(_)).then(|| scene.inputs[0].ty.shape[2])?;
    let Content::Integers(ids) = &scene.inputs.get(2)?.content else { return None };
    let (first, count) = (*ids.first()?, i32::try_from(experts).ok()?);
    reindexed(scene, 2, experts, |_, expert| change(expert, first, count))
}

/// Each head reads the cached head that `wanted` says of the head, the cached heads and the heads that share one.
fn heads(scene: &Scene, wanted: fn(usize, usize, usize) -> usize) -> Option<Guesses> {
    let (heads, head_size) = if let Op::KvMix(mix) = &scene.op {
        (scene.inputs[0].ty.shape[2], scene.inputs[1].ty.shape[0] / mix.kv_heads)
    } else if matches!(scene.op, Op::KvScores(_) | Op::KvAttention(_)) {
        (scene.inputs[0].ty.shape[1], scene.inputs[0].ty.shape[0])
    } else {
        return None;
    };
    let kv_heads = scene.inputs[1].ty.shape[0] / head_size;
    let group = heads / kv_heads;
    if (0..heads).all(|head| wanted(head, kv_heads, group) == head / group) {
        return None;
    }
    // Caches with one head for each head that reads them, in the wanted order.
    let mut wide = scene.clone();
    for cache in if matches!(scene.op, Op::KvAttention(_)) { 1..3 } else { 1..2 } {
        let mut sizes = scene.inputs[cache].ty.shape.sizes();
        let len = sizes[0] / kv_heads;
        wide = wide.with_rows(cache, |row| {
            let head = |head| &row[wanted(head, kv_heads, group) * len..][..len];
            (0..heads).flat_map(head).copied().collect()
        });
        sizes[0] = heads * len;
        wide.inputs[cache].ty.shape = trueup_graph::Shape::new(&sizes);
    }
    if let Op::KvMix(mix) = &mut wide.op {
        mix.kv_heads = heads;
    }
    Some(listed(wide.judged().1))
}

/// A gated product with its inputs in the other order.
fn exchanged(scene: &Scene) -> Option<Guesses> {
    let mut scene = scene.clone();
    let gated = matches!(scene.op, Op::Gated(_)) && scene.inputs.len() == 2 || matches!(scene.op, Op::MulMatGated(_));
    gated.then(|| {
        scene.inputs.swap(0, 1);
        listed(scene.judged().1)
    })
}

/// The second summand changed.
fn second(scene: &Scene, change: fn(f64) -> f64) -> Option<Guesses> {
    let add = matches!(scene.op, Op::Arithmetic(Arithmetic::Add));
    add.then(|| listed(scene.with_rows(1, |row| row.iter().map(|b| change(*b)).collect()).judged().1))
}
