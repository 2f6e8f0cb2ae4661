//! A fault at a computation that stands alone, without the graph that it comes from.

use super::device::{Fusion, Planted, weight_place};
use super::input::{InputFault, before_window};
use super::product::ProductFault;
use super::stages::Stages;
use super::{Fault, PLANTS, Plant, expect_f32, known};
use crate::scene::{Given, Scene};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::device::{Device, Usage};
use trueup_runtime::{Error, Result};

/// `device`, which computes the scene, node `index` of its graph, with the fault `name`. Fails on unknown names and
/// where the scene cannot have the fault.
pub(crate) fn planted_alone(
    name: &str,
    scene: &Scene,
    index: usize,
    device: Arc<dyn Device>,
) -> Result<Arc<dyn Device>> {
    let plant = known(name)?;
    expect_f32(&*device)?;
    if !fits(plant, scene) {
        let (op, ops) = (scene.op.name(), plant.ops.join(" or "));
        return Err(Error::Request(format!(
            "the fault {name} does not apply to this {op}: it needs {ops}{}; `trueup verify --inject-fault list` \
                shows the available faults",
            plant.fault.needs()
        )));
    }
    Ok(Arc::new(Planted::new(device, plant.fault, (index, scene.op.name()), Stages::one(), Fusion::default())))
}

/// Whether the scene can have the fault of this name.
pub(crate) fn fits_alone(name: &str, scene: &Scene) -> bool {
    PLANTS.iter().any(|plant| plant.name == name && fits(plant, scene))
}

/// Whether the fault means something for these inputs. Where each comes from in its graph is not known.
fn fits(plant: &Plant, scene: &Scene) -> bool {
    let types: Vec<TensorType> = scene.inputs.iter().map(|input| input.ty).collect();
    let is_f32 = |place: usize| types.get(place).is_some_and(|ty| ty.dtype == DType::F32);
    let gives_f32 = scene.output.dtype == DType::F32;
    let fits = match plant.fault {
        Fault::Input(fault) => input_fits(fault, scene, &types),
        Fault::Parameter(fault) => fault.fits(&scene.op, types.len()),
        Fault::Weight(fault) => {
            let weight = scene.inputs.get(weight_place(&scene.op));
            weight.is_some_and(|Given { ty, usage, .. }| *usage == Usage::Weight && fault.fits_type(ty))
        }
        Fault::Product(fault) => gives_f32 && product_fits(fault, &types),
        Fault::Output(_) => gives_f32,
        // Behind the weights of gate and up.
        Fault::Fused(fault) => gives_f32 && is_f32(2) && fault.fits(scene.output.shape[0]),
    };
    fits && plant.ops.contains(&scene.op.name())
}

fn input_fits(fault: InputFault, scene: &Scene, types: &[TensorType]) -> bool {
    let place = fault.place(&scene.op);
    let dtype = types.get(place).map(|ty| ty.dtype);
    let fits = match fault {
        // Two of one type, whatever it is: weights of a fused operator.
        InputFault::Exchanged => true,
        InputFault::NoWindow | InputFault::WindowOneOff => {
            dtype == Some(DType::F32) && has_window(&scene.inputs[place])
        }
        InputFault::EmptySlot | InputFault::FirstSlot => {
            dtype == Some(DType::I32) && scene.inputs.first().is_some_and(|state| state.usage == Usage::State)
        }
        fault if fault.is_of_indices() => dtype == Some(DType::I32),
        _ => dtype == Some(DType::F32),
    };
    fits && fault.fits_types(&scene.op, types)
}

/// Whether a row of the mask hides something before what it shows: only a window does.
fn has_window(mask: &Given) -> bool {
    let operand = mask.operand();
    (0..mask.ty.shape.rows()).any(|row| {
        let mut room = Vec::new();
        let mask: Vec<f32> = operand.row(row, &mut room).iter().map(|value| *value as f32).collect();
        !before_window(&mask).is_empty()
    })
}

/// Activations in f32, and a weight that can be decoded.
fn product_fits(fault: ProductFault, types: &[TensorType]) -> bool {
    let is_f32 = |place: usize| types.get(place).is_some_and(|ty| ty.dtype == DType::F32);
    match fault {
        ProductFault::F16 | ProductFault::Half2 => {
            is_f32(1) && types.first().is_some_and(|ty| ty.dtype == DType::F32 || ty.dtype.decoder().is_some())
        }
        ProductFault::CentredNorm | ProductFault::SumOfAll | ProductFault::LateCap | ProductFault::Gelu => {
            is_f32(0) && is_f32(1)
        }
        ProductFault::Unchanged => is_f32(0),
    }
}
