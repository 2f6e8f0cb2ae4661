//! Keys of `tokenizer.json`, checked one by one, so that a key that changes token ids is never skipped in silence.
//!
//! Every key of a component belongs to one of three groups:
//!
//! | group | example | what happens |
//! |---|---|---|
//! | read | `prepend_scheme` of `Metaspace` | it is applied, or the file is refused |
//! | without effect on ids | `trim_offsets` of `ByteLevel` | nothing |
//! | unknown | | a note names it |
//!
//! The lists follow version 0.22 of the tokenizers library, which skips unknown keys, so a file with one is read the
//! same way.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use trueup_formats::{listed, quote};

/// A part of the file that is made of components.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Normalizer,
    PreTokenizer,
    PostProcessor,
    Decoder,
}

/// A kind of component.
struct Kind {
    name: &'static str,
    /// Keys that are read.
    read: &'static [&'static str],
    /// Keys without an effect on ids.
    idle: &'static [&'static str],
}

const fn kind(name: &'static str, read: &'static [&'static str], idle: &'static [&'static str]) -> Kind {
    Kind { name, read, idle }
}

/// `str_rep` repeats `replacement`, and older files have it.
const METASPACE: Kind =
    kind("Metaspace", &["replacement", "prepend_scheme", "split", "add_prefix_space"], &["str_rep"]);

const NORMALIZERS: [Kind; 12] = [
    kind("Sequence", &["normalizers"], &[]),
    kind("NFC", &[], &[]),
    kind("NFD", &[], &[]),
    kind("NFKC", &[], &[]),
    kind("NFKD", &[], &[]),
    kind("Lowercase", &[], &[]),
    kind("Replace", &["pattern", "content"], &[]),
    kind("Prepend", &["prepend"], &[]),
    kind("Strip", &["strip_left", "strip_right"], &[]),
    kind("StripAccents", &[], &[]),
    kind("BertNormalizer", &["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"], &[]),
    kind("Precompiled", &["precompiled_charsmap"], &[]),
];

const PRE_TOKENIZERS: [Kind; 10] = [
    kind("Sequence", &["pretokenizers"], &[]),
    kind("Split", &["pattern", "behavior", "invert"], &[]),
    kind("ByteLevel", &["add_prefix_space", "use_regex"], &["trim_offsets"]),
    METASPACE,
    kind("Digits", &["individual_digits"], &[]),
    kind("Punctuation", &["behavior"], &[]),
    kind("Whitespace", &[], &[]),
    kind("WhitespaceSplit", &[], &[]),
    kind("BertPreTokenizer", &[], &[]),
    kind("CharDelimiterSplit", &["delimiter"], &[]),
];

/// A post-processor of kind `ByteLevel` only moves offsets, and `pair` is the template of two texts.
const POST_PROCESSORS: [Kind; 5] = [
    kind("Sequence", &["processors"], &[]),
    kind("ByteLevel", &[], &["add_prefix_space", "trim_offsets", "use_regex"]),
    kind("TemplateProcessing", &["single", "special_tokens"], &["pair"]),
    kind("RobertaProcessing", &["sep", "cls"], &["trim_offsets", "add_prefix_space"]),
    kind("BertProcessing", &["sep", "cls"], &[]),
];

/// A decoder of kind `ByteLevel` has the keys of the pre-tokenizer and uses none of them.
const DECODERS: [Kind; 8] = [
    kind("Sequence", &["decoders"], &[]),
    kind("ByteLevel", &[], &["add_prefix_space", "trim_offsets", "use_regex"]),
    kind("ByteFallback", &[], &[]),
    kind("Fuse", &[], &[]),
    kind("Replace", &["pattern", "content"], &[]),
    kind("Strip", &["content", "start", "stop"], &[]),
    kind("WordPiece", &["prefix", "cleanup"], &[]),
    METASPACE,
];

/// Keys of the file itself; `version` is that of the layout.
const FILE: Kind = kind(
    "",
    &["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "truncation", "padding"],
    &["version"],
);
const ADDED_TOKEN: Kind =
    kind("added token", &["id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"], &[]);
const BPE: Kind = kind(
    "BPE",
    &[
        "type",
        "vocab",
        "merges",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "fuse_unk",
        "ignore_merges",
        "dropout",
    ],
    &[],
);
const WORD_PIECE: Kind =
    kind("WordPiece", &["type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"], &[]);
const UNIGRAM: Kind = kind("Unigram", &["type", "vocab", "unk_id", "byte_fallback"], &[]);

impl Section {
    /// What the file calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Normalizer => "normalizer",
            Section::PreTokenizer => "pre_tokenizer",
            Section::PostProcessor => "post_processor",
            Section::Decoder => "decoder",
        }
    }

    fn kinds(self) -> &'static [Kind] {
        match self {
            Section::Normalizer => &NORMALIZERS,
            Section::PreTokenizer => &PRE_TOKENIZERS,
            Section::PostProcessor => &POST_PROCESSORS,
            Section::Decoder => &DECODERS,
        }
    }

    /// The first type in a component and its steps that is not in the list.
    pub(crate) fn unknown_type(self, component: &Value) -> Option<String> {
        let name = component.get("type").and_then(Value::as_str)?;
        if !self.kinds().iter().any(|kind| kind.name == name) {
            return Some(name.to_owned());
        }
        let steps = component.get(self.steps()).and_then(Value::as_array)?;
        steps.iter().find_map(|step| self.unknown_type(step))
    }

    /// The key under which a sequence has its steps.
    fn steps(self) -> &'static str {
        match self {
            Section::Normalizer => "normalizers",
            Section::PreTokenizer => "pretokenizers",
            Section::PostProcessor => "processors",
            Section::Decoder => "decoders",
        }
    }
}

/// Unknown keys of a file, by their place.
#[derive(Default)]
pub(crate) struct UnknownKeys(BTreeSet<String>);

impl UnknownKeys {
    fn look(&mut self, kind: &Kind, place: &str, key: &str) {
        if !kind.read.contains(&key) && !kind.idle.contains(&key) {
            let owner = if kind.name.is_empty() { String::new() } else { format!(" of {}", kind.name) };
            self.0.insert(format!("\"{}\"{owner}{place}", quote(key)));
        }
    }

    /// A sentence that names them all, if there are any.
    pub(crate) fn note(self) -> Option<String> {
        let keys: Vec<String> = self.0.into_iter().collect();
        (!keys.is_empty()).then(|| {
            format!("tokenizer.json: unknown keys are ignored, as in tokenizers 0.22: {}", listed(&keys, ", "))
        })
    }
}

/// Checks the keys of a component and of the steps within it, and rewrites keys of older versions. The error is one
/// sentence without a place.
pub(crate) fn check(section: Section, component: &mut Value, unknown: &mut UnknownKeys) -> Result<(), String> {
    let Value::Object(object) = component else { return Ok(()) };
    let name = object.get("type").and_then(Value::as_str).unwrap_or_default();
    // A kind that is not in the list is refused by name when the component is read.
    let Some(kind) = section.kinds().iter().find(|kind| kind.name == name) else { return Ok(()) };
    for key in object.keys().filter(|key| *key != "type") {
        unknown.look(kind, &format!(" ({})", section.name()), key);
    }
    if kind.name == METASPACE.name {
        settle_prefix(object)?;
    }
    if let Some(Value::Array(steps)) = object.get_mut(section.steps()) {
        for step in steps {
            check(section, step, unknown)?;
        }
    }
    Ok(())
}

/// `add_prefix_space` of `Metaspace`, which older files have in place of `prepend_scheme`: false means "never", and
/// true says nothing that the scheme does not say.
fn settle_prefix(object: &mut Map<String, Value>) -> Result<(), String> {
    match (object.get("add_prefix_space"), object.get("prepend_scheme")) {
        (None | Some(Value::Null | Value::Bool(true)), _) => {}
        (Some(Value::Bool(false)), None) => {
            object.insert("prepend_scheme".to_owned(), Value::from("never"));
        }
        (Some(Value::Bool(false)), Some(scheme)) if scheme == "never" => {}
        (Some(Value::Bool(false)), Some(scheme)) => {
            return Err(format!(
                "Metaspace: expected prepend_scheme \"never\" with add_prefix_space false, found {}",
                quote(&scheme.to_string())
            ));
        }
        (Some(other), _) => {
            let found = quote(&other.to_string());
            return Err(format!("Metaspace, add_prefix_space: expected true or false, found {found}"));
        }
    }
    Ok(())
}

/// How the model of a file cuts words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ModelKind {
    Merges,
    Unigram,
    WordPiece,
}

/// The keys of the file, its model and its added tokens, without their values.
#[derive(Default)]
pub(crate) struct Outline {
    file: Keys,
    model: Keys,
    added: Keys,
}

impl Outline {
    /// Adds what is unknown.
    pub(crate) fn look(&self, model: ModelKind, unknown: &mut UnknownKeys) {
        let model = match model {
            ModelKind::Merges => &BPE,
            ModelKind::Unigram => &UNIGRAM,
            ModelKind::WordPiece => &WORD_PIECE,
        };
        for (keys, kind, place) in
            [(&self.file, &FILE, ""), (&self.model, model, " (model)"), (&self.added, &ADDED_TOKEN, "")]
        {
            keys.0.iter().for_each(|key| unknown.look(kind, place, key));
        }
    }
}

/// Keys of an object, or of all objects of a list.
#[derive(Default)]
struct Keys(BTreeSet<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, or a list of objects")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = BTreeSet::new();
                while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    keys.insert(key);
                }
                Ok(Keys(keys))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Keys, A::Error> {
                let mut keys = BTreeSet::new();
                while let Some(Keys(more)) = list.next_element()? {
                    keys.extend(more);
                }
                Ok(Keys(keys))
            }
            fn visit_unit<E>(self) -> Result<Keys, E> {
                Ok(Keys::default())
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Outline, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Outline;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
                let mut outline = Outline::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "model" => outline.model = map.next_value()?,
                        "added_tokens" => outline.added = map.next_value()?,
                        _ => {
                            let IgnoredAny = map.next_value()?;
                        }
                    }
                    outline.file.0.insert(key);
                }
                Ok(outline)
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(section: Section, mut component: Value) -> (Result<Value, String>, Option<String>) {
        let mut unknown = UnknownKeys::default();
        let result = check(section, &mut component, &mut unknown);
        (result.map(|()| component), unknown.note())
    }

    /// By the rule of tokenizers 0.22, and of 0.13 where there is no scheme.
    #[test]
    fn add_prefix_space_of_older_files() {
        let metaspace = |more: Value| {
            let mut object = json!({"type": "Metaspace", "replacement": "▁"});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"type": "Sequence", "pretokenizers": [object]})
        };
        for (keys, expected) in [
            (json!({"add_prefix_space": false}), Ok("never")),
            (json!({"add_prefix_space": false, "prepend_scheme": "never"}), Ok("never")),
            (json!({"add_prefix_space": true, "prepend_scheme": "first"}), Ok("first")),
            (
                json!({"add_prefix_space": false, "prepend_scheme": "always"}),
                Err("with add_prefix_space false, found \"always\""),
            ),
            (json!({"add_prefix_space": false, "prepend_scheme": "first"}), Err("expected prepend_scheme \"never\"")),
            (json!({"add_prefix_space": "no"}), Err("expected true or false")),
        ] {
            let (found, note) = checked(Section::PreTokenizer, metaspace(keys.clone()));
            assert_eq!(note, None, "{keys}");
            match expected {
                Ok(scheme) => assert_eq!(found.unwrap()["pretokenizers"][0]["prepend_scheme"], scheme, "{keys}"),
                Err(problem) => assert!(found.unwrap_err().contains(problem), "{keys}"),
            }
        }
    }

    #[test]
    fn unknown_keys_are_named_and_idle_ones_are_not() {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        assert_eq!(checked(Section::PreTokenizer, bytes.clone()).1, None);
        assert_eq!(checked(Section::Decoder, bytes.clone()).1, None);
        assert_eq!(checked(Section::PostProcessor, bytes).1, None);
        let split = json!({"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "max": 3});
        let note = checked(Section::PreTokenizer, json!({"type": "Sequence", "pretokenizers": [split]})).1.unwrap();
        assert!(note.contains("\"max\" of Split (pre_tokenizer)"), "{note}");
        let outline: Outline = serde_json::from_value(json!({
            "version": "1.0", "mode": 1, "added_tokens": [{"id": 1, "content": "a"}, {"id": 2, "boost": 1}],
            "model": {"type": "BPE", "vocab": {"trap": 0}, "merges": [], "sampling": 0.1}
        }))
        .unwrap();
        let mut unknown = UnknownKeys::default();
        outline.look(ModelKind::Merges, &mut unknown);
        let note = unknown.note().unwrap();
        for key in ["\"mode\"", "\"boost\" of added token", "\"sampling\" of BPE (model)"] {
            assert!(note.contains(key), "{note}");
        }
        assert!(!note.contains("trap"), "{note}");
    }
}
