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
    /// What to do if the model is a checkpoint instead of a GGUF file, if that differs.
    pub checkpoint_remedy: Option<&'static str>,
    /// What the finding says about the model as a whole.
    pub effect: Effect,
}

/// What a finding says about the model as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// What its severity says.
    Severity,
    /// The model is sound, but trueup cannot use it.
    Unusable,
    /// A part of the model was not checked.
    Unchecked,
}

impl Rule {
    const fn new(severity: Severity, name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule { name, severity, why, remedy, checkpoint_remedy: None, effect: Effect::Severity }
    }

    /// The same, with what to do about a checkpoint.
    pub(super) const fn for_checkpoint(self, remedy: &'static str) -> Rule {
        Rule { checkpoint_remedy: Some(remedy), ..self }
    }

    /// The same, with another effect than its severity has.
    pub(super) const fn effect(self, effect: Effect) -> Rule {
        Rule { effect, ..self }
    }

    pub(super) const fn error(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule::new(Severity::Error, name, why, remedy)
    }

    pub(super) const fn warning(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule::new(Severity::Warning, name, why, remedy)
    }

    pub(super) const fn note(name: &'static str, why: &'static str, remedy: &'static str) -> Rule {
        Rule::new(Severity::Note, name, why, remedy)
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

    /// Whether this is the other place, except for elements, or a place in the file that the other is.
    fn is_in(&self, other: &Place) -> bool {
        let within = |place: &Place| (place.tensor.clone(), place.key.clone(), place.at.clone());
        self.file == other.file && (within(self) == within(other) || within(other) == (None, None, None))
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
    /// What it says about the model as a whole.
    #[serde(skip)]
    pub effect: Effect,
}

/// Rules that say only that a part of the model cannot be used.
const GENERAL: [&str; 2] = ["refused", "tokenizer-refused"];

/// Findings of one rule that are listed; the others are counted.
const LISTED_MAX: usize = 10;

/// Findings as they come in.
pub(super) struct Findings {
    list: Vec<Finding>,
    listed: HashMap<&'static str, (usize, usize)>,
    is_checkpoint: bool,
}

impl Findings {
    /// No findings yet. `is_checkpoint` selects what to do about them.
    pub fn new(is_checkpoint: bool) -> Findings {
        Findings { list: Vec::new(), listed: HashMap::new(), is_checkpoint }
    }

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
        let Rule { name, severity, why, remedy, checkpoint_remedy, effect } = *rule;
        let remedy = checkpoint_remedy.filter(|_| self.is_checkpoint).unwrap_or(remedy);
        self.list.push(Finding { severity, name, place, found: found.into(), why, remedy, more, effect });
    }

    /// The worst first, else in the order they came in. A finding of a general rule is left out if another error
    /// explains it.
    pub fn into_list(mut self) -> Vec<Finding> {
        let is_general = |finding: &Finding| GENERAL.contains(&finding.name);
        let errors = self.list.iter().filter(|finding| finding.severity == Severity::Error && !is_general(finding));
        let explained: Vec<Place> = errors.map(|finding| finding.place.clone()).collect();
        self.list.retain(|finding| !is_general(finding) || !explained.iter().any(|place| finding.place.is_in(place)));
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

    /// The state of the model in a few words.
    pub fn verdict(&self) -> &'static str {
        let of = |severity| self.findings.iter().filter(move |finding| finding.severity == severity);
        let is = |finding: &Finding, effect| finding.effect == effect;
        match self.worst() {
            Some(Severity::Error) if of(Severity::Error).all(|finding| is(finding, Effect::Unusable)) => {
                "cannot be used"
            }
            Some(Severity::Error) => "damaged",
            Some(Severity::Warning) => "questionable",
            _ if self.findings.iter().any(|finding| is(finding, Effect::Unchecked)) => "not completely checked",
            Some(Severity::Note) | None => "healthy",
        }
    }

    /// The worst severity; `None` when nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}
