//! Tests of `unsafe` code: slices between inaccessible pages, and a child process that dies on an access outside.
//!
//! ```text
//! Side::End      │ no access │ ............... slice │ no access │      one byte too far hits the page after it
//! Side::Start    │ no access │ slice ............... │ no access │      one byte too early hits the page before it
//! ```
//!
//! The processor kills a kernel that reads or writes outside its slices. [`expect_in_child`] reruns a test in a child
//! process, so that the death is a named failure and does not end the test run:
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
