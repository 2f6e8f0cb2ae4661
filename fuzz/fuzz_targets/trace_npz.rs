//! `trace_npz` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("trace_npz");
