//! Reports as Python objects: the JSON documents that the command line writes, read by Python's own `json`.
//!
//! A number that is not finite is `None`, as JSON has no such numbers.

use crate::failure::raised;
use pyo3::prelude::*;
use serde::Serialize;

/// A report as dictionaries, lists, texts and numbers.
pub fn to_python<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(report).map_err(raised)?;
    py.import("json")?.call_method1("loads", (text,))
}
