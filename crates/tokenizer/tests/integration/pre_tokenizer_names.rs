//! Every name of a pre-tokenizer against the words of llama.cpp and, if the models of a name publish a rule, against
//! the words of the tokenizers library. The fixture is made by `scripts/make_pre_tokenizer_fixture.py`.
//!
//! In the test vocabulary each substring of a text is a token that merges lead to, so the tokens of a text are the
//! words of the pre-tokenizer. The last text has no merges: it stays whole only under names that ignore merges.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{Tokenizer, Vocabulary, pre_tokenizer_names};

const BOS: &str = "<s>";

/// Names for which llama.cpp approximates the published rule, with the number of texts that it splits differently.
/// `docs/tokenizers.md` explains each of them; the fixture has both results.
const DEVIATIONS: &[(usize, &[&str])] = &[
    (1, &["superbpe"]),
    (2, &["deepseek-coder", "granite-embed-multi-97m"]),
    (8, &["youtu"]),
    (10, &["tiny_aya", "cohere2moe"]),
    (13, &["tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"]),
    (17, &["deepseek-llm"]),
    (19, &["kimi-k2"]),
    (25, &["falcon"]),
    (54, &["whitespace"]),
];

/// One way to split each text, and the names that split so.
struct Group {
    /// One digit in base 36 for each text, the position in its list of ways.
    ways: String,
    begins_with_bos: bool,
    names: Vec<String>,
}

struct Fixture {
    texts: Vec<String>,
    /// For each text the ways to split it that occur.
    ways: Vec<Vec<Vec<String>>>,
    llama_cpp: Vec<Group>,
    published: Vec<Group>,
}

impl Fixture {
    fn read() -> Fixture {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pre-tokenizer-names.json");
        let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let list = |value: &Value| value.as_array().unwrap().clone();
        let rows: Vec<Vec<Value>> = list(&value["texts"]).iter().map(list).collect();
        let group = |row: &Value| Group {
            ways: row[0].as_str().unwrap().to_owned(),
            begins_with_bos: row[1] == true,
            names: strings(list(row).last().unwrap()),
        };
        Fixture {
            texts: rows.iter().map(|row| row[0].as_str().unwrap().to_owned()).collect(),
            ways: rows.iter().map(|row| row[1..].iter().map(strings).collect()).collect(),
            llama_cpp: list(&value["llama_cpp"]).iter().map(group).collect(),
            published: list(&value["published"]).iter().map(group).collect(),
        }
    }

    /// The words of each text in a group.
    fn words(&self, group: &Group) -> Vec<&Vec<String>> {
        let places = group.ways.chars().map(|digit| digit.to_digit(36).unwrap() as usize);
        self.ways.iter().zip(places).map(|(ways, place)| &ways[place]).collect()
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// GPT-2's printable alphabet in the order of bytes.
fn alphabet() -> Vec<char> {
    let mut next = 255;
    let mut letter = |byte: u32| match byte {
        33..=126 | 161..=172 | 174..=255 => byte,
        _ => {
            next += 1;
            next
        }
    };
    (0..256).map(|byte| char::from_u32(letter(byte)).unwrap()).collect()
}

/// Tokens and merges, all that a file has besides names.
struct Lists {
    tokens: Vec<String>,
    kinds: Vec<i32>,
    merges: Vec<String>,
}

impl Lists {
    /// Each substring is a token, and each way to cut it in two is a merge, except in the last text.
    fn of(texts: &[String], first: impl Iterator<Item = (String, i32)>) -> Lists {
        let (mut tokens, mut kinds): (Vec<String>, Vec<i32>) = first.unzip();
        let mut known: HashSet<String> = tokens.iter().cloned().collect();
        let mut merges = BTreeSet::new();
        for (at, text) in texts.iter().enumerate() {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            for (first, start) in places.iter().enumerate() {
                for (last, end) in places.iter().enumerate().skip(first + 1) {
                    let token = &text[*start..*end];
                    if known.insert(token.to_owned()) {
                        tokens.push(token.to_owned());
                    }
                    if at + 1 < texts.len() {
                        let cuts = &places[first + 1..last];
                        merges.extend(cuts.iter().map(|cut| format!("{} {}", &text[*start..*cut], &text[*cut..*end])));
                    }
                }
            }
        }
        kinds.resize(tokens.len(), 1);
        tokens.push(BOS.to_owned());
        kinds.push(3);
        Lists { tokens, kinds, merges: merges.into_iter().collect() }
    }

    fn of_bytes(texts: &[String]) -> Lists {
        let alphabet = alphabet();
        let encoded: Vec<String> =
            texts.iter().map(|text| text.bytes().map(|byte| alphabet[usize::from(byte)]).collect()).collect();
        Lists::of(&encoded, alphabet.iter().map(|letter| (letter.to_string(), 1)))
    }

    fn of_characters(texts: &[String]) -> Lists {
        let marked: Vec<String> = texts.iter().map(|text| text.replace(' ', "▁")).collect();
        Lists::of(&marked, (0..256).map(|byte| (format!("<0x{byte:02X}>"), 6)))
    }

    fn metadata(&self, model: &str, name: &str) -> Metadata {
        let bos = u32::try_from(self.tokens.len() - 1).unwrap();
        let mut metadata = Metadata::default();
        metadata.insert("tokenizer.ggml.model", model);
        metadata.insert("tokenizer.ggml.pre", name);
        metadata.insert("tokenizer.ggml.tokens", self.tokens.clone());
        metadata.insert("tokenizer.ggml.token_type", self.kinds.clone());
        metadata.insert("tokenizer.ggml.merges", self.merges.clone());
        metadata.insert("tokenizer.ggml.bos_token_id", bos);
        metadata.insert("tokenizer.ggml.eos_token_id", bos);
        metadata
    }

    fn tokenizer(&self, model: &str, name: &str) -> Tokenizer {
        let vocabulary = Vocabulary::from_metadata(&self.metadata(model, name), Path::new("names.gguf")).unwrap();
        Tokenizer::new(vocabulary).unwrap()
    }
}

/// The words of each text, and whether BOS precedes all of them.
fn encode(lists: &Lists, tokenizer: &Tokenizer, texts: &[String], is_bytes: bool) -> (Vec<Vec<String>>, bool) {
    let byte_of: BTreeMap<char, u8> = alphabet().into_iter().zip(0..=255).collect();
    let word = |id: &u32| {
        let token = &lists.tokens[*id as usize];
        if is_bytes {
            String::from_utf8_lossy(&token.chars().map(|c| byte_of[&c]).collect::<Vec<_>>()).into_owned()
        } else {
            token.clone()
        }
    };
    let bos = u32::try_from(lists.tokens.len() - 1).unwrap();
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text, true).unwrap()).collect();
    let begins_with_bos = ids.iter().all(|ids| ids.first() == Some(&bos));
    let words = ids.iter().map(|ids| ids.iter().filter(|id| **id != bos).map(word).collect()).collect();
    (words, begins_with_bos)
}

#[test]
fn each_name_splits_texts_as_its_rule_does() {
    let fixture = Fixture::read();
    let (in_bytes, in_characters) = (Lists::of_bytes(&fixture.texts), Lists::of_characters(&fixture.texts));
    let mut faults = Vec::new();
    let mut deviations: BTreeMap<&str, usize> = BTreeMap::new();
    let mut seen = 0;
    for (group, name) in fixture.llama_cpp.iter().flat_map(|group| group.names.iter().map(move |name| (group, name))) {
        seen += 1;
        let is_bytes = !["gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"].contains(&name.as_str());
        let model = if ["gemma4", "whitespace"].contains(&name.as_str()) { name } else { "gpt2" };
        let lists = if is_bytes { &in_bytes } else { &in_characters };
        let tokenizer = lists.tokenizer(model, name);
        let (words, begins_with_bos) = encode(lists, &tokenizer, &fixture.texts, is_bytes);
        for text in fixture.texts.iter().filter(|_| name != "whitespace") {
            let decoded = tokenizer.decode(&tokenizer.encode(text, false).unwrap(), true);
            if decoded != text.as_bytes() {
                faults.push(format!("{name}: {text:?} is decoded as {:?}", String::from_utf8_lossy(&decoded)));
            }
        }
        if begins_with_bos != group.begins_with_bos {
            faults.push(format!("{name}: begins with BOS: {begins_with_bos}"));
        }
        let published = fixture.published.iter().find(|group| group.names.contains(name));
        let expected = fixture.words(published.unwrap_or(group));
        for ((text, words), expected) in fixture.texts.iter().zip(&words).zip(expected) {
            if words != expected {
                faults.push(format!("{name}: {text:?}: expected {expected:?}, found {words:?}"));
            }
        }
        let differing = fixture.words(group).into_iter().zip(&words).filter(|(theirs, ours)| theirs != ours).count();
        if differing > 0 {
            deviations.insert(name, differing);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(seen, 91);
    assert_eq!(pre_tokenizer_names::ALL.len(), 91);
    let expected = DEVIATIONS.iter().flat_map(|(count, names)| names.iter().map(|name| (*name, *count)));
    assert_eq!(deviations, expected.collect());
}

fn vocabulary(metadata: &Metadata) -> trueup_formats::Result<Vocabulary> {
    Vocabulary::from_metadata(metadata, Path::new("names.gguf"))
}

#[test]
fn names_without_a_known_rule_are_refused() {
    let lists = Lists::of_bytes(&["ab".to_owned(), "zq".to_owned()]);
    for (model, name, expected) in [
        ("gpt2", "spam", "expected the name of a known pre-tokenizer, found \"spam\", so the pre-tokenizer is unknown"),
        ("gpt2", "whitespace", "needs tokenizer.ggml.model \"whitespace\", found \"gpt2\""),
    ] {
        let error = vocabulary(&lists.metadata(model, name)).unwrap_err().to_string();
        assert!(error.starts_with("names.gguf: tokenizer.ggml.pre: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

/// Expected by the loader of llama.cpp: the model implies the name, and BOS precedes the text whatever the file says.
#[test]
fn gemma4_needs_no_name_and_always_begins_with_bos() {
    let texts = ["a b".to_owned(), "zq".to_owned()];
    let lists = Lists::of_characters(&texts);
    let mut metadata = lists.metadata("gemma4", "");
    metadata.remove("tokenizer.ggml.pre");
    metadata.insert("tokenizer.ggml.add_bos_token", false);
    let tokenizer = Tokenizer::new(vocabulary(&metadata).unwrap()).unwrap();
    let (words, begins_with_bos) = encode(&lists, &tokenizer, &texts, false);
    assert!(begins_with_bos);
    assert_eq!(words, [vec!["a▁b"], vec!["z", "q"]]);
}

/// Expected by the loader of llama.cpp and by the normalizer of jina-embeddings-v2-base-zh.
#[test]
fn whitespace_follows_the_lowercase_key() {
    let lists = Lists::of_characters(&["ab".to_owned(), "zq".to_owned()]);
    let mut metadata = lists.metadata("whitespace", "whitespace");
    metadata.insert("tokenizer.ggml.normalizer.lowercase", true);
    let tokenizer = Tokenizer::new(vocabulary(&metadata).unwrap()).unwrap();
    let (words, _) = encode(&lists, &tokenizer, &["AB aB".to_owned()], false);
    assert_eq!(words, [vec!["ab", "ab"]]);
}
