//! Plans graphs and executes them on devices: sessions, sampling, batching.
//!
//! ```text
//! path ─ ModelFile ─ weights on devices ─ Session: build (models) ─ Graph ─ Plan ─ execute ─ Logits ─ Sampler ─ ids
//!                                             └ Observer: sees any node
//! ```
//!
//! The activation type of a graph is a parameter: f32 for devices, f64 for the reference. So one graph builder, one
//! session and one plan serve both.

pub mod bench;
pub mod device;
mod devices;
mod error;
mod generate;
mod host_tensor;
mod model_file;
mod observer;
mod peak_memory;
pub mod plan;
pub mod profile;
#[allow(unsafe_code, reason = "calls into the vendor's library")]
mod ranges;
mod roof;
mod sampler;
mod session;
mod weights;
mod work;

pub use devices::{
    DeviceOptions, DeviceReport, KvDevice, Linear, device_kinds, is_device_name, list_devices, open_device,
    open_devices, open_fallback,
};
pub use error::{Error, Result};
pub use generate::{
    ContextShift, Finish, GenerateOptions, Generated, KeptLogits, RequestId, Requests, Runner, Watch, generate,
    generate_each, generate_watched,
};
pub use host_tensor::HostTensor;
pub use model_file::{MakeTensor, ModelFile};
pub use observer::{Observer, Seen};
pub use peak_memory::peak_memory_bytes;
pub use roof::{Operations, Roof};
pub use sampler::{Sampler, Sampling};
pub use session::{
    CAPACITY_UNIT, CONTEXT_DEFAULT, Entry, Logits, ROOM_FIRST, Session, SessionOptions, Snapshot, TokenPlace,
};
pub use weights::{HeldWeights, Weights};
pub use work::{Caches, Work};
