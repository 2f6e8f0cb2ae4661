//! Numbers of a device as they are kept: in f32 where the device has no more.

use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Some numbers.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Kept {
    /// Of a type whose numbers are all f32's too.
    Single(Box<[f32]>),
    /// Of f64.
    Double(Box<[f64]>),
}

impl Kept {
    /// Numbers of a tensor of this type.
    pub fn new(ty: &TensorType, numbers: &[f64]) -> Kept {
        if ty.dtype == DType::F64 {
            return Kept::Double(numbers.into());
        }
        Kept::Single(numbers.iter().map(|number| *number as f32).collect())
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        match self {
            Kept::Single(numbers) => numbers.len(),
            Kept::Double(numbers) => numbers.len(),
        }
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        match self {
            Kept::Single(numbers) => size_of_val(&**numbers),
            Kept::Double(numbers) => size_of_val(&**numbers),
        }
    }

    /// All of them.
    pub fn numbers(&self) -> Vec<f64> {
        self.end(self.len()).unwrap_or_default()
    }

    /// The last `count` of them; `None` where they are fewer.
    pub fn end(&self, count: usize) -> Option<Vec<f64>> {
        let start = self.len().checked_sub(count)?;
        Some(match self {
            Kept::Single(numbers) => numbers[start..].iter().map(|number| f64::from(*number)).collect(),
            Kept::Double(numbers) => numbers[start..].to_vec(),
        })
    }

    /// Whether they are these.
    pub fn is(&self, others: &[f64]) -> bool {
        match self {
            Kept::Single(numbers) => {
                numbers.len() == others.len()
                    && numbers.iter().zip(others).all(|(own, other)| f64::from(*own) == *other)
            }
            Kept::Double(numbers) => **numbers == *others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_the_device_had_them() {
        let numbers = [1.5, -0.1f32 as f64, 3e30f32 as f64];
        for (dtype, bytes) in [(DType::F32, 12), (DType::F64, 24)] {
            let kept = Kept::new(&TensorType::new(dtype, &[3]), &numbers);
            assert_eq!((kept.numbers().as_slice(), kept.len(), kept.bytes()), (&numbers[..], 3, bytes));
            assert!(kept.is(&numbers) && !kept.is(&numbers[1..]) && !kept.is(&[1.5, 0.0, 0.0]));
            assert_eq!((kept.end(2), kept.end(4)), (Some(numbers[1..].to_vec()), None));
        }
    }
}
