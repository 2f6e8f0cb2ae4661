//! `legacy` and `add_prefix_space` of `tokenizer_config.json`, for a vocabulary from `tokenizer.model` alone.
//!
//! | `legacy` | `add_prefix_space` | where `▁` is added |
//! |---|---|---|
//! | true, null or absent | true or absent | before each part of the text between added tokens |
//! | false | true or absent | before the start of the text only |
//! | any | false or null | nowhere |
//!
//! The rule of `LlamaConverter` in `convert_slow_tokenizer.py` of transformers, which is used for `LlamaTokenizer`.
//! Other classes do not have these keys, or use them in another way.

use crate::decoder::Decoder;
use crate::pre_tokenizer::{PreTokenizer, PrependScheme};
use crate::sentencepiece_model::space_normalizer;
use crate::sentencepiece_normalizer::MARK;
use crate::vocab_json::named_class;
use crate::vocabulary::{Algorithm, Parts};
use crate::{normalizer::Normalizer, source::ModelTokens};
use trueup_formats::TokenizerFiles;

/// Model types whose tokenizer class is `LlamaTokenizer` if no file names a class.
const MODEL_TYPES: [&str; 3] = ["llama", "mistral", "mixtral"];

/// Applies the two keys to the parts that were read from `tokenizer.model`.
pub(crate) fn apply(parts: &mut Parts, files: &TokenizerFiles, model: &ModelTokens) {
    let Some(config) = files.tokenizer_config.as_ref().filter(|_| !files.is_replaced) else { return };
    let is_llama = match named_class(files, model) {
        Some(class) => class == "LlamaTokenizer",
        None => model.model_type.as_deref().is_some_and(|kind| MODEL_TYPES.contains(&kind)),
    };
    let is_own_rule = matches!(parts.normalizer, Some(Normalizer::Sentencepiece { .. }));
    let flag = |key: &str| config.get(key).and_then(serde_json::Value::as_bool);
    let is_null = |key: &str| config.get(key).is_some_and(serde_json::Value::is_null);
    let legacy = flag("legacy");
    let prefix = if is_null("add_prefix_space") { Some(false) } else { flag("add_prefix_space") };
    let is_set = legacy == Some(false) || prefix.is_some();
    if !is_llama || is_own_rule || !is_set || !matches!(parts.algorithm, Algorithm::Scores) {
        return;
    }
    let adds_prefix = prefix.unwrap_or(true);
    parts.decoder = Decoder::sentencepiece(adds_prefix);
    if legacy.unwrap_or(true) {
        parts.normalizer = Some(space_normalizer(adds_prefix, false));
        return;
    }
    let prepend_scheme = if adds_prefix { PrependScheme::First } else { PrependScheme::Never };
    parts.normalizer = None;
    parts.pre_tokenizer = Some(PreTokenizer::Metaspace { replacement: MARK, prepend_scheme, split: false });
}
