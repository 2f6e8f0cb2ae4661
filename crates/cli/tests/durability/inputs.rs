//! Inputs that change while a run stands still at a known call: before its last look at them it refuses, behind that it
//! ends with the output of what it has read.

use crate::Bench;
use crate::interposer::{Answer, WRITING};
use crate::random::Random;
use crate::scene::{End, Held, Scene};
use crate::tally::Tally;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Longer than the steps of a file system's clock.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// What happens to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Shortened,
    Extended,
    Rewritten,
    RewrittenAndSetBack,
    Replaced,
    ReplacedAndSetBack,
    Removed,
}

const CHANGES: [(Change, &str); 7] = [
    (Change::Shortened, "input cut short"),
    (Change::Extended, "input extended"),
    (Change::Rewritten, "input rewritten, same size"),
    (Change::RewrittenAndSetBack, "input rewritten, same size, time of modification set back"),
    (Change::Replaced, "another input renamed over it"),
    (Change::ReplacedAndSetBack, "another input renamed over it, same size and time of modification"),
    (Change::Removed, "input removed"),
];

/// When it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// While a tensor is written.
    Write,
    /// When all is written and not yet on the disk.
    Sync,
    /// When the output gets its name.
    Name,
}

const MOMENTS: [Moment; 3] = [Moment::Write, Moment::Sync, Moment::Name];

impl Change {
    fn make(self, file: &Path, random: &mut Random) -> io::Result<()> {
        let facts = fs::metadata(file)?;
        let size = facts.len();
        let other = file.with_extension("other");
        let rewrite = |path: &Path, random: &mut Random| {
            let target = File::options().write(true).open(path)?;
            // The later half: what a run has not read yet, as far as that can be known.
            let place = size / 2 + random.below((size - size / 2) as usize) as u64;
            target.write_all_at(&[random.next() as u8], place)?;
            Ok(target)
        };
        let set_back = |target: File| target.set_times(FileTimes::new().set_modified(facts.modified()?));
        match self {
            Change::Shortened => File::options().write(true).open(file)?.set_len(random.below(size as usize) as u64),
            Change::Extended => File::options().write(true).open(file)?.set_len(size + 1),
            Change::Rewritten => rewrite(file, random).map(drop),
            Change::RewrittenAndSetBack => set_back(rewrite(file, random)?),
            Change::Replaced | Change::ReplacedAndSetBack => {
                fs::copy(file, &other)?;
                let target = rewrite(&other, random)?;
                if self == Change::ReplacedAndSetBack {
                    set_back(target)?;
                }
                fs::rename(&other, file)
            }
            Change::Removed => fs::remove_file(file),
        }
    }
}

/// Each change at each moment, to the weights or to another file of the input.
pub fn run(bench: &Bench) -> Vec<Tally> {
    let one = |(change, name): (Change, &str)| {
        let mut tally = Tally::new(name);
        for job in &bench.jobs {
            for round in 0..bench.rounds.max(MOMENTS.len()) {
                let moment = MOMENTS[round % MOMENTS.len()];
                let mut random = Random::new(bench.seed + round as u64, &format!("{name} {} {moment:?}", job.name));
                let scene = Scene::with_own_input(job, random.below(2) == 0);
                let mut files = vec![scene.weights()];
                if scene.input().is_dir() {
                    files.extend(["config.json", "tokenizer.json"].map(|file| scene.input().join(file)));
                }
                let file = random.pick(&files).clone();
                let end = attack(bench, &scene, moment, || change.make(&file, &mut random).expect("it is ours"));
                let what = format!("{}, {} at {moment:?}: {end:?}: {}", job.name, file.display(), scene.said());
                tally.add(&what, judge(&scene, moment, &file, end));
            }
        }
        tally
    };
    CHANGES.into_iter().map(one).chain([checked(bench)]).collect()
}

/// Runs the scene and makes a change while the call of a moment waits.
fn attack(bench: &Bench, scene: &Scene, moment: Moment, change: impl FnOnce()) -> End {
    let mut change = Some(change);
    bench.interposer().start(scene, WRITING).run(|call| {
        let strikes = match moment {
            Moment::Write => call.name == "pwrite64",
            Moment::Sync => call.name == "fsync",
            Moment::Name => call.name.starts_with("rename") || call.name.starts_with("unlink"),
        };
        if call.is_of(scene) && strikes && change.is_some() {
            thread::sleep(CLOCK_STEP);
            change.take().into_iter().for_each(|change| change());
        }
        Answer::Go
    })
}

fn judge(scene: &Scene, moment: Moment, file: &Path, end: End) -> Result<Held, String> {
    let held = scene.judge(end)?;
    let said = scene.said();
    if moment == Moment::Name {
        return if (end, held) == (End::Exited(0), Held::New) { Ok(held) } else { Err(format!("{held:?} is held")) };
    }
    if end != End::Exited(2) || !matches!(held, Held::Old | Held::Nothing) {
        return Err(format!("exit code 2 and the old output are expected, and {held:?} is held"));
    }
    let name = file.file_name().expect("a name").to_string_lossy();
    if said.contains(&*name) { Ok(held) } else { Err("the message does not name the file".to_owned()) }
}

/// `convert --check` compares the new file with the source: one that changes by then gives no verdict, and the new file
/// stays.
fn checked(bench: &Bench) -> Tally {
    let mut tally = Tally::new("input rewritten while --check reads it");
    for job in bench.jobs.iter().filter(|job| job.command == "convert") {
        for round in 0..bench.rounds {
            let mut scene = Scene::with_own_input(job, round % 2 == 0);
            scene.more.push("--check".into());
            let mut random = Random::new(bench.seed + round as u64, job.name);
            let (weights, first) = (scene.weights(), PathBuf::from(&job.names[0]));
            let mut changed = false;
            let end = bench.interposer().start(&scene, &["open", "openat"]).run(|call| {
                if !changed && call.path.file_name() == Some(first.as_os_str()) {
                    thread::sleep(CLOCK_STEP);
                    Change::Rewritten.make(&weights, &mut random).expect("it is ours");
                    changed = true;
                }
                Answer::Go
            });
            let judged = scene.judge(end).and_then(|held| match (end, held) {
                (End::Exited(2), Held::New) if changed => Ok(held),
                _ => Err(format!("exit code 2 and the new output are expected, and {held:?} is held")),
            });
            tally.add(&format!("{}: {end:?}: {}", job.name, scene.said()), judged);
        }
    }
    tally
}
