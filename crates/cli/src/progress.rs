//! Progress bars with the remaining time: for work that is counted in bytes, and in chunks of a text.

use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trueup::quantize::Progress;

/// A progress bar on stderr. Hidden if stderr is not a terminal or `--quiet` is given.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar labelled `what`.
    pub fn new(what: &'static str) -> Bar {
        let target = if output::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Bar(bar)
    }
}

impl Progress for Bar {
    fn start(&self, total_bytes: u64) {
        self.0.set_length(total_bytes);
        self.0.set_position(0);
    }

    fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Bytes from an earlier run do not count towards the rate, so the rate restarts after them.
    fn reused(&self, bytes: u64) {
        self.0.inc(bytes);
        self.0.reset_eta();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar that counts chunks of a text. Hidden like [`Bar`].
pub fn chunk_bar(what: &'static str, chunks: usize) -> ProgressBar {
    let target = if output::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(chunks as u64), target);
    let template = "{msg} [{bar:30}] {pos}/{len} chunks {eta}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}

/// A bar that counts groups of tensors. Hidden like [`Bar`].
pub fn group_bar(groups: usize) -> ProgressBar {
    let target = if output::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(groups as u64), target);
    let template = "{msg} [{bar:30}] {pos}/{len} groups {eta}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
