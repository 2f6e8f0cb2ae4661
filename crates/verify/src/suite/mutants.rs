//! Wrong kernels of operators that no model of the tests has: the suite's own cases find them.

use super::*;
use trueup_graph::TensorType;
use trueup_runtime::device::cpu::{Cpu, CpuOptions};
use trueup_runtime::device::{Decorator, Device, Step, Tensor, Usage};

/// What is wrong with the kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    /// Softmax that does not subtract the largest score first.
    NoMaximum,
    /// The expert after the chosen one.
    NextExpert,
    /// Gate for up and up for gate in a fused feed-forward.
    Exchanged,
    /// A fused feed-forward that takes the up weights one row too far.
    NextUp,
    /// Keys for values and values for keys in fused attention.
    KeysForValues,
}

struct Wrong {
    device: Cpu,
    mutant: Mutant,
}

impl Wrong {
    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        Ok(bytes)
    }

    fn values(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let mut values = vec![0.0; tensor.ty.shape.elements()];
        let decoder = tensor.ty.dtype.decoder().expect("masks and scores are finite");
        (decoder.decode)(&self.read(tensor)?, &mut values);
        Ok(values)
    }

    /// `exp(s_j) / sum exp(s_k)` in f32, for masks that are the same for all heads.
    fn soft_max(&self, step: &Step, scale: f32) -> Result<()> {
        let (row, x) = (step.output.ty.shape[0], self.values(&step.inputs[0])?);
        let mask = step.inputs.get(1).map_or(Ok(vec![0.0; x.len()]), |mask| self.values(mask))?;
        let mut y = Vec::with_capacity(x.len());
        for (index, x) in x.chunks(row).enumerate() {
            let mask = &mask[index * row % mask.len()..][..row];
            let powers: Vec<f32> = x.iter().zip(mask).map(|(x, mask)| (scale * x + mask).exp()).collect();
            let sum: f32 = powers.iter().sum();
            y.extend(powers.iter().flat_map(|power| (power / sum).to_le_bytes()));
        }
        self.device.upload(&y, &step.output)
    }

    fn next_expert(&self, step: &Step) -> Result<()> {
        let (mut changed, experts) = (step.clone(), step.inputs[0].ty.shape[2] as i32);
        let ids = self.read(&step.inputs[2])?;
        let ids = ids.as_chunks::<4>().0.iter().map(|id| (i32::from_le_bytes(*id) + 1) % experts);
        let ids: Vec<u8> = ids.flat_map(i32::to_le_bytes).collect();
        let ty = step.inputs[2].ty;
        changed.inputs[2] = Tensor { buffer: self.device.alloc(&ty, Usage::Input)?, offset_bytes: 0, ty };
        self.device.upload(&ids, &changed.inputs[2])?;
        self.device.execute(&[changed])
    }

    fn next_up(&self, step: &Step) -> Result<()> {
        let (mut changed, ty) = (step.clone(), step.inputs[1].ty);
        let mut weights = self.read(&step.inputs[1])?;
        weights.rotate_left(ty.bytes() / ty.shape.rows());
        changed.inputs[1] = Tensor { buffer: self.device.alloc(&ty, Usage::Weight)?, offset_bytes: 0, ty };
        self.device.upload(&weights, &changed.inputs[1])?;
        self.device.execute(&[changed])
    }
}

impl Decorator for Wrong {
    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| match (self.mutant, &step.op) {
            (Mutant::NoMaximum, Op::SoftMax(soft_max)) => self.soft_max(step, soft_max.scale),
            (Mutant::NextExpert, Op::MulMatId(_)) => self.next_expert(step),
            (Mutant::Exchanged, Op::MulMatGated(_)) => {
                let mut changed = step.clone();
                changed.inputs.swap(0, 1);
                self.device.execute(&[changed])
            }
            (Mutant::NextUp, Op::MulMatGated(_)) => self.next_up(step),
            (Mutant::KeysForValues, Op::KvAttention(_)) if step.inputs[1].ty == step.inputs[2].ty => {
                let mut changed = step.clone();
                changed.inputs.swap(1, 2);
                self.device.execute(&[changed])
            }
            (
                Mutant::NoMaximum | Mutant::NextExpert | Mutant::Exchanged | Mutant::NextUp | Mutant::KeysForValues,
                _,
            ) => self.device.execute(std::slice::from_ref(step)),
        })
    }
}

/// Cases of the operator that are small, on dense inputs, and have one mask for all heads.
fn candidates(name: &str) -> Vec<Candidate> {
    let small =
        |case: &Case| case.inputs.iter().all(|(ty, _)| ty.shape.is_dense() && (1..5000).contains(&ty.shape.elements()));
    let one_mask = |case: &Case| {
        let Op::SoftMax(soft_max) = &case.op else { return true };
        let planes = |ty: &TensorType| ty.shape[2] * ty.shape[3];
        soft_max.max_bias == 0.0 && case.inputs.get(1).is_none_or(|(mask, _)| planes(mask) == 1)
    };
    named(Op::cases().into_iter().filter(|case| case.op.name() == name && small(case) && one_mask(case)).collect())
}

#[test]
fn wrong_kernels_are_found_by_the_cases_of_their_operator() {
    for (mutant, name) in [
        (Mutant::NoMaximum, "soft_max"),
        (Mutant::NextExpert, "mul_mat_id"),
        (Mutant::Exchanged, "mul_mat_swiglu"),
        (Mutant::NextUp, "mul_mat_swiglu"),
        (Mutant::KeysForValues, "kv_attention"),
    ] {
        let device = Wrong { device: Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap(), mutant };
        let candidates = candidates(name);
        let count = candidates.len();
        let report = test_cases(&device, candidates, 3, &mut |_| {});
        // Softmax without the maximum is right for small scores, and one expert alone has none behind it.
        assert!(count >= 10 && report.failed >= 1, "{mutant:?}: {} of {count} fail", report.failed);
    }
}

/// A kernel without a fault passes the same cases, so that it is the fault that is found.
#[test]
fn the_right_kernels_pass_the_same_cases() {
    let device = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
    for name in ["soft_max", "mul_mat_id", "mul_mat_swiglu", "kv_attention"] {
        let report = test_cases(&device, candidates(name), 3, &mut |_| {});
        assert!(report.failed == 0 && report.passed > 0, "{name}: {} fail", report.failed);
    }
}
