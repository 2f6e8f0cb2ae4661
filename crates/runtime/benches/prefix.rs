//! What a copied prefix saves: the time in which [`Session::fork`] copies the first tokens of a sequence, next to the
//! time in which they are computed.
//!
//!     cargo bench -p trueup-runtime --bench prefix -- MODEL.gguf [TOKENS]
//!
//! Prints medians and the bytes that are copied.
#![allow(clippy::print_stdout, reason = "a measurement for people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use trueup_runtime::{DeviceOptions, Entry, ModelFile, Result, Session, SessionOptions, Weights, open_device};

/// Measurements of each kind.
const ROUNDS: usize = 5;

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let Some(path) = arguments.next() else {
        println!("prefix: skipped, it needs a model: cargo bench -p trueup-runtime --bench prefix -- MODEL.gguf");
        return Ok(());
    };
    let tokens: u32 = arguments.next().map_or(Ok(1000), |count| count.parse())?;
    let model = Arc::new(ModelFile::open(path)?);
    let weights = Arc::new(Weights::new(model, open_device("cpu", &DeviceOptions::default())?, None));
    let options = SessionOptions { context: Some(tokens as usize), sequences: 2, ..SessionOptions::default() };
    let mut session = Session::new(weights, &options)?;
    let entry = |place: u32| Entry { token: 3 + place % 200, sequence: 0, wants_logits: place + 1 == tokens };
    let prompt: Vec<Entry> = (0..tokens).map(entry).collect();
    let (mut computed, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        session.truncate(0, 0);
        computed.push(seconds(|| session.compute(&prompt, None).map(drop))?);
        copied.push(seconds(|| session.fork(0, 1, tokens as usize))?);
    }
    let bytes = session.snapshot(0)?.bytes();
    let (computed, copied) = (median(&mut computed), median(&mut copied));
    println!(
        "{tokens} tokens: computed in {computed:.3} s, copied in {copied:.6} s ({bytes} bytes): {:.0} times faster",
        computed / copied
    );
    Ok(())
}
