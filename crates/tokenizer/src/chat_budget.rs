//! What one rendering of a chat template may build and look at.
//!
//! ```text
//! built  text bytes and values that a step makes          bounds memory
//! read   text bytes and values that a step looks through  bounds time: one step of the engine can walk a long list
//! ```
//!
//! The engine counts steps only, so every filter, test and function that makes or walks through a value is put in place again
//! with a count around it. Filters without a use in a conversation are removed.

use crate::chat_slice;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, escape_formatter, filters, functions, tests};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes and values that one rendering may build, and so many more for each byte of the conversation.
const BUILT: u64 = 1 << 20;
const BUILT_PER_BYTE: u64 = 64;
/// Bytes and values that one rendering may look at, and so many more for each byte of the conversation.
const READ: u64 = 1 << 26;
const READ_PER_BYTE: u64 = 1024;
/// A value within a value costs as much time as so many bytes of text.
const READ_PER_VALUE: usize = 16;
/// Values within values.
const DEPTH_MAX: usize = 64;
/// Filters of the engine that a conversation has no use for.
const REMOVED_FILTERS: [&str; 7] = ["pprint", "format", "zip", "chain", "batch", "slice", "sum"];

pub(crate) type Checked<T> = Result<T, Error>;

/// How much of its input a filter or test looks at, and what it makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A text, or a value without its items; makes nothing new.
    Handle,
    /// Every item, but not what is inside items; makes as many items at most.
    Items,
    /// Everything; makes as many items at most.
    Whole,
    /// Everything; makes text.
    Text,
}

/// A function of the engine by name.
type Named = (&'static str, Reach, fn() -> Value);

/// Every filter of the engine that stays, but `replace`, `join`, `indent` and `tojson`, which are our own.
const FILTERS: [Named; 37] = [
    ("safe", Reach::Text, || Value::from_function(filters::safe)),
    ("escape", Reach::Text, || Value::from_function(filters::escape)),
    ("e", Reach::Text, || Value::from_function(filters::escape)),
    ("lower", Reach::Text, || Value::from_function(filters::lower)),
    ("upper", Reach::Text, || Value::from_function(filters::upper)),
    ("title", Reach::Text, || Value::from_function(filters::title)),
    ("capitalize", Reach::Text, || Value::from_function(filters::capitalize)),
    ("trim", Reach::Text, || Value::from_function(filters::trim)),
    ("split", Reach::Text, || Value::from_function(filters::split)),
    ("lines", Reach::Text, || Value::from_function(filters::lines)),
    ("string", Reach::Text, || Value::from_function(filters::string)),
    ("length", Reach::Handle, || Value::from_function(filters::length)),
    ("count", Reach::Handle, || Value::from_function(filters::length)),
    ("first", Reach::Handle, || Value::from_function(filters::first)),
    ("last", Reach::Handle, || Value::from_function(filters::last)),
    ("default", Reach::Handle, || Value::from_function(filters::default)),
    ("d", Reach::Handle, || Value::from_function(filters::default)),
    ("attr", Reach::Handle, || Value::from_function(filters::attr)),
    ("round", Reach::Handle, || Value::from_function(filters::round)),
    ("abs", Reach::Handle, || Value::from_function(filters::abs)),
    ("int", Reach::Handle, || Value::from_function(filters::int)),
    ("float", Reach::Handle, || Value::from_function(filters::float)),
    ("bool", Reach::Handle, || Value::from_function(filters::bool)),
    ("list", Reach::Items, || Value::from_function(filters::list)),
    ("items", Reach::Items, || Value::from_function(filters::items)),
    ("reverse", Reach::Items, || Value::from_function(filters::reverse)),
    ("select", Reach::Items, || Value::from_function(filters::select)),
    ("reject", Reach::Items, || Value::from_function(filters::reject)),
    ("selectattr", Reach::Items, || Value::from_function(filters::selectattr)),
    ("rejectattr", Reach::Items, || Value::from_function(filters::rejectattr)),
    ("map", Reach::Items, || Value::from_function(filters::map)),
    ("dictsort", Reach::Whole, || Value::from_function(filters::dictsort)),
    ("min", Reach::Whole, || Value::from_function(filters::min)),
    ("max", Reach::Whole, || Value::from_function(filters::max)),
    ("sort", Reach::Whole, || Value::from_function(filters::sort)),
    ("groupby", Reach::Whole, || Value::from_function(filters::groupby)),
    ("unique", Reach::Whole, || Value::from_function(filters::unique)),
];

/// Every test of the engine that compares or walks through text.
const TESTS: [Named; 22] = [
    ("eq", Reach::Whole, || Value::from_function(tests::is_eq)),
    ("equalto", Reach::Whole, || Value::from_function(tests::is_eq)),
    ("==", Reach::Whole, || Value::from_function(tests::is_eq)),
    ("ne", Reach::Whole, || Value::from_function(tests::is_ne)),
    ("!=", Reach::Whole, || Value::from_function(tests::is_ne)),
    ("lt", Reach::Whole, || Value::from_function(tests::is_lt)),
    ("lessthan", Reach::Whole, || Value::from_function(tests::is_lt)),
    ("<", Reach::Whole, || Value::from_function(tests::is_lt)),
    ("le", Reach::Whole, || Value::from_function(tests::is_le)),
    ("<=", Reach::Whole, || Value::from_function(tests::is_le)),
    ("gt", Reach::Whole, || Value::from_function(tests::is_gt)),
    ("greaterthan", Reach::Whole, || Value::from_function(tests::is_gt)),
    (">", Reach::Whole, || Value::from_function(tests::is_gt)),
    ("ge", Reach::Whole, || Value::from_function(tests::is_ge)),
    (">=", Reach::Whole, || Value::from_function(tests::is_ge)),
    ("in", Reach::Whole, || Value::from_function(tests::is_in)),
    ("startingwith", Reach::Whole, || Value::from_function(tests::is_startingwith)),
    ("endingwith", Reach::Whole, || Value::from_function(tests::is_endingwith)),
    ("lower", Reach::Whole, || Value::from_function(tests::is_lower)),
    ("upper", Reach::Whole, || Value::from_function(tests::is_upper)),
    ("sameas", Reach::Whole, || Value::from_function(tests::is_sameas)),
    ("divisibleby", Reach::Whole, || Value::from_function(tests::is_divisibleby)),
];

/// What one rendering may still build and look at.
#[derive(Clone, Default, Debug)]
pub(crate) struct Budget {
    built: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Budget {
    /// Fills it for one rendering of a conversation of so many bytes.
    pub(crate) fn fill(&self, conversation_bytes: u64) {
        let of = |base: u64, per_byte: u64| base.saturating_add(conversation_bytes.saturating_mul(per_byte));
        self.built.store(of(BUILT, BUILT_PER_BYTE), Ordering::Relaxed);
        self.read.store(of(READ, READ_PER_BYTE), Ordering::Relaxed);
    }

    pub(crate) fn take_built(&self, size: usize) -> Checked<()> {
        take(&self.built, size, "it builds too much text")
    }

    fn take_read(&self, size: usize) -> Checked<()> {
        take(&self.read, size, "it takes too many steps over long text or lists")
    }

    /// Counts a value with everything inside it as built.
    pub(crate) fn build_whole(&self, value: &Value) -> Checked<()> {
        walk(value, |size| self.take_built(size))
    }

    /// Counts a value with everything inside it as looked at.
    pub(crate) fn read_whole(&self, value: &Value) -> Checked<()> {
        walk(value, |size| self.take_read(if size == 1 { READ_PER_VALUE } else { size }))
    }

    /// Counts what finding one place in a value takes: a text is walked through, and so is what has no places of its own.
    pub(crate) fn read_handle(&self, value: &Value) -> Checked<()> {
        match value.kind() {
            ValueKind::String => self.take_read(value.as_str().map_or(1, str::len).max(1)),
            ValueKind::Iterable => self.read_items(value),
            _ => self.take_read(1),
        }
    }

    fn read_items(&self, value: &Value) -> Checked<()> {
        items(value, |size| self.take_read(size.saturating_mul(READ_PER_VALUE)))
    }

    /// Counts a value and its items, but not what is inside items, as built.
    fn build_items(&self, value: &Value) -> Checked<()> {
        items(value, |size| self.take_built(size))
    }

    fn read(&self, reach: Reach, value: &Value) -> Checked<()> {
        match reach {
            Reach::Handle => self.read_handle(value),
            Reach::Items => self.read_items(value),
            Reach::Whole | Reach::Text => self.read_whole(value),
        }
    }

    fn build(&self, reach: Reach, value: &Value) -> Checked<()> {
        match reach {
            Reach::Handle => Ok(()),
            Reach::Items | Reach::Whole => self.build_items(value),
            Reach::Text => self.build_whole(value),
        }
    }
}

fn take(left: &AtomicU64, size: usize, problem: &str) -> Checked<()> {
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size));
    taken.map(|_| ()).map_err(|_| refuse(problem))
}

/// Gives the size of a value and of everything inside it to `take`: the bytes of a text, 1 for other values.
fn walk(value: &Value, take: impl Fn(usize) -> Checked<()>) -> Checked<()> {
    let mut waiting = vec![(value.clone(), 0usize)];
    while let Some((value, depth)) = waiting.pop() {
        if depth > DEPTH_MAX {
            return Err(refuse("it nests too many values"));
        }
        take(value.as_str().map_or(1, str::len).max(1))?;
        let map = value.kind() == ValueKind::Map;
        let inner = match value.kind() {
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.try_iter()?,
            _ => continue,
        };
        for item in inner {
            take(1)?;
            if map {
                waiting.push((value.get_item(&item)?, depth.saturating_add(1)));
            }
            waiting.push((item, depth.saturating_add(1)));
        }
    }
    Ok(())
}

/// Gives the number of items to `take`, of a text the bytes.
fn items(value: &Value, take: impl Fn(usize) -> Checked<()>) -> Checked<()> {
    match value.kind() {
        ValueKind::String => take(value.as_str().map_or(1, str::len).max(1)),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => match value.len() {
            Some(count) => take(count.max(1)),
            None => value.try_iter()?.try_for_each(|_| take(1)),
        },
        _ => take(1),
    }
}

pub(crate) fn refuse(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.to_owned())
}

/// Puts the counted filters, tests, functions, methods and output in place of the engine's.
pub(crate) fn install(environment: &mut Environment<'static>, budget: &Budget) {
    for name in REMOVED_FILTERS {
        environment.remove_filter(name);
    }
    for (name, reach, function) in FILTERS {
        environment.add_filter(name, counted(budget, reach, function()));
    }
    for (name, reach, function) in TESTS {
        let counted = counted(budget, reach, function());
        environment.add_test(name, move |state: &mut State<'_, '_>, arguments: Rest<Value>| {
            counted(state, arguments).map(|answer| answer.is_true())
        });
    }
    environment.add_function("range", counted(budget, Reach::Handle, Value::from_function(functions::range)));
    install_own(environment, budget);
    let counted = budget.clone();
    environment.set_unknown_method_callback(move |state: &mut State<'_, '_>, value, method, arguments: &[Value]| {
        counted_method(&counted, state, value, method, arguments)
    });
    let counted = budget.clone();
    environment.set_formatter(move |out, state, value| {
        counted.build_whole(value)?;
        escape_formatter(out, state, value)
    });
}

/// Filters and functions that only our rewritten templates call, and the engine's that grow text.
fn install_own(environment: &mut Environment<'static>, budget: &Budget) {
    let own = budget.clone();
    environment.add_filter("__counted", move |value: Value| own.build_whole(&value).map(|()| value));
    let own = budget.clone();
    environment.add_filter("__read", move |value: Value| own.read_whole(&value).map(|()| value));
    let own = budget.clone();
    environment.add_filter("__place", move |value: Value| own.read_handle(&value).and_then(|()| flat(value)));
    let own = budget.clone();
    environment.add_filter(
        "__stepped",
        move |value: Value, start: Option<i64>, stop: Option<i64>, step: Option<i64>| {
            chat_slice::stepped(&own, &value, start, stop, step)
        },
    );
    let own = budget.clone();
    environment.add_filter("__times", move |value: Value, count: usize| counted_times(&own, value, count));
    environment.add_filter("__number", only_number);
    let own = budget.clone();
    environment.add_function("__text", move |bytes: usize| own.take_built(bytes).map(|()| String::new()));
    let own = budget.clone();
    environment
        .add_filter("replace", move |text: String, from: String, to: String| counted_replace(&own, &text, &from, &to));
    let own = budget.clone();
    environment.add_filter("join", move |list: Value, between: Option<String>| counted_join(&own, &list, between));
    let own = budget.clone();
    environment.add_filter("indent", move |text: String, width: usize, first: Option<bool>, blank: Option<bool>| {
        counted_indent(&own, &text, width, first.unwrap_or(false), blank.unwrap_or(false))
    });
    let own = budget.clone();
    environment.add_function("dict", move |values: Kwargs| {
        let value = Value::from(values);
        own.build_whole(&value).map(|()| value)
    });
}

/// A function of the engine that counts what it looks at and what it makes.
fn counted(
    budget: &Budget,
    reach: Reach,
    function: Value,
) -> impl Fn(&mut State<'_, '_>, Rest<Value>) -> Checked<Value> + Send + Sync + 'static {
    let budget = budget.clone();
    move |state: &mut State<'_, '_>, arguments: Rest<Value>| {
        for argument in arguments.iter() {
            budget.read(reach, argument)?;
        }
        let made = function.call(state, &arguments)?;
        budget.build(reach, &made)?;
        Ok(made)
    }
}

/// One side of `*` whose other side is the literal number `count`.
fn counted_times(budget: &Budget, value: Value, count: usize) -> Checked<Value> {
    items(&value, |size| budget.take_built(size.saturating_mul(count)))?;
    flat(value)
}

/// A list that the engine would make anew on every walk becomes one that is there, so that such lists never stack up.
fn flat(value: Value) -> Checked<Value> {
    if value.kind() == ValueKind::Iterable { Ok(value.try_iter()?.collect()) } else { Ok(value) }
}

/// One side of `*` whose other side is not known before it runs.
fn only_number(value: Value) -> Checked<Value> {
    if value.kind() == ValueKind::Number {
        return Ok(value);
    }
    Err(refuse("it multiplies text or a list by something other than a small literal number, which is refused"))
}

fn counted_replace(budget: &Budget, text: &str, from: &str, to: &str) -> Checked<String> {
    budget.take_built(text.len())?;
    budget.take_built(text.matches(from).count().saturating_mul(to.len()))?;
    Ok(text.replace(from, to))
}

fn counted_join(budget: &Budget, list: &Value, between: Option<String>) -> Checked<String> {
    budget.build_whole(list)?;
    let between = between.unwrap_or_default();
    let mut joined = String::new();
    for (place, item) in list.try_iter()?.enumerate() {
        if place > 0 {
            budget.take_built(between.len())?;
            joined.push_str(&between);
        }
        match item.as_str() {
            Some(text) => joined.push_str(text),
            None => joined.push_str(&item.to_string()),
        }
    }
    Ok(joined)
}

fn counted_indent(budget: &Budget, text: &str, width: usize, first: bool, blank: bool) -> Checked<String> {
    let lines = text.split('\n').count();
    budget.take_built(text.len())?;
    budget.take_built(lines.saturating_mul(width))?;
    let margin = " ".repeat(width);
    let mut indented = String::new();
    for (place, line) in text.split('\n').enumerate() {
        if place > 0 {
            indented.push('\n');
        }
        if (place > 0 || first) && (blank || !line.is_empty()) {
            indented.push_str(&margin);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Python's methods; those on text count what they make.
fn counted_method(
    budget: &Budget,
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Checked<Value> {
    match (method, value.as_str(), arguments) {
        ("join", Some(between), [list]) => counted_join(budget, list, Some(between.to_owned())).map(Value::from),
        ("replace", Some(text), [from, to]) => match (from.as_str(), to.as_str()) {
            (Some(from), Some(to)) => counted_replace(budget, text, from, to).map(Value::from),
            _ => Err(refuse("replace needs two texts")),
        },
        ("format" | "ljust" | "rjust" | "center" | "zfill" | "expandtabs", Some(_), _) => {
            Err(refuse(&format!("it calls {method}, which is not supported")))
        }
        (_, text, _) => {
            let reach = if text.is_some() { Reach::Text } else { Reach::Items };
            for value in arguments.iter().chain([value]) {
                budget.read(Reach::Whole, value)?;
            }
            let made = unknown_method_callback(state, value, method, arguments)?;
            budget.build(reach, &made)?;
            Ok(made)
        }
    }
}
