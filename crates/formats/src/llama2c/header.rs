//! The numbers at the start of a file, validated.

use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use std::fmt;

/// The first bytes of versions 1 and 2, as a number: "ak42" read from the high byte down.
pub(crate) const MAGIC: u32 = 0x616b_3432;

/// The largest size that is believed; the next ones would not fit any tensor into a file.
const SIZE_MAX: i32 = 1 << 28;

/// The largest number of layers that is believed.
const LAYERS_MAX: i32 = 10_000;

/// The three forms of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// No magic; f32 in the order of the first programs.
    V0,
    /// f32 after a header of 256 bytes.
    V1,
    /// i8 in groups after a header of 256 bytes.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V0 => "v0",
            Version::V1 => "v1",
            Version::V2 => "v2",
        })
    }
}

impl Version {
    /// Bytes before the first tensor.
    pub(super) fn header_bytes(self) -> u64 {
        match self {
            Version::V0 => 28,
            Version::V1 | Version::V2 => 256,
        }
    }
}

/// The model's sizes: all positive, heads dividing as they must.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which form the file has.
    pub version: Version,
    /// Elements of an embedding.
    pub dim: u64,
    /// Elements between the two matrices of the feed-forward part.
    pub hidden_dim: u64,
    /// Number of layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u64,
    /// Number of tokens.
    pub vocabulary: u64,
    /// Positions that the model was made for.
    pub context: u64,
    /// Whether the embedding is the output matrix too.
    pub shared: bool,
    /// Version 2: values that share a scale.
    pub group: Option<u64>,
}

/// Names of the seven numbers, in order.
const NAMES: [&str; 7] = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len"];

impl Header {
    /// Elements of a head; even.
    pub fn head_dim(&self) -> u64 {
        self.dim.checked_div(self.heads).unwrap_or(0)
    }

    /// Elements of all keys of a token.
    pub fn kv_dim(&self) -> u64 {
        self.head_dim().saturating_mul(self.kv_heads)
    }

    /// Reads and validates the numbers; the size of the file is compared where tensors are laid out.
    pub(super) fn read(source: &SourceFile) -> Result<Header> {
        let mut reader = Reader::new(source, Version::V1.header_bytes());
        let first = reader.u32(&"first number")?;
        if first != MAGIC {
            // The number is the first of the seven: read it again.
            let mut reader = Reader::new(source, Version::V0.header_bytes());
            let numbers = read_numbers(&mut reader)?;
            let shared = numbers.vocab_size > 0;
            return Header::new(source, Version::V0, &numbers, shared, None);
        }
        let version = match reader.i32(&"version")? {
            1 => Version::V1,
            2 => Version::V2,
            other => {
                return Err(Error::new(source.path(), format!("expected version 1 or 2 of llama2.c, found {other}"))
                    .at("version at byte 4")
                    .help("export the model again as version 0, 1 or 2"));
            }
        };
        let numbers = read_numbers(&mut reader)?;
        let shared = match reader.u8(&"shared_classifier")? {
            0 => false,
            1 => true,
            other => return Err(reader.error(&"shared_classifier", format!("expected 0 or 1, found {other}"))),
        };
        let group = match version {
            Version::V2 => Some(read_size(&mut reader, "group_size", SIZE_MAX)?),
            Version::V0 | Version::V1 => None,
        };
        let padding = reader.bytes(reader.remaining(), &"padding of the header")?;
        if padding.iter().any(|byte| *byte != 0) || reader.position() != version.header_bytes() {
            return Err(reader.error(&"padding of the header", "expected zeros up to byte 256, found something else"));
        }
        Header::new(source, version, &numbers, shared, group)
    }

    fn new(
        source: &SourceFile,
        version: Version,
        numbers: &Numbers,
        shared: bool,
        group: Option<u64>,
    ) -> Result<Header> {
        let header = Header {
            version,
            dim: numbers.dim,
            hidden_dim: numbers.hidden_dim,
            layers: numbers.layers,
            heads: numbers.heads,
            kv_heads: numbers.kv_heads,
            // An exporter that wrote version 0 before leaves its sign in the others.
            vocabulary: u64::from(numbers.vocab_size.unsigned_abs()),
            context: numbers.context,
            shared,
            group,
        };
        let fault = |problem: String| Err(Error::new(source.path(), problem).at("header"));
        if !header.dim.is_multiple_of(header.heads) || !header.head_dim().is_multiple_of(2) {
            return fault(format!(
                "expected an even dim per head, found dim {} and n_heads {}",
                header.dim, header.heads
            ));
        }
        if !header.heads.is_multiple_of(header.kv_heads) {
            return fault(format!(
                "expected n_kv_heads to divide n_heads, found {} and {}",
                header.kv_heads, header.heads
            ));
        }
        Ok(header)
    }
}

/// The seven numbers, each in its bounds.
struct Numbers {
    dim: u64,
    hidden_dim: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    /// Not zero; the sign means something.
    vocab_size: i32,
    context: u64,
}

fn read_numbers(reader: &mut Reader<'_>) -> Result<Numbers> {
    let [dim, hidden_dim, layers, heads, kv_heads, vocabulary, context] = NAMES;
    Ok(Numbers {
        dim: read_size(reader, dim, SIZE_MAX)?,
        hidden_dim: read_size(reader, hidden_dim, SIZE_MAX)?,
        layers: read_size(reader, layers, LAYERS_MAX)?,
        heads: read_size(reader, heads, SIZE_MAX)?,
        kv_heads: read_size(reader, kv_heads, SIZE_MAX)?,
        vocab_size: read_vocabulary(reader, vocabulary)?,
        context: read_size(reader, context, SIZE_MAX)?,
    })
}

fn read_size(reader: &mut Reader<'_>, name: &str, max: i32) -> Result<u64> {
    let number = reader.i32(&name)?;
    u64::try_from(number).ok().filter(|_| (1..=max).contains(&number)).ok_or_else(|| {
        reader
            .error(&name, format!("expected a number from 1 to {max}, found {number}"))
            .help("the file is damaged or not a llama2.c model")
    })
}

fn read_vocabulary(reader: &mut Reader<'_>, name: &str) -> Result<i32> {
    let number = reader.i32(&name)?;
    if number != 0 && number.unsigned_abs() <= SIZE_MAX.unsigned_abs() {
        return Ok(number);
    }
    Err(reader.error(&name, format!("expected a number from 1 to {SIZE_MAX} with either sign, found {number}")))
}
