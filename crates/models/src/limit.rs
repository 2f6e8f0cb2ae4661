//! Upper limits for counts read from files, chosen so that products do not overflow.

/// Elements of a row: of the residual stream, of a feed-forward layer, or of all heads together.
pub(crate) const SIZE_MAX: usize = 1 << 22;
/// Number of layers, of heads, or of elements of a head.
pub(crate) const COUNT_MAX: usize = 1 << 16;
/// Vocabulary size.
pub(crate) const VOCABULARY_MAX: usize = 1 << 26;
/// Context length.
pub(crate) const CONTEXT_MAX: usize = (1 << 31) - 1;
