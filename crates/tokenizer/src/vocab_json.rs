//! `vocab.json` and `merges.txt`, in folders without a `tokenizer.json`.
//!
//! ```text
//! vocab.json   {"Ġthe": 262, ...}      merges.txt   #version: 0.2 | Ġ t | h e | ...      the first to be merged first
//! ```
//!
//! The two files do not say how text is cut. The tokenizer class of the folder does: `tokenizer_class` in
//! `tokenizer_config.json`, else in `config.json`, else the class that transformers has for the `model_type`. The
//! rules are those of the converters of transformers 4.57 (`convert_slow_tokenizer.py`).

use crate::pre_tokenizer_names;
use crate::source::ModelTokens;
use crate::special_names::RoleDefault;
use crate::tokenizer_json::{self, Read};
use crate::vocabulary::{Parts, ids_by_text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, quote};

/// What errors call the files.
pub(crate) const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
/// What to do about a file that cannot be read.
const DAMAGED: &str = "get the file of the original model";

/// How text is cut, and what is put around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The pattern of GPT-2.
    Gpt2,
    /// The pattern of Qwen2, over composed text.
    Qwen2,
    /// The pattern of GPT-2, with the `cls` and `sep` tokens around every text.
    Roberta,
}

/// A tokenizer class.
#[derive(Debug)]
pub(crate) struct Class {
    name: &'static str,
    rule: Rule,
    /// Tokens of roles that no file names.
    pub(crate) defaults: &'static [RoleDefault],
    /// Types of models that have this class unless a file names another one.
    model_types: &'static [&'static str],
}

const END: &str = "<|endoftext|>";
const GPT2_DEFAULTS: &[RoleDefault] =
    &[("bos_token", END, false), ("eos_token", END, false), ("unk_token", END, false)];
const QWEN2_DEFAULTS: &[RoleDefault] =
    &[("eos_token", END, false), ("unk_token", END, false), ("pad_token", END, false)];
const ROBERTA_DEFAULTS: &[RoleDefault] = &[
    ("bos_token", "<s>", false),
    ("eos_token", "</s>", false),
    ("unk_token", "<unk>", false),
    ("sep_token", "</s>", false),
    ("pad_token", "<pad>", false),
    ("cls_token", "<s>", false),
    ("mask_token", "<mask>", true),
];

/// All classes that keep a vocabulary in these two files and that a model of text has; the first is assumed when
/// nothing names a class.
const CLASSES: [Class; 9] = [
    Class {
        name: "GPT2Tokenizer",
        rule: Rule::Gpt2,
        defaults: GPT2_DEFAULTS,
        model_types: &[
            "dbrx",
            "emu3",
            "exaone4",
            "flex_olmo",
            "gpt2",
            "gpt_bigcode",
            "gpt_neo",
            "gptj",
            "granite",
            "granitemoe",
            "granitemoehybrid",
            "granitemoeshared",
            "minimax",
            "olmo3",
            "opt",
            "starcoder2",
        ],
    },
    Class { name: "CodeGenTokenizer", rule: Rule::Gpt2, defaults: GPT2_DEFAULTS, model_types: &["codegen", "phi"] },
    // The program of MOSS, which comes with its folder.
    Class { name: "MossTokenizer", rule: Rule::Gpt2, defaults: &[], model_types: &["moss"] },
    Class {
        name: "Qwen2Tokenizer",
        rule: Rule::Qwen2,
        defaults: QWEN2_DEFAULTS,
        model_types: &[
            "internvl",
            "qwen2",
            "qwen2_5_omni",
            "qwen2_5_vl",
            "qwen2_audio",
            "qwen2_moe",
            "qwen2_vl",
            "qwen3",
            "qwen3_moe",
            "qwen3_next",
            "qwen3_omni_moe",
            "qwen3_vl",
            "qwen3_vl_moe",
        ],
    },
    Class {
        name: "RobertaTokenizer",
        rule: Rule::Roberta,
        defaults: ROBERTA_DEFAULTS,
        model_types: &["roberta", "roberta-prelayernorm"],
    },
    Class { name: "BartTokenizer", rule: Rule::Roberta, defaults: ROBERTA_DEFAULTS, model_types: &["bart"] },
    Class { name: "LEDTokenizer", rule: Rule::Roberta, defaults: ROBERTA_DEFAULTS, model_types: &["led"] },
    Class {
        name: "LongformerTokenizer",
        rule: Rule::Roberta,
        defaults: ROBERTA_DEFAULTS,
        model_types: &["longformer"],
    },
    Class { name: "MvpTokenizer", rule: Rule::Roberta, defaults: ROBERTA_DEFAULTS, model_types: &["mvp"] },
];

/// The class that a file names, without the ending of fast tokenizers.
pub(crate) fn named_class<'f>(files: &'f TokenizerFiles, model: &'f ModelTokens) -> Option<&'f str> {
    let config = files.tokenizer_config.as_ref();
    let class = config.and_then(|config| config.get("tokenizer_class")?.as_str());
    let class = class.or(model.tokenizer_class.as_deref())?;
    Some(class.strip_suffix("Fast").unwrap_or(class))
}

/// Whether a file names a class that keeps its vocabulary in these two files.
pub(crate) fn is_named(files: &TokenizerFiles, model: &ModelTokens) -> bool {
    named_class(files, model).is_some_and(|named| CLASSES.iter().any(|class| class.name == named))
}

/// The class of a folder. Fails when a file names one that is not known; notes an assumption when nothing says it.
pub(crate) fn class(
    files: &TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    notes: &mut Vec<String>,
) -> Result<&'static Class> {
    let [assumed, ..] = &CLASSES;
    if let Some(named) = named_class(files, model) {
        return CLASSES.iter().find(|class| class.name == named).ok_or_else(|| {
            let problem = format!(
                "expected a supported class, found {}; {VOCABULARY} and {MERGES} do not define the pre-tokenizer",
                quote(named)
            );
            let help = "save the tokenizer with transformers (save_pretrained) to get its tokenizer.json, and put it into the \
                        directory or pass it with --tokenizer";
            Error::new(path, problem).at("tokenizer_class").help(help)
        });
    }
    let model_type = model.model_type.as_deref();
    let of_type = CLASSES.iter().find(|class| model_type.is_some_and(|kind| class.model_types.contains(&kind)));
    Ok(of_type.unwrap_or_else(|| {
        notes.push(format!(
            "no file contains a tokenizer_class, which selects the pre-tokenizer for {VOCABULARY} and {MERGES}; {} is assumed",
            assumed.name
        ));
        assumed
    }))
}

/// Builds the parts by the rule of a class; `vocab_size` is the number of rows of the model's embedding, and `path`
/// the model that errors name.
pub(crate) fn read(
    (vocab, merges): (&[u8], &[u8]),
    class: &Class,
    files: &TokenizerFiles,
    vocab_size: Option<usize>,
    path: &Path,
) -> Result<Read> {
    let vocab: BTreeMap<String, u32> = serde_json::from_slice(vocab)
        .map_err(|problem| Error::new(path, quote(&problem.to_string())).at(VOCABULARY).help(DAMAGED))?;
    let text = std::str::from_utf8(merges).map_err(|error| {
        let problem = "expected UTF-8 text, found other bytes";
        Error::new(path, problem).at(format!("{MERGES}, byte {}", error.valid_up_to())).help(DAMAGED)
    })?;
    let lines = text.lines().enumerate().filter(|(number, line)| *number > 0 || !line.starts_with("#version"));
    let merges: Vec<&str> =
        lines.map(|(_, line)| line.trim_end_matches('\r')).filter(|line| !line.is_empty()).collect();
    let flag = |key: &str| files.tokenizer_config.as_ref().and_then(|config| config.get(key)?.as_bool());
    let prefix_space = flag("add_prefix_space").unwrap_or(false);
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "use_regex": true});
    let (normalizer, pre_tokenizer) = match class.rule {
        Rule::Gpt2 | Rule::Roberta => (Value::Null, bytes),
        Rule::Qwen2 => (json!({"type": "NFC"}), qwen2_pre_tokenizer(path)?),
    };
    let file = json!({
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    });
    tokenizer_json::read(file.to_string().as_bytes(), vocab_size, path, &mut Vec::new()).map_err(|error| {
        error.help("vocab.json and merges.txt were read as one tokenizer.json; use the files of the same tokenizer")
    })
}

/// How Qwen2 cuts text, by its name in GGUF.
fn qwen2_pre_tokenizer(path: &Path) -> Result<Value> {
    let known = pre_tokenizer_names::by_name("qwen2").map(|known| serde_json::to_value(known.pre_tokenizer()));
    known
        .and_then(std::result::Result::ok)
        .ok_or_else(|| Error::new(path, "the rule of Qwen2 is missing").at(VOCABULARY))
}

/// Puts what the class has around every text, once all tokens have ids.
pub(crate) fn put_around(
    parts: &mut Parts,
    class: &Class,
    files: &TokenizerFiles,
    role: impl Fn(&str) -> Option<String>,
) {
    let ids = ids_by_text(&parts.tokens);
    let id = |key: &str| role(key).and_then(|text| ids.get(text.as_str()).copied());
    let adds_bos = files.tokenizer_config.as_ref().and_then(|config| config.get("add_bos_token")?.as_bool());
    let (prefix, suffix) = match class.rule {
        Rule::Roberta => (id("cls_token"), id("sep_token")),
        Rule::Gpt2 if adds_bos == Some(true) && class.defaults == GPT2_DEFAULTS => (id("bos_token"), None),
        Rule::Gpt2 | Rule::Qwen2 => (None, None),
    };
    (parts.prefix, parts.suffix) = (prefix.into_iter().collect(), suffix.into_iter().collect());
}

/// The first token that `vocab.json` and a vocabulary number differently, next to a `tokenizer.json` that is used:
/// its text and its two ids.
pub(crate) fn first_difference(vocab: &[u8], parts: &Parts) -> Option<(String, u32, Option<u32>)> {
    let vocab: BTreeMap<String, u32> = serde_json::from_slice(vocab).ok()?;
    let ids = ids_by_text(&parts.tokens);
    vocab.into_iter().find_map(|(text, id)| {
        let known = ids.get(text.as_str()).copied();
        (known != Some(id)).then_some((text, id, known))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_gpt2(vocab: &[u8], merges: &[u8]) -> Result<Read> {
        let [gpt2, ..] = &CLASSES;
        read((vocab, merges), gpt2, &TokenizerFiles::default(), None, Path::new("model"))
    }

    #[test]
    fn two_files_are_one_tokenizer() {
        let vocab = br#"{"a": 0, "b": 1, "ab": 2}"#;
        let Read { parts, .. } = read_gpt2(vocab, b"#version: 0.2\na b\n").unwrap();
        assert_eq!(parts.tokens.len(), 3);
        for (vocab, merges, expected) in [
            (&b"{"[..], &b""[..], "vocab.json"),
            (&b"[1]"[..], &b""[..], "vocab.json"),
            (&br#"{"a": -1}"#[..], &b""[..], "vocab.json"),
            (vocab, b"a \xff", "merges.txt, byte 2"),
            (vocab, b"a c", "found \"c\", which is not in it"),
            (vocab, b"a", "two tokens"),
        ] {
            let error = read_gpt2(vocab, merges).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_class_comes_from_the_nearest_file() {
        let config = |class: Option<&str>| TokenizerFiles {
            tokenizer_config: class.map(|class| json!({"tokenizer_class": class}).as_object().unwrap().clone()),
            ..TokenizerFiles::default()
        };
        let model = |class: Option<&str>, model_type: Option<&str>| ModelTokens {
            tokenizer_class: class.map(str::to_owned),
            model_type: model_type.map(str::to_owned),
            ..ModelTokens::default()
        };
        let cases = [
            (config(Some("Qwen2TokenizerFast")), model(Some("GPT2Tokenizer"), Some("gpt2")), "Qwen2Tokenizer", 0),
            (config(None), model(Some("CodeGenTokenizer"), Some("qwen2")), "CodeGenTokenizer", 0),
            (config(None), model(None, Some("qwen3_moe")), "Qwen2Tokenizer", 0),
            (config(None), model(None, Some("starcoder2")), "GPT2Tokenizer", 0),
            (config(None), model(None, Some("brand_new")), "GPT2Tokenizer", 1),
            (config(None), model(None, None), "GPT2Tokenizer", 1),
        ];
        for (files, model, expected, note_count) in cases {
            let mut notes = Vec::new();
            assert_eq!(class(&files, &model, Path::new("m"), &mut notes).unwrap().name, expected, "{model:?}");
            assert_eq!(notes.len(), note_count, "{model:?}: {notes:?}");
        }
        let error = class(&config(Some("CLIPTokenizer")), &model(None, None), Path::new("m"), &mut Vec::new());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("CLIPTokenizer") && error.contains("--tokenizer"), "{error}");
    }
}
