//! Global functions, calls, macros and the variable `loop`.

use super::arguments::Arguments;
use super::budget::Budget;
use super::methods;
use super::problem::{Checked, Problem};
use super::renderer::{Renderer, Scope};
use super::value::{Loop, SequenceKind, Value};
use std::cell::Cell;
use std::rc::Rc;

/// Longest range; templates of transformers run in a sandbox with this limit.
const RANGE_MAX: usize = 100_000;
/// The functions that every template can call.
const FUNCTIONS: [&str; 8] =
    ["range", "dict", "namespace", "joiner", "cycler", "raise_exception", "strftime_now", "lipsum"];
const LOOP_METHODS: [&str; 2] = ["cycle", "changed"];

pub(super) fn find(name: &str) -> Option<Value> {
    FUNCTIONS.into_iter().find(|own| *own == name).map(Value::Function)
}

impl<'t> Renderer<'t> {
    pub(super) fn call(&mut self, function: &Value, arguments: Arguments) -> Checked<Value> {
        self.deeper(|renderer| match function {
            Value::Function(name) => renderer.function(name, arguments),
            Value::Method(method) => match (&method.0, method.1) {
                (Value::Loop(own), "cycle") => cycle(own, arguments),
                (Value::Loop(own), _) => changed(own, arguments, renderer.budget),
                (value, name) => methods::call(renderer, value, name, arguments),
            },
            Value::Macro(place) => renderer.call_macro(*place, arguments),
            Value::Loop(own) => {
                let [items] = arguments.bind("loop", ["iterable"])?;
                let items = items.ok_or_else(|| Problem::new("loop needs the items of the inner loop"))?;
                renderer.recurse(own, &items)
            }
            Value::Joiner(own) => {
                arguments.none("joiner")?;
                let first = !own.1.replace(true);
                Ok(if first { Value::text("") } else { Value::Text(own.0.clone()) })
            }
            other => {
                other.defined()?;
                Err(Problem::new(format!("a value of the type {} cannot be called", other.type_name())))
            }
        })
    }

    fn function(&mut self, name: &str, arguments: Arguments) -> Checked<Value> {
        match name {
            "range" => self.range(arguments),
            "dict" => {
                let mut entries = match arguments.positional.as_slice() {
                    [] => Vec::new(),
                    [Value::Dict(dict)] => dict.entries.clone(),
                    [pairs] => self.pairs(pairs)?,
                    _ => return Err(Problem::new("dict takes at most one argument without a name")),
                };
                entries.extend(arguments.named.into_iter().map(|(name, value)| (Value::text(name), value)));
                Value::dict(entries, self.budget)
            }
            "namespace" => {
                let dict = self.function("dict", arguments)?;
                let Value::Dict(dict) = dict else { return Ok(dict) };
                let attributes =
                    dict.entries.iter().filter_map(|(key, value)| Some((key.as_str()?.into(), value.clone())));
                self.namespaces.push(attributes.collect());
                Ok(Value::Namespace(self.namespaces.len().saturating_sub(1)))
            }
            "joiner" => {
                let [between] = arguments.bind(name, ["sep"])?;
                let between = between.as_ref().and_then(Value::as_str).unwrap_or(", ").into();
                Ok(Value::Joiner(Rc::new((between, Cell::new(false)))))
            }
            "cycler" => {
                if arguments.positional.is_empty() {
                    return Err(Problem::new("cycler needs at least one value"));
                }
                let values = Value::tuple(arguments.positional, self.budget)?;
                Ok(Value::Cycler(Rc::new((values, Cell::new(0)))))
            }
            "raise_exception" => {
                let [message] = arguments.bind(name, ["message"])?;
                let message = message.map(|message| self.value_text(&message)).transpose()?.unwrap_or_default();
                Err(Problem::new(format!("the template rejects the conversation: {message}")))
            }
            "strftime_now" => {
                let [format] = arguments.bind(name, ["format"])?;
                let Some(Value::Text(format)) = format else { return Err(Problem::new("strftime_now needs a format")) };
                let Some(date) = self.date else {
                    return Err(Problem::new("the template asks for the current date, and none is given"));
                };
                self.budget.text(format.len().saturating_mul(16))?;
                date.format(&format).map(Value::text).map_err(Problem::new)
            }
            other => Err(Problem::new(format!("the function {other} is not supported"))),
        }
    }

    /// Pairs of a key and a value.
    fn pairs(&self, pairs: &Value) -> Checked<Vec<(Value, Value)>> {
        let mut entries = Vec::new();
        for pair in pairs.iterate(self.budget)? {
            match pair.iterate(self.budget)?.as_slice() {
                [key, value] => entries.push((key.clone(), value.clone())),
                _ => return Err(Problem::new("dict expects pairs of a key and a value")),
            }
        }
        Ok(entries)
    }

    fn range(&mut self, arguments: Arguments) -> Checked<Value> {
        let [first, second, third] = arguments.bind("range", ["start", "stop", "step"])?;
        let number = |value: Option<Value>| match value {
            None => Ok(None),
            Some(value) => {
                value.defined()?;
                value.as_int().map(Some).ok_or_else(|| Problem::new("range expects integers"))
            }
        };
        let (first, second, step) = (number(first)?, number(second)?, number(third)?.unwrap_or(1));
        let (start, stop) = match (first, second) {
            (Some(start), Some(stop)) => (start, stop),
            (Some(stop), None) => (0, stop),
            (None, _) => return Err(Problem::new("range needs an argument")),
        };
        if step == 0 {
            return Err(Problem::new("the step of range is 0"));
        }
        let mut items = Vec::new();
        let mut at = start;
        while if step > 0 { at < stop } else { at > stop } {
            if items.len() >= RANGE_MAX {
                return Err(Problem::new(format!("a range has more than {RANGE_MAX} numbers")));
            }
            self.budget.step(1)?;
            items.push(Value::Int(at));
            at = at.saturating_add(step);
        }
        Value::sequence(SequenceKind::Range(start, stop, step), items, self.budget)
    }

    fn call_macro(&mut self, place: usize, arguments: Arguments) -> Checked<Value> {
        let Some(definition) = self.macros.get(place).cloned() else { return Ok(Value::None) };
        let node = definition.node;
        let scope = Scope::inside(&definition.scope);
        self.budget.values(arguments.positional.len().saturating_add(node.parameters.len()))?;
        let mut positional = arguments.positional.into_iter();
        let mut named = arguments.named;
        for (name, default) in &node.parameters {
            let by_name = named.iter().position(|(own, _)| own == name).map(|place| named.remove(place).1);
            let value = match (positional.next(), by_name, default) {
                (Some(_), Some(_), _) => {
                    return Err(Problem::new(format!("the macro {} gets the argument {name} twice", node.name)));
                }
                (Some(value), None, _) | (None, Some(value), _) => value,
                (None, None, Some(default)) => self.evaluate(default, &scope)?,
                (None, None, None) => Value::Undefined(format!("the parameter \"{name}\" has no value").into()),
            };
            scope.set(name, value);
        }
        let caller = named.iter().position(|(own, _)| **own == *"caller").map(|place| named.remove(place).1);
        if &*node.name != "caller" || caller.is_some() {
            let missing = || Value::Undefined("\"caller\" is undefined".into());
            scope.set("caller", caller.unwrap_or_else(missing));
        }
        let rest = Value::tuple(positional.collect(), self.budget)?;
        scope.set("varargs", rest);
        let named = named.into_iter().map(|(name, value)| (Value::text(name), value)).collect();
        scope.set("kwargs", Value::dict(named, self.budget)?);
        self.captured(&node.body, &scope).map(Value::text)
    }
}

/// `loop.cycle(a, b)`: the value for this round.
fn cycle(own: &Loop, arguments: Arguments) -> Checked<Value> {
    let place = own.index.get().checked_rem(arguments.positional.len());
    let value = place.and_then(|place| arguments.positional.get(place)).cloned();
    value.ok_or_else(|| Problem::new("cycle needs at least one value"))
}

/// `loop.changed(a)`: whether the values differ from those of the last call.
fn changed(own: &Loop, arguments: Arguments, budget: &Budget) -> Checked<Value> {
    let now = Value::tuple(arguments.positional, budget)?;
    let before = own.changed.borrow().clone();
    let same = match before {
        Some(before) => before.equals(&now, budget)?,
        None => false,
    };
    if !same {
        *own.changed.borrow_mut() = Some(now);
    }
    Ok(Value::Bool(!same))
}

/// An attribute of `loop`.
pub(super) fn loop_attribute(own: &Rc<Loop>, name: &str, budget: &Budget) -> Checked<Option<Value>> {
    budget.step(1)?;
    let (index, count) = (own.index.get(), own.items.len());
    let left = count.saturating_sub(index);
    let neighbour = |place: Option<usize>, what: &str| {
        let item = place.and_then(|place| own.items.get(place)).cloned();
        item.unwrap_or_else(|| Value::Undefined(format!("there is no {what} item").into()))
    };
    Ok(Some(match name {
        "index" => Value::count(index.saturating_add(1)),
        "index0" => Value::count(index),
        "revindex" => Value::count(left),
        "revindex0" => Value::count(left.saturating_sub(1)),
        "first" => Value::Bool(index == 0),
        "last" => Value::Bool(left == 1),
        "length" => Value::count(count),
        "depth" => Value::count(own.depth.saturating_add(1)),
        "depth0" => Value::count(own.depth),
        "previtem" => neighbour(index.checked_sub(1), "previous"),
        "nextitem" => neighbour(index.checked_add(1), "next"),
        other => {
            let method = LOOP_METHODS.into_iter().find(|own| *own == other);
            return Ok(method.map(|method| Value::Method(Rc::new((Value::Loop(own.clone()), method)))));
        }
    }))
}
