//! Signals at any time, and at every call of the system that a writer makes.

use crate::Bench;
use crate::interposer::{Answer, Interposed, WRITING, calls};
use crate::random::Random;
use crate::scene::{End, Held, PATIENCE, Scene, send};
use crate::tally::Tally;
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};

/// The signals that end a run, and their names.
const SIGNALS: [(Signal, &str); 4] =
    [(Signal::KILL, "SIGKILL"), (Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")];

/// Calls of each job at which a signal comes, in one round.
const POINTS_PER_ROUND: usize = 1;

/// Time in which a signal that ends a run does so.
const GRACE: Duration = Duration::from_millis(200);

/// Signals at random moments, from the start to a quarter of the time behind the usual end.
pub fn at_any_time(bench: &Bench) -> Vec<Tally> {
    let one = |(signal, name): (Signal, &str)| {
        let mut tally = Tally::new(format!("{name} at a random moment"));
        let mut random = Random::new(bench.seed, name);
        for (job, had_old) in bench.jobs.iter().flat_map(|job| [(job, true), (job, false)]) {
            for _ in 0..bench.rounds {
                let delay = job.time.mul_f64(random.below(1250) as f64 / 1000.0);
                let scene = Scene::new(job, had_old);
                let running = scene.start();
                thread::sleep(delay);
                running.send(signal);
                let end = running.wait();
                let what = format!("{}, after {delay:?}: {end:?}", job.name);
                tally.add(&what, ended_by(signal, end).and_then(|()| scene.judge_with_next(end)));
            }
        }
        tally
    };
    SIGNALS.into_iter().map(one).collect()
}

/// Signals before a call that changes a file, so that each order of calls is cut everywhere: all of those that give
/// names, and others by chance.
pub fn at_every_call(bench: &Bench) -> Vec<Tally> {
    let one = |(signal, name): (Signal, &str)| {
        let mut tally = Tally::new(format!("{name} before a write, sync, rename or removal"));
        for (job, had_old) in bench.jobs.iter().flat_map(|job| [(job, true), (job, false)]) {
            let trace = calls(bench.interposer(), &Scene::new(job, had_old));
            let mut random = Random::new(bench.seed, &format!("{name} {} {had_old}", job.name));
            let naming = trace.iter().position(|call| call.name.starts_with("rename")).expect("a rename");
            let points = (0..POINTS_PER_ROUND * bench.rounds).map(|number| match number % 2 {
                0 => random.between(naming.saturating_sub(2), trace.len()),
                _ => random.below(trace.len()),
            });
            for point in points.collect::<Vec<usize>>() {
                let scene = Scene::new(job, had_old);
                let end = interrupt(bench.interposer().start(&scene, WRITING), &scene, point, signal);
                let what = format!("{}, before call {point} ({}): {end:?}", job.name, trace[point].name);
                let judged = ended_by(signal, end).and_then(|()| scene.judge_with_next(end));
                tally.add(&what, judged.and_then(|held| is_whole(signal, held)));
            }
        }
        tally
    };
    SIGNALS.into_iter().map(one).collect()
}

/// Sends a signal while call number `point` waits. If the command lives on, the call happens.
fn interrupt(mut run: Interposed, scene: &Scene, point: usize, signal: Signal) -> End {
    let mut seen = 0;
    while let Some(call) = run.next() {
        let attacked = call.is_of(scene) && seen == point;
        seen += usize::from(call.is_of(scene));
        if attacked {
            send(run.process(), signal);
            run.hold(call, GRACE);
        } else {
            run.answer(&call, Answer::Go);
        }
    }
    run.finish()
}

/// A signal ends the command, unless it came too late.
fn ended_by(signal: Signal, end: End) -> Result<(), String> {
    if end == End::Exited(0) || end == End::Killed(signal.as_raw()) {
        Ok(())
    } else {
        Err("ended otherwise".to_owned())
    }
}

/// Only what cannot be caught leaves a set of files without its first one.
fn is_whole(signal: Signal, held: Held) -> Result<Held, String> {
    if held == Held::Unopenable && signal != Signal::KILL {
        Err("the set has no first file".to_owned())
    } else {
        Ok(held)
    }
}

/// Signals that whoever started the command wants to be ignored, as `nohup` does.
pub fn ignored(bench: &Bench) -> Vec<Tally> {
    let one = |(signal, name): &(Signal, &str)| {
        let mut tally = Tally::new(format!("{name} that is ignored from the start (nohup)"));
        for (job, round) in bench.jobs.iter().flat_map(|job| (0..bench.rounds).map(move |round| (job, round))) {
            let scene = Scene::new(job, round % 2 == 0);
            let running = scene.start_under(&format!("trap '' {}; : >../ready; exec \"$0\" \"$@\"", &name[3..]));
            let start = Instant::now();
            while !scene.folder().join("ready").exists() && start.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
            for _ in 0..4 {
                thread::sleep(job.time / 4);
                running.send(*signal);
            }
            let end = running.wait();
            let judged = scene.judge_with_next(end).and_then(|held| match end {
                End::Exited(0) => Ok(held),
                end => Err(format!("{end:?}")),
            });
            tally.add(job.name, judged);
        }
        tally
    };
    SIGNALS[1..].iter().map(one).collect()
}
