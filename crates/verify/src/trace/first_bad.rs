//! The failing node that stands first in the graph, over all steps.
//!
//! ```text
//!   step 0    Qcur-1 hidden in noise    Qcur_rope-1 fails
//!   step 1    Qcur-1 fails              Qcur_rope-1 fails         Qcur-1 of step 1 is the first
//! ```
//!
//! What is wrong in a step reaches later steps through the KV cache, so only nodes behind it in the graph.

use crate::record::Place;
use crate::verdict::Verdict;

/// Where a node stands among those of all steps: the place of a node, and how far behind it.
pub(super) type Rank = (usize, usize);

/// A failing node in the step in which it failed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct FirstBad {
    /// Its place in the report.
    pub place: usize,
    pub verdict: Verdict,
    /// The likely cause, a clause without a full stop.
    pub cause: Option<String>,
    /// Whether that is a cause, and not only a description of the errors.
    pub is_cause: bool,
    /// The worst element of the step.
    pub worst: Option<Place>,
    /// Nodes before it that nothing was compared of.
    pub before: Vec<String>,
}

/// The order of nodes, and the first that failed.
#[derive(Debug, Default)]
pub(super) struct FirstFailure {
    ranks: Vec<Rank>,
    found: Option<FirstBad>,
}

impl FirstFailure {
    /// Adds a node at the next place; `previous` is the place of the one before it in the graph of its step.
    pub fn expect(&mut self, previous: Option<usize>) {
        let rank = match previous.and_then(|place| Some((place, *self.ranks.get(place)?))) {
            // Nodes that only a later step has stand behind the one before them.
            Some((place, (known, behind))) if place + 1 != self.ranks.len() || behind > 0 => (known, behind + 1),
            Some(_) | None => (self.ranks.len(), 0),
        };
        self.ranks.push(rank);
    }

    /// Whether a node failed that stands no later than that one.
    pub fn is_before(&self, place: usize) -> bool {
        self.found.as_ref().is_some_and(|found| self.ranks.get(found.place) <= self.ranks.get(place))
    }

    /// Takes note of a failure, if it is the first in the graph and, of one node, of the first step.
    pub fn add(&mut self, failure: FirstBad) {
        if !self.is_before(failure.place) {
            self.found = Some(failure);
        }
    }

    /// The first.
    pub fn found(self) -> Option<FirstBad> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(place: usize) -> FirstBad {
        FirstBad {
            place,
            verdict: Verdict::StructuralBug,
            cause: None,
            is_cause: false,
            worst: None,
            before: Vec::new(),
        }
    }

    #[test]
    fn the_first_is_that_of_the_graph_and_not_of_the_step() {
        let mut first = FirstFailure::default();
        [None, Some(0), Some(1)].into_iter().for_each(|previous| first.expect(previous));
        // A later step has two nodes more behind place 0.
        [Some(0), Some(3)].into_iter().for_each(|previous| first.expect(previous));
        assert_eq!(first.ranks, [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2)]);
        first.add(failure(2));
        assert!(first.is_before(2) && !first.is_before(1) && !first.is_before(3));
        first.add(failure(4));
        first.add(failure(1));
        assert_eq!(first.found().map(|found| found.place), Some(4));
    }
}
