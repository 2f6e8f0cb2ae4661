//! Shortens the error of the `regex` crate, which draws the pattern with a caret over several lines, to one sentence.

/// The reason in the text of a regular expression error, with the position: `unclosed group at character 1`.
///
/// ```
/// let text = "regex parse error:\n    a(b\n     ^\nerror: unclosed group";
/// assert_eq!(trueup_formats::regex_reason(text), "unclosed group at character 2");
/// ```
pub fn regex_reason(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.last().copied().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last).trim();
    // The pattern and the carets are indented by four characters; a pattern of several lines is drawn in another way.
    let column = match lines.as_slice() {
        [_, _, carets, _] => carets.strip_prefix("    ").and_then(|carets| carets.find('^')),
        _ => None,
    };
    match column {
        Some(column) => format!("{reason} at character {}", column.saturating_add(1)),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::regex_reason;

    #[test]
    fn texts_of_other_forms_keep_their_last_line() {
        assert_eq!(
            regex_reason("Compiled regex exceeds size limit of 10 bytes."),
            "Compiled regex exceeds size limit of 10 bytes."
        );
        assert_eq!(
            regex_reason("regex parse error:\n~~~~\n1: a\n2: (\n   ^\n~~~~\nerror: unclosed group"),
            "unclosed group"
        );
        assert_eq!(regex_reason(""), "");
    }
}
