//! A hash table from tensor names to tensors. It also detects duplicate names.
//!
//! ```text
//! tensors  [ a.weight | b.weight | c.weight ]     the list owns the names
//! numbers  { hash(b) -> 1, hash(a) -> 0, .. }     four bytes per tensor, no copy of the name
//!                 └ high bits: more of the hash, so that names are compared only if they probably match
//! ```
//!
//! A GGUF header fills the table while it is read, so duplicate detection costs no extra pass.

use crate::checkpoint::TensorInfo;
use crate::error::{Error, Result, quote};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::path::Path;

/// Numbers of the tensors of a list, by name. The hashes are seeded anew for each index, so that names that collide
/// cannot be prepared in a file without the seed.
#[derive(Clone, Default, Debug)]
pub(crate) struct NameIndex {
    hasher: DefaultHashBuilder,
    /// A tensor's number in the low bits, bits of its name's hash above.
    numbers: HashTable<u32>,
    /// The low bits.
    mask: u32,
}

impl NameIndex {
    /// An index that has room for the names of that many tensors.
    pub fn with_capacity(tensors: usize) -> NameIndex {
        let mask = tensors.checked_next_power_of_two().and_then(|slots| u32::try_from(slots.saturating_sub(1)).ok());
        let (hasher, numbers) = (DefaultHashBuilder::default(), HashTable::with_capacity(tensors));
        NameIndex { hasher, numbers, mask: mask.unwrap_or(u32::MAX) }
    }

    /// The index of all tensors. Fails when a name is there twice; `path` is the model's, for the message.
    pub fn of(path: &Path, tensors: &[TensorInfo]) -> Result<NameIndex> {
        match NameIndex::of_first(tensors) {
            (index, None) => Ok(index),
            (_, Some(name)) => {
                let error = Error::new(path, "the name occurs twice").at(format!("tensor {}", quote(name)));
                Err(error.help("the file is damaged; convert the model again"))
            }
        }
    }

    /// The index of the first tensor of each name, and a name that is there twice.
    pub fn of_first(tensors: &[TensorInfo]) -> (NameIndex, Option<&str>) {
        let (mut index, mut twice) = (NameIndex::with_capacity(tensors.len()), None);
        for (number, tensor) in tensors.iter().enumerate() {
            let before = tensors.get(..number).unwrap_or_default();
            if !index.add(before, &tensor.name) {
                twice = twice.or(Some(tensor.name.as_str()));
            }
        }
        (index, twice)
    }

    /// Adds the name of the tensor that comes next behind `tensors`, all of which are in the index; `false` when one of
    /// them has it.
    #[inline]
    pub fn add(&mut self, tensors: &[TensorInfo], name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        let above = above(hash, self.mask);
        let is_same = |other: &u32| other & !self.mask == above && name_of(tensors, other & self.mask) == Some(name);
        let rehash = |other: &u32| self.hasher.hash_one(name_of(tensors, other & self.mask).unwrap_or_default());
        // No header is long enough for 2^32 tensors.
        let Ok(number) = u32::try_from(tensors.len()) else { return false };
        debug_assert!(number <= self.mask, "an index for {} tensors was requested", tensors.len());
        match self.numbers.entry(hash, is_same, rehash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(number | above);
                true
            }
        }
    }

    /// How many names it has.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The number of the tensor of that name in the list whose names were added.
    pub fn find(&self, tensors: &[TensorInfo], name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        let above = above(hash, self.mask);
        let is_same = |other: &u32| other & !self.mask == above && name_of(tensors, other & self.mask) == Some(name);
        usize::try_from(self.numbers.find(hash, is_same)? & self.mask).ok()
    }
}

/// Bits of a hash above the mask.
fn above(hash: u64, mask: u32) -> u32 {
    let [_, _, a, b, c, d, _, _] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]) & !mask
}

fn name_of(tensors: &[TensorInfo], number: u32) -> Option<&str> {
    let tensor = tensors.get(usize::try_from(number).ok()?)?;
    Some(tensor.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::NameIndex;
    use crate::checkpoint::TensorInfo;
    use std::path::Path;
    use trueup_blocks::DType;

    fn tensors(count: usize) -> Vec<TensorInfo> {
        (0..count).map(|number| TensorInfo::new(format!("blk.{number}.w"), &[1], DType::F32).unwrap()).collect()
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        let tensors = tensors(1000);
        let index = NameIndex::of(Path::new("m.gguf"), &tensors).unwrap();
        for (number, tensor) in tensors.iter().enumerate() {
            assert_eq!(index.find(&tensors, &tensor.name), Some(number));
        }
        for name in ["", "blk.1000.w", "blk.1.w ", "blk.1"] {
            assert_eq!(index.find(&tensors, name), None, "{name:?}");
        }
        assert_eq!(NameIndex::default().find(&tensors, "blk.1.w"), None);
    }

    /// Without room at first, and without bits of the hash beside the numbers, as in a list of 2^32 tensors.
    #[test]
    fn names_alone_decide() {
        let tensors = tensors(3000);
        let mut index = NameIndex { mask: u32::MAX, ..NameIndex::default() };
        for (number, tensor) in tensors.iter().enumerate() {
            assert!(index.add(&tensors[..number], &tensor.name), "{}", tensor.name);
            assert!(!index.add(&tensors[..=number], &tensor.name), "{}", tensor.name);
        }
        assert_eq!(index.len(), 3000);
        for (number, tensor) in tensors.iter().enumerate() {
            assert_eq!(index.find(&tensors, &tensor.name), Some(number));
            assert_eq!(index.find(&tensors, &tensor.name.replace("blk", "block")), None);
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused_by_name() {
        let mut tensors = tensors(300);
        tensors[299].name = tensors[7].name.clone();
        let error = NameIndex::of(Path::new("m.gguf"), &tensors).unwrap_err();
        let (index, twice) = NameIndex::of_first(&tensors);
        assert_eq!((index.find(&tensors, "blk.7.w"), twice), (Some(7), Some("blk.7.w")));
        assert_eq!(
            error.to_string(),
            "m.gguf: tensor blk.7.w: the name occurs twice; the file is damaged; convert the model again"
        );
    }
}
