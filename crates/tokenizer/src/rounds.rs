//! Prompt formats made of rounds: a prefix, the text around each user message, and the separators; as a chat template,
//! and back.
//!
//! ```text
//! before | user Question bot Answer after | user Question bot
//! ```
//!
//! FastLLM's files contain these parts instead of a template. So do the programs of Baichuan, InternLM and MOSS, whose
//! files contain no template.

use crate::added_tokens::{AddedTokens, Part};
use crate::vocabulary::{AddedToken, Parts, TokenKind};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use trueup_formats::TokenizerFiles;
use trueup_formats::flm::FlmVocabulary;

/// The pieces, as plain text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Rounds {
    /// Before a conversation.
    pub before: String,
    /// Before what a user says.
    pub user: String,
    /// Behind it, before the answer.
    pub bot: String,
    /// Behind an answer.
    pub after: String,
}

/// FastLLM's keys of the pieces, in their order.
pub const KEYS: [&str; 4] = ["pre_prompt", "user_role", "bot_role", "history_sep"];
/// Those without which a file has no pieces.
const ROLES: [&str; 2] = ["user_role", "bot_role"];
/// Most bytes of one piece.
const PIECE_BYTES_MAX: usize = 1 << 15;
/// How a piece names a token by its id.
const MARK: &str = "<FLM_FIX_TOKEN_";
/// Digits of an id, and the sign behind them.
const NUMBER_BYTES_MAX: usize = 9;

/// The template around the four literals.
const TEMPLATE: [&str; 5] = [
    "{{ ",
    " }}{% for message in messages %}{% if message['role'] == 'user' %}{{ ",
    " + message['content'] + ",
    " }}{% elif message['role'] == 'assistant' %}{{ message['content'] + ",
    " }}{% else %}{{ raise_exception('this model supports only the roles user and assistant') }}{% endif %}{% \
     endfor %}",
];

impl Rounds {
    fn pieces(&self) -> [&str; 4] {
        [&self.before, &self.user, &self.bot, &self.after]
    }

    fn of_pieces([before, user, bot, after]: [String; 4]) -> Rounds {
        Rounds { before, user, bot, after }
    }

    /// As Jinja.
    pub fn template(&self) -> String {
        let literals = self.pieces().map(literal);
        let [first, rest @ ..] = TEMPLATE;
        let behind = literals.iter().zip(rest).map(|(literal, text)| format!("{literal}{text}"));
        format!("{first}{}", behind.collect::<String>())
    }

    /// The pieces of a template that [`Rounds::template`] made; `None` of any other.
    pub fn of_template(template: &str) -> Option<Rounds> {
        let [first, rest @ ..] = TEMPLATE;
        let mut left = template.strip_prefix(first)?;
        let mut pieces = rest.map(|_| String::new());
        for (piece, text) in pieces.iter_mut().zip(rest) {
            let behind;
            (*piece, behind) = read_literal(left)?;
            left = behind.strip_prefix(text)?;
        }
        let fits = left.is_empty() && pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX);
        fits.then(|| Rounds::of_pieces(pieces))
    }

    /// As the values of FastLLM's keys, in which added tokens go by their ids; `spaced` says that each stretch of text
    /// begins with a space of its own, which FastLLM does not put behind a token.
    pub fn to_flm(&self, added: &[AddedToken], spaced: bool) -> [(&'static str, String); 4] {
        let whole =
            |token: &AddedToken| (token.content.clone(), AddedToken { lstrip: false, rstrip: false, ..token.clone() });
        let added = AddedTokens::new(added.iter().map(whole));
        let [before, user, bot, after] = self.pieces().map(|piece| marked(piece, &added, spaced));
        let [k0, k1, k2, k3] = KEYS;
        [(k0, before), (k1, user), (k2, bot), (k3, after)]
    }

    /// The pieces of a `.flm` file. `None` where it has none, or longer ones than any prompt has.
    pub fn of_flm(file: &FlmVocabulary, parts: &Parts) -> Option<Rounds> {
        if ROLES.iter().all(|key| file.value(key).is_none()) {
            return None;
        }
        let spaced = parts.pre_tokenizer.is_none() && file.flag("tokenizer_add_dummy_prefix", true);
        let contents: HashMap<u32, &str> = parts.added.iter().map(|added| (added.id, added.content.as_str())).collect();
        let mut pieces = KEYS.map(|_| String::new());
        for (piece, key) in pieces.iter_mut().zip(KEYS) {
            *piece = unmarked(file.value(key).unwrap_or_default(), &contents, spaced)?;
        }
        Some(Rounds::of_pieces(pieces))
    }
}

/// A text as Jinja writes it.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r");
    format!("'{escaped}'")
}

/// A literal at the start of a text, and what stands behind it.
fn read_literal(text: &str) -> Option<(String, &str)> {
    let mut read = String::new();
    let mut rest = text.strip_prefix('\'')?.chars();
    loop {
        match rest.next()? {
            '\'' => return Some((read, rest.as_str())),
            '\\' => read.push(match rest.next()? {
                'n' => '\n',
                'r' => '\r',
                other => other,
            }),
            other => read.push(other),
        }
    }
}

/// A piece with each added token in it as its id.
fn marked(piece: &str, added: &AddedTokens, spaced: bool) -> String {
    let parts = added.split(piece).into_iter().map(|part| match part {
        Part::Token(id) if spaced => format!("{MARK}{id}> "),
        Part::Token(id) => format!("{MARK}{id}>"),
        Part::Text(range) => piece.get(range).unwrap_or_default().to_owned(),
    });
    parts.collect()
}

/// A piece with the texts of the tokens that it names; `None` where it would be longer than any prompt.
fn unmarked(piece: &str, contents: &HashMap<u32, &str>, spaced: bool) -> Option<String> {
    let (mut rest, mut plain) = (piece, String::new());
    while let Some((before, behind)) = rest.split_once(MARK) {
        plain.push_str(before);
        match id_before(behind).and_then(|(id, after)| Some((contents.get(&id)?, after))) {
            Some((content, after)) => {
                plain.push_str(content);
                // The space that FastLLM's files have there is the one that stands before each stretch of text anyway.
                rest = after.strip_prefix(' ').filter(|_| spaced).unwrap_or(after);
            }
            None => {
                plain.push_str(MARK);
                rest = behind;
            }
        }
        if plain.len() > PIECE_BYTES_MAX {
            return None;
        }
    }
    plain.push_str(rest);
    (plain.len() <= PIECE_BYTES_MAX).then_some(plain)
}

/// The id at the start of a text that ends with `>`, and what stands behind that.
fn id_before(text: &str) -> Option<(u32, &str)> {
    let end = text.bytes().take(NUMBER_BYTES_MAX).position(|byte| byte == b'>')?;
    Some((text.get(..end)?.parse().ok()?, text.get(end.saturating_add(1)..)?))
}

/// The ids that the pieces of a file name.
pub(crate) fn named_ids(file: &FlmVocabulary) -> BTreeSet<u32> {
    let pieces = KEYS.iter().filter_map(|key| file.value(key)).filter(|piece| piece.len() <= PIECE_BYTES_MAX);
    pieces.flat_map(|piece| piece.split(MARK).skip(1)).filter_map(|text| Some(id_before(text)?.0)).collect()
}

/// Has tokens found in texts by their own text, whatever they were before.
pub(crate) fn find_whole(parts: &mut Parts, ids: impl IntoIterator<Item = u32>) {
    let known: BTreeSet<u32> = parts.added.iter().map(|added| added.id).collect();
    for id in ids {
        let token = usize::try_from(id).ok().and_then(|place| parts.tokens.get_mut(place));
        let Some(token) = token.filter(|token| !known.contains(&id) && token.kind != TokenKind::Unused) else {
            continue;
        };
        let Some(content) = parts.decoder.text_of(&token.text).filter(|content| !content.is_empty()) else { continue };
        if token.kind == TokenKind::Normal {
            token.kind = TokenKind::Control;
        }
        let (single_word, lstrip, rstrip, normalized) = (false, false, false, false);
        parts.added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special: true });
    }
}

/// Prompts of models whose files have no template: those of their programs.
///
/// ```text
/// Baichuan    two tokens that generation_config.json names by their ids: user_token_id, assistant_token_id
/// InternLM    known by <eoh> and <eoa>
/// MOSS        known by <eoh> and <eom>
/// ```
pub(crate) fn of_program(files: &TokenizerFiles, parts: &mut Parts) -> Option<Rounds> {
    if let Some(ids) = files.generation_config.as_ref().and_then(role_tokens) {
        find_whole(parts, ids);
        let content = |id: u32| parts.added.iter().find(|added| added.id == id).map(|added| added.content.clone());
        let [user, bot] = ids.map(content);
        return Some(Rounds { user: user?, bot: bot?, ..Rounds::default() });
    }
    let place =
        |text: &str| parts.tokens.iter().position(|token| token.text == text && token.kind != TokenKind::Unused);
    let id = |text: &str| place(text).and_then(|place| u32::try_from(place).ok());
    let (question, answer, end) = (id("<eoh>")?, id("<eoa>"), id("<eom>"));
    let text = |before: &str, user: &str, bot: &str, after: &str| {
        Rounds::of_pieces([before, user, bot, after].map(str::to_owned))
    };
    let (rounds, ids) = match (answer, end) {
        (Some(answer), _) => (text("", "<|User|>:", "<eoh>\n<|Bot|>:", "<eoa>\n"), [question, answer]),
        (None, Some(end)) => {
            let before = "You are an AI assistant whose name is MOSS. ";
            (text(before, "<|Human|>: ", "<eoh>\n<|MOSS|>:", "<eom>\n"), [question, end])
        }
        (None, None) => return None,
    };
    find_whole(parts, ids);
    Some(rounds)
}

/// The tokens of a user and of the model that a generation configuration names.
fn role_tokens(config: &Map<String, Value>) -> Option<[u32; 2]> {
    let id = |key: &str| config.get(key).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
    Some([id("user_token_id")?, id("assistant_token_id")?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Decoder;
    use crate::sentencepiece_model::sentencepiece_parts;
    use crate::vocabulary::Token;

    fn parts(texts: &[&str]) -> Parts {
        let token = |text: &&str| Token { text: (*text).to_owned(), score: 0.0, kind: TokenKind::Normal };
        sentencepiece_parts(texts.iter().map(token).collect(), true, false, Decoder::sentencepiece(true))
    }

    fn file(table: &[(&str, &str)]) -> FlmVocabulary {
        let table = table.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        FlmVocabulary { tokens: Vec::new(), special: Vec::new(), table }
    }

    #[test]
    fn tokens_that_pieces_name_are_found_whole() {
        let mut parts = parts(&["a", "▁<user>", "<bot>", "b"]);
        let file = file(&[
            ("user_role", "<FLM_FIX_TOKEN_1> "),
            ("bot_role", "x<FLM_FIX_TOKEN_2>\n"),
            ("history_sep", "<FLM_FIX_TOKEN_9>"),
        ]);
        assert_eq!(named_ids(&file).into_iter().collect::<Vec<_>>(), [1, 2, 9]);
        find_whole(&mut parts, named_ids(&file));
        let found: Vec<(u32, &str)> = parts.added.iter().map(|added| (added.id, added.content.as_str())).collect();
        assert_eq!(found, [(1, " <user>"), (2, "<bot>")]);
        let rounds = Rounds::of_flm(&file, &parts).expect("pieces");
        // A space behind a token is that of the stretch behind it; an id without a token stays as it is written.
        assert_eq!(rounds.pieces(), ["", " <user>", "x<bot>\n", "<FLM_FIX_TOKEN_9>"]);
        let written = rounds.to_flm(&parts.added, true).map(|(_, value)| value);
        assert_eq!(written, ["", "<FLM_FIX_TOKEN_1> ", "x<FLM_FIX_TOKEN_2> \n", "<FLM_FIX_TOKEN_9>"]);
        assert_eq!(Rounds::of_flm(&self::file(&[("pre_prompt", "x")]), &parts), None);
        let long = "x".repeat(PIECE_BYTES_MAX + 1);
        assert_eq!(Rounds::of_flm(&self::file(&[("user_role", &long)]), &parts), None);
    }

    #[test]
    fn programs_have_prompts_where_files_have_none() {
        let config = |text: &str| TokenizerFiles {
            generation_config: serde_json::from_str(text).ok(),
            ..TokenizerFiles::default()
        };
        let baichuan = config(r#"{"user_token_id": 1, "assistant_token_id": 2}"#);
        let rounds = of_program(&baichuan, &mut parts(&["a", "<r1>", "<r2>"])).expect("tokens of roles");
        assert_eq!(rounds.pieces(), ["", "<r1>", "<r2>", ""]);
        assert_eq!(of_program(&baichuan, &mut parts(&["a", "<r1>"])), None);
        let none = config("{}");
        assert_eq!(of_program(&none, &mut parts(&["<eoh>", "a"])), None);
        let mut internlm = parts(&["a", "<eoh>", "<eoa>"]);
        assert!(of_program(&none, &mut internlm).is_some_and(|rounds| rounds.user == "<|User|>:"));
        assert_eq!(internlm.added.iter().map(|added| added.id).collect::<Vec<_>>(), [1, 2]);
        assert!(of_program(&none, &mut parts(&["<eoh>", "<eom>"])).is_some_and(|rounds| rounds.after == "<eom>\n"));
    }

    #[test]
    fn a_template_says_its_pieces() {
        let pieces = ["", "a'b", "\\n\n\r", "{{ x }}{% y %}", " + message['content'] + ", "'", "\\"];
        for (place, piece) in pieces.iter().enumerate() {
            let of = |offset: usize| pieces[(place + offset) % pieces.len()].to_owned();
            let rounds = Rounds::of_pieces([(*piece).to_owned(), of(1), of(2), of(3)]);
            let template = rounds.template();
            assert_eq!(Rounds::of_template(&template), Some(rounds));
            assert_eq!(Rounds::of_template(&template[1..]), None);
            assert_eq!(Rounds::of_template(&format!("{template} ")), None);
        }
    }
}
