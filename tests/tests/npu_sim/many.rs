//! A model over three cards and over four: layers one behind the other, products divided, and both; the bits are those
//! of one card.

use crate::cards::{logits, options, placed, weights};
use std::path::Path;
use std::sync::Arc;
use trueup::runtime::{Error, Session, Weights};

/// What is not right; `cards` is how so many cards are called.
pub fn many(model: &Path, cards: &str, count: usize) -> Vec<String> {
    let all: Vec<String> = (0..count).map(|card| card.to_string()).collect();
    let by = |numbers: &[String]| format!("{cards}:{}", numbers.join("+"));
    let (front, back) = all.split_at(count / 2);
    // All of them, the last before the first, and layers over halves of them.
    let lists = [by(&all), format!("{cards}:{}+0", count - 1), format!("{},{}", by(front), by(back))];
    let one = weights(model, &format!("{cards}:0"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let found = lists.iter().map(|list| over_list(model, &one, list)).chain([over_all(model, &one, cards, count)]);
    let wrong: Vec<String> = found.filter_map(|found| found.unwrap_or_else(|error| Some(error.to_string()))).collect();
    println!("{cards}, simulated: a model over {count} cards, {} wrong", wrong.len());
    wrong
}

/// Layers on each of so many cards: the memory of all but the last becomes less until each has some.
fn over_all(model: &Path, one: &Arc<Weights>, cards: &str, count: usize) -> Result<Option<String>, Error> {
    let (all, _) = placed(one)?;
    for tenths in (1..10).rev() {
        let over = weights(model, cards, &vec![all * tenths / 10; count - 1])?;
        let each = Session::plan(&over, &options(), 5, 1, 64).map(|plan| plan.report());
        if each.is_ok_and(|report| report.devices.iter().all(|device| device.layers.is_some())) {
            return differs(one, &over);
        }
    }
    Ok(Some(format!("there is no memory with which each of {count} cards has layers")))
}

/// One device that divides products between cards, or two of which the first is too small for all layers.
fn over_list(model: &Path, one: &Arc<Weights>, list: &str) -> Result<Option<String>, Error> {
    let (all, _) = placed(one)?;
    let memory = if list.contains(',') { vec![all * 6 / 10] } else { Vec::new() };
    let over = weights(model, list, &memory)?;
    let (_, place) = placed(&over)?;
    match list.split(',').find(|device| !place.contains(&format!("{device} "))) {
        Some(device) => Ok(Some(format!("{device} has no layers: {place}"))),
        None => differs(one, &over),
    }
}

/// Whether the bits are others than those of one card.
fn differs(one: &Arc<Weights>, over: &Arc<Weights>) -> Result<Option<String>, Error> {
    let (_, place) = placed(over)?;
    println!("{place}");
    Ok((logits(over)? != logits(one)?).then(|| format!("{place}: other bits than on one card")))
}
