//! Two devices as one: each has half of the rows of every weight matrix, and multiplies with them; all else is the first one's.
//!
//! ```text
//!   first     x ──────────────▶ upper rows x ─▶ y₀ ─┐
//!             │ copied                              ├ concat ─▶ y
//!   second    └─▶ x ──────────▶ lower rows x ─▶ y₁ ─┘ copied back
//! ```
//!
//! A row's sum is of one device, so results have the bits of one device alone. A matrix that something else than a product reads, like the table of
//! an embedding, is brought to the first one as a whole when that happens for the first time.

use super::{About, Buffer, Device, Step, Tensor, Usage};
use crate::error::{Error, Result};
use crate::profile::Profile;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use trueup_blocks::DType;
use trueup_graph::op::Concat;
use trueup_graph::{Op, TensorType};

/// Rows of a half are a multiple of this.
const ROWS_UNIT: usize = 32;

/// Parts of a room begin at multiples of this.
const ALIGN_BYTES: usize = super::ARENA_ALIGN_BYTES;

/// Two devices as one.
pub struct Pair {
    devices: [Arc<dyn Device>; 2],
    /// Held by one product at a time.
    rooms: Mutex<Rooms>,
}

/// Where halves of products lie on each device, with the bytes of the room.
type Rooms = [Option<(usize, Buffer)>; 2];

/// A weight matrix whose rows two devices share.
struct Halves {
    ty: TensorType,
    halves: [Tensor; 2],
    whole: OnceLock<Tensor>,
}

impl Pair {
    /// Two devices of one kind, which compute with the same bits.
    pub fn new(first: Arc<dyn Device>, second: Arc<dyn Device>) -> Pair {
        Pair { devices: [first, second], rooms: Mutex::default() }
    }

    fn first(&self) -> &dyn Device {
        &*self.devices[0]
    }

    /// All of a matrix on the first device.
    fn whole(&self, halves: &Halves) -> Result<Tensor> {
        if let Some(whole) = halves.whole.get() {
            return Ok(whole.clone());
        }
        let buffer = self.first().alloc(&halves.ty, Usage::Weight)?;
        let whole = Tensor { buffer, offset_bytes: 0, ty: halves.ty };
        let mut bytes = vec![0; halves.ty.bytes()];
        self.download_halves(halves, &mut bytes)?;
        self.first().upload(&bytes, &whole)?;
        Ok(halves.whole.get_or_init(|| whole).clone())
    }

    fn download_halves(&self, halves: &Halves, target: &mut [u8]) -> Result<()> {
        let (upper, lower) = target.split_at_mut(halves.halves[0].ty.bytes());
        let parts = self.devices.iter().zip(&halves.halves).zip([upper, lower]);
        parts.into_iter().try_for_each(|((device, half), target)| device.download(half, target))
    }

    /// The tensor as the first device knows it.
    fn on_first(&self, tensor: &Tensor) -> Result<Tensor> {
        match Halves::of(tensor) {
            Some(halves) => Ok(Tensor { ty: tensor.ty, ..self.whole(halves)? }),
            None => Ok(tensor.clone()),
        }
    }

    /// Computes a step that reads halves: a product on both devices, all else on the first.
    fn compute(&self, step: &Step) -> Result<()> {
        let (weights, x) = match (&step.op, step.inputs.as_slice()) {
            (Op::MulMat(_), [w, x]) => (vec![w], x),
            (Op::MulMatGated(_), [gate, up, x]) => (vec![gate, up], x),
            _ => return self.compute_whole(step),
        };
        let as_stored = |w| Halves::of(w).filter(|halves| halves.ty == w.ty);
        let halves: Option<Vec<&Halves>> = weights.into_iter().map(as_stored).collect();
        let rows = |halves: &[&Halves]| halves.windows(2).all(|pair| pair[0].rows() == pair[1].rows());
        match halves {
            Some(halves) if x.ty.shape.is_dense() && rows(&halves) => self.multiply(step, &halves, x),
            Some(_) | None => self.compute_whole(step),
        }
    }

    fn compute_whole(&self, step: &Step) -> Result<()> {
        let inputs = step.inputs.iter().map(|input| self.on_first(input)).collect::<Result<_>>()?;
        self.first().execute(&[Step { inputs, ..step.clone() }])
    }

    fn multiply(&self, step: &Step, weights: &[&Halves], x: &Tensor) -> Result<()> {
        let rows = weights[0].rows();
        let types = rows.map(|rows| {
            let [_, tokens, n2, n3] = step.output.ty.shape.sizes();
            TensorType::new(step.output.ty.dtype, &[rows, tokens, n2, n3])
        });
        // Both halves of y on the first device; x and the lower half on the second.
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let [[upper, lower], [copied, computed]] = self.room(&mut rooms, [types, [x.ty, types[1]]])?;
        self.devices[1].copy(x, self.first(), &copied)?;
        for (index, (x, output)) in [(x, &upper), (&copied, &computed)].into_iter().enumerate() {
            let weights = weights.iter().map(|weight| weight.halves[index].clone());
            let inputs = weights.chain([x.clone()]).collect();
            let half = Step { node: step.node, op: step.op.clone(), inputs, output: output.clone() };
            self.devices[index].execute(&[half])?;
        }
        self.first().copy(&computed, &*self.devices[1], &lower)?;
        let op = Concat { dimension: 0 }.into();
        self.first().execute(&[Step { node: step.node, op, inputs: vec![upper, lower], output: step.output.clone() }])
    }

    /// Room for two tensors on each device, which hold anything.
    fn room(&self, rooms: &mut Rooms, types: [[TensorType; 2]; 2]) -> Result<[[Tensor; 2]; 2]> {
        let mut on = |index: usize| {
            let [one, other] = types[index];
            let second_at = one.bytes().next_multiple_of(ALIGN_BYTES);
            let bytes = (second_at + other.bytes()).next_multiple_of(ALIGN_BYTES);
            // What is too small goes first: both may not find room.
            let held = rooms[index].take().filter(|(held, _)| *held >= bytes);
            let held = match held {
                Some(held) => held,
                None => (bytes, self.devices[index].alloc(&TensorType::new(DType::I8, &[bytes]), Usage::Arena)?),
            };
            let (_, buffer) = rooms[index].insert(held);
            let tensor = |(ty, offset_bytes)| Tensor { buffer: buffer.clone(), offset_bytes, ty };
            Ok::<[Tensor; 2], Error>([(one, 0), (other, second_at)].map(tensor))
        };
        Ok([on(0)?, on(1)?])
    }
}

impl Halves {
    /// The halves of a matrix that has some.
    fn of(tensor: &Tensor) -> Option<&Halves> {
        tensor.buffer.0.downcast_ref()
    }

    fn rows(&self) -> [usize; 2] {
        [0, 1].map(|index: usize| self.halves[index].ty.shape[1])
    }
}

/// Types of both halves of a weight; `None` where it is no matrix, or too small.
fn halves(ty: &TensorType) -> Option<[TensorType; 2]> {
    let [columns, rows, n2, n3] = ty.shape.sizes();
    let upper = rows.div_ceil(2).next_multiple_of(ROWS_UNIT);
    let is_matrix = ty.shape.is_dense() && n2 * n3 == 1 && columns > 0 && rows > upper;
    is_matrix.then(|| [upper, rows - upper].map(|rows| TensorType::new(ty.dtype, &[columns, rows])))
}

impl Device for Pair {
    fn about(&self) -> About {
        let [first, second] = [0, 1].map(|index: usize| self.devices[index].about());
        let number = second.name.rsplit_once(':').map_or(second.name.as_str(), |(_, number)| number);
        let name = if first.name.contains(':') { first.name } else { format!("{}:0", first.name) };
        let memory = first.memory.zip(second.memory);
        About {
            name: format!("{name}+{number}"),
            description: format!("{}; {}", first.description, second.description),
            simulated: first.simulated,
            memory: memory.map(|((all, free), (more, more_free))| (all + more, free + more_free)),
            batch_invariant: first.batch_invariant && second.batch_invariant,
        }
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        self.first().supports(op, inputs, output)
    }

    fn scratch_bytes(&self, op: &Op, inputs: &[TensorType]) -> super::Rooms {
        self.first().scratch_bytes(op, inputs)
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let Some(types) = halves(ty).filter(|_| usage == Usage::Weight) else { return self.first().alloc(ty, usage) };
        let half = |index: usize| {
            let buffer = self.devices[index].alloc(&types[index], usage)?;
            Ok::<Tensor, Error>(Tensor { buffer, offset_bytes: 0, ty: types[index] })
        };
        Ok(Buffer(Arc::new(Halves { ty: *ty, halves: [half(0)?, half(1)?], whole: OnceLock::new() })))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        let Some(halves) = Halves::of(target) else { return self.first().upload(source, target) };
        if source.len() != halves.ty.bytes() {
            let problem =
                format!("{} has {} bytes, not {}; pass the whole tensor", halves.ty, halves.ty.bytes(), source.len());
            return Err(Error::Device { device: self.about().name, problem });
        }
        if let Some(whole) = halves.whole.get() {
            self.first().upload(source, whole)?;
        }
        let (upper, lower) = source.split_at(halves.halves[0].ty.bytes());
        let parts = self.devices.iter().zip(&halves.halves).zip([upper, lower]);
        parts.into_iter().try_for_each(|((device, half), source)| device.upload(source, half))
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        match Halves::of(source) {
            Some(halves) if source.ty == halves.ty && target.len() == halves.ty.bytes() => {
                self.download_halves(halves, target)
            }
            Some(_) => self.first().download(&self.on_first(source)?, target),
            None => self.first().download(source, target),
        }
    }

    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        match Halves::of(target) {
            Some(_) => super::through_host(source, from, &mut |bytes| self.upload(bytes, target)),
            None => self.first().copy(source, from, target),
        }
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        let reads_halves = |step: &Step| step.inputs.iter().any(|input| Halves::of(input).is_some());
        // What lies between products goes to the first device as it is.
        steps.chunk_by(|one, next| !reads_halves(one) && !reads_halves(next)).try_for_each(|steps| match steps {
            [step] if reads_halves(step) => self.compute(step),
            steps => self.first().execute(steps),
        })
    }

    fn sync(&self) -> Result<()> {
        self.devices.iter().try_for_each(|device| device.sync())
    }
}
