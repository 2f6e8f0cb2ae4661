//! The C surface: what a program finds under the vendor's names. Each entry catches panics and turns refusals into
//! codes.

mod meta;
mod runtime;
