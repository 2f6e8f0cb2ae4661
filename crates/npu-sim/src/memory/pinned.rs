//! Host memory of `aclrtMallocHost`, which copies reach without the host's help and which therefore must outlive them.

use super::{Address, Region, Shared};
use crate::status::{BAD_PARAMETER, MEMORY_ALLOCATION, Refusal};
use std::{alloc::Layout, collections::BTreeMap};

/// The pinned memory of the process.
#[derive(Debug, Default)]
pub struct Pinned {
    regions: BTreeMap<Address, Region>,
}

fn layout(bytes: u64) -> Result<Layout, Refusal> {
    let size = usize::try_from(bytes).ok().filter(|&size| size > 0);
    let layout = size.and_then(|size| Layout::from_size_align(size, 64).ok());
    layout.ok_or_else(|| {
        Refusal::new(BAD_PARAMETER, format!("aclrtMallocHost: size is {bytes}, at least a byte is expected"))
    })
}

impl Pinned {
    /// Takes host memory, aligned to 64 bytes.
    ///
    /// # Errors
    /// 107000: none asked for; 207001: there is not so much.
    #[allow(unsafe_code)]
    pub fn allocate(&mut self, bytes: u64) -> Result<Address, Refusal> {
        let layout = layout(bytes)?;
        // SAFETY: the layout is not of no bytes.
        let at = unsafe { std::alloc::alloc(layout) } as u64;
        if at == 0 {
            return Err(Refusal::new(MEMORY_ALLOCATION, format!("aclrtMallocHost: the host has no {bytes} bytes")));
        }
        self.regions.insert(at, Region { bytes, taken: bytes, mapped: None, contents: Shared::default() });
        Ok(at)
    }

    /// The region that starts at an address.
    pub fn region(&self, at: Address) -> Option<&Region> {
        self.regions.get(&at)
    }

    /// The region that an address lies in, and its start.
    pub fn around(&self, at: Address) -> Option<(Address, &Region)> {
        let (&start, region) = self.regions.range(..=at).next_back()?;
        (at < start + region.bytes).then_some((start, region))
    }

    /// Ends a region; its memory goes back to the host only where nothing reaches it any more.
    #[allow(unsafe_code)]
    pub fn free(&mut self, at: Address, gives_back: bool) {
        let Some(region) = self.regions.remove(&at).filter(|_| gives_back) else { return };
        if let Ok(layout) = layout(region.bytes) {
            // SAFETY: allocated above with this layout, and known until now.
            unsafe { std::alloc::dealloc(at as *mut u8, layout) };
        }
    }

    /// How many live, and their bytes.
    pub fn live(&self) -> (usize, u64) {
        (self.regions.len(), self.regions.values().map(|region| region.bytes).sum())
    }
}
