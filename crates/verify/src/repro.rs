//! One failing node as a file: inputs, operator, expected result, reduced as long as it still fails.
//!
//! ```text
//!   NODE.repro.safetensors
//!     input.0, input.1 ...        as the device had them; quantized ones as bytes
//!     device                      the device's result
//!     exact, declared, sigma      R0, R1 and the noise around R1, f64
//!     __metadata__ "trueup.repro" {"version":1, "op":.., "inputs":[..], "profile":.., "node":.., "step":..}
//! ```
//!
//! [`Repro::run`] executes the node alone through the device's normal interface, with weights uploaded as weights, so
//! the failing kernel is the one that runs.

mod execute;
mod file;
mod shrink;

use crate::bound::{declares_loss, gate};
use crate::explain::{Before, Explanation, Moment, explain, refined};
use crate::plant::{fits_alone, planted_alone};
use crate::precision::LAMBDA;
use crate::report::Outcome;
use crate::scene::Scene;
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup_formats::significant;
use trueup_runtime::device::Device;
use trueup_runtime::profile::Profile;
use trueup_runtime::{Error, Result};

/// A failing node, read from its file.
#[derive(Clone, Debug)]
pub struct Repro {
    path: PathBuf,
    about: file::About,
    scene: Scene,
}

/// What the file says about the failure as it was found, before it was cut smaller.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecordedFailure {
    /// The verdict then.
    pub verdict: Verdict,
    /// The largest error in its standard deviations; null where it has no finite value.
    pub worst_z: Option<f64>,
    /// The device.
    pub device: String,
    /// The phase, `prompt` or `decode`.
    pub phase: String,
    /// The prompt, counted from 0.
    pub prompt: usize,
    /// The step: 0 computes the prompt.
    pub step: usize,
    /// Whether it failed again there when it was run alone.
    pub reproduced: bool,
    /// The name of the fault that was planted in the device on purpose, if any.
    pub planted: Option<String>,
    /// Flags that said how the device computed, instruction set and layout of weights among them, each with its value.
    pub arguments: Vec<String>,
}

impl fmt::Display for RecordedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordedFailure { verdict, device, phase, prompt, step, .. } = self;
        let z = self.worst_z.map_or("not finite".to_owned(), |z| significant(z, 3));
        write!(f, "recorded: {verdict}, worst z {z} on {device}, {phase} phase, prompt {prompt}, step {step}")?;
        if !self.arguments.is_empty() {
            write!(f, ", with {}", self.arguments.join(" "))?;
        }
        if let Some(planted) = &self.planted {
            write!(f, ", with the fault {} injected", trueup_formats::quote(planted))?;
        }
        if !self.reproduced {
            write!(f, "; it did not fail again when it was run separately")?;
        }
        Ok(())
    }
}

/// What a device makes of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReproResult {
    /// The node's name in its model.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// What it comes to: inconclusive where a fault was planted and does not show.
    pub result: Outcome,
    /// The name of the fault that was planted now; null where none was.
    pub planted: Option<String>,
    /// What was found when the file was written.
    pub recorded: RecordedFailure,
    /// The verdict on the device's result.
    pub verdict: Verdict,
    /// The profile that it was judged by, in words.
    pub profile: String,
    /// The largest error in its standard deviations; null where it has no finite value.
    pub worst_z: Option<f64>,
    /// Why it failed; null where it did not.
    pub explanation: Option<Explanation>,
    /// All in one sentence.
    pub sentence: String,
}

impl Repro {
    /// Reads a file. Fails with one sentence on a file that is damaged or describes no computation of this program.
    pub fn open(path: impl AsRef<Path>) -> Result<Repro> {
        let path = path.as_ref();
        let (about, scene) = file::read(path)?;
        Ok(Repro { path: path.to_owned(), about, scene })
    }

    /// The node's name in its model.
    pub fn node(&self) -> &str {
        &self.about.node
    }

    /// Elements of all inputs together: how small the file was cut.
    pub fn input_elements(&self) -> usize {
        self.scene.inputs.iter().map(|input| input.ty.shape.elements()).sum()
    }

    /// What the file says about the failure. A file that does not say the verdict has that of the result it holds.
    pub fn recorded(&self) -> RecordedFailure {
        let about = &self.about;
        let (verdict, worst_z) = match about.verdict {
            Some(verdict) => (verdict, about.worst_z.filter(|z| z.is_finite())),
            None => {
                let (verdict, _, worst_z) = judged(&self.scene);
                (verdict, worst_z)
            }
        };
        RecordedFailure {
            verdict,
            worst_z,
            device: trueup_formats::quote(&about.device),
            phase: trueup_formats::quote(&about.phase),
            prompt: about.prompt,
            step: about.step,
            reproduced: about.reproduced,
            planted: about.planted.clone(),
            arguments: about.arguments.iter().map(|argument| trueup_formats::quote(argument)).collect(),
        }
    }

    /// `device` with a fault of [`PLANTS`](crate::PLANTS) at this computation. Fails on unknown names and where it
    /// cannot have the fault.
    pub fn planted(&self, name: &str, device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
        planted_alone(name, &self.scene, self.about.index, device)
    }

    /// Whether this computation can have a fault of that name.
    pub fn fits(&self, name: &str) -> bool {
        fits_alone(name, &self.scene)
    }

    /// Computes it on `device` and judges the result by what the device declares. Fails where the device cannot compute
    /// it.
    pub fn run(&self, device: &dyn Device) -> Result<ReproResult> {
        Ok(self.result(&execute::execute(&self.scene, self.about.index, device)?, device))
    }

    /// Computes it on `device` with a fault of [`PLANTS`](crate::PLANTS): on other activations first, as a call before
    /// has them, and then twice, for faults that need more than one call to show. A fault that never shows is
    /// inconclusive. Fails as [`planted`](Repro::planted) and [`run`](Repro::run) do.
    pub fn run_planted(&self, name: &str, device: Arc<dyn Device>) -> Result<ReproResult> {
        let device = self.planted(name, device)?;
        let run = |scene: &Scene| execute::execute(scene, self.about.index, &*device);
        run(&self.scene.reversed_activations())?;
        let mut result = self.result(&run(&self.scene)?, &*device);
        if !result.verdict.fails() {
            result = self.result(&run(&self.scene)?, &*device);
        }
        if result.result == Outcome::Pass {
            result.result = Outcome::Inconclusive;
            result.sentence = format!(
                "the fault {name} was injected, but this {} does not expose it: {} ({}).",
                result.op, result.verdict, result.node
            );
        }
        result.planted = Some(name.to_owned());
        Ok(result)
    }

    /// What is said of a computed scene.
    fn result(&self, computed: &Scene, device: &dyn Device) -> ReproResult {
        let (verdict, explanation, worst_z) = judged(computed);
        let op = self.scene.op.name().to_owned();
        let name = device.name();
        let cause = explanation.as_ref().map_or(String::new(), |explanation| format!(". {}", explanation.sentence()));
        let node = self.about.node.clone();
        let (result, sentence) = if verdict.fails() {
            (Outcome::Fail, format!("{node} ({op}) fails on {name}: {verdict}{cause}."))
        } else if verdict.passes() {
            (Outcome::Pass, format!("{node} ({op}) passes on {name}: {verdict}."))
        } else {
            (Outcome::Inconclusive, format!("{node} ({op}) could not be judged on {name}: {verdict}."))
        };
        let (profile, recorded) = (computed.profile.to_string(), self.recorded());
        ReproResult { node, op, result, planted: None, recorded, verdict, profile, worst_z, explanation, sentence }
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The verdict on a scene, why it failed, and the largest |z|.
fn judged(scene: &Scene) -> (Verdict, Option<Explanation>, Option<f64>) {
    let (statistics, _) = scene.judged();
    let loss = declares_loss(&scene.op, &scene.profile, &scene.output);
    let verdict = gate(&scene.op).verdict(&statistics, loss);
    let worst_z = statistics.worst_z.map(|worst| worst.ratio).filter(|ratio| ratio.is_finite());
    let explanation = verdict.fails().then(|| explain(scene, &statistics, &Before::default()));
    let verdict = explanation.as_ref().map_or(verdict, |found| refined(verdict, found, &statistics));
    (verdict, explanation, worst_z)
}

/// What is written about a failure in addition to its snapshot.
pub(crate) struct Found {
    pub verdict: Verdict,
    pub worst_z: Option<f64>,
    pub moment: Moment,
    pub planted: Option<String>,
    pub arguments: Vec<String>,
}

/// Writes a failed scene, cut as small as it still fails on the device, into `folder`; gives the file. The node is its
/// name and its place in the graph.
pub(crate) fn write(
    folder: &Path,
    (node, index): (&str, usize),
    scene: &Scene,
    device: &dyn Device,
    found: &Found,
) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|problem| {
        let folder = trueup_formats::quote(&folder.display().to_string());
        Error::Request(format!(
            "{folder}: the directory for repro files cannot be created: {problem}; use a writable \
            directory"
        ))
    })?;
    let smaller = shrink::shrink(scene, index, device, found.planted.as_deref());
    let (scene, reproduced) = smaller.map_or((scene.clone(), false), |smaller| (smaller, true));
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let path = folder.join(format!("{}.repro.safetensors", node.chars().map(safe).collect::<String>()));
    let about = file::About::new(node, index, &scene, &device.name(), found, reproduced);
    file::write(&path, &about, &scene)?;
    Ok(path)
}

/// Largest number of partial sums that a profile in a file may declare.
const LANES_MAX: usize = 1 << 16;

/// Whether a profile from a file is one that a device could declare.
fn sensible(profile: &Profile) -> bool {
    let functions = profile.function_ulp.is_finite() && (0.0..=LAMBDA as f32 * 1e6).contains(&profile.function_ulp);
    (1..=LANES_MAX).contains(&profile.lanes) && functions
}
