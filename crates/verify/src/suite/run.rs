//! One case on one device: two runs, then everything that can be said about them.

use super::fill::{fill, input_seed};
use super::result::{CaseResult, Status};
use super::stage::{Content, Ran, Stage, usage};
use super::{Candidate, NMSE_MAX};
use crate::bound;
use crate::operand::{Operand, decode};
use crate::statistics::Statistics;
use crate::verdict::Verdict;
use std::borrow::Cow;
use trueup_blocks::DType;
use trueup_formats::significant;
use trueup_graph::TensorType;
use trueup_runtime::device::{Device, Usage};
use trueup_runtime::profile::{Activations, Profile};

/// What results are filled with before the two runs: NaN in every floating-point type, and a number in all of them, so
/// that an element that keeps the one does not have the other.
const POISONS: [u8; 2] = [0xff, 0x3c];

/// From here on downwards f32 has no relative precision that an NMSE could tell about: an error of this size is judged
/// by its bound alone.
const ABSOLUTE_BELOW: f64 = f32::MIN_POSITIVE as f64;

/// Computes a case on a device and judges what comes out.
pub(super) fn run(device: &dyn Device, candidate: &Candidate, seed: u64) -> CaseResult {
    let case = &candidate.case;
    let types: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
    let mut result = CaseResult::new(candidate, seed);
    let output = match case.op.infer(&types) {
        Ok(output) => output,
        Err(problem) => return result.broken(format!("the case breaks the operator's rule: {problem}")),
    };
    result.output = output.to_string();
    let profile = match device.supports(&case.op, &types, &output) {
        Ok(profile) => profile,
        Err(reason) => return result.skipped(reason),
    };
    result.profile = Some(profile);
    if case.probe && bound::is_coarser(&profile, &output) {
        return result
            .skipped(format!("results are declared as {}, which cannot represent the exact integers", profile.output));
    }
    if case.wide && profile.activations == Activations::F16 {
        return result.skipped(
            "some inputs exceed f16 or are infinite at unused places, and activations are \
            declared as rounded to f16"
                .to_owned(),
        );
    }
    let inputs = match contents(candidate, seed) {
        Ok(inputs) => inputs,
        Err(problem) => return result.broken(format!("the case cannot be filled: {problem}")),
    };
    match compute(device, candidate, &inputs, &output) {
        Ok(runs) => judge(result, candidate, &inputs, &profile, output, &runs),
        Err(error) => result.broken(error.to_string()),
    }
}

/// The inputs of a case.
pub(super) fn contents(candidate: &Candidate, seed: u64) -> Result<Vec<Content>, String> {
    let case = &candidate.case;
    let content = |(place, (ty, with)): (usize, &(TensorType, trueup_graph::Fill))| {
        let bytes = fill(ty, with, input_seed(seed, &candidate.name, place))?;
        Ok(Content { ty: *ty, usage: usage(&case.op, place, ty), bytes })
    };
    case.inputs.iter().enumerate().map(content).collect()
}

fn compute(
    device: &dyn Device,
    candidate: &Candidate,
    inputs: &[Content],
    output: &TensorType,
) -> trueup_runtime::Result<[Ran; 2]> {
    let stage = Stage::new(device, &candidate.case.op, inputs, output)?;
    let [first, second] = POISONS;
    Ok([stage.run(first)?, stage.run(second)?])
}

fn judge(
    mut result: CaseResult,
    candidate: &Candidate,
    inputs: &[Content],
    profile: &Profile,
    output: TensorType,
    [first, second]: &[Ran; 2],
) -> CaseResult {
    let case = &candidate.case;
    let loss = bound::declares_loss(&case.op, profile, &output);
    let statistics = statistics(candidate, inputs, profile, output, &first.output);
    let verdict = match bound::gate(&case.op).verdict(&statistics, loss) {
        Verdict::Unchecked if output.shape.elements() == 0 => Verdict::Exact,
        verdict => verdict,
    };
    result.measured(verdict, &statistics);
    result.problems.extend(first.damage.iter().chain(&second.damage).cloned());
    result.problems.dedup();
    if let Some(byte) = (0..first.output.len()).find(|byte| first.output[*byte] != second.output[*byte]) {
        let element = byte / output.dtype.block_bytes() * output.dtype.block_len();
        let sentence = "was not written, or two runs on the same inputs differ";
        result.problems.push(format!(
            "element {element} {sentence}: byte {byte} is {:#04x}, then {:#04x}",
            first.output[byte], second.output[byte]
        ));
    }
    if !verdict.passes() {
        result.problems.push(sentence(verdict, &statistics));
    }
    let small = statistics.nmse() < NMSE_MAX || statistics.max_abs <= ABSOLUTE_BELOW;
    if is_f32(inputs, &output) && !loss && !small {
        result.problems.push(format!(
            "NMSE of {} is not below {}",
            significant(statistics.nmse(), 2),
            significant(NMSE_MAX, 1)
        ));
    }
    let exact = statistics.equal == statistics.elements && (loss || statistics.max_abs == 0.0);
    if case.probe && !exact {
        let (equal, elements) = (statistics.equal, statistics.elements);
        result.problems.push(format!("the case is exact in integers, but only {equal} of {elements} elements are"));
    }
    result.status = if result.problems.is_empty() { Status::Pass } else { Status::Fail };
    result
}

/// What the worst element of a wrong result is and should be.
fn sentence(verdict: Verdict, statistics: &Statistics) -> String {
    match statistics.first_broken.or(statistics.worst_z) {
        Some(worst) => format!(
            "{verdict}: element {} is {}, expected {}, |z| {:.3}, rms z {:.3}",
            worst.index,
            significant(worst.device, 9),
            significant(worst.expected, 9),
            worst.ratio,
            statistics.rms_z()
        ),
        None => format!("{verdict}: nothing could be compared, because the formula is not finite on these inputs"),
    }
}

/// Whether nothing but f32 and indices goes in and f32 comes out.
fn is_f32(inputs: &[Content], output: &TensorType) -> bool {
    let plain = |input: &Content| matches!(input.ty.dtype, DType::F32 | DType::I32);
    output.dtype == DType::F32 && inputs.iter().all(plain)
}

fn statistics(
    candidate: &Candidate,
    inputs: &[Content],
    profile: &Profile,
    output: TensorType,
    result: &[u8],
) -> Statistics {
    let stored = candidate.case.op.is_alias() && inputs.first().is_some_and(|input| input.usage == Usage::State);
    let shown: Vec<Cow<[u8]>> = inputs.iter().map(Content::shown).collect();
    let read = |(input, bytes): (&Content, &Cow<[u8]>)| Numbers::of(&input.ty, bytes, input.usage != Usage::Arena);
    let numbers: Vec<Numbers> = inputs.iter().zip(&shown).map(read).collect();
    let operands = inputs.iter().zip(&shown).zip(&numbers);
    let operands: Vec<Operand> = operands.map(|((input, bytes), numbers)| numbers.operand(input.ty, bytes)).collect();
    let numbers = Numbers::of(&output, result, stored);
    bound::judge(&bound::Case {
        op: &candidate.case.op,
        inputs: &operands,
        profile,
        output: numbers.operand(output, result),
        reference: None,
        copies: &[],
        spread: &[],
        step: 0,
        collector: None,
    })
}

/// A tensor's elements, where it is not kept as bytes.
enum Numbers {
    Real(Vec<f64>),
    Integers(Vec<i32>),
    Stored,
}

impl Numbers {
    /// Reads a tensor. What the file or the KV cache holds, and blocks, stay bytes.
    fn of(ty: &TensorType, bytes: &[u8], stored: bool) -> Numbers {
        if ty.dtype == DType::I32 {
            Numbers::Integers(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
        } else if stored || !ty.dtype.is_float() {
            Numbers::Stored
        } else {
            Numbers::Real(decode(ty, bytes))
        }
    }

    fn operand<'a>(&'a self, ty: TensorType, bytes: &'a [u8]) -> Operand<'a> {
        match self {
            Numbers::Real(numbers) => Operand::numbers(ty, numbers),
            Numbers::Integers(integers) => Operand::integers(ty, integers),
            Numbers::Stored => Operand::blocks(ty, bytes),
        }
    }
}
