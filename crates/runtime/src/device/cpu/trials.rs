//! Chooses how products ask for weights that they read once: the first products of a process try all ways in turns, and
//! the fastest way is kept. Results do not depend on it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use trueup_kernels::Prefetch;

/// Products that read less are not counted: starting the threads takes a large part of their time.
const BYTES_MIN: usize = 256 << 10;

/// Counted products of each way.
const ROUNDS: usize = 15;

/// The trials of this process.
pub(super) static TRIALS: Trials = Trials(Mutex::new(State { speeds: [const { Vec::new() }; Prefetch::ALL.len()] }));

/// The first products, until a way is chosen.
pub(super) struct Trials(Mutex<State>);

struct State {
    /// Bytes per second of the products of each way, in the order of [`Prefetch::ALL`].
    speeds: [Vec<f64>; Prefetch::ALL.len()],
}

impl Trials {
    /// Runs a product that reads `bytes` of weights once. While another thread runs one, this one is not counted.
    pub fn run(&self, bytes: usize, product: impl FnOnce()) {
        let mut state = match self.0.try_lock() {
            Ok(state) => state,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => return product(),
        };
        let Some(way) = state.next().filter(|_| bytes >= BYTES_MIN) else {
            drop(state);
            return product();
        };
        Prefetch::ALL[way].set();
        let start = Instant::now();
        product();
        state.add(way, bytes, start.elapsed());
        if state.next().is_none() {
            Prefetch::ALL[state.fastest()].set();
        }
    }
}

impl State {
    /// The way of the next product; `None` if all trials are done.
    fn next(&self) -> Option<usize> {
        let fewest = (0..self.speeds.len()).min_by_key(|way| self.speeds[*way].len())?;
        (self.speeds[fewest].len() < ROUNDS).then_some(fewest)
    }

    fn add(&mut self, way: usize, bytes: usize, time: Duration) {
        self.speeds[way].push(bytes as f64 / time.as_secs_f64().max(1e-9));
    }

    /// The way with the highest median speed; the first of several.
    fn fastest(&self) -> usize {
        let median = |way: usize| {
            let mut speeds = self.speeds[way].clone();
            speeds.sort_unstable_by(f64::total_cmp);
            speeds.get(speeds.len() / 2).copied().unwrap_or(0.0)
        };
        (1..self.speeds.len()).fold(0, |best, way| if median(way) > median(best) { way } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> State {
        State { speeds: Default::default() }
    }

    #[test]
    fn each_way_is_tried_equally_often_and_the_fastest_median_wins() {
        for best in 0..Prefetch::ALL.len() {
            let (mut state, mut number) = (none(), 0);
            while let Some(way) = state.next() {
                // Some products are disturbed, and some are in a cache.
                let millis = if number % 7 == 0 { 900 } else { 20 } - if way == best { 5 } else { 0 };
                state.add(way, 1 << 20, Duration::from_millis(if number % 11 == 0 { 1 } else { millis }));
                number += 1;
            }
            assert_eq!(number, ROUNDS * Prefetch::ALL.len());
            assert_eq!(state.fastest(), best);
        }
    }

    #[test]
    fn small_products_are_not_counted_and_trials_end() {
        let trials = Trials(Mutex::new(none()));
        let mut products = 0;
        for bytes in [BYTES_MIN - 1, 0] {
            trials.run(bytes, || products += 1);
        }
        assert_eq!(trials.0.lock().unwrap().speeds.concat(), []);
        for _ in 0..2 * ROUNDS * Prefetch::ALL.len() {
            trials.run(BYTES_MIN, || products += 1);
        }
        let state = trials.0.lock().unwrap();
        assert!(state.next().is_none() && state.speeds.iter().all(|speeds| speeds.len() == ROUNDS));
        assert_eq!(products, 2 + 2 * ROUNDS * Prefetch::ALL.len());
    }
}
