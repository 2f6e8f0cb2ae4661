//! The one bounded reader of all binary formats.
//!
//! ```text
//! file  [ ........ | header .......................... | data ... ]
//!                    ^position            ^end
//! ```
//!
//! A reader never passes its end. Every count that a file claims goes through [`Reader::count`] before memory is asked
//! for: the items must fit between the position and the end at their smallest size.

use crate::error::{DAMAGED, Error, Result, quote};
use crate::source_file::SourceFile;
use std::fmt::Display;

/// Bytes fetched at once for small reads.
const BUFFER_BYTES: usize = 64 * 1024;

/// Escaped texts that are noted.
const ESCAPED_MAX: usize = 1000;

/// Reads a range of a file from front to back.
pub(crate) struct Reader<'a> {
    source: &'a SourceFile,
    position: u64,
    /// Where the item that was read last starts; errors about its value name it.
    item: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Next unread byte of `buffer`.
    buffer_next: usize,
    /// Whether text that is not UTF-8 is escaped and noted instead of refused.
    pub escapes_text: bool,
    /// Where text was escaped.
    pub escaped: Vec<String>,
}

impl<'a> Reader<'a> {
    /// A reader over the first `bytes_max` bytes of a file, or all of it when it is shorter.
    pub fn new(source: &'a SourceFile, bytes_max: u64) -> Reader<'a> {
        let (end, buffer) = (source.bytes().min(bytes_max), Vec::new());
        let (escapes_text, escaped) = (false, Vec::new());
        Reader { source, position: 0, item: 0, end, buffer, buffer_next: 0, escapes_text, escaped }
    }

    /// Where the next byte stands in the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes between the position and the end.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    /// An error about the item that was read last.
    pub fn error(&self, what: &dyn Display, problem: impl Into<String>) -> Error {
        Error::new(self.source.path(), problem).at(format!("{what} at byte {}", self.item))
    }

    /// A number of items that the file claims, once it is known that they can be there: `count * bytes_min <=
    /// remaining`.
    #[inline]
    pub fn count(&self, count: u64, bytes_min: u64, what: &dyn Display) -> Result<usize> {
        let remaining = self.remaining();
        let fits = count.checked_mul(bytes_min).is_some_and(|bytes| bytes <= remaining);
        usize::try_from(count).ok().filter(|_| fits).ok_or_else(|| self.too_many(count, bytes_min, what))
    }

    #[cold]
    fn too_many(&self, count: u64, bytes_min: u64, what: &dyn Display) -> Error {
        let remaining = self.remaining();
        let problem = match bytes_min {
            1 => format!("expected {count} bytes, found {remaining}"),
            _ => format!("expected {count} items of at least {bytes_min} bytes, found {remaining} bytes"),
        };
        self.error(what, problem).help(DAMAGED)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: u64, what: &dyn Display) -> Result<Vec<u8>> {
        self.item = self.position;
        let mut bytes = vec![0; self.count(count, 1, what)?];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &dyn Display) -> Result<[u8; N]> {
        const { assert!(N < BUFFER_BYTES) };
        let bytes = self.take(N, what)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    /// A little-endian u8.
    pub fn u8(&mut self, what: &dyn Display) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    /// A little-endian u32.
    #[inline]
    pub fn u32(&mut self, what: &dyn Display) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// A little-endian i32.
    pub fn i32(&mut self, what: &dyn Display) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }

    /// A little-endian u64.
    #[inline]
    pub fn u64(&mut self, what: &dyn Display) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// `count` bytes of UTF-8.
    #[inline]
    pub fn text(&mut self, count: u64, what: &dyn Display) -> Result<String> {
        let size = self.count(count, 1, what)?;
        let text = if size < BUFFER_BYTES {
            let bytes = self.take(size, what)?;
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| bytes.to_vec())
        } else {
            String::from_utf8(self.bytes(count, what)?).map_err(std::string::FromUtf8Error::into_bytes)
        };
        match text {
            Ok(text) => Ok(text),
            Err(bytes) if self.escapes_text => {
                let text = escaped(&bytes);
                if self.escaped.len() < ESCAPED_MAX {
                    self.escaped.push(format!("{what} (\"{}\")", quote(&text)));
                }
                Ok(text)
            }
            Err(bytes) => Err(self.no_text(&bytes, what)),
        }
    }

    /// The next text with its length before it, where all of it lies in the buffer already, as most of a header does.
    #[inline]
    pub fn buffered_text(&mut self) -> Option<String> {
        let (size, behind) = self.buffered().split_first_chunk()?;
        let size = usize::try_from(u64::from_le_bytes(*size)).ok()?;
        let text = std::str::from_utf8(behind.get(..size)?).ok()?.to_owned();
        self.buffer_next = self.buffer_next.saturating_add(size_of::<u64>()).saturating_add(size);
        self.item = self.position.saturating_add(8);
        self.position = self.item.saturating_add(u64::try_from(size).ok()?);
        Some(text)
    }

    /// Goes past the next `count` bytes without reading them.
    pub fn skip(&mut self, count: u64, what: &dyn Display) -> Result<()> {
        self.count(count, 1, what)?;
        let buffered = usize::try_from(count).ok().filter(|count| *count <= self.buffered().len());
        match buffered {
            Some(count) => self.buffer_next = self.buffer_next.saturating_add(count),
            None => {
                self.buffer.clear();
                self.buffer_next = 0;
            }
        }
        self.position = self.position.saturating_add(count);
        Ok(())
    }

    /// Shows the next `count` items of `size` bytes in pieces, none of which ends within an item.
    pub fn pieces(&mut self, count: usize, size: usize, what: &dyn Display, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let ready = self.buffered().len().checked_div(size).unwrap_or(0);
            let items = left.min(ready.max(1));
            show(self.take(items.saturating_mul(size), what)?);
            left = left.saturating_sub(items);
        }
        Ok(())
    }

    #[cold]
    fn no_text(&self, bytes: &[u8], what: &dyn Display) -> Error {
        let shown = quote(&String::from_utf8_lossy(bytes));
        self.error(what, format!("expected UTF-8 text, found \"{shown}\""))
    }

    /// Copies the next bytes into `out`, through the buffer when they are few.
    #[inline]
    fn fill(&mut self, out: &mut [u8], what: &dyn Display) -> Result<()> {
        if out.len() < BUFFER_BYTES {
            out.copy_from_slice(self.take(out.len(), what)?);
            return Ok(());
        }
        let count = self.expect_left(out.len(), what)?;
        self.source.read_at(self.position, out)?;
        self.buffer.clear();
        self.buffer_next = 0;
        self.position = self.position.saturating_add(count);
        Ok(())
    }

    /// The next `size` bytes, fewer than [`BUFFER_BYTES`], where they lie in the buffer.
    #[inline]
    pub fn take(&mut self, size: usize, what: &dyn Display) -> Result<&[u8]> {
        let count = self.expect_left(size, what)?;
        if self.buffered().len() < size {
            self.refill()?;
        }
        let start = self.buffer_next;
        self.buffer_next = start.saturating_add(size);
        self.position = self.position.saturating_add(count);
        match self.buffer.get(start..self.buffer_next) {
            Some(bytes) => Ok(bytes),
            None => Err(self.error(what, "the file ends early")),
        }
    }

    /// Begins an item of `size` bytes, which must be left.
    #[inline]
    fn expect_left(&mut self, size: usize, what: &dyn Display) -> Result<u64> {
        let count = u64::try_from(size).unwrap_or(u64::MAX);
        self.item = self.position;
        if count <= self.remaining() {
            return Ok(count);
        }
        Err(self.too_short(count, what))
    }

    #[cold]
    fn too_short(&self, count: u64, what: &dyn Display) -> Error {
        let problem = format!("expected {count} bytes, found {}", self.remaining());
        self.error(what, problem).help(DAMAGED)
    }

    #[inline]
    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.buffer_next..).unwrap_or_default()
    }

    fn refill(&mut self) -> Result<()> {
        let size = usize::try_from(self.remaining()).unwrap_or(usize::MAX).min(BUFFER_BYTES);
        let mut buffer = std::mem::take(&mut self.buffer);
        self.buffer_next = 0;
        buffer.resize(size, 0);
        self.source.read_at(self.position, &mut buffer)?;
        self.buffer = buffer;
        Ok(())
    }
}

/// Text with the bytes that are not UTF-8 as `\xNN`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}
