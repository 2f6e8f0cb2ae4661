//! `vocab_txt` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("vocab_txt");
