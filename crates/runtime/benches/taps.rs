//! What the hook of observation costs when nobody looks: the same tokens with no observer and with one that wants no
//! node, in pairs, in both orders.
//!
//!     cargo bench -p trueup-runtime --bench taps -- MODEL.gguf [PAIRS]
//!
//! Prints the median time without an observer, and median and quartiles of the pairs' ratios.
#![allow(clippy::print_stdout, reason = "a measurement for people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use trueup_graph::Node;
use trueup_runtime::{
    DeviceOptions, Entry, ModelFile, Observer, Result, Seen, Session, SessionOptions, Weights, open_device,
};

/// Someone who wants nothing.
struct Nobody;

impl Observer for Nobody {
    fn wants(&self, _: &Node) -> bool {
        false
    }

    fn saw(&mut self, _: &Seen<'_>) -> Result<()> {
        Ok(())
    }
}

/// Tokens of the prompt.
const PROMPT: u32 = 32;

/// Tokens computed behind it, one by one.
const STEPS: u32 = 32;

/// Seconds for the prompt and the steps.
fn run(session: &mut Session, observed: bool) -> Result<f64> {
    session.truncate(0, 0);
    let start = Instant::now();
    let entry = |token, wants_logits| Entry { token, sequence: 0, wants_logits };
    let prompt: Vec<Entry> = (0..PROMPT).map(|place| entry(3 + place, place + 1 == PROMPT)).collect();
    let steps = (0..STEPS).map(|step| vec![entry(40 + step, true)]);
    for entries in std::iter::once(prompt).chain(steps) {
        let mut nobody = Nobody;
        session.compute(&entries, observed.then_some(&mut nobody as &mut dyn Observer))?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// The value that so many quarters of all lie below.
fn quartile(values: &[f64], quarters: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quarters / 4]
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let Some(path) = arguments.next() else {
        println!("taps: skipped, it needs a model: cargo bench -p trueup-runtime --bench taps -- MODEL.gguf");
        return Ok(());
    };
    let pairs: usize = arguments.next().map_or(Ok(15), |count| count.parse())?;
    let model = Arc::new(ModelFile::open(path)?);
    let weights = Arc::new(Weights::new(model, open_device("cpu", &DeviceOptions::default())?, None));
    let options = SessionOptions { context: Some((PROMPT + STEPS) as usize), ..SessionOptions::default() };
    let mut session = Session::new(weights, &options)?;
    run(&mut session, false)?;
    let (mut plain, mut ratios) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (first, second) = (run(&mut session, pair % 2 == 1)?, run(&mut session, pair % 2 == 0)?);
        let (without, with) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        plain.push(without);
        ratios.push(with / without);
    }
    println!("{PROMPT} + {STEPS} tokens without an observer: {:.3} s", quartile(&plain, 2));
    println!(
        "with one that wants nothing: ratio {:.3}, quartiles {:.3} to {:.3}, {pairs} pairs in both orders",
        quartile(&ratios, 2),
        quartile(&ratios, 1),
        quartile(&ratios, 3)
    );
    Ok(())
}
