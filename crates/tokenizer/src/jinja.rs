//! Jinja as the transformers library runs it for chat templates: the syntax of Jinja 3.1 and the values of Python, in
//! an immutable sandbox with `trim_blocks`, `lstrip_blocks`, the loop controls and the tag `generation`.
//!
//! ```text
//! source ── lexer ──> tokens ── parser, statements ──> syntax tree ── renderer, evaluate ──> text
//!                                                                        │
//!                                             values, filters, tests, methods, within a budget
//! ```
//!
//! Templates come with models, so they can be hostile: the depth of the tree and of the run is bounded, and every step
//! and every byte that is created counts against a budget ([`Budget`]).

mod arguments;
mod budget;
mod evaluate;
mod filters;
mod format;
mod functions;
mod json;
mod lexer;
mod list_filters;
mod methods;
mod parser;
mod problem;
mod renderer;
mod slice;
mod statements;
mod syntax;
mod tests;
mod text;
mod text_filters;
mod text_methods;
mod value;

pub(crate) use budget::Budget;
pub(crate) use problem::{Checked, Problem};
pub(crate) use value::Value;

use crate::date::Date;

/// Longest template, in bytes.
const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// A template that has been read.
#[derive(Debug)]
pub(crate) struct Template {
    nodes: Vec<syntax::Node>,
}

impl Template {
    /// Reads a template.
    pub(crate) fn parse(source: &str) -> Checked<Template> {
        if source.len() > SOURCE_BYTES_MAX {
            let found = source.len();
            return Err(Problem::new(format!("expected at most {SOURCE_BYTES_MAX} bytes, found {found}")));
        }
        Ok(Template { nodes: statements::parse(lexer::tokens(source)?)? })
    }

    /// The text that the template gives for these variables. `date` is the current date for `strftime_now`.
    pub(crate) fn render(&self, variables: Vec<(&str, Value)>, date: Option<Date>, budget: &Budget) -> Checked<String> {
        renderer::Renderer::new(budget, date).render(&self.nodes, variables)
    }
}
