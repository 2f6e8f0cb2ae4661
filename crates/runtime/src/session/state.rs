//! Copies of what a sequence holds: to another sequence, and to the host and back.
//!
//! ```text
//! rows       [width, room, sequences]   keys and values of its tokens or of its encoder's text: row by row
//! ring       [width, ring, sequences]   the same for layers with a sliding window; position p is in row p % ring
//! recurrent  [elements, 1, slots]       slot sequence + 1; slot 0 stays zero
//! ```
//!
//! A cache with a row for each position allows copies of any prefix. A ring has lost the oldest positions, and a
//! recurrent state exists only for the last token: a copy that needs more is recomputed from its tokens.
//!
//! Rows are addressed in two places: `Input::KvRows` and `KvRowsWindow` (`batch.rs`) say where the row of a token is
//! written, and the operators that read a cache (`kv_scores`, `kv_mix`, `kv_attention`) begin at row `sequence * room`.
//! With a block table, sequences would share rows instead of copying them. A copy of 1000 tokens of SmolLM2 135M takes
//! a 155th of the time in which they are computed (`benches/prefix.rs`, two cores). A block table would replace
//! `Input::Sequences` by the blocks of each sequence, `KvRows` by rows of these blocks, growth (`cache.rs`) by further
//! blocks, and in the verifier both rules (`running.rs`, `cached.rs`).

use super::cache::{State, zeros};
use super::division::Division;
use super::{PlanKey, Session};
use crate::device::Tensor;
use crate::error::{Error, Result};
use crate::weights::Weights;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use trueup_formats::counted;
use trueup_graph::{StateKind, TensorType};

/// Further tokens that another sequence must hold before they are copied: fewer are computed as fast.
const SHARED_MIN: usize = 16;

/// What one sequence holds, on the host: its tokens and its states. It can be restored into any sequence of a session
/// on the same weights.
#[derive(Clone)]
pub struct Snapshot {
    weights: Weak<Weights>,
    facts: Facts,
    /// For each state, by its device and name, the part of the sequence.
    parts: HashMap<(usize, String), (TensorType, Vec<u8>)>,
}

/// What a session knows of a sequence in addition to its states.
#[derive(Clone, Debug)]
struct Facts {
    tokens: Vec<u32>,
    divisions: Vec<Division>,
    source: usize,
    is_long: bool,
    /// The first position that rings hold.
    first: usize,
}

impl Snapshot {
    /// The tokens of the sequence.
    pub fn tokens(&self) -> &[u32] {
        &self.facts.tokens
    }

    /// Bytes of its states.
    pub fn bytes(&self) -> usize {
        self.parts.values().map(|(_, bytes)| bytes.len()).sum()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("facts", &self.facts).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Session {
    /// Copies the first `len` tokens of sequence `from` and their states to sequence `to`, replacing its contents. Both
    /// then continue independently, and their results are bit-identical to computing all tokens in each. What the
    /// encoder has read is copied too. If the states cannot be rolled back to `len` tokens, the next computation of
    /// `to` recomputes them, as after [`Session::truncate`].
    ///
    /// # Errors
    /// A sequence does not exist; `from` holds fewer tokens; the model is an encoder, which keeps no states; or the
    /// device fails; `to` may be empty then.
    pub fn fork(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        self.expect_kept(from)?;
        self.expect_kept(to)?;
        let held = self.len(from);
        if len > held {
            return Err(Error::Request(format!(
                "sequence {from}: expected at least {len} tokens to copy, found {held}"
            )));
        }
        if from == to {
            self.truncate(to, len);
            return Ok(());
        }
        if len == held {
            self.recompute(from, self.is_long[from])?;
        }
        self.release(to);
        let facts = self.facts(from, len);
        let is_current = (!self.sizes.is_recurrent || self.seen[from] == len) && self.has_window(from, len);
        for ((device, _), state) in self.buffers.states.iter().filter(|_| is_current) {
            let device = &*self.weights.devices()[*device];
            if let Some((source, target)) = facts.part(state, from).zip(facts.part(state, to)) {
                device.copy(&source, device, &target)?;
            }
        }
        self.hold(to, facts, is_current);
        Ok(())
    }

    /// Copies what a sequence holds to the host. States that do not match the tokens are recomputed first.
    ///
    /// # Errors
    /// The sequence does not exist, the model is an encoder, there is too little memory, or the device fails.
    pub fn snapshot(&mut self, sequence: usize) -> Result<Snapshot> {
        self.expect_kept(sequence)?;
        self.recompute(sequence, self.is_long[sequence])?;
        let facts = self.facts(sequence, self.len(sequence));
        let mut parts = HashMap::new();
        for (key, state) in &self.buffers.states {
            let Some(part) = facts.part(state, sequence) else { continue };
            let device = &*self.weights.devices()[key.0];
            let mut bytes = zeros(part.ty.bytes(), device, "a snapshot; truncate the sequence first")?;
            device.download(&part, &mut bytes)?;
            parts.insert(key.clone(), (part.ty, bytes));
        }
        Ok(Snapshot { weights: Arc::downgrade(&self.weights), facts, parts })
    }

    /// Replaces the contents of a sequence with a snapshot of any sequence of any session on the same weights. Later
    /// results are bit-identical to computing these tokens in the sequence.
    ///
    /// # Errors
    /// The sequence does not exist; the snapshot is of other weights, exceeds the context, or has states of other types
    /// or rings of another length (see [`SessionOptions::rewind`](super::SessionOptions::rewind)); there is no room in
    /// the cache (see [`Session::compute`]); or the device fails, and the sequence is empty then.
    pub fn restore(&mut self, sequence: usize, snapshot: &Snapshot) -> Result<()> {
        self.expect_kept(sequence)?;
        let Snapshot { weights, facts, parts } = snapshot;
        if !std::ptr::eq(weights.as_ptr(), Arc::as_ptr(&self.weights)) {
            let problem =
                "the snapshot was taken with other weights; restore it into a session that uses the same weights";
            return Err(Error::Request(problem.to_owned()));
        }
        let (rows, context) = (facts.rows(), self.context());
        if rows > context {
            let rows = counted(rows, "token");
            return Err(Error::Request(format!("the snapshot of {rows} exceeds the context of {context}")));
        }
        // A ring that has wrapped is restored as a whole.
        let positions = if facts.first > 0 { rows.max(self.sizes.ring) } else { rows.max(1) };
        let (capacity, stage) = (self.sizes.capacity(positions), self.sizes.decoder(facts.source));
        // Makes room in the cache; the plan is that of the next token.
        self.bound_plan(PlanKey { tokens: 1, outputs: 1, capacity, streams: 1, is_long: facts.is_long, stage })?;
        let mut targets = Vec::with_capacity(parts.len());
        for (key, state) in &self.buffers.states {
            let Some(part) = facts.part(state, sequence) else { continue };
            let Some((_, bytes)) = parts.get(key).filter(|(ty, _)| *ty == part.ty) else {
                let (name, ty) = (&key.1, part.ty);
                return Err(Error::Request(format!(
                    "the snapshot has no state {name} of type {ty}; take it in a session with the same KV cache type, \
                     activation type and context, and the same `rewind`"
                )));
            };
            targets.push((key.0, part, bytes));
        }
        self.release(sequence);
        for (device, part, bytes) in targets {
            self.weights.devices()[device].upload(bytes, &part)?;
        }
        self.hold(sequence, facts.clone(), true);
        Ok(())
    }

    /// Sets a sequence to the longest prefix of a text that it or another sequence has already computed as it would be
    /// for this text (see [`Session::common`]). Returns the length of the prefix.
    ///
    /// # Errors
    /// As [`Session::fork`].
    pub fn reuse(&mut self, sequence: usize, text: &[u32]) -> Result<usize> {
        let own = self.common(sequence, text);
        // What a decoder has computed depends on the text of its encoder.
        let others = (0..self.sequences()).filter(|other| *other != sequence && !self.sizes.has_encoder);
        let longest = others.map(|other| (self.common(other, text), other)).max_by_key(|(common, _)| *common);
        match longest.filter(|(common, _)| *common >= own + SHARED_MIN) {
            Some((common, other)) => {
                self.fork(other, sequence, common)?;
                Ok(common)
            }
            None => {
                self.truncate(sequence, own);
                Ok(own)
            }
        }
    }

    /// Fails unless the sequence exists and its model keeps states.
    fn expect_kept(&self, sequence: usize) -> Result<()> {
        self.expect_sequence(sequence)?;
        if self.model().model().spec().is_bidirectional() {
            let problem = "an encoder keeps no states that could be copied; compute the text again";
            return Err(Error::Request(problem.to_owned()));
        }
        Ok(())
    }

    /// Fails unless the sequence exists.
    pub(super) fn expect_sequence(&self, sequence: usize) -> Result<()> {
        let count = self.sequences();
        if sequence < count {
            return Ok(());
        }
        let has = counted(count, "sequence");
        Err(Error::Request(format!("sequence {sequence} does not exist; the session has {has}, numbered from 0")))
    }

    /// Forgets all that a sequence holds, and the text of its encoder.
    fn release(&mut self, sequence: usize) {
        self.truncate(sequence, 0);
        self.sources[sequence] = 0;
        self.seen[sequence] = usize::MAX;
    }

    fn facts(&self, sequence: usize, len: usize) -> Facts {
        let divisions = &self.divisions[sequence];
        Facts {
            tokens: self.tokens[sequence][..len].to_vec(),
            divisions: divisions[..len.min(divisions.len())].to_vec(),
            source: self.sources[sequence],
            is_long: self.is_long[sequence],
            first: self.first[sequence],
        }
    }

    /// Notes what a sequence holds from now on, and whether its states are those of these tokens.
    fn hold(&mut self, sequence: usize, facts: Facts, is_current: bool) {
        self.seen[sequence] = if is_current { facts.tokens.len() } else { usize::MAX };
        self.first[sequence] = if is_current { facts.first } else { usize::MAX };
        self.tokens[sequence] = facts.tokens;
        self.divisions[sequence] = facts.divisions;
        self.sources[sequence] = facts.source;
        self.is_long[sequence] = facts.is_long;
    }
}

impl Facts {
    /// Rows of a cache that the sequence has written: for its tokens, or for its encoder's text.
    fn rows(&self) -> usize {
        self.tokens.len().max(self.source)
    }

    /// The part of a state that belongs to a sequence: its first rows, all rows of a ring that has wrapped, or its
    /// slot; `None` if the sequence has written nothing.
    fn part(&self, state: &State, sequence: usize) -> Option<Tensor> {
        let State { kind, tensor } = state;
        let [width, room, ..] = tensor.ty.shape.sizes();
        let (first, rows) = match kind {
            StateKind::Ring if self.first > 0 => (sequence * room, room),
            StateKind::Rows | StateKind::Ring => (sequence * room, self.rows()),
            StateKind::Recurrent => (sequence + 1, 1),
        };
        let ty = TensorType::new(tensor.ty.dtype, &[width, rows]);
        let offset_bytes = first * TensorType::new(tensor.ty.dtype, &[width]).bytes();
        (self.rows() > 0).then(|| Tensor { buffer: tensor.buffer.clone(), offset_bytes, ty })
    }
}
