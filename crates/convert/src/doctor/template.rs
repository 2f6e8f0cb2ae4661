//! The chat template against the vocabulary: does it work, does it keep what was said, does it write tokens that the
//! vocabulary knows.

use super::files::sentence;
use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use std::collections::BTreeSet;
use trueup_formats::quote;
use trueup_tokenizer::{ChatTemplate, Date, Message, TokenKind, Tokenizer, Vocabulary, chat_template};

pub(super) const RULES: &[&Rule] =
    &[&REFUSED, &FAILS, &DROPS_TURN, &WITHOUT_SYSTEM, &TOKEN_UNKNOWN, &ROLE_MISSING, &END_OF_TURN, &END_TYPE, &BOS_TOO];

static REFUSED: Rule = Rule::error(
    "template-refused",
    "`trueup chat` cannot read the template",
    "correct the template, or use another one: `trueup chat --chat-template FILE`",
);
static FAILS: Rule = Rule::error(
    "template-fails",
    "a plain conversation between a user and an assistant cannot be rendered",
    "correct the template, or use another one: `trueup chat --chat-template FILE`",
);
static DROPS_TURN: Rule = Rule::warning(
    "template-drops-turn",
    "the model does not see the message",
    "compare the template with that of the original model, or use another one: `trueup chat --chat-template FILE`",
);
static WITHOUT_SYSTEM: Rule = Rule::note(
    "template-without-system",
    "the model was trained without system messages, or the template lost them",
    "put instructions in the first user message",
);
static TOKEN_UNKNOWN: Rule = Rule::note(
    "template-token-unknown",
    "the marker is encoded as several tokens; some models were trained that way, otherwise template and vocabulary belong to \
     different models",
    "compare both with those of the original model",
);
static ROLE_MISSING: Rule = Rule::warning(
    "template-role-missing",
    "the model was trained with a token there, and the template writes nothing",
    "set the token ID and convert again; for a GGUF file, write a corrected copy with `gguf-new-metadata \
     --special-token bos TOKEN IN OUT` (Python package gguf)",
);
static END_OF_TURN: Rule = Rule::warning(
    "end-of-turn-missing",
    "the model ends its answers with this text, and generation continues after it",
    "add the token to eos_token_id in generation_config.json and convert again; for a GGUF file, write a corrected copy \
     with `gguf-new-metadata --special-token eot TOKEN IN OUT` (Python package gguf)",
);
static END_TYPE: Rule = Rule::warning(
    "end-token-type",
    "programs that trust the type do not stop at the token and do not find it in the text of the chat template",
    "no action is needed for trueup, which reads it as a control token; for other programs, convert the original model again",
);
static BOS_TOO: Rule = Rule::note(
    "template-writes-bos",
    "a program that adds special tokens to the rendered template starts the prompt with two BOS tokens",
    "no action is needed for `trueup chat`; in other programs, encode the rendered template without special tokens",
);

const SYSTEM: &str = "Answer in one word.";
const USER: &str = "Which animal says meow?";
const ASSISTANT: &str = "Cats.";

/// Stands for a token that the vocabulary has not; a private character, so that no template writes it.
const ABSENT: &str = "\u{f8ff}";

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    look_at_types(patient, findings);
    let Some((source, key)) = source(patient) else { return };
    let place = || Place::file(&patient.path).key(key);
    let role = |id: Option<u32>| Some(patient.valid_vocabulary()?.token(id?)?.text.clone());
    let special = patient.valid_vocabulary().map(Vocabulary::special);
    let (bos, eos) = (role(special.and_then(|special| special.bos)), role(special.and_then(|special| special.eos)));
    let (bos_text, eos_text) = (bos.as_deref().unwrap_or_default(), eos.as_deref().unwrap_or_default());
    let template = match ChatTemplate::new(&source, bos_text, eos_text, &patient.path) {
        Ok(template) => template.at(date()),
        Err(error) => return findings.add(&REFUSED, place(), sentence(&error)),
    };
    let Some(text) = conversation(&template, &place, findings) else { return };
    let Some(Ok(tokenizer)) = &patient.tokenizer else { return };
    look_at_markers(&source, tokenizer, &place, findings);
    look_at_roles(patient, &source, (bos.as_deref(), eos.as_deref()), &place, findings);
    look_at_end(&text, tokenizer, &place, findings);
    if tokenizer.vocabulary().adds_bos() && bos.is_some_and(|bos| text.starts_with(&bos)) {
        findings.add(&BOS_TOO, place(), "both the tokenizer and the template add a BOS token");
    }
}

/// A date for templates that ask for the current one; findings do not depend on the day.
fn date() -> Date {
    Date::from_unix_seconds(0)
}

/// Tokens that end generation by their names, with another type in a GGUF file.
fn look_at_types(patient: &Patient, findings: &mut Findings) {
    const KEY: &str = "tokenizer.ggml.token_type";
    let (Some(metadata), Some(vocabulary)) = (patient.metadata(), patient.valid_vocabulary()) else { return };
    let Ok(types) = metadata.i32s(KEY) else { return };
    for id in &vocabulary.special().end_of_generation {
        let written = usize::try_from(*id).ok().and_then(|place| types.get(place));
        let (Some(token), Some(written)) = (vocabulary.token(*id), written) else { continue };
        if token.kind == TokenKind::Control && *written != token.kind.number() {
            let (text, expected) = (quote(&token.text), token.kind.number());
            let problem = format!("token {id}, \"{text}\", has type {written}, expected {expected} (control)");
            findings.add(&END_TYPE, Place::file(&patient.path).key(KEY), problem);
        }
    }
}

/// The template and its key or file.
fn source(patient: &Patient) -> Option<(String, &'static str)> {
    const KEY: &str = "tokenizer.chat_template";
    if let Some(metadata) = patient.metadata() {
        return Some((metadata.string(KEY).ok()?.to_owned(), KEY));
    }
    let files = patient.checkpoint().tokenizer();
    let key = if files.chat_template.is_some() { "chat_template.jinja" } else { "chat_template" };
    if let Some(vocabulary) = patient.valid_vocabulary() {
        return Some((vocabulary.chat_template()?.to_owned(), key));
    }
    Some((chat_template(files)?, key))
}

fn turns(parts: &[(&str, &str)]) -> Vec<Message> {
    parts.iter().map(|(role, content)| Message { role: (*role).to_owned(), content: (*content).to_owned() }).collect()
}

/// The text of a plain conversation; what is wrong with it is found on the way.
fn conversation(template: &ChatTemplate, place: &dyn Fn() -> Place, findings: &mut Findings) -> Option<String> {
    let whole = turns(&[("system", SYSTEM), ("user", USER), ("assistant", ASSISTANT)]);
    let text = match template.render(&whole, false) {
        Ok(text) => {
            if !text.contains(SYSTEM) {
                findings.add(&WITHOUT_SYSTEM, place(), "the template ignores system messages");
            }
            text
        }
        Err(refused) => match template.render(&whole[1..], false) {
            Ok(text) => {
                findings.add(
                    &WITHOUT_SYSTEM,
                    place(),
                    format!("the template rejects system messages: {}", refused.problem),
                );
                text
            }
            Err(error) => {
                findings.add(&FAILS, place(), error.problem);
                return None;
            }
        },
    };
    for (role, content) in [("user", USER), ("assistant", ASSISTANT)] {
        if !text.contains(content) {
            findings.add(&DROPS_TURN, place(), format!("the message with the role {role} is not in the rendered text"));
        }
    }
    // The answer is asked for by the text up to it.
    if let Err(error) = template.render(&whole[1..2], true) {
        findings.add(&FAILS, place(), format!("with add_generation_prompt: {}", error.problem));
    }
    Some(text)
}

/// Markers `<|...|>` in the source that are no single token.
fn look_at_markers(source: &str, tokenizer: &Tokenizer, place: &dyn Fn() -> Place, findings: &mut Findings) {
    for marker in markers(source) {
        let is_token = tokenizer.encode(marker, false).is_ok_and(|ids| ids.len() == 1);
        if !is_token {
            let problem = format!("\"{}\" is not a token of the vocabulary", quote(marker));
            findings.add(&TOKEN_UNKNOWN, place(), problem);
        }
    }
}

/// The longest marker that is looked at, in bytes, and how many different ones; published templates have up to thirty.
const MARKER_BYTES_MAX: usize = 256;
const MARKERS_MAX: usize = 1024;

/// Literal markers of special tokens, each once: letters, digits and `_ - . :` between `<|` and `|>`; so many at most.
fn markers(source: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || "_-.:".contains(c);
    let starts = source.match_indices("<|").map(|(at, _)| at);
    let marker = |at: usize| {
        let inside = &source[at + 2..];
        let end = inside.find(|c| !is_part(c)).filter(|end| (1..=MARKER_BYTES_MAX).contains(end))?;
        inside[end..].starts_with("|>").then(|| &source[at..at + 2 + end + 2])
    };
    let mut found = BTreeSet::new();
    for marker in starts.filter_map(marker) {
        if found.len() == MARKERS_MAX {
            break;
        }
        found.insert(marker);
    }
    found
}

/// Roles that the template writes and the vocabulary has not. A template that asks whether they are there knows that.
fn look_at_roles(
    patient: &Patient,
    source: &str,
    (bos, eos): (Option<&str>, Option<&str>),
    place: &dyn Fn() -> Place,
    findings: &mut Findings,
) {
    let own = turns(&[("user", USER), ("assistant", ASSISTANT)]);
    let texts = [(ABSENT, eos.unwrap_or_default()), (bos.unwrap_or_default(), ABSENT)];
    for ((name, role), (bos, eos)) in [("bos_token", bos), ("eos_token", eos)].into_iter().zip(texts) {
        let asks = [format!("if {name}"), format!("{name} is"), format!("{name}|default"), format!("{name} or")];
        if role.is_some() || asks.iter().any(|words| source.contains(words)) {
            continue;
        }
        let template = ChatTemplate::new(source, bos, eos, &patient.path);
        let rendered = template.and_then(|template| template.at(date()).render(&own, false));
        if rendered.is_ok_and(|text| text.contains(ABSENT)) {
            findings.add(&ROLE_MISSING, place(), format!("the template writes {name}, but the vocabulary has none"));
        }
    }
}

/// The text after an answer must contain a token that ends generation.
fn look_at_end(text: &str, tokenizer: &Tokenizer, place: &dyn Fn() -> Place, findings: &mut Findings) {
    let Some((_, behind)) = text.rsplit_once(ASSISTANT) else { return };
    let Ok(ids) = tokenizer.encode(behind, false) else { return };
    if ids.iter().any(|id| tokenizer.is_end_of_generation(*id)) {
        return;
    }
    let is_control =
        |id: &&u32| tokenizer.vocabulary().token(**id).is_some_and(|token| token.kind == TokenKind::Control);
    let found = match ids.iter().find(is_control) {
        Some(id) => format!(
            "token {id}, \"{}\", which does not end generation",
            quote(tokenizer.piece(*id).unwrap_or_default())
        ),
        // White space alone says nothing: such a model ends its answers with a token that the template does not write.
        None if behind.trim().is_empty() => return,
        None => format!("\"{}\", which is not an end-of-generation token", quote(behind)),
    };
    findings.add(&END_OF_TURN, place(), format!("after an answer, the template writes {found}"));
}

#[cfg(test)]
mod tests {
    use super::markers;

    #[test]
    fn markers_are_literal_names_between_bars() {
        let source = "{{ '<|im_start|>' + role }}<|a.b-c:1|> <| no |> <||> <|im_start|> {% if x <|y %}";
        assert_eq!(markers(source).into_iter().collect::<Vec<_>>(), ["<|a.b-c:1|>", "<|im_start|>"]);
    }

    #[test]
    fn markers_take_time_by_the_length_of_the_source() {
        assert!(markers(&"<|".repeat(400_000)).is_empty());
        assert!(markers(&format!("{}|>", "<|a".repeat(400_000))).len() == 1);
        assert!(markers(&format!("<|{}|>", "a".repeat(400_000))).is_empty());
        let many: String = (0..100_000).map(|number| format!("<|{number}|>")).collect();
        assert_eq!(markers(&many).len(), super::MARKERS_MAX);
    }
}
