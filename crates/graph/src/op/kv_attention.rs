use super::soft_max::{expect_mask, expect_max_bias};
use super::{Rule, exactly, expect, expect_activation, expect_cache, expect_indices};
use crate::case::{Case, Fill};
use crate::shape::TensorType;
use serde::{Deserialize, Serialize};
use trueup_blocks::DType;

/// `y[d + E h, t] = sum_j V[d, g, j] p_j` with `p = softmax(s)` over `s_j = scale sum_i K[i, g, j] q[i, h, t] + slope_h
/// mask[j, t]` and `g = h / (heads / kv heads)`, over the keys `K` and values `V` of the sequence of token `t`:
/// attention over the KV cache in one operator, [`KvScores`](super::KvScores), [`SoftMax`](super::SoftMax) and
/// [`KvMix`](super::KvMix). A position whose mask is -inf weighs exactly 0; a token that attends to no position gives
/// all 0.
///
/// Inputs: `q` an activation `[D, heads, tokens]`, `keys` the cache `[D * kv heads, context, sequences]`, `values` the
/// cache `[E * kv heads, context, sequences]`, `sequences` i32 `[tokens]` and `mask` f32 or f16 `[capacity, tokens,
/// ...]`, repeated along the heads, whose row length is the number of positions to read. Output: `[E * heads, tokens]`
/// of the type of `q`. Source: Vaswani et al. 2017, equation 1, with the shared heads of Ainslie et al. 2023.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct KvAttention {
    /// Multiplies the scores: `1 / sqrt(D)` as a rule.
    pub scale: f32,
    /// As in [`SoftMax`](super::SoftMax::max_bias).
    #[serde(default)]
    pub max_bias: f32,
}

impl Rule for KvAttention {
    const NAMES: &'static [&'static str] = &["kv_attention"];

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, String> {
        let [q, keys, values, sequences, mask] = exactly(inputs)?;
        expect_activation("q", &q)?;
        let [head_size, heads, tokens, batch] = q.shape.sizes();
        expect(batch == 1, || format!("q must be [head size, heads, tokens], not {}", q.shape))?;
        let kv_heads = keys.shape[0].checked_div(head_size).unwrap_or(0);
        let shared = kv_heads > 0 && keys.shape[0].is_multiple_of(head_size) && heads.is_multiple_of(kv_heads);
        expect(shared, || format!("{heads} heads of {head_size} do not share rows of {} keys evenly", keys.shape[0]))?;
        let width = values.shape[0];
        let beside = width.is_multiple_of(kv_heads) && values.shape.sizes()[1..] == keys.shape.sizes()[1..];
        expect(beside, || {
            format!(
                "values {} must have the positions, sequences and {kv_heads} heads of keys {}",
                values.shape, keys.shape
            )
        })?;
        expect_cache("keys", &keys, ("heads", head_size))?;
        expect_cache("values", &values, ("heads", width / kv_heads))?;
        let (capacity, context) = (mask.shape[0], keys.shape[1]);
        expect(capacity > 0 && capacity <= context, || {
            format!("a mask must cover 1 to {context} positions (the context), not {capacity}")
        })?;
        expect_max_bias(self.max_bias, Some(&mask))?;
        expect_mask(&mask, [capacity, tokens, heads, 1])?;
        expect_indices("sequences", &sequences, tokens)?;
        Ok(TensorType::new(q.dtype, &[width / kv_heads * heads, tokens]))
    }

    fn cases() -> Vec<Case> {
        let plain = KvAttention { scale: 0.125, max_bias: 0.0 };
        let mut cases = Vec::new();
        for cache in [DType::F32, DType::F16] {
            for shape in SHAPES {
                cases.push(case(plain, cache, shape, DType::F32, Fill::Causal));
                let biased = KvAttention { scale: 0.3, max_bias: 8.0 };
                cases.push(case(biased, cache, shape, DType::F16, Fill::Distances));
                cases.push(case(plain, cache, shape, DType::F32, |first| Fill::Window(first, 5)));
                cases.push(alone(cache, shape));
            }
            let shape = [16, 16, 4, 2, 5, 16, 20, 2];
            // The first tokens attend to nothing.
            cases.push(case(plain, cache, shape, DType::F32, |_| Fill::Causal(-2)));
            cases.push(with_masks_of_heads(case(plain, cache, shape, DType::F32, |_| Fill::Uniform(-3.0, 3.0))));
            cases.push(case(plain, cache, shape, DType::F16, |_| Fill::Uniform(-9.0, 0.0)));
        }
        let in_blocks = |[size, width, ..]: &Sizes| size.is_multiple_of(32) && width.is_multiple_of(32);
        for shape in SHAPES.into_iter().filter(in_blocks) {
            cases.push(case(plain, DType::Q8_0, shape, DType::F32, Fill::Causal));
            cases.push(case(plain, DType::Q8_0, shape, DType::F16, |first| Fill::Window(first, 5)));
        }
        cases.extend(as_in_layers());
        cases.extend(rings());
        cases
    }
}

/// `[D, E, heads, kv heads, tokens, capacity, context, sequences]`.
type Sizes = [usize; 8];

const SHAPES: [Sizes; 8] = [
    [1, 1, 1, 1, 1, 1, 1, 1],
    [31, 31, 3, 1, 2, 33, 40, 1],
    [64, 64, 8, 2, 7, 64, 128, 3],
    [33, 17, 6, 6, 9, 31, 31, 5],
    [40, 40, 4, 1, 1, 257, 300, 2],
    [128, 64, 12, 4, 3, 192, 256, 2],
    [80, 80, 5, 5, 17, 65, 70, 33],
    [16, 16, 2, 2, 0, 64, 64, 2],
];

fn case(op: KvAttention, cache: DType, sizes: Sizes, mask: DType, seen: impl Fn(i32) -> Fill) -> Case {
    let [size, width, heads, kv_heads, tokens, capacity, context, sequences] = sizes;
    let first = capacity as i32 - tokens as i32;
    let normal = |dtype, sizes: &[usize], deviation| (TensorType::new(dtype, sizes), Fill::Normal(deviation));
    Case::new(
        op,
        &[
            normal(DType::F32, &[size, heads, tokens], 1.5),
            normal(cache, &[size * kv_heads, context, sequences], 1.0),
            normal(cache, &[width * kv_heads, context, sequences], 1.0),
            (TensorType::new(DType::I32, &[tokens]), Fill::Integers(0, sequences as i32 - 1)),
            (TensorType::new(mask, &[capacity, tokens]), seen(first)),
        ],
    )
}

/// Each token attends to one position, whose weight is 1: the result is its value, which nothing rounds.
fn alone(cache: DType, sizes: Sizes) -> Case {
    let op = KvAttention { scale: 1.0, max_bias: 0.0 };
    let mut case = case(op, cache, sizes, DType::F32, |first| Fill::Window(first, 1));
    case.inputs[..3].iter_mut().for_each(|(_, fill)| *fill = Fill::Integers(-15, 15));
    Case { probe: true, ..case }
}

/// The case with a mask for every head.
fn with_masks_of_heads(mut case: Case) -> Case {
    let (heads, mask) = (case.inputs[0].0.shape[1], &mut case.inputs[4].0);
    *mask = TensorType::new(mask.dtype, &[mask.shape[0], mask.shape[1], heads]);
    case
}

/// A prompt, a later chunk of a prompt, a decoding step of several sequences and one of a long sequence, in the sizes
/// of models.
fn as_in_layers() -> Vec<Case> {
    let op = KvAttention { scale: 0.125, max_bias: 0.0 };
    let sizes = [
        [64, 64, 32, 4, 130, 192, 192, 1],
        [128, 128, 8, 2, 33, 512, 512, 2],
        [64, 64, 16, 4, 8, 320, 320, 8],
        [128, 128, 32, 8, 1, 2048, 2048, 1],
    ];
    let all = [DType::F16, DType::Q8_0].into_iter().flat_map(|cache| sizes.map(|sizes| (cache, sizes)));
    let in_layers = all.map(|(cache, sizes)| case(op, cache, sizes, DType::F32, Fill::Causal));
    // Few heads on a long cache: kernels that split positions use many parts.
    let long = [64, 64, 2, 1, 1, 1100, 1120, 1];
    let long = [DType::F16, DType::Q8_0].map(|cache| case(op, cache, long, DType::F32, Fill::Causal));
    in_layers.chain(extremes()).chain([DType::F32, DType::F16].map(endless)).chain(tiny()).chain(long).collect()
}

/// Windows that wrap around the end of a ring: for a few tokens of several sequences, a prompt, and a single token.
fn rings() -> impl Iterator<Item = Case> {
    let sizes = [[64, 64, 8, 2, 7, 64, 128, 3], [64, 64, 8, 2, 70, 192, 192, 1], [128, 128, 8, 2, 1, 1088, 1088, 1]];
    let all = [DType::F32, DType::F16, DType::Q8_0].into_iter().flat_map(move |cache| sizes.map(|size| (cache, size)));
    all.map(|(cache, sizes)| {
        let (op, capacity) = (KvAttention { scale: 0.125, max_bias: 0.0 }, sizes[5] as i32);
        case(op, cache, sizes, DType::F32, |_| Fill::Ring(2 * capacity - 4, capacity / 3))
    })
}

/// A prompt on a cache in which every seventh row of values is infinite, at masked positions.
fn endless(cache: DType) -> Case {
    let op = KvAttention { scale: 0.125, max_bias: 0.0 };
    let mut case = case(op, cache, [64, 64, 8, 2, 40, 96, 128, 1], DType::F32, |first| Fill::Holes(first, 7));
    case.inputs[2].1 = Fill::Endless(1.0, 7);
    Case { wide: true, ..case }
}

/// Prompts on a cache in blocks whose scales are as small as they can be, and as large.
fn tiny() -> [Case; 2] {
    [1e-5, 1e6].map(|deviation| {
        let op = KvAttention { scale: 0.1 / deviation as f32, max_bias: 0.0 };
        let mut case = case(op, DType::Q8_0, [96, 96, 6, 2, 40, 96, 128, 1], DType::F16, Fill::Causal);
        case.inputs[1].1 = Fill::Normal(deviation);
        case.inputs[2].1 = Fill::Normal(deviation);
        case
    })
}

/// A prompt on a cache of several sequences; queries beyond the range of f16 and far below it, values near its end;
/// heads that need more shared memory than a GPU kernel gets by default.
fn extremes() -> [Case; 5] {
    let prompt = |scale, query, value, sequence| {
        let sizes = [64, 64, 8, 2, 40, 96, 128, 3];
        let mut case = case(KvAttention { scale, max_bias: 0.0 }, DType::F16, sizes, DType::F32, Fill::Causal);
        case.inputs[0].1 = query;
        case.inputs[2].1 = value;
        case.inputs[3].1 = sequence;
        case
    };
    let beyond = |case: Case| Case { wide: true, ..case };
    let (one, any) = (Fill::Integers(1, 1), Fill::Integers(0, 2));
    [
        prompt(0.125, Fill::Normal(1.5), Fill::Normal(1.0), one),
        beyond(prompt(1e-6, Fill::Normal(1e5), Fill::Normal(1.0), one)),
        prompt(1e7, Fill::Normal(1e-8), Fill::Uniform(-6e4, 6e4), one),
        beyond(prompt(1e-6, Fill::Normal(1e5), Fill::Uniform(-6e4, 6e4), any)),
        case(
            KvAttention { scale: 0.01, max_bias: 0.0 },
            DType::F32,
            [7168, 6144, 1, 1, 2, 3, 3, 1],
            DType::F32,
            Fill::Causal,
        ),
    ]
}
