//! `llama2c` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("llama2c");
