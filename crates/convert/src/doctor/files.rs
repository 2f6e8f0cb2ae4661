//! Files and the places of tensors in them: what opening refuses, and what else is wrong behind that.

use super::finding::{Findings, Place, Rule};
use super::left_out::TOKENIZER_JSON;
use super::patient::Patient;
use trueup_formats::{Error, Facts, FaultKind, StandIn, counted, json};

/// Where a sound copy comes from.
const AGAIN: &str = "get the file again from its source, and compare its size and hash";

pub(super) const RULES: &[&Rule] = &[
    &REFUSED,
    &FILE_MISSING,
    &FILE_UNREADABLE,
    &LFS_POINTER,
    &WEB_PAGE,
    &HEADER_BROKEN,
    &ALIGNMENT_INVALID,
    &TENSOR_TWICE,
    &TYPE_UNKNOWN,
    &SHAPE_INVALID,
    &ROWS_NOT_BLOCKS,
    &MISALIGNED,
    &OUTSIDE_FILE,
    &OVERLAP,
    &BYTES_UNOWNED,
    &BYTES_AFTER,
    &INDEX_DISAGREES,
    &LAYOUT_BROKEN,
];

static REFUSED: Rule = Rule::error(
    "refused",
    "no command can use a model that cannot be opened; the other findings describe the parts that could be read",
    "do what the message says, and check the model again",
);
static FILE_MISSING: Rule = Rule::error(
    "file-missing",
    "the model is incomplete without this file",
    "put all files of the model into one directory",
);
static FILE_UNREADABLE: Rule =
    Rule::error("file-unreadable", "the information in this file is missing from the model", AGAIN);
static LFS_POINTER: Rule = Rule::error(
    "lfs-pointer",
    "the repository was cloned without Git LFS, which stores the file elsewhere",
    "run `git lfs pull` in the directory, or download the file",
);
static WEB_PAGE: Rule = Rule::error(
    "web-page",
    "the server answered the download with a web page: a file preview, a sign-in page or an error",
    "download the file again with its direct link; sign in if the site requires it",
);
static HEADER_BROKEN: Rule = Rule::error("header-broken", "the rest of the header cannot be read", AGAIN);
static ALIGNMENT_INVALID: Rule = Rule::error(
    "alignment-invalid",
    "tensor offsets depend on the alignment; the tensors were checked with an alignment of 32",
    "convert the model again",
);
static TENSOR_TWICE: Rule = Rule::error(
    "tensor-twice",
    "it is unclear which of the two tensors belongs to the model",
    "convert the model again",
);
static TYPE_UNKNOWN: Rule = Rule::error(
    "type-unknown",
    "trueup cannot decode the tensor",
    "convert the original model again, to a type that trueup supports",
);
static SHAPE_INVALID: Rule = Rule::error("shape-invalid", "no valid tensor has this shape", AGAIN);
static ROWS_NOT_BLOCKS: Rule = Rule::error(
    "rows-not-blocks",
    "a block would span two rows, which no program supports",
    "quantize the model again; a tensor with such rows is stored as f16",
);
static MISALIGNED: Rule = Rule::error(
    "tensor-misaligned",
    "programs that map the file read the wrong bytes or fail",
    "convert the model again",
);
static OUTSIDE_FILE: Rule =
    Rule::error("tensor-outside-file", "the file is truncated, or the offset in its header is wrong", AGAIN);
static OVERLAP: Rule =
    Rule::error("tensors-overlap", "at least one of them has wrong values", "convert the model again")
        .for_checkpoint(AGAIN);
static BYTES_UNOWNED: Rule = Rule::error(
    "bytes-unowned",
    "the format allows no gaps; the file is longer or shorter than its header says",
    AGAIN,
);
static BYTES_AFTER: Rule = Rule::note(
    "bytes-after-tensors",
    "they belong to no tensor and waste space",
    "nothing, or rewrite the file, for example with `trueup quantize`",
);
static INDEX_DISAGREES: Rule = Rule::error(
    "index-disagrees",
    "the index was written for other files",
    "get the index and all files of the same version of the model",
);
static LAYOUT_BROKEN: Rule = Rule::error(
    "split-scale-broken",
    "trueup cannot join the values and the scales of the tensors",
    "quantize the model again",
);

pub(super) fn look(patient: &Patient, findings: &mut Findings) {
    if let Some(error) = &patient.refusal {
        findings.add(&REFUSED, place_of(error), sentence(error));
    }
    for fault in patient.faults.kept() {
        // What to do about these is what their rules say.
        let rule_has_remedy = matches!(
            fault.kind,
            FaultKind::LfsPointer
                | FaultKind::WebPage
                | FaultKind::ShapeInvalid
                | FaultKind::RowsNotBlocks
                | FaultKind::Misaligned
                | FaultKind::OutsideFile
                | FaultKind::Overlap
                | FaultKind::BytesUnowned
        );
        let found = if rule_has_remedy { fault.error.problem.clone() } else { sentence(&fault.error) };
        findings.add(rule_of(fault.kind), place_of(&fault.error), found);
    }
    for (kind, count) in patient.faults.left_out() {
        let found = format!("{} of this kind are not listed", counted(count, "further fault"));
        findings.add_many(rule_of(kind), Place::file(&patient.path), found, count - 1);
    }
    if let Some(error) = &patient.layout {
        findings.add(&LAYOUT_BROKEN, place_of(error), sentence(error));
    }
    if let Some((rule, found)) = tokenizer_json_fault(patient) {
        findings.add(rule, Place::file(&patient.folder().join(TOKENIZER_JSON)), found);
    }
    if let Facts::Gguf { parts, .. } = &patient.facts {
        let sound = patient.faults.kept().is_empty();
        for part in parts.iter().filter(|part| sound && part.tensors > 0 && part.bytes_after > 0) {
            let found = format!("{} after the last tensor and its padding", counted(part.bytes_after, "byte"));
            findings.add(&BYTES_AFTER, Place::file(&part.path), found);
        }
    }
}

/// What is wrong with the file tokenizer.json as a whole, where it is not even JSON.
pub(super) fn tokenizer_json_fault(patient: &Patient) -> Option<(&'static Rule, String)> {
    patient.vocabulary.as_ref()?.as_ref().err()?;
    let bytes = patient.checkpoint().tokenizer().tokenizer_json.as_ref()?;
    match StandIn::of(bytes) {
        Some(stand_in @ StandIn::LfsPointer(_)) => return Some((&LFS_POINTER, stand_in.problem())),
        Some(stand_in @ StandIn::WebPage) => return Some((&WEB_PAGE, stand_in.problem())),
        None => {}
    }
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err()?;
    Some((&FILE_UNREADABLE, format!("{}: {}", json::place(&error), json::problem(&error))))
}

fn rule_of(kind: FaultKind) -> &'static Rule {
    match kind {
        FaultKind::FileMissing => &FILE_MISSING,
        FaultKind::FileUnreadable => &FILE_UNREADABLE,
        FaultKind::LfsPointer => &LFS_POINTER,
        FaultKind::WebPage => &WEB_PAGE,
        FaultKind::HeaderBroken => &HEADER_BROKEN,
        FaultKind::AlignmentInvalid => &ALIGNMENT_INVALID,
        FaultKind::NameTwice => &TENSOR_TWICE,
        FaultKind::TypeUnknown => &TYPE_UNKNOWN,
        FaultKind::ShapeInvalid => &SHAPE_INVALID,
        FaultKind::RowsNotBlocks => &ROWS_NOT_BLOCKS,
        FaultKind::Misaligned => &MISALIGNED,
        FaultKind::OutsideFile => &OUTSIDE_FILE,
        FaultKind::Overlap => &OVERLAP,
        FaultKind::BytesUnowned => &BYTES_UNOWNED,
        FaultKind::IndexDisagrees => &INDEX_DISAGREES,
    }
}

/// An error's file and place; tensors and keys are told apart by the word before them.
pub(super) fn place_of(error: &Error) -> Place {
    let place = Place::file(&error.path);
    let within = (!error.place.is_empty()).then(|| error.place.clone());
    match within {
        None => place,
        Some(text) => match (text.strip_prefix("tensor "), text.strip_prefix("key ")) {
            (Some(tensor), _) => Place { tensor: Some(without_byte(tensor)), ..place },
            (None, Some(key)) => Place { key: Some(without_byte(key)), ..place },
            (None, None) if is_key(&text) => Place { key: Some(text), ..place },
            (None, None) => Place { at: Some(text), ..place },
        },
    }
}

/// Whether a place is a key alone: words with dots between them, and perhaps the number of an item.
fn is_key(text: &str) -> bool {
    text.contains('.') && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._[]".contains(&byte))
}

/// The name alone where the place in the file follows.
fn without_byte(text: &str) -> String {
    text.rsplit_once(" at byte ").map_or(text, |(name, _)| name).to_owned()
}

/// An error's problem with what it asks for.
pub(super) fn sentence(error: &Error) -> String {
    if error.help.is_empty() { error.problem.clone() } else { format!("{}; {}", error.problem, error.help) }
}
