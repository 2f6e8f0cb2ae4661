//! Reserved addresses and physical memory.

use crate::library::*;
use std::ptr::null_mut;

const HUGE: usize = 2 << 20;

/// Of device memory with huge pages on a card.
fn property(card: u32) -> [u32; 8] {
    [0, 0, 4, card, 1, 0, 0, 0]
}

#[test]
fn memory_is_mapped_and_used() {
    let run = Run::with(r#""memory_bytes": 8388608"#);
    let prop = property(0);
    assert_eq!(made(|bytes| aclrtMemGetAllocationGranularity(&prop, 1, bytes)), HUGE);
    let reserved = handle(|pointer| aclrtReserveMemAddress(pointer, 4 * HUGE, 0, null_mut(), 1));
    let parts = [0, 1].map(|part| {
        let physical = handle(|pointer| aclrtMallocPhysical(pointer, HUGE, &prop, 0));
        fine(aclrtMapMem(at(reserved, part * HUGE), HUGE, 0, physical, 0));
        physical
    });
    // An operand over both parts.
    fine(aclrtMemset(at(reserved, HUGE - 32), 64, 0, 64));
    let out = device(64);
    fine(add(at(reserved, HUGE - 32), at(reserved, HUGE - 32), out, 16, null_mut()));
    fine(aclrtSynchronizeDevice());
    refused(aclrtMemset(at(reserved, 2 * HUGE - 1), 2, 0, 2), 107000, "exceed the end of their region");
    refused(aclrtFree(reserved), 107000, "not where memory of this kind starts");
    refused(aclrtFreePhysical(parts[0]), 107000, "still mapped at 1 addresses");
    refused(aclrtReleaseMemAddress(reserved), 107000, "2 mappings are still");
    for (part, physical) in parts.into_iter().enumerate() {
        fine(aclrtUnmapMem(at(reserved, part * HUGE)));
        refused(aclrtUnmapMem(at(reserved, part * HUGE)), 107000, "freed before");
        fine(aclrtFreePhysical(physical));
    }
    fine(aclrtReleaseMemAddress(reserved));
    fine(aclrtFree(out));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn memory_that_is_unmapped_in_use_is_found() {
    let run = Run::with(r#""timing": "late""#);
    let reserved = handle(|pointer| aclrtReserveMemAddress(pointer, HUGE, 0, null_mut(), 0));
    let physical = handle(|pointer| aclrtMallocPhysical(pointer, HUGE, &property(0), 0));
    fine(aclrtMapMem(reserved, HUGE, 0, physical, 0));
    fine(aclrtMemsetAsync(reserved, 64, 0, 64, null_mut()));
    fine(aclrtUnmapMem(reserved));
    assert_eq!(run.kinds()[0], "freed_in_use");
}

#[test]
fn wrong_properties_and_sizes_are_refused() {
    let run = Run::with(r#""cards": 2, "memory_bytes": 4194304"#);
    let made_physical = |bytes, prop: [u32; 8]| aclrtMallocPhysical(&mut null_mut(), bytes, &prop, 0);
    refused(made_physical(100, property(0)), 107000, "a multiple of 2097152");
    refused(made_physical(3 * HUGE, property(0)), 207018, "out of memory");
    refused(made_physical(HUGE, property(2)), 107001, "device 2");
    refused(made_physical(HUGE, [1, 0, 4, 0, 1, 0, 0, 0]), 107000, "handleType 0");
    refused(made_physical(HUGE, [0, 0, 4, 0, 1, 0, 1, 0]), 107000, "reserve is 0");
    refused(aclrtReserveMemAddress(&mut null_mut(), HUGE, 64, null_mut(), 0), 107000, "alignment 64");
    refused(aclrtReserveMemAddress(&mut null_mut(), 0, 0, null_mut(), 0), 107000, "size is 0");
    let reserved = handle(|pointer| aclrtReserveMemAddress(pointer, HUGE, 0, null_mut(), 0));
    let far = handle(|pointer| aclrtMallocPhysical(pointer, HUGE, &property(1), 0));
    refused(aclrtMapMem(reserved, HUGE, 0, far, 0), 107000, "the memory is of card 1, the addresses of card 0");
    let near = handle(|pointer| aclrtMallocPhysical(pointer, HUGE, &property(0), 0));
    refused(aclrtMapMem(reserved, HUGE / 2, 0, near, 0), 107000, "the handle has 2097152");
    refused(aclrtMapMem(at(reserved, HUGE), HUGE, 0, near, 0), 107000, "not in a reservation");
    refused(aclrtMapMem(reserved, HUGE, 0, reserved, 0), 107017, "aclrtDrvMemHandle is expected");
    fine(aclrtFreePhysical(near));
    fine(aclrtFreePhysical(far));
    fine(aclrtReleaseMemAddress(reserved));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_310b_maps_nothing() {
    let run = Run::with(r#""chip": "310b""#);
    refused(aclrtMemGetAllocationGranularity(&property(0), 0, &mut 0), 207000, "Ascend310B1 maps no memory");
    assert_eq!(run.end(), (0, vec![]));
}
