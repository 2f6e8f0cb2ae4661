//! `tokenizer_config` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("tokenizer_config");
