//! The operators through the C surface: results against formulas in f64, and what is refused.

#![allow(unsafe_code)]

mod card;
mod elements;
mod moving;
mod networks;
mod phases;
mod products;
