//! `docs/operators.md` names every operator that there is, and no other, with the types that the operator suite tries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use trueup::blocks::DType;
use trueup::graph::{Op, TensorType};

/// Groups of operators.
const GROUPS: [&str; 10] = [
    "elementwise",
    "activations",
    "norms",
    "matrix",
    "attention",
    "data movement",
    "constructors",
    "reductions",
    "images",
    "state space",
];

/// One row of the table.
struct Row {
    group: String,
    formula: String,
    types: String,
}

/// The rows of the document by operator.
fn documented() -> BTreeMap<String, Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    let text = fs::read_to_string(path).expect("docs/operators.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, group, formula, types] = cells[..] else { panic!("not four cells: {line}") };
        let [group, formula, types] = [group, formula, types].map(str::to_owned);
        (name.trim_matches('`').to_owned(), Row { group, formula, types })
    };
    let all: Vec<(String, Row)> = rows.map(row).collect();
    let count = all.len();
    let rows: BTreeMap<String, Row> = all.into_iter().collect();
    assert_eq!(rows.len(), count, "an operator has two rows in docs/operators.md");
    rows
}

/// The types of inputs and results in the suite's cases of an operator, in GGUF's order; `-` where there is no case.
fn types(name: &str) -> String {
    let cases = Op::cases().into_iter().filter(|case| case.op.name() == name);
    let mut used = Vec::new();
    for case in cases {
        let inputs: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
        let output = case.op.infer(&inputs).unwrap_or_else(|problem| panic!("a case of {name}: {problem}"));
        used.extend(inputs.iter().chain([&output]).map(|ty| ty.dtype));
    }
    let names: Vec<&str> = DType::all().filter(|dtype| used.contains(dtype)).map(DType::name).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

#[test]
fn the_document_names_every_operator_and_no_other() {
    let rows = documented();
    let mut wanted = Vec::new();
    for name in Op::names() {
        let types = types(name);
        let (group, formula) = match rows.get(name) {
            Some(row) if row.types == types && GROUPS.contains(&row.group.as_str()) && !row.formula.is_empty() => {
                continue;
            }
            Some(row) => (row.group.as_str(), row.formula.as_str()),
            None => ("GROUP", "FORMULA"),
        };
        wanted.push(format!("| `{name}` | {group} | {formula} | {types} |"));
    }
    let surplus: Vec<&String> = rows.keys().filter(|name| !Op::names().contains(&name.as_str())).collect();
    assert!(
        wanted.is_empty() && surplus.is_empty(),
        "docs/operators.md: remove the rows of {surplus:?}, and replace or add these rows, where GROUP is one of {} and FORMULA \
         says what is computed:\n{}",
        GROUPS.join(", "),
        wanted.join("\n")
    );
}

#[test]
fn the_suite_tries_every_operator() {
    let cases = Op::cases();
    assert!(cases.len() >= 1500, "{} cases", cases.len());
    let count = |name: &str| cases.iter().filter(|case| case.op.name() == name).count();
    let few: Vec<&str> = Op::names().into_iter().filter(|name| count(name) == 0).collect();
    assert!(few.is_empty(), "operators without a case: {few:?}");
    let views = cases.iter().filter(|case| case.inputs.iter().any(|(ty, _)| !ty.shape.is_dense())).count();
    assert!(views >= 500, "{views} cases on views");
}
