//! The built library, opened as a program in C opens it.

#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

/// A handle or an address.
pub type Pointer = *mut c_void;

/// Where cargo put the library: beside the test, or a folder up.
pub fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folders = test.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("libtrueup_npu_sim.so")).filter(|path| path.exists());
    let newest = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).ok();
    let first = found.next().expect("cargo builds the library before its tests");
    found.fold(first, |best, other| if newest(&other) > newest(&best) { other } else { best })
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the library's initialisers do nothing but set up Rust's own.
    LIBRARY.get_or_init(|| unsafe { Library::new(path()) }.expect("the library opens"))
}

macro_rules! symbols {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)+) => {
        $(#[allow(non_snake_case)]
        #[allow(clippy::too_many_arguments, reason = "the vendor's functions take as many")]
        pub fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the types are those of the C declaration; a test passes what the call expects or what it must
            // refuse.
            unsafe {
                let symbol: Symbol<unsafe extern "C" fn($($kind),*) -> $result> =
                    library().get(concat!(stringify!($name), "\0").as_bytes()).expect(stringify!($name));
                symbol($($argument),*)
            }
        })+
    };
}

symbols! {
    aclInit(path: *const c_char) -> i32;
    aclFinalize() -> i32;
    aclGetRecentErrMsg() -> *const c_char;
    aclrtGetSocName() -> *const c_char;
    aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> i32;
    aclrtSetDevice(device: i32) -> i32;
    aclrtResetDevice(device: i32) -> i32;
    aclrtResetDeviceForce(device: i32) -> i32;
    aclrtGetDevice(device: *mut i32) -> i32;
    aclrtGetDeviceCount(count: *mut u32) -> i32;
    aclrtSynchronizeDevice() -> i32;
    aclrtGetRunMode(mode: *mut i32) -> i32;
    aclrtGetMemInfo(attribute: i32, free: *mut usize, total: *mut usize) -> i32;
    aclrtMalloc(pointer: *mut Pointer, bytes: usize, policy: i32) -> i32;
    aclrtMallocAlign32(pointer: *mut Pointer, bytes: usize, policy: i32) -> i32;
    aclrtFree(pointer: Pointer) -> i32;
    aclrtMallocHost(pointer: *mut Pointer, bytes: usize) -> i32;
    aclrtFreeHost(pointer: Pointer) -> i32;
    aclrtMemcpy(target: Pointer, room: usize, source: Pointer, count: usize, kind: i32) -> i32;
    aclrtMemcpyAsync(target: Pointer, room: usize, source: Pointer, count: usize, kind: i32, stream: Pointer) -> i32;
    aclrtMemcpy2d(target: Pointer, tp: usize, source: Pointer, sp: usize, width: usize, height: usize, kind: i32) -> i32;
    aclrtMemcpy2dAsync(target: Pointer, tp: usize, source: Pointer, sp: usize, width: usize, height: usize, kind: i32, stream: Pointer) -> i32;
    aclrtMemset(pointer: Pointer, room: usize, value: i32, count: usize) -> i32;
    aclrtMemsetAsync(pointer: Pointer, room: usize, value: i32, count: usize, stream: Pointer) -> i32;
    aclrtCreateStream(stream: *mut Pointer) -> i32;
    aclrtCreateStreamWithConfig(stream: *mut Pointer, priority: u32, flag: u32) -> i32;
    aclrtDestroyStream(stream: Pointer) -> i32;
    aclrtSynchronizeStream(stream: Pointer) -> i32;
    aclrtSynchronizeStreamWithTimeout(stream: Pointer, milliseconds: i32) -> i32;
    aclrtStreamQuery(stream: Pointer, status: *mut i32) -> i32;
    aclrtStreamWaitEvent(stream: Pointer, event: Pointer) -> i32;
    aclrtCreateEvent(event: *mut Pointer) -> i32;
    aclrtCreateEventWithFlag(event: *mut Pointer, flag: u32) -> i32;
    aclrtCreateEventExWithFlag(event: *mut Pointer, flag: u32) -> i32;
    aclrtDestroyEvent(event: Pointer) -> i32;
    aclrtRecordEvent(event: Pointer, stream: Pointer) -> i32;
    aclrtResetEvent(event: Pointer, stream: Pointer) -> i32;
    aclrtQueryEvent(event: Pointer, status: *mut i32) -> i32;
    aclrtQueryEventStatus(event: Pointer, status: *mut i32) -> i32;
    aclrtSynchronizeEvent(event: Pointer) -> i32;
    aclrtEventElapsedTime(milliseconds: *mut f32, start: Pointer, end: Pointer) -> i32;
    aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> i32;
    aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> i32;
    aclrtDeviceDisablePeerAccess(peer: i32) -> i32;
    aclrtCreateContext(context: *mut Pointer, device: i32) -> i32;
    aclrtDestroyContext(context: Pointer) -> i32;
    aclrtSetCurrentContext(context: Pointer) -> i32;
    aclrtGetCurrentContext(context: *mut Pointer) -> i32;
    aclrtSetSysParamOpt(option: i32, value: i64) -> i32;
    aclrtSetDeviceSatMode(mode: i32) -> i32;
    aclGetDeviceCapability(device: u32, info: i32, value: *mut i64) -> i32;
    aclrtMemGetAllocationGranularity(prop: *const [u32; 8], option: i32, granularity: *mut usize) -> i32;
    aclrtReserveMemAddress(pointer: *mut Pointer, bytes: usize, alignment: usize, expected: Pointer, flags: u64) -> i32;
    aclrtReleaseMemAddress(pointer: Pointer) -> i32;
    aclrtMallocPhysical(handle: *mut Pointer, bytes: usize, prop: *const [u32; 8], flags: u64) -> i32;
    aclrtFreePhysical(handle: Pointer) -> i32;
    aclrtMapMem(pointer: Pointer, bytes: usize, offset: usize, handle: Pointer, flags: u64) -> i32;
    aclrtUnmapMem(pointer: Pointer) -> i32;
    aclmdlRICaptureBegin(stream: Pointer, mode: i32) -> i32;
    aclmdlRICaptureGetInfo(stream: Pointer, status: *mut i32, model: *mut Pointer) -> i32;
    aclmdlRICaptureEnd(stream: Pointer, model: *mut Pointer) -> i32;
    aclmdlRIExecuteAsync(model: Pointer, stream: Pointer) -> i32;
    aclmdlRIDestroy(model: Pointer) -> i32;
    aclmdlRIDebugPrint(model: Pointer) -> i32;
    aclmdlRICaptureThreadExchangeMode(mode: *mut i32) -> i32;
    aclmdlRICaptureTaskGrpBegin(stream: Pointer) -> i32;
    aclmdlRICaptureTaskGrpEnd(stream: Pointer, group: *mut Pointer) -> i32;
    aclmdlRICaptureTaskUpdateBegin(stream: Pointer, group: Pointer) -> i32;
    aclmdlRICaptureTaskUpdateEnd(stream: Pointer) -> i32;
    aclCreateTensor(dims: *const i64, rank: u64, ty: i32, strides: *const i64, offset: i64, format: i32, storage: *const i64, storage_rank: u64, data: Pointer) -> Pointer;
    aclDestroyTensor(tensor: Pointer) -> i32;
    aclCreateScalar(value: *mut c_void, ty: i32) -> Pointer;
    aclDestroyScalar(scalar: Pointer) -> i32;
    aclnnAddGetWorkspaceSize(a: Pointer, b: Pointer, alpha: Pointer, out: Pointer, size: *mut u64, executor: *mut Pointer) -> i32;
    aclnnAdd(workspace: Pointer, size: u64, executor: Pointer, stream: Pointer) -> i32;
}

/// A text that the library handed out.
pub fn text(pointer: *const c_char) -> String {
    assert!(!pointer.is_null());
    // SAFETY: the library hands out texts that end with a zero byte.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A run of the simulator, alone in the process, that ends with the value.
pub struct Run {
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A finding of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Kind.
    pub kind: String,
    /// Operator.
    pub operator: String,
    /// Argument.
    pub argument: String,
    /// Sentence.
    pub what: String,
}

impl Run {
    /// Begins, with settings as JSON without the braces, and the thread on card 0. Findings are reported, and are
    /// errors only where the settings say so.
    pub fn with(settings: &str) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        aclFinalize();
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let places = format!(
            r#""report": {:?}, "trace": {:?}"#,
            folder.path().join("report.json"),
            folder.path().join("trace.csv")
        );
        let strict = if settings.contains("on_finding") { "" } else { r#", "on_finding": "report""# };
        let separator = if settings.is_empty() { "" } else { "," };
        let path = folder.path().join("settings.json");
        std::fs::write(&path, format!("{{{settings}{separator}{places}{strict}}}")).expect("the folder can be written");
        let run = Self { folder, _alone: alone };
        assert_eq!(run.begin(&path), 0, "{}", message());
        assert_eq!(aclrtSetDevice(0), 0, "{}", message());
        run
    }

    fn begin(&self, path: &Path) -> i32 {
        let path = CString::new(path.to_str().expect("a path in UTF-8")).expect("no zero byte");
        aclInit(path.as_ptr())
    }

    /// Begins once more, behind an end.
    pub fn again(&self) -> i32 {
        self.begin(&self.folder.path().join("settings.json"))
    }

    /// The report that the end has written.
    pub fn report(&self) -> serde_json::Value {
        let report = std::fs::read_to_string(self.folder.path().join("report.json")).expect("a report");
        serde_json::from_str(&report).expect("JSON")
    }

    /// Ends, and gives the code and what was found.
    pub fn end(&self) -> (i32, Vec<Finding>) {
        let code = aclFinalize();
        let report = self.report();
        let field = |finding: &serde_json::Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        let findings = report["findings"].as_array().expect("a list");
        let findings = findings.iter().map(|finding| Finding {
            kind: field(finding, "kind"),
            operator: field(finding, "operator"),
            argument: field(finding, "argument"),
            what: field(finding, "what"),
        });
        (code, findings.collect())
    }

    /// Ends, and gives the kinds of what was found.
    pub fn kinds(&self) -> Vec<String> {
        self.end().1.into_iter().map(|finding| finding.kind).collect()
    }

    /// Launches and bytes of an operator, of the report of the end.
    pub fn launches(&self, operator: &str) -> (u64, u64) {
        let report = self.report();
        let count = |name: &str| report["operators"][operator][name].as_u64().expect("a count");
        (count("launches"), count("bytes"))
    }

    /// Ends, and gives how many calls had a finding of a kind.
    pub fn calls_with(&self, kind: &str) -> usize {
        self.end();
        let report = self.report();
        let findings = report["findings"].as_array().expect("a list");
        let calls = findings.iter().filter(|finding| finding["kind"] == kind).map(|finding| finding["call"].as_u64());
        calls.collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Ends, and gives the trace.
    pub fn trace(&self) -> String {
        assert_eq!(aclFinalize(), 0, "{}", message());
        std::fs::read_to_string(self.folder.path().join("trace.csv")).expect("a trace")
    }
}

/// The thread's recent message.
pub fn message() -> String {
    let recent = aclGetRecentErrMsg();
    if recent.is_null() { "no message".to_owned() } else { text(recent) }
}

/// Asserts a refusal: its code and a part of its sentence.
#[track_caller]
pub fn refused(code: i32, expected: i32, part: &str) {
    assert_eq!(code, expected, "{}", message());
    let said = message();
    assert!(said.starts_with("npu-sim: ") && said.contains(part), "{said:?} lacks {part:?}");
}

/// Asserts success.
#[track_caller]
pub fn fine(code: i32) {
    assert_eq!(code, 0, "{}", message());
}

/// What a call with an out pointer gives.
#[track_caller]
pub fn made<T: Default>(call: impl FnOnce(*mut T) -> i32) -> T {
    let mut value = T::default();
    fine(call(&mut value));
    value
}

/// As [`made`], for a handle or an address.
#[track_caller]
pub fn handle(call: impl FnOnce(*mut Pointer) -> i32) -> Pointer {
    let mut value = std::ptr::null_mut();
    fine(call(&mut value));
    assert!(!value.is_null());
    value
}

/// Device memory.
#[track_caller]
pub fn device(bytes: usize) -> Pointer {
    handle(|pointer| aclrtMalloc(pointer, bytes, 0))
}

/// A stream.
#[track_caller]
pub fn stream() -> Pointer {
    handle(aclrtCreateStream)
}

/// An event that can be waited for and keeps time.
#[track_caller]
pub fn event() -> Pointer {
    handle(|pointer| aclrtCreateEventWithFlag(pointer, 1 | 8))
}

/// An address some bytes further on.
pub fn at(pointer: Pointer, bytes: usize) -> Pointer {
    (pointer as usize + bytes) as Pointer
}

/// The address of host bytes.
pub fn host<T>(values: &mut [T]) -> Pointer {
    values.as_mut_ptr().cast()
}

/// A packed tensor over an address.
pub fn tensor(shape: &[i64], ty: i32, data: Pointer) -> Pointer {
    let rank = shape.len() as u64;
    aclCreateTensor(shape.as_ptr(), rank, ty, std::ptr::null(), 0, 2, shape.as_ptr(), rank, data)
}

/// `out = a + b` of f32 vectors on a stream; the code of the second phase.
#[track_caller]
pub fn add(a: Pointer, b: Pointer, out: Pointer, count: i64, stream: Pointer) -> i32 {
    let tensors = [a, b, out].map(|data| tensor(&[count], 0, data));
    let mut one = 1.0f32;
    let alpha = aclCreateScalar((&raw mut one).cast(), 0);
    let (mut size, mut executor) = (0, std::ptr::null_mut());
    fine(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], alpha, tensors[2], &mut size, &mut executor));
    assert_eq!(size, 0);
    let code = aclnnAdd(std::ptr::null_mut(), 0, executor, stream);
    tensors.iter().for_each(|&tensor| fine(aclDestroyTensor(tensor)));
    fine(aclDestroyScalar(alpha));
    code
}
