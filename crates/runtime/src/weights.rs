//! A model's weights on the devices that compute with them: uploaded once, shared by all sessions.

use crate::device::{Device, Tensor, Usage};
use crate::error::Result;
use crate::model_file::ModelFile;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use trueup_graph::TensorType;

/// A model, the devices it is computed on, and its weights there.
pub struct Weights {
    model: Arc<ModelFile>,
    devices: Vec<Arc<dyn Device>>,
    uploaded: Mutex<HashMap<(usize, String), Tensor>>,
}

impl Weights {
    /// A model on a main device and, perhaps, one that computes what the main one cannot. Nothing is uploaded yet.
    pub fn new(model: Arc<ModelFile>, device: Arc<dyn Device>, fallback: Option<Arc<dyn Device>>) -> Weights {
        let devices = [Some(device), fallback].into_iter().flatten().collect();
        Weights { model, devices, uploaded: Mutex::default() }
    }

    /// The model's file.
    pub fn model(&self) -> &Arc<ModelFile> {
        &self.model
    }

    /// The devices: the main one first.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// Whether a weight is on a device already.
    pub(crate) fn is_uploaded(&self, device: usize, name: &str) -> bool {
        let uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        uploaded.contains_key(&(device, name.to_owned()))
    }

    /// A weight on a device, uploaded when it is asked for the first time.
    pub fn tensor(&self, device: usize, name: &str, ty: &TensorType) -> Result<Tensor> {
        let key = (device, name.to_owned());
        let mut uploaded = self.uploaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tensor) = uploaded.get(&key) {
            return Ok(tensor.clone());
        }
        let buffer = self.devices[device].alloc(ty, Usage::Weight)?;
        let tensor = Tensor { buffer, offset_bytes: 0, ty: *ty };
        self.devices[device].upload(&self.model.tensor_bytes(name)?, &tensor)?;
        self.model.release(name);
        uploaded.insert(key, tensor.clone());
        Ok(tensor)
    }
}
