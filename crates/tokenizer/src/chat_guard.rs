//! Rewrites a chat template so that what the engine's operators build or walk through is counted.
//!
//! ```text
//! {{ a ~ b + [c, d] }}       {{ a|__counted ~ b|__counted + [c|__counted, d|__counted] }}
//! {{ a == b, x in y }}       {{ a|__read == b|__counted, x in y|__read }}
//! {{ a[1:] }}                {{ (a|__place)[1:] }}
//! {{ a[::-1] }}              {{ ((a|__place)|__stepped(none,none,-1)) }}
//! {{ 'ab' * 3 + n * m }}     {{ 'ab'|__times(3) * 3|__counted + n|__number * m|__number }}
//! {% generation %}           {% with %}
//! ```
//!
//! The engine counts steps; one step can still double a text. So every operand that an operator, a list or a call copies goes
//! through a filter that counts its size against a budget ([`crate::chat_budget`]): what was not counted is never larger than
//! what was. Long literal text counts itself the same way. `*` is for numbers, or takes a small literal number as one side.

/// Largest literal factor of `*` on text and lists.
const FACTOR_MAX: u64 = 1000;
/// Literal text longer than this counts itself.
const TEXT_BYTES_MAX: usize = 1024;
/// Most bytes that may move while parentheses are put around operands.
const MOVED_BYTES_MAX: usize = 16 << 20;

/// Words and signs in one tag. The engine walks through an expression by recursion: a chain of operators is as deep as it is long.
const TAG_TOKENS_MAX: usize = 1000;
/// Alternatives (`elif`) in a template, each of which stands within the one before.
const ALTERNATIVES_MAX: usize = 250;

/// Rewrites a template so that what it copies is counted. The error is one sentence.
pub(crate) fn guard(source: &str) -> Result<String, String> {
    let mut guarded = String::with_capacity(source.len());
    let mut rest = source;
    let (mut moved, mut alternatives) = (0, 0_usize);
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (text, tag) = rest.split_at(at);
        push_text(&mut guarded, text)?;
        alternatives = alternatives.saturating_add(usize::from(is_alternative(tag)));
        if alternatives > ALTERNATIVES_MAX {
            return Err(format!("it has more than {ALTERNATIVES_MAX} alternatives (elif)"));
        }
        rest = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").and_then(|end| tag.get(end.saturating_add(2)..)).unwrap_or_default(),
            Some(b'%') if is_named(tag, "raw") => {
                return Err("it uses raw blocks, which are not supported".to_owned());
            }
            Some(b'%') if is_named(tag, "generation") => replace_tag(tag, "generation", "with", &mut guarded)?,
            Some(b'%') if is_named(tag, "endgeneration") => replace_tag(tag, "endgeneration", "endwith", &mut guarded)?,
            _ => Rewriter::new(tag, &mut moved).run(&mut guarded)?,
        };
        if tag.as_bytes().get(1) == Some(&b'#') {
            let comment = tag.get(..tag.len().saturating_sub(rest.len())).unwrap_or_default();
            guarded.push_str(comment);
        }
    }
    push_text(&mut guarded, rest)?;
    Ok(guarded)
}

/// Whether a tag may be one more alternative of a condition.
fn is_alternative(tag: &str) -> bool {
    tag.trim_start_matches(['{', '%', '-', '+']).trim_start().starts_with("elif")
}

/// Whether a tag begins with the word `name`.
fn is_named(tag: &str, name: &str) -> bool {
    let word = tag.trim_start_matches(['{', '%', '-', '+']).trim_start();
    word.strip_prefix(name).is_some_and(|after| after.starts_with([' ', '\t', '\r', '\n', '-', '+', '%']))
}

/// Writes a tag that is one word with another word, and returns what stands after it. `generation` marks for training what
/// the assistant said; when text is generated it is a block that only keeps its variables to itself.
fn replace_tag<'s>(tag: &'s str, name: &str, by: &str, guarded: &mut String) -> Result<&'s str, String> {
    let end = tag.find("%}").and_then(|end| end.checked_add(2)).unwrap_or(tag.len());
    let (tag, rest) = tag.split_at_checked(end).unwrap_or((tag, ""));
    if tag.trim_matches(['{', '%', '}', '-', '+']).trim() != name {
        return Err(format!("its tag {name} contains more than that word"));
    }
    guarded.push_str(&tag.replacen(name, by, 1));
    Ok(rest)
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
        return Err("it contains a long run of white space".to_owned());
    };
    guarded.push_str(before);
    guarded.push_str(&format!("{{{{ __text({}) }}}}", text.len()));
    guarded.push_str(after);
    Ok(())
}

/// What stands open inside a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// The tag itself.
    Tag,
    /// A list, a dictionary, a call or a parenthesis: what stands in it is copied.
    Copies,
    /// An index.
    Index,
}

/// What the sides of `*` before the current operand are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Product {
    /// There is no `*` before it.
    None,
    /// Numbers, checked when it runs.
    Numbers,
    /// One was a literal number, the other may be text.
    Repeats,
}

/// Tags that give names to values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// `macro name(a, b=1)`: parameters, each up to its `=`.
    Macro,
    /// `call(a) name()`: parameters in the parenthesis after the word.
    Call,
    /// `for a, b in list`: up to the `in`.
    For,
}

impl Names {
    const ALL: [(&'static str, Names); 3] = [("macro", Names::Macro), ("call", Names::Call), ("for", Names::For)];
}

/// One level of brackets.
struct Level {
    open: Open,
    /// Where the current operand begins in the rewritten template.
    start: usize,
    /// The filter that the current operand gets when it ends.
    after: Option<String>,
    product: Product,
    /// Where it begins in the rewritten template, and where its colons stand.
    begin: usize,
    colons: Vec<usize>,
}

impl Level {
    fn new(open: Open, start: usize) -> Level {
        Level { open, start, after: None, product: Product::None, begin: start, colons: Vec::new() }
    }
}

/// Rewrites one tag, token by token.
struct Rewriter<'s, 'm> {
    rest: &'s str,
    level: Level,
    outer: Vec<Level>,
    /// Whether the last token ends an operand.
    operand: bool,
    /// The last operator, for a moment after it only.
    last: Option<char>,
    /// The operand, when it is nothing but a small number.
    factor: Option<u64>,
    /// What the tag gives names to; while it does, names are no operands.
    names: Option<Names>,
    declares: bool,
    expression: bool,
    /// Whether what stands here is assigned, and whether it is a tuple without parentheses.
    assigned: bool,
    tuple: bool,
    moved: &'m mut usize,
}

/// Words that are no operands.
const KEYWORDS: [&str; 26] = [
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
    "endwith",
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

impl<'s, 'm> Rewriter<'s, 'm> {
    fn new(tag: &'s str, moved: &'m mut usize) -> Rewriter<'s, 'm> {
        let name = tag.trim_start_matches(['{', '%', '-', '+']).trim_start();
        let expression = tag.starts_with("{{");
        let names =
            Names::ALL.into_iter().find(|(word, _)| !expression && name.starts_with(word)).map(|(_, names)| names);
        Rewriter {
            rest: tag,
            level: Level::new(Open::Tag, 0),
            outer: Vec::new(),
            operand: false,
            last: None,
            factor: None,
            names,
            declares: names.is_some(),
            expression,
            assigned: false,
            tuple: false,
            moved,
        }
    }

    /// Writes the rewritten tag and returns what stands after it.
    fn run(mut self, guarded: &mut String) -> Result<&'s str, String> {
        self.copy(2, guarded);
        if self.rest.starts_with(['-', '+']) {
            self.copy(1, guarded);
        }
        let mut tokens = 0_usize;
        while let Some(c) = self.rest.chars().next() {
            tokens = tokens.saturating_add(usize::from(!c.is_whitespace()));
            if tokens > TAG_TOKENS_MAX {
                return Err(format!("one of its tags contains more than {TAG_TOKENS_MAX} words and symbols"));
            }
            let end = if self.expression { "}}" } else { "%}" };
            let closing = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if self.outer.is_empty() && closing.starts_with(end) {
                self.finish_operand(guarded);
                if self.tuple {
                    self.count(guarded);
                }
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

    /// An operand begins here, unless it goes on after a dot or is the name of a filter.
    fn begin_operand(&mut self, guarded: &str) {
        if !matches!(self.last, Some('.' | '|')) {
            self.level.start = guarded.len();
        }
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
        self.begin_operand(guarded);
        self.copy(bytes, guarded);
        (self.operand, self.last, self.factor) = (true, None, None);
    }

    fn word(&mut self, guarded: &mut String) {
        let bytes = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let word = self.rest.get(..bytes).unwrap_or_default();
        let after_dot = self.last == Some('.');
        let keyword = KEYWORDS.contains(&word) && !after_dot;
        if keyword {
            self.finish_operand(guarded);
            self.level.product = Product::None;
        } else {
            self.begin_operand(guarded);
        }
        self.copy(bytes, guarded);
        if keyword && word == "in" {
            if self.declares && self.outer.is_empty() {
                self.declares = false;
            } else {
                self.level.after = Some("|__read ".to_owned());
            }
        }
        if !keyword && self.names == Some(Names::Call) && self.outer.is_empty() {
            self.declares = false;
        }
        // The last of `a / 3` is no factor of what comes after.
        let alone = !matches!(self.last, Some('.' | '*' | '/' | '%' | '|'));
        self.factor = word.parse().ok().filter(|number| alone && *number <= FACTOR_MAX);
        (self.operand, self.last) = (!keyword, None);
    }

    /// The current operand is complete: it gets the filter that it was to get.
    fn finish_operand(&mut self, guarded: &mut String) {
        if self.operand
            && let Some(filter) = self.level.after.take()
        {
            guarded.push_str(&filter);
        }
    }

    fn count(&self, guarded: &mut String) {
        if self.operand && !self.declares {
            // White space between an operand and a filter does not matter.
            guarded.push_str("|__counted ");
        }
    }

    fn operator(&mut self, c: char, guarded: &mut String) -> Result<(), String> {
        match c {
            '(' | '[' | '{' => return self.open(c, guarded),
            ')' | ']' | '}' => return self.close(c, guarded),
            '.' | '|' => {
                self.copy(1, guarded);
                (self.operand, self.last, self.factor) = (false, Some(c), None);
                return Ok(());
            }
            _ => self.finish_operand(guarded),
        }
        let twice = self.rest.get(1..).is_some_and(|rest| rest.starts_with(c));
        let compares = self.rest.get(1..).is_some_and(|rest| rest.starts_with('='));
        let mut bytes = c.len_utf8();
        match c {
            '~' | '+' => self.count(guarded),
            ',' if self.level.open == Open::Copies => {
                self.count(guarded);
                self.declares |= self.names == Some(Names::Macro) && self.outer.len() == 1;
            }
            ',' if self.level.open == Open::Tag && self.assigned => {
                self.tuple = true;
                self.count(guarded);
            }
            '=' | '!' | '<' | '>' if compares || matches!(c, '<' | '>') => {
                if self.operand && !self.declares {
                    guarded.push_str("|__read ");
                }
                bytes = if compares { 2 } else { 1 };
            }
            ':' if self.level.open == Open::Index => self.level.colons.push(guarded.len()),
            '=' if self.outer.is_empty() => self.assigned = true,
            '=' if self.names == Some(Names::Macro) => self.declares = false,
            '*' if twice && self.operand => bytes = 2,
            '*' => self.multiply(guarded)?,
            _ => {}
        }
        if c != '*' {
            self.level.product = Product::None;
        }
        self.copy(bytes, guarded);
        (self.operand, self.last, self.factor) = (false, Some(c), None);
        Ok(())
    }

    fn open(&mut self, c: char, guarded: &mut String) -> Result<(), String> {
        let index = c == '[' && self.operand;
        if !self.operand {
            self.begin_operand(guarded);
        }
        let after = self.rest.get(1..).unwrap_or_default();
        if index && !after.starts_with(['\'', '"']) && !self.declares {
            self.parenthesis(guarded)?;
            guarded.push_str("|__place)");
        }
        self.copy(1, guarded);
        let inner = Level::new(if index { Open::Index } else { Open::Copies }, guarded.len());
        self.outer.push(std::mem::replace(&mut self.level, inner));
        (self.operand, self.last, self.factor) = (false, Some(c), None);
        Ok(())
    }

    /// Puts a parenthesis in front of the current operand.
    fn parenthesis(&mut self, guarded: &mut String) -> Result<(), String> {
        *self.moved = self.moved.saturating_add(guarded.len().saturating_sub(self.level.start));
        if *self.moved > MOVED_BYTES_MAX {
            return Err("it puts too many indices into one tag".to_owned());
        }
        guarded.insert(self.level.start, '(');
        Ok(())
    }

    fn close(&mut self, c: char, guarded: &mut String) -> Result<(), String> {
        self.finish_operand(guarded);
        if self.level.open == Open::Copies {
            self.count(guarded);
        }
        let slice = slice_of(&self.level, guarded);
        self.copy(c.len_utf8(), guarded);
        let inner = self.level.begin;
        if let Some(outer) = self.outer.pop() {
            self.level = outer;
        }
        if let Some(slice) = slice.filter(|_| !self.declares) {
            // The bracket goes too.
            guarded.truncate(inner.saturating_sub(1));
            self.parenthesis(guarded)?;
            guarded.push_str(&slice);
        }
        self.declares &= self.names != Some(Names::Call) || !self.outer.is_empty();
        (self.operand, self.last, self.factor) = (true, None, None);
        Ok(())
    }

    /// `*` copies text as often as its factor says: one side is a small literal number, or both are numbers.
    fn multiply(&mut self, guarded: &mut String) -> Result<(), String> {
        if !self.operand {
            return Err("it unpacks a list into arguments, which is not supported".to_owned());
        }
        let literal = |factor: u64| format!("|__times({factor}) ");
        let right = literal_factor(self.rest.get(1..).unwrap_or_default());
        let (left, after, product) = match (self.level.product, self.factor, right) {
            (Product::Repeats, _, _) => {
                return Err("it multiplies a product again; put the product into parentheses".to_owned());
            }
            (Product::None, Some(factor), _) => (None, Some(literal(factor)), Product::Repeats),
            (Product::None, None, Some(factor)) => (Some(literal(factor)), None, Product::Repeats),
            (Product::None, None, None) | (Product::Numbers, _, _) => {
                let number = || Some("|__number ".to_owned());
                (number(), number(), Product::Numbers)
            }
        };
        guarded.push_str(&left.unwrap_or_default());
        (self.level.after, self.level.product) = (after, product);
        Ok(())
    }
}

/// What stands for an index with two colons, if it is one: a filter with start, end and step.
fn slice_of(level: &Level, guarded: &str) -> Option<String> {
    let [first, second] = level.colons.as_slice() else { return None };
    let part = |from: usize, to: usize| {
        let part = guarded.get(from..to).unwrap_or_default().trim();
        if part.is_empty() { "none".to_owned() } else { format!("({part})") }
    };
    let start = part(level.begin, *first);
    let stop = part(first.saturating_add(1), *second);
    let step = part(second.saturating_add(1), guarded.len());
    Some(format!("|__stepped({start},{stop},{step}))"))
}

/// The small number that `text` begins with, when it is a whole operand.
fn literal_factor(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, after) = text.split_at_checked(digits)?;
    let number = number.parse().ok().filter(|number| *number <= FACTOR_MAX)?;
    let spaced = after.trim_start();
    let word = spaced.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let ends = match spaced.chars().next() {
        None => true,
        Some('.' | '|' | '(' | '[') => false,
        Some('*') => !spaced.starts_with("**"),
        Some(_) if word.is_empty() => true,
        Some(_) => spaced.len() < after.len() && ["if", "else", "and", "or"].contains(&word),
    };
    ends.then_some(number)
}
