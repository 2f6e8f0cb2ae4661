//! Options of a session, and the sizes that follow from them for a model on its devices.

use super::PlanKey;
use super::batch::CAPACITY_UNIT;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::plan::{LayerHomes, Plan, fuse_for};
use crate::weights::Weights;
use trueup_blocks::DType;
use trueup_graph::fuse::Fused;
use trueup_graph::op::Gated;
use trueup_graph::{Op, TensorType};
use trueup_models::{Batch, Stage};

/// Default context, unless the model's is shorter.
pub const CONTEXT_DEFAULT: usize = 4096;

/// No tensor of a batch is larger: 256 TiB, more than a process can address.
const TENSOR_BYTES_MAX: u128 = 1 << 48;

/// The most rows of the KV cache that all sequences have together: kernels count them in 32 bits.
const ROWS_MAX: usize = i32::MAX as usize / CAPACITY_UNIT * CAPACITY_UNIT;

/// Options of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// Tokens that each sequence can hold; at most the model's context, unless the model has no limit
    /// ([`trueup_models::ModelSpec::context_max`]). `None`: the smaller of the model's context and 4096.
    pub context: Option<usize>,
    /// Number of sequences.
    pub sequences: usize,
    /// The type of the KV cache: f16, f32, or q8_0 if the head size is a multiple of 32. `None`: f64 if activations are
    /// f64, else f16.
    pub kv: Option<DType>,
    /// The type of activations. `None`: f64 on a device that computes in f64, else f32.
    pub activation: Option<DType>,
    /// Maximum tokens per computation. Longer batches are split, except texts of encoders and prompts of prefix LMs.
    pub prompt_chunk: usize,
    /// Positions that layers with a sliding window keep in addition to the window. A sequence can be truncated to
    /// `rewind` tokens below its longest length so far without being computed again. If the context exceeds the window
    /// plus `rewind`, prompts are computed in chunks of at most `rewind + 64` tokens.
    pub rewind: usize,
    /// Tokens of the longest text that the encoder of an encoder-decoder model will read, if known. Memory for its
    /// intermediate results is kept free when weights are placed. `None`: [`SessionOptions::prompt_chunk`] tokens; a
    /// longer text needs memory that is free when it is read.
    pub source: Option<usize>,
    /// Whether to fuse nodes if the main device supports the fused operator.
    pub fusion: bool,
    /// Whether to execute nodes one by one, each in an NVTX range with its name. Results do not change.
    pub ranges: bool,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            context: None,
            sequences: 1,
            kv: None,
            activation: None,
            prompt_chunk: 512,
            rewind: CONTEXT_DEFAULT,
            source: None,
            fusion: true,
            ranges: false,
        }
    }
}

/// The sizes of a session, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Tokens that a sequence can hold.
    pub context: usize,
    /// Maximum cache rows of each sequence: `context`, rounded up to the unit of plans; `ring` if every attention layer
    /// has a sliding window.
    pub room: usize,
    /// Maximum cache rows of each sequence in layers with a sliding window.
    pub ring: usize,
    /// The longest text with the short factors of LongRoPE; `None` without LongRoPE.
    pub original_context: Option<usize>,
    pub sequences: usize,
    pub kv: DType,
    pub activation: DType,
    pub prompt_chunk: usize,
    /// Tokens of the encoder's text that memory is kept free for.
    pub source: usize,
    /// Elements of a row of the result.
    pub result_size: usize,
    pub window: Option<usize>,
    pub fusion: bool,
    /// Whether the model has recurrent states.
    pub is_recurrent: bool,
    /// Whether the model has a KV cache. Without one, a graph does not depend on the length of the sequences.
    pub has_kv_cache: bool,
    /// Whether an encoder reads a text before the model writes.
    pub has_encoder: bool,
    /// Whether the model allows a longer context.
    pub can_be_longer: bool,
}

impl Sizes {
    pub fn new(weights: &Weights, options: &SessionOptions) -> Result<Sizes> {
        let spec = weights.model().model().spec();
        let context = options.context.unwrap_or(spec.context_length().min(CONTEXT_DEFAULT));
        let most = spec.context_max().min(ROWS_MAX);
        if context == 0 || context > most {
            let whose = if most == spec.context_max() { " (the model's context)" } else { "" };
            return Err(Error::Request(format!("expected a context of 1 to {most} tokens{whose}, found {context}")));
        }
        if options.sequences == 0 || options.prompt_chunk == 0 {
            return Err(Error::Request("a session needs at least one sequence and one token per batch".to_owned()));
        }
        let room = context.next_multiple_of(CAPACITY_UNIT);
        let rows = room.checked_mul(options.sequences).filter(|rows| *rows <= ROWS_MAX);
        if rows.is_none() {
            let sequences = options.sequences;
            return Err(Error::Request(format!(
                "{sequences} sequences of {room} tokens (the context, in steps of {CAPACITY_UNIT}) exceed {ROWS_MAX} \
                 tokens in total; reduce the context or the number of sequences"
            )));
        }
        let activation = options.activation.unwrap_or_else(|| activation_of(&*weights.devices()[0]));
        let kv = options.kv.unwrap_or(if activation == DType::F64 { DType::F64 } else { DType::F16 });
        if options.kv.is_some() && !spec.has_kv_cache() {
            return Err(Error::Request("--kv: the model has no KV cache; remove the option".to_owned()));
        }
        if spec.has_encoder() && weights.with_layers() > 1 {
            return Err(Error::Request(
                "an encoder-decoder model runs on one device, found several; name one of them".to_owned(),
            ));
        }
        spec.cached_head_sizes().try_for_each(|size| expect_heads_of_blocks(kv, size))?;
        let ring = spec
            .window()
            .map_or(room, |window| window.saturating_add(options.rewind).min(room).next_multiple_of(CAPACITY_UNIT));
        // A chunk is stored before attention reads it, so the ring must still hold the window of its first token.
        let chunk_max = spec.window().filter(|_| ring < room).map_or(usize::MAX, |window| ring - window + 1);
        Ok(Sizes {
            context,
            room: if spec.has_only_windows() { ring } else { room },
            ring,
            original_context: spec.original_context(),
            sequences: options.sequences,
            kv,
            activation,
            // A text that attends bidirectionally must fit into one batch.
            prompt_chunk: match spec.prefix() {
                Some(_) => room * options.sequences,
                None if spec.is_bidirectional() => room,
                None => options.prompt_chunk.min(chunk_max),
            },
            source: options.source.unwrap_or(options.prompt_chunk).clamp(1, context),
            result_size: spec.result_size(),
            window: spec.window(),
            fusion: options.fusion,
            is_recurrent: spec.is_recurrent(),
            has_kv_cache: spec.has_kv_cache(),
            has_encoder: spec.has_encoder(),
            can_be_longer: context < most,
        })
    }

    /// Cache rows in the plan for sequences of up to `length` tokens: one per position, rounded up to the unit of plans
    /// and at most `room`. Constant for models without a cache, so that plans are reused.
    pub fn capacity(&self, length: usize) -> usize {
        if self.has_kv_cache { length.max(1).next_multiple_of(CAPACITY_UNIT).min(self.room) } else { CAPACITY_UNIT }
    }

    /// Whether there is room for a batch of `tokens` tokens, `outputs` of them with logits, in sequences of up to
    /// `length` tokens.
    pub fn expect_batch(&self, tokens: usize, outputs: usize, length: usize) -> Result<()> {
        let Sizes { context, sequences, .. } = *self;
        if length > context {
            return Err(Error::Request(format!(
                "a sequence of {length} tokens exceeds the context of {context}; {}shorten the sequence",
                longer(self.can_be_longer)
            )));
        }
        if tokens == 0 || tokens > sequences * context {
            let most = sequences * context;
            return Err(Error::Request(format!(
                "expected a batch of 1 to {most} tokens ({sequences} sequences of {context} tokens), found {tokens}"
            )));
        }
        if outputs == 0 || outputs > tokens {
            return Err(Error::Request(format!("logits of {outputs} tokens were requested from a batch of {tokens}")));
        }
        Ok(())
    }

    /// Whether the sizes of all tensors can be counted: a model may claim any context.
    fn expect_countable(&self, weights: &Weights, key: PlanKey) -> Result<()> {
        let PlanKey { tokens, outputs, capacity, stage, .. } = key;
        let spec = weights.model().model().spec();
        let seen = match stage {
            Stage::Encoder => tokens,
            Stage::Decoder { .. } if spec.is_bidirectional() => tokens,
            Stage::Decoder { source } => capacity.max(source),
            Stage::Rest { .. } => capacity,
        };
        let (widest, heads_width) = (spec.widest_row(seen), spec.widest_cache_row());
        let cache_rows = self.room.saturating_mul(self.sequences);
        let sizes = [(widest, tokens), (self.result_size, outputs), (heads_width, cache_rows)];
        let bytes = |(width, rows): (usize, usize)| width as u128 * rows as u128 * size_of::<f64>() as u128;
        let largest = sizes.into_iter().map(bytes).max().unwrap_or(0);
        if largest <= TENSOR_BYTES_MAX {
            return Ok(());
        }
        Err(Error::Request(format!(
            "a batch of {tokens} tokens with {} sequences of {} tokens needs tensors of {largest} bytes, more \
                than any machine has; reduce the context (-c)",
            self.sequences, self.context
        )))
    }

    /// The plans of the largest batches that memory is kept free for: of the encoder, if there is one, and of the other
    /// stage. A batch that has no plan is never computed.
    pub fn largest_plans(&self, weights: &Weights) -> Vec<Plan> {
        let encoder = self.has_encoder.then(|| Sizes::encoder(self.source));
        let keys = encoder.into_iter().chain([self.largest()]);
        keys.filter_map(|key| self.plan(weights, key, self.room).ok()).collect()
    }

    /// The shape of the encoder's batch for a text of `tokens` tokens.
    pub fn encoder(tokens: usize) -> PlanKey {
        let capacity = tokens.next_multiple_of(CAPACITY_UNIT);
        PlanKey { tokens, outputs: 1, capacity, streams: 1, is_long: false, stage: Stage::Encoder }
    }

    /// The shape of the largest batch of the other stage that is computed at once.
    fn largest(&self) -> PlanKey {
        let tokens = self.prompt_chunk.min(self.sequences.saturating_mul(self.context));
        let stage = self.decoder(self.room);
        PlanKey { tokens, outputs: 1, capacity: self.room, streams: 1, is_long: false, stage }
    }

    /// The stage after the encoder, which has read texts of up to this many tokens.
    pub fn decoder(&self, source: usize) -> Stage {
        Stage::Decoder { source: if self.has_encoder { source.max(1).next_multiple_of(CAPACITY_UNIT) } else { 0 } }
    }

    /// The plan for a batch shape (tokens, outputs, capacity) and a cache with `room` rows per sequence. Layers are
    /// placed as if the cache held the whole context.
    pub fn plan(&self, weights: &Weights, key: PlanKey, room: usize) -> Result<Plan> {
        let devices: Vec<&dyn Device> = weights.devices().iter().map(|device| &**device).collect();
        let count = weights.with_layers();
        let homes = weights.layer_homes(|| {
            let largest = self.fused(weights, &devices, self.largest(), self.room)?;
            LayerHomes::fill(&largest.graph, &devices, count)
        })?;
        let fused = self.fused(weights, &devices, key, room)?;
        let plan = Plan::over(fused, &devices, count, &homes).map_err(|error| self.with_help(error, &devices))?;
        Ok(plan.with_cache_max(self.room, self.ring))
    }

    /// An error about nodes that no device computes, with what to do.
    fn with_help(&self, error: Error, devices: &[&dyn Device]) -> Error {
        let Error::Request(problem) = error else { return error };
        let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
        let help = match names.iter().any(|name| name == "cpu") {
            true => "use a type that the devices support".to_owned(),
            // A second device would take layers, which is refused.
            false if self.has_encoder => "use the device cpu".to_owned(),
            false => format!(
                "add cpu to the list of devices ({},cpu), or use a type that the device supports",
                names.join(",")
            ),
        };
        Error::Request(format!("{problem}; {help}"))
    }

    /// The graph of a batch shape, fused as it is computed on these devices.
    fn fused(&self, weights: &Weights, devices: &[&dyn Device], key: PlanKey, room: usize) -> Result<Fused> {
        let PlanKey { tokens, outputs, capacity, streams, is_long, stage } = key;
        self.expect_countable(weights, key)?;
        let batch = Batch {
            tokens,
            outputs,
            capacity,
            context: room,
            ring: self.ring.min(room),
            sequences: self.sequences,
            streams,
            is_long,
            stage,
            activation: self.activation,
            kv: self.kv,
        };
        let graph = weights.model().model().graph(&batch)?;
        Ok(if self.fusion { fuse_for(graph, devices, weights.with_layers()) } else { Fused::none(graph) })
    }
}

/// The first remedy for a text that exceeds the context, if the model allows a longer context.
pub(crate) fn longer(is_possible: bool) -> &'static str {
    if is_possible { "increase the context or " } else { "" }
}

/// Whether each head of a row of the cache is whole blocks of its type.
fn expect_heads_of_blocks(kv: DType, head_size: usize) -> Result<()> {
    let block_len = kv.block_len();
    if head_size.is_multiple_of(block_len) {
        return Ok(());
    }
    Err(Error::Request(format!(
        "KV cache type {kv}: expected a head size that is a multiple of {block_len}, found {head_size}; use f16 or f32"
    )))
}

/// f64 where the device computes in it, else f32.
fn activation_of(device: &dyn Device) -> DType {
    let ty = TensorType::new(DType::F64, &[1]);
    let op = Op::from(Gated::Swiglu);
    if device.supports(&op, &[ty, ty], &ty).is_ok() { DType::F64 } else { DType::F32 }
}
