//! Tensors from parameters; the formulas stand at the operator.

use crate::host_tensor::HostTensor;
use trueup_graph::TensorType;
use trueup_graph::op::{Make, Making};

pub(super) fn evaluate(make: &Make, inputs: &[&HostTensor], output: &TensorType) -> Vec<f64> {
    let len = output.shape.elements();
    match make.rule {
        Making::Arange { start, step, .. } => (0..len).map(|i| f64::from(start) + i as f64 * f64::from(step)).collect(),
        Making::Fill { value, .. } => vec![f64::from(value); len],
        Making::TimestepEmbedding { dimensions, period_max } => {
            let steps = inputs[0].values();
            steps.iter().flat_map(|step| waves(*step, dimensions, f64::from(period_max))).collect()
        }
        Making::AlibiSlopes { heads, bias_max } => (0..heads).map(|h| slope(h, heads, f64::from(bias_max))).collect(),
    }
}

fn waves(step: f64, dimensions: usize, period_max: f64) -> Vec<f64> {
    let half = dimensions / 2;
    let mut y = vec![0.0; dimensions];
    for j in 0..half {
        let angle = step * period_max.powf(-(j as f64) / half as f64);
        (y[j], y[j + half]) = (angle.cos(), angle.sin());
    }
    y
}

fn slope(h: usize, heads: usize, bias_max: f64) -> f64 {
    let p = 1 << heads.ilog2();
    let exponent = if h < p { (h + 1) as f64 / p as f64 } else { (2 * (h - p) + 1) as f64 / (2 * p) as f64 };
    (-bias_max * exponent).exp2()
}
