//! The tensors that a model consists of, as its parts declare them: GGUF name, shape and kind.

use crate::number::wide;

/// One tensor of a GGUF file that a model must have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorSpec {
    /// Name in the GGUF file, such as `blk.3.attn_q.weight`.
    pub name: String,
    /// The layer it belongs to; `None` for tensors outside of the layers.
    pub layer: Option<usize>,
    /// Sizes, innermost first; a projection is `[inputs, outputs]`.
    pub shape: Vec<u64>,
    /// What it holds.
    pub kind: TensorKind,
    /// Graph weights that are consecutive rows of this tensor: names and row counts. Empty if the tensor is one weight.
    pub slices: Vec<(String, usize)>,
}

/// What a tensor holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TensorKind {
    /// A matrix with one row per token of the vocabulary: the embedding or the output head.
    TokenRows,
    /// One element per token of the vocabulary: the bias of the output head.
    TokenBias,
    /// A matrix, or a stack of matrices. `trueup_quantize::stays_f32` names those that are stored as f32.
    Matrix,
    /// Weights of a norm, 1 on average.
    NormWeight,
    /// A bias, 0 on average.
    Bias,
    /// Rates at which a state decays, negative.
    Decay,
    /// Divisors of the rotation's frequencies, computed at conversion.
    RopeFactors,
}

impl TensorKind {
    /// Whether the outermost dimension counts the tokens of the vocabulary.
    pub fn is_per_token(self) -> bool {
        matches!(self, TensorKind::TokenRows | TensorKind::TokenBias)
    }
}

/// GGUF name of the token embedding.
pub const TOKEN_EMBEDDING: &str = "token_embd.weight";
/// GGUF name of the output head.
pub const OUTPUT: &str = "output.weight";
/// GGUF name of the divisors of the rotation's frequencies.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Collects the tensors of a model in the order of computation.
#[derive(Default)]
pub(crate) struct TensorList {
    tensors: Vec<TensorSpec>,
    layer: Option<usize>,
    /// What the names of tensors of layers begin with, in a model with two stacks of layers.
    stack: &'static str,
}

impl TensorList {
    /// Puts the tensors that follow into this layer.
    pub fn enter(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Starts a stack of layers, whose tensors have names with this prefix.
    pub fn start_stack(&mut self, prefix: &'static str) {
        self.stack = prefix;
    }

    /// A matrix `stem.weight` of shape `[inputs, outputs]`.
    pub fn matrix(&mut self, stem: &str, inputs: usize, outputs: usize) {
        self.add(stem, "weight", &[inputs, outputs], TensorKind::Matrix);
    }

    /// A matrix whose rows are several weights, one after the other: `parts` are stems and row counts.
    pub fn fused_matrix(&mut self, stem: &str, inputs: usize, parts: &[(&str, usize)]) {
        self.add(stem, "weight", &[inputs, total(parts)], TensorKind::Matrix);
        self.slice(parts, "weight");
    }

    /// A bias `stem.bias` of this size.
    pub fn bias(&mut self, stem: &str, size: usize) {
        self.add(stem, "bias", &[size], TensorKind::Bias);
    }

    /// A bias whose elements are several biases, one after the other.
    pub fn fused_bias(&mut self, stem: &str, parts: &[(&str, usize)]) {
        self.add(stem, "bias", &[total(parts)], TensorKind::Bias);
        self.slice(parts, "bias");
    }

    /// Any other tensor.
    pub fn add(&mut self, stem: &str, suffix: &str, sizes: &[usize], kind: TensorKind) {
        let name = tensor_name(self.stack, self.layer, stem, suffix);
        let shape = sizes.iter().map(|&size| wide(size)).collect();
        self.tensors.push(TensorSpec { name, layer: self.layer, shape, kind, slices: Vec::new() });
    }

    fn slice(&mut self, parts: &[(&str, usize)], suffix: &str) {
        let slices =
            parts.iter().map(|(stem, rows)| (tensor_name(self.stack, self.layer, stem, suffix), *rows)).collect();
        if let Some(tensor) = self.tensors.last_mut() {
            tensor.slices = slices;
        }
    }

    /// The tensors.
    pub fn finish(self) -> Vec<TensorSpec> {
        self.tensors
    }
}

fn total(parts: &[(&str, usize)]) -> usize {
    parts.iter().map(|(_, rows)| *rows).fold(0, usize::saturating_add)
}

/// The GGUF name of a tensor of a layer, in a stack with this prefix, or of one outside of the layers.
pub(crate) fn tensor_name(stack: &str, layer: Option<usize>, stem: &str, suffix: &str) -> String {
    let end = if suffix.is_empty() { String::new() } else { format!(".{suffix}") };
    match layer {
        Some(layer) => format!("{stack}blk.{layer}.{stem}{end}"),
        None => format!("{stem}{end}"),
    }
}
