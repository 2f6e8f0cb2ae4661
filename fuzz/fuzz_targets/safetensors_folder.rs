//! `safetensors_folder` of tests/src/fuzz.
#![no_main]

trueup_fuzz::fuzz!("safetensors_folder");
