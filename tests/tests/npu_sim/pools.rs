//! Room that compositions compute in, against a model: casts of many sizes, asked for in drawn orders while the card
//! has computed none yet, and tensors that are freed while work on them is queued. The model is what each cast gives by
//! itself.

use crate::peer::downloaded;
use trueup::blocks::DType;
use trueup::graph::TensorType;
use trueup::graph::op::Cast;
use trueup::runtime::HostTensor;
use trueup::runtime::device::ascend::{Ascend, AscendOptions, Chip, Place};
use trueup::runtime::device::reference::evaluate;
use trueup::runtime::device::{Device, Step, Tensor, Usage};
use trueup_tests::fuzz::random::Random;

/// The parts, their chips, of which one has virtual memory and one room of cached buffers, and when work is done.
pub const POOLS: [(&str, &str, &str); 2] = [("pools 910b", "910b", "late"), ("pools 310b", "310b", "random")];

/// Bytes of memory of the card: few, so that it is full at times.
const MEMORY_BYTES: u64 = 20 << 20;

/// What is asked for.
const MOVES: usize = 200;

/// Most rows of 32 elements.
const ROWS_MAX: usize = 1 << 14;

/// Tensors at a time.
const HELD_MAX: usize = 40;

/// What is not right.
pub fn pools(chip: &str, timing: &str, seed: u64) -> Vec<String> {
    let chip = Chip::from_name(chip).expect("a chip that is known");
    let wrong: Vec<String> = moves(chip, timing, seed).err().into_iter().collect();
    println!("npu-sim, simulated, {}: room in drawn orders, {} wrong", chip.name, wrong.len());
    wrong
}

/// What CANN answers where there is no memory.
const NO_MEMORY: &str = "207018";

/// A cast that was asked for, and what it gives.
struct Asked {
    name: String,
    /// Stays as long as the card may read it.
    _x: Tensor,
    output: Tensor,
    expected: Vec<u8>,
}

fn moves(chip: &'static Chip, timing: &str, seed: u64) -> Result<(), String> {
    let place = Place::Simulated {
        chip,
        cards: 1,
        card: 0,
        memory_bytes: MEMORY_BYTES,
        more: format!("\"timing\": \"{timing}\", \"seed\": {seed}"),
    };
    let device = Ascend::new(&AscendOptions { place }).map_err(|error| error.to_string())?;
    let mut random = Random::named(seed, timing);
    let (mut held, mut full): (Vec<Asked>, usize) = (Vec::new(), 0);
    for _ in 0..MOVES {
        let mut ends = held.len() == HELD_MAX || !held.is_empty() && random.once_in(3);
        if !ends {
            match ask(&device, &mut random)? {
                Some(asked) => held.push(asked),
                None if held.is_empty() => return Err("there is no memory though nothing is held".to_owned()),
                None => (ends, full) = (true, full + 1),
            }
        }
        if !ends {
            continue;
        }
        let asked = held.swap_remove(random.below(held.len()));
        // Some are freed unseen: the card may still compute them.
        if random.once_in(2) {
            compare(&device, &asked)?;
        }
    }
    held.iter().try_for_each(|asked| compare(&device, asked))?;
    if full == 0 { Err("memory was never full".to_owned()) } else { Ok(()) }
}

/// Asks, twice in a list of steps, for a cast of drawn numbers to a type that the chip has; `None` where there is no
/// memory.
fn ask(device: &Ascend, random: &mut Random) -> Result<Option<Asked>, String> {
    let most = ROWS_MAX >> random.below(5);
    let rows = 1 + random.below(most);
    let x: Vec<u8> = (0..32 * rows).flat_map(|_| (random.below(4001) as f32 / 16.0 - 125.0).to_le_bytes()).collect();
    let ty = TensorType::new(DType::F32, &[32, rows]);
    let drawn = *random.pick(&[DType::Q8_0, DType::Q4_0, DType::F16]);
    let is_had =
        |to: &DType| device.supports(&Cast { to: *to }.into(), &[ty], &TensorType::new(*to, &[32, rows])).is_ok();
    let to = Some(drawn).filter(is_had).unwrap_or(DType::F16);
    let op = Cast { to }.into();
    let expected = evaluate(&op, &[&HostTensor::stored(ty, x.clone())]).map_err(|error| error.to_string())?;
    let name = format!("{ty} as {to}");
    let had = |ty: TensorType| device.alloc(&ty, Usage::State).map(|buffer| Tensor { buffer, offset_bytes: 0, ty });
    let (Ok(x_there), Ok(output)) = (had(ty), had(TensorType::new(to, &[32, rows]))) else { return Ok(None) };
    let step = Step { node: 0, op, inputs: vec![x_there.clone()], output: output.clone() };
    let done = device.upload(&x, &x_there).and_then(|()| device.execute(&[step.clone(), step]));
    match done {
        Ok(()) => Ok(Some(Asked { name, _x: x_there, output, expected: expected.to_bytes().into_owned() })),
        Err(error) if error.to_string().contains(NO_MEMORY) => Ok(None),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn compare(device: &Ascend, asked: &Asked) -> Result<(), String> {
    let is_equal = downloaded(device, &asked.output) == asked.expected;
    if is_equal { Ok(()) } else { Err(format!("{} is wrong among others", asked.name)) }
}
