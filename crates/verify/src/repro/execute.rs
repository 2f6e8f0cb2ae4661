//! One scene on a device, through nothing but the device's own interface.

use crate::operand;
use crate::scene::Scene;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};
use trueup_runtime::{Error, Result};

/// The scene with the result and the profile of `device`. `index` is the node's place in its graph.
pub(super) fn execute(scene: &Scene, index: usize, device: &dyn Device) -> Result<Scene> {
    let types: Vec<TensorType> = scene.inputs.iter().map(|input| input.ty).collect();
    // The scene holds what is shown, a device where it lies.
    let output_type = scene.op.infer(&types).map_err(Error::Request)?;
    let profile = device.supports(&scene.op, &types, &output_type).map_err(|reason| {
        let device = device.name();
        Error::Request(format!("{device} cannot compute {}: {reason}; use another device", scene.op.name()))
    })?;
    let (inputs, output) = upload(scene, output_type, device)?;
    if !scene.op.is_alias() {
        device.upload(&vec![0xff; scene.output.bytes()], &output)?;
    }
    device.execute(&[Step { node: index, op: scene.op.clone(), inputs, output: output.clone() }])?;
    device.sync()?;
    let mut bytes = vec![0; scene.output.bytes()];
    device.download(&output, &mut bytes)?;
    Ok(Scene { profile, device: operand::decode(&scene.output, &bytes), ..scene.clone() })
}

/// All tensors on the device: activations and the result in one arena, as the planner has it.
fn upload(scene: &Scene, output: TensorType, device: &dyn Device) -> Result<(Vec<Tensor>, Tensor)> {
    let room = |ty: &TensorType| ty.bytes().next_multiple_of(ARENA_ALIGN_BYTES);
    let inside = scene.inputs.iter().filter(|input| input.usage == Usage::Arena);
    let bytes = inside.map(|input| room(&input.ty)).sum::<usize>() + room(&scene.output);
    let arena = device.alloc(&TensorType::new(DType::I8, &[bytes]), Usage::Arena)?;
    let mut offset_bytes = 0;
    let mut place = |ty: TensorType| {
        let tensor = Tensor { buffer: arena.clone(), offset_bytes, ty };
        offset_bytes += room(&ty);
        tensor
    };
    let mut inputs = Vec::with_capacity(scene.inputs.len());
    for input in &scene.inputs {
        let tensor = match input.usage {
            Usage::Arena => place(input.ty),
            usage @ (Usage::Weight | Usage::State | Usage::Input) => {
                Tensor { buffer: device.alloc(&input.ty, usage)?, offset_bytes: 0, ty: input.ty }
            }
        };
        device.upload(&input.bytes(), &tensor)?;
        inputs.push(tensor);
    }
    let alias = scene.op.is_alias();
    let output = if alias { Tensor { ty: output, ..inputs[0].clone() } } else { place(output) };
    Ok((inputs, output))
}
