//! Merging: symbols of a word become tokens, best pair first, in n log n steps.
//!
//! ```text
//! symbols   h · e · l · l · o       queue by (rank, place)
//!           h · e · ll · o          "l l" had the best rank
//!           he · ll · o             stale entries of the queue are recognised by what they would make
//! ```
//!
//! One loop serves both families; what differs is which pair is a candidate and how good it is.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A stretch of the word: which bytes, and its token if it is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Symbol {
    pub id: Option<u32>,
    pub range: Range<usize>,
}

/// What a pair would become, and how early: a smaller rank goes first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate {
    pub rank: f64,
    pub result: u32,
}

/// A place in the queue.
struct Entry {
    rank: f64,
    left: usize,
    result: u32,
    /// Where both together end: a symbol that has grown since makes the entry stale. Where they begin does not change.
    end: usize,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives the greatest first: the smallest rank, of equal ones the leftmost.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.rank.total_cmp(&self.rank).then_with(|| other.left.cmp(&self.left))
    }
}

/// A symbol in the list of those that are left. A text may have a million of them, so neighbours are numbers, [`NONE`]
/// where there is none.
struct Link {
    symbol: Option<Symbol>,
    previous: usize,
    next: usize,
}

const NONE: usize = usize::MAX;

/// Merges adjacent symbols until no candidate is left. `passed` sees each token that stands for a while, in their
/// order.
pub(crate) fn merge(
    symbols: Vec<Symbol>,
    candidate: impl Fn(&Symbol, &Symbol) -> Option<Candidate>,
    mut passed: impl FnMut(u32),
) -> Vec<Symbol> {
    let count = symbols.len();
    let mut links: Vec<Link> = symbols
        .into_iter()
        .enumerate()
        .map(|(place, symbol)| Link {
            symbol: Some(symbol),
            previous: place.checked_sub(1).unwrap_or(NONE),
            next: place.checked_add(1).filter(|next| *next < count).unwrap_or(NONE),
        })
        .collect();
    let mut queue = BinaryHeap::with_capacity(count);
    for left in 0..count {
        queue.extend(entry(&links, left, &candidate));
    }
    while let Some(next) = queue.pop() {
        if let Some((previous, merged)) = apply(&mut links, &next) {
            passed(next.result);
            queue.extend(entry(&links, previous, &candidate));
            queue.extend(entry(&links, merged, &candidate));
        }
    }
    drop(queue);
    let mut left = Vec::with_capacity(links.iter().filter(|link| link.symbol.is_some()).count());
    left.extend(links.into_iter().filter_map(|link| link.symbol));
    left
}

/// The queue entry of the pair that begins at `left`.
fn entry(links: &[Link], left: usize, candidate: impl Fn(&Symbol, &Symbol) -> Option<Candidate>) -> Option<Entry> {
    let first = links.get(left)?;
    let (a, b) = (first.symbol.as_ref()?, links.get(first.next)?.symbol.as_ref()?);
    let found = candidate(a, b)?;
    Some(Entry { rank: found.rank, left, result: found.result, end: b.range.end })
}

/// Merges the pair of an entry, unless one of its symbols is gone or has grown. Returns the neighbours to look at
/// again.
fn apply(links: &mut [Link], entry: &Entry) -> Option<(usize, usize)> {
    let first = links.get(entry.left)?;
    let right = first.next;
    let (a, b) = (first.symbol.as_ref()?, links.get(right)?.symbol.as_ref()?);
    if b.range.end != entry.end {
        return None;
    }
    let merged = Symbol { id: Some(entry.result), range: a.range.start..entry.end };
    let second = links.get_mut(right)?;
    second.symbol = None;
    let after = second.next;
    if let Some(after) = links.get_mut(after) {
        after.previous = entry.left;
    }
    let first = links.get_mut(entry.left)?;
    first.symbol = Some(merged);
    first.next = after;
    Some((first.previous, entry.left))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow readable twin: look at every pair, merge the best, begin again.
    fn merge_slowly(
        mut symbols: Vec<Symbol>,
        candidate: impl Fn(&Symbol, &Symbol) -> Option<Candidate>,
    ) -> Vec<Symbol> {
        loop {
            let mut best: Option<(usize, Candidate)> = None;
            for (place, pair) in symbols.windows(2).enumerate() {
                if let Some(found) = candidate(&pair[0], &pair[1])
                    && best.is_none_or(|(_, best)| found.rank < best.rank)
                {
                    best = Some((place, found));
                }
            }
            let Some((place, found)) = best else { return symbols };
            let right = symbols.remove(place + 1);
            let range = symbols[place].range.start..right.range.end;
            symbols[place] = Symbol { id: Some(found.result), range };
        }
    }

    #[test]
    fn fast_equals_slow() {
        let mut state: u64 = 7;
        for case in 0..300 {
            let mut random = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                state >> 33
            };
            let text: Vec<u8> = (0..random() % 40).map(|_| b"aab"[(random() % 3) as usize]).collect();
            let symbols: Vec<Symbol> =
                (0..text.len()).map(|i| Symbol { id: Some(u32::from(text[i])), range: i..i + 1 }).collect();
            let salt = random();
            // Any function of the merged text is a set of merges; some have equal ranks.
            let candidate = |a: &Symbol, b: &Symbol| {
                let merged = &text[a.range.start..b.range.end];
                let hash = merged.iter().fold(salt, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                (hash % 3 != 0 && merged.len() < 9)
                    .then_some(Candidate { rank: (hash % 5) as f64, result: (hash % 1000) as u32 })
            };
            assert_eq!(merge(symbols.clone(), candidate, |_| ()), merge_slowly(symbols, candidate), "case {case}");
        }
    }
}
