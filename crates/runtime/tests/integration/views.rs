//! Views on both devices of this machine: what they show is computed with as if it lay without gaps.

use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, Arrange, Cast, MulMat};
use trueup_graph::{Op, Shape, TensorType};
use trueup_runtime::device::cpu::{Cpu, CpuOptions};
use trueup_runtime::device::reference::Reference;
use trueup_runtime::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};

const OFFSET_BYTES: usize = 4 * ARENA_ALIGN_BYTES;

fn devices() -> [Box<dyn Device>; 2] {
    let cpu = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() });
    [Box::new(Reference::new(1).unwrap()), Box::new(cpu.unwrap())]
}

/// `source` in an arena or by itself, then `view` of it, then `op` on the view and `other`; the result's numbers and
/// what the view shows.
fn computed(
    device: &dyn Device,
    usage: Usage,
    source: (TensorType, &[u8]),
    view: Op,
    op: Op,
    other: Option<(TensorType, &[u8])>,
) -> (Vec<f32>, Vec<u8>) {
    let arena = device.alloc(&TensorType::new(DType::I8, &[4 * OFFSET_BYTES]), Usage::Arena).unwrap();
    let place = |ty: TensorType, bytes: &[u8], offset_bytes: usize| {
        let own = || device.alloc(&ty, usage).unwrap();
        let tensor = match usage {
            Usage::Arena => Tensor { buffer: arena.clone(), offset_bytes, ty },
            Usage::Weight | Usage::State | Usage::Input => Tensor { buffer: own(), offset_bytes: 0, ty },
        };
        device.upload(bytes, &tensor).unwrap();
        tensor
    };
    let x = place(source.0, source.1, OFFSET_BYTES);
    let seen = Tensor { ty: view.infer(&[x.ty]).unwrap(), ..x.clone() };
    let mut inputs = vec![seen.clone()];
    inputs.extend(other.map(|(ty, bytes)| place(ty, bytes, 2 * OFFSET_BYTES)));
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let output = Tensor { buffer: arena.clone(), offset_bytes: 0, ty: op.infer(&types).unwrap() };
    device.supports(&view, &[x.ty], &seen.ty).unwrap();
    device.supports(&op, &types, &output.ty).unwrap();
    let steps = [
        Step { node: 0, op: view, inputs: vec![x], output: seen.clone() },
        Step { node: 1, op, inputs, output: output.clone() },
    ];
    device.execute(&steps).unwrap();
    let read = |tensor: &Tensor| {
        let mut bytes = vec![0; tensor.ty.bytes()];
        device.download(tensor, &mut bytes).unwrap();
        bytes
    };
    let floats = read(&output).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (floats, read(&seen))
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

#[test]
fn a_transposed_matrix_is_added_to_and_multiplied() {
    let ty = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
    let x = bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for device in devices() {
        for usage in [Usage::Arena, Usage::State] {
            let bias = (ty(&[2]), &bytes(&[10.0, 20.0])[..]);
            let (sums, shown) = computed(
                &*device,
                usage,
                (ty(&[3, 2]), &x),
                Arrange::Transpose.into(),
                Arithmetic::Add.into(),
                Some(bias),
            );
            assert_eq!(shown, bytes(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
            assert_eq!(sums, [11.0, 24.0, 12.0, 25.0, 13.0, 26.0], "{} {usage:?}", device.name());
            let vector = (ty(&[2]), &bytes(&[1.0, 10.0])[..]);
            let (products, _) =
                computed(&*device, usage, (ty(&[3, 2]), &x), Arrange::Transpose.into(), MulMat.into(), Some(vector));
            assert_eq!(products, [41.0, 52.0, 63.0], "{} {usage:?}", device.name());
        }
    }
}

#[test]
fn a_part_of_an_f16_tensor_is_cast() {
    let x: Vec<u8> = (0..12).flat_map(|i| half::f16::from_f32(i as f32).to_le_bytes()).collect();
    let view = Arrange::View { offset: 1, strides: [4, 2, 0, 0], shape: Shape::new(&[3, 2]) };
    for device in devices() {
        for usage in [Usage::Arena, Usage::Weight] {
            let source = (TensorType::new(DType::F16, &[4, 3]), &x[..]);
            let (floats, _) = computed(&*device, usage, source, view.into(), Cast { to: DType::F32 }.into(), None);
            assert_eq!(floats, [1.0, 5.0, 9.0, 3.0, 7.0, 11.0], "{} {usage:?}", device.name());
        }
    }
}
