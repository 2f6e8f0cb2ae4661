//! A model's weights on the devices that compute with them: brought there once, shared by all sessions.
//!
//! ```text
//!  weight ─┬─ copied   in the device's own memory and layout; the mapped pages are given back
//!          └─ mapped   where the file is mapped: what the device gains nothing from copying, and whole layers that its memory has no room for
//! ```

use crate::device::{About, CopyRoom, Device, Tensor, Usage};
use crate::error::Result;
use crate::model_file::ModelFile;
use crate::plan::{LayerHomes, Plan, WeightUses};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trueup_formats::gguf::layer_of;
use trueup_graph::{Origin, TensorType, Value};

/// A model, the devices it is computed on, and its weights there.
pub struct Weights {
    model: Arc<ModelFile>,
    devices: Vec<Arc<dyn Device>>,
    /// How many of them take layers.
    with_layers: usize,
    /// Which layers each takes, once it was asked.
    homes: Mutex<Option<LayerHomes>>,
    uploaded: Mutex<Uploaded>,
}

/// The weights that are on a device, by its place in the list and their names.
type Uploaded = HashMap<(usize, String), Held>;

/// A weight on a device.
#[derive(Clone)]
struct Held {
    tensor: Tensor,
    is_mapped: bool,
    is_crowded_out: bool,
}

/// Bytes of the weights that are on devices, as in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HeldWeights {
    /// Of those that were copied, into whatever layout the device has.
    pub copied_bytes: u64,
    /// Of those that are read where the file is mapped.
    pub mapped_bytes: u64,
    /// Of the latter those whose copies would be faster and have no room in the device's memory.
    pub crowded_out_bytes: u64,
}

impl Weights {
    /// A model on a main device and, perhaps, one that computes what the main one cannot. Nothing is uploaded yet.
    pub fn new(model: Arc<ModelFile>, device: Arc<dyn Device>, fallback: Option<Arc<dyn Device>>) -> Weights {
        Weights::over(model, vec![device], fallback)
    }

    /// A model whose layers are placed over devices, in their order: each takes as many as fit into its free memory,
    /// the last what is left. What the first session needs says how many fit.
    pub fn over(
        model: Arc<ModelFile>,
        mut devices: Vec<Arc<dyn Device>>,
        fallback: Option<Arc<dyn Device>>,
    ) -> Weights {
        let with_layers = devices.len();
        devices.extend(fallback);
        Weights { model, devices, with_layers, homes: Mutex::default(), uploaded: Mutex::default() }
    }

    /// The same devices with another file of the model that differs in the weights of these names only. The others are
    /// shared, as far as they are on devices already.
    pub fn with_changed(&self, model: Arc<ModelFile>, changed: &[String]) -> Weights {
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut uploaded = self.uploaded().clone();
        uploaded.retain(|(_, name), _| !changed.contains(name));
        let devices = self.devices.clone();
        Weights {
            model,
            devices,
            with_layers: self.with_layers,
            homes: Mutex::new(homes),
            uploaded: Mutex::new(uploaded),
        }
    }

    /// The model's file.
    pub fn model(&self) -> &Arc<ModelFile> {
        &self.model
    }

    /// The devices: the main one first, the one to fall back on last.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The devices with layers, as if they were one.
    pub fn about(&self) -> About {
        let each: Vec<About> = self.devices[..self.with_layers].iter().map(|device| device.about()).collect();
        let listed = |of: fn(&About) -> &str, between| each.iter().map(of).collect::<Vec<_>>().join(between);
        let memory = each.iter().map(|about| about.memory).reduce(|sum, memory| {
            let ((all, free), (more, more_free)) = sum.zip(memory)?;
            Some((all.saturating_add(more), free.saturating_add(more_free)))
        });
        About {
            name: listed(|about| &about.name, ","),
            description: listed(|about| &about.description, "; "),
            simulated: each.iter().any(|about| about.simulated),
            memory: memory.flatten(),
            memory_limit: None,
            batch_invariant: each.iter().all(|about| about.batch_invariant),
        }
    }

    /// How many of the devices, the first ones, take layers.
    pub(crate) fn with_layers(&self) -> usize {
        self.with_layers
    }

    /// Which layers they take: as it was found when it was asked for the first time.
    pub(crate) fn layer_homes(&self, find: impl FnOnce() -> Result<LayerHomes>) -> Result<LayerHomes> {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(homes) = &*homes {
            return Ok(homes.clone());
        }
        // One device has them all.
        let found = if self.with_layers > 1 { find()? } else { LayerHomes::default() };
        Ok(homes.insert(found).clone())
    }

    /// How the weights that are on devices by now are held.
    pub fn held(&self) -> HeldWeights {
        self.uploaded().values().fold(HeldWeights::default(), |mut sums, held| {
            let bytes = held.tensor.ty.bytes() as u64;
            let sum = if held.is_mapped { &mut sums.mapped_bytes } else { &mut sums.copied_bytes };
            *sum = sum.saturating_add(bytes);
            if held.is_crowded_out {
                sums.crowded_out_bytes = sums.crowded_out_bytes.saturating_add(bytes);
            }
            sums
        })
    }

    /// Bytes of memory that copies of the weights of some plans take on a device with enough memory for all. A weight
    /// of several plans counts once. Not copied are weights that the device computes with as fast in the mapped file,
    /// and tables of which only rows are read.
    pub fn copied_bytes(&self, plans: &[&Plan], device: usize) -> Result<u64> {
        let mut bytes: HashMap<&str, u64> = HashMap::new();
        for plan in plans {
            let uses = WeightUses::new(plan.graph());
            for value in weights_of(plan, device) {
                let is_read = uses.is_gathered(value);
                let room = if is_read { CopyRoom::TooLittle } else { CopyRoom::Enough };
                let mapped =
                    self.model.mapped(&value.name).map(|bytes| self.devices[device].adopt(&bytes, &value.ty, room));
                let copied = || uses.bytes(value, &*self.devices[device]);
                let needed = if mapped.transpose()?.flatten().is_some() { 0 } else { copied() };
                let known = bytes.entry(&value.name).or_default();
                *known = needed.max(*known);
            }
        }
        Ok(bytes.into_values().fold(0, u64::saturating_add))
    }

    /// Bytes of the weights of some plans on a device, as stored in the file. A weight of several plans counts once.
    pub fn stored_bytes(plans: &[&Plan], device: usize) -> u64 {
        let weights = plans.iter().flat_map(|plan| weights_of(plan, device));
        let bytes: HashMap<&str, usize> = weights.map(|value| (value.name.as_str(), value.ty.bytes())).collect();
        bytes.into_values().fold(0, |sum, bytes| sum.saturating_add(bytes as u64))
    }

    /// Whether all weights of a plan are on their devices already.
    pub(crate) fn hold(&self, plan: &Plan) -> bool {
        (0..plan.devices()).all(|device| weights_of(plan, device).all(|value| self.is_uploaded(device, &value.name)))
    }

    /// Whether a weight is on a device already.
    pub(crate) fn is_uploaded(&self, device: usize, name: &str) -> bool {
        self.uploaded().contains_key(&(device, name.to_owned()))
    }

    /// A weight on a device, brought there when it is asked for the first time.
    pub fn tensor(&self, device: usize, name: &str, ty: &TensorType) -> Result<Tensor> {
        let mut uploaded = self.uploaded();
        if let Some(held) = uploaded.get(&(device, name.to_owned())) {
            return Ok(held.tensor.clone());
        }
        if let Some(tensor) = self.adopt(&mut uploaded, device, (name, ty), CopyRoom::Enough)? {
            return Ok(tensor);
        }
        let buffer = match self.devices[device].alloc(ty, Usage::Weight) {
            Ok(buffer) => buffer,
            // There is less memory than the system said.
            Err(error) => return self.adopt(&mut uploaded, device, (name, ty), CopyRoom::TooLittle)?.ok_or(error),
        };
        let tensor = Tensor { buffer, offset_bytes: 0, ty: *ty };
        self.devices[device].upload(&self.model.tensor_bytes(name)?, &tensor)?;
        self.model.release(name);
        let held = Held { tensor: tensor.clone(), is_mapped: false, is_crowded_out: false };
        uploaded.insert((device, name.to_owned()), held);
        Ok(tensor)
    }

    /// Leaves weights where they are mapped, of those that are not on the device yet and in their order: what the
    /// device gains nothing from copying, and all of each layer whose copies do not fit into what is left of
    /// `room_bytes`. The others are yet to be copied.
    pub(crate) fn place(&self, device: usize, weights: &[(&str, TensorType)], room_bytes: u64) -> Result<()> {
        let mut uploaded = self.uploaded();
        let mut to_copy: Vec<(&str, &TensorType)> = Vec::new();
        for (name, ty) in weights {
            let is_there = uploaded.contains_key(&(device, (*name).to_owned()));
            if !is_there && self.adopt(&mut uploaded, device, (name, ty), CopyRoom::Enough)?.is_none() {
                to_copy.push((name, ty));
            }
        }
        let mut left = room_bytes;
        for layer in to_copy.chunk_by(|(one, _), (next, _)| placed_with(one) == placed_with(next)) {
            let taken = |ty: &TensorType| self.devices[device].weight_bytes(ty, true);
            let bytes = |weights: &[(&str, &TensorType)]| weights.iter().map(|(_, ty)| taken(ty)).sum::<u64>();
            let mut copied = layer.to_vec();
            if bytes(&copied) > left {
                copied.clear();
                for weight in layer {
                    if self.adopt(&mut uploaded, device, *weight, CopyRoom::TooLittle)?.is_none() {
                        copied.push(*weight);
                    }
                }
            }
            left = left.saturating_sub(bytes(&copied));
        }
        Ok(())
    }

    /// Leaves a weight of which few rows are read where it is mapped, if the device reads it there: what is not read
    /// takes no memory.
    pub(crate) fn leave(&self, device: usize, weight: (&str, TensorType)) -> Result<()> {
        let mut uploaded = self.uploaded();
        let (name, ty) = weight;
        if self.adopt(&mut uploaded, device, (name, &ty), CopyRoom::TooLittle)?.is_some()
            && let Some(held) = uploaded.get_mut(&(device, name.to_owned()))
        {
            held.is_crowded_out = false;
        }
        Ok(())
    }

    /// Forgets those of these weights that were left where they are mapped.
    pub(crate) fn forget_mapped(&self, device: usize, weights: &[(&str, TensorType)]) {
        let is_one = |name: &str| weights.iter().any(|(one, _)| *one == name);
        self.uploaded().retain(|(on, name), held| !(held.is_mapped && *on == device && is_one(name)));
    }

    /// A weight where the file is mapped, if the device takes it there.
    fn adopt(
        &self,
        uploaded: &mut Uploaded,
        device: usize,
        (name, ty): (&str, &TensorType),
        room: CopyRoom,
    ) -> Result<Option<Tensor>> {
        let Some(bytes) = self.model.mapped(name) else { return Ok(None) };
        let Some(buffer) = self.devices[device].adopt(&bytes, ty, room)? else { return Ok(None) };
        let tensor = Tensor { buffer, offset_bytes: 0, ty: *ty };
        let held = Held { tensor: tensor.clone(), is_mapped: true, is_crowded_out: room == CopyRoom::TooLittle };
        uploaded.insert((device, name.to_owned()), held);
        Ok(Some(tensor))
    }

    fn uploaded(&self) -> MutexGuard<'_, Uploaded> {
        self.uploaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a tensor is placed with: its layer, or the tensor itself outside of the layers.
fn placed_with(name: &str) -> &str {
    layer_of(name).unwrap_or(name)
}

/// The weights that a plan's nodes read on a device.
fn weights_of(plan: &Plan, device: usize) -> impl Iterator<Item = &Value> {
    plan.held(device).map(|id| plan.graph().value(id)).filter(|value| value.origin == Origin::Weight)
}
