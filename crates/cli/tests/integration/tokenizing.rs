//! `tokenize`, both ways, on models in every format.

use crate::trueup::{Scratch, argument, golden, ids, ids_argument, stories, tiny, trueup};
use serde_json::json;
use std::fs;

const TINY: [&str; 8] = ["llama2", "llama3", "llama3-tied", "llama-linear", "llama-yarn", "mistral", "qwen2", "qwen3"];

/// Hard texts of a model are so many; a few show that the flags do as they say, all are tested below the command.
const TEXTS: usize = 4;

#[test]
fn texts_become_the_ids_of_other_software_and_texts_again() {
    for name in TINY {
        let folder = argument(&tiny(name));
        for case in golden(&tiny(name))["texts"].as_array().expect("texts").iter().take(TEXTS) {
            let text = case["text"].as_str().expect("a text");
            if text.contains('\0') {
                continue;
            }
            let with = trueup(&["tokenize", &folder, "-p", text, "--json"]).exits(0).json();
            assert_eq!(ids(&with["ids"]), ids(&case["ids"]), "{name}: {text:?}");
            assert_eq!(with["pieces"].as_array().map(Vec::len), Some(ids(&case["ids"]).len()));
            let without = trueup(&["tokenize", &folder, "-p", text, "--no-special", "--json"]).exits(0).json();
            assert_eq!(ids(&without["ids"]), ids(&case["ids_no_special"]), "{name}: {text:?}");
            let back =
                trueup(&["tokenize", &folder, "--decode", &ids_argument(&case["ids"]), "--json"]).exits(0).json();
            assert_eq!(back, json!({"text": case["decoded"]}), "{name}: {text:?}");
        }
    }
}

#[test]
fn every_format_and_a_replaced_tokenizer_say_the_same() {
    let scratch = Scratch::new();
    let gguf = scratch.gguf(&stories(), "stories.gguf");
    let text = scratch.path("text.txt");
    fs::write(&text, "Once upon a time\n").expect("a file");
    let wanted = trueup(&["tokenize", &gguf, "-f", &text, "--json"]).exits(0).json();
    assert_eq!(ids(&wanted["ids"])[..5], [1, 439, 440, 259, 404]);
    assert_eq!(ids(&wanted["ids"]).len(), 6, "the last new line is kept");
    let folder = argument(&stories());
    assert_eq!(trueup(&["tokenize", &folder, "-f", &text, "--json"]).exits(0).json(), wanted);
    for file in ["tokenizer.json", "tokenizer.model", "tokenizer.bin"] {
        let file = argument(&stories().join(file));
        for model in [&gguf, &folder] {
            let call = ["tokenize", model, "-f", &text, "--json", "--tokenizer", &file];
            assert_eq!(trueup(&call).exits(0).json(), wanted, "{model} with {file}");
        }
    }
}

#[test]
fn faces_are_readable() {
    let folder = argument(&stories());
    assert_eq!(trueup(&["tokenize", &folder, "-p", "a"]).exits(0).stdout, "       1  <s>\n     259  ▁a\n");
    assert_eq!(trueup(&["tokenize", &folder, "--decode", "1 439 440"]).exits(0).stdout, "<s> Once upon\n");
    assert_eq!(
        trueup(&["tokenize", &folder, "-p", "", "--no-special", "--json"]).exits(0).json(),
        json!({"ids": [], "pieces": []})
    );
    let dash = trueup(&["tokenize", &folder, "-p", "-5 degrees", "--no-special", "--json"]).exits(0).json();
    let back = trueup(&["tokenize", &folder, "--decode", &ids_argument(&dash["ids"])]).exits(0);
    assert_eq!(back.stdout.trim_start(), "-5 degrees\n");
    trueup(&["tokenize", &folder, "--decode", "1024"]).refuses(&["1024"]);
    trueup(&["tokenize", &folder, "--decode", "x"]).refuses(&["\"x\""]);
    trueup(&["tokenize", &folder, "-p", "a", "--decode", "1"]).refuses(&["--decode"]);
    trueup(&["tokenize", &folder]).refuses(&["--prompt"]);
}

#[test]
fn control_characters_are_escaped_but_in_json() {
    let escape = 27 + 3;
    let folder = argument(&stories());
    let ids = format!("{escape} 404");
    let shown = trueup(&["tokenize", &folder, "--decode", &ids]).exits(0).stdout;
    assert_eq!(shown, "\\u{1b} time\n");
    assert_eq!(
        trueup(&["tokenize", &folder, "--decode", &ids, "--json"]).exits(0).json(),
        json!({"text": "\u{1b} time"})
    );
}
