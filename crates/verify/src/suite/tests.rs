//! Right devices pass, and wrong ones are found by what they do wrong.

use super::*;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::op::{KvStore, MulMat, Unary};
use trueup_graph::{Fill, TensorType};
use trueup_runtime::device::cpu::{Cpu, CpuOptions};
use trueup_runtime::device::reference::Reference;
use trueup_runtime::device::{About, Decorator, Device, Step, Tensor};
use trueup_runtime::profile::Profile;

fn normal(dtype: DType, sizes: &[usize]) -> (TensorType, Fill) {
    (TensorType::new(dtype, sizes), Fill::Normal(1.0))
}

/// The operator of that name, as the suite's first case of it has it.
pub(super) fn op(name: &str) -> Op {
    Op::cases().into_iter().map(|case| case.op).find(|op| op.name() == name).unwrap()
}

fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap()
}

/// Cases of several kinds: elementwise, a sum, an index, a state, integers, nothing at all.
fn sample() -> Vec<Candidate> {
    let integers = |dtype, sizes: &[usize]| (TensorType::new(dtype, sizes), Fill::Integers(-8, 8));
    let rows = (TensorType::new(DType::I32, &[3]), Fill::Distinct(7));
    named(vec![
        Case::new(op("add"), &[normal(DType::F32, &[33, 5]), normal(DType::F16, &[33])]),
        Case::new(op("add"), &[normal(DType::F32, &[16, 0]), normal(DType::F32, &[16])]),
        Case::new(op("swiglu"), &[normal(DType::F32, &[257]), normal(DType::F32, &[257])]),
        Case::new(MulMat, &[normal(DType::Q8_0, &[256, 31]), normal(DType::F32, &[256, 5])]),
        Case::new(MulMat, &[normal(DType::F32, &[257, 31]), normal(DType::F32, &[257, 1])]),
        Case::probe(MulMat, &[integers(DType::F32, &[65, 9]), integers(DType::F32, &[65, 3])]),
        Case::new(Op::get_rows(DType::F32), &[normal(DType::Q4_0, &[64, 7]), rows]),
        Case::new(KvStore, &[normal(DType::F16, &[16, 8, 2]), normal(DType::F32, &[16, 3]), rows]),
        Case::new(Op::reshape(&[4, 33]), &[normal(DType::F32, &[33, 4])]),
    ])
}

fn run(device: &dyn Device, candidates: Vec<Candidate>) -> SuiteReport {
    test_cases(device, candidates, 7, &mut |_| {})
}

fn text(report: &SuiteReport) -> String {
    report.results.iter().map(|result| format!("{result}\n")).collect()
}

#[test]
fn right_devices_pass_and_say_how_exact_they_are() {
    let oracle = Reference::new(1).unwrap();
    for device in [&cpu() as &dyn Device, &oracle] {
        let report = run(device, sample());
        assert_eq!((report.failed, report.skipped, report.passed), (0, 0, 9), "{}", text(&report));
        assert!(report.results.iter().all(|result| result.verdict.is_some() && result.profile.is_some()));
    }
    let report = run(&cpu(), sample());
    let product = &report.results[3];
    assert_eq!(product.verdict, Some(crate::Verdict::DeclaredLoss));
    assert!(product.z.is_some_and(|z| z > 0.0) && product.nmse.is_some_and(|nmse| nmse > 1e-7), "{product}");
}

#[test]
fn results_below_the_smallest_f32_pass_as_zero() {
    let x = (TensorType::new(DType::F32, &[5]), Fill::Constant(-120.0));
    let report = run(&cpu(), named(vec![Case::new(Unary::Exp, &[x])]));
    assert!(report.results[0].nmse.is_some_and(|nmse| nmse == 1.0) && report.failed == 0, "{}", text(&report));
}

#[test]
fn the_seed_decides_every_number() {
    let of = |seed| test_cases(&cpu(), sample(), seed, &mut |_| {}).results;
    assert_eq!(of(3), of(3));
    let differ = of(3).iter().zip(&of(4)).filter(|(a, b)| a.nmse != b.nmse).count();
    assert!(differ >= 3, "{differ}");
}

#[test]
fn a_third_of_the_cases_passes_on_cpu_and_the_small_ones_on_the_oracle() {
    // scripts/full_check.sh tests all.
    let sample = || candidates().into_iter().step_by(3);
    let elements =
        |candidate: &Candidate| -> usize { candidate.case.inputs.iter().map(|(ty, _)| ty.shape.elements()).sum() };
    let small = sample().filter(|candidate| elements(candidate) <= 1 << 17).collect();
    let oracle = Reference::new(2).unwrap();
    for (device, cases) in [(&cpu() as &dyn Device, sample().collect()), (&oracle, small)] {
        let report = test_cases(device, cases, SEED_DEFAULT, &mut |_| {});
        let bad = report.results.iter().filter(|result| result.status == Status::Fail);
        assert_eq!(bad.map(|result| format!("{result}\n")).collect::<String>(), "");
        assert!(report.ran());
    }
}

#[test]
fn selections_are_by_operator_and_by_name() {
    let count = |operators, case| {
        let selection = Selection::new(operators, case).unwrap();
        candidates().iter().filter(|candidate| selection.takes(candidate)).count()
    };
    assert_eq!(count(None, Some("add/2")), 1);
    assert_eq!(count(Some("add|swiglu"), None), count(Some("add"), None) + count(Some("swiglu"), None));
    for (operators, case, words) in [
        (Some("("), None, "regular expression"),
        (Some("no_such"), None, "found no_such; `trueup ops list` shows all names"),
        (Some("ad"), None, "found ad; `trueup ops list` shows all names"),
        (None, Some("add/99999"), "expected a case such as add/0, found add/99999"),
        (Some("swiglu"), Some("add/0"), "--case add/0: the operator does not match --op swiglu"),
    ] {
        let refused = Selection::new(operators, case).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_device_answers_for_every_operator() {
    let answers = list(&cpu(), &Selection::default());
    for name in Op::names() {
        assert!(answers.iter().any(|answer| answer.op == name), "{name}");
    }
    let add = answers.iter().find(|answer| answer.op == "add" && answer.types == "f32, f16 -> f32").unwrap();
    assert!(add.profile.is_some() && add.reason.is_none() && add.cases > 0);
}

/// What a wrong device does to the result of a step that was computed rightly.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Every element is 42.
    FortyTwo,
    /// The first element behind the result is overwritten.
    WritesBehind,
    /// The last element before the result's guard is overwritten.
    WritesBefore,
    /// The first input in the arena is overwritten.
    WritesInput,
    /// A weight is overwritten.
    WritesWeight,
    /// The last row is not written.
    UnwrittenRow,
    /// A constant is added to one element.
    Constant(f32),
    /// The last bit of one element is the other one.
    LastBit,
    /// Every second run is off by one unit in the last place at one element.
    Flickers,
    /// Calls fail.
    Fails,
    /// Nothing is computed here.
    Lacks,
}

/// A device that decorates another one with a fault.
struct Wrong {
    device: Cpu,
    fault: Fault,
    runs: std::sync::atomic::AtomicUsize,
}

impl Wrong {
    fn new(fault: Fault) -> Arc<Wrong> {
        Arc::new(Wrong { device: cpu(), fault, runs: Default::default() })
    }

    fn change(&self, tensor: &Tensor, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        change(&mut bytes);
        self.device.upload(&bytes, tensor)
    }

    /// One word of the output's arena.
    fn overwrite(&self, output: &Tensor, offset_bytes: usize) -> Result<()> {
        let word = Tensor { offset_bytes, ty: TensorType::new(DType::F32, &[1]), ..output.clone() };
        self.device.upload(&1.0f32.to_le_bytes(), &word)
    }

    fn spoil(&self, step: &Step) -> Result<()> {
        let output = &step.output;
        let (start, bytes) = (output.offset_bytes, output.ty.bytes());
        let add = |bytes: &mut [u8], by: f32| {
            let number = f32::from_le_bytes(bytes[..4].try_into().unwrap());
            bytes[..4].copy_from_slice(&(number + by).to_le_bytes());
        };
        match self.fault {
            Fault::FortyTwo => self.change(output, |bytes| {
                bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| *number = 42.0f32.to_le_bytes());
            }),
            Fault::WritesBehind => self.overwrite(output, start + bytes),
            Fault::WritesBefore => self.overwrite(output, start - 4),
            Fault::WritesInput => self.overwrite(&step.inputs[1], step.inputs[1].offset_bytes),
            Fault::WritesWeight => self.change(&step.inputs[0], |bytes| bytes[3] ^= 1),
            Fault::UnwrittenRow => {
                let row = output.ty.shape[0] * 4;
                let before = if self.run().is_multiple_of(2) { 0xff } else { 0x3c };
                self.change(output, |bytes| bytes.rchunks_mut(row).next().unwrap().fill(before))
            }
            Fault::Constant(by) => self.change(output, |bytes| add(bytes, by)),
            Fault::LastBit => self.change(output, |bytes| bytes[0] ^= 1),
            Fault::Flickers if self.run() % 2 == 1 => self.change(output, |bytes| bytes[0] ^= 1),
            Fault::Flickers | Fault::Fails | Fault::Lacks => Ok(()),
        }
    }

    fn run(&self) -> usize {
        self.runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

impl Decorator for Wrong {
    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn about(&self) -> About {
        About { name: Decorator::name(self), ..self.device.about() }
    }

    fn name(&self) -> String {
        "wrong".to_owned()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if self.fault == Fault::Lacks {
            return Err(format!("{} is not written", op.name()));
        }
        self.device.supports(op, inputs, output)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        if self.fault == Fault::Fails {
            return Err(Error::Request("the device is on fire".to_owned()));
        }
        self.device.execute(steps)?;
        steps.iter().try_for_each(|step| self.spoil(step))
    }
}

#[test]
fn wrong_devices_are_found_by_what_they_do() {
    let cases = [
        (Fault::FortyTwo, "is 42,"),
        (Fault::WritesBehind, "after the result changed, the nearest 1 after it"),
        (Fault::WritesBefore, "before the result changed"),
        (Fault::WritesInput, "in input 1"),
        (Fault::WritesWeight, "input 0 was overwritten"),
        (Fault::UnwrittenRow, "structural bug"),
        (Fault::UnwrittenRow, "was not written"),
        (Fault::Constant(1.0), "structural bug"),
        (Fault::Constant(f32::NAN), "not finite"),
        (Fault::Constant(f32::INFINITY), "not finite"),
        (Fault::Flickers, "two runs on the same inputs differ"),
        (Fault::Fails, "on fire"),
    ];
    let product = Case::new(MulMat, &[normal(DType::Q8_0, &[256, 31]), normal(DType::F32, &[256, 5])]);
    for (fault, words) in cases {
        let report = run(&*Wrong::new(fault), named(vec![product.clone()]));
        assert_eq!((report.failed, report.passed), (1, 0), "{fault:?}: {}", text(&report));
        assert!(
            report.results[0].problems.iter().any(|problem| problem.contains(words)),
            "{fault:?}: {}",
            text(&report)
        );
    }
    let report = run(&*Wrong::new(Fault::Lacks), named(vec![product]));
    assert_eq!((report.failed, report.skipped, report.ran()), (0, 1, false));
    assert_eq!(report.results[0].skipped.as_deref(), Some("mul_mat is not written"));
}

#[test]
fn a_probe_that_is_off_by_one_unit_fails() {
    let probe = sample().swap_remove(5);
    assert!(probe.case.probe);
    let report = run(&*Wrong::new(Fault::LastBit), vec![probe]);
    let problems = &report.results[0].problems;
    assert!(problems.len() == 1 && problems[0].contains("exact in integers"), "{}", text(&report));
}

#[test]
fn one_small_error_in_many_elements_is_more_than_the_noise_of_f32() {
    // 1e-3 in one of 31 elements of size 16 is an NMSE of 1e-10: only z sees it.
    let product = Case::new(MulMat, &[normal(DType::F32, &[256, 31]), normal(DType::F32, &[256, 1])]);
    let report = run(&*Wrong::new(Fault::Constant(1e-3)), named(vec![product]));
    let result = &report.results[0];
    assert!(result.nmse.is_some_and(|nmse| nmse < NMSE_MAX) && result.status == Status::Fail, "{result}");
}

#[test]
fn cases_that_cannot_be_computed_fail_with_a_sentence() {
    let rule = Case::new(op("add"), &[normal(DType::F32, &[4]), normal(DType::F32, &[3])]);
    let data = (TensorType::new(DType::I32, &[3]), Fill::Distinct(2));
    let filling = Case::new(Op::get_rows(DType::F32), &[normal(DType::F32, &[4, 8]), data]);
    for (case, words) in [(rule, "cannot be broadcast"), (filling, "cannot be filled")] {
        let report = run(&cpu(), named(vec![case]));
        assert_eq!(report.failed, 1);
        assert!(report.results[0].problems[0].contains(words), "{}", text(&report));
    }
}
