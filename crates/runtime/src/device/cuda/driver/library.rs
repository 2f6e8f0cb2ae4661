//! Libraries of the vendor that come beside the driver: where they lie outside of the system's own places, and how they
//! are opened.
//!
//! ```text
//!  the system's loader, LD_LIBRARY_PATH ─▶ a toolkit ─▶ packages of the active Python environment ─▶ the user's packages ─▶ the system's
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Opens a library for as long as the process lives: by the name that it has in itself it is found from now on.
pub fn load(path: &Path) -> bool {
    // SAFETY: the vendor's library, or ours in its place; its start registers what it has.
    let opened = path.is_file().then(|| unsafe { libloading::Library::new(path) }.ok()).flatten();
    opened.map(std::mem::forget).is_some()
}

/// Opens the first of these libraries that lies in one of the folders, whose order counts.
pub fn load_first(folders: &[PathBuf], names: &[&str]) -> bool {
    folders.iter().any(|folder| names.iter().any(|name| load(&folder.join(name))))
}

/// Folders outside of the system's own places that hold a library of the vendor's: of a toolkit, and of Python's
/// packages, by the names of their folders in `nvidia`. Others are named to the system's loader, by `LD_LIBRARY_PATH`.
pub fn packages(names: &[&str]) -> Vec<PathBuf> {
    let prefixes = prefixes(std::env::var_os("VIRTUAL_ENV"), std::env::home_dir());
    let toolkit = PathBuf::from("/usr/local/cuda/lib64");
    std::iter::once(toolkit).chain(prefixes.iter().flat_map(|prefix| packages_of(prefix, names))).collect()
}

/// Under what Python's packages lie: the environment that is active, the user's own, the system's.
fn prefixes(environment: Option<OsString>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let active = environment.filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = home.map(|home| home.join(".local"));
    active.into_iter().chain(own).chain(["/usr/local", "/usr"].map(PathBuf::from)).collect()
}

/// Where packages of these names keep libraries, of each Python under a prefix.
fn packages_of(prefix: &Path, names: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let pythons = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")));
    let kinds = ["site-packages", "dist-packages"];
    let packages = pythons.flat_map(|python| kinds.map(|kind| python.join(kind).join("nvidia")));
    packages.flat_map(|packages| names.iter().map(move |name| packages.join(name).join("lib"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_a_python_package_is_looked_for() {
        let prefix = tempfile::tempdir().unwrap();
        let folder = prefix.path().join("lib/python3.11/site-packages/nvidia/cublas/lib");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(prefix.path().join("lib/pkgconfig")).unwrap();
        let found = packages_of(prefix.path(), &["cu13", "cublas"]);
        assert!(found.contains(&folder), "{found:?}");
        assert!(found.iter().all(|path| path.starts_with(prefix.path().join("lib/python3.11"))), "{found:?}");
        // What is there but no library is not taken.
        std::fs::write(folder.join("libcublasLt.so.12"), "no library").unwrap();
        assert!(!load_first(&[folder, prefix.path().to_owned()], &["libcublasLt.so.13", "libcublasLt.so.12"]));
    }

    #[test]
    fn packages_of_the_active_environment_come_first() {
        let of = |environment: Option<&str>, home: Option<&str>| {
            prefixes(environment.map(OsString::from), home.map(PathBuf::from))
        };
        let system = ["/usr/local", "/usr"];
        let with = |more: &[&str]| [more, &system].concat().iter().map(PathBuf::from).collect::<Vec<PathBuf>>();
        assert_eq!(of(Some("/srv/venv"), Some("/home/ada")), with(&["/srv/venv", "/home/ada/.local"]));
        assert_eq!(of(Some(""), Some("/home/ada")), with(&["/home/ada/.local"]));
        assert_eq!(of(None, None), with(&[]));
    }
}
