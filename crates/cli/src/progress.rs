//! A bar with rate and time left for work on bytes; nothing where nobody looks.

use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trueup::quantize::Progress;

/// A bar on stderr, hidden when stderr is no terminal or `--quiet` is given.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that says what is going on.
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

    /// The rate is that of the work that is done, so it begins behind what is taken over.
    fn taken_over(&self, bytes: u64) {
        self.0.inc(bytes);
        self.0.reset_eta();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
