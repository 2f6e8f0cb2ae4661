//! A device with one fault at one node: it decorates another one.

use super::Fault;
use super::bits::{bytes_of_numbers, numbers};
use super::forms::{Answers, form};
use super::fused::{LAST_BLOCK, Products};
use super::input::InputFault;
use super::product::Bytes;
use super::stages::Stages;
use super::weight::{UP, WeightFault};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use trueup_blocks::DType;
use trueup_graph::op::MulMat;
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::{Buffer, Decorator, Device, Step, Tensor, Usage};
use trueup_runtime::profile::Profile;
use trueup_runtime::{Error, Result};

/// The memory of a weight, which this does not keep.
type WeakBuffer = Weak<dyn Any + Send + Sync>;

/// The device.
pub(super) struct Planted {
    device: Arc<dyn Device>,
    fault: Fault,
    /// The node it happens at, by its place in the graph.
    node: usize,
    /// Of which graph, in a model with several.
    stages: Stages,
    /// How often it was computed.
    computed: AtomicUsize,
    /// The activations of the call before.
    before: Mutex<Option<Vec<u8>>>,
    /// The right weight that was met last, and the spoiled one made of it.
    weight: Mutex<Option<(Tensor, Tensor)>>,
    /// The operator of the node. Pieces of a fused node have its place, but operators of their own.
    op: &'static str,
    fusion: Fusion,
    /// Why the node has not the same place in all batches, once that was seen.
    moved: OnceLock<String>,
    /// Weights that the device stores as another type, and cannot give back: their buffers and bytes.
    uploaded: Mutex<Vec<(WeakBuffer, Vec<u8>)>>,
}

/// What the device fuses.
#[derive(Default)]
pub(super) struct Fusion {
    /// Fused operators, which the device leaves to their pieces.
    pub refused: Vec<&'static str>,
    /// What it said of fused operators and their pieces where the node was found, in the graph of one token.
    pub answers: Answers,
}

impl Planted {
    /// A device with a fault at the node at place `node`, whose operator is `op`.
    pub fn new(
        device: Arc<dyn Device>,
        fault: Fault,
        (node, op): (usize, &'static str),
        stages: Stages,
        fusion: Fusion,
    ) -> Planted {
        let (before, weight, moved) = (Mutex::new(None), Mutex::new(None), OnceLock::new());
        let (computed, uploaded) = (AtomicUsize::new(0), Mutex::default());
        Planted { device, fault, node, stages, computed, before, weight, op, fusion, moved, uploaded }
    }

    /// Whether the device stores a weight as another type.
    fn is_decoded(&self, tensor: &Tensor) -> bool {
        self.device.weight_type(tensor.ty.dtype) != tensor.ty.dtype
    }

    /// Keeps the bytes of a weight that cannot be read back.
    fn keep(&self, bytes: &[u8], weight: &Tensor) {
        let mut uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        uploaded.retain(|(buffer, _)| buffer.strong_count() > 0);
        uploaded.push((Arc::downgrade(&weight.buffer.0), bytes.to_vec()));
    }

    /// The bytes of a weight that cannot be read back.
    fn kept(&self, weight: &Tensor) -> Option<Vec<u8>> {
        let uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |buffer: &WeakBuffer| buffer.upgrade().is_some_and(|buffer| Arc::ptr_eq(&buffer, &weight.buffer.0));
        let (_, bytes) = uploaded.iter().find(|(buffer, _)| is_it(buffer))?;
        Some(bytes.clone()).filter(|bytes| weight.offset_bytes == 0 && bytes.len() == weight.ty.bytes())
    }

    fn read(&self, tensor: &Tensor) -> Result<Vec<u8>> {
        if let Some(bytes) = self.kept(tensor) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; tensor.ty.bytes()];
        self.device.download(tensor, &mut bytes)?;
        Ok(bytes)
    }

    /// A tensor of its own with these bytes, in memory of the kind the device expects.
    fn tensor(&self, ty: &TensorType, bytes: &[u8], usage: Usage) -> Result<Tensor> {
        let allocated = match usage {
            Usage::Arena => TensorType::new(DType::I8, &[bytes.len()]),
            Usage::Weight | Usage::State | Usage::Input => *ty,
        };
        let tensor = Tensor { buffer: self.device.alloc(&allocated, usage)?, offset_bytes: 0, ty: *ty };
        self.device.upload(bytes, &tensor)?;
        Ok(tensor)
    }

    /// Computes the node wrongly.
    fn compute(&self, step: &Step) -> Result<()> {
        if step.op.name() != self.op {
            return self.device.execute(&[self.with_spoiled_weight(step)]);
        }
        let computed = self.computed.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Input(fault) => self.with_input(fault, step),
            Fault::Parameter(fault) => {
                let op = fault.changed(&step.op).unwrap_or_else(|| step.op.clone());
                self.device.execute(&[Step { op, ..step.clone() }])
            }
            Fault::Weight(fault) => {
                let (place, mut step) = (weight_place(&step.op), step.clone());
                step.inputs[place] = self.spoiled_weight(fault, &step.inputs[place])?;
                self.device.execute(&[step])
            }
            Fault::Fused(fault) => {
                let y = fault.compute(&self.products(step)?);
                self.device.upload(&bytes_of_numbers(&y), &step.output)
            }
            Fault::Product(fault) => {
                let inputs = step.inputs.iter().map(|input| Ok((input.ty, self.read(input)?)));
                let y = fault.compute(&step.op, &inputs.collect::<Result<Vec<Bytes>>>()?);
                self.device.upload(&bytes_of_numbers(&y), &step.output)
            }
            Fault::Output(fault) => {
                let before = if fault.keeps_before() { self.read(&step.output)? } else { Vec::new() };
                self.device.execute(std::slice::from_ref(step))?;
                let mut y = numbers(&self.read(&step.output)?);
                fault.spoil(&mut y, &numbers(&before), step.output.ty.shape[0], computed);
                self.device.upload(&bytes_of_numbers(&y), &step.output)
            }
        }
    }

    /// The spoiled weight of the node, made anew where sessions with weights of their own follow each other. A weight
    /// that was cut too small to have the fault is the right one.
    fn spoiled_weight(&self, fault: WeightFault, weight: &Tensor) -> Result<Tensor> {
        if !fault.fits_type(&weight.ty) {
            return Ok(weight.clone());
        }
        let mut kept = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, spoiled)) = kept.as_ref().filter(|(right, _)| is_same(right, weight)) {
            return Ok(spoiled.clone());
        }
        let mut bytes = self.read(weight)?;
        fault.spoil(&weight.ty, &mut bytes);
        let spoiled = self.tensor(&weight.ty, &bytes, Usage::Weight)?;
        *kept = Some((weight.clone(), spoiled.clone()));
        Ok(spoiled)
    }

    /// A piece of the node on the spoiled weight, where it reads the right one: a weight that is wrong is so for every
    /// operator.
    fn with_spoiled_weight(&self, step: &Step) -> Step {
        let kept = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((right, spoiled)) = &*kept else { return step.clone() };
        let change = |input: &Tensor| if is_same(input, right) { spoiled } else { input }.clone();
        Step { inputs: step.inputs.iter().map(change).collect(), ..step.clone() }
    }

    /// Both products of a fused node, as the device computes them by themselves.
    fn products(&self, step: &Step) -> Result<Products> {
        let [gate, up, x] = step.inputs.as_slice() else {
            return Err(Error::Request(format!("{} is not a fusion of two products", step.op.name())));
        };
        let product = |weight: &Tensor, x: &Tensor| -> Result<Vec<f32>> {
            let output = self.tensor(&step.output.ty, &vec![0; step.output.ty.bytes()], Usage::Arena)?;
            let inputs = vec![weight.clone(), x.clone()];
            self.device.execute(&[Step { op: MulMat.into(), inputs, output: output.clone(), ..*step }])?;
            Ok(numbers(&self.read(&output)?))
        };
        let mut early = numbers(&self.read(x)?);
        let len = x.ty.shape[0];
        early.chunks_mut(len.max(1)).for_each(|row| row[len.saturating_sub(LAST_BLOCK)..].fill(0.0));
        let early = self.tensor(&x.ty, &bytes_of_numbers(&early), Usage::Arena)?;
        let (gates, ups, early_gates) = (product(gate, x)?, product(up, x)?, product(gate, &early)?);
        Ok(Products { gates, ups, early_gates, rows: step.output.ty.shape[0] })
    }

    fn with_input(&self, fault: InputFault, step: &Step) -> Result<()> {
        let mut changed = step.clone();
        match fault {
            InputFault::Exchanged => {
                let place = fault.place(&step.op);
                changed.inputs.swap(place, place + 1);
            }
            InputFault::InterleavedHeads => return self.interleaved(changed),
            InputFault::Stale => {
                let now = self.read(&step.inputs[1])?;
                let mut kept = self.before.lock().unwrap_or_else(PoisonError::into_inner);
                let older = kept.replace(now.clone()).filter(|older| older.len() >= now.len());
                let stale = older.map_or(now.clone(), |older| older[older.len() - now.len()..].to_vec());
                changed.inputs[1] = self.tensor(&step.inputs[1].ty, &stale, Usage::Arena)?;
            }
            fault => {
                let place = fault.place(&step.op);
                let (ty, table) = (step.inputs[place].ty, step.inputs[0].ty);
                let limit = match step.op {
                    Op::GetRows(_) => Some(table.shape[1] as i32),
                    Op::MulMatId(_) => Some(table.shape[2] as i32),
                    Op::KvStore(_) => Some(table.shape.rows() as i32),
                    _ => None,
                };
                let bytes = fault.spoil(&ty, &self.read(&step.inputs[place])?, limit, table.shape[1] as i32);
                let usage = if ty.dtype == DType::I32 { Usage::Input } else { Usage::Arena };
                changed.inputs[place] = self.tensor(&ty, &bytes, usage)?;
            }
        }
        self.device.execute(&[changed])
    }

    /// Queries go to the places of others, so that each meets the wrong head of the cache, and their scores come back
    /// to their own place.
    fn interleaved(&self, mut step: Step) -> Result<()> {
        let [size, heads, tokens, _] = step.inputs[0].ty.shape.sizes();
        let kv_heads = step.inputs[1].ty.shape[0] / size;
        let place = |head: usize| head % kv_heads * (heads / kv_heads) + head / kv_heads;
        let q = numbers(&self.read(&step.inputs[0])?);
        let mut moved = vec![0.0; q.len()];
        for (index, row) in q.chunks(size).enumerate() {
            let (head, token) = (index % heads, index / heads);
            moved[(token * heads + place(head)) * size..][..size].copy_from_slice(row);
        }
        step.inputs[0] = self.tensor(&step.inputs[0].ty, &bytes_of_numbers(&moved), Usage::Arena)?;
        self.device.execute(std::slice::from_ref(&step))?;
        let y = numbers(&self.read(&step.output)?);
        let plane = step.output.ty.shape[0] * tokens;
        let back = (0..heads).flat_map(|head| &y[place(head) * plane..][..plane]).copied();
        self.device.upload(&bytes_of_numbers(&back.collect::<Vec<f32>>()), &step.output)
    }
}

/// Whether both are the same memory.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a.offset_bytes == b.offset_bytes
}

/// Weights are the first input of products and the second of norms; of a fused feed-forward the up weight is meant.
pub(super) fn weight_place(op: &Op) -> usize {
    if matches!(op, Op::MulMatGated(_)) { UP } else { usize::from(matches!(op, Op::RmsNorm(_))) }
}

impl Decorator for Planted {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if self.fusion.refused.contains(&op.name()) {
            return Err(format!("{} is not fused, because the fault is injected in one of its nodes", op.name()));
        }
        let answer = self.device.supports(op, inputs, output);
        let before = self.fusion.answers.get(&form(op, inputs, output));
        if before.is_some_and(|before| *before != answer.is_ok()) {
            self.moved.get_or_init(|| {
                let (device, op) = (self.device.name(), op.name());
                format!(
                    "the node of the fault is ambiguous: {device} fuses {op} for some token counts only, so the \
                        fused nodes change from batch to batch; inject the fault with --fusion off or in another \
                        device"
                )
            });
        }
        answer
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        if self.is_decoded(target) {
            self.keep(source, target);
        }
        self.device.upload(source, target)
    }

    /// Intermediate memory starts as zeros if the fault leaves old contents in a result: no device promises that memory
    /// can be read before it is written.
    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let buffer = self.device.alloc(ty, usage)?;
        if usage == Usage::Arena && matches!(self.fault, Fault::Output(fault) if fault.keeps_before()) {
            let all = Tensor { buffer: buffer.clone(), offset_bytes: 0, ty: *ty };
            self.device.upload(&vec![0; ty.bytes()], &all)?;
        }
        Ok(buffer)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        if let Some(problem) = self.moved.get() {
            return Err(Error::Request(problem.clone()));
        }
        let others = |steps: &[Step]| if steps.is_empty() { Ok(()) } else { self.device.execute(steps) };
        let mut start = 0;
        for (index, step) in steps.iter().enumerate() {
            self.stages.saw(step);
            if step.node != self.node || !self.stages.is_own() {
                continue;
            }
            others(&steps[start..index])?;
            self.compute(step)?;
            start = index + 1;
        }
        others(&steps[start..])
    }
}
