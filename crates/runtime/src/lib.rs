//! Plans graphs and computes them on devices: sessions, sampling, requests.
//!
//! ```text
//! build (models) -> Graph -> plan: places, memory by liveness -> Plan -> execute on devices -> logits -> sampler -> ids
//! ```

pub mod device;
mod error;
mod host_tensor;
pub mod profile;

pub use error::{Error, Result};
pub use host_tensor::HostTensor;
