//! What is ordered behind what, whenever it runs.

use crate::library::*;
use std::ptr::null_mut;

const TIMINGS: [&str; 3] = [r#""timing": "none""#, r#""timing": "random", "seed": 3"#, r#""timing": "late""#];

/// Runs a story with each timing; what is found must not depend on it.
#[track_caller]
fn finds(expected: &[&str], story: fn()) {
    for timing in TIMINGS {
        let run = Run::with(timing);
        story();
        fine(aclrtSynchronizeDevice());
        fine(aclrtResetDeviceForce(0));
        let found: Vec<String> = run.kinds().into_iter().filter(|kind| kind != "leak").collect();
        assert_eq!(found, expected, "{timing}");
    }
}

#[test]
fn two_streams_are_ordered_by_an_event() {
    finds(&[], || {
        let (first, second, block, event) = (stream(), stream(), device(64), event());
        fine(aclrtMemsetAsync(block, 64, 1, 64, first));
        fine(aclrtRecordEvent(event, first));
        fine(aclrtStreamWaitEvent(second, event));
        fine(aclrtMemsetAsync(block, 64, 2, 64, second));
        fine(aclrtSynchronizeStream(second));
        let mut byte = [0u8];
        fine(aclrtMemcpy(host(&mut byte), 1, block, 1, 2));
        assert_eq!(byte, [2]);
        [first, second].iter().for_each(|&stream| fine(aclrtSynchronizeStream(stream)));
    });
    finds(&["race"], || {
        let (first, second, block) = (stream(), stream(), device(64));
        fine(aclrtMemsetAsync(block, 64, 1, 64, first));
        fine(aclrtMemsetAsync(block, 64, 2, 64, second));
    });
}

#[test]
fn an_event_orders_what_is_before_its_record_only() {
    finds(&["race"], || {
        let (first, second, block, event) = (stream(), stream(), device(64), event());
        fine(aclrtRecordEvent(event, first));
        fine(aclrtMemsetAsync(block, 64, 1, 64, first));
        fine(aclrtStreamWaitEvent(second, event));
        fine(aclrtMemsetAsync(block, 64, 2, 64, second));
    });
}

#[test]
fn two_readers_need_no_order_and_neighbours_neither() {
    finds(&[], || {
        let (first, second, block) = (stream(), stream(), device(64));
        let outs = [device(64), device(64)];
        fine(aclrtMemset(block, 64, 1, 64));
        fine(aclrtMemcpyAsync(outs[0], 64, block, 64, 3, first));
        fine(aclrtMemcpyAsync(outs[1], 64, block, 64, 3, second));
        let block = device(64);
        fine(aclrtMemsetAsync(block, 32, 1, 32, first));
        fine(aclrtMemsetAsync(at(block, 32), 32, 2, 32, second));
    });
}

#[test]
fn a_reader_and_a_later_writer_need_order() {
    finds(&["race"], || {
        let (first, second, block, out) = (stream(), stream(), device(64), device(64));
        fine(aclrtMemset(block, 64, 1, 64));
        fine(aclrtMemcpyAsync(out, 64, block, 64, 3, first));
        fine(aclrtMemsetAsync(at(block, 60), 4, 0, 4, second));
    });
}

#[test]
fn the_host_orders_by_synchronizing() {
    finds(&[], || {
        let (first, second, block) = (stream(), stream(), device(64));
        fine(aclrtMemsetAsync(block, 64, 1, 64, first));
        fine(aclrtSynchronizeStream(first));
        fine(aclrtMemsetAsync(block, 64, 2, 64, second));
    });
}

#[test]
fn the_host_reads_a_result_behind_its_writer() {
    finds(&[], || {
        let (block, mut bytes) = (device(64), [0u8; 64]);
        fine(aclrtMemsetAsync(block, 64, 1, 64, null_mut()));
        fine(aclrtSynchronizeStream(null_mut()));
        fine(aclrtMemcpy(host(&mut bytes), 64, block, 64, 2));
        assert_eq!(bytes, [1; 64]);
        fine(aclrtMemsetAsync(block, 64, 2, 64, null_mut()));
        // On the stream itself, and the memory is not pinned: the call returns when it is over.
        fine(aclrtMemcpyAsync(host(&mut bytes), 64, block, 64, 2, null_mut()));
        assert_eq!(bytes, [2; 64]);
    });
    finds(&["host_race"], || {
        let (block, mut bytes) = (device(64), [0u8; 64]);
        fine(aclrtMemsetAsync(block, 64, 1, 64, null_mut()));
        fine(aclrtMemcpy(host(&mut bytes), 64, block, 64, 2));
    });
}

#[test]
fn late_work_shows_a_missing_synchronization_in_the_bytes() {
    let run = Run::with(r#""timing": "late""#);
    let (block, stream, mut byte) = (device(64), stream(), [0u8]);
    fine(aclrtMemset(block, 64, 1, 64));
    fine(aclrtMemsetAsync(block, 64, 2, 64, stream));
    fine(aclrtMemcpy(host(&mut byte), 1, block, 1, 2));
    assert_eq!(byte, [1], "nobody has waited for the fill");
    fine(aclrtSynchronizeStream(stream));
    fine(aclrtMemcpy(host(&mut byte), 1, block, 1, 2));
    assert_eq!(byte, [2]);
    fine(aclrtDestroyStream(stream));
    fine(aclrtFree(block));
    assert_eq!(run.kinds(), ["host_race"]);
}

#[test]
fn memory_is_freed_behind_its_users() {
    finds(&[], || {
        let block = device(64);
        fine(aclrtMemsetAsync(block, 64, 1, 64, null_mut()));
        fine(aclrtSynchronizeStream(null_mut()));
        fine(aclrtFree(block));
    });
}

#[test]
fn memory_freed_under_queued_work_is_found() {
    let run = Run::with(r#""timing": "late""#);
    let (block, stream) = (device(64), stream());
    fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
    fine(aclrtFree(block));
    refused(aclrtSynchronizeStream(stream), 507015, "was freed");
    let (_, findings) = run.end();
    assert_eq!((findings[0].kind.as_str(), findings[0].operator.as_str()), ("freed_in_use", "aclrtFree"));
    assert!(findings[0].what.contains("aclrtMemsetAsync argument devPtr writes on stream"), "{}", findings[0].what);
}

#[test]
fn pinned_memory_outlives_its_copies() {
    finds(&[], || {
        let (block, pinned) = (device(64), handle(|pointer| aclrtMallocHost(pointer, 64)));
        fine(aclrtMemset(pinned, 64, 5, 64));
        fine(aclrtMemcpyAsync(block, 64, pinned, 64, 1, null_mut()));
        fine(aclrtSynchronizeStream(null_mut()));
        fine(aclrtFreeHost(pinned));
    });
    finds(&["freed_in_use"], || {
        let (block, pinned) = (device(64), handle(|pointer| aclrtMallocHost(pointer, 64)));
        fine(aclrtMemset(pinned, 64, 5, 64));
        fine(aclrtMemcpyAsync(block, 64, pinned, 64, 1, null_mut()));
        fine(aclrtFreeHost(pinned));
    });
    // Used again for the next upload while the one before may still read it.
    finds(&["host_race"], || {
        let (block, pinned) = (device(64), handle(|pointer| aclrtMallocHost(pointer, 64)));
        fine(aclrtMemset(pinned, 64, 5, 64));
        fine(aclrtMemcpyAsync(block, 64, pinned, 64, 1, null_mut()));
        fine(aclrtMemset(pinned, 64, 6, 64));
    });
}

#[test]
fn a_replay_does_not_reach_pinned_memory_that_was_freed() {
    let run = Run::with("");
    let (block, pinned) = (device(64), handle(|pointer| aclrtMallocHost(pointer, 64)));
    fine(aclrtMemset(block, 64, 5, 64));
    let stream = stream();
    fine(aclmdlRICaptureBegin(stream, 0));
    fine(aclrtMemcpyAsync(pinned, 64, block, 64, 2, stream));
    let model = handle(|model| aclmdlRICaptureEnd(stream, model));
    fine(aclrtFreeHost(pinned));
    aclmdlRIExecuteAsync(model, stream);
    refused(aclrtSynchronizeStream(stream), 507015, "was freed after the call was made");
    let (_, findings) = run.end();
    assert_eq!((findings[0].kind.as_str(), findings[0].operator.as_str()), ("out_of_bounds", "aclrtMemcpyAsync"));
}

#[test]
fn what_ends_with_its_context_is_over() {
    finds(&[], || {
        let block = device(64);
        let current = handle(aclrtGetCurrentContext);
        let context = handle(|context| aclrtCreateContext(context, 0));
        fine(aclrtMemsetAsync(block, 64, 1, 64, null_mut()));
        fine(aclrtDestroyContext(context));
        fine(aclrtSetCurrentContext(current));
        fine(aclrtFree(block));
    });
}

#[test]
fn a_stream_ends_behind_its_work() {
    finds(&[], || {
        let (block, stream) = (device(64), stream());
        fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
        fine(aclrtSynchronizeStream(stream));
        fine(aclrtDestroyStream(stream));
    });
    finds(&["stream_in_use"], || {
        let (block, stream, mut byte) = (device(64), stream(), [0u8]);
        fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
        fine(aclrtDestroyStream(stream));
        fine(aclrtMemcpy(host(&mut byte), 1, block, 1, 2));
        assert_eq!(byte, [1], "what is queued still runs");
    });
}

#[test]
fn cards_are_ordered_by_an_event_as_streams_are() {
    for (waits, expected) in [(true, vec![]), (false, vec!["race"])] {
        let run = Run::with(r#""cards": 2, "timing": "random""#);
        let (near, first, event) = (device(1024), stream(), event());
        for turn in 0..20 {
            fine(aclrtMemsetAsync(near, 1024, turn, 1024, first));
        }
        fine(aclrtRecordEvent(event, first));
        fine(aclrtSetDevice(1));
        fine(aclrtDeviceEnablePeerAccess(0, 0));
        let (far, second, mut byte) = (device(1024), stream(), [0u8]);
        if waits {
            fine(aclrtStreamWaitEvent(second, event));
        }
        fine(aclrtMemcpyAsync(far, 1024, near, 1024, 3, second));
        fine(aclrtSynchronizeStream(second));
        fine(aclrtMemcpy(host(&mut byte), 1, far, 1, 2));
        assert!(!waits || byte == [19]);
        fine(aclrtResetDeviceForce(0));
        fine(aclrtResetDeviceForce(1));
        assert_eq!(run.kinds(), expected);
    }
}

#[test]
fn columns_of_many_rows_are_apart() {
    const ROWS: usize = 20_000;
    for (column, on_host, expected) in
        [(16, false, &[] as &[&str]), (16, true, &[]), (12, false, &["race"]), (12, true, &["host_race"])]
    {
        let run = Run::with(r#""timing": "late""#);
        let (target, source, streams) = (device(32 * ROWS), device(16 * ROWS), [stream(), stream()]);
        fine(aclrtMemset(source, 16 * ROWS, 1, 16 * ROWS));
        fine(aclrtMemcpy2dAsync(target, 32, source, 16, 16, ROWS, 3, streams[0]));
        let other = at(target, column);
        if on_host {
            fine(aclrtMemcpy2d(other, 32, host(&mut vec![2u8; 16 * ROWS]), 16, 16, ROWS, 1));
        } else {
            fine(aclrtMemcpy2dAsync(other, 32, source, 16, 16, ROWS, 3, streams[1]));
        }
        fine(aclrtSynchronizeDevice());
        fine(aclrtMemcpy(host(&mut [0u8; 16]), 16, at(target, 32 * ROWS - 32), 16, 2));
        fine(aclrtResetDeviceForce(0));
        assert_eq!(run.kinds(), expected, "column {column}, on the host: {on_host}");
    }
}

#[test]
fn a_second_beginning_tells_the_same() {
    let run = Run::with(r#""timing": "random", "seed": 7"#);
    let told = [(); 2].map(|()| {
        fine(aclrtSetDevice(0));
        let (block, streams) = (device(64), [stream(), stream()]);
        streams.iter().for_each(|&stream| fine(aclrtMemsetAsync(block, 64, 1, 64, stream)));
        fine(aclrtSynchronizeDevice());
        fine(aclrtResetDeviceForce(0));
        let told: Vec<String> = run.end().1.into_iter().map(|finding| finding.what).collect();
        fine(run.again());
        let what = told[0].split(" (call").next().unwrap_or_default().to_owned();
        (told.len(), what)
    });
    run.end();
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0].0, 1, "{told:?}");
}

#[test]
fn a_race_of_operators_names_both() {
    let run = Run::with("");
    let [a, b, out] = [(); 3].map(|()| device(64));
    [a, b].iter().for_each(|&pointer| fine(aclrtMemset(pointer, 64, 0, 64)));
    let streams = [stream(), stream()];
    fine(add(a, b, out, 16, streams[0]));
    fine(add(a, out, b, 16, streams[1]));
    fine(aclrtSynchronizeDevice());
    fine(aclrtResetDeviceForce(0));
    let (_, findings) = run.end();
    let said: Vec<(&str, &str)> = findings
        .iter()
        .map(|finding| (finding.argument.as_str(), finding.what.split(", and").next().expect("a part")))
        .collect();
    let [("other", reads), ("out", writes)] = said.as_slice() else { panic!("two findings, found {findings:?}") };
    assert!(reads.starts_with("reads bytes that aclnnAdd argument out writes on stream"), "{reads}");
    assert!(writes.starts_with("writes bytes that aclnnAdd argument other reads on stream"), "{writes}");
}

#[test]
fn launches_are_traced() {
    let run = Run::with("");
    let [a, b, out] = [(); 3].map(|()| device(64));
    [a, b].iter().for_each(|&pointer| fine(aclrtMemsetAsync(pointer, 64, 0, 64, null_mut())));
    fine(add(a, b, out, 16, null_mut()));
    fine(aclrtSynchronizeDevice());
    [a, b, out].iter().for_each(|&pointer| fine(aclrtFree(pointer)));
    let trace = run.trace();
    let operators: Vec<&str> = trace.lines().map(|line| line.split(',').nth(2).expect("three columns")).collect();
    assert_eq!(operators, ["Op Name", "aclrtMemsetAsync", "aclrtMemsetAsync", "aclnnAdd"]);
    let sum = trace.lines().last().expect("a row");
    assert!(sum.ends_with(r#""self:f32[16]; other:f32[16]; out:f32[16]""#), "{sum}");
    assert_eq!(run.launches("aclnnAdd"), (1, 192));
}

#[test]
fn a_timeout_ends_a_wait() {
    let run = Run::with(r#""timing": "random""#);
    let block = device(1 << 20);
    for _ in 0..2000 {
        fine(aclrtMemsetAsync(block, 1 << 20, 1, 1 << 20, null_mut()));
    }
    refused(aclrtSynchronizeStreamWithTimeout(null_mut(), 1), 507046, "was not over");
    refused(aclrtSynchronizeStreamWithTimeout(null_mut(), -2), 107000, "timeout is -2");
    fine(aclrtSynchronizeStreamWithTimeout(null_mut(), -1));
    fine(aclrtFree(block));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_stream_is_asked_whether_it_is_over() {
    let run = Run::with(r#""timing": "late""#);
    let (block, stream) = (device(64), stream());
    assert_eq!(made(|status| aclrtStreamQuery(stream, status)), 0);
    fine(aclrtMemsetAsync(block, 64, 1, 64, stream));
    assert_eq!(made(|status| aclrtStreamQuery(stream, status)), 1);
    while made(|status| aclrtStreamQuery(stream, status)) == 1 {
        std::thread::yield_now();
    }
    // Being told so counts as having waited.
    fine(aclrtFree(block));
    fine(aclrtDestroyStream(stream));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn threads_of_the_host_work_side_by_side() {
    for timing in TIMINGS {
        let run = Run::with(timing);
        let worker = |number: u8| {
            fine(aclrtSetDevice(0));
            let (own, reached, mut byte) = (stream(), event(), [0u8]);
            for turn in 0..50u8 {
                let (first, second) = (device(1000), device(1000));
                fine(aclrtMemsetAsync(first, 1000, (number ^ turn).into(), 1000, own));
                fine(aclrtMemcpyAsync(second, 1000, first, 1000, 3, own));
                fine(aclrtRecordEvent(reached, own));
                fine(aclrtSynchronizeEvent(reached));
                fine(aclrtMemcpy(host(&mut byte), 1, at(second, 999), 1, 2));
                assert_eq!(byte[0], number ^ turn);
                [first, second].iter().for_each(|&block| fine(aclrtFree(block)));
            }
            fine(aclrtDestroyEvent(reached));
            fine(aclrtSynchronizeStream(own));
            fine(aclrtDestroyStream(own));
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|number| drop(scope.spawn(move || worker(number * 64))));
        });
        assert_eq!(run.end(), (0, vec![]), "{timing}");
    }
}
