//! The largest counts that are believed: what a model of the next decade may need, and small enough that products of a
//! few stay far below 2^63.

/// Elements of a row: of the residual stream, a feed-forward, all heads together.
pub(crate) const SIZE_MAX: usize = 1 << 22;
/// Layers, heads, elements of a head.
pub(crate) const COUNT_MAX: usize = 1 << 16;
/// Tokens of a vocabulary.
pub(crate) const VOCABULARY_MAX: usize = 1 << 26;
/// Positions.
pub(crate) const CONTEXT_MAX: usize = (1 << 31) - 1;
