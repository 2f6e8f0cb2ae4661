//! Slices, `a[start:stop:step]`, by Python's rule.

use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::value::{SequenceKind, Value};

/// The items or characters from `start` to before `stop`, in steps of `step`. The slice of a value without places is
/// undefined.
pub(super) fn slice(value: &Value, [start, stop, step]: [Option<i128>; 3], budget: &Budget) -> Checked<Value> {
    let step = step.unwrap_or(1);
    value.defined()?;
    match value {
        Value::Text(_) | Value::Sequence(_) if step == 0 => Err(Problem::new("the step of a slice is 0")),
        Value::Text(text) => {
            budget.text(text.len())?;
            if step == 1 && text.is_ascii() {
                let (from, to) = bounds(text.len(), start, stop, step);
                let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
                return Ok(Value::text(range.and_then(|(from, to)| text.get(from..to)).unwrap_or_default()));
            }
            let letters: Vec<char> = text.chars().collect();
            Ok(Value::text(picked(&letters, start, stop, step).into_iter().collect::<String>()))
        }
        Value::Sequence(sequence) => {
            let kind = match sequence.kind {
                SequenceKind::View(name) => return Ok(Value::Undefined(format!("{name} cannot be sliced").into())),
                SequenceKind::Range(..) => SequenceKind::List,
                kind => kind,
            };
            budget.values(sequence.items.len())?;
            Value::sequence(kind, picked(&sequence.items, start, stop, step), budget)
        }
        other => Ok(Value::Undefined(format!("a value of type {} cannot be sliced", other.type_name()).into())),
    }
}

/// `slice(start, stop, step).indices(count)` of Python, without the step.
fn bounds(count: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> (i128, i128) {
    let count = i128::try_from(count).unwrap_or(i128::MAX);
    // A backward slice can end one before the first item.
    let (first, last) = if step > 0 { (0, count) } else { (-1, count.saturating_sub(1)) };
    let place = |place: Option<i128>, missing: i128| match place {
        None => missing,
        Some(place) if place < 0 => place.saturating_add(count).max(first),
        Some(place) => place.min(last),
    };
    if step > 0 { (place(start, first), place(stop, last)) } else { (place(start, last), place(stop, first)) }
}

fn picked<T: Clone>(items: &[T], start: Option<i128>, stop: Option<i128>, step: i128) -> Vec<T> {
    let (mut at, end) = bounds(items.len(), start, stop, step);
    let mut picked = Vec::new();
    while if step > 0 { at < end } else { at > end } {
        picked.extend(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned());
        at = at.saturating_add(step);
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::picked;

    /// `python3 -c 'print("abcdef"[slice(...)])'`
    const SLICES: [(Option<i128>, Option<i128>, i128, &str); 13] = [
        (None, None, -1, "fedcba"),
        (None, None, 2, "ace"),
        (Some(4), Some(1), -1, "edc"),
        (Some(2), Some(0), -1, "cb"),
        (None, Some(2), -1, "fed"),
        (Some(-2), None, -1, "edcba"),
        (Some(9), Some(-9), -2, "fdb"),
        (Some(1), Some(5), 2, "bd"),
        (Some(5), Some(1), 2, ""),
        (None, None, i128::MIN, "f"),
        (None, None, i128::MAX, "a"),
        (Some(3), Some(3), -1, ""),
        (None, Some(-1), 3, "ad"),
    ];

    #[test]
    fn slices_are_those_of_python() {
        let letters: Vec<char> = "abcdef".chars().collect();
        for (start, stop, step, expected) in SLICES {
            let found: String = picked(&letters, start, stop, step).into_iter().collect();
            assert_eq!(found, expected, "{start:?}:{stop:?}:{step}");
            assert!(picked::<char>(&[], start, stop, step).is_empty(), "{start:?}:{stop:?}:{step} of nothing");
        }
    }
}
