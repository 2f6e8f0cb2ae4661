//! The exception that trueup raises in Python.

use pyo3::PyErr;
use pyo3::exceptions::PyException;
use std::fmt::Display;

pyo3::create_exception!(
    trueup,
    TrueupError,
    PyException,
    "An error of trueup, in one sentence: the file, the place, what is wrong, and what to do."
);

/// The exception with the message of a library error.
pub fn raised(error: impl Display) -> PyErr {
    TrueupError::new_err(error.to_string())
}
