//! One failing node in a file of its own: inputs, operator, what it should give; cut as small as it still fails.
//!
//! ```text
//!   NODE.repro.safetensors
//!     input.0, input.1 ...        as the device had them; quantized ones as bytes
//!     device                      what the device gave
//!     exact, declared, sigma      R0, R1 and the noise around R1, f64
//!     __metadata__ "trueup.repro" {"version":1, "op":.., "inputs":[..], "profile":.., "node":.., "step":..}
//! ```
//!
//! [`Repro::run`] computes it alone, through the device's own interface, weights uploaded as weights: the kernel that fails is the one
//! that runs.

mod execute;
mod file;
mod shrink;

use crate::bound::{declares_loss, gate};
use crate::explain::{Before, Explanation, Moment, explain};
use crate::precision::LAMBDA;
use crate::scene::Scene;
use crate::verdict::Verdict;
use serde::Serialize;
use std::path::{Path, PathBuf};
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

/// What a device makes of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ReproResult {
    /// The node's name in its model.
    pub node: String,
    /// Its operator.
    pub op: String,
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

    /// Computes it on `device` and judges the result by what the device declares. Fails where the device cannot compute it.
    pub fn run(&self, device: &dyn Device) -> Result<ReproResult> {
        let computed = execute::execute(&self.scene, self.about.index, device)?;
        let (verdict, explanation, worst_z) = judged(&computed);
        let op = self.scene.op.name().to_owned();
        let name = device.about().name;
        let cause =
            explanation.as_ref().map_or(String::new(), |explanation| format!(". Likely cause: {}", explanation.cause));
        let sentence = if verdict.fails() {
            format!("{name} computes {} ({op}) wrongly: {verdict}{cause}.", self.about.node)
        } else {
            format!("{name} computes {} ({op}) as it declares: {verdict}.", self.about.node)
        };
        let profile = computed.profile.to_string();
        Ok(ReproResult { node: self.about.node.clone(), op, verdict, profile, worst_z, explanation, sentence })
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
    (verdict, verdict.fails().then(|| explain(scene, &statistics, &Before::default())), worst_z)
}

/// Writes a failed scene, cut as small as it still fails on the device, into `folder`; gives the file.
pub(crate) fn write(
    folder: &Path,
    node: &str,
    index: usize,
    scene: &Scene,
    device: &dyn Device,
    moment: Moment,
) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|problem| {
        let folder = trueup_formats::quote(&folder.display().to_string());
        Error::Request(format!("{folder} for repro files cannot be made: {problem}; name a folder that can be written"))
    })?;
    let smaller = shrink::shrink(scene, index, device);
    let (scene, reproduced) = smaller.map_or((scene.clone(), false), |smaller| (smaller, true));
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let path = folder.join(format!("{}.repro.safetensors", node.chars().map(safe).collect::<String>()));
    let about = file::About::new(node, index, &scene, &device.about().name, moment, reproduced);
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
