//! Addresses first, memory later: reservations, physical memory, and mappings of the one at the other.

use super::{Address, GAP, Memory, Region, Shared, arena};
use crate::status::{BAD_PARAMETER, DEVICE_OUT_OF_MEMORY, MEMORY_ALLOCATION, Refusal};
use std::fs::File;

/// Physical memory and mappings come in multiples of this: a huge page.
pub const GRANULARITY: u64 = 2 << 20;

/// Physical memory of a card: a handle of `aclrtMallocPhysical`.
#[derive(Debug)]
pub struct Physical {
    /// The card as the program counts.
    pub card: u32,
    /// Bytes.
    pub bytes: u64,
    /// How many mappings there are.
    pub mappings: usize,
    file: File,
    contents: Shared,
}

fn refuse(message: String) -> Refusal {
    Refusal::new(BAD_PARAMETER, message)
}

impl Memory {
    /// Takes physical memory.
    ///
    /// # Errors
    /// 107000: not in multiples of [`GRANULARITY`]; 207018: not so much is free.
    pub fn take_physical(&self, bytes: u64) -> Result<Physical, Refusal> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(refuse(format!(
                "aclrtMallocPhysical: size is {bytes}, a multiple of {GRANULARITY} is expected"
            )));
        }
        let mut table = self.table();
        let free = self.limit.saturating_sub(table.used);
        if bytes > free {
            let message = format!(
                "card {}: out of memory: {bytes} bytes asked for, {free} of {} are free",
                self.card, self.limit
            );
            return Err(Refusal::new(DEVICE_OUT_OF_MEMORY, message));
        }
        let file = arena::nameless_file(bytes).map_err(|error| Refusal::new(MEMORY_ALLOCATION, error.to_string()))?;
        table.used += bytes;
        Ok(Physical { card: self.card, bytes, mappings: 0, file, contents: Shared::default() })
    }

    /// Gives physical memory back.
    pub fn give_physical(&self, physical: &Physical) {
        let mut table = self.table();
        table.used = table.used.saturating_sub(physical.bytes);
    }

    /// Reserves addresses.
    ///
    /// # Errors
    /// 107000: none asked for; 207018: there are not so many.
    pub fn reserve(&self, bytes: u64) -> Result<Address, Refusal> {
        let room = bytes.checked_next_multiple_of(GRANULARITY).filter(|&room| room > 0);
        let room = room.ok_or_else(|| refuse(format!("aclrtReserveMemAddress: size is {bytes}")))?;
        let mut table = self.table();
        let place = table.place(room + GAP, GRANULARITY, self.arena.bytes);
        let offset = place.ok_or_else(|| {
            Refusal::new(DEVICE_OUT_OF_MEMORY, format!("card {}: no {room} addresses are free", self.card))
        })?;
        table.reservations.insert(offset, room);
        Ok(self.arena.seen + offset)
    }

    /// Gives addresses back.
    ///
    /// # Errors
    /// 107000: no reservation starts there, or memory is mapped in it.
    pub fn release(&self, at: Address) -> Result<(), Refusal> {
        let mut table = self.table();
        let offset = at.wrapping_sub(self.arena.seen);
        let Some(&bytes) = table.reservations.get(&offset) else {
            return Err(refuse(format!("aclrtReleaseMemAddress: no reservation starts at {at:#x}")));
        };
        let mapped = table.regions.range(offset..offset + bytes).count();
        if mapped > 0 {
            return Err(refuse(format!(
                "aclrtReleaseMemAddress: {mapped} mappings are still in the reservation at {at:#x}"
            )));
        }
        table.reservations.remove(&offset);
        table.forget(offset, bytes);
        Ok(())
    }

    /// Maps physical memory at reserved addresses.
    ///
    /// # Errors
    /// 107000: another size, no reservation around, no multiple of [`GRANULARITY`], or something is mapped there.
    pub fn map(&self, at: Address, bytes: u64, physical: &mut Physical, handle: u64) -> Result<(), Refusal> {
        let entry = "aclrtMapMem";
        if bytes != physical.bytes {
            return Err(refuse(format!("{entry}: size is {bytes}, the handle has {}", physical.bytes)));
        }
        let mut table = self.table();
        let offset = at.wrapping_sub(self.arena.seen);
        let around = table.reservations.range(..=offset).next_back();
        let inside = around.is_some_and(|(&start, &room)| offset + bytes <= start + room);
        if !inside || !offset.is_multiple_of(GRANULARITY) {
            return Err(refuse(format!(
                "{entry}: {bytes} bytes at {at:#x} are not in a reservation, or not aligned to {GRANULARITY}"
            )));
        }
        let before = table.regions.range(..offset + bytes).next_back();
        if before.is_some_and(|(&start, region)| start + region.bytes > offset) {
            return Err(refuse(format!("{entry}: memory is already mapped at {at:#x}")));
        }
        self.arena
            .map(offset, bytes, &physical.file)
            .map_err(|error| Refusal::new(MEMORY_ALLOCATION, error.to_string()))?;
        let region = Region { bytes, taken: bytes, mapped: Some(handle), contents: physical.contents.clone() };
        table.regions.insert(offset, region);
        physical.mappings += 1;
        Ok(())
    }

    /// The mapping that starts at an address.
    pub fn mapping(&self, at: Address) -> Option<Region> {
        let offset = at.checked_sub(self.arena.seen)?;
        self.table().regions.get(&offset).filter(|region| region.mapped.is_some()).cloned()
    }

    /// Takes a mapping away.
    pub fn unmap(&self, at: Address) -> Option<Region> {
        let region = self.mapping(at)?;
        let offset = at - self.arena.seen;
        let mut table = self.table();
        table.regions.remove(&offset);
        table.forget(offset, region.bytes);
        self.arena.unmap(offset, region.bytes);
        Some(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_memory_at_two_addresses() {
        let memory = Memory::new(0, 4 * GRANULARITY).expect("there are addresses");
        let at = memory.reserve(3 * GRANULARITY).expect("there are addresses");
        assert_eq!(memory.free_and_total().0, 4 * GRANULARITY);
        let mut physical = memory.take_physical(GRANULARITY).expect("it fits");
        assert_eq!(memory.free_and_total().0, 3 * GRANULARITY);
        assert_eq!(memory.map(at, GRANULARITY, &mut physical, 1), Ok(()));
        assert_eq!(memory.map(at + GRANULARITY, GRANULARITY, &mut physical, 1), Ok(()));
        memory.bytes_mut(at + 5, 1).expect("it is mapped")[0] = 7;
        assert_eq!(memory.bytes(at + GRANULARITY + 5, 1).expect("it is mapped"), [7]);
        assert!(memory.bytes(at, 2 * GRANULARITY).is_ok());
        assert!(memory.bytes(at, 2 * GRANULARITY + 1).is_err());
        assert!(memory.unmap(at).is_some() && memory.unmap(at).is_none());
        assert!(memory.bytes(at, 1).is_err() && memory.release(at).is_err());
        assert!(memory.unmap(at + GRANULARITY).is_some());
        assert_eq!(memory.release(at), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let memory = Memory::new(0, 4 * GRANULARITY).expect("there are addresses");
        let code = |result: Result<Physical, Refusal>| result.map(drop).expect_err("refused").code;
        assert_eq!(code(memory.take_physical(100)), BAD_PARAMETER);
        assert_eq!(code(memory.take_physical(5 * GRANULARITY)), DEVICE_OUT_OF_MEMORY);
        let mut physical = memory.take_physical(GRANULARITY).expect("it fits");
        let at = memory.reserve(GRANULARITY).expect("there are addresses");
        for (at, bytes) in [(at, 2 * GRANULARITY), (at + GRANULARITY, GRANULARITY), (at + 4096, GRANULARITY)] {
            assert_eq!(memory.map(at, bytes, &mut physical, 1).expect_err("refused").code, BAD_PARAMETER);
        }
        assert_eq!(memory.map(at, GRANULARITY, &mut physical, 1), Ok(()));
        assert_eq!(memory.map(at, GRANULARITY, &mut physical, 1).expect_err("twice").code, BAD_PARAMETER);
    }
}
