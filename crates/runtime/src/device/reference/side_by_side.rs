//! Transposes rows of numbers, so that the sums of several rows are computed at once.
//!
//! ```text
//!   row 0   a0 a1 a2 ...          column 0   a0 b0 c0 ...
//!   row 1   b0 b1 b2 ...    ─▶    column 1   a1 b1 c1 ...
//!   row 2   c0 c1 c2 ...          column 2   a2 b2 c2 ...
//! ```

use multiversion::multiversion;

/// Rows that are placed side by side.
pub const ROWS: usize = 8;

/// Transposes up to [`ROWS`] rows: column `k` receives element `k` of each row, and 0 for missing rows.
///
/// # Panics
/// If there are more than [`ROWS`] rows, or if the length of a row is not the number of columns.
pub fn side_by_side(rows: &[&[f64]], columns: &mut [[f64; ROWS]]) {
    let len = columns.len();
    assert!(
        rows.len() <= ROWS && rows.iter().all(|row| row.len() == len),
        "expected at most {ROWS} rows of {len} elements"
    );
    let first = match rows.try_into() {
        Ok(rows) => transpose_squares(rows, columns),
        Err(_) => 0,
    };
    for (place, column) in columns.iter_mut().enumerate().skip(first) {
        *column = [0.0; ROWS];
        column.iter_mut().zip(rows).for_each(|(element, row)| *element = row[place]);
    }
}

/// Transposes whole squares of [`ROWS`] by [`ROWS`] elements, and returns the number of columns that they cover.
#[multiversion(targets("x86_64+avx512f", "x86_64+avx2"))]
fn transpose_squares(rows: &[&[f64]; ROWS], columns: &mut [[f64; ROWS]]) -> usize {
    let squares = columns.as_chunks_mut::<ROWS>().0;
    let rows = rows.map(|row| &row.as_chunks::<ROWS>().0[..squares.len()]);
    for (number, square) in squares.iter_mut().enumerate() {
        for (k, column) in square.iter_mut().enumerate() {
            *column = rows.map(|row| row[number][k]);
        }
    }
    squares.len() * ROWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_elements_of_rows() {
        for (count, len) in [(8, 64), (3, 17), (8, 7), (1, 8), (0, 9)] {
            let number = |row: usize, place: usize| (100 * row + place) as f64;
            let rows: Vec<Vec<f64>> = (0..count).map(|row| (0..len).map(|k| number(row, k)).collect()).collect();
            let mut columns = vec![[-1.0; ROWS]; len];
            side_by_side(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut columns);
            for (place, column) in columns.iter().enumerate() {
                let expected = std::array::from_fn(|row| if row < count { number(row, place) } else { 0.0 });
                assert_eq!(*column, expected, "{count} rows of {len}");
            }
        }
    }
}
