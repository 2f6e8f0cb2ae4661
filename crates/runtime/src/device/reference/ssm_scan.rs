//! `H <- H exp(d A) + d B x`, `y = C H` with `d = softplus(dt)`, token by token.

use super::place;
use crate::host_tensor::HostTensor;

pub(super) fn evaluate(inputs: &[&HostTensor]) -> Result<Vec<f64>, String> {
    let [states, x, dt, a, b, c] = [0, 1, 2, 3, 4, 5].map(|input| inputs[input].values());
    let [state, size, heads, slots] = inputs[0].ty().shape.sizes();
    let [_, _, tokens, sequences] = inputs[1].ty().shape.sizes();
    let (a_state, groups) = (inputs[3].ty().shape[0], inputs[4].ty().shape[1]);
    let slot_len = state * size * heads;
    let (mut y, mut last) = (Vec::with_capacity(x.len()), Vec::with_capacity(slot_len * sequences));
    for (s, id) in inputs[6].to_indices().into_iter().enumerate() {
        let mut held = states[place("state", id, slots)? * slot_len..][..slot_len].to_vec();
        for token in s * tokens..(s + 1) * tokens {
            for h in 0..heads {
                let d = dt[token * heads + h].exp().ln_1p();
                // Where exp overflows softplus is the identity.
                let d = if d.is_finite() { d } else { dt[token * heads + h] };
                let group = (token * groups + h * groups / heads) * state;
                for i in 0..size {
                    let place = h * size + i;
                    let x = x[token * heads * size + place];
                    let mut sum = 0.0;
                    for n in 0..state {
                        let held = &mut held[place * state + n];
                        let rate = a[h * a_state + n % a_state];
                        *held = *held * (d * rate).exp() + d * b[group + n] * x;
                        sum += c[group + n] * *held;
                    }
                    y.push(sum);
                }
            }
        }
        last.extend(held);
    }
    y.extend(last);
    Ok(y)
}
