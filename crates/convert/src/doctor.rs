//! Diagnoses a model of any format: is it complete, consistent, and are its numbers finite?
//!
//! ```text
//! path ─┬─ open ── rejected? a finding ─┐
//!       └─ survey ── all readable parts ─┴─ Patient ─ each family of FAMILIES ─▶ findings, worst first
//! ```
//!
//! Each family is a file with its rules and one function that checks them; this file is the list. docs/doctor.md shows
//! an example of each finding.

mod files;
mod finding;
mod grids;
mod left_out;
mod numbers;
mod packed;
mod parts;
mod patient;
mod roles;
mod scan;
mod settings;
mod structure;
mod template;
mod ties;
mod tokens;
mod weights;

pub use finding::{Diagnosis, Effect, Finding, Place, Rule, Severity};

use finding::Findings;
use patient::Patient;
use scan::{Summary, Wanted};
use std::collections::HashSet;
use std::path::Path;
use trueup_formats::{Error, Result, SafetensorsFile};
use trueup_quantize::Progress;

/// Rules of one subject, and who looks for them.
struct Family {
    rules: &'static [&'static Rule],
    look: fn(&Patient, &mut Findings),
}

/// Rules of one subject that need what was seen of the values of tensors, and who looks for them.
struct FamilyOfValues {
    rules: &'static [&'static Rule],
    look: fn(&Patient, &[Summary], &mut Findings) -> Result<()>,
}

/// All families but those that need the values of tensors, in the order of their findings.
const FAMILIES: [Family; 8] = [
    Family { rules: files::RULES, look: files::look },
    Family { rules: parts::RULES, look: parts::look },
    Family { rules: structure::RULES, look: structure::look },
    Family { rules: numbers::RULES, look: numbers::look },
    Family { rules: tokens::RULES, look: tokens::look },
    Family { rules: roles::RULES, look: roles::look },
    Family { rules: settings::RULES, look: settings::look },
    Family { rules: template::RULES, look: template::look },
];

/// Families that look at what was seen of the values.
const OF_VALUES: [FamilyOfValues; 4] = [
    FamilyOfValues { rules: weights::RULES, look: weights::look },
    FamilyOfValues { rules: packed::RULES, look: packed::look },
    FamilyOfValues { rules: ties::RULES, look: ties::look },
    FamilyOfValues { rules: grids::RULES, look: grids::look },
];

/// Every rule, in the order of findings.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let families = FAMILIES.iter().map(|family| family.rules);
    families.chain(OF_VALUES.iter().map(|family| family.rules)).flatten().copied()
}

/// Refuses files of intermediate tensors, which would be taken for a part of a model.
fn refuse_trace(path: &Path) -> Result<()> {
    let Some(file) = Some(path).filter(|path| path.is_file()).and_then(|path| SafetensorsFile::open(path).ok()) else {
        return Ok(());
    };
    let has = |key: &str| file.metadata().iter().any(|(name, _)| name == key);
    if has("trueup.repro") {
        let help = "run it with `trueup repro`, or list its tensors without --doctor";
        return Err(Error::new(path, "expected a model, found a repro file").help(help));
    }
    // `STEP/NODE`
    let is_step = |name: &str| name.split_once('/').is_some_and(|(step, _)| step.parse::<u64>().is_ok());
    let names = || file.tensors().iter().map(|tensor| tensor.name.as_str());
    if has("ids") || names().next().is_some() && names().all(is_step) {
        let help = "judge it with `trueup verify --ref`, or list its tensors without --doctor";
        return Err(Error::new(path, "expected a model, found a trace").help(help));
    }
    Ok(())
}

/// Looks at a model. Every tensor is read once, in pieces, on `threads` threads (`None` is one per core).
///
/// # Errors
/// Nothing of a model can be read there, I/O, and files that change meanwhile. Damage that lets a part be read is a
/// finding.
pub fn diagnose(path: &Path, threads: Option<usize>, progress: &dyn Progress) -> Result<Diagnosis> {
    refuse_trace(path)?;
    let patient = Patient::admit(path)?;
    let mut findings = Findings::new(patient.metadata().is_none());
    FAMILIES.iter().for_each(|family| (family.look)(&patient, &mut findings));
    let checkpoint = patient.checkpoint();
    let packed: HashSet<usize> = packed::matrices(&patient).iter().map(|matrix| matrix.codes).collect();
    let wanted = Wanted { rows_of: patient.names_of_token_rows(), packed: &packed, values: patient.hole().is_none() };
    let seen = scan::scan(checkpoint, wanted, threads, progress)?;
    for family in &OF_VALUES {
        (family.look)(&patient, &seen, &mut findings)?;
    }
    checkpoint.unchanged()?;
    let read = seen.iter().filter(|summary| summary.is_read);
    Ok(Diagnosis {
        path: path.to_owned(),
        format: checkpoint.format().to_owned(),
        findings: findings.into_list(),
        tensors: read.clone().count(),
        bytes: read.map(|summary| summary.bytes).fold(0, u64::saturating_add),
    })
}
