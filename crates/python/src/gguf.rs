//! `trueup.read_gguf`: a GGUF file that is read and not run.
//!
//! ```text
//! read_gguf(path) ─▶ header checked ─▶ GgufFile.metadata: dict
//!                                      GgufFile.tensors: dict of GgufTensor ─ data, to_float32 ─▶ bytes read, numpy.ndarray
//! ```
//!
//! Nothing of a tensor is read before it is asked for, and nothing of it is kept.

use crate::failure::raised;
use crate::metadata;
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;
use std::sync::Arc;
use trueup::formats::{Checkpoint, Gguf, TensorInfo, counted, quote};

/// Elements that are decoded at once, at most: a whole number of blocks of every type.
const PIECE: usize = 1 << 16;

/// Open a GGUF file to look at its keys and tensors; for a split one its first file.
///
/// Every size in it is checked before anything is used. Raises TrueupError.
#[pyfunction]
pub fn read_gguf(py: Python<'_>, path: PathBuf) -> PyResult<GgufFile> {
    py.detach(|| Gguf::open(path)).map(|file| GgufFile(Arc::new(file))).map_err(raised)
}

/// The keys and tensors of a GGUF file, which stays open.
#[pyclass(module = "trueup", frozen)]
pub struct GgufFile(Arc<Gguf>);

#[pymethods]
impl GgufFile {
    /// The file's keys and values, in their order.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metadata::to_python(py, self.0.metadata())
    }

    /// The tensors by name, in the order of the file.
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
    /// Its name in the file.
    #[getter]
    fn name(&self) -> PyResult<&str> {
        Ok(&self.info()?.name)
    }

    /// Its sizes as NumPy orders them, the innermost last: a matrix of `rows` outputs and `columns` inputs is (rows, columns).
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.info()?.shape.iter().rev())
    }

    /// Its type, like "f32" or "q4_0".
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        Ok(self.info()?.dtype.name())
    }

    /// Its bytes in the file.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.info()?.bytes)
    }

    /// Its bytes as they are in the file, read anew: a uint8 array whose last size is the bytes of a row. Raises TrueupError.
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

    /// Its numbers, read and decoded anew: a float32 array of its shape. Raises TrueupError for types that hold no weights.
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

    /// All elements, a piece of the file after the other.
    fn numbers(&self, info: &TensorInfo) -> PyResult<Vec<f32>> {
        let Some(codec) = info.dtype.codec() else {
            let problem = format!("tensor {}: type {} holds no weights", quote(&info.name), info.dtype.name());
            return Err(raised(format!("{problem}; take its data")));
        };
        let mut numbers: Vec<f32> = room(info.elements())?;
        let mut bytes = Vec::new();
        let mut offset = 0_u64;
        for piece in numbers.chunks_mut(PIECE) {
            let len = u64::try_from(piece.len()).ok().and_then(|len| info.dtype.row_bytes(len));
            let len = len.ok_or_else(|| raised(format!("tensor {}: its blocks are not whole", quote(&info.name))))?;
            bytes.resize(usize::try_from(len).map_err(raised)?, 0);
            self.file.read(self.number, offset, &mut bytes).map_err(raised)?;
            (codec.decode)(&bytes, piece);
            offset = offset.saturating_add(len);
        }
        Ok(numbers)
    }
}

/// Zeros for so many elements, or a sentence where there is no memory for them.
fn room<T: Clone + Default>(len: u64) -> PyResult<Vec<T>> {
    let len = usize::try_from(len).map_err(raised)?;
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| raised(format!("there is no memory for {len} elements")))?;
    room.resize(len, T::default());
    Ok(room)
}

/// Sizes as NumPy orders them.
fn sizes(info: &TensorInfo) -> PyResult<Vec<usize>> {
    info.shape.iter().rev().map(|size| usize::try_from(*size).map_err(raised)).collect()
}
