//! Values as Python has them: equality, order, truth, length and iteration.

use super::budget::Budget;
use super::problem::{Checked, Problem};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;

/// Containers within each other.
const DEPTH_MAX: u32 = 96;

/// A value of a template.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A name or attribute that does not exist; holds the sentence that says so.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Rc<str>),
    /// Text of the filters `safe` and `escape`: text that `+` adds to it is escaped as HTML. Other operators,
    /// filters and methods take it as plain text.
    Markup(Rc<str>),
    Sequence(Rc<Sequence>),
    Dict(Rc<Dict>),
    /// Items that can be taken once.
    Generator(Rc<Generator>),
    /// The place of a namespace in the renderer.
    Namespace(usize),
    /// The place of a macro in the renderer.
    Macro(usize),
    Loop(Rc<Loop>),
    /// A function by its name.
    Function(&'static str),
    /// A method of a value.
    Method(Rc<(Value, &'static str)>),
    Joiner(Rc<(Rc<str>, Cell<bool>)>),
    /// A tuple and the place in it.
    Cycler(Rc<(Value, Cell<usize>)>),
}

/// Kinds of sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SequenceKind {
    List,
    Tuple,
    /// `range(start, stop, step)`
    Range(i128, i128, i128),
    /// The keys, values or items of a dictionary.
    View(&'static str),
}

/// Items in order.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) kind: SequenceKind,
    pub(crate) items: Vec<Value>,
    depth: u32,
}

/// Keys with values, in the order of insertion.
#[derive(Debug)]
pub(crate) struct Dict {
    pub(crate) entries: Vec<(Value, Value)>,
    depth: u32,
}

/// Items that are left.
#[derive(Debug)]
pub(crate) struct Generator {
    items: RefCell<VecDeque<Value>>,
    value_depth: u32,
}

impl Generator {
    pub(crate) fn next(&self) -> Option<Value> {
        self.items.borrow_mut().pop_front()
    }
}

/// The variable `loop` of one loop.
#[derive(Debug)]
pub(crate) struct Loop {
    value_depth: u32,
    pub(crate) items: Vec<Value>,
    pub(crate) index: Cell<usize>,
    pub(crate) depth: usize,
    /// The place of a recursive loop in the renderer.
    pub(crate) recursion: Option<usize>,
    /// The arguments of the last `loop.changed`.
    pub(crate) changed: RefCell<Option<Value>>,
}

impl Value {
    pub(crate) fn text(text: impl AsRef<str>) -> Value {
        Value::Text(text.as_ref().into())
    }

    pub(crate) fn count(count: usize) -> Value {
        Value::Int(i128::try_from(count).unwrap_or(i128::MAX))
    }

    pub(crate) fn sequence(kind: SequenceKind, items: Vec<Value>, budget: &Budget) -> Checked<Value> {
        budget.values(items.len())?;
        let depth = deeper(items.iter())?;
        Ok(Value::Sequence(Rc::new(Sequence { kind, items, depth })))
    }

    pub(crate) fn list(items: Vec<Value>, budget: &Budget) -> Checked<Value> {
        Value::sequence(SequenceKind::List, items, budget)
    }

    pub(crate) fn tuple(items: Vec<Value>, budget: &Budget) -> Checked<Value> {
        Value::sequence(SequenceKind::Tuple, items, budget)
    }

    pub(crate) fn generator(items: Vec<Value>, budget: &Budget) -> Checked<Value> {
        budget.values(items.len())?;
        let value_depth = deeper(items.iter())?;
        Ok(Value::Generator(Rc::new(Generator { items: RefCell::new(items.into()), value_depth })))
    }

    /// A dictionary; of several equal keys the last value counts.
    pub(crate) fn dict(entries: Vec<(Value, Value)>, budget: &Budget) -> Checked<Value> {
        budget.values(entries.len().saturating_mul(2))?;
        let depth = deeper(entries.iter().flat_map(|(key, value)| [key, value]))?;
        let mut unique: Vec<(Value, Value)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if !key.is_hashable() {
                return Err(Problem::new(format!("a {} cannot be the key of a dictionary", key.type_name())));
            }
            let mut known = None;
            for (place, (other, _)) in unique.iter().enumerate() {
                if other.equals(&key, budget)? {
                    known = Some(place);
                    break;
                }
            }
            match known.and_then(|place| unique.get_mut(place)) {
                Some(entry) => entry.1 = value,
                None => unique.push((key, value)),
            }
        }
        Ok(Value::Dict(Rc::new(Dict { entries: unique, depth })))
    }

    /// A value from JSON.
    pub(crate) fn from_json(value: &serde_json::Value, budget: &Budget) -> Checked<Value> {
        Ok(match value {
            serde_json::Value::Null => Value::None,
            serde_json::Value::Bool(flag) => Value::Bool(*flag),
            serde_json::Value::Number(number) => {
                match number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)) {
                    Some(number) => Value::Int(number),
                    None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
                }
            }
            serde_json::Value::String(text) => Value::text(text),
            serde_json::Value::Array(items) => {
                let items = items.iter().map(|item| Value::from_json(item, budget)).collect::<Checked<Vec<Value>>>()?;
                Value::list(items, budget)?
            }
            serde_json::Value::Object(entries) => {
                let entries =
                    entries.iter().map(|(key, value)| Ok((Value::text(key), Value::from_json(value, budget)?)));
                // Keys of a JSON object are distinct already.
                let entries = entries.collect::<Checked<Vec<_>>>()?;
                budget.values(entries.len().saturating_mul(2))?;
                let depth = deeper(entries.iter().map(|(_, value)| value))?;
                Value::Dict(Rc::new(Dict { entries, depth }))
            }
        })
    }

    /// The same value without the mark that it is HTML.
    pub(crate) fn plain(self) -> Value {
        match self {
            Value::Markup(text) => Value::Text(text),
            other => other,
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Value::Sequence(sequence) => sequence.depth,
            Value::Dict(dict) => dict.depth,
            Value::Generator(own) => own.value_depth,
            Value::Loop(own) => own.value_depth,
            Value::Method(method) => method.0.depth().saturating_add(1),
            Value::Cycler(own) => own.0.depth().saturating_add(1),
            _ => 0,
        }
    }

    /// The name of its Python type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "undefined value",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) | Value::Markup(_) => "str",
            Value::Sequence(sequence) => match sequence.kind {
                SequenceKind::List => "list",
                SequenceKind::Tuple => "tuple",
                SequenceKind::Range(..) => "range",
                SequenceKind::View(name) => name,
            },
            Value::Dict(_) => "dict",
            Value::Generator(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Loop(_) => "LoopContext",
            Value::Function(_) | Value::Method(_) => "function",
            Value::Joiner(_) => "Joiner",
            Value::Cycler(_) => "Cycler",
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer or a boolean.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Bool(flag) => Some(i128::from(*flag)),
            _ => None,
        }
    }

    /// The number of an integer, a boolean or a float.
    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(number) => Some(*number),
            other => other.as_int().map(float_of),
        }
    }

    pub(crate) fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    fn is_hashable(&self) -> bool {
        match self {
            Value::Dict(_) => false,
            Value::Sequence(own) => match own.kind {
                SequenceKind::List | SequenceKind::View(_) => false,
                SequenceKind::Tuple => own.items.iter().all(Value::is_hashable),
                SequenceKind::Range(..) => true,
            },
            _ => true,
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) | Value::Markup(text) => !text.is_empty(),
            Value::Sequence(sequence) => !sequence.items.is_empty(),
            Value::Dict(dict) => !dict.entries.is_empty(),
            Value::Loop(own) => !own.items.is_empty(),
            _ => true,
        }
    }

    /// The error of an undefined value that is used, and of nothing else.
    pub(crate) fn defined(&self) -> Checked<()> {
        match self {
            Value::Undefined(problem) => Err(Problem::new(&**problem)),
            _ => Ok(()),
        }
    }

    /// `len(value)`; nothing for what has no length.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            Value::Undefined(_) => Some(0),
            Value::Text(text) => Some(text.chars().count()),
            Value::Sequence(sequence) => Some(sequence.items.len()),
            Value::Dict(dict) => Some(dict.entries.len()),
            Value::Loop(own) => Some(own.items.len()),
            _ => None,
        }
    }

    pub(crate) fn is_iterable(&self) -> bool {
        self.length().is_some() || matches!(self, Value::Generator(_))
    }

    /// The items of a loop over the value: the characters of a text, the keys of a dictionary. Takes the items of a
    /// generator.
    pub(crate) fn iterate(&self, budget: &Budget) -> Checked<Vec<Value>> {
        let items: Vec<Value> = match self {
            Value::Undefined(_) => Vec::new(),
            Value::Text(text) => {
                budget.values(text.chars().count())?;
                text.chars().map(|c| Value::text(c.encode_utf8(&mut [0; 4]))).collect()
            }
            Value::Sequence(sequence) => {
                budget.values(sequence.items.len())?;
                sequence.items.clone()
            }
            Value::Dict(dict) => {
                budget.values(dict.entries.len())?;
                dict.entries.iter().map(|(key, _)| key.clone()).collect()
            }
            Value::Generator(own) => own.items.borrow_mut().drain(..).collect(),
            other => return Err(Problem::new(format!("a value of the type {} has no items", other.type_name()))),
        };
        budget.step(items.len())?;
        Ok(items)
    }

    /// `self == other`
    pub(crate) fn equals(&self, other: &Value, budget: &Budget) -> Checked<bool> {
        budget.step(1)?;
        Ok(match (self, other) {
            (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
            (Value::Text(left), Value::Text(right)) => {
                if left.len() == right.len() {
                    budget.read(left.len())?;
                }
                left == right
            }
            (Value::Sequence(left), Value::Sequence(right)) => {
                let same_kind = std::mem::discriminant(&left.kind) == std::mem::discriminant(&right.kind);
                if !same_kind || left.items.len() != right.items.len() {
                    return Ok(false);
                }
                for (left, right) in left.items.iter().zip(&right.items) {
                    if !left.equals(right, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Dict(left), Value::Dict(right)) => {
                if left.entries.len() != right.entries.len() {
                    return Ok(false);
                }
                for (key, value) in &left.entries {
                    match right.find(key, budget)? {
                        Some(other) if value.equals(other, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Value::Namespace(left), Value::Namespace(right)) | (Value::Macro(left), Value::Macro(right)) => {
                left == right
            }
            (Value::Function(left), Value::Function(right)) => left == right,
            _ => match (self.as_int(), other.as_int()) {
                (Some(left), Some(right)) => left == right,
                _ => match (self.as_float(), other.as_float()) {
                    (Some(left), Some(right)) => left == right,
                    _ => false,
                },
            },
        })
    }

    /// The order of two values that Python can compare.
    pub(crate) fn compare(&self, other: &Value, budget: &Budget) -> Checked<Option<Ordering>> {
        budget.step(1)?;
        self.defined()?;
        other.defined()?;
        if let (Some(left), Some(right)) = (self.as_int(), other.as_int()) {
            return Ok(Some(left.cmp(&right)));
        }
        if let (Some(left), Some(right)) = (self.as_float(), other.as_float()) {
            return Ok(left.partial_cmp(&right));
        }
        match (self, other) {
            (Value::Text(left), Value::Text(right)) => {
                budget.read(left.len().min(right.len()))?;
                // The order of UTF-8 is the order of code points.
                Ok(Some(left.cmp(right)))
            }
            (Value::Sequence(left), Value::Sequence(right))
                if left.kind == right.kind && matches!(left.kind, SequenceKind::List | SequenceKind::Tuple) =>
            {
                for (left, right) in left.items.iter().zip(&right.items) {
                    if !left.equals(right, budget)? {
                        return left.compare(right, budget);
                    }
                }
                Ok(Some(left.items.len().cmp(&right.items.len())))
            }
            _ => Err(Problem::new(format!(
                "{} and {} cannot be compared with <, <=, > or >=",
                self.type_name(),
                other.type_name()
            ))),
        }
    }

    /// `item in self`
    pub(crate) fn contains(&self, item: &Value, budget: &Budget) -> Checked<bool> {
        match self {
            Value::Text(text) => match item {
                Value::Text(part) => {
                    budget.read(text.len())?;
                    Ok(text.contains(&**part))
                }
                other => Err(Problem::new(format!("expected a str to look for in a str, found {}", other.type_name()))),
            },
            Value::Dict(dict) => Ok(dict.find(item, budget)?.is_some()),
            Value::Sequence(sequence) => {
                for own in &sequence.items {
                    if own.equals(item, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            other => {
                for own in other.iterate(budget)? {
                    if own.equals(item, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

impl Loop {
    pub(crate) fn new(items: Vec<Value>, depth: usize, recursion: Option<usize>) -> Checked<Loop> {
        let value_depth = deeper(items.iter())?;
        Ok(Loop { value_depth, items, index: Cell::new(0), depth, recursion, changed: RefCell::new(None) })
    }
}

impl Dict {
    pub(crate) fn find(&self, key: &Value, budget: &Budget) -> Checked<Option<&Value>> {
        for (own, value) in &self.entries {
            if own.equals(key, budget)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    pub(crate) fn get(&self, key: &str, budget: &Budget) -> Checked<Option<&Value>> {
        budget.step(self.entries.len())?;
        Ok(self.entries.iter().find(|(own, _)| own.as_str() == Some(key)).map(|(_, value)| value))
    }
}

/// The depth of a container of these values.
fn deeper<'v>(items: impl Iterator<Item = &'v Value>) -> Checked<u32> {
    let depth = items.map(Value::depth).max().unwrap_or_default().saturating_add(1);
    if depth > DEPTH_MAX {
        return Err(Problem::new(format!("more than {DEPTH_MAX} containers are nested")));
    }
    Ok(depth)
}

/// The float that is nearest to an integer.
pub(crate) fn float_of(number: i128) -> f64 {
    match i32::try_from(number) {
        Ok(small) => f64::from(small),
        Err(_) => number.to_string().parse().unwrap_or(f64::NAN),
    }
}

/// The integer part of a float; nothing for infinities and what is too large.
pub(crate) fn int_of(number: f64) -> Option<i128> {
    format!("{:.0}", number.trunc()).parse().ok()
}
