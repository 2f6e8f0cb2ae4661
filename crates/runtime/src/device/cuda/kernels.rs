//! The kernels as they come with the program: the text of one module for each file of `kernels/cuda`, which `scripts/kernels.sh` compiles.

use std::collections::HashMap;
use std::sync::OnceLock;

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        static MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../kernels/cuda/ptx/", $name, ".ptx")))),*];
    };
}

modules! {
    "arithmetic",
    "arrange",
    "attention_split",
    "attention_tiles",
    "cast",
    "concat",
    "decode",
    "diag_mask",
    "flash_attn",
    "gated",
    "get_rows",
    "heads",
    "im2col",
    "index_fill",
    "kv_attention",
    "kv_mix",
    "kv_scores",
    "kv_store",
    "make",
    "mul_mat",
    "mul_mat_gated",
    "mul_mat_group",
    "mul_mat_halves",
    "mul_mat_id",
    "mul_mat_rows",
    "mul_mat_tiles",
    "norm",
    "overlay",
    "pool_2d",
    "quantize_q8_1",
    "rank",
    "reduce",
    "rms_norm",
    "roof",
    "roof_tiles",
    "rope",
    "set_rows",
    "soft_max",
    "split_weights",
    "ssm_conv",
    "ssm_scan",
    "unary",
    "upscale",
}

/// The first module that is not made of what a list says, which has a line for each: its name and the hash at the head of its text.
pub fn module_unlike(made_of: &str) -> Option<&'static str> {
    let differs = |(name, text): &&(&'static str, &str)| {
        let hash = text.lines().next().and_then(|line| line.strip_prefix("// "));
        let listed = made_of.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        hash.is_none() || hash != listed
    };
    MODULES.iter().find(differs).map(|(name, _)| *name)
}

/// What stands before the name of a kernel.
const ENTRY: &str = ".visible .entry ";

/// The kernel's name, and the module that has it: its own name and its text.
pub fn module_of(kernel: &str) -> Option<(&'static str, &'static str, &'static str)> {
    static PLACES: OnceLock<HashMap<&str, usize>> = OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let modules = MODULES.iter().enumerate();
        modules.flat_map(|(place, (_, text))| entries(text).map(move |name| (name, place))).collect()
    });
    let (kernel, place) = places.get_key_value(kernel)?;
    let (name, text) = MODULES[*place];
    Some((kernel, name, text))
}

/// Names of a module's kernels.
fn entries(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split(ENTRY).skip(1).filter_map(|rest| rest.split('(').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_a_module_and_no_two_have_one_name() {
        let mut names: Vec<&str> = MODULES.iter().flat_map(|(_, text)| entries(text)).collect();
        assert!(names.len() >= MODULES.len());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two kernels have one name");
        assert!(names.iter().all(|name| module_of(name).is_some()) && module_of("nothing").is_none());
    }

    #[test]
    fn modules_are_known_by_their_hashes() {
        let list = |hash: fn(&str, &'static str) -> &'static str| {
            let line = |(name, text): &(&str, &'static str)| format!("{name} {}\n", hash(name, &text[3..67]));
            MODULES.iter().map(line).collect::<String>()
        };
        assert_eq!(module_unlike(&list(|_, hash| hash)), None);
        assert_eq!(module_unlike(&list(|name, hash| if name == "rope" { "0" } else { hash })), Some("rope"));
        assert_eq!(module_unlike(""), Some(MODULES[0].0));
    }
}
