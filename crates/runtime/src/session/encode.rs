//! The encoder's part of a session: it reads a text, and stores keys and values that the decoder attends to.

use super::batch::{Entry, PlacedBatch, TextRules};
use super::bound::Buffers;
use super::{Logits, Run, Session, longer};
use crate::error::{Error, Result};
use crate::observer::Observer;
use std::collections::HashMap;
use trueup_models::Stage;

impl Session {
    /// Computes a whole text in sequence 0, empties the sequence, and returns the rows of all tokens or the one row of
    /// the text.
    ///
    /// # Errors
    /// As [`Session::compute`], and for a text without tokens.
    pub fn compute_text(&mut self, ids: &[u32]) -> Result<Logits> {
        if ids.is_empty() {
            return Err(Error::Request("expected at least one token, found an empty text".to_owned()));
        }
        self.truncate(0, 0);
        let entries: Vec<Entry> = ids.iter().map(|id| Entry { token: *id, sequence: 0, wants_logits: true }).collect();
        let rows = self.compute(&entries, None);
        self.truncate(0, 0);
        rows
    }

    /// Runs the encoder on a text. Later tokens of the sequence attend to it. The sequence is empty afterwards.
    ///
    /// # Errors
    /// The model has no encoder; the text is empty, longer than the context or has unknown tokens; or as
    /// [`Session::compute`].
    pub fn encode(&mut self, sequence: usize, ids: &[u32], observer: Option<&mut dyn Observer>) -> Result<()> {
        let most = self.context();
        if !self.sizes.has_encoder {
            return Err(Error::Request("this model has no encoder".to_owned()));
        }
        self.expect_sequence(sequence)?;
        if ids.is_empty() {
            return Err(Error::Request("expected at least one token, found an empty text".to_owned()));
        }
        if ids.len() > most {
            let (found, longer) = (ids.len(), longer(self.sizes.can_be_longer));
            return Err(Error::Request(format!(
                "{found} tokens exceed the context of {most}; {longer}shorten the text"
            )));
        }
        ids.iter().try_for_each(|id| self.model().expect_token(*id))?;
        self.truncate(sequence, 0);
        self.sources[sequence] = 0;
        let entries: Vec<Entry> = ids.iter().map(|id| Entry { token: *id, sequence, wants_logits: false }).collect();
        let mut batch = PlacedBatch::new(&entries, &self.tokens, TextRules::of(self.model().model().spec()));
        batch.stage = Stage::Encoder;
        let index = self.plan_of(&batch)?;
        self.buffers.expect_one_home()?;
        let bound = &self.plans[index].1;
        let (devices, batches, ranges) = (self.weights.devices(), self.batches, self.ranges.as_ref());
        let run = Run { bound, devices, batch: &batch, batches, ranges };
        run.upload(self.rows())?;
        run.execute(observer)?;
        self.sources[sequence] = ids.len();
        self.batches += 1;
        Ok(())
    }
}

impl Buffers {
    /// Returns an error if a state is stored on two devices: one graph would not find what the other stored.
    fn expect_one_home(&self) -> Result<()> {
        let mut homes: HashMap<&str, usize> = HashMap::new();
        for (device, name) in self.states.keys() {
            if *homes.entry(name).or_insert(*device) != *device {
                return Err(Error::Request(format!(
                    "the state {name} would be stored on two devices, because the device does not support all \
                     operators that use it; use a device that supports the model, such as cpu"
                )));
            }
        }
        Ok(())
    }
}
