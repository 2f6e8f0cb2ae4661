//! Places of intermediate results in an arena.
//!
//! ```text
//!          node 0   1   2   3   4
//! offset 0   ██████████              attn_norm-0
//!        1       ██████████████      Qcur-0
//!        0               ███████     kq-0           (in the place of attn_norm-0)
//! ```
//!
//! Memory is reused as soon as its value has been used for the last time. Memory of small values is reused a few nodes
//! later, so that a device can compute independent neighbours at once.

use crate::device::ARENA_ALIGN_BYTES;

/// When a value needs its memory: from the step that writes it to the last that reads it, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lifetime {
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
}

/// How many more nodes the memory of a small value is kept: a layer's projections, biases, norms of heads, rotations
/// and stores stand so close together.
const NEIGHBOURS: usize = 12;

/// Larger values are of many tokens, and their nodes fill a device by themselves.
const SMALL_BYTES: usize = 256 << 10;

/// Offsets of values in one arena, and the arena's size.
#[derive(Debug)]
pub(super) struct Layout {
    /// One for each lifetime, a multiple of [`ARENA_ALIGN_BYTES`].
    pub offsets: Vec<usize>,
    pub arena_bytes: usize,
}

/// A part of the arena that is in use.
struct Taken {
    start: usize,
    end: usize,
    /// The last step that may not write here.
    last: usize,
}

/// Lays out values, which must be sorted by `first`: each into the smallest gap that holds it. Two that live at the
/// same step never share a byte, so the output of a step lies apart from its inputs.
pub(super) fn lay_out(lifetimes: &[Lifetime]) -> Layout {
    debug_assert!(lifetimes.is_sorted_by_key(|lifetime| lifetime.first));
    let mut taken: Vec<Taken> = Vec::new();
    let mut layout = Layout { offsets: Vec::with_capacity(lifetimes.len()), arena_bytes: 0 };
    for lifetime in lifetimes {
        taken.retain(|taken| taken.last >= lifetime.first);
        let bytes = lifetime.bytes.max(1).next_multiple_of(ARENA_ALIGN_BYTES);
        let start = smallest_gap(&taken, bytes);
        let end = start + bytes;
        let place = taken.partition_point(|taken| taken.start < start);
        let kept = if bytes <= SMALL_BYTES { NEIGHBOURS } else { 0 };
        taken.insert(place, Taken { start, end, last: lifetime.last + kept });
        layout.offsets.push(start);
        layout.arena_bytes = layout.arena_bytes.max(end);
    }
    layout
}

/// Start of the smallest gap between taken parts, sorted by start, that holds `bytes`; behind all of them when none
/// does.
fn smallest_gap(taken: &[Taken], bytes: usize) -> usize {
    let mut best: Option<(usize, usize)> = None;
    let mut free_from = 0;
    for part in taken {
        let gap = part.start - free_from;
        if gap >= bytes && best.is_none_or(|(size, _)| gap < size) {
            best = Some((gap, free_from));
        }
        free_from = part.end;
    }
    best.map_or(free_from, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lifetimes() -> impl Strategy<Value = Vec<Lifetime>> {
        let one = (0usize..5000, 0usize..40, 0usize..12);
        proptest::collection::vec(one, 0..60).prop_map(|list| {
            let live = |(bytes, first, length)| Lifetime { bytes, first, last: first + length };
            let mut lifetimes: Vec<Lifetime> = list.into_iter().map(live).collect();
            lifetimes.sort_by_key(|lifetime| lifetime.first);
            lifetimes
        })
    }

    proptest! {
        #[test]
        fn values_that_live_together_share_no_byte(lifetimes in lifetimes()) {
            let layout = lay_out(&lifetimes);
            for (i, (a, a_start)) in lifetimes.iter().zip(&layout.offsets).enumerate() {
                prop_assert!(a_start.is_multiple_of(ARENA_ALIGN_BYTES));
                prop_assert!(a_start + a.bytes <= layout.arena_bytes);
                for (b, b_start) in lifetimes.iter().zip(&layout.offsets).skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart = a_start + a.bytes <= *b_start || b_start + b.bytes <= *a_start;
                    prop_assert!(!together || apart, "{a:?} at {a_start}, {b:?} at {b_start}");
                }
            }
        }
    }

    #[test]
    fn memory_is_used_again() {
        let chain = |bytes| (0..20).map(|first| Lifetime { bytes, first, last: first + 1 }).collect::<Vec<Lifetime>>();
        assert_eq!(lay_out(&chain(1 << 20)).arena_bytes, 2 << 20, "two values live at a time");
        let layout = lay_out(&chain(1000));
        assert_eq!(layout.arena_bytes, 1024 * (2 + NEIGHBOURS), "small ones are kept for neighbors");
        for (place, offset) in layout.offsets.iter().enumerate() {
            assert!(!layout.offsets[place + 1..].iter().take(1 + NEIGHBOURS).any(|later| later == offset));
        }
    }

    #[test]
    fn the_smallest_gap_is_taken() {
        let live = |bytes, first, last| Lifetime { bytes, first, last };
        // Behind the neighbours of step 1 the gaps are 512 (at 0) and 256 (at 768).
        let end = 2 + NEIGHBOURS;
        let lifetimes = [live(512, 0, 1), live(256, 0, end), live(256, 0, 1), live(256, 0, end), live(256, end, end)];
        assert_eq!(lay_out(&lifetimes).offsets, [0, 512, 768, 1024, 768]);
    }
}
