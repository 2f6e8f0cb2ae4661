//! Tensor parallelism on two devices: each stores half of the rows of every weight matrix. The first device computes
//! the rest.
//!
//! ```text
//!   first     x ──────────────▶ upper rows x ─▶ y₀ ─┐
//!             │ copied                              ├─▶ y₀ y₁ ─▶ y, by tokens
//!   second    └─▶ x ──────────▶ lower rows x ─▶ y₁ ─┘ gathered, or copied back
//! ```
//!
//! Contiguous halves of equal size are gathered if the devices support it ([`Device::gather`]); the pair tries this
//! when it is created. Other halves are copied. The gathered result of a single token is already in place. Results of
//! several tokens are assembled token by token.
//!
//! The sum of a row is computed on one device, so results have the bits of a single device. A matrix that is not only
//! multiplied, such as an embedding, is copied to the first device as a whole on first use. A pair of pairs uses four
//! devices.

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
    /// What gathers halves; `None` where they are copied, with the problem if there is one.
    gathered_by: std::result::Result<Option<String>, String>,
    /// Held by one product at a time.
    rooms: Mutex<Rooms>,
}

/// Where halves of products lie on each device, with the bytes of the room.
type Rooms = [Option<(usize, Buffer)>; 2];

/// Where the parts of a product lie.
struct Places {
    /// What is multiplied, on the second device.
    x: Tensor,
    /// Both halves on the first device.
    upper: Tensor,
    lower: Tensor,
    /// The lower one on the second device.
    computed: Tensor,
    /// On each device the bytes of both, where they are gathered.
    wholes: Option<[Tensor; 2]>,
    /// Whether the halves lie in the result itself.
    in_place: bool,
}

/// A weight matrix whose rows two devices share.
struct Halves {
    ty: TensorType,
    halves: [Tensor; 2],
    whole: OnceLock<Tensor>,
}

impl Pair {
    /// Two devices of one kind, which compute with the same bits.
    pub fn new(first: Arc<dyn Device>, second: Arc<dyn Device>) -> Pair {
        let gathered_by = try_to_gather([&*first, &*second]).map_err(|error| error.to_string());
        Pair { devices: [first, second], gathered_by, rooms: Mutex::default() }
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
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.places(&mut rooms, step, types, x.ty)?;
        self.devices[1].copy(x, self.first(), &places.x)?;
        for (index, (x, output)) in [(x, &places.upper), (&places.x, &places.computed)].into_iter().enumerate() {
            let weights = weights.iter().map(|weight| weight.halves[index].clone());
            let inputs = weights.chain([x.clone()]).collect();
            let half = Step { node: step.node, op: step.op.clone(), inputs, output: output.clone() };
            self.devices[index].execute(&[half])?;
        }
        self.join(step, places)
    }

    /// Brings the lower half to the first device, and both into the order of the result.
    fn join(&self, step: &Step, places: Places) -> Result<()> {
        let Places { upper, lower, computed, wholes, in_place, .. } = places;
        let gathered = match &wholes {
            Some([ours, theirs]) => self.first().gather(ours, theirs)?.is_some(),
            None => false,
        };
        if !gathered {
            self.first().copy(&computed, &*self.devices[1], &lower)?;
        }
        if in_place {
            return Ok(());
        }
        let op = Concat { dimension: 0 }.into();
        self.first().execute(&[Step { node: step.node, op, inputs: vec![upper, lower], output: step.output.clone() }])
    }

    /// Where the halves of a product go, whose types these are.
    fn places(&self, rooms: &mut Rooms, step: &Step, types: [TensorType; 2], x: TensorType) -> Result<Places> {
        let half_bytes = types[0].bytes();
        let has_no_gap = types[0] == types[1] && half_bytes.is_multiple_of(ALIGN_BYTES);
        if !has_no_gap || !matches!(self.gathered_by, Ok(Some(_))) {
            let ([upper, lower], [x, computed]) = (self.room(rooms, 0, types)?, self.room(rooms, 1, [x, types[1]])?);
            return Ok(Places { x, upper, lower, computed, wholes: None, in_place: false });
        }
        let in_place = step.output.ty.shape.sizes()[1..] == [1; 3];
        let [upper, lower] = if in_place {
            [0, half_bytes].map(|first| part(&step.output, types[0], first))
        } else {
            self.room(rooms, 0, types)?
        };
        let both = TensorType::new(DType::I8, &[2 * half_bytes]);
        let [x, whole] = self.room(rooms, 1, [x, both])?;
        let computed = part(&whole, types[1], half_bytes);
        let wholes = Some([part(&upper, both, 0), whole]);
        Ok(Places { x, upper, lower, computed, wholes, in_place })
    }

    /// Room on a device for two tensors, which hold anything.
    fn room(&self, rooms: &mut Rooms, index: usize, types: [TensorType; 2]) -> Result<[Tensor; 2]> {
        let [one, other] = types;
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
        Ok([(one, 0), (other, second_at)].map(tensor))
    }
}

/// A tensor that begins so many bytes behind another's first.
fn part(tensor: &Tensor, ty: TensorType, first: usize) -> Tensor {
    Tensor { buffer: tensor.buffer.clone(), offset_bytes: tensor.offset_bytes + first, ty }
}

/// What gathers halves on these devices, if something does: it is set up by this, and must bring the bytes that are
/// there.
fn try_to_gather([first, second]: [&dyn Device; 2]) -> Result<Option<String>> {
    let ty = TensorType::new(DType::I8, &[2 * ALIGN_BYTES]);
    let expected: Vec<u8> = (0..ty.bytes()).map(|place| (place % 251) as u8).collect();
    let (upper, lower) = expected.split_at(ALIGN_BYTES);
    let zeros = [0; ALIGN_BYTES];
    let tensors = [(first, [upper, &zeros]), (second, [&zeros, lower])].map(|(device, halves)| {
        let tensor = Tensor { buffer: device.alloc(&ty, Usage::Arena)?, offset_bytes: 0, ty };
        device.upload(&halves.concat(), &tensor).map(|()| tensor)
    });
    let [ours, theirs] = tensors;
    let (ours, theirs) = (ours?, theirs?);
    let Some(name) = first.gather(&ours, &theirs)? else { return Ok(None) };
    for (device, tensor) in [(first, ours), (second, theirs)] {
        let mut found = vec![0; ty.bytes()];
        device.download(&tensor, &mut found)?;
        if found != expected {
            let problem = format!("{name} does not gather the bytes that are there");
            return Err(Error::Device { device: device.name(), problem });
        }
    }
    Ok(Some(name.to_owned()))
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
    fn name(&self) -> String {
        let [first, second] = [0, 1].map(|index: usize| self.devices[index].name());
        let number = second.rsplit_once(':').map_or(second.as_str(), |(_, number)| number);
        let first = if first.contains(':') { first } else { format!("{first}:0") };
        format!("{first}+{number}")
    }

    fn about(&self) -> About {
        let [first, second] = [0, 1].map(|index: usize| self.devices[index].about());
        let memory = first.memory.zip(second.memory);
        let joined = match &self.gathered_by {
            Ok(Some(name)) => format!("; gathered by {name}"),
            Ok(None) => "; shards are copied between cards".to_owned(),
            Err(problem) => format!("; shards are copied between cards, because they cannot be gathered: {problem}"),
        };
        About {
            name: self.name(),
            description: format!("{}; {}{joined}; memory of each", first.description, second.description),
            simulated: first.simulated,
            // Of each: what a plan counts is what the first one takes, and the second takes less.
            memory: memory.map(|((all, free), (other, other_free))| (all.min(other), free.min(other_free))),
            memory_limit: None,
            batch_invariant: first.batch_invariant && second.batch_invariant,
        }
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        self.first().supports(op, inputs, output)
    }

    /// Those of the first device, which takes more than the second; both halves of a product lie in a room of their own
    /// there.
    fn scratch_bytes(&self, op: &Op, inputs: &[TensorType]) -> super::Rooms {
        let mut rooms = self.first().scratch_bytes(op, inputs);
        let is_divided =
            matches!(op, Op::MulMat(_) | Op::MulMatGated(_)) && inputs.first().is_some_and(|w| halves(w).is_some());
        if let (true, Ok(output)) = (is_divided, op.infer(inputs)) {
            rooms[0] += output.bytes() + 2 * ALIGN_BYTES;
        }
        rooms
    }

    fn weight_bytes(&self, ty: &TensorType, is_multiplied: bool) -> u64 {
        let whole = || self.first().weight_bytes(ty, is_multiplied);
        match halves(ty) {
            Some([upper, _]) => self.first().weight_bytes(&upper, true) + if is_multiplied { 0 } else { whole() },
            None => whole(),
        }
    }

    fn taken_bytes(&self, bytes: u64) -> u64 {
        self.first().taken_bytes(bytes)
    }

    fn weight_type(&self, dtype: DType) -> DType {
        self.first().weight_type(dtype)
    }

    fn scratch_held(&self) -> super::Rooms {
        let mut held = self.first().scratch_held();
        let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        held[0] += rooms[0].as_ref().map_or(0, |(bytes, _)| *bytes);
        held
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
            return Err(Error::Device { device: self.name(), problem });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Decorator;
    use crate::devices::{DeviceOptions, open_device};
    use trueup_graph::op::MulMat;

    /// A device that says that it gathers, and does nothing, or fails.
    struct Gathers(Arc<dyn Device>, bool);

    impl Decorator for Gathers {
        fn device(&self) -> &dyn Device {
            &*self.0
        }

        fn gather(&self, _ours: &Tensor, _theirs: &Tensor) -> Result<Option<&str>> {
            let fails = || Error::Device { device: "one".to_owned(), problem: "no way".to_owned() };
            self.1.then_some(Some("none")).ok_or_else(fails)
        }
    }

    #[test]
    fn devices_that_cannot_gather_copy_and_say_why() {
        let open = || open_device("ref", &DeviceOptions::default()).unwrap();
        for (succeeds, words) in [(true, "none does not gather the bytes that are there"), (false, "no way")] {
            let pair = Pair::new(Arc::new(Gathers(open(), succeeds)), open());
            let description = pair.about().description;
            assert!(
                description.contains("because they cannot be gathered") && description.contains(words),
                "{description}"
            );
            // A matrix of ones, and a token of twos.
            let tensor = |sizes: &[usize], usage, value: f32| {
                let ty = TensorType::new(DType::F32, sizes);
                let tensor = Tensor { buffer: pair.alloc(&ty, usage).unwrap(), offset_bytes: 0, ty };
                pair.upload(&value.to_le_bytes().repeat(ty.shape.elements()), &tensor).unwrap();
                tensor
            };
            let output = tensor(&[128, 1], Usage::Input, 0.0);
            let inputs = vec![tensor(&[32, 128], Usage::Weight, 1.0), tensor(&[32, 1], Usage::Input, 2.0)];
            pair.execute(&[Step { node: 0, op: MulMat.into(), inputs, output: output.clone() }]).unwrap();
            let mut bytes = vec![0; output.ty.bytes()];
            pair.download(&output, &mut bytes).unwrap();
            assert_eq!(bytes, 64.0f32.to_le_bytes().repeat(128));
        }
    }
}
