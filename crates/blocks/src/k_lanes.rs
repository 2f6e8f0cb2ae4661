//! Blocks of the K types whose groups are searched in lanes: which groups are searched together, and with which
//! importance.
//!
//! ```text
//!  blocks of a batch │ group 0 │ group 1 │ ... │     64 groups, those of four blocks or of eight
//!                         └─ V::LANES of them in a vector, and several vectors at once
//! ```

use crate::codec::{assert_whole_rows, whole_blocks};
use crate::decoder::K_LEN;
use crate::search::lanes::{self, Columns, LANES_MAX, Lanes};
use crate::search::sum_of_squares;

/// Groups of a batch, at most.
pub(crate) const GROUPS_MAX: usize = 4 * LANES_MAX;
/// Blocks of a batch, at most: blocks have at least eight groups.
pub(crate) const BLOCKS_MAX: usize = GROUPS_MAX / 8;

/// Groups that are searched in a vector.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a, const GROUP: usize> {
    /// The number of the first group in the blocks of the batch.
    pub first: usize,
    pub groups: &'a [[f32; GROUP]],
}

/// The blocks of each batch, and their bytes.
#[inline(always)]
pub(crate) fn batches<'a, const BYTES: usize, const GROUPS: usize>(
    weights: &'a [f32],
    bytes: &'a mut [u8],
) -> impl Iterator<Item = (&'a [[f32; K_LEN]], &'a mut [[u8; BYTES]])> {
    const { assert!(GROUPS_MAX / GROUPS <= BLOCKS_MAX && GROUPS_MAX.is_multiple_of(GROUPS)) };
    let (sources, blocks) = whole_blocks(weights.as_chunks::<K_LEN>(), bytes.as_chunks_mut::<BYTES>());
    sources.chunks(GROUPS_MAX / GROUPS).zip(blocks.chunks_mut(GROUPS_MAX / GROUPS))
}

impl<'a, const GROUP: usize> Batch<'a, GROUP> {
    /// The groups of the blocks for `N` vectors at once. The last vectors may have fewer groups than lanes, or none.
    #[inline(always)]
    pub fn all<V: Lanes, const N: usize, const GROUPS: usize, const LEN: usize>(
        weights: &'a [[f32; K_LEN]],
    ) -> impl Iterator<Item = [Batch<'a, GROUP>; N]> {
        const { assert!(GROUPS * GROUP == K_LEN && GROUP == LEN) };
        let groups = weights.as_flattened().as_chunks::<GROUP>().0;
        (0..groups.len()).step_by(N * V::LANES).map(move |first| {
            let mut batches = [Batch { first, groups: &groups[..0] }; N];
            for (n, (batch, groups)) in batches.iter_mut().zip(groups[first..].chunks(V::LANES)).enumerate() {
                *batch = Batch { first: first + n * V::LANES, groups };
            }
            batches
        })
    }

    /// The block and the group in it of each lane.
    #[inline(always)]
    pub fn places<const GROUPS: usize>(&self) -> impl Iterator<Item = (usize, usize)> {
        (self.first..self.first + self.groups.len()).map(|group| (group / GROUPS, group % GROUPS))
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

    /// The importance of the next blocks. `mean` turns the sum of squares of a block into the mean square that counts.
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
    /// The importance of the columns of a block, and the block's mean square.
    pub fn of_block(&self, block: usize) -> (&[f32; K_LEN], f32) {
        (&self.columns[block], self.mean_squares[block])
    }

    /// The importance of the columns of each group.
    #[inline(always)]
    pub fn columns<V: Lanes, const GROUP: usize>(&self, batch: &Batch<GROUP>) -> Columns<V, GROUP> {
        let groups = self.columns.as_flattened().as_chunks::<GROUP>().0;
        lanes::columns(&groups[batch.first..][..batch.groups.len()])
    }

    /// How much the error of each weight counts, as in [`importance_of`](crate::search::importance_of).
    #[inline(always)]
    pub fn counts<V: Lanes, const GROUPS: usize, const GROUP: usize>(
        &self,
        batch: &Batch<GROUP>,
        weights: &Columns<V, GROUP>,
    ) -> Columns<V, GROUP> {
        let mut mean_squares = [0.0; LANES_MAX];
        for (mean_square, (block, _)) in mean_squares.iter_mut().zip(batch.places::<GROUPS>()) {
            *mean_square = self.mean_squares[block];
        }
        lanes::importance_of(weights, &self.columns(batch), V::load(&mean_squares))
    }
}
