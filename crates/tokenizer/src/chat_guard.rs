//! Bounds on what a chat template can build, where the engine has none.
//!
//! ```text
//! {{ a ~ b + [c, d] }}  becomes  {{ a|__counted ~ b|__counted + [c|__counted, d|__counted] }}
//! ```
//!
//! The engine counts steps; one step can still double a text. So every operand that an operator, a list or a call copies goes
//! through a filter that counts its size against a budget: what was not counted is never larger than what was. Long literal text
//! counts itself the same way. Filters and methods that grow text are replaced by counted ones, and `*` needs a small literal.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Values within values.
const DEPTH_MAX: usize = 64;
/// Largest literal factor of `*`.
const FACTOR_MAX: u64 = 1000;
/// Literal text longer than this counts itself.
const TEXT_BYTES_MAX: usize = 1024;
/// Functions of the engine that a conversation has no use for.
const REMOVED_FILTERS: [&str; 5] = ["pprint", "format", "zip", "chain", "batch"];

type Checked<T> = Result<T, Error>;

/// Bytes and values that one rendering may still build.
#[derive(Clone, Default, Debug)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Fills it for one rendering.
    pub(crate) fn fill(&self, size: u64) {
        self.0.store(size, Ordering::Relaxed);
    }

    fn take(&self, size: usize) -> Checked<()> {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(size));
        left.map(|_| ()).map_err(|_| refuse("it builds too much text"))
    }

    /// Counts a value with everything inside it.
    pub(crate) fn count(&self, value: &Value) -> Checked<()> {
        let mut waiting = vec![(value.clone(), 0usize)];
        while let Some((value, depth)) = waiting.pop() {
            if depth > DEPTH_MAX {
                return Err(refuse("it puts too many values within each other"));
            }
            self.take(value.as_str().map_or(1, str::len).max(1))?;
            let map = value.kind() == ValueKind::Map;
            let inner = match value.kind() {
                ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.try_iter()?,
                _ => continue,
            };
            for item in inner {
                self.take(1)?;
                if map {
                    waiting.push((value.get_item(&item)?, depth.saturating_add(1)));
                }
                waiting.push((item, depth.saturating_add(1)));
            }
        }
        Ok(())
    }
}

pub(crate) fn refuse(problem: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.to_owned())
}

/// Puts the counted filters, methods and output in place of the engine's.
pub(crate) fn install(environment: &mut Environment<'static>, budget: &Budget) {
    for name in REMOVED_FILTERS {
        environment.remove_filter(name);
    }
    let counted = budget.clone();
    environment.add_filter("__counted", move |value: Value| counted.count(&value).map(|()| value));
    let counted = budget.clone();
    environment.add_function("__text", move |bytes: usize| counted.take(bytes).map(|()| String::new()));
    let counted = budget.clone();
    environment.add_filter("replace", move |text: String, from: String, to: String| {
        counted_replace(&counted, &text, &from, &to)
    });
    let counted = budget.clone();
    environment.add_filter("join", move |list: Value, between: Option<String>| counted_join(&counted, &list, between));
    let counted = budget.clone();
    environment.add_filter("indent", move |text: String, width: usize, first: Option<bool>, blank: Option<bool>| {
        counted_indent(&counted, &text, width, first.unwrap_or(false), blank.unwrap_or(false))
    });
    let counted = budget.clone();
    environment.add_function("dict", move |values: minijinja::value::Kwargs| {
        let value = Value::from(values);
        counted.count(&value).map(|()| value)
    });
    let counted = budget.clone();
    environment.set_unknown_method_callback(move |state: &mut State<'_, '_>, value, method, arguments: &[Value]| {
        counted_method(&counted, state, value, method, arguments)
    });
    let counted = budget.clone();
    environment.set_formatter(move |out, state, value| {
        counted.count(value)?;
        escape_formatter(out, state, value)
    });
}

fn counted_replace(budget: &Budget, text: &str, from: &str, to: &str) -> Checked<String> {
    budget.take(text.len())?;
    budget.take(text.matches(from).count().saturating_mul(to.len()))?;
    Ok(text.replace(from, to))
}

fn counted_join(budget: &Budget, list: &Value, between: Option<String>) -> Checked<String> {
    budget.count(list)?;
    let between = between.unwrap_or_default();
    let mut joined = String::new();
    for (place, item) in list.try_iter()?.enumerate() {
        if place > 0 {
            budget.take(between.len())?;
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
    budget.take(text.len())?;
    budget.take(lines.saturating_mul(width))?;
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

/// Python's methods on strings; those that grow text are counted.
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
        _ => {
            budget.count(value)?;
            unknown_method_callback(state, value, method, Rest(arguments.to_vec()).as_slice())
        }
    }
}

/// Rewrites a template so that what it copies is counted. The error is one sentence.
pub(crate) fn guard(source: &str) -> Result<String, String> {
    let mut guarded = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (text, tag) = rest.split_at(at);
        push_text(&mut guarded, text)?;
        rest = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").and_then(|end| tag.get(end.saturating_add(2)..)).unwrap_or_default(),
            Some(b'%') if is_raw(tag) => return Err("it uses raw blocks, which are not supported".to_owned()),
            _ => Rewriter::new(tag).run(&mut guarded)?,
        };
        if tag.as_bytes().get(1) == Some(&b'#') {
            let comment = tag.get(..tag.len().saturating_sub(rest.len())).unwrap_or_default();
            guarded.push_str(comment);
        }
    }
    push_text(&mut guarded, rest)?;
    Ok(guarded)
}

fn is_raw(tag: &str) -> bool {
    let name = tag.trim_start_matches(['{', '%', '-', '+']).trim_start();
    name.strip_prefix("raw").is_some_and(|after| after.starts_with([' ', '-', '+', '%']))
}

/// Copies literal text; long text gets a tag in its middle, between two characters that no trimming touches.
fn push_text(guarded: &mut String, text: &str) -> Result<(), String> {
    if text.len() <= TEXT_BYTES_MAX {
        guarded.push_str(text);
        return Ok(());
    }
    let mut previous = ' ';
    let mut place = None;
    for (at, c) in text.char_indices() {
        if !previous.is_whitespace() && !c.is_whitespace() && previous != '{' {
            place = Some(at);
            break;
        }
        previous = c;
    }
    let Some((before, after)) = place.and_then(|at| text.split_at_checked(at)) else {
        return Err("it holds a long stretch of white space".to_owned());
    };
    guarded.push_str(before);
    guarded.push_str(&format!("{{{{ __text({}) }}}}", text.len()));
    guarded.push_str(after);
    Ok(())
}

/// What stands open inside a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// A list, a dictionary, a call or a parenthesis: what stands in it is copied.
    Copies,
    /// An index.
    Index,
}

/// Rewrites one tag, token by token.
struct Rewriter<'s> {
    rest: &'s str,
    open: Vec<Open>,
    /// Whether the last token ends an operand.
    operand: bool,
    after_dot: bool,
    small_number: bool,
    /// Names of parameters are no operands.
    declares: bool,
    expression: bool,
}

/// Words that are no operands.
const KEYWORDS: [&str; 25] = [
    "and",
    "or",
    "not",
    "if",
    "elif",
    "else",
    "in",
    "is",
    "for",
    "set",
    "recursive",
    "with",
    "endset",
    "endfor",
    "endif",
    "macro",
    "endmacro",
    "call",
    "endcall",
    "filter",
    "endfilter",
    "block",
    "endblock",
    "do",
    "break",
];

impl<'s> Rewriter<'s> {
    fn new(tag: &'s str) -> Rewriter<'s> {
        let name = tag.trim_start_matches(['{', '%', '-', '+']).trim_start();
        let declares = name.starts_with("macro") || name.starts_with("call");
        let expression = tag.starts_with("{{");
        Rewriter {
            rest: tag,
            open: Vec::new(),
            operand: false,
            after_dot: false,
            small_number: false,
            declares,
            expression,
        }
    }

    /// Writes the rewritten tag and returns what stands after it.
    fn run(mut self, guarded: &mut String) -> Result<&'s str, String> {
        self.copy(2, guarded);
        if self.rest.starts_with(['-', '+']) {
            self.copy(1, guarded);
        }
        while let Some(c) = self.rest.chars().next() {
            let end = if self.expression { "}}" } else { "%}" };
            let closing = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if self.open.is_empty() && closing.starts_with(end) {
                self.copy(self.rest.len().saturating_sub(closing.len()).saturating_add(2), guarded);
                return Ok(self.rest);
            }
            match c {
                '\'' | '"' => self.string(c, guarded),
                c if c.is_alphanumeric() || c == '_' => self.word(guarded),
                c if c.is_whitespace() => self.copy(c.len_utf8(), guarded),
                _ => self.operator(c, guarded)?,
            }
        }
        Ok(self.rest)
    }

    fn copy(&mut self, bytes: usize, guarded: &mut String) {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        guarded.push_str(taken);
        self.rest = rest;
    }

    fn string(&mut self, quote: char, guarded: &mut String) {
        let mut escaped = false;
        let mut bytes = self.rest.len();
        for (at, c) in self.rest.char_indices().skip(1) {
            if c == quote && !escaped {
                bytes = at.saturating_add(1);
                break;
            }
            escaped = c == '\\' && !escaped;
        }
        self.copy(bytes, guarded);
        self.end_operand(false);
    }

    fn word(&mut self, guarded: &mut String) {
        let bytes = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = self.rest.get(..bytes).unwrap_or_default();
        let number = word.parse::<u64>().ok();
        let keyword = KEYWORDS.contains(&word) && !self.after_dot;
        self.copy(bytes, guarded);
        self.end_operand(number.is_some_and(|number| number <= FACTOR_MAX));
        self.operand = !keyword;
    }

    fn end_operand(&mut self, small_number: bool) {
        (self.operand, self.after_dot, self.small_number) = (true, false, small_number);
    }

    fn count(&self, guarded: &mut String) {
        if self.operand && !self.declares {
            // White space between an operand and a filter does not matter.
            guarded.push_str("|__counted ");
        }
    }

    fn operator(&mut self, c: char, guarded: &mut String) -> Result<(), String> {
        let copies = self.open.last() == Some(&Open::Copies);
        let mut operand = false;
        match c {
            '~' | '+' => self.count(guarded),
            ',' if copies => self.count(guarded),
            '*' => self.check_factor()?,
            '[' => self.open.push(if self.operand { Open::Index } else { Open::Copies }),
            '(' | '{' => self.open.push(Open::Copies),
            ']' | ')' | '}' => {
                if copies {
                    self.count(guarded);
                }
                self.open.pop();
                operand = true;
            }
            _ => {}
        }
        self.copy(c.len_utf8(), guarded);
        self.end_operand(false);
        (self.operand, self.after_dot) = (operand, c == '.');
        Ok(())
    }

    /// `*` copies as often as its factor says: one side must be a small literal number.
    fn check_factor(&self) -> Result<(), String> {
        let after = self.rest.get(1..).unwrap_or_default().trim_start();
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let right = after.get(..digits).and_then(|digits| digits.parse::<u64>().ok());
        if self.small_number || right.is_some_and(|factor| factor <= FACTOR_MAX) {
            return Ok(());
        }
        Err(format!("it multiplies by something other than a literal number up to {FACTOR_MAX}, which is refused"))
    }
}
