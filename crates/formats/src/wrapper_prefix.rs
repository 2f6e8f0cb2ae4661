//! Tensor names of a model that was saved inside a wrapper: every name begins with the name of the wrapper's field.
//!
//! ```text
//! module.model.layers.0.mlp.up_proj.weight            DataParallel, DeepSpeed     ──▶  model.layers.0.mlp.up_proj.weight
//! _orig_mod.model.layers.0.mlp.up_proj.weight         torch.compile
//! model.model.layers.0.mlp.up_proj.weight             a model inside another one
//! base_model.model.model.layers.0.mlp.up_proj.weight  PEFT
//! ```

/// What the names of a whole model begin with.
const ROOTS: [&str; 3] = ["model.", "transformer.", "gpt_neox."];

/// The prefix that all names have in addition to those of the model; empty if there is none.
///
/// A prefix is a wrapper's only if a root such as `model.` follows it: `model.` alone is part of the names.
pub(crate) fn wrapper_prefix<'a>(names: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    let Some(first) = names.clone().next() else { return "" };
    let mut prefix = "";
    while let Some((part, _)) = first.get(prefix.len()..).and_then(|rest| rest.split_once('.')) {
        let start = prefix.len();
        let end = start.saturating_add(part.len()).saturating_add(1);
        let wrapper = first.get(start..end);
        // Some architectures have `model.transformer.` in their own names, but not after a wrapper such as PEFT.
        let is_own = part == "model" && prefix.is_empty();
        let roots = ROOTS.iter().filter(|root| !is_own || **root == "model.");
        let has_root =
            |name: &str| name.get(end..).is_some_and(|rest| roots.clone().any(|root| rest.starts_with(root)));
        if !names.clone().all(|name| name.get(start..end) == wrapper) || !names.clone().any(has_root) {
            break;
        }
        prefix = first.get(..end).unwrap_or_default();
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::wrapper_prefix;

    #[test]
    fn a_prefix_of_all_names_before_a_root_is_a_wrapper() {
        for (names, expected) in [
            (&["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"][..], ""),
            (&["model.embed_tokens.weight", "model.norm.weight"], ""),
            (&["module.model.norm.weight", "module.lm_head.weight"], "module."),
            (&["_orig_mod.model.norm.weight", "_orig_mod.model.embed_tokens.weight"], "_orig_mod."),
            (&["model.model.norm.weight", "model.lm_head.weight"], "model."),
            (&["base_model.model.model.norm.weight", "base_model.model.lm_head.weight"], "base_model.model."),
            (&["module.transformer.wte.weight", "module.lm_head.weight"], "module."),
            (&["module.gpt_neox.embed_in.weight", "module.embed_out.weight"], "module."),
            (&["base_model.model.transformer.wte.weight", "base_model.model.lm_head.weight"], "base_model.model."),
            (&["model.transformer.wte.weight", "model.transformer.ln_f.weight"], ""),
            (&["transformer.h.0.ln_1.weight", "transformer.wte.weight"], ""),
            // One name is outside, or there is no whole model inside.
            (&["module.model.norm.weight", "lm_head.weight"], ""),
            (&["module.norm.weight", "module.embed_tokens.weight"], ""),
            (&["vision.model.norm.weight", "text.model.norm.weight"], ""),
            (&[], ""),
        ] {
            assert_eq!(wrapper_prefix(names.iter().copied()), expected, "{names:?}");
        }
    }
}
