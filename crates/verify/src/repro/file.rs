//! The file of one failing node. What is read may be anything: every size is checked before it is used.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

use super::{Found, sensible};
use crate::record::Phase;
use crate::scene::{Content, Given, Scene};
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::{OpenOptions, SafetensorsArray, SafetensorsFile, quote, write_safetensors};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::Usage;
use trueup_runtime::device::reference::evaluate;
use trueup_runtime::profile::Profile;
use trueup_runtime::{Error, HostTensor, Result};

/// The entry of the header.
const KEY: &str = "trueup.repro";

/// The version of that entry.
const VERSION: u32 = 1;

/// Most elements of one tensor, and the largest size of one dimension.
const ELEMENTS_MAX: usize = 1 << 40;

/// Inputs that an operator takes at most.
const INPUTS_MAX: usize = 8;

/// Types that stand in the file as themselves; others as bytes.
const PLAIN: [DType; 5] = [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I32];

/// What the header says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct About {
    version: u32,
    /// The node's name in its model.
    pub node: String,
    /// Its place in the graph.
    pub index: usize,
    op: Op,
    inputs: Vec<InputAbout>,
    output: TensorType,
    /// What the device declared.
    profile: Profile,
    pub device: String,
    pub phase: String,
    pub prompt: usize,
    pub step: usize,
    /// Whether it failed again when it was run alone.
    pub reproduced: bool,
    /// The verdict on the whole node, and its worst z where that is finite.
    pub verdict: Option<Verdict>,
    pub worst_z: Option<f64>,
    /// The fault that was planted on purpose, by its name.
    pub planted: Option<String>,
    /// Flags that said how the device computes; older files have none.
    #[serde(default)]
    pub arguments: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct InputAbout {
    ty: TensorType,
    usage: InputUsage,
}

/// [`Usage`] as it stands in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InputUsage {
    Weight,
    State,
    Input,
    Activation,
}

impl From<Usage> for InputUsage {
    fn from(usage: Usage) -> InputUsage {
        match usage {
            Usage::Weight => InputUsage::Weight,
            Usage::State => InputUsage::State,
            Usage::Input => InputUsage::Input,
            Usage::Arena => InputUsage::Activation,
        }
    }
}

impl From<InputUsage> for Usage {
    fn from(usage: InputUsage) -> Usage {
        match usage {
            InputUsage::Weight => Usage::Weight,
            InputUsage::State => Usage::State,
            InputUsage::Input => Usage::Input,
            InputUsage::Activation => Usage::Arena,
        }
    }
}

impl About {
    pub fn new(node: &str, index: usize, scene: &Scene, device: &str, found: &Found, reproduced: bool) -> About {
        let moment = found.moment;
        let input = |input: &Given| InputAbout { ty: input.ty, usage: input.usage.into() };
        About {
            version: VERSION,
            node: node.to_owned(),
            index,
            op: scene.op.clone(),
            inputs: scene.inputs.iter().map(input).collect(),
            output: scene.output,
            profile: scene.profile,
            device: device.to_owned(),
            phase: match moment.phase {
                Phase::Prompt => "prompt".to_owned(),
                Phase::Decode => "decode".to_owned(),
            },
            prompt: moment.prompt,
            step: moment.step,
            reproduced,
            verdict: Some(found.verdict),
            worst_z: found.worst_z,
            planted: found.planted.clone(),
            arguments: found.arguments.clone(),
        }
    }
}

/// Writes the scene with its references.
pub(super) fn write(path: &Path, about: &About, scene: &Scene) -> Result<()> {
    let inputs = scene.inputs.iter().enumerate();
    let mut arrays: Vec<SafetensorsArray<'static>> =
        inputs.map(|(number, input)| array(format!("input.{number}"), &input.ty, input.bytes())).collect();
    let device = HostTensor::real(scene.output, scene.device.clone()).to_bytes().into_owned();
    arrays.push(array("device".to_owned(), &scene.output, device));
    let (_, expected) = scene.judged();
    let ty = TensorType { dtype: DType::F64, ..scene.output };
    // Elements that are judged by their bytes alone have no number here.
    let mut numbers = |name: &str, number: fn(&crate::statistics::Expected) -> f64| {
        let values = expected.iter().map(|expected| expected.as_ref().map_or(f64::NAN, number));
        arrays.push(array(name.to_owned(), &ty, values.flat_map(f64::to_le_bytes).collect()));
    };
    numbers("exact", |expected| expected.exact);
    numbers("declared", |expected| expected.declared);
    numbers("sigma", |expected| expected.sigma);
    let json = serde_json::to_string(about).map_err(|problem| Error::Request(problem.to_string()))?;
    write_safetensors(path, &arrays, &[(KEY.to_owned(), json)], &[])?;
    Ok(())
}

fn array(name: String, ty: &TensorType, bytes: Vec<u8>) -> SafetensorsArray<'static> {
    let (dtype, shape) = if PLAIN.contains(&ty.dtype) {
        (ty.dtype, ty.shape.sizes().map(wide).to_vec())
    } else {
        (DType::I8, vec![wide(bytes.len())])
    };
    SafetensorsArray { name, shape, dtype, bytes: bytes.into() }
}

/// Reads and checks a file.
pub(super) fn read(path: &Path) -> Result<(About, Scene)> {
    let bad = |problem: String| Error::Request(format!("{}: {problem}", quote(&path.display().to_string())));
    let other = |found: &str| {
        bad(format!("expected a repro file, found {found}; pass a file that `trueup verify --repro-dir DIR` wrote"))
    };
    let file = SafetensorsFile::open(path).map_err(|error| match what_instead(path) {
        Some(found) => other(&found),
        None => error.into(),
    })?;
    let text = file.metadata().iter().find(|(key, _)| key == KEY).map(|(_, text)| text);
    let text = text.ok_or_else(|| other(&format!("a safetensors file without {KEY} in its header")))?;
    let about: About = serde_json::from_str(text)
        .map_err(|problem| bad(format!("{KEY} cannot be read: {}", quote(&problem.to_string()))))?;
    check(&about).map_err(bad)?;
    let mut inputs = Vec::with_capacity(about.inputs.len());
    for (number, input) in about.inputs.iter().enumerate() {
        let bytes = bytes(&file, &format!("input.{number}"), &input.ty)?.map_err(bad)?;
        inputs.push(given(input, bytes));
    }
    // The device's result bounds the size of what is computed below.
    let device = bytes(&file, "device", &about.output)?.map_err(bad)?;
    let tensors: Vec<HostTensor> =
        inputs.iter().map(|input: &Given| HostTensor::stored(input.ty, input.bytes())).collect();
    // The oracle refuses indices outside of their tensors, which the judge and devices rely on.
    evaluate(&about.op, &tensors.iter().collect::<Vec<_>>()).map_err(|problem| bad(problem.to_string()))?;
    let device = crate::operand::decode(&about.output, &device);
    let scene =
        Scene { op: about.op.clone(), profile: about.profile, inputs, output: about.output, device, focus: Vec::new() };
    Ok((about, scene))
}

/// What a path is that is not a safetensors file, if that is known.
fn what_instead(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some("a directory".to_owned());
    }
    let model = trueup_formats::open(path, &OpenOptions::default()).ok()?;
    Some(format!("a model ({})", model.format()))
}

/// Sizes and types, before anything is computed with them.
fn check(about: &About) -> std::result::Result<(), String> {
    if about.version != VERSION {
        return Err(format!("expected version {VERSION} of {KEY}, found {}; update trueup", about.version));
    }
    if about.inputs.len() > INPUTS_MAX {
        return Err(format!("expected at most {INPUTS_MAX} inputs, found {}", about.inputs.len()));
    }
    let types: Vec<TensorType> = about.inputs.iter().map(|input| input.ty).collect();
    types.iter().chain([&about.output]).try_for_each(check_type)?;
    if let Op::Reshape(reshape) = &about.op {
        check_type(&TensorType { dtype: DType::I8, shape: reshape.shape })?;
    }
    if !sensible(&about.profile) {
        return Err(format!("the profile is not one that a device declares: {}", about.profile));
    }
    let output = about.op.infer(&types).map_err(|problem| format!("{} {problem}", about.op.name()))?;
    if output.dense() != about.output {
        return Err(format!("expected {output} as the result of {}, found {}", about.op.name(), about.output));
    }
    Ok(())
}

fn check_type(ty: &TensorType) -> std::result::Result<(), String> {
    let sizes = ty.shape.sizes();
    let product = sizes.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
    let fits = product.is_some_and(|elements| (1..=ELEMENTS_MAX).contains(&elements));
    if !fits || !sizes[0].is_multiple_of(ty.dtype.block_len()) {
        return Err(format!(
            "expected a tensor of 1 to {ELEMENTS_MAX} elements in whole blocks, found {} {sizes:?}",
            ty.dtype
        ));
    }
    Ok(())
}

/// The same number: no machine has more than 64 bits.
fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The bytes of one array, which must be those of `ty`.
fn bytes(file: &SafetensorsFile, name: &str, ty: &TensorType) -> Result<std::result::Result<Vec<u8>, String>> {
    let known = file.find(name).and_then(|number| Some((number, file.tensors().get(number)?.bytes)));
    let Some((number, found)) = known else { return Ok(Err(format!("expected an array {name}, found none"))) };
    let expected = wide(ty.bytes());
    if found != expected {
        return Ok(Err(format!("array {name}: expected {expected} bytes for {ty}, found {found}")));
    }
    let mut bytes = vec![0; ty.bytes()];
    file.read(number, 0, &mut bytes)?;
    Ok(Ok(bytes))
}

fn given(input: &InputAbout, bytes: Vec<u8>) -> Given {
    let usage = Usage::from(input.usage);
    let content = if input.ty.dtype == DType::I32 {
        Content::Integers(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
    } else if matches!(usage, Usage::Weight | Usage::State) {
        Content::Blocks(bytes)
    } else {
        Content::Numbers(crate::operand::decode(&input.ty, &bytes))
    };
    Given { ty: input.ty, usage, content }
}
