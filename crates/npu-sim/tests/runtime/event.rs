//! Events: what each flag allows.

use crate::library::*;
use std::ptr::null_mut;

#[test]
fn flags_say_what_an_event_may() {
    let run = Run::with("");
    let plain = handle(aclrtCreateEvent);
    let timed = handle(|event| aclrtCreateEventWithFlag(event, 8));
    let synced = handle(|event| aclrtCreateEventWithFlag(event, 1));
    let extended = handle(|event| aclrtCreateEventExWithFlag(event, 1));
    [plain, timed, synced, extended].iter().for_each(|&event| fine(aclrtRecordEvent(event, null_mut())));
    [plain, synced, extended].iter().for_each(|&event| fine(aclrtStreamWaitEvent(null_mut(), event)));
    refused(aclrtStreamWaitEvent(null_mut(), timed), 107000, "without ACL_EVENT_SYNC");
    fine(aclrtResetEvent(synced, null_mut()));
    for event in [plain, timed, extended] {
        refused(aclrtResetEvent(event, null_mut()), 107000, "can be reset");
    }
    fine(aclrtSynchronizeDevice());
    assert_eq!(made(|status| aclrtQueryEvent(plain, status)), 0);
    assert_eq!(made(|status| aclrtQueryEventStatus(plain, status)), 1);
    refused(aclrtQueryEvent(extended, &mut 0), 207000, "aclrtCreateEventExWithFlag");
    assert_eq!(made(|status| aclrtQueryEventStatus(extended, status)), 1);
    assert!(made(|ms| aclrtEventElapsedTime(ms, plain, timed)) >= 0.0);
    refused(aclrtEventElapsedTime(&mut 0.0, timed, plain), 107007, "before start");
    refused(aclrtEventElapsedTime(&mut 0.0, plain, synced), 107006, "without ACL_EVENT_TIME_LINE");
    refused(aclrtCreateEventWithFlag(&mut null_mut(), 4), 107000, "flag is 0x4");
    [plain, timed, synced, extended].iter().for_each(|&event| fine(aclrtDestroyEvent(event)));
    refused(aclrtDestroyEvent(plain), 107017, "an aclrtEvent is expected");
    refused(aclrtRecordEvent(plain, null_mut()), 107017, "an aclrtEvent is expected");
    refused(aclrtDestroyEvent(null_mut()), 107017, "a null pointer");
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn an_event_that_was_never_recorded() {
    let run = Run::with("");
    let (first, extended) = (event(), handle(|event| aclrtCreateEventExWithFlag(event, 1)));
    assert_eq!(made(|status| aclrtQueryEventStatus(first, status)), 0);
    assert_eq!(made(|status| aclrtQueryEventStatus(extended, status)), 1);
    refused(aclrtEventElapsedTime(&mut 0.0, first, first), 107006, "was not recorded");
    fine(aclrtStreamWaitEvent(null_mut(), extended));
    fine(aclrtSynchronizeEvent(extended));
    fine(aclrtStreamWaitEvent(null_mut(), first));
    fine(aclrtSynchronizeEvent(first));
    [first, extended].iter().for_each(|&event| fine(aclrtDestroyEvent(event)));
    let (_, findings) = run.end();
    let found: Vec<(&str, &str)> =
        findings.iter().map(|finding| (finding.kind.as_str(), finding.operator.as_str())).collect();
    assert_eq!(
        found,
        [("event_not_recorded", "aclrtStreamWaitEvent"), ("event_not_recorded", "aclrtSynchronizeEvent")]
    );
}

#[test]
fn events_are_limited_on_a_310p() {
    let run = Run::with(r#""chip": "310p""#);
    let events: Vec<Pointer> = (0..1023).map(|_| event()).collect();
    refused(aclrtCreateEventWithFlag(&mut null_mut(), 1), 207007, "1023 events");
    refused(aclrtCreateEvent(&mut null_mut()), 207007, "1023 events");
    fine(aclrtDestroyEvent(handle(|event| aclrtCreateEventExWithFlag(event, 1))));
    events.iter().for_each(|&event| fine(aclrtDestroyEvent(event)));
    fine(aclrtDestroyEvent(event()));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn an_event_is_of_its_card() {
    let run = Run::with(r#""cards": 2"#);
    let near = event();
    fine(aclrtSetDevice(1));
    refused(aclrtRecordEvent(near, null_mut()), 107000, "one of card 0, the stream of card 1");
    fine(aclrtDestroyEvent(near));
    assert_eq!(run.end(), (0, vec![]));
}

#[test]
fn the_host_waits_for_an_event() {
    let run = Run::with(r#""timing": "late""#);
    let (block, stream, reached) = (device(64), stream(), event());
    fine(aclrtMemsetAsync(block, 64, 3, 64, stream));
    fine(aclrtRecordEvent(reached, stream));
    fine(aclrtMemsetAsync(at(block, 32), 32, 4, 32, stream));
    fine(aclrtSynchronizeEvent(reached));
    let mut bytes = [0u8; 32];
    fine(aclrtMemcpy(host(&mut bytes), 32, block, 32, 2));
    assert_eq!(bytes, [3; 32]);
    // The second fill is behind the record.
    fine(aclrtMemcpy(host(&mut bytes), 32, at(block, 32), 32, 2));
    assert_eq!(bytes, [3; 32]);
    fine(aclrtResetDeviceForce(0));
    assert_eq!(run.kinds(), ["host_race"]);
}
