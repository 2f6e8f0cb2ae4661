//! What a plan counts is what the card takes, to the byte, and a card of that size has room: a process of its own opens
//! one.
//!
//! ```text
//!  before ─▶ session: a prompt, two tokens behind it ─▶ what is free less than before   =   the prompt's plan and the token's: weights, KV cache,
//!                                                                                           the larger arena, the larger of each room, inputs of both
//! ```

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::graph::{Origin, TensorType};
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::device::cuda::{Cuda, CudaOptions, Place};
use trueup::runtime::plan::Plan;
use trueup::runtime::{Entry, Error, ModelFile, Session, SessionOptions, Weights};
use trueup_tests::{convert, plain_fixture, quantize};

/// Tokens of the prompt, more than a unit of the cache has, and tokens behind it.
const PROMPT: usize = 70;
const STEPS: usize = 2;

/// What the card's memory begins at multiples of, and the pages that allocations of a MiB and more have of their own.
const ALIGN_BYTES: usize = 256;
const PAGE_BYTES: usize = 2 << 20;

/// Sequences of the cache: few, and so many that keys and values of a layer are no whole pages.
const SEQUENCES: [usize; 2] = [1, 300];

/// Counters that no launch of a model needs are planned for.
const COUNTERS_BYTES: usize = 1024;

/// What a process of its own is called with, before a model, the bytes of the card, and whether it has the fast ways.
pub const FITS: &str = "--fits";

/// What is not right about plans of a model on a card.
pub fn plans(card: &CudaOptions) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = plain_fixture();
    let source = scratch.path().join("source.gguf");
    convert(&fixture.folder, &source, None, None);
    let mut wrong = Vec::new();
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_0] {
        let target = scratch.path().join(format!("{dtype}.gguf"));
        quantize(&source, &target, dtype, Layout::Block);
        for (repack, sequences) in [(true, SEQUENCES[0]), (false, SEQUENCES[0]), (true, SEQUENCES[1])] {
            let found = plan(&target, &CudaOptions { repack, ..card.clone() }, sequences);
            let found = found.unwrap_or_else(|error| Some(error.to_string()));
            wrong.extend(found.map(|sentence| format!("{dtype}, repack {repack}, {sequences} sequences: {sentence}")));
        }
    }
    println!("cuda-sim, simulated: plans against what cards take, {} wrong", wrong.len());
    wrong
}

fn options(sequences: usize) -> SessionOptions {
    SessionOptions { context: Some(128), sequences, ..SessionOptions::default() }
}

fn plan(model: &Path, card: &CudaOptions, sequences: usize) -> Result<Option<String>, Error> {
    let device: Arc<Cuda> = Arc::new(Cuda::new(card)?);
    let free = || device.about().memory.map_or(0, |(_, free)| free as usize);
    let before = free();
    let weights = weights(model, Arc::clone(&device) as Arc<dyn Device>)?;
    let [prompt, token] =
        [PROMPT, 1].map(|tokens| Session::plan(&weights, &options(sequences), tokens, 1, PROMPT + STEPS));
    let planned = planned(&[prompt?, token?], card.repack);
    if free() != before {
        return Ok(Some(format!("plans alone take {} bytes", before - free())));
    }
    let session = run(&weights, sequences)?;
    let used = before - free();
    drop(session);
    if used > planned || planned > used + COUNTERS_BYTES {
        return Ok(Some(format!("{used} bytes are used of {planned} that are planned")));
    }
    let [fits, smaller] =
        [planned, planned - planned / 4].map(|bytes| fits_alone(model, bytes, card.repack, sequences));
    if fits.is_err() || !smaller.as_ref().is_err_and(|said| said.contains("bytes of memory, but only")) {
        return Ok(Some(format!("a card of {planned} bytes: {fits:?}; one of a quarter less: {smaller:?}")));
    }
    Ok(None)
}

fn weights(model: &Path, device: Arc<dyn Device>) -> Result<Arc<Weights>, Error> {
    Ok(Arc::new(Weights::new(Arc::new(ModelFile::open(model)?), device, None)))
}

/// The prompt and the tokens behind it.
fn run(weights: &Arc<Weights>, sequences: usize) -> Result<Session, Error> {
    let mut session = Session::new(Arc::clone(weights), &options(sequences))?;
    let entry = |token: usize| Entry { token: token as u32, sequence: 0, wants_logits: false };
    let prompt: Vec<Entry> =
        (1..=PROMPT).map(|token| Entry { wants_logits: token == PROMPT, ..entry(token) }).collect();
    session.compute(&prompt, None)?;
    for token in 0..STEPS {
        session.compute(&[Entry { wants_logits: true, ..entry(token) }], None)?;
    }
    Ok(session)
}

/// Bytes of memory for both plans, each allocation rounded up as the card does.
fn planned(plans: &[Plan; 2], repack: bool) -> usize {
    let rounded = |bytes: usize| bytes.next_multiple_of(if bytes < 1 << 20 { ALIGN_BYTES } else { PAGE_BYTES });
    let [prompt, token] = plans;
    let of = |plan: &Plan, wanted: fn(Origin) -> bool, bytes: &dyn Fn(&TensorType) -> usize| -> usize {
        let values = plan.held(0).map(|id| plan.graph().value(id));
        values.filter(|value| wanted(value.origin)).map(|value| bytes(&value.ty)).sum()
    };
    let plain = |ty: &TensorType| rounded(ty.bytes());
    let weight = |ty: &TensorType| if repack { planes_bytes(ty).unwrap_or(plain(ty)) } else { plain(ty) };
    let inputs: usize = plans.iter().map(|plan| of(plan, |origin| matches!(origin, Origin::Input(_)), &plain)).sum();
    let held = of(prompt, |origin| origin == Origin::Weight, &weight) + of(prompt, |origin| origin.is_state(), &plain);
    let arena = rounded(prompt.arena_bytes(0).max(token.arena_bytes(0)));
    let rooms = prompt.rooms(0).into_iter().zip(token.rooms(0)).map(|(one, other)| rounded(one.max(other)));
    inputs + held + arena + rooms.sum::<usize>()
}

/// Of a weight that lies in planes, those: codes, the rest of them, scales.
fn planes_bytes(ty: &TensorType) -> Option<usize> {
    let parts = match ty.dtype {
        DType::Q4_0 => [16, 0, 2],
        DType::Q8_0 => [16, 16, 2],
        _ => return None,
    };
    let blocks = ty.shape.elements() / 32;
    Some(parts.into_iter().map(|part: usize| (part * blocks).next_multiple_of(ALIGN_BYTES)).sum())
}

/// Whether a session has room on a card of so many bytes, and another one behind it, in a process of its own; what it
/// says where not.
fn fits_alone(model: &Path, bytes: usize, repack: bool, sequences: usize) -> Result<(), String> {
    let program = std::env::current_exe().expect("the test's own path");
    let numbers = [bytes.to_string(), repack.to_string(), sequences.to_string()];
    let arguments = [FITS.to_owned(), model.display().to_string()].into_iter().chain(numbers);
    let output = Command::new(program).args(arguments).output().expect("this program is started");
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    output.status.success().then_some(()).ok_or_else(|| said.join("\n"))
}

/// What the process of its own does: the error, in words, where there is one.
pub fn fits(arguments: &[String], card: &CudaOptions) -> Option<String> {
    let [model, bytes, repack, sequences] = arguments else {
        return Some("a model, bytes, a truth value and a number".to_owned());
    };
    let sequences = sequences.parse().expect("a number");
    let memory_bytes = bytes.parse().expect("bytes");
    let place = Place::Simulated { cards: 1, card: 0, memory_bytes };
    let options = CudaOptions { place, repack: repack == "true", ..card.clone() };
    // The second session computes in the rooms of the first.
    let twice = || {
        let weights = weights(Path::new(model), Arc::new(Cuda::new(&options)?))?;
        run(&weights, sequences).map(drop)?;
        run(&weights, sequences)
    };
    twice().err().map(|error: Error| error.to_string())
}
