//! Calls of the runtime drawn at random: null pointers, destroyed handles, handles of another kind, absurd sizes, and
//! often a right call. Nothing may crash, and every answer is a code of the interface.

use crate::library::*;
use std::ptr::{null, null_mut};

const CALLS: usize = 500;
const SEEDS: u64 = 20;
/// Bytes of the host's and the device's memory that is copied.
const MEMORY: usize = 4096;

struct Draw {
    state: u64,
    handles: Vec<Pointer>,
    memory: Vec<Pointer>,
    host: Vec<u8>,
}

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 16) % below as u64) as usize
    }

    fn number(&mut self) -> i32 {
        [0, 0, 0, 1, 1, 2, 3, 8, -1, i32::MAX, i32::MIN][self.next(11)]
    }

    fn size(&mut self) -> usize {
        [0, 1, 64, 64, MEMORY, MEMORY, MEMORY + 1, 2 << 20, 1 << 40, usize::MAX - 4, usize::MAX][self.next(11)]
    }

    /// A handle of any kind, living or not, often one of the last made.
    fn handle(&mut self) -> Pointer {
        match self.next(20) {
            0 => null_mut(),
            1 => 0x1234_5670 as Pointer,
            _ if self.handles.is_empty() => null_mut(),
            2..6 => {
                let index = self.next(self.handles.len());
                self.handles[index]
            }
            _ => {
                let back = 1 + self.next(self.handles.len().min(12));
                self.handles[self.handles.len() - back]
            }
        }
    }

    /// An address that the library knows: device memory, living or not, or pinned memory.
    fn memory(&mut self) -> Pointer {
        match self.next(20) {
            0 => null_mut(),
            1 => at(self.memory[0], 3),
            _ => {
                let index = self.next(self.memory.len());
                self.memory[index]
            }
        }
    }

    /// Calls with a place for a handle, which is kept.
    fn make(&mut self, call: impl FnOnce(&mut Self, *mut Pointer) -> i32) -> i32 {
        let mut made = null_mut();
        let into = if self.next(30) == 0 { null_mut() } else { &raw mut made };
        let code = call(self, into);
        if code == 0 {
            self.handles.push(made);
        }
        code
    }
}

/// `aclrtPhysicalMemProp` of a card.
fn property(draw: &mut Draw) -> [u32; 8] {
    [0, 0, draw.number() as u32, draw.next(3) as u32, 1, 0, 0, 0]
}

type Drawn = (&'static str, fn(&mut Draw) -> i32);

const ENTRIES: &[Drawn] = &[
    ("aclInit", |_| aclInit(null())),
    ("aclrtSetDevice", |draw| aclrtSetDevice(draw.number())),
    ("aclrtSetDevice", |draw| aclrtSetDevice(draw.next(2) as i32)),
    ("aclrtResetDevice", |draw| if draw.next(10) == 0 { aclrtResetDevice(draw.number()) } else { 0 }),
    ("aclrtGetDevice", |_| aclrtGetDevice(&mut 0)),
    ("aclrtGetMemInfo", |draw| aclrtGetMemInfo(draw.number(), &mut 0, &mut 0)),
    ("aclGetDeviceCapability", |draw| aclGetDeviceCapability(draw.number() as u32, draw.number(), &mut 0)),
    ("aclrtSetSysParamOpt", |draw| aclrtSetSysParamOpt(draw.number(), draw.size() as i64)),
    ("aclrtDeviceCanAccessPeer", |draw| aclrtDeviceCanAccessPeer(&mut 0, draw.number(), draw.number())),
    ("aclrtDeviceEnablePeerAccess", |draw| aclrtDeviceEnablePeerAccess(draw.number(), draw.number() as u32)),
    ("aclrtDeviceDisablePeerAccess", |draw| aclrtDeviceDisablePeerAccess(draw.number())),
    ("aclrtCreateContext", |draw| draw.make(|draw, into| aclrtCreateContext(into, draw.number()))),
    ("aclrtDestroyContext", |draw| aclrtDestroyContext(draw.handle())),
    ("aclrtSetCurrentContext", |draw| aclrtSetCurrentContext(draw.handle())),
    ("aclrtMalloc", |draw| {
        let code = draw.make(|draw, into| aclrtMalloc(into, draw.size(), draw.number()));
        if code == 0 {
            draw.handles.pop().into_iter().for_each(|made| draw.memory.push(made));
        }
        code
    }),
    ("aclrtFree", |draw| aclrtFree(draw.memory())),
    ("aclrtFree", |draw| aclrtFree(draw.handle())),
    ("aclrtFreeHost", |draw| aclrtFreeHost(draw.handle())),
    ("aclrtMemset", |draw| aclrtMemset(draw.memory(), draw.size(), draw.number(), draw.size())),
    ("aclrtMemsetAsync", |draw| {
        aclrtMemsetAsync(draw.memory(), draw.size(), draw.number(), draw.size(), draw.handle())
    }),
    ("aclrtMemcpy", |draw| aclrtMemcpy(draw.memory(), draw.size(), draw.memory(), draw.size(), draw.number())),
    ("aclrtMemcpy", |draw| {
        let (host, room) = (host(&mut draw.host), draw.size());
        aclrtMemcpy(draw.memory(), room, host, draw.size().min(MEMORY), 1)
    }),
    ("aclrtMemcpyAsync", |draw| {
        let (host, room) = (host(&mut draw.host), draw.size().min(MEMORY));
        aclrtMemcpyAsync(host, room, draw.memory(), draw.size(), 2, draw.handle())
    }),
    ("aclrtMemcpyAsync", |draw| {
        aclrtMemcpyAsync(draw.memory(), draw.size(), draw.memory(), draw.size(), draw.number(), draw.handle())
    }),
    ("aclrtMemcpy2d", |draw| {
        let [tp, sp, width, height] = [(); 4].map(|()| draw.size());
        aclrtMemcpy2d(draw.memory(), tp, draw.memory(), sp, width, height, draw.number())
    }),
    ("aclrtCreateStream", |draw| draw.make(|_, into| aclrtCreateStream(into))),
    ("aclrtCreateStreamWithConfig", |draw| {
        draw.make(|draw, into| aclrtCreateStreamWithConfig(into, 0, draw.number() as u32))
    }),
    ("aclrtDestroyStream", |draw| aclrtDestroyStream(draw.handle())),
    ("aclrtSynchronizeStream", |draw| aclrtSynchronizeStream(draw.handle())),
    ("aclrtSynchronizeStreamWithTimeout", |draw| aclrtSynchronizeStreamWithTimeout(draw.handle(), draw.number())),
    ("aclrtStreamQuery", |draw| aclrtStreamQuery(draw.handle(), &mut 0)),
    ("aclrtSynchronizeDevice", |_| aclrtSynchronizeDevice()),
    ("aclrtCreateEventWithFlag", |draw| {
        draw.make(|draw, into| aclrtCreateEventWithFlag(into, [1, 8, 9, 0x20, 0x29, 0x40][draw.next(6)]))
    }),
    ("aclrtCreateEventExWithFlag", |draw| {
        draw.make(|draw, into| aclrtCreateEventExWithFlag(into, [1, 8, 9, 0x21][draw.next(4)]))
    }),
    ("aclrtDestroyEvent", |draw| aclrtDestroyEvent(draw.handle())),
    ("aclrtRecordEvent", |draw| aclrtRecordEvent(draw.handle(), draw.handle())),
    ("aclrtStreamWaitEvent", |draw| aclrtStreamWaitEvent(draw.handle(), draw.handle())),
    ("aclrtResetEvent", |draw| aclrtResetEvent(draw.handle(), draw.handle())),
    ("aclrtQueryEventStatus", |draw| aclrtQueryEventStatus(draw.handle(), &mut 0)),
    ("aclrtSynchronizeEvent", |draw| aclrtSynchronizeEvent(draw.handle())),
    ("aclrtEventElapsedTime", |draw| aclrtEventElapsedTime(&mut 0.0, draw.handle(), draw.handle())),
    ("aclrtReserveMemAddress", |draw| {
        draw.make(|draw, into| aclrtReserveMemAddress(into, draw.size(), 0, null_mut(), 0))
    }),
    ("aclrtReleaseMemAddress", |draw| aclrtReleaseMemAddress(draw.handle())),
    ("aclrtMallocPhysical", |draw| {
        let property = property(draw);
        draw.make(|draw, into| aclrtMallocPhysical(into, draw.size(), &property, draw.next(2) as u64))
    }),
    ("aclrtFreePhysical", |draw| aclrtFreePhysical(draw.handle())),
    ("aclrtMapMem", |draw| aclrtMapMem(draw.handle(), draw.size(), 0, draw.handle(), 0)),
    ("aclrtUnmapMem", |draw| aclrtUnmapMem(draw.handle())),
    ("aclmdlRICaptureBegin", |draw| aclmdlRICaptureBegin(draw.handle(), draw.number())),
    ("aclmdlRICaptureGetInfo", |draw| aclmdlRICaptureGetInfo(draw.handle(), &mut 0, &mut null_mut())),
    ("aclmdlRICaptureEnd", |draw| draw.make(|draw, into| aclmdlRICaptureEnd(draw.handle(), into))),
    ("aclmdlRIExecuteAsync", |draw| aclmdlRIExecuteAsync(draw.handle(), draw.handle())),
    ("aclmdlRIDestroy", |draw| aclmdlRIDestroy(draw.handle())),
    ("aclmdlRICaptureTaskGrpBegin", |draw| aclmdlRICaptureTaskGrpBegin(draw.handle())),
    ("aclmdlRICaptureTaskGrpEnd", |draw| draw.make(|draw, into| aclmdlRICaptureTaskGrpEnd(draw.handle(), into))),
    ("aclmdlRICaptureTaskUpdateBegin", |draw| aclmdlRICaptureTaskUpdateBegin(draw.handle(), draw.handle())),
    ("aclmdlRICaptureTaskUpdateEnd", |draw| aclmdlRICaptureTaskUpdateEnd(draw.handle())),
    ("aclCreateTensor", |draw| {
        let shape = [draw.size() as i64, draw.number().into()];
        let made = tensor(&shape, draw.number(), draw.memory());
        draw.handles.push(made);
        i32::from(made.is_null())
    }),
    ("aclDestroyTensor", |draw| aclDestroyTensor(draw.handle())),
    ("aclDestroyScalar", |draw| aclDestroyScalar(draw.handle())),
    ("aclnnAdd", |draw| aclnnAdd(draw.memory(), draw.size() as u64, draw.handle(), draw.handle())),
    ("aclnnAddGetWorkspaceSize", |draw| {
        let [a, b, alpha, out] = [(); 4].map(|()| draw.handle());
        draw.make(|_, into| aclnnAddGetWorkspaceSize(a, b, alpha, out, &mut 0, into))
    }),
];

/// Calls of one seed; gives how many were taken.
fn calls_of(seed: u64) -> usize {
    let run = Run::with(r#""cards": 2, "memory_bytes": 67108864"#);
    let pinned = handle(|pointer| aclrtMallocHost(pointer, MEMORY));
    let memory = vec![device(MEMORY), device(MEMORY), pinned];
    let state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = Draw { state, handles: vec![stream(), stream(), event()], memory, host: vec![0; MEMORY] };
    let mut taken = 0;
    for _ in 0..CALLS {
        let (name, call) = ENTRIES[draw.next(ENTRIES.len())];
        let code = call(&mut draw);
        taken += usize::from(code == 0);
        let said = message();
        let known = code == 0 || name == "aclCreateTensor" || said.contains(&format!("({code} "));
        assert!(known && !said.contains("UNKNOWN"), "seed {seed}, {name}: {code} {said}");
        assert!(!said.contains("the simulator itself failed"), "seed {seed}, {name}: {code} {said}");
    }
    // A tensor outlives the end of a run.
    for &handle in &draw.handles {
        aclDestroyTensor(handle);
    }
    let (_, findings) = run.end();
    let failed = findings.iter().find(|finding| finding.what.contains("the simulator itself failed"));
    assert_eq!(failed, None, "seed {seed}");
    taken
}

#[test]
fn ten_thousand_drawn_calls_of_the_runtime_are_answered() {
    let taken: usize = (0..SEEDS).map(calls_of).sum();
    assert!(taken * 5 > CALLS * SEEDS as usize, "{taken} calls were right: the rest of a call was never tried");
}
