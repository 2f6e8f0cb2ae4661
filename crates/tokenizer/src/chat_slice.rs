//! Slices with a step, `a[start:stop:step]`, by Python's rule.
//!
//! The engine's own fail on an empty list that is turned around, and include the first item where the end is 0. Rewritten templates call
//! [`stepped`] instead.

use crate::chat_budget::{Budget, Checked, refuse};
use minijinja::Value;
use minijinja::value::ValueKind;

/// The items or characters of `value` from `start` to before `stop`, every `step`th; what is not there is not given. Of nothing it is an
/// empty list. Counts what it makes against `budget`.
pub(crate) fn stepped(
    budget: &Budget,
    value: &Value,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Checked<Value> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(refuse("it takes a slice in steps of 0"));
    }
    if let Some(text) = value.as_str() {
        budget.take_built(text.len())?;
        let letters: Vec<char> = text.chars().collect();
        return Ok(Value::from(picked(&letters, start, stop, step).into_iter().collect::<String>()));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                budget.take_built(1)?;
                items.push(item);
            }
            Ok(Value::from(picked(&items, start, stop, step)))
        }
        ValueKind::None | ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        other => Err(refuse(&format!("it takes a slice of a {other}"))),
    }
}

/// `range(*slice(start, stop, step).indices(len(items)))` of Python, as items.
fn picked<T: Clone>(items: &[T], start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<T> {
    let count = i128::try_from(items.len()).unwrap_or(i128::MAX);
    let forward = step > 0;
    // Where a place may lie: one before the first item too when the way is backwards.
    let (first, last) = if forward { (0, count) } else { (-1, count.saturating_sub(1)) };
    let place = |place: Option<i64>, missing: i128| match place.map(i128::from) {
        None => missing,
        Some(place) if place < 0 => place.saturating_add(count).max(first),
        Some(place) => place.min(last),
    };
    let mut at = place(start, if forward { first } else { last });
    let end = place(stop, if forward { last } else { first });
    let mut picked = Vec::new();
    while if forward { at < end } else { at > end } {
        picked.extend(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned());
        at = at.saturating_add(step.into());
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::picked;

    /// `python3 -c 'print("abcdef"[slice(...)])'`
    const SLICES: [(Option<i64>, Option<i64>, i64, &str); 13] = [
        (None, None, -1, "fedcba"),
        (None, None, 2, "ace"),
        (Some(4), Some(1), -1, "edc"),
        (Some(2), Some(0), -1, "cb"),
        (None, Some(2), -1, "fed"),
        (Some(-2), None, -1, "edcba"),
        (Some(9), Some(-9), -2, "fdb"),
        (Some(1), Some(5), 2, "bd"),
        (Some(5), Some(1), 2, ""),
        (None, None, i64::MIN, "f"),
        (None, None, i64::MAX, "a"),
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
