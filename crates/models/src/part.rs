//! The blocks that layers are made of. Each file owns everything about one block: its numbers, its tensors, its GGUF
//! keys and its graph.

pub(crate) mod attention;
pub(crate) mod cross_attention;
pub(crate) mod experts;
pub(crate) mod feed_forward;
pub(crate) mod latent;
pub(crate) mod norm;
pub(crate) mod state_space;
