//! `ice_text` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("ice_text");
