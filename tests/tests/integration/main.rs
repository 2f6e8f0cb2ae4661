//! Tests of several crates together, over all fixtures.

mod docs;
mod downloaded;
mod encoder_decoders;
mod encoders;
mod flm;
mod kernels;
mod long_rope;
mod models;
mod operators;
mod published;
mod quality;
mod quantized;
mod quantized_files;
mod recurrent;
mod rows;
mod stories;
mod texts;
mod traces;
mod traces_incomplete;
mod traces_llama_cpp;
mod variants;
mod verified;
