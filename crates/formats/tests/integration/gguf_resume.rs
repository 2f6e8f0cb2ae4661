//! A model that was left unfinished: gone on with where it is what it says it is, begun anew in every other case.

use crate::support::write;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::{GgufPlan, GgufWriter, Measure, Metadata};
use trueup_formats::{SourceFile, TensorInfo};

const JOURNAL: &str = ".m.gguf.journal.partial";
const DATA: &str = ".m.gguf.resume.partial";

/// Elements of each tensor; 33 leave padding behind the tensor.
const ELEMENTS: [u64; 6] = [33, 64, 1, 70_000, 33, 8];

fn infos() -> Vec<TensorInfo> {
    let info =
        |(number, elements): (usize, &u64)| TensorInfo::new(format!("t{number}"), &[*elements], DType::F32).unwrap();
    ELEMENTS.iter().enumerate().map(info).collect()
}

fn contents(tensor: usize) -> Vec<u8> {
    (0..ELEMENTS[tensor] as usize * 4).map(|place| (place * 7 + tensor * 31 + 1) as u8).collect()
}

fn measure(tensor: usize) -> Measure {
    [tensor as u8 + 1; 24]
}

fn plan(folder: &Path, name: &str, split: Option<u64>) -> GgufPlan {
    let mut metadata = Metadata::default();
    metadata.insert("general.name", name);
    GgufPlan::new(folder.join("m.gguf"), &metadata, &infos(), split).unwrap()
}

fn resume(folder: &Path, split: Option<u64>) -> GgufWriter {
    GgufWriter::resume(plan(folder, "m", split), &[], "test").unwrap()
}

fn do_tensor(writer: &GgufWriter, tensor: usize) {
    let bytes = contents(tensor);
    let (start, end) = bytes.split_at(bytes.len() / 2);
    writer.write(tensor, start.len() as u64, end).unwrap();
    writer.write(tensor, 0, start).unwrap();
    writer.finished(tensor..tensor + 1, measure(tensor)).unwrap();
}

/// Takes over what can be, does the rest; returns what was taken over.
fn complete(writer: GgufWriter) -> Vec<usize> {
    let is_taken = |tensor: &usize| {
        let recorded = writer.recorded(*tensor..tensor + 1);
        recorded.is_none_or(|found| found == measure(*tensor)) && writer.take_over(*tensor..tensor + 1)
    };
    let taken: Vec<usize> = (0..ELEMENTS.len()).filter(is_taken).collect();
    (0..ELEMENTS.len()).filter(|tensor| !taken.contains(tensor)).for_each(|tensor| do_tensor(&writer, tensor));
    writer.finish().unwrap();
    taken
}

/// The files of a model that nothing interrupted.
fn undisturbed(split: Option<u64>) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let writer = GgufWriter::create(plan(folder.path(), "m", split), &[]).unwrap();
    (0..ELEMENTS.len()).for_each(|tensor| writer.write(tensor, 0, &contents(tensor)).unwrap());
    writer.finish().unwrap().iter().map(|path| fs::read(path).unwrap()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A run that finishes tensors 0 to 3 and is dropped in the middle of the next.
fn interrupted(folder: &Path, split: Option<u64>) {
    let writer = resume(folder, split);
    (0..4).for_each(|tensor| do_tensor(&writer, tensor));
    writer.write(4, 0, &contents(4)[..8]).unwrap();
}

fn assert_complete(folder: &Path, split: Option<u64>, what: &str) {
    let expected = undisturbed(split);
    let found = names(folder);
    let models: Vec<&String> = found.iter().filter(|name| name.ends_with(".gguf")).collect();
    assert_eq!(models.len(), expected.len(), "{what}: {found:?}");
    for (name, expected) in models.iter().zip(&expected) {
        assert!(fs::read(folder.join(name)).unwrap() == *expected, "{what}: {name} has other bytes");
    }
    assert!(!found.iter().any(|name| name.ends_with(".partial")), "{what}: {found:?}");
}

#[test]
fn what_is_finished_is_taken_over_and_the_bytes_are_the_same() {
    for split in [None, Some(2000)] {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path(), split);
        assert!(names(folder.path()).contains(&JOURNAL.to_owned()));
        let writer = resume(folder.path(), split);
        assert_eq!(writer.tensors(), infos());
        let recorded: Vec<_> = (0..6).map(|tensor| writer.recorded(tensor..tensor + 1)).collect();
        assert_eq!(recorded[..4], [0, 1, 2, 3].map(|tensor| Some(measure(tensor))), "{split:?}");
        assert_eq!(recorded[4..], [None, None], "{split:?}");
        assert_eq!((writer.recorded(1..3), writer.recorded(3..5)), (Some(measure(1)), None), "all of them or none");
        assert_eq!(complete(writer), [0, 1, 2, 3], "{split:?}");
        assert_complete(folder.path(), split, &format!("{split:?}"));
    }
}

/// A run that is killed loses what was finished in the last tenth of a second, not all.
#[test]
fn what_is_finished_is_recorded_while_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), None);
    let recorded = || fs::metadata(folder.path().join(JOURNAL)).unwrap().len();
    let before = recorded();
    for tensor in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(120));
        do_tensor(&writer, tensor);
    }
    assert!(recorded() > before, "{before} bytes as at the beginning");
}

#[test]
fn a_run_with_nothing_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), Some(2000));
    writer.write(0, 0, &contents(0)).unwrap();
    drop(writer);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_take_over_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path(), None);
    drop(resume(folder.path(), None));
    let writer = resume(folder.path(), None);
    assert!(writer.take_over(0..4));
    do_tensor(&writer, 4);
    drop(writer);
    assert_eq!(complete(resume(folder.path(), None)), [0, 1, 2, 3, 4]);
    assert_complete(folder.path(), None, "twice interrupted");
}

/// Each change of the kept files, and what may still be taken over.
#[test]
fn damage_is_found_by_hash_and_done_again() {
    type Change = fn(&Path);
    fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
    let cases: [(&str, Change, &[usize]); 10] = [
        ("nothing", |_| (), &[0, 1, 2, 3]),
        ("a byte of the large tensor", |f| change(&f.join(DATA), |b| b[140_000] ^= 1), &[0, 1, 2]),
        (
            "the header and the padding",
            |f| {
                change(&f.join(DATA), |b| {
                    b[0] ^= 1;
                    // Behind the 132 bytes of the first tensor are 28 of padding.
                    let first = contents(0);
                    let start = b.windows(first.len()).position(|window| window == first).unwrap();
                    b[start + 132..start + 160].fill(9);
                });
            },
            &[0, 1, 2, 3],
        ),
        ("the output is cut", |f| change(&f.join(DATA), |b| b.truncate(10_000)), &[0, 1, 2]),
        ("the output is too long", |f| change(&f.join(DATA), |b| b.extend([5; 100_000])), &[0, 1, 2, 3]),
        ("no output", |f| fs::remove_file(f.join(DATA)).unwrap(), &[]),
        ("no journal", |f| fs::remove_file(f.join(JOURNAL)).unwrap(), &[]),
        ("the last record is cut", |f| change(&f.join(JOURNAL), |b| b.truncate(b.len() - 1)), &[0, 1, 2]),
        ("the second record is changed", |f| change(&f.join(JOURNAL), |b| b[152 + 112 + 30] ^= 1), &[0]),
        ("the journal's head is changed", |f| change(&f.join(JOURNAL), |b| b[60] ^= 1), &[]),
    ];
    for (what, change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path(), None);
        change(folder.path());
        let writer = resume(folder.path(), None);
        let is_noted = writer.note().is_some_and(|note| note.contains("is damaged"));
        assert_eq!(is_noted, what.starts_with("the journal's head"), "{what}: {:?}", writer.note());
        assert_eq!(complete(writer), expected, "{what}");
        assert_complete(folder.path(), None, what);
    }
}

#[test]
fn what_stands_in_the_way_is_never_followed() {
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 4] = [
        ("a link to a file", |victim, at| symlink(victim, at).unwrap()),
        ("a second name of a file", |victim, at| fs::hard_link(victim, at).unwrap()),
        ("a link to nothing", |_, at| symlink("nowhere", at).unwrap()),
        ("a pipe", |_, at| {
            rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        }),
    ];
    for name in [JOURNAL, DATA] {
        for (what, plant) in plants {
            let folder = tempfile::tempdir().unwrap();
            let victim = write(folder.path(), "victim", b"not ours to touch");
            interrupted(folder.path(), None);
            fs::remove_file(folder.path().join(name)).unwrap();
            plant(&victim, &folder.path().join(name));
            let writer = resume(folder.path(), None);
            let is_noted = writer.note().is_some_and(|note| note.contains("belongs to another user"));
            assert_eq!(is_noted, name == JOURNAL, "{name}: {what}: {:?}", writer.note());
            assert_eq!(complete(writer), Vec::<usize>::new(), "{name}: {what}");
            assert_eq!(fs::read(&victim).unwrap(), b"not ours to touch", "{name}: {what}");
            assert_eq!(fs::metadata(&victim).unwrap().nlink(), 1, "{name}: {what}");
            assert_complete(folder.path(), None, what);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(name).join("inside")).unwrap();
        let error = GgufWriter::resume(plan(folder.path(), "m", None), &[], "test").unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("remove it"), "{error}");
    }
}

#[test]
fn another_job_begins_anew_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let input = write(path, "input", b"weights");
    let other = write(path, "other", b"weights");
    let start = |input: &Path, name: &str, command: &str| {
        let input = SourceFile::open(input).unwrap();
        GgufWriter::resume(plan(path, name, None), &[&input], command).unwrap()
    };
    let leave = || {
        let writer = start(&input, "m", "test");
        (0..4)
            .filter(|tensor| writer.recorded(*tensor..tensor + 1).is_none())
            .for_each(|tensor| do_tensor(&writer, tensor));
    };
    let cases: [(&str, &Path, &str, &str); 3] = [
        ("made with other options", &input, "n", "test"),
        ("other input files", &other, "m", "test"),
        ("another command", &input, "m", "other"),
    ];
    for (reason, input, name, command) in cases {
        leave();
        let writer = start(input, name, command);
        assert!(writer.note().is_some_and(|note| note.contains(reason)), "{reason}: {:?}", writer.note());
        assert!((0..ELEMENTS.len()).all(|tensor| writer.recorded(tensor..tensor + 1).is_none()), "{reason}");
    }
    leave();
    assert!(start(&input, "m", "test").note().is_none());
    // The same size, and the time of modification set back.
    let times = fs::metadata(&input).unwrap().modified().unwrap();
    fs::write(&input, b"WEIGHTS").unwrap();
    fs::File::options().append(true).open(&input).unwrap().set_modified(times).unwrap();
    assert!(start(&input, "m", "test").note().is_some_and(|note| note.contains("or they have changed")));
}

#[test]
fn other_parts_leave_none_of_the_earlier_ones() {
    for (before, after) in [(None, Some(2000)), (Some(2000), None), (Some(2000), Some(300_000))] {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path(), before);
        let writer = resume(folder.path(), after);
        assert!(writer.note().is_some_and(|note| note.contains("other options")), "{:?}", writer.note());
        assert_eq!(complete(writer), Vec::<usize>::new());
        assert_complete(folder.path(), after, &format!("{before:?} {after:?}"));
    }
}

/// A process that is killed between two renames leaves some files finished and others partial.
#[test]
fn a_set_that_is_half_named_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), Some(2000));
    (0..ELEMENTS.len()).for_each(|tensor| do_tensor(&writer, tensor));
    drop(writer);
    let data: Vec<String> = names(folder.path()).into_iter().filter(|name| name.contains(".resume.")).collect();
    assert!(data.len() > 2, "{data:?}");
    let last = &data[data.len() - 1];
    let named = last.trim_start_matches('.').trim_end_matches(".resume.partial");
    fs::rename(folder.path().join(last), folder.path().join(named)).unwrap();
    let taken = complete(resume(folder.path(), Some(2000)));
    assert!(!taken.is_empty() && taken.len() < ELEMENTS.len(), "{taken:?}");
    assert_complete(folder.path(), Some(2000), "half named");
}

#[test]
fn one_run_at_a_time_and_a_plain_one_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = resume(folder.path(), None);
    (0..4).for_each(|tensor| do_tensor(&first, tensor));
    let error = GgufWriter::resume(plan(folder.path(), "m", None), &[], "test").unwrap_err().to_string();
    let process = format!("(process {})", std::process::id());
    assert!(error.contains("m.gguf") && error.contains(&process) && error.contains("wait for it"), "{error}");
    let plain = GgufWriter::create(plan(folder.path(), "m", None), &[]).unwrap();
    (0..ELEMENTS.len()).for_each(|tensor| plain.write(tensor, 0, &contents(tensor)).unwrap());
    plain.finish().unwrap();
    (4..ELEMENTS.len()).for_each(|tensor| do_tensor(&first, tensor));
    first.finish().unwrap();
    assert_complete(folder.path(), None, "both");
}

/// The lock of the output itself, which two names of one file share.
#[test]
fn two_links_to_one_output_are_one_output() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "m.gguf", b"old");
    symlink("m.gguf", folder.path().join("link.gguf")).unwrap();
    let _first = resume(folder.path(), None);
    let by_link = GgufPlan::new(folder.path().join("link.gguf"), &Metadata::default(), &infos(), None).unwrap();
    let error = GgufWriter::resume(by_link, &[], "test").unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
    assert_eq!(fs::read(folder.path().join("m.gguf")).unwrap(), b"old");
}

/// What was kept under the name of the output before that became a link is of no use: the output is beside another file
/// then.
#[test]
fn a_name_that_becomes_a_link_leaves_nothing_behind() {
    for resumed in [true, false] {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        interrupted(folder.path(), None);
        write(other.path(), "real.gguf", b"old");
        symlink(other.path().join("real.gguf"), folder.path().join("m.gguf")).unwrap();
        if resumed {
            assert_eq!(complete(resume(folder.path(), None)), [0_usize; 0], "nothing of it is beside the real file");
            assert!(fs::read(other.path().join("real.gguf")).unwrap() == undisturbed(None)[0]);
        } else {
            drop(GgufWriter::create(plan(folder.path(), "m", None), &[]).unwrap());
            assert_eq!(fs::read(other.path().join("real.gguf")).unwrap(), b"old");
        }
        assert_eq!(names(folder.path()), ["m.gguf"], "resumed: {resumed}");
        assert_eq!(names(other.path()), ["real.gguf"], "resumed: {resumed}");
    }
}

#[test]
fn a_plain_run_removes_what_is_kept() {
    for (kept, split) in [(None, None), (Some(2000), Some(2000)), (Some(2000), None), (None, Some(2000))] {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path(), kept);
        drop(GgufWriter::create(plan(folder.path(), "m", split), &[]).unwrap());
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{kept:?} {split:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let stray: PathBuf = folder.path().join(DATA);
    fs::write(&stray, b"no journal knows it").unwrap();
    drop(GgufWriter::create(plan(folder.path(), "m", None), &[]).unwrap());
    assert!(!stray.exists());
}

#[test]
fn errors_say_that_something_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), None);
    let error = trueup_formats::Error::new("m.gguf", "no space left on the disk").help("make room");
    assert_eq!(writer.explain(error.clone()), error);
    do_tensor(&writer, 2);
    let explained = writer.explain(error).to_string();
    assert!(explained.ends_with("make room; finished parts are kept for a run with --resume"), "{explained}");
}

/// The name cannot be given: what is finished stays for the next run.
#[test]
fn a_run_that_fails_at_its_very_end_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), None);
    (0..ELEMENTS.len()).for_each(|tensor| do_tensor(&writer, tensor));
    fs::create_dir_all(folder.path().join("m.gguf/inside")).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.ends_with("finished parts are kept for a run with --resume"), "{error}");
    fs::remove_dir_all(folder.path().join("m.gguf")).unwrap();
    assert_eq!(complete(resume(folder.path(), None)), Vec::from_iter(0..ELEMENTS.len()));
    assert_complete(folder.path(), None, "after a failed end");
}

/// Of a set one file was taken away by someone: what the journal says of the others is still worth something.
#[test]
fn a_set_that_lost_a_file_keeps_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let writer = resume(folder.path(), Some(2000));
    (0..ELEMENTS.len()).for_each(|tensor| do_tensor(&writer, tensor));
    let data: Vec<String> = names(folder.path()).into_iter().filter(|name| name.contains(".resume.")).collect();
    fs::remove_file(folder.path().join(data.last().unwrap())).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("was removed or replaced by another process") && !error.contains("is kept"), "{error}");
    let taken = complete(resume(folder.path(), Some(2000)));
    assert!(!taken.is_empty() && taken.len() < ELEMENTS.len(), "{taken:?}");
    assert_complete(folder.path(), Some(2000), "lost a file");
}

/// A backup by hard links (`cp -al`) gives the files of a run that goes on a second name.
#[test]
fn a_live_run_with_two_names_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let first = resume(folder.path(), None);
    (0..4).for_each(|tensor| do_tensor(&first, tensor));
    fs::create_dir(folder.path().join("backup")).unwrap();
    for name in [JOURNAL, DATA] {
        fs::hard_link(folder.path().join(name), folder.path().join("backup").join(name)).unwrap();
    }
    let error = GgufWriter::resume(plan(folder.path(), "m", None), &[], "test").unwrap_err().to_string();
    assert!(error.contains("another run with --resume"), "{error}");
    // The lock of the output alone.
    fs::remove_file(folder.path().join(JOURNAL)).unwrap();
    let error = GgufWriter::resume(plan(folder.path(), "m", None), &[], "test").unwrap_err().to_string();
    assert!(error.contains("another run with --resume"), "{error}");
    (4..ELEMENTS.len()).for_each(|tensor| do_tensor(&first, tensor));
    first.finish().unwrap();
    assert_complete(folder.path(), None, "the first run");
}

/// Someone removes the files of a run that goes on, and starts another.
#[test]
fn a_run_whose_files_were_removed_does_not_name_those_of_the_next() {
    for finished in [0, 4] {
        let folder = tempfile::tempdir().unwrap();
        let output = write(folder.path(), "m.gguf", b"old");
        let first = resume(folder.path(), None);
        (0..ELEMENTS.len()).for_each(|tensor| do_tensor(&first, tensor));
        [JOURNAL, DATA].iter().for_each(|name| fs::remove_file(folder.path().join(name)).unwrap());
        let second = resume(folder.path(), None);
        (0..finished).for_each(|tensor| do_tensor(&second, tensor));
        let fault = trueup_formats::Error::new("m.gguf", "no space left on the disk");
        assert_eq!(first.explain(fault.clone()), fault, "nothing of the first run is kept");
        let error = first.finish().unwrap_err().to_string();
        assert!(error.contains("was removed or replaced by another process"), "{error}");
        assert!(!error.contains("is kept"), "{error}");
        assert_eq!(fs::read(&output).unwrap(), b"old");
        drop(second);
        let kept: Vec<usize> = (0..finished).collect();
        assert_eq!(complete(resume(folder.path(), None)), kept, "what the second run kept");
        assert_complete(folder.path(), None, "the second run");
    }
    // The first run ends with an error instead.
    let folder = tempfile::tempdir().unwrap();
    let first = resume(folder.path(), None);
    [JOURNAL, DATA].iter().for_each(|name| fs::remove_file(folder.path().join(name)).unwrap());
    let second = resume(folder.path(), None);
    drop(first);
    assert_eq!(names(folder.path()), [JOURNAL, DATA]);
    drop(complete(second));
    assert_complete(folder.path(), None, "beside a run that ends");
}

/// It may be someone's who is at work on it.
#[test]
fn a_file_that_cannot_be_opened_is_left_alone() {
    for name in [JOURNAL, DATA] {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), name, b"not to be opened");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let resumed = GgufWriter::resume(plan(folder.path(), "m", None), &[], "test").map(complete);
        if rustix::process::geteuid().is_root() {
            assert_eq!(resumed, Ok(Vec::new()), "root may open everything");
            continue;
        }
        let error = resumed.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("cannot be opened") && error.contains("remove it"), "{error}");
        assert_eq!(names(folder.path()), [name]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"not to be opened");
    }
}

#[test]
fn the_files_of_a_model_with_a_long_name_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{}.gguf", "n".repeat(215)));
    let plan = || GgufPlan::new(&path, &Metadata::default(), &infos(), Some(2000)).unwrap();
    let writer = GgufWriter::resume(plan(), &[], "test").unwrap();
    let parts = names(folder.path()).len() - 1;
    assert!(parts > 2, "{:?}", names(folder.path()));
    (0..4).for_each(|tensor| do_tensor(&writer, tensor));
    drop(writer);
    assert_eq!(complete(GgufWriter::resume(plan(), &[], "test").unwrap()), [0, 1, 2, 3]);
    assert_eq!(names(folder.path()).len(), parts);
    assert!(names(folder.path()).iter().all(|name| name.ends_with(".gguf")));
}

/// SIGKILL, then the command again with another size of the parts, or with none.
#[test]
fn what_a_killed_run_left_goes_whatever_its_parts_were() {
    let random = "aB3dE6gH.partial";
    for stem in ["m".to_owned(), "n".repeat(190), "o".repeat(230)] {
        let shown = |name: String| name.chars().take(200).collect::<String>();
        for (name, split) in [("", None), ("", Some(2000)), ("-00001-of-00005", None), ("-00004-of-00005", Some(2000))]
        {
            let folder = tempfile::tempdir().unwrap();
            let stray = format!(".{}.{random}", shown(format!("{stem}{name}.gguf")));
            let others = [".a.gguf.", ".m2-00001-of-00005.gguf.", ".m-0001-of-00005.gguf.", ".m-00001-of-00005.ggu."];
            let mut others = others.map(|name| format!("{name}{random}"));
            others.iter().chain([&stray]).for_each(|name| drop(write(folder.path(), name, b"left")));
            let path = folder.path().join(format!("{stem}.gguf"));
            let plan = GgufPlan::new(path, &Metadata::default(), &infos(), split).unwrap();
            drop(GgufWriter::create(plan, &[]).unwrap());
            others.sort();
            assert_eq!(names(folder.path()), others, "{stray} {split:?}");
        }
    }
}
