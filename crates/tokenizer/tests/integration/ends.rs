//! Tokens that end generation, by their names, in GGUF files with wrong or missing types.

use trueup_formats::gguf::Metadata;
use trueup_tokenizer::{TokenKind, Tokenizer, Vocabulary};

/// A byte-level vocabulary of `a`, `b` and tokens with types. Token 0 is eos.
fn tokenizer(tokens: &[(&str, i32)]) -> Tokenizer {
    let mut metadata = Metadata::default();
    let texts: Vec<String> = ["<eot>", "a", "b", "<", ">"]
        .into_iter()
        .chain(tokens.iter().map(|(text, _)| *text))
        .map(str::to_owned)
        .collect();
    let kinds: Vec<i32> = [3, 1, 1, 1, 1].into_iter().chain(tokens.iter().map(|(_, kind)| *kind)).collect();
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", "gpt-2");
    metadata.insert("tokenizer.ggml.tokens", texts);
    metadata.insert("tokenizer.ggml.token_type", kinds);
    metadata.insert("tokenizer.ggml.merges", Vec::<String>::new());
    metadata.insert("tokenizer.ggml.eos_token_id", 0_u32);
    Tokenizer::new(Vocabulary::from_metadata(&metadata, std::path::Path::new("m.gguf")).unwrap()).unwrap()
}

fn ends(tokens: &[(&str, i32)]) -> Vec<u32> {
    tokenizer(tokens).vocabulary().special().end_of_generation.clone()
}

#[test]
fn known_names_end_generation_whatever_their_type() {
    // Names of src/llama-vocab.cpp in llama.cpp.
    let names = [
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<end_of_utterance>",
        "<|return|>",
        "<|call|>",
        "<turn|>",
        "<｜end▁of▁sentence｜>",
    ];
    for name in names {
        for kind in [1, 3, 4] {
            let tokenizer = tokenizer(&[(name, kind)]);
            assert!(tokenizer.is_end_of_generation(5), "{name} of type {kind}");
            assert_eq!(tokenizer.encode(&format!("a{name}b"), false).unwrap(), [1, 5, 2], "{name} of type {kind}");
            assert_eq!(tokenizer.vocabulary().token(5).unwrap().kind, TokenKind::Control);
            let notes = tokenizer.vocabulary().notes().join("\n");
            let expected = format!("token 5 \"{name}\" has type {kind}, expected 3 (control)");
            assert_eq!(notes.contains(&expected), kind != 3, "{name} of type {kind}: {notes}");
        }
    }
}

#[test]
fn names_of_ordinary_text_need_a_type() {
    for (kind, is_end) in [(1, false), (3, true), (4, true)] {
        for name in ["</s>", "<eos>", "[EOS]"] {
            assert_eq!(ends(&[(name, kind)]).contains(&5), is_end, "{name} of type {kind}");
        }
    }
    assert_eq!(ends(&[("<|im_start|>", 3), ("<|user|>", 3), ("<|imend|>", 3)]), [0]);
}

#[test]
fn the_end_of_a_message_is_no_end_in_harmony_vocabularies() {
    assert_eq!(ends(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)]), [0, 6, 7]);
    assert_eq!(ends(&[("<|end|>", 1), ("<|calls|>", 1), ("<|flush|>", 3)]), [0, 6, 7]);
    assert_eq!(ends(&[("<|end|>", 3), ("<|return|>", 3)]), [0, 5, 6]);
}

#[test]
fn a_user_defined_end_of_struck_text_is_an_html_tag() {
    // The types of these tokens in GGUF files of Gemma 3.
    assert_eq!(ends(&[("</s>", 4), ("<b>", 4), ("</b>", 4)]), [0]);
    assert_eq!(ends(&[("</s>", 3), ("<b>", 4), ("</b>", 4)]), [0, 5]);
    assert_eq!(ends(&[("</s>", 4), ("</b>", 1)]), [0, 5]);
}
