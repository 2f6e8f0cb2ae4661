//! Numbers of things in messages.

use std::fmt::Display;

/// `1 node`, `2 nodes`: a number and what it counts, whose plural takes an s.
///
/// ```
/// use trueup_formats::counted;
///
/// assert_eq!([counted(0, "node"), counted(1, "node"), counted(2, "node")], ["0 nodes", "1 node", "2 nodes"]);
/// ```
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
