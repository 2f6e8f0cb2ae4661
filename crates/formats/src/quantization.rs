//! Quantized checkpoints, recognized by the names and types of their tensors, also when `config.json` does not say so.

use crate::counted::counted;

/// One way to quantize a checkpoint: its name for people, and what the names of its tensors end with.
struct Scheme {
    name: &'static str,
    /// All of these are there; the first one counts the places.
    ends: &'static [&'static str],
}

/// The first scheme all of whose endings are there is meant, so the more specific one comes first.
const SCHEMES: [Scheme; 18] = [
    Scheme { name: "GPTQ", ends: &[".qweight", ".qzeros", ".scales", ".g_idx"] },
    Scheme { name: "AWQ", ends: &[".qweight", ".qzeros", ".scales"] },
    Scheme { name: "GPTQ or AWQ", ends: &[".qweight", ".scales"] },
    Scheme { name: "bitsandbytes (nf4)", ends: &[".quant_state.bitsandbytes__nf4"] },
    Scheme { name: "bitsandbytes (fp4)", ends: &[".quant_state.bitsandbytes__fp4"] },
    Scheme { name: "bitsandbytes", ends: &[".absmax", ".quant_map"] },
    Scheme { name: "bitsandbytes (int8)", ends: &[".SCB"] },
    Scheme { name: "compressed-tensors (NVFP4)", ends: &[".weight_packed", ".weight_scale", ".weight_global_scale"] },
    Scheme { name: "compressed-tensors", ends: &[".weight_packed", ".weight_scale"] },
    Scheme { name: "ModelOpt (NVFP4)", ends: &[".weight_scale_2", ".weight_scale"] },
    Scheme { name: "FP8 in blocks", ends: &[".weight_scale_inv"] },
    Scheme { name: "FP8 or compressed-tensors", ends: &[".weight_scale"] },
    Scheme { name: "MXFP4", ends: &["_blocks", "_scales"] },
    Scheme { name: "HQQ", ends: &[".W_q"] },
    Scheme { name: "AQLM", ends: &[".codes", ".codebooks"] },
    Scheme { name: "EXL2", ends: &[".q_weight", ".q_scale", ".q_groups"] },
    Scheme { name: "QuIP#", ends: &[".Qidxs"] },
    Scheme { name: "MLX", ends: &[".scales", ".biases"] },
];

/// What to do with a quantized checkpoint.
pub const QUANTIZED_HELP: &str =
    "convert an unquantized (bf16, f16 or f32) copy of the checkpoint, then quantize the result";

/// How the tensors of these names are quantized: `quantized by GPTQ (qweight, qzeros, scales, g_idx in 21 places)`;
/// `None` when they are not.
pub fn quantization<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    let count = |end: &str| names.clone().filter(|name| name.ends_with(end)).count();
    let scheme = SCHEMES.iter().find(|scheme| scheme.ends.iter().all(|end| count(end) > 0))?;
    let places = counted(scheme.ends.first().map_or(0, |end| count(end)), "place");
    let ends: Vec<&str> = scheme.ends.iter().map(|end| end.trim_start_matches(['.', '_'])).collect();
    Some(format!("quantized by {} ({} in {places})", scheme.name, ends.join(", ")))
}

/// Whether a tensor name has an ending of one of the schemes.
pub fn is_quantized(name: &str) -> bool {
    SCHEMES.iter().any(|scheme| scheme.ends.iter().any(|end| name.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::quantization;

    /// Endings as the programs write them: AutoGPTQ, AutoAWQ, bitsandbytes, llm-compressor, DeepSeek-V3, gpt-oss,
    /// mlx-lm.
    #[test]
    fn schemes_are_recognized_by_their_tensors() {
        let of = |ends: &[&str]| {
            let names: Vec<String> = (0..3)
                .flat_map(|layer| ends.iter().map(move |end| format!("model.layers.{layer}.mlp.up_proj{end}")))
                .collect();
            quantization(names.iter().map(String::as_str).chain(["model.norm.weight"]))
        };
        for (ends, expected) in [
            (&[".qweight", ".qzeros", ".scales", ".g_idx"][..], "GPTQ (qweight, qzeros, scales, g_idx in 3 places)"),
            (&[".qweight", ".qzeros", ".scales", ".bias"], "AWQ (qweight, qzeros, scales in 3 places)"),
            (&[".weight", ".SCB", ".weight_format"], "bitsandbytes (int8) (SCB in 3 places)"),
            (&[".weight", ".weight.absmax", ".weight.quant_map"], "bitsandbytes (absmax, quant_map in 3 places)"),
            (
                &[".weight", ".weight.absmax", ".weight.quant_state.bitsandbytes__nf4"],
                "bitsandbytes (nf4) (quant_state.bitsandbytes__nf4 in 3 places)",
            ),
            (
                &[".weight_packed", ".weight_scale", ".weight_shape"],
                "compressed-tensors (weight_packed, weight_scale in 3",
            ),
            (&[".weight", ".weight_scale_inv"], "FP8 in blocks (weight_scale_inv in 3 places)"),
            (&[".weight", ".weight_scale"], "FP8 or compressed-tensors (weight_scale in 3 places)"),
            (&["_blocks", "_scales"], "MXFP4 (blocks, scales in 3 places)"),
            (&[".weight", ".scales", ".biases"], "MLX (scales, biases in 3 places)"),
        ] {
            let found = of(ends).unwrap_or_default();
            assert!(found.starts_with(&format!("quantized by {expected}")), "{ends:?}: {found}");
        }
        assert_eq!(of(&[".weight", ".bias"]), None);
    }
}
