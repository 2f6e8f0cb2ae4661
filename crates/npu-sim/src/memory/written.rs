//! Which bytes were ever written: a bit each, kept for 64 KiB at a time, and only where some were written and some not.

/// Bytes of a piece.
const PIECE: u64 = 1 << 16;
const WORDS: usize = (PIECE / 64) as usize;

#[derive(Debug, Clone, Default)]
enum Bits {
    /// Nobody was here.
    #[default]
    Untouched,
    /// Some were written.
    Some(Box<[u64; WORDS]>),
    /// All were.
    All,
}

/// The written bytes of a region.
#[derive(Debug, Default)]
pub struct Written {
    pieces: Vec<Bits>,
}

/// The bits of a word that lie in a range of bits.
fn mask(word: u64, from: u64, to: u64) -> u64 {
    let (low, high) = (from.saturating_sub(word * 64).min(64), to.saturating_sub(word * 64).min(64));
    let below = |bits: u64| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    below(high) & !below(low)
}

/// The parts of a range by piece: piece, first and last byte in it.
fn parts(from: u64, to: u64) -> impl Iterator<Item = (usize, u64, u64)> {
    (from / PIECE..to.div_ceil(PIECE)).map(move |piece| {
        let start = piece * PIECE;
        (piece as usize, from.saturating_sub(start), (to - start).min(PIECE))
    })
}

impl Written {
    fn piece(&mut self, index: usize) -> &mut Bits {
        if self.pieces.len() <= index {
            self.pieces.resize(index + 1, Bits::Untouched);
        }
        &mut self.pieces[index]
    }

    /// The whole pieces of a range that nobody has reached before; from now on they count as reached.
    pub fn reach(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut fresh = Vec::new();
        for (index, _, _) in parts(from, to) {
            let piece = self.piece(index);
            if matches!(piece, Bits::Untouched) {
                *piece = Bits::Some(Box::new([0; WORDS]));
                fresh.push((index as u64 * PIECE, (index as u64 + 1) * PIECE));
            }
        }
        fresh
    }

    /// Marks bytes as written.
    pub fn write(&mut self, from: u64, to: u64) {
        for (index, from, to) in parts(from, to) {
            let piece = self.piece(index);
            if to - from == PIECE {
                *piece = Bits::All;
                continue;
            }
            if matches!(piece, Bits::Untouched) {
                *piece = Bits::Some(Box::new([0; WORDS]));
            }
            if let Bits::Some(words) = piece {
                (from / 64..to.div_ceil(64)).for_each(|word| words[word as usize] |= mask(word, from, to));
            }
        }
    }

    /// The first byte of a range that was never written.
    pub fn first_unwritten(&self, from: u64, to: u64) -> Option<u64> {
        parts(from, to).find_map(|(index, from, to)| {
            let start = index as u64 * PIECE;
            match self.pieces.get(index).unwrap_or(&Bits::Untouched) {
                Bits::All => None,
                Bits::Untouched => Some(start + from),
                Bits::Some(words) => (from / 64..to.div_ceil(64)).find_map(|word| {
                    let missing = mask(word, from, to) & !words[word as usize];
                    (missing != 0).then(|| start + word * 64 + u64::from(missing.trailing_zeros()))
                }),
            }
        })
    }

    /// The runs of written bytes in a range.
    pub fn runs(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut at = from;
        while at < to {
            match self.first_unwritten(at, to) {
                None => {
                    runs.push((at, to));
                    break;
                }
                Some(end) if end > at => {
                    runs.push((at, end));
                    at = end;
                }
                Some(hole) => at = self.first_written(hole, to),
            }
        }
        runs
    }

    fn first_written(&self, from: u64, to: u64) -> u64 {
        let found = parts(from, to).find_map(|(index, from, to)| {
            let start = index as u64 * PIECE;
            match self.pieces.get(index).unwrap_or(&Bits::Untouched) {
                Bits::All => Some(start + from),
                Bits::Untouched => None,
                Bits::Some(words) => (from / 64..to.div_ceil(64)).find_map(|word| {
                    let there = mask(word, from, to) & words[word as usize];
                    (there != 0).then(|| start + word * 64 + u64::from(there.trailing_zeros()))
                }),
            }
        });
        found.unwrap_or(to)
    }

    /// Makes bytes of a range unwritten again.
    pub fn forget(&mut self, from: u64, to: u64) {
        for (index, from, to) in parts(from, to) {
            let piece = self.piece(index);
            if matches!(piece, Bits::All) {
                *piece = Bits::Some(Box::new([u64::MAX; WORDS]));
            }
            if let Bits::Some(words) = piece {
                (from / 64..to.div_ceil(64)).for_each(|word| words[word as usize] &= !mask(word, from, to));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_agree_with_a_plain_list() {
        let size = PIECE * 2 + 500;
        let (mut written, mut plain) = (Written::default(), vec![false; size as usize]);
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for turn in 0..400 {
            let from = draw(size);
            let to = from + 1 + draw(if turn % 8 == 0 { size - from } else { (size - from).min(200) });
            if turn % 5 == 4 {
                written.forget(from, to);
                plain[from as usize..to as usize].fill(false);
            } else {
                written.write(from, to);
                plain[from as usize..to as usize].fill(true);
            }
            let from = draw(size);
            let to = from + 1 + draw(size - from);
            let expected = (from..to).find(|&at| !plain[at as usize]);
            assert_eq!(written.first_unwritten(from, to), expected, "turn {turn}: {from}..{to}");
            let runs: u64 = written.runs(from, to).iter().map(|(from, to)| to - from).sum();
            let count = plain[from as usize..to as usize].iter().filter(|&&written| written).count();
            assert_eq!(runs, count as u64, "turn {turn}: {from}..{to}");
        }
    }

    #[test]
    fn a_piece_is_fresh_once() {
        let mut written = Written::default();
        assert_eq!(written.reach(10, PIECE + 1), [(0, PIECE), (PIECE, 2 * PIECE)]);
        assert_eq!(written.reach(0, 2 * PIECE), []);
    }
}
