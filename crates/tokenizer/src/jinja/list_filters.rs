//! Filters on lists, dictionaries and single values.

use super::arguments::Arguments;
use super::filters::{self, Filter};
use super::problem::{Checked, Problem};
use super::renderer::Renderer;
use super::syntax::Arithmetic;
use super::text_filters::count;
use super::value::Value;
use super::{tests, text_methods};
use std::cmp::Ordering;
use std::collections::VecDeque;

pub(super) const FILTERS: &[(&str, Filter)] = &[
    ("attr", attr),
    ("batch", batch),
    ("count", length),
    ("d", default),
    ("default", default),
    ("dictsort", dict_sort),
    ("first", first),
    ("groupby", group_by),
    ("items", items),
    ("join", join),
    ("last", last),
    ("length", length),
    ("list", list),
    ("map", map),
    ("max", |renderer, value, arguments| extreme(renderer, value, arguments, Ordering::Greater)),
    ("min", |renderer, value, arguments| extreme(renderer, value, arguments, Ordering::Less)),
    ("reject", |renderer, value, arguments| select(renderer, value, arguments, false)),
    ("rejectattr", |renderer, value, arguments| select_attribute(renderer, value, arguments, false)),
    ("reverse", reverse),
    ("select", |renderer, value, arguments| select(renderer, value, arguments, true)),
    ("selectattr", |renderer, value, arguments| select_attribute(renderer, value, arguments, true)),
    ("slice", slices),
    ("sort", sort),
    ("sum", sum),
    ("unique", unique),
];

fn default(_: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [default, boolean] = arguments.bind("default", ["default_value", "boolean"])?;
    let replaces = value.is_undefined() || (boolean.is_some_and(|flag| flag.is_true()) && !value.is_true());
    Ok(if replaces { default.unwrap_or_else(|| Value::text("")) } else { value.clone() })
}

fn attr(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [name] = arguments.bind("attr", ["name"])?;
    let Some(Value::Text(name)) = name else { return Err(Problem::new("attr needs a name")) };
    let missing =
        || Value::Undefined(format!("a value of the type {} has no attribute {name}", value.type_name()).into());
    Ok(renderer.own_attribute(value, &name)?.unwrap_or_else(missing))
}

fn length(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("length")?;
    renderer.budget.read(value.as_str().map_or(0, str::len))?;
    let length = value.length();
    length
        .map(Value::count)
        .ok_or_else(|| Problem::new(format!("a value of the type {} has no length", value.type_name())))
}

fn list(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("list")?;
    let items = value.iterate(renderer.budget)?;
    Value::list(items, renderer.budget)
}

fn items(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("items")?;
    let entries = match value {
        Value::Undefined(_) => Vec::new(),
        Value::Dict(dict) => dict.entries.clone(),
        other => return Err(Problem::new(format!("items needs a dictionary, found {}", other.type_name()))),
    };
    let pairs = entries.into_iter().map(|(key, value)| Value::tuple(vec![key, value], renderer.budget));
    Value::generator(pairs.collect::<Checked<Vec<Value>>>()?, renderer.budget)
}

fn first(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("first")?;
    let found = match value {
        Value::Text(text) => text.chars().next().map(|c| Value::text(c.to_string())),
        Value::Sequence(sequence) => sequence.items.first().cloned(),
        Value::Generator(own) => own.next(),
        other => other.iterate(renderer.budget)?.into_iter().next(),
    };
    Ok(found.unwrap_or_else(|| Value::Undefined("the sequence has no first item".into())))
}

fn last(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("last")?;
    let found = match value {
        Value::Text(text) => text.chars().next_back().map(|c| Value::text(c.to_string())),
        Value::Sequence(sequence) => sequence.items.last().cloned(),
        other => other.iterate(renderer.budget)?.pop(),
    };
    Ok(found.unwrap_or_else(|| Value::Undefined("the sequence has no last item".into())))
}

fn reverse(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    arguments.none("reverse")?;
    if let Value::Text(text) = value {
        renderer.budget.text(text.len())?;
        return Ok(Value::text(text.chars().rev().collect::<String>()));
    }
    let mut items = value.iterate(renderer.budget)?;
    items.reverse();
    Value::generator(items, renderer.budget)
}

fn join(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [between, attribute] = arguments.bind("join", ["d", "attribute"])?;
    let between = between.map(|between| renderer.value_text(&between)).transpose()?.unwrap_or_default();
    let mut texts = Vec::new();
    for item in value.iterate(renderer.budget)? {
        let item = match &attribute {
            Some(attribute) => path(renderer, &item, attribute)?,
            None => item,
        };
        texts.push(Value::text(renderer.value_text(&item)?));
    }
    text_methods::join(&between, &texts, renderer.budget).map(Value::text)
}

/// An attribute by a path such as `a.b.0`.
fn path(renderer: &mut Renderer<'_>, value: &Value, path: &Value) -> Checked<Value> {
    let Value::Text(names) = path else { return renderer.item(value, path) };
    let mut found = value.clone();
    for name in names.split('.') {
        let index = name.parse::<u32>().map_or_else(|_| Value::text(name), |place| Value::Int(place.into()));
        found = renderer.item(&found, &index)?;
    }
    Ok(found)
}

/// The items of a value for filters that take anything that is not true, such as `none`, as empty.
fn items_if_true(renderer: &Renderer<'_>, value: &Value) -> Checked<Vec<Value>> {
    if value.is_true() { value.iterate(renderer.budget) } else { Ok(Vec::new()) }
}

fn map(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let mut mapped = Vec::new();
    if arguments.positional.is_empty() {
        let [attribute, default] = arguments.bind("map", ["attribute", "default"])?;
        let attribute = attribute.ok_or_else(|| Problem::new("map needs a filter or an attribute"))?;
        for item in items_if_true(renderer, value)? {
            let found = path(renderer, &item, &attribute)?;
            let replaced = if found.is_undefined() { default.clone() } else { None };
            mapped.push(replaced.unwrap_or(found));
        }
    } else {
        let (name, rest, named) = split_first(arguments, "map")?;
        for item in items_if_true(renderer, value)? {
            renderer.budget.values(rest.len().saturating_add(named.len()))?;
            let arguments = Arguments { positional: rest.clone(), named: named.clone() };
            mapped.push(filters::apply(renderer, &name, &item, arguments)?);
        }
    }
    Value::generator(mapped, renderer.budget)
}

/// The name of a filter or test, and the arguments for it.
type Split = (std::rc::Rc<str>, Vec<Value>, Vec<(Box<str>, Value)>);

fn split_first(arguments: Arguments, function: &str) -> Checked<Split> {
    let mut positional = arguments.positional.into_iter();
    match positional.next() {
        Some(Value::Text(name)) => Ok((name, positional.collect(), arguments.named)),
        _ => Err(Problem::new(format!("{function} needs a name"))),
    }
}

fn select(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments, keeps: bool) -> Checked<Value> {
    let test = if arguments.positional.is_empty() { None } else { Some(split_first(arguments, "select")?) };
    let mut kept = Vec::new();
    for item in items_if_true(renderer, value)? {
        if passes(renderer, &item, &test)? == keeps {
            kept.push(item);
        }
    }
    Value::generator(kept, renderer.budget)
}

fn select_attribute(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments, keeps: bool) -> Checked<Value> {
    let mut positional = arguments.positional.into_iter();
    let attribute = positional.next().ok_or_else(|| Problem::new("selectattr needs an attribute"))?;
    let rest = Arguments { positional: positional.collect(), named: arguments.named };
    let test = if rest.positional.is_empty() { None } else { Some(split_first(rest, "selectattr")?) };
    let mut kept = Vec::new();
    for item in items_if_true(renderer, value)? {
        let found = path(renderer, &item, &attribute)?;
        if passes(renderer, &found, &test)? == keeps {
            kept.push(item);
        }
    }
    Value::generator(kept, renderer.budget)
}

fn passes(renderer: &mut Renderer<'_>, value: &Value, test: &Option<Split>) -> Checked<bool> {
    let Some((name, positional, named)) = test else { return Ok(value.is_true()) };
    renderer.budget.values(positional.len().saturating_add(named.len()))?;
    let arguments = Arguments { positional: positional.clone(), named: named.clone() };
    tests::holds(renderer, name, value, arguments)
}

/// A value by which others are ordered: an attribute, in lower case unless the case counts.
fn order_key(renderer: &mut Renderer<'_>, item: &Value, attribute: Option<&Value>, case: bool) -> Checked<Value> {
    let found = match attribute {
        Some(attribute) => path(renderer, item, attribute)?,
        None => item.clone(),
    };
    match &found {
        Value::Text(text) if !case => {
            renderer.budget.text(text.len())?;
            Ok(Value::text(text.to_lowercase()))
        }
        _ => Ok(found),
    }
}

/// Values in the order of their keys; equal keys keep their order.
pub(super) fn sorted(renderer: &Renderer<'_>, keyed: Vec<(Value, Value)>, reverse: bool) -> Checked<Vec<Value>> {
    let before = if reverse { Ordering::Greater } else { Ordering::Less };
    // The sort of the standard library can panic when an order is not total, as with NaN.
    let mut runs: VecDeque<VecDeque<(Value, Value)>> = keyed.into_iter().map(|pair| VecDeque::from([pair])).collect();
    while runs.len() > 1 {
        let mut merged = VecDeque::new();
        while let Some(mut left) = runs.pop_front() {
            let Some(mut right) = runs.pop_front() else {
                merged.push_back(left);
                break;
            };
            let mut run = VecDeque::with_capacity(left.len().saturating_add(right.len()));
            while let (Some((first, _)), Some((second, _))) = (left.front(), right.front()) {
                let takes_right = second.compare(first, renderer.budget)? == Some(before);
                run.extend(if takes_right { right.pop_front() } else { left.pop_front() });
            }
            run.extend(left);
            run.extend(right);
            merged.push_back(run);
        }
        runs = merged;
    }
    Ok(runs.pop_front().unwrap_or_default().into_iter().map(|(_, value)| value).collect())
}

fn is_set(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// An argument that is not `none`.
fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !matches!(value, Value::None))
}

fn sort(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [reverse, case, attribute] = arguments.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let (reverse, case, attribute) = (is_set(reverse), is_set(case), given(attribute));
    let mut keyed = Vec::new();
    for item in value.iterate(renderer.budget)? {
        let key = match attribute.as_ref().and_then(Value::as_str).filter(|names| names.contains(',')) {
            Some(names) => {
                let names: Vec<Value> = names.split(',').map(Value::text).collect();
                let keys = names.iter().map(|name| order_key(renderer, &item, Some(name), case));
                let keys = keys.collect::<Checked<Vec<Value>>>()?;
                Value::list(keys, renderer.budget)?
            }
            None => order_key(renderer, &item, attribute.as_ref(), case)?,
        };
        keyed.push((key, item));
    }
    let items = sorted(renderer, keyed, reverse)?;
    Value::list(items, renderer.budget)
}

fn dict_sort(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [case, by, reverse] = arguments.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let (case, reverse) = (is_set(case), is_set(reverse));
    let by_value = match by.as_ref().and_then(Value::as_str) {
        None | Some("key") => false,
        Some("value") => true,
        Some(other) => return Err(Problem::new(format!("dictsort sorts by key or value, found {other}"))),
    };
    value.defined()?;
    let Value::Dict(dict) = value else { return Err(Problem::new("dictsort needs a dictionary")) };
    let mut keyed = Vec::new();
    for (key, value) in &dict.entries {
        let pair = Value::tuple(vec![key.clone(), value.clone()], renderer.budget)?;
        let order = order_key(renderer, if by_value { value } else { key }, None, case)?;
        keyed.push((order, pair));
    }
    let items = sorted(renderer, keyed, reverse)?;
    Value::list(items, renderer.budget)
}

fn group_by(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [attribute, default, case] = arguments.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let attribute = attribute.ok_or_else(|| Problem::new("groupby needs an attribute"))?;
    let case = is_set(case);
    let mut keyed = Vec::new();
    for item in value.iterate(renderer.budget)? {
        let found = path(renderer, &item, &attribute)?;
        let found = if found.is_undefined() { default.clone().unwrap_or(found) } else { found };
        let key = order_key(renderer, &found, None, case)?;
        keyed.push((key, Value::tuple(vec![found, item], renderer.budget)?));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for pair in sorted(renderer, keyed, false)? {
        let Value::Sequence(pair) = pair else { continue };
        let [found, item] = pair.items.as_slice() else { continue };
        let key = order_key(renderer, found, None, case)?;
        match groups.last_mut() {
            Some((own, _, group)) if own.equals(&key, renderer.budget)? => group.push(item.clone()),
            _ => groups.push((key, found.clone(), vec![item.clone()])),
        }
    }
    let budget = renderer.budget;
    let groups =
        groups.into_iter().map(|(_, name, group)| Value::tuple(vec![name, Value::list(group, budget)?], budget));
    Value::list(groups.collect::<Checked<Vec<Value>>>()?, budget)
}

fn unique(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [case, attribute] = arguments.bind("unique", ["case_sensitive", "attribute"])?;
    let (case, attribute) = (is_set(case), given(attribute));
    let mut seen: Vec<Value> = Vec::new();
    let mut kept = Vec::new();
    'items: for item in value.iterate(renderer.budget)? {
        let key = order_key(renderer, &item, attribute.as_ref(), case)?;
        for other in &seen {
            if other.equals(&key, renderer.budget)? {
                continue 'items;
            }
        }
        seen.push(key);
        kept.push(item);
    }
    Value::generator(kept, renderer.budget)
}

fn extreme(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments, side: Ordering) -> Checked<Value> {
    let [case, attribute] = arguments.bind("max", ["case_sensitive", "attribute"])?;
    let (case, attribute) = (is_set(case), given(attribute));
    let mut best: Option<(Value, Value)> = None;
    for item in value.iterate(renderer.budget)? {
        let key = order_key(renderer, &item, attribute.as_ref(), case)?;
        let replaces = match &best {
            Some((other, _)) => key.compare(other, renderer.budget)? == Some(side),
            None => true,
        };
        if replaces {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| Value::Undefined("the sequence has no items".into()), |(_, item)| item))
}

fn sum(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [attribute, start] = arguments.bind("sum", ["attribute", "start"])?;
    let attribute = given(attribute);
    let mut total = start.unwrap_or(Value::Int(0));
    for item in value.iterate(renderer.budget)? {
        let item = match &attribute {
            Some(attribute) => path(renderer, &item, attribute)?,
            None => item,
        };
        total = renderer.arithmetic(Arithmetic::Add, &total, &item)?;
    }
    Ok(total)
}

fn batch(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [size, fill] = arguments.bind("batch", ["linecount", "fill_with"])?;
    let (size, fill) = (count(size, 0)?.max(1), given(fill));
    let mut rows = Vec::new();
    let items = value.iterate(renderer.budget)?;
    for row in items.chunks(size) {
        let mut row = row.to_vec();
        if let Some(fill) = fill.clone() {
            renderer.budget.values(size)?;
            row.resize(size, fill);
        }
        rows.push(Value::list(row, renderer.budget)?);
    }
    Value::generator(rows, renderer.budget)
}

fn slices(renderer: &mut Renderer<'_>, value: &Value, arguments: Arguments) -> Checked<Value> {
    let [slices, fill] = arguments.bind("slice", ["slices", "fill_with"])?;
    let (slices, fill) = (count(slices, 0)?, given(fill));
    let items = value.iterate(renderer.budget)?;
    renderer.budget.values(slices)?;
    let (Some(size), Some(longer)) = (items.len().checked_div(slices), items.len().checked_rem(slices)) else {
        return Err(Problem::new("slice needs a number of at least 1"));
    };
    let mut columns = Vec::new();
    let mut rest = items.into_iter();
    for place in 0..slices {
        let extra = usize::from(place < longer);
        let mut column: Vec<Value> = rest.by_ref().take(size.saturating_add(extra)).collect();
        if let Some(fill) = fill.clone().filter(|_| place >= longer) {
            column.push(fill);
        }
        columns.push(Value::list(column, renderer.budget)?);
    }
    Value::generator(columns, renderer.budget)
}
