//! The numbers that describe a model, with the GGUF key of each.

/// One number of a model's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Elements of the residual stream.
    Width,
    /// Blocks.
    Layers,
    /// Attention heads.
    Heads,
    /// Heads of the KV cache.
    KvHeads,
    /// Elements of a head.
    HeadSize,
    /// Elements of the feed-forward's hidden layer.
    Ffn,
    /// Tokens.
    Vocabulary,
    /// Positions that the model was made for.
    Context,
    /// What norms add to the mean of squares.
    Epsilon,
    /// Base of the frequencies of rotation ("theta").
    RopeBase,
}

impl Field {
    /// Every field.
    pub const ALL: [Field; 10] = [
        Field::Width,
        Field::Layers,
        Field::Heads,
        Field::KvHeads,
        Field::HeadSize,
        Field::Ffn,
        Field::Vocabulary,
        Field::Context,
        Field::Epsilon,
        Field::RopeBase,
    ];

    /// The key in a GGUF file, behind `general.architecture` and a dot.
    pub fn gguf_key(self) -> &'static str {
        match self {
            Field::Width => "embedding_length",
            Field::Layers => "block_count",
            Field::Heads => "attention.head_count",
            Field::KvHeads => "attention.head_count_kv",
            Field::HeadSize => "attention.key_length",
            Field::Ffn => "feed_forward_length",
            Field::Vocabulary => "vocab_size",
            Field::Context => "context_length",
            Field::Epsilon => "attention.layer_norm_rms_epsilon",
            Field::RopeBase => "rope.freq_base",
        }
    }

    /// The largest value that is believed; what a model of the next decade may need, and small enough that products of
    /// a few stay far below 2^63. `None` for what is not a count.
    pub fn count_max(self) -> Option<u64> {
        match self {
            Field::Width | Field::Ffn => Some(1 << 22),
            Field::Layers | Field::Heads | Field::KvHeads | Field::HeadSize => Some(1 << 16),
            Field::Vocabulary => Some(1 << 26),
            Field::Context => Some((1 << 31) - 1),
            Field::Epsilon | Field::RopeBase => None,
        }
    }

    /// Whether files may give one number for each layer.
    pub fn is_per_layer(self) -> bool {
        match self {
            Field::Heads | Field::KvHeads | Field::HeadSize | Field::Ffn => true,
            Field::Width | Field::Layers | Field::Vocabulary | Field::Context => false,
            Field::Epsilon | Field::RopeBase => false,
        }
    }
}

/// The count that all layers have, of a list with one for each layer; else what is wrong with the list.
pub(crate) fn one_count(counts: &[u64], layers: Option<u64>) -> Result<u64, String> {
    let first = counts.first().copied().ok_or("expected a count for each layer, found an empty list")?;
    if let Some(layers) = layers.filter(|layers| usize::try_from(*layers) != Ok(counts.len())) {
        return Err(format!("expected a count for each of {layers} layers, found {}", counts.len()));
    }
    match counts.iter().position(|count| *count != first) {
        None => Ok(first),
        Some(layer) => {
            let other = counts.get(layer).copied().unwrap_or_default();
            Err(format!(
                "layer 0 has {first} and layer {layer} has {other}; layers of different sizes are not supported"
            ))
        }
    }
}
