//! Keeps what each element of a result should be: statistics forget it, an explanation of a failure needs it.

use crate::statistics::Expected;
use std::sync::{Mutex, PoisonError};

/// What the elements of one result should be, by index.
#[derive(Debug)]
pub(crate) struct Collector(Mutex<Vec<Option<Expected>>>);

impl Collector {
    /// Of a result with `len` elements, nothing known yet.
    pub fn new(len: usize) -> Collector {
        Collector(Mutex::new(vec![None; len]))
    }

    /// Takes note of some elements; those beyond the end are none.
    pub fn keep(&self, elements: &[(usize, Expected)]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, expected) in elements {
            if let Some(slot) = all.get_mut(*index) {
                *slot = Some(*expected);
            }
        }
    }

    /// What is known: `None` where the judge looked at bytes alone and found them untouched, or did not look.
    pub fn into_elements(self) -> Vec<Option<Expected>> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
