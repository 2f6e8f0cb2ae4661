//! Metadata of a model file as a dictionary.
//!
//! ```text
//! u8..u64, i8..i64 ─▶ int    f32, f64 ─▶ float    bool ─▶ bool    string ─▶ str    array ─▶ list
//! ```

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use trueup::formats::gguf::{Array, Metadata, Value};

/// All keys with their values, in file order.
pub fn to_python<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyDict>> {
    let dictionary = PyDict::new(py);
    for (key, value) in metadata.iter() {
        dictionary.set_item(key, value_to_python(py, value)?)?;
    }
    Ok(dictionary)
}

fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::U8(value) => value.into_bound_py_any(py),
        Value::I8(value) => value.into_bound_py_any(py),
        Value::U16(value) => value.into_bound_py_any(py),
        Value::I16(value) => value.into_bound_py_any(py),
        Value::U32(value) => value.into_bound_py_any(py),
        Value::I32(value) => value.into_bound_py_any(py),
        Value::F32(value) => value.into_bound_py_any(py),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::String(value) => value.into_bound_py_any(py),
        Value::Array(array) => array_to_python(py, array),
        Value::U64(value) => value.into_bound_py_any(py),
        Value::I64(value) => value.into_bound_py_any(py),
        Value::F64(value) => value.into_bound_py_any(py),
    }
}

/// A list. The file reader limits the depth of nested arrays.
fn array_to_python<'py>(py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let list = match array {
        // Item by item: numbers of one byte would otherwise become `bytes`.
        Array::U8(items) => PyList::new(py, items),
        Array::I8(items) => PyList::new(py, items),
        Array::U16(items) => PyList::new(py, items),
        Array::I16(items) => PyList::new(py, items),
        Array::U32(items) => PyList::new(py, items),
        Array::I32(items) => PyList::new(py, items),
        Array::F32(items) => PyList::new(py, items),
        Array::Bool(items) => PyList::new(py, items),
        Array::String(items) => PyList::new(py, items),
        Array::Array(items) => {
            let items = items.iter().map(|item| array_to_python(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
        }
        Array::U64(items) => PyList::new(py, items),
        Array::I64(items) => PyList::new(py, items),
        Array::F64(items) => PyList::new(py, items),
    };
    Ok(list?.into_any())
}
