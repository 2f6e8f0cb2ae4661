//! One batch: tokens with their places, and what the host fills in for them.
//!
//! ```text
//! entries              1 5 9 of sequence 0, then 7 of sequence 1, which holds 3 tokens already
//! positions            0 1 2   3
//! rows of the cache    0 1 2   room + 3
//! mask, token 1        0 0 -inf -inf ...          attends to positions 0 and 1 of its sequence
//! ```

use super::division::Division;
use trueup_blocks::DType;
use trueup_graph::Input;
use trueup_models::{Buckets, ModelResult, ModelSpec, Pooling, Prefix, Stage};

/// A token to be computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its id.
    pub token: u32,
    /// The sequence it continues.
    pub sequence: usize,
    /// Whether the logits after it are requested.
    pub wants_logits: bool,
}

/// A token of a batch and its place in its sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenPlace {
    /// Its id.
    pub token: u32,
    /// The sequence it belongs to.
    pub sequence: usize,
    /// Its position there, from 0.
    pub position: usize,
}

/// What a model needs to know about texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextRules<'a> {
    /// Prefix that attends in both directions, for prefix language models.
    pub prefix: Option<&'a Prefix>,
    /// What is computed for a text.
    pub result: ModelResult,
    /// How distances between tokens are divided, if scores depend on that.
    pub buckets: Option<Buckets>,
}

impl TextRules<'_> {
    /// The rules of a model.
    pub fn of(spec: &ModelSpec) -> TextRules<'_> {
        TextRules { prefix: spec.prefix(), result: spec.result(), buckets: spec.buckets() }
    }
}

/// Plans are made for multiples of this many positions.
pub const CAPACITY_UNIT: usize = 64;

/// The rows of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheRows {
    /// Rows of each sequence.
    pub room: usize,
    /// Rows of each sequence in layers with a sliding window: position `p` is in row `p % ring`.
    pub ring: usize,
    /// Size of the sliding window.
    pub window: Option<usize>,
}

/// One batch, placed.
pub(super) struct PlacedBatch {
    pub tokens: Vec<TokenPlace>,
    /// For prefix LMs, the prefix of each token's text.
    pub divisions: Vec<Division>,
    /// Tokens whose output rows are computed; at least one. With pooling, the token that stands for the text.
    pub outputs: Vec<usize>,
    /// Positions of the cache that attention reads.
    pub capacity: usize,
    /// For recurrent models, the number of sequences in the batch, each with the same number of adjacent tokens;
    /// otherwise 1.
    pub streams: usize,
    pub stage: Stage,
    /// For each token, the length of the encoder text of its sequence; empty in a model without an encoder.
    pub sources: Vec<usize>,
    /// The residual stream of each token before the first layer, in [`Stage::Rest`].
    pub stream: Vec<f32>,
    buckets: Option<Buckets>,
}

impl PlacedBatch {
    /// Places entries after the tokens that each sequence holds.
    pub fn new(entries: &[Entry], held: &[Vec<u32>], rules: TextRules) -> PlacedBatch {
        let mut lengths: Vec<usize> = held.iter().map(Vec::len).collect();
        let mut tokens = Vec::with_capacity(entries.len());
        for entry in entries {
            let length = &mut lengths[entry.sequence];
            tokens.push(TokenPlace { token: entry.token, sequence: entry.sequence, position: *length });
            *length += 1;
        }
        let mut outputs: Vec<usize> = match rules.result {
            ModelResult::Logits | ModelResult::Hidden => {
                (0..entries.len()).filter(|index| entries[*index].wants_logits).collect()
            }
            // The batch is one text.
            ModelResult::Pooled(Pooling::First) => vec![0],
            ModelResult::Pooled(Pooling::Mean | Pooling::Last) => vec![entries.len() - 1],
        };
        if outputs.is_empty() {
            outputs.push(entries.len() - 1);
        }
        let divisions = rules.prefix.map_or_else(Vec::new, |prefix| divisions(entries, held, prefix));
        let longest = tokens.iter().map(|token| token.position + 1).max().unwrap_or(1);
        PlacedBatch {
            tokens,
            divisions,
            outputs,
            capacity: longest.next_multiple_of(CAPACITY_UNIT),
            streams: 1,
            stage: Stage::Decoder { source: 0 },
            sources: Vec::new(),
            stream: Vec::new(),
            buckets: rules.buckets,
        }
    }

    /// The bytes of one input of this type.
    pub fn input_bytes(&self, input: Input, dtype: DType, rows: CacheRows) -> Vec<u8> {
        let CacheRows { room, ring, .. } = rows;
        let each = |value: fn(&TokenPlace) -> usize| integers(self.tokens.iter().map(value));
        match input {
            Input::Tokens => each(|token| token.token as usize),
            Input::Positions => each(|token| token.position),
            Input::PositionPairs => {
                let row = |which: usize| self.divided().map(move |(token, text)| text.positions(token.position)[which]);
                integers(row(0).chain(row(1)))
            }
            Input::Sequences => each(|token| token.sequence),
            Input::TokenTypes | Input::WholeBatch => each(|_| 0),
            Input::PoolBatch => integers(self.outputs.iter().map(|_| 0)),
            Input::PoolShares => self.shares(dtype),
            Input::Stream if dtype == DType::F64 => {
                self.stream.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect()
            }
            Input::Stream => self.stream.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Input::MaskText => vec![0; self.tokens.len() * self.tokens.len() * size_of::<f32>()],
            Input::MaskSource => self.mask_source(),
            Input::Buckets => self.buckets_backwards(),
            Input::BucketsText => self.buckets_of_text(),
            Input::KvRows => integers(self.tokens.iter().map(|token| token.sequence * room + token.position)),
            Input::KvRowsWindow => {
                integers(self.tokens.iter().map(|token| token.sequence * ring + token.position % ring))
            }
            Input::OutputRows => integers(self.outputs.iter().copied()),
            Input::StateSources => {
                let slot = |token: &TokenPlace| if token.position == 0 { 0 } else { token.sequence + 1 };
                integers(self.firsts().map(slot))
            }
            Input::StateTargets => integers(self.firsts().map(|token| token.sequence + 1)),
            Input::Mask => self.mask(|_| 0.0),
            Input::MaskWindow => self.mask_window(rows),
            Input::MaskPrefix => self.mask_prefix(),
            // Exact up to 2^24, far beyond what any score survives.
            Input::MaskDistance => self.mask(|distance| -(distance as f32)),
        }
    }

    /// The first token of each sequence of the batch.
    fn firsts(&self) -> impl Iterator<Item = &TokenPlace> {
        self.tokens.iter().step_by((self.tokens.len() / self.streams).max(1))
    }

    /// Each token with the prefix of its text.
    fn divided(&self) -> impl Iterator<Item = (&TokenPlace, &Division)> {
        self.tokens.iter().zip(&self.divisions)
    }

    /// f32 `[capacity, tokens]`: 0 at positions that a token attends to, -10000 elsewhere, as in the published model
    /// code.
    fn mask_prefix(&self) -> Vec<u8> {
        let value = |seen: bool| if seen { 0.0 } else { HIDDEN };
        let row = |(token, text): (&TokenPlace, &Division)| {
            let (place, text) = (token.position, *text);
            (0..self.capacity).flat_map(move |other| value(text.sees(place, other)).to_le_bytes())
        };
        self.divided().flat_map(row).collect()
    }

    /// f32 `[source, tokens]`: 0 for the tokens of the encoder's text, else -inf.
    fn mask_source(&self) -> Vec<u8> {
        let source = if let Stage::Decoder { source } = self.stage { source } else { 0 };
        let value = |seen: bool| if seen { 0f32 } else { f32::NEG_INFINITY };
        let row = |length: &usize| {
            let length = *length;
            (0..source).flat_map(move |place| value(place < length).to_le_bytes())
        };
        self.sources.iter().flat_map(row).collect()
    }

    /// i32 `[capacity * tokens]`: the bucket of the distance back to each position.
    fn buckets_backwards(&self) -> Vec<u8> {
        let Some(buckets) = self.buckets else { return Vec::new() };
        let of = |token: &TokenPlace| {
            let own = token.position;
            (0..self.capacity).map(move |other| bucket_of(own.saturating_sub(other), buckets.count, buckets))
        };
        integers(self.tokens.iter().flat_map(of))
    }

    /// i32 `[tokens * tokens]`: the bucket of the distance to each token, half of them for those after it.
    fn buckets_of_text(&self) -> Vec<u8> {
        let Some(buckets) = self.buckets else { return Vec::new() };
        let half = buckets.count / 2;
        let bucket = move |own: usize, other: usize| {
            bucket_of(own.abs_diff(other), half, buckets) + if other > own { half } else { 0 }
        };
        let of = |token: &TokenPlace| {
            let own = token.position;
            self.tokens.iter().map(move |other| bucket(own, other.position))
        };
        integers(self.tokens.iter().flat_map(of))
    }

    /// `[tokens]`: one over the number of tokens.
    fn shares(&self, dtype: DType) -> Vec<u8> {
        let share = 1.0 / self.tokens.len() as f64;
        match dtype {
            DType::F64 => share.to_le_bytes().repeat(self.tokens.len()),
            _ => (share as f32).to_le_bytes().repeat(self.tokens.len()),
        }
    }

    /// f32 `[capacity, tokens]`: `shown(distance)` for positions up to the token's own, else -inf.
    fn mask(&self, shown: fn(usize) -> f32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.tokens.len() * self.capacity * size_of::<f32>());
        for token in &self.tokens {
            for position in 0..self.capacity {
                let distance = token.position.checked_sub(position);
                bytes.extend(distance.map_or(f32::NEG_INFINITY, shown).to_le_bytes());
            }
        }
        bytes
    }

    /// f32 `[min(capacity, ring), tokens]`: 0 for the rows of the positions in the token's window, else -inf.
    fn mask_window(&self, rows: CacheRows) -> Vec<u8> {
        let (ring, window) = (rows.ring, rows.window.unwrap_or(usize::MAX));
        let looked_at = self.capacity.min(ring);
        let mut mask = vec![f32::NEG_INFINITY; looked_at * self.tokens.len()];
        for (row, token) in mask.chunks_mut(looked_at.max(1)).zip(&self.tokens) {
            let first = (token.position + 1).saturating_sub(window);
            (first..=token.position).for_each(|position| row[position % ring] = 0.0);
        }
        mask.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// Added to masked scores in prefix LMs.
const HIDDEN: f32 = -10_000.0;

/// The bucket of a distance, out of `count` for one direction: the first half hold one distance each, the others
/// increasingly many (Raffel et al. 2020, section 2.1). Computed in f32 and in this order, as in transformers: for some
/// numbers, f64 puts a distance into the next bucket.
fn bucket_of(distance: usize, count: usize, buckets: Buckets) -> usize {
    let exact = count / 2;
    if distance < exact {
        return distance;
    }
    let logarithm = f64::from(distance as f32 / exact as f32).ln() as f32;
    let share = logarithm / (buckets.distance_max as f64 / exact as f64).ln() as f32;
    (exact + (share * (count - exact) as f32) as usize).min(count - 1)
}

/// For each entry, the prefix of its text. The text is what the sequence holds, followed by what this batch appends.
fn divisions(entries: &[Entry], held: &[Vec<u32>], prefix: &Prefix) -> Vec<Division> {
    let of = |sequence: usize| {
        let new = entries.iter().filter(move |entry| entry.sequence == sequence).map(|entry| entry.token);
        Division::new(prefix, held[sequence].iter().copied().chain(new))
    };
    let mut known: Vec<Option<Division>> = vec![None; held.len()];
    entries.iter().map(|entry| *known[entry.sequence].get_or_insert_with(|| of(entry.sequence))).collect()
}

/// Numbers as i32; the session made sure that they fit.
fn integers(values: impl Iterator<Item = usize>) -> Vec<u8> {
    values.flat_map(|value| (value as i32).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TextRules = TextRules { prefix: None, result: ModelResult::Logits, buckets: None };

    /// A cache without rings.
    fn rows(room: usize, window: Option<usize>) -> CacheRows {
        CacheRows { room, ring: room, window }
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn tokens_continue_their_sequences() {
        let entry = |token, sequence| Entry { token, sequence, wants_logits: false };
        let held = [vec![], vec![0; 63]];
        let batch = PlacedBatch::new(&[entry(1, 0), entry(7, 1), entry(5, 0), entry(8, 1)], &held, PLAIN);
        assert_eq!(batch.tokens.iter().map(|token| token.position).collect::<Vec<_>>(), [0, 63, 1, 64]);
        assert_eq!(batch.outputs, [3], "one row is computed even when none is wanted");
        assert_eq!(batch.capacity, 128);
        assert_eq!(
            batch.input_bytes(Input::KvRows, DType::F32, rows(200, None)),
            integers([0, 263, 1, 264].into_iter())
        );
        assert_eq!(
            batch.input_bytes(Input::Sequences, DType::F32, rows(200, None)),
            integers([0, 1, 0, 1].into_iter())
        );
    }

    #[test]
    fn masks_show_the_past_and_the_window_less_of_it() {
        let batch = PlacedBatch::new(&[Entry { token: 1, sequence: 0, wants_logits: true }], &[vec![0; 3]], PLAIN);
        let seen = |bytes: Vec<u8>| (0..64).filter(|j| floats(&bytes)[*j] == 0.0).collect::<Vec<_>>();
        assert_eq!(seen(batch.input_bytes(Input::Mask, DType::F32, rows(64, Some(2)))), [0, 1, 2, 3]);
        assert_eq!(seen(batch.input_bytes(Input::MaskWindow, DType::F32, rows(64, Some(2)))), [2, 3]);
        let distances = floats(&batch.input_bytes(Input::MaskDistance, DType::F32, rows(64, None)));
        assert_eq!(distances[..5], [-3.0, -2.0, -1.0, 0.0, f32::NEG_INFINITY]);
        let masked = floats(&batch.input_bytes(Input::Mask, DType::F32, rows(64, None)))[4];
        assert_eq!(masked, f32::NEG_INFINITY);
    }

    /// Positions 8 and 9 in a ring of 6 rows, which holds positions 4 to 9.
    #[test]
    fn ring_rows_are_reused() {
        let entry = |token| Entry { token, sequence: 1, wants_logits: true };
        let batch = PlacedBatch::new(&[entry(1), entry(2)], &[vec![], vec![0; 8]], PLAIN);
        let rows = CacheRows { room: 64, ring: 6, window: Some(4) };
        assert_eq!(batch.input_bytes(Input::KvRowsWindow, DType::I32, rows), integers([8, 9].into_iter()));
        assert_eq!(batch.input_bytes(Input::KvRows, DType::I32, rows), integers([72, 73].into_iter()));
        let mask = floats(&batch.input_bytes(Input::MaskWindow, DType::F32, rows));
        let seen = |token: usize| (0..6).filter(|row| mask[6 * token + row] == 0.0).collect::<Vec<_>>();
        assert_eq!([seen(0), seen(1)], [vec![0, 1, 2, 5], vec![0, 1, 2, 3]]);
    }

    /// Two texts in one batch: the prompt of the first attends bidirectionally, the second continues after its prefix.
    #[test]
    fn beginnings_see_themselves() {
        let prefix = Prefix { end: 90, mark: 91, other_mark: 92 };
        let entry = |token, sequence| Entry { token, sequence, wants_logits: false };
        let held = [vec![], vec![7, 91, 90]];
        let entries = [entry(5, 0), entry(8, 1), entry(91, 0), entry(90, 0)];
        let batch = PlacedBatch::new(&entries, &held, TextRules { prefix: Some(&prefix), ..PLAIN });
        let pairs = batch.input_bytes(Input::PositionPairs, DType::F32, rows(64, None));
        assert_eq!(pairs, integers([0, 1, 1, 1, 0, 2, 0, 1].into_iter()));
        let mask = floats(&batch.input_bytes(Input::MaskPrefix, DType::F32, rows(64, None)));
        let seen = |row: usize| (0..64).filter(|j| mask[64 * row + j] == 0.0).collect::<Vec<_>>();
        assert_eq!([seen(0), seen(1), seen(2), seen(3)], [vec![0, 1], vec![0, 1, 2, 3], vec![0, 1], vec![0, 1, 2]]);
        assert!(mask.iter().all(|value| *value == 0.0 || *value == -10_000.0));
    }

    /// `T5Attention._relative_position_bucket` of transformers 4.57.6 for these distances: backwards in one direction,
    /// backwards in both, forwards.
    #[test]
    fn distances_are_in_the_buckets_of_transformers() {
        const DISTANCES: [usize; 14] = [0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 90, 127, 128, 500];
        let buckets = |count, distance_max| Some(Buckets { count, distance_max });
        let entries = vec![Entry { token: 1, sequence: 0, wants_logits: true }; 501];
        let batch = |buckets| PlacedBatch::new(&entries, &[vec![]], TextRules { buckets, ..PLAIN });
        let found = |bytes: Vec<u8>, place: usize| i32::from_le_bytes(bytes.as_chunks::<4>().0[place]);
        let backwards = |batch: &PlacedBatch| {
            let bytes = batch.input_bytes(Input::Buckets, DType::I32, rows(512, None));
            DISTANCES.map(|distance| found(bytes.clone(), batch.capacity * 500 + 500 - distance))
        };
        let [wide, narrow] = [batch(buckets(32, 128)), batch(buckets(16, 20))];
        assert_eq!(backwards(&wide), [0, 1, 7, 8, 15, 16, 21, 21, 26, 26, 29, 31, 31, 31]);
        assert_eq!(backwards(&narrow), [0, 1, 7, 8, 13, 14, 15, 15, 15, 15, 15, 15, 15, 15]);
        let bytes = wide.input_bytes(Input::BucketsText, DType::I32, rows(512, None));
        let before = DISTANCES.map(|distance| found(bytes.clone(), 501 * 500 + 500 - distance));
        assert_eq!(before, [0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 14, 15, 15, 15]);
        let after = DISTANCES.map(|distance| found(bytes.clone(), distance));
        assert_eq!(after, [0, 17, 23, 24, 25, 26, 27, 28, 29, 30, 30, 31, 31, 31]);
    }

    #[test]
    fn buckets_of_unusual_sizes_are_those_of_transformers() {
        let goldens = include_str!("../../../../fixtures/relative-buckets.txt");
        let mut faults = Vec::new();
        for line in goldens.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let buckets = Buckets { count: number(), distance_max: number() };
            let changes: Vec<(usize, usize)> = words
                .map(|change| change.split_once(':').unwrap())
                .map(|(distance, bucket)| (distance.parse().unwrap(), bucket.parse().unwrap()))
                .collect();
            for distance in 0..1200 {
                let expected = changes.iter().rfind(|(first, _)| *first <= distance).unwrap().1;
                let found = bucket_of(distance, buckets.count, buckets);
                if found != expected {
                    faults.push(format!("{buckets:?}, distance {distance}: expected {expected}, found {found}"));
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// A batch of an encoder is one text: it has one row, and its tokens see each other.
    #[test]
    fn a_text_is_pooled_to_one_row() {
        let entries = [5, 7, 8].map(|token| Entry { token, sequence: 1, wants_logits: true });
        let batch = |pooling| {
            let rules = TextRules { result: ModelResult::Pooled(pooling), ..PLAIN };
            PlacedBatch::new(&entries, &[vec![], vec![]], rules)
        };
        assert_eq!(batch(Pooling::First).outputs, [0]);
        assert_eq!(batch(Pooling::Last).outputs, [2]);
        let batch = batch(Pooling::Mean);
        let shares = floats(&batch.input_bytes(Input::PoolShares, DType::F32, rows(64, None)));
        assert_eq!(shares, [1.0 / 3.0; 3]);
        let wide = batch.input_bytes(Input::PoolShares, DType::F64, rows(64, None));
        assert_eq!((wide.len(), &wide[16..]), (24, &(1f64 / 3.0).to_le_bytes()[..]));
        assert_eq!(floats(&batch.input_bytes(Input::MaskText, DType::F32, rows(64, None))), [0.0; 9]);
        assert_eq!(batch.input_bytes(Input::PoolBatch, DType::I32, rows(64, None)), [0; 4]);
    }
}
