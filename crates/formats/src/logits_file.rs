//! Files of reference logits, as llama.cpp's perplexity program writes them with `--kl-divergence-base`.
//!
//! ```text
//! "_logits_" | context u32 | vocabulary i32 | chunks i32 | ids i32 [chunks x context] | records
//! record     scale f32 | minimum f32 | codes u16 [vocabulary] | 0 u16 if the vocabulary is odd
//! ```
//!
//! All numbers are little-endian. Each chunk has a record for each position from `context / 2` to `context - 2`. The
//! log-probability of a token is `scale * code + minimum`. Probabilities below the greatest one by more than a factor
//! of `e^16` share code 0.

use crate::atomic_file::AtomicFile;
use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use std::path::Path;

/// The first bytes of the file.
pub const LOGITS_MAGIC: &[u8; 8] = b"_logits_";

/// Bytes before the ids.
const HEADER_BYTES: u64 = 20;

/// Natural logarithm of the factor below the greatest probability from which on probabilities are not distinguished.
const RANGE: f32 = 16.0;

/// What the file is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogitsShape {
    /// Tokens of a chunk.
    pub context: usize,
    /// Logits of a position.
    pub vocabulary: usize,
    /// Number of chunks.
    pub chunks: usize,
}

impl LogitsShape {
    /// The first position of a chunk that has a record.
    pub fn first(&self) -> usize {
        self.context / 2
    }

    /// Records of a chunk.
    pub fn scored(&self) -> usize {
        self.context.saturating_sub(1).saturating_sub(self.first())
    }

    /// Bytes of a record; `None` if they cannot be counted.
    fn record_bytes(&self) -> Option<u64> {
        let codes = u64::try_from(self.vocabulary).ok()?.checked_next_multiple_of(2)?;
        codes.checked_mul(2)?.checked_add(8)
    }

    /// Bytes before the first record; `None` if they cannot be counted.
    fn records_start(&self) -> Option<u64> {
        let ids = u64::try_from(self.context).ok()?.checked_mul(u64::try_from(self.chunks).ok()?)?;
        ids.checked_mul(4)?.checked_add(HEADER_BYTES)
    }

    /// Bytes of the whole file; `None` if they cannot be counted.
    fn file_bytes(&self) -> Option<u64> {
        let records = u64::try_from(self.scored()).ok()?.checked_mul(u64::try_from(self.chunks).ok()?)?;
        self.records_start()?.checked_add(records.checked_mul(self.record_bytes()?)?)
    }
}

/// The log-probabilities of one position, in 16 bits each.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct LogitsRecord {
    /// Distance of neighbouring codes.
    pub scale: f32,
    /// Log-probability of code 0.
    pub minimum: f32,
    /// A code for each token.
    pub codes: Vec<u16>,
}

impl LogitsRecord {
    /// The log-probability of a token; `None` outside the vocabulary.
    pub fn log_probability(&self, token: usize) -> Option<f32> {
        self.codes.get(token).map(|code| self.scale * f32::from(*code) + self.minimum)
    }

    /// The record of logits whose softmax has the logarithmic divisor `greatest + log_sum`.
    pub fn of(logits: &[f32], greatest: f32, log_sum: f32) -> LogitsRecord {
        let least = logits.iter().fold(f32::INFINITY, |least, x| least.min(*x)).max(greatest - RANGE);
        let scale = (greatest - least) / 65535.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // Values are between 0 and 65535, where the conversion is exact after rounding.
        let code =
            |x: &f32| if *x > least { ((x - least) * inverse).round_ties_even().clamp(0.0, 65535.0) } else { 0.0 };
        let codes = logits.iter().map(|x| to_code(code(x))).collect();
        LogitsRecord { scale, minimum: (least - greatest) - log_sum, codes }
    }
}

/// A whole number from 0 to 65535 as an integer.
#[allow(clippy::as_conversions, reason = "the number is whole and within the range of u16")]
fn to_code(code: f32) -> u16 {
    code as u16
}

/// A file of reference logits.
#[derive(Debug)]
pub struct LogitsFile {
    source: SourceFile,
    shape: LogitsShape,
    ids: Vec<u32>,
}

impl LogitsFile {
    /// Whether a file begins as these files do.
    pub fn is_one(source: &SourceFile) -> bool {
        let mut start = [0; LOGITS_MAGIC.len()];
        source.bytes() >= HEADER_BYTES && source.read_at(0, &mut start).is_ok() && start == *LOGITS_MAGIC
    }

    /// Opens a file and reads its ids.
    ///
    /// # Errors
    /// Files that are no such file, whose size does not follow from their header, or that hold negative ids.
    pub fn open(path: impl AsRef<Path>) -> Result<LogitsFile> {
        let source = SourceFile::open(path)?;
        let mut reader = Reader::new(&source, u64::MAX);
        let magic: [u8; 8] = reader.array(&"magic")?;
        if magic != *LOGITS_MAGIC {
            let problem = "expected a file of reference logits, which starts with \"_logits_\"";
            return Err(Error::new(source.path(), problem).help("write one with `trueup compare --save-logits`"));
        }
        let mut number = |what: &str, least: u32| {
            let value = reader.u32(&what)?;
            if !(least..=i32::MAX.unsigned_abs()).contains(&value) {
                return Err(reader.error(&what, format!("expected at least {least} and below 2^31, found {value}")));
            }
            usize::try_from(value).map_err(|_| reader.error(&what, format!("{value} does not fit into memory")))
        };
        let (context, vocabulary) = (number("context", 2)?, number("vocabulary", 1)?);
        let shape = LogitsShape { context, vocabulary, chunks: number("chunks", 1)? };
        if shape.file_bytes() != Some(source.bytes()) {
            let LogitsShape { context, vocabulary, chunks } = shape;
            let expected = shape.file_bytes().map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string());
            let problem = format!(
                "expected {expected} bytes for {chunks} chunks of {context} tokens and a vocabulary of {vocabulary}, \
                 found {}",
                source.bytes()
            );
            return Err(Error::new(source.path(), problem).help("write the file again"));
        }
        let count = reader.count(u64::try_from(context.saturating_mul(shape.chunks)).unwrap_or(u64::MAX), 4, &"ids")?;
        let mut ids = Vec::with_capacity(count);
        for index in 0..count {
            let id = reader.u32(&format_args!("id {index}"))?;
            if usize::try_from(id).map_or(true, |id| id >= vocabulary) {
                let problem = format!("expected an id below {vocabulary}, found {id}");
                return Err(reader.error(&format_args!("id {index}"), problem));
            }
            ids.push(id);
        }
        Ok(LogitsFile { source, shape, ids })
    }

    /// The file.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// Sizes.
    pub fn shape(&self) -> &LogitsShape {
        &self.shape
    }

    /// The ids of all chunks, as the text has them: the first of a chunk is not replaced.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Reads a record: `position` counts the records of a chunk from 0.
    ///
    /// # Errors
    /// A position that the file does not have, numbers that are not finite, and failures to read.
    pub fn record(&self, chunk: usize, position: usize) -> Result<LogitsRecord> {
        let place = format!("chunk {chunk}, position {position}");
        let offset = (|| {
            let inside = chunk < self.shape.chunks && position < self.shape.scored();
            let index = inside.then_some(chunk)?.checked_mul(self.shape.scored())?.checked_add(position)?;
            let bytes = self.shape.record_bytes()?;
            self.shape.records_start()?.checked_add(u64::try_from(index).ok()?.checked_mul(bytes)?)
        })();
        let missing = || Error::new(self.source.path(), "the file has no such record").at(place.clone());
        let offset = offset.ok_or_else(missing)?;
        let mut bytes =
            vec![0; self.shape.record_bytes().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(missing)?];
        self.source.read_at(offset, &mut bytes)?;
        let (scale, rest) = bytes.split_first_chunk::<4>().ok_or_else(missing)?;
        let (minimum, codes) = rest.split_first_chunk::<4>().ok_or_else(missing)?;
        let (scale, minimum) = (f32::from_le_bytes(*scale), f32::from_le_bytes(*minimum));
        if !(scale.is_finite() && minimum.is_finite() && scale >= 0.0) {
            let problem =
                format!("expected a finite scale of at least 0 and a finite minimum, found {scale} and {minimum}");
            return Err(Error::new(self.source.path(), problem).at(place).help("write the file again"));
        }
        let codes = codes.as_chunks::<2>().0.iter().take(self.shape.vocabulary).map(|code| u16::from_le_bytes(*code));
        Ok(LogitsRecord { scale, minimum, codes: codes.collect() })
    }
}

/// Writes a file of reference logits, record after record.
#[derive(Debug)]
pub struct LogitsWriter {
    file: AtomicFile,
    vocabulary: usize,
    left: u64,
}

impl LogitsWriter {
    /// Begins a file for these ids, `context` for each chunk.
    ///
    /// # Errors
    /// Sizes that the format cannot hold, and failures to write.
    pub fn create(path: &Path, shape: &LogitsShape, ids: &[u32], inputs: &[&SourceFile]) -> Result<LogitsWriter> {
        let refuse = || {
            let LogitsShape { context, vocabulary, chunks } = shape;
            Error::new(path, format!("{chunks} chunks of {context} tokens with {vocabulary} logits cannot be stored"))
        };
        let number = |value: usize| u32::try_from(value).ok().filter(|value| *value <= i32::MAX.unsigned_abs());
        let counts = [shape.context, shape.vocabulary, shape.chunks].map(number);
        let all_ids = shape.context.checked_mul(shape.chunks) == Some(ids.len());
        let (Some(bytes), true) = (shape.file_bytes(), all_ids) else { return Err(refuse()) };
        let mut head = LOGITS_MAGIC.to_vec();
        for count in counts {
            head.extend(count.ok_or_else(refuse)?.to_le_bytes());
        }
        ids.iter().for_each(|id| head.extend(id.to_le_bytes()));
        let left = u64::try_from(shape.scored().saturating_mul(shape.chunks)).map_err(|_| refuse())?;
        let mut file = AtomicFile::create(path, inputs)?;
        file.preallocate(bytes)?;
        file.write_all(&head)?;
        Ok(LogitsWriter { file, vocabulary: shape.vocabulary, left })
    }

    /// Writes the next record.
    ///
    /// # Errors
    /// A record of another size than announced or beyond the last one, and failures to write.
    pub fn push(&mut self, record: &LogitsRecord) -> Result<()> {
        let Some(left) = self.left.checked_sub(1).filter(|_| record.codes.len() == self.vocabulary) else {
            return Err(Error::new(self.file.path(), "the record does not belong to this file"));
        };
        self.left = left;
        let mut bytes = record.scale.to_le_bytes().to_vec();
        bytes.extend(record.minimum.to_le_bytes());
        record.codes.iter().for_each(|code| bytes.extend(code.to_le_bytes()));
        if !self.vocabulary.is_multiple_of(2) {
            bytes.extend([0, 0]);
        }
        self.file.write_all(&bytes)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// Missing records, and failures to write.
    pub fn finish(self) -> Result<()> {
        if self.left > 0 {
            return Err(Error::new(self.file.path(), format!("{} records are missing", self.left)));
        }
        self.file.commit()
    }
}
