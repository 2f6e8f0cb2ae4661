//! The Python package `trueup`: the `trueup` crate as a Python module.
//!
//! ```text
//! Python ─ arguments ─▶ open files, options ─▶ release the interpreter ─▶ compute ─┐
//!    ▲                                                                            │
//!    └── str, list, dict, numpy.ndarray ◀─ reports as JSON documents ◀────────────┘
//! ```
//!
//! Errors are raised as `trueup.TrueupError` with the message that the command line would print. Other Python threads
//! run while trueup computes.
//!
//! The only `unsafe` code is what the macros of pyo3 generate.

mod conversion;
mod failure;
mod gguf;
mod measurement;
mod metadata;
mod model;
mod quantization;
mod recipe;
mod report;
mod service;
mod verification;

/// Convert, quantize, run and verify language models.
#[pyo3::pymodule(name = "trueup")]
mod module {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::conversion::convert;
    #[pymodule_export]
    use crate::failure::TrueupError;
    #[pymodule_export]
    use crate::gguf::{GgufFile, GgufTensor, read_gguf};
    #[pymodule_export]
    use crate::measurement::{compare, imatrix};
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::quantization::quantize;
    #[pymodule_export]
    use crate::service::Service;
    #[pymodule_export]
    use crate::verification::verify;

    #[pymodule_init]
    fn add_version(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
