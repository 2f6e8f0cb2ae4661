//! That a touched guard page kills: each test touches one in a process of its own and expects its death.
#![allow(unsafe_code, reason = "memory outside of a slice is touched on purpose")]

use trueup_guard::{Guarded, Side, is_child, run_in_child};

/// Touches what lies `offset` bytes from the first of `len` bytes at a guard page, in a child; gives what became of it.
fn touch(test: &str, side: Side, len: usize, offset: isize, write: bool) -> Result<(), String> {
    if !is_child() {
        return run_in_child(&format!("death::{test}"));
    }
    let mut bytes = Guarded::of(&vec![7u8; len], side);
    let place = bytes.as_mut_slice().as_mut_ptr().wrapping_offset(offset);
    // SAFETY: within the mapping; where it is a guard page, the process ends here, which is what the test is about.
    unsafe {
        let found = place.read_volatile();
        if write {
            place.write_volatile(found);
        }
    }
    Ok(())
}

/// One test for each place that is touched.
macro_rules! touches {
    ($($name:ident: $side:ident, $len:expr, $offset:expr, $write:expr, $dies:expr;)+) => {$(
        #[test]
        fn $name() {
            let death = touch(stringify!($name), Side::$side, $len, $offset, $write);
            let died = death.as_ref().is_err_and(|death| death.contains("outside of its slices (SIG"));
            assert_eq!(died, !is_child() && $dies, "{death:?}");
        }
    )+};
}

touches! {
    the_byte_behind_kills_when_read: End, 37, 37, false, true;
    the_byte_behind_kills_when_written: End, 37, 37, true, true;
    the_byte_before_kills_when_read: Start, 37, -1, false, true;
    the_byte_before_kills_when_written: Start, 37, -1, true, true;
    the_byte_behind_a_whole_page_kills: Start, 65536, 65536, false, true;
    the_byte_before_a_whole_page_kills: End, 65536, -1, true, true;
    a_byte_of_nothing_kills: End, 0, 0, false, true;
    the_last_byte_does_not: End, 37, 36, true, false;
    the_first_byte_does_not: Start, 37, 0, true, false;
}

#[test]
fn a_test_that_is_not_there_is_an_error() {
    assert!(run_in_child("death::nothing").unwrap_err().contains("no test nothing"));
}

#[test]
fn a_test_that_fails_in_the_child_says_how() {
    if is_child() {
        panic!("on purpose");
    }
    let error = run_in_child("death::a_test_that_fails_in_the_child_says_how").unwrap_err();
    assert!(error.starts_with("fails") && error.contains("on purpose"), "{error}");
}

#[test]
fn copies_lie_at_the_side_asked_for_and_hold_the_values() {
    for len in [0, 1, 3, 1023, 1024, 1025, 4096] {
        let values: Vec<u32> = (0..len).collect();
        for side in Side::BOTH {
            let mut copy = Guarded::of(&values, side);
            assert_eq!(copy.as_slice(), values);
            copy.as_mut_slice().fill(9);
            assert!(copy.as_slice().iter().all(|value| *value == 9));
            let range = copy.as_slice().as_ptr_range();
            let edge = if side == Side::Start { range.start } else { range.end };
            assert!((edge as usize).is_multiple_of(4096), "{side:?} of {len} lies at a page's edge");
        }
    }
}
