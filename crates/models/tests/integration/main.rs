//! Graphs and model configurations of every architecture.

mod description;
mod encoder_decoders;
mod encoders;
mod faults;
mod graphs;
mod notes;
