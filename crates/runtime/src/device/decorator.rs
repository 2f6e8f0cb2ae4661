//! Devices that wrap another device and change a part of it: inject a fault, remove an operator, limit the memory.

use super::{About, Buffer, CopyRoom, Device, Rooms, Step, Tensor, Usage, through_host};
use crate::error::Result;
use crate::profile::Profile;
use crate::roof::Roof;
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::{Op, TensorType};

/// A device that is another one but for the methods that it has itself.
pub trait Decorator: Send + Sync {
    /// The other one.
    fn device(&self) -> &dyn Device;

    /// As [`Device::about`].
    fn about(&self) -> About {
        self.device().about()
    }

    /// As [`Device::name`].
    fn name(&self) -> String {
        self.device().name()
    }

    /// As [`Device::supports`].
    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        self.device().supports(op, inputs, output)
    }

    /// As [`Device::alloc`].
    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        self.device().alloc(ty, usage)
    }

    /// As [`Device::adopt`]. Who changes what is uploaded takes nothing where it is mapped: `Ok(None)`.
    fn adopt(&self, bytes: &MappedBytes, ty: &TensorType, room: CopyRoom) -> Result<Option<Buffer>> {
        self.device().adopt(bytes, ty, room)
    }

    /// As [`Device::upload`].
    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        self.device().upload(source, target)
    }

    /// As [`Device::copy`]: through the host, so that what changes uploads changes copies.
    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        through_host(source, from, &mut |bytes| Decorator::upload(self, bytes, target))
    }

    /// As [`Device::gather`]. Nothing is gathered, so that what changes copies changes all that comes from another
    /// device.
    fn gather(&self, _ours: &Tensor, _theirs: &Tensor) -> Result<Option<&str>> {
        Ok(None)
    }

    /// As [`Device::execute`].
    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.device().execute(steps)
    }
}

impl<D: Decorator> Device for D {
    fn about(&self) -> About {
        Decorator::about(self)
    }

    fn name(&self) -> String {
        Decorator::name(self)
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        Decorator::supports(self, op, inputs, output)
    }

    fn scratch_bytes(&self, op: &Op, inputs: &[TensorType]) -> Rooms {
        self.device().scratch_bytes(op, inputs)
    }

    fn taken_bytes(&self, bytes: u64) -> u64 {
        self.device().taken_bytes(bytes)
    }

    fn weight_bytes(&self, ty: &TensorType, is_multiplied: bool) -> u64 {
        self.device().weight_bytes(ty, is_multiplied)
    }

    fn weight_type(&self, dtype: DType) -> DType {
        self.device().weight_type(dtype)
    }

    fn scratch_held(&self) -> Rooms {
        self.device().scratch_held()
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        Decorator::alloc(self, ty, usage)
    }

    fn adopt(&self, bytes: &MappedBytes, ty: &TensorType, room: CopyRoom) -> Result<Option<Buffer>> {
        Decorator::adopt(self, bytes, ty, room)
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        Decorator::upload(self, source, target)
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        self.device().download(source, target)
    }

    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        Decorator::copy(self, source, from, target)
    }

    fn gather(&self, ours: &Tensor, theirs: &Tensor) -> Result<Option<&str>> {
        Decorator::gather(self, ours, theirs)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        Decorator::execute(self, steps)
    }

    fn sync(&self) -> Result<()> {
        self.device().sync()
    }

    fn roof(&self) -> Result<Option<Roof>> {
        self.device().roof()
    }
}
