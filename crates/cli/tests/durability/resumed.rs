//! Runs with `--resume` that fail at their very end: the message says that something is kept where it is, and only
//! there.

use crate::Bench;
use crate::interposer::{Answer, Call};
use crate::scene::{End, Held, Scene};
use crate::stock::Job;
use crate::tally::Tally;
use rustix::io::Errno;
use std::fs::File;
use std::time::SystemTime;

/// What the message says of kept files.
const KEPT: &str = "finished parts are kept for a run with --resume";

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The input changes at the last write.
    Input,
    /// The rename to the name of an output fails.
    Name,
    /// The folder cannot be synced after the last rename.
    Folder,
}

const FAULTS: &[(Fault, &str)] = &[
    (Fault::Input, "--resume: input changed at the last write"),
    (Fault::Name, "--resume: rename to the output: EIO"),
    (Fault::Folder, "--resume: fsync of the directory after the last rename: EIO"),
];

const WATCHED: &[&str] = &["pwrite64", "fsync", "rename", "renameat", "renameat2"];

/// Every fault on every job.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let one = |(fault, row): &(Fault, &str)| {
        let mut tally = Tally::new(*row);
        for round in 0..bench.rounds {
            for (number, job) in bench.jobs.iter().enumerate() {
                let scene = scene(job, (round + number) % 2 == 0);
                let end = strike(bench, *fault, &scene);
                let what = format!("{}: {end:?}: {}", job.name, scene.said().trim_end());
                tally.add(&what, judge(*fault, &scene, end));
            }
        }
        tally
    };
    FAULTS.iter().map(one).collect()
}

fn scene(job: &Job, had_old: bool) -> Scene<'_> {
    let mut scene = Scene::with_own_input(job, had_old);
    scene.more.push("--resume".into());
    scene
}

fn strike(bench: &Bench, fault: Fault, scene: &Scene) -> End {
    let is_write = |call: &Call| call.name == "pwrite64" && call.path.to_string_lossy().ends_with(".resume.partial");
    let mut writes = 0;
    if fault == Fault::Input {
        let twin = self::scene(scene.job, false);
        bench.interposer().start(&twin, WATCHED).run(|call| {
            writes += usize::from(is_write(call));
            Answer::Go
        });
    }
    let (mut seen, mut named) = (0, 0);
    bench.interposer().start(scene, WATCHED).run(|call| {
        let is_name = call.name.starts_with("rename") && !call.path.to_string_lossy().ends_with(".partial");
        seen += usize::from(is_write(call));
        named += usize::from(is_name);
        match fault {
            Fault::Input if is_write(call) && seen == writes => {
                let weights = File::options().append(true).open(scene.weights()).expect("the input");
                weights.set_modified(SystemTime::UNIX_EPOCH).expect("its time can be set");
                Answer::Go
            }
            Fault::Name if is_name => Answer::Fail(Errno::IO),
            Fault::Folder if call.path == scene.outputs() && named == scene.job.names.len() => Answer::Fail(Errno::IO),
            Fault::Input | Fault::Name | Fault::Folder => Answer::Go,
        }
    })
}

fn judge(fault: Fault, scene: &Scene, end: End) -> Result<Held, String> {
    let (held, said, strays) = (scene.held()?, scene.said(), scene.strays());
    scene.check_message(end)?;
    if end != End::Exited(2) {
        return Err("exit code 2 is expected".to_owned());
    }
    let keeps = strays.iter().any(|name| name.ends_with(".journal.partial"));
    if keeps != said.contains(KEPT) {
        return Err(format!("the message is not right of what is left: {strays:?}"));
    }
    if (fault == Fault::Folder) != (held == Held::New && strays.is_empty()) {
        return Err(format!("{held:?} is held, beside {strays:?}"));
    }
    if (fault == Fault::Folder) == keeps {
        return Err(format!("kept: {keeps}"));
    }
    scene.check_next_run().map(|()| held)
}
