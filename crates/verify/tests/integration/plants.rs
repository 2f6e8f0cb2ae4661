//! Every fault that can be planted is found, and its node is named.

use super::device;
use super::tiny_model::{self, Kind};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::ModelFile;
use trueup_verify::{Outcome, PLANTS, Reference, VerifyOptions, planted, verify};

/// Types of weights, tried in this order until a model can have the fault.
const TYPES: [DType; 5] = [DType::Q8_0, DType::Q4_0, DType::F32, DType::Q4_1, DType::Q5_0];

pub(super) fn models() -> (tempfile::TempDir, Vec<Arc<ModelFile>>) {
    let folder = tempfile::tempdir().unwrap();
    let model = |dtype: DType| {
        let path = folder.path().join(format!("{dtype}.gguf"));
        tiny_model::write(&path, dtype, false);
        Arc::new(ModelFile::open(&path).unwrap())
    };
    let mut models: Vec<Arc<ModelFile>> = TYPES.into_iter().map(model).collect();
    for kind in [Kind::Qwen3, Kind::Experts, Kind::Gemma2, Kind::Gemma3, Kind::Mamba2] {
        let path = folder.path().join(format!("{kind:?}.gguf"));
        tiny_model::write_kind(&path, kind, tiny_model::CONTEXT, DType::F32, false);
        models.push(Arc::new(ModelFile::open(&path).unwrap()));
    }
    (folder, models)
}

/// What the likely cause of each fault must say, in the first of the models that can have it; nothing where that is not
/// known.
const CAUSES: &[(&str, &str)] = &[
    ("activations-truncated", "codes truncated"),
    ("activations-7-bit", "to 7 bits per 32 first"),
    ("activations-per-128", "to q8 per 128 first"),
    ("activations-saturate", "saturating at 126, first"),
    ("activations-bf16", "rounds activations to bf16 first"),
    ("activations-stale", "the activations are those of the previous step"),
    ("k-tail-1", "the last element of"),
    ("k-tail-32", "the last 32 elements of"),
    ("block-scale", "as if multiplied by 1.05"),
    ("blocks-swapped", "(blocks of 32 weights) are swapped"),
    ("neighbor-scale", "their block uses the scale of the next block"),
    ("nibble-order", "swaps the low and the high halves of 4-bit codes"),
    ("weights-swapped", "of row 0 are swapped"),
    ("high-bits-lost", "drops the high bits of the codes"),
    ("minimum-dropped", "omits the block minima"),
    ("rows-shifted", "contains the values of the next row, wrapping around"),
    ("weight-transposed", "the weight is transposed"),
    ("accumulator-f16", "accumulates unchanged activations in f16, sequentially"),
    ("accumulator-half2", "in pairs of f16 (half2)"),
    ("gain", "a factor of 1.001 on the whole result"),
    ("gain-of-block", "a factor of 1.01 on rows 0 to 31 of every token"),
    ("decode-gain", "a factor of 1.001 on the whole result"),
    ("prompt-gain", "a factor of 1.001 on the whole result"),
    ("output-f16", "rounds results to f16"),
    ("row-unwritten", "nothing was written to row"),
    ("block-unwritten", "nothing was written to"),
    ("sign-flip", "the opposite sign in"),
    ("rows-swapped", "rows 0 and 1 are swapped"),
    ("rows-rotated", "contains the values of the next row, wrapping around"),
    ("tokens-swapped", "are swapped"),
    ("always-42", "the same number, 42, in the whole result"),
    ("zeros", "zeros in the whole result"),
    ("not-a-number", "1 NaN in"),
    ("infinite", "1 infinite in"),
    ("race", "when the node is recomputed on the same inputs"),
    ("norm-epsilon", "uses ten times the epsilon"),
    ("norm-centered", "subtracts the mean first, as layer norm does"),
    ("norm-weight-ignored", "omits the weights"),
    ("norm-output-bf16", "rounds results to bf16"),
    ("rope-position", "uses positions that are one too large"),
    ("rope-pairs", "rotates the wrong pairs (adjacent instead of halves, or the reverse)"),
    ("rope-base", "uses ten times the RoPE frequency base"),
    ("rope-base-of-other-layers", "uses a RoPE frequency base of 1"),
    ("rope-partial", "rotates the first half of the dimensions only"),
    ("rope-first-position", "uses the position of the first token for all tokens"),
    ("mask-none", "ignores the mask"),
    ("mask-off-by-one", "attends to one position more than the mask allows"),
    ("window-ignored", "the sliding window is ignored"),
    ("window-off-by-one", "attends to one position more at the start of the mask"),
    ("scale-forgotten", "omits the scale"),
    ("soft-max-row-rest", "the sum of their exponentials is wrong"),
    ("cap-after-mask", "applies the soft cap of the scores after the mask"),
    ("cap-ignored", "applies no activation"),
    ("probabilities-f16", "rounds results to f16"),
    ("sequence-ignored", "reads the cache of the first token's sequence"),
    ("heads-interleaved", "interleaves the query heads that share a KV head"),
    ("values-gain", "a factor of 1.001 on the whole result"),
    ("values-sign", "the opposite sign in"),
    ("kv-slot", "rows are written 1 row after their index"),
    ("kv-sequence", "rows of every sequence are written to the cache of the first sequence"),
    ("kv-bf16", "rounds inputs to bf16"),
    ("kv-negated", "the opposite sign in"),
    ("state-not-carried", "bit for bit that of the previous step"),
    ("state-of-first-sequence", "reads the recurrent state of the first sequence for every sequence"),
    ("residual-dropped", "does not add"),
    ("sum-sign", "subtracts instead of adding"),
    ("gate-exchanged", "swaps gate and up"),
    ("gelu-for-silu", "applies gelu (tanh)"),
    ("gate-stale", "zeros in the whole result"),
    ("token-off-by-one", "reads the row after the index"),
    ("token-first", "the first rows are read"),
    ("expert-off-by-one", "uses the expert after the chosen one"),
    ("expert-first", "uses the first expert of the first token for all tokens"),
    ("expert-rows-swapped", "rows 0 and 1 are swapped"),
    ("expert-tokens-swapped", "are swapped"),
    ("router-smallest", ""),
    ("weights-not-normalized", ""),
    ("fused-exchanged", "swaps gate and up"),
    ("fused-gelu", "applies gelu (tanh)"),
    ("fused-no-function", "applies no activation"),
    ("fused-early-gate", ""),
    ("fused-neighbor-up", ""),
    ("fused-stale-ups", ""),
    ("fused-up-f16", ""),
    ("fused-up-weight", ""),
    ("attention-sequence", "reads the cache of the first token's sequence"),
    ("attention-mask", "attends to one position more than the mask allows"),
    ("attention-window", "the sliding window is ignored"),
    ("attention-window-off-by-one", "attends to one position more at the start of the mask"),
    ("attention-scale", "omits the scale"),
    ("attention-exchanged", "swaps keys and values"),
    ("attention-f16", "rounds results to f16"),
];

/// Faults that must be explained.
const EXPLAINED_MIN: usize = 60;

#[test]
fn every_planted_fault_is_found_at_its_node_and_explained() {
    let (_folder, models) = models();
    let options = VerifyOptions {
        // Longer than the sliding windows.
        prompts: vec![(0..tiny_model::WINDOW as u32 + 6).map(|place| 1 + 7 * place % 40).collect(), vec![40, 7]],
        steps: 3,
        ..VerifyOptions::default()
    };
    let mut problems = Vec::new();
    for plant in PLANTS {
        let Some((model, fault)) =
            models.iter().find_map(|model| Some((model, planted(plant.name, model, device()).ok()?)))
        else {
            problems.push(format!("{}: no model can have it", plant.name));
            continue;
        };
        let report = verify(model.clone(), fault.device, Reference::Oracle, &options, &mut |_| {}).unwrap();
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        if report.result != Outcome::Fail
            || found != Some(fault.node.as_str())
            || !report.sentence.contains(&fault.node)
        {
            problems.push(format!("{} at {}, found {found:?}: {}", plant.name, fault.node, report.sentence));
        }
        let cause = report.first_bad.as_ref().and_then(|bad| bad.cause.clone()).unwrap_or_default();
        match CAUSES.iter().find(|(name, _)| *name == plant.name) {
            Some((_, expected)) if cause.contains(expected) => {}
            expected => problems.push(format!("{} at {}, expected {expected:?}: {cause}", plant.name, fault.node)),
        }
    }
    assert!(PLANTS.len() >= 40, "{} faults", PLANTS.len());
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), PLANTS.len(), problems.join("\n"));
    let fused = |plant: &&trueup_verify::Plant| plant.ops == ["mul_mat_swiglu"];
    assert!(PLANTS.iter().filter(fused).count() >= 4, "faults inside of fused operators");
    let explained = CAUSES.iter().filter(|(_, cause)| !cause.is_empty()).count();
    assert!(explained >= EXPLAINED_MIN && CAUSES.len() == PLANTS.len(), "{explained} of {}", CAUSES.len());
}

#[test]
fn what_cannot_be_planted_is_said() {
    let (_folder, models) = models();
    let refused = |choice: &str| planted(choice, &models[0], device()).err().unwrap().to_string();
    assert!(refused("nothing").contains("--inject-fault list"), "{}", refused("nothing"));
    assert!(refused("nibble-order").contains("the low 4 bits of two codes"), "{}", refused("nibble-order"));
    assert!(refused("gain@l_out-0").contains("l_out-0"), "{}", refused("gain@l_out-0"));
    for (choice, parts) in [
        (
            "gain@nosuch",
            ["--inject-fault gain@nosuch: expected a mul_mat node, found no node nosuch; use one of ", " others"],
        ),
        ("zeros@ffn_swiglu-0", ["found ffn_swiglu-0 (mul_mat_swiglu, unfused swiglu)", "use one of Qcur-0, Kcur-0"]),
        (
            "nibble-order",
            [
                "a mul_mat node with a weight whose bytes each hold the low 4 bits of two codes, found no such node in \
                 the model; quantize the model to q4_0",
                "--inject-fault nibble-order: ",
            ],
        ),
        ("gain@\u{1b}[2J", ["no node \\u{1b}[2J", "use one of"]),
    ] {
        assert!(parts.iter().all(|part| refused(choice).contains(part)), "{}", refused(choice));
    }
    assert_eq!(planted("gain@ffn_up-0", &models[0], device()).unwrap().node, "ffn_up-0");
}
