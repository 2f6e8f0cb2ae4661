//! Tests: `value is name`.

use super::arguments::Arguments;
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::syntax::Comparison;
use super::value::{SequenceKind, Value};

/// Tests that compare with their argument.
const COMPARISONS: [(&str, Comparison); 17] = [
    ("eq", Comparison::Equal),
    ("equalto", Comparison::Equal),
    ("==", Comparison::Equal),
    ("ne", Comparison::NotEqual),
    ("!=", Comparison::NotEqual),
    ("lt", Comparison::Less),
    ("lessthan", Comparison::Less),
    ("<", Comparison::Less),
    ("le", Comparison::LessOrEqual),
    ("<=", Comparison::LessOrEqual),
    ("gt", Comparison::Greater),
    ("greaterthan", Comparison::Greater),
    (">", Comparison::Greater),
    ("ge", Comparison::GreaterOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("in", Comparison::In),
    ("not in", Comparison::NotIn),
];

/// Whether a test holds.
pub(super) fn holds(renderer: &mut Renderer<'_>, name: &str, value: &Value, arguments: Arguments) -> Checked<bool> {
    if let Some((_, comparison)) = COMPARISONS.iter().find(|(own, _)| *own == name) {
        let [other] = arguments.bind(name, ["other"])?;
        let other = other.ok_or_else(|| Problem::new(format!("the test {name} needs a value")))?;
        return renderer.holds(*comparison, value, &other);
    }
    match name {
        "divisibleby" => {
            let [number] = arguments.bind(name, ["num"])?;
            let remainder = whole(value)?.checked_rem(number.as_ref().map_or(Ok(0), whole)?);
            return remainder.map(|rest| rest == 0).ok_or_else(|| Problem::new("a number is divided by zero"));
        }
        "sameas" => {
            let [other] = arguments.bind(name, ["other"])?;
            let other = other.ok_or_else(|| Problem::new("the test sameas needs a value"))?;
            let same_type = std::mem::discriminant(value) == std::mem::discriminant(&other);
            return Ok(same_type && value.equals(&other, renderer.budget)?);
        }
        _ => arguments.none(name)?,
    }
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => matches!(value, Value::Text(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => match value {
            Value::Sequence(sequence) => !matches!(sequence.kind, SequenceKind::View(_)),
            Value::Text(_) | Value::Dict(_) | Value::Undefined(_) => true,
            _ => false,
        },
        "iterable" => value.is_iterable(),
        "callable" => match value {
            Value::Function(_) | Value::Method(_) | Value::Macro(_) | Value::Joiner(_) | Value::Loop(_) => true,
            // In Python, an undefined value has the method `__call__`, which fails.
            Value::Undefined(_) => true,
            _ => false,
        },
        "even" => whole(value)?.checked_rem(2) == Some(0),
        "odd" => whole(value)?.checked_rem(2) != Some(0),
        "lower" => is_case(&renderer.value_text(value)?, char::is_lowercase, char::is_uppercase),
        "upper" => is_case(&renderer.value_text(value)?, char::is_uppercase, char::is_lowercase),
        "escaped" => false,
        "filter" => super::filters::exists(value.as_str().unwrap_or_default()),
        "test" => exists(value.as_str().unwrap_or_default()),
        other => return Err(Problem::new(format!("the test {other} is not supported"))),
    })
}

/// The tests without an argument.
const PLAIN: [&str; 21] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "true",
    "false",
    "integer",
    "float",
    "number",
    "string",
    "mapping",
    "sequence",
    "iterable",
    "callable",
    "even",
    "odd",
    "lower",
    "upper",
    "escaped",
    "filter",
    "test",
];

fn exists(name: &str) -> bool {
    let compares = COMPARISONS.iter().any(|(own, _)| *own == name && *own != "not in");
    compares || PLAIN.contains(&name) || ["divisibleby", "sameas"].contains(&name)
}

/// Whether a text has letters, and all have the case.
pub(super) fn is_case(text: &str, case: fn(char) -> bool, other: fn(char) -> bool) -> bool {
    text.chars().any(case) && !text.chars().any(other)
}

fn whole(value: &Value) -> Checked<i128> {
    value.defined()?;
    value.as_int().ok_or_else(|| Problem::new(format!("expected an integer, found {}", value.type_name())))
}
