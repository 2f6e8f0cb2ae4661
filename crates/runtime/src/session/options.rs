//! What a session is asked for, and the sizes that follow for a model on its devices.

use super::PlanKey;
use super::batch::CAPACITY_UNIT;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::weights::Weights;
use trueup_blocks::DType;
use trueup_graph::op::Swiglu;
use trueup_graph::{Op, TensorType};
use trueup_models::Batch;

/// The context of a session that asks for none, unless the model's is shorter.
const CONTEXT_DEFAULT: usize = 4096;

/// What a session is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// Tokens that each sequence can hold; at most the model's context. `None`: the model's, or 4096 where that is less.
    pub context: Option<usize>,
    /// How many sequences there are room for.
    pub sequences: usize,
    /// The type of the KV cache. `None`: f64 where activations are f64, else f16.
    pub kv: Option<DType>,
    /// The type of activations. `None`: f64 on a device that computes in f64, else f32.
    pub activation: Option<DType>,
    /// Tokens computed at once; longer batches are cut.
    pub prompt_chunk: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { context: None, sequences: 1, kv: None, activation: None, prompt_chunk: 512 }
    }
}

/// The sizes of a session, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Tokens that a sequence can hold.
    pub context: usize,
    /// Rows of the cache for each sequence: `context`, rounded up to the unit of plans.
    pub room: usize,
    pub sequences: usize,
    pub kv: DType,
    pub activation: DType,
    pub prompt_chunk: usize,
    pub vocabulary: usize,
    pub window: Option<usize>,
}

impl Sizes {
    pub fn new(weights: &Weights, options: &SessionOptions) -> Result<Sizes> {
        let hyper = weights.model().model().hyper();
        let context = options.context.unwrap_or(hyper.context().min(CONTEXT_DEFAULT));
        if context == 0 || context > hyper.context() {
            let most = hyper.context();
            return Err(Error::Request(format!(
                "a context of {context} tokens must lie between 1 and the model's {most}"
            )));
        }
        if options.sequences == 0 || options.prompt_chunk == 0 {
            return Err(Error::Request(
                "a session needs room for at least one sequence and one token at once".to_owned(),
            ));
        }
        let room = context.next_multiple_of(CAPACITY_UNIT);
        let rows = room.checked_mul(options.sequences).filter(|rows| i32::try_from(*rows).is_ok());
        if rows.is_none() {
            let (sequences, most) = (options.sequences, i32::MAX);
            return Err(Error::Request(format!(
                "{sequences} sequences of {context} tokens are more than {most} tokens in all"
            )));
        }
        let activation = options.activation.unwrap_or_else(|| activation_of(&*weights.devices()[0]));
        let kv = options.kv.unwrap_or(if activation == DType::F64 { DType::F64 } else { DType::F16 });
        Ok(Sizes {
            context,
            room,
            sequences: options.sequences,
            kv,
            activation,
            prompt_chunk: options.prompt_chunk,
            vocabulary: hyper.vocabulary(),
            window: hyper.window().map(|window| window.size()),
        })
    }

    /// The plan of a batch shape: tokens, outputs, capacity.
    pub fn plan(&self, weights: &Weights, (tokens, outputs, capacity): PlanKey) -> Result<Plan> {
        let batch = Batch {
            tokens,
            outputs,
            capacity,
            context: self.room,
            sequences: self.sequences,
            activation: self.activation,
            kv: self.kv,
        };
        let graph = weights.model().model().graph(&batch)?;
        let devices: Vec<&dyn Device> = weights.devices().iter().map(|device| &**device).collect();
        Plan::new(graph, &devices)
    }
}

/// f64 where the device computes in it, else f32.
fn activation_of(device: &dyn Device) -> DType {
    let ty = TensorType::new(DType::F64, &[1]);
    let op = Op::from(Swiglu);
    if device.supports(&op, &[ty, ty], &ty).is_ok() { DType::F64 } else { DType::F32 }
}
