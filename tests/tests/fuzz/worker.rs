//! The loop of one target: kept inputs, seeds, then changes of whatever gave a new answer.

use crate::attempt::{Attempts, Cost, kind_of};
use crate::{Request, kept, shrink};
use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;
use trueup_tests::fuzz::node::Node;
use trueup_tests::fuzz::random::Random;
use trueup_tests::fuzz::{Answer, Target, changed, target};

/// Kinds of failure after which a target stops.
const FAILURES_MAX: usize = 6;

/// Inputs of a kind that changes begin from; more take the places of others.
const CORPUS_MAX: usize = 1000;

/// Bytes of inputs of a kind beside the seeds: their fields take many times as much memory.
const CORPUS_BYTES: usize = 8 << 20;

/// What is known so far.
struct Loop {
    attempts: Attempts,
    random: Random,
    /// Seeds taken apart, and changed inputs that were accepted behind them.
    good: Vec<Node>,
    seeds: usize,
    /// Inputs that gave a new refusal.
    refused: Vec<Node>,
    answers: HashSet<String>,
    failures: HashSet<String>,
    inputs: u64,
    accepted: u64,
    worst: Cost,
}

/// Runs a target; whether nothing failed.
pub fn run(name: &str, folder: &Path, request: &Request) -> bool {
    let Some(target) = target(name) else {
        println!("no target is called {name}");
        return false;
    };
    let random = Random::named(request.seed, name);
    let mut looped = Loop::new(Attempts::new(target, folder), random);
    if let Some(path) = &request.input {
        let input = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (answer, cost) = looped.attempts.run(&input);
        println!("{name}: {answer:?}, {:.3} s, {} bytes", cost.seconds, cost.bytes);
        return answer.is_ok();
    }
    // Seeds first: what is made once for all inputs is no input's cost.
    let seeds = (target.seeds)();
    let kept = kept::inputs(target);
    for (file, input) in &kept {
        if let Some(problem) = looped.try_input(input) {
            println!("{name}: the kept input {file} fails again: {problem}");
        }
    }
    looped.plant(&seeds);
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < request.seconds && looped.failures.len() < FAILURES_MAX {
        looped.step();
    }
    looped.report(target, start.elapsed().as_secs_f64(), kept.len());
    looped.failures.is_empty()
}

impl Loop {
    fn new(attempts: Attempts, random: Random) -> Loop {
        Loop {
            attempts,
            random,
            good: Vec::new(),
            seeds: 0,
            refused: Vec::new(),
            answers: HashSet::new(),
            failures: HashSet::new(),
            inputs: 0,
            accepted: 0,
            worst: Cost::default(),
        }
    }

    /// Begins with good inputs. A grammar that does not give back what it took apart would change more than it means
    /// to, and a target that accepts none of its seeds would look into nothing.
    fn plant(&mut self, seeds: &[Vec<u8>]) {
        let target = self.attempts.target;
        let before = self.accepted;
        for seed in seeds {
            let node = (target.grammar)(seed);
            self.try_input(&node.bytes());
            self.try_input(seed);
            self.good.push(node);
        }
        if self.accepted == before && self.failures.is_empty() {
            let first = seeds.first().map_or(&[][..], Vec::as_slice);
            let problem = format!("no seed is accepted; of the first it says {:?}", self.attempts.run(first).0);
            self.fail(&problem, first);
        }
        self.seeds = self.good.len();
    }

    /// One changed input. It is made of a seed half of the time; what is refused already is seldom refused for
    /// something else.
    fn step(&mut self) {
        let corpus = match self.random.below(8) {
            0 if !self.refused.is_empty() => &self.refused,
            1..=3 => &self.good,
            _ => &self.good[..self.seeds],
        };
        let place = self.random.below(corpus.len());
        let input = changed(self.attempts.target, &corpus[place], &self.good, &mut self.random);
        let (known, accepted) = (self.answers.len(), self.accepted);
        self.try_input(&input);
        let (corpus, first) = match (self.accepted > accepted, self.answers.len() > known) {
            (true, _) => (&mut self.good, self.seeds),
            (false, true) => (&mut self.refused, 0),
            (false, false) => return,
        };
        let node = (self.attempts.target.grammar)(&input);
        let most = CORPUS_MAX.min(first + 1 + CORPUS_BYTES / input.len().max(1));
        if corpus.len() < most {
            corpus.push(node);
        } else {
            let place = first + self.random.below(corpus.len() - first);
            corpus[place] = node;
        }
    }

    /// Tries an input; says what failed.
    fn try_input(&mut self, input: &[u8]) -> Option<String> {
        let (said, cost) = self.attempts.run(input);
        self.inputs += 1;
        self.worst.seconds = self.worst.seconds.max(cost.seconds);
        self.worst.bytes = self.worst.bytes.max(cost.bytes);
        match said {
            Ok(Answer::Accepted(what)) => {
                self.accepted += 1;
                self.answers.insert(what.to_owned());
                None
            }
            Ok(Answer::Refused(problem)) => {
                self.answers.insert(kind_of(&problem));
                None
            }
            Err(problem) => {
                self.fail(&problem, input);
                Some(problem)
            }
        }
    }

    /// Says a failure once, with an input that is cut as small as it still fails so.
    fn fail(&mut self, problem: &str, input: &[u8]) {
        let kind = kind_of(problem);
        if !self.failures.insert(kind.clone()) {
            return;
        }
        let fails = |input: &[u8]| self.attempts.run(input).0.is_err_and(|problem| kind_of(&problem) == kind);
        let small = shrink::shrink(self.attempts.target, input, fails);
        let target = self.attempts.target;
        println!("{}: {problem}\n  {}", target.name, kept::keep(target, &small));
    }

    fn report(&self, target: &Target, seconds: f64, kept: usize) {
        let share = 100.0 * self.accepted as f64 / self.inputs.max(1) as f64;
        println!(
            "{}: {} inputs in {seconds:.0} s, {share:.0}% accepted, {} answers, {kept} kept, at most {:.2} s and {:.1} MB, {} failures",
            target.name,
            self.inputs,
            self.answers.len(),
            self.worst.seconds,
            self.worst.bytes as f64 / 1e6,
            self.failures.len()
        );
    }
}
