//! Signals: no half files behind, a sentence where the system would kill.

use signal_hook::consts::{SIGBUS, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

/// Sets up what the command does on signals. Called once, before anything else.
pub fn prepare() {
    // A write beyond the file size limit then fails with an error, which is reported like any other.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).ok();
    explain_bus_errors();
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                trueup::formats::AtomicFile::remove_all_live();
                low_level::emulate_default_handler(signal).ok();
            }
        });
    }
}

/// A mapped model file that shrinks under us ends the run with a sentence and exit code 2.
#[allow(unsafe_code)]
fn explain_bus_errors() {
    let explain = || {
        let sentence = b"error: a mapped model file was cut short while it was used; start again with the whole file\n";
        rustix::io::write(rustix::stdio::stderr(), sentence).ok();
        low_level::exit(2);
    };
    // SAFETY: the handler only makes two system calls that POSIX lists as async-signal-safe, write and _exit.
    unsafe { low_level::register(SIGBUS, explain) }.ok();
}
