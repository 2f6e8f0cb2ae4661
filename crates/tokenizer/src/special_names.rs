//! Which tokens the small files name for a role, by the rule of transformers 4.57.
//!
//! ```text
//! tokenizer_config.json has added_tokens_decoder ── its roles; special_tokens_map.json fills gaps only
//!                          has none             ── special_tokens_map.json goes before it
//! ```

use crate::added_files::plain;
use crate::vocabulary::AddedToken;
use serde_json::{Map, Value};
use std::collections::HashSet;
use trueup_formats::{TokenizerFiles, quote};

/// Keys of roles, in the order in which new tokens get ids.
const ROLES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// A list of further special tokens, and an object of them.
const MORE: &str = "additional_special_tokens";
const EXTRA: &str = "extra_special_tokens";

/// A token that a tokenizer class has for a role unless a file names one: its role, its text, and whether it takes
/// the white space to its left.
pub(crate) type RoleDefault = (&'static str, &'static str, bool);

/// The special tokens that files name.
pub(crate) struct SpecialNames<'f> {
    config: Option<&'f Map<String, Value>>,
    map: Option<&'f Map<String, Value>>,
    /// Whether `tokenizer_config.json` lists its added tokens.
    has_decoder: bool,
    defaults: &'static [RoleDefault],
}

impl<'f> SpecialNames<'f> {
    /// Those of the files beside a model.
    pub(crate) fn of(files: &'f TokenizerFiles) -> SpecialNames<'f> {
        let (config, map) = (files.tokenizer_config.as_ref(), files.special_tokens_map.as_ref());
        let has_decoder = config.is_some_and(|config| config.contains_key("added_tokens_decoder"));
        SpecialNames { config, map, has_decoder, defaults: &[] }
    }

    /// No names.
    pub(crate) fn none() -> SpecialNames<'f> {
        SpecialNames { config: None, map: None, has_decoder: false, defaults: &[] }
    }

    /// With the tokens of a tokenizer class.
    pub(crate) fn with_defaults(self, defaults: &'static [RoleDefault]) -> SpecialNames<'f> {
        SpecialNames { defaults, ..self }
    }

    /// The text of the token with a role.
    pub(crate) fn role(&self, key: &str) -> Option<&'f str> {
        let of = |object: Option<&'f Map<String, Value>>| token_text(object?.get(key)?);
        let (first, second) = if self.has_decoder { (self.config, self.map) } else { (self.map, self.config) };
        of(first).or_else(|| of(second)).or_else(|| self.default_of(key).map(|(_, text, _)| *text))
    }

    /// Tokens that become special, in the order in which those without an id get one. Their ids are not known yet.
    pub(crate) fn tokens(&self) -> Vec<AddedToken> {
        let mut tokens: Vec<AddedToken> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let roles =
            ROLES.iter().filter_map(|key| self.value(key).or_else(|| Some(default_token(self.default_of(key)?))));
        let lists = self.values(MORE).and_then(Value::as_array).into_iter().flatten().filter_map(named_token);
        let extra = self.values(EXTRA).and_then(Value::as_object).into_iter().flatten();
        for token in roles.chain(lists).chain(extra.filter_map(|(_, value)| named_token(value))) {
            if !token.content.is_empty() && seen.insert(token.content.clone()) {
                tokens.push(token);
            }
        }
        tokens
    }

    /// The texts of [`SpecialNames::tokens`].
    pub(crate) fn texts(&self) -> HashSet<String> {
        self.tokens().into_iter().map(|token| token.content).collect()
    }

    /// Notes on roles for which the two files name different tokens.
    pub(crate) fn conflicts(&self) -> Vec<String> {
        ROLES.iter().filter_map(|key| self.conflict(key)).collect()
    }

    /// The note on a role for which the two files name different tokens.
    pub(crate) fn conflict(&self, key: &str) -> Option<String> {
        let text = |object: &'f Map<String, Value>| object.get(key).and_then(token_text);
        let (config, map) = (text(self.config?)?, text(self.map?)?);
        let (shown, other, used) = (quote(config), quote(map), quote(self.role(key).unwrap_or_default()));
        (config != map).then(|| {
            format!(
                "{key} is \"{shown}\" in tokenizer_config.json and \"{other}\" in special_tokens_map.json; \"{used}\" is used, \
                 as in transformers"
            )
        })
    }

    fn default_of(&self, key: &str) -> Option<&'static RoleDefault> {
        // A role that is null in a file has no token, whatever the class says.
        let is_null = [self.config, self.map].into_iter().flatten().any(|object| object.contains_key(key));
        self.defaults.iter().find(|(role, ..)| *role == key && !is_null)
    }

    /// What transformers has for a role.
    fn value(&self, key: &str) -> Option<AddedToken> {
        let value = self.values(key)?;
        let takes_space = self.defaults.iter().any(|(role, _, lstrip)| *role == key && *lstrip);
        named_token(value)
            .map(|token| AddedToken { lstrip: token.lstrip || (takes_space && value.is_string()), ..token })
    }

    fn values(&self, key: &str) -> Option<&'f Value> {
        let of = |object: Option<&'f Map<String, Value>>| object?.get(key).filter(|value| !value.is_null());
        match self.has_decoder {
            true => of(self.config),
            false => of(self.map).or_else(|| of(self.config)),
        }
    }
}

/// A token written as text or as an object with `content`.
pub(crate) fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// A special token as a file names it; its id is not known yet.
fn named_token(value: &Value) -> Option<AddedToken> {
    let token = plain(0, token_text(value)?, true);
    let flag = |key: &str, default: bool| value.get(key).and_then(Value::as_bool).unwrap_or(default);
    let normalized = flag("normalized", false);
    Some(AddedToken {
        single_word: flag("single_word", false),
        lstrip: flag("lstrip", false),
        rstrip: flag("rstrip", false),
        normalized,
        ..token
    })
}

fn default_token((_, text, lstrip): &RoleDefault) -> AddedToken {
    AddedToken { lstrip: *lstrip, ..plain(0, text, true) }
}
