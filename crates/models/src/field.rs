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

    /// The largest value that is believed; what a model of the next decade may need, and small enough that products of a few
    /// stay far below 2^63. `None` for what is not a count.
    pub fn count_max(self) -> Option<u64> {
        match self {
            Field::Width | Field::Ffn => Some(1 << 22),
            Field::Layers | Field::Heads | Field::KvHeads | Field::HeadSize => Some(1 << 16),
            Field::Vocabulary => Some(1 << 26),
            Field::Context => Some((1 << 31) - 1),
            Field::Epsilon | Field::RopeBase => None,
        }
    }
}
