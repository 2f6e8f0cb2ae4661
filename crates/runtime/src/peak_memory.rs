//! How much memory this process has taken at most.

/// The largest resident size of this process so far in bytes, `VmHWM` of `/proc/self/status`; `None` where the system
/// does not say.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    peak_of(&status)
}

/// The field of the status; its unit `kB` is 1024 bytes (proc_pid_status(5)).
fn peak_of(status: &str) -> Option<u64> {
    let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    field.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_found_and_what_is_no_number_is_not_known() {
        assert_eq!(
            peak_of("Name:\ttrueup\nVmPeak:\t  99 kB\nVmHWM:\t    5188 kB\nVmRSS:\t 12 kB\n"),
            Some(5188 * 1024)
        );
        for status in ["", "VmHWM:", "VmHWM:\tmany kB", "VmHWM:\t12", "VmHWM:\t18446744073709551615 kB"] {
            assert_eq!(peak_of(status), None, "{status}");
        }
        assert_eq!(peak_memory_bytes().is_some(), cfg!(target_os = "linux"));
    }
}
