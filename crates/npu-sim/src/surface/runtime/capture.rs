//! Capture and replay.

use super::{call, given};
use crate::{capture, object::put, world, world::Handle};
use std::{ffi::c_void, ptr};

/// `aclmdlRICaptureBegin`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureBegin(stream: *mut c_void, mode: i32) -> i32 {
    call("aclmdlRICaptureBegin", || capture::begin(stream, mode))
}

/// `aclmdlRICaptureGetInfo`: 0 none, 1 active, 2 invalid; and the model, or null.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureGetInfo(stream: *mut c_void, status: *mut i32, model: *mut *mut c_void) -> i32 {
    call("aclmdlRICaptureGetInfo", || {
        let (state, handle) = capture::info(stream)?;
        put(given("aclmdlRICaptureGetInfo", "status", status)?, state);
        put(given("aclmdlRICaptureGetInfo", "modelRI", model)?, world::pointer(handle));
        Ok(())
    })
}

/// `aclmdlRICaptureEnd`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureEnd(stream: *mut c_void, model: *mut *mut c_void) -> i32 {
    call("aclmdlRICaptureEnd", || {
        let model = given("aclmdlRICaptureEnd", "modelRI", model)?;
        put(model, ptr::null_mut());
        put(model, world::pointer(capture::end(stream)?));
        Ok(())
    })
}

/// `aclmdlRIExecuteAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIExecuteAsync(model: *mut c_void, stream: *mut c_void) -> i32 {
    call("aclmdlRIExecuteAsync", || capture::execute(model as Handle, stream))
}

/// `aclmdlRIDestroy`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDestroy(model: *mut c_void) -> i32 {
    call("aclmdlRIDestroy", || capture::destroy(model as Handle))
}

/// `aclmdlRIDebugPrint`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRIDebugPrint(model: *mut c_void) -> i32 {
    call("aclmdlRIDebugPrint", || capture::print(model as Handle))
}

/// `aclmdlRICaptureThreadExchangeMode`: takes a mode and gives the one before.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureThreadExchangeMode(mode: *mut i32) -> i32 {
    call("aclmdlRICaptureThreadExchangeMode", || {
        let pointer = given("aclmdlRICaptureThreadExchangeMode", "mode", mode)?;
        let asked = crate::object::array(pointer.cast_const(), 1).map_or(0, |modes| modes[0]);
        put(pointer, capture::exchange_mode(asked)?);
        Ok(())
    })
}

/// `aclmdlRICaptureTaskGrpBegin`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpBegin(stream: *mut c_void) -> i32 {
    call("aclmdlRICaptureTaskGrpBegin", || capture::begin_group(stream))
}

/// `aclmdlRICaptureTaskGrpEnd`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskGrpEnd(stream: *mut c_void, group: *mut *mut c_void) -> i32 {
    call("aclmdlRICaptureTaskGrpEnd", || {
        let group = given("aclmdlRICaptureTaskGrpEnd", "handle", group)?;
        put(group, world::pointer(capture::end_group(stream)?));
        Ok(())
    })
}

/// `aclmdlRICaptureTaskUpdateBegin`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateBegin(stream: *mut c_void, group: *mut c_void) -> i32 {
    call("aclmdlRICaptureTaskUpdateBegin", || capture::begin_update(stream, group as Handle))
}

/// `aclmdlRICaptureTaskUpdateEnd`.
#[unsafe(no_mangle)]
pub extern "C" fn aclmdlRICaptureTaskUpdateEnd(stream: *mut c_void) -> i32 {
    call("aclmdlRICaptureTaskUpdateEnd", || capture::end_update(stream))
}
