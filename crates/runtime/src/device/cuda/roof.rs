//! What a card can do at most, by kernels that do nothing else (`kernels/cuda/roof.cu`, `roof_tiles.cu`).

use super::driver::{Allocation, Argument, Blas, Card, Facts, Grid, Launch, Sizes, Transfers};
use crate::error::Result;
use crate::roof::{Roof, best, best_in_registers};
use std::sync::Arc;

/// Bytes of each array: more than the caches of any card hold. A simulated card, whose speed says nothing, gets few.
const ARRAY_BYTES: usize = 1 << 30;
const SIMULATED_ARRAY_BYTES: usize = 1 << 20;

/// The share of the free memory that both arrays take at most: one in so many bytes.
const FREE_SHARE: u64 = 4;

/// Passes over an array in one measurement.
const PASSES: u64 = 16;

/// Threads of a block, and blocks for each multiprocessor: as many threads as one has room for.
const THREADS: u32 = 256;
const BLOCKS: usize = 8;

/// Chains of a thread, as `kernels/cuda/roof.cuh` has them.
const CHAINS: u64 = 8;

/// Threads of a warp, which multiply a tile together, and the multiplications and additions of a tile.
const WARP: u64 = 32;
const TILE_S8: u64 = 2 * 16 * 8 * 32;
const TILE_F16: u64 = 2 * 16 * 8 * 16;

/// 1.0 twice, as a pair of f16.
const ONES_F16: i32 = 0x3c00_3c00;

/// The generation from which on cards have the matrix units that `ptx.cuh` uses.
const TILES_FROM: (i32, i32) = (8, 0);

/// Rows, tokens and elements of the product of matrices; of a simulated card.
const PRODUCT: usize = 8192;
const SIMULATED_PRODUCT: usize = 64;

/// Numbers that are drawn, in bytes; arrays hold them again and again.
const FILL_BYTES: usize = 4 << 20;

/// Measures a card; `failure` makes an error of a problem.
pub fn measure(
    card: &Arc<Card>,
    blas: Option<&Arc<Blas>>,
    simulated: bool,
    failure: &dyn Fn(String) -> crate::Error,
) -> Result<Roof> {
    let facts = card.facts().map_err(failure)?;
    let most = if simulated { SIMULATED_ARRAY_BYTES } else { ARRAY_BYTES };
    let bytes = most.min((facts.memory.1 / FREE_SHARE / 2) as usize) & !0xff;
    let array = || {
        let array = Allocation::new(card, bytes)?
            .ok_or_else(|| format!("not enough memory for {bytes} bytes to measure the memory bandwidth"))?;
        array.clear()?;
        Ok(array)
    };
    let (source, target) = (array().map_err(failure)?, array().map_err(failure)?);
    let passes = if simulated { 1 } else { PASSES };
    let measure = Measure { card, source, target, facts, failure };
    let tiles = measure.facts.capability >= TILES_FROM;
    let codes = if tiles { ("roof_tiles_s8", CHAINS * TILE_S8 / WARP) } else { ("roof_codes", CHAINS * 4 * 2) };
    let f16 = || measure.multiplied("roof_tiles_f16", CHAINS * TILE_F16 / WARP, Argument::Int(ONES_F16));
    let product = if simulated { SIMULATED_PRODUCT } else { PRODUCT };
    let product = blas.map(|blas| measure.product(blas, product)).transpose()?;
    let f16 = tiles.then(f16).transpose()?.into_iter().chain(product).reduce(f64::max);
    let (major, minor) = measure.facts.capability;
    Ok(Roof {
        what: "reading and copying large arrays; f32 fused multiply-add, 8-bit products accumulated in i32 and \
            f16 products accumulated in f32, in registers on all multiprocessors; f16 products also with large \
            matrices by cuBLASLt if it is installed",
        threads: measure.facts.processors as usize,
        unit: if simulated { "simulated multiprocessor" } else { "multiprocessor" },
        isa: format!("sm_{major}{minor}"),
        read_gb_per_s: best(|| measure.read(passes))? / 1e9,
        copy_gb_per_s: best(|| measure.copied(passes))? / 1e9,
        multiply_gflop_per_s: measure.multiplied("roof_floats", CHAINS * 2, Argument::Float(0.999))? / 1e9,
        int8_gop_per_s: measure.multiplied(codes.0, codes.1, Argument::Int(0x0102_0304))? / 1e9,
        f16_gflop_per_s: f16.map(|speed| speed / 1e9),
    })
}

/// What is measured with.
struct Measure<'a> {
    card: &'a Arc<Card>,
    source: Allocation,
    target: Allocation,
    facts: Facts,
    failure: &'a dyn Fn(String) -> crate::Error,
}

impl Measure<'_> {
    /// All bytes of an array, so many times.
    fn read(&self, passes: u64) -> Result<u64> {
        self.moved("roof_read", passes)?;
        Ok(passes * self.source.bytes() as u64)
    }

    /// Bytes read and written.
    fn copied(&self, passes: u64) -> Result<u64> {
        self.moved("roof_copy", passes)?;
        Ok(2 * passes * self.source.bytes() as u64)
    }

    fn moved(&self, kernel: &str, passes: u64) -> Result<()> {
        let words = (self.source.bytes() / 16) as i64;
        let [source, target] = [&self.source, &self.target].map(|array| Argument::Address(array.address()));
        let arguments = [source, Argument::Index(words), target];
        let launch = self.card.launch(kernel, self.grid(), &arguments).map_err(self.failure)?;
        (0..passes).try_for_each(|_| self.card.run(&launch)).and_then(|()| self.card.wait()).map_err(self.failure)
    }

    /// Multiplications and additions a second of a kernel that does so many in each round of a thread.
    fn multiplied(&self, kernel: &str, operations: u64, operand: Argument) -> Result<f64> {
        let threads = u64::from(self.grid().blocks[0]) * u64::from(THREADS);
        best_in_registers(|rounds| {
            let arguments = [Argument::Int(rounds as i32), operand, Argument::Address(self.target.address())];
            let launch = self.card.launch(kernel, self.grid(), &arguments);
            launch.and_then(|launch| self.card.run(&launch)).and_then(|()| self.card.wait()).map_err(self.failure)?;
            Ok(threads * operations * rounds as u64)
        })
    }

    /// Multiplications and additions a second of square f16 matrices of so many rows, or of fewer where the arrays are
    /// too short.
    fn product(&self, blas: &Arc<Blas>, rows: usize) -> Result<f64> {
        let fits = |rows: &usize| 2 * size_of::<u16>() * rows * rows <= self.source.bytes();
        let fits = |rows: &usize| fits(rows) && size_of::<f32>() * rows * rows <= self.target.bytes();
        let rows = std::iter::successors(Some(rows), |rows| Some(rows / 2)).find(fits).unwrap_or(0);
        let sizes = Sizes { rows, tokens: rows, len: rows, step: rows };
        let w = self.source.address();
        let x = w + (size_of::<u16>() * rows * rows) as u64;
        let product = blas.product(sizes, [w, x, self.target.address()]);
        let product = product.ok_or_else(|| (self.failure)(format!("cuBLASLt has no algorithm for {sizes:?}")))?;
        self.fill(2 * size_of::<u16>() * rows * rows)?;
        let product = Launch::from(product);
        let pass = || {
            self.card.run(&product).and_then(|()| self.card.wait()).map_err(self.failure)?;
            Ok(2 * (rows as u64).pow(3))
        };
        // The library loads its kernels.
        pass()?;
        best(pass)
    }

    /// Fills so many bytes of the source with f16 between -2 and 2 that look drawn: matrix units that multiply zeros
    /// take less power, and a card that takes less runs faster.
    fn fill(&self, bytes: usize) -> Result<()> {
        let mut state = 1_u32;
        let mut drawn = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Without the highest bit of the exponent.
            let number = (state >> 16) as u16;
            number & 0x8000 | number & 0x3fff
        };
        let numbers: Vec<u8> = (0..FILL_BYTES / 2).flat_map(|_| drawn().to_le_bytes()).collect();
        let transfers = Transfers::new(self.card);
        let pieces = (0..bytes).step_by(FILL_BYTES);
        let send = |first: usize| transfers.upload(&self.source, first, &numbers[..FILL_BYTES.min(bytes - first)]);
        pieces.into_iter().try_for_each(send).map_err(self.failure)
    }

    fn grid(&self) -> Grid {
        let blocks = self.facts.processors as usize * BLOCKS;
        Grid { blocks: [blocks as u32, 1, 1], threads: THREADS, shared_bytes: 0 }
    }
}
