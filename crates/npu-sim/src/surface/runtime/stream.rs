//! Streams and events.

use super::{call, given};
use crate::{
    event::{self, Made},
    object::put,
    status::{BAD_PARAMETER, Refusal},
    stream, world,
};
use std::ffi::c_void;

fn create(entry: &str, pointer: *mut *mut c_void, flag: u32) -> Result<(), Refusal> {
    const FLAGS: u32 = 15;
    let pointer = given(entry, "stream", pointer)?;
    if flag & !FLAGS != 0 {
        return Err(Refusal::new(
            BAD_PARAMETER,
            format!("{entry}: flag is {flag:#x}, a sum of 1, 2, 4 and 8 is expected"),
        ));
    }
    let mut world = world::open()?;
    let (context, card) = world.context().map(|(handle, context)| (handle, context.card))?;
    put(pointer, world::pointer(world.create_stream(context, card)?));
    Ok(())
}

/// `aclrtCreateStream`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStream(stream: *mut *mut c_void) -> i32 {
    call("aclrtCreateStream", || create("aclrtCreateStream", stream, 0))
}

/// `aclrtCreateStreamWithConfig`: the priority is not used.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateStreamWithConfig(stream: *mut *mut c_void, _priority: u32, flag: u32) -> i32 {
    call("aclrtCreateStreamWithConfig", || create("aclrtCreateStreamWithConfig", stream, flag))
}

/// `aclrtDestroyStream`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyStream(stream: *mut c_void) -> i32 {
    call("aclrtDestroyStream", || stream::destroy(stream))
}

/// `aclrtSynchronizeStream`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStream(stream: *mut c_void) -> i32 {
    call("aclrtSynchronizeStream", || stream::synchronize("aclrtSynchronizeStream", stream, -1))
}

/// `aclrtSynchronizeStreamWithTimeout`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeStreamWithTimeout(stream: *mut c_void, milliseconds: i32) -> i32 {
    let entry = "aclrtSynchronizeStreamWithTimeout";
    call(entry, || stream::synchronize(entry, stream, milliseconds))
}

/// `aclrtStreamQuery`: 0 complete, 1 not ready.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamQuery(stream: *mut c_void, status: *mut i32) -> i32 {
    call("aclrtStreamQuery", || {
        let status = given("aclrtStreamQuery", "status", status)?;
        put(status, i32::from(!stream::query(stream)?));
        Ok(())
    })
}

/// `aclrtStreamWaitEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtStreamWaitEvent(stream: *mut c_void, event: *mut c_void) -> i32 {
    call("aclrtStreamWaitEvent", || event::stream_wait(stream, event))
}

fn create_event(entry: &str, pointer: *mut *mut c_void, made: Made) -> i32 {
    call(entry, || {
        let pointer = given(entry, "event", pointer)?;
        put(pointer, world::pointer(event::create(entry, made)?));
        Ok(())
    })
}

/// `aclrtCreateEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEvent(event: *mut *mut c_void) -> i32 {
    create_event("aclrtCreateEvent", event, Made::Plain)
}

/// `aclrtCreateEventWithFlag`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventWithFlag(event: *mut *mut c_void, flag: u32) -> i32 {
    create_event("aclrtCreateEventWithFlag", event, Made::WithFlag(flag))
}

/// `aclrtCreateEventExWithFlag`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtCreateEventExWithFlag(event: *mut *mut c_void, flag: u32) -> i32 {
    create_event("aclrtCreateEventExWithFlag", event, Made::ExWithFlag(flag))
}

/// `aclrtDestroyEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtDestroyEvent(event: *mut c_void) -> i32 {
    call("aclrtDestroyEvent", || event::destroy(event))
}

/// `aclrtRecordEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtRecordEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    call("aclrtRecordEvent", || event::record(event, stream))
}

/// `aclrtResetEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtResetEvent(event: *mut c_void, stream: *mut c_void) -> i32 {
    call("aclrtResetEvent", || event::reset(event, stream))
}

/// `aclrtQueryEvent`: 0 complete, 1 not ready.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEvent(event: *mut c_void, status: *mut i32) -> i32 {
    call("aclrtQueryEvent", || {
        let status = given("aclrtQueryEvent", "status", status)?;
        put(status, i32::from(!event::query("aclrtQueryEvent", event, true)?));
        Ok(())
    })
}

/// `aclrtQueryEventStatus`: 0 not ready, 1 complete.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtQueryEventStatus(event: *mut c_void, status: *mut i32) -> i32 {
    call("aclrtQueryEventStatus", || {
        let status = given("aclrtQueryEventStatus", "status", status)?;
        put(status, i32::from(event::query("aclrtQueryEventStatus", event, false)?));
        Ok(())
    })
}

/// `aclrtSynchronizeEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtSynchronizeEvent(event: *mut c_void) -> i32 {
    call("aclrtSynchronizeEvent", || event::synchronize(event))
}

/// `aclrtEventElapsedTime`.
#[unsafe(no_mangle)]
pub extern "C" fn aclrtEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> i32 {
    call("aclrtEventElapsedTime", || {
        let milliseconds = given("aclrtEventElapsedTime", "ms", milliseconds)?;
        put(milliseconds, event::elapsed(start, end)?);
        Ok(())
    })
}
