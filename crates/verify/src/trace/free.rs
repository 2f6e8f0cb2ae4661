//! The device's run on the tokens of a trace: the distance at each node, and what it means for the tokens.
//!
//! Nodes are not gated here: both sides are judged by themselves, and what is left between them is the noise of both.
//! Logits are, as those of any free-running reference (docs/numerics.md#logits-and-tokens).

use super::TraceOptions;
use super::known::Known;
use crate::operand;
use crate::record::result_shape;
use crate::report::Outcome;
use crate::tokens::{TokenReport, Tokens};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use trueup_formats::{Trace, counted};
use trueup_graph::{Node, Op};
use trueup_runtime::device::Device;
use trueup_runtime::{Entry, ModelFile, Observer, Result, Seen, Session, SessionOptions, Weights};

/// The node whose rows are logits.
const LOGITS: &str = "result_output";

/// The device compared with the trace.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub struct FreeRun {
    /// Root mean square of the difference at each node, relative to the trace's values.
    pub distances: Vec<(String, Option<f64>)>,
    /// The comparison of logits; null where the trace holds no whole row of them.
    pub logits: Option<TokenReport>,
}

impl FreeRun {
    /// What the logits say.
    pub(crate) fn outcome(&self) -> Outcome {
        self.logits.as_ref().map_or(Outcome::Pass, TokenReport::outcome)
    }

    /// The difference at a node.
    pub(crate) fn distance(&self, node: &str) -> Option<f64> {
        self.distances.iter().find(|(name, _)| name == node).and_then(|(_, distance)| *distance)
    }

    /// What is wrong with the logits.
    pub(crate) fn sentence(&self) -> String {
        self.logits.as_ref().map_or("its logits are correct".to_owned(), |tokens| {
            let TokenReport { flips, positions, flips_expected, not_finite, .. } = tokens;
            format!(
                "the device's most likely tokens differ from the trace's for {flips} of {positions} tokens where \
                    {flips_expected:.1} were expected, and {} of logits are not finite",
                counted(*not_finite, "row")
            )
        })
    }
}

/// Runs the device, which fuses nodes only where the trace's program did, and compares.
pub(super) fn run(
    model: &Arc<ModelFile>,
    device: Arc<dyn Device>,
    trace: &Trace,
    steps: &[Vec<Entry>],
    options: &TraceOptions,
    fused: bool,
) -> Result<FreeRun> {
    let devices = std::iter::once(device).chain(options.further.iter().cloned()).collect();
    let weights = Arc::new(Weights::over(model.clone(), devices, options.fallback.clone()));
    let context = steps.iter().map(Vec::len).sum();
    let chunk = steps.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let options = SessionOptions {
        context: Some(context),
        kv: options.kv,
        prompt_chunk: chunk,
        // Traces have scores in the order of positions.
        rewind: usize::MAX,
        fusion: options.fusion && fused,
        ..SessionOptions::default()
    };
    let mut session = Session::new(weights, &options)?;
    session.expect_length(0, context);
    let mut beside = Beside { trace, step: 0, order: Vec::new(), squares: HashMap::new(), logits: Vec::new() };
    let ids: Vec<u32> = steps.iter().flatten().map(|entry| entry.token).collect();
    let (mut tokens, mut compared, mut position) = (Tokens::default(), false, 0);
    for (step, entries) in steps.iter().enumerate() {
        beside.step = step;
        beside.logits.clear();
        let found = session.compute(entries, Some(&mut beside))?;
        for row in 0..found.rows() {
            let vocabulary = found.row(row).len();
            let reference: Option<Vec<f64>> = beside
                .logits
                .get(row * vocabulary..(row + 1) * vocabulary)
                .and_then(|row| row.iter().copied().collect());
            if let Some(reference) = reference {
                let before: Vec<u32> = ids.iter().copied().take(position + row + 1).collect();
                tokens.add(0, position + row, &before, &reference, found.row(row));
                compared = true;
            }
        }
        position += entries.len();
    }
    let distance = |name: &String| {
        let (error, reference) = beside.squares.get(name).copied().unwrap_or_default();
        (name.clone(), Some((error / reference).sqrt()).filter(|distance| distance.is_finite()))
    };
    let distances = beside.order.iter().map(distance).collect();
    let mut logits = compared.then(|| tokens.report());
    if let (Some(logits), Ok(tokenizer)) = (&mut logits, model.tokenizer()) {
        logits.add_texts(&|ids| tokenizer.decode(ids, false));
    }
    Ok(FreeRun { distances, logits })
}

/// Looks at the nodes that the trace holds.
struct Beside<'a> {
    trace: &'a Trace,
    step: usize,
    /// Names in the order of computation.
    order: Vec<String>,
    /// Sums of squares of differences and of the trace's values.
    squares: HashMap<String, (f64, f64)>,
    /// The trace's logits of the step, where it has them exactly.
    logits: Vec<Option<f64>>,
}

impl Observer for Beside<'_> {
    fn wants(&self, node: &Node) -> bool {
        self.trace.find(self.step, &node.name).is_some()
    }

    fn saw(&mut self, seen: &Seen<'_>) -> Result<()> {
        let node = seen.node();
        let Some(known) = Known::of(self.trace, self.step, seen.graph, node, seen.tokens.len())? else { return Ok(()) };
        let output = result_of(seen)?;
        if !self.squares.contains_key(&node.name) {
            self.order.push(node.name.clone());
        }
        let (error, reference) = self.squares.entry(node.name.clone()).or_default();
        for (place, value) in &known.values {
            // Where a score is masked nothing is said about it.
            let Some(found) = output.get(*place).filter(|found| found.is_finite() && value.is_finite()) else {
                continue;
            };
            *error += (found - value).powi(2);
            *reference += value * value;
        }
        if node.name == LOGITS && known.is_exact() {
            self.logits = vec![None; output.len()];
            known.values.iter().for_each(|(place, value)| self.logits[*place] = Some(*value));
        }
        Ok(())
    }
}

/// A node's result; of a cache the rows that were stored.
fn result_of(seen: &Seen<'_>) -> Result<Vec<f64>> {
    let output = seen.output()?;
    let values = operand::decode(output.ty(), &output.to_bytes());
    let node = seen.node();
    if !matches!(node.op, Op::KvStore(_)) {
        return Ok(values);
    }
    let width = result_shape(seen.graph, node, seen.tokens.len())[0];
    Ok(stored_rows(seen).into_iter().flat_map(|row| values[row * width..(row + 1) * width].to_vec()).collect())
}

/// The rows of the cache that a `kv_store` wrote, by the place of each token in its sequence.
pub(super) fn stored_rows(seen: &Seen<'_>) -> Vec<usize> {
    let room = seen.graph.value(seen.node().output).ty.shape[1];
    seen.tokens.iter().map(|token| token.sequence * room + token.position % room).collect()
}
