//! Numbers of a description that are allowed, but that no known model has.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use std::ops::RangeInclusive;
use trueup_formats::counted;
use trueup_graph::op::RopeScaling;
use trueup_models::{Architecture, Field, Hyper};

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
    let Some((architecture, hyper)) = patient.valid_hyper() else { return };
    let place = |field: Field| Place::file(&patient.path).key(&key_of(patient, architecture, field));
    let mut odd = |rule, field, range: String, found: String| {
        findings.add(rule, place(field), format!("expected {range}, found {found}"));
    };
    let span = |low: f32, high: f32| format!("{low:e} to {high:e}");
    if !EPSILONS.contains(&hyper.epsilon()) {
        odd(&EPSILON, Field::Epsilon, span(*EPSILONS.start(), *EPSILONS.end()), format!("{:e}", hyper.epsilon()));
    }
    if !BASES.contains(&hyper.rope().base) {
        odd(&ROPE_BASE, Field::RopeBase, span(*BASES.start(), *BASES.end()), hyper.rope().base.to_string());
    }
    if !CONTEXTS.contains(&hyper.context()) {
        let range = format!("{} to {} positions", CONTEXTS.start(), CONTEXTS.end());
        odd(&CONTEXT, Field::Context, range, hyper.context().to_string());
    }
    if let Some(problem) = scaling_problem(hyper) {
        let key = key_of_part(patient, architecture, ("rope.scaling.factor", "rope_scaling"));
        findings.add(&ROPE_SCALING, Place::file(&patient.path).key(&key), problem);
    }
    if let Some(window) = hyper.window().filter(|window| window.size() >= hyper.context()) {
        let found =
            format!("a window of {} in a context of {}", counted(window.size() as u64, "token"), hyper.context());
        let key = key_of_part(patient, architecture, ("attention.sliding_window", "sliding_window"));
        findings.add(&WINDOW, Place::file(&patient.path).key(&key), found);
    }
}

/// The key of a field, in the words of the file.
fn key_of(patient: &Patient, architecture: &Architecture, field: Field) -> String {
    if patient.metadata().is_some() {
        return format!("{}.{}", architecture.gguf_name, field.gguf_key());
    }
    let rule = architecture.fields.iter().find(|rule| rule.field == field);
    rule.map_or_else(|| field.gguf_key().to_owned(), |rule| rule.theirs.to_owned())
}

/// The key of a part of the description: behind the architecture's name in GGUF, or that of config.json.
fn key_of_part(patient: &Patient, architecture: &Architecture, (ours, theirs): (&str, &str)) -> String {
    if patient.metadata().is_some() { format!("{}.{ours}", architecture.gguf_name) } else { theirs.to_owned() }
}

fn scaling_problem(hyper: &Hyper) -> Option<String> {
    let shrinks = |factor: f64| (factor < 1.0).then(|| format!("expected a factor of at least 1, found {factor}"));
    if let Some(llama3) = hyper.rope().llama3 {
        return shrinks(llama3.factor);
    }
    match hyper.rope().scaling {
        RopeScaling::None | RopeScaling::Long { .. } => None,
        RopeScaling::Linear { factor } => shrinks(factor.into()),
        RopeScaling::Yarn { factor, original_context, .. } => shrinks(factor.into()).or_else(|| {
            let reach = f64::from(factor) * f64::from(original_context);
            // A maker may round the context up a little.
            let context = hyper.context() as f64;
            (context > 1.05 * reach).then(|| {
                format!("expected a context of at most {reach} ({original_context} times {factor}), found {context}")
            })
        }),
    }
}
