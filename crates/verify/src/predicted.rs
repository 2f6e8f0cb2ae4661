//! The error that rounding alone should have added up to, node by node, to hold the free run against.
//!
//! ```text
//!   local expected^2 = mean of sigma^2 + (R1 - R0)^2, relative to R0
//!   total expected^2 = local expected^2 + amplification^2 * sum over the inputs of (total expected)^2
//! ```
//!
//! The amplification is the one that was measured, inherited error by the inputs' error; where the inputs had none, it
//! counts as 1.

use crate::record::Record;
use crate::statistics::Statistics;
use std::collections::HashMap;

/// Expected total errors of the nodes so far.
#[derive(Clone, Default, Debug)]
pub(crate) struct Predicted {
    totals: HashMap<String, f64>,
}

impl Predicted {
    /// The expected local and total error of the next node in the order of computation.
    pub fn add(&mut self, record: &Record, statistics: &Statistics, amplification: Option<f64>) -> [f64; 2] {
        let local = statistics.local_expected();
        let sources = record.sources.iter().filter_map(|source| self.totals.get(source));
        let inputs = sources.fold(0.0, |sum, total| sum + total * total);
        let total = (local * local + amplification.unwrap_or(1.0).powi(2) * inputs).sqrt();
        self.totals.insert(record.node.clone(), if total.is_finite() { total } else { 0.0 });
        [local, total]
    }
}
