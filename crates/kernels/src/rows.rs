//! Rows of one length at equal distances.

use std::ops::Range;

/// `count` rows of `len` cells, each `stride` cells behind the one before:
///
/// ```text
///  │ len ... │ not looked at │ len ... │ ...
///  ├──────── stride ─────────┤
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, E> {
    cells: &'a [E],
    count: usize,
    len: usize,
    stride: usize,
}

#[allow(clippy::len_without_is_empty, reason = "the length is that of each row")]
impl<'a, E> Rows<'a, E> {
    /// Rows behind each other. Panics unless `cells` holds `count` of them.
    pub fn dense(cells: &'a [E], count: usize, len: usize) -> Rows<'a, E> {
        Rows::strided(cells, count, len, len)
    }

    /// Rows at a distance. Panics where `cells` does not hold `count` of them.
    pub fn strided(cells: &'a [E], count: usize, len: usize, stride: usize) -> Rows<'a, E> {
        let cells_min = cells_of(count, len, stride);
        assert!(cells.len() >= cells_min, "{count} rows of {len} at a distance of {stride} in {} cells", cells.len());
        Rows { cells, count, len, stride }
    }

    /// How many.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Cells of each.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Cells from the beginning of one to that of the next.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// One of them.
    #[inline(always)]
    pub fn row(&self, index: usize) -> &'a [E] {
        &self.cells[index * self.stride..][..self.len]
    }

    /// Some of the rows.
    pub fn part(&self, rows: Range<usize>) -> Rows<'a, E> {
        assert!(rows.start <= rows.end && rows.end <= self.count, "rows {rows:?} of {}", self.count);
        let cells = if rows.is_empty() { &[] } else { &self.cells[rows.start * self.stride..] };
        Rows { cells, count: rows.len(), ..*self }
    }

    /// The cells from the first of the first row to the last of the last.
    #[cfg(feature = "samples")]
    pub fn held(&self) -> &'a [E] {
        &self.cells[..cells_of(self.count, self.len, self.stride)]
    }

    /// Rows of the same form over other cells.
    #[cfg(feature = "samples")]
    pub fn over<'b>(&self, cells: &'b [E]) -> Rows<'b, E> {
        Rows::strided(cells, self.count, self.len, self.stride)
    }
}

/// From the first cell of the first row to the last of the last.
///
/// # Panics
/// If that is not representable: kernels read without further checks what was counted here.
fn cells_of(count: usize, len: usize, stride: usize) -> usize {
    let Some(rows) = count.checked_sub(1) else { return 0 };
    let cells = rows.checked_mul(stride).and_then(|cells| cells.checked_add(len));
    cells.expect("rows are in memory")
}
