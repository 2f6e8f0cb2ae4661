//! Tokenizers and chat templates from files, compared with other programs and with damaged files.

mod ends;
mod family_templates;
mod family_tokenizers;
mod file_conflicts;
mod goldens;
mod hostile;
mod many_added_tokens;
mod pre_tokenizer_names;
mod sentencepiece;
mod sentinels;
mod templates;
mod word_piece;
