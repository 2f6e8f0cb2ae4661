//! Files of one model against each other: parts of a split GGUF model, shards of a folder and their index.

use super::finding::{Findings, Place, Rule};
use super::patient::Patient;
use std::path::PathBuf;
use trueup_formats::gguf::{GgufPart, first_of_split};
use trueup_formats::{
    Checkpoint, Facts, FaultKind, FaultList, FolderOthers, IndexFacts, SecondWeights, SetComparison, counted, quote,
};

pub(super) const RULES: &[&Rule] = &[
    &NOT_FIRST,
    &PART_MISSING,
    &PART_NUMBER,
    &PART_COUNT,
    &PART_TENSORS,
    &PART_ALIGNMENT,
    &PARTS_DIFFER,
    &TENSOR_IN_TWO_FILES,
    &STRANGER,
    &SECOND_WEIGHTS,
    &WEIGHTS_TWICE,
    &STALE_INDEX,
    &ADAPTER,
    &INDEX_SIZE,
];

/// What helps where files of different runs are mixed.
const ONE_RUN: &str = "get all files of the model again, from one source and one version";

static NOT_FIRST: Rule = Rule::note(
    "not-the-first-file",
    "a split model is opened by its first file, which describes it; the whole model was checked",
    "pass the first file to other commands",
);
static PART_MISSING: Rule = Rule::error(
    "part-missing",
    "the tensors in this file are missing from the model",
    "get the file and put it next to the others",
);
static PART_NUMBER: Rule = Rule::error(
    "part-number-wrong",
    "the file was renamed or belongs to another set",
    "restore its original name, or get the set again",
);
static PART_COUNT: Rule = Rule::error("part-count-differs", "the files come from different splits of a model", ONE_RUN);
static PART_TENSORS: Rule = Rule::error(
    "part-tensors-wrong",
    "tensors are missing or superfluous: the files come from different runs",
    ONE_RUN,
);
static PART_ALIGNMENT: Rule = Rule::warning(
    "part-alignment-differs",
    "all files of one run have the same alignment: one file may come from another run",
    ONE_RUN,
);
static PARTS_DIFFER: Rule = Rule::warning(
    "parts-differ",
    "all files of one run have the same metadata: one file may come from another run or another model",
    ONE_RUN,
);
static TENSOR_IN_TWO_FILES: Rule = Rule::error(
    "tensor-in-two-files",
    "it is unclear which tensor belongs to the model: the files come from different runs",
    ONE_RUN,
);
static STRANGER: Rule = Rule::warning(
    "file-of-another-set",
    "no program reads it with this model; it or the other files may be left from an older version",
    "delete the file if it belongs to another version; otherwise get the rest of its set",
);
static SECOND_WEIGHTS: Rule = Rule::error(
    "second-set-of-weights",
    "programs disagree about which set they load: transformers loads model.safetensors, vLLM and MLX load the files of the index",
    "delete the set that is not wanted, or name the file to convert",
);
static WEIGHTS_TWICE: Rule = Rule::note(
    "weights-stored-twice",
    "the directory takes twice the disk space; all programs load the same weights",
    "delete one of the two sets",
);
static STALE_INDEX: Rule = Rule::warning(
    "index-stale",
    "the index is left over from an earlier save; programs that read the index first cannot load the model",
    "delete model.safetensors.index.json, or get the files that it names",
);
static ADAPTER: Rule = Rule::warning(
    "adapter-in-model-folder",
    "transformers applies the adapter when peft is installed; this program and most others load the model without it",
    "merge the adapter into the model, or move it to a separate directory",
);
static INDEX_SIZE: Rule = Rule::note(
    "index-size-differs",
    "programs do not need this value, but it often reveals files that changed after the index was written",
    "nothing, if the model was changed on purpose",
);

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    match &patient.facts {
        Facts::Single => {}
        Facts::Gguf { parts, missing, strangers, twice } => {
            look_at_first(patient, findings);
            look_at_missing(parts, missing, findings);
            if parts.len() + missing.len() > 1 || parts.iter().any(|part| part.count.is_some_and(|count| count > 1)) {
                look_at_claims(parts, missing, &patient.faults, twice, findings);
            }
            look_at_agreement(parts, findings);
            for (tensor, file) in twice {
                findings.add(
                    &TENSOR_IN_TWO_FILES,
                    Place::file(file).tensor(tensor),
                    "an earlier file also contains it",
                );
            }
            look_at_strangers(strangers, findings);
        }
        Facts::Folder { index, strangers, others } => {
            look_at_strangers(strangers, findings);
            look_at_others(others, findings);
            if let Some(index) = index.as_ref().filter(|_| patient.faults.kept().is_empty()) {
                look_at_index(index, patient.checkpoint(), findings);
            }
        }
    }
}

fn look_at_first(patient: &Patient, findings: &mut Findings) {
    if patient.named != patient.path {
        let first = quote(&patient.path.file_name().unwrap_or_default().to_string_lossy());
        findings.add(&NOT_FIRST, Place::file(&patient.named), format!("the first file of the model is {first}"));
    }
}

fn look_at_missing(parts: &[GgufPart], missing: &[PathBuf], findings: &mut Findings) {
    for file in missing {
        let there = counted(parts.len(), "file");
        let keys = match first_of_split(file) {
            None => "; it contains the metadata and the tokenizer, which were not checked",
            Some(_) => "",
        };
        let found = format!("the file is missing; {there} of the set found{keys}");
        findings.add(&PART_MISSING, Place::file(file), found);
    }
}

/// What parts say of their numbers, and how many there are.
fn look_at_claims(
    parts: &[GgufPart],
    missing: &[PathBuf],
    faults: &FaultList,
    twice: &[(String, PathBuf)],
    findings: &mut Findings,
) {
    let files = (parts.len() + missing.len()) as u64;
    // A file that cannot be read was counted by its name.
    let kinds = [FaultKind::FileUnreadable, FaultKind::LfsPointer, FaultKind::WebPage];
    let unread = faults.kept().iter().any(|fault| kinds.contains(&fault.kind));
    for part in parts {
        let place = || Place::file(&part.path);
        if part.number != Some(part.named_number) {
            let expected = format!("expected {} from its name, found {}", part.named_number, said(part, "split.no"));
            findings.add(&PART_NUMBER, place().key("split.no"), expected);
        }
        if part.count != Some(files) && !(unread && part.count > Some(files)) {
            let expected = format!("expected {files} from the file names, found {}", said(part, "split.count"));
            findings.add(&PART_COUNT, place().key("split.count"), expected);
        }
    }
    let found: u64 = parts.iter().map(|part| part.tensors as u64).sum::<u64>() - twice.len() as u64;
    let whole = missing.is_empty() && faults.kept().is_empty();
    let Some(first) = parts.first() else { return };
    const TENSORS: &str = "split.tensors.count";
    for part in parts {
        let place = Place::file(&part.path).key(TENSORS);
        if part.all_tensors != first.all_tensors {
            let problem = format!("expected {} as in {first}, found {}", said(first, TENSORS), said(part, TENSORS));
            findings.add(&PART_TENSORS, place, problem);
        } else if whole && first.all_tensors.is_some_and(|all| all != found) && part.named_number == 0 {
            findings.add(
                &PART_TENSORS,
                place,
                format!("expected {} in all files, found {found}", said(first, TENSORS)),
            );
        }
    }
}

/// A number that a file says of the set, or what stands there instead.
fn said(part: &GgufPart, key: &str) -> String {
    match part.metadata.u64(key) {
        Ok(number) => number.to_string(),
        Err(error) => error.found.map_or_else(|| "no such key".to_owned(), |found| quote(&found)),
    }
}

/// Versions, alignments, and keys that a later part has as well as the first.
fn look_at_agreement(parts: &[GgufPart], findings: &mut Findings) {
    let Some((first, others)) = parts.split_first() else { return };
    for part in others {
        let place = || Place::file(&part.path);
        if part.alignment != first.alignment {
            let problem = format!("expected {} as in {first}, found {}", first.alignment, part.alignment);
            findings.add(&PART_ALIGNMENT, place().key("general.alignment"), problem);
        }
        if part.version != first.version {
            let problem = format!("expected version {} of GGUF as in {first}, found {}", first.version, part.version);
            findings.add(&PARTS_DIFFER, place(), problem);
        }
        let own = part.metadata.iter().filter(|(key, _)| !key.starts_with("split.") && *key != "general.alignment");
        for (key, value) in own {
            let Some(expected) = first.metadata.value(key).filter(|expected| *expected != value) else { continue };
            let (expected, found) = (quote(&expected.to_string()), quote(&value.to_string()));
            findings.add(&PARTS_DIFFER, place().key(key), format!("expected {expected} as in {first}, found {found}"));
        }
    }
}

fn look_at_strangers(strangers: &[PathBuf], findings: &mut Findings) {
    for file in strangers {
        findings.add(&STRANGER, Place::file(file), "its name is that of a part, but the model has no such part");
    }
}

/// What a folder holds in addition to the model that was opened.
fn look_at_others(others: &FolderOthers, findings: &mut Findings) {
    if let Some(SecondWeights { path, comparison }) = &others.second_weights {
        let (rule, found) = match comparison {
            SetComparison::Equal => (
                &WEIGHTS_TWICE,
                "the same tensors as in the files that model.safetensors.index.json lists; samples of their values are \
                 equal"
                    .to_owned(),
            ),
            SetComparison::Differ(difference) => (
                &SECOND_WEIGHTS,
                format!(
                    "a second set of weights next to the files that model.safetensors.index.json lists; the sets differ in \
                     {difference}; the files of the index were checked"
                ),
            ),
            SetComparison::NotCompared(reason) => (
                &SECOND_WEIGHTS,
                format!(
                    "a second set of weights next to the files that model.safetensors.index.json lists; they were not \
                     compared: {reason}; the files of the index were checked"
                ),
            ),
        };
        findings.add(rule, Place::file(path), found);
    }
    if let Some((file, found)) = &others.stale_index {
        findings.add(&STALE_INDEX, Place::file(file), found.as_str());
    }
    if let Some((file, what)) = &others.adapter {
        findings.add(&ADAPTER, Place::file(file), format!("{what} next to the weights of a model"));
    }
}

fn look_at_index(index: &IndexFacts, checkpoint: &dyn Checkpoint, findings: &mut Findings) {
    let found = checkpoint.tensors().iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes));
    if let Some(total) = index.total_bytes.filter(|total| *total != found) {
        let place = Place::file(&index.path).key("metadata.total_size");
        findings.add(&INDEX_SIZE, place, format!("expected {found} bytes, the size of the tensors, found {total}"));
    }
}
