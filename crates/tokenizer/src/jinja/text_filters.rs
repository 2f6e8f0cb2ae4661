//! Filters that give text or numbers.

use super::arguments::Arguments;
use super::filters::Filter;
use super::format::percent;
use super::json::{Style, dumps};
use super::list_filters;
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::text::{escaped, is_space, repr};
use super::text_methods as text;
use super::value::{Value, float_of, int_of};

/// Widest line of `pprint`.
const PRETTY_WIDTH: usize = 80;

pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("abs", abs),
    ("capitalize", capitalize),
    ("center", center),
    ("e", escape),
    ("escape", escape),
    ("float", float),
    ("forceescape", escape),
    ("format", format),
    ("indent", indent),
    ("int", int),
    ("lower", lower),
    ("pprint", pretty),
    ("replace", replace),
    ("round", round),
    ("safe", safe),
    ("string", string),
    ("striptags", strip_tags),
    ("title", title),
    ("tojson", to_json),
    ("trim", trim),
    ("truncate", truncate),
    ("upper", upper),
    ("urlencode", url_encode),
    ("wordcount", word_count),
];

/// The text that a filter works on.
fn own(renderer: &Renderer<'_>, value: &Value) -> Checked<String> {
    renderer.value_text(value)
}

fn string(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("string")?;
    own(renderer, value).map(Value::text)
}

fn safe(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("safe")?;
    Ok(Value::Markup(own(renderer, value)?.into()))
}

fn lower(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("lower")?;
    Ok(Value::text(own(renderer, value)?.to_lowercase()))
}

fn upper(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("upper")?;
    Ok(Value::text(own(renderer, value)?.to_uppercase()))
}

fn capitalize(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("capitalize")?;
    Ok(Value::text(text::capitalize(&own(renderer, value)?)))
}

/// Words after white space, hyphens and opening brackets begin with upper case.
fn title(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("title")?;
    let mut begins = true;
    let mut out = String::new();
    for c in own(renderer, value)?.chars() {
        let divides = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        if begins && !divides {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        begins = divides;
    }
    Ok(Value::text(out))
}

fn trim(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [chars] = arguments.bind("trim", ["chars"])?;
    let chars = chars.as_ref().and_then(Value::as_str);
    Ok(Value::text(text::strip(&own(renderer, value)?, chars, true, true)))
}

fn center(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [width] = arguments.bind("center", ["width"])?;
    let width = count(width, 80)?;
    renderer.budget.text(width)?;
    Ok(Value::text(text::pad(&own(renderer, value)?, "center", width, ' ')))
}

fn escape(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("escape")?;
    Ok(Value::Markup(escaped(&own(renderer, value)?, renderer.budget)?.into()))
}

fn format(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let text = own(renderer, value)?;
    let values = if arguments.named.is_empty() {
        Value::tuple(arguments.positional, renderer.budget)?
    } else {
        let entries = arguments.named.into_iter().map(|(name, value)| (Value::text(name), value)).collect();
        Value::dict(entries, renderer.budget)?
    };
    percent(&text, &values, renderer.budget).map(Value::text)
}

fn replace(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [from, to, most] = arguments.bind("replace", ["old", "new", "count"])?;
    let part = |value: Option<Value>| match value {
        Some(value) => renderer.value_text(&value),
        None => Err(Problem::new("replace needs two strings")),
    };
    let (from, to) = (part(from)?, part(to)?);
    let most = match most {
        None | Some(Value::None) => None,
        some => Some(count(some, 0)?),
    };
    text::replace(&own(renderer, value)?, &from, &to, most, renderer.budget).map(Value::text)
}

fn indent(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [width, first, blank] = arguments.bind("indent", ["width", "first", "blank"])?;
    let is_true = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let (first, blank) = (is_true(first), is_true(blank));
    let budget = renderer.budget;
    let margin = match width {
        Some(Value::Text(margin)) => margin.to_string(),
        width => {
            let width = count(width, 4)?;
            budget.text(width)?;
            " ".repeat(width)
        }
    };
    let text = own(renderer, value)? + "\n";
    let lines = text::lines(&text, false);
    budget.text(lines.len().saturating_mul(margin.len().saturating_add(1)).saturating_add(text.len()))?;
    let mut out = String::new();
    for (place, line) in lines.iter().enumerate() {
        if place > 0 {
            out.push('\n');
        }
        if (place == 0 && first) || (place > 0 && (blank || !line.is_empty())) {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(Value::text(out))
}

fn to_json(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [ascii, indent, separators, sort_keys] =
        arguments.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let style = Style::new(ascii, indent, separators, sort_keys)?;
    dumps(value, &style, renderer.budget).map(Value::text)
}

fn truncate(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [length, kills, end, leeway] = arguments.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = count(length, 255)?;
    let end = end.map_or_else(|| Ok("...".to_owned()), |end| renderer.value_text(&end))?;
    let leeway = count(leeway, 5)?;
    let text = own(renderer, value)?;
    let chars = text.chars().count();
    if chars <= length.saturating_add(leeway) {
        return Ok(Value::text(text));
    }
    let most = length.saturating_sub(end.chars().count());
    let cut: String = text.chars().take(most).collect();
    if kills.is_some_and(|kills| kills.is_true()) {
        return Ok(Value::text(cut + &end));
    }
    let words = cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words);
    Ok(Value::text(format!("{words}{end}")))
}

/// Text without tags and comments of HTML, with single spaces.
fn strip_tags(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("striptags")?;
    let text = own(renderer, value)?;
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('<') {
        let end = if after.starts_with("!--") { "-->" } else { ">" };
        let Some((_, after)) = after.split_once(end) else { break };
        out.push_str(before);
        rest = after;
    }
    out.push_str(rest);
    let plain = out.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&#34;", "\"");
    let plain = plain.replace("&quot;", "\"").replace("&amp;", "&");
    Ok(Value::text(text::split(&plain, None, None, false)?.join(" ")))
}

fn url_encode(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("urlencode")?;
    let budget = renderer.budget;
    let quoted = |text: &str, slash: bool| -> Checked<String> {
        budget.text(text.len().saturating_mul(3))?;
        let mut out = String::new();
        for byte in text.bytes() {
            let plain = byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || (slash && byte == b'/');
            if plain { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
        }
        Ok(out)
    };
    let Value::Dict(dict) = value else { return quoted(&own(renderer, value)?, true).map(Value::text) };
    let mut parts = Vec::new();
    for (key, value) in &dict.entries {
        let (key, value) = (own(renderer, key)?, own(renderer, value)?);
        parts.push(format!("{}={}", quoted(&key, false)?, quoted(&value, false)?));
    }
    Ok(Value::text(parts.join("&")))
}

fn word_count(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("wordcount")?;
    let text = own(renderer, value)?;
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    Ok(Value::count(words.count()))
}

/// `pprint.pformat` of a value that fits on one line.
fn pretty(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("pprint")?;
    let text = repr(&sorted(value, renderer)?, renderer.budget)?;
    if text.chars().count() > PRETTY_WIDTH {
        return Err(Problem::new(format!("pprint is supported for at most {PRETTY_WIDTH} characters")));
    }
    Ok(Value::text(text))
}

/// The value with the keys of its dictionaries in order.
fn sorted(value: &Value, renderer: &mut Renderer<'_>) -> Checked<Value> {
    let budget = renderer.budget;
    match value {
        Value::Dict(dict) => {
            budget.values(dict.entries.len())?;
            let keyed = dict.entries.iter().map(|(key, _)| (key.clone(), key.clone())).collect();
            let mut entries = Vec::new();
            for key in list_filters::sorted(renderer, keyed, false)? {
                let value = dict.find(&key, budget)?.cloned().unwrap_or(Value::None);
                entries.push((key, sorted(&value, renderer)?));
            }
            Value::dict(entries, budget)
        }
        Value::Sequence(sequence) => {
            let items = sequence.items.iter().map(|item| sorted(item, renderer)).collect::<Checked<Vec<Value>>>()?;
            Value::sequence(sequence.kind, items, budget)
        }
        other => Ok(other.clone()),
    }
}

fn abs(_: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("abs")?;
    value.defined()?;
    match value.as_int() {
        Some(number) => Ok(Value::Int(number.saturating_abs())),
        None => {
            value.as_float().map(|number| Value::Float(number.abs())).ok_or_else(|| Problem::new("abs needs a number"))
        }
    }
}

fn int(_: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [default, base] = arguments.bind("int", ["default", "base"])?;
    let base = count(base, 10)?;
    value.defined()?;
    let read = match value {
        Value::Text(text) => {
            let text = text.trim().replace('_', "");
            let digits = match base {
                16 => text.trim_start_matches("0x").trim_start_matches("0X"),
                8 => text.trim_start_matches("0o").trim_start_matches("0O"),
                2 => text.trim_start_matches("0b").trim_start_matches("0B"),
                _ => &text,
            };
            let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
            let whole = base.and_then(|base| i128::from_str_radix(digits, base).ok());
            whole.or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).and_then(int_of))
        }
        other => other.as_int().or_else(|| other.as_float().filter(|number| number.is_finite()).and_then(int_of)),
    };
    Ok(read.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
}

fn float(_: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [default] = arguments.bind("float", ["default"])?;
    value.defined()?;
    let read = match value {
        Value::Text(text) => text.trim().replace('_', "").parse().ok(),
        other => other.as_float(),
    };
    Ok(read.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
}

fn round(_: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [precision, method] = arguments.bind("round", ["precision", "method"])?;
    let digits = count(precision, 0)?.min(300);
    value.defined()?;
    let number = value.as_float().ok_or_else(|| Problem::new("round needs a number"))?;
    let scale = 10_f64.powi(i32::try_from(digits).unwrap_or(0));
    match method.as_ref().and_then(Value::as_str).unwrap_or("common") {
        "common" => match value.as_int() {
            Some(number) => Ok(Value::Int(number)),
            None => Ok(Value::Float(format!("{number:.digits$}").parse().unwrap_or(number))),
        },
        "ceil" => Ok(Value::Float(whole((number * scale).ceil()) / scale)),
        "floor" => Ok(Value::Float(whole((number * scale).floor()) / scale)),
        other => Err(Problem::new(format!("unknown rounding method {other}; expected common, ceil or floor"))),
    }
}

/// A float without a sign of zero, as an integer is.
fn whole(number: f64) -> f64 {
    int_of(number).map_or(number, float_of)
}

/// A count, or what is used without one.
pub(super) fn count(value: Option<Value>, missing: usize) -> Checked<usize> {
    let Some(value) = value else { return Ok(missing) };
    value.defined()?;
    let number =
        value.as_int().ok_or_else(|| Problem::new(format!("expected a number, found {}", value.type_name())))?;
    Ok(usize::try_from(number.max(0)).unwrap_or(usize::MAX))
}
