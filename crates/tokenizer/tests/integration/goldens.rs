//! Every fixture's tokenizer against ids that the transformers library gave.

use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use trueup_formats::gguf::Metadata;
use trueup_formats::{RankFile, TokenizerFiles};
use trueup_tokenizer::{ChatTemplate, Message, ModelTokens, Tokenizer, Vocabulary};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// All fixture folders that have goldens.
fn folders() -> Vec<PathBuf> {
    let of = |kind: &str| fs::read_dir(fixtures().join(kind)).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = of("models").chain(of("encoders")).collect();
    folders.retain(|folder| folder.join("golden.json").exists());
    folders.sort();
    assert!(folders.len() >= 8, "{folders:?}");
    folders
}

fn json(path: &Path) -> Option<Value> {
    // A configuration written by Python may contain `Infinity`.
    fs::read(path).ok().map(|bytes| trueup_formats::json::value(path, &bytes).unwrap())
}

fn object(path: &Path) -> Option<Map<String, Value>> {
    json(path).map(|value| value.as_object().unwrap().clone())
}

fn files(folder: &Path) -> TokenizerFiles {
    TokenizerFiles {
        tokenizer_json: fs::read(folder.join("tokenizer.json")).ok(),
        tokenizer_model: fs::read(folder.join("tokenizer.model")).ok(),
        ice_text: fs::read(folder.join("ice_text.model")).ok(),
        tiktoken: fs::read(folder.join("qwen.tiktoken"))
            .ok()
            .map(|bytes| RankFile { name: "qwen.tiktoken".to_owned(), bytes }),
        vocab_json: fs::read(folder.join("vocab.json")).ok(),
        merges: fs::read(folder.join("merges.txt")).ok(),
        vocab_txt: fs::read(folder.join("vocab.txt")).ok(),
        tokenizer_config: object(&folder.join("tokenizer_config.json")),
        special_tokens_map: object(&folder.join("special_tokens_map.json")),
        added_tokens: object(&folder.join("added_tokens.json")),
        generation_config: object(&folder.join("generation_config.json")),
        chat_template: fs::read_to_string(folder.join("chat_template.jinja")).ok(),
        llama2c: None,
        flm: None,
        is_spiece: false,
        is_replaced: false,
        replacement: None,
        is_left_out: false,
    }
}

fn model(folder: &Path) -> ModelTokens {
    let config = object(&folder.join("config.json")).unwrap();
    let id = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let eos_token_ids = match config.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().map(id).collect(),
        Some(Value::Number(number)) => vec![id(&number.clone().into())],
        _ => Vec::new(),
    };
    ModelTokens {
        vocab_size: config.get("vocab_size").map(|value| usize::try_from(value.as_u64().unwrap()).unwrap()),
        bos_token_id: config.get("bos_token_id").filter(|value| value.is_u64()).map(id),
        eos_token_ids,
        padding_token_id: config.get("pad_token_id").filter(|value| value.is_u64()).map(id),
        model_type: config.get("model_type").and_then(Value::as_str).map(str::to_owned),
        tokenizer_class: None,
    }
}

fn vocabulary(folder: &Path) -> Vocabulary {
    Vocabulary::from_files(&files(folder), &model(folder), folder).unwrap()
}

/// The vocabulary written as GGUF keys and read again.
fn through_metadata(vocabulary: &Vocabulary) -> Vocabulary {
    let mut metadata = Metadata::default();
    vocabulary.write_metadata(&mut metadata).unwrap();
    Vocabulary::from_metadata(&metadata, Path::new("written.gguf")).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// What one text gives that it should not.
fn faults(tokenizer: &Tokenizer, case: &Value) -> Vec<String> {
    let text = case["text"].as_str().unwrap();
    let mut faults = Vec::new();
    for (key, add_special) in [("ids", true), ("ids_no_special", false)] {
        let (expected, found) = (ids(&case[key]), tokenizer.encode(text, add_special).unwrap());
        if found != expected {
            faults.push(format!("{key} of {text:?}: expected {expected:?}, found {found:?}"));
        }
    }
    for (key, skip_special) in [("decoded", false), ("decoded_skip_special", true)] {
        let expected = case[key].as_str().unwrap();
        let found = tokenizer.decode(&ids(&case["ids"]), skip_special);
        if String::from_utf8_lossy(&found) != expected {
            faults
                .push(format!("{key} of {text:?}: expected {expected:?}, found {:?}", String::from_utf8_lossy(&found)));
        }
        let mut stream = tokenizer.stream(skip_special, true);
        let mut streamed: String = ids(&case["ids"]).into_iter().map(|id| stream.push(id)).collect();
        streamed.push_str(&stream.finish());
        if streamed != expected {
            faults.push(format!("streamed {key} of {text:?}: expected {expected:?}, found {streamed:?}"));
        }
    }
    faults
}

#[test]
fn ids_and_texts_of_every_fixture() {
    let mut all = Vec::new();
    for folder in folders() {
        let golden = json(&folder.join("golden.json")).unwrap();
        let from_files = vocabulary(&folder);
        let from_keys = through_metadata(&from_files);
        for (way, vocabulary) in [("files", from_files), ("GGUF keys", from_keys)] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            let cases = golden["texts"].as_array().unwrap();
            assert!(cases.len() >= 20, "{folder:?} has {} texts", cases.len());
            let prefix = format!("{}, {way}", folder.file_name().unwrap().display());
            all.extend(
                cases.iter().flat_map(|case| faults(&tokenizer, case)).map(|fault| format!("{prefix}: {fault}")),
            );
        }
    }
    assert!(all.is_empty(), "{} faults\n{}", all.len(), all.join("\n"));
}

/// Conversations of a golden's `chat`.
fn messages(chat: &Value) -> Vec<Message> {
    let text = |message: &Value, key: &str| message[key].as_str().unwrap().to_owned();
    let turn = |message: &Value| Message { role: text(message, "role"), content: text(message, "content") };
    chat["messages"].as_array().unwrap().iter().map(turn).collect()
}

#[test]
fn conversations_of_every_fixture() {
    let mut checked = 0;
    for folder in folders() {
        let golden = json(&folder.join("golden.json")).unwrap();
        let from_files = vocabulary(&folder);
        let from_keys = through_metadata(&from_files);
        for vocabulary in [from_files, from_keys] {
            let template = ChatTemplate::of(&vocabulary).unwrap();
            let chat = &golden["chat"];
            // MOSS has prompts in its program only, which its golden does not hold.
            let of_program = folder.ends_with("moss");
            assert_eq!(template.is_none() || of_program, chat.is_null(), "{folder:?}");
            let Some(template) = template.filter(|_| !of_program) else { continue };
            let text = template.render(&messages(chat), true).unwrap();
            assert_eq!(text, chat["text"].as_str().unwrap(), "{folder:?}");
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            assert_eq!(tokenizer.encode(&text, false).unwrap(), ids(&chat["ids"]), "{folder:?}");
            checked += 1;
        }
    }
    assert!(checked >= 8, "only {checked} conversations");
}

#[test]
fn stories_in_three_forms() {
    let folder = fixtures().join("stories-1M");
    let golden = json(&folder.join("golden.json")).unwrap();
    let all = files(&folder);
    let source = trueup_formats::SourceFile::open(folder.join("tokenizer.bin")).unwrap();
    let bin = trueup_formats::llama2c::TokenizerBin::read(&source, 1024).unwrap();
    let small = TokenizerFiles { tokenizer_config: all.tokenizer_config.clone(), ..TokenizerFiles::default() };
    let forms = [
        ("json", TokenizerFiles { tokenizer_model: None, ..all.clone() }),
        ("model", TokenizerFiles { tokenizer_model: all.tokenizer_model.clone(), ..small }),
        ("bin", TokenizerFiles { llama2c: Some(bin.clone()), ..TokenizerFiles::default() }),
        ("all", all),
    ];
    for (form, files) in forms {
        let from_files = Vocabulary::from_files(&files, &model(&folder), &folder).unwrap();
        let from_keys = through_metadata(&from_files);
        for vocabulary in [from_files, from_keys] {
            let tokenizer = Tokenizer::new(vocabulary).unwrap();
            for prompt in golden["prompts"].as_array().unwrap() {
                let text = prompt["prompt"].as_str().unwrap();
                assert_eq!(tokenizer.encode(text, true).unwrap(), ids(&prompt["ids"]), "{form}: {text}");
                let story = prompt["text"].as_str().unwrap();
                let mut expected = ids(&prompt["ids"]);
                let before_eos = usize::try_from(prompt["tokens_before_eos"].as_u64().unwrap()).unwrap();
                expected.extend(&ids(&prompt["greedy_ids"])[..before_eos]);
                assert_eq!(String::from_utf8(tokenizer.decode(&expected, true)).unwrap(), story, "{form}");
            }
        }
    }
    let older = trueup_formats::llama2c::TokenizerBin { scores: None, max_token_length: None, ..bin };
    let files = TokenizerFiles { llama2c: Some(older), ..TokenizerFiles::default() };
    let vocabulary = Vocabulary::from_files(&files, &model(&folder), &folder).unwrap();
    for vocabulary in [vocabulary.clone(), through_metadata(&vocabulary)] {
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        assert_eq!(tokenizer.decode(&[1, 439, 440, 259, 404], true), b"Once upon a time");
        assert!(
            tokenizer
                .encode("Once", true)
                .unwrap_err()
                .to_string()
                .contains("expected scores, which are needed to encode text")
        );
    }
}
