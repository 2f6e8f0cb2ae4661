//! Calls of the system that fail: no space, no quota, a broken disk, a read-only folder, at each step of a writer. And
//! the order of these steps, without which a power cut could leave a name without its bytes.

use crate::Bench;
use crate::interposer::{Answer, Call, WRITING, calls};
use crate::random::Random;
use crate::scene::{End, Held, Scene};
use crate::stock::Job;
use crate::tally::Tally;
use rustix::io::Errno;

/// Where a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// On a partial file, before any output has changed.
    Partial,
    /// The rename to the name of an output.
    Name,
    /// The removal of an old first file.
    Removal,
    /// The sync of the folder behind that.
    Folder,
}

/// A kind of failure.
struct Fault {
    call: &'static str,
    place: Place,
    errors: &'static [(Errno, &'static str)],
}

/// Each error with words that its message has.
const FAULTS: &[Fault] = &[
    Fault {
        call: "openat",
        place: Place::Partial,
        errors: &[
            (Errno::ACCESS, "Permission denied"),
            (Errno::ROFS, "the file system is read-only"),
            (Errno::NOSPC, "no space left"),
            (Errno::DQUOT, "quota"),
            (Errno::MFILE, "open files"),
            (Errno::IO, "input/output error"),
        ],
    },
    Fault {
        call: "fallocate",
        place: Place::Partial,
        errors: &[
            (Errno::NOSPC, "bytes needed, "),
            (Errno::DQUOT, "quota"),
            (Errno::FBIG, "more than the maximum file size"),
            (Errno::IO, "input/output error"),
        ],
    },
    Fault {
        call: "pwrite64",
        place: Place::Partial,
        errors: &[
            (Errno::NOSPC, "bytes needed, "),
            (Errno::DQUOT, "quota"),
            (Errno::FBIG, "more than the maximum file size"),
            (Errno::IO, "input/output error"),
            (Errno::ROFS, "the file system is read-only"),
        ],
    },
    Fault {
        call: "fsync",
        place: Place::Partial,
        errors: &[(Errno::NOSPC, "bytes needed, "), (Errno::DQUOT, "quota"), (Errno::IO, "input/output error")],
    },
    Fault {
        call: "rename",
        place: Place::Name,
        errors: &[
            (Errno::NOSPC, "no space left"),
            (Errno::IO, "input/output error"),
            (Errno::ROFS, "the file system is read-only"),
            (Errno::ACCESS, "Permission denied"),
        ],
    },
    Fault {
        call: "unlink",
        place: Place::Removal,
        errors: &[(Errno::IO, "input/output error"), (Errno::ACCESS, "Permission denied")],
    },
    Fault {
        call: "fsync",
        place: Place::Folder,
        errors: &[(Errno::IO, "input/output error"), (Errno::NOSPC, "no space left")],
    },
];

impl Fault {
    fn strikes(&self, call: &Call, scene: &Scene) -> bool {
        let is_partial = call.path.to_string_lossy().contains(".partial");
        let place = match self.place {
            Place::Partial => is_partial,
            Place::Name | Place::Removal => !is_partial,
            Place::Folder => call.path == scene.outputs(),
        };
        // `rename` may be `renameat`.
        call.is_of(scene) && call.name.starts_with(self.call) && place
    }

    fn row(&self) -> String {
        let errors: Vec<String> = self.errors.iter().map(|(errno, _)| symbol(*errno).to_owned()).collect();
        let errors = errors.join(", ");
        let Fault { call, .. } = self;
        match self.place {
            Place::Partial => format!("{call} of a partial file: {errors}"),
            Place::Name => format!("{call} to the output: {errors}"),
            Place::Removal => format!("{call} of the old first file: {errors}"),
            Place::Folder => format!("{call} of the directory: {errors}"),
        }
    }
}

/// The name of an error.
pub fn symbol(errno: Errno) -> &'static str {
    const SYMBOLS: &[(Errno, &str)] = &[
        (Errno::ACCESS, "EACCES"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::FBIG, "EFBIG"),
        (Errno::INTR, "EINTR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::IO, "EIO"),
        (Errno::MFILE, "EMFILE"),
        (Errno::NOLCK, "ENOLCK"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::ROFS, "EROFS"),
    ];
    SYMBOLS.iter().find(|(number, _)| *number == errno).map_or("another error", |(_, symbol)| symbol)
}

/// The calls that fail, with all others that change files.
pub fn watched() -> Vec<&'static str> {
    [WRITING, &["open", "openat", "flock"]].concat()
}

/// Every fault, at a call that the seed picks.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let one = |fault: &Fault| {
        let mut tally = Tally::new(fault.row());
        for (number, job) in bench.jobs.iter().enumerate() {
            for round in 0..bench.rounds.max(fault.errors.len()) {
                let (errno, words) = fault.errors[round % fault.errors.len()];
                let mut random = Random::new(bench.seed + round as u64, &format!("{} {}", fault.row(), job.name));
                let had_old = fault.place == Place::Removal || (round + number) % 2 == 0;
                let scene = Scene::new(job, had_old);
                if let Some((what, held)) = strike(bench, fault, errno, words, &scene, &mut random) {
                    tally.add(&what, held);
                }
            }
        }
        tally
    };
    FAULTS.iter().map(one).collect()
}

/// Lets one call fail; nothing where the job makes no such call.
fn strike(
    bench: &Bench,
    fault: &Fault,
    errno: Errno,
    words: &str,
    scene: &Scene,
    random: &mut Random,
) -> Option<(String, Result<Held, String>)> {
    let had_old = scene.held() == Ok(Held::Old);
    let (twin, mut count) = (Scene::new(scene.job, had_old), 0);
    bench.interposer().start(&twin, &watched()).run(|call| {
        count += usize::from(fault.strikes(call, &twin));
        Answer::Go
    });
    if count == 0 || (fault.place == Place::Removal && scene.job.names.len() == 1) {
        return None;
    }
    let chosen = random.below(count);
    let mut seen = 0;
    let end = bench.interposer().start(scene, &watched()).run(|call| {
        let strikes = fault.strikes(call, scene);
        seen += usize::from(strikes);
        if strikes && seen == chosen + 1 { Answer::Fail(errno) } else { Answer::Go }
    });
    let what = format!("{}, {} number {chosen}: {end:?}: {}", scene.job.name, symbol(errno), scene.said().trim_end());
    Some((what, judge(scene, fault.place, words, end)))
}

fn judge(scene: &Scene, place: Place, words: &str, end: End) -> Result<Held, String> {
    let said = scene.said();
    let held = scene.judge(end)?;
    if end != End::Exited(2) {
        return Err("exit code 2 is expected".to_owned());
    }
    if !said.contains(words) || !said.contains("out") {
        return Err(format!("the message lacks {words:?} or the file's name"));
    }
    let (old, new) = (matches!(held, Held::Old | Held::Nothing), held == Held::New);
    let fits = match place {
        Place::Partial => old,
        Place::Removal | Place::Name | Place::Folder => true,
    };
    if !fits {
        return Err(format!("{held:?} is held"));
    }
    if said.contains("is unchanged") && !old {
        return Err("the message says that the old file is as it was".to_owned());
    }
    if new && !said.contains("new file") {
        return Err("the message does not say that the new file is there".to_owned());
    }
    if held == Held::Unopenable && !said.contains("incomplete") {
        return Err("the message does not say that the files are incomplete".to_owned());
    }
    scene.check_next_run().map(|()| held)
}

/// All bytes are on the disk before the first name changes, and names are on the disk before the end: in the calls of a
/// clean run.
pub fn order(bench: &Bench) -> Vec<Tally> {
    let mut tally = Tally::new("order of writes, syncs and renames in an undisturbed run");
    for (job, had_old) in bench.jobs.iter().flat_map(|job| [(job, true), (job, false)]) {
        let scene = Scene::new(job, had_old);
        let calls = calls(bench.interposer(), &scene);
        let ordered = check_order(job, &calls, &scene);
        tally.add(job.name, ordered.and_then(|()| scene.judge_with_next(End::Exited(0))));
    }
    vec![tally]
}

fn check_order(job: &Job, calls: &[Call], scene: &Scene) -> Result<(), String> {
    let is_partial = |call: &Call| call.path.to_string_lossy().ends_with(".partial");
    let last = |wanted: &dyn Fn(&Call) -> bool| calls.iter().rposition(wanted);
    let first = |wanted: &dyn Fn(&Call) -> bool| calls.iter().position(wanted);
    let renames: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].name.starts_with("rename")).collect();
    let synced = calls.iter().filter(|call| call.name == "fsync" && is_partial(call)).count();
    let written = last(&|call| call.name == "pwrite64").ok_or("nothing is written")?;
    let sync = first(&|call| call.name == "fsync").ok_or("nothing is synced")?;
    let partials_synced = last(&|call| call.name == "fsync" && is_partial(call)).ok_or("no partial file is synced")?;
    let named = first(&|call| call.name.starts_with("rename") || call.name.starts_with("unlink")).ok_or("no rename")?;
    let folder =
        last(&|call| call.name == "fsync" && call.path == scene.outputs()).ok_or("the directory is not synced")?;
    let leads = renames.last().map(|at| calls[*at].path.ends_with(&job.names[0]));
    let before_last = renames.iter().rev().nth(1).is_none_or(|other| {
        let between = *other..renames[renames.len() - 1];
        calls[between].iter().any(|call| call.name == "fsync" && call.path == scene.outputs())
    });
    let facts = [
        (written < sync, "something is written behind the first sync"),
        (synced == job.names.len() && renames.len() == job.names.len(), "not every file is synced and renamed once"),
        (partials_synced < named, "a name changes before all bytes are on the disk"),
        (folder > renames[renames.len() - 1], "the directory is not synced after the last rename"),
        (leads == Some(true), "the first file is not the last to get its name"),
        (before_last, "the first file gets its name before those of the others are on the disk"),
    ];
    facts.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, problem)| Err(problem.to_owned()))
}
