//! Runs the syntax tree: statements, scopes and assignments. Expressions are in [`super::evaluate`].

use super::budget::Budget;
use super::problem::{Checked, Problem};
use super::syntax::{Expression, For, Macro, Node, NodeKind, Suffix, Target};
use super::text::to_text;
use super::value::{Loop, Value};
use crate::date::Date;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Statements, expressions and calls within each other while a template runs.
const DEPTH_MAX: usize = 320;

/// Variables of a block, and the block around it.
#[derive(Debug, Default)]
pub(super) struct Scope {
    variables: RefCell<HashMap<Box<str>, Value>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { variables: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub(super) fn set(&self, name: &str, value: Value) {
        self.variables.borrow_mut().insert(name.into(), value);
    }

    pub(super) fn find(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.variables.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.parent.as_deref()?;
        }
    }
}

/// What follows a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

/// A macro with the scope in which it was defined.
#[derive(Clone)]
pub(super) struct Definition<'t> {
    pub(super) node: &'t Macro,
    pub(super) scope: Rc<Scope>,
}

/// One rendering.
pub(super) struct Renderer<'t> {
    pub(super) budget: &'t Budget,
    pub(super) date: Option<Date>,
    pub(super) namespaces: Vec<Vec<(Box<str>, Value)>>,
    pub(super) macros: Vec<Definition<'t>>,
    recursions: Vec<(&'t For, Rc<Scope>)>,
    out: String,
    depth: usize,
}

impl<'t> Renderer<'t> {
    pub(super) fn new(budget: &'t Budget, date: Option<Date>) -> Renderer<'t> {
        Renderer {
            budget,
            date,
            namespaces: Vec::new(),
            macros: Vec::new(),
            recursions: Vec::new(),
            out: String::new(),
            depth: 0,
        }
    }

    /// Renders a whole template.
    pub(super) fn render(&mut self, nodes: &'t [Node], variables: Vec<(&str, Value)>) -> Checked<String> {
        let scope = Rc::new(Scope::default());
        for (name, value) in variables {
            scope.set(name, value);
        }
        self.nodes(nodes, &scope)?;
        Ok(std::mem::take(&mut self.out))
    }

    /// Runs a part one level deeper.
    pub(super) fn deeper<T>(&mut self, part: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            return Err(Problem::new(format!("more than {DEPTH_MAX} blocks, expressions and calls are nested")));
        }
        let result = part(self);
        self.depth = self.depth.saturating_sub(1);
        result
    }

    /// What nodes write, instead of writing it.
    pub(super) fn captured(&mut self, nodes: &'t [Node], scope: &Rc<Scope>) -> Checked<String> {
        let outer = std::mem::take(&mut self.out);
        let result = self.nodes(nodes, scope);
        let inner = std::mem::replace(&mut self.out, outer);
        result.map(|_| inner)
    }

    fn write(&mut self, text: &str) -> Checked<()> {
        self.budget.text(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn nodes(&mut self, nodes: &'t [Node], scope: &Rc<Scope>) -> Checked<Flow> {
        for node in nodes {
            self.budget.step(1)?;
            let flow =
                self.deeper(|renderer| renderer.node(&node.kind, scope)).map_err(|problem| problem.at(node.line))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &'t NodeKind, scope: &Rc<Scope>) -> Checked<Flow> {
        match node {
            NodeKind::Text(text) => self.write(text)?,
            NodeKind::Print(value) => self.print(value, scope)?,
            NodeKind::If(branches, otherwise) => return self.if_node(branches, otherwise, scope),
            NodeKind::For(node) => {
                let iterable = self.evaluate(&node.iterable, scope)?;
                self.for_loop(node, &iterable, scope, 0)?;
            }
            NodeKind::Set(target, value) => {
                let value = self.evaluate(value, scope)?;
                self.assign(target, value, scope)?;
            }
            NodeKind::SetBlock(target, filters, body) => {
                let inside = Scope::inside(scope);
                let text = Value::text(self.captured(body, &inside)?);
                let value = self.suffixes(text, filters, scope)?;
                self.assign(target, value, scope)?;
            }
            NodeKind::Macro(node) => {
                let value = self.define(node, scope)?;
                scope.set(&node.name, value);
            }
            NodeKind::Call(block, call) => self.call_block(block, call, scope)?,
            NodeKind::Filter(filters, body) => {
                let inside = Scope::inside(scope);
                let text = Value::text(self.captured(body, &inside)?);
                let value = self.suffixes(text, filters, scope)?;
                let text = to_text(&value, self.budget)?;
                self.write(&text)?;
            }
            NodeKind::With(values, body) => {
                let inside = Scope::inside(scope);
                for (target, value) in values {
                    let value = self.evaluate(value, scope)?;
                    self.assign(target, value, &inside)?;
                }
                return self.nodes(body, &inside);
            }
            NodeKind::Scope(body) => return self.nodes(body, &Scope::inside(scope)),
            NodeKind::Break => return Ok(Flow::Break),
            NodeKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn print(&mut self, value: &'t Expression, scope: &Rc<Scope>) -> Checked<()> {
        let value = self.evaluate(value, scope)?;
        if let Value::Text(text) | Value::Markup(text) = &value {
            return self.write(text);
        }
        let text = self.value_text(&value)?;
        self.write(&text)
    }

    /// `str(value)`, also of namespaces.
    pub(super) fn value_text(&self, value: &Value) -> Checked<String> {
        let Value::Namespace(place) = value else { return to_text(value, self.budget) };
        let attributes = self.namespaces.get(*place).cloned().unwrap_or_default();
        let entries = attributes.into_iter().map(|(name, value)| (Value::text(name), value)).collect();
        Ok(format!("<Namespace {}>", to_text(&Value::dict(entries, self.budget)?, self.budget)?))
    }

    fn if_node(
        &mut self,
        branches: &'t [(Expression, Vec<Node>)],
        otherwise: &'t [Node],
        scope: &Rc<Scope>,
    ) -> Checked<Flow> {
        for (test, body) in branches {
            if self.evaluate(test, scope)?.is_true() {
                return self.nodes(body, scope);
            }
        }
        self.nodes(otherwise, scope)
    }

    /// Runs a loop over the items of a value.
    fn for_loop(&mut self, node: &'t For, iterable: &Value, scope: &Rc<Scope>, depth: usize) -> Checked<()> {
        let mut items = iterable.iterate(self.budget)?;
        if let Some(test) = &node.test {
            let mut kept = Vec::new();
            for item in items {
                let inside = Scope::inside(scope);
                self.assign(&node.target, item.clone(), &inside)?;
                if self.evaluate(test, &inside)?.is_true() {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.nodes(&node.otherwise, &Scope::inside(scope)).map(|_| ());
        }
        let recursion = node.recursive.then_some(self.recursions.len());
        if node.recursive {
            self.budget.values(1)?;
            self.recursions.push((node, scope.clone()));
        }
        self.budget.values(items.len())?;
        let state = Rc::new(Loop::new(items, depth, recursion)?);
        for (index, item) in state.items.iter().enumerate() {
            self.budget.step(2)?;
            state.index.set(index);
            let inside = Scope::inside(scope);
            inside.set("loop", Value::Loop(state.clone()));
            self.assign(&node.target, item.clone(), &inside)?;
            if self.nodes(&node.body, &inside)? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// `loop(items)` in a recursive loop: the text of the same loop over other items.
    pub(super) fn recurse(&mut self, own: &Loop, items: &Value) -> Checked<Value> {
        let found = own.recursion.and_then(|place| self.recursions.get(place)).cloned();
        let Some((node, scope)) = found else {
            return Err(Problem::new("the loop is not recursive: it needs the word \"recursive\" in its tag"));
        };
        let outer = std::mem::take(&mut self.out);
        let depth = own.depth.saturating_add(1);
        let result = self.deeper(|renderer| renderer.for_loop(node, items, &scope, depth));
        let inner = std::mem::replace(&mut self.out, outer);
        result?;
        Ok(Value::text(inner))
    }

    fn define(&mut self, node: &'t Macro, scope: &Rc<Scope>) -> Checked<Value> {
        self.budget.values(2)?;
        self.macros.push(Definition { node, scope: scope.clone() });
        Ok(Value::Macro(self.macros.len().saturating_sub(1)))
    }

    fn call_block(&mut self, block: &'t Macro, call: &'t Expression, scope: &Rc<Scope>) -> Checked<()> {
        let caller = self.define(block, scope)?;
        let Expression::Postfix(base, suffixes) = call else { return Ok(()) };
        let Some((Suffix::Call(arguments), before)) = suffixes.split_last() else { return Ok(()) };
        let base = self.evaluate(base, scope)?;
        let function = self.suffixes(base, before, scope)?;
        let mut arguments = self.arguments(arguments, scope)?;
        arguments.named.push(("caller".into(), caller));
        let value = self.call(&function, arguments)?;
        let text = self.value_text(&value)?;
        self.write(&text)
    }

    pub(super) fn assign(&mut self, target: &'t Target, value: Value, scope: &Rc<Scope>) -> Checked<()> {
        match target {
            Target::Name(name) => {
                self.budget.values(1)?;
                scope.set(name, value);
            }
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(place)) = scope.find(name) else {
                    return Err(Problem::new(format!(
                        "{name} is not a namespace, so {name}.{attribute} cannot be set"
                    )));
                };
                self.budget.values(1)?;
                let Some(attributes) = self.namespaces.get_mut(place) else { return Ok(()) };
                self.budget.step(attributes.len())?;
                match attributes.iter_mut().find(|(own, _)| own == attribute) {
                    Some((_, own)) => *own = value,
                    None => attributes.push((attribute.clone(), value)),
                }
            }
            Target::Tuple(targets) => {
                value.defined()?;
                let items = value.iterate(self.budget)?;
                if items.len() != targets.len() {
                    let (expected, found) = (targets.len(), items.len());
                    return Err(Problem::new(format!("expected {expected} values to unpack, found {found}")));
                }
                for (target, item) in targets.iter().zip(items) {
                    self.assign(target, item, scope)?;
                }
            }
        }
        Ok(())
    }
}
