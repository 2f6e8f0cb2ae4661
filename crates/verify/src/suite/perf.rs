//! How fast a device is at each operator: many independent nodes in one call, against the roof of the machine.
//!
//! ```text
//!  case ─ copies of its tensors, more than caches hold ─▶ nodes 0..n, n up to 8,192, in one execute ─▶ median of runs / n
//! ```

use super::run::contents;
use super::stage::Content;
use super::{Candidate, Selection, candidates, named};
use serde::Serialize;
use std::time::{Duration, Instant};
use trueup_blocks::DType;
use trueup_graph::op::{KvAttention, KvMix, KvScores, KvStore, MulMat, RmsNorm};
use trueup_graph::{Case, Fill, Op, TensorType};
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};
use trueup_runtime::profile::Profile;
use trueup_runtime::{Caches, HostTensor, Operations, Result, Roof, Work};

/// Most nodes of one call.
const NODES_MAX: usize = 8192;

/// How long one call is to take, about.
const CALL: Duration = Duration::from_millis(60);

/// Calls of which the median counts.
const CALLS: usize = 5;

/// Bytes of all copies of a case's tensors together, where that many nodes are computed.
const COPIES_BYTES: usize = 128 << 20;

/// Bytes that caches may hold: where the nodes of a call read and write less, it may come from there.
const CACHED_BYTES: u64 = 64 << 20;

/// One operator on one choice of shapes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PerfResult {
    /// The operator's name.
    pub op: String,
    /// The types of the inputs.
    pub inputs: Vec<String>,
    /// The type of the result; empty where the inputs have none.
    pub output: String,
    /// Nodes of one call.
    pub nodes: usize,
    /// Copies of the tensors that the nodes take in turn.
    pub copies: usize,
    /// Median time of a node, in microseconds; null where it was not computed.
    pub time_us: Option<f64>,
    /// Bytes that have to be moved, in 10^9 a second; null where there are none.
    pub gb_per_s: Option<f64>,
    /// Whether all that the nodes of a call read and write is so little that caches may hold it; then more is possible
    /// than the roof.
    pub cached: bool,
    /// Multiplications and additions of products, in 10^9 a second; null where there are none.
    pub gflop_per_s: Option<f64>,
    /// The least time that the roof allows, as a share of the time taken; null where the device has no measured roof
    /// and where there is no work.
    pub roof_share: Option<f64>,
    /// Why it was not computed.
    pub skipped: Option<String>,
}

/// What a node took, and how it is declared to be computed.
type Done = (Work, Profile);

/// All selected operators on one device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PerfReport {
    /// The device's name.
    pub device: String,
    /// What the device is.
    pub description: String,
    /// The seed of all data.
    pub seed: u64,
    /// The roof; null where the device has none.
    pub roof: Option<Roof>,
    /// One entry for each choice of shapes.
    pub results: Vec<PerfResult>,
}

/// Measures the selected operators, and the roof where the device has one; `tell` hears of each result.
///
/// Products and attention are measured on the shapes of a decoder of about a billion weights, others on the largest
/// case of the suite. Fails where the roof cannot be measured; a device that fails has its reason in the result.
pub fn perf(
    device: &dyn Device,
    selection: &Selection,
    seed: u64,
    tell: &mut dyn FnMut(&PerfResult),
) -> Result<PerfReport> {
    let about = device.about();
    let before = device.roof()?;
    let selected = measured_cases().into_iter().filter(|candidate| selection.takes_operator(candidate.case.op.name()));
    let run = |candidate: Candidate| {
        let (result, done) = result(device, &candidate, seed);
        tell(&result);
        (result, done)
    };
    let measured: Vec<(PerfResult, Option<Done>)> = selected.map(run).collect();
    // Other programs may have slowed down one of the two.
    let roof = before.zip(device.roof()?).map(|(before, after)| before.best_of(after));
    let shared = |(mut result, done): (PerfResult, Option<Done>)| {
        result.roof_share = share(&result, done, roof.as_ref());
        result
    };
    let results = measured.into_iter().map(shared).collect();
    Ok(PerfReport { device: about.name, description: about.description, seed, roof, results })
}

/// The least time that the roof allows, as a share of the time taken.
fn share(result: &PerfResult, done: Option<Done>, roof: Option<&Roof>) -> Option<f64> {
    let ((work, profile), roof, time_us) = (done?, roof?, result.time_us?);
    let operations = Operations::of(&profile, work.operations);
    (work.bytes > 0).then(|| roof.seconds(work.bytes, operations) / (time_us / 1e6))
}

/// What is measured: products and attention of a decoder's layer, and of each other operator the case with the most
/// bytes.
fn measured_cases() -> Vec<Candidate> {
    let mut cases = layer_cases();
    let all = candidates();
    for name in Op::names() {
        let known = cases.iter().any(|case| case.op.name() == name);
        let dense = |case: &Case| case.inputs.iter().all(|(ty, _)| ty.shape.is_dense());
        let of = all.iter().filter(|of| !known && of.case.op.name() == name && dense(&of.case));
        let bytes = |case: &Case| case.inputs.iter().map(|(ty, _)| ty.bytes()).sum::<usize>();
        cases.extend(of.map(|candidate| candidate.case.clone()).max_by_key(bytes));
    }
    named(cases)
}

/// Nodes of a decoder with 2048 wide rows, 32 heads of 64 sharing 4 heads of keys and values, and a cache of 1024
/// positions.
fn layer_cases() -> Vec<Case> {
    const WIDTH: usize = 2048;
    let ty = TensorType::new;
    let normal = |dtype, sizes: &[usize]| (ty(dtype, sizes), Fill::Normal(1.0));
    let f32 = |sizes: &[usize]| normal(DType::F32, sizes);
    let zeros = |tokens| (ty(DType::I32, &[tokens]), Fill::Constant(0.0));
    let rows = |tokens| (ty(DType::I32, &[tokens]), Fill::Counting(0));
    let cache = |dtype| normal(dtype, &[256, 1024, 1]);
    let mut cases = Vec::new();
    let stored = [DType::F32, DType::F16, DType::Bf16, DType::Q4_0, DType::Q8_0, DType::Q4K, DType::Q6K];
    for tokens in [1, 64] {
        let fill = |dtype: DType| if dtype.block_len() <= 32 { Fill::Normal(1.0) } else { Fill::Blocks(0.01) };
        let weights = |dtype| (ty(dtype, &[WIDTH, WIDTH]), fill(dtype));
        let product = |dtype| Case::new(MulMat, &[weights(dtype), f32(&[WIDTH, tokens])]);
        cases.extend(stored.map(product));
    }
    for tokens in [1, 64] {
        for dtype in [DType::F16, DType::Q8_0] {
            cases.extend([
                Case::new(KvScores { capacity: 1024 }, &[f32(&[64, 32, tokens]), cache(dtype), zeros(tokens)]),
                Case::new(KvMix { kv_heads: 4 }, &[f32(&[1024, tokens, 32]), cache(dtype), zeros(tokens)]),
                Case::new(
                    KvAttention { scale: 0.125, max_bias: 0.0 },
                    &[
                        f32(&[64, 32, tokens]),
                        cache(dtype),
                        cache(dtype),
                        zeros(tokens),
                        (ty(DType::F32, &[1024, tokens]), Fill::Causal(1024 - tokens as i32)),
                    ],
                ),
                Case::new(KvStore, &[cache(dtype), f32(&[256, tokens]), rows(tokens)]),
            ]);
        }
        cases.extend([
            Case::new(RmsNorm { epsilon: 1e-5 }, &[f32(&[WIDTH, tokens]), f32(&[WIDTH])]),
            Case::new(Op::get_rows(DType::F32), &[normal(DType::Q4_0, &[WIDTH, 4096]), rows(tokens)]),
        ]);
    }
    cases
}

/// One choice of shapes, without its share of the roof.
fn result(device: &dyn Device, candidate: &Candidate, seed: u64) -> (PerfResult, Option<Done>) {
    let op = &candidate.case.op;
    let types: Vec<TensorType> = candidate.case.inputs.iter().map(|(ty, _)| *ty).collect();
    let mut result = PerfResult {
        op: op.name().to_owned(),
        inputs: types.iter().map(TensorType::to_string).collect(),
        output: String::new(),
        nodes: 0,
        copies: 0,
        time_us: None,
        cached: false,
        gb_per_s: None,
        gflop_per_s: None,
        roof_share: None,
        skipped: None,
    };
    let prepared = op.infer(&types).and_then(|output| {
        result.output = output.to_string();
        let profile = device.supports(op, &types, &output)?;
        let inputs = contents(candidate, seed)?;
        let read = |place: usize| HostTensor::stored(inputs[place].ty, inputs[place].bytes.to_vec());
        let work =
            Work::of_contents(op, Caches::Separate, &types, &output, |place| Ok::<HostTensor, String>(read(place)))?;
        Ok((work, profile, time(device, op, &inputs, &output).map_err(|error| error.to_string())?))
    });
    let (work, profile, timed) = match prepared {
        Ok(done) => done,
        Err(reason) => return (PerfResult { skipped: Some(reason), ..result }, None),
    };
    let seconds = timed.seconds.max(f64::MIN_POSITIVE);
    (result.nodes, result.copies) = (timed.nodes, timed.copies);
    result.time_us = Some(seconds * 1e6);
    result.cached = work.bytes > 0 && timed.copies as u64 * work.bytes < CACHED_BYTES;
    result.gb_per_s = (work.bytes > 0).then(|| work.bytes as f64 / seconds / 1e9);
    result.gflop_per_s = (work.operations > 0).then(|| work.operations as f64 / seconds / 1e9);
    (result, Some((work, profile)))
}

/// The time of one node.
struct Timed {
    /// Median.
    seconds: f64,
    nodes: usize,
    copies: usize,
}

/// Computes as many nodes in one call as fill [`CALL`], on as many copies of the tensors as caches do not hold.
fn time(device: &dyn Device, op: &Op, inputs: &[Content], output: &TensorType) -> Result<Timed> {
    let nodes = nodes(device, &steps(device, op, inputs, output, 1)?)?;
    let bytes = inputs.iter().map(|input| input.bytes.len()).sum::<usize>() + output.bytes();
    let copies = (COPIES_BYTES / bytes.max(1)).clamp(1, nodes);
    let distinct = steps(device, op, inputs, output, copies)?;
    let graph: Vec<Step> = distinct.iter().cycle().take(nodes).cloned().collect();
    call(device, &graph)?;
    let mut times = (0..CALLS).map(|_| call(device, &graph)).collect::<Result<Vec<Duration>>>()?;
    times.sort();
    Ok(Timed { seconds: times[CALLS / 2].as_secs_f64() / nodes as f64, nodes, copies })
}

/// How many times a node is to be computed in one call, so that the call takes about as long as [`CALL`].
fn nodes(device: &dyn Device, once: &[Step]) -> Result<usize> {
    let mut nodes = 1;
    call(device, once)?;
    loop {
        let graph: Vec<Step> = once.iter().cycle().take(nodes).cloned().collect();
        let share = CALL.as_secs_f64() / call(device, &graph)?.as_secs_f64().max(1e-9);
        if share < 2.0 || nodes == NODES_MAX {
            return Ok(nodes);
        }
        nodes = (nodes as f64 * share.min(16.0)) as usize;
        nodes = nodes.min(NODES_MAX);
    }
}

fn call(device: &dyn Device, steps: &[Step]) -> Result<Duration> {
    let start = Instant::now();
    device.execute(steps)?;
    device.sync()?;
    Ok(start.elapsed())
}

/// Nodes on tensors of their own, whose results and activations share one arena.
fn steps(device: &dyn Device, op: &Op, inputs: &[Content], output: &TensorType, copies: usize) -> Result<Vec<Step>> {
    let room = |ty: &TensorType| ty.bytes().max(1).next_multiple_of(ARENA_ALIGN_BYTES);
    let shared = inputs.iter().filter(|input| input.usage == Usage::Arena);
    let node_bytes = shared.map(|input| room(&input.ty)).sum::<usize>() + room(output);
    let arena = device.alloc(&TensorType::new(DType::I8, &[node_bytes * copies]), Usage::Arena)?;
    let mut steps = Vec::with_capacity(copies);
    for node in 0..copies {
        let mut end = node * node_bytes;
        let mut place = |ty: TensorType| {
            let tensor = Tensor { buffer: arena.clone(), offset_bytes: end, ty };
            end += room(&ty);
            tensor
        };
        let mut tensors = Vec::with_capacity(inputs.len());
        for content in inputs {
            let tensor = match content.usage {
                Usage::Arena => place(content.ty),
                usage => Tensor { buffer: device.alloc(&content.ty, usage)?, offset_bytes: 0, ty: content.ty },
            };
            device.upload(&content.bytes, &tensor)?;
            tensors.push(tensor);
        }
        let output = match tensors.first() {
            Some(first) if op.is_alias() => Tensor { ty: *output, ..first.clone() },
            _ => place(*output),
        };
        steps.push(Step { node, op: op.clone(), inputs: tensors, output });
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::super::tests::op;
    use super::*;
    use trueup_runtime::device::cpu::{Cpu, CpuOptions};

    #[test]
    fn every_operator_is_measured_and_all_shapes_fit() {
        let measured = measured_cases();
        for name in Op::names() {
            assert!(measured.iter().any(|measured| measured.case.op.name() == name), "{name}");
        }
        for Candidate { case, .. } in measured {
            let types: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
            case.op.infer(&types).unwrap();
        }
    }

    #[test]
    fn small_nodes_are_computed_many_at_once_and_large_ones_on_distinct_tensors() {
        let cpu = Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() }).unwrap();
        let f32 = |sizes: &[usize]| (TensorType::new(DType::F32, sizes), Fill::Normal(1.0));
        let small = Candidate { name: "add/0".to_owned(), case: Case::new(op("add"), &[f32(&[32]), f32(&[32])]) };
        let large =
            Candidate { name: "add/1".to_owned(), case: Case::new(op("add"), &[f32(&[4096, 256]), f32(&[4096])]) };
        let (found, work) = result(&cpu, &small, 1);
        assert_eq!((found.cached, share(&found, work, None)), (true, None));
        let roof = Roof {
            what: "",
            threads: 1,
            unit: "thread",
            isa: String::new(),
            read_gb_per_s: 1.0,
            copy_gb_per_s: 1.0,
            multiply_gflop_per_s: 1.0,
            int8_gop_per_s: 1.0,
            f16_gflop_per_s: None,
        };
        // 32 numbers are read twice and written once.
        let expected = 384e-9 / (found.time_us.unwrap() / 1e6);
        assert!((share(&found, work, Some(&roof)).unwrap() / expected - 1.0).abs() < 1e-9, "{found:?}");
        assert!(
            found.nodes > 100 && found.nodes <= NODES_MAX && found.time_us.is_some_and(|time| time > 0.0),
            "{found:?}"
        );
        let (found, _) = result(&cpu, &large, 1);
        assert!(found.nodes > 1 && found.copies <= found.nodes && found.copies <= 16, "{found:?}");
        assert!(found.gb_per_s.is_some() && found.gflop_per_s.is_none() && found.roof_share.is_none());
        let lacking = Candidate { name: "x".to_owned(), case: Case::new(op("add"), &[f32(&[32]), f32(&[5])]) };
        assert!(result(&cpu, &lacking, 1).0.skipped.is_some());
        let x = (TensorType::new(DType::F32, &[32]), Fill::Normal(1.0));
        let view = Candidate { name: "reshape/0".to_owned(), case: Case::new(Op::reshape(&[8, 4]), &[x]) };
        let (found, work) = result(&cpu, &view, 1);
        assert!(found.gb_per_s.is_none() && share(&found, work, Some(&roof)).is_none(), "{found:?}");
    }
}
