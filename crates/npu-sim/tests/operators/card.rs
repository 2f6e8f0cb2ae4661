//! A card of the simulator, called as a C program calls it.

use libloading::Library;
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_void},
    io::Write,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Any handle or pointer of C.
pub type Handle = *mut c_void;

/// Codes of `aclDataType`.
pub const F32: i32 = 0;
pub const F16: i32 = 1;
pub const I8: i32 = 2;
pub const I32: i32 = 3;
pub const U8: i32 = 4;
pub const I64: i32 = 9;
pub const BOOL: i32 = 12;
pub const BF16: i32 = 27;
pub const I4: i32 = 29;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An initialised library with a current device, and what was made on it.
pub struct Card {
    library: Library,
    memory: RefCell<Vec<Handle>>,
    objects: RefCell<Vec<(&'static str, Handle)>>,
    settings: tempfile::NamedTempFile,
    _turn: MutexGuard<'static, ()>,
}

/// A tensor with memory of its own.
#[derive(Clone, Copy)]
pub struct Placed {
    pub handle: Handle,
    pub data: Handle,
    pub bytes: usize,
    pub ty: i32,
}

fn library_path() -> PathBuf {
    let own = std::env::current_exe().expect("the test has a path");
    let deps = own.parent().expect("it lies in a folder");
    let names = [deps.join("libtrueup_npu_sim.so"), deps.join("../libtrueup_npu_sim.so")];
    names.into_iter().find(|path| path.exists()).expect("cargo built the library beside the test")
}

/// Arguments of C in order, before the two results of the first phase.
pub trait Arguments {
    /// Calls the first phase.
    fn call(self, first: *const c_void, size: *mut u64, executor: *mut Handle) -> i32;
}

macro_rules! arguments {
    ($($name:ident)+) => {
        impl<$($name),+> Arguments for ($($name,)+) {
            #[allow(non_snake_case)]
            fn call(self, first: *const c_void, size: *mut u64, executor: *mut Handle) -> i32 {
                let ($($name,)+) = self;
                // SAFETY: the symbol is the first phase of an operator with these arguments.
                unsafe {
                    let first: unsafe extern "C" fn($($name,)+ *mut u64, *mut Handle) -> i32 = std::mem::transmute(first);
                    first($($name,)+ size, executor)
                }
            }
        }
    };
}

arguments!(A);
arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);
arguments!(A B C D E F G H I);
arguments!(A B C D E F G H I J);
arguments!(A B C D E F G H I J K);
arguments!(A B C D E F G H I J K L);

impl Card {
    /// A card with settings as JSON. One card lives at a time in a process.
    pub fn open(settings: &str) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(settings.as_bytes()).expect("it can be written");
        // SAFETY: the library is ours and its start has no conditions.
        let library = unsafe { Library::new(library_path()) }.expect("the library opens");
        let card =
            Self { library, memory: RefCell::default(), objects: RefCell::default(), settings: file, _turn: turn };
        let path = CString::new(card.settings.path().to_string_lossy().as_bytes()).expect("no zero in a path");
        let init: unsafe extern "C" fn(*const c_char) -> i32 = card.symbol("aclInit");
        let set: unsafe extern "C" fn(i32) -> i32 = card.symbol("aclrtSetDevice");
        // SAFETY: as the C interface says.
        let codes = unsafe { (init(path.as_ptr()), set(0)) };
        assert_eq!(codes, (0, 0), "{}", card.message());
        card
    }

    /// A symbol as a function.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller names the function's type.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Whether the library has a symbol.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol is not used.
        unsafe { self.library.get::<*const c_void>(name.as_bytes()) }.is_ok()
    }

    /// The thread's recent message.
    pub fn message(&self) -> String {
        let recent: unsafe extern "C" fn() -> *const c_char = self.symbol("aclGetRecentErrMsg");
        // SAFETY: the pointer is null or a text that stays until the next refusal.
        unsafe {
            let text = recent();
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }

    /// Device memory with these bytes.
    pub fn upload(&self, bytes: &[u8]) -> Handle {
        let allocate: unsafe extern "C" fn(*mut Handle, usize, i32) -> i32 = self.symbol("aclrtMalloc");
        let copy: unsafe extern "C" fn(Handle, usize, *const u8, usize, i32) -> i32 = self.symbol("aclrtMemcpy");
        let mut data = std::ptr::null_mut();
        // SAFETY: as the C interface says; the source has these bytes.
        unsafe {
            assert_eq!(allocate(&mut data, bytes.len().max(1), 0), 0, "{}", self.message());
            if !bytes.is_empty() {
                assert_eq!(copy(data, bytes.len(), bytes.as_ptr(), bytes.len(), 1), 0, "{}", self.message());
            }
        }
        self.memory.borrow_mut().push(data);
        data
    }

    /// The bytes at a place of the device.
    pub fn download(&self, data: Handle, bytes: usize) -> Vec<u8> {
        let copy: unsafe extern "C" fn(*mut u8, usize, Handle, usize, i32) -> i32 = self.symbol("aclrtMemcpy");
        let mut target = vec![0; bytes];
        if bytes > 0 {
            // SAFETY: the target has these bytes.
            let code = unsafe { copy(target.as_mut_ptr(), bytes, data, bytes, 2) };
            assert_eq!(code, 0, "{}", self.message());
        }
        target
    }

    fn keep(&self, destroy: &'static str, handle: Handle) -> Handle {
        self.objects.borrow_mut().push((destroy, handle));
        handle
    }

    /// A view over device memory.
    pub fn view(&self, data: Handle, ty: i32, shape: &[i64], strides: &[i64], offset: i64, format: i32) -> Handle {
        type Create =
            unsafe extern "C" fn(*const i64, u64, i32, *const i64, i64, i32, *const i64, u64, Handle) -> Handle;
        let create: Create = self.symbol("aclCreateTensor");
        let axes = shape.len() as u64;
        // SAFETY: shape and strides are as long as they are said to be.
        let handle =
            unsafe { create(shape.as_ptr(), axes, ty, strides.as_ptr(), offset, format, shape.as_ptr(), axes, data) };
        assert!(!handle.is_null(), "{}", self.message());
        self.keep("aclDestroyTensor", handle)
    }

    /// A packed tensor with these bytes.
    pub fn tensor(&self, ty: i32, shape: &[i64], bytes: &[u8]) -> Placed {
        let data = self.upload(bytes);
        Placed { handle: self.view(data, ty, shape, &packed(shape), 0, 2), data, bytes: bytes.len(), ty }
    }

    /// A packed tensor of numbers, rounded to its type.
    pub fn numbers(&self, ty: i32, shape: &[i64], values: &[f64]) -> Placed {
        assert_eq!(shape.iter().product::<i64>() as usize, values.len(), "{shape:?}");
        self.tensor(ty, shape, &encode(ty, values))
    }

    /// A packed tensor to be written: its memory holds ones before.
    pub fn blank(&self, ty: i32, shape: &[i64]) -> Placed {
        self.numbers(ty, shape, &vec![1.0; shape.iter().product::<i64>() as usize])
    }

    /// A number.
    pub fn scalar(&self, value: f32) -> Handle {
        let create: unsafe extern "C" fn(*const f32, i32) -> Handle = self.symbol("aclCreateScalar");
        // SAFETY: the value is an f32.
        self.keep("aclDestroyScalar", unsafe { create(&value, F32) })
    }

    /// An integer.
    pub fn whole(&self, value: i64) -> Handle {
        let create: unsafe extern "C" fn(*const i64, i32) -> Handle = self.symbol("aclCreateScalar");
        // SAFETY: the value is an i64.
        self.keep("aclDestroyScalar", unsafe { create(&value, I64) })
    }

    /// An `aclIntArray`.
    pub fn ints(&self, values: &[i64]) -> Handle {
        let create: unsafe extern "C" fn(*const i64, u64) -> Handle = self.symbol("aclCreateIntArray");
        // SAFETY: the values are as many as said.
        self.keep("aclDestroyIntArray", unsafe { create(values.as_ptr(), values.len() as u64) })
    }

    /// An `aclTensorList`, which takes its members over.
    pub fn list(&self, members: &[Handle]) -> Handle {
        let create: unsafe extern "C" fn(*const Handle, u64) -> Handle = self.symbol("aclCreateTensorList");
        self.objects.borrow_mut().retain(|(_, handle)| !members.contains(handle));
        // SAFETY: the members are as many as said.
        self.keep("aclDestroyTensorList", unsafe { create(members.as_ptr(), members.len() as u64) })
    }

    /// Both phases and a synchronization; the code with the message where one is refused.
    pub fn run(&self, name: &str, arguments: impl Arguments) -> Result<(), (i32, String)> {
        let first: *const c_void = self.symbol(&format!("aclnn{name}GetWorkspaceSize"));
        let second: unsafe extern "C" fn(Handle, u64, Handle, Handle) -> i32 = self.symbol(&format!("aclnn{name}"));
        let synchronize: unsafe extern "C" fn(Handle) -> i32 = self.symbol("aclrtSynchronizeStream");
        let answer = |code: i32| if code == 0 { Ok(()) } else { Err((code, self.message())) };
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        answer(arguments.call(first, &mut size, &mut executor))?;
        let workspace = if size > 0 { self.upload(&vec![0; size as usize]) } else { std::ptr::null_mut() };
        // SAFETY: the executor is of this operator; the workspace has the size.
        unsafe {
            answer(second(workspace, size, executor, std::ptr::null_mut()))?;
            answer(synchronize(std::ptr::null_mut()))
        }
    }

    /// As [`Self::run`], which must go well.
    pub fn done(&self, name: &str, arguments: impl Arguments) {
        self.run(name, arguments).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
    }

    /// As [`Self::run`], which must be refused with this code and these words.
    pub fn refused(&self, name: &str, arguments: impl Arguments, code: i32, words: &str) {
        let (found, message) = self.run(name, arguments).expect_err(name);
        assert_eq!(found, code, "{name}: {message}");
        assert!(message.starts_with("npu-sim: ") && message.contains(words), "{name}: {message:?} lacks {words:?}");
    }

    /// The numbers of a placed tensor.
    pub fn values(&self, placed: Placed) -> Vec<f64> {
        decode(placed.ty, &self.download(placed.data, placed.bytes))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        for (destroy, handle) in self.objects.take() {
            let destroy: unsafe extern "C" fn(Handle) -> i32 = self.symbol(destroy);
            // SAFETY: the handle is destroyed once.
            unsafe { destroy(handle) };
        }
        let free: unsafe extern "C" fn(Handle) -> i32 = self.symbol("aclrtFree");
        let reset: unsafe extern "C" fn(i32) -> i32 = self.symbol("aclrtResetDevice");
        let finalize: unsafe extern "C" fn() -> i32 = self.symbol("aclFinalize");
        // SAFETY: the memory is freed once; nothing runs any more.
        unsafe {
            for data in self.memory.take() {
                free(data);
            }
            reset(0);
            finalize();
        }
    }
}

/// Strides of a packed shape.
pub fn packed(shape: &[i64]) -> Vec<i64> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

/// Numbers as bytes of a type, rounded once.
pub fn encode(ty: i32, values: &[f64]) -> Vec<u8> {
    let each = |value: f64| -> Vec<u8> {
        match ty {
            F32 => (value as f32).to_le_bytes().to_vec(),
            F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
            I8 => (value as i8).to_le_bytes().to_vec(),
            U8 | BOOL => vec![value as u8],
            I32 => (value as i32).to_le_bytes().to_vec(),
            I64 => (value as i64).to_le_bytes().to_vec(),
            other => panic!("no encoding of {other}"),
        }
    };
    values.iter().flat_map(|&value| each(value)).collect()
}

/// Bytes of a type as numbers.
pub fn decode(ty: i32, bytes: &[u8]) -> Vec<f64> {
    let size = match ty {
        F32 | I32 => 4,
        F16 | BF16 => 2,
        I64 => 8,
        _ => 1,
    };
    let each = |bytes: &[u8]| -> f64 {
        match ty {
            F32 => f32::from_le_bytes(bytes.try_into().expect("4 bytes")).into(),
            F16 => half::f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
            BF16 => half::bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
            I32 => i32::from_le_bytes(bytes.try_into().expect("4 bytes")).into(),
            I64 => i64::from_le_bytes(bytes.try_into().expect("8 bytes")) as f64,
            I8 => (bytes[0] as i8).into(),
            _ => bytes[0].into(),
        }
    };
    bytes.chunks_exact(size).map(each).collect()
}

/// Numbers between -range and range that follow from a seed.
pub fn drawn(count: usize, seed: u64, range: f64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(|_| (2.0 * next() - 1.0) * range).collect()
}

/// Numbers rounded to a type.
pub fn rounded(ty: i32, values: &[f64]) -> Vec<f64> {
    decode(ty, &encode(ty, values))
}

/// Fails at the first number that is further off than `relative` of the largest expected one.
pub fn near(what: &str, found: &[f64], expected: &[f64], relative: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-30, |best: f64, value| best.max(value.abs()));
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        assert!(off <= relative * scale, "{what}: at {place} found {found}, expected {expected}");
    }
}
