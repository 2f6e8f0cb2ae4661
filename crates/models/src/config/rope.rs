//! Reads the RoPE parameters.
//!
//! ```text
//! "rope_theta": 1e6, "rope_scaling": {"factor": 8, ..}             transformers 4
//! "rope_parameters": {"rope_theta": 1e6, "factor": 8, ..}          transformers 5
//! "rope_parameters": {"full_attention": {"rope_theta": 1e6, ..},   transformers 5, by kind of layer
//!                     "sliding_attention": {"rope_theta": 1e4, ..}}
//! ```

use super::{Config, Object, shown};
use crate::diagnostics::Diagnostics;
use crate::limit::CONTEXT_MAX;
use crate::number::{nearest_f32, not_positive, real, whole_u32};
use crate::rope::{Llama3Scaling, LongFactors, RopeFactors, RopeSpec, yarn_magnitude};
use serde_json::Value;
use trueup_formats::quote;
use trueup_graph::op::{RopePairs, RopeScaling};

/// Keys of objects that describe a rotation.
const ROPE_OBJECTS: [&str; 3] = ["rope_parameters", "rope_scaling", ROTARY];
const ROTARY: &str = "rotary";
/// The rotated share of a head, in such an object or next to it.
const NESTED_SHARE: &str = "partial_rotary_factor";
/// Kinds of layers that may have separate objects in `rope_parameters`.
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";
const FULL_PLACE: &str = "rope_parameters: full_attention";
const SLIDING_PLACE: &str = "rope_parameters: sliding_attention";

impl Config<'_> {
    /// The rotation: `rope_scaling` of transformers up to 4, `rope_parameters` since 5, which has the base in it, as
    /// InternLM's `rotary` does. `base` is the value of the separate key, or its default.
    pub fn rope(&mut self, pairs: RopePairs, base: f64, dimensions: usize, context: usize) -> RopeSpec {
        let mut rope = RopeSpec {
            pairs,
            dimensions,
            base: nearest_f32(base),
            scaling: RopeScaling::None,
            factors: RopeFactors::None,
        };
        let Some((place, found)) = self.rope_object() else { return rope };
        let Value::Object(object) = found else { return self.wrong(place, "an object", &found, rope) };
        let outer = self.value(ORIGINAL).and_then(Value::as_f64);
        let mut scaling = ScalingReader { place, object: &object, diagnostics: &mut self.diagnostics, context, outer };
        let key = if place == ROTARY { "base" } else { "rope_theta" };
        rope.base = nearest_f32(scaling.positive(key).unwrap_or(base));
        scaling.read(&mut rope);
        rope
    }

    /// The object with the RoPE parameters, and its place. If each layer type has one, that of `full_attention`; keys
    /// outside of it are ignored.
    fn rope_object(&self) -> Option<(&'static str, Value)> {
        let (place, found) = ROPE_OBJECTS.into_iter().find_map(|place| Some((place, self.value(place)?)))?;
        match self.rope_of_kind(FULL) {
            Some(full) => Some((FULL_PLACE, full.clone())),
            None => Some((place, found.clone())),
        }
    }

    /// The object of `rope_parameters` for a kind of layer, if there is one.
    fn rope_of_kind(&self, kind: &str) -> Option<&Value> {
        self.value("rope_parameters")?.get(kind).filter(|found| !found.is_null())
    }

    /// Rejects other layer types, and a separate rotation of layers with a window if the class has one rotation for all
    /// layers.
    pub(super) fn check_window_rope(&mut self) {
        self.check_kinds_of_rope();
        let Some(sliding) = self.rope_of_kind(SLIDING).filter(|_| !self.has_window_base).cloned() else { return };
        if self.rope_of_kind(FULL).is_some_and(|full| *full != sliding) {
            self.wrong(SLIDING_PLACE, "the same values as in full_attention", &sliding, ());
        }
    }

    /// Rejects parameters that have no effect: parameters of other layer types, and `partial_rotary_factor` in layers
    /// with a window.
    fn check_kinds_of_rope(&mut self) {
        if self.rope_of_kind(FULL).is_none() {
            return;
        }
        let all = self.value("rope_parameters").and_then(Value::as_object).cloned().unwrap_or_default();
        for (kind, value) in all.iter().filter(|(kind, _)| ![FULL, SLIDING].contains(&kind.as_str())) {
            if value.is_object() {
                self.problem(format!("rope_parameters: unsupported layer type \"{}\"", quote(kind)));
            }
        }
        let share = all.get(SLIDING).and_then(|sliding| sliding.get(NESTED_SHARE));
        if let Some(share) =
            share.filter(|share| self.has_window_base && !share.is_null() && share.as_f64() != Some(1.0))
        {
            let place = format!("{SLIDING_PLACE}: {NESTED_SHARE}");
            self.wrong(&place, "1", share, ());
        }
    }

    /// The RoPE base of sliding-window layers, which have no RoPE scaling: `rope_theta` of their object in
    /// `rope_parameters`, else `key`.
    pub fn window_base(&mut self, key: &str, absent: f64) -> f64 {
        self.has_window_base = true;
        let Some(found) = self.rope_of_kind(SLIDING).cloned() else { return self.positive_or(key, absent) };
        let place = SLIDING_PLACE;
        let Value::Object(object) = found else { return self.wrong(place, "an object", &found, absent) };
        let mut scaling =
            ScalingReader { place, object: &object, diagnostics: &mut self.diagnostics, context: 1, outer: None };
        match scaling.kind() {
            "default" => scaling.check_keys("default", &[]),
            other => {
                let found = quote(other);
                scaling.diagnostics.add(format!("{place}: rope_type: expected \"default\", found \"{found}\""));
            }
        }
        scaling.positive("rope_theta").unwrap_or(absent)
    }

    /// A number of the object that describes the rotation, if that is YaRN. Other values are left to its reader.
    pub fn yarn_number(&self, key: &str) -> Option<f64> {
        let (_, object) = self.rope_object()?;
        let kind = ["type", "rope_type"].into_iter().find_map(|key| object.get(key)?.as_str());
        object.get(key).and_then(Value::as_f64).filter(|_| kind == Some("yarn"))
    }

    /// The rotated share of a head: from `partial_rotary_factor` of the object that describes the rotation, else from
    /// `key`. A share outside of `0 < share <= 1` is a problem.
    pub fn rotated_share(&mut self, key: &str, absent: f64) -> f64 {
        let (key, found) = match self.nested_share() {
            Some((place, found)) => (format!("{place}: {NESTED_SHARE}"), found),
            None => match self.value(key) {
                Some(found) => (key.to_owned(), found.clone()),
                None => return absent,
            },
        };
        match found.as_f64().filter(|share| *share > 0.0 && *share <= 1.0) {
            Some(share) => share,
            None => self.wrong(&key, "a number above 0 and at most 1", &found, absent),
        }
    }

    /// Rejects a rotated share of a head other than `share`, for a class that does not read one.
    pub fn only_share(&mut self, share: f64) {
        let nested = self.nested_share().map(|(place, found)| (format!("{place}: {NESTED_SHARE}"), found));
        let outer = self.value(NESTED_SHARE).cloned().map(|found| (NESTED_SHARE.to_owned(), found));
        for (key, found) in nested.into_iter().chain(outer) {
            if found.as_f64() != Some(share) {
                self.wrong(&key, &share.to_string(), &found, ());
            }
        }
    }

    fn nested_share(&self) -> Option<(&'static str, Value)> {
        let (place, object) = self.rope_object()?;
        Some((place, object.get(NESTED_SHARE)?.clone())).filter(|(_, value)| !value.is_null())
    }

    /// Notes scalings that have no effect within the context.
    pub(super) fn note_unused_scalings(&mut self, context: usize) {
        let object = self.rope_object().map(|(_, object)| object).unwrap_or_default();
        let kind = ["type", "rope_type"].into_iter().find_map(|key| object.get(key)?.as_str());
        let is_dynamic = kind == Some("dynamic");
        let is_true = |key: &str| self.value(key).and_then(Value::as_bool) == Some(true);
        let (logn, ntk) = (is_true("use_logn_attn"), is_true("use_dynamic_ntk"));
        if logn {
            self.note(format!(
                "the scaling of queries by text length (use_logn_attn) is omitted: it has no effect up to \
                 {context} tokens"
            ));
        }
        if is_dynamic || ntk {
            self.note(format!("dynamic RoPE scaling is omitted, because it has no effect up to {context} tokens"));
        }
    }
}

/// The object that describes how angles change for long contexts.
struct ScalingReader<'a> {
    place: &'static str,
    object: &'a Object,
    diagnostics: &'a mut Diagnostics,
    context: usize,
    /// The original context, if it is next to the object.
    outer: Option<f64>,
}

/// The context length before the scaling.
const ORIGINAL: &str = "original_max_position_embeddings";
/// Keys of LongRoPE.
const LONG_KEYS: &[&str] = &["short_factor", "long_factor", "factor", "attention_factor", ORIGINAL];

/// Keys of each kind of scaling. Other keys are rejected, because they would change the result.
const SCALING_KEYS: &[(&str, &[&str])] = &[
    ("default", &["original_max_position_embeddings"]),
    ("origin", &[]),
    ("linear", &["factor", "original_max_position_embeddings"]),
    // Affects only texts longer than the context.
    ("dynamic", &["factor", "scaling_factor", "original_max_position_embeddings"]),
    ("longrope", LONG_KEYS),
    ("su", LONG_KEYS),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]),
    (
        "yarn",
        &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "mscale",
            "mscale_all_dim",
            "beta_fast",
            "beta_slow",
            "truncate",
            "finetuned",
        ],
    ),
];

impl<'a> ScalingReader<'a> {
    fn read(&mut self, rope: &mut RopeSpec) {
        let kind = self.kind();
        // The name in the first published versions.
        let is_long = kind == "yarn" && self.object.contains_key("short_factor");
        let kind = if is_long { "longrope" } else { kind };
        let Some((_, keys)) = SCALING_KEYS.iter().find(|(name, _)| *name == kind) else {
            let known: Vec<&str> = SCALING_KEYS.iter().map(|(name, _)| *name).collect();
            let (place, found) = (self.place, quote(kind));
            self.diagnostics
                .add(format!("{place}: rope_type: expected one of {}, found \"{found}\"", known.join(", ")));
            return;
        };
        self.check_keys(kind, keys);
        match kind {
            "linear" => rope.scaling = RopeScaling::Linear { factor: nearest_f32(self.required("factor")) },
            "llama3" => rope.factors = RopeFactors::Llama3(self.llama3()),
            "yarn" => rope.scaling = self.yarn(),
            "longrope" | "su" => (rope.scaling, rope.factors) = self.long(),
            _ => {}
        }
    }

    /// The name of the scaling.
    fn kind(&self) -> &'a str {
        let object: &'a Object = self.object;
        let mut kinds = ["type", "rope_type"].into_iter().filter_map(|key| object.get(key));
        kinds.find(|kind| !kind.is_null()).map_or("default", |kind| kind.as_str().unwrap_or(""))
    }

    fn check_keys(&mut self, kind: &str, keys: &[&str]) {
        for (key, value) in self.object {
            let known = ["type", "rope_type", "rope_theta"].contains(&key.as_str())
                || keys.contains(&key.as_str())
                || self.place == ROTARY && key == "base";
            // A factor of 1 says nothing where the kind has none.
            let is_neutral = key == "factor" && kind == "default" && value.as_f64() == Some(1.0);
            // `rotated_share` or `only_share` reads it.
            let is_read = key == NESTED_SHARE;
            if !known && !value.is_null() && !is_neutral && !is_read {
                let place = self.place;
                self.diagnostics.add(format!("{place}: unsupported key \"{}\"", quote(key)));
            }
        }
        if let Some(found) = self.object.get("truncate").filter(|value| *value != &Value::Bool(true)) {
            self.diagnostics.add(format!("{}: truncate: expected true, found {}", self.place, shown(found)));
        }
    }

    fn llama3(&mut self) -> Llama3Scaling {
        Llama3Scaling {
            factor: self.required("factor"),
            low_frequency_factor: self.required("low_freq_factor"),
            high_frequency_factor: self.required("high_freq_factor"),
            original_context: self.required("original_max_position_embeddings"),
        }
    }

    /// The magnitude is `attention_factor`, or `sqrt(1 + ln(context / original) / ln(original))` if the key is absent.
    fn long(&mut self) -> (RopeScaling, RopeFactors) {
        let outer = self.outer;
        let original = outer.unwrap_or_else(|| self.required(ORIGINAL));
        let factor = real(self.context) / original;
        let computed = if factor > 1.0 { (1.0 + factor.ln() / original.ln()).sqrt() } else { 1.0 };
        let magnitude = nearest_f32(self.optional("attention_factor").unwrap_or(computed));
        let original_context =
            usize::try_from(whole_u32(original)).ok().filter(|count| (1..=CONTEXT_MAX).contains(count));
        if original_context.is_none() {
            let found = Value::from(original);
            self.diagnostics.add(format!("{ORIGINAL}: expected 1 to {CONTEXT_MAX}, found {found}"));
        }
        let factors = LongFactors {
            long: self.numbers("long_factor"),
            short: self.numbers("short_factor"),
            original_context: original_context.unwrap_or(1),
        };
        (RopeScaling::Long { magnitude }, RopeFactors::Long(factors))
    }

    /// A list of numbers that is not empty.
    fn numbers(&mut self, key: &str) -> Vec<f32> {
        let found = self.object.get(key);
        let list = found.and_then(Value::as_array).filter(|list| !list.is_empty());
        let numbers: Option<Vec<f64>> = list.and_then(|list| list.iter().map(Value::as_f64).collect());
        if numbers.is_none() {
            let found = found.map_or("nothing".to_owned(), shown);
            self.diagnostics.add(format!("{}: {key}: expected a list of numbers, found {found}", self.place));
        }
        numbers.unwrap_or_default().into_iter().map(nearest_f32).collect()
    }

    /// Absent and zero values take the defaults of transformers.
    fn yarn(&mut self) -> RopeScaling {
        let factor = self.required("factor");
        let mut present = |key| self.optional(key).filter(|&number| number != 0.0);
        let (mscale, mscale_all) = (present("mscale"), present("mscale_all_dim"));
        let (beta_fast, beta_slow) = (present("beta_fast").unwrap_or(32.0), present("beta_slow").unwrap_or(1.0));
        let original_context = present("original_max_position_embeddings").map(whole_u32);
        let magnitude = match (self.optional("attention_factor"), mscale, mscale_all) {
            (Some(magnitude), _, _) => magnitude,
            (None, Some(mscale), Some(all)) => yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all),
            (None, _, _) => yarn_magnitude(factor, 1.0),
        };
        RopeScaling::Yarn {
            factor: nearest_f32(factor),
            original_context: original_context.unwrap_or(u32::try_from(self.context).unwrap_or(0)),
            beta_fast: nearest_f32(beta_fast),
            beta_slow: nearest_f32(beta_slow),
            magnitude: nearest_f32(magnitude),
        }
    }

    fn required(&mut self, key: &str) -> f64 {
        let before = self.diagnostics.list().len();
        self.optional(key).unwrap_or_else(|| {
            if self.diagnostics.list().len() == before {
                self.diagnostics.add(format!("{}: {key}: expected a number, found nothing", self.place));
            }
            1.0
        })
    }

    fn positive(&mut self, key: &str) -> Option<f64> {
        let number = self.optional(key)?;
        let Some(expected) = not_positive(number) else { return Some(number) };
        self.diagnostics.add(format!("{}: {key}: expected {expected}, found {number:?}", self.place));
        None
    }

    fn optional(&mut self, key: &str) -> Option<f64> {
        let found = self.object.get(key).filter(|value| !value.is_null())?;
        let number = found.as_f64();
        if number.is_none() {
            let found = shown(found);
            self.diagnostics.add(format!("{}: {key}: expected a number, found {found}", self.place));
        }
        number
    }
}
