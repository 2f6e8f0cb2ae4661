//! Numbers of a description that are allowed, but that no known model has.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use std::ops::RangeInclusive;
use trueup_formats::{counted, significant};
use trueup_graph::op::RopeScaling;
use trueup_models::{ModelSpec, RopeFactors};

pub(super) const RULES: &[&Rule] = &[&EPSILON, &ROPE_BASE, &ROPE_SCALING, &CONTEXT, &WINDOW];

/// Published models have 1e-5, 1e-6, 1e-8 or 1e-12.
const EPSILONS: RangeInclusive<f32> = 1e-13..=1e-2;
/// Published models have 1e4 to 1e7; a base of 1 turns all pairs alike.
const BASES: RangeInclusive<f32> = 100.0..=1e10;
/// Published models have 256 to ten million positions.
const CONTEXTS: RangeInclusive<usize> = 32..=1 << 25;

static EPSILON: Rule = Rule::warning(
    "epsilon-odd",
    "a value that is too large distorts every norm; one that is too small divides by zero in a row of zeros",
    "compare it with the config.json of the original model",
);
static ROPE_BASE: Rule = Rule::warning(
    "rope-base-odd",
    "position encoding depends on it: with a wrong value, text becomes nonsense after some tokens",
    "compare rope_theta with the config.json of the original model",
);
static ROPE_SCALING: Rule = Rule::warning(
    "rope-scaling-odd",
    "position encoding at long distances depends on it: with a wrong value, long texts become nonsense",
    "compare rope_scaling with the config.json of the original model",
);
static CONTEXT: Rule = Rule::warning(
    "context-odd",
    "programs derive the size of the KV cache from it",
    "compare max_position_embeddings with the config.json of the original model",
);
static WINDOW: Rule = Rule::note(
    "window-without-effect",
    "the window is at least as long as the context, so it never excludes a token",
    "nothing",
);

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    let Some(spec) = patient.valid_spec() else { return };
    let place = |keys: Keys| Place::file(&patient.path).key(&key_of(patient, spec, keys));
    let mut odd = |rule, keys, range: String, found: String| {
        findings.add(rule, place(keys), format!("expected {range}, found {found}"));
    };
    let shown = |value: f32| significant(f64::from(value), 4);
    let span = |low: f32, high: f32| format!("{} to {}", shown(low), shown(high));
    if let Some(epsilon) = spec.epsilon().filter(|epsilon| !EPSILONS.contains(epsilon)) {
        odd(&EPSILON, EPSILON_KEYS, span(*EPSILONS.start(), *EPSILONS.end()), shown(epsilon));
    }
    if let Some(rope) = spec.rope().filter(|rope| !BASES.contains(&rope.base)) {
        odd(&ROPE_BASE, BASE_KEYS, span(*BASES.start(), *BASES.end()), shown(rope.base));
    }
    let context = spec.context_length();
    if !CONTEXTS.contains(&context) {
        let range = format!("{} to {} positions", CONTEXTS.start(), CONTEXTS.end());
        odd(&CONTEXT, CONTEXT_KEYS, range, context.to_string());
    }
    if let Some(problem) = scaling_problem(spec) {
        findings.add(&ROPE_SCALING, place(SCALING_KEYS), problem);
    }
    if let Some(window) = spec.window().filter(|window| *window >= context) {
        let found = format!("a window of {} in a context of {context}", counted(window as u64, "token"));
        findings.add(&WINDOW, place(WINDOW_KEYS), found);
    }
}

/// Names of one number: in GGUF after the architecture's name, and in `config.json`, the usual one first.
type Keys = (&'static [&'static str], &'static [&'static str]);

const EPSILON_KEYS: Keys = (
    &["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"],
    &["rms_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"],
);
const BASE_KEYS: Keys = (&["rope.freq_base"], &["rope_theta", "rotary_emb_base", "rope_ratio", "rope_parameters"]);
const CONTEXT_KEYS: Keys = (
    &["context_length"],
    &["max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "model_max_length", "n_ctx"],
);
const SCALING_KEYS: Keys = (&["rope.scaling.factor"], &["rope_scaling", "rope_parameters"]);
const WINDOW_KEYS: Keys = (&["attention.sliding_window"], &["sliding_window"]);

/// The key of a number in this file; the usual one if the file has none of them.
fn key_of(patient: &Patient, spec: &ModelSpec, (ours, theirs): Keys) -> String {
    let name = spec.architecture().gguf_name;
    let first = |all: Vec<String>, has: &dyn Fn(&str) -> bool| {
        all.iter().find(|key| has(key)).or(all.first()).cloned().unwrap_or_default()
    };
    match (patient.metadata(), patient.config()) {
        (Some(metadata), _) => {
            first(ours.iter().map(|key| format!("{name}.{key}")).collect(), &|key| metadata.contains(key))
        }
        (None, config) => first(theirs.iter().map(|key| (*key).to_owned()).collect(), &|key| {
            config.is_some_and(|config| config.contains_key(key))
        }),
    }
}

fn scaling_problem(spec: &ModelSpec) -> Option<String> {
    let shrinks = |factor: f64| (factor < 1.0).then(|| format!("expected a factor of at least 1, found {factor}"));
    let rope = spec.rope()?;
    if let RopeFactors::Llama3(llama3) = rope.factors {
        return shrinks(llama3.factor);
    }
    match rope.scaling {
        RopeScaling::None | RopeScaling::Long { .. } => None,
        RopeScaling::Linear { factor } => shrinks(factor.into()),
        RopeScaling::Yarn { factor, original_context, .. } => shrinks(factor.into()).or_else(|| {
            let reach = f64::from(factor) * f64::from(original_context);
            // A maker may round the context up a little.
            let context = spec.context_length() as f64;
            (context > 1.05 * reach).then(|| {
                format!("expected a context of at most {reach} ({original_context} times {factor}), found {context}")
            })
        }),
    }
}
