//! A device with a memory limit, for `--device-memory`.

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
    /// A device with a memory limit in bytes.
    pub fn new(device: Arc<dyn Device>, memory_bytes: u64) -> Bounded {
        Bounded { device, memory_bytes, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be taken still: what the device keeps for itself counts too.
    fn left(&self) -> u64 {
        let mut held = self.held();
        held.retain(|held| held.buffer.strong_count() > 0);
        let kept = self.device.scratch_held().map(|bytes| self.device.taken_bytes(bytes as u64));
        let used = held.iter().map(|held| held.bytes).chain(kept).fold(0, u64::saturating_add);
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
        About {
            memory: Some((all.min(self.memory_bytes), free.min(self.left()))),
            memory_limit: Some(self.memory_bytes),
            ..about
        }
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let bytes = match usage {
            Usage::Weight => self.device.weight_bytes(ty, true),
            _ => self.device.taken_bytes(ty.bytes() as u64),
        };
        let left = self.left();
        if bytes > left {
            let problem = format!(
                "{bytes} bytes of {ty} exceed the {left} bytes that remain of the {} that --device-memory allows; raise \
                    the limit, {}",
                self.memory_bytes,
                usage.remedy()
            );
            return Err(Error::Device { device: self.device.name(), problem });
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
    use crate::device::{Rooms, Step};
    use crate::devices::{DeviceOptions, open_device};
    use crate::profile::Profile;
    use trueup_blocks::DType;
    use trueup_graph::Op;

    #[test]
    fn what_is_taken_and_freed_is_counted() {
        let device = Bounded::new(open_device("ref", &DeviceOptions::default()).unwrap(), 1000);
        let free = || Device::about(&device).memory.unwrap();
        let floats = |count| TensorType::new(DType::F32, &[count]);
        let buffer = Device::alloc(&device, &floats(200), Usage::State).unwrap();
        assert_eq!(free(), (1000, 200));
        let problem = Device::alloc(&device, &floats(51), Usage::State).unwrap_err().to_string();
        assert!(
            problem.contains("204 bytes") && problem.contains("200 bytes that remain of the 1000 that"),
            "{problem}"
        );
        drop(buffer);
        assert_eq!(free(), (1000, 1000));
        assert!(Device::alloc(&device, &floats(250), Usage::State).is_ok());
    }

    /// A device that keeps 100 and 200 bytes beside tensors.
    struct Keeping(Arc<dyn Device>);

    impl Device for Keeping {
        fn about(&self) -> About {
            self.0.about()
        }

        fn supports(
            &self,
            op: &Op,
            inputs: &[TensorType],
            output: &TensorType,
        ) -> std::result::Result<Profile, String> {
            self.0.supports(op, inputs, output)
        }

        fn scratch_held(&self) -> Rooms {
            [100, 0, 200, 0, 0, 0]
        }

        fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
            self.0.alloc(ty, usage)
        }

        fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
            self.0.upload(source, target)
        }

        fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
            self.0.download(source, target)
        }

        fn execute(&self, steps: &[Step]) -> Result<()> {
            self.0.execute(steps)
        }

        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
    }

    #[test]
    fn what_the_device_keeps_for_itself_is_counted() {
        let keeping = Keeping(open_device("ref", &DeviceOptions::default()).unwrap());
        let device = Bounded::new(Arc::new(keeping), 1000);
        assert_eq!(Device::about(&device).memory.unwrap(), (1000, 700));
        let floats = |count| TensorType::new(DType::F32, &[count]);
        assert!(Device::alloc(&device, &floats(176), Usage::State).is_err());
        assert!(Device::alloc(&device, &floats(175), Usage::State).is_ok());
    }
}
