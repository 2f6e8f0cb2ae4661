//! Random stories of fills, copies, events and synchronizations on several streams, beside a judge that keeps for each
//! stream the set of all work that it knows to be over. A story ends with the first race that the judge finds: the
//! library must have found one in that call and none before. A story without a race must leave the bytes of its
//! telling.

use crate::library::*;
use std::collections::BTreeSet;

const STREAMS: usize = 3;
const BLOCKS: usize = 4;
const BYTES: usize = 96;

/// One piece of work as the judge knows it: bytes of a block, and whether they are written.
struct Access {
    block: usize,
    from: usize,
    to: usize,
    writes: bool,
}

#[derive(Default)]
struct Judge {
    works: Vec<Vec<Access>>,
    known: [BTreeSet<usize>; STREAMS],
    host: BTreeSet<usize>,
    events: [Option<BTreeSet<usize>>; STREAMS],
    races: usize,
}

impl Judge {
    /// Whether a new work meets an earlier one that its stream does not know to be over.
    fn work(&mut self, stream: usize, accesses: Vec<Access>) {
        self.known[stream].extend(&self.host);
        let meets =
            |a: &Access, b: &Access| a.block == b.block && a.from < b.to && b.from < a.to && (a.writes || b.writes);
        let unknown = (0..self.works.len()).filter(|work| !self.known[stream].contains(work));
        let raced = unknown.filter(|&work| self.works[work].iter().any(|a| accesses.iter().any(|b| meets(a, b))));
        self.races += usize::from(raced.count() > 0);
        self.known[stream].insert(self.works.len());
        self.works.push(accesses);
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// The handles of a story, and the bytes as its telling leaves them.
struct Stage {
    blocks: [Pointer; BLOCKS],
    streams: [Pointer; STREAMS],
    events: [Pointer; STREAMS],
    bytes: [[u8; BYTES]; BLOCKS],
}

fn step(draw: &mut Draw, stage: &mut Stage, judge: &mut Judge, turn: usize) {
    let (stream, block) = (draw.below(STREAMS), draw.below(BLOCKS));
    let from = draw.below(BYTES - 1);
    let count = 1 + draw.below(BYTES - from);
    match draw.below(16) {
        0..3 => {
            fine(aclrtMemsetAsync(at(stage.blocks[block], from), count, turn as i32, count, stage.streams[stream]));
            stage.bytes[block][from..from + count].fill(turn as u8);
            judge.work(stream, vec![Access { block, from, to: from + count, writes: true }]);
        }
        3..6 => {
            let source = (block + 1 + draw.below(BLOCKS - 1)) % BLOCKS;
            let (target, origin) = (at(stage.blocks[block], from), at(stage.blocks[source], from));
            fine(aclrtMemcpyAsync(target, count, origin, count, 3, stage.streams[stream]));
            let copied = stage.bytes[source];
            stage.bytes[block][from..from + count].copy_from_slice(&copied[from..from + count]);
            let read = Access { block: source, from, to: from + count, writes: false };
            judge.work(stream, vec![read, Access { block, from, to: from + count, writes: true }]);
        }
        6..9 => {
            fine(aclrtRecordEvent(stage.events[stream], stage.streams[stream]));
            judge.known[stream].extend(&judge.host);
            judge.events[stream] = Some(judge.known[stream].clone());
        }
        9..14 => {
            let event = draw.below(STREAMS);
            if let Some(known) = judge.events[event].clone() {
                fine(aclrtStreamWaitEvent(stage.streams[stream], stage.events[event]));
                judge.known[stream].extend(known);
            }
        }
        _ => {
            fine(aclrtSynchronizeStream(stage.streams[stream]));
            let known = judge.known[stream].clone();
            judge.host.extend(known);
        }
    }
}

/// Tells a story up to its first race; gives the races that the library and the judge found.
fn tell(seed: u64, turns: usize, timing: &str) -> (usize, usize) {
    let run = Run::with(&format!(r#""timing": "{timing}", "seed": {seed}"#));
    let mut draw = Draw(seed);
    let mut stage = Stage {
        blocks: [(); BLOCKS].map(|()| device(BYTES)),
        streams: [(); STREAMS].map(|()| stream()),
        events: [(); STREAMS].map(|()| event()),
        bytes: [[0; BYTES]; BLOCKS],
    };
    stage.blocks.iter().for_each(|&block| fine(aclrtMemset(block, BYTES, 0, BYTES)));
    let mut judge = Judge::default();
    for turn in 0..turns {
        step(&mut draw, &mut stage, &mut judge, turn);
        if judge.races > 0 {
            break;
        }
    }
    fine(aclrtSynchronizeDevice());
    for (block, expected) in stage.blocks.iter().zip(&stage.bytes).filter(|_| judge.races == 0) {
        let mut found = [0u8; BYTES];
        fine(aclrtMemcpy(host(&mut found), BYTES, *block, BYTES, 2));
        assert_eq!(&found, expected, "seed {seed}, {timing}");
    }
    fine(aclrtResetDevice(0));
    (run.calls_with("race"), judge.races)
}

#[test]
fn what_is_found_is_what_a_judge_with_sets_finds() {
    let mut outcomes = [0; 2];
    for seed in 0..90 {
        let timing = ["none", "random", "late"][seed as usize % 3];
        let turns = [4, 8, 14, 40][seed as usize % 4];
        let (found, expected) = tell(seed, turns, timing);
        assert!(
            found == expected,
            "seed {seed}, {turns} turns, {timing}: {found} calls with races found, {expected} expected"
        );
        outcomes[usize::from(expected > 0)] += 1;
    }
    assert!(outcomes.iter().all(|&count| count >= 15), "stories without and with races: {outcomes:?}");
}
