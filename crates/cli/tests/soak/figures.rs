//! What a process holds, from `/proc`, and whether it grows.
//!
//! ```text
//! samples   ........|####........................................####
//!            warm-up  begin (a tenth)                    end (a tenth)        growth = median of the end - median of the begin
//! ```

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A figure and how much it may grow over the samples behind the warm-up.
pub struct Figure {
    /// What is counted.
    pub name: &'static str,
    /// Largest growth that is no complaint.
    pub growth_max: i64,
}

/// What is watched. Memory may grow by what an allocator's fragments and tables of a few hundred bytes make; the rest
/// by nothing. `RssAnon` are the private pages that were touched, `VmData` those that were asked for, thread stacks
/// among them.
pub const FIGURES: [Figure; 5] = [
    Figure { name: "RssAnon KiB", growth_max: 1024 },
    Figure { name: "VmData KiB", growth_max: 1024 },
    Figure { name: "handles", growth_max: 0 },
    Figure { name: "threads", growth_max: 0 },
    Figure { name: "mappings", growth_max: 4 },
];

const THREADS: usize = 3;

/// How long threads that were told to end may take.
const PATIENCE: Duration = Duration::from_millis(100);

/// One look at a process, in the order of [`FIGURES`].
#[derive(Clone, Copy)]
pub struct Sample([i64; FIGURES.len()]);

impl Sample {
    /// Looks at a process: its number, or `self`. `None` where the system does not tell.
    pub fn take(process: &str) -> Option<Sample> {
        let folder = Path::new("/proc").join(process);
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let line = |key: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let handles = fs::read_dir(folder.join("fd")).ok()?.count();
        let mappings = fs::read_to_string(folder.join("maps")).ok()?.lines().count();
        let counts = [handles as i64, line("Threads:")?, mappings as i64];
        Some(Sample([line("RssAnon:")?, line("VmData:")?, counts[0], counts[1], counts[2]]))
    }
}

/// Samples of one process.
pub struct Series {
    process: String,
    idle_threads: i64,
    samples: Vec<Sample>,
}

impl Series {
    /// A series of a process as it is now: it has as many threads when nothing runs.
    pub fn new(process: &str) -> Series {
        let idle_threads = Sample::take(process).map_or(0, |sample| sample.0[THREADS]);
        Series { process: process.to_owned(), idle_threads, samples: Vec::new() }
    }

    /// A series that is taken while so many further threads run.
    pub fn beside(threads: usize) -> Series {
        let series = Series::new("self");
        Series { idle_threads: series.idle_threads + threads as i64, ..series }
    }

    /// Takes a sample as soon as threads that were told to end have ended.
    pub fn sample(&mut self) {
        let begin = Instant::now();
        let mut sample = Sample::take(&self.process);
        while sample.is_some_and(|sample| sample.0[THREADS] > self.idle_threads) && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
            sample = Sample::take(&self.process);
        }
        self.samples.extend(sample);
    }

    /// By how much each figure grew.
    pub fn growth(&self) -> [i64; FIGURES.len()] {
        let tenth = (self.samples.len() / 10).max(1);
        let (begin, end) = (tenth.min(self.samples.len()), self.samples.len().saturating_sub(tenth));
        let of = |samples: &[Sample], figure: usize| {
            let mut values: Vec<i64> = samples.iter().map(|sample| sample.0[figure]).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        let begins = &self.samples[begin..(begin + tenth).min(self.samples.len())];
        std::array::from_fn(|figure| of(&self.samples[end..], figure) - of(begins, figure))
    }

    /// Largest value of each figure.
    pub fn most(&self) -> [i64; FIGURES.len()] {
        std::array::from_fn(|figure| self.samples.iter().map(|sample| sample.0[figure]).max().unwrap_or(0))
    }

    /// What grew too much, by name.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<String> = FIGURES
            .iter()
            .zip(self.growth())
            .filter(|(figure, growth)| *growth > figure.growth_max)
            .map(|(figure, growth)| {
                format!("{} grew by {growth}, at most {} are right", figure.name, figure.growth_max)
            })
            .collect();
        if self.samples.len() < 20 {
            complaints.push(format!("{} samples are too few", self.samples.len()));
        }
        complaints
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }
}
