//! Chooses the prefetch strategy at run time: some of the first large products of a process are divided into parts that
//! use each strategy in turn, and the fastest strategy is kept. Results do not depend on the strategy.
//!
//! ```text
//!  product      │ part 0 │ part 1 │ part 2 │ part 3 │ ...
//!  strategy     │ 0      │ 1      │ 2      │ 0      │        the next product starts with strategy 1
//! ```
//!
//! Only parts of the same product are compared, because the speed also depends on its size and on where its weights
//! are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Instant;
use trueup_kernels::Prefetch;

const STRATEGIES: usize = Prefetch::STRATEGIES.len();

/// Minimum size of a product that is timed, in elements. The time to start threads dominates smaller parts.
const ELEMENTS_MIN: usize = 4 << 20;

/// Products that are not timed: weights of a mapped file are read from the disk in the first ones.
const WARM_UP: usize = 32;

/// Timed products.
const PRODUCTS: usize = 6;

/// Parts of a product: each strategy has the same number of them.
const PARTS: usize = 5 * STRATEGIES;

/// The tuner of this process.
pub(super) static PREFETCH_TUNER: PrefetchTuner = PrefetchTuner::new(Prefetch::set);

/// The timings so far.
pub(super) struct PrefetchTuner {
    timings: Mutex<Timings>,
    /// Products that have started. A part is not timed if another product starts meanwhile.
    started: AtomicUsize,
    /// Products that are computed now.
    running: AtomicUsize,
    set: fn(Prefetch),
}

struct Timings {
    /// Large products so far.
    products: usize,
    /// Relative speeds of the parts of each strategy: 1 is the mean of a product.
    speeds: [Vec<f64>; STRATEGIES],
}

impl PrefetchTuner {
    const fn new(set: fn(Prefetch)) -> PrefetchTuner {
        let timings = Mutex::new(Timings { products: 0, speeds: [const { Vec::new() }; STRATEGIES] });
        PrefetchTuner { timings, started: AtomicUsize::new(0), running: AtomicUsize::new(0), set }
    }

    /// Computes the pieces of a product of `elements` weights, all together or, if the product is timed, in parts. The
    /// weights are read only once, by kernels that use the current strategy.
    pub fn run<P>(&self, elements: usize, pieces: Vec<P>, compute: impl Fn(Vec<P>)) {
        self.started.fetch_add(1, Ordering::Relaxed);
        let is_alone = self.running.fetch_add(1, Ordering::Relaxed) == 0;
        let timings = match self.timings.try_lock() {
            Ok(timings) => Some(timings),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        };
        let is_large = elements >= ELEMENTS_MIN && pieces.len() >= PARTS;
        match timings.filter(|timings| is_large && is_alone && timings.products < WARM_UP + PRODUCTS) {
            None => compute(pieces),
            Some(mut timings) if timings.products < WARM_UP => {
                timings.products += 1;
                compute(pieces);
            }
            Some(mut timings) => {
                let first = timings.products;
                timings.products += 1;
                timings.add(&self.timed(first, pieces, compute));
                if timings.products == WARM_UP + PRODUCTS {
                    (self.set)(Prefetch::STRATEGIES[timings.fastest()]);
                }
            }
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Computes the parts of a product. Returns strategy and speed, in pieces per second, of each part that was not
    /// disturbed.
    fn timed<P>(&self, first: usize, pieces: Vec<P>, compute: impl Fn(Vec<P>)) -> Vec<(usize, f64)> {
        let (count, mut pieces) = (pieces.len(), pieces.into_iter());
        let mut speeds = Vec::with_capacity(PARTS);
        for part in 0..PARTS {
            let part_pieces: Vec<P> = pieces.by_ref().take(count * (part + 1) / PARTS - count * part / PARTS).collect();
            let (strategy, len) = ((first + part) % STRATEGIES, part_pieces.len());
            (self.set)(Prefetch::STRATEGIES[strategy]);
            let started = self.started.load(Ordering::Relaxed);
            let start = Instant::now();
            compute(part_pieces);
            let seconds = start.elapsed().as_secs_f64();
            if self.started.load(Ordering::Relaxed) == started && seconds > 0.0 {
                speeds.push((strategy, len as f64 / seconds));
            }
        }
        speeds
    }
}

impl Timings {
    /// Adds the speeds of the parts of a product.
    fn add(&mut self, parts: &[(usize, f64)]) {
        let mean = parts.iter().map(|(_, speed)| speed).sum::<f64>() / parts.len() as f64;
        for (strategy, speed) in parts {
            self.speeds[*strategy].push(speed / mean);
        }
    }

    /// The strategy with the highest median speed; on a tie, the first one.
    fn fastest(&self) -> usize {
        let median = |strategy: usize| {
            let mut speeds = self.speeds[strategy].clone();
            speeds.sort_unstable_by(f64::total_cmp);
            speeds.get(speeds.len() / 2).copied().unwrap_or(0.0)
        };
        (1..STRATEGIES).fold(0, |best, other| if median(other) > median(best) { other } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        /// What a tuner of these tests has set.
        static CURRENT: Cell<Option<Prefetch>> = const { Cell::new(None) };
    }

    fn tuner() -> PrefetchTuner {
        CURRENT.set(None);
        PrefetchTuner::new(|strategy| CURRENT.set(Some(strategy)))
    }

    /// Runs products of this size until the timings are complete. A piece takes `time` with a strategy, and more in
    /// every third product. Returns the pieces in their order, product after product.
    fn run(tuner: &PrefetchTuner, elements: usize, time: impl Fn(Prefetch) -> Duration) -> Vec<usize> {
        let all = Mutex::new(Vec::new());
        for product in 0..WARM_UP + PRODUCTS {
            tuner.run(elements, (0..2 * PARTS + 1).collect(), |pieces| {
                let each = CURRENT.get().map_or(Duration::ZERO, &time) * if product % 3 == 0 { 3 } else { 1 };
                let (start, count) = (Instant::now(), pieces.len() as u32);
                while start.elapsed() < each * count {}
                all.lock().unwrap().extend(pieces);
            });
        }
        all.into_inner().unwrap()
    }

    #[test]
    fn the_fastest_strategy_is_set_at_the_end() {
        for best in Prefetch::STRATEGIES {
            let time = |strategy| Duration::from_micros(if strategy == best { 20 } else { 60 });
            let tuner = tuner();
            let pieces = run(&tuner, ELEMENTS_MIN, time);
            let expected: Vec<usize> = (0..WARM_UP + PRODUCTS).flat_map(|_| 0..2 * PARTS + 1).collect();
            assert_eq!(pieces, expected, "every piece is computed once, in order");
            assert_eq!(CURRENT.get(), Some(best));
            // Later products do not change it.
            CURRENT.set(None);
            run(&tuner, ELEMENTS_MIN, time);
            assert_eq!(CURRENT.get(), None);
        }
    }

    #[test]
    fn parts_of_one_product_are_compared_only() {
        let mut timings = Timings { products: 0, speeds: Default::default() };
        // Strategy 2 is a little faster in each product, and the products differ by far more.
        for scale in [1.0, 100.0, 10.0] {
            timings.add(&[(0, scale), (1, scale), (2, 1.1 * scale)]);
        }
        assert_eq!(timings.fastest(), 2);
        let mut equal = Timings { products: 0, speeds: Default::default() };
        equal.add(&[(2, 1.0), (1, 1.0), (0, 1.0)]);
        assert_eq!(equal.fastest(), 0, "the first one on a tie");
    }

    #[test]
    fn small_products_are_not_timed() {
        let tuner = tuner();
        run(&tuner, ELEMENTS_MIN - 1, |_| Duration::ZERO);
        tuner.run(ELEMENTS_MIN, vec![0; PARTS - 1], |_| ());
        assert_eq!((CURRENT.get(), tuner.timings.lock().unwrap().products), (None, 0));
    }

    #[test]
    fn products_within_another_one_are_computed_but_not_timed() {
        let tuner = tuner();
        let computed = Cell::new(0);
        for _ in 0..WARM_UP + PRODUCTS {
            tuner.run(ELEMENTS_MIN, vec![0; PARTS], |_| {
                tuner.run(ELEMENTS_MIN, vec![0; PARTS], |pieces| computed.set(computed.get() + pieces.len()));
            });
        }
        let timings = tuner.timings.lock().unwrap();
        assert_eq!(timings.products, WARM_UP + PRODUCTS);
        assert!(timings.speeds.concat().is_empty(), "each part was disturbed");
        assert_eq!(computed.get(), (WARM_UP + PRODUCTS * PARTS) * PARTS);
    }
}
