//! The tokenizer class of T5: sentinel tokens after the pieces of a sentencepiece file, and `</s>` after a text.
//!
//! ```text
//! pieces of spiece.model | <extra_id_99> ... <extra_id_1> <extra_id_0>        text ids </s>
//! ```
//!
//! A sentencepiece file has no sentinels. `extra_ids` of `tokenizer_config.json` is their number, and the last ID is
//! that of `<extra_id_0>`, as in `T5TokenizerFast` of transformers.

use crate::added_files::plain;
use crate::source::ModelTokens;
use crate::special_names::{RoleDefault, SpecialNames};
use crate::vocab_json::named_class;
use crate::vocabulary::{AddedToken, TOKENS_MAX, Token};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::{Error, Result, TokenizerFiles, quote};

/// Tokenizer classes with sentinels.
const CLASSES: [&str; 2] = ["T5Tokenizer", "MT5Tokenizer"];
/// Model types whose tokenizer is of such a class if no file names a class.
const MODEL_TYPES: [&str; 4] = ["t5", "longt5", "mt5", "umt5"];
/// Number of sentinels if no file has it.
const COUNT_DEFAULT: u64 = 100;
/// The largest number of sentinels that is read.
const COUNT_MAX: usize = 1 << 14;
const KEY: &str = "extra_ids";
/// Tokens of the class for roles that no file names.
const ROLES: &[RoleDefault] =
    &[("eos_token", "</s>", false), ("unk_token", "<unk>", false), ("pad_token", "<pad>", false)];
const START: &str = "<extra_id_";

/// Whether a sentencepiece file is read for a class with sentinels.
pub(crate) fn is_here(files: &TokenizerFiles, model: &ModelTokens) -> bool {
    let is_of_type = || model.model_type.as_deref().is_some_and(|kind| MODEL_TYPES.contains(&kind));
    let is_of_class = named_class(files, model).map_or_else(is_of_type, |class| CLASSES.contains(&class));
    files.tokenizer_json.is_none() && files.tokenizer_model.is_some() && is_of_class
}

/// The special tokens that the files name, with those of the class.
pub(crate) fn names(files: &TokenizerFiles) -> SpecialNames<'_> {
    SpecialNames::of(files).with_defaults(ROLES)
}

/// The sentinels of a vocabulary with these pieces, without those that it has already.
///
/// # Errors
/// A number that is not possible, or that differs from the number of sentinels in the list of special tokens.
pub(crate) fn tokens(pieces: &[Token], files: &TokenizerFiles, path: &Path) -> Result<Vec<AddedToken>> {
    let value = files.tokenizer_config.as_ref().and_then(|config| config.get(KEY)).filter(|value| !value.is_null());
    let most = TOKENS_MAX.saturating_sub(pieces.len()).min(COUNT_MAX);
    let named = SpecialNames::of(files).texts().into_iter().filter(|text| text.contains(START)).count();
    let problem = |problem: String| {
        let error = Error::new(path, problem).at(format!("tokenizer_config.json, {KEY}"));
        let remedy = if value.is_some() { "correct extra_ids".to_owned() } else { format!("set extra_ids to {named}") };
        Err(error.help(format!("{remedy}, or use the files that belong to this model")))
    };
    let count = value.map_or(Some(COUNT_DEFAULT), Value::as_u64).and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|count| *count <= most) else {
        let found = value.map(Value::to_string).unwrap_or_default();
        return problem(format!("expected a number from 0 to {most}, found {}", quote(&found)));
    };
    if count > 0 && named > 0 && named != count {
        let found =
            value.map_or_else(|| format!("no such key (the default is {COUNT_DEFAULT})"), |_| count.to_string());
        return problem(format!(
            "expected {named}, the number of `{START}N>` tokens among the special tokens, found {found}"
        ));
    }
    let sentinel = |number: usize| {
        let place = pieces.len().saturating_add(count).checked_sub(number)?.checked_sub(1)?;
        Some(plain(u32::try_from(place).ok()?, &format!("{START}{number}>"), true))
    };
    let pieces: HashSet<&str> =
        pieces.iter().map(|piece| piece.text.as_str()).filter(|text| text.starts_with(START)).collect();
    Ok((0..count).filter_map(sentinel).filter(|token| !pieces.contains(token.content.as_str())).collect())
}

/// A sentence about settings of the class that are not applied, if a file changes them.
pub(crate) fn note(files: &TokenizerFiles) -> Option<String> {
    let config = files.tokenizer_config.as_ref()?;
    let is_false = |key: &&str| config.get(*key).and_then(Value::as_bool) == Some(false);
    let key = ["legacy", "add_prefix_space"].into_iter().find(is_false)?;
    Some(format!(
        "tokenizer_config.json: {key} is ignored for a SentencePiece file of this class; texts with special tokens can get \
         other IDs than in transformers, and a tokenizer.json of the model avoids this"
    ))
}
