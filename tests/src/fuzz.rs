//! Hostile inputs by thousands: what reads files and texts is given inputs that change in one to four fields, and must
//! say so in a sentence, or accept them and keep its own laws.
//!
//! ```text
//!  seeds ── grammar ──▶ tree of fields ── mutate ──▶ bytes ──▶ Target::run ──▶ refused, accepted, or a law is broken
//!   ▲                                                              │
//!   └──────────── inputs with an answer that is new ◀──────────────┘
//! ```
//!
//! The loop of `cargo test -p trueup-tests --test fuzz` and the targets of `fuzz/`, which libFuzzer drives by coverage,
//! share all of it. docs/fuzzing.md says how to run them and what each target checks.

pub mod grammar;
pub mod mutate;
pub mod node;
pub mod random;
mod seeds;
mod target;

use mutate::{Sources, mutate};
use node::Node;
use random::Random;
use std::fmt::Display;
use std::path::Path;

/// What a reader said of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It was read, and all laws hold; with what it turned out to be, if there is more than one way.
    Accepted(&'static str),
    /// One sentence.
    Refused(String),
}

/// Something that reads.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Takes an input apart.
    pub grammar: fn(&[u8]) -> Node,
    /// Texts that mean something there.
    pub words: &'static [&'static str],
    /// Gives an input to the reader; files go into the empty folder. The error is a law that is broken.
    pub run: fn(&[u8], &Path) -> Result<Answer, String>,
}

/// All targets.
pub const TARGETS: &[Target] = target::TARGETS;

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Another input, made of `input` and of parts of the donors.
pub fn changed(target: &Target, input: &Node, donors: &[Node], random: &mut Random) -> Vec<u8> {
    mutate(input, &Sources { donors, words: target.words }, random)
}

/// Characters of a sentence at most.
const SENTENCE_CHARS_MAX: usize = 800;

/// A refusal, which must be one sentence that is safe to print.
fn refused(problem: &dyn Display) -> Result<Answer, String> {
    let sentence = problem.to_string();
    if sentence.trim().is_empty() {
        return Err("it was refused without a word".to_owned());
    }
    if let Some(c) = sentence.chars().find(|c| moves_terminal(*c)) {
        return Err(format!("the sentence has {}: {}", c.escape_unicode(), sentence.escape_debug()));
    }
    match sentence.chars().count() {
        count if count > SENTENCE_CHARS_MAX => Err(format!("the sentence has {count} characters: {sentence}")),
        _ => Ok(Answer::Refused(sentence)),
    }
}

/// Control characters and those that change the direction of text.
fn moves_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Fails where a law does not hold.
fn law(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// A law that something later accepts what something earlier did.
fn later<T>(result: Result<T, impl Display>, what: &str) -> Result<T, String> {
    result.map_err(|problem| format!("{what}: {problem}"))
}
