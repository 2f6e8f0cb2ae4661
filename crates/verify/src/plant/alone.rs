//! A fault at a computation that stands alone, without the graph that it comes from.

use super::device::{Fusion, Planted, weight_place};
use super::{Fault, Plant, expect_f32, known};
use crate::scene::{Given, Scene};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::device::{Device, Usage};
use trueup_runtime::{Error, Result};

/// `device`, which computes the scene, node `index` of its graph, with the fault `name`. Fails on unknown names and where the scene cannot
/// have the fault.
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
            "this {op} cannot have the fault {name}: it needs {ops}{}; `trueup verify --plant list` shows others",
            plant.fault.needs()
        )));
    }
    Ok(Arc::new(Planted::new(device, plant.fault, index, scene.op.name(), Fusion::default())))
}

/// Whether the fault means something for these inputs. Where each comes from in its graph is not known.
fn fits(plant: &Plant, scene: &Scene) -> bool {
    let types: Vec<TensorType> = scene.inputs.iter().map(|input| input.ty).collect();
    let dtype = |place: usize| types.get(place).map(|ty| ty.dtype);
    let fits = match plant.fault {
        Fault::Input(fault) => {
            let wanted = if fault.is_of_indices() { DType::I32 } else { DType::F32 };
            dtype(fault.place(&scene.op)) == Some(wanted) && fault.fits_types(&scene.op, &types)
        }
        Fault::Parameter(fault) => fault.fits(&scene.op, types.len()),
        Fault::Weight(fault) => {
            let weight = scene.inputs.get(weight_place(&scene.op));
            weight.is_some_and(|Given { ty, usage, .. }| *usage == Usage::Weight && fault.fits_type(ty))
        }
        Fault::Product(_) | Fault::Output(_) => scene.output.dtype == DType::F32 && dtype(1) == Some(DType::F32),
        Fault::Fused(_) => true,
    };
    fits && plant.ops.contains(&scene.op.name())
}
