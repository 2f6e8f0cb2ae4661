//! Steps that come again are one graph: with the bits of operators asked for one by one, for as long as its buffers
//! live, and only where inputs fit what it was made of.

use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType::{F32, I32};
use trueup::graph::op::{Arrange, MulMat, Rope, RopePairs, RopeScaling, SetRows, Unary};
use trueup::graph::{Op, Shape, TensorType};
use trueup::runtime::device::ascend::{Ascend, Launched};
use trueup::runtime::device::{Decorator, Device, Step, Tensor, Usage};
use trueup::runtime::{Entry, Error, ModelFile, Session, SessionOptions, Weights};

/// Tokens of sequences: within one unit of the cache, for which there is one plan, and beyond it.
const TOKENS: [u64; 2] = [20, 70];

/// Positions of a unit of the cache.
const UNIT: u64 = 64;

/// The device, asked for one step at a time: too little for a graph.
struct OneByOne(Arc<Ascend>);

impl Decorator for OneByOne {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn execute(&self, steps: &[Step]) -> Result<(), Error> {
        steps.iter().try_for_each(|step| self.0.execute(std::slice::from_ref(step)))
    }
}

/// What is tried on tensors of its own: what is not right.
type ByHand = fn(&Arc<Ascend>) -> Result<Option<String>, Error>;

/// What is not right about a model of which each token but the first is expected to be a graph where `captures` says
/// so, and about steps made by hand.
pub fn replay(name: &str, model: &Path, device: &Arc<Ascend>, captures: bool) -> Vec<String> {
    let one = |work: &dyn Fn() -> Result<Option<String>, Error>| work().unwrap_or_else(|error| Some(error.to_string()));
    if let (false, Err(problem)) = (captures, session(model, Arc::clone(device) as Arc<dyn Device>, 1))
        && problem.to_string().contains("cannot compute")
    {
        println!("npu-sim, simulated, {name}: needs a second device, not replayed: {problem}");
        return Vec::new();
    }
    let mut wrong: Vec<String> =
        TOKENS.iter().filter_map(|tokens| one(&|| decode(name, model, device, *tokens, captures))).collect();
    wrong.extend(one(&|| sequences(model, device)));
    if captures {
        let by_hand: [ByHand; 6] = [rows, stored, angles, freed, no_memory, results];
        wrong.extend(by_hand.into_iter().filter_map(|work| one(&|| work(device))));
    }
    println!("npu-sim, simulated, {name}: steps replayed, {} wrong", wrong.len());
    wrong
}

fn since(device: &Ascend, before: Launched) -> Launched {
    let after = device.launched();
    Launched { operators: after.operators - before.operators, graphs: after.graphs - before.graphs }
}

fn session(model: &Path, device: Arc<dyn Device>, sequences: usize) -> Result<Session, Error> {
    let options = SessionOptions { context: Some(2 * UNIT as usize), sequences, ..SessionOptions::default() };
    Session::new(Arc::new(Weights::new(Arc::new(ModelFile::open(model)?), device, None)), &options)
}

/// How many of these tokens, computed one by one, are a graph that was made before; `None` if the text is computed
/// again at a length between.
fn graphs(model: &Path, device: &Arc<Ascend>, tokens: u64) -> Result<Option<u64>, Error> {
    let file = Arc::new(ModelFile::open(model)?);
    let spec = file.model().spec();
    if spec.original_context().is_some_and(|length| (length as u64) < tokens) {
        return Ok(None);
    }
    // A sequence that starts reads its recurrent state from slot 0, later tokens from the sequence's slot.
    let plans = if spec.has_kv_cache() { tokens.div_ceil(UNIT) } else { 2 };
    let weights = Weights::new(Arc::clone(&file), Arc::clone(device) as Arc<dyn Device>, None);
    let plan = Session::plan(&weights, &SessionOptions::default(), 1, 1, 1)?;
    // The host looks at the experts that the card chose.
    let is_looked_at = plan.graph().nodes().iter().any(|node| matches!(node.op, Op::MulMatId(_)));
    Ok(Some(if is_looked_at { 0 } else { tokens - plans }))
}

/// The logits behind each token of a sequence.
fn logits(session: &mut Session, tokens: u64) -> Result<Vec<Vec<f64>>, Error> {
    let entry = |token| Entry { token: token as u32, sequence: 0, wants_logits: true };
    (1..=tokens).map(|token| session.compute(&[entry(token)], None).map(|logits| logits.row(0).to_vec())).collect()
}

fn decode(
    name: &str,
    model: &Path,
    device: &Arc<Ascend>,
    tokens: u64,
    captures: bool,
) -> Result<Option<String>, Error> {
    let before = device.launched();
    let expected = logits(&mut session(model, Arc::new(OneByOne(Arc::clone(device))), 1)?, tokens)?;
    let plain = since(device, before);
    let per_token = plain.operators / tokens;
    let Some(graphs) = graphs(model, device, tokens)? else { return Ok(None) };
    let graphs = if captures { graphs } else { 0 };
    let wanted = Launched { operators: per_token * (tokens - graphs), graphs };
    // The second session's buffers are not the first one's.
    for number in 1..=2 {
        let before = device.launched();
        if logits(&mut session(model, Arc::clone(device) as Arc<dyn Device>, 1)?, tokens)? != expected {
            return Ok(Some(format!("replayed steps of session {number} have other bits than single ones")));
        }
        let found = since(device, before);
        if number == 1 {
            println!(
                "npu-sim, simulated, {name}: {tokens} tokens by {per_token} operators each, with graphs {found:?}"
            );
        }
        if found != wanted || plain.graphs != 0 {
            return Ok(Some(format!("{tokens} tokens were asked for as {found:?}, not {wanted:?}")));
        }
    }
    Ok(None)
}

/// Tokens of two sequences in an order that changes: attention is composed for each.
fn sequences(model: &Path, device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let orders = [[0, 1], [0, 1], [1, 0], [0, 1], [1, 0], [1, 0], [0, 1]];
    let run = |device: Arc<dyn Device>| -> Result<Vec<Vec<f64>>, Error> {
        let mut session = session(model, device, 2)?;
        let mut all = Vec::new();
        for (token, order) in orders.iter().enumerate() {
            let entry = |sequence| Entry { token: (1 + token + sequence) as u32, sequence, wants_logits: true };
            let found = session.compute(&order.map(entry), None)?;
            all.extend([0, 1].map(|row| found.row(row).to_vec()));
        }
        Ok(all)
    };
    let expected = run(Arc::new(OneByOne(Arc::clone(device))))?;
    let found = run(Arc::clone(device) as Arc<dyn Device>)?;
    Ok((found != expected).then(|| "sequences that change their order have other bits than single steps".to_owned()))
}

fn tensor(device: &Ascend, ty: TensorType) -> Result<Tensor, Error> {
    Ok(Tensor { buffer: device.alloc(&ty, Usage::Input)?, offset_bytes: 0, ty })
}

fn bytes(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}

fn downloaded(device: &Ascend, tensor: &Tensor) -> Result<Vec<u8>, Error> {
    let mut found = vec![0; tensor.ty.bytes()];
    device.download(tensor, &mut found)?;
    Ok(found)
}

/// So many steps are enough for a graph.
const STEPS: usize = 20;

/// Rows of a table by indices that change: three times right ones, then one that is not there, then right ones again.
fn rows(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let (table, index) = (tensor(device, TensorType::new(F32, &[8, 3]))?, tensor(device, TensorType::new(I32, &[2]))?);
    let output = tensor(device, TensorType::new(F32, &[8, 2]))?;
    let numbers = bytes((0..24).map(|number| number as f32));
    device.upload(&numbers, &table)?;
    let steps = vec![
        Step { node: 7, op: Op::get_rows(F32), inputs: vec![table, index.clone()], output: output.clone() };
        STEPS
    ];
    let before = device.launched();
    for (round, rows) in [[2, 0], [0, 1], [2, 2], [1, 3], [1, 2]].into_iter().enumerate() {
        device.upload(&rows.map(i32::to_le_bytes).concat(), &index)?;
        let done = device.execute(&steps).map_err(|error| error.to_string());
        let expected = rows.map(|row| numbers.chunks(32).nth(row as usize)).into_iter().collect::<Option<Vec<_>>>();
        let right = match (&done, expected) {
            (Ok(()), Some(expected)) => downloaded(device, &output)? == expected.concat(),
            (Err(problem), None) => problem.contains("index 3 is out of the range 0 to 2"),
            _ => false,
        };
        if !right {
            return Ok(Some(format!("rows {rows:?} in round {round}: {done:?}")));
        }
    }
    let found = since(device, before);
    let wanted = Launched { operators: STEPS as u64, graphs: 3 };
    Ok((found != wanted).then(|| format!("rows of five rounds are {found:?}, not {wanted:?}")))
}

/// Rows written at indices: where one comes twice the last stays, whatever a graph was made of.
fn stored(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let (old, new) = (tensor(device, TensorType::new(F32, &[8, 3]))?, tensor(device, TensorType::new(F32, &[8, 2]))?);
    let (index, output) = (tensor(device, TensorType::new(I32, &[2]))?, tensor(device, old.ty)?);
    device.upload(&bytes((0..24).map(|_| 0.0)), &old)?;
    device.upload(&bytes((0..16).map(|number| if number < 8 { 1.0 } else { 2.0 })), &new)?;
    let inputs = vec![old, new, index.clone()];
    let op = Op::from(SetRows);
    let steps = vec![Step { node: 7, op, inputs, output: output.clone() }; STEPS];
    let before = device.launched();
    for (round, rows) in [[0, 1], [1, 2], [1, 1], [2, 0], [1, 1], [2, 2]].into_iter().enumerate() {
        device.upload(&rows.map(i32::to_le_bytes).concat(), &index)?;
        device.execute(&steps)?;
        let value = |row: i32| (0..2).rev().find(|place| rows[*place] == row).map_or(0.0, |place| place as f32 + 1.0);
        if downloaded(device, &output)? != bytes((0..24).map(|i| value(i / 8))) {
            return Ok(Some(format!("rows stored at {rows:?} in round {round} are others")));
        }
    }
    let graphs = since(device, before).graphs;
    // The second and the fourth round fit the first; the fifth fits the third.
    Ok((graphs != 3).then(|| format!("rows stored in six rounds were {graphs} graphs")))
}

/// Two tensors rotated by positions of their own, which are equal at first, and others in each round.
fn angles(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let op =
        Op::from(Rope { pairs: RopePairs::Neighbours, dimensions: 16, base: 10_000.0, scaling: RopeScaling::None });
    let x = tensor(device, TensorType::new(F32, &[16, 2, 1]))?;
    device.upload(&bytes((0..32).map(|number| number as f32)), &x)?;
    let positions = [0, 1].map(|_| tensor(device, TensorType::new(I32, &[1])));
    let outputs = [0, 1].map(|_| tensor(device, x.ty));
    let (positions, outputs): (Vec<_>, Vec<_>) =
        (positions.into_iter().collect::<Result<_, _>>()?, outputs.into_iter().collect::<Result<_, _>>()?);
    let step = |i: usize| Step {
        node: i,
        op: op.clone(),
        inputs: vec![x.clone(), positions[i].clone()],
        output: outputs[i].clone(),
    };
    let steps: Vec<Step> = (0..STEPS).map(|number| step(number % 2)).collect();
    let before = device.launched();
    for round in [[5, 5], [5, 5], [6, 70_000], [0, 3]] {
        for (positions, position) in positions.iter().zip(round) {
            device.upload(&i32::to_le_bytes(position), positions)?;
        }
        device.execute(&steps)?;
        for (output, position) in outputs.iter().zip(round) {
            // One by one, in a place of its own.
            let (own, alone) = (tensor(device, TensorType::new(I32, &[1]))?, tensor(device, x.ty)?);
            device.upload(&i32::to_le_bytes(position), &own)?;
            let step = Step { node: 9, op: op.clone(), inputs: vec![x.clone(), own], output: alone.clone() };
            device.execute(std::slice::from_ref(&step))?;
            if downloaded(device, output)? != downloaded(device, &alone)? {
                return Ok(Some(format!("position {position} of {round:?} has the angles of another one")));
            }
        }
    }
    let graphs = since(device, before).graphs;
    Ok((graphs != 3).then(|| format!("four rounds of positions were {graphs} graphs")))
}

/// Steps around a buffer that no card has room for: what graphs keep is given back first.
fn no_memory(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let (x, output) = (tensor(device, TensorType::new(F32, &[64]))?, tensor(device, TensorType::new(F32, &[64]))?);
    let op = Op::from(Unary::Scale { factor: 2.0, bias: 0.0 });
    let steps = vec![Step { node: 7, op, inputs: vec![x.clone()], output: output.clone() }; STEPS];
    let before = device.launched();
    let mut first = Launched::default();
    for round in 0..4 {
        if round == 2 {
            let huge = device.alloc(&TensorType::new(F32, &[1 << 40]), Usage::Input);
            if !huge.as_ref().is_err_and(|error| error.to_string().contains("not enough memory for")) {
                return Ok(Some("there was room for more than the card has".to_owned()));
            }
        }
        device.upload(&bytes((0..64).map(|_| round as f32)), &x)?;
        device.execute(&steps)?;
        if downloaded(device, &output)? != bytes((0..64).map(|_| 2.0 * round as f32)) {
            return Ok(Some(format!("steps around a buffer without room are wrong in round {round}")));
        }
        if round == 0 {
            first = since(device, before);
        }
    }
    let found = since(device, before);
    let wanted = Launched { operators: 2 * first.operators, graphs: 2 };
    Ok((found != wanted).then(|| format!("around a buffer without room, steps are {found:?}, not {wanted:?}")))
}

/// Small products, and between two rounds of them a large one, which wants more room: on a device of its own, whose
/// room is small at first.
pub fn workspace(device: &Arc<Ascend>) -> Option<String> {
    let run = || -> Result<Option<String>, Error> {
        let product = |rows: usize| -> Result<Step, Error> {
            let [w, x, output] =
                [[32, rows], [32, 1], [rows, 1]].map(|sizes| tensor(device, TensorType::new(F32, &sizes)));
            let (w, x, output) = (w?, x?, output?);
            device.upload(&bytes((0..32 * rows).map(|_| 0.5)), &w)?;
            device.upload(&bytes((0..32).map(|_| 1.0)), &x)?;
            Ok(Step { node: 7, op: Op::from(MulMat), inputs: vec![w, x], output })
        };
        let (small, large) = (product(16)?, product(1 << 16)?);
        let steps = vec![small.clone(); STEPS];
        for round in 0..4 {
            device.execute(&steps)?;
            if round == 1 {
                device.execute(std::slice::from_ref(&large))?;
            }
            if downloaded(device, &small.output)? != bytes((0..16).map(|_| 16.0)) {
                return Ok(Some(format!("small products around a large one are wrong in round {round}")));
            }
        }
        let graphs = device.launched().graphs;
        Ok((graphs != 3).then(|| format!("four rounds of small products were {graphs} graphs")))
    };
    run().unwrap_or_else(|error| Some(error.to_string()))
}

/// Steps whose output's buffer goes, and comes anew: the graph of the old one is not run.
fn freed(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let x = tensor(device, TensorType::new(F32, &[64]))?;
    let before = device.launched();
    for round in 0..4 {
        let output = tensor(device, x.ty)?;
        let op = Op::from(Unary::Scale { factor: 2.0, bias: 0.0 });
        let steps = vec![Step { node: 7, op, inputs: vec![x.clone()], output: output.clone() }; STEPS];
        for time in 0..3 {
            let number = (3 * round + time) as f32;
            device.upload(&bytes((0..64).map(|_| number)), &x)?;
            device.execute(&steps)?;
            if downloaded(device, &output)? != bytes((0..64).map(|_| 2.0 * number)) {
                return Ok(Some(format!("a buffer that came anew is not written in round {round}")));
            }
        }
    }
    let graphs = since(device, before).graphs;
    Ok((graphs != 8).then(|| format!("four buffers, each used three times, were {graphs} graphs")))
}

/// Rows by indices that the card computed, which the host has to look at: never a graph.
fn results(device: &Arc<Ascend>) -> Result<Option<String>, Error> {
    let table = tensor(device, TensorType::new(F32, &[8, 3]))?;
    let (given, index) = (tensor(device, TensorType::new(I32, &[2]))?, tensor(device, TensorType::new(I32, &[2]))?);
    let output = tensor(device, TensorType::new(F32, &[8, 2]))?;
    let numbers = bytes((0..24).map(|number| number as f32));
    device.upload(&numbers, &table)?;
    let copied = Step {
        node: 6,
        op: Arrange::Repeat { shape: Shape::new(&[2]) }.into(),
        inputs: vec![given.clone()],
        output: index.clone(),
    };
    let taken = Step { node: 7, op: Op::get_rows(F32), inputs: vec![table, index], output: output.clone() };
    let steps = [vec![copied], vec![taken; STEPS]].concat();
    let before = device.launched();
    for rows in [[2, 0], [0, 1], [1, 1]] {
        device.upload(&rows.map(i32::to_le_bytes).concat(), &given)?;
        device.execute(&steps)?;
        let expected: Vec<u8> =
            rows.iter().flat_map(|row| numbers[32 * row.unsigned_abs() as usize..][..32].to_vec()).collect();
        if downloaded(device, &output)? != expected {
            return Ok(Some(format!("rows {rows:?}, which the card found, are others")));
        }
    }
    let graphs = since(device, before).graphs;
    Ok((graphs != 0).then(|| format!("indices that the card computed were {graphs} graphs")))
}
