//! Faults in a result, after a right computation.

/// What happens to the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OutputFault {
    Gain,
    GainOfBlock,
    DecodeGain,
    PromptGain,
    F16,
    Bf16,
    UnwrittenRow,
    UnwrittenBlock,
    SignFlip,
    SwappedRows,
    RotatedRows,
    SwappedTokens,
    Constant,
    Zeros,
    NotANumber,
    Infinite,
    Race,
}

impl OutputFault {
    /// Whether the fault leaves elements as they were before the computation.
    pub fn keeps_before(self) -> bool {
        matches!(self, OutputFault::UnwrittenRow | OutputFault::UnwrittenBlock)
    }

    /// Changes `y`, rows of `row` elements, one row for each token. `before` is the previous content of the memory, and
    /// is read only if the fault [keeps it](OutputFault::keeps_before). `computed` counts the earlier computations.
    pub fn spoil(self, y: &mut [f32], before: &[f32], row: usize, computed: usize) {
        let (middle, tokens) = (y.len() / 2, y.len() / row.max(1));
        match self {
            OutputFault::Gain => scale(y, 1.001),
            OutputFault::GainOfBlock => y.chunks_mut(row).for_each(|column| scale(&mut column[..32.min(row)], 1.01)),
            OutputFault::DecodeGain if tokens == 1 => scale(y, 1.001),
            OutputFault::PromptGain if tokens > 1 => scale(y, 1.001),
            OutputFault::DecodeGain | OutputFault::PromptGain => {}
            OutputFault::F16 => y.iter_mut().for_each(|y| *y = half::f16::from_f32(*y).to_f32()),
            OutputFault::Bf16 => y.iter_mut().for_each(|y| *y = half::bf16::from_f32(*y).to_f32()),
            OutputFault::UnwrittenRow => {
                let last = (row - 1..y.len()).step_by(row);
                last.for_each(|index| y[index] = before[index]);
            }
            OutputFault::UnwrittenBlock => {
                let start = y.len() - 32.min(row);
                y[start..].copy_from_slice(&before[start..]);
            }
            OutputFault::SignFlip => y[middle] = -y[middle],
            OutputFault::SwappedRows => y.chunks_mut(row).for_each(|column| column.swap(0, (row - 1).min(1))),
            OutputFault::RotatedRows => y.chunks_mut(row).for_each(|column| column.rotate_left(1)),
            OutputFault::SwappedTokens => {
                let last = (tokens - 1) * row;
                (0..row).filter(|_| tokens > 1).for_each(|index| y.swap(index, last + index));
            }
            OutputFault::Constant => y.fill(42.0),
            OutputFault::Zeros => y.fill(0.0),
            OutputFault::NotANumber => y[middle] = f32::NAN,
            OutputFault::Infinite => y[middle] = f32::INFINITY,
            OutputFault::Race => y[middle] += if computed % 2 == 1 { 1.0 } else { 0.0 },
        }
    }
}

fn scale(y: &mut [f32], factor: f32) {
    y.iter_mut().for_each(|y| *y *= factor);
}
