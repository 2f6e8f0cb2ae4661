//! Tokens to the syntax tree: expressions. Statements are in [`super::statements`].

use super::lexer::Token;
use super::problem::{Checked, Problem};
use super::syntax::{Arithmetic, CallArguments, Comparison, Expression, Literal, Suffix};

/// Brackets, conditions and blocks within each other.
const DEPTH_MAX: usize = 100;

/// Operators of one precedence.
type Operators = &'static [(&'static str, Arithmetic)];

const SUMS: Operators = &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
const PRODUCTS: Operators = &[
    ("*", Arithmetic::Multiply),
    ("/", Arithmetic::Divide),
    ("//", Arithmetic::FloorDivide),
    ("%", Arithmetic::Remainder),
];
const POWERS: Operators = &[("**", Arithmetic::Power)];
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

pub(super) struct Parser {
    tokens: Vec<(Token, u32)>,
    place: usize,
    depth: usize,
}

impl Parser {
    pub(super) fn new(tokens: Vec<(Token, u32)>) -> Parser {
        Parser { tokens, place: 0, depth: 0 }
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.place).map(|(token, _)| token)
    }

    pub(super) fn peek_second(&self) -> Option<&Token> {
        self.tokens.get(self.place.saturating_add(1)).map(|(token, _)| token)
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.place).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    pub(super) fn advance(&mut self) -> Option<Token> {
        let token = self.tokens.get_mut(self.place).map(|(token, _)| std::mem::replace(token, Token::PrintEnd));
        self.place = self.place.saturating_add(1);
        token
    }

    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Checked<T> {
        Err(Problem::new(problem).at(self.line()))
    }

    /// Runs a part of the parser one level deeper.
    pub(super) fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            return self.fail(format!("the template nests more than {DEPTH_MAX} blocks or brackets"));
        }
        let result = part(self);
        self.depth = self.depth.saturating_sub(1);
        result
    }

    pub(super) fn is_operator(&self, operator: &str) -> bool {
        matches!(self.peek(), Some(Token::Operator(found)) if *found == operator)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if **found == *name)
    }

    pub(super) fn skip_operator(&mut self, operator: &str) -> bool {
        let found = self.is_operator(operator);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect_operator(&mut self, operator: &str) -> Checked<()> {
        if self.skip_operator(operator) {
            return Ok(());
        }
        self.fail(format!("expected \"{operator}\", found {}", self.found()))
    }

    pub(super) fn expect_name(&mut self) -> Checked<Box<str>> {
        if let Some(Token::Name(_)) = self.peek()
            && let Some(Token::Name(name)) = self.advance()
        {
            return Ok(name);
        }
        self.fail(format!("expected a name, found {}", self.found()))
    }

    /// The current token in words.
    pub(super) fn found(&self) -> String {
        match self.peek() {
            None => "the end of the template".to_owned(),
            Some(Token::Name(name)) => format!("\"{name}\""),
            Some(Token::Operator(operator)) => format!("\"{operator}\""),
            Some(Token::Text(_)) => "a string".to_owned(),
            Some(Token::Int(_) | Token::Float(_)) => "a number".to_owned(),
            Some(Token::PrintEnd | Token::BlockEnd) => "the end of the tag".to_owned(),
            Some(Token::Data(_) | Token::PrintBegin | Token::BlockBegin) => "the next tag or text".to_owned(),
        }
    }

    pub(super) fn expression(&mut self) -> Checked<Expression> {
        self.deeper(|parser| parser.conditional())
    }

    /// `a if b else c if d else e`
    fn conditional(&mut self) -> Checked<Expression> {
        let mut value = self.or()?;
        let mut branches = Vec::new();
        while self.skip_name("if") {
            let test = self.or()?;
            branches.push((test, value));
            if !self.skip_name("else") {
                return Ok(Expression::Condition(branches, None));
            }
            value = self.or()?;
        }
        if branches.is_empty() {
            return Ok(value);
        }
        Ok(Expression::Condition(branches, Some(Box::new(value))))
    }

    pub(super) fn or(&mut self) -> Checked<Expression> {
        let mut parts = vec![self.and()?];
        while self.skip_name("or") {
            parts.push(self.and()?);
        }
        Ok(single(parts, Expression::Or))
    }

    fn and(&mut self) -> Checked<Expression> {
        let mut parts = vec![self.not()?];
        while self.skip_name("and") {
            parts.push(self.not()?);
        }
        Ok(single(parts, Expression::And))
    }

    fn not(&mut self) -> Checked<Expression> {
        if self.skip_name("not") {
            return self.deeper(|parser| Ok(Expression::Not(Box::new(parser.not()?))));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Checked<Expression> {
        let first = self.chain(SUMS)?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                Some(Token::Operator(operator)) => {
                    COMPARISONS.into_iter().find(|(name, _)| name == operator).map(|(_, comparison)| comparison)
                }
                Some(Token::Name(name)) if **name == *"in" => Some(Comparison::In),
                Some(Token::Name(name)) if **name == *"not" => {
                    let then_in = matches!(self.peek_second(), Some(Token::Name(name)) if **name == *"in");
                    then_in.then_some(Comparison::NotIn)
                }
                _ => None,
            };
            let Some(comparison) = comparison else { break };
            self.advance();
            if comparison == Comparison::NotIn {
                self.advance();
            }
            rest.push((comparison, self.chain(SUMS)?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(Expression::Comparison(Box::new(first), rest)) }
    }

    /// Operators of one precedence between operands of the next: sums of concatenations of products of powers.
    fn chain(&mut self, operators: Operators) -> Checked<Expression> {
        let operand = |parser: &mut Self| match operators {
            SUMS => parser.concatenation(),
            PRODUCTS => parser.chain(POWERS),
            _ => parser.unary(true),
        };
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some(Token::Operator(found)) = self.peek() {
            let Some((_, arithmetic)) = operators.iter().find(|(name, _)| name == found) else { break };
            self.advance();
            rest.push((*arithmetic, operand(self)?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(Expression::Chain(Box::new(first), rest)) }
    }

    fn concatenation(&mut self) -> Checked<Expression> {
        let mut parts = vec![self.chain(PRODUCTS)?];
        while self.skip_operator("~") {
            parts.push(self.chain(PRODUCTS)?);
        }
        Ok(single(parts, Expression::Concatenation))
    }

    fn unary(&mut self, with_filter: bool) -> Checked<Expression> {
        let base = if self.skip_operator("-") {
            self.deeper(|parser| Ok(Expression::Negative(Box::new(parser.unary(false)?))))?
        } else if self.skip_operator("+") {
            self.deeper(|parser| Ok(Expression::Positive(Box::new(parser.unary(false)?))))?
        } else {
            self.primary()?
        };
        let mut suffixes = Vec::new();
        self.postfix(&mut suffixes)?;
        if with_filter {
            self.filters_and_tests(&mut suffixes)?;
        }
        if suffixes.is_empty() { Ok(base) } else { Ok(Expression::Postfix(Box::new(base), suffixes)) }
    }

    fn primary(&mut self) -> Checked<Expression> {
        match self.peek() {
            Some(Token::Operator("(")) => {
                self.advance();
                let inside = self.tuple(true)?;
                self.expect_operator(")")?;
                return Ok(inside);
            }
            Some(Token::Operator("[")) => {
                self.advance();
                return Ok(Expression::List(self.expressions("]")?));
            }
            Some(Token::Operator("{")) => {
                self.advance();
                return self.dict();
            }
            Some(Token::Name(_) | Token::Text(_) | Token::Int(_) | Token::Float(_)) => {}
            _ => return self.fail(format!("expected a value, found {}", self.found())),
        }
        let literal = match self.advance() {
            Some(Token::Name(name)) => match &*name {
                "true" | "True" => Literal::Bool(true),
                "false" | "False" => Literal::Bool(false),
                "none" | "None" => Literal::None,
                _ => return Ok(Expression::Name(name)),
            },
            Some(Token::Text(mut text)) => {
                while let Some(Token::Text(_)) = self.peek() {
                    if let Some(Token::Text(more)) = self.advance() {
                        text.push_str(&more);
                    }
                }
                Literal::Text(text.into())
            }
            Some(Token::Int(number)) => Literal::Int(number),
            Some(Token::Float(number)) => Literal::Float(number),
            _ => Literal::None,
        };
        Ok(Expression::Literal(literal))
    }

    /// Expressions with commas between them, up to a bracket.
    fn expressions(&mut self, end: &str) -> Checked<Vec<Expression>> {
        let mut items = Vec::new();
        while !self.is_operator(end) {
            items.push(self.expression()?);
            if !self.skip_operator(",") {
                break;
            }
        }
        self.expect_operator(end)?;
        Ok(items)
    }

    fn dict(&mut self) -> Checked<Expression> {
        let mut entries = Vec::new();
        while !self.is_operator("}") {
            let key = self.expression()?;
            self.expect_operator(":")?;
            entries.push((key, self.expression()?));
            if !self.skip_operator(",") {
                break;
            }
        }
        self.expect_operator("}")?;
        Ok(Expression::Dict(entries))
    }

    /// One expression, or several with commas as a tuple. Only in parentheses may there be none.
    pub(super) fn tuple(&mut self, in_parentheses: bool) -> Checked<Expression> {
        self.tuple_of(in_parentheses, Parser::expression)
    }

    /// The same for expressions without a condition at the top level.
    pub(super) fn tuple_without_condition(&mut self) -> Checked<Expression> {
        self.tuple_of(false, Parser::or)
    }

    fn tuple_of(&mut self, in_parentheses: bool, item: fn(&mut Parser) -> Checked<Expression>) -> Checked<Expression> {
        let mut items = Vec::new();
        let mut is_tuple = false;
        while !self.ends_tuple() {
            items.push(item(self)?);
            if !self.skip_operator(",") {
                break;
            }
            is_tuple = true;
        }
        match items.pop() {
            Some(only) if !is_tuple => Ok(only),
            Some(last) => {
                items.push(last);
                Ok(Expression::Tuple(items))
            }
            None if in_parentheses => Ok(Expression::Tuple(items)),
            None => self.fail(format!("expected a value, found {}", self.found())),
        }
    }

    fn ends_tuple(&self) -> bool {
        matches!(self.peek(), None | Some(Token::PrintEnd | Token::BlockEnd | Token::Operator(")")))
            || self.is_name("recursive")
    }

    /// Attributes, indexes and calls.
    fn postfix(&mut self, suffixes: &mut Vec<Suffix>) -> Checked<()> {
        loop {
            match self.peek() {
                Some(Token::Operator(".")) => {
                    self.advance();
                    match self.advance() {
                        Some(Token::Name(name)) => suffixes.push(Suffix::Attribute(name)),
                        Some(Token::Int(number)) => {
                            suffixes.push(Suffix::Item(Expression::Literal(Literal::Int(number))));
                        }
                        _ => return self.fail("expected a name or a number after \".\""),
                    }
                }
                Some(Token::Operator("[")) => {
                    self.advance();
                    suffixes.push(self.subscript()?);
                }
                Some(Token::Operator("(")) => suffixes.push(Suffix::Call(self.arguments()?)),
                _ => return Ok(()),
            }
        }
    }

    fn filters_and_tests(&mut self, suffixes: &mut Vec<Suffix>) -> Checked<()> {
        loop {
            match self.peek() {
                Some(Token::Operator("|")) => {
                    self.advance();
                    suffixes.push(self.filter()?);
                }
                Some(Token::Name(name)) if **name == *"is" => {
                    self.advance();
                    suffixes.push(self.test()?);
                }
                Some(Token::Operator("(")) => suffixes.push(Suffix::Call(self.arguments()?)),
                _ => return Ok(()),
            }
        }
    }

    /// The name of a filter, after `|` or in a tag.
    pub(super) fn filter(&mut self) -> Checked<Suffix> {
        let name = self.dotted_name()?;
        let arguments = if self.is_operator("(") { self.arguments()? } else { CallArguments::default() };
        Ok(Suffix::Filter(name, arguments))
    }

    fn test(&mut self) -> Checked<Suffix> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let mut arguments = CallArguments::default();
        let starts_value = match self.peek() {
            Some(Token::Name(name)) => !["else", "or", "and"].contains(&&**name),
            Some(Token::Text(_) | Token::Int(_) | Token::Float(_) | Token::Operator("[" | "{")) => true,
            _ => false,
        };
        if self.is_operator("(") {
            arguments = self.arguments()?;
        } else if starts_value {
            if self.is_name("is") {
                return self.fail("tests cannot be chained with \"is\"");
            }
            let mut suffixes = Vec::new();
            let base = self.primary()?;
            self.postfix(&mut suffixes)?;
            let value = if suffixes.is_empty() { base } else { Expression::Postfix(Box::new(base), suffixes) };
            arguments.positional.push(value);
        }
        Ok(Suffix::Test { name, arguments, negated })
    }

    fn dotted_name(&mut self) -> Checked<Box<str>> {
        let mut name = self.expect_name()?.into_string();
        while self.skip_operator(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name.into())
    }

    /// An index or a slice, after `[`.
    fn subscript(&mut self) -> Checked<Suffix> {
        let mut parts: [Option<Expression>; 3] = [None, None, None];
        let mut colons = 0_usize;
        let mut items = Vec::new();
        while !self.is_operator("]") {
            if self.skip_operator(":") {
                colons = colons.saturating_add(1);
                continue;
            }
            let value = self.expression()?;
            match parts.get_mut(colons) {
                Some(part) if part.is_none() => *part = Some(value),
                _ => return self.fail("an index has too many parts"),
            }
            if colons == 0 && self.is_operator(",") {
                self.advance();
                items.extend(parts.first_mut().and_then(Option::take));
            }
        }
        self.expect_operator("]")?;
        let [first, second, third] = parts;
        match (colons, items.is_empty(), first) {
            (0, true, Some(index)) => Ok(Suffix::Item(index)),
            (0, false, last) => {
                items.extend(last);
                Ok(Suffix::Item(Expression::Tuple(items)))
            }
            (1 | 2, true, first) => Ok(Suffix::Slice(Box::new([first, second, third]))),
            _ => self.fail("expected an index or a slice between the brackets"),
        }
    }

    pub(super) fn arguments(&mut self) -> Checked<CallArguments> {
        self.expect_operator("(")?;
        let mut arguments = CallArguments::default();
        while !self.is_operator(")") {
            if self.skip_operator("**") {
                arguments.dict = Some(Box::new(self.expression()?));
            } else if self.skip_operator("*") {
                arguments.list = Some(Box::new(self.expression()?));
            } else if matches!((self.peek(), self.peek_second()), (Some(Token::Name(_)), Some(Token::Operator("=")))) {
                let name = self.expect_name()?;
                self.advance();
                arguments.named.push((name, self.expression()?));
            } else {
                if !arguments.named.is_empty() || arguments.dict.is_some() {
                    return self.fail("an argument without a name follows one with a name");
                }
                arguments.positional.push(self.expression()?);
            }
            if !self.skip_operator(",") {
                break;
            }
        }
        self.expect_operator(")")?;
        Ok(arguments)
    }
}

/// A list of one element is that element.
fn single(mut parts: Vec<Expression>, several: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            several(parts)
        }
        None => several(parts),
    }
}
