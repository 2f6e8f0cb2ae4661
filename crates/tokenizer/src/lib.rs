//! Vocabularies: text to token ids and back, and chat templates.
//!
//! ```text
//! tokenizer.json ──┐                                            ┌─> Tokenizer ── encode, decode, stream
//! tokenizer.model ─┼─> Vocabulary (validated once) ─────────────┤
//! vocab.txt ... ───┤        ▲                                   └─> ChatTemplate ── messages to text
//! GGUF keys ───────┘        └── write_metadata / from_metadata: GGUF keys and back, same ids
//!
//! text ─ added tokens cut out ─ normalizer ─ pre-tokenizer ─ merging or the best cut ─ ids     (one way for every family)
//! ```
//!
//! Everything about how text is cut comes from the file: the normalizer and the pre-tokenizer of `tokenizer.json` are
//! read and run as they stand. The names that GGUF gives to pre-tokenizers are a table of the same descriptions
//! ([`pre_tokenizer_names`]); what a name cannot say is written beside it in keys of our own.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod added_files;
mod added_tokens;
mod bert_characters;
mod byte_alphabet;
mod character_map;
mod chat;
mod chat_source;
mod chatglm;
mod chatglm1;
mod config_types;
mod date;
mod decoder;
mod flm_vocabulary;
mod gguf_keys;
mod jinja;
mod json_components;
mod llama2c_vocabulary;
mod llama_settings;
mod merge;
mod merge_order;
mod normalizer;
mod pattern;
mod placement;
mod pre_tokenizer;
pub mod pre_tokenizer_names;
mod ranked;
mod role_ids;
mod rounds;
mod sentencepiece_model;
mod sentencepiece_normalizer;
mod sentinels;
mod slimmed;
mod source;
mod special_names;
mod special_tokens;
mod to_flm;
mod tokenizer;
mod tokenizer_json;
mod unigram;
mod vocab_json;
mod vocab_txt;
mod vocabulary;
mod word_piece;

pub use character_map::CharacterMap;
pub use chat::{ChatTemplate, Message};
pub use chat_source::chat_template;
pub use date::Date;
pub use decoder::{DecodeStream, Decoder};
pub use normalizer::Normalizer;
pub use pattern::{Behavior, Pattern};
pub use pre_tokenizer::{PreTokenizer, PrependScheme};
pub use role_ids::role_ids;
pub use rounds::KEYS as PROMPT_KEYS;
pub use source::ModelTokens;
pub use tokenizer::Tokenizer;
pub use unigram::UnigramRule;
pub use vocabulary::{AddedToken, Algorithm, Special, Token, TokenKind, Vocabulary};
