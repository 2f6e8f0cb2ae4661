//! Beginning, end, devices, contexts, peers.

use crate::library::*;
use std::{
    ffi::CString,
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

#[test]
fn the_chip_is_told_and_its_facts() {
    for (chip, soc, cores) in [("910b", "Ascend910B1", 24), ("310p", "Ascend310P3", 8)] {
        let run = Run::with(&format!(r#""chip": "{chip}", "cards": 3"#));
        assert_eq!(text(aclrtGetSocName()), soc);
        assert_eq!(made(aclrtGetDeviceCount), 3);
        assert_eq!(made(|value| aclGetDeviceCapability(2, 0, value)), cores);
        refused(aclGetDeviceCapability(3, 0, &mut 0), 107001, "there are 3 cards");
        refused(aclGetDeviceCapability(0, 9, &mut 0), 107000, "information 9");
        assert_eq!(made(aclrtGetRunMode), 1);
        assert_eq!(aclrtGetVersion(&mut 0, &mut 0, &mut 0), 0);
        refused(aclrtGetVersion(null_mut(), &mut 0, &mut 0), 107000, "null pointer");
        assert_eq!(run.end(), (0, vec![]));
    }
}

#[test]
fn wrong_settings_are_refused_with_a_sentence() {
    let run = Run::with("");
    let (_, findings) = run.end();
    assert_eq!(findings, []);
    let path = CString::new("/nowhere/settings.json").expect("a text");
    refused(aclInit(path.as_ptr()), 100000, "/nowhere/settings.json");
}

#[test]
fn a_thread_has_a_device_of_its_own() {
    let run = Run::with(r#""cards": 2"#);
    let first = handle(aclrtGetCurrentContext) as usize;
    let other = thread::spawn(move || {
        refused(aclrtGetDevice(&mut 0), 107002, "aclrtSetDevice");
        refused(aclrtMalloc(&mut null_mut(), 64, 0), 107002, "aclrtSetDevice");
        refused(aclrtGetMemInfo(1, &mut 0, &mut 0), 107002, "aclrtSetDevice");
        refused(aclrtSetDevice(2), 107001, "device 2");
        refused(aclrtSetDevice(-1), 107001, "device -1");
        fine(aclrtSetDevice(0));
        assert_eq!(handle(aclrtGetCurrentContext) as usize, first, "threads share the context of a device");
        fine(aclrtSetDevice(1));
        made(aclrtGetDevice)
    });
    assert_eq!(other.join().expect("the thread passes"), 1);
    assert_eq!(made(aclrtGetDevice), 0);
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_device_ends_with_its_last_reference() {
    let run = Run::with("");
    fine(aclrtSetDevice(0));
    device(64);
    fine(aclrtResetDevice(0));
    let free = || made(|free| aclrtGetMemInfo(1, free, &mut 0));
    let before = free();
    fine(aclrtResetDevice(0));
    refused(aclrtGetDevice(&mut 0), 107002, "was destroyed");
    refused(aclrtResetDevice(0), 107001, "was not set");
    fine(aclrtSetDevice(0));
    assert_eq!(free(), before + 96);
    fine(aclrtSetDevice(0));
    fine(aclrtResetDeviceForce(0));
    refused(aclrtSynchronizeDevice(), 107002, "was destroyed");
    assert_eq!(run.kinds(), ["leak"]);
}

#[test]
fn a_stream_is_of_its_context() {
    let run = Run::with(r#""cards": 2"#);
    let stream = stream();
    let primary = handle(aclrtGetCurrentContext);
    let context = handle(|context| aclrtCreateContext(context, 1));
    assert_eq!(made(aclrtGetDevice), 1);
    for code in [aclrtSynchronizeStream(stream), aclrtDestroyStream(stream), aclrtStreamQuery(stream, &mut 0)] {
        refused(code, 107003, "");
    }
    refused(aclrtMemsetAsync(device(64), 64, 0, 64, stream), 107003, "another context (device 0)");
    fine(aclrtSynchronizeStream(null_mut()));
    fine(aclrtDestroyContext(context));
    refused(aclrtSynchronizeStream(null_mut()), 107002, "was destroyed");
    refused(aclrtDestroyContext(context), 107017, "destroyed");
    refused(aclrtSetCurrentContext(context), 107017, "destroyed");
    refused(aclrtDestroyContext(primary), 107000, "ends by aclrtResetDevice");
    fine(aclrtSetCurrentContext(primary));
    fine(aclrtSynchronizeStream(stream));
    fine(aclrtDestroyStream(stream));
    refused(aclrtDestroyStream(stream), 107017, "destroyed");
    refused(aclrtSynchronizeStream(0x10 as Pointer), 107017, "not a handle of this library");
    refused(aclrtDestroyStream(null_mut()), 107000, "default stream");
    fine(aclrtSetDevice(1));
    fine(aclrtResetDeviceForce(1));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn streams_are_limited() {
    let run = Run::with(r#""chip": "310p""#);
    let streams: Vec<Pointer> = (0..1023).map(|_| stream()).collect();
    refused(aclrtCreateStream(&mut null_mut()), 207008, "1024 streams");
    streams.iter().for_each(|&stream| fine(aclrtDestroyStream(stream)));
    refused(aclrtCreateStreamWithConfig(&mut null_mut(), 0, 16), 107000, "flag is 0x10");
    fine(aclrtDestroyStream(handle(|stream| aclrtCreateStreamWithConfig(stream, 0, 3))));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn a_card_reaches_another_when_it_was_allowed_to() {
    let run = Run::with(r#""cards": 2"#);
    let near = device(64);
    fine(aclrtMemset(near, 64, 7, 64));
    fine(aclrtSetDevice(1));
    let far = device(64);
    assert_eq!(made(|can| aclrtDeviceCanAccessPeer(can, 0, 1)), 1);
    refused(aclrtDeviceCanAccessPeer(&mut 0, 1, 1), 107000, "both are device 1");
    refused(aclrtMemcpy(far, 64, near, 64, 3), 107000, "aclrtDeviceEnablePeerAccess(0) was not called on card 1");
    refused(aclrtDeviceEnablePeerAccess(1, 0), 107000, "another device");
    refused(aclrtDeviceEnablePeerAccess(0, 1), 107000, "flags 1");
    fine(aclrtDeviceEnablePeerAccess(0, 0));
    fine(aclrtMemcpy(far, 64, near, 64, 3));
    refused(aclrtMemcpy(far, 64, near, 64, 6), 107000, "INNER_DEVICE_TO_DEVICE");
    fine(aclrtMemcpy(far, 64, near, 64, 7));
    fine(aclrtSetDevice(0));
    refused(aclrtMemcpy(near, 64, far, 64, 3), 107000, "aclrtDeviceEnablePeerAccess(1) was not called on card 0");
    refused(aclrtDeviceDisablePeerAccess(1), 107000, "does not reach");
    let mut bytes = [0u8; 64];
    fine(aclrtSetDevice(1));
    fine(aclrtMemcpy(host(&mut bytes), 64, far, 64, 2));
    assert_eq!(bytes, [7; 64]);
    fine(aclrtDeviceDisablePeerAccess(0));
    refused(aclrtMemcpy(far, 64, near, 64, 3), 107000, "was not called");
    fine(aclrtFree(near));
    fine(aclrtFree(far));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn options_are_judged() {
    let run = Run::with("");
    fine(aclrtSetSysParamOpt(0, 1));
    refused(aclrtSetSysParamOpt(5, 1), 107000, "option 5");
    fine(aclrtSetDeviceSatMode(1));
    refused(aclrtSetDeviceSatMode(0), 207000, "only 1 is computed for Ascend910B1");
    refused(aclrtSetDeviceSatMode(2), 107000, "mode 2");
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn what_is_not_given_back_is_found_at_the_end() {
    let run = Run::with(r#""on_finding": "error""#);
    device(100);
    stream();
    event();
    handle(|pointer| aclrtMallocHost(pointer, 10));
    let scalar = aclCreateScalar((&raw mut *Box::leak(Box::new(1.0f32))).cast(), 0);
    let (code, findings) = run.end();
    assert_eq!(code, 207005, "{}", message());
    let said: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
    let expected = [
        "leaves 1 of the allocations of device 0, 160 bytes",
        "leaves 1 of aclrtMallocHost, 10 bytes",
        "leaves 1 of aclrtStream",
        "leaves 1 of aclrtEvent",
        "leaves 1 of aclScalar",
    ];
    assert_eq!(said, expected);
    // It was told once, and is still there for the program.
    fine(run.again());
    assert_eq!(run.end(), (0, vec![]));
    fine(aclDestroyScalar(scalar));
}

#[test]
fn dimensions_that_no_tensor_has_are_not_read() {
    let run = Run::with("");
    let (sizes, null) = ([1i64; 65], std::ptr::null());
    for (axes, storage_axes) in [(65, 1), (1, 65), (1 << 19, 1)] {
        let made = aclCreateTensor(sizes.as_ptr(), axes, 0, null, 0, 2, sizes.as_ptr(), storage_axes, null_mut());
        assert!(made.is_null() && message().contains("at most 64 are read"), "{}", message());
    }
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn what_a_reset_takes_is_found_there() {
    let run = Run::with(r#""on_finding": "error", "cards": 2"#);
    device(100);
    stream();
    event();
    handle(|context| aclrtCreateContext(context, 0));
    fine(aclrtSetDevice(1));
    device(10);
    fine(aclrtResetDevice(0));
    fine(aclrtSetDevice(0));
    fine(aclrtSynchronizeDevice());
    fine(aclrtResetDevice(0));
    fine(aclrtResetDeviceForce(1));
    let (code, findings) = run.end();
    refused(code, 207005, "aclrtResetDevice leaves 1 of the allocations of device 0, 160 bytes");
    let said: Vec<(&str, &str)> =
        findings.iter().map(|finding| (finding.operator.as_str(), finding.what.as_str())).collect();
    let expected = ["the allocations of device 0, 160 bytes", "aclrtStream", "aclrtEvent", "aclrtContext"]
        .map(|what| format!("leaves 1 of {what}"));
    assert_eq!(said, expected.each_ref().map(|what| ("aclrtResetDevice", what.as_str())));
}

#[test]
fn what_a_reset_takes_behind_an_error_is_no_leak() {
    let run = Run::with(r#""on_finding": "error""#);
    let out = device(64);
    refused(aclrtMemcpy(host(&mut [0u8; 4]), 4, out, 4, 2), 507000, "never written");
    fine(aclrtResetDevice(0));
    let (code, findings) = run.end();
    assert_eq!((code, findings.len()), (0, 1), "{findings:?}");
}

/// Calls of a thread until the end has come: none of them fails in the simulator itself.
fn call_until(ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let (mut stream, mut block) = (null_mut(), null_mut());
        let mut codes = vec![aclrtSetDevice(0), aclrtCreateStream(&mut stream), aclrtMalloc(&mut block, 64, 0)];
        for _ in 0..20 {
            codes.push(aclrtMemsetAsync(block, 64, 1, 64, stream));
            codes.extend([aclrtSynchronizeStream(stream), aclrtSynchronizeDevice(), aclrtMemset(block, 64, 2, 64)]);
        }
        codes.extend([aclrtDestroyStream(stream), aclrtFree(block), aclrtResetDevice(0)]);
        assert!(!codes.contains(&500000), "{codes:?} {}", message());
    }
}

#[test]
fn the_end_comes_beside_calls_of_other_threads() {
    let run = Run::with("");
    for turn in 0..40 {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| call_until(&ended)));
            thread::sleep(Duration::from_millis(turn % 4));
            fine(aclFinalize());
            refused(aclrtSynchronizeDevice(), 100001, "aclInit has not been called");
            fine(run.again());
            thread::sleep(Duration::from_millis(turn % 3));
            ended.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().expect("each call is answered"));
        });
    }
    fine(aclrtSetDevice(0));
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.end().0, 0);
}

#[test]
fn an_error_of_a_task_stays_until_the_card_is_reset() {
    let run = Run::with(r#""faults": [{"kind": "asynchronous_error", "operator": "aclnnAdd", "at": 2}]"#);
    let [a, b, out] = [(); 3].map(|()| device(64));
    [a, b].iter().for_each(|&pointer| fine(aclrtMemset(pointer, 64, 0, 64)));
    fine(add(a, b, out, 16, null_mut()));
    fine(aclrtSynchronizeStream(null_mut()));
    fine(add(a, b, out, 16, null_mut()));
    refused(aclrtSynchronizeStream(null_mut()), 507015, "an asynchronous error, as configured in the settings");
    refused(aclrtSynchronizeDevice(), 507015, "aclnnAdd");
    refused(aclrtMemcpy(host(&mut [0u8; 4]), 4, out, 4, 2), 507015, "aclnnAdd");
    fine(aclrtResetDevice(0));
    fine(aclrtSetDevice(0));
    fine(aclrtSynchronizeDevice());
    assert_eq!(run.kinds(), ["device_fault"]);
}

/// A run in which a task ends in an error, and so many calls come before the host waits: the finding.
fn fault_before_calls(calls: usize) -> serde_json::Value {
    let run = Run::with(r#""timing": "late", "faults": [{"kind": "asynchronous_error", "operator": "aclnnAdd"}]"#);
    let [a, b, out] = [(); 3].map(|()| device(64));
    [a, b].iter().for_each(|&pointer| fine(aclrtMemset(pointer, 64, 0, 64)));
    fine(add(a, b, out, 16, null_mut()));
    (0..calls).for_each(|_| fine(aclrtGetDevice(&mut 0)));
    refused(aclrtSynchronizeDevice(), 507015, "aclnnAdd ends in an asynchronous error");
    assert_eq!(run.end().1[0].kind, "device_fault");
    run.report()["findings"][0].take()
}

#[test]
fn an_error_of_a_task_is_found_where_it_was_asked_for() {
    let [few, many] = [0, 20].map(fault_before_calls);
    assert_eq!(few["call"], many["call"]);
    let callers = many["callers"].to_string();
    assert!(callers.contains("fault_before_calls") || callers.contains("library::add"), "{callers}");
}

#[test]
fn a_lost_card_answers_nothing_until_it_is_reset() {
    let run = Run::with(r#""faults": [{"kind": "device_lost", "at": 1}], "cards": 2"#);
    let [a, b, out] = [(); 3].map(|()| device(64));
    [a, b].iter().for_each(|&pointer| fine(aclrtMemset(pointer, 64, 0, 64)));
    fine(add(a, b, out, 16, null_mut()));
    refused(aclrtSynchronizeDevice(), 507899, "card 0 is lost");
    refused(aclrtMalloc(&mut null_mut(), 64, 0), 507899, "card 0 is lost");
    fine(aclrtSetDevice(1));
    fine(aclrtSynchronizeDevice());
    refused(aclrtSetDevice(0), 507899, "card 0 is lost");
    fine(aclrtResetDeviceForce(0));
    fine(aclrtSetDevice(0));
    fine(aclrtSynchronizeDevice());
    assert_eq!(run.end(), (0, vec![]));
}
