//! Reports as Python objects: the JSON documents that the command line writes, parsed with Python's `json`.
//!
//! Infinity and NaN become `None`, because JSON cannot represent them.

use crate::failure::raised;
use pyo3::prelude::*;
use serde::Serialize;

/// A report as dictionaries, lists, strings and numbers.
pub fn to_python<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(report).map_err(raised)?;
    py.import("json")?.call_method1("loads", (text,))
}
