//! Capture, its rules, and replay.

use crate::library::*;
use std::ptr::null_mut;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn byte_of(block: Pointer) -> u8 {
    let mut byte = [0u8];
    fine(aclrtMemcpy(host(&mut byte), 1, block, 1, 2));
    byte[0]
}

#[test]
fn what_is_captured_runs_when_it_is_replayed() {
    for timing in ["none", "random", "late"] {
        let run = Run::with(&format!(r#""timing": "{timing}""#));
        let (stream, source, target) = (stream(), device(64), device(64));
        fine(aclrtMemset(source, 64, 1, 64));
        fine(aclrtMemset(target, 64, 0, 64));
        fine(aclmdlRICaptureBegin(stream, GLOBAL));
        fine(aclrtMemcpyAsync(target, 64, source, 64, 3, stream));
        let (mut status, mut model) = (0, null_mut());
        fine(aclmdlRICaptureGetInfo(stream, &mut status, &mut model));
        assert_eq!(status, 1);
        refused(aclmdlRIExecuteAsync(model, stream), 107026, "still being captured");
        assert_eq!(handle(|model| aclmdlRICaptureEnd(stream, model)), model);
        fine(aclmdlRICaptureGetInfo(stream, &mut status, &mut null_mut()));
        assert_eq!(status, 0);
        assert_eq!(byte_of(target), 0, "nothing has run");
        for turn in 1..4 {
            fine(aclrtMemset(source, 64, turn, 64));
            fine(aclmdlRIExecuteAsync(model, stream));
            fine(aclrtSynchronizeStream(stream));
            assert_eq!(byte_of(target), turn as u8, "the addresses are those of the capture");
        }
        fine(aclmdlRIDebugPrint(model));
        fine(aclmdlRIDestroy(model));
        refused(aclmdlRIExecuteAsync(model, stream), 107017, "an aclmdlRI is expected");
        fine(aclrtDestroyStream(stream));
        [source, target].iter().for_each(|&block| fine(aclrtFree(block)));
        assert_eq!(run.end(), (0, vec![]));
    }
}

#[test]
fn a_capture_is_invalid_where_it_is_planned() {
    let run = Run::with(r#""faults": [{"kind": "capture_invalidated", "at": 2}]"#);
    let (stream, block) = (stream(), device(64));
    let capture = |model: &mut Pointer| {
        fine(aclmdlRICaptureBegin(stream, GLOBAL));
        fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
        aclmdlRICaptureEnd(stream, model)
    };
    for turn in 1..=3 {
        let mut model = null_mut();
        let code = capture(&mut model);
        if turn == 2 {
            refused(code, 507903, "as configured in the settings");
        } else {
            fine(code);
            fine(aclmdlRIExecuteAsync(model, stream));
            fine(aclrtSynchronizeStream(stream));
            fine(aclmdlRIDestroy(model));
        }
    }
    fine(aclrtDestroyStream(stream));
    fine(aclrtFree(block));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_replay_is_work_of_its_stream() {
    let run = Run::with("");
    let (first, second, block) = (stream(), stream(), device(64));
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    fine(aclrtMemsetAsync(block, 64, 1, 64, first));
    let model = handle(|model| aclmdlRICaptureEnd(first, model));
    fine(aclmdlRIExecuteAsync(model, first));
    fine(aclrtMemsetAsync(block, 64, 2, 64, second));
    fine(aclrtSynchronizeDevice());
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.kinds(), ["race"]);
}

#[test]
fn branches_fork_and_join_by_events() {
    let run = Run::with("");
    let (first, second, fork, join) = (stream(), stream(), event(), event());
    let blocks = [device(64), device(64)];
    fine(aclmdlRICaptureBegin(first, THREAD_LOCAL));
    fine(aclrtMemsetAsync(blocks[0], 64, 1, 64, first));
    fine(aclrtRecordEvent(fork, first));
    fine(aclrtStreamWaitEvent(second, fork));
    fine(aclrtMemcpyAsync(blocks[1], 64, blocks[0], 64, 3, second));
    fine(aclrtRecordEvent(join, second));
    fine(aclrtStreamWaitEvent(first, join));
    fine(aclrtMemsetAsync(blocks[0], 64, 2, 64, first));
    refused(aclmdlRICaptureEnd(second, &mut null_mut()), 107029, "began on another stream");
    let model = handle(|model| aclmdlRICaptureEnd(first, model));
    fine(aclmdlRIExecuteAsync(model, first));
    fine(aclmdlRIExecuteAsync(model, first));
    fine(aclrtSynchronizeStream(first));
    assert_eq!((byte_of(blocks[0]), byte_of(blocks[1])), (2, 1));
    refused(aclrtSynchronizeEvent(join), 107028, "recorded in a capture");
    refused(aclrtQueryEventStatus(join, &mut 0), 107028, "recorded in a capture");
    refused(aclrtStreamWaitEvent(second, join), 107028, "a capture that has ended");
    fine(aclrtResetDeviceForce(0));
    fine(aclrtSetDevice(0));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_branch_that_is_not_ordered_is_found_at_the_replay() {
    let run = Run::with("");
    let (first, second, fork, join) = (stream(), stream(), event(), event());
    let block = device(64);
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    fine(aclrtRecordEvent(fork, first));
    fine(aclrtStreamWaitEvent(second, fork));
    fine(aclrtMemsetAsync(block, 64, 1, 64, second));
    fine(aclrtMemsetAsync(block, 64, 2, 64, first));
    fine(aclrtRecordEvent(join, second));
    fine(aclrtStreamWaitEvent(first, join));
    let model = handle(|model| aclmdlRICaptureEnd(first, model));
    fine(aclmdlRIExecuteAsync(model, first));
    fine(aclrtSynchronizeStream(first));
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.kinds(), ["race"]);
}

#[test]
fn replays_on_two_streams_are_ordered_by_nothing() {
    for ordered in [false, true] {
        let run = Run::with("");
        let (first, second, fork, join) = (stream(), stream(), event(), event());
        let block = device(64);
        fine(aclmdlRICaptureBegin(first, GLOBAL));
        fine(aclrtRecordEvent(fork, first));
        fine(aclrtStreamWaitEvent(second, fork));
        fine(aclrtMemsetAsync(block, 64, 1, 64, second));
        fine(aclrtRecordEvent(join, second));
        fine(aclrtStreamWaitEvent(first, join));
        let model = handle(|model| aclmdlRICaptureEnd(first, model));
        let (other, done) = (stream(), event());
        for _ in 0..3 {
            fine(aclmdlRIExecuteAsync(model, first));
            if ordered {
                fine(aclrtRecordEvent(done, first));
                fine(aclrtStreamWaitEvent(other, done));
            }
        }
        fine(aclmdlRIExecuteAsync(model, other));
        fine(aclrtSynchronizeDevice());
        fine(aclrtResetDeviceForce(0));
        assert_eq!(run.kinds(), if ordered { vec![] } else { vec!["race"] });
    }
}

#[test]
fn a_context_whose_stream_is_captured_stays() {
    let run = Run::with("");
    let primary = handle(aclrtGetCurrentContext);
    let context = handle(|context| aclrtCreateContext(context, 0));
    let stream = stream();
    fine(aclmdlRICaptureBegin(stream, GLOBAL));
    refused(aclrtDestroyContext(context), 107027, "a stream of the context is captured");
    fine(aclmdlRIDestroy(handle(|model| aclmdlRICaptureEnd(stream, model))));
    fine(aclrtDestroyStream(stream));
    fine(aclrtDestroyContext(context));
    fine(aclrtSetCurrentContext(primary));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_capture_is_of_one_card() {
    let run = Run::with(r#""cards": 2"#);
    let (primary, first, fork) = (handle(aclrtGetCurrentContext), stream(), event());
    fine(aclmdlRICaptureBegin(first, RELAXED));
    fine(aclrtRecordEvent(fork, first));
    fine(aclrtSetDevice(1));
    let second = stream();
    refused(aclrtStreamWaitEvent(second, fork), 207000, "a stream of card 1 would become a branch");
    fine(aclrtMemsetAsync(device(64), 64, 1, 64, second));
    fine(aclrtSynchronizeStream(second));
    fine(aclrtSetCurrentContext(primary));
    refused(aclmdlRICaptureEnd(first, &mut null_mut()), 507903, "");
    fine(aclrtResetDeviceForce(0));
    fine(aclrtResetDeviceForce(1));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_branch_must_join() {
    let run = Run::with("");
    let (first, second, fork) = (stream(), stream(), event());
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    fine(aclrtRecordEvent(fork, first));
    fine(aclrtStreamWaitEvent(second, fork));
    let mut model = 1 as Pointer;
    refused(aclmdlRICaptureEnd(first, &mut model), 107025, "1 branches were not waited for");
    assert!(model.is_null());
    fine(aclrtSynchronizeStream(second));
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn unsafe_calls_are_refused_for_whom_the_mode_names() {
    let run = Run::with("");
    let (stream, block, address) = (stream(), device(64), host(&mut [0u8; 64]) as usize);
    let block_address = block as usize;
    let unsafe_calls = move || {
        let (block, page) = (block_address as Pointer, address as Pointer);
        [
            aclrtMemset(block, 64, 0, 64),
            aclrtMemcpy(block, 64, page, 64, 1),
            aclrtMemcpy2d(block, 8, page, 8, 8, 2, 1),
            aclrtMemcpyAsync(block, 64, page, 64, 1, null_mut()),
        ]
    };
    let elsewhere = move || {
        let other = std::thread::spawn(move || {
            fine(aclrtSetDevice(0));
            unsafe_calls()
        });
        other.join().expect("the thread passes")
    };
    for (mode, here, there) in [(GLOBAL, 107030, 107030), (THREAD_LOCAL, 107030, 0), (RELAXED, 0, 0)] {
        fine(aclmdlRICaptureBegin(stream, mode));
        assert_eq!((unsafe_calls(), elsewhere()), ([here; 4], [there; 4]), "mode {mode}");
        if mode == GLOBAL {
            let mut own = RELAXED;
            fine(aclmdlRICaptureThreadExchangeMode(&mut own));
            assert_eq!((own, unsafe_calls()), (GLOBAL, [0; 4]));
            fine(aclmdlRICaptureThreadExchangeMode(&mut own));
        }
        let model = handle(|model| aclmdlRICaptureEnd(stream, model));
        assert_eq!(unsafe_calls(), [0; 4]);
        fine(aclmdlRIDestroy(model));
    }
    refused(aclmdlRICaptureThreadExchangeMode(&mut 3), 107000, "mode is 3");
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_captured_stream_is_not_waited_for() {
    let run = Run::with("");
    let (stream, mut status) = (stream(), 0);
    fine(aclmdlRICaptureBegin(stream, GLOBAL));
    refused(aclmdlRICaptureBegin(stream, GLOBAL), 107027, "already");
    refused(aclrtStreamQuery(stream, &mut status), 107027, "captured");
    refused(aclrtDestroyStream(stream), 107027, "captured");
    refused(aclrtSynchronizeDevice(), 107027, "captured");
    refused(aclrtSynchronizeStream(stream), 107027, "nothing of it runs");
    fine(aclmdlRICaptureGetInfo(stream, &mut status, &mut null_mut()));
    assert_eq!(status, 2);
    refused(aclmdlRICaptureEnd(stream, &mut null_mut()), 507903, "invalid");
    refused(aclmdlRICaptureEnd(stream, &mut null_mut()), 107029, "not being captured");
    fine(aclrtSynchronizeStream(stream));
    fine(aclrtDestroyStream(stream));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_capture_depends_on_nothing_outside() {
    let run = Run::with("");
    let (first, second, outside, inside) = (stream(), stream(), event(), event());
    fine(aclrtRecordEvent(outside, second));
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    refused(aclrtStreamWaitEvent(first, outside), 107024, "outside of the capture");
    refused(aclmdlRICaptureEnd(first, &mut null_mut()), 507903, "invalid");
    let external = handle(|event| aclrtCreateEventWithFlag(event, 1 | 0x20));
    fine(aclrtRecordEvent(external, second));
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    fine(aclrtStreamWaitEvent(first, external));
    fine(aclrtRecordEvent(inside, first));
    refused(aclrtStreamWaitEvent(null_mut(), inside), 107031, "default stream");
    refused(aclmdlRICaptureEnd(first, &mut null_mut()), 507903, "invalid");
    fine(aclmdlRICaptureBegin(first, GLOBAL));
    fine(aclrtRecordEvent(inside, first));
    fine(aclmdlRICaptureBegin(second, GLOBAL));
    refused(aclrtStreamWaitEvent(second, inside), 107032, "another capture");
    [first, second].iter().for_each(|&stream| refused(aclmdlRICaptureEnd(stream, &mut null_mut()), 507903, "invalid"));
    refused(aclmdlRICaptureBegin(null_mut(), GLOBAL), 107031, "default stream");
    refused(aclmdlRICaptureBegin(first, 3), 107000, "mode is 3");
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn another_thread_ends_a_relaxed_capture_only() {
    let run = Run::with("");
    let stream = stream();
    for (mode, code) in [(THREAD_LOCAL, 107032), (RELAXED, 0)] {
        fine(aclmdlRICaptureBegin(stream, mode));
        let address = stream as usize;
        let other = std::thread::spawn(move || {
            fine(aclrtSetDevice(0));
            aclmdlRICaptureEnd(address as Pointer, &mut null_mut())
        });
        assert_eq!(other.join().expect("the thread passes"), code);
        if code != 0 {
            fine(aclmdlRICaptureEnd(stream, &mut null_mut()));
        }
    }
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn chips_without_capture_refuse_it() {
    for (chip, code) in [("910b", 0), ("a3", 0), ("310p", 0), ("910a", 207000), ("310b", 207000)] {
        let run = Run::with(&format!(r#""chip": "{chip}""#));
        let stream = stream();
        assert_eq!(aclmdlRICaptureBegin(stream, GLOBAL), code, "{chip}");
        if code == 0 {
            fine(aclmdlRIDestroy(handle(|model| aclmdlRICaptureEnd(stream, model))));
        }
        fine(aclrtDestroyStream(stream));
        assert_eq!(run.end(), (0, vec![]));
    }
}

#[test]
fn tasks_of_a_group_are_given_anew() {
    let run = Run::with("");
    let (stream, other, block) = (stream(), stream(), device(64));
    refused(aclmdlRICaptureTaskGrpBegin(stream), 107029, "not being captured");
    fine(aclmdlRICaptureBegin(stream, GLOBAL));
    refused(aclmdlRICaptureTaskGrpEnd(stream, &mut null_mut()), 107033, "no group is open");
    fine(aclmdlRICaptureTaskGrpBegin(stream));
    refused(aclmdlRICaptureTaskGrpBegin(stream), 107033, "open already");
    fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
    let group = handle(|group| aclmdlRICaptureTaskGrpEnd(stream, group));
    let model = handle(|model| aclmdlRICaptureEnd(stream, model));
    refused(aclmdlRICaptureTaskUpdateEnd(other), 107033, "no update runs");
    fine(aclmdlRICaptureTaskUpdateBegin(other, group));
    refused(aclmdlRICaptureTaskUpdateEnd(other), 107034, "0 of the group's 1 tasks");
    fine(aclmdlRICaptureTaskUpdateBegin(other, group));
    refused(
        aclrtMemcpyAsync(block, 32, at(block, 32), 32, 3, other),
        107033,
        "the next task of the updated group is aclrtMemsetAsync",
    );
    fine(aclrtMemsetAsync(block, 64, 9, 64, other));
    refused(aclrtMemsetAsync(block, 64, 9, 64, other), 107033, "no more tasks");
    fine(aclmdlRICaptureTaskUpdateEnd(other));
    fine(aclmdlRIExecuteAsync(model, stream));
    fine(aclrtSynchronizeStream(stream));
    assert_eq!(byte_of(block), 9);
    refused(aclmdlRICaptureTaskUpdateBegin(other, model), 107017, "an aclrtTaskGrp is expected");
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end(), (0, vec![]));
}
