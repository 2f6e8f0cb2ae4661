//! What the operating system says about the processor and its memory.

use super::{control_group, limits};
use std::fs;
use std::sync::OnceLock;

/// The processor's name, or its architecture where the system does not say.
pub(super) fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        field(&text, "model name").unwrap_or(std::env::consts::ARCH).to_owned()
    })
}

/// Bytes of memory, all and free, where the system says: the machine's, or what this process may have of it.
pub(super) fn memory() -> Option<(u64, u64)> {
    Some(least(system_memory()?, limits::memory()))
}

/// Bytes of memory, all and free, that the system has for what files hold: limits of the process do not count it.
pub fn system_memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(least((kilobytes(&text, "MemTotal")?, kilobytes(&text, "MemAvailable")?), control_group::memory()))
}

fn least((all, free): (u64, u64), limited: Option<(u64, u64)>) -> (u64, u64) {
    limited.map_or((all, free), |(limit, left)| (all.min(limit), free.min(left)))
}

/// The bytes of a field in kB, which are 1024 bytes each.
pub(super) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The value behind `name` and a colon, in lines such as `MemTotal:   8056584 kB`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The value behind `name` and a space, in lines such as `active_file 4096`.
pub(super) fn field_in_words<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(key, value)| (key, value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_found_between_tabs_and_spaces() {
        let text = "processor\t: 0\nmodel name\t: A Processor @ 2.50GHz\nMemTotal:        8056584 kB\n";
        assert_eq!(field(text, "model name"), Some("A Processor @ 2.50GHz"));
        assert_eq!(field(text, "MemTotal"), Some("8056584 kB"));
        assert_eq!(field(text, "MemFree"), None);
    }
}
