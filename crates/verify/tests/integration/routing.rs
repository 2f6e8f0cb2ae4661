//! Experts with equal scores: a device may choose any of them, and the reference follows its choice.

use super::tiny_model;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trueup_blocks::DType;
use trueup_graph::Op;
use trueup_runtime::device::cpu::{Cpu, CpuOptions};
use trueup_runtime::device::{Decorator, Device, Step};
use trueup_runtime::{ModelFile, Result};
use trueup_verify::{Outcome, Reference, VerifyOptions, verify};

/// A device that takes the second expert instead of the first one, and the first one instead of the second.
struct OtherExpert {
    device: Cpu,
    changed: AtomicUsize,
}

impl Decorator for OtherExpert {
    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.device.execute(std::slice::from_ref(step))?;
            if matches!(step.op, Op::Rank(_)) {
                let mut bytes = vec![0; step.output.ty.bytes()];
                self.device.download(&step.output, &mut bytes)?;
                for id in bytes.as_chunks_mut::<4>().0 {
                    let other = match i32::from_le_bytes(*id) {
                        0 => 1i32,
                        1 => 0,
                        _ => continue,
                    };
                    *id = other.to_le_bytes();
                    self.changed.fetch_add(1, Ordering::Relaxed);
                }
                self.device.upload(&bytes, &step.output)?;
            }
        }
        Ok(())
    }
}

/// The outcome on such a device, and how many choices differed.
fn outcome(kind: tiny_model::Kind) -> (Outcome, usize, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("experts.gguf");
    tiny_model::write_kind(&path, kind, tiny_model::CONTEXT, DType::F32, false);
    let model = Arc::new(ModelFile::open(&path).unwrap());
    let device = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
    let device = Arc::new(OtherExpert { device, changed: AtomicUsize::new(0) });
    let options = VerifyOptions { prompts: vec![(1..30).collect(), vec![40, 7]], steps: 3, ..VerifyOptions::default() };
    let report = verify(model, device.clone(), Reference::Oracle, &options, &mut |_| {}).unwrap();
    (report.result, device.changed.load(Ordering::Relaxed), report.sentence)
}

#[test]
fn another_choice_among_equal_scores_passes_and_among_different_ones_fails() {
    let (tied, changed, sentence) = outcome(tiny_model::Kind::TiedExperts);
    assert!(tied == Outcome::Pass && changed > 0, "{changed} choices: {sentence}");
    let (different, changed, sentence) = outcome(tiny_model::Kind::Experts);
    assert!(different == Outcome::Fail && changed > 0, "{changed} choices: {sentence}");
    assert!(sentence.contains("ffn_moe_topk-0 (top_k)"), "{sentence}");
}
