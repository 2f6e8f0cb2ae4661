//! Hard texts, as the tokenizers library cuts them, from the files of a checkpoint and from the GGUF made of it.

use std::path::Path;
use trueup::text::open_tokenizer;
use trueup::tokenizer::{ChatTemplate, Message, Tokenizer};
use trueup_tests::{Fixture, convert, encoder_decoders, fixtures, root, stories};

fn check(fixture: &Fixture, tokenizer: &Tokenizer, from: &str, faults: &mut Vec<String>) {
    let mut expect = |what: &str, text: &str, equal: bool, got: String| {
        if !equal {
            faults.push(format!("{} from {from}: {what} of {text:?} is {got}", fixture.name));
        }
    };
    for text in fixture.texts() {
        let ids = tokenizer.encode(&text.text, true).unwrap_or_else(|error| panic!("{error}"));
        expect("ids", &text.text, ids == text.ids, format!("{ids:?}, not {:?}", text.ids));
        let bare = tokenizer.encode(&text.text, false).unwrap_or_else(|error| panic!("{error}"));
        expect("ids without special ones", &text.text, bare == text.ids_no_special, format!("{bare:?}"));
        let decoded = String::from_utf8_lossy(&tokenizer.decode(&text.ids, false)).into_owned();
        expect("decoding", &text.text, decoded == text.decoded, format!("{decoded:?}, not {:?}", text.decoded));
        let plain = String::from_utf8_lossy(&tokenizer.decode(&text.ids, true)).into_owned();
        expect("plain decoding", &text.text, plain == text.decoded_skip_special, format!("{plain:?}"));
    }
}

fn check_chat(golden: &serde_json::Value, rendered: &str, tokenizer: &Tokenizer, name: &str) {
    let messages = golden["messages"].as_array().expect("a conversation");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let messages: Vec<Message> =
        messages.iter().map(|m| Message { role: text(&m["role"]), content: text(&m["content"]) }).collect();
    let template = ChatTemplate::of(tokenizer.vocabulary()).unwrap_or_else(|error| panic!("{error}"));
    let template = template.unwrap_or_else(|| panic!("{name} has a chat template"));
    let got = template.render(&messages, true).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(got, golden[rendered], "{name}: the rendered conversation");
    let ids: Vec<u64> =
        tokenizer.encode(&got, false).unwrap_or_else(|error| panic!("{error}")).into_iter().map(u64::from).collect();
    let expected: Vec<u64> = golden["ids"].as_array().expect("ids").iter().filter_map(|id| id.as_u64()).collect();
    assert_eq!(ids, expected, "{name}: ids of the conversation");
}

#[test]
fn ids_and_texts_are_those_of_the_tokenizers_library() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for fixture in fixtures().into_iter().chain(encoder_decoders()) {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        for (path, from) in [(fixture.folder.as_path(), "the directory"), (&model, "GGUF")] {
            let tokenizer = open_tokenizer(path, None).unwrap_or_else(|error| panic!("{error}"));
            check(&fixture, &tokenizer, from, &mut faults);
            if !fixture.golden["chat"].is_null() {
                check_chat(&fixture.golden["chat"], "text", &tokenizer, &fixture.name);
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_trained_models_three_tokenizers_agree() {
    let stories = stories();
    let file = |name: &str| root().join("fixtures/stories-1M").join(name);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let model = scratch.path().join("stories.gguf");
    convert(&stories.folder, &model, None, None);
    let open =
        |replacement: Option<&Path>| open_tokenizer(&model, replacement).unwrap_or_else(|error| panic!("{error}"));
    let own = open(None);
    check_chat(&stories.golden["chat"], "rendered", &own, "stories-1M");
    for name in ["tokenizer.json", "tokenizer.model", "tokenizer.bin"] {
        let tokenizer = open(Some(&file(name)));
        for prompt in stories.prompts() {
            let ids = tokenizer.encode(&prompt.text, false).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(ids, prompt.ids[1..], "{name}: {:?}", prompt.text);
        }
    }
    for prompt in stories.prompts() {
        let ids = own.encode(&prompt.text, true).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ids, prompt.ids, "{:?}", prompt.text);
    }
}
