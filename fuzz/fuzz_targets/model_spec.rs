//! `model_spec` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("model_spec");
