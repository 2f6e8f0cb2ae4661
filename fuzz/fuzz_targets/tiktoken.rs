//! `tiktoken` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("tiktoken");
