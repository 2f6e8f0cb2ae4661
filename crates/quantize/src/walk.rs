//! Iterates over tensors in chunks of bounded size, on all cores.
//!
//! ```text
//! tensor  |  chunk 0  |  chunk 1  |  chunk 2 |     whole units: rows, heads, or blocks of one very long row
//! ```
//!
//! Each thread holds one chunk. Chunk boundaries depend only on the tensor, and results are returned in the order of
//! chunks, so nothing depends on the number of threads. Chunks start in the order of the file.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use trueup_blocks::DType;
use trueup_formats::{Error, Result};

/// Approximate number of elements of a chunk; rounded to whole units, or to whole blocks of one very long row. A
/// multiple of every block length.
pub const CHUNK_ELEMENTS: u64 = 1 << 18;

/// Maximum number of threads.
const THREADS_MAX: usize = 1024;

/// Splits `total` elements into ranges of whole units (rows) of about [`CHUNK_ELEMENTS`]. A larger unit is
/// split at multiples of [`CHUNK_ELEMENTS`], so no range is larger.
pub fn chunk_ranges(total: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let unit = unit.clamp(1, CHUNK_ELEMENTS);
    let step = CHUNK_ELEMENTS / unit * unit;
    (0..total.div_ceil(step)).map(move |chunk| chunk * step..total.min((chunk + 1) * step))
}

/// Size in bytes of `elements` elements. The recipe and the readers guarantee whole blocks.
pub fn bytes_of(elements: u64, dtype: DType) -> u64 {
    dtype.row_bytes(elements).unwrap_or_else(|| unreachable!("{elements} elements are not whole blocks of {dtype}"))
}

/// Returns the first `bytes` bytes of a reusable buffer, growing it if necessary; the contents are unspecified.
pub fn first_bytes(buffer: &mut Vec<u8>, bytes: u64) -> &mut [u8] {
    let bytes = bytes as usize;
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// Number of chunks whose results are kept at the same time: enough to keep every thread busy, and few enough for
/// models of any size.
const BATCH_CHUNKS: usize = 4096;

/// Runs `work` on each chunk with up to `threads` threads (`None` means one per core), and passes each result to `done`
/// in the order of chunks. Chunks are also started in order, so that files are read from front to back. `path` is the
/// file in error messages.
///
/// # Errors
/// The error of the first chunk whose `work` fails, and a number of threads that is 0, more than 1024, or more than the
/// system can start.
pub fn walk<C: Send + Sync, T: Send>(
    chunks: impl Iterator<Item = C>,
    threads: Option<usize>,
    path: &Path,
    work: impl Fn(&C) -> Result<T> + Sync,
    done: impl FnMut(&C, T),
) -> Result<()> {
    walk_with(chunks, threads, path, |(), chunk| work(chunk), done)
}

/// As [`walk`], with a separate state for each thread, such as buffers, which are created once and stay in its cache.
pub fn walk_with<C: Send + Sync, S: Default, T: Send>(
    mut chunks: impl Iterator<Item = C>,
    threads: Option<usize>,
    path: &Path,
    work: impl Fn(&mut S, &C) -> Result<T> + Sync,
    mut done: impl FnMut(&C, T),
) -> Result<()> {
    if let Some(count) = threads.filter(|count| !(1..=THREADS_MAX).contains(count)) {
        let problem = format!("expected 1 to {THREADS_MAX} threads, found {count}");
        return Err(Error::new(path, problem).help("omit the number to use every core"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Error::new(path, format!("cannot start threads: {error}")))?;
    loop {
        let batch: Vec<C> = chunks.by_ref().take(BATCH_CHUNKS).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = |_: rayon::BroadcastContext<'_>| {
            let (mut own, mut results) = (S::default(), Vec::new());
            while !failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = batch.get(number) else { break };
                let result = work(&mut own, chunk);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                results.push((number, result));
            }
            results
        };
        let mut results: Vec<(usize, Result<T>)> = pool.broadcast(worker).into_iter().flatten().collect();
        results.sort_unstable_by_key(|(number, _)| *number);
        // All chunks before a failed one were started, and have finished.
        let results = results.into_iter().map(|(_, result)| result).collect::<Result<Vec<T>>>()?;
        batch.iter().zip(results).for_each(|(chunk, result)| done(chunk, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_whole_units_and_cover_everything_once() {
        const N: u64 = CHUNK_ELEMENTS;
        for (total, unit) in
            [(96 * 40, 96), (4096 * 600, 4096), (N, N), (N * 5, N * 5), (N * 7 + 32, N * 7 + 32), (7, 1), (0, 4)]
        {
            let ranges: Vec<Range<u64>> = chunk_ranges(total, unit).collect();
            let mut end = 0;
            for range in &ranges {
                assert_eq!(range.start, end, "{total} by {unit}");
                assert!(range.start.is_multiple_of(unit.min(N)) && range.end - range.start <= N, "{total} by {unit}");
                end = range.end;
            }
            assert_eq!(end, total, "{total} by {unit}");
        }
    }

    #[test]
    fn an_invalid_number_of_threads_is_rejected() {
        for threads in [0, 1025, 1_000_000, usize::MAX] {
            let error = walk(0..1, Some(threads), Path::new("m.gguf"), |_| Ok(()), |_, ()| ()).unwrap_err().to_string();
            assert!(error.contains(&format!("expected 1 to 1024 threads, found {threads}")), "{error}");
        }
    }

    #[test]
    fn results_come_in_the_order_of_chunks() {
        let count = 2 * BATCH_CHUNKS + 3;
        let mut doubled = Vec::new();
        let double = |number: &usize| Ok(number * 2);
        walk(0..count, Some(3), Path::new("m.gguf"), double, |_, result| doubled.push(result)).unwrap();
        assert!(doubled == (0..count).map(|number| number * 2).collect::<Vec<usize>>());
        let fail = |number: &usize| if *number == count - 1 { Err(Error::new("m", "last")) } else { Ok(()) };
        assert!(walk(0..count, Some(3), Path::new("m.gguf"), fail, |_, ()| ()).is_err());
    }

    #[test]
    fn the_error_of_the_first_failing_chunk_is_returned() {
        for threads in [1, 2, 7] {
            let fail = |number: &usize| match number % 5 {
                3 => Err(Error::new("m", format!("chunk {number}"))),
                _ => Ok(()),
            };
            let error = walk(0..40, Some(threads), Path::new("m"), fail, |_, ()| ()).unwrap_err();
            assert_eq!(error.to_string(), "m: chunk 3", "{threads} threads");
        }
    }

    #[test]
    fn the_state_of_a_thread_lasts_from_chunk_to_chunk() {
        let count = |seen: &mut usize, _: &usize| {
            *seen += 1;
            Ok(*seen)
        };
        let mut last = 0;
        walk_with(0..100, Some(1), Path::new("m"), count, |_, seen| last = seen).unwrap();
        assert_eq!(last, 100);
    }
}
