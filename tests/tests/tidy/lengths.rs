//! Functions of at most 70 lines, files of at most 600 without their tests; what is longer today stands in the ratchet.

use crate::{report, root, sources};
use std::collections::BTreeMap;
use std::fs;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// Functions by length, and the lines taken by test modules.
#[derive(Default)]
struct Lengths {
    functions: Vec<(String, usize)>,
    test_lines: usize,
}

impl Lengths {
    fn add(&mut self, name: &syn::Ident, block: &syn::Block) {
        let span = block.span();
        self.functions.push((name.to_string(), span.end().line - span.start().line + 1));
    }
}

impl<'ast> Visit<'ast> for Lengths {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
        });
        if is_test {
            let span = module.span();
            self.test_lines += span.end().line - span.start().line + 1;
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

/// What is over a limit: `path` for a file, `path::function` for a function, and its lines.
fn over_the_limit() -> BTreeMap<String, usize> {
    let mut over = BTreeMap::new();
    for source in sources() {
        let file = syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let mut lengths = Lengths::default();
        lengths.visit_file(&file);
        let is_test = source.path.contains("/tests/");
        let lines = source.text.lines().count() - lengths.test_lines;
        if lines > FILE_LINES_MAX && !is_test {
            over.insert(source.path.clone(), lines);
        }
        for (name, lines) in lengths.functions {
            if lines > FUNCTION_LINES_MAX {
                over.insert(format!("{}::{name}", source.path), lines);
            }
        }
    }
    over
}

#[test]
fn nothing_grows_past_the_ratchet() {
    let text = fs::read_to_string(root().join("tests/tests/tidy/ratchet.toml")).expect("the ratchet is there");
    let ratchet: BTreeMap<String, usize> = toml::from_str(&text).expect("the ratchet is TOML: path = lines");
    let over = over_the_limit();
    let mut faults = Vec::new();
    for (name, lines) in &over {
        match ratchet.get(name) {
            None => faults.push(format!("{name} has {lines} lines: split it")),
            Some(allowed) if lines > allowed => faults.push(format!("{name} grew from {allowed} to {lines} lines")),
            Some(allowed) if lines < allowed => faults.push(format!("{name} shrank: lower its entry to {lines}")),
            Some(_) => {}
        }
    }
    faults
        .extend(ratchet.keys().filter(|name| !over.contains_key(*name)).map(|name| format!("{name}: drop its entry")));
    report(&format!("functions over {FUNCTION_LINES_MAX} and files over {FILE_LINES_MAX} lines"), &faults);
}

/// The map of the crates stays a map. The bars of tables are not words.
#[test]
fn the_architecture_page_has_at_most_1200_words() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page exists");
    let words = page.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(words <= 1200, "ARCHITECTURE.md has {words} words");
}
