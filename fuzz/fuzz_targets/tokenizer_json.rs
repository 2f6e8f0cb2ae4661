//! `tokenizer_json` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("tokenizer_json");
