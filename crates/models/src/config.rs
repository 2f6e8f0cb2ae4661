//! Hyper-parameters from `config.json` of a Hugging Face directory, or from what speaks its words.

use crate::architecture::{Architecture, FieldRule, Fixed, FlagRule, Missing, Rotated, Sign, WindowRule};
use crate::faults::Faults;
use crate::field::{Field, one_count};
use crate::hyper::{Conditions, Draft, DraftWindow, Hyper, Prefix, WindowLayers};
use crate::number::{nearest_f32, whole_u32, wide};
use crate::rope::{Llama3Scaling, RopeDescription, yarn_magnitude};
use crate::{ARCHITECTURES, Condition};
use serde_json::{Map, Value};
use std::path::Path;
use trueup_formats::flm::description_name;
use trueup_formats::{Error, Result, quote};
use trueup_graph::op::RopeScaling;

/// A JSON object.
type Object = Map<String, Value>;

impl Architecture {
    /// The architecture of a description, by its `architectures`, and by signs where several have a class of that name.
    pub fn of_config(config: &Object, path: &Path) -> Result<&'static Architecture> {
        let help = || format!("supported are {}", Architecture::classes());
        let classes: Vec<&str> = config
            .get("architectures")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let [class] = classes[..] else {
            let problem = format!("expected one class name, found {}", classes.len());
            return Err(Error::new(path, problem)
                .at(format!("architectures in {}", description_name(path)))
                .help(help()));
        };
        let is_told = |architecture: &&Architecture| {
            architecture.told_by.is_empty() || architecture.told_by.iter().any(|sign| sign.is_in(config))
        };
        Architecture::of_class(class).find(is_told).ok_or_else(|| {
            Error::new(path, format!("expected a supported class, found \"{}\"", quote(class)))
                .at(format!("architectures in {}", description_name(path)))
                .help(help())
        })
    }
}

impl Hyper {
    /// Reads a description by the architecture's tables; `tensors` is how many tensors the checkpoint has. The error
    /// names all faults.
    pub fn from_config(
        architecture: &'static Architecture,
        config: &Object,
        tensors: usize,
        path: &Path,
    ) -> Result<Hyper> {
        debug_assert!(ARCHITECTURES.iter().any(|known| std::ptr::eq(*known, architecture)));
        let layers = config.get(rule(architecture, Field::Layers).theirs).and_then(Value::as_u64);
        let mut reader = ConfigReader { config, layers, faults: Faults::default() };
        architecture.fixed.iter().for_each(|fixed| reader.check_fixed(fixed));
        let mut draft = reader.draft(architecture);
        let conditions = reader.conditions(architecture, &draft.rope);
        draft.alibi =
            architecture.parts.alibi.filter(|_| conditions.holds(Condition::Alibi)).map(|rule| rule.max_bias.into());
        let mut faults = reader.faults;
        let hyper = if faults.list().is_empty() { Hyper::new(draft, tensors, conditions, &mut faults) } else { None };
        faults.check(path, description_name(path), "the model is not supported, or its description is damaged")?;
        hyper.ok_or_else(|| Error::new(path, "numbers are too large for this machine").at(description_name(path)))
    }
}

impl Hyper {
    /// The description that [`Hyper::from_config`] reads as these numbers, for a model that came from a GGUF file.
    /// `None` where factors of the rotation are stored, from which what they were computed of does not follow.
    pub fn to_config(&self, architecture: &Architecture) -> Option<Object> {
        let mut config = Object::new();
        config.insert("architectures".to_owned(), Value::from(vec![*architecture.classes.first()?]));
        config.insert("model_type".to_owned(), Value::from(architecture.flm_name.unwrap_or(architecture.gguf_name)));
        for FieldRule { field, theirs, unit, several, .. } in architecture.fields {
            let value = match field {
                Field::Width => Value::from(self.width()),
                Field::Layers => Value::from(self.layers()),
                Field::Heads => Value::from(self.heads()),
                Field::KvHeads => Value::from(self.kv_heads()),
                Field::HeadSize => Value::from(self.head_size()),
                Field::Ffn => Value::from(wide(self.ffn()).saturating_mul(*several)),
                Field::Vocabulary => Value::from(self.vocabulary()),
                Field::Context => Value::from(self.context()),
                Field::Epsilon => Value::from(shortest(self.epsilon())),
                Field::RopeBase => Value::from(shortest(self.rope().base) / unit),
            };
            config.insert((*theirs).to_owned(), value);
        }
        if let Rotated::Counted(key, _) = architecture.parts.rotated {
            config.insert(key.to_owned(), Value::from(self.rope().dimensions));
        }
        for FlagRule { theirs, conditions, inverted, .. } in architecture.flags {
            let holds = conditions.iter().any(|condition| self.conditions().holds(*condition));
            config.insert((*theirs).to_owned(), Value::Bool(holds != *inverted));
        }
        config.extend(self.signs(architecture).map(|(key, value)| (key.to_owned(), value)));
        for sign in architecture.told_by {
            if let Sign::True(key) = sign {
                config.insert((*key).to_owned(), Value::Bool(true));
            }
        }
        if let (Some(prefix), Some(rule)) = (self.prefix(), architecture.parts.prefix) {
            let ids = [(rule.end, prefix.end), (rule.mark, prefix.mark), (rule.other_mark, prefix.other_mark)];
            config.extend(ids.map(|((key, _), id)| (key.to_owned(), Value::from(id))));
        }
        if self.conditions().holds(Condition::RopeFactors) {
            return None;
        }
        let scaling = match self.rope().scaling {
            RopeScaling::None => None,
            RopeScaling::Linear { factor } => Some(serde_json::json!({"type": "linear", "factor": shortest(factor)})),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                Some(serde_json::json!({
                    "type": "yarn",
                    "factor": shortest(factor),
                    "original_max_position_embeddings": original_context,
                    "beta_fast": shortest(beta_fast),
                    "beta_slow": shortest(beta_slow),
                    "attention_factor": shortest(magnitude),
                }))
            }
            RopeScaling::Long { .. } => return None,
        };
        config.extend(scaling.map(|scaling| ("rope_scaling".to_owned(), scaling)));
        if let (Some(window), Some(rule)) = (self.window(), architecture.window) {
            config.insert("sliding_window".to_owned(), Value::from(window.size()));
            config.extend(rule.enabled_by.map(|key| (key.to_owned(), Value::Bool(true))));
            let kinds =
                window.layers().iter().map(|slides| if *slides { "sliding_attention" } else { "full_attention" });
            config.insert("layer_types".to_owned(), Value::from(kinds.collect::<Vec<&str>>()));
        }
        Some(config)
    }
}

impl Hyper {
    /// The keys that say in so many words what else follows from signs, such as `use_alibi`, with their values.
    pub fn signs(&self, architecture: &Architecture) -> impl Iterator<Item = (&'static str, Value)> {
        let held = architecture.signs.iter().filter(|rule| self.conditions().holds(rule.condition));
        let key = |sign: &Sign| match sign {
            Sign::True(key) => Some((*key, Value::from(1))),
            Sign::Present(_) | Sign::Absent(_) | Sign::Vocabulary(_) => None,
        };
        held.flat_map(|rule| rule.signs).filter_map(key)
    }
}

impl Architecture {
    /// What a person should know of how a description was understood: a sentence each.
    pub fn notes_of_config(&self, config: &Object, hyper: &Hyper) -> Vec<String> {
        let held = self.signs.iter().filter(|rule| hyper.conditions().holds(rule.condition));
        let mut notes: Vec<String> = held.map(|rule| rule.note.to_owned()).collect();
        let kind =
            ROPE_OBJECTS.into_iter().find_map(|key| config.get(key)?.get("type").or(config.get(key)?.get("rope_type")));
        let is_true = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
        let context = hyper.context();
        if is_true("use_logn_attn") {
            notes.push(format!(
                "the scaling of queries by text length (use_logn_attn) is omitted: it has no effect up to \
                 {context} tokens"
            ));
        }
        if kind.and_then(Value::as_str) == Some("dynamic") || is_true("use_dynamic_ntk") {
            notes.push(format!("dynamic RoPE scaling is omitted, because it has no effect up to {context} tokens"));
        }
        notes
    }
}

impl Sign {
    fn is_in(self, config: &Object) -> bool {
        let value = |key: &str| config.get(key).filter(|value| !value.is_null());
        match self {
            Sign::Present(key) => value(key).is_some(),
            Sign::Absent(key) => value(key).is_none(),
            Sign::True(key) => {
                value(key).is_some_and(|value| value.as_bool() == Some(true) || value.as_u64() == Some(1))
            }
            Sign::Vocabulary(count) => value("vocab_size").and_then(Value::as_u64) == Some(count),
        }
    }
}

/// The shortest decimal number that is this f32, so that 1e-5 is not 9.99999974e-6.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

/// Reads keys, notes what is wrong and goes on with a number that means nothing: faults end in an error later.
struct ConfigReader<'a> {
    config: &'a Object,
    /// The number of layers, where it is a number.
    layers: Option<u64>,
    faults: Faults,
}

impl ConfigReader<'_> {
    fn draft(&mut self, architecture: &Architecture) -> Draft {
        let heads = self.count(rule(architecture, Field::Heads), 1, 1);
        let width = self.count(rule(architecture, Field::Width), heads, 1);
        let mut count = |field| self.count(rule(architecture, field), heads, width);
        let (layers, kv_heads, head_size) = (count(Field::Layers), count(Field::KvHeads), count(Field::HeadSize));
        let (ffn, vocabulary, context) = (count(Field::Ffn), count(Field::Vocabulary), count(Field::Context));
        let epsilon = self.number(rule(architecture, Field::Epsilon));
        let base = self.number(rule(architecture, Field::RopeBase));
        let rotated = match architecture.parts.rotated {
            Rotated::Whole => head_size,
            Rotated::Half => head_size / 2,
            Rotated::Counted(key, missing) => self.rotated(key, missing),
        };
        let rope = self.rope(base, rotated, context);
        let window = architecture.window.and_then(|rule| self.window(&rule));
        let prefix = architecture.parts.prefix.map(|rule| Prefix {
            end: self.token(rule.end),
            mark: self.token(rule.mark),
            other_mark: self.token(rule.other_mark),
        });
        Draft {
            width,
            layers,
            heads,
            kv_heads,
            head_size,
            ffn,
            vocabulary,
            context,
            epsilon,
            rope,
            window,
            alibi: None,
            prefix,
        }
    }

    /// How many elements of a head are rotated.
    fn rotated(&mut self, key: &str, missing: u64) -> u64 {
        match self.config.get(key).filter(|value| !value.is_null()) {
            None => missing,
            found @ Some(value) => value.as_u64().unwrap_or_else(|| self.wrong(key, "a count", found, missing)),
        }
    }

    /// The id of a token.
    fn token(&mut self, (key, missing): (&str, u32)) -> u32 {
        match self.config.get(key).filter(|value| !value.is_null()) {
            None => missing,
            found @ Some(value) => match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
                Some(id) => id,
                None => self.wrong(key, "the id of a token", found, missing),
            },
        }
    }

    /// A count; `heads` and `width` are what an absent one may follow from.
    fn count(&mut self, rule: &FieldRule, heads: u64, width: u64) -> u64 {
        let found = self.config.get(rule.theirs);
        if let Some(count) = found.and_then(Value::as_u64) {
            return match count.checked_div(rule.several).filter(|_| count.is_multiple_of(rule.several)) {
                Some(count) => count,
                None => self.wrong(rule.theirs, &format!("a multiple of {}", rule.several), found, 1),
            };
        }
        if let Some(list) = found.and_then(Value::as_array).filter(|_| rule.field.is_per_layer()) {
            return self.per_layer(rule, list);
        }
        let is_null = found.is_some_and(Value::is_null);
        if found.is_some() && !is_null {
            return self.wrong(rule.theirs, "a count", found, 1);
        }
        match rule.missing {
            Missing::IsOrHeads(_) if is_null => heads,
            Missing::IsOrWidthOverHeads(_) if is_null => self.width_over_heads(width, heads),
            Missing::Is(default) | Missing::IsOrHeads(default) | Missing::IsOrWidthOverHeads(default) => {
                whole_u32(default).into()
            }
            Missing::Heads => heads,
            Missing::Widths(times) => width.saturating_mul(times),
            Missing::WidthOverHeads => self.width_over_heads(width, heads),
            Missing::Key(other) => match self.config.get(other).and_then(Value::as_u64) {
                Some(count) => count,
                None => self.wrong(other, "a count", self.config.get(other), 1),
            },
            Missing::Refused => self.wrong(rule.theirs, "a count", found, 1),
        }
    }

    /// The count of a list with the same count for each layer.
    fn per_layer(&mut self, rule: &FieldRule, list: &[Value]) -> u64 {
        let counts: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        let Some(counts) = counts else {
            let found = Value::from(list.to_vec());
            return self.wrong(rule.theirs, "a count", Some(&found), 1);
        };
        one_count(&counts, self.layers).unwrap_or_else(|problem| {
            self.faults.add(format!("{}: {problem}", rule.theirs));
            1
        })
    }

    fn width_over_heads(&mut self, width: u64, heads: u64) -> u64 {
        width.checked_div(heads).filter(|_| width.is_multiple_of(heads)).unwrap_or_else(|| {
            self.faults.add(format!(
                "{heads} attention heads do not divide a hidden size of {width}, and head_dim is \
                    missing"
            ));
            1
        })
    }

    fn number(&mut self, rule: &FieldRule) -> f64 {
        let found = self.config.get(rule.theirs).filter(|value| !value.is_null());
        match (found, rule.missing) {
            (None, Missing::Is(default)) => rule.unit * default,
            (found, _) => match found.and_then(Value::as_f64) {
                Some(number) => rule.unit * number,
                None => self.wrong(rule.theirs, "a number", found, 1.0),
            },
        }
    }

    fn wrong<T>(&mut self, key: &str, expected: &str, found: Option<&Value>, instead: T) -> T {
        let found = found.map_or("nothing".to_owned(), |value| quote(&value.to_string()));
        self.faults.add(format!("{key}: expected {expected}, found {found}"));
        instead
    }

    fn check_fixed(&mut self, fixed: &Fixed) {
        let Some(found) = self.config.get(fixed.theirs).filter(|value| !value.is_null()) else { return };
        if !fixed.allowed.contains(&found.to_string().as_str()) {
            let expected = if fixed.allowed.is_empty() { "no such key".to_owned() } else { fixed.allowed.join(" or ") };
            self.wrong(fixed.theirs, &expected, Some(found), ());
        }
    }

    fn flag(&mut self, key: &str, missing: bool) -> bool {
        match self.config.get(key) {
            None | Some(Value::Null) => missing,
            Some(Value::Bool(flag)) => *flag,
            found => self.wrong(key, "true or false", found, missing),
        }
    }

    fn conditions(&mut self, architecture: &Architecture, rope: &RopeDescription) -> Conditions {
        let mut conditions = Conditions::default();
        for FlagRule { theirs, missing, conditions: decided, inverted } in architecture.flags {
            let holds = self.flag(theirs, *missing) != *inverted;
            decided.iter().for_each(|condition| conditions.set(*condition, holds));
        }
        for rule in architecture.signs {
            conditions.set(rule.condition, rule.signs.iter().any(|sign| sign.is_in(self.config)));
        }
        conditions.set(Condition::RopeFactors, rope.llama3.is_some());
        conditions
    }

    fn window(&mut self, rule: &WindowRule) -> Option<DraftWindow> {
        let enabled = rule.enabled_by.is_none_or(|key| self.flag(key, false));
        let size = match self.config.get("sliding_window") {
            None => Some(rule.missing),
            Some(Value::Null) => None,
            found @ Some(value) => {
                Some(value.as_u64().unwrap_or_else(|| self.wrong("sliding_window", "a count", found, 1)))
            }
        };
        let size = size.filter(|_| enabled);
        let first = rule.first_layer.map_or(0, |(key, default)| match self.config.get(key) {
            None | Some(Value::Null) => default,
            found @ Some(value) => value.as_u64().unwrap_or_else(|| self.wrong(key, "a count", found, 0)),
        });
        let listed = match self.config.get("layer_types") {
            None | Some(Value::Null) => None,
            found @ Some(value) => match value.as_array().and_then(|types| types.iter().map(is_sliding).collect()) {
                Some(list) => Some(list),
                None => self.wrong("layer_types", "full_attention and sliding_attention only", found, None),
            },
        };
        let listed: Option<Vec<bool>> = listed;
        if size.is_none() && listed.as_ref().is_some_and(|list| list.contains(&true)) {
            self.faults.add("layer_types: expected a sliding_window for sliding_attention, found none");
        }
        Some(DraftWindow { size: size?, layers: listed.map_or(WindowLayers::From(first), WindowLayers::Listed) })
    }

    /// The rotation: `rope_scaling` of transformers up to 4, `rope_parameters` since 5, where the base stands in it, as
    /// in InternLM's `rotary`.
    fn rope(&mut self, base: f64, rotated: u64, context: u64) -> RopeDescription {
        let object = ROPE_OBJECTS.into_iter().find_map(|key| match self.config.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Object(object)) => Some((key, object)),
            found => self.wrong(key, "an object", found, None),
        });
        let dimensions = usize::try_from(rotated).unwrap_or(0);
        let mut rope =
            RopeDescription { dimensions, base: nearest_f32(base), scaling: RopeScaling::None, llama3: None };
        let Some((place, object)) = object else { return rope };
        let mut scaling = ScalingReader { place, object, faults: &mut self.faults, context };
        let key = if place == ROTARY { "base" } else { "rope_theta" };
        rope.base = nearest_f32(scaling.optional(key).unwrap_or(base));
        scaling.read(&mut rope);
        rope
    }
}

/// The object that describes how angles change for long contexts.
struct ScalingReader<'a> {
    place: &'static str,
    object: &'a Object,
    faults: &'a mut Faults,
    context: u64,
}

/// Where a rotation may be described.
const ROPE_OBJECTS: [&str; 3] = ["rope_parameters", "rope_scaling", ROTARY];
const ROTARY: &str = "rotary";

/// Keys that each kind of scaling may have; another would change what is computed.
const SCALING_KEYS: &[(&str, &[&str])] = &[
    ("default", &["original_max_position_embeddings"]),
    ("origin", &[]),
    ("linear", &["factor", "original_max_position_embeddings"]),
    // Beyond the context only, where the angles of all positions change with each token.
    ("dynamic", &["factor", "scaling_factor", "original_max_position_embeddings"]),
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

impl ScalingReader<'_> {
    fn read(&mut self, rope: &mut RopeDescription) {
        let mut kinds = ["type", "rope_type"].into_iter().filter_map(|key| self.object.get(key));
        let kind = kinds.find(|kind| !kind.is_null());
        let kind = kind.map_or("default", |kind| kind.as_str().unwrap_or(""));
        let Some((_, keys)) = SCALING_KEYS.iter().find(|(name, _)| *name == kind) else {
            let known: Vec<&str> = SCALING_KEYS.iter().map(|(name, _)| *name).collect();
            let (place, found) = (self.place, quote(kind));
            self.faults.add(format!("rope_type in {place}: expected {}, found \"{found}\"", known.join(", ")));
            return;
        };
        self.check_keys(kind, keys);
        match kind {
            "linear" => rope.scaling = RopeScaling::Linear { factor: nearest_f32(self.required("factor")) },
            "llama3" => rope.llama3 = Some(self.llama3()),
            "yarn" => rope.scaling = self.yarn(),
            _ => {}
        }
    }

    fn check_keys(&mut self, kind: &str, keys: &[&str]) {
        for (key, value) in self.object {
            let known = ["type", "rope_type", "rope_theta"].contains(&key.as_str())
                || keys.contains(&key.as_str())
                || self.place == ROTARY && key == "base";
            // A factor of 1 says nothing where the kind has none.
            let neutral = key == "partial_rotary_factor" || key == "factor" && kind == "default";
            let says_nothing = value.is_null() || neutral && value.as_f64() == Some(1.0);
            if !known && !says_nothing {
                let place = self.place;
                self.faults.add(format!("{place}: expected only supported keys, found \"{}\"", quote(key)));
            }
        }
        if self.object.get("truncate").is_some_and(|value| value != &Value::Bool(true)) {
            self.faults.add(format!("truncate in {}: expected true, found another value", self.place));
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

    /// Absent numbers and zeros have the defaults of the library that defines the words.
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
        let before = self.faults.list().len();
        self.optional(key).unwrap_or_else(|| {
            if self.faults.list().len() == before {
                self.faults.add(format!("{key} in {}: expected a number, found nothing", self.place));
            }
            1.0
        })
    }

    fn optional(&mut self, key: &str) -> Option<f64> {
        let found = self.object.get(key).filter(|value| !value.is_null())?;
        let number = found.as_f64();
        if number.is_none() {
            let found = quote(&found.to_string());
            self.faults.add(format!("{key} in {}: expected a number, found {found}", self.place));
        }
        number
    }
}

/// `Some(whether a layer has a window)`, `None` for an unknown kind of attention.
fn is_sliding(kind: &Value) -> Option<bool> {
    match kind.as_str()? {
        "full_attention" => Some(false),
        "sliding_attention" => Some(true),
        _ => None,
    }
}

/// The rule of a field; each table has one for each (tested).
fn rule(architecture: &Architecture, field: Field) -> &'static FieldRule {
    let rule = architecture.fields.iter().find(|rule| rule.field == field);
    rule.unwrap_or_else(|| unreachable!("{field:?} is missing in a table"))
}
