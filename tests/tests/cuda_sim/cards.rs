//! A model over two cards, and over a card and the processor: layers are placed where there is room, and the bits are
//! those of one card.

use std::path::Path;
use std::sync::Arc;
use trueup::runtime::{
    DeviceOptions, Entry, Error, ModelFile, Session, SessionOptions, Weights, open_device, open_devices,
};
use trueup::verify::{Outcome, Reference, VerifyOptions, verify};

/// Tokens of the prompt, which is cut in two, and tokens behind it.
const PROMPT: u32 = 9;
const STEPS: u32 = 6;

/// What is not right about the model on several devices; `cards` is how they are called.
pub fn cards(model: &Path, cards: &str) -> Vec<String> {
    let found = [two_cards, card_and_processor, too_small, divided].map(|test| test(model, cards));
    let wrong: Vec<String> =
        found.into_iter().filter_map(|found| found.unwrap_or_else(|error| Some(error.to_string()))).collect();
    println!("{cards}, simulated: a model over several devices, {} wrong", wrong.len());
    wrong
}

/// Sessions of a prompt in two parts.
pub fn options() -> SessionOptions {
    SessionOptions { context: Some(64), prompt_chunk: 5, ..SessionOptions::default() }
}

pub fn weights(model: &Path, list: &str, memory: &[u64]) -> Result<Arc<Weights>, Error> {
    let devices = open_devices(list, memory, &DeviceOptions::default())?;
    Ok(Arc::new(Weights::over(Arc::new(ModelFile::open(model)?), devices, None)))
}

/// Bytes that the first device holds, and a place in words: `name 0-1, name 2-3`, of nodes that each device computes of
/// layers.
pub fn placed(weights: &Weights) -> Result<(u64, String), Error> {
    let report = Session::plan(weights, &options(), 5, 1, 64)?.report();
    let device = &report.devices[0];
    let held = device.weight_bytes + device.kv_bytes + device.input_bytes + device.arena_bytes + device.scratch_bytes;
    let words = report.devices.iter().map(|device| match device.layers {
        Some((first, last)) => format!("{} {first}-{last}", device.name),
        None => device.name.clone(),
    });
    Ok((held as u64, words.collect::<Vec<_>>().join(", ")))
}

/// The logits behind a prompt and behind each token that follows.
pub fn logits(weights: &Arc<Weights>) -> Result<Vec<Vec<f64>>, Error> {
    let mut session = Session::new(Arc::clone(weights), &options())?;
    let entry = |token| Entry { token, sequence: 0, wants_logits: true };
    let prompt: Vec<Entry> = (1..=PROMPT).map(entry).collect();
    let mut rows = vec![session.compute(&prompt, None)?.row(PROMPT as usize - 1).to_vec()];
    for token in 0..STEPS {
        rows.push(session.compute(&[entry(token)], None)?.row(0).to_vec());
    }
    Ok(rows)
}

fn two_cards(model: &Path, cards: &str) -> Result<Option<String>, Error> {
    let one = weights(model, &format!("{cards}:0"), &[])?;
    let (all, _) = placed(&one)?;
    let expected = logits(&one)?;
    // A byte less than all of it: one of the layers.
    let two = weights(model, cards, &[all - 1])?;
    let (held, place) = placed(&two)?;
    if held >= all || !(place.starts_with(&format!("{cards}:0 0-")) && place.contains(&format!("{cards}:1 1-"))) {
        return Ok(Some(format!("{held} bytes of {all} lie on the first card, and layers so: {place}")));
    }
    if logits(&two)? != expected {
        return Ok(Some(format!("{place}: other bits than on one card")));
    }
    let (device, further) = (Arc::clone(&two.devices()[0]), vec![Arc::clone(&two.devices()[1])]);
    let options = VerifyOptions { prompts: vec![vec![1, 5, 9, 2]], steps: 2, further, ..VerifyOptions::default() };
    let report = verify(Arc::clone(two.model()), device, Reference::Oracle, &options, &mut |_| {})?;
    let nodes = &report.nodes;
    let is_on = |card: &str| nodes.iter().any(|node| node.device == format!("{cards}:{card}"));
    if report.result != Outcome::Pass || !is_on("0") || !is_on("1") {
        return Ok(Some(format!("verified over two cards: {}", report.sentence)));
    }
    Ok(None)
}

fn card_and_processor(model: &Path, cards: &str) -> Result<Option<String>, Error> {
    let (all, _) = placed(&*weights(model, &format!("{cards}:0"), &[])?)?;
    let both = weights(model, &format!("{cards}:0,cpu"), &[all - 1])?;
    let (_, place) = placed(&both)?;
    let rows = logits(&both)?;
    let expected = logits(&Arc::new(Weights::new(
        Arc::clone(both.model()),
        open_device("cpu", &DeviceOptions::default())?,
        None,
    )))?;
    let far = rows.iter().zip(&expected).any(|(row, expected)| {
        let scale = expected.iter().fold(0.0, |most: f64, logit| most.max(logit.abs()));
        row.iter().zip(expected).any(|(a, b)| a.is_nan() || (a - b).abs() > scale / 20.0)
    });
    let is_placed = place.contains(":0 0-") && place.contains("cpu 1-");
    Ok((far || !is_placed).then(|| format!("{place}: far from the processor alone: {far}")))
}

/// Neither has room, and one sentence says so.
fn too_small(model: &Path, cards: &str) -> Result<Option<String>, Error> {
    let small = weights(model, cards, &[20_000, 20_000])?;
    let problem = Session::new(small, &options()).err().map(|error| error.to_string());
    let is_told =
        problem.as_ref().is_some_and(|problem| problem.contains("bytes of memory, but only 20000 of the 20000 that"));
    Ok((!is_told).then(|| format!("a model without room: {problem:?}")))
}

/// Products divided between two cards.
fn divided(model: &Path, cards: &str) -> Result<Option<String>, Error> {
    let expected = logits(&weights(model, &format!("{cards}:0"), &[])?)?;
    let both = weights(model, &format!("{cards}:0+1"), &[])?;
    if logits(&both)? != expected {
        return Ok(Some("products divided between two cards have other bits than those of one".to_owned()));
    }
    let second = open_device(&format!("{cards}:1"), &DeviceOptions::default())?;
    let taken = second.about().memory.map_or(0, |(all, free)| all - free);
    let matrices = both.held().copied_bytes;
    if taken < matrices / 4 {
        return Ok(Some(format!("{taken} bytes of {matrices} lie on the second card")));
    }
    let options = VerifyOptions { prompts: vec![vec![1, 5, 9, 2]], steps: 2, ..VerifyOptions::default() };
    let report =
        verify(Arc::clone(both.model()), Arc::clone(&both.devices()[0]), Reference::Oracle, &options, &mut |_| {})?;
    Ok((report.result != Outcome::Pass).then(|| format!("products divided between two cards: {}", report.sentence)))
}
