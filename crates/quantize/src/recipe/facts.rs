//! Facts about a model that a recipe uses in addition to its tensors.

use trueup_formats::TensorInfo;
use trueup_formats::gguf::Metadata;

/// Facts about a model that affect the types of its tensors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelFacts {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers of the model, including layers that predict further tokens.
    pub layers: u64,
    /// Query heads of the first layer.
    pub heads: u64,
    /// Key-value heads of the first layer.
    pub kv_heads: u64,
    /// Experts of a layer; 0 for a model without experts.
    pub experts: u64,
    /// Whether an importance matrix is used.
    pub has_importance: bool,
}

impl ModelFacts {
    /// The facts in the keys of a GGUF file. If the number of layers is
    /// missing, it is taken from the names of the tensors.
    pub fn new(metadata: &Metadata, tensors: &[TensorInfo]) -> ModelFacts {
        let architecture = metadata.string("general.architecture").unwrap_or_default().to_owned();
        let number = |key: &str| first_number(metadata, &format!("{architecture}.{key}"));
        let named = tensors.iter().filter_map(|tensor| layer_of(&tensor.name)).map(|layer| layer.saturating_add(1));
        let heads = number("attention.head_count").unwrap_or(0);
        ModelFacts {
            layers: number("block_count").or(named.max()).unwrap_or(0),
            heads,
            kv_heads: number("attention.head_count_kv").unwrap_or(heads),
            experts: number("expert_count").unwrap_or(0),
            has_importance: false,
            architecture,
        }
    }

    /// Query heads that share a key-value head; 0 if there is no key-value head.
    pub(super) fn heads_per_kv_head(&self) -> u64 {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// Whether the recipes treat this as a Falcon model.
    pub(super) fn is_falcon(&self) -> bool {
        self.architecture == "falcon"
    }

    /// Whether tensors with three dimensions can also contain attention heads, not only experts.
    pub(super) fn has_stacks_of_heads(&self) -> bool {
        self.architecture == "bailingmoe3"
    }

    /// Whether this is GLM 5 with layers that predict further tokens.
    pub(super) fn is_glm5(&self) -> bool {
        self.architecture == "glm5-next"
    }

    /// Whether the model is of the size that the recipes call 70B: its attention values are small, and get more bits.
    pub(super) fn is_70b(&self) -> bool {
        match self.architecture.as_str() {
            "llama" | "llama-embed" => self.layers == 80 && self.experts != 8 && self.heads != self.kv_heads,
            "qwen2" | "olmo" | "deci" => self.layers == 80,
            "jais2" => self.layers == 68,
            _ => false,
        }
    }
}

/// A number, or the first number of an array with one for each layer.
fn first_number(metadata: &Metadata, key: &str) -> Option<u64> {
    metadata.u64(key).ok().or_else(|| metadata.u64s(key).ok()?.first().copied())
}

/// The layer in a name such as `blk.7.attn_q.weight`.
pub(super) fn layer_of(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
