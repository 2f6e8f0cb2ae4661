//! The `trueup` command.
fn main() {}
