//! Kernels that do two things at once have the bits of two launches. On the simulator, where `scripts/cuda_sim.sh` has built it beside the tests.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use crate::device::cuda::driver::Launch;
use crate::device::cuda::launches::{Recorder, Scratch, operand, record_all};
use crate::device::cuda::operator::{Call, kv_store, matrix, rms_norm, rope};
use crate::device::cuda::{Cuda, CudaOptions, Place};
use crate::device::{Device, Step, Tensor, Usage};
use trueup_blocks::DType;
use trueup_graph::op::{KvStore, RmsNorm, Rope, RopePairs, RopeScaling};
use trueup_graph::{Op, TensorType};

/// The simulated card, or none where no simulator is built.
fn simulated() -> Option<Cuda> {
    let place = Place::Simulated { memory_bytes: 8 << 30 };
    match Cuda::new(&CudaOptions { place, repack: true }) {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn uploaded(cuda: &Cuda, ty: TensorType, bytes: &[u8]) -> Tensor {
    let arena = TensorType::new(DType::I8, &[ty.bytes().next_multiple_of(256)]);
    let tensor = Tensor { buffer: cuda.alloc(&arena, Usage::Arena).unwrap(), offset_bytes: 0, ty };
    cuda.upload(bytes, &tensor).unwrap();
    tensor
}

/// Numbers of both signs.
fn numbers(cuda: &Cuda, sizes: &[usize], seed: usize) -> Tensor {
    let ty = TensorType::new(DType::F32, sizes);
    let number = |i: usize| ((i + seed) * 7919 % 1013) as f32 * 0.0137 - 6.9;
    let bytes: Vec<u8> = (0..ty.shape.elements()).flat_map(|i| number(i).to_le_bytes()).collect();
    uploaded(cuda, ty, &bytes)
}

fn indices(cuda: &Cuda, indices: &[i32]) -> Tensor {
    let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
    uploaded(cuda, TensorType::new(DType::I32, &[indices.len()]), &bytes)
}

fn empty(cuda: &Cuda, ty: TensorType) -> Tensor {
    uploaded(cuda, ty, &vec![0; ty.bytes()])
}

fn bytes(cuda: &Cuda, tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.ty.bytes()];
    cuda.download(tensor, &mut bytes).unwrap();
    bytes
}

fn compute(cuda: &Cuda, op: &Op, inputs: &[&Tensor], output: &Tensor) {
    let inputs = inputs.iter().map(|input| (*input).clone()).collect();
    cuda.execute(&[Step { node: 0, op: op.clone(), inputs, output: output.clone() }]).unwrap();
}

/// Runs what `work` launches.
fn run(cuda: &Cuda, output: &Tensor, work: impl Fn(&mut Call) -> Result<(), String>) {
    let mut scratch = Scratch::default();
    let recorded = record_all(&cuda.card, &cuda.means, &cuda.faults, &mut scratch, |recorder: &Recorder| {
        work(&mut Call::new(recorder, "kv_store", Vec::new(), operand(output)?))
    });
    let launches: Vec<Launch> = recorded.unwrap().0;
    launches.iter().try_for_each(|launch| cuda.card.run(launch)).unwrap();
    cuda.sync().unwrap();
}

#[test]
fn queries_and_keys_are_rotated_as_alone() {
    let Some(cuda) = simulated() else { return };
    for (tokens, pairs, with_factors) in [(1, RopePairs::Halves, false), (5, RopePairs::Neighbours, true)] {
        let scaling = RopeScaling::Linear { factor: 2.0 };
        let op = Rope { dimensions: 24, pairs, base: 1e4, scaling };
        let (q, k) = (numbers(&cuda, &[32, 9, tokens], 1), numbers(&cuda, &[32, 2, tokens], 2));
        let positions = indices(&cuda, &[3, 70_000, 0, 12, 4095][..tokens]);
        let factors = with_factors.then(|| numbers(&cuda, &[12], 600));
        let alone = [&q, &k].map(|x| {
            let y = empty(&cuda, x.ty);
            let inputs: Vec<&Tensor> = [x, &positions].into_iter().chain(&factors).collect();
            compute(&cuda, &op.into(), &inputs, &y);
            bytes(&cuda, &y)
        });
        let together = [&q, &k].map(|x| empty(&cuda, x.ty));
        run(&cuda, &together[0], |call| {
            let [q, k, positions] = [&q, &k, &positions].map(|tensor| operand(tensor).unwrap());
            let factors = factors.as_ref().map(|factors| operand(factors).unwrap());
            let y = together.each_ref().map(|tensor| operand(tensor).unwrap());
            rope::launch_pair(&op, call, [q, k], (positions, factors), y)
        });
        assert_eq!(together.map(|y| bytes(&cuda, &y)), alone, "{tokens} tokens");
    }
}

#[test]
fn keys_and_values_are_stored_as_alone() {
    let Some(cuda) = simulated() else { return };
    let types = [(DType::F16, DType::F16), (DType::Q8_0, DType::F32), (DType::F32, DType::Q8_0)];
    for (of_keys, of_values) in types {
        let (k, v) = (numbers(&cuda, &[64, 3], 5), numbers(&cuda, &[32, 3], 6));
        // The last of two on one row stays.
        let rows = indices(&cuda, &[6, 1, 6]);
        let caches = || {
            [(64, of_keys), (32, of_values)].map(|(width, dtype)| empty(&cuda, TensorType::new(dtype, &[width, 4, 2])))
        };
        let (alone, together) = (caches(), caches());
        for (x, cache) in [&k, &v].into_iter().zip(&alone) {
            compute(&cuda, &KvStore.into(), &[cache, x, &rows], cache);
        }
        run(&cuda, &together[0], |call| {
            let [k, v, rows] = [&k, &v, &rows].map(|tensor| operand(tensor).unwrap());
            kv_store::launch_pair(call, [k, v], rows, together.each_ref().map(|cache| operand(cache).unwrap()))
        });
        let [alone, together] = [alone, together].map(|caches| caches.map(|cache| bytes(&cuda, &cache)));
        assert_eq!(together, alone, "{of_keys} and {of_values}");
    }
}

#[test]
fn a_norm_writes_the_codes_of_its_result() {
    let Some(cuda) = simulated() else { return };
    let op = RmsNorm { epsilon: 1e-5 };
    // The last row is longer than what threads hold.
    for sizes in [[32, 3], [96, 2], [4096 + 160, 2]] {
        let (x, w) = (numbers(&cuda, &sizes, 8), numbers(&cuda, &sizes[..1], 9));
        let alone = empty(&cuda, x.ty);
        compute(&cuda, &op.into(), &[&x, &w], &alone);
        let codes = TensorType::new(DType::I8, &[matrix::taken_bytes(matrix::Way::Rows, DType::Q8_0, &x.ty)]);
        let [codes_alone, codes_together] = [(); 2].map(|()| empty(&cuda, codes));
        let together = empty(&cuda, x.ty);
        run(&cuda, &together, |call| {
            let [x, w, y, alone] = [&x, &w, &together, &alone].map(|tensor| operand(tensor).unwrap());
            let [codes_alone, codes] = [&codes_alone, &codes_together].map(|codes| operand(codes).unwrap().view.data);
            matrix::take(call, matrix::Way::Rows, DType::Q8_0, &alone, codes_alone)?;
            rms_norm::launch_with_codes(&op, call, [x, w, y], codes)?.ok_or("the rows are whole blocks".to_owned())
        });
        assert_eq!(bytes(&cuda, &together), bytes(&cuda, &alone), "{sizes:?}");
        assert_eq!(bytes(&cuda, &codes_together), bytes(&cuda, &codes_alone), "codes of {sizes:?}");
    }
}
