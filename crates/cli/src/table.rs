//! Text tables: aligned columns separated by two spaces, without trailing spaces.

use comfy_table::{CellAlignment, Table, presets};

/// The title and alignment of a column.
pub struct Column(pub &'static str, pub Side);

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Formats a table without a final newline. Omits columns whose cells are all empty.
pub fn table<const N: usize>(columns: [Column; N], rows: &[[String; N]]) -> String {
    let used: Vec<usize> = (0..N).filter(|place| rows.iter().any(|row| !row[*place].is_empty())).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(used.iter().map(|place| columns[*place].0));
    for row in rows {
        table.add_row(used.iter().map(|place| row[*place].as_str()));
    }
    for (column, place) in table.column_iter_mut().zip(&used) {
        column.set_padding((0, 2));
        if columns[*place].1 == Side::Right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Column, Side, table};

    #[test]
    fn columns_are_aligned_and_empty_columns_are_omitted() {
        let columns = [Column("name", Side::Left), Column("", Side::Left), Column("bytes", Side::Right)];
        let rows = [["a", "", "12"], ["long", "", "7"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(columns, &rows), "name  bytes\na        12\nlong      7");
    }
}
