//! Adds keys to the messages of checks. A check of a model sees only numbers; this table maps the first words of its
//! message to the key in GGUF or `config.json`.

use crate::config::Object;
use trueup_formats::gguf::Metadata;

/// A checked number and its keys.
struct Subject {
    /// The words that its messages begin with.
    words: &'static str,
    /// Its GGUF key, without the architecture.
    gguf: &'static str,
    /// Its keys in `config.json`; the first one that is present counts.
    config: &'static [&'static str],
}

const fn subject(words: &'static str, gguf: &'static str, config: &'static [&'static str]) -> Subject {
    Subject { words, gguf, config }
}

const SUBJECTS: &[Subject] = &[
    subject("experts per token:", "expert_used_count", &["num_experts_per_tok"]),
    subject("number of expert groups:", "expert_group_count", &["n_group"]),
    subject("expert groups per token:", "expert_group_used_count", &["topk_group"]),
    subject("scale of expert weights:", "expert_weights_scale", &["routed_scaling_factor"]),
    subject(
        "number of KV heads:",
        "attention.head_count_kv",
        &["multi_query_group_num", "num_query_groups", "num_kv_heads", "num_key_value_heads"],
    ),
    subject("number of heads:", "ssm.time_step_rank", &["num_heads"]),
    subject("number of groups:", "ssm.group_count", &["n_groups"]),
    subject("convolution taps:", "ssm.conv_kernel", &["conv_kernel"]),
    subject("state space:", "ssm.state_size", &["state_size"]),
    subject(
        "RoPE dimensions",
        "rope.dimension_count",
        &[
            "qk_rope_head_dim",
            "rotary_dim",
            "kv_channels",
            "rotary_pct",
            "partial_rotary_factor",
            "rope_pct",
            "head_dim",
        ],
    ),
    subject("RoPE base:", "rope.freq_base", &["rope_theta", "rotary_emb_base"]),
    subject("RoPE scaling factor:", "rope.scaling.factor", &["rope_parameters", "rope_scaling", "rotary"]),
    subject("RoPE scaling magnitude:", "rope.scaling.attn_factor", &["rope_parameters", "rope_scaling", "rotary"]),
    subject("attention scale:", "attention.scale", &["query_pre_attn_scalar", "attention_multiplier"]),
    subject("attention softcap:", "attn_logit_softcapping", &["attn_logit_softcapping"]),
    subject("attention clamp:", "attention.clamp_kqv", &["clip_qkv", "attn_config"]),
    subject("largest ALiBi exponent:", "attention.max_alibi_bias", &["attn_config"]),
    subject("embedding scale:", "embedding_scale", &["embedding_multiplier", "scale_emb"]),
    subject("residual scale:", "residual_scale", &["residual_multiplier", "scale_depth"]),
    subject("logit scale:", "logit_scale", &["logit_scale", "logits_scaling", "dim_model_base"]),
    subject("logit softcap:", "final_logit_softcapping", &["final_logit_softcapping"]),
    subject("mscale_all_dim", "rope.scaling.yarn_log_multiplier", &[]),
    subject("relative attention buckets:", "attention.relative_buckets_count", &["relative_attention_num_buckets"]),
    subject(
        "maximum relative attention distance:",
        "attention.relative_distance_max",
        &["relative_attention_max_distance"],
    ),
    subject("decoder start token:", "decoder_start_token_id", &["decoder_start_token_id"]),
];

fn find(problem: &str) -> Option<&'static Subject> {
    SUBJECTS.iter().find(|subject| problem.starts_with(subject.words))
}

/// The GGUF key of a problem, if the file has it.
pub(crate) fn key_in_metadata(problem: &str, architecture: &str, metadata: &Metadata) -> Option<String> {
    let key = format!("{architecture}.{}", find(problem)?.gguf);
    metadata.contains(&key).then(|| format!("key {key}"))
}

/// The key of a problem in `config.json`, if the file has it.
pub(crate) fn key_in_config(problem: &str, config: &Object) -> Option<String> {
    let key = find(problem)?.config.iter().find(|key| config.get(**key).is_some_and(|value| !value.is_null()))?;
    Some((*key).to_owned())
}
