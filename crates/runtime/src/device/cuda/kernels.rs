//! The embedded kernels: the PTX of one module per file in `kernels/cuda`, compiled by `scripts/kernels.sh`.
//!
//! The PTX is committed, and its first line contains the hash of its sources. So builds need no CUDA, and users need
//! only the driver. From sm_90 on, kernels that contain the wait instruction are launched early, before the previous
//! launch has ended: the loader turns marked comments of the PTX into instructions, and every thread waits before it
//! touches the results of an earlier launch.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        static MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../kernels/cuda/ptx/", $name, ".ptx")))),*];

        /// Machine code of each for sm_90a, by `scripts/kernels.sh --cubin`: the first line of the text that it was
        /// made of, then the code.
        #[cfg(feature = "cubin")]
        static MACHINE_CODE: &[&[u8]] = &[$(include_bytes!(concat!("../../../../../target/kernels/cubin/", $name, ".cubin"))),*];
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

#[cfg(not(feature = "cubin"))]
static MACHINE_CODE: &[&[u8]] = &[];

/// Cards whose machine code comes with a program that is built with the feature `cubin`.
const CODE_FOR: (i32, i32) = (9, 0);

/// The first module that is not made of what a list says, which has a line for each: its name and the hash at the head
/// of its text.
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

/// Before instructions of a text that only cards from [`EARLY_FROM`] on have: a comment for the others
/// (`kernels/cuda/ptx.cuh`).
const MARK: &str = "//sm_90 ";

/// What a kernel waits by for the launches before its own, behind the mark.
const WAIT: &str = "//sm_90 griddepcontrol.wait;";

/// Cards from this generation on begin a launch before the last has ended, if its kernel waits by itself.
pub const EARLY_FROM: (i32, i32) = (9, 0);

/// A kernel, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its name.
    pub name: &'static str,
    /// The module that has it.
    pub module: &'static str,
    /// The module's text, as it comes with the program.
    pub text: &'static str,
    /// Whether it waits for the launches before its own, where the card begins it early.
    pub waits: bool,
}

/// The kernel of that name.
pub fn find(kernel: &str) -> Option<Found> {
    static KERNELS: OnceLock<HashMap<&str, Found>> = OnceLock::new();
    let kernels = KERNELS.get_or_init(|| {
        let all = MODULES.iter().flat_map(|(module, text)| {
            entries(text).map(move |(name, body)| Found { name, module, text, waits: body.contains(WAIT) })
        });
        all.map(|found| (found.name, found)).collect()
    });
    kernels.get(kernel).copied()
}

/// A module's text for a card of a generation: from [`EARLY_FROM`] on with what is marked, and for that generation.
/// `scripts/kernels.py` assembles the same.
pub fn text_for(text: &'static str, capability: (i32, i32)) -> Cow<'static, str> {
    if capability < EARLY_FROM || !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let Some((head, (_, rest))) = text.split_once(TARGET).map(|(head, rest)| (head, rest.split_at(2))) else {
        return Cow::Borrowed(text);
    };
    Cow::Owned(format!("{head}{TARGET}90{}", rest.replace(MARK, "")))
}

/// A module's machine code for a card of a generation, which the driver need not make of the text; none where the
/// program has none, or of another text.
pub fn machine_code(module: &str, capability: (i32, i32)) -> Option<&'static [u8]> {
    let ((_, text), code) = MODULES.iter().zip(MACHINE_CODE).find(|((name, _), _)| *name == module)?;
    let (made_of, code) = code.split_at_checked(code.iter().position(|byte| *byte == b'\n')? + 1)?;
    (capability == CODE_FOR && text.as_bytes().starts_with(made_of)).then_some(code)
}

/// What stands before the number of the generation that a text is for.
const TARGET: &str = "\n.target sm_";

/// Names of a module's kernels, and what stands behind them.
fn entries(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(ENTRY).skip(1).filter_map(|rest| rest.split_once('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_has_a_module_and_no_two_have_one_name() {
        let mut names: Vec<&str> = MODULES.iter().flat_map(|(_, text)| entries(text)).map(|(name, _)| name).collect();
        assert!(names.len() >= MODULES.len());
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two kernels have one name");
        assert!(names.iter().all(|name| find(name).is_some()) && find("nothing").is_none());
    }

    /// Kernels that the decode phase launches, by the beginnings of their names.
    const DECODE: &[&str] = &[
        "add_f32",
        "attention_split_",
        "get_rows_",
        "heads_",
        "kv_store_",
        "mul_mat_add_",
        "mul_mat_gated_f16_1",
        "mul_mat_gated_q4_0_1",
        "mul_mat_id_rows_",
        "mul_mat_rows_",
        "mul_mat_three_",
        "norm_",
        "quantize_q8_1_",
        "rms_norm_",
        "rope_",
        "silu_",
        "soft_max_",
        "swiglu_",
    ];

    /// Beginnings of instructions that touch memory, wait for other threads, call, or end this one.
    const TOUCHES: &[&str] = &["ld.", "st.", "atom.", "red.", "cp.", "bar.", "call", "ret"];

    #[test]
    fn kernels_of_the_decode_phase_wait_before_they_read_or_write() {
        for (name, body) in MODULES.iter().flat_map(|(_, text)| entries(text)) {
            let before = body.split_once(WAIT).map(|(before, _)| before);
            let decodes = DECODE.iter().any(|begin| name.starts_with(begin));
            assert_eq!(find(name).map(|found| found.waits), Some(before.is_some()), "{name}");
            assert!(!decodes || before.is_some(), "{name} does not wait");
            let touches = |line: &&str| {
                let instruction = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
                !instruction.starts_with("ld.param") && TOUCHES.iter().any(|begin| instruction.starts_with(begin))
            };
            let first = before.unwrap_or_default().lines().find(touches);
            assert_eq!(first, None, "{name} touches memory, or ends, before it waits");
        }
    }

    #[test]
    fn machine_code_is_of_the_text_and_for_its_cards() {
        for (name, _) in MODULES {
            assert_eq!(
                machine_code(name, CODE_FOR).is_some_and(|code| code.starts_with(b"\x7fELF")),
                cfg!(feature = "cubin"),
                "{name}"
            );
            assert_eq!([(8, 9), (10, 0)].map(|card| machine_code(name, card)), [None; 2], "{name}");
        }
    }

    #[test]
    fn a_text_is_for_the_card() {
        let found = find("rms_norm_f32").expect("a kernel");
        assert_eq!(text_for(found.text, (8, 9)), found.text);
        let early = text_for(found.text, (9, 0));
        assert!(early.contains("\n.target sm_90") && !early.contains(MARK) && !early.contains("sm_75"));
        assert!(early.contains("\tgriddepcontrol.wait;\n") && early.contains("\tgriddepcontrol.launch_dependents;\n"));
        let plain = find("im2col_f32").expect("one that does not wait");
        assert!(!plain.waits && text_for(plain.text, (12, 0)) == plain.text);
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
