//! The table of all faults. `--inject-fault`, the tests and docs/faults.md use it.

use super::fused::FusedFault;
use super::input::InputFault;
use super::output::OutputFault;
use super::parameter::ParameterFault;
use super::product::ProductFault;
use super::weight::WeightFault;
use super::{Fault, Plant};

const fn plant(name: &'static str, ops: &'static [&'static str], fault: Fault, what: &'static str) -> Plant {
    Plant { name, what, ops, fault }
}

const PRODUCT: &[&str] = &["mul_mat"];
const NORM: &[&str] = &["rms_norm"];
const ROPE: &[&str] = &["rope"];
const SOFT_MAX: &[&str] = &["soft_max"];
const SCORES: &[&str] = &["kv_scores"];
const MIX: &[&str] = &["kv_mix"];
const CACHED: &[&str] = &["kv_scores", "kv_mix"];
const STORE: &[&str] = &["kv_store"];
const ADD: &[&str] = &["add"];
const GATED: &[&str] = &["swiglu"];
const ROWS: &[&str] = &["get_rows"];
const EXPERTS: &[&str] = &["mul_mat_id"];
const CHOICE: &[&str] = &["top_k"];
const DIVISION: &[&str] = &["div"];
pub(super) const FUSED: &[&str] = &["mul_mat_swiglu"];
pub(super) const ATTENTION: &[&str] = &["kv_attention"];
const TANH: &[&str] = &["tanh"];
const STATES: &[&str] = &["get_rows", "ssm_scan"];

/// All faults, by what they hurt.
pub const PLANTS: &[Plant] = &[
    plant(
        "activations-truncated",
        PRODUCT,
        Fault::Input(InputFault::Truncated),
        "8-bit activations are truncated toward zero instead of rounded",
    ),
    plant("activations-7-bit", PRODUCT, Fault::Input(InputFault::SevenBits), "activations are quantized to 7 bits"),
    plant(
        "activations-per-128",
        PRODUCT,
        Fault::Input(InputFault::Per128),
        "activations have one scale for 128 values instead of 32",
    ),
    plant(
        "activations-saturate",
        PRODUCT,
        Fault::Input(InputFault::Saturated),
        "codes of activations saturate at 126 instead of 127",
    ),
    plant("activations-bf16", PRODUCT, Fault::Input(InputFault::Bf16), "activations are rounded to bf16 first"),
    plant(
        "activations-stale",
        PRODUCT,
        Fault::Input(InputFault::Stale),
        "the activations of the previous call are used again",
    ),
    plant("k-tail-1", PRODUCT, Fault::Input(InputFault::Tail(1)), "the last element of K is dropped"),
    plant("k-tail-32", PRODUCT, Fault::Input(InputFault::Tail(32)), "the last block of K is dropped"),
    plant(
        "block-scale",
        PRODUCT,
        Fault::Weight(WeightFault::Scale),
        "the scale of one block of the weight is 5% too large",
    ),
    plant(
        "blocks-swapped",
        PRODUCT,
        Fault::Weight(WeightFault::SwappedBlocks),
        "two neighboring blocks of the weight are exchanged",
    ),
    plant(
        "neighbor-scale",
        PRODUCT,
        Fault::Weight(WeightFault::NeighbourScale),
        "one block of the weight uses its neighbor's scale",
    ),
    plant(
        "nibble-order",
        PRODUCT,
        Fault::Weight(WeightFault::NibbleOrder),
        "low and high halves of 4-bit codes are exchanged",
    ),
    plant("weights-swapped", PRODUCT, Fault::Weight(WeightFault::SwappedWeights), "two weights of a row are exchanged"),
    plant("high-bits-lost", PRODUCT, Fault::Weight(WeightFault::HighBits), "high bits of 5- and 6-bit codes are lost"),
    plant("minimum-dropped", PRODUCT, Fault::Weight(WeightFault::Minimum), "the minimum of each block is ignored"),
    plant(
        "rows-shifted",
        PRODUCT,
        Fault::Weight(WeightFault::ShiftedRows),
        "the rows of the weight are shifted by one",
    ),
    plant("weight-transposed", PRODUCT, Fault::Weight(WeightFault::Transposed), "a square weight is transposed"),
    plant("accumulator-f16", PRODUCT, Fault::Product(ProductFault::F16), "sums are kept in f16"),
    plant("accumulator-half2", PRODUCT, Fault::Product(ProductFault::Half2), "sums are kept in pairs of f16"),
    plant("gain", PRODUCT, Fault::Output(OutputFault::Gain), "the result is 0.1% too large"),
    plant(
        "gain-of-block",
        PRODUCT,
        Fault::Output(OutputFault::GainOfBlock),
        "the first 32 rows of the result are 1% too large",
    ),
    plant(
        "decode-gain",
        PRODUCT,
        Fault::Output(OutputFault::DecodeGain),
        "the result is 0.1% too large when one token is computed",
    ),
    plant(
        "prompt-gain",
        PRODUCT,
        Fault::Output(OutputFault::PromptGain),
        "the result is 0.1% too large when many tokens are computed",
    ),
    plant("output-f16", PRODUCT, Fault::Output(OutputFault::F16), "the result is rounded to f16"),
    plant(
        "row-unwritten",
        PRODUCT,
        Fault::Output(OutputFault::UnwrittenRow),
        "the last row of the result is not written",
    ),
    plant(
        "block-unwritten",
        PRODUCT,
        Fault::Output(OutputFault::UnwrittenBlock),
        "the last elements of the result are not written",
    ),
    plant("sign-flip", PRODUCT, Fault::Output(OutputFault::SignFlip), "one element of the result has the wrong sign"),
    plant(
        "rows-swapped",
        PRODUCT,
        Fault::Output(OutputFault::SwappedRows),
        "the first two rows of the result are exchanged",
    ),
    plant(
        "rows-rotated",
        PRODUCT,
        Fault::Output(OutputFault::RotatedRows),
        "the rows of the result are shifted by one",
    ),
    plant(
        "tokens-swapped",
        PRODUCT,
        Fault::Output(OutputFault::SwappedTokens),
        "the results of the first and the last token are exchanged",
    ),
    plant("always-42", PRODUCT, Fault::Output(OutputFault::Constant), "every element of the result is 42"),
    plant("zeros", PRODUCT, Fault::Output(OutputFault::Zeros), "every element of the result is 0"),
    plant("not-a-number", PRODUCT, Fault::Output(OutputFault::NotANumber), "one element of the result is NaN"),
    plant("infinite", PRODUCT, Fault::Output(OutputFault::Infinite), "one element of the result is infinite"),
    plant("race", PRODUCT, Fault::Output(OutputFault::Race), "one element of the result is wrong in every second run"),
    plant("norm-epsilon", NORM, Fault::Parameter(ParameterFault::Epsilon), "epsilon is ten times too large"),
    plant(
        "norm-centered",
        NORM,
        Fault::Product(ProductFault::CentredNorm),
        "the mean is subtracted first, as in layer norm",
    ),
    plant("norm-weight-ignored", NORM, Fault::Weight(WeightFault::Ones), "the weight of the norm is ignored"),
    plant("norm-output-bf16", NORM, Fault::Output(OutputFault::Bf16), "the result of the norm is rounded to bf16"),
    plant("rope-position", ROPE, Fault::Input(InputFault::NextIndex), "positions are one too large"),
    plant(
        "rope-pairs",
        ROPE,
        Fault::Parameter(ParameterFault::Pairs),
        "rope pairs neighbors instead of halves, or halves instead of neighbors",
    ),
    plant(
        "rope-base",
        ROPE,
        Fault::Parameter(ParameterFault::Base),
        "the base of the frequencies is ten times too large",
    ),
    plant(
        "rope-base-of-other-layers",
        ROPE,
        Fault::Parameter(ParameterFault::OtherBase),
        "layers with a sliding window use the RoPE base of layers without one, or vice versa",
    ),
    plant(
        "rope-partial",
        ROPE,
        Fault::Parameter(ParameterFault::Dimensions),
        "only the first half of each head is rotated",
    ),
    plant(
        "rope-first-position",
        ROPE,
        Fault::Input(InputFault::FirstIndex),
        "all tokens are rotated by the position of the first",
    ),
    plant("mask-none", SOFT_MAX, Fault::Input(InputFault::NoMask), "the mask hides nothing"),
    plant("mask-off-by-one", SOFT_MAX, Fault::Input(InputFault::MaskOneOff), "the mask exposes the next position"),
    plant("window-ignored", SOFT_MAX, Fault::Input(InputFault::NoWindow), "the sliding window of the mask is ignored"),
    plant(
        "window-off-by-one",
        SOFT_MAX,
        Fault::Input(InputFault::WindowOneOff),
        "the sliding window of the mask is one position too long",
    ),
    plant("scale-forgotten", SOFT_MAX, Fault::Parameter(ParameterFault::Scale), "scores are not scaled"),
    plant(
        "soft-max-row-rest",
        SOFT_MAX,
        Fault::Product(ProductFault::SumOfAll),
        "masked positions are included in the sum of a row",
    ),
    plant(
        "cap-after-mask",
        SOFT_MAX,
        Fault::Product(ProductFault::LateCap),
        "the soft cap of the scores is applied after the mask, so masked positions are included",
    ),
    plant("cap-ignored", TANH, Fault::Product(ProductFault::Unchanged), "scores or logits are not capped"),
    plant("probabilities-f16", SOFT_MAX, Fault::Output(OutputFault::F16), "probabilities are rounded to f16"),
    plant(
        "sequence-ignored",
        CACHED,
        Fault::Input(InputFault::FirstSequence),
        "the cache of the first sequence is read for every token",
    ),
    plant(
        "heads-interleaved",
        SCORES,
        Fault::Input(InputFault::InterleavedHeads),
        "query heads are mapped to KV heads round-robin instead of in groups",
    ),
    plant("values-gain", MIX, Fault::Output(OutputFault::Gain), "the weighted sum of the values is 0.1% too large"),
    plant(
        "values-sign",
        MIX,
        Fault::Output(OutputFault::SignFlip),
        "one element of the weighted sum of the values has the wrong sign",
    ),
    plant("kv-slot", STORE, Fault::Input(InputFault::NextIndex), "keys or values are written to the next slot"),
    plant(
        "kv-sequence",
        STORE,
        Fault::Input(InputFault::FirstCache),
        "keys or values of all sequences are written to the cache of the first one",
    ),
    plant(
        "kv-bf16",
        STORE,
        Fault::Input(InputFault::Bf16),
        "keys or values are rounded to bf16 before they are stored",
    ),
    plant("kv-negated", STORE, Fault::Input(InputFault::Negated), "keys or values are stored with the wrong sign"),
    plant(
        "state-not-carried",
        STATES,
        Fault::Input(InputFault::EmptySlot),
        "the recurrent state is reset to zero before every computation",
    ),
    plant(
        "state-of-first-sequence",
        STATES,
        Fault::Input(InputFault::FirstSlot),
        "the recurrent state of the first sequence is read for every sequence",
    ),
    plant("residual-dropped", ADD, Fault::Input(InputFault::Dropped), "the second operand is omitted"),
    plant("sum-sign", ADD, Fault::Input(InputFault::Negated), "the second operand is subtracted"),
    plant("gate-exchanged", GATED, Fault::Input(InputFault::Exchanged), "gate and up are exchanged"),
    plant("gelu-for-silu", GATED, Fault::Product(ProductFault::Gelu), "gelu is applied to the gate instead of silu"),
    plant("gate-stale", GATED, Fault::Output(OutputFault::Zeros), "the gated product is not computed and stays 0"),
    plant("token-off-by-one", ROWS, Fault::Input(InputFault::NextIndex), "the rows after the requested ones are read"),
    plant(
        "token-first",
        ROWS,
        Fault::Input(InputFault::FirstIndices),
        "the first rows are read instead of the requested ones",
    ),
    plant(
        "expert-off-by-one",
        EXPERTS,
        Fault::Input(InputFault::NextIndex),
        "the expert after each chosen one is used",
    ),
    plant(
        "expert-first",
        EXPERTS,
        Fault::Input(InputFault::FirstIndex),
        "the first expert of the first token is used for all tokens",
    ),
    plant(
        "expert-rows-swapped",
        EXPERTS,
        Fault::Output(OutputFault::SwappedRows),
        "the first two rows of every expert are exchanged",
    ),
    plant(
        "expert-tokens-swapped",
        EXPERTS,
        Fault::Output(OutputFault::SwappedTokens),
        "the results of the first and the last expert that is used are exchanged",
    ),
    plant(
        "router-smallest",
        CHOICE,
        Fault::Input(InputFault::Negated),
        "the experts with the smallest scores are chosen",
    ),
    plant(
        "weights-not-normalized",
        DIVISION,
        Fault::Input(InputFault::Ones),
        "the weights of the chosen experts are not divided by their sum",
    ),
    plant("fused-exchanged", FUSED, Fault::Input(InputFault::Exchanged), "the fused operator exchanges gate and up"),
    plant(
        "fused-gelu",
        FUSED,
        Fault::Parameter(ParameterFault::Function),
        "the fused operator applies gelu to the gate instead of silu",
    ),
    plant(
        "fused-no-function",
        FUSED,
        Fault::Fused(FusedFault::NoFunction),
        "the fused operator omits the activation function of the gate",
    ),
    plant(
        "fused-early-gate",
        FUSED,
        Fault::Fused(FusedFault::EarlyGate),
        "the fused operator applies the activation function before the last block of K is added",
    ),
    plant(
        "fused-neighbor-up",
        FUSED,
        Fault::Fused(FusedFault::NeighbourUp),
        "one row of the fused operator uses the up product of the next row",
    ),
    plant(
        "fused-stale-ups",
        FUSED,
        Fault::Fused(FusedFault::StaleUps),
        "the last eight rows of the fused operator use the up products of the previous eight",
    ),
    plant("fused-up-f16", FUSED, Fault::Fused(FusedFault::HalfUp), "the fused operator rounds up products to f16"),
    plant(
        "fused-up-weight",
        FUSED,
        Fault::Weight(WeightFault::Scale),
        "the scale of one block of the up weight is 5% too large, in the fused operator and in its parts",
    ),
    plant(
        "attention-sequence",
        ATTENTION,
        Fault::Input(InputFault::FirstSequence),
        "fused attention reads the cache of the first sequence for every token",
    ),
    plant(
        "attention-mask",
        ATTENTION,
        Fault::Input(InputFault::MaskOneOff),
        "fused attention includes the next position",
    ),
    plant(
        "attention-window",
        ATTENTION,
        Fault::Input(InputFault::NoWindow),
        "fused attention ignores the sliding window of the mask",
    ),
    plant(
        "attention-window-off-by-one",
        ATTENTION,
        Fault::Input(InputFault::WindowOneOff),
        "fused attention uses a sliding window that is one position too long",
    ),
    plant(
        "attention-scale",
        ATTENTION,
        Fault::Parameter(ParameterFault::Scale),
        "fused attention does not scale the scores",
    ),
    plant(
        "attention-exchanged",
        ATTENTION,
        Fault::Input(InputFault::Exchanged),
        "fused attention exchanges keys and values",
    ),
    plant(
        "attention-f16",
        ATTENTION,
        Fault::Output(OutputFault::F16),
        "the result of fused attention is rounded to f16",
    ),
];
