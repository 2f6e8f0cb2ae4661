//! What a look at a model finds: rules, which say what a finding means, and findings, which say where one was met.

use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use trueup_formats::quote;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know; the model is healthy.
    Note,
    /// The model works, but not as its maker meant it, or not everywhere.
    Warning,
    /// The model is damaged.
    Error,
}

impl Severity {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// What one kind of finding means. Its name is stable: scripts may rely on it.
#[derive(PartialEq, Eq, Debug)]
pub struct Rule {
    /// In kebab case, unique.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl Rule {
    pub(super) const fn error(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule { name, severity: Severity::Error, why, remedy }
    }

    pub(super) const fn warning(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule { name, severity: Severity::Warning, why, remedy }
    }

    pub(super) const fn note(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule { name, severity: Severity::Note, why, remedy }
    }
}

/// Where something was found; what does not apply is absent. Texts are escaped.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Place {
    /// The file.
    pub file: Option<String>,
    /// The tensor.
    pub tensor: Option<String>,
    /// The key of a file's metadata or JSON.
    pub key: Option<String>,
    /// Another place in the file, in words.
    pub at: Option<String>,
    /// An index for each dimension, innermost first.
    pub element: Option<Vec<u64>>,
}

impl Place {
    pub(super) fn file(path: &Path) -> Place {
        Place { file: Some(quote(&path.to_string_lossy())), ..Place::default() }
    }

    pub(super) fn tensor(self, name: &str) -> Place {
        Place { tensor: Some(quote(name)), ..self }
    }

    pub(super) fn key(self, key: &str) -> Place {
        Place { key: Some(quote(key)), ..self }
    }

    pub(super) fn element(self, element: Vec<u64>) -> Place {
        Place { element: Some(element), ..self }
    }
}

/// One thing that was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The rule's name.
    pub name: &'static str,
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// What was expected and found there.
    pub found: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// Further places with the same finding, which are not listed.
    pub more: u64,
}

/// Findings of one rule that are listed; the others are counted.
const LISTED_MAX: usize = 10;

/// Findings as they come in.
#[derive(Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    listed: HashMap<&'static str, (usize, usize)>,
}

impl Findings {
    /// Lists a finding, or counts it when its rule has been met often.
    pub fn add(&mut self, rule: &'static Rule, place: Place, found: impl Into<String>) {
        self.add_many(rule, place, found, 0);
    }

    /// A finding that stands for `more` others too.
    pub fn add_many(&mut self, rule: &'static Rule, place: Place, found: impl Into<String>, more: u64) {
        let (count, last) = self.listed.entry(rule.name).or_insert((0, 0));
        if *count == LISTED_MAX {
            self.list[*last].more = self.list[*last].more.saturating_add(1).saturating_add(more);
            return;
        }
        (*count, *last) = (*count + 1, self.list.len());
        let Rule { name, severity, why, remedy } = *rule;
        self.list.push(Finding { severity, name, place, found: found.into(), why, remedy, more });
    }

    /// The worst first, else in the order they came in.
    pub fn into_list(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.list
    }
}

/// All that a look at a model found.
#[derive(Clone, PartialEq, Debug)]
pub struct Diagnosis {
    /// The file or folder.
    pub path: PathBuf,
    /// The format's name for people.
    pub format: String,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Tensors whose values were looked at.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Diagnosis {
    /// How often there are findings of a severity, unlisted ones included.
    pub fn count(&self, severity: Severity) -> u64 {
        let of = self.findings.iter().filter(|finding| finding.severity == severity);
        of.fold(0, |sum, finding| sum.saturating_add(1).saturating_add(finding.more))
    }

    /// The worst severity; `None` when nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}
