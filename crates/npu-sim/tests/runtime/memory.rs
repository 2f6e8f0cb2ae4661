//! Memory of devices and of the host, and copies between them.

use crate::library::*;
use std::ptr::null_mut;

const H2H: i32 = 0;
const H2D: i32 = 1;
const D2H: i32 = 2;
const D2D: i32 = 3;
const DEFAULT: i32 = 4;

#[test]
fn allocations_are_judged_and_counted() {
    let run = Run::with(r#""memory_bytes": 1048576"#);
    refused(aclrtMalloc(null_mut(), 64, 0), 107000, "devPtr is a null pointer");
    refused(aclrtMalloc(&mut null_mut(), 0, 0), 107000, "size is 0");
    refused(aclrtMalloc(&mut null_mut(), 64, 8), 107018, "policy is 0x8");
    refused(aclrtMalloc(&mut null_mut(), 64, 0x101), 107018, "policy is 0x101");
    refused(aclrtMalloc(&mut null_mut(), 1 << 20, 0), 207018, "1048576 of 1048576 are free");
    let whole = handle(|pointer| aclrtMallocAlign32(pointer, 1 << 20, 0));
    let (mut free, mut total) = (0, 0);
    fine(aclrtGetMemInfo(1, &mut free, &mut total));
    assert_eq!((free, total), (0, 1 << 20));
    fine(aclrtGetMemInfo(0, &mut free, &mut total));
    assert_eq!((free, total), (0, 0), "a 910B has no DDR");
    refused(aclrtMalloc(&mut null_mut(), 1, 2), 207018, "0 of 1048576 are free");
    fine(aclrtFree(whole));
    refused(aclrtFree(whole), 107000, "or it was freed before");
    refused(aclrtFree(null_mut()), 107000, "null pointer");
    refused(aclrtFree(host(&mut [0u8])), 107000, "not where memory of this kind starts");
    let block = device(64);
    assert!((block as usize).is_multiple_of(64));
    refused(aclrtFree(at(block, 32)), 107000, "not where memory of this kind starts");
    fine(aclrtFree(block));
    let pinned = handle(|pointer| aclrtMallocHost(pointer, 100));
    assert!((pinned as usize).is_multiple_of(64));
    refused(aclrtMallocHost(&mut null_mut(), 0), 107000, "size is 0");
    refused(aclrtFree(pinned), 107000, "not where");
    fine(aclrtFreeHost(pinned));
    refused(aclrtFreeHost(pinned), 107000, "freed before");
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn hbm_is_answered_with_ddr_where_there_is_none() {
    let run = Run::with(r#""chip": "310p", "memory_bytes": 2097152"#);
    assert_eq!(made(|total| aclrtGetMemInfo(1, &mut 0, total)), 1 << 21);
    assert_eq!(made(|total| aclrtGetMemInfo(0, &mut 0, total)), 1 << 21);
    assert_eq!(made(|total| aclrtGetMemInfo(99, &mut 0, total)), 0);
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn copies_carry_bytes() {
    let run = Run::with("");
    let mut numbers: Vec<u32> = (0..1000).collect();
    let (first, second) = (device(4000), device(4000));
    fine(aclrtMemcpy(first, 4000, host(&mut numbers), 4000, H2D));
    fine(aclrtMemcpyAsync(second, 4000, first, 4000, D2D, null_mut()));
    fine(aclrtSynchronizeStream(null_mut()));
    let mut back = vec![0u32; 1000];
    fine(aclrtMemcpy(host(&mut back), 4000, second, 4000, DEFAULT));
    assert_eq!(back, numbers);
    fine(aclrtMemcpy(host(&mut back), 400, host(&mut numbers[500..]), 400, H2H));
    assert_eq!(back[..100], numbers[500..600]);
    fine(aclrtMemset(first, 4000, 0x01, 2000));
    fine(aclrtMemcpy(host(&mut back), 4000, first, 4000, D2H));
    assert_eq!((back[499], back[500]), (0x0101_0101, 500));
    // A column of two numbers out of a matrix of 10 by 10.
    fine(aclrtMemcpy2d(second, 8, at(first, 2008), 40, 8, 10, D2D));
    fine(aclrtMemcpy(host(&mut back), 80, second, 80, D2H));
    assert_eq!(back[..6], [502, 503, 512, 513, 522, 523]);
    fine(aclrtFree(first));
    fine(aclrtFree(second));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn copies_are_judged_by_what_the_addresses_are() {
    let run = Run::with("");
    let mut bytes = [0u8; 64];
    let (block, page) = (device(64), host(&mut bytes));
    fine(aclrtMemset(block, 64, 0, 64));
    refused(aclrtMemcpy(block, 63, page, 64, H2D), 107000, "count is 64, destMax is 63");
    refused(
        aclrtMemcpy(block, 64, page, 64, D2H),
        107000,
        "kind is DEVICE_TO_HOST, but dst is memory of card 0 and src is host memory",
    );
    refused(aclrtMemcpy(block, 64, page, 64, D2D), 107000, "src is host memory");
    refused(aclrtMemcpy(page, 64, block, 64, H2D), 107000, "src is memory of card 0");
    refused(aclrtMemcpyAsync(page, 64, block, 64, H2D, null_mut()), 107017, "src is memory of card 0");
    refused(aclrtMemcpy(block, 64, page, 64, 9), 107000, "kind is 9");
    refused(aclrtMemcpy(null_mut(), 64, block, 64, D2H), 107000, "dst is a null pointer");
    refused(aclrtMemcpyAsync(page, 64, at(page, 8), 8, H2H, null_mut()), 207000, "HOST_TO_HOST is not asynchronous");
    refused(aclrtMemcpy(at(block, 32), 64, page, 64, H2D), 107000, "exceed the end of their region of 64 bytes");
    refused(
        aclrtMemcpyAsync(at(block, 32), 64, page, 64, H2D, null_mut()),
        107017,
        "exceed the end of their region of 64 bytes",
    );
    refused(aclrtMemset(block, 10, 0, 11), 107000, "count is 11, maxCount is 10");
    refused(aclrtMemcpy2d(block, 4, page, 8, 8, 2, H2D), 107000, "width is 8, the pitches are 4 and 8");
    let pinned = handle(|pointer| aclrtMallocHost(pointer, 32));
    refused(aclrtMemset(pinned, usize::MAX, 0, usize::MAX - 5), 107000, "leaves its pinned memory of 32 bytes");
    refused(
        aclrtMemcpy2d(pinned, 1 << 63, block, 8, 8, 2, D2H),
        107000,
        "width is 8, the pitches are 9223372036854775808",
    );
    refused(aclrtMemcpy(block, 64, pinned, 64, H2D), 107000, "leaves its pinned memory of 32 bytes");
    fine(aclrtMemcpy(block, 64, pinned, 32, H2D));
    fine(aclrtMemcpy(block, 64, page, 0, H2D));
    fine(aclrtFreeHost(pinned));
    fine(aclrtFree(block));
    refused(aclrtMemcpy(page, 64, block, 64, D2H), 107000, "are in memory that was freed");
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn bytes_that_nobody_wrote_are_found_when_they_are_read() {
    let run = Run::with("");
    let (first, second) = (device(100), device(100));
    let mut bytes = [0u8; 100];
    fine(aclrtMemset(first, 100, 1, 50));
    fine(aclrtMemcpy(host(&mut bytes), 100, first, 50, D2H));
    // A copy keeps what was written and what was not.
    fine(aclrtMemcpy(second, 100, first, 100, D2D));
    fine(aclrtMemcpy(host(&mut bytes), 100, second, 50, D2H));
    fine(aclrtMemcpy(host(&mut bytes), 100, second, 100, D2H));
    assert_eq!((bytes[49], bytes[50]), (1, 0xFF), "fresh memory is no number");
    fine(aclrtFree(first));
    fine(aclrtFree(second));
    let (code, findings) = run.end();
    assert_eq!(code, 0);
    let [Finding { kind, operator, argument, what }] = findings.as_slice() else {
        panic!("one finding, found {findings:?}")
    };
    assert_eq!((kind.as_str(), operator.as_str(), argument.as_str()), ("unwritten", "aclrtMemcpy", "src"));
    assert_eq!(what, "reads memory that was never written: its byte 50");
}

#[test]
fn findings_are_errors_of_the_next_synchronization() {
    let run = Run::with(r#""on_finding": "error""#);
    let block = device(64);
    refused(aclrtMemcpy(host(&mut [0u8; 64]), 64, block, 64, D2H), 507000, "reads memory that was never written");
    refused(aclrtSynchronizeDevice(), 507000, "reads memory that was never written");
    fine(aclrtResetDevice(0));
    assert_eq!(run.kinds(), ["unwritten"]);
}

#[test]
fn operands_outside_of_live_memory_break_the_card() {
    let out_of = |count: i64, wrong: fn(Pointer) -> Pointer, code: i32, part: &str| {
        let run = Run::with(r#""cards": 2"#);
        let [a, b, out] = [(); 3].map(|()| device(64));
        [a, b].iter().for_each(|&pointer| fine(aclrtMemset(pointer, 64, 0, 64)));
        fine(add(a, wrong(b), out, count, null_mut()));
        match code {
            0 => fine(aclrtSynchronizeDevice()),
            _ => refused(aclrtSynchronizeDevice(), code, part),
        }
        let (_, findings) = run.end();
        findings
            .into_iter()
            .filter(|finding| finding.kind != "leak")
            .map(|finding| (finding.kind, finding.argument))
            .collect::<Vec<_>>()
    };
    let found = |kind: &str, argument: &str| vec![(kind.to_owned(), argument.to_owned())];
    assert_eq!(out_of(16, |b| b, 0, ""), []);
    assert_eq!(
        out_of(16, |b| at(b, 32), 507015, "exceed the end of their region of 64 bytes"),
        found("out_of_bounds", "other")
    );
    let freed = |b| {
        fine(aclrtFree(b));
        b
    };
    assert_eq!(out_of(16, freed, 507015, "was freed"), found("out_of_bounds", "other"));
    let on_the_host = |_| (Box::leak(Box::new([0u64; 16])).as_mut_ptr() as usize).next_multiple_of(32) as Pointer;
    assert_eq!(out_of(16, on_the_host, 507015, "not a device address"), found("wrong_memory", "other"));
    let elsewhere = |_| {
        fine(aclrtSetDevice(1));
        let far = device(64);
        fine(aclrtSetDevice(0));
        far
    };
    assert_eq!(out_of(16, elsewhere, 507015, "is on card 1"), found("wrong_memory", "other"));
}
