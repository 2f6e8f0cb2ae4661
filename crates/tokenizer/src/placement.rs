//! Places the tokens of `tokenizer.json` at their IDs.
//!
//! ```text
//! vocab          {"a": 0, "b": 2}          0: a    1: [PAD1]    2: b    3: <s>
//! added_tokens   [{"id": 3, "content": "<s>"}]
//! ```

use crate::vocabulary::{AddedToken, Token, TokenKind, byte_of, ids_max, padding_token};
use std::collections::{BTreeMap, HashMap, HashSet};
use trueup_formats::{listed, quote};

/// Tokens with their IDs.
pub(crate) type Entries = Vec<(String, u32)>;

/// The result of [`place_tokens`].
pub(crate) struct Placed {
    /// Tokens by ID. IDs without a token get a padding token.
    pub tokens: Vec<Token>,
    /// Added tokens by ID.
    pub added: Vec<AddedToken>,
    /// Added tokens whose IDs have no row in the embedding. They are not in `tokens`.
    pub beyond: Vec<(u32, String)>,
    /// Added tokens whose listed ID is not used, each with both IDs: `"<s>" (7, used: 1)`.
    renumbered: Vec<String>,
}

impl Placed {
    /// A note about added tokens whose listed ID is not used.
    pub(crate) fn conflict(&self) -> Option<String> {
        (!self.renumbered.is_empty()).then(|| {
            format!(
                "tokenizer.json gives added tokens a second ID; the first one is used: {}",
                listed(&self.renumbered, ", ")
            )
        })
    }
}

/// Puts each token of the vocabulary and each added token at its ID. An added token whose text already has an ID, in
/// the vocabulary or earlier in the list, keeps that ID, as in the tokenizers library. `vocab_size` is the number of
/// rows of the embedding; added tokens without a row are returned in [`Placed::beyond`].
///
/// # Errors
/// Two tokens have the same ID, a text occurs twice in the vocabulary, an ID is too large, or an added token is empty.
pub(crate) fn place_tokens(
    vocab: Entries,
    added: Vec<AddedToken>,
    vocab_size: Option<usize>,
) -> Result<Placed, String> {
    let ids_max = ids_max(vocab_size, vocab.len().saturating_add(added.len()));
    let is_beyond = |id: u32| vocab_size.is_some() && usize::try_from(id).map_or(true, |id| id >= ids_max);
    let added_texts: HashSet<&str> = added.iter().map(|token| token.content.as_str()).collect();
    let mut texts: Vec<Option<String>> = Vec::new();
    let mut ids: HashMap<String, u32> = HashMap::with_capacity(vocab.len());
    for (text, id) in vocab {
        if let Some(other) = ids.insert(text.clone(), id) {
            return Err(format!("expected each token once, found \"{}\" with the IDs {other} and {id}", quote(&text)));
        }
        if !is_beyond(id) || !added_texts.contains(text.as_str()) {
            place(&mut texts, text, id, ids_max)?;
        }
    }
    let (mut placed, mut beyond, mut renumbered) = (BTreeMap::new(), HashMap::<String, u32>::new(), Vec::new());
    for mut token in added {
        if token.content.is_empty() {
            return Err(format!("expected text for the added token {}, found none", token.id));
        }
        let known = ids.get(&token.content).copied();
        if let Some(used) = known.filter(|known| *known != token.id) {
            renumbered.push(format!("\"{}\" ({}, used: {used})", quote(&token.content), token.id));
            token.id = used;
        }
        if is_beyond(token.id) {
            beyond.entry(token.content).or_insert(token.id);
            continue;
        }
        beyond.remove(&token.content);
        if known.is_none() {
            place(&mut texts, token.content.clone(), token.id, ids_max)?;
            ids.insert(token.content.clone(), token.id);
        }
        // A token that is listed again gets its last flags, but remains special, as in the tokenizers library.
        token.special |= placed.get(&token.id).is_some_and(|earlier: &AddedToken| earlier.special);
        placed.insert(token.id, token);
    }
    let mut beyond: Vec<(u32, String)> = beyond.into_iter().map(|(text, id)| (id, text)).collect();
    beyond.sort();
    let tokens = texts.into_iter().enumerate().map(|(id, text)| match text {
        Some(text) => Token { text, score: 0.0, kind: TokenKind::Normal },
        None => padding_token(id),
    });
    Ok(Placed { tokens: tokens.collect(), added: placed.into_values().collect(), beyond, renumbered })
}

fn place(texts: &mut Vec<Option<String>>, text: String, id: u32, ids_max: usize) -> Result<(), String> {
    let index = usize::try_from(id).unwrap_or(usize::MAX);
    if index >= ids_max {
        return Err(format!("expected IDs below {ids_max}, found {id} for the token \"{}\"", quote(&text)));
    }
    if texts.len() <= index {
        texts.resize(index.saturating_add(1), None);
    }
    let Some(slot) = texts.get_mut(index) else { return Ok(()) };
    match slot {
        Some(other) => {
            Err(format!("expected one token with ID {id}, found \"{}\" and \"{}\"", quote(other), quote(&text)))
        }
        None => {
            *slot = Some(text);
            Ok(())
        }
    }
}

/// Sets the kinds of added tokens, and of byte tokens if `byte_fallback` is set.
pub(crate) fn mark_kinds(tokens: &mut [Token], added: &[AddedToken], byte_fallback: bool) {
    for token in tokens.iter_mut().filter(|token| byte_fallback && byte_of(&token.text).is_some()) {
        token.kind = TokenKind::Byte;
    }
    for added in added {
        if let Some(token) = usize::try_from(added.id).ok().and_then(|id| tokens.get_mut(id)) {
            token.kind = if added.special { TokenKind::Control } else { TokenKind::UserDefined };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(id: u32, content: &str) -> AddedToken {
        serde_json::from_value(serde_json::json!({"id": id, "content": content, "special": true})).expect("a token")
    }

    #[test]
    fn the_first_id_of_a_text_is_used_and_noted() {
        let vocab = [("a", 0), ("<s>", 1)].map(|(text, id)| (text.to_owned(), id)).to_vec();
        let placed = place_tokens(vocab.clone(), vec![added(7, "<s>"), added(4, "</s>"), added(5, "</s>")], None);
        let placed = placed.expect("a vocabulary");
        let texts: Vec<&str> = placed.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["a", "<s>", "[PAD2]", "[PAD3]", "</s>"]);
        assert_eq!(placed.added.iter().map(|token| token.id).collect::<Vec<_>>(), [1, 4]);
        let conflict = placed.conflict().expect("a conflict");
        assert!(conflict.ends_with(r#": "<s>" (7, used: 1), "</s>" (5, used: 4)"#), "{conflict}");
        let twice = vec![added(3, "</s>"), added(4, "</s>"), added(9, "<x>"), added(2, "<x>")];
        let placed = place_tokens(vocab.clone(), twice, Some(3)).expect("a vocabulary");
        assert_eq!(placed.beyond, [(3, "</s>".to_owned())], "a token is listed once, and not if it has a row");
        let plain = AddedToken { special: false, rstrip: true, ..added(4, "</s>") };
        let placed = place_tokens(vocab.clone(), vec![added(3, "</s>"), plain], None).expect("a vocabulary");
        assert!(matches!(&placed.added[..], [AddedToken { id: 3, special: true, rstrip: true, .. }]));
        let placed = place_tokens(vocab, vec![added(1, "<s>"), added(4, "</s>")], None).expect("a vocabulary");
        assert_eq!(placed.conflict(), None);
    }
}
