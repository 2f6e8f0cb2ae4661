//! The old or the complete new file, whatever happens in between.

use crate::support::{Faults, write};
use std::path::Path;
use trueup_formats::{AtomicFile, SourceFile};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "out", b"old");
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    file.preallocate(6).unwrap();
    file.write_all(b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let partial = names(folder.path()).remove(0);
    assert!(partial.starts_with(".out.") && partial.ends_with(".partial"), "{partial}");
    drop(file);
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    file.preallocate(6).unwrap();
    file.write_at(3, b"def").unwrap();
    file.write_all(b"ab").unwrap();
    file.write_all(b"c").unwrap();
    file.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
    assert_eq!(names(folder.path()), ["out"]);
}

/// Whatever has the name of a partial file would get that of the output.
#[test]
fn a_partial_file_that_lost_its_name_is_not_committed() {
    for replaced in [false, true] {
        for set in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let outputs = if set { ["1", "2"].as_slice() } else { &["1"] };
            let files: Vec<AtomicFile> = outputs
                .iter()
                .map(|name| AtomicFile::create(write(folder.path(), name, b"old"), &[]).unwrap())
                .collect();
            let partial = names(folder.path()).into_iter().find(|name| name.starts_with(".1.")).unwrap();
            std::fs::remove_file(folder.path().join(&partial)).unwrap();
            if replaced {
                write(folder.path(), &partial, b"of someone else");
            }
            let error = AtomicFile::commit_all(files).unwrap_err().to_string();
            assert!(error.contains("was removed or replaced by another process"), "{error}");
            for name in outputs {
                assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), b"old", "{name}");
            }
        }
    }
}

/// The wait for the folder may be long.
#[test]
fn what_changes_while_a_set_waits_for_its_turn_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "input", b"weights");
    let source = SourceFile::open(&input).unwrap();
    let outputs = ["1", "2"].map(|name| write(folder.path(), name, b"old"));
    let files = outputs.iter().map(|path| AtomicFile::create(path, &[&source]).unwrap()).collect();
    let other = std::fs::File::open(folder.path()).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| AtomicFile::commit_all(files));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!waits.is_finished());
        std::fs::write(&input, b"other").unwrap();
        rustix::fs::flock(&other, rustix::fs::FlockOperation::Unlock).unwrap();
        let error = waits.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("input: the file changed while it was in use"), "{error}");
    });
    outputs.iter().for_each(|path| assert_eq!(std::fs::read(path).unwrap(), b"old"));
}

/// A rename that fails between two others stands for the process that is killed there.
#[test]
fn a_set_that_is_interrupted_has_no_first_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["1", "2", "3"].map(|name| write(folder.path(), name, b"old"));
    let start = || {
        let files = paths.iter().map(|path| {
            let mut file = AtomicFile::create(path, &[]).unwrap();
            file.write_all(b"new").unwrap();
            file
        });
        files.collect::<Vec<AtomicFile>>()
    };
    let mut files = start();
    let partial = names(folder.path()).into_iter().find(|name| name.starts_with(".2.")).unwrap();
    // Named first of all, and so takes the partial file of the next but one away.
    files.push(AtomicFile::create(folder.path().join(partial), &[]).unwrap());
    let error = AtomicFile::commit_all(files).unwrap_err().to_string();
    assert!(error.contains("was removed or replaced by another process") && error.contains("incomplete"), "{error}");
    assert_eq!(names(folder.path()), ["2", "3"], "the old first file would open the mixture");
    assert_eq!(std::fs::read(&paths[1]).unwrap(), b"old");
    assert_eq!(std::fs::read(&paths[2]).unwrap(), b"new");
    AtomicFile::commit_all(start()).unwrap();
    AtomicFile::commit_all(start()).unwrap();
    assert_eq!(names(folder.path()), ["1", "2", "3"]);
    assert!(paths.iter().all(|path| std::fs::read(path).unwrap() == b"new"));
}

/// A file that is there is known by its own folder, one that is not by the folder it was asked for in: both are one
/// folder.
#[test]
fn a_folder_under_two_names_is_locked_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
    write(&folder.path().join("real"), "2", b"old");
    let files = ["1", "2"].map(|name| AtomicFile::create(folder.path().join("link").join(name), &[]).unwrap());
    AtomicFile::commit_all(files.into()).unwrap();
    assert_eq!(names(&folder.path().join("real")), ["1", "2"]);
}

#[test]
fn two_writers_of_one_name_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut first = AtomicFile::create(&path, &[]).unwrap();
    let mut second = AtomicFile::create(&path, &[]).unwrap();
    first.write_all(b"first").unwrap();
    second.write_all(b"second").unwrap();
    assert_eq!(names(folder.path()).len(), 2, "the second must not take the first's file for a stale one");
    second.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    first.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"first");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn stale_partial_files_of_the_same_name_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let stale = [".out.aB3dE6gH.partial", ".out.abcdefgh.partial"];
    let others =
        [".out.bin.abcdefgh.partial", ".out.abcdefg.partial", ".out.abcdef-h.partial", ".tuo.abcdefgh.partial"];
    stale.iter().chain(&others).for_each(|name| drop(write(folder.path(), name, b"")));
    std::os::unix::fs::symlink("nowhere", folder.path().join(".out.linklink.partial")).unwrap();
    drop(AtomicFile::create(folder.path().join("out"), &[]).unwrap());
    let left = names(folder.path());
    assert!(stale.iter().all(|name| !left.contains(&(*name).to_owned())), "{left:?}");
    assert!(others.iter().all(|name| left.contains(&(*name).to_owned())), "{left:?}");
    assert!(left.contains(&".out.linklink.partial".to_owned()));
}

#[test]
fn an_output_is_never_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "in", b"input");
    let input = SourceFile::open(&path).unwrap();
    std::fs::hard_link(&path, folder.path().join("hard")).unwrap();
    std::os::unix::fs::symlink("in", folder.path().join("soft")).unwrap();
    let mut faults = Faults::default();
    for name in ["in", "hard", "soft", "./in"] {
        let result = AtomicFile::create(folder.path().join(name), &[&input]).map_err(|error| error.at("x"));
        faults.refused(name, result, "", &["the output path is also an input", "choose another output path"]);
    }
    let result = AtomicFile::create(folder.path(), &[]).map_err(|error| error.at("x"));
    faults.refused("folder", result, "", &["expected a file to write, found a directory"]);
    let result = AtomicFile::create("/dev/null", &[]).map_err(|error| error.at("x"));
    faults.refused("device", result, "/dev/null", &["found a device"]);
    let result = AtomicFile::create(folder.path().join("none/out"), &[]);
    faults.refused("no directory", result, "none/out", &[]);
    faults.report();
    assert_eq!(std::fs::read(&path).unwrap(), b"input");
}

#[test]
fn an_input_that_changed_stops_the_commit() {
    let folder = tempfile::tempdir().unwrap();
    let input = SourceFile::open(write(folder.path(), "in", b"input")).unwrap();
    let output = write(folder.path(), "out", b"old");
    let mut file = AtomicFile::create(&output, &[&input]).unwrap();
    file.write_all(b"new").unwrap();
    std::fs::write(folder.path().join("in"), b"inputs").unwrap();
    let error = file.commit().unwrap_err().to_string();
    assert!(error.contains("/in: ") && error.contains("had 5 bytes and has 6"), "{error}");
    assert_eq!(std::fs::read(&output).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["in", "out"]);
}

#[test]
fn an_input_is_changed_though_its_time_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "in", b"input");
    let input = SourceFile::open(&path).unwrap();
    input.unchanged().unwrap();
    let times = std::fs::FileTimes::new().set_modified(std::fs::metadata(&path).unwrap().modified().unwrap());
    // Longer than a step of the file system's clock.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&path, b"INPUT").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let error = input.unchanged().unwrap_err().to_string();
    assert!(error.contains("/in: ") && error.contains("changed while it was in use"), "{error}");
}

#[test]
fn names_that_cannot_be_had_are_refused_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    write(folder.path(), "file", b"");
    let mut faults = Faults::default();
    let long = "n".repeat(256);
    for (name, words) in [
        ("loop", "levels of symbolic links"),
        (long.as_str(), "name too long"),
        ("new/", "pass a file name"),
        ("none/new", "does not exist; create it, or choose"),
        ("file/new", "cannot be written"),
    ] {
        let result = AtomicFile::create(folder.path().join(name), &[]).map_err(|error| error.at("x"));
        faults.refused(name, result, "", &[words]);
    }
    faults.report();
    assert_eq!(names(folder.path()), ["file", "loop"]);
}

#[test]
fn a_link_is_followed_and_permissions_are_those_of_new_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let target = write(folder.path(), "target", b"old");
    std::os::unix::fs::symlink("target", folder.path().join("link")).unwrap();
    let mut file = AtomicFile::create(folder.path().join("link"), &[]).unwrap();
    file.write_all(b"new").unwrap();
    file.commit().unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"new");
    assert!(folder.path().join("link").is_symlink());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&target), mode(&write(folder.path(), "plain", b"")));
}

#[test]
fn too_much_is_refused_before_the_work_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "out", b"old");
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    let error = file.preallocate(1 << 62).unwrap_err().to_string();
    assert!(error.contains("4611686018427387904 bytes needed"), "{error}");
    drop(file);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn a_long_name_still_has_a_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n".repeat(250));
    let mut file = AtomicFile::create(&path, &[]).unwrap();
    file.write_all(b"x").unwrap();
    file.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"x");
}
