//! What a signal does; alone in its process, since no file can be created afterwards.

use trueup_formats::AtomicFile;

#[test]
fn a_signal_removes_all_partial_files_and_no_more_appear() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut done = AtomicFile::create(folder.path().join("done"), &[]).unwrap();
    done.write_all(b"done").unwrap();
    done.commit().unwrap();
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    file.write_all(b"half").unwrap();
    AtomicFile::remove_all_live();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["done"]);
    assert!(file.commit().is_err());
    assert!(!path.exists());
    let error = AtomicFile::create(&path, &[]).unwrap_err().to_string();
    assert!(error.contains("ending"), "{error}");
}
