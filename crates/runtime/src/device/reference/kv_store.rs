//! `cache[:, rows[t]] = x[:, t]`, rounded to the type of the cache.

use super::place;
use crate::host_tensor::HostTensor;

pub(super) fn evaluate(inputs: &[&HostTensor]) -> Result<HostTensor, String> {
    let bytes = inputs[0].to_bytes().into_owned();
    let mut cache = HostTensor::stored(*inputs[0].ty(), bytes);
    store(&mut cache, inputs[1], inputs[2])?;
    Ok(cache)
}

/// Writes the rows of `x` into the cache.
pub(super) fn store(cache: &mut HostTensor, x: &HostTensor, rows: &HostTensor) -> Result<(), String> {
    let width = cache.ty().shape[0];
    let rows_len = cache.ty().shape.rows();
    let mut row = vec![0.0; width];
    for (t, index) in rows.to_indices().into_iter().enumerate() {
        x.read(width * t, &mut row);
        cache.write(width * place("row", index, rows_len)?, &row);
    }
    Ok(())
}
