//! `str.format` and the operator `%` on strings.

use super::arguments::Arguments;
use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::text::{float, repr, to_text};
use super::value::{SequenceKind, Value, int_of};

/// Widest field, and most digits after the point.
const WIDTH_MAX: usize = 1000;

/// How one value is written.
#[derive(Default)]
struct Field {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    width: usize,
    group: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `text.format(...)`
pub(super) fn braces(renderer: &mut Renderer<'_>, text: &str, arguments: &Arguments) -> Checked<String> {
    let mut out = String::new();
    let mut rest = text;
    let mut automatic = 0_usize;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(before);
        if let Some(after) = after.strip_prefix("{{") {
            out.push('{');
            rest = after;
            continue;
        }
        if let Some(after) = after.strip_prefix("}}") {
            out.push('}');
            rest = after;
            continue;
        }
        let inside = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((inside, after)) = inside else {
            return Err(Problem::new("format found a single brace in its text"));
        };
        rest = after;
        if inside.contains('{') {
            return Err(Problem::new("format does not support a field within a field"));
        }
        let (name, field) = inside.split_once(':').unwrap_or((inside, ""));
        let (name, conversion) = name.split_once('!').map_or((name, None), |(name, how)| (name, Some(how)));
        let value = field_value(renderer, name, arguments, &mut automatic)?;
        let value = match conversion {
            None => value,
            Some("s") => Value::text(renderer.value_text(&value)?),
            Some("r") => Value::text(repr(&value, renderer.budget)?),
            Some(other) => return Err(Problem::new(format!("unknown conversion !{other} of format"))),
        };
        let field = parse_field(field)?;
        let written = match &value {
            Value::Namespace(_) => Value::text(renderer.value_text(&value)?),
            other => other.clone(),
        };
        out.push_str(&write(&written, &field, renderer.budget)?);
        renderer.budget.text(out.len().saturating_sub(at))?;
    }
    out.push_str(rest);
    Ok(out)
}

/// The value of `0`, `name`, `name.attribute`, `name[key]` or of nothing, which means the next argument.
fn field_value(
    renderer: &mut Renderer<'_>,
    name: &str,
    arguments: &Arguments,
    automatic: &mut usize,
) -> Checked<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut rest) = name.split_at_checked(end).unwrap_or((name, ""));
    let place = if first.is_empty() {
        let place = *automatic;
        *automatic = place.saturating_add(1);
        Some(place)
    } else {
        first.parse().ok()
    };
    let found = match place {
        Some(place) => arguments.positional.get(place).cloned(),
        None => arguments.named.iter().find(|(own, _)| **own == *first).map(|(_, value)| value.clone()),
    };
    let mut value = found.ok_or_else(|| Problem::new(format!("format has no argument for the field {{{name}}}")))?;
    while !rest.is_empty() {
        if let Some(key) = rest.strip_prefix('[') {
            let (key, after) = key.split_once(']').unwrap_or((key, ""));
            let index = key.parse().map_or_else(|_| Value::text(key), Value::Int);
            value = renderer.item(&value, &index)?;
            rest = after;
        } else {
            let attribute = rest.strip_prefix('.').unwrap_or(rest);
            let end = attribute.find(['.', '[']).unwrap_or(attribute.len()).max(1);
            let (attribute, after) = attribute.split_at_checked(end).unwrap_or((attribute, ""));
            value = renderer.attribute(&value, attribute)?;
            rest = after;
        }
    }
    Ok(value)
}

/// `[[fill]align][sign][#][0][width][,][.precision][type]`
fn parse_field(text: &str) -> Checked<Field> {
    let fail = || Problem::new(format!("unknown format specification \"{text}\""));
    let mut field = Field::default();
    let is_align = |c: char| matches!(c, '<' | '>' | '^' | '=');
    let mut rest = text;
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(fill), Some(align)) if is_align(align) => {
            (field.fill, field.align) = (Some(fill), Some(align));
            rest = chars.as_str();
        }
        (Some(align), _) if is_align(align) => {
            field.align = Some(align);
            rest = text.get(1..).unwrap_or_default();
        }
        _ => {}
    }
    let take = |rest: &mut &str, accepted: &[char]| {
        let c = rest.chars().next().filter(|c| accepted.contains(c))?;
        *rest = rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    };
    field.sign = take(&mut rest, &['+', '-', ' ']);
    field.alternate = take(&mut rest, &['#']).is_some();
    if take(&mut rest, &['0']).is_some() {
        field.fill = field.fill.or(Some('0'));
        field.align = field.align.or(Some('='));
    }
    field.width = digits(&mut rest)?.unwrap_or(0);
    field.group = take(&mut rest, &[',', '_']);
    if take(&mut rest, &['.']).is_some() {
        field.precision = Some(digits(&mut rest)?.ok_or_else(fail)?);
    }
    field.kind = take(&mut rest, &['s', 'd', 'f', 'F', 'e', 'g', 'x', 'X', 'o', 'b', 'c', 'n', '%']);
    if rest.is_empty() { Ok(field) } else { Err(fail()) }
}

/// A number at the front, at most [`WIDTH_MAX`].
fn digits(rest: &mut &str) -> Checked<Option<usize>> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    *rest = after;
    if number.is_empty() {
        return Ok(None);
    }
    let number = number.parse().ok().filter(|number| *number <= WIDTH_MAX);
    number.map(Some).ok_or_else(|| Problem::new(format!("a field is wider than {WIDTH_MAX} characters")))
}

fn write(value: &Value, field: &Field, budget: &Budget) -> Checked<String> {
    let is_number = value.as_float().is_some() && !(matches!(value, Value::Bool(_)) && field.kind.is_none());
    let body = match (value, field.kind) {
        (value, None | Some('s')) if !is_number => {
            let text = to_text(value, budget)?;
            match field.precision {
                Some(most) => text.chars().take(most).collect(),
                None => text,
            }
        }
        (value, Some('c')) => {
            let code = value.as_int().and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
            code.map(String::from).ok_or_else(|| Problem::new("format expects the number of a character"))?
        }
        (value, kind) if is_number => number(value, field, kind)?,
        (other, Some(kind)) => {
            let name = other.type_name();
            return Err(Problem::new(format!("format cannot write a value of the type {name} as {kind}")));
        }
        (_, None) => to_text(value, budget)?,
    };
    Ok(aligned(&body, field, is_number))
}

fn aligned(body: &str, field: &Field, is_number: bool) -> String {
    let missing = field.width.saturating_sub(body.chars().count());
    let fill = |count: usize| field.fill.unwrap_or(' ').to_string().repeat(count);
    match field.align.unwrap_or(if is_number { '>' } else { '<' }) {
        '<' => format!("{body}{}", fill(missing)),
        '^' => {
            let left = missing.div_euclid(2);
            format!("{}{body}{}", fill(left), fill(missing.saturating_sub(left)))
        }
        '=' if is_number => {
            let digits = body.strip_prefix(['+', '-', ' ']).unwrap_or(body);
            let sign = body.strip_suffix(digits).unwrap_or_default();
            format!("{sign}{}{digits}", fill(missing))
        }
        _ => format!("{}{body}", fill(missing)),
    }
}

fn number(value: &Value, field: &Field, kind: Option<char>) -> Checked<String> {
    let precision = field.precision.unwrap_or(6);
    let fail = || Problem::new("format cannot write the number in this way");
    let negative = value.as_float().is_some_and(|number| number < 0.0 || (number == 0.0 && number.is_sign_negative()));
    let digits = match (value.as_int().filter(|_| !matches!(kind, Some('f' | 'F' | 'e' | 'g' | '%'))), kind) {
        (Some(number), None | Some('d' | 'n')) => grouped(&number.unsigned_abs().to_string(), field.group),
        (Some(number), Some('x')) => prefixed(field, "0x", format!("{:x}", number.unsigned_abs())),
        (Some(number), Some('X')) => prefixed(field, "0X", format!("{:X}", number.unsigned_abs())),
        (Some(number), Some('o')) => prefixed(field, "0o", format!("{:o}", number.unsigned_abs())),
        (Some(number), Some('b')) => prefixed(field, "0b", format!("{:b}", number.unsigned_abs())),
        (_, Some('d' | 'x' | 'X' | 'o' | 'b' | 's')) => return Err(fail()),
        (_, kind) => {
            let number = value.as_float().ok_or_else(fail)?.abs();
            match kind {
                Some('f' | 'F') => grouped(&format!("{number:.precision$}"), field.group),
                Some('%') => grouped(&format!("{:.precision$}%", number * 100.0), field.group),
                Some('e') => exponential(number, precision),
                Some('g' | 'n') => general(number, precision),
                _ => match field.precision {
                    // Without a type, a float keeps one digit after the point.
                    Some(precision) => {
                        let text = general(number, precision);
                        if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
                    }
                    None => grouped(&float(number), field.group),
                },
            }
        }
    };
    let sign = match (negative, field.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        (false, _) => "",
    };
    Ok(format!("{sign}{digits}"))
}

fn prefixed(field: &Field, prefix: &str, digits: String) -> String {
    if field.alternate { format!("{prefix}{digits}") } else { digits }
}

/// Separators after every three digits before the point.
fn grouped(digits: &str, group: Option<char>) -> String {
    let Some(group) = group else { return digits.to_owned() };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at_checked(end).unwrap_or((digits, ""));
    let mut out = String::new();
    for (place, c) in whole.chars().enumerate() {
        if place > 0 && whole.len().saturating_sub(place).rem_euclid(3) == 0 {
            out.push(group);
        }
        out.push(c);
    }
    out + rest
}

/// An exponent of at least two digits.
fn exponential(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// The shorter of both ways, without zeros at the end.
fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let scientific = exponential(number, precision.saturating_sub(1));
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    if (-4..most).contains(&exponent) {
        let decimals = usize::try_from(most.saturating_sub(1).saturating_sub(exponent)).unwrap_or(0);
        return trimmed(&format!("{number:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
}

/// `text % values`
pub(super) fn percent(text: &str, values: &Value, budget: &Budget) -> Checked<String> {
    let items: Vec<Value> = match values {
        Value::Sequence(sequence) if sequence.kind == SequenceKind::Tuple => sequence.items.clone(),
        other => vec![other.clone()],
    };
    budget.values(items.len())?;
    let mut next = items.iter();
    let mut out = String::new();
    let mut rest = text;
    let mut used = false;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut named = None;
        if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            let Value::Dict(dict) = values else { return Err(Problem::new("% with names needs a dictionary")) };
            let value = dict.get(name, budget)?.cloned();
            named = Some(value.ok_or_else(|| Problem::new(format!("% has no value for {name}")))?);
            rest = after;
        }
        let (field, kind) = percent_field(&mut rest)?;
        used |= named.is_some();
        let value = match named {
            Some(value) => value,
            None => next.next().cloned().ok_or_else(|| Problem::new("% has fewer values than its text has fields"))?,
        };
        out.push_str(&percent_value(&value, field, kind, budget)?);
        budget.text(out.len().saturating_sub(before.len()))?;
    }
    out.push_str(rest);
    budget.text(out.len())?;
    if !used && next.next().is_some() && !matches!(values, Value::Dict(_)) {
        return Err(Problem::new("% has more values than its text has fields"));
    }
    Ok(out)
}

/// Flags, width, precision and the letter of one field.
fn percent_field(rest: &mut &str) -> Checked<(Field, char)> {
    let mut field = Field::default();
    while let Some(flag) = rest.chars().next().filter(|c| matches!(c, '-' | '+' | ' ' | '0' | '#')) {
        match flag {
            '-' => field.align = Some('<'),
            '0' => field.fill = Some('0'),
            '#' => field.alternate = true,
            sign => field.sign = if field.sign == Some('+') { Some('+') } else { Some(sign) },
        }
        *rest = rest.get(1..).unwrap_or_default();
    }
    field.width = digits(rest)?.unwrap_or(0);
    if let Some(after) = rest.strip_prefix('.') {
        *rest = after;
        field.precision = Some(digits(rest)?.unwrap_or(0));
    }
    let kind = rest.chars().next().ok_or_else(|| Problem::new("% ends within a field"))?;
    *rest = rest.get(kind.len_utf8()..).unwrap_or_default();
    Ok((field, kind))
}

fn percent_value(value: &Value, mut field: Field, kind: char, budget: &Budget) -> Checked<String> {
    let is_text = matches!(kind, 's' | 'r' | 'a' | 'c');
    match (field.align, field.fill) {
        // Left alignment fills with spaces.
        (Some(_), _) => field.fill = None,
        (None, Some(_)) if !is_text => field.align = Some('='),
        (None, _) => (field.align, field.fill) = (Some('>'), None),
    }
    let written = match kind {
        's' | 'c' if value.as_str().is_some() => value.clone(),
        'c' => {
            field.kind = Some('c');
            value.clone()
        }
        's' => Value::text(to_text(value, budget)?),
        'r' | 'a' => Value::text(repr(value, budget)?),
        'd' | 'i' | 'u' => {
            value.defined()?;
            let number = value.as_int().or_else(|| value.as_float().and_then(int_of));
            field.kind = Some('d');
            Value::Int(
                number.ok_or_else(|| Problem::new(format!("%{kind} needs a number, found {}", value.type_name())))?,
            )
        }
        'f' | 'F' | 'e' | 'g' => {
            let number = value.as_float().ok_or_else(|| Problem::new(format!("%{kind} needs a number")))?;
            field.kind = Some(kind);
            Value::Float(number)
        }
        'x' | 'X' | 'o' => {
            field.kind = Some(kind);
            value.clone()
        }
        other => return Err(Problem::new(format!("unknown conversion %{other} of the % operator"))),
    };
    write(&written, &field, budget)
}
