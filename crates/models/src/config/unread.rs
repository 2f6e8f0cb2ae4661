//! Keys of a description that change what other classes compute, but that the class of this model does not use.
//!
//! transformers ignores such keys, and so does this reader. A note names them, because the file may have the wrong
//! class.

use super::Config;

/// Keys, and the values under which they change nothing. A null never changes anything.
const KEYS: &[(&str, &[f64])] = &[
    ("alibi", &[0.0]),
    ("attention_multiplier", &[]),
    ("attn_logit_softcapping", &[0.0]),
    ("clip_qkv", &[0.0]),
    ("embedding_multiplier", &[1.0]),
    ("final_logit_softcapping", &[0.0]),
    ("first_k_dense_replace", &[0.0]),
    ("logit_scale", &[1.0]),
    ("logits_scaling", &[1.0]),
    ("n_routed_experts", &[0.0, 1.0]),
    ("n_shared_experts", &[0.0]),
    ("num_experts", &[0.0, 1.0]),
    ("num_local_experts", &[0.0, 1.0]),
    ("parallel_attn", &[0.0]),
    ("query_pre_attn_scalar", &[]),
    ("residual_multiplier", &[1.0]),
    ("scale_depth", &[1.0]),
    ("scale_emb", &[1.0]),
    ("sliding_window", &[0.0]),
    ("use_parallel_residual", &[0.0]),
    ("use_qk_norm", &[0.0]),
];

impl Config<'_> {
    /// Notes keys of [`KEYS`] that were not read.
    pub(super) fn note_unread(&mut self, file: &str) {
        let read = self.read.borrow();
        let is_unused = |(key, neutral): &&(&str, &[f64])| {
            let value = self.object.get(*key).filter(|value| !value.is_null() && value.as_bool() != Some(false));
            value.is_some_and(|value| !value.as_f64().is_some_and(|number| neutral.contains(&number)))
                && !read.contains(*key)
        };
        let keys: Vec<&str> = KEYS.iter().filter(is_unused).map(|(key, _)| *key).collect();
        drop(read);
        if !keys.is_empty() {
            let (class, keys) = (self.architecture.classes.first().copied().unwrap_or_default(), keys.join(", "));
            let class = if self.class().is_empty() { class } else { self.class() };
            let note =
                format!("{file}: {keys}: not used by {class}, so ignored; check the class if the model needs this");
            self.note(note);
        }
    }
}
