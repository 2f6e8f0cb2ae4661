//! Calls drawn at random: null pointers, destroyed handles, wrong types, absurd shapes, and now and then a right call.
//! Nothing may crash, and every answer is a code of the interface.
//!
//! 10,000 of them.

use super::execute;
use crate::{
    chip::CHIPS,
    element::Type,
    object::{self, Handle, Object, ScalarObject, TensorObject},
    settings::{OnFinding, PRODUCTS, Settings},
    status, stream,
    world::{self, tests::Begun},
};
use std::{
    ffi::{c_char, c_void},
    sync::atomic::{AtomicUsize, Ordering},
};

/// One operator with arguments drawn at random.
pub struct DrawnCall {
    /// The operator.
    pub name: &'static str,
    /// Draws and calls the first phase.
    pub prepare: fn(&mut Draw, *mut u64, *mut Handle) -> i32,
}

/// A source of arguments.
pub struct Draw {
    state: u64,
    memory: u64,
    shape: Vec<i64>,
    ty: Type,
    made: Vec<Handle>,
}

/// Each seed makes this many calls on each chip.
const CALLS: usize = 50;

const SEEDS: std::ops::Range<u64> = 0..40;

/// Bytes of device memory that tensors lie in.
const MEMORY: u64 = 1 << 16;

impl Draw {
    fn new(seed: u64, memory: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            memory,
            shape: vec![2, 3],
            ty: Type::F32,
            made: Vec::new(),
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % below
    }

    /// True once in so many times.
    pub fn chance(&mut self, times: u64) -> bool {
        self.next(times) == 0
    }

    /// Shape and type that most tensors of the next call share.
    fn set_scene(&mut self) {
        let rank = self.next(5);
        self.shape = (0..rank).map(|_| [1, 2, 3, 4, 16, 32][self.next(6) as usize]).collect();
        self.ty = [Type::F32, Type::F16, Type::F16, Type::I32, Type::I8, Type::Bool, Type::Bf16][self.next(7) as usize];
    }

    /// A number that is often small, sometimes absurd.
    pub fn integer(&mut self) -> i64 {
        match self.next(15) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => -1,
            3 => 1 << 33,
            4 => 1 << 62,
            _ => self.next(4) as i64,
        }
    }

    fn keep(&mut self, object: Object) -> Handle {
        let handle = object::create(object);
        self.made.push(handle);
        handle
    }

    /// Null, destroyed or of another kind; none for a right one.
    fn wrong(&mut self) -> Option<Handle> {
        match self.next(40) {
            0 => Some(std::ptr::null_mut()),
            1 => Some(0x1234_5678 as Handle),
            2 => {
                let gone = object::create(Object::Ints(Vec::new()));
                object::destroy(gone, "aclIntArray").expect("it was made");
                Some(gone)
            }
            3 => Some(self.keep(Object::Bools(vec![true]))),
            _ => None,
        }
    }

    fn tensor_object(&mut self) -> TensorObject {
        let mut shape = self.shape.clone();
        if self.chance(4) {
            let rank = self.next(5);
            shape = (0..rank).map(|_| self.next(5) as i64).collect();
        }
        if self.chance(30) {
            let absurd = self.integer();
            shape.push(absurd);
        }
        let ty = if self.chance(8) { Type::ALL[self.next(Type::ALL.len() as u64) as usize] } else { self.ty };
        let mut strides = TensorObject::default_strides(&shape);
        if self.chance(8) && !strides.is_empty() {
            let axis = self.next(strides.len() as u64) as usize;
            strides[axis] = self.integer();
        }
        if self.chance(30) {
            // Much that is one element of memory: taken up to some size, refused beyond.
            shape = vec![[1 << 12, 1 << 17, 1 << 29, 1 << 36, 1 << 40, 1 << 62][self.next(6) as usize]];
            strides = vec![0];
        }
        let slot = self.next(16) * (MEMORY / 16);
        let data = match self.next(40) {
            0 => self.memory + slot + 3,
            1 => u64::MAX - 31,
            _ => self.memory + slot,
        };
        let offset = if self.chance(20) { self.integer() } else { 0 };
        let type_code = if self.chance(60) { 16 } else { ty.code() };
        let format = if self.chance(30) { 29 } else { 2 };
        TensorObject { storage: shape.clone(), shape, strides, offset, type_code, format, data }
    }

    /// A tensor.
    pub fn tensor(&mut self) -> Handle {
        if let Some(wrong) = self.wrong() {
            return wrong;
        }
        let object = self.tensor_object();
        self.keep(Object::Tensor(object))
    }

    /// A number.
    pub fn scalar(&mut self) -> Handle {
        if let Some(wrong) = self.wrong() {
            return wrong;
        }
        let whole = self.integer();
        let ty = if self.chance(2) { Type::F32 } else { Type::I64 };
        let real = if self.chance(10) { f64::NAN } else { whole as f64 };
        self.keep(Object::Scalar(ScalarObject { ty, real, whole }))
    }

    /// An `aclIntArray`.
    pub fn ints(&mut self) -> Handle {
        if let Some(wrong) = self.wrong() {
            return wrong;
        }
        let count = self.next(5);
        let values = (0..count).map(|_| self.integer()).collect();
        self.keep(Object::Ints(values))
    }

    /// An `aclTensorList`.
    pub fn tensors(&mut self) -> Handle {
        if let Some(wrong) = self.wrong() {
            return wrong;
        }
        let count = self.next(4);
        let members = (0..count).map(|_| {
            let object = self.tensor_object();
            object::create(Object::Tensor(object)) as u64
        });
        let members = members.collect();
        self.keep(Object::Tensors(members))
    }

    /// A text.
    pub fn text(&mut self) -> *const c_char {
        match self.next(5) {
            0 => std::ptr::null(),
            1 => c"".as_ptr(),
            2 => c"half".as_ptr(),
            3 => c"BNSD".as_ptr(),
            _ => c"BSND".as_ptr(),
        }
    }

    /// Ends what was made.
    fn end(&mut self) {
        let kinds = object::KINDS;
        for handle in std::mem::take(&mut self.made) {
            assert!(kinds.iter().any(|kind| object::destroy(handle, kind) == Ok(())), "a handle of no kind");
        }
    }
}

fn all_calls() -> Vec<DrawnCall> {
    let families = [
        super::activation::drawn_calls(),
        super::attention::drawn_calls(),
        super::elementwise::drawn_calls(),
        super::experts::drawn_calls(),
        super::fill::drawn_calls(),
        super::gather::drawn_calls(),
        super::matmul::drawn_calls(),
        super::norm::drawn_calls(),
        super::pool::drawn_calls(),
        super::quantized::drawn_calls(),
        super::reduce::drawn_calls(),
        super::rope::drawn_calls(),
        super::scatter::drawn_calls(),
        super::shape::drawn_calls(),
        super::sort::drawn_calls(),
    ];
    families.into_iter().flatten().collect()
}

/// The second phase with a workspace that is right, null or short.
fn run_second(draw: &mut Draw, name: &'static str, size: u64, executor: Handle) -> i32 {
    let workspace = draw.memory + MEMORY;
    let (at, given) = match draw.next(10) {
        0 => (0, size),
        1 => (workspace, size / 2),
        _ => (workspace, size),
    };
    let code = execute(name, at as *mut c_void, given, executor, std::ptr::null_mut());
    if draw.chance(20) {
        let again = execute(name, at as *mut c_void, given, executor, std::ptr::null_mut());
        assert_ne!(again, 0, "{name}: an executor ran twice");
    }
    code
}

/// Bytes behind the tensors' memory for workspaces.
const ROOM: u64 = 4 << 20;

/// A card of a chip with memory that was written once; gives where it lies.
fn begin(chip: &str) -> (Begun, u64) {
    let settings = Settings {
        chip: chip.to_owned(),
        memory_bytes: Some(32 << 20),
        on_finding: OnFinding::Report,
        ..Settings::default()
    };
    let world = Begun::with(settings);
    let memory = world::held().cards[0].memory.allocate(MEMORY + ROOM, 32).expect("there is room");
    let shape = vec![MEMORY as i64 / 4];
    let whole = TensorObject {
        storage: shape.clone(),
        shape,
        strides: vec![1],
        offset: 0,
        type_code: 0,
        format: 2,
        data: memory,
    };
    let whole = object::create(Object::Tensor(whole));
    let (mut size, mut executor) = (0, std::ptr::null_mut());
    let mut fill = |call: &mut super::call::Call| {
        let tensor = super::argument::Argument::take(whole, call.name, "selfRef")?;
        let slot = call.output(&tensor);
        super::work(move |stage| stage.write(slot, &vec![0f32; MEMORY as usize / 4]))
    };
    assert_eq!(super::prepare("aclnnInplaceZero", &["selfRef"], &mut size, &mut executor, &mut fill), 0);
    assert_eq!(execute("aclnnInplaceZero", std::ptr::null_mut(), 0, executor, std::ptr::null_mut()), 0);
    object::destroy(whole, "aclTensor").expect("it was made");
    (world, memory)
}

/// Calls on one card, each done before the next; gives how many were taken. A card whose work ended in an error takes
/// no more: another one comes in its place.
fn calls_on_a_card(calls: &[DrawnCall], seed: u64, chip: &str, count: usize) -> usize {
    let mut begun = Some(begin(chip));
    let mut draw = Draw::new(seed, 0);
    let mut taken = 0;
    for _ in 0..count {
        let (_, memory) = begun.get_or_insert_with(|| begin(chip));
        draw.memory = *memory;
        let call = &calls[draw.next(calls.len() as u64) as usize];
        draw.set_scene();
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        let mut code = (call.prepare)(&mut draw, &mut size, &mut executor);
        if code == 0 && size <= ROOM {
            code = run_second(&mut draw, call.name, size, executor);
            taken += usize::from(code == 0);
        }
        let answered = status::Refusal::new(code, if code == 0 { String::new() } else { status::recent_text() });
        let done = stream::synchronize_device().err();
        for status::Refusal { code, message } in [Some(&answered), done.as_ref()].into_iter().flatten() {
            assert!(!message.contains("the simulator itself failed"), "seed {seed}, {}: {code} {message}", call.name);
            assert_ne!(status::name(*code), "UNKNOWN", "seed {seed}, {}: {code} {message}", call.name);
        }
        draw.end();
        if done.is_some() {
            end(begun.take());
        }
    }
    end(begun);
    taken
}

fn end(begun: Option<(Begun, u64)>) {
    if let Some((_world, memory)) = begun {
        world::held().cards[0].memory.free(memory).expect("it was allocated");
    }
}

#[test]
#[should_panic(expected = "the simulator itself failed: planted")]
fn work_that_panics_is_no_answer() {
    const NAME: &str = "aclnnInplaceZero";
    let prepare = |_: &mut Draw, size, executor| {
        super::prepare(NAME, &[], size, executor, &mut |_| super::work(|_| panic!("planted")))
    };
    calls_on_a_card(&[DrawnCall { name: NAME, prepare }], 1, CHIPS[0].name, 1);
}

/// Two threads that call with one executor after the other at the same time: each runs once.
#[test]
fn an_executor_runs_once_whoever_calls() {
    const NAME: &str = "aclnnInplaceZero";
    const ROUNDS: usize = 3000;
    let (_world, memory) = begin(CHIPS[0].name);
    let make = |_| {
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        assert_eq!(super::prepare(NAME, &[], &mut size, &mut executor, &mut |_| super::work(|_| Ok(()))), 0);
        executor as usize
    };
    let executors: Vec<usize> = (0..ROUNDS).map(make).collect();
    let (ready, ran) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let call = || {
        world::held().set_device(0).expect("there is a card");
        for (round, &executor) in executors.iter().enumerate() {
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 * (round + 1) {
                std::thread::yield_now();
            }
            let code = execute(NAME, std::ptr::null_mut(), 0, executor as Handle, std::ptr::null_mut());
            ran.fetch_add(usize::from(code == 0), Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| [(); 2].map(|()| scope.spawn(call)).map(|thread| thread.join().expect("it ends")));
    assert_eq!(ran.into_inner(), ROUNDS);
    stream::synchronize_device().expect("nothing failed");
    world::held().cards[0].memory.free(memory).expect("it was allocated");
}

#[test]
fn faults_of_products_are_of_operators_that_there_are() {
    let calls = all_calls();
    assert!(PRODUCTS.iter().all(|&product| calls.iter().any(|call| call.name == product)));
}

#[test]
fn ten_thousand_drawn_calls_are_answered() {
    let calls = all_calls();
    assert!(calls.len() > 130, "{} operators", calls.len());
    let cards: Vec<(u64, &str)> = SEEDS.flat_map(|seed| CHIPS.iter().map(move |chip| (seed, chip.name))).collect();
    let tried = cards.len() * CALLS;
    assert_eq!(tried, 10_000);
    let taken: usize = cards.into_iter().map(|(seed, chip)| calls_on_a_card(&calls, seed, chip, CALLS)).sum();
    assert!(taken * 20 > tried, "{taken} of {tried} calls were right: the rest of a call was never tried");
}
