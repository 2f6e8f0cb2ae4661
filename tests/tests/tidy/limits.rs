//! The limits that SECURITY.md states, in both languages, are those of the code.

use crate::{report, root};
use std::fs;
use syn::{Expr, Item, Lit};

/// One row of the table: the limit in words, and the constant.
struct Row {
    stated: u64,
    path: String,
    name: String,
}

/// A number as the table writes it: `128 MiB`, `65,535 bytes`, `2 Mi`.
fn number(cell: &str) -> Option<u64> {
    let cell = cell.split_once(", plus ").map_or(cell, |(number, _)| number);
    let (digits, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let shift = match unit {
        "" | "bytes" => 0,
        "KiB" | "Ki" => 10,
        "MiB" | "Mi" => 20,
        "GiB" | "Gi" => 30,
        _ => return None,
    };
    Some(digits.replace(',', "").parse::<u64>().ok()? << shift)
}

/// The rows of a page whose last cell is a `path` and a `CONSTANT`.
fn rows(page: &str) -> Vec<Result<Row, String>> {
    let lines = page.lines().filter(|line| line.starts_with('|') && line.contains(".rs` `"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, stated, place] = cells.as_slice() else { return Err(format!("expected three cells: {line}")) };
            let stated = number(stated).ok_or_else(|| format!("not a number with a unit: {stated}"))?;
            let words: Vec<&str> = place.split('`').filter(|word| !word.trim().is_empty()).collect();
            let [path, name] = words.as_slice() else { return Err(format!("expected a file and a name: {place}")) };
            Ok(Row { stated, path: format!("crates/{path}"), name: (*name).to_owned() })
        })
        .collect()
}

/// The value of a constant that is a number, or two of them shifted or multiplied.
fn value(expression: &Expr) -> Option<u64> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(int) => int.base10_parse().ok(),
            _ => None,
        },
        Expr::Binary(binary) => {
            let (left, right) = (value(&binary.left)?, value(&binary.right)?);
            match binary.op {
                syn::BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
                syn::BinOp::Mul(_) => left.checked_mul(right),
                _ => None,
            }
        }
        _ => None,
    }
}

fn constant(row: &Row) -> Result<u64, String> {
    let text = fs::read_to_string(root().join(&row.path)).map_err(|error| format!("{}: {error}", row.path))?;
    let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", row.path))?;
    let found = file.items.iter().find_map(|item| match item {
        Item::Const(item) if item.ident == row.name => Some(&item.expr),
        _ => None,
    });
    let expression = found.ok_or_else(|| format!("{} has no constant {}", row.path, row.name))?;
    value(expression).ok_or_else(|| format!("{} {}: not a plain number", row.path, row.name))
}

#[test]
fn stated_limits_are_those_of_the_code() {
    let mut faults = Vec::new();
    let mut places = Vec::new();
    for page in ["SECURITY.md", "SECURITY.zh.md"] {
        let text = fs::read_to_string(root().join(page)).expect("the page is there");
        let rows = rows(&text);
        assert!(rows.len() >= 20, "{page} states {} limits", rows.len());
        let mut names = Vec::new();
        for row in rows {
            match row.and_then(|row| constant(&row).map(|actual| (row, actual))) {
                Ok((row, actual)) => {
                    if row.stated != actual {
                        faults.push(format!("{page}: {} is {actual}, stated {}", row.name, row.stated));
                    }
                    names.push((row.path, row.name));
                }
                Err(fault) => faults.push(format!("{page}: {fault}")),
            }
        }
        places.push(names);
    }
    if places[0] != places[1] {
        faults.push("the two languages state other limits".to_owned());
    }
    report("SECURITY.md states the limits of the code", &faults);
}
