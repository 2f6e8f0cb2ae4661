//! Results of the attacks of one kind: a row of the table that the test prints. docs/durability.md sums the rows up.

use crate::scene::Held;

/// Counts of one kind of attack.
pub struct Tally {
    /// What was done.
    name: String,
    rounds: usize,
    old: usize,
    new: usize,
    nothing: usize,
    unopenable: usize,
    complaints: Vec<String>,
}

/// The head of the table.
pub const HEAD: &str = "| attack | rounds | old output held | new output held | nothing before, nothing after | set without its first file | partial, lost or other fault |\n|---|---|---|---|---|---|---|";

impl Tally {
    /// Nothing yet.
    pub fn new(name: impl Into<String>) -> Tally {
        let (rounds, old, new, nothing, unopenable) = (0, 0, 0, 0, 0);
        Tally { name: name.into(), rounds, old, new, nothing, unopenable, complaints: Vec::new() }
    }

    /// Counts one attack; `what` says which.
    pub fn add(&mut self, what: &str, held: Result<Held, String>) {
        self.rounds += 1;
        match held {
            Ok(Held::Old) => self.old += 1,
            Ok(Held::New) => self.new += 1,
            Ok(Held::Nothing) => self.nothing += 1,
            Ok(Held::Unopenable) => self.unopenable += 1,
            Err(problem) => self.complaints.push(format!("{}: {what}: {problem}", self.name)),
        }
    }

    /// Its row.
    pub fn row(&self) -> String {
        let Tally { name, rounds, old, new, nothing, unopenable, complaints } = self;
        format!("| {name} | {rounds} | {old} | {new} | {nothing} | {unopenable} | {} |", complaints.len())
    }

    /// A complaint where no attack was made at all.
    pub fn nothing_done(&self) -> Option<String> {
        (self.rounds == 0).then(|| format!("{}: there was no attack", self.name))
    }

    /// What went wrong.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }
}
