//! What is no failure: calls that are interrupted or write less than asked, file systems that cannot do everything, a
//! run that is stopped and continued. All of these end with the new output.

use crate::Bench;
use crate::errors::{symbol, watched};
use crate::interposer::{Answer, Call};
use crate::random::Random;
use crate::scene::{End, Held, Scene};
use crate::tally::Tally;
use rustix::io::Errno;
use rustix::process::Signal;
use std::thread;

/// What becomes of calls on partial files and the folder.
struct Disturbance {
    call: &'static str,
    answer: Answer,
    /// All of them, or one of eight by chance.
    always: bool,
}

const DISTURBANCES: &[Disturbance] = &[
    Disturbance { call: "fallocate", answer: Answer::Fail(Errno::INTR), always: false },
    Disturbance { call: "fallocate", answer: Answer::Fail(Errno::OPNOTSUPP), always: true },
    Disturbance { call: "pwrite64", answer: Answer::Fail(Errno::INTR), always: false },
    Disturbance { call: "pwrite64", answer: Answer::Short(1), always: false },
    Disturbance { call: "pwrite64", answer: Answer::Short(4097), always: false },
    Disturbance { call: "fsync", answer: Answer::Fail(Errno::INTR), always: false },
    Disturbance { call: "fsync of the directory", answer: Answer::Fail(Errno::INVAL), always: true },
    Disturbance { call: "flock", answer: Answer::Fail(Errno::NOLCK), always: true },
    Disturbance { call: "open", answer: Answer::Fail(Errno::INTR), always: false },
];

impl Disturbance {
    fn row(&self) -> String {
        let how = match self.answer {
            Answer::Go => "nothing".to_owned(),
            Answer::Fail(errno) => symbol(errno).to_owned(),
            Answer::Short(bytes) => format!("at most {bytes} bytes written"),
        };
        let how_often = if self.always { "every time" } else { "now and then" };
        format!("{}: {how}, {how_often}", self.call)
    }

    fn strikes(&self, call: &Call, scene: &Scene) -> bool {
        // `open` may be `openat`.
        let name = self.call.strip_suffix(" of the directory");
        let place = match name {
            Some(_) => call.path == scene.outputs(),
            None => call.is_of(scene) || call.path.starts_with(&scene.job.input),
        };
        call.name.trim_end_matches("at") == name.unwrap_or(self.call) && place
    }
}

/// Every disturbance, then stops and continuations.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let one = |disturbance: &Disturbance| {
        let mut tally = Tally::new(disturbance.row());
        for job in &bench.jobs {
            for round in 0..bench.rounds {
                let scene = Scene::new(job, round % 2 == 0);
                let mut random = Random::new(bench.seed + round as u64, &disturbance.row());
                let mut struck = 0;
                let mut after_one = false;
                let end = bench.interposer().start(&scene, &watched()).run(|call| {
                    let strikes = disturbance.strikes(call, &scene);
                    // The first one always, and never twice in a row.
                    let chosen = disturbance.always || struck == 0 || (!after_one && random.below(8) == 0);
                    after_one = strikes && chosen;
                    struck += usize::from(after_one);
                    if after_one { disturbance.answer } else { Answer::Go }
                });
                let what = format!("{}, {struck} times: {end:?}: {}", job.name, scene.said());
                let struck = if struck == 0 { Err("never struck".to_owned()) } else { Ok(()) };
                tally.add(&what, struck.and_then(|()| must_succeed(&scene, end)));
            }
        }
        tally
    };
    DISTURBANCES.iter().map(one).chain([stopped(bench)]).collect()
}

/// SIGSTOP and SIGCONT again and again: calls that cannot be restarted are interrupted.
fn stopped(bench: &Bench) -> Tally {
    let mut tally = Tally::new("SIGSTOP and SIGCONT, again and again");
    for job in &bench.jobs {
        for round in 0..bench.rounds {
            let scene = Scene::new(job, round % 2 == 0);
            let mut random = Random::new(bench.seed + round as u64, job.name);
            let running = scene.start();
            for _ in 0..20 {
                thread::sleep(job.time.mul_f64(random.below(100) as f64 / 1000.0));
                running.send(Signal::STOP);
                running.send(Signal::CONT);
            }
            let end = running.wait();
            tally.add(&format!("{}: {end:?}: {}", job.name, scene.said()), must_succeed(&scene, end));
        }
    }
    tally
}

fn must_succeed(scene: &Scene, end: End) -> Result<Held, String> {
    match scene.judge_with_next(end)? {
        held if end == End::Exited(0) => Ok(held),
        held => Err(format!("exit code 0 is expected, and {held:?} is held")),
    }
}
