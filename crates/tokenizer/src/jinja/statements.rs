//! Tokens to the syntax tree: statements and text.

use super::lexer::Token;
use super::parser::Parser;
use super::problem::{Checked, Problem};
use super::syntax::{Expression, For, Macro, Node, NodeKind, Suffix, Target};

/// The nodes of a whole template.
pub(super) fn parse(tokens: Vec<(Token, u32)>) -> Checked<Vec<Node>> {
    let mut parser = Parser::new(tokens);
    let nodes = parser.nodes(&[])?;
    if parser.peek().is_some() {
        return parser.fail(format!("unexpected {}", parser.found()));
    }
    Ok(nodes)
}

impl Parser {
    /// Nodes up to a tag whose word is one of `ends`; the parser stops at that word.
    fn nodes(&mut self, ends: &[&str]) -> Checked<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.peek() {
                None if ends.is_empty() => return Ok(nodes),
                None => return self.fail(format!("a block is not closed: expected {}", ends.join(" or "))),
                Some(Token::Data(_)) => match self.advance() {
                    Some(Token::Data(text)) => NodeKind::Text(text.into()),
                    _ => continue,
                },
                Some(Token::PrintBegin) => {
                    self.advance();
                    let value = self.tuple(false)?;
                    self.end(&Token::PrintEnd)?;
                    NodeKind::Print(value)
                }
                _ => {
                    self.advance();
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(nodes);
                    }
                    self.deeper(Parser::statement)?
                }
            };
            nodes.push(Node { line, kind });
        }
    }

    fn end(&mut self, token: &Token) -> Checked<()> {
        if self.peek() == Some(token) {
            self.advance();
            return Ok(());
        }
        self.fail(format!("expected the end of the tag, found {}", self.found()))
    }

    fn block_end(&mut self) -> Checked<()> {
        self.end(&Token::BlockEnd)
    }

    /// Ends the tag, reads nodes up to the tag `end`, and ends that.
    fn body(&mut self, end: &str) -> Checked<Vec<Node>> {
        self.block_end()?;
        let nodes = self.nodes(&[end])?;
        self.advance();
        // `{% endmacro name %}` and `{% endblock name %}`
        if matches!(end, "endmacro" | "endblock") && matches!(self.peek(), Some(Token::Name(_))) {
            self.advance();
        }
        self.block_end()?;
        Ok(nodes)
    }

    fn statement(&mut self) -> Checked<NodeKind> {
        let line = self.line();
        let word = self.expect_name()?;
        match &*word {
            "if" => self.if_statement(),
            "for" => self.for_statement(),
            "set" => self.set_statement(),
            "macro" => {
                let name = self.expect_name()?;
                let parameters = self.parameters()?;
                let body = self.body("endmacro")?;
                Ok(NodeKind::Macro(Box::new(Macro { name, parameters, body })))
            }
            "call" => self.call_statement(),
            "filter" => {
                let filters = self.filter_chain(true)?;
                Ok(NodeKind::Filter(filters, self.body("endfilter")?))
            }
            "with" => self.with_statement(),
            "generation" => Ok(NodeKind::Scope(self.body("endgeneration")?)),
            "block" => {
                self.expect_name()?;
                while self.skip_name("scoped") || self.skip_name("required") {}
                Ok(NodeKind::Scope(self.body("endblock")?))
            }
            "print" => {
                let mut parts = vec![self.expression()?];
                while self.skip_operator(",") {
                    parts.push(self.expression()?);
                }
                self.block_end()?;
                Ok(NodeKind::Print(Expression::Concatenation(parts)))
            }
            "break" => self.block_end().map(|()| NodeKind::Break),
            "continue" => self.block_end().map(|()| NodeKind::Continue),
            "include" | "import" | "from" | "extends" => Err(Problem::new(format!("{word} is not supported")).at(line)),
            other => Err(Problem::new(format!("unknown tag {other}")).at(line)),
        }
    }

    fn if_statement(&mut self) -> Checked<NodeKind> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let test = self.tuple_without_condition()?;
            self.block_end()?;
            branches.push((test, self.nodes(&["elif", "else", "endif"])?));
            if self.skip_name("elif") {
                continue;
            }
            if self.skip_name("else") {
                self.block_end()?;
                otherwise = self.nodes(&["endif"])?;
            }
            self.advance();
            self.block_end()?;
            return Ok(NodeKind::If(branches, otherwise));
        }
    }

    fn for_statement(&mut self) -> Checked<NodeKind> {
        let target = self.targets()?;
        if !self.skip_name("in") {
            return self.fail(format!("expected \"in\", found {}", self.found()));
        }
        let iterable = self.tuple_without_condition()?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        self.block_end()?;
        let body = self.nodes(&["endfor", "else"])?;
        let mut otherwise = Vec::new();
        if self.skip_name("else") {
            self.block_end()?;
            otherwise = self.nodes(&["endfor"])?;
        }
        self.advance();
        self.block_end()?;
        Ok(NodeKind::For(Box::new(For { target, iterable, test, recursive, body, otherwise })))
    }

    fn set_statement(&mut self) -> Checked<NodeKind> {
        let target = self.targets()?;
        if self.skip_operator("=") {
            let value = self.tuple(false)?;
            self.block_end()?;
            return Ok(NodeKind::Set(target, value));
        }
        let filters = self.filter_chain(false)?;
        Ok(NodeKind::SetBlock(target, filters, self.body("endset")?))
    }

    /// `| a | b(1)`; in a filter tag the first has no bar.
    fn filter_chain(&mut self, begins: bool) -> Checked<Vec<Suffix>> {
        let mut filters = Vec::new();
        if begins {
            filters.push(self.filter()?);
        }
        while self.skip_operator("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn call_statement(&mut self) -> Checked<NodeKind> {
        let parameters = if self.is_operator("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        let is_call =
            matches!(&call, Expression::Postfix(_, suffixes) if matches!(suffixes.last(), Some(Suffix::Call(_))));
        if !is_call {
            return self.fail("expected a call in the tag \"call\"");
        }
        let body = self.body("endcall")?;
        Ok(NodeKind::Call(Box::new(Macro { name: "caller".into(), parameters, body }), call))
    }

    fn with_statement(&mut self) -> Checked<NodeKind> {
        let mut values = Vec::new();
        while self.peek() != Some(&Token::BlockEnd) {
            let target = self.target()?;
            self.expect_operator("=")?;
            values.push((target, self.expression()?));
            if !self.skip_operator(",") {
                break;
            }
        }
        Ok(NodeKind::With(values, self.body("endwith")?))
    }

    fn parameters(&mut self) -> Checked<Vec<(Box<str>, Option<Expression>)>> {
        self.expect_operator("(")?;
        let mut parameters = Vec::new();
        while !self.is_operator(")") {
            let name = self.expect_name()?;
            let default = if self.skip_operator("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
            if !self.skip_operator(",") {
                break;
            }
        }
        self.expect_operator(")")?;
        Ok(parameters)
    }

    /// `a`, `a.b`, `a, b` or `(a, b)`.
    fn targets(&mut self) -> Checked<Target> {
        let first = self.target()?;
        if !self.is_operator(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.skip_operator(",") {
            if !matches!(self.peek(), Some(Token::Name(name)) if **name != *"in") && !self.is_operator("(") {
                break;
            }
            targets.push(self.target()?);
        }
        Ok(Target::Tuple(targets))
    }

    fn target(&mut self) -> Checked<Target> {
        if self.skip_operator("(") {
            let inside = self.deeper(Parser::targets)?;
            self.expect_operator(")")?;
            return Ok(inside);
        }
        let name = self.expect_name()?;
        if ["true", "True", "false", "False", "none", "None"].contains(&&*name) {
            return self.fail(format!("cannot assign to {name}"));
        }
        if self.skip_operator(".") {
            return Ok(Target::Attribute(name, self.expect_name()?));
        }
        Ok(Target::Name(name))
    }
}
