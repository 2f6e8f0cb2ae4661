//! What a signal does; alone in its process, since no file can be created afterwards.

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
    let temporary = TemporaryFile::create(folder.path(), "model-", ".gguf").unwrap();
    let mut replaced = AtomicFile::create(temporary.path(), &[]).unwrap();
    replaced.write_all(b"whole").unwrap();
    replaced.commit().unwrap();
    assert_eq!(std::fs::read(temporary.path()).unwrap(), b"whole");
    let dropped = TemporaryFile::create(folder.path(), "model-", ".gguf").unwrap();
    let dropped_path = dropped.path().to_owned();
    assert!(dropped_path.is_file() && dropped_path != temporary.path());
    drop(dropped);
    assert!(!dropped_path.exists());
    AtomicFile::remove_all_live();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["done"]);
    assert!(file.commit().is_err());
    assert!(!path.exists());
    let error = AtomicFile::create(&path, &[]).unwrap_err().to_string();
    assert!(error.contains("ending"), "{error}");
}
