//! Compares two sets of safetensors files: names, types and shapes of all tensors, and samples of their values.
//!
//! Opening a folder must not take the time to read its weights twice. Different weights of one model differ in nearly
//! every value, so a few samples of each tensor tell them apart.

use super::file::SafetensorsFile;
use crate::error::{Result, quote};
use std::collections::BTreeMap;

/// Bytes of a sample.
const SAMPLE_BYTES: usize = 4096;
/// Samples of a tensor at most.
const SAMPLES: u64 = 4;

/// One tensor: the file, and its number in that file.
type Stored<'a> = (&'a SafetensorsFile, usize);

/// A difference between two sets, as the end of a sentence: `tensor a.weight (byte 12)`; `None` if they have the same
/// tensors and the samples are equal.
pub(super) fn difference(one: &[&SafetensorsFile], other: &[&SafetensorsFile]) -> Result<Option<String>> {
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

/// The first byte in which samples of two tensors of one size differ.
fn first_byte_apart(one: Stored<'_>, other: Stored<'_>) -> Result<Option<u64>> {
    let bytes = one.0.tensors().get(one.1).map_or(0, |tensor| tensor.bytes);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for start in sample_starts(bytes) {
        let size = usize::try_from(bytes.saturating_sub(start)).unwrap_or(usize::MAX).min(SAMPLE_BYTES);
        here.resize(size, 0);
        there.resize(size, 0);
        one.0.read(one.1, start, &mut here)?;
        other.0.read(other.1, start, &mut there)?;
        if here != there {
            let byte = here.iter().zip(&there).take_while(|(a, b)| a == b).count();
            return Ok(Some(start.saturating_add(u64::try_from(byte).unwrap_or(u64::MAX))));
        }
    }
    Ok(None)
}

/// Where the samples of a tensor of this many bytes start: at its first and last bytes, and evenly between them.
fn sample_starts(bytes: u64) -> impl Iterator<Item = u64> {
    let sample = u64::try_from(SAMPLE_BYTES).unwrap_or(u64::MAX);
    let last = bytes.saturating_sub(sample);
    let count = if bytes == 0 { 0 } else { bytes.div_ceil(sample).min(SAMPLES) };
    let gaps = count.saturating_sub(1).max(1);
    let (step, rest) = (last.checked_div(gaps).unwrap_or(0), last.checked_rem(gaps).unwrap_or(0));
    (0..count).map(move |number| {
        let beyond = rest.saturating_mul(number).checked_div(gaps).unwrap_or(0);
        step.saturating_mul(number).saturating_add(beyond)
    })
}

#[cfg(test)]
mod tests {
    use super::{SAMPLE_BYTES, sample_starts};

    #[test]
    fn samples_cover_small_tensors_and_the_ends_of_large_ones() {
        let size = SAMPLE_BYTES as u64;
        let starts = |bytes| sample_starts(bytes).collect::<Vec<u64>>();
        assert_eq!(starts(0), [0_u64; 0]);
        assert_eq!(starts(1), [0]);
        assert_eq!(starts(size), [0]);
        assert_eq!(starts(size + 1), [0, 1]);
        assert_eq!(starts(4 * size), [0, size, 2 * size, 3 * size]);
        assert_eq!(starts(31 * size), [0, 10 * size, 20 * size, 30 * size]);
        assert_eq!(starts(u64::MAX).last(), Some(&(u64::MAX - size)));
    }
}
