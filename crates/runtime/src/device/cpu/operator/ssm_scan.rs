//! The selective state space model: every channel runs through the tokens by itself. Steps are computed in f64, and the
//! state is rounded to f32 after each token, so that cutting a text into batches changes no bit.

use super::{Call, expect_f32, expect_plain, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::SsmScan;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("states", &inputs[0])?;
    expect_plain("A", &inputs[3])?;
    Ok(Profile { lanes: 1, ..Profile::F32 })
}

/// Sizes and inputs that all channels share.
struct Scan<'a> {
    state: usize,
    size: usize,
    heads: usize,
    tokens: usize,
    groups: usize,
    states: &'a [f32],
    x: &'a [f32],
    dt: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    slots: &'a [usize],
}

pub fn compute(_: &SsmScan, call: Call) -> Result<(), String> {
    let [state, size, heads, slots] = call.inputs[0].ty.shape.sizes();
    let [_, _, tokens, _] = call.inputs[1].ty.shape.sizes();
    let a = call.inputs[3].widened()?;
    let slots = call.inputs[6].indices("state", slots)?;
    let scan = Scan {
        state,
        size,
        heads,
        tokens,
        groups: call.inputs[4].ty.shape[1],
        states: call.inputs[0].floats()?,
        x: call.inputs[1].floats()?,
        dt: call.inputs[2].floats()?,
        a: &a,
        b: call.inputs[4].floats()?,
        c: call.inputs[5].floats()?,
        slots: &slots,
    };
    let (y, last) = Call::output_floats(call.output)?.split_at_mut(scan.x.len());
    if state == 0 {
        y.fill(0.0);
        return Ok(());
    }
    // Channels lie beside each other in a token's result, their tokens do not.
    let mut columns: Vec<Vec<f32>> = vec![Vec::new(); last.len() / state];
    let channels = columns.iter_mut().zip(last.chunks_mut(state)).enumerate();
    call.team.each(channels, pieces_min(16 * state * tokens), |(channel, (column, last))| {
        *column = scan.run(channel, last);
    });
    let width = size * heads;
    for (row, y) in y.chunks_exact_mut(width.max(1)).enumerate() {
        let columns = &columns[row / tokens * width..][..width];
        for (y, column) in y.iter_mut().zip(columns) {
            *y = column[row % tokens];
        }
    }
    Ok(())
}

impl Scan<'_> {
    /// The results of one channel of one sequence, token by token; its state goes to `last`.
    fn run(&self, channel: usize, last: &mut [f32]) -> Vec<f32> {
        let width = self.size * self.heads;
        let (sequence, place) = (channel / width, channel % width);
        let (head, group) = (place / self.size, place / self.size * self.groups / self.heads);
        let held = &self.states[(self.slots[sequence] * width + place) * self.state..][..self.state];
        let mut held: Vec<f64> = held.iter().map(|held| f64::from(*held)).collect();
        let mut decays = vec![0.0; self.a.len() / self.heads];
        let mut y = Vec::with_capacity(self.tokens);
        for token in sequence * self.tokens..(sequence + 1) * self.tokens {
            let delta = softplus(f64::from(self.dt[token * self.heads + head]));
            for (decay, a) in decays.iter_mut().zip(&self.a[head * self.a.len() / self.heads..]) {
                *decay = (delta * f64::from(*a)).exp();
            }
            let input = delta * f64::from(self.x[token * width + place]);
            let row = (token * self.groups + group) * self.state;
            let (b, c) = (&self.b[row..][..self.state], &self.c[row..][..self.state]);
            let mut sum = 0.0;
            for (n, (held, (b, c))) in held.iter_mut().zip(b.iter().zip(c)).enumerate() {
                *held = f64::from((*held * decays[n % decays.len()] + input * f64::from(*b)) as f32);
                sum += *held * f64::from(*c);
            }
            y.push(sum as f32);
        }
        for (last, held) in last.iter_mut().zip(held) {
            *last = held as f32;
        }
        y
    }
}

/// `log(1 + exp x)`, without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
