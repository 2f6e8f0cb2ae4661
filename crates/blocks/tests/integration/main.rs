//! Codecs and data types: golden files, edge cases, properties.

mod decoders;
mod dtypes;
mod edge_cases;
mod encoders;
mod goldens;
mod properties;
