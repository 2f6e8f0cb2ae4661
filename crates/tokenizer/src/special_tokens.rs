//! Roles of tokens and the tokens around every text, from the files next to a tokenizer.
//!
//! ```text
//! bos, eos, ...      tokenizer_config.json and special_tokens_map.json (special_names.rs), else the IDs in config.json
//! around a text      post_processor of tokenizer.json; for FLAGGED_CLASSES, the flags in tokenizer_config.json
//! end of generation  eos, and every eos_token_id of generation_config.json and config.json
//! ```

use crate::chatglm;
use crate::chatglm1;
use crate::role_ids::role_ids;
use crate::sentinels;
use crate::source::ModelTokens;
use crate::special_names::SpecialNames;
use crate::vocabulary::{AddedToken, Algorithm, Parts, Token, TokenKind, ids_by_text, replace_added};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::flm::description_name;
use trueup_formats::{Error, Result, TokenizerFiles};

/// A file with role IDs, in addition to the model config.
const GENERATION_CONFIG: &str = "generation_config.json";
/// Tokenizer classes whose flags determine the tokens around a text, with the default of `add_bos_token`.
const FLAGGED_CLASSES: [(&str, bool); 5] = [
    ("LlamaTokenizer", true),
    ("CodeLlamaTokenizer", true),
    ("GemmaTokenizer", true),
    ("CohereTokenizer", true),
    ("GPTNeoXTokenizer", false),
];

/// Texts of tokens that end a turn of a conversation, as models name them.
const END_OF_TURN: [&str; 4] = ["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"];
/// Texts of tokens that begin the next turn. They end a turn only if the model lists them as ends of generation, as
/// GLM-4 does.
const NEXT_TURN: [&str; 1] = ["<|user|>"];
/// Texts of tokens that end a message before a tool is called.
const END_OF_MESSAGE: [&str; 1] = ["<|eom_id|>"];
/// Texts of other tokens that end generation, as models name them.
const OTHER_ENDS: [&str; 16] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<EOT>",
    "_<EOT>",
    "▁<EOT>",
    "< EOT >",
    "[EOT]",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];
/// Texts that also occur in ordinary text, so they end generation only if the file marks them as special.
const ENDS_IF_SPECIAL: [&str; 3] = ["</s>", "<eos>", "[EOS]"];
/// The end of the text in many vocabularies, but the HTML tag for strikethrough in vocabularies with [`OTHER_TAG`], as
/// in Gemma's.
const END_OR_TAG: &str = "</s>";
/// An HTML tag that has a user-defined token in vocabularies with tokens for tags.
const OTHER_TAG: &str = "</b>";
/// Ends a message but not the answer in vocabularies that have both tokens of an entry of [`ANSWER_ENDS`].
const MESSAGE_END: &str = "<|end|>";
const ANSWER_ENDS: [[&str; 2]; 2] = [["<|return|>", "<|call|>"], ["<|calls|>", "<|flush|>"]];

/// IDs of the tokens that end generation by name, in ascending order. The type of a token matters only if its name also
/// occurs in ordinary text.
pub(crate) fn ends_by_name(tokens: &[Token]) -> Vec<u32> {
    let is_user_defined = |token: &Token| token.kind == TokenKind::UserDefined;
    let has_tags = tokens.iter().any(|token| is_user_defined(token) && token.text == OTHER_TAG);
    let is_end = |token: &Token| {
        let name = token.text.as_str();
        let is_tag = has_tags && is_user_defined(token) && name == END_OR_TAG;
        let is_special = !is_tag && matches!(token.kind, TokenKind::Control | TokenKind::UserDefined);
        let named = END_OF_TURN.iter().chain(&END_OF_MESSAGE).chain(&OTHER_ENDS).any(|end| *end == name);
        named || (is_special && ENDS_IF_SPECIAL.contains(&name))
    };
    let mut ends: Vec<(u32, &str)> = Vec::new();
    ends.extend((0u32..).zip(tokens).filter(|(_, token)| is_end(token)).map(|(id, token)| (id, token.text.as_str())));
    let has = |name: &str| ends.iter().any(|(_, text)| *text == name);
    let answer_ends = ANSWER_ENDS.iter().any(|names| names.iter().all(|name| has(name)));
    ends.iter().filter(|(_, text)| !(answer_ends && *text == MESSAGE_END)).map(|(id, _)| *id).collect()
}

/// Turns every token that ends generation by name into a control token that is found in texts. Returns the IDs of the
/// tokens whose type changed.
pub(crate) fn mark_ends(parts: &mut Parts) -> Vec<u32> {
    let (mut marked, mut added) = (Vec::new(), Vec::new());
    for id in ends_by_name(&parts.tokens) {
        let Some(token) = usize::try_from(id).ok().and_then(|place| parts.tokens.get_mut(place)) else { continue };
        if token.kind == TokenKind::Control {
            continue;
        }
        marked.push(id);
        token.kind = TokenKind::Control;
        let (content, single_word, lstrip, rstrip, normalized) = (token.text.clone(), false, false, false, false);
        added.push(AddedToken { id, content, single_word, lstrip, rstrip, normalized, special: true });
    }
    replace_added(&mut parts.added, added);
    marked
}

/// An ID that a file gives to a role, with the key and the file.
#[derive(Clone, Copy)]
struct Claim {
    id: u32,
    key: &'static str,
    file: &'static str,
}

/// The IDs of a vocabulary, including padding up to the model's size.
struct Ids<'p> {
    count: usize,
    path: &'p Path,
}

impl Ids<'_> {
    fn has(&self, claim: Claim) -> bool {
        usize::try_from(claim.id).is_ok_and(|id| id < self.count)
    }

    fn problem(&self, claim: Claim) -> String {
        let last = self.count.saturating_sub(1);
        format!("{}: expected a token ID from 0 to {last}, found {}", claim.key, claim.id)
    }

    /// Checks an ID that encoding or generation needs. Fails if the vocabulary does not have it.
    fn required(&self, role: &str, claim: Option<Claim>) -> Result<Option<u32>> {
        match claim {
            Some(claim) if !self.has(claim) => {
                let error = Error::new(self.path, self.problem(claim)).at(format!("{}, {role} token", claim.file));
                Err(error.help("correct the key, or use the files that belong to this model"))
            }
            claim => Ok(claim.map(|claim| claim.id)),
        }
    }

    /// Checks an optional ID. If the vocabulary does not have it, it is ignored with a note.
    fn welcome(&self, claim: Claim, notes: &mut Vec<String>) -> Option<u32> {
        if self.has(claim) {
            return Some(claim.id);
        }
        notes.push(format!("{}: {}; this ID is ignored", claim.file, self.problem(claim)));
        None
    }
}

/// Sets the roles of tokens and the tokens around a text. Except for the bos and eos tokens, IDs outside the vocabulary
/// are ignored with a note.
///
/// # Errors
/// The ID of the bos or eos token is outside the vocabulary, or an end of generation is not an ID.
pub(crate) fn assign(
    parts: &mut Parts,
    files: &TokenizerFiles,
    model: &ModelTokens,
    path: &Path,
    names: &SpecialNames<'_>,
    notes: &mut Vec<String>,
) -> Result<()> {
    // The note about a token without an ID already includes its conflict.
    let conflicts = names.conflicts().into_iter();
    let new: Vec<String> = conflicts.filter(|conflict| !notes.iter().any(|note| note.starts_with(conflict))).collect();
    notes.extend(new);
    let inside = Ids { count: parts.tokens.len().max(model.vocab_size.unwrap_or_default()), path };
    let ids: HashMap<String, u32> =
        ids_by_text(&parts.tokens).into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
    let named = |key: &str| names.role(key).and_then(|text| ids.get(text)).copied();
    let claim = |key, file| move |id| Claim { id, key, file };
    let config = description_name(path);
    let special = &mut parts.special;
    let bos = inside.required(
        "bos",
        model.bos_token_id.map(claim("bos_token_id", config)).filter(|_| named("bos_token").is_none()),
    )?;
    // BERT classes have no bos token. In GGUF, the token at the start of their texts has this role.
    let first = named("cls_token").filter(|_| matches!(parts.algorithm, Algorithm::WordPiece { .. }));
    special.bos = named("bos_token").or(bos).or(first).or(special.bos);
    let model_ends = model.eos_token_ids.iter().copied().map(claim("eos_token_id", config));
    let generation = files.generation_config.as_ref();
    let generation = generation.map(|object| role_ids(object, "eos_token_id", GENERATION_CONFIG, path)).transpose()?;
    let generation_ends = generation.unwrap_or_default().into_iter().map(claim("eos_token_id", GENERATION_CONFIG));
    let claimed_ends: Vec<Claim> = model_ends.chain(generation_ends).collect();
    let eos = inside.required("eos", claimed_ends.first().copied().filter(|_| named("eos_token").is_none()))?;
    special.eos = named("eos_token").or(eos).or(special.eos);
    let padding = model.padding_token_id.map(claim("pad_token_id", config)).filter(|_| named("pad_token").is_none());
    special.padding = named("pad_token").or(padding.and_then(|padding| inside.welcome(padding, notes)));
    special.unknown = special.unknown.or_else(|| named("unk_token"));
    special.separator = named("sep_token");
    special.mask = named("mask_token").or(special.mask);
    special.end_of_generation.extend(claimed_ends.into_iter().filter_map(|end| inside.welcome(end, notes)));
    let eos = special.eos;
    let eos_ends_turn = END_OF_TURN.iter().any(|name| eos.is_some() && ids.get(*name).copied() == eos);
    let ends = special.end_of_generation.clone();
    let named_end = |names: &[&str]| {
        names.iter().filter_map(|name| ids.get(*name).copied()).find(|id| ends.contains(id) && Some(*id) != eos)
    };
    let named_turn_end = named_end(&END_OF_TURN).or_else(|| named_end(&NEXT_TURN));
    special.end_of_turn = special.end_of_turn.or_else(|| named_turn_end.filter(|_| !eos_ends_turn));
    special.end_of_message = named_end(&END_OF_MESSAGE);
    apply_flags(parts, files, model);
    Ok(())
}

/// Sets the tokens around a text by the flags of the tokenizer class or the rule of the model family. Vocabularies that
/// specify these tokens otherwise, for example in a post-processor, are not changed.
fn apply_flags(parts: &mut Parts, files: &TokenizerFiles, model: &ModelTokens) {
    let config = files.tokenizer_config.as_ref();
    let class = config.and_then(|config| config.get("tokenizer_class")).and_then(Value::as_str).unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    if files.ice_text.is_some() {
        return chatglm1::put_behind(parts, config);
    }
    if chatglm::is_here(files) {
        return chatglm::put_before(parts);
    }
    if sentinels::is_here(files, model) {
        (parts.prefix, parts.suffix) = (Vec::new(), parts.special.eos.into_iter().collect());
        return;
    }
    let from_json = files.tokenizer_json.is_some();
    let flagged = FLAGGED_CLASSES.iter().find(|(name, _)| *name == class).map(|(_, add_bos)| *add_bos);
    let default_bos = match flagged {
        Some(add_bos) => add_bos,
        None if from_json
            || files.merges.is_some()
            || files.tiktoken.is_some()
            || files.vocab_txt.is_some()
            || files.llama2c.is_some()
            || files.flm.is_some() =>
        {
            return;
        }
        None => true,
    };
    let flag = |key: &str| config.and_then(|config| config.get(key)).and_then(Value::as_bool);
    let side = |add: bool, id: Option<u32>| id.filter(|_| add).into_iter().collect();
    parts.prefix = side(flag("add_bos_token").unwrap_or(default_bos), parts.special.bos);
    parts.suffix = side(flag("add_eos_token").unwrap_or(false), parts.special.eos);
}
