//! A session: growing token sequences, their KV cache, and the logits of each token.
//!
//! ```text
//! tokens ─ placed (positions, rows, masks) ─ plan for that shape, cached or new ─ upload inputs ─ execute ─ Logits
//! ```
//!
//! One batch can contain tokens of several sequences with different lengths, without padding. Each token finds its
//! sequence in the KV cache by an index. A model with recurrent states computes batches of one sequence, or of one
//! token of each of several sequences. On a batch-invariant device, a batch gives the same bits as each sequence alone.
//! Long prompts are split into chunks, which changes no bit either. An encoder computes each text as a separate batch:
//! texts of one batch would need masks or padding, and their bits would depend on each other. Plans are made for cache
//! capacities in units of 64 positions; positions are inputs, so one plan serves many steps. In layers with a sliding
//! window, the cache is a ring buffer: it has rows for the window and [`SessionOptions::rewind`] positions more,
//! rounded up to that unit, and at most the rows of the context.

mod batch;
mod bound;
mod cache;
mod division;
mod encode;
mod held;
mod logits;
mod options;
mod rest;
mod state;

use crate::device::{Device, Step, Tensor};
use crate::error::{Error, Result};
use crate::host_tensor::HostTensor;
use crate::model_file::ModelFile;
use crate::observer::{Observer, Seen};
use crate::plan::Plan;
use crate::ranges::Ranges;
use crate::weights::Weights;
pub use batch::{CAPACITY_UNIT, Entry, TokenPlace};
use batch::{CacheRows, PlacedBatch, TextRules};
use bound::{BoundPiece, BoundPlan, Buffers};
pub use cache::ROOM_FIRST;
use cache::{Limits, NotGrown, room_of};
use division::Division;
pub use logits::Logits;
use options::Sizes;
pub(crate) use options::longer;
pub use options::{CONTEXT_DEFAULT, SessionOptions};
use rest::Start;
pub use state::Snapshot;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_models::Stage;

/// Maximum number of cached plans. Prompts have few shapes, and decoding has one for each number of sequences.
const PLANS_MAX: usize = 16;

/// Maximum bytes of inputs of cached plans, except the plan in use. Masks of long prompts are large and rarely have the
/// same size again.
const KEPT_INPUT_BYTES_MAX: usize = 16 << 20;

/// The shape of a batch, which a plan is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PlanKey {
    tokens: usize,
    outputs: usize,
    /// Positions of the KV cache that attention reads.
    capacity: usize,
    /// Sequences if the model has recurrent states and computes one token of each; else 1.
    streams: usize,
    /// Whether the texts have the long factors of LongRoPE.
    is_long: bool,
    stage: Stage,
}

/// Sequences in computation on one model.
pub struct Session {
    weights: Arc<Weights>,
    sizes: Sizes,
    /// Rows of the cache for each sequence.
    room: usize,
    /// The tokens that each sequence holds.
    tokens: Vec<Vec<u32>>,
    /// Tokens of the text that the encoder has read for each sequence; 0 if it has read none.
    sources: Vec<usize>,
    /// Number of tokens that the recurrent state of each sequence has processed. If it differs from the number that the
    /// sequence holds, the state is computed again from the start.
    seen: Vec<usize>,
    /// The first position of each sequence that rings still hold; rows of earlier positions were overwritten.
    /// `usize::MAX` if the rings hold none of its tokens.
    first: Vec<usize>,
    /// Whether the cache of each sequence was computed with the long factors of LongRoPE.
    is_long: Vec<bool>,
    /// The announced length of each sequence; see [`Session::expect_length`].
    expected: Vec<usize>,
    /// For prefix LMs: for each token of each sequence, the prefix that its text had when the token was computed.
    divisions: Vec<Vec<Division>>,
    buffers: Buffers,
    /// The most recently used last.
    plans: Vec<(PlanKey, BoundPlan)>,
    batches: usize,
    /// Buffer for downloaded results.
    downloaded: Vec<u8>,
    /// Names the nodes in profiler ranges (NVTX), if enabled.
    ranges: Option<Ranges>,
}

impl Session {
    /// Creates a session. Uploads the weights, and allocates the KV cache for [`ROOM_FIRST`] positions and the
    /// intermediate results of one token; returns an error if they do not fit. Both grow later, so [`Session::compute`]
    /// can also run out of memory.
    pub fn new(weights: Arc<Weights>, options: &SessionOptions) -> Result<Session> {
        let sizes = Sizes::new(&weights, options)?;
        let mut session = Session {
            weights,
            sizes,
            room: room_of(1, sizes.room),
            tokens: Vec::new(),
            sources: vec![0; sizes.sequences],
            seen: vec![0; sizes.sequences],
            first: vec![0; sizes.sequences],
            is_long: vec![false; sizes.sequences],
            expected: vec![0; sizes.sequences],
            divisions: Vec::new(),
            buffers: Buffers::default(),
            plans: Vec::new(),
            batches: 0,
            downloaded: Vec::new(),
            ranges: options.ranges.then(Ranges::open).transpose()?,
        };
        session.bound_plan(PlanKey {
            tokens: 1,
            outputs: 1,
            capacity: CAPACITY_UNIT,
            streams: 1,
            is_long: false,
            stage: sizes.decoder(1),
        })?;
        if sizes.has_encoder {
            session.bound_plan(Sizes::encoder(1))?;
        }
        session.tokens = vec![Vec::new(); sizes.sequences];
        session.divisions = vec![Vec::new(); sizes.sequences];
        session.weights.model().unchanged()?;
        Ok(session)
    }

    /// The plan for a batch of `tokens` tokens, of which `outputs` request logits, with sequences of up to `length`
    /// tokens. Nothing is allocated or uploaded. Returns an error if the session has no room for such a batch.
    pub fn plan(
        weights: &Weights,
        options: &SessionOptions,
        tokens: usize,
        outputs: usize,
        length: usize,
    ) -> Result<Plan> {
        let sizes = Sizes::new(weights, options)?;
        sizes.expect_batch(tokens, outputs, length)?;
        let (capacity, is_long) = (sizes.capacity(length), weights.model().model().spec().is_long(length));
        let key = PlanKey { tokens, outputs, capacity, streams: 1, is_long, stage: sizes.decoder(capacity) };
        sizes.plan(weights, key, room_of(capacity, sizes.room))
    }

    /// The plan of the encoder for a text of `tokens` tokens; `None` if the model has no encoder. Nothing is allocated
    /// or uploaded.
    ///
    /// # Errors
    /// As [`Session::plan`].
    pub fn encoder_plan(weights: &Weights, options: &SessionOptions, tokens: usize) -> Result<Option<Plan>> {
        let sizes = Sizes::new(weights, options)?;
        if !sizes.has_encoder {
            return Ok(None);
        }
        sizes.expect_batch(tokens, 1, tokens)?;
        let key = Sizes::encoder(tokens);
        sizes.plan(weights, key, room_of(key.capacity, sizes.room)).map(Some)
    }

    /// The model.
    pub fn model(&self) -> &Arc<ModelFile> {
        self.weights.model()
    }

    /// The model on its devices.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }

    /// Tokens that each sequence can hold.
    pub fn context(&self) -> usize {
        self.sizes.context
    }

    /// Maximum tokens per computation; longer batches are split.
    pub fn prompt_chunk(&self) -> usize {
        self.sizes.prompt_chunk
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens that a sequence holds.
    pub fn len(&self, sequence: usize) -> usize {
        self.tokens[sequence].len()
    }

    /// The tokens that a sequence holds.
    pub fn tokens(&self, sequence: usize) -> &[u32] {
        &self.tokens[sequence]
    }

    /// Whether a sequence holds no token.
    pub fn is_empty(&self, sequence: usize) -> bool {
        self.len(sequence) == 0
    }

    /// Batches computed so far.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Appends each token to its sequence, computes it, and returns the requested logits in the order of `entries`. An
    /// encoder computes the texts one by one and returns their rows text by text.
    ///
    /// # Errors
    /// Returns an error without computing anything if a token or sequence does not exist, or if a sequence would exceed
    /// the context. Returns [`Error::NoRoom`] if a plan or the cache does not fit into memory, and [`Error::Request`]
    /// if the logits do not. On error, sequences keep their earlier tokens, or become empty if their cache rows were
    /// lost.
    pub fn compute(&mut self, entries: &[Entry], observer: Option<&mut dyn Observer>) -> Result<Logits> {
        self.compute_rest(entries, None, observer)
    }

    /// Computes tokens, from a later layer on if `start` is given.
    fn compute_rest(
        &mut self,
        entries: &[Entry],
        start: Option<Start>,
        mut observer: Option<&mut dyn Observer>,
    ) -> Result<Logits> {
        self.check(entries)?;
        let mut logits = Logits { width: self.sizes.result_size, values: Vec::new() };
        let rows = entries.iter().filter(|entry| entry.wants_logits).count();
        let reserved = logits.values.try_reserve_exact(rows.saturating_mul(logits.width));
        reserved.map_err(|_| {
            Error::Request(format!(
                "not enough memory for the logits of {rows} tokens; request \
            fewer"
            ))
        })?;
        let long = self.long_after(entries);
        for (index, entry) in entries.iter().enumerate() {
            self.recompute(entry.sequence, long.get(index) == Some(&true))?;
        }
        let lengths: Vec<usize> = self.tokens.iter().map(Vec::len).collect();
        let texts = if self.model().model().spec().is_bidirectional() { texts(entries) } else { Vec::new() };
        let (mut done, width) = (0, self.model().model().spec().hidden_size());
        for chunk in self.chunks(entries, &texts) {
            let observer = observer.as_mut().map(|observer| &mut **observer as &mut dyn Observer);
            let start =
                start.map(|start| Start { stream: &start.stream[done * width..][..chunk.len() * width], ..start });
            done += chunk.len();
            if let Err(error) = self.compute_chunk(chunk, start, observer, &mut logits.values) {
                lengths.iter().enumerate().for_each(|(sequence, len)| self.cut(sequence, *len));
                return Err(error);
            }
        }
        Ok(logits)
    }

    /// Warms up: computes one token and discards it, so that code, memory and clock speed are in their steady state.
    pub fn warm_up(&mut self) -> Result<()> {
        let Some(sequence) = (0..self.sequences()).find(|sequence| self.len(*sequence) < self.context()) else {
            return Ok(());
        };
        let len = self.len(sequence);
        if self.sizes.has_encoder {
            if self.sources[sequence] > 0 {
                return Ok(());
            }
            self.encode(sequence, &[0], None)?;
        }
        self.compute(&[Entry { token: 0, sequence, wants_logits: true }], None)?;
        self.truncate(sequence, len);
        self.sources[sequence] = 0;
        Ok(())
    }

    /// Length of the next chunk. With recurrent states, a chunk has tokens of one sequence, or one token from each of
    /// several. With LongRoPE, a chunk does not mix texts that use long and short factors.
    fn chunk_len(&self, entries: &[Entry]) -> usize {
        let most = entries.len().min(self.sizes.prompt_chunk);
        let is_long = |entry: &Entry| self.is_long[entry.sequence];
        let Some(first) = entries.first().filter(|_| self.sizes.is_recurrent) else {
            return match self.sizes.original_context {
                Some(_) => entries.iter().take(most).take_while(|entry| is_long(entry) == is_long(&entries[0])).count(),
                None => most,
            };
        };
        let of_one = entries.iter().take(most).take_while(|entry| entry.sequence == first.sequence).count();
        if of_one > 1 {
            return of_one;
        }
        let mut known = vec![false; self.sequences()];
        let is_new = |entry: &&Entry| !std::mem::replace(&mut known[entry.sequence], true);
        entries.iter().take(most).take_while(is_new).count()
    }

    /// Splits the entries into chunks: `texts` if the model computes whole texts.
    fn chunks<'e>(&self, entries: &'e [Entry], texts: &'e [Vec<Entry>]) -> Vec<&'e [Entry]> {
        if !texts.is_empty() {
            return texts.iter().map(Vec::as_slice).collect();
        }
        let (mut chunks, mut rest) = (Vec::new(), entries);
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(self.chunk_len(rest));
            chunks.push(chunk);
            rest = after;
        }
        chunks
    }

    fn check(&self, entries: &[Entry]) -> Result<()> {
        let mut lengths: Vec<usize> = self.tokens.iter().map(Vec::len).collect();
        for entry in entries {
            self.model().expect_token(entry.token)?;
            self.expect_sequence(entry.sequence)?;
            let length = &mut lengths[entry.sequence];
            if self.sizes.has_encoder && self.sources[entry.sequence] == 0 {
                let sequence = entry.sequence;
                return Err(Error::Request(format!(
                    "sequence {sequence} has no encoder output; call `encode` before the decoder"
                )));
            }
            if self.model().model().spec().is_bidirectional() && !self.is_empty(entry.sequence) {
                let sequence = entry.sequence;
                return Err(Error::Request(format!(
                    "sequence {sequence} is not empty, and an encoder needs the whole text in one batch; truncate it to 0 \
                     tokens first"
                )));
            }
            *length += 1;
        }
        match lengths.iter().find(|length| **length > self.context()) {
            None => Ok(()),
            Some(length) => Err(Error::Request(format!(
                "{length} tokens exceed the context of {}; {}shorten the prompt",
                self.context(),
                longer(self.sizes.can_be_longer)
            ))),
        }
    }

    /// Computes a chunk and appends the requested logits to `logits`.
    fn compute_chunk(
        &mut self,
        entries: &[Entry],
        start: Option<Start>,
        observer: Option<&mut dyn Observer>,
        logits: &mut Vec<f64>,
    ) -> Result<()> {
        let mut batch = PlacedBatch::new(entries, &self.tokens, TextRules::of(self.model().model().spec()));
        if let Some(start) = start {
            batch.stage = Stage::Rest { first_layer: start.first_layer };
            batch.stream = start.stream.to_vec();
        }
        if self.sizes.has_encoder {
            batch.sources = entries.iter().map(|entry| self.sources[entry.sequence]).collect();
            batch.stage = self.sizes.decoder(batch.sources.iter().copied().max().unwrap_or(0));
        }
        let is_one = entries.iter().all(|entry| entry.sequence == entries[0].sequence);
        batch.streams = if self.sizes.is_recurrent && !is_one { entries.len() } else { 1 };
        let index = self.plan_of(&batch)?;
        let bound = &self.plans[index].1;
        let (devices, batches, ranges) = (self.weights.devices(), self.batches, self.ranges.as_ref());
        let run = Run { bound, devices, batch: &batch, batches, ranges };
        run.upload(self.rows())?;
        // A computation that fails may have changed states.
        for token in &batch.tokens {
            self.seen[token.sequence] = usize::MAX;
            let first = (token.position + 1).saturating_sub(self.sizes.ring);
            self.first[token.sequence] = self.first[token.sequence].max(first);
        }
        run.execute(observer)?;
        if entries.iter().any(|entry| entry.wants_logits) {
            run.add_logits(&mut self.downloaded, logits)?;
        }
        entries.iter().for_each(|entry| self.tokens[entry.sequence].push(entry.token));
        entries.iter().for_each(|entry| self.seen[entry.sequence] = self.tokens[entry.sequence].len());
        for (entry, division) in entries.iter().zip(&batch.divisions) {
            self.divisions[entry.sequence].push(*division);
        }
        self.batches += 1;
        Ok(())
    }

    /// Index of the plan for a batch. Converts device and request errors to [`Error::NoRoom`].
    fn plan_of(&mut self, batch: &PlacedBatch) -> Result<usize> {
        let key = PlanKey {
            tokens: batch.tokens.len(),
            outputs: batch.outputs.len(),
            capacity: self.sizes.capacity(batch.capacity),
            streams: batch.streams,
            is_long: batch.tokens.first().is_some_and(|token| self.is_long[token.sequence]),
            stage: batch.stage,
        };
        self.bound_plan(key).map_err(|error| match error {
            Error::Device { .. } | Error::Request(_) => Error::NoRoom(Box::new(error)),
            other => other,
        })
    }

    /// Index of the plan for a shape; builds the plan if it is not cached.
    fn bound_plan(&mut self, key: PlanKey) -> Result<usize> {
        if let Some(place) = self.plans.iter().position(|(known, _)| *known == key) {
            self.plans[place..].rotate_left(1);
            return Ok(self.plans.len() - 1);
        }
        let capacity = key.capacity.max(if let Stage::Decoder { source } = key.stage { source } else { 0 });
        if capacity > self.room {
            self.grow_cache(capacity)?;
        }
        let plan = Arc::new(self.sizes.plan(&self.weights, key, self.room)?);
        if !(self.buffers.hold(&plan) && self.weights.hold(&plan)) {
            // Their inputs are free for this one.
            self.plans.clear();
            let largest = || self.sizes.largest_plans(&self.weights);
            self.buffers.expect_room(&plan, &largest, &self.weights)?;
            self.buffers.grow(&plan, self.weights.devices())?;
        }
        self.forget_plans();
        let bound = match self.buffers.bind(&plan, &self.weights) {
            Err(_) if !self.plans.is_empty() => {
                self.plans.clear();
                self.buffers.bind(&plan, &self.weights)?
            }
            bound => bound?,
        };
        self.plans.push((key, bound));
        Ok(self.plans.len() - 1)
    }

    /// Evicts the least recently used plan if there are too many, and the plans with the largest inputs if the inputs
    /// take too much memory.
    fn forget_plans(&mut self) {
        if self.plans.len() == PLANS_MAX {
            self.plans.remove(0);
        }
        let bytes = |(_, bound): &(PlanKey, BoundPlan)| bound.input_bytes();
        while self.plans.iter().map(bytes).sum::<usize>() > KEPT_INPUT_BYTES_MAX {
            let Some((largest, _)) = self.plans.iter().enumerate().max_by_key(|(_, plan)| bytes(plan)) else { break };
            self.plans.remove(largest);
        }
    }

    /// The rows of the cache as they are now.
    fn rows(&self) -> CacheRows {
        CacheRows { room: self.room, ring: self.sizes.ring.min(self.room), window: self.sizes.window }
    }

    /// Grows the cache to hold sequences of `length` tokens.
    fn grow_cache(&mut self, length: usize) -> Result<()> {
        self.plans.clear();
        let limits = Limits { now: self.room, most: self.sizes.room, ring: self.sizes.ring };
        match self.buffers.grow_cache(length, limits, self.weights.devices()) {
            Ok(room) => self.room = room,
            Err(NotGrown { error, is_lost }) => {
                if is_lost {
                    (0..self.tokens.len()).for_each(|sequence| self.truncate(sequence, 0));
                    self.sources.fill(0);
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The entries of each sequence. A bidirectional text is computed in a separate batch, so its results do not depend on
/// other texts.
fn texts(entries: &[Entry]) -> Vec<Vec<Entry>> {
    let mut texts: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        match texts.iter_mut().find(|text| text[0].sequence == entry.sequence) {
            Some(text) => text.push(*entry),
            None => texts.push(vec![*entry]),
        }
    }
    texts
}

/// One batch on its way through a bound plan.
struct Run<'a> {
    bound: &'a BoundPlan,
    devices: &'a [Arc<dyn Device>],
    batch: &'a PlacedBatch,
    batches: usize,
    ranges: Option<&'a Ranges>,
}

impl Run<'_> {
    fn upload(&self, rows: CacheRows) -> Result<()> {
        for (input, device, tensor) in &self.bound.inputs {
            self.devices[*device].upload(&self.batch.input_bytes(*input, tensor.ty.dtype, rows), tensor)?;
        }
        Ok(())
    }

    fn execute(&self, mut observer: Option<&mut dyn Observer>) -> Result<()> {
        for piece in &self.bound.pieces {
            let device = &self.devices[piece.device];
            for copy in &piece.copies {
                device.copy(&copy.source, &*self.devices[copy.from], &copy.target)?;
            }
            match (observer.as_deref_mut(), self.ranges) {
                (None, None) => device.execute(&piece.steps)?,
                (None, Some(ranges)) => self.execute_named(piece, ranges)?,
                (Some(observer), _) => self.execute_observed(piece, observer)?,
            }
        }
        Ok(())
    }

    /// Step by step, each in a range with the name of its node.
    fn execute_named(&self, piece: &BoundPiece, ranges: &Ranges) -> Result<()> {
        let (device, nodes) = (&self.devices[piece.device], self.bound.plan.graph().nodes());
        let execute = |step: &Step| device.execute(std::slice::from_ref(step));
        piece.steps.iter().try_for_each(|step| ranges.within(&nodes[step.node].name, || execute(step)))
    }

    fn execute_observed(&self, piece: &BoundPiece, observer: &mut dyn Observer) -> Result<()> {
        let device = &*self.devices[piece.device];
        let graph = self.bound.plan.graph();
        let mut done = 0;
        for (index, step) in piece.steps.iter().enumerate() {
            if !observer.wants(&graph.nodes()[step.node]) {
                continue;
            }
            device.execute(&piece.steps[done..index])?;
            if observer.poisons() && !step.op.is_alias() {
                poison(device, &step.output)?;
            }
            device.execute(std::slice::from_ref(step))?;
            device.sync()?;
            observer.saw(&self.seen(step, device))?;
            done = index + 1;
        }
        device.execute(&piece.steps[done..])
    }

    fn seen<'a>(&'a self, step: &'a Step, device: &'a dyn Device) -> Seen<'a> {
        Seen {
            graph: self.bound.plan.graph(),
            node: step.node,
            batch: self.batches,
            planned: &self.bound.plan.nodes()[step.node],
            device,
            step,
            fused_of: self.bound.plan.fused_of(step.node),
            tokens: &self.batch.tokens,
        }
    }

    /// Appends the last node's output to `logits`; `bytes` is the download buffer.
    fn add_logits(&self, bytes: &mut Vec<u8>, logits: &mut Vec<f64>) -> Result<()> {
        let Some((device, step)) = self.bound.pieces.last().and_then(|piece| Some((piece.device, piece.steps.last()?)))
        else {
            return Err(Error::Request("the model's graph is empty".to_owned()));
        };
        let ty = step.output.ty;
        bytes.resize(ty.bytes(), 0);
        self.devices[device].download(&step.output, bytes)?;
        if ty.dtype == DType::F32 {
            logits.extend(bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))));
        } else {
            logits.extend(HostTensor::stored(ty, std::mem::take(bytes)).values().iter());
        }
        Ok(())
    }
}

/// Fills a tensor with NaN.
fn poison(device: &dyn Device, tensor: &Tensor) -> Result<()> {
    device.upload(&vec![0xFF; tensor.ty.bytes()], tensor)
}
