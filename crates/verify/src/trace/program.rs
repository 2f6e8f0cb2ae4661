//! The program that made a trace: what its arithmetic is, as it declared it or as it is known.
//!
//! ```text
//!   ours        profiles stand in the file, for batches of one token and of many
//!   others      f32 throughout, sums in any order, angles by pow in f32
//!   llama.cpp   as others, but activations rounded to what its products take: f16, bf16, 8-bit blocks; f16 KV cache;
//!               with flash attention, values mixed in f16; with f16 arithmetic on NEON, products with f16 summed in f16
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use trueup_blocks::DType;
use trueup_formats::{Error as FileError, KEY_SYSTEM_INFO, Trace, quote};
use trueup_graph::{Graph, Node, Op};
use trueup_runtime::profile::{Accumulator, Activations, Angles, Order, Products, Profile, Rounding, Weights};
use trueup_runtime::{Error, Result};

/// Text of our own traces that holds the profiles.
pub(super) const KEY_PROFILES: &str = "profiles";
/// Text of our own traces that names the fused nodes.
pub(super) const KEY_FUSED: &str = "fused";
/// Text that names the device.
pub(super) const KEY_DEVICE: &str = "device";
/// Text that names the type of the KV cache.
pub(super) const KEY_KV: &str = "kv";
/// Text that names the program.
pub(super) const KEY_PROGRAM: &str = "program";

/// Text of a trace of llama.cpp that says whether attention was one operator: `on` or `off`.
const KEY_FLASH_ATTENTION: &str = "flash_attention";
/// How the name of llama.cpp as a program begins.
const LLAMA_CPP: &str = "llama.cpp";

/// The fewest sums in f16 that a kernel for NEON has: one register.
const F16_LANES: usize = 8;

/// The most lanes that a profile may declare.
const LANES_MAX: usize = 1 << 16;

/// The largest error of functions that a profile may declare.
const FUNCTION_ULP_MAX: f32 = 1024.0;

/// Types of a KV cache.
const KV_TYPES: [DType; 5] = [DType::F16, DType::F32, DType::F64, DType::Bf16, DType::Q8_0];

/// A profile and the nodes it was declared for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct DeclaredProfile {
    pub profile: Profile,
    /// Nodes of batches of several tokens.
    pub many: Vec<String>,
    /// Nodes of batches of one token.
    pub one: Vec<String>,
}

/// A fused operator and the nodes it computed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct FusedNodes {
    pub op: String,
    /// Nodes of batches of several tokens.
    pub many: Vec<String>,
    /// Nodes of batches of one token.
    pub one: Vec<String>,
}

/// Whose trace it is.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// Ours: a profile for each node, and whether it is of one token; likewise the operators of fused nodes.
    Own { profiles: HashMap<(String, bool), Profile>, fused: HashMap<(String, bool), String>, kv: DType },
    /// Another program, in f32 or better.
    Foreign,
    /// llama.cpp.
    LlamaCpp { fused_attention: bool, half: HalfKernels },
}

/// How the build of llama.cpp multiplies with f16: weights and the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum HalfKernels {
    /// Activations in f16, sums in f32: x86, and NEON without llamafile's kernels.
    #[default]
    F32Sums,
    /// NEON with llamafile's kernels: these take contiguous activations of two columns or more as they are.
    F32Activations,
    /// NEON with f16 arithmetic: activations and sums in f16.
    F16Sums,
}

impl HalfKernels {
    /// Those of a build that describes itself so: `CPU : NEON = 1 | ARM_FMA = 1 | FP16_VA = 1 | LLAMAFILE = 1 |`.
    fn of(system_info: &str) -> HalfKernels {
        let mut facts = system_info.split(['|', ':']).map(str::trim);
        let has = |fact: &str| facts.clone().any(|found| found == fact);
        if has("FP16_VA = 1") {
            HalfKernels::F16Sums
        } else if has("NEON = 1") && facts.any(|found| found == "LLAMAFILE = 1") {
            HalfKernels::F32Activations
        } else {
            HalfKernels::F32Sums
        }
    }

    /// The profile of a product with a matrix of `len` by `rows`; `profile` is that of a product with f16 activations.
    /// `columns` is the number of columns of the result, `contiguous` whether the activations are.
    fn of_product(self, profile: Profile, columns: usize, [len, rows]: [usize; 2], contiguous: bool) -> Profile {
        match self {
            HalfKernels::F32Sums => profile,
            HalfKernels::F32Activations => {
                let tiled = contiguous && columns > 1 && len % 4 == 0 && rows % 4 == 0;
                let activations = if tiled { Activations::Unchanged } else { profile.activations };
                Profile { activations, ..profile }
            }
            HalfKernels::F16Sums => Profile { accumulator: Accumulator::F16, lanes: F16_LANES, ..profile },
        }
    }
}

/// f32 with sums in any order.
const FOREIGN: Profile = Profile {
    activations: Activations::Unchanged,
    weights: Weights::Unchanged,
    products: Products::Rounded,
    accumulator: Accumulator::F32,
    lanes: 1,
    order: Order::Any,
    output: DType::F32,
    function_ulp: 4.0,
    angles: Angles::Pow,
};

impl Program {
    /// The program of a trace.
    pub fn of(trace: &Trace) -> Result<Program> {
        let is_named = trace.text(KEY_PROGRAM).is_some_and(|program| program.starts_with(LLAMA_CPP));
        if trace.is_printed() || is_named && trace.text(KEY_PROFILES).is_none() {
            let fused_attention = trace.has_fused_attention() || trace.text(KEY_FLASH_ATTENTION) == Some("on");
            let half = trace.text(KEY_SYSTEM_INFO).map(HalfKernels::of).unwrap_or_default();
            return Ok(Program::LlamaCpp { fused_attention, half });
        }
        let Some(text) = trace.text(KEY_PROFILES) else { return Ok(Program::Foreign) };
        let fault_of = |key: &str, problem: String| {
            Error::File(FileError::new(trace.source().path(), problem).at(format!("text {key}")))
        };
        let fault = |problem: String| fault_of(KEY_PROFILES, problem);
        let declared: Vec<DeclaredProfile> =
            serde_json::from_str(text).map_err(|error| fault(quote(&error.to_string())))?;
        let unread = |error: serde_json::Error| fault_of(KEY_FUSED, quote(&error.to_string()));
        let listed: Vec<FusedNodes> =
            trace.text(KEY_FUSED).map_or(Ok(Vec::new()), |text| serde_json::from_str(text).map_err(unread))?;
        let mut fused = HashMap::new();
        for FusedNodes { op, many, one } in listed {
            fused.extend(many.into_iter().map(|node| ((node, false), op.clone())));
            fused.extend(one.into_iter().map(|node| ((node, true), op.clone())));
        }
        let mut profiles = HashMap::new();
        for DeclaredProfile { profile, many, one } in declared {
            let sane = profile.lanes <= LANES_MAX && (0.0..=FUNCTION_ULP_MAX).contains(&profile.function_ulp);
            if !sane || !KV_TYPES.contains(&profile.output) {
                return Err(fault(format!("expected the profile of a device, found {profile}")));
            }
            profiles.extend(many.into_iter().map(|node| ((node, false), profile)));
            profiles.extend(one.into_iter().map(|node| ((node, true), profile)));
        }
        let kv = trace.text(KEY_KV).unwrap_or("f16");
        let known = KV_TYPES.into_iter().find(|dtype| dtype.name() == kv);
        let kv = known.ok_or_else(|| fault(format!("unknown KV cache type {}", quote(kv))))?;
        Ok(Program::Own { profiles, fused, kv })
    }

    /// The type of its KV cache.
    pub fn kv(&self) -> DType {
        match self {
            Program::Own { kv, .. } => *kv,
            Program::Foreign => DType::F64,
            Program::LlamaCpp { .. } => DType::F16,
        }
    }

    /// Whether it fused any nodes.
    pub fn fuses(&self) -> bool {
        match self {
            Program::Own { fused, .. } => !fused.is_empty(),
            Program::Foreign | Program::LlamaCpp { .. } => false,
        }
    }

    /// Whether it computed the node by this fused operator in a batch of so many tokens.
    pub fn fused(&self, node: &str, op: &str, tokens: usize) -> bool {
        match self {
            Program::Own { fused, .. } => fused.get(&(node.to_owned(), tokens == 1)).is_some_and(|found| found == op),
            Program::Foreign | Program::LlamaCpp { .. } => false,
        }
    }

    /// The number of columns of a node that it computed in a batch of `tokens` tokens. After the last attention,
    /// llama.cpp computes only the tokens whose logits are wanted.
    pub fn columns(&self, trace: &Trace, step: usize, node: &str, tokens: usize) -> usize {
        let tensor = trace.find(step, node).filter(|_| matches!(self, Program::LlamaCpp { .. }));
        let columns = tensor
            .and_then(|tensor| tensor.shape.iter().skip(1).try_fold(1_u64, |columns, size| columns.checked_mul(*size)));
        columns.and_then(|columns| usize::try_from(columns).ok()).unwrap_or(tokens)
    }

    /// How it computes a node of a batch of `tokens` tokens.
    pub fn profile(&self, graph: &Graph, node: &Node, tokens: usize) -> Profile {
        match self {
            Program::Own { profiles, .. } => {
                let known = |node: &Node, one| profiles.get(&(node.name.clone(), one)).copied();
                let declared = |node: &Node| known(node, tokens == 1).or_else(|| known(node, tokens != 1));
                // What was computed together with the node that reads it was computed in the way of that one.
                let reader = || graph.nodes().iter().find(|other| other.inputs.contains(&node.output));
                declared(node).or_else(|| declared(reader()?)).unwrap_or(FOREIGN)
            }
            Program::Foreign => FOREIGN,
            Program::LlamaCpp { fused_attention, half } => llama_cpp(graph, node, tokens, *fused_attention, *half),
        }
    }

    /// Whether it says itself which nodes it computed.
    pub fn is_own(&self) -> bool {
        matches!(self, Program::Own { .. })
    }

    /// Whether a trace of a batch of so many tokens must hold the node where it is to be complete: for ours, where it
    /// was computed by itself; for others, where it computes something.
    pub fn computes(&self, node: &Node, tokens: usize) -> bool {
        match self {
            Program::Own { profiles, .. } => profiles.contains_key(&(node.name.clone(), tokens == 1)),
            Program::Foreign | Program::LlamaCpp { .. } => !node.op.is_alias(),
        }
    }

    /// Fails for a tensor of another program in fewer bits than f32: nothing says what was rounded on the way.
    pub fn expect_precise(&self, trace: &Trace, step: usize, node: &str) -> Result<()> {
        let coarse = trace.find(step, node).filter(|tensor| !matches!(tensor.dtype, DType::F32 | DType::F64));
        let Some(tensor) = coarse.filter(|_| matches!(self, Program::Foreign)) else { return Ok(()) };
        let problem = format!("expected f32 or f64, found {}", tensor.dtype);
        let error = FileError::new(trace.source().path(), problem).at(format!("tensor {}", quote(&tensor.name())));
        Err(error.help("run the other program in float32").into())
    }
}

/// The profile of llama.cpp's CPU kernels for a node, by the type of the weights; `columns` as in
/// [`Program::columns`].
fn llama_cpp(graph: &Graph, node: &Node, columns: usize, fused_attention: bool, half: HalfKernels) -> Profile {
    let base = Profile { angles: Angles::Iterated, ..FOREIGN };
    if fused_attention && matches!(node.op, Op::KvMix(_)) {
        // Values are added up in f16 as they come, by weights in f32.
        return Profile { accumulator: Accumulator::F16, ..base };
    }
    let f16 = Profile { activations: Activations::F16, ..base };
    match (&node.op, node.inputs.first()) {
        (Op::MulMat(_) | Op::MulMatId(_), Some(weight)) => {
            let ty = graph.value(*weight).ty;
            if ty.dtype == DType::F16 {
                let contiguous = matches!(node.op, Op::MulMat(_));
                return half.of_product(f16, columns, [ty.shape[0], ty.shape[1]], contiguous);
            }
            Profile { activations: by_weight(ty.dtype), ..base }
        }
        // Queries are permuted and attention weights are not; a cache has a multiple of 32 rows.
        (Op::KvScores(_), _) => half.of_product(f16, columns, [0, 0], false),
        (Op::KvMix(_), _) => half.of_product(f16, columns, [0, 0], true),
        _ => base,
    }
}

/// What activations are rounded to before they are multiplied with weights of a type.
///
/// Codes are `x * (127 / max |x|)` on x86 and `x * (1 / d)` elsewhere, with halves to even or away from zero: these
/// differ at ties only, which may go either way. Repacked and tiled kernels quantize in the same way, whatever the
/// batch.
fn by_weight(weight: DType) -> Activations {
    let rounding = Rounding::HalfEven;
    match weight {
        DType::F32 => Activations::Unchanged,
        DType::F16 => Activations::F16,
        DType::Bf16 => Activations::Bf16,
        DType::Q4_1 | DType::Q5_1 => Activations::Q8_1 { rounding },
        DType::Q4_0 | DType::Q5_0 | DType::Q8_0 => Activations::Q8 { rounding, scale_f16: true },
        DType::Iq4Nl | DType::Mxfp4 | DType::Nvfp4 | DType::Q1_0 | DType::Q2_0 => {
            Activations::Q8 { rounding, scale_f16: true }
        }
        // K-quants and the other types in blocks of 256.
        _ => Activations::Q8K,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_graph::op::{MulMat, MulMatId};
    use trueup_graph::{Input, TensorType};

    /// The profile of a product of these columns with f16 weights.
    fn product(op: Op, weights: &[usize], half: HalfKernels, columns: usize) -> Profile {
        let mut graph = Graph::default();
        let w = graph.weight("w", TensorType::new(DType::F16, weights));
        let is_chosen = matches!(op, Op::MulMatId(_));
        let x = if is_chosen { vec![weights[0], 1, columns] } else { vec![weights[0], columns] };
        let x = graph.input(Input::Mask, TensorType::new(DType::F32, &x));
        let ids = is_chosen.then(|| graph.input(Input::Tokens, TensorType::new(DType::I32, &[1, columns])));
        let inputs: Vec<_> = [w, x].into_iter().chain(ids).collect();
        graph.node("y", None, op, &inputs).unwrap();
        Program::LlamaCpp { fused_attention: true, half }.profile(&graph, &graph.nodes()[0], columns)
    }

    #[test]
    fn kernels_for_f16_follow_from_the_instruction_sets_of_the_build() {
        for (info, half) in [
            ("n_threads = 2 | CPU : AVX2 = 1 | F16C = 1 | LLAMAFILE = 1 | REPACK = 1 |", HalfKernels::F32Sums),
            ("CPU : LLAMAFILE = 1 |", HalfKernels::F32Sums),
            ("CPU : NEON = 1 | ARM_FMA = 1 | REPACK = 1 | ", HalfKernels::F32Sums),
            ("CPU : NEON = 1 | ARM_FMA = 1 | LLAMAFILE = 1 | REPACK = 1 | ", HalfKernels::F32Activations),
            ("CPU : NEON = 1 | ARM_FMA = 1 | FP16_VA = 1 | DOTPROD = 1 | LLAMAFILE = 1 |", HalfKernels::F16Sums),
            ("", HalfKernels::F32Sums),
        ] {
            assert_eq!(HalfKernels::of(info), half, "{info}");
        }
    }

    #[test]
    fn products_with_f16_are_those_of_the_kernels() {
        let mul_mat = |half, columns| product(MulMat.into(), &[64, 32], half, columns);
        for columns in [1, 2] {
            let plain = mul_mat(HalfKernels::F32Sums, columns);
            assert_eq!((plain.activations, plain.accumulator), (Activations::F16, Accumulator::F32));
            let half = mul_mat(HalfKernels::F16Sums, columns);
            assert_eq!((half.activations, half.accumulator, half.lanes), (Activations::F16, Accumulator::F16, 8));
        }
        let tiled = HalfKernels::F32Activations;
        assert_eq!(mul_mat(tiled, 1).activations, Activations::F16);
        assert_eq!(mul_mat(tiled, 2).activations, Activations::Unchanged);
        assert_eq!(product(MulMat.into(), &[64, 31], tiled, 2).activations, Activations::F16);
        assert_eq!(product(MulMatId.into(), &[64, 32, 2], tiled, 2).activations, Activations::F16);
    }
}
