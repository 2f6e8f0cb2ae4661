//! The result of a verification, as it is written to JSON.
//!
//! ```text
//!   {"version":1, "result":"pass", "sentence":"...", "first_bad":null, "coverage":{...}, "nodes":[...], "tokens":{...}, ...}
//! ```
//!
//! No number here is NaN or infinite: what has no finite value is null.

use crate::baseline::BaselineReport;
use crate::batch::BatchReport;
use crate::detail_report::DetailReport;
use crate::explain::Explanation;
use crate::pieces::PieceReport;
use crate::policy::PolicyReport;
use crate::predicted::Predicted;
use crate::record::{Phase, PhaseRecord, Place, Record, Records};
use crate::repeat::RepeatReport;
use crate::statistics::Statistics;
use crate::tokens::TokenReport;
use crate::trace::TraceReport;
use crate::verdict::{Gate, Verdict};
use serde::Serialize;
use trueup_blocks::DType;
use trueup_runtime::device::About;
use trueup_runtime::profile::Profile;

/// The version of the JSON document.
pub const VERSION: u32 = 1;

/// What a verification comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every node is as it should be.
    Pass,
    /// Something is not.
    Fail,
    /// Not enough was checked to say.
    Inconclusive,
}

/// The whole result.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// What it comes to.
    pub result: Outcome,
    /// The result in one sentence: where, what, and what to do next.
    pub sentence: String,
    /// The first node, in the order of computation, that is not what it should be.
    pub first_bad: Option<BadNode>,
    /// How much was looked at.
    pub coverage: Coverage,
    /// The model's file.
    pub model: String,
    /// sha256 over each tensor's name, type, sizes and the sha256 of all its bytes, in the order of names.
    pub model_id: String,
    /// The device that was judged.
    pub device: DeviceFacts,
    /// The free-running reference.
    pub reference: DeviceFacts,
    /// The ids of each prompt; in an encoder-decoder model, what the encoder read.
    pub prompts: Vec<Vec<u32>>,
    /// The ids of the decoder's text for each prompt; absent in other models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decoder_prompts: Vec<Vec<u32>>,
    /// The ids that followed each prompt: the reference's choices.
    pub continuations: Vec<Vec<u32>>,
    /// Tokens computed after each prompt.
    pub steps: usize,
    /// The type of the KV cache, where one was asked for.
    pub kv: Option<String>,
    /// Flags, each with its value, that said how the device computes.
    pub arguments: Vec<String>,
    /// Each numeric profile that was judged by, with what it was declared for.
    pub profiles: Vec<UsedProfile>,
    /// All nodes, in the order of computation.
    pub nodes: Vec<NodeReport>,
    /// The comparison of logits.
    pub tokens: TokenReport,
    /// Whether the device repeats itself.
    pub repeat: RepeatReport,
    /// What was computed in one batch, and whether it made a difference.
    pub batch: BatchReport,
    /// The comparison with a trace; null where none was given.
    pub trace: Option<TraceReport>,
    /// The fault that was planted in the device on purpose, if any.
    pub planted: Option<PlantedFacts>,
    /// Whether a node that fell back makes the result inconclusive.
    pub require_device: bool,
    /// The required share of judged nodes, in each phase and in each step of a trace; null if none was given.
    pub require_coverage: Option<f64>,
    /// What it ran on.
    pub environment: Environment,
    /// When and how it was asked for, where the caller says so.
    pub run: Option<RunFacts>,
    /// What became of a gate file.
    #[serde(rename = "gate")]
    pub policy: Option<PolicyReport>,
    /// What changed since an earlier report.
    pub baseline: Option<BaselineReport>,
}

/// A fault that was planted on purpose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlantedFacts {
    /// What selects it.
    pub name: String,
    /// What goes wrong.
    pub what: String,
    /// The node that computes wrongly.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Whether the device fused nothing because of it: a fused node would hold the node.
    pub unfused: bool,
}

/// What a verification ran on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Environment {
    /// The version of this program.
    pub version: String,
    /// Operating system and processor.
    pub system: String,
}

/// When and how a verification was asked for.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunFacts {
    /// The day, in UTC.
    pub date: String,
    /// How long it took.
    pub seconds: f64,
    /// The largest resident size of the process until then, in bytes; null where the system does not say.
    pub peak_memory_bytes: Option<u64>,
    /// The command, to be repeated.
    pub command: String,
}

/// A node that is not what it should be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BadNode {
    /// Its name.
    pub node: String,
    /// Its layer; null outside of the layers.
    pub layer: Option<usize>,
    /// Its operator.
    pub op: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The weight it reads; of a fused node all of them.
    pub tensor: Option<String>,
    /// The worst element.
    pub worst: Option<Place>,
    /// The likely cause; null where the node was not explained.
    pub cause: Option<String>,
    /// Whether that is a cause, and not only a description of the errors.
    #[serde(skip)]
    pub(crate) is_cause: bool,
    /// The file that shows the failure alone, where one was asked for.
    pub repro: Option<String>,
}

/// How much was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Coverage {
    /// Nodes that were computed: a fused one counts once.
    pub nodes: usize,
    /// Fused ones among them.
    pub fused: usize,
    /// Nodes with a verdict that says something.
    pub checked: usize,
    /// Nodes with such a verdict on the tokens of a prompt.
    pub checked_prompt: usize,
    /// Nodes with such a verdict while decoding; 0 if no steps were requested.
    pub checked_decode: usize,
    /// Nodes that a decode step computes: all except those of an encoder.
    pub nodes_decode: usize,
    /// Nodes computed on the device that was asked for.
    pub on_device: usize,
    /// Nodes computed elsewhere, because the device cannot.
    pub fell_back: usize,
    /// Nodes whose failure was accepted beforehand.
    pub waived: usize,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeviceFacts {
    /// The name that selects it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Whether another machine is imitated.
    pub simulated: bool,
}

impl From<About> for DeviceFacts {
    fn from(about: About) -> DeviceFacts {
        DeviceFacts { name: about.name, description: about.description, simulated: about.simulated }
    }
}

/// A numeric profile and where it was used.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct UsedProfile {
    /// In words.
    pub profile: String,
    /// The operators it was declared for.
    pub ops: Vec<String>,
    /// How many nodes used it.
    pub nodes: usize,
}

/// One node.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NodeReport {
    /// Its name.
    pub node: String,
    /// Its layer; null outside of the layers.
    pub layer: Option<usize>,
    /// Its operator.
    pub op: String,
    /// The weight it reads; of a fused node all of them.
    pub tensor: Option<String>,
    /// The worst verdict of its phases.
    pub verdict: Verdict,
    /// The device that computed it.
    pub device: String,
    /// Why the main device did not.
    pub fell_back: Option<String>,
    /// Root mean square of its local error, relative to its result.
    pub local: Option<f64>,
    /// Root mean square of what its inputs' errors cause, relative to the reference's result.
    pub inherited: Option<f64>,
    /// Root mean square of the whole error, relative to the reference's result.
    pub total: Option<f64>,
    /// Inherited error by the inputs' error: how much the node enlarges what it is given.
    pub amplification: Option<f64>,
    /// What `local` is expected to be from the declared arithmetic; null against another reference than the oracle.
    pub local_expected: Option<f64>,
    /// What `total` is expected to be: the expected local errors of this node and of all before it, enlarged as
    /// measured.
    pub total_expected: Option<f64>,
    /// The worst of its phases by the gate: `max(|z| / 8, b)` of the worst element, or rms of z by 1.3; null where that
    /// is infinite, or nothing was judged.
    pub share: Option<f64>,
    /// Why its failure is accepted, where it is.
    pub waived: Option<String>,
    /// Names of the nodes that it was fused of, its own last; empty where it is as models have it.
    pub fused: Vec<String>,
    /// Its pieces, computed alone on the same inputs the first time that it failed; empty where it did not.
    pub pieces: Vec<PieceReport>,
    /// What was seen in each phase.
    pub phases: Vec<PhaseReport>,
    /// Why it failed, in each phase that it failed in; of the first failing nodes only.
    pub explanations: Vec<Explanation>,
}

/// One node in one phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseReport {
    /// Prompt or decode.
    pub phase: Phase,
    /// The verdict.
    pub verdict: Verdict,
    /// How it was reached.
    pub gate: Gate,
    /// The profile it was judged by, in words.
    pub profile: String,
    /// Elements looked at.
    pub elements: u64,
    /// Elements equal to the reference as declared.
    pub equal: u64,
    /// The largest error in its standard deviations, against the reference as declared.
    pub worst_z: Option<f64>,
    /// Root mean square of the same.
    pub rms_z: Option<f64>,
    /// The largest error by its hard bound; above 1 is a proof.
    pub worst_bound: Option<f64>,
    /// `worst_z` against the exact reference.
    pub worst_z_exact: Option<f64>,
    /// `rms_z` against the exact reference.
    pub rms_z_exact: Option<f64>,
    /// Mean square error against the exact reference, by the reference's mean square.
    pub nmse: Option<f64>,
    /// Cosine of the angle to the exact reference.
    pub cosine: Option<f64>,
    /// The largest difference to the exact reference.
    pub max_abs: Option<f64>,
    /// Elements that are NaN without reason.
    pub nan: u64,
    /// Elements that are infinite without reason.
    pub infinite: u64,
    /// Elements that nothing was written to.
    pub unwritten: u64,
    /// Elements beyond the range of the declared type.
    pub range_exceeded: u64,
    /// Elements that differed when the node was computed again on the same inputs.
    pub unsteady: u64,
    /// Those of them that differed by far more than the declared noise.
    pub raced: u64,
    /// The worst element.
    pub worst: Option<Place>,
    /// The declared type of the result.
    #[serde(skip)]
    pub output: DType,
    /// What figures are drawn from; only of nodes that failed and of the worst of each operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<DetailReport>,
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl PhaseReport {
    fn new(record: &PhaseRecord) -> PhaseReport {
        let statistics = &record.statistics;
        let ratio = |worst: Option<crate::statistics::Worst>| worst.and_then(|worst| finite(worst.ratio));
        PhaseReport {
            phase: record.phase,
            verdict: record.verdict(),
            gate: record.gate,
            profile: record.profile.to_string(),
            elements: statistics.elements,
            equal: statistics.equal,
            worst_z: ratio(statistics.worst_z),
            rms_z: finite(statistics.rms_z()),
            worst_bound: ratio(statistics.worst_bound),
            worst_z_exact: finite(statistics.worst_z_exact),
            rms_z_exact: finite(statistics.rms_z_exact()),
            nmse: finite(statistics.nmse()),
            cosine: finite(statistics.cosine()),
            max_abs: finite(statistics.max_abs),
            nan: statistics.broken.nan,
            infinite: statistics.broken.infinite,
            unwritten: statistics.broken.unwritten,
            range_exceeded: statistics.broken.range_exceeded,
            unsteady: statistics.unsteady,
            raced: statistics.raced,
            worst: record.worst.as_ref().map(|(_, place)| place.clone()),
            output: record.profile.output,
            detail: None,
        }
    }
}

impl NodeReport {
    fn new(record: &Record, records: &Records, predicted: &mut Predicted) -> NodeReport {
        let statistics = record.statistics();
        let compared = statistics.compared();
        let amplification = amplification(record, &statistics, records);
        let [local_expected, total_expected] = predicted.add(record, &statistics, amplification);
        let explanations = records.explanations.of(&record.node);
        let mut phases: Vec<PhaseReport> = record.phases.iter().map(PhaseReport::new).collect();
        phases.iter_mut().for_each(|phase| phase.verdict = explained(phase, &explanations));
        NodeReport {
            node: record.node.clone(),
            layer: record.layer,
            op: record.op.to_owned(),
            tensor: record.weight.clone(),
            verdict: phases.iter().map(|phase| phase.verdict).max().unwrap_or(Verdict::Unchecked),
            device: record.device.clone(),
            fell_back: record.fell_back.clone(),
            local: finite(statistics.local()),
            inherited: finite(statistics.inherited()).filter(|_| compared),
            total: finite(statistics.total()).filter(|_| compared),
            amplification,
            local_expected: finite(local_expected).filter(|_| compared),
            total_expected: finite(total_expected).filter(|_| compared),
            share: finite(record.share()).filter(|_| !record.phases.is_empty()),
            waived: None,
            fused: record.fused.clone(),
            pieces: record.pieces.clone(),
            phases,
            explanations,
        }
    }
}

/// The verdict of a phase, once it is known what explains a failure.
fn explained(phase: &PhaseReport, explanations: &[Explanation]) -> Verdict {
    let found = explanations.iter().find(|explanation| explanation.phase == phase.phase);
    found.map_or(phase.verdict, |found| crate::explain::explained(phase.verdict, found, phase.unwritten, phase.raced))
}

/// How much a node enlarges its inputs' error: inherited relative error by the root of the sum of squares of theirs.
fn amplification(record: &Record, statistics: &Statistics, records: &Records) -> Option<f64> {
    let sources = record.sources.iter().filter_map(|source| records.find(source));
    let inputs: f64 = sources.map(|source| source.statistics().total().powi(2)).sum::<f64>().sqrt();
    let known = statistics.compared() && inputs > 0.0;
    finite(statistics.inherited() / inputs).filter(|_| known)
}

/// What a report is made of.
pub(crate) struct Findings {
    pub records: Records,
    pub tokens: TokenReport,
    pub repeat: RepeatReport,
    pub batch: BatchReport,
    pub model: String,
    pub model_id: String,
    pub device: DeviceFacts,
    pub reference: DeviceFacts,
    pub prompts: Vec<Vec<u32>>,
    pub decoder_prompts: Vec<Vec<u32>>,
    pub continuations: Vec<Vec<u32>>,
    pub steps: usize,
    pub kv: Option<String>,
    pub arguments: Vec<String>,
    pub require_device: bool,
    pub planted: Option<PlantedFacts>,
}

impl Report {
    /// Says that a fault was planted in the device; [`VerifyOptions::planted`](crate::VerifyOptions) says it before the
    /// run.
    pub fn was_planted(&mut self, facts: PlantedFacts) {
        self.planted = Some(facts);
        self.conclude();
    }

    /// Whether a fault was planted and its node is not the first that fails, waived or not.
    pub fn missed_planted(&self) -> bool {
        let first = self.nodes.iter().find(|node| node.verdict.fails());
        self.planted.as_ref().is_some_and(|planted| first.is_none_or(|first| first.node != planted.node))
    }

    pub(crate) fn new(findings: Findings) -> Report {
        let records = &findings.records;
        let coverage = coverage(records);
        let mut predicted = Predicted::default();
        let nodes = records.all().iter().map(|record| NodeReport::new(record, records, &mut predicted)).collect();
        let mut report = Report {
            version: VERSION,
            result: Outcome::Inconclusive,
            sentence: String::new(),
            first_bad: None,
            coverage,
            profiles: profiles(records),
            nodes,
            model: findings.model,
            model_id: findings.model_id,
            device: findings.device,
            reference: findings.reference,
            prompts: findings.prompts,
            decoder_prompts: findings.decoder_prompts,
            continuations: findings.continuations,
            steps: findings.steps,
            kv: findings.kv,
            arguments: findings.arguments,
            tokens: findings.tokens,
            repeat: findings.repeat,
            batch: findings.batch,
            planted: findings.planted,
            require_device: findings.require_device,
            require_coverage: None,
            environment: Environment {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            },
            run: None,
            policy: None,
            baseline: None,
            trace: None,
        };
        crate::chosen::add_details(&mut report.nodes, records);
        report.conclude();
        report
    }
}

fn coverage(records: &Records) -> Coverage {
    let all = records.all();
    let says = |verdict: Verdict| verdict.passes() || verdict.fails();
    let checked = |phase: Phase| {
        let judged = |record: &Record| {
            let mut verdicts = record.phases.iter().filter(move |found| found.phase == phase).map(PhaseRecord::verdict);
            verdicts.next().is_some_and(says) && verdicts.all(says)
        };
        // Where a device fuses in one phase only, the fused node stands for its pieces in that one.
        let whole = |record: &&Record| judged(record) || records.holder(&record.node, phase).is_some_and(judged);
        all.iter().filter(whole).count()
    };
    let seen = all.iter().filter(|record| !record.device.is_empty());
    Coverage {
        nodes: all.len(),
        fused: all.iter().filter(|record| !record.fused.is_empty()).count(),
        checked: all.iter().filter(|record| says(record.verdict())).count(),
        checked_prompt: checked(Phase::Prompt),
        checked_decode: checked(Phase::Decode),
        nodes_decode: all.iter().filter(|record| !record.is_of_encoder).count(),
        on_device: seen.filter(|record| record.fell_back.is_none()).count(),
        fell_back: all.iter().filter(|record| record.fell_back.is_some()).count(),
        waived: 0,
    }
}

/// The profiles in use, in the order of their first use.
fn profiles(records: &Records) -> Vec<UsedProfile> {
    let mut used: Vec<(Profile, UsedProfile)> = Vec::new();
    for record in records.all() {
        let mut own: Vec<Profile> = Vec::new();
        for phase in &record.phases {
            if !own.contains(&phase.profile) {
                own.push(phase.profile);
            }
        }
        for profile in own {
            let index = used.iter().position(|(known, _)| *known == profile).unwrap_or_else(|| {
                used.push((profile, UsedProfile { profile: profile.to_string(), ops: Vec::new(), nodes: 0 }));
                used.len() - 1
            });
            let known = &mut used[index].1;
            known.nodes += 1;
            if !known.ops.iter().any(|op| op == record.op) {
                known.ops.push(record.op.to_owned());
            }
        }
    }
    used.into_iter().map(|(_, used)| used).collect()
}
