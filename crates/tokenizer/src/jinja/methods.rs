//! Methods of Python's strings, lists and dictionaries that change nothing.

use super::arguments::Arguments;
use super::format::braces;
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::text::is_printable;
use super::text::is_space;
use super::text_methods as text;
use super::value::{SequenceKind, Value};

const TEXT: [&str; 45] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
    "__len__",
];
const SEQUENCE: [&str; 2] = ["count", "index"];
const LIST: [&str; 3] = ["count", "index", "copy"];
const DICT: [&str; 5] = ["get", "items", "keys", "values", "copy"];
const CYCLER: [&str; 2] = ["next", "reset"];
const FLOAT: [&str; 1] = ["is_integer"];

/// The name of a method, if the value has it. Methods that change a value do not exist: the sandbox of transformers
/// refuses them.
pub(super) fn find(value: &Value, name: &str) -> Option<&'static str> {
    let names: &[&'static str] = match value {
        Value::Text(_) => &TEXT,
        Value::Dict(_) => &DICT,
        Value::Sequence(sequence) => match sequence.kind {
            SequenceKind::List => &LIST,
            SequenceKind::Tuple | SequenceKind::Range(..) => &SEQUENCE,
            SequenceKind::View(_) => &[],
        },
        Value::Cycler(_) => &CYCLER,
        Value::Float(_) => &FLOAT,
        _ => &[],
    };
    names.iter().find(|own| **own == name && !own.starts_with('_')).copied()
}

/// Calls a method.
pub(super) fn call(renderer: &mut Renderer<'_>, value: &Value, name: &str, arguments: Arguments) -> Checked<Value> {
    match value {
        Value::Text(own) => of_text(renderer, own, name, arguments),
        Value::Dict(dict) => {
            let budget = renderer.budget;
            match name {
                "get" => {
                    let [key, default] = arguments.bind(name, ["key", "default"])?;
                    let key = key.ok_or_else(|| missing(name, "key"))?;
                    Ok(dict.find(&key, budget)?.cloned().or(default).unwrap_or(Value::None))
                }
                "copy" => arguments.none(name).map(|()| value.clone()),
                _ => {
                    arguments.none(name)?;
                    budget.values(dict.entries.len())?;
                    let entries = dict.entries.iter().cloned();
                    match name {
                        "keys" => {
                            let keys = entries.map(|(key, _)| key).collect();
                            Value::sequence(SequenceKind::View("dict_keys"), keys, budget)
                        }
                        "values" => {
                            let values = entries.map(|(_, value)| value).collect();
                            Value::sequence(SequenceKind::View("dict_values"), values, budget)
                        }
                        _ => {
                            let pairs = entries.map(|(key, value)| Value::tuple(vec![key, value], budget));
                            let pairs = pairs.collect::<Checked<Vec<Value>>>()?;
                            Value::sequence(SequenceKind::View("dict_items"), pairs, budget)
                        }
                    }
                }
            }
        }
        Value::Sequence(sequence) => {
            if name == "copy" {
                return arguments.none(name).map(|()| value.clone());
            }
            let [item] = arguments.bind(name, ["value"])?;
            let item = item.ok_or_else(|| missing(name, "value"))?;
            let mut places = Vec::new();
            for (place, own) in sequence.items.iter().enumerate() {
                if own.equals(&item, renderer.budget)? {
                    places.push(place);
                }
            }
            match (name, places.first()) {
                ("index", Some(place)) => Ok(Value::count(*place)),
                ("index", None) => Err(Problem::new("the list does not contain the value that index looks for")),
                _ => Ok(Value::count(places.len())),
            }
        }
        Value::Cycler(own) => {
            arguments.none(name)?;
            let Value::Sequence(values) = &own.0 else { return Ok(Value::None) };
            let place = own.1.get();
            match name {
                "reset" => own.1.set(0),
                _ => own.1.set(place.saturating_add(1).checked_rem(values.items.len()).unwrap_or(0)),
            }
            Ok(if name == "reset" { Value::None } else { values.items.get(place).cloned().unwrap_or(Value::None) })
        }
        Value::Float(number) => arguments.none(name).map(|()| Value::Bool(number.fract() == 0.0)),
        other => Err(Problem::new(format!("a value of the type {} has no method {name}", other.type_name()))),
    }
}

fn missing(function: &str, argument: &str) -> Problem {
    Problem::new(format!("{function} needs the argument {argument}"))
}

fn of_text(renderer: &mut Renderer<'_>, own: &str, name: &str, arguments: Arguments) -> Checked<Value> {
    let budget = renderer.budget;
    // Twice: an upper case can be longer than its lower case.
    budget.text(own.len().saturating_mul(2))?;
    match name {
        "format" | "format_map" => {
            let mut arguments = arguments;
            if name == "format_map" {
                let [map] = arguments.bind(name, ["mapping"])?;
                let Some(Value::Dict(dict)) = map else { return Err(missing(name, "mapping")) };
                let named = dict.entries.iter().filter_map(|(key, value)| Some((key.as_str()?.into(), value.clone())));
                arguments = Arguments { positional: Vec::new(), named: named.collect() };
            }
            return braces(renderer, own, &arguments).map(Value::text);
        }
        "join" => {
            let [items] = arguments.bind(name, ["iterable"])?;
            let items = items.ok_or_else(|| missing(name, "iterable"))?;
            items.defined()?;
            let items = items.iterate(budget)?;
            return text::join(own, &items, budget).map(Value::text);
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = arguments.bind(name, ["chars"])?;
            let chars = optional_text(chars)?;
            return Ok(Value::text(text::strip(own, chars.as_deref(), name != "rstrip", name != "lstrip")));
        }
        "split" | "rsplit" => {
            let [between, most] = arguments.bind(name, ["sep", "maxsplit"])?;
            let parts = text::split(own, optional_text(between)?.as_deref(), optional_count(most)?, name == "rsplit")?;
            let parts = parts.into_iter().map(Value::text).collect();
            return Value::list(parts, budget);
        }
        "splitlines" => {
            let [keeps] = arguments.bind(name, ["keepends"])?;
            let lines = text::lines(own, keeps.is_some_and(|keeps| keeps.is_true()));
            return Value::list(lines.into_iter().map(Value::text).collect(), budget);
        }
        "replace" => {
            let [from, to, count] = arguments.bind(name, ["old", "new", "count"])?;
            let from = required_text(from, name)?;
            let to = required_text(to, name)?;
            return text::replace(own, &from, &to, optional_count(count)?, budget).map(Value::text);
        }
        _ => {}
    }
    looking(renderer, own, name, arguments)
}

/// Methods that look for something in a text, pad it or divide it once.
fn looking(renderer: &mut Renderer<'_>, own: &str, name: &str, arguments: Arguments) -> Checked<Value> {
    let budget = renderer.budget;
    match name {
        "startswith" | "endswith" => {
            let [part, from, to] = arguments.bind(name, ["prefix", "start", "end"])?;
            let part = part.ok_or_else(|| missing(name, "prefix"))?;
            let own = text::section(own, optional_int(from)?, optional_int(to)?).1;
            let parts = match &part {
                Value::Sequence(parts) if parts.kind == SequenceKind::Tuple => parts.items.clone(),
                other => vec![other.clone()],
            };
            budget.step(parts.len())?;
            let mut holds = false;
            for part in parts {
                let part = required_text(Some(part), name)?;
                holds |= if name == "startswith" { own.starts_with(&*part) } else { own.ends_with(&*part) };
            }
            return Ok(Value::Bool(holds));
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, from, to] = arguments.bind(name, ["sub", "start", "end"])?;
            let part = required_text(part, name)?;
            return search(own, name, &part, (optional_int(from)?, optional_int(to)?));
        }
        "partition" | "rpartition" => {
            let [between] = arguments.bind(name, ["sep"])?;
            let between = required_text(between, name)?;
            let parts = text::partition(own, &between, name == "rpartition");
            return Value::tuple(parts.into_iter().map(Value::text).collect(), budget);
        }
        "removeprefix" | "removesuffix" => {
            let [part] = arguments.bind(name, ["prefix"])?;
            let part = required_text(part, name)?;
            let rest = if name == "removeprefix" { own.strip_prefix(&*part) } else { own.strip_suffix(&*part) };
            return Ok(Value::text(rest.unwrap_or(own)));
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let [width, fill] = arguments.bind(name, ["width", "fillchar"])?;
            let width = optional_count(width)?.unwrap_or(0);
            let fill = optional_text(fill)?.and_then(|fill| fill.chars().next()).unwrap_or(' ');
            budget.text(width.saturating_mul(fill.len_utf8()))?;
            return Ok(Value::text(text::pad(own, name, width, fill)));
        }
        "expandtabs" => {
            let [size] = arguments.bind(name, ["tabsize"])?;
            let size = optional_count(size)?.unwrap_or(8);
            budget.text(own.matches('\t').count().saturating_mul(size))?;
            return Ok(Value::text(text::expand_tabs(own, size)));
        }
        _ => arguments.none(name)?,
    }
    plain(own, name)
}

/// Methods without arguments.
fn plain(own: &str, name: &str) -> Checked<Value> {
    let all = |is: fn(char) -> bool| Value::Bool(!own.is_empty() && own.chars().all(is));
    Ok(match name {
        "lower" => Value::text(own.to_lowercase()),
        "casefold" => Value::text(own.replace('ß', "ss").to_lowercase()),
        "upper" => Value::text(own.to_uppercase()),
        "capitalize" => Value::text(text::capitalize(own)),
        "title" => Value::text(text::title(own)),
        "swapcase" => Value::text(text::swap_case(own)),
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => Value::Bool(own.is_ascii()),
        "isdecimal" | "isdigit" => {
            all(|c| c.is_ascii_digit() || (c.is_numeric() && !c.is_ascii() && c.is_alphanumeric()))
        }
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let starts = own.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
            Value::Bool(starts && own.chars().all(|c| c.is_alphanumeric() || c == '_'))
        }
        "islower" => Value::Bool(super::tests::is_case(own, char::is_lowercase, char::is_uppercase)),
        "isupper" => Value::Bool(super::tests::is_case(own, char::is_uppercase, char::is_lowercase)),
        "isprintable" => Value::Bool(own.chars().all(is_printable)),
        "isspace" => all(is_space),
        "istitle" => Value::Bool(own.chars().any(char::is_alphabetic) && text::title(own) == own),
        other => return Err(Problem::new(format!("the method {other} of strings is not supported"))),
    })
}

/// `find`, `rfind`, `index`, `rindex` and `count`; places are counted in characters.
fn search(own: &str, name: &str, part: &str, (from, to): (Option<i128>, Option<i128>)) -> Checked<Value> {
    let (before, section) = text::section(own, from, to);
    if name == "count" {
        let count =
            if part.is_empty() { section.chars().count().saturating_add(1) } else { section.matches(part).count() };
        return Ok(Value::count(count));
    }
    let place = if name.starts_with('r') { section.rfind(part) } else { section.find(part) };
    match place.and_then(|place| section.get(..place)) {
        Some(inside) => Ok(Value::count(before.saturating_add(inside.chars().count()))),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(Problem::new("the text does not contain the part that index looks for")),
    }
}

fn required_text(value: Option<Value>, function: &str) -> Checked<std::rc::Rc<str>> {
    match value {
        Some(Value::Text(text)) => Ok(text),
        Some(other) => {
            other.defined()?;
            Err(Problem::new(format!("{function} expects a string, found {}", other.type_name())))
        }
        None => Err(Problem::new(format!("{function} needs a string"))),
    }
}

fn optional_text(value: Option<Value>) -> Checked<Option<std::rc::Rc<str>>> {
    match value {
        None | Some(Value::None) => Ok(None),
        some => required_text(some, "the method").map(Some),
    }
}

fn optional_int(value: Option<Value>) -> Checked<Option<i128>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(other) => {
            other.defined()?;
            let number = other.as_int();
            number.map(Some).ok_or_else(|| Problem::new(format!("expected an integer, found {}", other.type_name())))
        }
    }
}

/// A count; a negative one means no limit.
fn optional_count(value: Option<Value>) -> Checked<Option<usize>> {
    Ok(optional_int(value)?.filter(|count| *count >= 0).map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
}
