//! What is known about one node of the model after all steps, and its verdict.

use crate::bound::{Repetition, declares_loss, gate};
use crate::detail::Detail;
use crate::explain::Explanations;
use crate::operand::is_unwritten;
use crate::pieces::PieceReport;
use crate::statistics::{Statistics, Worst};
use crate::verdict::{Gate, Verdict};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use trueup_formats::significant;
use trueup_graph::{Graph, Node, Op, Origin, Shape, TensorType};
use trueup_runtime::profile::Profile;

/// Whether many tokens are computed at once or one: kernels and profiles may differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The tokens of a prompt.
    Prompt,
    /// One token after the others.
    Decode,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Prompt => "prompt",
            Phase::Decode => "decode",
        })
    }
}

/// Where an element lies in a result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Place {
    /// The prompt, counted from 0; the number after the last one is the batch of all.
    pub prompt: usize,
    /// The step: 0 computes the prompt, each further one a token.
    pub step: usize,
    /// What each index counts, innermost first: `row 5, token 2`.
    pub element: String,
    /// What the device has; null where that is no number.
    pub device: Option<f64>,
    /// What it should be, as declared.
    pub expected: Option<f64>,
    /// Both values for people; JSON has the numbers.
    #[serde(skip)]
    pub(crate) shown: Shown,
}

/// The values of an element as text.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shown {
    pub device: String,
    pub expected: String,
}

impl Shown {
    fn new(worst: &Worst) -> Shown {
        let device = if is_unwritten(worst.device) {
            "no value (never written)".to_owned()
        } else {
            shown_exactly(worst.device)
        };
        Shown { device, expected: shown_exactly(worst.expected) }
    }
}

/// A value of an element: 7 digits, because faulty elements may differ from the expected ones only after the third.
pub(crate) fn shown_exactly(value: f64) -> String {
    significant(value, 7)
}

/// One node in one phase.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PhaseRecord {
    pub phase: Phase,
    pub profile: Profile,
    pub statistics: Statistics,
    pub gate: Gate,
    pub loss: bool,
    /// The worst element and how bad it is.
    pub worst: Option<(f64, Place)>,
    /// What figures are drawn from.
    pub detail: Option<Box<Detail>>,
}

impl PhaseRecord {
    pub fn verdict(&self) -> Verdict {
        self.gate.verdict(&self.statistics, self.loss)
    }
}

/// One node in all steps.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Record {
    pub node: String,
    pub layer: Option<usize>,
    pub op: &'static str,
    /// Whether it belongs to the encoder of an encoder-decoder model, which only reads prompts.
    pub is_of_encoder: bool,
    /// The weight it reads, if any; of a fused node all of them.
    pub weight: Option<String>,
    /// Names of the nodes that its activations come from.
    pub sources: Vec<String>,
    /// The device that computed it; empty until it was seen.
    pub device: String,
    /// Why the main device did not.
    pub fell_back: Option<String>,
    pub phases: Vec<PhaseRecord>,
    /// Names of the nodes that it was fused of, its own last; none where it is as models have it.
    pub fused: Vec<String>,
    /// Its pieces alone, from the first step that it failed in.
    pub pieces: Vec<PieceReport>,
}

impl Record {
    fn new(graph: &Graph, node: &Node) -> Record {
        let values = node.inputs.iter().map(|input| graph.value(*input));
        let weight = weights(graph, node);
        let sources = values.filter(|value| matches!(value.origin, Origin::Node(_))).map(|value| value.name.clone());
        Record {
            node: node.name.clone(),
            layer: node.layer,
            op: node.op.name(),
            is_of_encoder: false,
            weight,
            sources: sources.collect(),
            device: String::new(),
            fell_back: None,
            phases: Vec::new(),
            fused: Vec::new(),
            pieces: Vec::new(),
        }
    }

    fn located(&mut self, device: &str, fell_back: Option<&str>) {
        if self.fell_back.is_none() {
            self.device = device.to_owned();
            self.fell_back = fell_back.map(str::to_owned);
        }
    }

    /// The worst of the phases' verdicts.
    pub fn verdict(&self) -> Verdict {
        self.phases.iter().map(PhaseRecord::verdict).max().unwrap_or(Verdict::Unchecked)
    }

    /// The worst of the phases by their gates; above 1 it fails.
    pub fn share(&self) -> f64 {
        self.phases.iter().map(|phase| phase.gate.share(&phase.statistics)).fold(0.0, f64::max)
    }

    /// All phases together.
    pub fn statistics(&self) -> Statistics {
        let mut all = Statistics::default();
        self.phases.iter().for_each(|phase| all.merge(&phase.statistics));
        all
    }
}

/// Names of the weights that a node reads, as one text.
pub(crate) fn weights(graph: &Graph, node: &Node) -> Option<String> {
    let values = node.inputs.iter().map(|input| graph.value(*input));
    let names: Vec<&str> =
        values.filter(|value| value.origin == Origin::Weight).map(|value| value.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// What one step says about one node.
pub(crate) struct Judged<'a> {
    pub node: &'a Node,
    pub phase: Phase,
    pub prompt: usize,
    pub profile: Profile,
    pub output: TensorType,
    pub statistics: Statistics,
}

/// SHA-256 of the bits of a column.
pub(crate) type ColumnHash = [u8; 32];

/// For each column of activations, by its hash, the hash of its first result.
type Columns = HashMap<ColumnHash, Option<ColumnHash>>;

/// Hashes of a column of activations and of its result. `result` is `None` if a repeated result must be judged again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnHashes {
    pub activations: ColumnHash,
    pub result: Option<ColumnHash>,
}

/// All nodes of the model, in the order of the graph.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Records {
    all: Vec<Record>,
    places: HashMap<String, usize>,
    /// Columns of activations that a node was judged on, in each phase and with each profile.
    columns: HashMap<(usize, Phase), Vec<(Profile, Columns)>>,
    /// The fused node that holds a node in a phase.
    holders: HashMap<(String, Phase), String>,
    /// Why nodes failed.
    pub explanations: Explanations,
}

impl Records {
    /// No node yet.
    pub fn new(explanations: Explanations) -> Records {
        Records { explanations, ..Records::default() }
    }

    /// Takes note of all nodes of the encoder or of another graph, so that those which are never looked at are known.
    pub fn expect(&mut self, graph: &Graph, is_of_encoder: bool) {
        for node in graph.nodes() {
            if !self.places.contains_key(&node.name) {
                self.places.insert(node.name.clone(), self.all.len());
                self.all.push(Record { is_of_encoder, ..Record::new(graph, node) });
            }
        }
    }

    pub fn all(&self) -> &[Record] {
        &self.all
    }

    pub fn find(&self, node: &str) -> Option<&Record> {
        self.places.get(node).map(|place| &self.all[*place])
    }

    /// Records columns of activations and their results, and says what each repeats of the columns that the node was
    /// judged on before.
    pub fn copies(
        &mut self,
        node: &str,
        phase: Phase,
        profile: &Profile,
        columns: impl IntoIterator<Item = ColumnHashes>,
    ) -> Vec<Repetition> {
        let Some(place) = self.places.get(node) else { return Vec::new() };
        let profiles = self.columns.entry((*place, phase)).or_default();
        let index = profiles.iter().position(|(known, _)| known == profile).unwrap_or_else(|| {
            profiles.push((*profile, Columns::default()));
            profiles.len() - 1
        });
        let known = &mut profiles[index].1;
        let repetition = |ColumnHashes { activations, result }| match known.entry(activations) {
            Entry::Vacant(entry) => {
                entry.insert(result);
                Repetition::None
            }
            Entry::Occupied(first) if result.is_some() && *first.get() == result => Repetition::Result,
            Entry::Occupied(_) => Repetition::Activations,
        };
        columns.into_iter().map(repetition).collect()
    }

    /// Says where a node was computed. The first time that it fell back is kept: a node is on the device only if it
    /// always was.
    pub fn located(&mut self, node: &str, device: &str, fell_back: Option<&str>) {
        if let Some(place) = self.places.get(node) {
            self.all[*place].located(device, fell_back);
        }
    }

    /// Says what a node was fused of in this phase.
    pub fn fused(&mut self, node: &str, phase: Phase, pieces: Vec<String>) {
        let Some(place) = self.places.get(node).filter(|_| !pieces.is_empty()) else { return };
        for piece in &pieces {
            self.holders.insert((piece.clone(), phase), node.to_owned());
        }
        self.all[*place].fused = pieces;
    }

    /// The node that computes `node` in this phase: itself, or the fused one that holds it.
    pub fn holder(&self, node: &str, phase: Phase) -> Option<&Record> {
        self.holders.get(&(node.to_owned(), phase)).and_then(|holder| self.find(holder))
    }

    /// Whether a fused node fails and its pieces were not computed yet.
    pub fn wants_pieces(&self, node: &str) -> bool {
        self.find(node)
            .is_some_and(|record| !record.fused.is_empty() && record.pieces.is_empty() && record.verdict().fails())
    }

    /// Keeps what the pieces of a fused node are alone.
    pub fn add_pieces(&mut self, node: &str, pieces: Vec<PieceReport>) {
        if let Some(place) = self.places.get(node) {
            self.all[*place].pieces = pieces;
        }
    }

    pub fn add(&mut self, mut judged: Judged) {
        let Some(place) = self.places.get(&judged.node.name) else { return };
        let phases = &mut self.all[*place].phases;
        let known = phases.iter().position(|phase| phase.phase == judged.phase && phase.profile == judged.profile);
        let index = known.unwrap_or_else(|| {
            phases.push(PhaseRecord {
                phase: judged.phase,
                profile: judged.profile,
                statistics: Statistics::default(),
                gate: gate(&judged.node.op),
                loss: declares_loss(&judged.node.op, &judged.profile, &judged.output),
                worst: None,
                detail: None,
            });
            phases.len() - 1
        });
        let phase = &mut phases[index];
        phase.statistics.merge(&judged.statistics);
        if let Some(mut detail) = judged.statistics.detail.take() {
            detail.settle(|worst| judged.place(worst));
            match &mut phase.detail {
                Some(known) => known.merge(*detail),
                None => phase.detail = Some(detail),
            }
        }
        let worst = judged.statistics.worst();
        if let Some(worst) = worst.filter(|found| phase.worst.as_ref().is_none_or(|(ratio, _)| found.ratio > *ratio)) {
            phase.worst = Some((worst.ratio, judged.place(&worst)));
        }
    }
}

impl Judged<'_> {
    fn place(&self, worst: &Worst) -> Place {
        place(&self.node.op, &self.output.shape, self.prompt, worst.step, worst)
    }
}

/// Where an element of a result of this shape lies; behind the last one is what printed traces hold beside them: the
/// sum of all, and masked positions.
pub(crate) fn place(op: &Op, shape: &Shape, prompt: usize, step: usize, worst: &Worst) -> Place {
    let finite = |value: f64| value.is_finite().then_some(value);
    let element = match worst.index.cmp(&shape.elements()) {
        Ordering::Less => element(op, shape, worst.index),
        Ordering::Equal => "the sum of all elements".to_owned(),
        Ordering::Greater => "a masked position after the last token".to_owned(),
    };
    Place {
        prompt,
        step,
        element,
        device: finite(worst.device),
        expected: finite(worst.expected),
        shown: Shown::new(worst),
    }
}

/// What the indices of an operator's result count, innermost first.
pub(crate) fn axes(op: &Op) -> &'static [&'static str] {
    match op {
        Op::MulMat(_) | Op::MulMatGated(_) | Op::GetRows(_) => &["row", "token"],
        Op::Arithmetic(_) | Op::Gated(_) | Op::Unary(_) => &["row", "token"],
        Op::DiagMask(_) => &["position", "token", "head"],
        Op::FlashAttn(_) => &["element", "head", "token"],
        Op::MulMatId(_) => &["row", "used expert", "token"],
        Op::RmsNorm(_) | Op::Reshape(_) => &["row", "token or head", "token"],
        Op::Arrange(_) | Op::Cast(_) | Op::Concat(_) => &["column", "row", "plane", "volume"],
        Op::IndexFill(_) | Op::Overlay(_) | Op::SetRows(_) => &["column", "row", "plane", "volume"],
        Op::KvAttention(_) | Op::KvMix(_) => &["row", "token"],
        Op::Rope(_) => &["element", "head", "token"],
        Op::KvScores(_) | Op::SoftMax(_) => &["position", "token", "head"],
        Op::KvStore(_) => &["element", "cache row", "sequence"],
        Op::Im2Col(_) => &["tap", "x position", "y position", "image"],
        Op::Make(_) => &["element", "step"],
        Op::Norm(_) | Op::Rank(_) | Op::Reduce(_) => &["element", "row", "plane", "image"],
        Op::Pool2d(_) | Op::Upscale(_) => &["column", "row", "channel", "image"],
        Op::SsmConv(_) => &["channel", "token", "sequence"],
        Op::SsmScan(_) => &["element"],
    }
}

/// The shape of a result: of a cache the rows that are stored.
pub(crate) fn result_shape(graph: &Graph, node: &Node, tokens: usize) -> Shape {
    let shape = graph.value(node.output).ty.shape;
    if matches!(node.op, Op::KvStore(_)) { Shape::new(&[shape[0], tokens]) } else { shape }
}

/// `row 5, token 2` of element `index`.
pub(crate) fn element(op: &Op, shape: &Shape, index: usize) -> String {
    let sizes = shape.sizes();
    let is_flat = matches!(op, Op::RmsNorm(_) | Op::Reshape(_)) && sizes[2..] == [1, 1];
    let axes = if is_flat { &["row", "token"] } else { axes(op) };
    let mut rest = index;
    let mut parts = Vec::new();
    for (axis, size) in axes.iter().zip(sizes) {
        parts.push(format!("{axis} {}", rest % size.max(1)));
        rest /= size.max(1);
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_graph::op::{KvScores, MulMat, RmsNorm};

    #[test]
    fn elements_are_named_by_what_their_indices_count() {
        assert_eq!(element(&Op::MulMat(MulMat), &Shape::new(&[10, 4]), 25), "row 5, token 2");
        let scores = Op::KvScores(KvScores { capacity: 64 });
        assert_eq!(element(&scores, &Shape::new(&[64, 3, 2]), 64 * 4 + 7), "position 7, token 1, head 1");
        let norm = Op::RmsNorm(RmsNorm { epsilon: 1e-5 });
        assert_eq!(element(&norm, &Shape::new(&[10, 4]), 25), "row 5, token 2");
        assert_eq!(element(&norm, &Shape::new(&[10, 4, 3]), 65), "row 5, token or head 2, token 1");
    }

    #[test]
    fn columns_repeat_only_within_a_phase_and_profile() {
        use Repetition::{Activations, None, Result};
        let places = HashMap::from([("Qcur-0".to_owned(), 0), ("Kcur-0".to_owned(), 1)]);
        let mut records = Records { places, ..Records::default() };
        let mut copies = |node: &str, phase, profile: &Profile, columns: &[(u8, Option<u8>)]| {
            let hash = |byte: u8| [byte; 32];
            let column = |(x, y): &(u8, Option<u8>)| ColumnHashes { activations: hash(*x), result: y.map(hash) };
            records.copies(node, phase, profile, columns.iter().map(column))
        };
        let (prompt, other) = (Phase::Prompt, Profile { lanes: 2, ..Profile::F32 });
        let columns = [(1, Some(7)), (1, Some(7)), (1, Some(8)), (2, Some(7)), (1, Some(8)), (1, Option::None)];
        let expected = [None, Result, Activations, None, Activations, Activations];
        assert_eq!(copies("Qcur-0", prompt, &Profile::F32, &columns), expected);
        assert_eq!(copies("Qcur-0", prompt, &Profile::F32, &columns[..1]), [Result]);
        assert_eq!(copies("Qcur-0", prompt, &other, &columns[..1]), [None]);
        assert_eq!(copies("Qcur-0", Phase::Decode, &Profile::F32, &columns[..1]), [None]);
        assert_eq!(
            copies("Kcur-0", prompt, &Profile::F32, &[(1, Option::None), (1, Option::None)]),
            [None, Activations]
        );
        assert_eq!(copies("Kcur-0", prompt, &Profile::F32, &columns[..1]), [Activations]);
    }
}
