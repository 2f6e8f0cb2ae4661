//! Folders of the cache of huggingface_hub.
//!
//! ```text
//! hub/models--org--name/refs/main              text: a revision
//! hub/models--org--name/snapshots/REVISION/    the model folder, of links into blobs/
//! ```

use crate::error::{Error, Result, listed, quote};
use crate::foreign::names_in;
use crate::source_file::SourceFile;
use std::path::{Component, Path, PathBuf};

/// How the folder of a model begins.
const MODELS: &str = "models--";
const SNAPSHOTS: &str = "snapshots";
/// The longest file of a revision that is read, in bytes.
const REVISION_BYTES_MAX: u64 = 256;

/// The folder to open: the snapshot of a model's cache folder, else `path` itself.
///
/// # Errors
/// The cache folder holds several snapshots and `refs/main` names none of them, or no snapshot at all, or `path` is the
/// whole cache.
pub(crate) fn snapshot(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() || path.join("config.json").is_file() {
        return Ok(path.to_owned());
    }
    let root = if path.file_name().is_some_and(|name| name == SNAPSHOTS) { parent(path) } else { path.to_owned() };
    let snapshots = root.join(SNAPSHOTS);
    if snapshots.is_dir() && (root.join("refs").is_dir() || root.join("blobs").is_dir() || is_model(&root)) {
        return named_snapshot(&root, &snapshots);
    }
    let models: Vec<String> = names_in(path).iter().filter(|name| name.starts_with(MODELS)).map(|n| quote(n)).collect();
    match models.is_empty() {
        true => Ok(path.to_owned()),
        false => Err(Error::new(path, "expected a model, found a huggingface_hub cache")
            .help(format!("pass one of its models: {}", listed(&models, ", ")))),
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn is_model(root: &Path) -> bool {
    root.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MODELS))
}

fn named_snapshot(root: &Path, snapshots: &Path) -> Result<PathBuf> {
    let there: Vec<String> = names_in(snapshots).into_iter().filter(|name| snapshots.join(name).is_dir()).collect();
    let main = SourceFile::open(root.join("refs/main")).and_then(|file| file.read_all(REVISION_BYTES_MAX)).ok();
    let main = main.and_then(|bytes| Some(String::from_utf8(bytes).ok()?.trim().to_owned()));
    if let Some(revision) = main.as_ref().and_then(|main| there.iter().find(|name| *name == main)) {
        return Ok(snapshots.join(revision));
    }
    match (there.as_slice(), main) {
        ([only], None) => Ok(snapshots.join(only)),
        ([], _) => {
            Err(Error::new(root, "expected a snapshot in this directory of the huggingface_hub cache, found none")
                .help("download the model"))
        }
        (_, Some(main)) => {
            let problem = format!("refs/main points to the snapshot {}, which is missing", quote(&main));
            Err(Error::new(root, problem).help("download the model again, or pass a directory in snapshots/"))
        }
        (_, None) => {
            Err(Error::new(root, format!("expected one snapshot or refs/main, found {} snapshots", there.len()))
                .help("pass a directory in snapshots/"))
        }
    }
}

/// The model's name when `path` is a snapshot in the cache or a file in one: `name` of `models--org--name`.
pub fn cached_model_name(path: &Path) -> Option<String> {
    // Links of a snapshot lead to blobs/, so the path is not resolved. Its own links may lead into the cache.
    let resolved = std::fs::canonicalize(path).ok();
    [std::path::absolute(path).ok(), resolved].into_iter().flatten().find_map(|path| name_in(&path))
}

fn name_in(path: &Path) -> Option<String> {
    let names: Vec<&str> = path
        .components()
        .filter_map(|part| if let Component::Normal(name) = part { name.to_str() } else { None })
        .collect();
    let model = names.windows(2).rev().find_map(|pair| match pair {
        [model, SNAPSHOTS] => model.strip_prefix(MODELS),
        _ => None,
    })?;
    let name = model.rsplit_once("--").map_or(model, |(_, name)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{cached_model_name, snapshot};
    use std::fs;
    use std::path::Path;

    fn cache(main: Option<&str>, revisions: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("models--org--tiny-model");
        fs::create_dir_all(root.join("blobs")).unwrap();
        fs::create_dir_all(root.join("snapshots")).unwrap();
        for revision in revisions {
            fs::create_dir_all(root.join("snapshots").join(revision)).unwrap();
            fs::write(root.join("snapshots").join(revision).join("config.json"), "{}").unwrap();
        }
        if let Some(main) = main {
            fs::create_dir_all(root.join("refs")).unwrap();
            fs::write(root.join("refs/main"), main).unwrap();
        }
        folder
    }

    #[test]
    fn the_snapshot_of_a_model_is_the_one_that_main_names() {
        type Case<'a> = (Option<&'a str>, &'a [&'a str], Result<&'a str, &'a str>);
        let cases: [Case<'_>; 6] = [
            (Some("bbb\n"), &["aaa", "bbb"], Ok("bbb")),
            (None, &["aaa"], Ok("aaa")),
            (None, &["aaa", "bbb"], Err("found 2 snapshots")),
            (Some("ccc"), &["aaa"], Err("points to the snapshot ccc, which is missing")),
            (None, &[], Err("found none; download the model")),
            (Some("../../x"), &["aaa"], Err("which is missing")),
        ];
        for (main, revisions, expected) in cases {
            let folder = cache(main, revisions);
            let root = folder.path().join("models--org--tiny-model");
            for path in [root.clone(), root.join("snapshots")] {
                match (snapshot(&path), expected) {
                    (Ok(found), Ok(revision)) => assert_eq!(found, root.join("snapshots").join(revision)),
                    (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                    (found, _) => panic!("{main:?}, {revisions:?}: {found:?}"),
                }
            }
        }
        let folder = cache(None, &["aaa"]);
        let error = snapshot(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a huggingface_hub cache; pass one of its models: models--org--tiny-model"), "{error}");
        let model = folder.path().join("models--org--tiny-model/snapshots/aaa");
        assert_eq!(snapshot(&model).unwrap(), model, "a snapshot is a model directory");
        assert_eq!(snapshot(Path::new("no/such")).unwrap(), Path::new("no/such"));
    }

    #[test]
    fn a_cached_model_has_the_name_of_its_repository() {
        for (path, name) in [
            ("/c/hub/models--org--tiny-model/snapshots/0123abcd", Some("tiny-model")),
            ("/c/hub/models--org--tiny-model/snapshots/0123abcd/model.safetensors", Some("tiny-model")),
            ("/c/hub/models--gpt2/snapshots/0123abcd", Some("gpt2")),
            ("/c/models--org--a/snapshots/1/models--org--b/snapshots/2", Some("b")),
            ("/c/hub/models--org--tiny-model", None),
            ("/c/hub/snapshots/0123abcd", None),
            ("/c/tiny-model", None),
        ] {
            assert_eq!(cached_model_name(Path::new(path)).as_deref(), name, "{path}");
        }
    }
}
