//! Convert, quantize, run and verify language models.

pub mod manifest;
pub mod text;

pub use trueup_blocks as blocks;
pub use trueup_convert as convert;
pub use trueup_formats as formats;
pub use trueup_graph as graph;
pub use trueup_models as models;
pub use trueup_quantize as quantize;
pub use trueup_runtime as runtime;
pub use trueup_tokenizer as tokenizer;
pub use trueup_verify as verify;
