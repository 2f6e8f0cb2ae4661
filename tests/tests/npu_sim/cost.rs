//! What the device layer costs by itself: steps a second and operators a token, on cards that compute nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use trueup::runtime::device::Device;
use trueup::runtime::device::ascend::{Ascend, Launched};
use trueup::runtime::{Entry, ModelFile, Session, SessionOptions, Weights};

/// Tokens behind which time is taken, and tokens of which it is.
const BEFORE: u32 = 8;
const TOKENS: u32 = 200;

/// One token after another of a model: a row of a table. Of the times of the tokens that in the middle stands there.
pub fn cost(device: &Arc<Ascend>, model: &Path, name: &str) -> String {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let weights = Arc::new(Weights::new(model, Arc::clone(device) as Arc<dyn Device>, None));
    let options = SessionOptions { context: Some((BEFORE + TOKENS) as usize), ..SessionOptions::default() };
    let plan = Session::plan(&weights, &options, 1, 1, TOKENS as usize).unwrap_or_else(|error| panic!("{error}"));
    let nodes = plan.report().nodes.len();
    let mut session = Session::new(weights, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut step = |token| {
        let entry = Entry { token: token % 100, sequence: 0, wants_logits: true };
        session.compute(&[entry], None).map(|_| ()).unwrap_or_else(|error| panic!("{error}"));
    };
    (0..BEFORE).for_each(&mut step);
    let before = device.launched();
    let mut times: Vec<f64> = (0..TOKENS)
        .map(|token| {
            let begun = Instant::now();
            step(token);
            begun.elapsed().as_secs_f64()
        })
        .collect();
    let behind = device.launched();
    times.sort_by(f64::total_cmp);
    let (seconds, tokens) = (times[times.len() / 2], f64::from(TOKENS));
    let a_token = |count: fn(&Launched) -> u64| (count(&behind) - count(&before)) as f64 / tokens;
    assert!(behind != before, "nothing was asked of the card");
    format!(
        "| {name} | {nodes} | {:.1} | {:.2} | {:.2} | {:.0} |",
        a_token(|launched| launched.operators),
        a_token(|launched| launched.graphs),
        1e3 * seconds,
        nodes as f64 / seconds
    )
}
