//! The role of a tensor in a model, by its name.

use std::fmt;

/// The roles that recipes distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Output,
    TokenEmbedding,
    /// Attention values, alone or fused with queries and keys.
    Value,
    Key,
    Query,
    AttentionOutput,
    FeedForwardUp,
    FeedForwardGate,
    FeedForwardDown,
    Other,
}

/// Parts of names and their roles. The first part that occurs in a name decides.
const NAMES: [(&str, Role); 9] = [
    ("attn_qkv.weight", Role::Value),
    ("attn_kv_b.weight", Role::Value),
    ("attn_v.weight", Role::Value),
    ("attn_k.weight", Role::Key),
    ("attn_q.weight", Role::Query),
    ("attn_output.weight", Role::AttentionOutput),
    ("ffn_up", Role::FeedForwardUp),
    ("ffn_gate", Role::FeedForwardGate),
    ("ffn_down", Role::FeedForwardDown),
];

impl Role {
    /// The role of a tensor of this name.
    pub fn of(name: &str) -> Role {
        match name {
            "output.weight" => Role::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Role::TokenEmbedding,
            _ => NAMES.iter().find(|(part, _)| name.contains(part)).map_or(Role::Other, |(_, role)| *role),
        }
    }

    /// Whether this is the role of a feed-forward matrix.
    pub fn is_feed_forward(self) -> bool {
        matches!(self, Role::FeedForwardUp | Role::FeedForwardGate | Role::FeedForwardDown)
    }
}

/// Whether a tensor of this name is the embedding or the output head.
pub(crate) fn is_end(name: &str) -> bool {
    matches!(Role::of(name), Role::Output | Role::TokenEmbedding)
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Output => "the output head",
            Role::TokenEmbedding => "the token embedding",
            Role::Value => "attention values",
            Role::Key => "attention keys",
            Role::Query => "attention queries",
            Role::AttentionOutput => "attention outputs",
            Role::FeedForwardUp => "feed-forward up matrices",
            Role::FeedForwardGate => "feed-forward gates",
            Role::FeedForwardDown => "feed-forward down matrices",
            Role::Other => "this matrix",
        })
    }
}
