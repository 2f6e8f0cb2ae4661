//! Standard streams that are closed, full, or whose reader is gone: the output is written all the same, and the exit
//! code says whether everything was said.

use crate::Bench;
use crate::scene::{End, Held, Scene};
use crate::tally::Tally;

/// A way to start the command.
struct Surroundings {
    name: &'static str,
    script: &'static str,
    options: &'static [&'static str],
    code: i32,
    /// A part of the message; nobody is left to read one where it is empty.
    message: &'static str,
}

const SURROUNDINGS: &[Surroundings] = &[
    Surroundings { name: "stdout closed", script: "exec \"$0\" \"$@\" >&-", options: &[], code: 0, message: "" },
    Surroundings { name: "stderr closed", script: "exec \"$0\" \"$@\" 2>&-", options: &[], code: 0, message: "" },
    Surroundings {
        name: "all streams closed",
        script: "exec \"$0\" \"$@\" <&- >&- 2>&-",
        options: &["--json"],
        code: 0,
        message: "",
    },
    Surroundings {
        name: "reader of stdout gone",
        script: "\"$0\" \"$@\" | true; exit ${PIPESTATUS[0]}",
        options: &[],
        code: 2,
        message: "",
    },
    Surroundings {
        name: "reader of stdout gone, --json",
        script: "\"$0\" \"$@\" | true; exit ${PIPESTATUS[0]}",
        options: &["--json"],
        code: 2,
        message: "",
    },
    Surroundings {
        name: "reader of stderr gone",
        script: "{ \"$0\" \"$@\" 2>&1 >&3 | true; exit ${PIPESTATUS[0]}; } 3>&1",
        options: &[],
        code: 0,
        message: "",
    },
    Surroundings {
        name: "stdout full",
        script: "exec \"$0\" \"$@\" >/dev/full",
        options: &[],
        code: 2,
        message: "standard output: No space left",
    },
    Surroundings {
        name: "stdout full, --json",
        script: "exec \"$0\" \"$@\" >/dev/full",
        options: &["--json"],
        code: 2,
        message: "standard output: No space left",
    },
    Surroundings { name: "stderr full", script: "exec \"$0\" \"$@\" 2>/dev/full", options: &[], code: 0, message: "" },
];

/// Every way, once a round and job.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let one = |surroundings: &Surroundings| {
        let mut tally = Tally::new(surroundings.name);
        for (job, round) in bench.jobs.iter().flat_map(|job| (0..bench.rounds).map(move |round| (job, round))) {
            let mut scene = Scene::new(job, round % 2 == 0);
            scene.more.extend(surroundings.options.iter().map(Into::into));
            let end = scene.start_under(surroundings.script).wait();
            let what = format!("{}: {end:?}: {}", job.name, scene.said());
            tally.add(&what, judge(surroundings, &scene, end));
        }
        tally
    };
    SURROUNDINGS.iter().map(one).collect()
}

fn judge(surroundings: &Surroundings, scene: &Scene, end: End) -> Result<Held, String> {
    if end != End::Exited(surroundings.code) {
        return Err(format!("exit code {} is expected", surroundings.code));
    }
    let said = scene.said();
    if surroundings.message.is_empty() && !said.is_empty() {
        return Err("nothing is to be said".to_owned());
    }
    if !said.contains(surroundings.message) {
        return Err(format!("the message lacks {:?}", surroundings.message));
    }
    // Where nobody reads messages, there is none to judge.
    let held = scene.judge(if surroundings.message.is_empty() { End::Exited(0) } else { end })?;
    if held == Held::New { Ok(held) } else { Err(format!("{held:?} is held")) }
}
