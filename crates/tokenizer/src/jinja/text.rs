//! Values as text: `str()` and `repr()` of Python.

use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::value::{SequenceKind, Value};

/// Whether Python's `str.isspace` holds.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Text with the characters of HTML escaped.
pub(super) fn escaped(text: &str, budget: &Budget) -> Checked<String> {
    budget.text(text.len().saturating_mul(2))?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '>' => out.push_str("&gt;"),
            '<' => out.push_str("&lt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    budget.text(out.len())?;
    Ok(out)
}

/// `str(value)`, with its bytes counted.
pub(super) fn to_text(value: &Value, budget: &Budget) -> Checked<String> {
    if let Value::Text(text) | Value::Markup(text) = value {
        budget.text(text.len())?;
        return Ok(text.to_string());
    }
    let mut out = String::new();
    if !value.is_undefined() {
        push_repr(value, budget, &mut out)?;
    }
    Ok(out)
}

/// `repr(value)`, with its bytes counted.
pub(super) fn repr(value: &Value, budget: &Budget) -> Checked<String> {
    let mut out = String::new();
    push_repr(value, budget, &mut out)?;
    Ok(out)
}

fn push_repr(value: &Value, budget: &Budget, out: &mut String) -> Checked<()> {
    let before = out.len();
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&float(*number)),
        Value::Text(text) => push_quoted(text, out),
        Value::Markup(text) => {
            out.push_str("Markup(");
            push_quoted(text, out);
            out.push(')');
        }
        Value::Sequence(sequence) => {
            let (begin, end) = match sequence.kind {
                SequenceKind::List => ("[", "]"),
                SequenceKind::Tuple => ("(", if sequence.items.len() == 1 { ",)" } else { ")" }),
                SequenceKind::Range(start, stop, step) => {
                    let step = if step == 1 { String::new() } else { format!(", {step}") };
                    out.push_str(&format!("range({start}, {stop}{step})"));
                    return budget.text(out.len().saturating_sub(before));
                }
                SequenceKind::View("dict_keys") => ("dict_keys([", "])"),
                SequenceKind::View("dict_values") => ("dict_values([", "])"),
                SequenceKind::View(_) => ("dict_items([", "])"),
            };
            budget.text(begin.len().saturating_add(end.len()))?;
            out.push_str(begin);
            for (place, item) in sequence.items.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                push_repr(item, budget, out)?;
            }
            out.push_str(end);
            return Ok(());
        }
        Value::Dict(dict) => {
            budget.text(2)?;
            out.push('{');
            for (place, (key, value)) in dict.entries.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                push_repr(key, budget, out)?;
                out.push_str(": ");
                push_repr(value, budget, out)?;
            }
            out.push('}');
            return Ok(());
        }
        other => {
            return Err(Problem::new(format!("a value of the type {} cannot be printed", other.type_name())));
        }
    }
    budget.text(out.len().saturating_sub(before).saturating_add(2))
}

/// A text in quotes, with escapes for what Python does not print.
fn push_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xff => out.push_str(&format!("\\x{code:02x}")),
                code @ 0x100..=0xffff => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// Whether Python's `str.isprintable` holds: the standard library escapes the same categories.
pub(super) fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // After another character, marks that combine with it are not escaped.
    let mut text = String::from("a");
    text.push(c);
    text.escape_debug().count() == 2
}

/// `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}
