//! Tensors that are never quantized, because they are small and sensitive to errors.

use super::facts::ModelFacts;
use trueup_formats::TensorInfo;

/// Parts of names, and descriptions of these tensors.
const KEPT: [(&str, &str); 20] = [
    ("_norm.weight", "a normalization weight"),
    ("ffn_gate_inp.weight", ROUTER),
    ("ffn_gate_inp_shexp.weight", ROUTER),
    ("ffn_gate_tid2eid.weight", ROUTER),
    ("altup", SMALL),
    ("laurel", SMALL),
    ("per_layer_model_proj", SMALL),
    ("indexer.k_proj.weight", SMALL),
    ("indexer.q_proj.weight", SMALL),
    ("ssm_conv1d", CONVOLUTION),
    ("shortconv.conv.weight", CONVOLUTION),
    ("attn_rel_b.weight", POSITIONS),
    (".position_embd", POSITIONS),
    ("sam.pos_embd", POSITIONS),
    (".rel_pos", POSITIONS),
    ("sam.neck.", IMAGES),
    ("sam.net_", IMAGES),
    (".patch_embd", IMAGES),
    (".patch_merger", IMAGES),
    ("a.rvq.codebook", "a codebook of audio"),
];

/// Ends of `time_mix_END.weight` of recurrent layers that are small, although they have two dimensions.
const TIME_MIX: [&str; 15] =
    ["first", "w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2", "decay_w1", "decay_w2", "lerp_fused"];

/// Parts of names that are kept in GLM 5 only.
const KEPT_IN_GLM5: [&str; 14] = [
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
];

const ROUTER: &str = "a router of experts";
const SMALL: &str = "a small matrix";
const CONVOLUTION: &str = "a convolution";
const POSITIONS: &str = "a table of positions";
const IMAGES: &str = "a matrix of an image encoder";

/// A description of the tensor if it is never quantized.
pub(super) fn kept(tensor: &TensorInfo, facts: &ModelFacts) -> Option<&'static str> {
    let name = tensor.name.as_str();
    if !is_matrix(tensor) {
        return Some("a one-dimensional tensor");
    }
    if !name.ends_with("weight") {
        return Some("a tensor whose name does not end in `weight`");
    }
    if let Some((_, what)) = KEPT.iter().find(|(part, _)| name.contains(part)) {
        return Some(what);
    }
    let is_time_mix = |end: &&str| name.contains(&format!("time_mix_{end}.weight"));
    match name {
        "position_embd.weight" => Some(POSITIONS),
        "token_types.weight" => Some("a table of token types"),
        _ if name.contains("mm.a.code_embd") => Some("a codebook of audio"),
        _ if TIME_MIX.iter().any(is_time_mix) => Some(SMALL),
        _ if facts.is_glm5() && KEPT_IN_GLM5.iter().any(|part| name.contains(part)) => Some(SMALL),
        _ => None,
    }
}

/// Whether `convert` stores a tensor of this name as f32, although it has more than one dimension. `quantize` to f16 or
/// bf16 leaves these tensors unchanged; to f32 converts them.
///
/// Small errors in a router change the choice of experts. llama.cpp reads the norms of single heads and the tables of
/// scans, convolutions, positions and token types as f32; with norms of another type, it ends the process.
pub fn stays_f32(name: &str) -> bool {
    const ENDS: [&str; 4] =
        ["_norm.weight", ".ffn_gate_inp.weight", ".ffn_gate_inp_shexp.weight", ".attn_rel_b.weight"];
    let is_table = ["token_types.weight", "position_embd.weight"].contains(&name);
    is_table || is_state_table(name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether the tensor has more than one dimension, and is not a small table of a scan or a convolution.
pub(super) fn is_matrix(tensor: &TensorInfo) -> bool {
    !is_state_table(&tensor.name) && tensor.shape.iter().filter(|size| **size != 1).count() > 1
}

fn is_state_table(name: &str) -> bool {
    [".ssm_a", ".ssm_d", ".ssm_conv1d.weight"].iter().any(|end| name.ends_with(end))
}
