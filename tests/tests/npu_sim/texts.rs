//! Texts of 300 tokens told by a device and by `cpu` from the same seed: the same ids, or others where the noise of the scores explains it (NUMERICS 2.9). Behind such a
//! place the device goes on with what the processor chose, so that each of the 300 is looked at.
//!
//! ```text
//!  likeliest ids of the processor    │ 17 ─────── │ 4 ──── │ 91 ─ │ 30 ─ │ ...      as long as they are likely
//!  what the seed draws                            ▲
//!  the device may say                  17 or 4: near the border; 91, if its score is apart from that of 4 by less than the noise
//! ```

use std::path::Path;
use std::sync::Arc;
use trueup::runtime::device::Device;
use trueup::runtime::{
    DeviceOptions, Entry, ModelFile, Sampler, Sampling, Session, SessionOptions, Weights, open_device,
};

/// Tokens of a text, and how many of them remain when a context is full.
const TOKENS: usize = 300;
const REMAINING: usize = 64;

/// The reach of noise, in its standard deviations, of one score and of the difference of two.
const LAMBDA: f64 = 8.0;
const TIE: f64 = LAMBDA * std::f64::consts::SQRT_2;

/// Noise beyond this share of the spread of the scores is no noise.
const NOISE_MAX: f64 = 0.05;

/// What a seed draws is known to so many parts.
const PARTS: usize = 1 << 16;

/// A text: scores, and what was chosen by them.
struct Told {
    session: Session,
    sampler: Sampler,
    ids: Vec<u32>,
    rows: Vec<Vec<f64>>,
}

/// How two texts compare, unless something is wrong.
pub struct Alike {
    /// The tokens at which they differ as noise explains.
    pub ties: Vec<usize>,
    /// Noise of the scores as a share of their spread.
    pub noise: f64,
}

/// What follows the prompt, of the likeliest tokens and of drawn ones.
pub fn texts(device: &Arc<dyn Device>, model: &Path, prompt: &[u32], seed: u64) -> Vec<Result<Alike, String>> {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let processor = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let drawn = Sampling { temperature: 1.0, seed, ..Sampling::GREEDY };
    let compare = |sampling| {
        let [mut expected, mut found] = [&processor, device].map(|device| Told::new(&model, device, sampling));
        let mut behind = prompt.to_vec();
        for _ in 0..TOKENS {
            let chosen = expected.choose(&behind);
            found.choose(&behind);
            behind = vec![chosen];
        }
        compared(&expected, &found, sampling)
    };
    [Sampling::GREEDY, drawn].into_iter().map(compare).collect()
}

impl Told {
    fn new(model: &Arc<ModelFile>, device: &Arc<dyn Device>, sampling: Sampling) -> Told {
        let weights = Arc::new(Weights::new(Arc::clone(model), Arc::clone(device), None));
        let session = Session::new(weights, &SessionOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let sampler = Sampler::new(sampling, &[]).unwrap_or_else(|error| panic!("{error}"));
        Told { session, sampler, ids: Vec::new(), rows: Vec::new() }
    }

    /// The token behind these, which stand behind all that came before; of a context that is full its end remains.
    fn choose(&mut self, tokens: &[u32]) -> u32 {
        let mut tokens = tokens.to_vec();
        let len = self.session.len(0);
        if len + tokens.len() > self.session.context() {
            tokens.splice(..0, self.session.tokens(0)[len - REMAINING..].to_vec());
            self.session.truncate(0, 0);
        }
        let last = tokens.len() - 1;
        let entry = |(place, token)| Entry { token, sequence: 0, wants_logits: place == last };
        let entries: Vec<Entry> = tokens.into_iter().enumerate().map(entry).collect();
        let logits = self.session.compute(&entries, None).unwrap_or_else(|error| panic!("{error}"));
        self.rows.push(logits.row(0).to_vec());
        let chosen = self.sampler.sample(logits.row(0)).unwrap_or_else(|error| panic!("{error}"));
        self.ids.push(chosen);
        chosen
    }
}

fn compared(expected: &Told, found: &Told, sampling: Sampling) -> Result<Alike, String> {
    let (noise, spread) = deviations(&expected.rows, &found.rows);
    // What is no number is no noise either.
    if noise.is_nan() || noise > NOISE_MAX * spread {
        return Err(format!("scores are {noise:.2e} apart, their spread is {spread:.2e}"));
    }
    let ties: Vec<usize> = (0..TOKENS).filter(|place| expected.ids[*place] != found.ids[*place]).collect();
    for place in &ties {
        let (row, own, other) = (&expected.rows[*place], expected.ids[*place], found.ids[*place]);
        let [low, high] = reach(row, other as usize, TIE * noise, sampling);
        let draw = drawn(sampling, *place);
        if !(low <= draw && draw <= high) {
            let draws = format!("{draw:.4} is drawn, and {low:.4} to {high:.4} choose it");
            return Err(format!("token {place} is {other}, not {own}; noise {noise:.2e}; {draws}"));
        }
    }
    Ok(Alike { ties, noise: noise / spread })
}

/// Root mean square of the differences of scores, their mean in each row removed, and of the scores themselves.
fn deviations(expected: &[Vec<f64>], found: &[Vec<f64>]) -> (f64, f64) {
    let squares = |row: Vec<f64>| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let count: usize = expected.iter().map(Vec::len).sum();
    let rows = expected.iter().zip(found);
    let difference =
        |(own, other): (&Vec<f64>, &Vec<f64>)| squares(own.iter().zip(other).map(|(a, b)| b - a).collect());
    let noise = rows.map(difference).sum::<f64>() / count as f64;
    let spread = expected.iter().map(|row| squares(row.clone())).sum::<f64>() / count as f64;
    (noise.sqrt(), spread.sqrt())
}

/// Between which draws a token may be chosen, for scores that are `reach` from each other may be in any order: shares of all likelihood.
fn reach(row: &[f64], token: usize, reach: f64, sampling: Sampling) -> [f64; 2] {
    // The likeliest token is what a draw of nothing chooses.
    let (temperature, slack) = match sampling.temperature {
        0.0 => (1.0, 0.0),
        temperature => (temperature, reach / temperature + 1.0 / PARTS as f64),
    };
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let share = |at_least: f64| {
        let weight = |score: &f64| ((score - most) / temperature).exp();
        let before = row.iter().filter(|score| **score >= at_least).map(weight).sum::<f64>();
        before / row.iter().map(weight).sum::<f64>()
    };
    // Those above this are in front of it whatever the noise.
    let above = (row[token] + reach).next_up();
    [share(above) - slack, share(row[token] - reach) + slack]
}

/// What the seed draws for a token, between 0 and 1: the choice among many that are equally likely; nothing where nothing is drawn.
fn drawn(sampling: Sampling, place: usize) -> f64 {
    if sampling.temperature == 0.0 {
        return 0.0;
    }
    let mut sampler = Sampler::new(sampling, &[]).unwrap_or_else(|error| panic!("{error}"));
    let mut draw = |choices: usize| sampler.sample(&vec![0.0; choices]).unwrap_or_else(|error| panic!("{error}"));
    (0..place).for_each(|_| {
        draw(1);
    });
    f64::from(draw(PARTS)) / PARTS as f64
}
