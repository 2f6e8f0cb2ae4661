//! Context shift: when a sequence is full, its start stays, the older half of the rest is dropped, and the remainder
//! is recomputed.
//!
//! ```text
//! full       a b c d e f g h         context 8, keep 2
//! remains    a b       f g h         half of the other six is dropped
//! computed       f g h x             after a b, at positions 2 3 4 5; x is the token that did not fit
//! ```
//!
//! After a shift, the results are bit for bit those of a fresh sequence of the remaining tokens. Moving the cached
//! keys would be cheaper, but would give other numbers, because the keys were computed while the dropped tokens were
//! visible. In a prefix language model, this holds for the kept tokens too, so they are recomputed as well. All kept
//! tokens are also recomputed if a ring has lost the last of them.

use crate::error::{Error, Result};
use crate::model_file::ModelFile;
use crate::session::Session;
use trueup_formats::counted;

/// The least room behind the tokens that stay: one to drop, one to go on with.
const ROOM_MIN: usize = 2;

/// How a full sequence goes on. A shift computes the remaining tokens again: half a context of prompt for each half of
/// new tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextShift {
    /// So many tokens at the beginning of each prompt stay, and a bos before them; of a shorter prompt all. `None`: the
    /// whole prompt.
    pub keep: Option<usize>,
}

impl ContextShift {
    /// How many tokens of a prompt stay. Fails where they leave no room in the context.
    pub(super) fn kept(&self, model: &ModelFile, context: usize, number: usize, prompt: &[u32]) -> Result<usize> {
        let Some(most) = context.checked_sub(ROOM_MIN) else {
            let problem = format!(
                "prompt {number}: a context of {context} cannot shift; shifting needs at least {ROOM_MIN} tokens"
            );
            return Err(Error::Request(format!("{problem}; increase the context")));
        };
        let bos = model.tokenizer().ok().and_then(|tokenizer| tokenizer.vocabulary().special().bos);
        let before = usize::from(bos.is_some() && prompt.first().copied() == bos);
        let kept = self.keep.map_or(prompt.len(), |keep| keep.saturating_add(before).min(prompt.len()));
        if kept <= most {
            return Ok(kept);
        }
        let can_be_longer = context < model.model().spec().context_max();
        let longer = if can_be_longer { ", or increase the context" } else { "" };
        let help = match most.checked_sub(before).filter(|keep| *keep > 0) {
            Some(keep) if before == 0 => format!("keep at most {keep}{longer}"),
            Some(keep) => format!("keep at most {keep} in addition to the BOS token{longer}"),
            None if can_be_longer => "increase the context".to_owned(),
            None => "do not shift the context".to_owned(),
        };
        Err(Error::Request(format!(
            "prompt {number}: the first {} are kept when the context shifts and leave no space in a context of \
                {context}; {help}",
            counted(kept, "token")
        )))
    }
}

/// Shortens a full sequence that goes on with `next` to what stays as it is, and gives the tokens that are to be
/// computed behind that.
pub(super) fn shift(session: &mut Session, sequence: usize, kept: usize, next: u32) -> Vec<u32> {
    let held = session.tokens(sequence);
    let dropped = (held.len() - kept) / 2;
    let mut text = [&held[..kept], &held[kept + dropped..]].concat();
    text.push(next);
    // In a prefix language model, the kept tokens attended to dropped ones. Rings may have lost the kept tokens.
    let common = session.common(sequence, &text).min(kept);
    session.truncate(sequence, common);
    session.expect_length(sequence, text.len());
    text.split_off(common)
}
