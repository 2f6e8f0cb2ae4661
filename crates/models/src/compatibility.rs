//! Notes on parts of a model that other GGUF programs do not take from a file.

use crate::rope::{RopeFactors, RopeSpec};
use crate::spec::{FeedForward, LayerSpec, Mixer, ModelSpec};
use crate::tensor::ROPE_FACTORS;
use trueup_graph::op::RopeScaling;

/// Other programs ignore the key of the sliding window.
pub(crate) fn window_note(spec: &ModelSpec) -> Option<String> {
    let name = spec.architecture().gguf_name;
    spec.window()
        .map(|_| format!("{name}.attention.sliding_window is written; programs that ignore it attend to everything"))
}

/// llama.cpp renormalizes the weights of chosen experts, or does not, by the architecture's name.
pub(crate) fn renormalization_note(spec: &ModelSpec, is_assumed: bool) -> Option<String> {
    let experts = spec.experts().filter(|experts| experts.routing.is_renormalized != is_assumed)?;
    let name = spec.architecture().gguf_name;
    let (model, others) = match experts.routing.is_renormalized {
        true => ("divided by their sum", "leaves them as they are"),
        false => ("not divided by their sum", "divides them"),
    };
    Some(format!(
        "the weights of the chosen experts are {model} ({name}.expert_weights_norm); llama.cpp {others}, and its \
         results differ"
    ))
}

/// llama.cpp expects experts in every layer.
pub(crate) fn dense_layers_note(spec: &ModelSpec) -> Option<String> {
    let dense = spec.layers.iter().filter(|layer| matches!(layer.feed_forward, FeedForward::Dense(_))).count();
    (dense > 0)
        .then(|| format!("{dense} of {} layers have no experts; llama.cpp does not load the file", spec.layers.len()))
}

/// llama.cpp computes another form of gelu for these architectures.
pub(crate) fn gelu_note() -> String {
    "GELU is computed with the error function, as in the original model; llama.cpp uses the tanh approximation, and its \
     results differ slightly"
        .to_owned()
}

/// llama.cpp gives the attention's output as many inputs as the hidden size for most architectures.
pub(crate) fn head_size_note(spec: &ModelSpec) -> Option<String> {
    let hidden_size = spec.hidden_size();
    let is_free = spec.architecture().has_free_head_size;
    let (_, attention) = spec.attentions().find(|(_, attention)| attention.output_elements() != hidden_size)?;
    let (heads, size) = (attention.heads, attention.value_size);
    (!is_free).then(|| {
        format!(
            "{heads} heads of {size} elements do not add up to the hidden size {hidden_size}; llama.cpp does not load the \
             file"
        )
    })
}

/// The factors of LongRoPE follow the length of the text, in llama.cpp the size of the context.
pub(crate) fn long_factors_note(spec: &ModelSpec) -> Option<String> {
    let RopeFactors::Long(factors) = &spec.rope()?.factors else { return None };
    let original = factors.original_context;
    Some(format!(
        "texts of more than {original} tokens use the long factors of LongRoPE, as in transformers; llama.cpp chooses by \
         the size of the context, so use a context of at most {original} there for shorter texts"
    ))
}

/// Architectures for which llama.cpp reads the tensor of frequency divisors.
const WITH_ROPE_FACTORS: [&str; 5] = ["llama", "granite", "granitemoe", "minicpm", "refact"];

/// llama.cpp does not load a file of another architecture with the tensor of frequency divisors.
pub(crate) fn rope_factors_note(spec: &ModelSpec) -> Option<String> {
    let name = spec.architecture().gguf_name;
    let is_read = WITH_ROPE_FACTORS.contains(&name);
    let is_written = |rope: &&RopeSpec| matches!(rope.factors, RopeFactors::Llama3(_) | RopeFactors::Stored);
    spec.rope().filter(is_written).filter(|_| !is_read).map(|_| {
        format!(
            "{ROPE_FACTORS} is written for the llama3 RoPE scaling; llama.cpp does not expect this tensor for {name} and \
             rejects the file"
        )
    })
}

/// llama.cpp ignores beta_fast and beta_slow in these files.
pub(crate) fn yarn_note(spec: &ModelSpec) -> Option<String> {
    let RopeScaling::Yarn { beta_fast, beta_slow, .. } = spec.rope()?.scaling else { return None };
    (beta_fast != YARN_BETAS[0] || beta_slow != YARN_BETAS[1]).then(|| {
        let [fast, slow] = YARN_BETAS;
        format!(
            "YaRN has beta_fast {beta_fast} and beta_slow {beta_slow}; llama.cpp uses {fast} and {slow}, so its results \
             differ; pass --yarn-beta-fast {beta_fast} --yarn-beta-slow {beta_slow} to llama.cpp"
        )
    })
}

/// llama.cpp expects a bias in the convolutions of state spaces.
pub(crate) fn convolution_note(spec: &ModelSpec) -> Option<String> {
    let has_no_bias = |layer: &LayerSpec| matches!(&layer.mixer, Mixer::StateSpace(mixer) if !mixer.has_bias);
    spec.layers
        .iter()
        .any(has_no_bias)
        .then(|| "the convolutions have no bias (use_conv_bias false); llama.cpp does not load the file".to_owned())
}

/// llama.cpp's default beta_fast and beta_slow.
const YARN_BETAS: [f32; 2] = [32.0, 1.0];
