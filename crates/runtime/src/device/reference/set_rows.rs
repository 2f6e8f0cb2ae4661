//! `y[:, rows[t]] = x[:, t]`, stored as the table stores its elements.

use super::kv_store;
use crate::host_tensor::HostTensor;

pub(super) fn evaluate(inputs: &[&HostTensor]) -> Result<HostTensor, String> {
    let mut table = HostTensor::stored(*inputs[0].ty(), inputs[0].to_bytes().into_owned());
    kv_store::store(&mut table, inputs[1], inputs[2])?;
    Ok(table)
}
