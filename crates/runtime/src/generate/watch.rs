//! Who looks on while texts are generated, and may end them.

use std::ops::ControlFlow;

/// Sees tokens as they come and ends what nobody waits for any more: what a server knows of its clients.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use trueup_runtime::Watch;
///
/// /// One flag for each prompt, which other threads set.
/// struct Clients<'a>(&'a [AtomicBool]);
///
/// impl Watch for Clients<'_> {
///     fn is_cancelled(&mut self, prompt: usize) -> bool {
///         self.0[prompt].load(Ordering::Relaxed)
///     }
///
///     fn saw_token(&mut self, _prompt: usize, _id: u32) -> ControlFlow<()> {
///         ControlFlow::Continue(())
///     }
/// }
/// ```
pub trait Watch {
    /// Whether a prompt's text is no longer wanted. Asked before each batch, which holds a token of it or a piece of
    /// its prompt ([`SessionOptions::prompt_chunk`](crate::SessionOptions::prompt_chunk) tokens), so it takes effect
    /// within one of them. What was said until then is the result.
    fn is_cancelled(&mut self, _prompt: usize) -> bool {
        false
    }

    /// Sees a token with the number of its prompt as soon as it is chosen, and can end that text.
    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()>;

    /// Hears that a text has ended, or failed, or was cancelled: nothing more is said of it.
    fn ended(&mut self, _prompt: usize) {}
}

/// Someone who sees tokens and cancels nothing before.
pub(super) struct Tokens<'a>(pub &'a mut dyn FnMut(usize, u32) -> ControlFlow<()>);

impl Watch for Tokens<'_> {
    fn saw_token(&mut self, prompt: usize, id: u32) -> ControlFlow<()> {
        (self.0)(prompt, id)
    }
}
