//! Values of the table: FastLLM's exporter writes what Python prints of a configuration.
//!
//! ```text
//! True   None   1e-05   [1, 2]   ['ForCausalLM']   {0: 'LABEL_0'}   torch.float32   silu
//! ```

use serde_json::{Map, Number, Value};

/// Lists within lists that are followed.
const DEPTH_MAX: usize = 16;

/// What a text says in Python; a text that says nothing there stands for itself.
pub(super) fn value(text: &str) -> Value {
    let mut parser = Parser { rest: text.trim() };
    match parser.value(0) {
        Some(value) if parser.rest.is_empty() => value,
        _ => Value::String(text.to_owned()),
    }
}

/// A value as Python prints it: the inverse of [`value`].
pub fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => nested(other),
    }
}

fn nested(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let escaped = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r");
            format!("'{}'", escaped.replace('\t', "\\t"))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(nested).collect::<Vec<String>>().join(", ")),
        Value::Object(items) => {
            let item = |(key, value): (&String, &Value)| format!("'{key}': {}", nested(value));
            format!("{{{}}}", items.iter().map(item).collect::<Vec<String>>().join(", "))
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        let inner = depth.saturating_add(1);
        let value = match self.rest.chars().next()? {
            '[' => Value::Array(self.list('[', ']', |parser| parser.value(inner))?),
            '(' => Value::Array(self.list('(', ')', |parser| parser.value(inner))?),
            '{' => Value::Object(Map::from_iter(self.list('{', '}', |parser| parser.entry(inner))?)),
            '\'' | '"' => Value::String(self.string()?),
            _ => self.word()?,
        };
        self.rest = self.rest.trim_start();
        Some(value)
    }

    fn entry(&mut self, depth: usize) -> Option<(String, Value)> {
        let key = match self.value(depth)? {
            Value::String(key) => key,
            Value::Number(key) => key.to_string(),
            _ => return None,
        };
        self.take(':')?;
        Some((key, self.value(depth)?))
    }

    fn take(&mut self, expected: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(expected)?.trim_start();
        Some(())
    }

    fn list<T>(&mut self, open: char, close: char, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.take(open)?;
        let mut items = Vec::new();
        while self.take(close).is_none() {
            items.push(item(self)?);
            if self.take(',').is_none() && !self.rest.starts_with(close) {
                return None;
            }
        }
        Some(items)
    }

    fn string(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let quote = chars.next()?;
        let mut text = String::new();
        loop {
            match chars.next()? {
                end if end == quote => break,
                '\\' => text.push(match chars.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    same @ ('\\' | '\'' | '"') => same,
                    _ => return None,
                }),
                other => text.push(other),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }

    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find([',', ']', ')', '}', ':', ' ']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        if word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false") {
            return Some(Value::Bool(word.eq_ignore_ascii_case("true")));
        }
        if word == "None" {
            return Some(Value::Null);
        }
        if let Ok(number) = word.parse::<i64>() {
            return Some(number.into());
        }
        let starts_as_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        word.parse().ok().filter(|_| starts_as_number).and_then(Number::from_f64).map(Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use super::{print, value};
    use serde_json::json;

    /// What Python 3's `str()` prints of each value.
    #[test]
    fn what_python_prints_is_read() {
        for (text, expected) in [
            ("True", json!(true)),
            ("false", json!(false)),
            ("None", json!(null)),
            ("512", json!(512)),
            ("-1", json!(-1)),
            ("1e-05", json!(1e-5)),
            ("10000.0", json!(10000.0)),
            ("['LlamaForCausalLM']", json!(["LlamaForCausalLM"])),
            ("[1, 2]", json!([1, 2])),
            ("(1,)", json!([1])),
            ("[]", json!([])),
            ("{0: 'LABEL_0', 1: \"it's\"}", json!({"0": "LABEL_0", "1": "it's"})),
            ("{'factor': 2.0, 'type': 'linear'}", json!({"factor": 2.0, "type": "linear"})),
            ("[['a\\n', None], {}]", json!([["a\n", null], {}])),
        ] {
            assert_eq!(value(text), expected, "{text}");
            assert_eq!(value(&print(&expected)), expected, "{text}");
        }
    }

    #[test]
    fn anything_else_stands_for_itself() {
        for text in [
            "torch.float32",
            "silu",
            "",
            " [/INST]",
            "<|im_start|>user\n",
            "[1, 2",
            "1.2.3",
            "nan",
            "inf",
            "['a' 'b']",
            "[1] 2",
        ] {
            assert_eq!(value(text), json!(text), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(value(&deep), json!(deep));
    }
}
