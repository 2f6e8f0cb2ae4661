//! What Python catches when trueup refuses something.

use pyo3::PyErr;
use pyo3::exceptions::PyException;
use std::fmt::Display;

pyo3::create_exception!(
    trueup,
    TrueupError,
    PyException,
    "What trueup refuses, in one sentence: which file, where, what is wrong, and what to do."
);

/// The exception that says what an error of the library says.
pub fn raised(error: impl Display) -> PyErr {
    TrueupError::new_err(error.to_string())
}
