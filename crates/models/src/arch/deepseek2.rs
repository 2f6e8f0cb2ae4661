//! DeepSeek V2, V2-Lite and V3: latent attention, and experts in all layers but the first ones.
//!
//! | model | scores of experts | chosen experts |
//! |---|---|---|
//! | V2-Lite | softmax | the best ones |
//! | V2 | softmax | the best ones in the groups with the highest-scoring expert |
//! | V3 | sigmoid, plus a bias for the choice | the best ones in the groups whose two best have the highest sum |
//!
//! V3 divides the weights of the chosen experts by their sum. Experts of other groups count as 0, as in transformers.
//! llama.cpp excludes them, which differs only if a bias makes a score in the chosen groups negative.
//!
//! `mscale_all_dim` is part of the scale of scores in DeepSeek's code, in llama.cpp and in transformers 5. The class of
//! V2 in transformers 4 ignores it.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use super::qwen3moe::EXPERT_NAMES;
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, latent_keys, latent_values};
use crate::config::Config;
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::metadata::Keys;
use crate::number::{nearest_f32, real};
use crate::part::experts::{ExpertGroups, ExpertKeys, Gating, Routing, SharedExpert, SparseLayers};
use crate::part::latent::Latent;
use crate::part::norm::{Norm, NormKind};
use crate::rope::yarn_magnitude;
use crate::spec::{FeedForward, ModelSpec};
use serde_json::Value;
use trueup_graph::op::{RopePairs, RopeScaling};

/// `DeepseekV2ForCausalLM`. It also reads GGUF files of V3, which have the same name.
pub static DEEPSEEK2: Architecture = Architecture {
    classes: &["DeepseekV2ForCausalLM"],
    from_config: |config| {
        config.only("topk_method", &["\"greedy\"", "\"group_limited_greedy\""]);
        config.only("scoring_func", &["\"softmax\""]);
        // The class does not use it.
        config.only("norm_topk_prob", &["false"]);
        let has_groups = config.value("topk_method").and_then(Value::as_str) == Some("group_limited_greedy");
        let groups = has_groups.then(|| groups(config, &V2, 1)).flatten();
        let scale = config.positive_or("routed_scaling_factor", 1.0);
        let routing = Routing { scale: scale_of(scale), ..Routing::PLAIN };
        from_config(config, &V2, (routing, groups), false)
    },
    ..BASE
};

/// `DeepseekV3ForCausalLM`.
pub static DEEPSEEK3: Architecture = Architecture {
    classes: &["DeepseekV3ForCausalLM"],
    from_config: |config| {
        config.only("topk_method", &["\"noaux_tc\""]);
        config.only("scoring_func", &["\"sigmoid\""]);
        config.only("rope_interleave", &["true"]);
        let scale = config.positive_or("routed_scaling_factor", 2.5);
        let is_renormalized = config.flag_or("norm_topk_prob", true);
        let routing = Routing { gating: Gating::Sigmoid, is_renormalized, scale: scale_of(scale) };
        let groups = groups(config, &V3, 2);
        from_config(config, &V3, (routing, groups), true)
    },
    ..BASE
};

const BASE: Architecture = Architecture {
    gguf_name: "deepseek2",
    from_metadata,
    more_keys: |spec, writer| {
        let dense = spec.layers.iter().take_while(|layer| matches!(layer.feed_forward, FeedForward::Dense(_)));
        writer.count("leading_dense_block_count", dense.count());
        let experts = spec.experts();
        let shared = experts.and_then(|experts| experts.shared?.size.checked_div(experts.size));
        writer.count("expert_shared_count", shared.unwrap_or(0));
        if let Some(magnitude) = yarn_factor(spec).filter(|_| multiplier(spec) != 0.0) {
            writer.value("rope.scaling.attn_factor", magnitude);
        }
        if let Some(epsilon) = other_epsilon(spec) {
            writer.value(LATENT_EPSILON, epsilon);
        }
    },
    compatibility: |spec| {
        let groups = spec.experts().and_then(|experts| experts.groups).filter(|groups| groups.best != 2);
        let of_groups = groups.map(|_| {
            "llama.cpp scores each expert group by its two best experts, but this model uses only the best one; \
             llama.cpp's results differ"
                .to_owned()
        });
        let of_yarn = match (yarn_factor(spec), multiplier(spec)) {
            (Some(_), 0.0) => Some("mscale_all_dim is not set in rope_scaling"),
            (Some(magnitude), _) if magnitude != 1.0 => Some("mscale and mscale_all_dim in rope_scaling are not equal"),
            _ => None,
        };
        let of_yarn = of_yarn.map(|cause| {
            format!("{cause}; llama.cpp then computes a different attention scale, and its results differ")
        });
        let of_epsilon = other_epsilon(spec).map(|epsilon| {
            format!(
                "the norms of latent attention have an epsilon of {}; llama.cpp uses the epsilon of the other \
                 norms, so its results differ",
                trueup_formats::significant(f64::from(epsilon), 4)
            )
        });
        let is_dense = spec.experts().is_none();
        let of_layers = is_dense.then(|| "no layer has experts; llama.cpp does not load the file".to_owned());
        of_groups.into_iter().chain(of_yarn).chain(of_epsilon).chain(of_layers).collect()
    },
    tensors: &[LATENT_NAMES, SHARED_NAMES, EXPERT_NAMES, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    unused: &[("model.layers.{extra}.", "multi-token prediction layer")],
    has_free_head_size: true,
    ..Architecture::BASE
};

/// Defaults of a class.
struct Class {
    experts: ExpertKeys,
    shared: usize,
    /// Number of leading layers without experts.
    dense: usize,
    /// Groups of experts, and those that a token uses; `None` if the keys are required.
    groups: Option<(usize, usize)>,
    context: usize,
}

const V2: Class = Class {
    experts: ExpertKeys {
        count: ("n_routed_experts", 64),
        used: ("num_experts_per_tok", 1),
        size: Some(("moe_intermediate_size", 1407)),
        is_stacked: false,
    },
    shared: 2,
    dense: 0,
    groups: None,
    context: 2048,
};
const V3: Class = Class {
    experts: ExpertKeys {
        count: ("n_routed_experts", 256),
        used: ("num_experts_per_tok", 8),
        size: Some(("moe_intermediate_size", 2048)),
        is_stacked: false,
    },
    shared: 1,
    dense: 3,
    groups: Some((8, 4)),
    context: 4096,
};

fn scale_of(scale: f64) -> Option<f32> {
    Some(nearest_f32(scale)).filter(|scale| *scale != 1.0)
}

/// The epsilon of the norms in latent attention, which the classes fix.
const EPSILON: f32 = 1e-6;

/// The key of that epsilon where it is not the one of the other norms.
const LATENT_EPSILON: &str = "attention.latent_norm_epsilon";

/// Reads the expert groups from `config.json`. A group's score is the sum of its `best` highest expert scores.
fn groups(config: &mut Config, class: &Class, best: usize) -> Option<ExpertGroups> {
    let (count, used) = match class.groups {
        Some((count, used)) => (config.count_or("n_group", count), config.count_or("topk_group", used)),
        None => (config.count("n_group"), config.count("topk_group")),
    };
    (count > 1).then_some(ExpertGroups { count, used, best })
}

fn from_config(
    config: &mut Config,
    class: &Class,
    (routing, groups): (Routing, Option<ExpertGroups>),
    has_selection_bias: bool,
) -> ModelSpec {
    gated_silu(config);
    config.only("attention_bias", &["false"]);
    config.only("moe_layer_freq", &["1"]);
    // The size of heads is the sum of their parts.
    let (plain, rotated) = (config.count_or("qk_nope_head_dim", 128), config.count_or("qk_rope_head_dim", 64));
    let usual = Usual {
        head_size: NO_KEY,
        head_size_absent: Some(rotated),
        context_absent: Some(class.context),
        ..Usual::LLAMA
    };
    let mut decoder = Decoder::from_config(config, &usual, RopePairs::Neighbours);
    if let Some((heads, found)) = decoder.heads.first().zip(decoder.kv_heads.first()).filter(|(a, b)| a != b) {
        config.problem(format!("num_key_value_heads: expected {heads}, the number of attention heads, found {found}"));
    }
    let is_direct = config.has("q_lora_rank") && config.value("q_lora_rank").is_none();
    let latent = Latent {
        query_rank: (!is_direct).then(|| config.size_or("q_lora_rank", 1536)),
        rank: config.size_or("kv_lora_rank", 512),
        key_size: plain.saturating_add(rotated),
        value_size: config.count_or("v_head_dim", 128),
        norm: Norm { kind: NormKind::Rms, epsilon: EPSILON },
        is_split: true,
        scale_multiplier: config.yarn_number("mscale_all_dim").unwrap_or(0.0),
    };
    decoder.rope.dimensions = rotated;
    let dense = config.whole_or("first_k_dense_replace", class.dense);
    let layers = (0..decoder.layers).map(|layer| layer >= dense).collect();
    let mut sparse = SparseLayers::from_config(config, &decoder, &class.experts, (routing, layers));
    let shared = config.whole_or("n_shared_experts", class.shared);
    let experts = &mut sparse.experts;
    experts.shared = (shared > 0).then(|| SharedExpert { size: experts.size.saturating_mul(shared), is_gated: false });
    (experts.groups, experts.has_selection_bias) = (groups, has_selection_bias);
    spec(decoder, latent, Some(sparse))
}

fn from_metadata(keys: &mut Keys) -> ModelSpec {
    let mut decoder = Decoder::from_keys(keys, RopePairs::Neighbours, NormKind::Rms);
    let is_split = keys.has_tensor("blk.{l}.attn_k_b.weight");
    let has_query_rank = keys.has_tensor("blk.{l}.attn_q_a.weight");
    let scale_multiplier = yarn_multiplier(keys);
    let epsilon = keys.positive(LATENT_EPSILON, Some(decoder.epsilon.into()));
    let latent = Latent {
        query_rank: has_query_rank.then(|| keys.size("attention.q_lora_rank")),
        rank: keys.size("attention.kv_lora_rank"),
        key_size: if is_split { keys.count("attention.key_length_mla") } else { decoder.key_size },
        value_size: if is_split { keys.count("attention.value_length_mla") } else { decoder.value_size },
        norm: Norm { kind: NormKind::Rms, epsilon },
        is_split,
        scale_multiplier,
    };
    if let RopeScaling::Yarn { magnitude, .. } = &mut decoder.rope.scaling
        && scale_multiplier != 0.0
    {
        *magnitude = nearest_f32(keys.number_if_present("rope.scaling.attn_factor").unwrap_or(1.0));
    }
    // Old files of models with a bias lack the key of the function.
    let has_bias = keys.has_tensor("blk.{l}.exp_probs_b.bias");
    let gating = if has_bias { Gating::Sigmoid } else { Gating::Softmax };
    let mut sparse = SparseLayers::from_keys(keys, &decoder, Routing { gating, ..Routing::PLAIN });
    if let Some(sparse) = &mut sparse {
        let experts = &mut sparse.experts;
        let best = if experts.routing.gating == Gating::Sigmoid { 2 } else { 1 };
        experts.groups = ExpertGroups::from_keys(keys, best);
        // Every model with these scores has the bias, so a file without it lacks a tensor.
        experts.has_selection_bias |= experts.routing.gating == Gating::Sigmoid;
        if let Some(shared) = &mut experts.shared
            && let Some(count) = keys.count_if_present("expert_shared_count")
        {
            if count == 0 {
                keys.wrong("expert_shared_count", "expected at least 1, because the file has a shared expert, found 0");
            }
            shared.size = experts.size.saturating_mul(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }
    check_shared_head(keys, &decoder, &latent);
    if let Some(sparse) = &sparse {
        check_dense_layers(keys, &sparse.layers);
    }
    spec(decoder, latent, sparse)
}

/// `mscale_all_dim`, which the file stores times 0.1; 0 without the key.
fn yarn_multiplier(keys: &mut Keys) -> f64 {
    let key = "rope.scaling.yarn_log_multiplier";
    let stored = keys.number_if_present(key).unwrap_or(0.0);
    if stored.is_finite() && stored >= 0.0 {
        return stored / 0.1;
    }
    keys.wrong(key, &format!("expected a finite number of at least 0, found {stored}"));
    0.0
}

/// Checks the sizes of the head that all heads share in the split form. They follow from other keys.
fn check_shared_head(keys: &mut Keys, decoder: &Decoder, latent: &Latent) {
    let (rank, rotated) = (latent.rank, decoder.rope.dimensions);
    let is_whole = rotated.is_multiple_of(2) && rotated < latent.key_size;
    if !latent.is_split || !is_whole || !keys.is_sound() {
        return;
    }
    let other_heads = decoder.kv_heads.iter().copied().find(|count| *count != 1).unwrap_or(1);
    let key_size = rank.saturating_add(rotated);
    for (key, expected, why, found) in [
        ("attention.head_count_kv", 1, "all heads share the keys".to_owned(), other_heads),
        (
            "attention.key_length",
            key_size,
            format!("attention.kv_lora_rank {rank} + rope.dimension_count {rotated}"),
            decoder.key_size,
        ),
        ("attention.value_length", rank, "equal to attention.kv_lora_rank".to_owned(), decoder.value_size),
    ] {
        if keys.has(key) && found != expected {
            keys.wrong(key, &format!("expected {expected} ({why}), found {found}"));
        }
    }
}

/// Checks the number of layers before the first one with experts.
fn check_dense_layers(keys: &mut Keys, is_sparse: &[bool]) {
    let key = "leading_dense_block_count";
    let dense = is_sparse.iter().take_while(|is_sparse| !**is_sparse).count();
    if let Some(found) = keys.count_if_present(key).filter(|found| usize::try_from(*found) != Ok(dense)) {
        let why = format!("layer {dense} is the first one with tensors of experts");
        keys.wrong(key, &format!("expected {dense} ({why}), found {found}"));
    }
}

fn spec(mut decoder: Decoder, latent: Latent, sparse: Option<SparseLayers>) -> ModelSpec {
    if latent.is_split {
        decoder.kv_heads.fill(1);
        decoder.key_size = latent.rank.saturating_add(decoder.rope.dimensions);
        decoder.value_size = latent.rank;
    } else {
        decoder.kv_heads = decoder.heads.clone();
    }
    let factor = match decoder.rope.scaling {
        RopeScaling::Yarn { factor, .. } => yarn_magnitude(f64::from(factor), latent.scale_multiplier),
        _ => 1.0,
    };
    decoder.spec(&Style::LLAMA).with_experts(sparse).with_attention(|_, attention| {
        attention.latent = Some(Box::new(latent));
        attention.scale = factor * factor / real(latent.key_size).sqrt();
    })
}

/// `mscale_all_dim` of a model.
fn multiplier(spec: &ModelSpec) -> f64 {
    let latent = spec.attentions().find_map(|(_, attention)| attention.latent.as_deref());
    latent.map_or(0.0, |latent| latent.scale_multiplier)
}

/// YaRN's factor for cosine and sine.
fn yarn_factor(spec: &ModelSpec) -> Option<f32> {
    match spec.rope()?.scaling {
        RopeScaling::Yarn { magnitude, .. } => Some(magnitude),
        _ => None,
    }
}

/// The epsilon of the norms in latent attention, if the other norms have a different one.
fn other_epsilon(spec: &ModelSpec) -> Option<f32> {
    let latent = spec.attentions().find_map(|(_, attention)| attention.latent.as_deref())?;
    Some(latent.norm.epsilon).filter(|epsilon| Some(*epsilon) != spec.epsilon())
}

const LATENT_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_q_a", "model.layers.{l}.self_attn.q_a_proj"),
    TensorRule::new("blk.{l}.attn_q_a_norm", "model.layers.{l}.self_attn.q_a_layernorm"),
    TensorRule::new("blk.{l}.attn_q_b", "model.layers.{l}.self_attn.q_b_proj"),
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
    TensorRule::new("blk.{l}.attn_kv_a_mqa", "model.layers.{l}.self_attn.kv_a_proj_with_mqa"),
    TensorRule::new("blk.{l}.attn_kv_a_norm", "model.layers.{l}.self_attn.kv_a_layernorm"),
    TensorRule::new("blk.{l}.attn_k_b", "model.layers.{l}.self_attn.kv_b_proj").with(latent_keys),
    TensorRule::new("blk.{l}.attn_v_b", "model.layers.{l}.self_attn.kv_b_proj").with(latent_values),
];

const SHARED_NAMES: &[TensorRule] = &[
    TensorRule::new("blk.{l}.exp_probs_b.bias", "model.layers.{l}.mlp.gate.e_score_correction_bias"),
    TensorRule::new("blk.{l}.ffn_gate_shexp", "model.layers.{l}.mlp.shared_experts.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up_shexp", "model.layers.{l}.mlp.shared_experts.up_proj"),
    TensorRule::new("blk.{l}.ffn_down_shexp", "model.layers.{l}.mlp.shared_experts.down_proj"),
];
