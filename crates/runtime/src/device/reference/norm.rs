//! `y = (x - mean x) / sqrt(mean (x - mean x)^2 + epsilon)`, or `y = x / max(sqrt(sum x^2), epsilon)`, of runs of
//! elements.

use crate::host_tensor::HostTensor;
use trueup_graph::op::{Norm, NormRule};

pub(super) fn evaluate(norm: &Norm, inputs: &[&HostTensor]) -> Vec<f64> {
    let mut y = inputs[0].values().into_owned();
    let epsilon = f64::from(norm.epsilon);
    for run in y.chunks_mut(norm.run(&inputs[0].ty().shape).max(1)) {
        match norm.rule {
            NormRule::Layer | NormRule::Group { .. } => standardise(run, epsilon),
            NormRule::L2 => {
                let length = run.iter().fold(0.0, |sum, x| sum + x * x).sqrt().max(epsilon);
                run.iter_mut().for_each(|x| *x /= length);
            }
        }
    }
    y
}

fn standardise(run: &mut [f64], epsilon: f64) {
    let len = run.len() as f64;
    let mean = run.iter().fold(0.0, |sum, x| sum + x) / len;
    run.iter_mut().for_each(|x| *x -= mean);
    let variance = run.iter().fold(0.0, |sum, x| sum + x * x) / len;
    run.iter_mut().for_each(|x| *x /= (variance + epsilon).sqrt());
}
