//! `o = sum_j p_j v_j`, `p = softmax(cap(scale k q) + slope mask)`: a relative error `e_j` of the weight of position
//! `j` moves the result by `p_j (v_j - o) e_j`, because numerator and sum hold it both (docs/numerics.md#attention).
//!
//! ```text
//!   random   e_j: the score's sum, its scaling, its addition to the mask, the exponential's argument   sigma^2 = sum_j p_j^2 var(e_j) (v_j - o)^2
//!            + summing the mixture and the weights, and scaling both where a larger score comes, for as many parts as there are positions
//!   one-sided: the functions, ALiBi's slopes and a mask that is rounded with the activations   bound = sum_j p_j |e_j| |v_j - o|
//! ```

use super::soft_max::{bias_units, biases, slope};
use super::{Case, arithmetic, function_error, in_strips, within};
use crate::activation::Row;
use crate::precision::{LAMBDA, Precision, ROUNDING_VARIANCE};
use crate::statistics::Statistics;
use crate::sum::Sum;
use trueup_graph::op::FlashAttn;
use trueup_runtime::profile::Activations;

/// A position that is looked at.
pub(super) struct Seen {
    pub position: usize,
    /// Its score, scaled, capped and masked; later its weight.
    weight: f64,
    /// Variance of the relative error of its weight.
    variance: f64,
    /// One-sided relative error of its weight.
    error: f64,
}

pub(super) fn judge(attention: &FlashAttn, case: &Case) -> Statistics {
    let [q, k, v] = case.inputs[..3] else { return Statistics::default() };
    let [_, tokens, heads, _] = q.ty.shape.sizes();
    let [_, positions, kv_heads, _] = k.ty.shape.sizes();
    let width = v.ty.shape[0];
    in_strips(case, case.output.ty.shape.rows(), |row, tally| {
        let place @ [token, head, batch] = [row / heads % tokens, row % heads, row / heads / tokens];
        let first = positions * (head / (heads / kv_heads) + kv_heads * batch);
        let mut buffer = Vec::new();
        let query = q.row(token + tokens * (head + heads * batch), &mut buffer);
        let query = Row::declared(query, case.profile.activations).values;
        let slope = slope(attention.max_bias, head, heads);
        let biases = biases(case.inputs.get(3), place, positions, slope);
        let mut buffer = Vec::new();
        let products = |position: usize| {
            let key = k.row(first + position, &mut buffer);
            key.iter().zip(&query).map(|(key, query)| key * query).collect()
        };
        let seen = weights(attention, case, products, &biases);
        let mut buffer = Vec::new();
        let values: Vec<Vec<f64>> =
            seen.iter().map(|seen| v.row(first + seen.position, &mut buffer).to_vec()).collect();
        for element in 0..width {
            let column: Vec<f64> = values.iter().map(|value| value[element]).collect();
            let (exact, error) = mixture(case, &seen, &column);
            tally.add(row * width + element, &within(case, exact, error));
        }
    })
}

/// The weights of the positions that are looked at; `products` gives those of the query with the key of a position.
pub(super) fn weights(
    attention: &FlashAttn,
    case: &Case,
    mut products: impl FnMut(usize) -> Vec<f64>,
    biases: &[f64],
) -> Vec<Seen> {
    let looked_at = biases.iter().enumerate().filter(|(_, bias)| **bias != f64::NEG_INFINITY);
    let mut seen: Vec<Seen> = looked_at
        .map(|(position, bias)| Seen { position, ..score(attention, case, &products(position), *bias) })
        .collect();
    let largest = seen.iter().fold(f64::NEG_INFINITY, |largest, seen| largest.max(seen.weight));
    let precision = arithmetic(case.profile);
    for seen in &mut seen {
        let argument = seen.weight - largest;
        // The difference is rounded, and once more on its way into the exponential.
        seen.variance += 2.0 * ROUNDING_VARIANCE * (precision.unit * argument).powi(2);
        seen.error += precision.unit * function_error(case.profile).max(1.0);
        seen.weight = argument.exp();
    }
    let total: f64 = seen.iter().map(|seen| seen.weight).sum();
    seen.iter_mut().for_each(|seen| seen.weight /= total);
    seen
}

/// One score and its errors.
fn score(attention: &FlashAttn, case: &Case, products: &[f64], bias: f64) -> Seen {
    let precision = arithmetic(case.profile);
    let (scale, softcap) = (f64::from(attention.scale), f64::from(attention.softcap));
    let sum = Sum::of(products, case.profile.lanes);
    let scaled = scale * sum.value;
    let rounding = |value: f64| ROUNDING_VARIANCE * (precision.unit * value).powi(2);
    // Products may be rounded by themselves, and the scale be multiplied into the query before.
    let noise = sum.variance(precision, case.profile.order, case.profile.lanes) + 2.0 * sum.product_variance(precision);
    let mut variance = scale * scale * noise + rounding(scaled);
    let mut error = scale.abs() * sum.stagnation(products, precision);
    let mut capped = scaled;
    if softcap > 0.0 {
        capped = softcap * (scaled / softcap).tanh();
        let slope = 1.0 - (capped / softcap).powi(2);
        variance = slope * slope * (variance + rounding(scaled)) + rounding(capped);
        error = slope * error + precision.unit * (function_error(case.profile) + 1.0) * capped.abs();
    }
    let weight = capped + bias;
    variance += rounding(weight);
    error += precision.unit * bias_units(attention.max_bias, case.profile) * bias.abs();
    error += (bias - rounded(bias, case.profile.activations)).abs();
    Seen { position: 0, weight, variance, error }
}

/// The mask's element as products take it that round activations; most are 0.
fn rounded(bias: f64, activations: Activations) -> f64 {
    match activations {
        Activations::Unchanged | Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K => bias,
        Activations::F16 => Precision::F16.round(bias),
        Activations::Bf16 => Precision::BF16.round(bias),
    }
}

/// One element of the result, and how far off rounding may put it.
pub(super) fn mixture(case: &Case, seen: &[Seen], values: &[f64]) -> (f64, f64) {
    let precision = arithmetic(case.profile);
    let exact: f64 = seen.iter().zip(values).fold(0.0, |sum, (seen, value)| sum + seen.weight * value);
    let (mut variance, mut error) = (0.0, precision.unit * 2.0 * exact.abs());
    for (seen, value) in seen.iter().zip(values) {
        let moved = seen.weight * (value - exact);
        variance += moved * moved * seen.variance;
        error += moved.abs() * seen.error + precision.normal_min * value.abs();
    }
    let products: Vec<f64> = seen.iter().zip(values).map(|(seen, value)| seen.weight * value).collect();
    let weights: Vec<f64> = seen.iter().map(|seen| seen.weight).collect();
    let (mixed, total) = (Sum::of(&products, 1), Sum::of(&weights, 1));
    variance += 2.0 * mixed.variance(precision, case.profile.order, 1) + mixed.product_variance(precision);
    variance += 2.0 * exact * exact * total.variance(precision, case.profile.order, 1);
    error += mixed.stagnation(&products, precision) + exact.abs() * total.stagnation(&weights, precision);
    let rounded = match case.profile.activations {
        Activations::Unchanged | Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K => 0.0,
        Activations::F16 => Precision::F16.unit,
        Activations::Bf16 => Precision::BF16.unit,
    };
    variance += ROUNDING_VARIANCE * rounded * rounded * mixed.squares;
    (exact, LAMBDA * variance.sqrt() + error + precision.normal_min)
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_graph::Op;
    use trueup_graph::op::FlashAttn;
    use trueup_runtime::profile::Profile;

    const SIZE: usize = 16;
    const POSITIONS: usize = 37;

    /// 2 heads of 16 on 1 cached head, 1 token, positions one after the other in f32; the last `dropped` are left out.
    fn attended(op: &FlashAttn, [q, k, v, mask]: [&[f64]; 4], dropped: usize) -> Vec<f64> {
        let mut all = Vec::new();
        for head in 0..2 {
            let slope = if op.max_bias > 0.0 { 2f32.powf(-op.max_bias * (head as f32 + 1.0) / 2.0) } else { 1.0 };
            let (mut largest, mut total, mut mixed) = (f32::NEG_INFINITY, 0.0f32, [0.0f32; SIZE]);
            for j in (0..POSITIONS - dropped).filter(|j| mask[*j] != f64::NEG_INFINITY) {
                let pairs = k[j * SIZE..][..SIZE].iter().zip(&q[head * SIZE..]);
                let mut score = pairs.fold(0.0f32, |sum, (k, q)| sum + *k as f32 * *q as f32) * op.scale;
                if op.softcap > 0.0 {
                    score = op.softcap * (score / op.softcap).tanh();
                }
                score += slope * mask[j] as f32;
                let next = largest.max(score);
                let (kept, weight) = ((largest - next).exp(), (score - next).exp());
                (largest, total) = (next, total * kept + weight);
                for (mixed, v) in mixed.iter_mut().zip(&v[j * SIZE..]) {
                    *mixed = *mixed * kept + weight * *v as f32;
                }
            }
            all.extend(mixed.map(|mixed| f64::from(mixed / total)));
        }
        all
    }

    #[test]
    fn online_softmax_in_f32_passes_and_faults_do_not() {
        let (q, k, v) = (numbers(SIZE * 2, 41), numbers(SIZE * POSITIONS, 42), numbers(SIZE * POSITIONS, 43));
        let mut mask: Vec<f64> = (0..POSITIONS).map(|j| j as f64 - 36.0).collect();
        mask[3] = f64::NEG_INFINITY;
        let inputs = [
            Operand::numbers(f32_type(&[SIZE, 1, 2]), &q),
            Operand::numbers(f32_type(&[SIZE, POSITIONS]), &k),
            Operand::numbers(f32_type(&[SIZE, POSITIONS]), &v),
            Operand::numbers(f32_type(&[POSITIONS, 1]), &mask),
        ];
        let profile = Profile { function_ulp: 1.0, ..Profile::F32 };
        let judged = |op: FlashAttn, result: &[f64]| passes(&Op::FlashAttn(op), &inputs, &profile, result);
        let plain = FlashAttn { scale: 0.25, max_bias: 0.0, softcap: 0.0 };
        for op in [plain, FlashAttn { softcap: 2.0, ..plain }, FlashAttn { max_bias: 8.0, ..plain }] {
            let tensors = [&q[..], &k, &v, &mask];
            let right = attended(&op, tensors, 0);
            assert!(judged(op, &right), "{op:?}");
            assert!(!judged(op, &attended(&op, tensors, 1)), "{op:?}: a position is missing");
            assert!(!judged(op, &attended(&FlashAttn { scale: 0.2501, ..op }, tensors, 0)), "{op:?}: another scale");
            let uncapped = FlashAttn { softcap: 0.0, max_bias: 0.0, ..op };
            assert_eq!(judged(op, &attended(&uncapped, tensors, 0)), op == plain, "{op:?}: neither cap nor slope");
            let unmasked = [&q[..], &k, &v, &[0.0; POSITIONS]];
            assert!(!judged(op, &attended(&op, unmasked, 0)), "{op:?}: no mask");
        }
    }
}
