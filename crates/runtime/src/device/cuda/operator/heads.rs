//! What comes behind the products for queries, keys and values, head by head: biases, norms, rotations and stores into
//! the cache, by a warp for each head of a token (`kernels/cuda/heads.cuh`). It is a launch by itself, or the tail of
//! the products' launch, whose last warp of a head goes on with it.

use super::matrix::WARP;
use super::rms_norm::number_of;
use super::rope::rotation;
use super::{Argument, Call, Grid, Heads, HeadsBehind, Operand};
use trueup_blocks::DType;
use trueup_graph::op::Rope;

/// The longest head, in elements, as the kernels have it.
pub const HEAD_MAX: usize = 256;

/// Warps of a block of threads, as the kernels have them.
const WARPS: usize = 4;

/// The heads of queries, of keys or of values.
#[derive(Clone, Copy, Debug)]
pub struct HeadsOf {
    /// What the product writes: f32, heads and tokens behind each other, like all that is made of it.
    pub x: Operand,
    /// Rows of all heads.
    pub rows: usize,
    /// A number for each row, and where the sum goes.
    pub bias: Option<[Operand; 2]>,
    /// Weights of the norm, where its result goes, and epsilon.
    pub norm: Option<([Operand; 2], f32)>,
    /// Where the rotated heads go.
    pub rotated: Option<Operand>,
    /// The cache that they are stored into.
    pub cache: Option<Operand>,
}

/// What comes behind all heads.
#[derive(Clone, Debug)]
pub struct HeadsTail {
    /// Up to three.
    pub heads: Vec<HeadsOf>,
    /// Elements of a head.
    pub head_size: usize,
    /// Tokens of each tensor.
    pub tokens: usize,
    /// The rotation, its positions, and what divides its frequencies.
    pub rope: Rope,
    pub positions: Operand,
    pub factors: Option<Operand>,
    /// Where tokens are in the caches, and how many a cache has; where there are stores.
    pub places: Option<(Operand, usize)>,
    /// Where the stores tell of a row that lies outside.
    pub fault: u64,
}

impl HeadsTail {
    /// As kernels of products take it, with counters.
    pub fn arguments(&self, call: &Call) -> Result<[Argument; 5], String> {
        let [q, k, v, behind] = self.described()?;
        Ok([q, k, v, behind, Argument::Address(call.counters(self.count()))])
    }

    /// That nothing is done behind products.
    pub fn none() -> [Argument; 5] {
        let none = Argument::Heads(Heads::default());
        [none, none, none, Argument::HeadsBehind(HeadsBehind::default()), Argument::Address(0)]
    }

    /// Heads of one token.
    fn count(&self) -> usize {
        self.heads.iter().map(|heads| heads.rows).sum::<usize>() / self.head_size
    }

    fn described(&self) -> Result<[Argument; 4], String> {
        let mut described = [Argument::Heads(Heads::default()); 3];
        for (place, heads) in described.iter_mut().zip(&self.heads) {
            *place = Argument::Heads(heads.described()?);
        }
        let address = |operand: Option<Operand>| operand.map_or(0, |operand| operand.view.data);
        let behind = HeadsBehind {
            rotation: rotation(&self.rope)?,
            head_size: int(self.head_size)?,
            tokens: int(self.tokens)?,
            factors_type: self.factors.map_or(-1, |factors| number_of(factors.ty.dtype)),
            factors: address(self.factors),
            positions: self.positions.view.data,
            rows: address(self.places.map(|(rows, _)| rows)),
            places: self.places.map_or(0, |(_, places)| places as i64),
            fault: self.fault,
        };
        let [q, k, v] = described;
        Ok([q, k, v, Argument::HeadsBehind(behind)])
    }
}

impl HeadsOf {
    fn described(&self) -> Result<Heads, String> {
        let address = |operand: Option<Operand>| operand.map_or(0, |operand| operand.view.data);
        let norm = self.norm.map(|(operands, _)| operands);
        Ok(Heads {
            x: self.x.view.data,
            bias: address(self.bias.map(|[bias, _]| bias)),
            sum: address(self.bias.map(|[_, sum]| sum)),
            w: address(norm.map(|[w, _]| w)),
            normed: address(norm.map(|[_, y]| y)),
            rotated: address(self.rotated),
            cache: address(self.cache),
            rows: int(self.rows)?,
            w_type: norm.map_or(0, |[w, _]| number_of(w.ty.dtype)),
            cache_type: match self.cache.map(|cache| cache.ty.dtype) {
                Some(DType::F16) => 1,
                Some(DType::Q8_0) => 2,
                _ => 0,
            },
            epsilon: self.norm.map_or(0.0, |(_, epsilon)| epsilon),
        })
    }
}

fn int(number: usize) -> Result<i32, String> {
    i32::try_from(number).map_err(|_| format!("{number} exceeds the head size"))
}

/// What comes behind products that were launched before; `call` is of any of the steps.
pub fn launch(call: &Call, tail: &HeadsTail) -> Result<(), String> {
    let grid = Grid::of([(tail.count() * tail.tokens).div_ceil(WARPS), 1, 1], (WARPS * WARP) as u32)?;
    call.launch("heads_f32", grid, &tail.described()?)
}
