//! Copies from card to card, without the host.

use super::{Allocation, Card, Event};
use cudarc::driver::{result, sys};
use std::sync::{Arc, PoisonError};

/// Bytes that are copied to see whether they arrive.
const TRIED_BYTES: usize = 4096;

impl Allocation {
    /// Takes bytes of another card, behind all that both were asked for before; what that card is asked for from now on
    /// comes behind the copy.
    pub fn copy_from(&self, first: usize, source: &Allocation, source_first: usize, len: usize) -> Result<(), String> {
        let (to, from) = (self.card(), source.card());
        let (target, start) = (self.place(first, len)?, source.place(source_first, len)?);
        to.reach(from)?;
        let computed = Event::new(from)?;
        computed.mark()?;
        to.follow(&computed)?;
        // SAFETY: both lie within allocations of these cards. The target's card waits for its own work before the
        // target is freed, and the source's for the copy, which it follows from here on.
        to.call(|| unsafe { result::memcpy_peer_async(to.context, target, from.context, start, len, to.stream) })?;
        let copied = Event::new(to)?;
        copied.mark()?;
        from.follow(&copied)
    }
}

impl Card {
    /// What it is asked for from now on comes behind what an event of any card marks.
    fn follow(&self, event: &Event) -> Result<(), String> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the card's own stream, and an event that is there.
        self.call(|| unsafe { result::stream::wait_event(self.stream, event.handle(), flags) })
    }

    /// Lets the card use the other's memory by itself, once, where both can; else the driver goes through the host.
    fn reach(self: &Arc<Card>, other: &Arc<Card>) -> Result<(), String> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.device == other.device || peers.contains(&other.device) {
            return Ok(());
        }
        let mut can = 0;
        // SAFETY: cards that the driver named.
        self.call(|| unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, other.device) }.result())?;
        if can != 0 {
            // SAFETY: the other's context is retained as long as it lives. Another user of this card may have asked
            // before.
            self.call(|| match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) } {
                // Where the system has no more of it to give, copies go through the host too.
                sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                | sys::CUresult::CUDA_ERROR_TOO_MANY_PEERS
                | sys::CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => Ok(()),
                result => result.result(),
            })?;
            if !self.tries(other)? {
                // SAFETY: as above; the driver goes through the host from here on.
                self.call(|| unsafe { sys::cuCtxDisablePeerAccess(other.context) }.result())?;
                can = 0;
            }
        }
        if can == 0 && !self.tries(other)? {
            return Err("bytes that are copied to it from another card are lost".to_owned());
        }
        peers.push(other.device);
        Ok(())
    }

    /// Whether known bytes of the other card arrive: behind some bridges they do not, though both cards say that they
    /// can.
    fn tries(self: &Arc<Card>, other: &Arc<Card>) -> Result<bool, String> {
        let sent: Vec<u8> = (0..TRIED_BYTES).map(|place| (place % 251) as u8).collect();
        let full = || "not enough memory to test whether bytes arrive".to_owned();
        let source = Allocation::new(other, TRIED_BYTES)?.ok_or_else(full)?;
        let target = Allocation::new(self, TRIED_BYTES)?.ok_or_else(full)?;
        let mut found = vec![0; TRIED_BYTES];
        // SAFETY: all of the other card's memory, from as many bytes of the host.
        other.call(|| unsafe { result::memcpy_htod_sync(source.address(), &sent) })?;
        self.call(|| {
            // SAFETY: both have so many bytes, and the calls return when they are there.
            unsafe { sys::cuMemcpyPeer(target.address(), self.context, source.address(), other.context, TRIED_BYTES) }
                .result()?;
            // SAFETY: as above, into as many bytes of the host.
            unsafe { result::memcpy_dtoh_sync(&mut found, target.address()) }
        })?;
        Ok(found == sent)
    }
}
