//! A device that may hold so many bytes and no more: of several devices each has its share of a model (`--device-memory`).

use super::{About, Buffer, Decorator, Device, Tensor, Usage};
use crate::error::{Error, Result};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use trueup_graph::TensorType;

/// Another device, of whose memory a part may be used.
pub struct Bounded {
    device: Arc<dyn Device>,
    memory_bytes: u64,
    held: Mutex<Vec<Held>>,
}

/// Memory that was taken, and may be gone.
struct Held {
    buffer: Weak<dyn Any + Send + Sync>,
    bytes: u64,
}

impl Bounded {
    /// A device of which so many bytes of memory may be used.
    pub fn new(device: Arc<dyn Device>, memory_bytes: u64) -> Bounded {
        Bounded { device, memory_bytes, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be taken still.
    fn left(&self) -> u64 {
        let mut held = self.held();
        held.retain(|held| held.buffer.strong_count() > 0);
        let used = held.iter().fold(0, |sum: u64, held| sum.saturating_add(held.bytes));
        self.memory_bytes.saturating_sub(used)
    }
}

impl Decorator for Bounded {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn about(&self) -> About {
        let about = self.device.about();
        let (all, free) = about.memory.unwrap_or((u64::MAX, u64::MAX));
        About { memory: Some((all.min(self.memory_bytes), free.min(self.left()))), ..about }
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let bytes = match usage {
            Usage::Weight => self.device.weight_bytes(ty, true),
            _ => self.device.taken_bytes(ty.bytes() as u64),
        };
        let left = self.left();
        if bytes > left {
            let problem = format!(
                "{bytes} bytes of {ty} are more than the {left} that are left of the {} that it may hold; {}",
                self.memory_bytes,
                usage.remedy()
            );
            return Err(Error::Device { device: self.device.about().name, problem });
        }
        let buffer = self.device.alloc(ty, usage)?;
        self.held().push(Held { buffer: Arc::downgrade(&buffer.0), bytes });
        Ok(buffer)
    }

    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        self.device.copy(source, from, target)
    }

    fn gather(&self, ours: &Tensor, theirs: &Tensor) -> Result<Option<&str>> {
        self.device.gather(ours, theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{DeviceOptions, open_device};
    use trueup_blocks::DType;

    #[test]
    fn what_is_taken_and_freed_is_counted() {
        let device = Bounded::new(open_device("ref", &DeviceOptions::default()).unwrap(), 1000);
        let free = || Device::about(&device).memory.unwrap();
        let floats = |count| TensorType::new(DType::F32, &[count]);
        let buffer = Device::alloc(&device, &floats(200), Usage::State).unwrap();
        assert_eq!(free(), (1000, 200));
        let problem = Device::alloc(&device, &floats(51), Usage::State).unwrap_err().to_string();
        assert!(problem.contains("204 bytes") && problem.contains("200 that are left of the 1000"), "{problem}");
        drop(buffer);
        assert_eq!(free(), (1000, 1000));
        assert!(Device::alloc(&device, &floats(250), Usage::State).is_ok());
    }
}
