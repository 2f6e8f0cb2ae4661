//! Neighbouring steps in one launch have the bits of steps one by one, in every tensor that they write, and are fewer
//! launches.

use trueup::blocks::DType::{self, Bf16, F16, F32, I32, Q4_0, Q8_0};
use trueup::graph::op::{
    Arithmetic, Gated, KvAttention, KvStore, MulMat, MulMatGated, RmsNorm, Rope, RopePairs, RopeScaling,
};
use trueup::graph::{Op, TensorType};
use trueup::runtime::device::cuda::{Cuda, CudaOptions};
use trueup::runtime::device::{Buffer, Device, Step, Tensor, Usage};

/// Elements of a row, heads of queries and of keys, and elements of a head.
const WIDTH: usize = 96;
const HEADS: [usize; 2] = [3, 1];
const HEAD: usize = 32;

/// Positions of a cache that is stored into.
const PLACES: usize = 32;

/// Positions of a cache that attention looks at.
const POSITIONS: usize = 512;
const ROPE: Rope = Rope { pairs: RopePairs::Halves, dimensions: HEAD, base: 1e4, scaling: RopeScaling::None };

/// What is not right.
pub fn groups(card: &CudaOptions) -> Vec<String> {
    let open = || Cuda::new(card).unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    let types = [(Q4_0, F16, Q8_0), (Q8_0, F32, F16), (F16, Q8_0, F32), (F32, F16, F16)];
    for (tokens, (weights, keys, values)) in [1, 2, 3, 7].into_iter().flat_map(|tokens| types.map(|ty| (tokens, ty))) {
        let (alone, together) = (open(), open());
        let [one_by_one, at_once] =
            [&alone, &together].map(|device| Layer::new(device, tokens, weights, [keys, values]));
        one_by_one.steps.iter().for_each(|step| execute(&alone, std::slice::from_ref(step)));
        execute(&together, &at_once.steps);
        let [apart, joined] = [&alone, &together].map(|device| device.launched().kernels);
        // A norm, three products with rotations and stores, attention, a product with its sum and norm, the gate, a
        // product with its sum, one with its bias and the last norm; what the one with the bias takes is brought into
        // codes by a launch of its own.
        let expected = if matches!(weights, Q4_0 | Q8_0) { 9 } else { 8 };
        // More tokens keep a card busy: their products are launched by themselves, on activations that are brought into
        // codes once.
        let expected = if tokens > 2 { expected + 7 } else { expected };
        if joined != expected || apart <= joined {
            let problem = format!("{joined} launches together, not {expected}, and {apart} one by one");
            wrong.push(format!("{tokens} tokens, {weights}: {problem}"));
        }
        for (step, other) in one_by_one.steps.iter().zip(&at_once.steps) {
            if bytes(&alone, &step.output) != bytes(&together, &other.output) {
                wrong.push(format!("{tokens} tokens, {weights}, {keys}, {values}: {} has other bits", step.op.name()));
            }
        }
    }
    for tokens in [1, 2, 3, 8] {
        wrong.extend(PROJECTIONS.iter().filter_map(|of| projected(&open(), &open(), tokens, of)));
    }
    wrong.extend(stored_outside(&open()));
    wrong.extend(OVERWRITING.into_iter().filter_map(|by| written_over(&open(), &open(), by)));
    println!("cuda-sim, simulated: steps in one launch, {} wrong", wrong.len());
    wrong
}

/// Queries, keys and values of a kind of model, from their products to the cache.
#[derive(Debug)]
struct Projections {
    heads: [usize; 2],
    head: usize,
    has_bias: bool,
    /// Weights of norms of heads.
    norms: Option<DType>,
    rope: Rope,
    factors: Option<DType>,
    weights: DType,
    caches: [DType; 2],
    /// How far the tokens' rows of the cache lie from each other.
    apart: usize,
    /// Launches of one token or two, and of more, without that which brings activations into codes.
    launches: [u64; 2],
}

const PLAIN: Projections = Projections {
    heads: HEADS,
    head: HEAD,
    has_bias: false,
    norms: None,
    rope: ROPE,
    factors: None,
    weights: Q4_0,
    caches: [F16, F16],
    apart: 1,
    launches: [1, 4],
};

const YARN: RopeScaling =
    RopeScaling::Yarn { factor: 4.0, original_context: 64, beta_fast: 32.0, beta_slow: 1.0, magnitude: 1.14 };

const PROJECTIONS: [Projections; 9] = [
    Projections { has_bias: true, ..PLAIN },
    Projections { head: 64, norms: Some(F32), rope: Rope { dimensions: 64, ..ROPE }, weights: Q8_0, ..PLAIN },
    Projections { head: 256, norms: Some(F16), rope: Rope { dimensions: 128, ..ROPE }, caches: [Q8_0, F32], ..PLAIN },
    Projections {
        has_bias: true,
        norms: Some(Bf16),
        rope: Rope { pairs: RopePairs::Neighbours, dimensions: 20, base: 5e5, scaling: YARN },
        weights: F16,
        ..PLAIN
    },
    Projections { factors: Some(F32), caches: [F32, Q8_0], weights: F32, ..PLAIN },
    Projections { factors: Some(F16), has_bias: true, weights: Bf16, ..PLAIN },
    // All tokens in one row of the cache, of which the last stays.
    Projections { apart: 0, caches: [Q8_0, F16], ..PLAIN },
    // Heads that are no whole blocks of the cache are stored by a launch of their own; heads that are too long are
    // rotated and stored as any are.
    Projections {
        heads: [4, 2],
        head: 48,
        rope: Rope { dimensions: 48, ..ROPE },
        caches: [Q8_0, Q8_0],
        launches: [2, 5],
        ..PLAIN
    },
    Projections { head: 288, rope: Rope { dimensions: 288, ..ROPE }, launches: [3, 5], ..PLAIN },
];

/// What is not right where they are executed together.
fn projected(alone: &Cuda, together: &Cuda, tokens: usize, of: &Projections) -> Option<String> {
    let [one_by_one, at_once] = [alone, together].map(|device| Layer::projections(device, tokens, of));
    one_by_one.steps.iter().for_each(|step| execute(alone, std::slice::from_ref(step)));
    execute(together, &at_once.steps);
    let codes = u64::from(matches!(of.weights, Q4_0 | Q8_0));
    let expected = of.launches[usize::from(tokens > 2)] + codes;
    let launched = together.launched().kernels;
    let unlike = one_by_one.steps.iter().zip(&at_once.steps);
    let mut unlike = unlike.filter(|(step, other)| bytes(alone, &step.output) != bytes(together, &other.output));
    let problem = match unlike.next() {
        Some((step, _)) => format!("{} (step {}) has other bits", step.op.name(), step.node),
        None if launched == expected => return None,
        None => format!("{launched} launches, not {expected}"),
    };
    Some(format!("{tokens} tokens of {of:?}: {problem}"))
}

/// What is not right where the second of two tokens is to be stored behind the end of a cache: that it is told, and
/// nothing is written there.
fn stored_outside(together: &Cuda) -> Option<String> {
    let layer = Layer::projections(together, 2, &Projections { apart: PLACES + 8, ..PLAIN });
    let told = together.execute(&layer.steps).and_then(|()| together.sync()).map_err(|error| error.to_string());
    let expected = format!("kv_store: index {} must be at least 0 and below {PLACES}", PLACES + 8);
    let is_told = told.as_ref().is_err_and(|problem| problem.contains(&expected));
    (!is_told).then(|| format!("a token stored outside of the cache: {told:?}, not {expected}"))
}

/// What writes over the activations of a product, which were brought into codes for it, before the next product takes
/// what lies there then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Overwriting {
    /// A step by itself.
    Alone,
    /// The product of a group, or the sum behind it.
    Product,
    Sum,
    /// The first, second or third product of three.
    OfThree(usize),
    /// The first or second of two rotations.
    OfRotations(usize),
}

const OVERWRITING: [Overwriting; 8] = {
    use Overwriting::{Alone, OfRotations, OfThree, Product, Sum};
    [Alone, Product, Sum, OfThree(0), OfThree(1), OfThree(2), OfRotations(0), OfRotations(1)]
};

/// What has other bits where steps are executed together.
fn written_over(alone: &Cuda, together: &Cuda, by: Overwriting) -> Option<String> {
    let [one_by_one, at_once] = [alone, together].map(|device| Layer::overwritten(device, by));
    one_by_one.steps.iter().for_each(|step| execute(alone, std::slice::from_ref(step)));
    execute(together, &at_once.steps);
    let last = |layer: &Layer| layer.steps.last().map(|step| step.output.clone());
    let [expected, found] = [(alone, &one_by_one), (together, &at_once)]
        .map(|(device, layer)| last(layer).map(|output| bytes(device, &output)));
    (expected != found).then(|| format!("a product of what was written over by {by:?} has other bits"))
}

fn execute(device: &Cuda, steps: &[Step]) {
    device.execute(steps).and_then(|()| device.sync()).unwrap_or_else(|error| panic!("{error}"));
}

fn bytes(device: &Cuda, tensor: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.ty.bytes()];
    device.download(tensor, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
    bytes
}

/// The steps of a layer, each with memory of its own.
struct Layer<'a> {
    device: &'a Cuda,
    arena: Buffer,
    end: usize,
    seed: usize,
    steps: Vec<Step>,
}

impl Layer<'_> {
    fn new(device: &Cuda, tokens: usize, weights: DType, caches: [DType; 2]) -> Layer<'_> {
        let arena = device.alloc(&TensorType::new(DType::I8, &[1 << 20]), Usage::Arena);
        let arena = arena.unwrap_or_else(|error| panic!("{error}"));
        let mut layer = Layer { device, arena, end: 0, seed: 0, steps: Vec::new() };
        let x = layer.numbers(&[WIDTH, tokens]);
        let normed = layer.norm(&x);
        let sizes = [HEADS[0], HEADS[1], HEADS[1]].map(|heads| heads * HEAD);
        let [q, k, v] = sizes.map(|rows| layer.product(weights, rows, &normed));
        let positions = layer.indices(tokens, 5);
        let [q, k] = [(q, HEADS[0]), (k, HEADS[1])].map(|(flat, heads)| layer.heads(&flat, heads));
        let [rotated, k] = [q, k].map(|heads| layer.rotated(&heads, &positions));
        let k = layer.view(Op::reshape(&[HEADS[1] * HEAD, tokens]), &k);
        let rows = layer.indices(tokens, 2);
        for (dtype, new) in caches.into_iter().zip([&k, &v]) {
            layer.store(dtype, new, &rows);
        }
        let mixed = layer.attention(&rotated, tokens);
        let projected = layer.product(weights, WIDTH, &mixed);
        let sum = layer.sum(&projected, &x);
        // The norm of a sum, and what is made of it.
        let middle = layer.norm(&sum);
        let hidden = layer.gated(weights, 2 * WIDTH, &middle);
        let down = layer.product(weights, WIDTH, &hidden);
        let sum = layer.sum(&down, &sum);
        // What is added first is the same for all tokens; what is behind it is a group too.
        let biased = layer.product(weights, 2 * WIDTH, &sum);
        let bias = layer.numbers(&[2 * WIDTH]);
        let biased = layer.sum(&biased, &bias);
        let last = layer.view(Op::reshape(&[WIDTH, 2 * tokens]), &biased);
        layer.norm(&last);
        layer
    }

    /// In the order in which models have them.
    fn projections<'a>(device: &'a Cuda, tokens: usize, of: &Projections) -> Layer<'a> {
        let arena = device.alloc(&TensorType::new(DType::I8, &[1 << 20]), Usage::Arena);
        let arena = arena.unwrap_or_else(|error| panic!("{error}"));
        let mut layer = Layer { device, arena, end: 0, seed: 0, steps: Vec::new() };
        let x = layer.numbers(&[WIDTH, tokens]);
        let [queries, keys] = of.heads;
        let mut flat = [queries, keys, keys].map(|heads| layer.product(of.weights, heads * of.head, &x));
        if of.has_bias {
            flat = flat.map(|x| {
                let bias = layer.numbers(&[x.ty.shape[0]]);
                layer.sum(&x, &bias)
            });
        }
        let [q, k, v] = flat;
        let [q, k] = [(q, queries), (k, keys)].map(|(x, heads)| {
            let split = layer.view(Op::reshape(&[of.head, heads, tokens]), &x);
            let Some(weights) = of.norms else { return split };
            let weights = layer.weights(TensorType::new(weights, &[of.head]));
            layer.step(RmsNorm { epsilon: 1e-5 }, &[&split, &weights])
        });
        let positions = layer.indices(tokens, 5);
        let factors = of.factors.map(|dtype| layer.weights(TensorType::new(dtype, &[of.rope.dimensions / 2])));
        let [_, k] = [q, k].map(|x| {
            let inputs: Vec<&Tensor> = [&x, &positions].into_iter().chain(&factors).collect();
            layer.step(of.rope, &inputs)
        });
        let k = layer.view(Op::reshape(&[keys * of.head, tokens]), &k);
        let rows = layer.indices(tokens, of.apart);
        for (dtype, new) in of.caches.into_iter().zip([&k, &v]) {
            layer.store(dtype, new, &rows);
        }
        layer
    }

    /// A product of `x`, something that writes there and leaves its codes alone, and a product of what lies there then.
    fn overwritten(device: &Cuda, by: Overwriting) -> Layer<'_> {
        let arena = device.alloc(&TensorType::new(DType::I8, &[1 << 20]), Usage::Arena);
        let arena = arena.unwrap_or_else(|error| panic!("{error}"));
        let mut layer = Layer { device, arena, end: 0, seed: 0, steps: Vec::new() };
        let [x, z, w] = [(); 3].map(|()| layer.numbers(&[WIDTH, 1]));
        let positions = layer.indices(1, 5);
        layer.product(Q4_0, 8, &x);
        let own = |layer: &mut Layer, is_over: bool| if is_over { x.clone() } else { layer.place(x.ty) };
        match by {
            Overwriting::Alone => layer.step_to(Arithmetic::Add, &[&z, &w], x.clone()),
            Overwriting::Product | Overwriting::Sum => {
                let weights = layer.weights(TensorType::new(F16, &[WIDTH, WIDTH]));
                let product = own(&mut layer, by == Overwriting::Product);
                let sum = own(&mut layer, by == Overwriting::Sum);
                layer.step_to(MulMat, &[&weights, &z], product.clone());
                layer.step_to(Arithmetic::Add, &[&product, &w], sum);
            }
            Overwriting::OfThree(which) => {
                for number in 0..3 {
                    let weights = layer.weights(TensorType::new(F16, &[WIDTH, WIDTH]));
                    let output = own(&mut layer, number == which);
                    layer.step_to(MulMat, &[&weights, &z], output);
                }
            }
            Overwriting::OfRotations(which) => {
                for number in 0..2 {
                    let from = layer.numbers(&[HEAD, HEADS[0], 1]);
                    let output = Tensor { ty: from.ty, ..own(&mut layer, number == which) };
                    layer.step_to(ROPE, &[&from, &positions], output);
                }
            }
        }
        layer.product(Q4_0, 8, &x);
        layer
    }

    fn place(&mut self, ty: TensorType) -> Tensor {
        let tensor = Tensor { buffer: self.arena.clone(), offset_bytes: self.end, ty };
        self.end += ty.bytes().next_multiple_of(256);
        tensor
    }

    fn fill(&self, tensor: &Tensor, bytes: &[u8]) {
        self.device.upload(bytes, tensor).unwrap_or_else(|error| panic!("{error}"));
    }

    fn numbers(&mut self, sizes: &[usize]) -> Tensor {
        let tensor = self.place(TensorType::new(F32, sizes));
        let bytes: Vec<u8> = self.some(tensor.ty.shape.elements()).into_iter().flat_map(f32::to_le_bytes).collect();
        self.fill(&tensor, &bytes);
        tensor
    }

    /// Numbers of both signs, others each time.
    fn some(&mut self, count: usize) -> Vec<f32> {
        self.seed += 17;
        (0..count).map(|i| ((i + self.seed) * 7919 % 1013) as f32 * 0.0137 - 6.9).collect()
    }

    fn indices(&mut self, count: usize, step: usize) -> Tensor {
        let tensor = self.place(TensorType::new(I32, &[count]));
        let bytes: Vec<u8> = (0..count).flat_map(|i| ((i * step) as i32).to_le_bytes()).collect();
        self.fill(&tensor, &bytes);
        tensor
    }

    fn step(&mut self, op: impl Into<Op>, inputs: &[&Tensor]) -> Tensor {
        let op = op.into();
        let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
        let ty = op.infer(&types).unwrap_or_else(|problem| panic!("{problem}"));
        let output = if op.is_alias() { Tensor { ty, ..inputs[0].clone() } } else { self.place(ty) };
        self.step_to(op, inputs, output.clone());
        output
    }

    fn step_to(&mut self, op: impl Into<Op>, inputs: &[&Tensor], output: Tensor) {
        let inputs = inputs.iter().map(|input| (*input).clone()).collect();
        self.steps.push(Step { node: self.steps.len(), op: op.into(), inputs, output });
    }

    fn view(&mut self, op: Op, x: &Tensor) -> Tensor {
        self.step(op, &[x])
    }

    fn norm(&mut self, x: &Tensor) -> Tensor {
        let weights = self.numbers(&[x.ty.shape[0]]);
        self.step(RmsNorm { epsilon: 1e-5 }, &[x, &weights])
    }

    fn product(&mut self, dtype: DType, rows: usize, x: &Tensor) -> Tensor {
        let weights = self.weights(TensorType::new(dtype, &[x.ty.shape[0], rows]));
        self.step(MulMat, &[&weights, x])
    }

    fn weights(&mut self, ty: TensorType) -> Tensor {
        let buffer = self.device.alloc(&ty, Usage::Weight).unwrap_or_else(|error| panic!("{error}"));
        let weights = Tensor { buffer, offset_bytes: 0, ty };
        let numbers = self.some(ty.shape.elements());
        let mut bytes = vec![0; ty.bytes()];
        (ty.dtype.codec().expect("a type that is written").encode)(&numbers, &mut bytes);
        self.fill(&weights, &bytes);
        weights
    }

    fn gated(&mut self, dtype: DType, rows: usize, x: &Tensor) -> Tensor {
        let ty = TensorType::new(dtype, &[x.ty.shape[0], rows]);
        let [gate, up] = [self.weights(ty), self.weights(ty)];
        self.step(MulMatGated { gated: Gated::Swiglu }, &[&gate, &up, x])
    }

    /// Over caches of its own, of so many positions that they are divided.
    fn attention(&mut self, queries: &Tensor, tokens: usize) -> Tensor {
        let ty = TensorType::new(F16, &[HEADS[1] * HEAD, POSITIONS, 1]);
        let [keys, values] = [self.weights(ty), self.weights(ty)];
        let sequences = self.indices(tokens, 0);
        let mask = self.place(TensorType::new(F32, &[POSITIONS, tokens]));
        let seen = |i: usize| if i % POSITIONS <= POSITIONS / 2 + i / POSITIONS { 0.0f32 } else { f32::NEG_INFINITY };
        let bytes: Vec<u8> = (0..POSITIONS * tokens).flat_map(|i| seen(i).to_le_bytes()).collect();
        self.fill(&mask, &bytes);
        let op = KvAttention { scale: 0.2, max_bias: 0.0 };
        self.step(op, &[queries, &keys, &values, &sequences, &mask])
    }

    fn heads(&mut self, x: &Tensor, heads: usize) -> Tensor {
        self.view(Op::reshape(&[HEAD, heads, x.ty.shape[1]]), x)
    }

    fn rotated(&mut self, x: &Tensor, positions: &Tensor) -> Tensor {
        self.step(ROPE, &[x, positions])
    }

    fn store(&mut self, dtype: DType, x: &Tensor, rows: &Tensor) {
        let ty = TensorType::new(dtype, &[x.ty.shape[0], PLACES, 1]);
        let buffer = self.device.alloc(&ty, Usage::State).unwrap_or_else(|error| panic!("{error}"));
        self.step(KvStore, &[&Tensor { buffer, offset_bytes: 0, ty }, x, rows]);
    }

    fn sum(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        self.step(Arithmetic::Add, &[a, b])
    }
}
