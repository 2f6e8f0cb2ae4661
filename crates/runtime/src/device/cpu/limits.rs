//! What the limits of this process leave it of the machine's memory (getrlimit(2), `ulimit -d` and `ulimit -v` of a
//! shell).
//!
//! ```text
//!  /proc/self/limits   Max data size       3221225472   unlimited   bytes     private memory that can be written: VmData of /proc/self/status
//!                      Max address space   unlimited    unlimited   bytes     everything that is mapped, files too: VmSize
//! ```
//!
//! Memory counts towards these limits when it is asked for, whether it is used or not. Tensors share chunks whose ends
//! stay empty (pages.rs), and threads have stacks: a part is left for them.

use super::processor::kilobytes;
use std::fs;

/// A limit's name, and the field that counts towards it.
const LIMITS: [(&str, &str); 2] = [("Max data size", "VmData"), ("Max address space", "VmSize")];

/// The part that is left for memory that is never used: one in so many bytes.
const UNUSED_SHARE: u64 = 8;

/// Bytes of the limit that leaves least, all and free; `None` where there is none.
pub(super) fn memory() -> Option<(u64, u64)> {
    let text = |file| fs::read_to_string(file).ok();
    memory_of(&text("/proc/self/limits")?, &text("/proc/self/status")?)
}

fn memory_of(limits: &str, status: &str) -> Option<(u64, u64)> {
    let of = |(name, used): (&str, &str)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let limit = line.split_whitespace().next()?.parse::<u64>().ok()?;
        let left = limit.saturating_sub(kilobytes(status, used)?);
        Some((limit, left - left / UNUSED_SHARE))
    };
    LIMITS.into_iter().filter_map(of).min_by_key(|(_, free)| *free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_counts() {
        let limits = |data: &str, space: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\nMax data size             {data}            unlimited            \
                 bytes\nMax address space         {space}            unlimited            bytes\n"
            )
        };
        let status = "Name:\ttrueup\nVmSize:\t    5000 kB\nVmData:\t     100 kB\n";
        let cases = [
            ("unlimited", "unlimited", None),
            ("1000000", "unlimited", Some((1_000_000, (1_000_000 - 102_400) / 8 * 7))),
            ("9000000", "8000000", Some((8_000_000, (8_000_000 - 5_120_000) / 8 * 7))),
            ("1000", "unlimited", Some((1000, 0))),
            ("-1", "x", None),
        ];
        for (data, space, expected) in cases {
            assert_eq!(memory_of(&limits(data, space), status), expected, "{data} {space}");
        }
        assert_eq!(memory_of("", status), None);
        assert_eq!(memory_of(&limits("1000", "1000"), ""), None);
    }
}
