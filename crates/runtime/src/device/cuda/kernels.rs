//! The kernels as they come with the program: the text of one module for each file of `kernels/cuda`, which `scripts/kernels.sh` compiles.

use std::collections::HashMap;
use std::sync::OnceLock;

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        const MODULES: &[(&str, &str)] =
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
    "diag_mask",
    "flash_attn",
    "gated",
    "get_rows",
    "im2col",
    "index_fill",
    "kv_attention",
    "kv_mix",
    "kv_scores",
    "kv_store",
    "make",
    "mul_mat",
    "mul_mat_id",
    "norm",
    "overlay",
    "pool_2d",
    "quantize_q8_1",
    "rank",
    "reduce",
    "rms_norm",
    "rope",
    "set_rows",
    "soft_max",
    "ssm_conv",
    "ssm_scan",
    "unary",
    "upscale",
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
}
