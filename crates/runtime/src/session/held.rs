//! The tokens that sequences hold: which of them a new text can reuse, and which must be computed again.

use super::division::Division;
use super::{Entry, Session};
use crate::error::Result;

impl Session {
    /// Forgets the tokens of a sequence from number `len` on; 0 forgets all. Recurrent states cannot be rolled back,
    /// and layers with a sliding window only by [`SessionOptions::rewind`](super::SessionOptions::rewind) tokens from
    /// the longest length so far. Beyond that, the next computation of the sequence recomputes the remaining tokens.
    pub fn truncate(&mut self, sequence: usize, len: usize) {
        self.cut(sequence, len);
        self.expected[sequence] = 0;
    }

    /// As [`Session::truncate`], but keeps the announced length.
    pub(super) fn cut(&mut self, sequence: usize, len: usize) {
        self.tokens[sequence].truncate(len);
        self.divisions[sequence].truncate(len);
        if len == 0 {
            self.first[sequence] = 0;
        }
    }

    /// Announces, until the sequence is truncated, that it will have at least `len` tokens. With LongRoPE, all tokens
    /// of a long text have other factors than those of a short one, so the first tokens of a text that becomes long
    /// unannounced are computed again.
    pub fn expect_length(&mut self, sequence: usize, len: usize) {
        self.expected[sequence] = len;
    }

    /// Number of leading tokens of `text` that the sequence has already computed with the same result. At most
    /// `text.len() - 1`, because the logits of the last token are needed. 0 if the states cannot be rolled back that
    /// far (see [`Session::truncate`]). The prefix of a prefix LM is reused only as a whole, and a later token only if
    /// its positions and mask are unchanged.
    pub fn common(&self, sequence: usize, text: &[u32]) -> usize {
        let same = self.tokens(sequence).iter().zip(text).take_while(|(a, b)| a == b).count();
        let same = same.min(text.len().saturating_sub(1));
        if self.model().model().spec().is_bidirectional() {
            return 0;
        }
        if self.is_long[sequence] != self.becomes_long(text.len()) {
            return 0;
        }
        // A recurrent state can be reused only if the text continues all tokens that it has processed.
        if self.sizes.is_recurrent {
            return if same == self.len(sequence) && self.seen[sequence] == same { same } else { 0 };
        }
        if !self.has_window(sequence, same) {
            return 0;
        }
        let Some(prefix) = self.model().model().spec().prefix() else { return same };
        let division = Division::new(prefix, text.iter().copied());
        let alike = self.divisions[sequence][..same].iter().take_while(|held| **held == division).count();
        division.common(alike)
    }

    /// Whether rings hold all positions that a token at position `len` attends to.
    pub(super) fn has_window(&self, sequence: usize, len: usize) -> bool {
        let first = self.first[sequence];
        first == 0 || self.sizes.window.is_none_or(|window| first.saturating_add(window) <= len.saturating_add(1))
    }

    /// Recomputes the states of truncated sequences now where necessary, instead of in the next computation.
    pub fn catch_up(&mut self) -> Result<()> {
        let length = |session: &Session, sequence: usize| session.len(sequence).max(session.expected[sequence]);
        (0..self.sequences())
            .try_for_each(|sequence| self.recompute(sequence, self.becomes_long(length(self, sequence))))
    }

    /// Whether a text of `tokens` tokens has the long factors of LongRoPE.
    fn becomes_long(&self, tokens: usize) -> bool {
        self.sizes.original_context.is_some_and(|original| tokens > original)
    }

    /// For each entry, whether its sequence is long after all of them; nothing without LongRoPE.
    pub(super) fn long_after(&self, entries: &[Entry]) -> Vec<bool> {
        if self.sizes.original_context.is_none() {
            return Vec::new();
        }
        let mut lengths: Vec<usize> = self.tokens.iter().map(Vec::len).collect();
        entries.iter().for_each(|entry| lengths[entry.sequence] += 1);
        let is_long = |sequence: usize| self.becomes_long(lengths[sequence].max(self.expected[sequence]));
        entries.iter().map(|entry| is_long(entry.sequence)).collect()
    }

    /// Recomputes the tokens of a sequence if its recurrent state has processed other tokens, if its rings have lost
    /// positions that the next token needs, or if they were computed with other factors of LongRoPE.
    pub(super) fn recompute(&mut self, sequence: usize, is_long: bool) -> Result<()> {
        let len = self.len(sequence);
        let is_stale = self.sizes.is_recurrent && self.seen[sequence] != len || !self.has_window(sequence, len);
        if !is_stale && self.is_long[sequence] == is_long {
            return Ok(());
        }
        let (held, batches) = (std::mem::take(&mut self.tokens[sequence]), self.batches);
        let has_changed = std::mem::replace(&mut self.is_long[sequence], is_long) != is_long;
        (self.seen[sequence], self.first[sequence]) = (0, 0);
        let again = |token: &u32| Entry { token: *token, sequence, wants_logits: false };
        let again: Vec<Entry> = held.iter().map(again).collect();
        for chunk in again.chunks(self.sizes.prompt_chunk) {
            if let Err(error) = self.compute_chunk(chunk, None, None, &mut Vec::new()) {
                // Rows of rings are lost, and so are all rows if the factors have changed.
                self.first[sequence] = usize::MAX;
                self.tokens[sequence] = if has_changed { Vec::new() } else { held };
                self.divisions[sequence].truncate(self.tokens[sequence].len());
                self.seen[sequence] = usize::MAX;
                return Err(error);
            }
        }
        self.batches = batches;
        Ok(())
    }
}
