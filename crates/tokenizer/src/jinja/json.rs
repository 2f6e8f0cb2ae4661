//! `json.dumps` of Python, as the filter `tojson` of chat templates calls it.

use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::text;
use super::value::{SequenceKind, Value};

/// Longest text that may stand for one level of indentation, in bytes.
const INDENT_MAX: usize = 64;

/// How JSON is written.
pub(super) struct Style {
    pub(super) ascii: bool,
    pub(super) indent: Option<String>,
    pub(super) between_items: String,
    pub(super) after_key: String,
    pub(super) sort_keys: bool,
}

impl Style {
    /// Reads the arguments `ensure_ascii`, `indent`, `separators` and `sort_keys`.
    pub(super) fn new(
        ascii: Option<Value>,
        indent: Option<Value>,
        separators: Option<Value>,
        sort_keys: Option<Value>,
    ) -> Checked<Style> {
        let indent = match indent {
            None | Some(Value::None) => None,
            Some(Value::Text(text)) => Some(text.to_string()),
            Some(other) => {
                let width = other.as_int().ok_or_else(|| Problem::new("tojson expects a number as indent"))?;
                Some(" ".repeat(usize::try_from(width.max(0)).unwrap_or(usize::MAX).min(INDENT_MAX.saturating_add(1))))
            }
        };
        if indent.as_ref().is_some_and(|indent| indent.len() > INDENT_MAX) {
            return Err(Problem::new(format!("tojson indents by at most {INDENT_MAX} bytes")));
        }
        let default_items = if indent.is_some() { "," } else { ", " };
        let (between_items, after_key) = match separators {
            None | Some(Value::None) => (default_items.to_owned(), ": ".to_owned()),
            Some(Value::Sequence(pair)) => match pair.items.as_slice() {
                [Value::Text(items), Value::Text(key)] => (items.to_string(), key.to_string()),
                _ => return Err(Problem::new("tojson expects two strings as separators")),
            },
            Some(_) => return Err(Problem::new("tojson expects two strings as separators")),
        };
        let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
        Ok(Style { ascii: is_true(ascii), indent, between_items, after_key, sort_keys: is_true(sort_keys) })
    }
}

/// The JSON text of a value.
pub(super) fn dumps(value: &Value, style: &Style, budget: &Budget) -> Checked<String> {
    let mut out = String::new();
    Writer { style, budget }.write(value, 0, &mut out)?;
    Ok(out)
}

struct Writer<'a> {
    style: &'a Style,
    budget: &'a Budget,
}

impl Writer<'_> {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Checked<()> {
        let before = out.len();
        match value {
            Value::None => out.push_str("null"),
            Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::Float(number) => out.push_str(&float(*number)),
            Value::Text(text) | Value::Markup(text) => self.string(text, out)?,
            Value::Sequence(sequence) if matches!(sequence.kind, SequenceKind::List | SequenceKind::Tuple) => {
                return self.container(('[', ']'), sequence.items.len(), depth, out, |writer, place, inside, out| {
                    sequence.items.get(place).map_or(Ok(()), |item| writer.write(item, inside, out))
                });
            }
            Value::Dict(dict) => {
                let mut entries = Vec::with_capacity(dict.entries.len());
                self.budget.step(dict.entries.len())?;
                for (name, value) in &dict.entries {
                    entries.push((key(name)?, value));
                }
                if self.style.sort_keys {
                    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
                }
                return self.container(('{', '}'), entries.len(), depth, out, |writer, place, inside, out| {
                    let Some((key, value)) = entries.get(place) else { return Ok(()) };
                    writer.string(key, out)?;
                    writer.budget.text(writer.style.after_key.len())?;
                    out.push_str(&writer.style.after_key);
                    writer.write(value, inside, out)
                });
            }
            other => {
                other.defined()?;
                let name = other.type_name();
                return Err(Problem::new(format!("a value of the type {name} cannot be written as JSON")));
            }
        }
        self.budget.text(out.len().saturating_sub(before))
    }

    fn container(
        &self,
        (begin, end): (char, char),
        count: usize,
        depth: usize,
        out: &mut String,
        item: impl Fn(&Self, usize, usize, &mut String) -> Checked<()>,
    ) -> Checked<()> {
        self.budget.text(2)?;
        out.push(begin);
        let inside = depth.saturating_add(1);
        for place in 0..count {
            if place > 0 {
                self.budget.text(self.style.between_items.len())?;
                out.push_str(&self.style.between_items);
            }
            self.new_line(inside, out)?;
            item(self, place, inside, out)?;
        }
        if count > 0 {
            self.new_line(depth, out)?;
        }
        out.push(end);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) -> Checked<()> {
        let Some(indent) = &self.style.indent else { return Ok(()) };
        self.budget.text(indent.len().saturating_mul(depth).saturating_add(1))?;
        out.push('\n');
        out.push_str(&indent.repeat(depth));
        Ok(())
    }

    fn string(&self, text: &str, out: &mut String) -> Checked<()> {
        let before = out.len();
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.style.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
        self.budget.text(out.len().saturating_sub(before))
    }
}

fn float(number: f64) -> String {
    match text::float(number).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        plain => plain.to_owned(),
    }
}

/// The text of a key; Python writes numbers, booleans and None as text.
fn key(value: &Value) -> Checked<String> {
    match value {
        Value::Text(text) => Ok(text.to_string()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(float(*number)),
        Value::Bool(flag) => Ok(if *flag { "true" } else { "false" }.to_owned()),
        Value::None => Ok("null".to_owned()),
        other => Err(Problem::new(format!("a value of the type {} cannot be a key of JSON", other.type_name()))),
    }
}
