//! For tests of `unsafe` code: slices between pages that nobody may touch, and the process that dies when somebody does.
//!
//! ```text
//!  Side::End      │ no access │ ............... slice │ no access │      one byte too far ends in the page behind
//!  Side::Start    │ no access │ slice ............... │ no access │      one byte too early ends in the page before
//! ```
//!
//! A kernel that reads or writes one byte outside of its slices is killed by the processor. [`expect_in_child`] lets a test run
//! once more in a process of its own, so that such a death is a failure with a name and not the end of all tests:
//!
//! ```
//! use trueup_guard::{Guarded, Side};
//!
//! let mut row = Guarded::of(&[1.0f32, 2.0, 3.0], Side::End);
//! row.as_mut_slice()[2] = 5.0;
//! assert_eq!(row.as_slice(), [1.0, 2.0, 5.0]);
//! ```

mod child;
mod memory;

pub use child::{expect_in_child, is_child, run_in_child};
pub use memory::{Guarded, Side};
