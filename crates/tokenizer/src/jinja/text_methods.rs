//! What Python's string methods do, on plain text.

use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::text::is_space;
use super::value::Value;

pub(super) fn strip<'t>(text: &'t str, chars: Option<&str>, left: bool, right: bool) -> &'t str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(strips) } else { text };
    if right { text.trim_end_matches(strips) } else { text }
}

/// Items that must be strings, with `between` between them.
pub(super) fn join(between: &str, items: &[Value], budget: &Budget) -> Checked<String> {
    let mut joined = String::new();
    for (place, item) in items.iter().enumerate() {
        let Some(text) = item.as_str() else {
            item.defined()?;
            return Err(Problem::new(format!("join expects strings, found {}", item.type_name())));
        };
        if place > 0 {
            budget.text(between.len())?;
            joined.push_str(between);
        }
        budget.text(text.len())?;
        joined.push_str(text);
    }
    Ok(joined)
}

/// The parts between separators; without one, words between white space.
pub(super) fn split<'t>(
    text: &'t str,
    between: Option<&str>,
    most: Option<usize>,
    from_right: bool,
) -> Checked<Vec<&'t str>> {
    let count = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let Some(between) = between else { return Ok(words(text, count, from_right)) };
    if between.is_empty() {
        return Err(Problem::new("split expects a separator that is not empty"));
    }
    if from_right {
        let mut parts: Vec<&str> = text.rsplitn(count, between).collect();
        parts.reverse();
        return Ok(parts);
    }
    Ok(text.splitn(count, between).collect())
}

fn words(text: &str, count: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, !from_right, from_right);
    while !rest.is_empty() {
        if parts.len().saturating_add(1) >= count {
            parts.push(rest);
            break;
        }
        let (word, others) = if from_right {
            let at =
                rest.char_indices().rfind(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at.saturating_add(c.len_utf8()));
            let (others, word) = rest.split_at_checked(at).unwrap_or((rest, ""));
            (word, strip(others, None, false, true))
        } else {
            let at = rest.find(is_space).unwrap_or(rest.len());
            let (word, others) = rest.split_at_checked(at).unwrap_or((rest, ""));
            (word, strip(others, None, true, false))
        };
        parts.push(word);
        rest = others;
    }
    if from_right {
        parts.reverse();
    }
    parts
}

/// Lines by Python's rule, which knows more line breaks than `\n`.
pub(super) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_break = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((at, c)) = rest.char_indices().find(|(_, c)| is_break(*c)) else {
            lines.push(rest);
            break;
        };
        let after = rest.get(at..).unwrap_or_default();
        let bytes = if after.starts_with("\r\n") { 2 } else { c.len_utf8() };
        let end = at.saturating_add(bytes);
        lines.push(rest.get(..if keeps_ends { end } else { at }).unwrap_or_default());
        rest = rest.get(end..).unwrap_or_default();
    }
    lines
}

pub(super) fn replace(text: &str, from: &str, to: &str, count: Option<usize>, budget: &Budget) -> Checked<String> {
    let count = count.unwrap_or(usize::MAX);
    let found = text.matches(from).count().min(count);
    budget.text(text.len().saturating_add(found.saturating_mul(to.len())))?;
    Ok(text.replacen(from, to, count))
}

/// The characters from one place to before another, and the count of those before.
pub(super) fn section(text: &str, from: Option<i128>, to: Option<i128>) -> (usize, &str) {
    if from.is_none() && to.is_none() {
        return (0, text);
    }
    let count = i128::try_from(text.chars().count()).unwrap_or(i128::MAX);
    let place = |place: Option<i128>, missing: i128| {
        let place = place.unwrap_or(missing);
        let place = if place < 0 { place.saturating_add(count) } else { place };
        usize::try_from(place.clamp(0, count)).unwrap_or(0)
    };
    let (from, to) = (place(from, 0), place(to, count));
    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    (from, text.get(byte(from)..byte(to)).unwrap_or_default())
}

pub(super) fn partition(text: &str, between: &str, from_right: bool) -> [String; 3] {
    let found = if from_right { text.rsplit_once(between) } else { text.split_once(between) };
    match found {
        Some((before, after)) => [before.to_owned(), between.to_owned(), after.to_owned()],
        None if from_right => [String::new(), String::new(), text.to_owned()],
        None => [text.to_owned(), String::new(), String::new()],
    }
}

/// `center`, `ljust`, `rjust` or `zfill`.
pub(super) fn pad(text: &str, method: &str, width: usize, fill: char) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let filled = |count: usize, fill: char| fill.to_string().repeat(count);
    match method {
        "ljust" => format!("{text}{}", filled(missing, fill)),
        "rjust" => format!("{}{text}", filled(missing, fill)),
        "zfill" => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let sign = text.strip_suffix(digits).unwrap_or_default();
            format!("{sign}{}{digits}", filled(missing, '0'))
        }
        _ => {
            // Of an odd rest, Python puts the larger half left when the width is odd.
            let half = missing.div_euclid(2);
            let odd = missing.rem_euclid(2) == 1 && width.rem_euclid(2) == 1;
            let left = half.saturating_add(usize::from(odd));
            format!("{}{text}{}", filled(left, fill), filled(missing.saturating_sub(left), fill))
        }
    }
}

pub(super) fn expand_tabs(text: &str, size: usize) -> String {
    let mut out = String::new();
    let mut column = 0_usize;
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = column.checked_rem(size).map_or(0, |over| size.saturating_sub(over));
                out.push_str(&" ".repeat(spaces));
                column = column.saturating_add(spaces);
            }
            c => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') { 0 } else { column.saturating_add(1) };
            }
        }
    }
    out
}

pub(super) fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    first.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect()
}

/// Python's `str.title`: letters after anything other than a letter are upper case.
pub(super) fn title(text: &str) -> String {
    let mut after_letter = false;
    let mut out = String::new();
    for c in text.chars() {
        if after_letter {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        after_letter = c.is_lowercase() || c.is_uppercase();
    }
    out
}

pub(super) fn swap_case(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_uppercase() {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
    }
    out
}
