//! Which nodes' details go into a report: those that failed, and the worst of each operator. A report stays small
//! however large the model.

use crate::detail_report::DetailReport;
use crate::record::{PhaseRecord, Records};
use crate::report::NodeReport;
use std::collections::BTreeMap;

/// Failing nodes with a detail, the first in the order of computation.
const FAILING_MAX: usize = 24;

/// Adds details to the nodes' phases.
pub(crate) fn add_details(nodes: &mut [NodeReport], records: &Records) {
    let mut worst: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for (index, record) in records.all().iter().enumerate() {
        let share = record.share();
        let known = worst.entry(record.op).or_insert((share, index));
        if share > known.0 {
            *known = (share, index);
        }
    }
    let failing = (0..nodes.len()).filter(|index| nodes[*index].verdict.fails()).take(FAILING_MAX);
    let mut chosen: Vec<usize> = failing.chain(worst.into_values().map(|(_, index)| index)).collect();
    chosen.sort_unstable();
    chosen.dedup();
    for index in chosen {
        let record = &records.all()[index];
        for (phase, found) in nodes[index].phases.iter_mut().zip(&record.phases) {
            phase.detail = detail(found);
        }
    }
}

fn detail(phase: &PhaseRecord) -> Option<DetailReport> {
    phase.detail.as_ref().map(|detail| DetailReport::new(detail))
}
