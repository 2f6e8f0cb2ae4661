//! Compares two sets of safetensors files, tensor by tensor and byte by byte.

use super::file::SafetensorsFile;
use crate::error::{Result, quote};
use std::collections::BTreeMap;

/// Bytes of each set that are in memory at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// One tensor: the file, and its number in that file.
type Stored<'a> = (&'a SafetensorsFile, usize);

/// The first difference between two sets, in the order of names, as the end of a sentence: `tensor a.weight (byte 12)`;
/// `None` if they have the same tensors with the same bytes.
pub(super) fn first_difference(one: &[&SafetensorsFile], other: &[&SafetensorsFile]) -> Result<Option<String>> {
    let (one, other) = (by_name(one), by_name(other));
    let alone = |these: &BTreeMap<&str, Stored>, those: &BTreeMap<&str, Stored>| {
        these.keys().find(|name| !those.contains_key(*name)).map(|name| (*name).to_owned())
    };
    if let Some(name) = alone(&one, &other).or_else(|| alone(&other, &one)) {
        return Ok(Some(format!("tensor {}, which is only in one of them", quote(&name))));
    }
    // Types and shapes first: they need no reading.
    for (name, (file, number)) in &one {
        let Some((twin, place)) = other.get(name) else { continue };
        let (Some(a), Some(b)) = (file.tensors().get(*number), twin.tensors().get(*place)) else { continue };
        if a.dtype != b.dtype {
            return Ok(Some(format!("tensor {} ({} and {})", quote(name), a.dtype, b.dtype)));
        }
        if a.shape != b.shape {
            return Ok(Some(format!("tensor {} (shapes {:?} and {:?})", quote(name), a.shape, b.shape)));
        }
    }
    for (name, stored) in &one {
        let Some(twin) = other.get(name) else { continue };
        if let Some(byte) = first_byte_apart(*stored, *twin)? {
            return Ok(Some(format!("tensor {} (byte {byte})", quote(name))));
        }
    }
    Ok(None)
}

fn by_name<'a>(files: &[&'a SafetensorsFile]) -> BTreeMap<&'a str, Stored<'a>> {
    let mut all = BTreeMap::new();
    for &file in files {
        for (number, tensor) in file.tensors().iter().enumerate() {
            all.entry(tensor.name.as_str()).or_insert((file, number));
        }
    }
    all
}

/// The first byte in which two tensors of one size differ.
fn first_byte_apart(one: Stored<'_>, other: Stored<'_>) -> Result<Option<u64>> {
    let bytes = one.0.tensors().get(one.1).map_or(0, |tensor| tensor.bytes);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut start = 0_u64;
    while start < bytes {
        let size = usize::try_from(bytes.saturating_sub(start)).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        here.resize(size, 0);
        there.resize(size, 0);
        one.0.read(one.1, start, &mut here)?;
        other.0.read(other.1, start, &mut there)?;
        if let Some(place) = here.iter().zip(&there).position(|(a, b)| a != b) {
            return Ok(Some(start.saturating_add(u64::try_from(place).unwrap_or(u64::MAX))));
        }
        start = start.saturating_add(u64::try_from(size).unwrap_or(u64::MAX));
    }
    Ok(None)
}
