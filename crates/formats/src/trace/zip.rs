//! The parts of a ZIP archive that `.npz` files need: entries, stored or deflated, found by the central directory.
//!
//! ```text
//!   local header, name, data │ ... │ central directory: an entry each │ end: entries, size and place of the directory
//! ```
//!
//! After PKWARE's APPNOTE. Archives of 4 GiB and more (ZIP64), encrypted ones and ones in parts are refused.

use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use crate::tensor_range::{check_disjoint, check_unique};
use std::ops::Range;

/// The first bytes of an archive that is not empty.
pub(super) const SIGNATURE_LOCAL: &[u8] = b"PK\x03\x04";

const SIGNATURE_CENTRAL: [u8; 4] = *b"PK\x01\x02";
const SIGNATURE_END: [u8; 4] = *b"PK\x05\x06";

/// Bytes of the fixed part of each header.
const LOCAL_BYTES: u64 = 30;
const CENTRAL_BYTES: usize = 46;
const END_BYTES: usize = 22;

/// Bytes of the longest comment behind the end.
const COMMENT_BYTES_MAX: u64 = 65_535;

/// The largest directory that is read.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;

const METHOD_STORED: u16 = 0;
const METHOD_DEFLATED: u16 = 8;

/// One file of the archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ZipEntry {
    pub name: String,
    /// Where its data stands in the archive.
    pub range: Range<u64>,
    /// Its size once it is unpacked.
    pub bytes: u64,
    /// CRC-32 of its contents.
    check: u32,
    deflated: bool,
}

/// Entries of an archive, in the order of its directory.
pub(super) fn entries(source: &SourceFile) -> Result<Vec<ZipEntry>> {
    let directory = directory(source)?;
    let mut entries = Vec::new();
    let mut rest = directory.as_slice();
    while rest.starts_with(&SIGNATURE_CENTRAL) {
        let (entry, length) = entry(source, rest)?;
        entries.push(entry);
        rest = rest.get(length..).ok_or_else(|| fault(source, "its directory is cut short"))?;
    }
    if !rest.is_empty() {
        return Err(fault(source, "the directory is damaged"));
    }
    check_unique(source.path(), entries.iter().map(|entry| entry.name.as_str()))?;
    check_disjoint(source.path(), entries.iter().map(|entry| (entry.name.as_str(), entry.range.clone())))?;
    Ok(entries)
}

/// The first `bytes_max` bytes of an entry's contents, or all when there are fewer.
pub(super) fn contents(source: &SourceFile, entry: &ZipEntry, bytes_max: u64) -> Result<Vec<u8>> {
    let wanted = usize::try_from(entry.bytes.min(bytes_max)).unwrap_or(usize::MAX);
    let stored = entry.range.end.saturating_sub(entry.range.start);
    let packed = if entry.deflated { stored } else { stored.min(bytes_max) };
    let mut data = vec![0; usize::try_from(packed).unwrap_or(0)];
    source.read_at(entry.range.start, &mut data)?;
    if entry.deflated {
        data = match miniz_oxide::inflate::decompress_to_vec_with_limit(&data, wanted) {
            Ok(data) => data,
            // The limit was reached: what is there is the beginning.
            Err(partial) if partial.output.len() >= wanted => partial.output,
            Err(_) => return Err(fault(source, "the data cannot be unpacked").at(quote(&entry.name))),
        };
        data.truncate(wanted);
    }
    if data.len() != wanted {
        let problem = format!("expected {wanted} bytes, found {}", data.len());
        return Err(fault(source, &problem).at(quote(&entry.name)));
    }
    if entry.bytes <= bytes_max && crc32(&data) != entry.check {
        return Err(fault(source, "the checksum does not match").at(quote(&entry.name)));
    }
    Ok(data)
}

/// CRC-32 as ZIP has it: ISO 3309, bits from the lowest on.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// The bytes of the central directory.
fn directory(source: &SourceFile) -> Result<Vec<u8>> {
    let tail_bytes = source.bytes().min(COMMENT_BYTES_MAX.saturating_add(22));
    let mut tail = vec![0; usize::try_from(tail_bytes).unwrap_or(0)];
    source.read_at(source.bytes().saturating_sub(tail_bytes), &mut tail)?;
    let place = tail.windows(END_BYTES).rposition(|window| window.starts_with(&SIGNATURE_END));
    let end = place.and_then(|place| tail.get(place..)).ok_or_else(|| {
        fault(
            source,
            "the end-of-archive record \
        is missing",
        )
    })?;
    let (disk, count) = (u16_at(end, 4), u16_at(end, 10));
    let (bytes, start) = (u32_at(end, 12), u32_at(end, 16));
    if disk != Some(0) || count == Some(u16::MAX) || start == Some(u64::from(u32::MAX)) {
        return Err(fault(
            source,
            "multi-part archives and archives of 4 GiB or more are not \
            supported",
        )
        .help("use safetensors"));
    }
    let (bytes, start) = bytes.zip(start).ok_or_else(|| fault(source, "its end is cut short"))?;
    let inside = start.checked_add(bytes).is_some_and(|end| end <= source.bytes());
    if !inside || bytes > DIRECTORY_BYTES_MAX {
        return Err(fault(
            source,
            &format!("expected a directory of {bytes} bytes at byte {start}, found the end of the file"),
        ));
    }
    let mut directory = vec![0; usize::try_from(bytes).unwrap_or(0)];
    source.read_at(start, &mut directory)?;
    Ok(directory)
}

/// The entry at the beginning of `rest`, and how long its record is.
fn entry(source: &SourceFile, rest: &[u8]) -> Result<(ZipEntry, usize)> {
    let short = || fault(source, "its directory is cut short");
    let field16 = |place| u16_at(rest, place).ok_or_else(short);
    let field32 = |place| u32_at(rest, place).ok_or_else(short);
    let (flags, method) = (field16(8)?, field16(10)?);
    let (packed, bytes, local) = (field32(20)?, field32(24)?, field32(42)?);
    let check = u32::try_from(field32(16)?).unwrap_or(0);
    let (name_len, extra, comment) = (usize::from(field16(28)?), usize::from(field16(30)?), usize::from(field16(32)?));
    let name = rest.get(CENTRAL_BYTES..CENTRAL_BYTES.saturating_add(name_len)).ok_or_else(short)?;
    let name = std::str::from_utf8(name).map(str::to_owned).map_err(|_| {
        let shown = quote(&String::from_utf8_lossy(name));
        fault(source, "the name is not UTF-8").at(shown).help("write it with numpy.savez")
    })?;
    let wrong = |problem: &str| fault(source, problem).at(quote(&name));
    if flags & 1 != 0 || (method != METHOD_STORED && method != METHOD_DEFLATED) {
        return Err(wrong(
            "expected an entry that is stored or compressed with deflate, found another method or encryption",
        )
        .help(
            "write it with \
            numpy.savez",
        ));
    }
    if method == METHOD_STORED && packed != bytes {
        return Err(wrong(&format!("expected {packed} bytes, found {bytes}")));
    }
    let mut header = [0; 30];
    let readable = local.checked_add(LOCAL_BYTES).is_some_and(|end| end <= source.bytes());
    if !readable {
        return Err(wrong(&format!("expected the start of the entry at byte {local}, found the end of the file")));
    }
    source.read_at(local, &mut header)?;
    let skip = u16_at(&header, 26).zip(u16_at(&header, 28)).filter(|_| header.starts_with(SIGNATURE_LOCAL));
    let (name_bytes, extra_bytes) = skip.ok_or_else(|| {
        wrong(
            "its header is missing at the place given by the \
        directory",
        )
    })?;
    let start =
        local.saturating_add(LOCAL_BYTES).saturating_add(u64::from(name_bytes)).saturating_add(u64::from(extra_bytes));
    let end = start.checked_add(packed).filter(|end| *end <= source.bytes());
    let end =
        end.ok_or_else(|| wrong(&format!("expected {packed} bytes at byte {start}, found the end of the file")))?;
    let length = CENTRAL_BYTES.saturating_add(name_len).saturating_add(extra).saturating_add(comment);
    Ok((ZipEntry { name, range: start..end, bytes, check, deflated: method == METHOD_DEFLATED }, length))
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    let (pair, _) = bytes.get(place..)?.split_first_chunk::<2>()?;
    Some(u16::from_le_bytes(*pair))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u64> {
    let (four, _) = bytes.get(place..)?.split_first_chunk::<4>()?;
    Some(u64::from(u32::from_le_bytes(*four)))
}

fn fault(source: &SourceFile, problem: &str) -> Error {
    Error::new(source.path(), format!("cannot be read as a ZIP archive: {problem}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Where fields of the end of an archive and of a directory's entry stand.
    const END_DISK: usize = 4;
    const END_COUNT: usize = 10;
    const END_BYTES_FIELD: usize = 12;
    const END_START: usize = 16;
    const ENTRY_FLAGS: usize = 8;
    const ENTRY_METHOD: usize = 10;
    const ENTRY_PACKED: usize = 20;

    /// An archive with one entry `a`, by the rules of the format; `change` may lie in the directory's entry and in the
    /// end.
    pub fn archive(contents: &[u8], deflated: bool, change: impl Fn(&mut [u8], &mut [u8])) -> SourceFile {
        let packed = if deflated { miniz_oxide::deflate::compress_to_vec(contents, 6) } else { contents.to_vec() };
        let method = if deflated { METHOD_DEFLATED } else { METHOD_STORED };
        let (length, bytes) = (packed.len() as u32, contents.len() as u32);
        let facts = |out: &mut Vec<u8>| {
            [20, 0, method, 0, 0].iter().for_each(|field: &u16| out.extend(field.to_le_bytes()));
            [crc32(contents), length, bytes].iter().for_each(|field| out.extend(field.to_le_bytes()));
            out.extend(1_u16.to_le_bytes());
        };
        let mut local = SIGNATURE_LOCAL.to_vec();
        facts(&mut local);
        local.extend(0_u16.to_le_bytes());
        local.push(b'a');
        local.extend(&packed);
        let mut central = [SIGNATURE_CENTRAL.as_slice(), &20_u16.to_le_bytes()].concat();
        facts(&mut central);
        central.extend([0; 16]);
        central.push(b'a');
        let mut end = [SIGNATURE_END.as_slice(), &[0; 4], &[1, 0, 1, 0]].concat();
        end.extend((central.len() as u32).to_le_bytes());
        end.extend((local.len() as u32).to_le_bytes());
        end.extend([0; 2]);
        change(&mut central, &mut end);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [local, central, end].concat()).unwrap();
        SourceFile::open(file.path()).unwrap()
    }

    fn refused(contents: &[u8], change: impl Fn(&mut [u8], &mut [u8])) -> String {
        entries(&archive(contents, false, change)).unwrap_err().to_string()
    }

    #[test]
    fn contents_are_read_whole_or_from_their_beginning() {
        let whole: Vec<u8> = (0..100_000_u32).map(|i| (i / 7) as u8).collect();
        for deflated in [false, true] {
            let source = archive(&whole, deflated, |_, _| ());
            let [entry] = &entries(&source).unwrap()[..] else { panic!("one entry") };
            assert_eq!((entry.name.as_str(), entry.bytes, entry.deflated), ("a", 100_000, deflated));
            for wanted in [0, 1, 64, 99_999, 100_000, u64::MAX] {
                let len = usize::try_from(wanted).unwrap_or(usize::MAX).min(whole.len());
                assert!(contents(&source, entry, wanted).unwrap() == whole[..len], "{wanted}, deflated: {deflated}");
            }
        }
    }

    #[test]
    fn contents_that_are_not_what_was_written_are_refused_when_all_is_there() {
        let whole = [7; 1000];
        for deflated in [false, true] {
            let source = archive(&whole, deflated, |central, _| central[16] ^= 1);
            let [entry] = &entries(&source).unwrap()[..] else { panic!("one entry") };
            assert!(contents(&source, entry, 1000).unwrap_err().to_string().contains("checksum does not match"));
            assert!(contents(&source, entry, 999).unwrap() == whole[..999], "a part cannot be checked");
            let longer = ZipEntry { bytes: 1001, ..entry.clone() };
            let told = contents(&source, &longer, 1001).unwrap_err().to_string();
            assert!(told.contains("expected 1001 bytes, found 1000") || told.contains("cannot be unpacked"), "{told}");
        }
    }

    #[test]
    fn what_an_archive_cannot_be_is_said() {
        let put =
            |bytes: &mut [u8], place: usize, value: &[u8]| bytes[place..place + value.len()].copy_from_slice(value);
        let parts = "multi-part archives and archives of 4 GiB or more";
        assert!(refused(b"x", |_, end| put(end, END_DISK, &[1, 0])).contains(parts));
        assert!(refused(b"x", |_, end| put(end, END_COUNT, &[255; 2])).contains(parts));
        assert!(refused(b"x", |_, end| put(end, END_START, &[255; 4])).contains(parts));
        let outside = "found the end of the file";
        assert!(refused(b"x", |_, end| put(end, END_BYTES_FIELD, &200_u32.to_le_bytes())).contains(outside));
        assert!(refused(b"x", |_, end| put(end, END_START, &[255, 255, 255, 0])).contains(outside));
        let packed = "expected an entry that is stored or compressed with deflate";
        assert!(refused(b"x", |central, _| put(central, ENTRY_FLAGS, &[1, 0])).contains(packed));
        assert!(refused(b"x", |central, _| put(central, ENTRY_METHOD, &[12, 0])).contains(packed));
        assert!(
            refused(b"x", |central, _| put(central, ENTRY_PACKED, &[2, 0, 0, 0])).contains("expected 2 bytes, found 1")
        );
    }

    #[test]
    fn a_directory_is_read_up_to_its_limit() {
        let of = |bytes: u64| {
            let mut end = [SIGNATURE_END.as_slice(), &[0; 4], &[1, 0, 1, 0]].concat();
            end.extend((bytes as u32).to_le_bytes());
            end.extend([0; 6]);
            let file = tempfile::NamedTempFile::new().unwrap();
            // A hole, and the end behind it.
            std::os::unix::fs::FileExt::write_all_at(file.as_file(), &end, 2 * DIRECTORY_BYTES_MAX).unwrap();
            directory(&SourceFile::open(file.path()).unwrap()).map(|directory| directory.len() as u64)
        };
        assert_eq!(of(DIRECTORY_BYTES_MAX), Ok(DIRECTORY_BYTES_MAX));
        assert!(
            of(DIRECTORY_BYTES_MAX + 1).unwrap_err().to_string().contains("expected a directory of 67108865 bytes")
        );
    }
}
