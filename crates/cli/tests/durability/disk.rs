//! A disk that is full, of bytes or of names, or read-only, and limits of the process: the system's own, nothing is
//! made up.

use crate::Bench;
use crate::errors::watched;
use crate::interposer::Answer;
use crate::random::Random;
use crate::scene::{End, Held, Scene};
use crate::stock::Job;
use crate::tally::Tally;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a page of memory holds, and so the unit of such a file system.
const PAGE_BYTES: usize = 4096;

/// A file system in memory over a folder; gone when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(folder: &Path, options: &str) -> Mount {
        let mut command = Command::new("mount");
        let status = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).status();
        assert!(status.expect("mount starts").success(), "mount {options}");
        Mount(folder.to_owned())
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(status.expect("mount starts").success(), "remount {options}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).status().ok();
    }
}

/// What a file system is short of.
#[derive(Clone, Copy)]
enum Shortage {
    /// Space, which is known when it is claimed.
    Claimed,
    /// Space, where the file system cannot claim any, so that a write fails.
    Written,
    /// Room for names.
    Names,
    /// It is read-only.
    ReadOnly,
}

const SHORTAGES: [(Shortage, &str, &[&str]); 4] = [
    (Shortage::Claimed, "full disk, space is claimed first", &["no space left", "bytes needed, ", "bytes available"]),
    (Shortage::Written, "full disk, space cannot be claimed", &["no space left", "bytes needed, ", "bytes available"]),
    (Shortage::Names, "disk without room for another name", &["no space left"]),
    (Shortage::ReadOnly, "read-only disk", &["read-only"]),
];

/// Full and read-only disks.
pub fn mounted(bench: &Bench) -> Vec<Tally> {
    let has_interposer = bench.interposer.is_ok();
    let possible = SHORTAGES.iter().filter(|(shortage, ..)| has_interposer || !matches!(shortage, Shortage::Written));
    let one = |(shortage, name, words): &(Shortage, &str, &[&str])| {
        let mut tally = Tally::new(*name);
        for (job, had_old) in bench.jobs.iter().flat_map(|job| [(job, true), (job, false)]) {
            for round in 0..bench.rounds {
                let mut random = Random::new(bench.seed + round as u64, &format!("{name} {} {had_old}", job.name));
                let (scene, mount) = prepare(job, had_old, *shortage, &mut random);
                let end = match shortage {
                    Shortage::Written => without_claims(bench, &scene),
                    Shortage::Claimed | Shortage::Names | Shortage::ReadOnly => scene.start().wait(),
                };
                let what = format!("{}: {end:?}: {}", job.name, scene.said());
                let judged = must_keep_old(&scene, end, words);
                mount.remount("rw,size=64m,nr_inodes=100");
                tally.add(&what, judged.and_then(|held| scene.check_next_run().map(|()| held)));
            }
        }
        tally
    };
    possible.map(one).collect()
}

/// A scene on a disk of its own that lacks something.
fn prepare<'a>(job: &'a Job, had_old: bool, shortage: Shortage, random: &mut Random) -> (Scene<'a>, Mount) {
    let scene = Scene::new(job, had_old);
    let pages = |files: &[Vec<u8>]| files.iter().map(|bytes| bytes.len().div_ceil(PAGE_BYTES)).sum::<usize>();
    let kept = if had_old { pages(&job.old) } else { 0 };
    let names = 1 + if had_old { job.names.len() } else { 0 };
    let options = match shortage {
        // From no room at all to a page too little.
        Shortage::Claimed | Shortage::Written => {
            format!("size={},nr_inodes=100", (kept + random.between(1, pages(&job.new))) * PAGE_BYTES)
        }
        Shortage::Names => format!("size=64m,nr_inodes={}", names + random.below(job.names.len())),
        Shortage::ReadOnly => "size=64m".to_owned(),
    };
    let mount = Mount::new(scene.outputs(), &options);
    scene.put_old();
    if matches!(shortage, Shortage::ReadOnly) {
        mount.remount("ro");
    }
    (scene, mount)
}

fn without_claims(bench: &Bench, scene: &Scene) -> End {
    bench.interposer().start(scene, &watched()).run(|call| match call.name.as_str() {
        "fallocate" => Answer::Fail(Errno::OPNOTSUPP),
        _ => Answer::Go,
    })
}

/// Exit code 2, a message with these words, and the old output.
fn must_keep_old(scene: &Scene, end: End, words: &[&str]) -> Result<Held, String> {
    let held = scene.judge(end)?;
    if end != End::Exited(2) || !matches!(held, Held::Old | Held::Nothing) {
        return Err(format!("exit code 2 and the old output are expected, and {held:?} is held"));
    }
    let said = scene.said();
    match words.iter().find(|word| !said.contains(**word)) {
        Some(word) => Err(format!("the message lacks {word:?}")),
        None => Ok(held),
    }
}

/// The largest file that a process may write, and how many it may have open.
pub fn limited(bench: &Bench) -> Vec<Tally> {
    let mut size = Tally::new("limit on the size of a file (ulimit -f)");
    let mut open = Tally::new("limit on open files (ulimit -n)");
    for (job, had_old) in bench.jobs.iter().flat_map(|job| [(job, true), (job, false)]) {
        for round in 0..bench.rounds {
            let mut random = Random::new(bench.seed + round as u64, &format!("limits {} {had_old}", job.name));
            let scene = Scene::new(job, had_old);
            let largest = job.new.iter().map(Vec::len).max().expect("a file");
            // In KiB. The message needs some, for it goes to a file too.
            let limit = random.between(16, largest >> 10);
            let end = scene.start_under(&format!("ulimit -f {limit}; exec \"$0\" \"$@\"")).wait();
            let what = format!("{}, {limit} KiB: {end:?}: {}", job.name, scene.said());
            let judged = must_keep_old(&scene, end, &["more than the maximum file size", "ulimit -f"]);
            size.add(&what, judged.and_then(|held| scene.check_next_run().map(|()| held)));

            let scene = Scene::new(job, had_old);
            let limit = random.between(7, 20);
            let end = scene.start_under(&format!("ulimit -n {limit}; exec \"$0\" \"$@\"")).wait();
            let what = format!("{}, {limit} open files: {end:?}: {}", job.name, scene.said());
            let judged =
                if end == End::Exited(0) { scene.judge(end) } else { must_keep_old(&scene, end, &["open files"]) };
            open.add(&what, judged.and_then(|held| scene.check_next_run().map(|()| held)));
        }
    }
    vec![size, open]
}
