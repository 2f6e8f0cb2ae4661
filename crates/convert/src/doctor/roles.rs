//! Tokens with a role: ids inside the vocabulary, an end that is there and steers, names that the vocabulary knows,
//! files that agree.

use super::finding::{Findings, Place, Rule};
use super::patient::{Object, Patient, TOKENS};
use serde_json::Value;
use std::collections::HashSet;
use trueup_formats::{counted, quote};
use trueup_tokenizer::{TokenKind, Vocabulary};

pub(super) const RULES: &[&Rule] =
    &[&ROLE_OUTSIDE, &ROLE_UNKNOWN, &EOS_MISSING, &EOS_NOT_CONTROL, &EOS_DIFFERS, &BOS_DIFFERS];

static ROLE_OUTSIDE: Rule = Rule::error(
    "role-outside-vocabulary",
    "the token does not exist: text may never end, and some programs read out of bounds",
    "correct the key, or use the files of this model",
);
static ROLE_UNKNOWN: Rule = Rule::warning(
    "role-token-unknown",
    "the special token cannot be found by its name",
    "use the tokenizer files of this model",
);
static EOS_MISSING: Rule = Rule::warning(
    "eos-missing",
    "generation stops only at the token limit",
    "set tokenizer.ggml.eos_token_id, or eos_token in tokenizer_config.json",
);
static EOS_NOT_CONTROL: Rule = Rule::warning(
    "eos-not-control",
    "user text can contain it, and programs print it as text",
    "compare the token ID with that of the original model, or mark the token as a control token",
);
static EOS_DIFFERS: Rule = Rule::note(
    "eos-differs",
    "some programs stop at a token where others continue, depending on the file they read",
    "list all end-of-generation token IDs in generation_config.json",
);
static BOS_DIFFERS: Rule = Rule::warning(
    "bos-differs",
    "programs start a text with different tokens, depending on the file they read",
    "set the same token ID in all files",
);

/// Keys of ids in a GGUF file.
const ROLE_KEYS: [&str; 9] = [
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.mask_token_id",
    "tokenizer.ggml.cls_token_id",
];

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    match patient.config() {
        Some(config) => look_at_folder(patient, config, findings),
        None => look_at_keys(patient, findings),
    }
    if let Some(vocabulary) = patient.valid_vocabulary().filter(|_| patient.is_description_whole()) {
        look_at_end(patient, vocabulary, findings);
    }
}

fn look_at_keys(patient: &Patient, findings: &mut Findings) {
    let Some(metadata) = patient.metadata() else { return };
    let Ok(tokens) = metadata.strings(TOKENS) else { return };
    for key in ROLE_KEYS {
        if let Some(id) = metadata.u64(key).ok().filter(|id| *id >= tokens.len() as u64) {
            let problem =
                format!("token ID {id} is outside the vocabulary of {}", counted(tokens.len() as u64, "token"));
            findings.add(&ROLE_OUTSIDE, Place::file(&patient.path).key(key), problem);
        }
    }
}

fn look_at_end(patient: &Patient, vocabulary: &Vocabulary, findings: &mut Findings) {
    let key = if patient.metadata().is_some() { "tokenizer.ggml.eos_token_id" } else { "eos_token" };
    let place = Place::file(&patient.path).key(key);
    let Some(eos) = vocabulary.special().eos else {
        let generates = patient.valid_spec().is_none_or(trueup_models::ModelSpec::has_logits);
        if generates && vocabulary.special().end_of_generation.is_empty() {
            findings.add(&EOS_MISSING, place, "no token ends generation");
        }
        return;
    };
    let Some(token) = vocabulary.token(eos) else { return };
    match token.kind {
        TokenKind::Control => {}
        TokenKind::Normal | TokenKind::Unknown | TokenKind::UserDefined | TokenKind::Unused | TokenKind::Byte => {
            let kind = format!("{:?}", token.kind).to_lowercase();
            let problem = format!("token {eos}, \"{}\", is of type {kind}, expected control", quote(&token.text));
            findings.add(&EOS_NOT_CONTROL, place, problem);
        }
    }
}

/// `eos_token_id` and the like: one number or a list.
fn ids(object: &Object, key: &str) -> Vec<u64> {
    match object.get(key) {
        Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_u64).collect(),
        other => other.and_then(Value::as_u64).into_iter().collect(),
    }
}

/// The ids of config.json, generation_config.json and the tokenizer's files against the vocabulary and against each
/// other.
fn look_at_folder(patient: &Patient, config: &Object, findings: &mut Findings) {
    let files = patient.checkpoint().tokenizer();
    let empty = Object::new();
    let generation = files.generation_config.as_ref().unwrap_or(&empty);
    let folder = patient.folder();
    let tokens = patient.valid_vocabulary().map(|vocabulary| vocabulary.tokens().len() as u64);
    let size = config.get("vocab_size").and_then(Value::as_u64).max(tokens);
    for (name, object) in [("config.json", config), ("generation_config.json", generation)] {
        for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
            // Some makers write -1, or an id beyond the vocabulary, for a token that a model has not.
            let said = ids(object, key);
            let mut outside = said.iter().filter(|id| size.is_some_and(|size| **id >= size));
            if let Some(id) = outside.next() {
                let problem = format!(
                    "token ID {id} is outside the vocabulary of {}",
                    counted(size.unwrap_or_default(), "token")
                );
                findings.add_many(
                    &ROLE_OUTSIDE,
                    Place::file(&folder.join(name)).key(key),
                    problem,
                    outside.count() as u64,
                );
            }
        }
    }
    let Some(vocabulary) = patient.valid_vocabulary() else { return };
    let named = |role: &str| {
        let text = |file: &Option<Object>| Some(token_text(file.as_ref()?.get(role)?)?.to_owned());
        text(&files.tokenizer_config).or_else(|| text(&files.special_tokens_map))
    };
    let id_of = |text: &str| vocabulary.tokens().iter().position(|token| token.text == text).map(|id| id as u64);
    for role in ["bos_token", "eos_token", "pad_token", "unk_token"] {
        if let Some(text) = named(role).filter(|text| id_of(text).is_none()) {
            let place = Place::file(&folder.join("tokenizer_config.json")).key(role);
            findings.add(&ROLE_UNKNOWN, place, format!("\"{}\" is not in the vocabulary", quote(&text)));
        }
    }
    let of_tokenizer = |role: &str| named(role).and_then(|text| id_of(&text));
    let ends = Said {
        config: ids(config, "eos_token_id"),
        generation: ids(generation, "eos_token_id"),
        tokenizer: of_tokenizer("eos_token"),
    };
    if let Some(problem) = ends.ends_problem() {
        findings.add(&EOS_DIFFERS, Place::file(folder).key("eos_token_id"), problem);
    }
    let begins = Said {
        config: ids(config, "bos_token_id"),
        generation: ids(generation, "bos_token_id"),
        tokenizer: of_tokenizer("bos_token"),
    };
    if let Some(problem) = begins.begins_problem() {
        findings.add(&BOS_DIFFERS, Place::file(folder).key("bos_token_id"), problem);
    }
}

/// A token written as text or as an object with `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// What three files say of one role.
struct Said {
    config: Vec<u64>,
    generation: Vec<u64>,
    tokenizer: Option<u64>,
}

impl Said {
    /// Where generation_config.json names ends, they hold all others; else those of config.json hold the tokenizer's.
    fn ends_problem(&self) -> Option<String> {
        let all = if self.generation.is_empty() { &self.config } else { &self.generation };
        if all.is_empty() {
            return None;
        }
        let all: HashSet<u64> = all.iter().copied().collect();
        let mut others = self.config.iter().chain(&self.tokenizer);
        others.any(|id| !all.contains(id)).then(|| self.shown())
    }

    /// All that is said is one id.
    fn begins_problem(&self) -> Option<String> {
        let mut all: Vec<u64> = self.config.iter().chain(&self.generation).chain(&self.tokenizer).copied().collect();
        all.dedup();
        (all.len() > 1).then(|| self.shown())
    }

    fn shown(&self) -> String {
        let tokenizer = self.tokenizer.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        let (config, generation) = (shown_ids(&self.config), shown_ids(&self.generation));
        format!("config.json says {config}, generation_config.json {generation}, the tokenizer {tokenizer}")
    }
}

/// Ids of one list that a finding repeats.
const SHOWN_MAX: usize = 8;

/// The first ids of a list, and how many more there are.
fn shown_ids(ids: &[u64]) -> String {
    match ids.split_at_checked(SHOWN_MAX) {
        Some((first, rest)) if !rest.is_empty() => format!("{first:?} and {} more", rest.len()),
        Some(_) | None => format!("{ids:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, shown_ids};

    #[test]
    fn long_lists_are_compared_at_once_and_cut() {
        let count = 500_000;
        let mut said =
            Said { config: (0..count).collect(), generation: (0..count).rev().collect(), tokenizer: Some(7) };
        assert_eq!(said.ends_problem(), None);
        said.tokenizer = Some(count);
        let problem = said.ends_problem().expect("the tokenizer's is not among them");
        assert!(problem.contains("config.json says [0, 1, 2, 3, 4, 5, 6, 7] and 499992 more, generation"), "{problem}");
        assert_eq!(said.begins_problem(), Some(problem));
        assert_eq!((shown_ids(&[]).as_str(), shown_ids(&[5]).as_str()), ("[]", "[5]"));
        assert_eq!(shown_ids(&[3; 8]), "[3, 3, 3, 3, 3, 3, 3, 3]");
    }
}
