//! Signals: no half files behind, a sentence where the system would kill.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Set when a signal has come that ends the command.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Sets up what the command does on signals. Called once, before anything else.
pub fn prepare() {
    // A write beyond the file size limit then fails with an error, which is reported like any other.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).ok();
    #[cfg(target_os = "linux")]
    explain_bus_errors();
    let ignored = ignored_signals();
    let ends = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    if let Ok(mut signals) = Signals::new(ends) {
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                ENDING.store(true, Ordering::SeqCst);
                trueup::formats::AtomicFile::remove_all_live();
                low_level::emulate_default_handler(signal).ok();
            }
        });
    }
}

/// The signals that whoever started the command wants to be ignored, as `nohup` does: bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Returns unless a signal is ending the command: its failure then has no other cause, and nobody is told of it.
pub fn wait_for_end() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// A mapped model file that shrinks under us ends the run with a sentence and exit code 2, whichever thread reads it, and however many do.
///
/// The handler takes the place of the standard library's instead of standing behind it: that one gives the signal back to the system, which
/// kills the process when a second thread misses the same bytes before the first has said its sentence.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn explain_bus_errors() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    extern "C" fn explain(_signal: libc::c_int) {
        while IS_SAID.swap(true, Ordering::SeqCst) {
            // Another thread says it, and ends this one, too.
            // SAFETY: waits for a signal, and touches nothing.
            unsafe { libc::pause() };
        }
        let sentence = b"error: a mapped model file was cut short while it was used; start again with the whole file\n";
        rustix::io::write(rustix::stdio::stderr(), sentence).ok();
        low_level::exit(2);
    }
    // SAFETY: plain numbers, of which all zeros are an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = explain as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler takes one number, as without SA_SIGINFO, and makes no system calls but pause, write and _exit, which POSIX lists as
    // async-signal-safe.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}
