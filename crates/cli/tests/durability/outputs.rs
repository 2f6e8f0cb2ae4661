//! Outputs that are inputs, no files, or have names that cannot be had: refused before any work, with everything as it
//! was.

use crate::Bench;
use crate::scene::{End, Held, Scene, weights};
use crate::tally::Tally;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What must come of it.
#[derive(Clone, Copy)]
enum Wanted {
    /// Exit code 2 and these words.
    Refused(&'static [&'static str]),
    /// The new output under the name that was given.
    Written,
}

/// A name for the output.
struct Place {
    name: &'static str,
    /// Makes what stands at the name, and returns it.
    prepare: fn(&Scene) -> OsString,
    wanted: Wanted,
}

const INPUT: Wanted = Wanted::Refused(&["the output path is also an input", "choose another output path"]);

const PLACES: &[Place] = &[
    Place { name: "output is the input", prepare: |scene| scene.weights().into(), wanted: INPUT },
    Place {
        name: "output is the input, spelled otherwise",
        prepare: |scene| {
            let weights = scene.weights();
            let (folder, file) = (weights.parent().expect("a directory"), weights.file_name().expect("a name"));
            let around = folder.file_name().expect("a name");
            folder.join(".").join("..").join(around).join(".").join(file).into()
        },
        wanted: INPUT,
    },
    Place {
        name: "output is a symbolic link to the input",
        prepare: |scene| at(scene, |path| symlink(scene.weights(), path).expect("a link")),
        wanted: INPUT,
    },
    Place {
        name: "output is a hard link to the input",
        prepare: |scene| at(scene, |path| fs::hard_link(scene.weights(), path).expect("a link")),
        wanted: INPUT,
    },
    Place {
        name: "output is a directory",
        prepare: |scene| at(scene, |path| fs::create_dir(path).expect("a directory")),
        wanted: Wanted::Refused(&["a directory"]),
    },
    Place {
        name: "output is a pipe",
        prepare: |scene| {
            at(scene, |path| assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo starts").success()))
        },
        wanted: Wanted::Refused(&["a pipe"]),
    },
    Place {
        name: "output is a socket",
        prepare: |scene| at(scene, |path| drop(UnixListener::bind(path).expect("a socket"))),
        wanted: Wanted::Refused(&["a socket"]),
    },
    Place { name: "output is /dev/null", prepare: |_| "/dev/null".into(), wanted: Wanted::Refused(&["a device"]) },
    Place { name: "output is /dev/full", prepare: |_| "/dev/full".into(), wanted: Wanted::Refused(&["a device"]) },
    Place {
        name: "output is a link that leads nowhere",
        prepare: |scene| at(scene, |path| symlink("nowhere", path).expect("a link")),
        wanted: Wanted::Written,
    },
    Place {
        name: "output is a link to itself",
        prepare: |scene| at(scene, |path| symlink("place.gguf", path).expect("a link")),
        wanted: Wanted::Refused(&["levels of symbolic links"]),
    },
    Place {
        name: "output is a link to a file",
        prepare: |scene| {
            fs::write(scene.folder().join("elsewhere.gguf"), b"old").expect("a file can be written");
            at(scene, |path| symlink("../elsewhere.gguf", path).expect("a link"))
        },
        wanted: Wanted::Written,
    },
    Place {
        name: "directory of the output is missing",
        prepare: |_| "none/place.gguf".into(),
        wanted: Wanted::Refused(&["none"]),
    },
    Place {
        name: "directory of the output is a file",
        prepare: |scene| format!("{}/place.gguf", scene.job.names[0]).into(),
        wanted: Wanted::Refused(&["place.gguf"]),
    },
    Place {
        name: "output ends in a slash",
        prepare: |_| "place.gguf/".into(),
        wanted: Wanted::Refused(&["place.gguf/"]),
    },
    Place { name: "output has a name of 255 bytes", prepare: |_| "n".repeat(255).into(), wanted: Wanted::Written },
    Place {
        name: "output has a name of 256 bytes",
        prepare: |_| "n".repeat(256).into(),
        wanted: Wanted::Refused(&["name too long"]),
    },
    Place { name: "output has a name with a new line", prepare: |_| "a\nb.gguf".into(), wanted: Wanted::Written },
    Place {
        name: "output has a name that is no UTF-8",
        prepare: |_| OsString::from_vec(b"a\xff.gguf".to_vec()),
        wanted: Wanted::Written,
    },
];

/// A name in the folder where the command runs, after something was made there.
fn at(scene: &Scene, make: impl FnOnce(&Path)) -> OsString {
    make(&scene.outputs().join("place.gguf"));
    "place.gguf".into()
}

/// Every place, for each job that writes one file.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let jobs = || bench.jobs.iter().filter(|job| job.names.len() == 1);
    let one = |place: &Place| {
        let mut tally = Tally::new(place.name);
        for job in jobs().flat_map(|job| std::iter::repeat_n(job, bench.rounds)) {
            // There is an old output beside, under the usual name.
            let mut scene = Scene::with_own_input(job, true);
            scene.target = (place.prepare)(&scene);
            let before = names(&scene);
            let end = scene.start().wait();
            let what = format!("{}: {end:?}: {}", job.name, scene.said());
            tally.add(&what, judge(place.wanted, &scene, end, &before));
        }
        tally
    };
    PLACES.iter().map(one).collect()
}

fn names(scene: &Scene) -> Vec<PathBuf> {
    let folders = [
        scene.outputs().to_owned(),
        scene.folder().to_owned(),
        scene.weights().parent().expect("a directory").to_owned(),
    ];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a directory"));
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    names
}

fn judge(wanted: Wanted, scene: &Scene, end: End, before: &[PathBuf]) -> Result<Held, String> {
    scene.check_message(end)?;
    if scene.held() != Ok(Held::Old) {
        return Err("the output of another name has changed".to_owned());
    }
    let inputs = [scene.weights(), weights(&scene.job.input)].map(|file| fs::read(file).ok());
    if inputs[0].is_none() || inputs[0] != inputs[1] {
        return Err("the input has changed".to_owned());
    }
    let mut after = names(scene);
    after.retain(|name| !before.contains(name) && !name.ends_with("stdout") && !name.ends_with("stderr"));
    match wanted {
        Wanted::Refused(words) => {
            let said = scene.said();
            let missing = words.iter().find(|word| !said.contains(**word));
            match missing {
                _ if end != End::Exited(2) => Err("exit code 2 is expected".to_owned()),
                Some(word) => Err(format!("the message lacks {word:?}")),
                None if !after.is_empty() => Err(format!("{after:?} is left behind")),
                None => Ok(Held::Old),
            }
        }
        Wanted::Written => {
            let target = scene.outputs().join(&scene.target);
            after.retain(|name| *name != target);
            match fs::read(&target) {
                _ if end != End::Exited(0) => Err("exit code 0 is expected".to_owned()),
                Ok(bytes) if bytes == scene.job.new[0] && after.is_empty() => Ok(Held::New),
                Ok(_) | Err(_) => Err(format!("the output is not there, or {after:?} beside it")),
            }
        }
    }
}
