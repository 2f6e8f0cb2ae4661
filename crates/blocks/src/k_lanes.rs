//! Blocks of the K types whose groups are searched in lanes: which groups are searched together, and with which
//! importance.
//!
//! ```text
//!  blocks of a batch │ group 0 │ group 1 │ ... │     16 groups, those of one block or of two
//!                         └─ V::LANES of them at once
//! ```

use crate::codec::{assert_whole_rows, whole_blocks};
use crate::decoder::K_LEN;
use crate::search::lanes::{self, Columns, LANES_MAX, Lanes};
use crate::search::sum_of_squares;

/// Blocks of a batch, at most.
pub(crate) const BLOCKS_MAX: usize = 2;

/// Groups that are searched at once.
pub(crate) struct Batch<'a, const GROUP: usize> {
    /// The number of the first group in the blocks of the batch.
    pub first: usize,
    pub groups: &'a [[f32; GROUP]],
}

/// Blocks with as many groups as the widest vector has lanes, and their bytes.
#[inline(always)]
pub(crate) fn batches<'a, const BYTES: usize, const GROUPS: usize>(
    weights: &'a [f32],
    bytes: &'a mut [u8],
) -> impl Iterator<Item = (&'a [[f32; K_LEN]], &'a mut [[u8; BYTES]])> {
    const { assert!(LANES_MAX / GROUPS <= BLOCKS_MAX) };
    let (sources, blocks) = whole_blocks(weights.as_chunks::<K_LEN>(), bytes.as_chunks_mut::<BYTES>());
    sources.chunks(LANES_MAX / GROUPS).zip(blocks.chunks_mut(LANES_MAX / GROUPS))
}

impl<'a, const GROUP: usize> Batch<'a, GROUP> {
    /// The groups of the blocks, as many at once as a vector has lanes.
    #[inline(always)]
    pub fn all<V: Lanes, const GROUPS: usize, const LEN: usize>(
        weights: &'a [[f32; K_LEN]],
    ) -> impl Iterator<Item = Batch<'a, GROUP>> {
        const { assert!(GROUPS * GROUP == K_LEN && GROUP == LEN) };
        let groups = weights.as_flattened().as_chunks::<GROUP>().0.chunks(V::LANES);
        groups.enumerate().map(|(number, groups)| Batch { first: number * V::LANES, groups })
    }
}

/// The importance of the columns, from block to block.
pub(crate) struct Importance<'a> {
    columns: &'a [[f32; K_LEN]],
    next: usize,
}

/// The importance of the blocks of a batch, and the mean square of each.
pub(crate) struct BatchImportance {
    columns: [[f32; K_LEN]; BLOCKS_MAX],
    mean_squares: [f32; BLOCKS_MAX],
}

impl<'a> Importance<'a> {
    pub fn of(weights: &[f32], importance: &'a [f32]) -> Importance<'a> {
        assert_whole_rows(weights, importance);
        let (columns, rest) = importance.as_chunks();
        assert!(rest.is_empty(), "a row ends inside a block, {} elements over", rest.len());
        Importance { columns, next: 0 }
    }

    /// That of the next blocks; `mean` is what counts of the sum of squares of a block.
    #[inline(always)]
    pub fn next(&mut self, weights: &[[f32; K_LEN]], mean: impl Fn(f32) -> f32) -> BatchImportance {
        let mut batch = BatchImportance { columns: [[0.0; K_LEN]; BLOCKS_MAX], mean_squares: [0.0; BLOCKS_MAX] };
        let places = batch.columns.iter_mut().zip(&mut batch.mean_squares);
        for ((columns, mean_square), weights) in places.zip(weights) {
            *columns = self.columns[self.next];
            *mean_square = mean(sum_of_squares(weights));
            self.next = (self.next + 1) % self.columns.len();
        }
        batch
    }
}

impl BatchImportance {
    /// The importance of the columns of each group.
    #[inline(always)]
    pub fn columns<V: Lanes, const GROUP: usize>(&self, batch: &Batch<GROUP>) -> Columns<V, GROUP> {
        let groups = self.columns.as_flattened().as_chunks::<GROUP>().0;
        lanes::columns(&groups[batch.first..][..batch.groups.len()])
    }

    /// How much the error of each weight counts, as [`importance_of`](crate::search::importance_of) has it.
    #[inline(always)]
    pub fn counts<V: Lanes, const GROUPS: usize, const GROUP: usize>(
        &self,
        batch: &Batch<GROUP>,
        weights: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP> {
        let mut mean_squares = [0.0; LANES_MAX];
        for (lane, mean_square) in mean_squares.iter_mut().enumerate().take(batch.groups.len()) {
            *mean_square = self.mean_squares[(batch.first + lane) / GROUPS];
        }
        lanes::importance_of(weights, &self.columns(batch), V::load(&mean_squares))
    }
}
