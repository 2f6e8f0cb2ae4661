//! The vocabulary: lists of one length, texts that are there once, merges of tokens that exist, as many tokens as rows
//! of the embedding.

use super::files::{place_of, sentence, tokenizer_json_fault};
use super::finding::{Effect, Findings, Place, Rule};
use super::patient::{Patient, TOKENIZER_MODEL, TOKENS};
use std::collections::HashMap;
use trueup_formats::gguf::Metadata;
use trueup_formats::{counted, quote};
use trueup_models::TOKEN_EMBEDDING;
use trueup_tokenizer::{TokenKind, Vocabulary, pre_tokenizer_names};

pub(super) const RULES: &[&Rule] = &[
    &TOKENIZER_MISSING,
    &TOKENIZER_UNKNOWN,
    &TOKENIZER_REFUSED,
    &TOKENIZER_FAILS,
    &TOKENIZER_FILES,
    &PRE_TOKENIZER_MISSING,
    &TOKEN_LISTS,
    &VOCABULARY_SIZE,
    &PADDED,
    &TOKEN_TYPE,
    &SCORE,
    &TOKEN_REPEATED,
    &TOKEN_EMPTY,
    &MERGE,
];

static TOKENIZER_MISSING: Rule = Rule::note(
    "tokenizer-missing",
    "text cannot be encoded; only token IDs can be used",
    "put the tokenizer files of the model into its directory, or pass `--tokenizer FILE` to the command that needs them",
);
static TOKENIZER_UNKNOWN: Rule = Rule::note(
    "tokenizer-not-known",
    "trueup does not support this tokenizer: it was not checked completely",
    "pass the tokenizer.json of the model to `run`, `chat`, `verify` or `tokenize` with `--tokenizer FILE`",
)
.effect(Effect::Unchecked);
static TOKENIZER_REFUSED: Rule =
    Rule::error("tokenizer-refused", "text cannot be encoded", "use the tokenizer files of the original model");
static TOKENIZER_FAILS: Rule = Rule::error(
    "tokenizer-fails",
    "a plain text cannot be encoded: the rules are damaged or malicious",
    "use the tokenizer files of the original model",
);
static TOKENIZER_FILES: Rule = Rule::note(
    "tokenizer-files-disagree",
    "programs that read a different one of these files can produce different token IDs",
    "compare the token IDs of a text with those of the original model; correct or remove the wrong file",
);
static PRE_TOKENIZER_MISSING: Rule = Rule::warning(
    "pre-tokenizer-missing",
    "the pre-tokenizer is guessed: tokens can differ from those of the original model",
    "convert the model again from its checkpoint",
);
static TOKEN_LISTS: Rule = Rule::error(
    "token-lists-differ",
    "scores and types belong to tokens by index: some tokens have none, and the others may be shifted",
    "convert the model again",
);
static VOCABULARY_SIZE: Rule = Rule::error(
    "vocabulary-size",
    "a token ID without a row, or a row without a token ID, indicates the tokenizer of another model",
    "use the tokenizer of this model, or pad the vocabulary during conversion",
);
static PADDED: Rule = Rule::note(
    "vocabulary-padded",
    "published models have at most a few thousand unused rows: the tokenizer may belong to another model",
    "compare the number of tokens with the tokenizer of the original model",
);
static TOKEN_TYPE: Rule = Rule::error(
    "token-type-unknown",
    "it is unknown whether the token is text or a control token",
    "convert the model again",
);
static SCORE: Rule = Rule::error("score-not-finite", "scores determine the order of merges", "convert the model again");
static TOKEN_REPEATED: Rule = Rule::warning(
    "token-repeated",
    "text is always encoded with one of them; the model may have been trained with the other",
    "compare the vocabulary with that of the original model",
);
static TOKEN_EMPTY: Rule = Rule::note(
    "token-empty",
    "text is never encoded with this token, and programs decode it differently",
    "compare the vocabulary with that of the original model",
);
static MERGE: Rule = Rule::error(
    "merge-unknown",
    "the pair is never merged: text gets other tokens than in training",
    "use merges and vocabulary of the same tokenizer",
);

/// Rows without a token that published models stay far below: they round up, Qwen2.5 by 271 to 151,936 and Phi-3 by 53
/// to 32,064.
const PADDING_MAX: usize = 8192;

/// Words, numbers, white space, other scripts, and a run of one letter, on which bad patterns take long.
const TEXT: &str = "The cat said \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\" 12345 times.\n\n\tx = 1; 你好, déjà vu";

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    if let Some(metadata) = patient.metadata() {
        if let Some(problem) = Vocabulary::assumed_pre_tokenizer(metadata) {
            findings.add(&PRE_TOKENIZER_MISSING, Place::file(&patient.path).key("tokenizer.ggml.pre"), problem);
        }
        look_at_lists(patient, metadata, findings);
        look_at_merges(patient, metadata, findings);
    }
    look_at_texts(patient, findings);
    look_at_padding(patient, findings);
    let vocabulary = match (&patient.vocabulary, &patient.tokenizer) {
        (None, _) if patient.is_tokenizer_unread() => return,
        (None, _) => {
            let found = "the model has no tokenizer keys or files";
            return findings.add(&TOKENIZER_MISSING, Place::file(&patient.path), found);
        }
        (Some(Err(error)), _) | (Some(Ok(_)), Some(Err(error))) => error,
        (Some(Ok(vocabulary)), Some(Ok(tokenizer))) => {
            for conflict in vocabulary.conflicts() {
                findings.add(&TOKENIZER_FILES, Place::file(&patient.path), conflict.clone());
            }
            if let Err(error) = tokenizer.encode(TEXT, true) {
                findings.add(&TOKENIZER_FAILS, place_of(&error), sentence(&error));
            }
            return;
        }
        (Some(Ok(_)), None) => return,
    };
    // A key that is missing where keys were not read, and what is no JSON at all, was told as such.
    if patient.metadata().is_some() && !patient.is_description_whole() || tokenizer_json_fault(patient).is_some() {
        return;
    }
    let rule = if patient.metadata().is_some_and(is_unknown) { &TOKENIZER_UNKNOWN } else { &TOKENIZER_REFUSED };
    // The error says what to do in a command that has a text; the rule says it here.
    findings.add(rule, place_of(vocabulary), vocabulary.problem.clone());
}

/// Whether a file has a kind of tokenizer or a pre-tokenizer that this program does not support, which is no fault of
/// the file.
fn is_unknown(metadata: &Metadata) -> bool {
    let Ok(model) = metadata.string(TOKENIZER_MODEL) else { return false };
    let pre = metadata.string("tokenizer.ggml.pre");
    !["llama", "t5", "gpt2", "gemma4", "whitespace"].contains(&model)
        || model == "gpt2" && pre.is_ok_and(|name| pre_tokenizer_names::by_name(name).is_none())
}

fn look_at_lists(patient: &Patient, metadata: &Metadata, findings: &mut Findings) {
    let Ok(tokens) = metadata.strings(TOKENS) else { return };
    let place = |key: &str| Place::file(&patient.path).key(key);
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        if let Some(list) = metadata.array(key).ok().filter(|list| list.len() != tokens.len()) {
            let (expected, found) = (counted(tokens.len(), "token"), list.len());
            findings.add(&TOKEN_LISTS, place(key), format!("expected one entry for each of {expected}, found {found}"));
        }
    }
    let embedding = TOKEN_EMBEDDING;
    let rows = patient.tensor(embedding).and_then(|(_, tensor)| tensor.shape.get(1).copied());
    if let Some(rows) = rows.filter(|rows| *rows != tokens.len() as u64) {
        let expected = counted(rows, "token");
        let problem = format!("expected {expected}, the rows of {embedding}, found {}", tokens.len());
        findings.add(&VOCABULARY_SIZE, place(TOKENS), problem);
    }
    let bad_type = |number: &i32| TokenKind::from_number(*number).is_none();
    if let Ok(types) = metadata.i32s("tokenizer.ggml.token_type")
        && let Some((at, number)) = types.iter().enumerate().find(|(_, number)| bad_type(number))
    {
        let more = types.iter().filter(|number| bad_type(number)).count() as u64 - 1;
        let problem = format!("token {at} has type {number}, expected 1 to 6");
        findings.add_many(&TOKEN_TYPE, place("tokenizer.ggml.token_type").element(vec![at as u64]), problem, more);
    }
    if let Ok(scores) = metadata.f32s("tokenizer.ggml.scores")
        && let Some((at, score)) = scores.iter().enumerate().find(|(_, score)| !score.is_finite())
    {
        let more = scores.iter().filter(|score| !score.is_finite()).count() as u64 - 1;
        let problem = format!("token {at} has the score {score}");
        findings.add_many(&SCORE, place("tokenizer.ggml.scores").element(vec![at as u64]), problem, more);
    }
}

/// Reports tokens without text and texts that several tokens share. Unused tokens are not checked.
fn look_at_texts(patient: &Patient, findings: &mut Findings) {
    let Some(vocabulary) = patient.valid_vocabulary() else { return };
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let key = if patient.metadata().is_some() { TOKENS } else { "vocabulary" };
    let used = || vocabulary.tokens().iter().enumerate().filter(|(_, token)| token.kind != TokenKind::Unused);
    let mut empty = used().filter(|(_, token)| token.text.is_empty()).map(|(id, _)| id as u64);
    if let Some(first) = empty.next() {
        let place = Place::file(&patient.path).key(key).element(vec![first]);
        findings.add_many(&TOKEN_EMPTY, place, format!("token {first} is empty"), empty.count() as u64);
    }
    for (id, token) in used().filter(|(_, token)| !token.text.is_empty()) {
        if let Some(first) = seen.insert(&token.text, id) {
            let problem = format!("token {id} is \"{}\", the same as token {first}", quote(&token.text));
            findings.add(&TOKEN_REPEATED, Place::file(&patient.path).key(key).element(vec![id as u64]), problem);
        }
    }
}

/// Rows of the embedding that no token of the tokenizer has: the vocabulary is padded up to the rows.
fn look_at_padding(patient: &Patient, findings: &mut Findings) {
    let Some(vocabulary) = patient.valid_vocabulary() else { return };
    let all = vocabulary.tokens();
    let padding = all.iter().filter(|token| token.kind == TokenKind::Unused).count();
    if padding > PADDING_MAX {
        let key = if patient.metadata().is_some() { TOKENS } else { "vocabulary" };
        let found = format!("{padding} of {} have no token", counted(all.len(), "row"));
        findings.add(&PADDED, Place::file(&patient.path).key(key), found);
    }
}

/// Lines of merges that are no two tokens, or whose tokens or result are not in the vocabulary.
fn look_at_merges(patient: &Patient, metadata: &Metadata, findings: &mut Findings) {
    const MERGES: &str = "tokenizer.ggml.merges";
    let (Ok(tokens), Ok(merges)) = (metadata.strings(TOKENS), metadata.strings(MERGES)) else { return };
    let known: HashMap<&str, ()> = tokens.iter().map(|token| (token.as_str(), ())).collect();
    for (at, line) in merges.iter().enumerate() {
        // A token may itself begin with a space in files of other programs.
        let space = line.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
        let problem = match space.map(|at| (&line[..at], &line[at + 1..])) {
            None => Some("is not a pair of tokens".to_owned()),
            Some((left, right)) => {
                let whole = format!("{left}{right}");
                let unknown = [left, right, &whole].into_iter().find(|text| !known.contains_key(text));
                unknown.map(|text| format!("needs the token \"{}\", which is not in the vocabulary", quote(text)))
            }
        };
        if let Some(problem) = problem {
            let place = Place::file(&patient.path).key(MERGES).element(vec![at as u64]);
            findings.add(&MERGE, place, format!("merge {at}, \"{}\", {problem}", quote(line)));
        }
    }
}
