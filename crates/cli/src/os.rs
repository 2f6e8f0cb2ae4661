//! Signal handling: removes incomplete files, and reports an error instead of being killed.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Set when a signal that ends the command was received.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Installs the signal handlers. Called once, before anything else.
pub fn prepare() {
    // A write beyond the file size limit then fails with an I/O error instead of killing the process.
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

/// The signals that the parent process set to be ignored, as `nohup` does. Bit 0 is signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Blocks if a signal is ending the command, so that the failure caused by the signal is not reported.
pub fn wait_for_end() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Reports an error and exits with code 2 if a mapped model file is truncated while threads read it.
///
/// The handler replaces the one of the standard library instead of being chained after it: that handler returns the
/// signal to the system, which kills the process if a second thread faults before the first has printed the error.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn explain_bus_errors() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    extern "C" fn explain(_signal: libc::c_int) {
        while REPORTED.swap(true, Ordering::SeqCst) {
            // Another thread reports the error and ends the process.
            // SAFETY: waits for a signal, and accesses no memory.
            unsafe { libc::pause() };
        }
        let sentence =
            b"error: a model file was truncated while it was in use; restore the file and run the command again\n";
        rustix::io::write(rustix::stdio::stderr(), sentence).ok();
        low_level::exit(2);
    }
    // SAFETY: a struct of plain numbers; all zeros is an action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = explain as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler takes one number, as required without SA_SIGINFO, and its only system calls are pause, write
    // and _exit, which POSIX lists as async-signal-safe.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}
