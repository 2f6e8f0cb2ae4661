//! Lies in `tokenizer.json`, `tokenizer_config.json` and the other small files of a tokenizer.

use crate::case::{Call, Case, Entry};
use crate::folder::Folder;
use crate::safetensors::{Lie, lies};
use serde_json::{Value, json};

const READERS: &[Call] = &[Call::Tokenize, Call::Convert];

const FILES: &[Lie] = &[
    ("tokenizer.json empty", |f, _| f.put("tokenizer.json", "")),
    ("tokenizer.json a list", |f, _| f.put("tokenizer.json", "[]")),
    ("tokenizer.json an empty object", |f, _| f.put("tokenizer.json", "{}")),
    ("tokenizer.json cut", |f, r| {
        let text = f.tokenizer.to_string().into_bytes();
        f.put("tokenizer.json", &text[..r.between(1, text.len())]);
    }),
    ("tokenizer.json is no UTF-8", |f, _| f.put("tokenizer.json", b"{\"model\": \"\xff\"}".to_vec())),
    ("tokenizer.json in UTF-16", |f, _| {
        let text = f.tokenizer.to_string();
        f.put("tokenizer.json", text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    }),
    ("tokenizer.json a bomb of lists", |f, _| f.put("tokenizer.json", "[".repeat(300_000))),
    ("tokenizer.json a bomb of objects", |f, _| f.put("tokenizer.json", "{\"model\":".repeat(100_000))),
    ("tokenizer.json with two models", |f, _| {
        f.put("tokenizer.json", f.tokenizer.to_string().replacen('{', "{\"model\":{},", 1));
    }),
    ("tokenizer.json with a token twice", |f, _| {
        f.put("tokenizer.json", f.tokenizer.to_string().replacen("\"vocab\":{", "\"vocab\":{\"!\":7,", 1));
    }),
    ("tokenizer.json a pipe", |f, _| f.put_entry("tokenizer.json", Entry::Pipe)),
    ("tokenizer.json a directory", |f, _| f.put_entry("tokenizer.json", Entry::Folder)),
    ("tokenizer.json a link to itself", |f, _| f.put_entry("tokenizer.json", Entry::Link("tokenizer.json".to_owned()))),
    ("tokenizer.json a hole of 64 GiB", |f, _| f.put_entry("tokenizer.json", Entry::Sparse(b"{".to_vec(), 64 << 30))),
    ("no tokenizer", |f, _| f.missing.push("tokenizer.json")),
    ("tokenizer_config.json a list", |f, _| f.put("tokenizer_config.json", "[]")),
    ("tokenizer_config.json cut", |f, _| f.put("tokenizer_config.json", "{\"eos_token\": \"")),
    ("tokenizer_config.json a bomb", |f, _| f.put("tokenizer_config.json", "[".repeat(300_000))),
    ("tokenizer_config.json with a key twice", |f, _| {
        f.put("tokenizer_config.json", "{\"eos_token\": \"a\", \"eos_token\": \"b\"}")
    }),
    ("tokenizer_config.json a pipe", |f, _| f.put_entry("tokenizer_config.json", Entry::Pipe)),
    ("special_tokens_map.json a text", |f, _| f.put("special_tokens_map.json", "\"x\"")),
    ("added_tokens.json a list", |f, _| f.put("added_tokens.json", "[1]")),
    ("generation_config.json cut", |f, _| f.put("generation_config.json", "{")),
    ("chat_template.jinja is no UTF-8", |f, _| f.put("chat_template.jinja", b"{{ '\xff' }}".to_vec())),
    ("chat_template.jinja a hole of 1 GiB", |f, _| {
        f.put_entry("chat_template.jinja", Entry::Sparse(Vec::new(), 1 << 30))
    }),
];

const MODEL: &[Lie] = &[
    ("no model", |f, _| drop(f.tokenizer.as_object_mut().expect("an object").remove("model"))),
    ("model a list", |f, _| f.tokenizer["model"] = json!([])),
    ("model of type Unigram", |f, _| f.tokenizer["model"]["type"] = json!("Unigram")),
    ("model of type control characters", |f, _| f.tokenizer["model"]["type"] = json!("\u{1b}[2J\u{202e}\n")),
    ("vocabulary empty", |f, _| f.tokenizer["model"]["vocab"] = json!({})),
    ("vocabulary a list", |f, _| f.tokenizer["model"]["vocab"] = json!([["a", -1.0]])),
    ("token id negative", |f, _| f.tokenizer["model"]["vocab"]["a"] = json!(-1)),
    ("token id 2^32", |f, _| f.tokenizer["model"]["vocab"]["a"] = json!(1_u64 << 32)),
    ("token id 2^32-1", |f, _| f.tokenizer["model"]["vocab"]["a"] = json!(u32::MAX)),
    ("token id the size of the vocabulary", |f, _| f.tokenizer["model"]["vocab"]["extra"] = json!(400)),
    ("token id a text", |f, _| f.tokenizer["model"]["vocab"]["a"] = json!("64")),
    ("token id of another", |f, _| f.tokenizer["model"]["vocab"]["a"] = json!(65)),
    ("token with control characters beyond the vocabulary", |f, _| {
        f.tokenizer["model"]["vocab"]["\u{1b}[2J\u{202e}\n"] = json!(5000);
    }),
    ("token of 100000 bytes beyond the vocabulary", |f, _| {
        f.tokenizer["model"]["vocab"]["\u{202e}".repeat(33_000)] = json!(5000)
    }),
    ("merge of unknown tokens", |f, _| f.tokenizer["model"]["merges"] = json!(["zzz yyy"])),
    ("merge into an unknown token", |f, _| f.tokenizer["model"]["merges"] = json!(["! !", "!! !!"])),
    ("merge of one", |f, _| f.tokenizer["model"]["merges"] = json!(["a"])),
    ("merge of three", |f, _| f.tokenizer["model"]["merges"] = json!([["a", "b", "c"]])),
    ("merge of numbers", |f, _| f.tokenizer["model"]["merges"] = json!([[1, 2]])),
    ("merge of nothing", |f, _| f.tokenizer["model"]["merges"] = json!([" "])),
    ("merges a number", |f, _| f.tokenizer["model"]["merges"] = json!(7)),
    ("unknown token unknown", |f, _| f.tokenizer["model"]["unk_token"] = json!("\u{1b}[0m")),
    ("word suffix", |f, _| f.tokenizer["model"]["end_of_word_suffix"] = json!("</w>")),
    ("added token empty", |f, _| f.tokenizer["added_tokens"][0]["content"] = json!("")),
    ("added token of 5000 bytes", |f, _| f.tokenizer["added_tokens"][0]["content"] = json!("x".repeat(5000))),
    ("added token of another's id", |f, _| f.tokenizer["added_tokens"][0]["id"] = json!(64)),
    ("added token without id", |f, _| {
        drop(f.tokenizer["added_tokens"][0].as_object_mut().expect("an object").remove("id"))
    }),
    ("added tokens an object", |f, _| f.tokenizer["added_tokens"] = json!({})),
];

const STEPS: &[Lie] = &[
    ("normalizer unknown", |f, _| f.tokenizer["normalizer"] = json!({"type": "\u{1b}[2JMagic"})),
    ("normalizer 1000 deep", |f, _| f.tokenizer["normalizer"] = deep(json!({"type": "NFC"}), "normalizers", 1000)),
    ("normalizers by ten thousands", |f, _| {
        f.tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": vec![json!({"type": "NFC"}); 20_000]});
    }),
    ("normalizer of a broken pattern", |f, _| {
        f.tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": "("}, "content": ""});
    }),
    ("normalizer of an empty pattern", |f, _| {
        f.tokenizer["normalizer"] = json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"});
    }),
    ("pattern broken", |f, _| split(f, "[")),
    ("pattern of control characters, broken", |f, _| split(f, "\u{1b}[2J\u{202e}(\n")),
    ("pattern with a large program", |f, _| split(f, "(?:(?:a{1000}){1000}){1000}")),
    ("pattern of many letters", |f, _| split(f, "\\p{L}{100000}{100000}")),
    ("pattern of 50000 groups", |f, _| split(f, &format!("{}a{}", "(".repeat(50_000), ")".repeat(50_000)))),
    ("pattern of a megabyte", |f, _| split(f, &"a|".repeat(500_000))),
    ("splits by ten thousands", |f, _| {
        let one = json!({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated"});
        f.tokenizer["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": vec![one; 20_000]});
    }),
    ("split of unknown behaviour", |f, _| {
        f.tokenizer["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Explode")
    }),
    ("pre-tokenizer unknown", |f, _| f.tokenizer["pre_tokenizer"] = json!({"type": "UnicodeScripts"})),
    ("decoder unknown", |f, _| f.tokenizer["decoder"] = json!({"type": "CTC"})),
    ("decoder that strips 2^64-1", |f, _| {
        f.tokenizer["decoder"] = json!({"type": "Strip", "content": "x", "start": u64::MAX, "stop": 0})
    }),
    ("post-processor of an unknown token", |f, _| {
        f.tokenizer["post_processor"] = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}], "special_tokens": {}});
    }),
    ("post-processor of an id beyond the vocabulary", |f, _| {
        f.tokenizer["post_processor"] = json!({"type": "BertProcessing", "sep": ["a", 70_000], "cls": ["b", 1]});
    }),
    ("post-processor of a million tokens", |f, _| {
        let ids = vec![1; 1_000_000];
        f.tokenizer["post_processor"] = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q", "type_id": 0}}], "special_tokens": {"q": {"id": "q", "ids": ids, "tokens": []}}});
    }),
];

/// Found out when a text is cut.
const TEXT: &[Lie] = &[
    ("normalizers that double the text", |f, _| {
        let doubling = json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaaaaaaaaaaaaaa"});
        f.tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": vec![doubling; 12]});
    }),
    ("pattern of exponential time", |f, _| split(f, "(?=(a+)+(?=b)\\1c)|(?:(a|aa)+)+\\2\\2(?=y)z")),
];

const ACCEPTED: &[Lie] = &[
    ("added token beyond the vocabulary", |f, _| f.tokenizer["added_tokens"][0]["id"] = json!(70_000)),
    ("added token 2^32-1", |f, _| f.tokenizer["added_tokens"][0]["id"] = json!(u32::MAX)),
    ("tokenizer.json with a byte order mark", |f, _| f.put("tokenizer.json", format!("\u{feff}{}", f.tokenizer))),
    ("tokenizer.json as it was", |_, _| ()),
    ("tokenizer.json spread over lines", |f, _| {
        f.put("tokenizer.json", serde_json::to_vec_pretty(&f.tokenizer).expect("JSON"))
    }),
    ("tokenizer.json with unknown keys", |f, _| f.tokenizer["\u{202e}new"] = json!([[[1]]])),
    ("tokenizer.json with lists 5000 deep under an unknown key", |f, _| {
        f.put(
            "tokenizer.json",
            f.tokenizer.to_string().replacen('{', &format!("{{\"x\":{}1{},", "[".repeat(5000), "]".repeat(5000)), 1),
        );
    }),
    ("normalizers 50 deep", |f, _| f.tokenizer["normalizer"] = deep(json!({"type": "NFC"}), "normalizers", 50)),
    ("vocabulary backwards", |f, _| {
        let entries: Vec<_> =
            f.tokenizer["model"]["vocab"].as_object().expect("an object").clone().into_iter().rev().collect();
        f.tokenizer["model"]["vocab"] = Value::Object(entries.into_iter().collect());
    }),
    ("merges as pairs", |f, _| {
        let merges = f.tokenizer["model"]["merges"].as_array_mut().expect("a list");
        for merge in merges.iter_mut().filter(|merge| merge.is_string()) {
            *merge = json!(merge.as_str().expect("a text").split(' ').collect::<Vec<_>>());
        }
    }),
    ("no merges", |f, _| f.tokenizer["model"]["merges"] = json!([])),
    ("an added token of control characters", |f, _| {
        f.tokenizer["added_tokens"][3]["content"] = json!("\u{1b}[2J\u{202e}\n");
        f.missing.push("tokenizer_config.json")
    }),
    ("no normalizer", |f, _| f.tokenizer["normalizer"] = Value::Null),
    ("no tokenizer_config.json", |f, _| f.missing.push("tokenizer_config.json")),
    ("empty tokenizer_config.json", |f, _| f.put("tokenizer_config.json", "{}")),
];

/// All cases.
pub fn cases(seed: u64, good: &Folder) -> Vec<Case> {
    let mut cases = lies(seed, good, &[FILES, MODEL, STEPS].concat(), READERS, &[]);
    cases.extend(lies(seed, good, TEXT, &[Call::Tokenize], &[Call::Convert]));
    cases.extend(lies(seed, good, ACCEPTED, &[], READERS));
    cases
}

/// Sequences within each other.
fn deep(inner: Value, key: &str, depth: usize) -> Value {
    (0..depth).fold(inner, |inner, _| json!({"type": "Sequence", key: [inner]}))
}

/// Gives the splitting of words another pattern.
fn split(folder: &mut Folder, pattern: &str) {
    folder.tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": pattern});
}
