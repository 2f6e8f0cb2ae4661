//! Two writers of one output at the same time: both end, and the names hold what one of them wrote.

use crate::Bench;
use crate::interposer::{Answer, WRITING};
use crate::random::Random;
use crate::scene::{End, Held, Scene};
use crate::tally::Tally;
use rustix::process::Signal;
use std::thread;
use std::time::Duration;

/// Time in which the second writer ends, if it does not wait for the first.
const GRACE: Duration = Duration::from_millis(300);

/// Both at random offsets, one killed, and one held at each of its renames.
pub fn run(bench: &Bench) -> Vec<Tally> {
    vec![both(bench), one_killed(bench), one_held(bench)]
}

fn both(bench: &Bench) -> Tally {
    let mut tally = Tally::new("two writers at once");
    for (job, round) in bench.jobs.iter().flat_map(|job| (0..bench.rounds).map(move |round| (job, round))) {
        let mut random = Random::new(bench.seed + round as u64, job.name);
        let scene = Scene::new(job, true);
        let other = scene.beside();
        let first = other.start();
        thread::sleep(job.time.mul_f64(random.below(500) as f64 / 1000.0));
        let ends = [scene.start().wait(), first.wait()];
        tally.add(&format!("{}: {ends:?}: {}{}", job.name, scene.said(), other.said()), judge(&scene, &other, ends));
    }
    tally
}

/// Exit code 0 for both, and one of both outputs.
fn judge(scene: &Scene, other: &Scene, ends: [End; 2]) -> Result<Held, String> {
    if ends != [End::Exited(0); 2] {
        return Err("exit code 0 is expected of both".to_owned());
    }
    if !other.said().is_empty() {
        return Err("a message without a failure".to_owned());
    }
    match scene.held()? {
        // Of the other writer, who may have been the last.
        held @ (Held::Old | Held::New) => scene.check_next_run().map(|()| held),
        held @ (Held::Nothing | Held::Unopenable) => Err(format!("{held:?} is held")),
    }
}

fn one_killed(bench: &Bench) -> Tally {
    let mut tally = Tally::new("two writers at once, one of them killed");
    for (job, round) in bench.jobs.iter().flat_map(|job| (0..bench.rounds).map(move |round| (job, round))) {
        let mut random = Random::new(bench.seed + round as u64, &format!("killed {}", job.name));
        let scene = Scene::new(job, true);
        let other = scene.beside();
        let (killed, lives) = (other.start(), scene.start());
        thread::sleep(job.time.mul_f64(random.below(2000) as f64 / 1000.0));
        killed.send(Signal::KILL);
        let (killed, end) = (killed.wait(), lives.wait());
        let judged = match (end, scene.held()) {
            (End::Exited(0), Ok(held @ (Held::New | Held::Old))) => scene.check_next_run().map(|()| held),
            // The one that was killed had begun to give names after the other had ended.
            (End::Exited(0), Ok(Held::Unopenable)) if killed != End::Exited(0) => {
                scene.check_next_run().map(|()| Held::Unopenable)
            }
            (_, Ok(held)) => Err(format!("{held:?} is held")),
            (_, Err(problem)) => Err(problem),
        };
        tally.add(&format!("{}: {end:?}, other {killed:?}: {}", job.name, scene.said()), judged);
    }
    tally
}

/// While one stands still at a rename, the other runs: it waits, or ends before; either way no set is a mixture.
fn one_held(bench: &Bench) -> Tally {
    let mut tally = Tally::new("two writers at once, one of them held at a rename");
    for (job, round) in bench.jobs.iter().flat_map(|job| (0..bench.rounds).map(move |round| (job, round))) {
        let mut random = Random::new(bench.seed + round as u64, &format!("held {}", job.name));
        let scene = Scene::new(job, true);
        let other = scene.beside();
        let chosen = random.below(job.names.len());
        let (mut seen, mut second) = (0, None);
        let first = bench.interposer().start(&scene, WRITING).run(|call| {
            if call.name.starts_with("rename") {
                if seen == chosen {
                    second = Some(other.start());
                    thread::sleep(GRACE);
                }
                seen += 1;
            }
            Answer::Go
        });
        let second = second.map_or(End::Hung, |second| second.wait());
        let what = format!("{}, rename {chosen}: {first:?}, {second:?}: {}{}", job.name, scene.said(), other.said());
        tally.add(&what, judge(&scene, &other, [first, second]));
    }
    tally
}
