//! Ternary matrices: made of floating-point numbers, or unpacked from bytes.
//!
//! ```text
//! made       m clamp(round(x / m), -1, 1), m the mean magnitude of the matrix (Ma et al. 2024, equation 1)
//! packed     byte of row r, column c of the source:   row r + 3 n | row r + 2 n | row r + n | row r    bits 7 to 0
//!            n rows of bytes are 4 n rows of values; two bits hold a value plus one
//! ```

use crate::chunk::{read_values, write_values};
use crate::mapping::MappedTensor;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use trueup_formats::{Checkpoint, Error, Result, quote, significant};
use trueup_quantize::{CHUNK_ELEMENTS, chunk_ranges};

/// What helps if values are wrong.
const DAMAGED: &str = "the file is damaged, or its weights are stored in another way; get the file again";

/// Mean magnitudes below this one count as this one.
const MAGNITUDE_MIN: f32 = 1e-5;

/// The mean magnitude of each source of a tensor, computed when it is first needed.
#[derive(Clone, Debug)]
pub(crate) struct Magnitudes(Vec<Arc<Mutex<Option<f32>>>>);

/// What was computed so far makes no difference.
impl PartialEq for Magnitudes {
    fn eq(&self, other: &Magnitudes) -> bool {
        self.0.len() == other.0.len()
    }
}

impl Magnitudes {
    pub fn new(sources: usize) -> Magnitudes {
        Magnitudes((0..sources).map(|_| Arc::default()).collect())
    }

    /// The mean magnitude of a source. The first thread that needs it computes it; others wait.
    fn of(&self, place: usize, source: &dyn Checkpoint, tensor: &MappedTensor) -> Result<f32> {
        let mut known = self.0[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mean) = *known {
            return Ok(mean);
        }
        let columns = crate::chunk::row_elements(&tensor.expected.shape);
        let rows = tensor.expected.shape.iter().product::<u64>() / columns;
        let (mut sum, mut count) = (0.0, 0);
        let runs = tensor.expected.transform.source_rows(0..rows);
        for (_, run) in runs.into_iter().filter(|(number, _)| *number == place) {
            let first = run.start * columns;
            for part in chunk_ranges((run.end - run.start) * columns, CHUNK_ELEMENTS) {
                count += part.end - part.start;
                let values = read_values(source, tensor.sources[place], first + part.start..first + part.end)?;
                sum = values.iter().fold(sum, |sum: f64, value| sum + f64::from(value.abs()));
            }
        }
        let mean = (sum / count as f64) as f32;
        if !(1.0 / (1.0 / mean.max(MAGNITUDE_MIN))).is_finite() {
            let name = quote(&source.tensors()[tensor.sources[place]].name);
            let problem =
                format!("the mean magnitude of its elements is {}, too large for f32", significant(f64::from(mean), 4));
            return Err(Error::new(source.path(), problem).at(format!("tensor {name}")).help(DAMAGED));
        }
        *known = Some(mean);
        Ok(mean)
    }
}

/// Elements of a source of a tensor, made ternary.
pub(crate) fn read_ternary(
    source: &dyn Checkpoint,
    tensor: &MappedTensor,
    place: usize,
    elements: Range<u64>,
    out: &mut [u8],
) -> Result<()> {
    let scale = 1.0 / tensor.magnitudes.of(place, source, tensor)?.max(MAGNITUDE_MIN);
    let mut values = read_values(source, tensor.sources[place], elements)?;
    values.iter_mut().for_each(|value| *value = (*value * scale).round_ties_even().clamp(-1.0, 1.0) / scale);
    write_values(&values, out);
    Ok(())
}

/// Elements of packed ternary values, multiplied by their scale or divided by it.
pub(crate) fn read_packed(
    source: &dyn Checkpoint,
    tensor: &MappedTensor,
    is_divided: bool,
    elements: Range<u64>,
    out: &mut [u8],
) -> Result<()> {
    let [codes, scale] = tensor.sources[..] else { unreachable!("packed values have a scale") };
    let scale = scale_of(source, scale, is_divided)?;
    let quarter = source.tensors()[codes].elements();
    let mut values = Vec::with_capacity((elements.end - elements.start) as usize);
    let mut at = elements.start;
    while at < elements.end {
        let number = at / quarter;
        let end = elements.end.min((number + 1) * quarter);
        let mut bytes = vec![0; (end - at) as usize];
        source.read(codes, at - number * quarter, &mut bytes)?;
        for (place, byte) in bytes.iter().enumerate() {
            let code = byte >> (2 * number) & 3;
            if code == 3 {
                let element = at - number * quarter + place as u64;
                let problem = format!("byte {element}: expected 0, 1 or 2 in each pair of bits, found {byte:#04x}");
                let name = quote(&source.tensors()[codes].name);
                return Err(Error::new(source.path(), problem).at(format!("tensor {name}")).help(DAMAGED));
            }
            values.push((f32::from(code) - 1.0) * scale);
        }
        at = end;
    }
    write_values(&values, out);
    Ok(())
}

/// The factor of packed values.
fn scale_of(source: &dyn Checkpoint, number: usize, is_divided: bool) -> Result<f32> {
    let scale = read_values(source, number, 0..1)?[0];
    let factor = if is_divided { 1.0 / scale } else { scale };
    if factor.is_finite() && factor != 0.0 {
        return Ok(factor);
    }
    let name = quote(&source.tensors()[number].name);
    let problem = format!("expected a scale other than 0, found {scale}");
    Err(Error::new(source.path(), problem).at(format!("tensor {name}")).help(DAMAGED))
}
