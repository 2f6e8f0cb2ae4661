//! x
/// x
#[derive(Clone, PartialEq, Debug)]
pub struct TokenizerBin {
    /// x
    pub tokens: Vec<Vec<u8>>,
    /// x
    pub scores: Option<Vec<f32>>,
    /// x
    pub max_token_length: Option<u32>,
}
