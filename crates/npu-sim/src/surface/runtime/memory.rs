//! Memory: of devices, of the host, copies and fills, addresses that are mapped.

use super::{call, given};
use crate::{
    finding::{Found, Kind},
    memory::{
        Address, Memory, Region, Shared,
        copy::{Copy, On, fill},
        virtual_memory::GRANULARITY,
    },
    object::{array, put},
    status::{BAD_PARAMETER, INVALID_MALLOC_TYPE, RUNTIME_FEATURE_NOT_SUPPORTED, Refusal},
    stream::admit::in_use,
    world::{self, Handle, World},
};
use std::{
    ffi::c_void,
    sync::{Arc, MutexGuard},
};

/// Bytes that the vendor's allocator adds.
const EXTRA: u64 = 32;

fn allocate(entry: &str, pointer: *mut *mut c_void, bytes: usize, policy: i32, extra: u64) -> Result<(), Refusal> {
    const HUGE_1G: [i32; 2] = [6, 7];
    let pointer = given(entry, "devPtr", pointer)?;
    if !matches!(policy, 0..=7 | 0x100 | 0x1000 | 0x10_0000) {
        let message = format!("{entry}: policy is {policy:#x}, one of 0 to 7, 0x100, 0x1000 or 0x100000 is expected");
        return Err(Refusal::new(INVALID_MALLOC_TYPE, message));
    }
    let world = world::open()?;
    let card = world.context()?.1.card;
    let extra = if HUGE_1G.contains(&policy) { 0 } else { extra };
    let at = world.cards[card as usize].memory.allocate(bytes as u64, extra)?;
    put(pointer, at as *mut c_void);
    Ok(())
}

/// `aclrtMalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMalloc(pointer: *mut *mut c_void, bytes: usize, policy: i32) -> i32 {
    call("aclrtMalloc", || allocate("aclrtMalloc", pointer, bytes, policy, EXTRA))
}

/// `aclrtMallocAlign32`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocAlign32(pointer: *mut *mut c_void, bytes: usize, policy: i32) -> i32 {
    call("aclrtMallocAlign32", || allocate("aclrtMallocAlign32", pointer, bytes, policy, 0))
}

/// `aclrtMallocCached`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocCached(pointer: *mut *mut c_void, bytes: usize, policy: i32) -> i32 {
    call("aclrtMallocCached", || allocate("aclrtMallocCached", pointer, bytes, policy, EXTRA))
}

fn unknown(entry: &str, at: Address) -> Refusal {
    Refusal::new(
        BAD_PARAMETER,
        format!("{entry}: {at:#x} is not where memory of this kind starts, or it was freed before"),
    )
}

/// The memory of the card that an address is of.
fn memory_of(world: &World, at: Address) -> Option<Arc<Memory>> {
    world.cards.iter().find(|card| card.memory.owns(at)).map(|card| card.memory.clone())
}

/// Finds work that may still reach memory that is given back.
fn check_in_use(world: &mut MutexGuard<World>, entry: &str, card: u32, contents: &Shared, bytes: u64) -> bool {
    let found = in_use(world, contents, bytes);
    let is_used = found.is_some();
    if let Some(what) = found {
        world.find(Some(card), entry, Found { kind: Kind::FreedInUse, argument: "", what });
    }
    is_used
}

/// `aclrtFree`: at once, whatever is queued.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFree(pointer: *mut c_void) -> i32 {
    call("aclrtFree", || {
        let at = given("aclrtFree", "devPtr", pointer)? as Address;
        let mut world = world::open()?;
        world.context()?;
        let memory = memory_of(&world, at).ok_or_else(|| unknown("aclrtFree", at))?;
        let Region { contents, bytes, .. } = memory.region(at).ok_or_else(|| unknown("aclrtFree", at))?;
        check_in_use(&mut world, "aclrtFree", memory.card, &contents, bytes);
        memory.free(at).map(drop).ok_or_else(|| unknown("aclrtFree", at))
    })
}

/// `aclrtMallocHost`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocHost(pointer: *mut *mut c_void, bytes: usize) -> i32 {
    call("aclrtMallocHost", || {
        let pointer = given("aclrtMallocHost", "hostPtr", pointer)?;
        let mut world = world::open()?;
        world.context()?;
        put(pointer, world.pinned.allocate(bytes as u64)? as *mut c_void);
        Ok(())
    })
}

/// `aclrtFreeHost`. Memory that queued work may still reach is never given to others, since that work would tear it.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreeHost(pointer: *mut c_void) -> i32 {
    call("aclrtFreeHost", || {
        let at = given("aclrtFreeHost", "hostPtr", pointer)? as Address;
        let mut world = world::open()?;
        let card = world.context()?.1.card;
        let region = world.pinned.region(at).cloned().ok_or_else(|| unknown("aclrtFreeHost", at))?;
        let is_used = check_in_use(&mut world, "aclrtFreeHost", card, &region.contents, region.bytes);
        world.pinned.free(at, !is_used);
        Ok(())
    })
}

fn plain(
    entry: &'static str,
    target: *mut c_void,
    room: usize,
    source: *const c_void,
    count: usize,
    kind: i32,
    on: On,
) -> i32 {
    call(entry, || {
        if count > room {
            return Err(Refusal::new(BAD_PARAMETER, format!("{entry}: count is {count}, destMax is {room}")));
        }
        let width = count as u64;
        let (target, source) = (target as Address, source as Address);
        Copy { entry, target, target_pitch: width, source, source_pitch: width, width, height: 1, kind }.run(on)
    })
}

/// `aclrtMemcpy`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy(target: *mut c_void, room: usize, source: *const c_void, count: usize, kind: i32) -> i32 {
    plain("aclrtMemcpy", target, room, source, count, kind, None)
}

/// `aclrtMemcpyAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpyAsync(
    target: *mut c_void,
    room: usize,
    source: *const c_void,
    count: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    plain("aclrtMemcpyAsync", target, room, source, count, kind, Some(stream))
}

/// Target, source, width, height and kind of a copy of rows.
type Rows = ((*mut c_void, usize), (*const c_void, usize), usize, usize, i32);

fn rows(entry: &'static str, rows: Rows, on: On) -> i32 {
    call(entry, || {
        let ((target, target_pitch), (source, source_pitch), width, height, kind) = rows;
        let (target, source) = (target as Address, source as Address);
        let (target_pitch, source_pitch) = (target_pitch as u64, source_pitch as u64);
        Copy { entry, target, target_pitch, source, source_pitch, width: width as u64, height: height as u64, kind }
            .run(on)
    })
}

/// `aclrtMemcpy2d`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemcpy2d(
    target: *mut c_void,
    target_pitch: usize,
    source: *const c_void,
    source_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
) -> i32 {
    rows("aclrtMemcpy2d", ((target, target_pitch), (source, source_pitch), width, height, kind), None)
}

/// `aclrtMemcpy2dAsync`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub extern "C" fn aclrtMemcpy2dAsync(
    target: *mut c_void,
    target_pitch: usize,
    source: *const c_void,
    source_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
    stream: *mut c_void,
) -> i32 {
    rows("aclrtMemcpy2dAsync", ((target, target_pitch), (source, source_pitch), width, height, kind), Some(stream))
}

/// `aclrtMemset`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemset(pointer: *mut c_void, room: usize, value: i32, count: usize) -> i32 {
    call("aclrtMemset", || fill("aclrtMemset", pointer as Address, room as u64, value, count as u64, None))
}

/// `aclrtMemsetAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemsetAsync(
    pointer: *mut c_void,
    room: usize,
    value: i32,
    count: usize,
    stream: *mut c_void,
) -> i32 {
    call("aclrtMemsetAsync", || {
        fill("aclrtMemsetAsync", pointer as Address, room as u64, value, count as u64, Some(stream))
    })
}

/// `aclrtGetMemInfo`: an attribute that the card lacks gives zeros; where there is no HBM, questions for it are
/// answered with DDR.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtGetMemInfo(attribute: i32, free: *mut usize, total: *mut usize) -> i32 {
    const DDR: [i32; 5] = [0, 2, 3, 6, 7];
    call("aclrtGetMemInfo", || {
        let (free, total) = (given("aclrtGetMemInfo", "free", free)?, given("aclrtGetMemInfo", "total", total)?);
        let world = world::open()?;
        let card = world.context()?.1.card;
        let known = (0..=17).contains(&attribute) && !(world.chip().hbm && DDR.contains(&attribute));
        let (left, all) = if known { world.cards[card as usize].memory.free_and_total() } else { (0, 0) };
        put(free, left as usize);
        put(total, all as usize);
        Ok(())
    })
}

/// The card of an `aclrtPhysicalMemProp`, judged.
fn property(world: &World, entry: &str, property: *const c_void) -> Result<u32, Refusal> {
    const WORDS: u64 = 8;
    if !world.chip().virtual_memory {
        let message = format!("{entry}: {} maps no memory", world.chip().soc);
        return Err(Refusal::new(RUNTIME_FEATURE_NOT_SUPPORTED, message));
    }
    let refuse = |what: &str| Refusal::new(BAD_PARAMETER, format!("{entry}: {what}"));
    let words = array(property.cast::<i32>(), WORDS).ok_or_else(|| refuse("prop is a null pointer"))?;
    let &[handle_type, allocation_type, attribute, device, location_type, _, low, high] = words.as_slice() else {
        return Err(refuse("prop is not whole"));
    };
    if handle_type != 0 || allocation_type != 0 || location_type != 1 || !(0..=17).contains(&attribute) {
        let what =
            "prop: handleType 0, allocationType 0, a memory attribute, and a location of type 1 (device) are expected";
        return Err(refuse(what));
    }
    if (low, high) != (0, 0) {
        return Err(refuse("prop: reserve is 0"));
    }
    world.card(device.into())
}

/// `aclrtMemGetAllocationGranularity`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMemGetAllocationGranularity(prop: *const c_void, option: i32, granularity: *mut usize) -> i32 {
    let entry = "aclrtMemGetAllocationGranularity";
    call(entry, || {
        let world = world::open()?;
        property(&world, entry, prop)?;
        if !(0..=1).contains(&option) {
            return Err(Refusal::new(BAD_PARAMETER, format!("{entry}: option is {option}, 0 or 1 are expected")));
        }
        put(given(entry, "granularity", granularity)?, GRANULARITY as usize);
        Ok(())
    })
}

/// `aclrtReserveMemAddress`: addresses of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReserveMemAddress(
    pointer: *mut *mut c_void,
    bytes: usize,
    alignment: usize,
    expected: *mut c_void,
    flags: u64,
) -> i32 {
    let entry = "aclrtReserveMemAddress";
    call(entry, || {
        let pointer = given(entry, "virPtr", pointer)?;
        let world = world::open()?;
        let card = world.context()?.1.card;
        if !world.chip().virtual_memory {
            return Err(Refusal::new(
                RUNTIME_FEATURE_NOT_SUPPORTED,
                format!("{entry}: {} maps no memory", world.chip().soc),
            ));
        }
        if alignment != 0 || !expected.is_null() || flags > 1 {
            let message = format!(
                "{entry}: alignment {alignment}, expectPtr {expected:?}, flags {flags}: 0, null, and 0 or 1 are expected"
            );
            return Err(Refusal::new(BAD_PARAMETER, message));
        }
        put(pointer, world.cards[card as usize].memory.reserve(bytes as u64)? as *mut c_void);
        Ok(())
    })
}

/// `aclrtReleaseMemAddress`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtReleaseMemAddress(pointer: *mut c_void) -> i32 {
    call("aclrtReleaseMemAddress", || {
        let at = given("aclrtReleaseMemAddress", "virPtr", pointer)? as Address;
        let memory = memory_of(&*world::open()?, at);
        memory.ok_or_else(|| unknown("aclrtReleaseMemAddress", at))?.release(at)
    })
}

/// `aclrtMallocPhysical`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMallocPhysical(handle: *mut *mut c_void, bytes: usize, prop: *const c_void, flags: u64) -> i32 {
    let entry = "aclrtMallocPhysical";
    call(entry, || {
        let pointer = given(entry, "handle", handle)?;
        let mut world = world::open()?;
        let card = property(&world, entry, prop)?;
        if flags != 0 {
            return Err(Refusal::new(BAD_PARAMETER, format!("{entry}: flags is {flags}, 0 is expected")));
        }
        let physical = world.cards[card as usize].memory.take_physical(bytes as u64)?;
        let handle = world.handle();
        world.physical.insert(handle, physical);
        put(pointer, world::pointer(handle));
        Ok(())
    })
}

/// `aclrtFreePhysical`. That it must not be mapped any more is assumed: no page says what becomes of the mapping.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtFreePhysical(handle: *mut c_void) -> i32 {
    let entry = "aclrtFreePhysical";
    call(entry, || {
        let handle = handle as Handle;
        let mut world = world::open()?;
        let Some(physical) = world.physical.get(&handle) else {
            return Err(world.unknown(entry, "an aclrtDrvMemHandle", handle));
        };
        if physical.mappings > 0 {
            return Err(Refusal::new(
                BAD_PARAMETER,
                format!("{entry}: the memory is still mapped at {} addresses", physical.mappings),
            ));
        }
        world.cards[physical.card as usize].memory.give_physical(physical);
        world.physical.remove(&handle);
        Ok(())
    })
}

/// `aclrtMapMem`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtMapMem(
    pointer: *mut c_void,
    bytes: usize,
    offset: usize,
    handle: *mut c_void,
    flags: u64,
) -> i32 {
    let entry = "aclrtMapMem";
    call(entry, || {
        let at = given(entry, "virPtr", pointer)? as Address;
        let mut world = world::open()?;
        let handle = handle as Handle;
        if offset != 0 || flags != 0 {
            return Err(Refusal::new(
                BAD_PARAMETER,
                format!("{entry}: offset is {offset}, flags is {flags}, 0 is expected of both"),
            ));
        }
        let memory = memory_of(&world, at).ok_or_else(|| unknown(entry, at))?;
        if !world.physical.contains_key(&handle) {
            return Err(world.unknown(entry, "an aclrtDrvMemHandle", handle));
        }
        let Some(physical) = world.physical.get_mut(&handle) else { return Ok(()) };
        if physical.card != memory.card {
            let message =
                format!("{entry}: the memory is of card {}, the addresses of card {}", physical.card, memory.card);
            return Err(Refusal::new(BAD_PARAMETER, message));
        }
        memory.map(at, bytes as u64, physical, handle)
    })
}

/// `aclrtUnmapMem`: at once, whatever is queued.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtUnmapMem(pointer: *mut c_void) -> i32 {
    let entry = "aclrtUnmapMem";
    call(entry, || {
        let at = given(entry, "virPtr", pointer)? as Address;
        let mut world = world::open()?;
        let memory = memory_of(&world, at).ok_or_else(|| unknown(entry, at))?;
        let region = memory.mapping(at).ok_or_else(|| unknown(entry, at))?;
        check_in_use(&mut world, entry, memory.card, &region.contents, region.bytes);
        memory.unmap(at);
        let physical = region.mapped.and_then(|handle| world.physical.get_mut(&handle));
        physical.into_iter().for_each(|physical| physical.mappings -= 1);
        Ok(())
    })
}
