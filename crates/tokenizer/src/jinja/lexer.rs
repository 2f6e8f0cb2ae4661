//! Source text to tokens, with `trim_blocks` and `lstrip_blocks` as the transformers library sets them.
//!
//! ```text
//! a  {%- if x %}\n b   ->  "a"  {%  if  x  %}  " b"
//! ```

use super::problem::{Checked, Problem};
use super::text::is_space;

/// A token of a template.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// Text outside tags.
    Data(String),
    PrintBegin,
    PrintEnd,
    BlockBegin,
    BlockEnd,
    Name(Box<str>),
    Text(String),
    Int(i128),
    Float(f64),
    Operator(&'static str),
}

/// Operators, longer ones first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";",
];

/// Kinds of tags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Print,
    Block,
    Comment,
}

/// The tokens of a template with their lines.
pub(super) fn tokens(source: &str) -> Checked<Vec<(Token, u32)>> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { rest: source, line: 1, line_starting: true, tokens: Vec::new() };
    lexer.run()?;
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    rest: &'s str,
    line: u32,
    /// Whether the last tag ended with a line break.
    line_starting: bool,
    tokens: Vec<(Token, u32)>,
}

impl<'s> Lexer<'s> {
    fn run(&mut self) -> Checked<()> {
        while let Some((at, tag)) = next_tag(self.rest) {
            let (text, begin) = self.rest.split_at_checked(at).unwrap_or((self.rest, ""));
            let sign = begin.chars().nth(2).filter(|sign| matches!(sign, '-' | '+'));
            self.data(text, sign, tag != Tag::Print);
            if let Some(bytes) = raw_begin(begin, "raw", false) {
                self.skip(bytes);
                self.raw()?;
                continue;
            }
            self.skip(if sign.is_some() { 3 } else { 2 });
            match tag {
                Tag::Comment => self.comment()?,
                Tag::Print => self.tag(Token::PrintBegin, "}}", Token::PrintEnd)?,
                Tag::Block => self.tag(Token::BlockBegin, "%}", Token::BlockEnd)?,
            }
        }
        let rest = self.rest;
        self.push_data(rest);
        Ok(())
    }

    /// Moves over text that is already known to be there.
    fn skip(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        let lines = u32::try_from(taken.matches('\n').count()).unwrap_or(u32::MAX);
        self.line = self.line.saturating_add(lines);
        self.rest = rest;
    }

    fn push_data(&mut self, text: &str) {
        if !text.is_empty() {
            self.tokens.push((Token::Data(text.to_owned()), self.line));
        }
    }

    /// Text before a tag: `-` strips all white space, and blocks strip the indentation of their line.
    fn data(&mut self, text: &'s str, sign: Option<char>, strips_line: bool) {
        let stripped = match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if strips_line => {
                let line = text.rfind('\n').map(|at| at.saturating_add(1));
                let (before, last) = text.split_at_checked(line.unwrap_or(0)).unwrap_or((text, ""));
                let starts = line.is_some() || self.line_starting;
                if starts && last.chars().all(is_space) { before } else { text }
            }
            _ => text,
        };
        self.push_data(stripped);
        self.skip(text.len());
    }

    fn comment(&mut self) -> Checked<()> {
        let Some(end) = self.rest.find("#}") else {
            return Err(Problem::new("a comment is not closed with #}").at(self.line));
        };
        let sign = self.rest.get(..end).and_then(|text| text.chars().last());
        self.skip(end.saturating_add(2));
        self.after_tag(sign);
        Ok(())
    }

    /// White space after the end of a block or comment.
    fn after_tag(&mut self, sign: Option<char>) {
        let bytes = match sign {
            Some('-') => self.rest.len().saturating_sub(self.rest.trim_start_matches(is_space).len()),
            Some('+') => 0,
            _ => usize::from(self.rest.starts_with('\n')),
        };
        self.line_starting = self.rest.get(..bytes).is_some_and(|text| text.ends_with('\n'));
        self.skip(bytes);
    }

    /// Text up to `{% endraw %}`.
    fn raw(&mut self) -> Checked<()> {
        let rest = self.rest;
        for (at, _) in rest.match_indices("{%") {
            let (text, begin) = rest.split_at_checked(at).unwrap_or((rest, ""));
            if let Some(bytes) = raw_begin(begin, "endraw", true) {
                let sign = begin.chars().nth(2).filter(|sign| matches!(sign, '-' | '+'));
                self.line_starting = false;
                self.data(text, sign, true);
                let end = begin.get(..bytes).unwrap_or_default();
                self.skip(bytes);
                let closing = end.strip_suffix("%}").and_then(|tag| tag.chars().last());
                self.after_tag(closing);
                return Ok(());
            }
        }
        Err(Problem::new("a raw block is not closed with endraw").at(self.line))
    }

    /// The tokens of one tag.
    fn tag(&mut self, begin: Token, end: &str, end_token: Token) -> Checked<()> {
        let line = self.line;
        self.tokens.push((begin, line));
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            let spaces = self.rest.len().saturating_sub(self.rest.trim_start_matches(is_space).len());
            self.skip(spaces);
            let Some(first) = self.rest.chars().next() else {
                return Err(Problem::new(format!("a tag is not closed with {end}")).at(line));
            };
            let is_block = end == "%}";
            let sign = (first == '-' || (is_block && first == '+')).then_some(first);
            let closing = sign.map_or(self.rest, |sign| self.rest.get(sign.len_utf8()..).unwrap_or_default());
            if open.is_empty() && closing.starts_with(end) {
                self.tokens.push((end_token, self.line));
                let signed = usize::from(sign.is_some());
                self.skip(signed.saturating_add(2));
                if is_block || sign.is_some() {
                    self.after_tag(sign);
                } else {
                    self.line_starting = false;
                }
                return Ok(());
            }
            self.token(first, &mut open)?;
        }
    }

    fn token(&mut self, first: char, open: &mut Vec<&'static str>) -> Checked<()> {
        let line = self.line;
        let token = match first {
            '\'' | '"' => self.string(first)?,
            c if c.is_ascii_digit() => self.number()?,
            c if c.is_alphanumeric() || c == '_' => {
                let bytes = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let word = self.rest.get(..bytes).unwrap_or_default().into();
                self.skip(bytes);
                Token::Name(word)
            }
            other => {
                let Some(operator) = OPERATORS.into_iter().find(|operator| self.rest.starts_with(operator)) else {
                    return Err(Problem::new(format!("unexpected character {other:?}")).at(line));
                };
                match operator {
                    "(" | "[" | "{" => open.push(operator),
                    ")" | "]" | "}" => {
                        let expected = match operator {
                            ")" => "(",
                            "]" => "[",
                            _ => "{",
                        };
                        if open.pop() != Some(expected) {
                            return Err(Problem::new(format!("unexpected \"{operator}\"")).at(line));
                        }
                    }
                    _ => {}
                }
                self.skip(operator.len());
                Token::Operator(operator)
            }
        };
        self.tokens.push((token, line));
        Ok(())
    }

    fn string(&mut self, quote: char) -> Checked<Token> {
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            if c == quote && !escaped {
                let inside = self.rest.get(1..at).unwrap_or_default();
                let text = unescape(inside).map_err(|problem| problem.at(self.line))?;
                self.skip(at.saturating_add(1));
                return Ok(Token::Text(text));
            }
            escaped = c == '\\' && !escaped;
        }
        Err(Problem::new("a string is not closed").at(self.line))
    }

    fn number(&mut self) -> Checked<Token> {
        let after_dot = matches!(self.tokens.last(), Some((Token::Operator("."), _)));
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
        let radix = [("0x", 16), ("0o", 8), ("0b", 2)]
            .into_iter()
            .find(|(prefix, _)| self.rest.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
        let too_large = || Problem::new("a number is too large");
        if let Some((_, radix)) = radix {
            let text = self.rest.get(2..).unwrap_or_default();
            let bytes = text.find(|c: char| !c.is_digit(radix) && c != '_').unwrap_or(text.len());
            let digits = text.get(..bytes).unwrap_or_default().replace('_', "");
            let number = i128::from_str_radix(&digits, radix).map_err(|_| too_large().at(self.line))?;
            self.skip(bytes.saturating_add(2));
            return Ok(Token::Int(number));
        }
        let mut end = digits(self.rest);
        let mut is_float = false;
        let at = |place: usize| self.rest.get(place..).unwrap_or_default();
        if !after_dot {
            if let Some(fraction) =
                at(end).strip_prefix('.').filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))
            {
                end = end.saturating_add(1).saturating_add(digits(fraction));
                is_float = true;
            }
            if let Some(exponent) = at(end).strip_prefix(['e', 'E']) {
                let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
                    let signed = exponent.len().saturating_sub(unsigned.len());
                    end = end.saturating_add(1).saturating_add(signed).saturating_add(digits(unsigned));
                    is_float = true;
                }
            }
        }
        let text = self.rest.get(..end).unwrap_or_default().replace('_', "");
        self.skip(end);
        if is_float {
            return text.parse().map(Token::Float).map_err(|_| too_large().at(self.line));
        }
        text.parse().map(Token::Int).map_err(|_| too_large().at(self.line))
    }
}

/// Where the next tag begins.
fn next_tag(text: &str) -> Option<(usize, Tag)> {
    text.match_indices('{').find_map(|(at, _)| {
        let tag = match text.as_bytes().get(at.saturating_add(1))? {
            b'{' => Tag::Print,
            b'%' => Tag::Block,
            b'#' => Tag::Comment,
            _ => return None,
        };
        Some((at, tag))
    })
}

/// The bytes of a tag `{% word %}`; the tag that ends raw text may also end with `+%}`. The white space after `-%}` of
/// the first tag belongs to it.
fn raw_begin(tag: &str, word: &str, ends: bool) -> Option<usize> {
    let inside = tag.strip_prefix("{%")?;
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside).trim_start_matches(is_space);
    let after = inside.strip_prefix(word)?.trim_start_matches(is_space);
    let rest = match after.strip_prefix("-%}") {
        Some(rest) if ends => rest,
        Some(rest) => rest.trim_start_matches(is_space),
        None if ends && after.starts_with("+%}") => after.strip_prefix("+%}")?,
        None => after.strip_prefix("%}")?,
    };
    Some(tag.len().saturating_sub(rest.len()))
}

/// A string literal by Python's rules; an unknown escape stays as it is.
fn unescape(text: &str) -> Checked<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let Some(c) = after.chars().next() else {
            out.push('\\');
            return Ok(out);
        };
        rest = after.get(c.len_utf8()..).unwrap_or_default();
        let simple = match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '\'' | '"' => c,
            '\n' => continue,
            'x' | 'u' | 'U' => {
                let count = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let (c, after) = code_point(rest, count)?;
                rest = after;
                c
            }
            '0'..='7' => {
                let digits = after.chars().take(3).take_while(|c| c.is_digit(8)).count();
                let number = u32::from_str_radix(after.get(..digits).unwrap_or_default(), 8).unwrap_or_default();
                rest = after.get(digits..).unwrap_or_default();
                char::from_u32(number).unwrap_or_default()
            }
            other => {
                out.push('\\');
                other
            }
        };
        out.push(simple);
    }
    out.push_str(rest);
    Ok(out)
}

/// A character by its hexadecimal number; two halves of a surrogate pair are one character.
fn code_point(text: &str, digits: usize) -> Checked<(char, &str)> {
    let fail = || Problem::new("a string has an escape that is not a character");
    let number = |text: &str| u32::from_str_radix(text.get(..digits)?, 16).ok();
    let first = number(text).ok_or_else(fail)?;
    let rest = text.get(digits..).unwrap_or_default();
    if let Some(c) = char::from_u32(first) {
        return Ok((c, rest));
    }
    let second = rest.strip_prefix("\\u").and_then(number).and_then(|second| u16::try_from(second).ok());
    let pair = u16::try_from(first).ok().zip(second).map(|(first, second)| [first, second]);
    let c = pair.and_then(|pair| char::decode_utf16(pair).next()?.ok()).ok_or_else(fail)?;
    Ok((c, rest.get(digits.saturating_add(2)..).unwrap_or_default()))
}
