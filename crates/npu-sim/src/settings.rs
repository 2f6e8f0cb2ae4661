//! What a run of the simulator is told: one JSON file, given to `aclInit`, or named by the environment for a program
//! that gives none, or one of its own.
//!
//! ```json
//! {
//!   "chip": "910b", "cards": 2, "memory_bytes": 1073741824, "seed": 1,
//!   "timing": "random", "sums": "permuted", "on_finding": "error",
//!   "report": "findings.json", "trace": "launches.csv",
//!   "faults": [{ "kind": "wrong_tile", "operator": "aclnnMm", "at": 3 }]
//! }
//! ```

use crate::{
    chip::{CHIPS, Chip},
    finding::say,
    status::{INVALID_PARAMETER, Refusal},
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// When queued work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// As soon as it can.
    #[default]
    None,
    /// After a delay drawn by the seed.
    Random,
    /// Only when someone waits for it.
    Late,
}

/// In which order products and reductions add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sums {
    /// By rising index.
    #[default]
    Forward,
    /// In an order drawn by the seed, since no page states the hardware's.
    Permuted,
}

/// What becomes of a finding besides its line on the standard error output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFinding {
    /// The next synchronization answers an asynchronous error.
    #[default]
    Error,
    /// It is kept for the report.
    Report,
    /// The process aborts, for a debugger.
    Abort,
}

/// What is to go wrong, to see whether a verifier finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A tile of 16 by 16 of a product's result is wrong.
    WrongTile,
    /// A product leaves 32 terms of each sum out.
    DroppedGroup,
    /// An operator on f32 rounds its inputs to f16.
    ThroughF16,
    /// A launch ends in an asynchronous error.
    AsynchronousError,
    /// The card is gone.
    DeviceLost,
    /// A capture turns out invalid at its end, as where an operator did what cannot be kept.
    CaptureInvalidated,
}

/// Operators that add products up, which is where a tile can be wrong and a group left out.
pub const PRODUCTS: [&str; 12] = [
    "aclnnAddmm",
    "aclnnBatchMatMul",
    "aclnnConvolution",
    "aclnnFusedInferAttentionScore",
    "aclnnFusedInferAttentionScoreV2",
    "aclnnMatmul",
    "aclnnMm",
    "aclnnMv",
    "aclnnQuantMatmulV3",
    "aclnnQuantMatmulV4",
    "aclnnWeightQuantBatchMatmulV2",
    "aclnnWeightQuantBatchMatmulV3",
];

impl FaultKind {
    /// Whether an operator can have it.
    pub fn can_be_in(self, operator: &str) -> bool {
        !matches!(self, Self::WrongTile | Self::DroppedGroup) || PRODUCTS.contains(&operator)
    }
}

/// A fault to be made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedFault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// The operator's name (`aclnnMm`); any when absent.
    #[serde(default)]
    pub operator: Option<String>,
    /// The how-manieth launch (from 1) of that operator; each when absent.
    #[serde(default)]
    pub at: Option<u64>,
}

impl PlannedFault {
    /// Whether it concerns the `call`-th launch (from 1) of an operator.
    pub fn concerns(&self, operator: &str, call: u64) -> bool {
        self.operator.as_deref().is_none_or(|named| named == operator) && self.at.is_none_or(|at| at == call)
    }
}

/// How often each operator was launched under these settings, for the `at` of faults.
#[derive(Debug, Clone, Default)]
pub struct Launches(Arc<Mutex<HashMap<&'static str, u64>>>);

impl PartialEq for Launches {
    /// Counts say nothing about what was told.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Launches {}

impl Launches {
    /// Counts a launch: its number from 1.
    pub fn count(&self, operator: &'static str) -> u64 {
        let mut launches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = launches.entry(operator).or_insert(0);
        *count += 1;
        *count
    }
}

/// The settings of a run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A chip's name: see [`crate::chip`].
    pub chip: String,
    /// How many cards there are: 1 to 64.
    pub cards: u32,
    /// Bytes of memory of each card; the chip's own when absent.
    pub memory_bytes: Option<u64>,
    /// What all draws follow from.
    pub seed: u64,
    /// When queued work runs.
    pub timing: Timing,
    /// In which order sums are made.
    pub sums: Sums,
    /// What becomes of findings.
    pub on_finding: OnFinding,
    /// Where the findings are written as JSON at the end.
    pub report: Option<PathBuf>,
    /// Where the launches are written as CSV at the end.
    pub trace: Option<PathBuf>,
    /// What is to go wrong.
    pub faults: Vec<PlannedFault>,
    /// Launches compute nothing, so that the cost of a program's own side can be measured.
    pub null_kernels: bool,
    /// Launches so far.
    #[serde(skip)]
    pub launches: Launches,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chip: CHIPS[0].name.to_owned(),
            cards: 1,
            memory_bytes: None,
            seed: 0,
            timing: Timing::None,
            sums: Sums::Forward,
            on_finding: OnFinding::Error,
            report: None,
            trace: None,
            faults: Vec::new(),
            null_kernels: false,
            launches: Launches::default(),
        }
    }
}

impl Settings {
    /// The settings of a run: those of the file that the program has given, where it names any; else those of the other
    /// file, or the defaults. A program may give a file of its own, with switches of the vendor's runtime.
    ///
    /// # Errors
    /// 100000 with a sentence: a file cannot be read, is no JSON of this form, or names what there is not.
    pub fn of_run(given: Option<&Path>, other: Option<&Path>) -> Result<Self, Refusal> {
        if let Some(path) = given {
            let text = text_of(path)?;
            if has_setting(&text) {
                return Self::parse(&text).map_err(|what| wrong(path, what));
            }
            say(&format!("npu-sim: {} is not a setting of the simulator and is ignored", path.display()));
        }
        match other {
            Some(path) => Self::parse(&text_of(path)?).map_err(|what| wrong(path, what)),
            None => Ok(Self::default()),
        }
    }

    /// Reads settings from JSON.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if Chip::named(&settings.chip).is_none() {
            let names: Vec<&str> = CHIPS.iter().map(|chip| chip.name).collect();
            return Err(format!("chip is one of {}, found {:?}", names.join(", "), settings.chip));
        }
        if !(1..=64).contains(&settings.cards) {
            return Err(format!("cards is 1 to 64, found {}", settings.cards));
        }
        if settings.memory_bytes.is_some_and(|bytes| bytes < 1 << 20) {
            return Err("memory_bytes must be at least 1 MiB".to_owned());
        }
        if settings.faults.iter().any(|fault| fault.at == Some(0)) {
            return Err("the `at` of a fault counts from 1".to_owned());
        }
        let cannot = |fault: &&PlannedFault| fault.operator.as_ref().is_some_and(|named| !fault.kind.can_be_in(named));
        if let Some(PlannedFault { kind, operator: Some(operator), .. }) = settings.faults.iter().find(cannot) {
            return Err(format!("the fault {kind:?} does not apply to {operator}, only to: {}", PRODUCTS.join(", ")));
        }
        Ok(settings)
    }

    /// The chip of the settings.
    pub fn chip(&self) -> &'static Chip {
        Chip::named(&self.chip).unwrap_or(&CHIPS[0])
    }

    /// Bytes of memory of each card.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or(self.chip().memory_bytes)
    }
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> Refusal {
    Refusal::new(INVALID_PARAMETER, format!("settings {}: {what}", path.display()))
}

fn text_of(path: &Path) -> Result<String, Refusal> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, error))
}

/// Whether a text names a setting of the simulator, or is none that has fields.
fn has_setting(text: &str) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return true };
    fields.into_iter().any(|field| {
        let alone = serde_json::from_value::<Settings>(Value::Object([field].into_iter().collect()));
        alone.err().is_none_or(|error| !error.to_string().starts_with("unknown field"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_the_default() {
        assert_eq!(Settings::parse("{}"), Ok(Settings::default()));
        assert_eq!(Settings::default().chip().soc, "Ascend910B1");
    }

    #[test]
    fn all_fields_are_read() {
        let text = r#"{ "chip": "310p", "cards": 2, "memory_bytes": 1048576, "seed": 7, "timing": "late", "sums": "permuted",
            "on_finding": "abort", "report": "r", "trace": "t", "null_kernels": true, "faults": [{"kind": "wrong_tile", "operator": "aclnnMm", "at": 3}] }"#;
        let settings = Settings::parse(text).expect("the settings are right");
        assert_eq!((settings.cards, settings.seed, settings.memory_bytes()), (2, 7, 1_048_576));
        assert_eq!(
            (settings.timing, settings.sums, settings.on_finding),
            (Timing::Late, Sums::Permuted, OnFinding::Abort)
        );
        assert!(settings.faults[0].concerns("aclnnMm", 3) && settings.null_kernels);
        assert!(!settings.faults[0].concerns("aclnnMm", 2) && !settings.faults[0].concerns("aclnnAdd", 3));
    }

    #[test]
    fn a_file_of_the_program_is_not_taken_for_settings() {
        let folder = tempfile::tempdir().expect("there is room");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("the folder can be written");
            path
        };
        let other = write("other", r#"{"cards": 3}"#);
        let cards = |text: &str, other: Option<&Path>| {
            Settings::of_run(Some(&write("given", text)), other).map(|settings| settings.cards)
        };
        for text in ["{}", r#"{"dump": {"dump_list": [{"model_name": "m"}]}}"#, r#"{"profiler": {"switch": "on"}}"#] {
            assert_eq!((cards(text, None), cards(text, Some(&other))), (Ok(1), Ok(3)), "{text}");
        }
        assert_eq!(cards(r#"{"cards": 2}"#, Some(&other)), Ok(2));
        assert!(cards(r#"{"cards": 2, "dump": {}}"#, Some(&other)).expect_err("a mixture").message.contains("`dump`"));
        assert!(cards(r#"{"cards": "two"}"#, None).is_err() && cards("[", None).is_err());
        assert!(Settings::of_run(Some(&folder.path().join("none")), Some(&other)).is_err());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = [
            (r#"{"chips": "910b"}"#, "unknown field `chips`"),
            (r#"{"chip": "h100"}"#, "chip is one of 910b, a3, 910a, 310p, 310b"),
            (r#"{"cards": 0}"#, "cards is 1 to 64"),
            (r#"{"memory_bytes": 5}"#, "at least 1 MiB"),
            (r#"{"faults": [{"kind": "wrong_tile", "at": 0}]}"#, "counts from 1"),
            (
                r#"{"faults": [{"kind": "wrong_tile", "operator": "aclnnAdd"}]}"#,
                "the fault WrongTile does not apply to aclnnAdd",
            ),
            (r#"{"faults": [{"kind": "gremlin"}]}"#, "unknown variant `gremlin`"),
            ("[", "EOF"),
        ];
        for (text, expected) in wrong {
            let said = Settings::parse(text).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
