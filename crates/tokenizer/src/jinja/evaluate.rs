//! Evaluates expressions: operators, attributes, indexes and slices.

use super::arguments::Arguments;
use super::format::percent;
use super::problem::{Checked, Problem};
use super::renderer::{Renderer, Scope};
use super::slice::slice;
use super::syntax::{Arithmetic, CallArguments, Comparison, Expression, Literal, Suffix};
use super::text::escaped;
use super::value::{SequenceKind, Value, float_of, int_of};
use super::{filters, functions, methods, tests};
use std::cmp::Ordering;
use std::rc::Rc;

impl<'t> Renderer<'t> {
    pub(super) fn evaluate(&mut self, expression: &'t Expression, scope: &Rc<Scope>) -> Checked<Value> {
        self.budget.step(1)?;
        match expression {
            Expression::Literal(literal) => self.literal(literal),
            Expression::Name(name) => Ok(self.name(name, scope)),
            Expression::Postfix(base, suffixes) => {
                let base = self.deeper(|renderer| renderer.evaluate(base, scope))?;
                self.suffixes(base, suffixes, scope)
            }
            other => self.deeper(|renderer| renderer.operation(other, scope)),
        }
    }

    fn literal(&mut self, literal: &Literal) -> Checked<Value> {
        Ok(match literal {
            Literal::None => Value::None,
            Literal::Bool(flag) => Value::Bool(*flag),
            Literal::Int(number) => Value::Int(*number),
            Literal::Float(number) => Value::Float(*number),
            Literal::Text(text) => {
                self.budget.text(text.len())?;
                Value::text(text)
            }
        })
    }

    fn name(&mut self, name: &str, scope: &Scope) -> Value {
        scope
            .find(name)
            .or_else(|| functions::find(name))
            .unwrap_or_else(|| Value::Undefined(format!("\"{name}\" is undefined").into()))
    }

    fn operation(&mut self, expression: &'t Expression, scope: &Rc<Scope>) -> Checked<Value> {
        match expression {
            Expression::List(items) => {
                let items = self.all(items, scope)?;
                Value::list(items, self.budget)
            }
            Expression::Tuple(items) => {
                let items = self.all(items, scope)?;
                Value::tuple(items, self.budget)
            }
            Expression::Dict(entries) => {
                let mut values = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    values.push((self.evaluate(key, scope)?, self.evaluate(value, scope)?));
                }
                Value::dict(values, self.budget)
            }
            Expression::Not(value) => Ok(Value::Bool(!self.evaluate(value, scope)?.is_true())),
            Expression::Negative(value) => negative(&self.evaluate(value, scope)?),
            Expression::Positive(value) => {
                let value = self.evaluate(value, scope)?;
                value.defined()?;
                match value.as_int() {
                    Some(number) => Ok(Value::Int(number)),
                    None => value.as_float().map(Value::Float).ok_or_else(|| wrong_type("+", &value)),
                }
            }
            Expression::And(parts) => self.first_of(parts, false, scope),
            Expression::Or(parts) => self.first_of(parts, true, scope),
            Expression::Chain(first, rest) => {
                let mut value = self.evaluate(first, scope)?;
                for (operator, right) in rest {
                    let right = self.evaluate(right, scope)?;
                    value = self.arithmetic(*operator, &value, &right)?;
                }
                Ok(value)
            }
            Expression::Concatenation(parts) => {
                let mut text = String::new();
                for part in parts {
                    let value = self.evaluate(part, scope)?;
                    text.push_str(&self.value_text(&value)?);
                }
                self.budget.text(text.len())?;
                Ok(Value::text(text))
            }
            Expression::Comparison(first, rest) => self.comparison(first, rest, scope),
            Expression::Condition(branches, otherwise) => {
                for (test, value) in branches {
                    if self.evaluate(test, scope)?.is_true() {
                        return self.evaluate(value, scope);
                    }
                }
                match otherwise {
                    Some(value) => self.evaluate(value, scope),
                    None => Ok(Value::Undefined("the condition has no else and does not hold".into())),
                }
            }
            Expression::Literal(_) | Expression::Name(_) | Expression::Postfix(..) => self.evaluate(expression, scope),
        }
    }

    /// The sum of two texts of which one is markup: the other is escaped.
    fn markup_sum(&self, values: [&Value; 2]) -> Checked<Value> {
        let mut text = String::new();
        for value in values {
            match value {
                Value::Markup(part) => text.push_str(part),
                other => text.push_str(&escaped(other.as_str().unwrap_or_default(), self.budget)?),
            }
        }
        self.budget.text(text.len())?;
        Ok(Value::Markup(text.into()))
    }

    fn all(&mut self, expressions: &'t [Expression], scope: &Rc<Scope>) -> Checked<Vec<Value>> {
        let mut values = Vec::with_capacity(expressions.len());
        for expression in expressions {
            values.push(self.evaluate(expression, scope)?);
        }
        Ok(values)
    }

    /// The first value whose truth is `truth`, otherwise the last.
    fn first_of(&mut self, parts: &'t [Expression], truth: bool, scope: &Rc<Scope>) -> Checked<Value> {
        let mut value = Value::None;
        for part in parts {
            value = self.evaluate(part, scope)?;
            if value.is_true() == truth {
                break;
            }
        }
        Ok(value)
    }

    fn comparison(
        &mut self,
        first: &'t Expression,
        rest: &'t [(Comparison, Expression)],
        scope: &Rc<Scope>,
    ) -> Checked<Value> {
        let mut left = self.evaluate(first, scope)?.plain();
        for (comparison, right) in rest {
            let right = self.evaluate(right, scope)?.plain();
            if !self.holds(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn holds(&self, comparison: Comparison, left: &Value, right: &Value) -> Checked<bool> {
        let order = |holds: fn(Ordering) -> bool| Ok(left.compare(right, self.budget)?.is_some_and(holds));
        match comparison {
            Comparison::Equal => left.equals(right, self.budget),
            Comparison::NotEqual => Ok(!left.equals(right, self.budget)?),
            Comparison::In => right.contains(left, self.budget),
            Comparison::NotIn => Ok(!right.contains(left, self.budget)?),
            Comparison::Less => order(Ordering::is_lt),
            Comparison::LessOrEqual => order(Ordering::is_le),
            Comparison::Greater => order(Ordering::is_gt),
            Comparison::GreaterOrEqual => order(Ordering::is_ge),
        }
    }

    pub(super) fn arithmetic(&mut self, operator: Arithmetic, left: &Value, right: &Value) -> Checked<Value> {
        left.defined()?;
        right.defined()?;
        let has_markup = matches!(left, Value::Markup(_)) || matches!(right, Value::Markup(_));
        if has_markup && operator == Arithmetic::Add && left.as_str().is_some() && right.as_str().is_some() {
            return self.markup_sum([left, right]);
        }
        match (operator, left, right) {
            (Arithmetic::Add, Value::Text(first), Value::Text(second)) => {
                self.budget.text(first.len().saturating_add(second.len()))?;
                return Ok(Value::text([&**first, &**second].concat()));
            }
            (Arithmetic::Add, Value::Sequence(first), Value::Sequence(second))
                if first.kind == second.kind && matches!(first.kind, SequenceKind::List | SequenceKind::Tuple) =>
            {
                let items = first.items.iter().chain(&second.items).cloned().collect();
                return Value::sequence(first.kind, items, self.budget);
            }
            (Arithmetic::Remainder, Value::Text(text), _) => return self.percent_format(text, right),
            (Arithmetic::Multiply, Value::Text(_) | Value::Sequence(_), _) if right.as_int().is_some() => {
                return self.repeated(left, right.as_int().unwrap_or_default());
            }
            (Arithmetic::Multiply, _, Value::Text(_) | Value::Sequence(_)) if left.as_int().is_some() => {
                return self.repeated(right, left.as_int().unwrap_or_default());
            }
            _ => {}
        }
        numbers(operator, left, right)
    }

    fn percent_format(&mut self, text: &str, values: &Value) -> Checked<Value> {
        let formatted = percent(text, values, self.budget)?;
        Ok(Value::text(formatted))
    }

    fn repeated(&mut self, value: &Value, count: i128) -> Checked<Value> {
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        match value {
            Value::Text(text) => {
                self.budget.text(text.len().saturating_mul(count))?;
                Ok(Value::text(text.repeat(count)))
            }
            Value::Sequence(sequence) if matches!(sequence.kind, SequenceKind::List | SequenceKind::Tuple) => {
                self.budget.values(sequence.items.len().saturating_mul(count))?;
                // Repeating an empty list costs no budget, so it must not take a step for each repetition either.
                let count = if sequence.items.is_empty() { 0 } else { count };
                let items: Vec<Value> = std::iter::repeat_n(&sequence.items, count).flatten().cloned().collect();
                Value::sequence(sequence.kind, items, self.budget)
            }
            other => Err(wrong_type("*", other)),
        }
    }

    pub(super) fn suffixes(&mut self, base: Value, suffixes: &'t [Suffix], scope: &Rc<Scope>) -> Checked<Value> {
        let mut value = base;
        for suffix in suffixes {
            self.budget.step(1)?;
            let plain = value.plain();
            value = self.deeper(|renderer| renderer.suffix(&plain, suffix, scope))?;
        }
        Ok(value)
    }

    fn suffix(&mut self, value: &Value, suffix: &'t Suffix, scope: &Rc<Scope>) -> Checked<Value> {
        match suffix {
            Suffix::Attribute(name) => self.attribute(value, name),
            Suffix::Item(index) => {
                let index = self.evaluate(index, scope)?;
                self.item(value, &index)
            }
            Suffix::Slice(parts) => {
                let mut places = [None; 3];
                for (place, part) in places.iter_mut().zip(parts.iter()) {
                    let Some(part) = part else { continue };
                    let bound = self.evaluate(part, scope)?;
                    bound.defined()?;
                    *place = match bound {
                        Value::None => None,
                        other => Some(other.as_int().ok_or_else(|| wrong_type("[:]", &other))?),
                    };
                }
                slice(value, places, self.budget)
            }
            Suffix::Call(arguments) => {
                let arguments = self.arguments(arguments, scope)?;
                self.call(value, arguments)
            }
            Suffix::Filter(name, arguments) => {
                let arguments = self.arguments(arguments, scope)?;
                filters::apply(self, name, value, arguments)
            }
            Suffix::Test { name, arguments, negated } => {
                let arguments = self.arguments(arguments, scope)?;
                Ok(Value::Bool(tests::holds(self, name, value, arguments)? != *negated))
            }
        }
    }

    pub(super) fn arguments(&mut self, written: &'t CallArguments, scope: &Rc<Scope>) -> Checked<Arguments> {
        let positional = self.all(&written.positional, scope)?;
        let mut arguments = Arguments { positional, named: Vec::new() };
        for (name, value) in &written.named {
            arguments.named.push((name.clone(), self.evaluate(value, scope)?));
        }
        if let Some(list) = &written.list {
            arguments.positional.extend(self.evaluate(list, scope)?.iterate(self.budget)?);
        }
        if let Some(dict) = &written.dict {
            match self.evaluate(dict, scope)? {
                Value::Dict(dict) => {
                    self.budget.values(dict.entries.len())?;
                    for (key, value) in &dict.entries {
                        let name =
                            key.as_str().ok_or_else(|| Problem::new("the names of arguments must be strings"))?;
                        arguments.named.push((name.into(), value.clone()));
                    }
                }
                other => return Err(wrong_type("**", &other)),
            }
        }
        arguments.positional = arguments.positional.into_iter().map(Value::plain).collect();
        arguments.named = arguments.named.into_iter().map(|(name, value)| (name, value.plain())).collect();
        Ok(arguments)
    }

    /// `value.name`: a method or attribute, otherwise an item.
    pub(super) fn attribute(&mut self, value: &Value, name: &str) -> Checked<Value> {
        value.defined()?;
        if let Some(found) = self.own_attribute(value, name)? {
            return Ok(found);
        }
        if let Value::Dict(dict) = value
            && let Some(found) = dict.get(name, self.budget)?
        {
            return Ok(found.clone());
        }
        Ok(absent(value, name))
    }

    /// `value[index]`: an item, otherwise a method or attribute.
    pub(super) fn item(&mut self, value: &Value, index: &Value) -> Checked<Value> {
        value.defined()?;
        let found = match value {
            Value::Dict(dict) => dict.find(index, self.budget)?.cloned(),
            Value::Sequence(sequence) if !matches!(sequence.kind, SequenceKind::View(_)) => {
                let place = index.as_int().and_then(|index| place(index, sequence.items.len()));
                place.and_then(|place| sequence.items.get(place)).cloned()
            }
            Value::Text(text) => {
                self.budget.read(text.len())?;
                let count =
                    if index.as_int().is_some_and(|index| index < 0) { text.chars().count() } else { text.len() };
                let place = index.as_int().and_then(|index| place(index, count));
                place.and_then(|place| text.chars().nth(place)).map(|c| Value::text(c.to_string()))
            }
            _ => None,
        };
        match (found, index) {
            (Some(found), _) => Ok(found),
            (None, Value::Text(name)) => match self.own_attribute(value, name)? {
                Some(found) => Ok(found),
                None => Ok(absent(value, name)),
            },
            (None, Value::Undefined(_)) => Ok(absent(value, "with an undefined name")),
            (None, other) => Ok(absent(value, &super::text::repr(other, self.budget).unwrap_or_default())),
        }
    }

    /// An attribute of a Python object, not an item of a dictionary.
    pub(super) fn own_attribute(&mut self, value: &Value, name: &str) -> Checked<Option<Value>> {
        if let Value::Namespace(place) = value {
            let attributes = self.namespaces.get(*place).map(Vec::as_slice).unwrap_or_default();
            self.budget.step(attributes.len())?;
            return Ok(attributes.iter().find(|(own, _)| **own == *name).map(|(_, value)| value.clone()));
        }
        if let Value::Loop(own) = value {
            return functions::loop_attribute(own, name, self.budget);
        }
        if let (Value::Cycler(own), "current") = (value, name) {
            let Value::Sequence(values) = &own.0 else { return Ok(None) };
            return Ok(values.items.get(own.1.get()).cloned());
        }
        if let (Value::Macro(place), "name") = (value, name) {
            return Ok(self.macros.get(*place).map(|definition| Value::text(&definition.node.name)));
        }
        Ok(methods::find(value, name).map(|name| Value::Method(Rc::new((value.clone(), name)))))
    }
}

fn absent(value: &Value, name: &str) -> Value {
    Value::Undefined(format!("a value of the type {} has no attribute or item {name}", value.type_name()).into())
}

/// The place that a Python index means.
fn place(index: i128, count: usize) -> Option<usize> {
    let count = i128::try_from(count).ok()?;
    let place = if index < 0 { index.checked_add(count)? } else { index };
    usize::try_from(place).ok().filter(|_| place < count)
}

fn wrong_type(operator: &str, value: &Value) -> Problem {
    Problem::new(format!("the operator {operator} does not work on a value of the type {}", value.type_name()))
}

fn too_large() -> Problem {
    Problem::new("a number is too large")
}

fn negative(value: &Value) -> Checked<Value> {
    value.defined()?;
    match (value.as_int(), value.as_float()) {
        (Some(number), _) => number.checked_neg().map(Value::Int).ok_or_else(too_large),
        (None, Some(number)) => Ok(Value::Float(-number)),
        (None, None) => Err(wrong_type("-", value)),
    }
}

/// Arithmetic on numbers by Python's rules.
fn numbers(operator: Arithmetic, left: &Value, right: &Value) -> Checked<Value> {
    let sign = match operator {
        Arithmetic::Add => "+",
        Arithmetic::Subtract => "-",
        Arithmetic::Multiply => "*",
        Arithmetic::Divide => "/",
        Arithmetic::FloorDivide => "//",
        Arithmetic::Remainder => "%",
        Arithmetic::Power => "**",
    };
    let (Some(x), Some(y)) = (left.as_float(), right.as_float()) else {
        let (left, right) = (left.type_name(), right.type_name());
        return Err(Problem::new(format!(
            "the operator {sign} does not work on values of the types {left} and {right}"
        )));
    };
    let divides = matches!(operator, Arithmetic::Divide | Arithmetic::FloorDivide | Arithmetic::Remainder);
    if divides && y == 0.0 {
        return Err(Problem::new("a number is divided by zero"));
    }
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        let exact = match operator {
            Arithmetic::Add => a.checked_add(b),
            Arithmetic::Subtract => a.checked_sub(b),
            Arithmetic::Multiply => a.checked_mul(b),
            Arithmetic::FloorDivide => floor_divide(a, b),
            Arithmetic::Remainder => floor_divide(a, b).and_then(|times| a.checked_sub(times.checked_mul(b)?)),
            Arithmetic::Power if b >= 0 => u32::try_from(b).ok().and_then(|exponent| a.checked_pow(exponent)),
            Arithmetic::Power | Arithmetic::Divide => return float_result(operator, x, y),
        };
        return exact.map(Value::Int).ok_or_else(too_large);
    }
    float_result(operator, x, y)
}

fn floor_divide(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    let exact = quotient.checked_mul(b)? == a;
    if !exact && (a < 0) != (b < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

fn float_result(operator: Arithmetic, x: f64, y: f64) -> Checked<Value> {
    let remainder = || {
        let rest = x % y;
        if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
    };
    Ok(Value::Float(match operator {
        Arithmetic::Add => x + y,
        Arithmetic::Subtract => x - y,
        Arithmetic::Multiply => x * y,
        Arithmetic::Divide => x / y,
        Arithmetic::FloorDivide => ((x - remainder()) / y).round(),
        Arithmetic::Remainder => remainder(),
        Arithmetic::Power => match int_of(y).filter(|exponent| float_of(*exponent) == y) {
            Some(exponent) => i32::try_from(exponent).map_or_else(|_| x.powf(y), |exponent| x.powi(exponent)),
            None => x.powf(y),
        },
    }))
}
