//! What a call answers: the codes of `acl_base.h` and `aclnn_base.h`, and the sentence behind the last one.
//!
//! A refusal sets the thread's recent message, which `aclGetRecentErrMsg` hands out; the message begins with
//! `npu-sim:`, so that nobody takes it for hardware's.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

macro_rules! codes {
    ($($name:ident = $value:literal),+ $(,)?) => {
        $(#[doc = concat!("`", stringify!($name), "`")] #[allow(dead_code)] pub const $name: i32 = $value;)+

        /// The name of a code; `UNKNOWN` for a number that is none of ours.
        pub fn name(code: i32) -> &'static str {
            match code {
                $($value => stringify!($name),)+
                _ => "UNKNOWN",
            }
        }
    };
}

codes! {
    SUCCESS = 0,
    INVALID_PARAMETER = 100000,
    UNINITIALIZED = 100001,
    REPEAT_INITIALIZE = 100002,
    OPERATOR_NOT_FOUND = 100024,
    UNSUPPORTED_DATA_TYPE = 100026,
    FORMAT_MISMATCH = 100027,
    KERNEL_NOT_FOUND = 100029,
    REPEAT_FINALIZE = 100037,
    BAD_PARAMETER = 107000,
    INVALID_DEVICE = 107001,
    CONTEXT_NULL = 107002,
    STREAM_CONTEXT = 107003,
    EVENT_TIMESTAMP_INVALID = 107006,
    EVENT_TIMESTAMP_REVERSED = 107007,
    ADDRESS_UNALIGNED = 107008,
    INVALID_MEMORY_TYPE = 107016,
    INVALID_HANDLE = 107017,
    INVALID_MALLOC_TYPE = 107018,
    WAIT_TIMEOUT = 107019,
    TASK_TIMEOUT = 107020,
    DEVICE_TASK_ABORT = 107022,
    STREAM_ABORT = 107023,
    CAPTURE_DEPENDENCY = 107024,
    STREAM_UNJOINED = 107025,
    MODEL_CAPTURED = 107026,
    STREAM_CAPTURED = 107027,
    EVENT_CAPTURED = 107028,
    STREAM_NOT_CAPTURED = 107029,
    CAPTURE_MODE_NOT_SUPPORTED = 107030,
    STREAM_CAPTURE_IMPLICIT = 107031,
    CAPTURE_CONFLICT = 107032,
    TASK_GROUP_STATUS = 107033,
    TASK_GROUP_INTERRUPTED = 107034,
    PARAMETER_NULL = 161001,
    PARAMETER_INVALID = 161002,
    BAD_ALLOCATION = 200000,
    INTERFACE_NOT_SUPPORTED = 200001,
    FEATURE_UNSUPPORTED = 200006,
    RUNTIME_FEATURE_NOT_SUPPORTED = 207000,
    MEMORY_ALLOCATION = 207001,
    MEMORY_FREE = 207002,
    NO_DEVICE = 207004,
    RESOURCE = 207005,
    NO_EVENT = 207007,
    NO_STREAM = 207008,
    OVER_LIMIT = 207012,
    DEVICE_OUT_OF_MEMORY = 207018,
    STORAGE_OVER_LIMIT = 300000,
    OPERATOR_RUNTIME = 361001,
    INTERNAL_ERROR = 500000,
    DEVICE_INTERNAL = 507000,
    MODEL_EXECUTE = 507011,
    AICORE_TIMEOUT = 507014,
    AICORE_EXCEPTION = 507015,
    AICORE_TRAP = 507016,
    AICPU_EXCEPTION = 507018,
    VECTOR_CORE_TIMEOUT = 507034,
    VECTOR_CORE_EXCEPTION = 507035,
    STREAM_SYNC_TIMEOUT = 507046,
    EVENT_SYNC_TIMEOUT = 507047,
    DEVICE_MEMORY = 507053,
    DRIVER_INTERNAL = 507899,
    CAPTURE_INVALIDATED = 507903,
    OPERATOR_INNER = 561000,
    OPERATOR_INFER_SHAPE = 561001,
    OPERATOR_TILING = 561002,
    OPERATOR_FIND_KERNEL = 561003,
    OPERATOR_CREATE_EXECUTOR = 561101,
    OPERATOR_EXECUTOR_NOT_RELEASED = 561102,
    OPERATOR_NULL = 561103,
}

/// A call that is refused: its code and the sentence that says what, where, expected and found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One of the constants of this room.
    pub code: i32,
    /// Without the leading `npu-sim:`.
    pub message: String,
}

impl Refusal {
    /// A refusal with this code and sentence.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

thread_local! {
    static RECENT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Sets the thread's recent message. A thread that is ending, whose own things are gone already, keeps none.
pub fn remember(refusal: &Refusal) {
    let text = format!("npu-sim: {} ({} {})", refusal.message, refusal.code, name(refusal.code)).replace('\0', " ");
    let _ = RECENT.try_with(|recent| *recent.borrow_mut() = CString::new(text).ok());
}

/// The thread's recent message for `aclGetRecentErrMsg`: null where nothing was refused or the thread is ending; valid
/// until the thread's next refusal.
pub fn recent() -> *const c_char {
    let text = RECENT.try_with(|recent| recent.borrow().as_ref().map_or(ptr::null(), |text| text.as_ptr()));
    text.unwrap_or(ptr::null())
}

/// Runs the body of an entry of the C surface: a refusal becomes its code and the recent message, a panic becomes
/// 500000.
pub fn answer(entry: &str, body: impl FnOnce() -> Result<(), Refusal>) -> i32 {
    value_or_answer(entry, body).err().unwrap_or(SUCCESS)
}

/// As [`answer`], for an entry that hands something back besides its code.
pub fn value_or_answer<T>(entry: &str, body: impl FnOnce() -> Result<T, Refusal>) -> Result<T, i32> {
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(refusal)) => refusal,
        Err(panic) => Refusal::new(INTERNAL_ERROR, format!("{entry}: the simulator itself failed: {}", said(&*panic))),
    };
    remember(&refusal);
    Err(refusal.code)
}

/// What a panic said.
pub fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The thread's recent message, for tests.
#[cfg(test)]
pub fn recent_text() -> String {
    RECENT.with(|recent| recent.borrow().as_ref().map_or(String::new(), |text| text.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_refusal_is_a_code_and_a_sentence() {
        assert_eq!(answer("entry", || Ok(())), 0);
        assert_eq!(answer("entry", || Err(Refusal::new(PARAMETER_INVALID, "aclnnAdd: out is int8"))), 161002);
        assert_eq!(recent_text(), "npu-sim: aclnnAdd: out is int8 (161002 PARAMETER_INVALID)");
    }

    /// Calls when its thread ends, as a destructor of C does.
    struct AtTheEnd;

    static AT_THE_END: Mutex<Option<(i32, bool)>> = Mutex::new(None);

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let code = answer("entry", || Err(Refusal::new(BAD_PARAMETER, "aclrtFree: nothing is there")));
            *AT_THE_END.lock().expect("nobody failed") = Some((code, recent().is_null()));
        }
    }

    #[test]
    fn a_thread_that_is_ending_is_answered() {
        thread_local! {
            static END: AtTheEnd = const { AtTheEnd };
        }
        // What a thread has made last goes first: the message is gone when the other calls.
        let thread = std::thread::spawn(|| {
            END.with(|_| ());
            answer("entry", || Err(Refusal::new(BAD_PARAMETER, "aclrtFree: nothing is there")))
        });
        assert_eq!(thread.join().expect("the thread ends"), BAD_PARAMETER);
        assert_eq!(*AT_THE_END.lock().expect("nobody failed"), Some((BAD_PARAMETER, true)));
    }

    #[test]
    fn a_panic_does_not_cross_the_surface() {
        assert_eq!(answer("entry", || panic!("broken {}", 1)), INTERNAL_ERROR);
        assert!(recent_text().contains("entry: the simulator itself failed: broken 1"));
    }
}
