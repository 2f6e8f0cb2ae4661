//! `attestation` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("attestation");
