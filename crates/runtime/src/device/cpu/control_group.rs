//! What the control groups that this process belongs to leave it of the machine's memory (cgroups(7)).
//!
//! ```text
//!  /proc/self/cgroup   0::/user.slice/a.scope      version 2: memory.max, memory.current
//!                      4:memory:/docker/0123       version 1: memory/ memory.limit_in_bytes, memory.usage_in_bytes
//! ```
//!
//! A group's usage counts pages of files, which the system takes back when memory is short; `memory.stat` says how
//! many. The limits of all groups above hold, too.

use super::processor::field_in_words;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of one version's files, in each group's folder.
struct Version {
    /// Where its groups are mounted, below the root of all.
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Bytes of files' pages, in `memory.stat`.
    file_pages: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version { mount: "", limit: "memory.max", usage: "memory.current", file_pages: ["active_file", "inactive_file"] },
    Version {
        mount: "memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        file_pages: ["total_active_file", "total_inactive_file"],
    },
];

/// Bytes of the group that has the least free, all and free; `None` where no group is limited.
pub(super) fn memory() -> Option<(u64, u64)> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_below(Path::new("/sys/fs/cgroup"), &membership)
}

fn memory_below(root: &Path, membership: &str) -> Option<(u64, u64)> {
    let groups = membership.lines().filter_map(|line| group(root, line));
    let limits = groups.flat_map(|(version, folder)| {
        let above = folder.ancestors().take_while(|folder| folder.starts_with(root));
        above.filter_map(|folder| limit(version, folder)).collect::<Vec<_>>()
    });
    limits.min_by_key(|(_, free)| *free)
}

/// The folder of a group that limits memory, of a line `number:controllers:path`.
fn group(root: &Path, line: &str) -> Option<(&'static Version, PathBuf)> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let [second, first] = &VERSIONS;
    let version = if controllers.is_empty() { second } else { first };
    let limits_memory = controllers.is_empty() || controllers.split(',').any(|controller| controller == "memory");
    let path = path.trim_start_matches('/');
    (limits_memory && !path.split('/').any(|part| part == "..")).then(|| (version, root.join(version.mount).join(path)))
}

/// Bytes of one group, all and free, where it has a limit.
fn limit(version: &Version, folder: &Path) -> Option<(u64, u64)> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let (limit, usage) = (number(version.limit)?, number(version.usage)?);
    let statistics = text("memory.stat").unwrap_or_default();
    let of_files = version.file_pages.iter().filter_map(|name| field_in_words(&statistics, name)?.parse::<u64>().ok());
    let used = usage.saturating_sub(of_files.fold(0, u64::saturating_add));
    Some((limit, limit.saturating_sub(used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_counts_and_pages_of_files_are_free() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 100\ninactive_file 150\nactive_file 50\nshmem 9\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "600\n"),
            ("memory/c/memory.limit_in_bytes", "900\n"),
            ("memory/c/memory.usage_in_bytes", "800\n"),
            ("memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 20\ntotal_active_file 3\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "4096\n"),
        ];
        write(root.path(), &files);
        let cases = [
            ("0::/a/b\n", Some((1000, 500))),
            ("0::/a\n", Some((1000, 500))),
            ("9:name=systemd:/a\n4:memory:/c\n0::/\n", Some((900, 123))),
            ("4:cpu,memory:/c\n0::/a\n", Some((900, 123))),
            ("4:cpu:/c\n", None),
            ("0::/missing\n", None),
            ("0::/../../a\nnonsense\n", None),
            ("", None),
        ];
        for (membership, expected) in cases {
            assert_eq!(memory_below(root.path(), membership), expected, "{membership}");
        }
        let (_, free) = memory_below(root.path(), "4:memory:/\n").unwrap();
        assert!(free > 1 << 62, "without a limit there is one that limits nothing");
    }

    #[test]
    fn a_group_that_uses_more_than_its_limit_has_nothing_free() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("memory.max", "10"), ("memory.current", "30"), ("memory.stat", "active_file x\n")]);
        assert_eq!(memory_below(root.path(), "0::/\n"), Some((10, 0)));
    }
}
