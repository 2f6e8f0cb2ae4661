//! `trueup.read_gguf`: reads a GGUF file without a device.
//!
//! ```text
//! read_gguf(path) ─▶ header checked ─▶ GgufFile.metadata: dict
//!                                      GgufFile.tensors: dict of GgufTensor ─ data, to_float32 ─▶ bytes read, numpy.ndarray
//! ```
//!
//! Tensor data is read on request and not cached.

use crate::failure::raised;
use crate::metadata;
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;
use trueup::formats::{Checkpoint, Gguf, TensorInfo, counted, quote};

/// Most elements that are decoded at once: a whole number of blocks of every type.
const PIECE: usize = 1 << 16;

/// Open a GGUF file to read its metadata and tensors. For a split model, pass the first file.
///
/// Every size in the file is checked before it is used. Raises TrueupError.
#[pyfunction]
pub fn read_gguf(py: Python<'_>, path: PathBuf) -> PyResult<GgufFile> {
    py.detach(|| Gguf::open(path)).map(|file| GgufFile(Arc::new(file))).map_err(raised)
}

/// The metadata and tensors of an open GGUF file.
#[pyclass(module = "trueup", frozen)]
pub struct GgufFile(Arc<Gguf>);

#[pymethods]
impl GgufFile {
    /// The metadata: keys and values in file order.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::to_python(py, self.0.metadata())
    }

    /// The tensors by name, in file order.
    #[getter]
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dictionary = PyDict::new(py);
        for (number, tensor) in self.0.tensors().iter().enumerate() {
            dictionary.set_item(&tensor.name, GgufTensor { file: self.0.clone(), number })?;
        }
        Ok(dictionary)
    }

    fn __repr__(&self) -> String {
        let tensors = counted(self.0.tensors().len(), "tensor");
        format!("<trueup.GgufFile {:?}: {}, {tensors}>", self.0.path(), self.0.format())
    }
}

/// A tensor of a GGUF file.
#[pyclass(module = "trueup", frozen)]
pub struct GgufTensor {
    file: Arc<Gguf>,
    number: usize,
}

#[pymethods]
impl GgufTensor {
    /// The name in the file.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.info()?.name)
    }

    /// The shape in NumPy order, innermost dimension last: a matrix of `rows` outputs and `columns` inputs is (rows,
    /// columns).
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info()?.shape.iter().rev())
    }

    /// The type, such as "f32" or "q4_0".
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        Ok(self.info()?.dtype.name())
    }

    /// The size in the file, in bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.info()?.bytes)
    }

    /// The raw bytes, read from the file on each access: a uint8 array whose last dimension is the bytes of a row.
    /// Raises TrueupError.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<u8>>> {
        let info = self.info()?;
        let bytes = py.detach(|| {
            let mut bytes = room(info.bytes)?;
            self.file.read(self.number, 0, &mut bytes).map_err(raised).map(|()| bytes)
        })?;
        let mut shape = sizes(info)?;
        let rows: usize = shape.iter().take(shape.len().saturating_sub(1)).product();
        if let Some(row) = shape.last_mut() {
            *row = bytes.len().checked_div(rows).unwrap_or_default();
        }
        bytes.into_pyarray(py).reshape(shape)
    }

    /// The values, read and decoded on each call: a float32 array of the tensor's shape. Raises TrueupError for types
    /// that cannot be decoded.
    fn to_float32<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let info = self.info()?;
        let numbers = py.detach(|| self.numbers(info))?;
        numbers.into_pyarray(py).reshape(sizes(info)?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let info = self.info()?;
        Ok(format!("<trueup.GgufTensor {:?}: {}, {}>", quote(&info.name), info.dtype.name(), self.shape(py)?.repr()?))
    }
}

impl GgufTensor {
    fn info(&self) -> PyResult<&TensorInfo> {
        self.file.tensors().get(self.number).ok_or_else(|| raised("the file has no such tensor"))
    }

    /// Decodes all elements, one part of the file after another.
    fn numbers(&self, info: &TensorInfo) -> PyResult<Vec<f32>> {
        let Some(codec) = info.dtype.codec() else {
            let problem =
                format!("tensor {}: type {} cannot be decoded to floats", quote(&info.name), info.dtype.name());
            return Err(raised(format!("{problem}; read the raw bytes with .data")));
        };
        let mut numbers: Vec<f32> = room(info.elements())?;
        let mut bytes = Vec::new();
        let mut offset = 0_u64;
        for piece in numbers.chunks_mut(PIECE) {
            let len = u64::try_from(piece.len()).ok().and_then(|len| info.dtype.row_bytes(len));
            let len = len.ok_or_else(|| {
                raised(format!("tensor {}: its size is not a whole number of blocks", quote(&info.name)))
            })?;
            bytes.resize(usize::try_from(len).map_err(raised)?, 0);
            self.file.read(self.number, offset, &mut bytes).map_err(raised)?;
            (codec.decode)(&bytes, piece);
            offset = offset.saturating_add(len);
        }
        Ok(numbers)
    }
}

/// Allocates zeros, or fails with a message if there is too little memory.
fn room<T: Clone + Default>(len: u64) -> PyResult<Vec<T>> {
    let len = usize::try_from(len).map_err(raised)?;
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| raised(format!("not enough memory for {len} elements")))?;
    room.resize(len, T::default());
    Ok(room)
}

/// The shape in NumPy order.
fn sizes(info: &TensorInfo) -> PyResult<Vec<usize>> {
    info.shape.iter().rev().map(|size| usize::try_from(*size).map_err(raised)).collect()
}
