//! What a signal does; alone in its process, since no file can be created afterwards.

use std::os::unix::fs::PermissionsExt;
use trueup_formats::{AtomicFile, TemporaryFile};

#[test]
fn a_signal_removes_all_partial_files_and_no_more_appear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut done = AtomicFile::create(folder.path().join("done"), &[]).unwrap();
    done.write_all(b"done").unwrap();
    done.commit().unwrap();
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    file.write_all(b"half").unwrap();
    let create = || TemporaryFile::create(folder.path(), "model.gguf").unwrap();
    let temporary = create();
    let own = temporary.path().parent().unwrap();
    assert_eq!(std::fs::metadata(own).unwrap().permissions().mode() & 0o777, 0o700);
    let mut whole = AtomicFile::create(temporary.path(), &[]).unwrap();
    whole.write_all(b"whole").unwrap();
    whole.commit().unwrap();
    let _half = AtomicFile::create(temporary.path(), &[]).unwrap();
    // What a killed process leaves has no lock; the next process removes it, but nothing with another name.
    let (stale, other) =
        (folder.path().join(".model.gguf.aB3dE6gH.partial"), folder.path().join("model.gguf.aB3dE6gH"));
    for left in [&stale, &other] {
        std::fs::create_dir(left).unwrap();
        std::fs::write(left.join("model.gguf"), "left").unwrap();
    }
    let dropped = create();
    assert!(!stale.exists() && other.join("model.gguf").is_file());
    std::fs::remove_dir_all(&other).unwrap();
    assert_eq!(std::fs::read(temporary.path()).unwrap(), b"whole", "it is locked");
    let dropped_folder = dropped.path().parent().unwrap().to_owned();
    std::fs::write(dropped.path(), "written").unwrap();
    assert!(dropped_folder != own);
    drop(dropped);
    assert!(!dropped_folder.exists());
    AtomicFile::remove_all_live();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["done"]);
    assert!(file.commit().is_err());
    assert!(!path.exists());
    let error = AtomicFile::create(&path, &[]).unwrap_err().to_string();
    assert!(error.contains("ending"), "{error}");
}
