//! Steps that come again are one launch: with the bits of launches one by one, for as long as their buffers live, and
//! with indices still told.

use crate::generations::CAPABILITY;
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType::{F32, I32};
use trueup::graph::op::{Rank, RankRule};
use trueup::graph::{Op, Shape, Strides, TensorType};
use trueup::runtime::device::cuda::{Cuda, CudaOptions, Launched};
use trueup::runtime::device::{Decorator, Device, Step, Tensor, Usage};
use trueup::runtime::{Entry, Error, ModelFile, Session, SessionOptions, Weights};

/// Tokens of a sequence, which stays within one unit of the cache.
const TOKENS: u32 = 12;

/// What is not right about a model, and about steps that were made by hand.
pub fn replay(model: &Path, card: &CudaOptions) -> Vec<String> {
    let open = || Arc::new(Cuda::new(card).unwrap_or_else(|error| panic!("{error}")));
    let wrong: Vec<String> = [decode(model, &open()), outside(&open()), room_lost(&open()), told_to_both(&open())]
        .into_iter()
        .flatten()
        .collect();
    println!("cuda-sim, simulated: steps replayed, {} wrong", wrong.len());
    wrong
}

/// The device, asked for one step at a time: too little for a graph.
struct OneByOne(Arc<Cuda>);

impl Decorator for OneByOne {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn execute(&self, steps: &[Step]) -> Result<(), Error> {
        steps.iter().try_for_each(|step| self.0.execute(std::slice::from_ref(step)))
    }
}

/// The logits behind each token of a sequence.
fn logits(model: &Path, device: Arc<dyn Device>) -> Result<Vec<Vec<f64>>, Error> {
    let model = Arc::new(ModelFile::open(model)?);
    let mut session = Session::new(Arc::new(Weights::new(model, device, None)), &SessionOptions::default())?;
    let entry = |token| Entry { token, sequence: 0, wants_logits: true };
    (1..=TOKENS).map(|token| session.compute(&[entry(token)], None).map(|logits| logits.row(0).to_vec())).collect()
}

/// What is not right where the card has no room for graphs: tokens are launched one by one then, and the device says
/// so.
pub fn without_graphs(model: &Path, card: &CudaOptions) -> Option<String> {
    let device = Arc::new(Cuda::new(card).unwrap_or_else(|error| panic!("{error}")));
    let run = || -> Result<Option<String>, Error> {
        let expected = logits(model, Arc::new(OneByOne(Arc::clone(&device))))?;
        let said = device.about().description;
        if logits(model, Arc::clone(&device) as Arc<dyn Device>)? != expected {
            return Ok(Some("launches have other bits than single steps".to_owned()));
        }
        let (now, graphs) = (device.about().description, device.launched().graphs);
        let added = now.strip_prefix(&said).unwrap_or(&now);
        let right = graphs == 0 && added.contains("launched without a CUDA graph: CUDA_ERROR_OUT_OF_MEMORY");
        Ok((!right).then(|| format!("{graphs} graphs were launched, and the device says: {now}")))
    };
    run().unwrap_or_else(|error| Some(format!("without graphs: {error}")))
}

fn decode(model: &Path, device: &Arc<Cuda>) -> Option<String> {
    let run = || -> Result<Option<String>, Error> {
        let expected = logits(model, Arc::new(OneByOne(Arc::clone(device))))?;
        let plain = device.launched();
        // The second session's buffers are not the first one's.
        for session in 1..=2 {
            let before = device.launched();
            if logits(model, Arc::clone(device) as Arc<dyn Device>)? != expected {
                return Ok(Some(format!("replayed steps of session {session} have other bits than single ones")));
            }
            let after = device.launched();
            let found = Launched {
                kernels: after.kernels - before.kernels,
                early: after.early - before.early,
                graphs: after.graphs - before.graphs,
            };
            let per_token = plain.kernels / u64::from(TOKENS);
            // Neighbouring steps of the first token are one launch, all of each later one.
            if found.kernels == 0 || found.kernels >= per_token || found.graphs != u64::from(TOKENS) - 1 {
                return Ok(Some(format!("{per_token} kernels a token and {TOKENS} tokens were launched as {found:?}")));
            }
            // Other cards than the simulator's default are older here.
            let early = if std::env::var_os(CAPABILITY).is_some() { 0 } else { found.kernels };
            if found.early != early {
                return Ok(Some(format!("of {} kernels, {} and not {early} begin early", found.kernels, found.early)));
            }
        }
        Ok(None)
    };
    run().unwrap_or_else(|error| Some(error.to_string()))
}

fn tensor(device: &Cuda, ty: TensorType) -> Result<Tensor, Error> {
    Ok(Tensor { buffer: device.alloc(&ty, Usage::Input)?, offset_bytes: 0, ty })
}

/// A list of steps that reads rows of a table: twice right ones, then one that is not there, then right ones again.
fn outside(device: &Cuda) -> Option<String> {
    let run = || -> Result<Option<String>, Error> {
        let table = tensor(device, TensorType::new(F32, &[4, 3]))?;
        let index = tensor(device, TensorType::new(I32, &[2]))?;
        let numbers: Vec<u8> = (0..12).flat_map(|number| (number as f32).to_le_bytes()).collect();
        device.upload(&numbers, &table)?;
        let output = tensor(device, TensorType::new(F32, &[4, 2]))?;
        let op = Op::get_rows(F32);
        let step = Step { node: 0, op, inputs: vec![table, index.clone()], output: output.clone() };
        let steps = vec![step; 20];
        for (round, rows) in [[2, 0], [0, 1], [1, 3], [1, 2]].into_iter().enumerate() {
            device.upload(&rows.map(i32::to_le_bytes).concat(), &index)?;
            device.execute(&steps)?;
            let mut found = vec![0; output.ty.bytes()];
            let downloaded = device.download(&output, &mut found).map_err(|error| error.to_string());
            let expected = rows.map(|row| numbers.chunks(16).nth(row as usize)).into_iter().collect::<Option<Vec<_>>>();
            let right = match (&downloaded, expected) {
                (Ok(()), Some(expected)) => found == expected.concat(),
                (Err(problem), None) => problem.contains("get_rows: index 3 must be at least 0 and below 3"),
                _ => false,
            };
            if !right {
                return Ok(Some(format!("rows {rows:?} in round {round}: {downloaded:?}")));
            }
        }
        let found = device.launched();
        Ok(((found.kernels, found.graphs) != (20, 3)).then(|| format!("4 times 20 rows are {found:?}")))
    };
    run().unwrap_or_else(|error| Some(error.to_string()))
}

/// Steps that became a graph, and behind them some that the card has no room to compute in: what room there was is
/// given back first, and the graph, which computes in it, is forgotten.
fn room_lost(device: &Cuda) -> Option<String> {
    let run = || -> Result<Option<String>, Error> {
        let x = tensor(device, TensorType::new(F32, &[1 << 10]))?;
        let numbers = (0..1 << 10).map(|i| i * 7919 % 1021);
        device.upload(&numbers.clone().flat_map(|number| (number as f32).to_le_bytes()).collect::<Vec<u8>>(), &x)?;
        let mut order: Vec<i32> = (0..1 << 10).collect();
        order.sort_by_key(|i| i * 7919 % 1021);
        let expected: Vec<u8> = order.into_iter().flat_map(i32::to_le_bytes).collect();
        let sorted = tensor(device, TensorType::new(I32, &[1 << 10]))?;
        let sort = step(Rank { rule: RankRule::Ascending }.into(), &x, &sorted);
        // As many rows as would fill the card, all of which lie in one place.
        let rows = 1 << 21;
        let strides = Strides { offset: 0, steps: [1, 0, 0, 0] };
        let many = TensorType { shape: Shape::new(&[1 << 10, rows]).seen_by(strides), ..x.ty };
        let largest = tensor(device, TensorType::new(I32, &[1, rows]))?;
        let too_many = step(Rank { rule: RankRule::TopK { k: 1 } }.into(), &Tensor { ty: many, ..x.clone() }, &largest);
        for round in 0..5 {
            if round == 2 {
                let problem = device.execute(std::slice::from_ref(&too_many)).map_err(|error| error.to_string());
                if !problem.as_ref().is_err_and(|problem| problem.contains("bytes of scratch memory")) {
                    return Ok(Some(format!("sorted without room: {problem:?}")));
                }
            }
            device.execute(std::slice::from_ref(&sort))?;
            let mut found = vec![0; sorted.ty.bytes()];
            device.download(&sorted, &mut found)?;
            if found != expected {
                return Ok(Some(format!("round {round} is sorted otherwise")));
            }
        }
        let graphs = device.launched().graphs;
        // The second time, and the second time behind what failed and the one after it.
        Ok((graphs != 3).then(|| format!("{graphs} graphs around a step without room")))
    };
    run().unwrap_or_else(|error| Some(error.to_string()))
}

fn step(op: Op, x: &Tensor, output: &Tensor) -> Step {
    Step { node: 0, op, inputs: vec![x.clone()], output: output.clone() }
}

/// Two threads with steps of their own on one card, of which one reads a row that is not there: both are told when they
/// look, and only once.
fn told_to_both(device: &Arc<Cuda>) -> Option<String> {
    let look = |row: i32| -> Result<_, Error> {
        let table = tensor(device, TensorType::new(F32, &[4, 3]))?;
        let index = tensor(device, TensorType::new(I32, &[1]))?;
        device.upload(&[0; 48], &table)?;
        device.upload(&row.to_le_bytes(), &index)?;
        let output = tensor(device, TensorType::new(F32, &[4, 1]))?;
        let step = Step { node: 0, op: Op::get_rows(F32), inputs: vec![table, index], output: output.clone() };
        device.execute(&[step])?;
        Ok(move || device.download(&output, &mut [0; 16]).map_err(|error| error.to_string()))
    };
    let run = || -> Result<Option<String>, Error> {
        let wrong = look(7)?;
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| look(1).map(|right| [right(), right()]));
            other.join().expect("a thread that looks twice")
        })?;
        let own = [wrong(), wrong()];
        let is_told = |found: &[Result<(), String>; 2]| {
            found[0].as_ref().is_err_and(|problem| problem.contains("index 7 must be at least 0 and below 3"))
                && found[1].is_ok()
        };
        Ok((!is_told(&own) || !is_told(&other)).then(|| format!("the one is told {own:?}, the other {other:?}")))
    };
    run().unwrap_or_else(|error| Some(error.to_string()))
}
