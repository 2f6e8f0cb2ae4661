//! What can go wrong between a file that was opened and a result.

use trueup_graph::ShapeError;

/// What runtime functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model file.
    #[error(transparent)]
    File(#[from] trueup_formats::Error),
    /// The model's parts do not fit together.
    #[error("the model's graph cannot be built: {0}")]
    Shape(#[from] ShapeError),
    /// A request that cannot be served; says why and what to do.
    #[error("{0}")]
    Request(String),
    /// A device failed or lacks something; says which and why.
    #[error("device {device}: {problem}")]
    Device {
        /// The device's name.
        device: String,
        /// What happened.
        problem: String,
    },
    /// There is no memory for a batch, of which nothing was computed: a smaller one may find some.
    #[error(transparent)]
    NoRoom(Box<Error>),
}
