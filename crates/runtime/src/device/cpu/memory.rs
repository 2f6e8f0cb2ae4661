//! Buffers of the `cpu` device: typed memory behind a lock, and views of the tensors in it.
//!
//! ```text
//! arena, inputs, f32 states   f32             ┌ before ─┬ output ─┬ after ┐   only the output is written
//! f16 and bf16                f16, bf16                row after row
//! weights in blocks           Packed          sixteen rows side by side (see packed.rs)
//! other block types, i64      u8              as in the file
//! weights of any type         Mapped          in the file (see mapped.rs), read-only
//! ```
//!
//! 32-bit integers are stored by their bits as f32, so that one arena holds both. Tensors of other types are stored as
//! bytes in an arena and copied out before they are used.

use super::mapped::Mapped;
use super::means::Means;
use super::packed::Packed;
use super::pages::{NoMemory, Pages, Plain, Store};
use super::team::Team;
use crate::device::Usage;
use half::{bf16, f16};
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::TensorType;
use trueup_kernels::PackedFormat;

/// One buffer.
#[derive(Debug)]
pub(super) struct Memory {
    ty: TensorType,
    cells: RwLock<Cells>,
}

/// Where buffers are made.
#[derive(Clone, Copy)]
pub(super) struct Room<'a> {
    /// Where weights lie.
    pub store: &'a Store,
    /// Whether weights are brought into the kernels' layout.
    pub repack: bool,
}

impl Room<'_> {
    /// So many zeros for a tensor; a problem where there is no memory for them.
    fn zeros<T: Plain>(self, len: usize, ty: &TensorType, usage: Usage) -> Result<Pages<T>, String> {
        let cells = if usage == Usage::Weight { self.store.zeros(len) } else { Pages::zeros(len) };
        cells.map_err(|NoMemory(bytes)| format!("not enough memory for {bytes} bytes of {ty}; {}", usage.remedy()))
    }

    /// A matrix of zeros in packed tiles; `None` if its type has no packed format.
    fn packed(self, ty: &TensorType, usage: Usage) -> Option<Result<Packed, String>> {
        let format = PackedFormat::of(ty.dtype)?;
        let units = self.zeros(Packed::units_of(format, ty), ty, usage);
        let (rows, blocks_per_row) = (ty.shape.rows(), ty.shape[0] / ty.dtype.block_len());
        Some(units.map(|units| Packed::new(format, units, rows, blocks_per_row)))
    }
}

/// What a buffer holds.
#[derive(Debug)]
pub(super) enum Cells {
    /// f32, or i32 by its bits.
    F32(Pages<f32>),
    /// f16.
    F16(Pages<f16>),
    /// bf16.
    Bf16(Pages<bf16>),
    /// Blocks, or i64, as in the file.
    Blocks(Pages<u8>),
    /// Blocks of weights in packed tiles.
    Packed(Packed),
    /// A weight in its file.
    Mapped(Mapped),
}

/// One tensor, to be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum View<'a> {
    /// f32, or i32 by its bits.
    F32(&'a [f32]),
    /// f16.
    F16(&'a [f16]),
    /// bf16.
    Bf16(&'a [bf16]),
    /// Blocks, or i64, as in the file.
    Blocks(&'a [u8]),
    /// Blocks of weights in packed tiles.
    Packed(&'a Packed),
}

/// One tensor, to be written.
#[derive(Debug)]
pub(super) enum Target<'a> {
    /// f32.
    F32(&'a mut [f32]),
    /// f16.
    F16(&'a mut [f16]),
    /// bf16.
    Bf16(&'a mut [bf16]),
    /// Blocks as in the file, or i64 as its bytes.
    Blocks(&'a mut [u8]),
}

impl Memory {
    /// Memory for a tensor, zero at first; a problem where its type cannot be kept or there is too little memory.
    pub fn new(ty: &TensorType, usage: Usage, room: Room) -> Result<Memory, String> {
        let cells = if usage == Usage::Arena {
            Cells::F32(room.zeros(ty.bytes().div_ceil(size_of::<f32>()), ty, usage)?)
        } else {
            Cells::new(ty, usage, room)?
        };
        Ok(Memory { ty: *ty, cells: RwLock::new(cells) })
    }

    /// A weight in its file; `None` where it cannot be read there.
    pub fn mapped(bytes: &MappedBytes, ty: &TensorType) -> Option<Memory> {
        let mapped = Mapped::new(bytes, ty.dtype)?;
        Some(Memory { ty: *ty, cells: RwLock::new(Cells::Mapped(mapped)) })
    }

    /// Whether nothing can be written here.
    pub fn is_mapped(&self) -> bool {
        matches!(*self.read(), Cells::Mapped(_))
    }

    /// The cells, shared. A panic of a writer leaves numbers behind, not broken memory.
    pub fn read(&self) -> RwLockReadGuard<'_, Cells> {
        self.cells.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cells, exclusive.
    pub fn write(&self) -> RwLockWriteGuard<'_, Cells> {
        self.cells.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether many tensors lie here.
    pub fn is_arena(&self) -> bool {
        self.ty.dtype == DType::I8
    }

    /// Whether kernels can read and write a tensor of this type where it lies here: a view not, and in an arena 32-bit
    /// words only.
    pub fn is_in_place(&self, ty: &TensorType) -> bool {
        ty.shape.is_dense() && (!self.is_arena() || is_word(ty.dtype))
    }

    /// Whether a tensor may lie here: anywhere in an arena, elsewhere only the tensor that the memory is for.
    pub fn check(&self, ty: &TensorType, offset_bytes: usize) -> Result<(), String> {
        let (held, whole_len) = (ty.held(), self.ty.shape.elements());
        let all = held.shape.elements() == whole_len || (!ty.shape.is_dense() && held.shape.elements() <= whole_len);
        let whole = offset_bytes == 0
            && ty.dtype == self.ty.dtype
            && all
            && (ty.dtype.block_len() == 1 || ty.shape[0] == self.ty.shape[0]);
        let part = self.is_arena()
            && offset_bytes.is_multiple_of(size_of::<f32>())
            && offset_bytes.checked_add(held.bytes()).is_some_and(|end| end <= self.ty.bytes());
        if whole || part { Ok(()) } else { Err(self.outside(ty, offset_bytes)) }
    }

    /// Whether the bytes of a tensor here can be read and written: of all that [`Memory::check`] allows, and of
    /// neighboring rows of a tensor whose rows are stored as in the file.
    pub fn check_bytes(&self, ty: &TensorType, offset_bytes: usize) -> Result<(), String> {
        let is_as_in_file = !matches!(*self.read(), Cells::Packed(_) | Cells::Mapped(_));
        let row_bytes = TensorType::new(self.ty.dtype, &[self.ty.shape[0]]).bytes().max(1);
        let rows = is_as_in_file
            && ty.dtype == self.ty.dtype
            && ty.shape.is_dense()
            && ty.shape[0] == self.ty.shape[0]
            && offset_bytes.is_multiple_of(row_bytes)
            && offset_bytes.checked_add(ty.bytes()).is_some_and(|end| end <= self.ty.bytes());
        if rows { Ok(()) } else { self.check(ty, offset_bytes) }
    }

    fn outside(&self, ty: &TensorType, offset_bytes: usize) -> String {
        format!("{ty} at byte {offset_bytes} is outside a buffer of {} bytes", self.ty)
    }
}

/// Takes cells from their bytes, on all threads.
fn each_cell<T: Send, const N: usize>(
    team: &Team,
    cells: &mut [T],
    bytes: &[[u8; N]],
    cell: impl Fn([u8; N]) -> T + Sync,
) {
    const PIECE: usize = 1 << 17;
    team.each(cells.chunks_mut(PIECE).zip(bytes.chunks(PIECE)), 1, |(cells, bytes)| {
        cells.iter_mut().zip(bytes).for_each(|(target, bytes)| *target = cell(*bytes));
    });
}

/// Whether elements are kept as 32-bit words.
fn is_word(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::I32)
}

/// The words that hold a tensor at `offset_bytes`; the last one may hold more.
pub(super) fn words(ty: &TensorType, offset_bytes: usize) -> Range<usize> {
    cells_of::<f32>(ty, offset_bytes)
}

/// The cells that hold a tensor at `offset_bytes`; the last one may hold more.
fn cells_of<T>(ty: &TensorType, offset_bytes: usize) -> Range<usize> {
    let start = offset_bytes / size_of::<T>();
    start..start + ty.bytes().div_ceil(size_of::<T>())
}

impl Cells {
    fn new(ty: &TensorType, usage: Usage, room: Room) -> Result<Cells, String> {
        if room.repack
            && usage == Usage::Weight
            && let Some(packed) = room.packed(ty, usage)
        {
            return Ok(Cells::Packed(packed?));
        }
        let len = ty.shape.elements();
        match ty.dtype {
            dtype if is_word(dtype) => Ok(Cells::F32(room.zeros(len, ty, usage)?)),
            DType::F16 => Ok(Cells::F16(room.zeros(len, ty, usage)?)),
            DType::Bf16 => Ok(Cells::Bf16(room.zeros(len, ty, usage)?)),
            DType::I64 => Ok(Cells::Blocks(room.zeros(ty.bytes(), ty, usage)?)),
            dtype if dtype.is_quantized() && dtype.decoder().is_some() => {
                Ok(Cells::Blocks(room.zeros(ty.bytes(), ty, usage)?))
            }
            dtype => Err(format!(
                "does not support {dtype}: convert the tensor to f32, f16, bf16, a K type or a type \
                with 32 elements per block"
            )),
        }
    }

    /// Takes bytes as in a GGUF file into the tensor that [`Memory::check_bytes`] allowed.
    pub fn take(&mut self, means: Means, bytes: &[u8], ty: &TensorType, offset_bytes: usize) {
        let team = means.team;
        match self {
            Cells::F32(cells) => {
                let targets = &mut cells[words(ty, offset_bytes)];
                let (whole, rest) = bytes.as_chunks();
                if let Some(cell) = targets.get_mut(whole.len()) {
                    let mut word = cell.to_bits().to_le_bytes();
                    word[..rest.len()].copy_from_slice(rest);
                    *cell = f32::from_bits(u32::from_le_bytes(word));
                }
                each_cell(team, targets, whole, |bytes| f32::from_bits(u32::from_le_bytes(bytes)));
            }
            Cells::F16(cells) => {
                let cells = &mut cells[cells_of::<f16>(ty, offset_bytes)];
                each_cell(team, cells, bytes.as_chunks().0, f16::from_le_bytes);
            }
            Cells::Bf16(cells) => {
                let cells = &mut cells[cells_of::<bf16>(ty, offset_bytes)];
                each_cell(team, cells, bytes.as_chunks().0, bf16::from_le_bytes);
            }
            Cells::Blocks(cells) => {
                let cells = &mut cells[cells_of::<u8>(ty, offset_bytes)];
                each_cell(team, cells, bytes.as_chunks().0, |[byte]: [u8; 1]| byte);
            }
            Cells::Packed(packed) => packed.pack(means, bytes),
            Cells::Mapped(_) => unreachable!("a mapped weight is refused before it is written"),
        }
    }

    /// Gives the bytes of the tensor that [`Memory::check_bytes`] allowed, as in a GGUF file.
    pub fn give(&self, team: &Team, ty: &TensorType, offset_bytes: usize, bytes: &mut [u8]) {
        match self {
            Cells::F32(cells) => {
                let cells = &cells[words(ty, offset_bytes)];
                let (whole, rest) = bytes.as_chunks_mut();
                for (cell, bytes) in cells.iter().zip(whole.iter_mut()) {
                    *bytes = cell.to_bits().to_le_bytes();
                }
                if let Some(cell) = cells.get(whole.len()) {
                    rest.copy_from_slice(&cell.to_bits().to_le_bytes()[..rest.len()]);
                }
            }
            Cells::F16(cells) => {
                let cells = &cells[cells_of::<f16>(ty, offset_bytes)];
                for (cell, bytes) in cells.iter().zip(bytes.as_chunks_mut().0) {
                    *bytes = cell.to_le_bytes();
                }
            }
            Cells::Bf16(cells) => {
                let cells = &cells[cells_of::<bf16>(ty, offset_bytes)];
                for (cell, bytes) in cells.iter().zip(bytes.as_chunks_mut().0) {
                    *bytes = cell.to_le_bytes();
                }
            }
            Cells::Blocks(cells) => bytes.copy_from_slice(&cells[cells_of::<u8>(ty, offset_bytes)]),
            Cells::Packed(packed) => packed.unpack(team, bytes),
            Cells::Mapped(mapped) => bytes.copy_from_slice(mapped.bytes()),
        }
    }

    /// The tensor that [`Memory::check`] allowed.
    pub fn view(&self, ty: &TensorType, offset_bytes: usize) -> View<'_> {
        match self {
            Cells::F32(cells) => View::F32(&cells[words(ty, offset_bytes)]),
            Cells::F16(cells) => View::F16(cells),
            Cells::Bf16(cells) => View::Bf16(cells),
            Cells::Blocks(cells) => View::Blocks(cells),
            Cells::Packed(packed) => View::Packed(packed),
            Cells::Mapped(mapped) => mapped.view(),
        }
    }
}

/// The output's cells and, where they are part of an arena, what lies on either side of them.
pub(super) struct Split<'a> {
    /// The output.
    pub target: Target<'a>,
    before: &'a [f32],
    after: &'a [f32],
    after_start: usize,
}

impl<'a> Split<'a> {
    /// Takes the output out of its buffer; a problem where results of its type cannot be written.
    pub fn new(cells: &'a mut Cells, ty: &TensorType, offset_bytes: usize) -> Result<Split<'a>, String> {
        match cells {
            Cells::F32(cells) => {
                let Range { start, end } = words(ty, offset_bytes);
                let (before, rest) = cells.split_at_mut(start);
                let (output, after) = rest.split_at_mut(end - start);
                Ok(Split { target: Target::F32(output), before, after, after_start: end })
            }
            Cells::F16(cells) => Ok(Split::whole(Target::F16(cells))),
            Cells::Bf16(cells) => Ok(Split::whole(Target::Bf16(cells))),
            Cells::Blocks(cells) => Ok(Split::whole(Target::Blocks(cells))),
            Cells::Packed(_) => Err(format!("cannot write results of type {}", ty.dtype)),
            Cells::Mapped(_) => Err(format!("{ty} is mapped from the model file and cannot be written")),
        }
    }

    /// An output that is alone in its buffer.
    fn whole(target: Target<'a>) -> Split<'a> {
        Split { target, before: &[], after: &[], after_start: usize::MAX }
    }

    /// An input that lies in the output's buffer; a problem where the two overlap.
    pub fn beside(&self, ty: &TensorType, offset_bytes: usize) -> Result<View<'a>, String> {
        let Range { start, end } = words(ty, offset_bytes);
        if end <= self.before.len() {
            return Ok(View::F32(&self.before[start..end]));
        }
        let behind = start
            .checked_sub(self.after_start)
            .and_then(|start| self.after.get(start..)?.get(..end - self.after_start - start));
        behind.map(View::F32).ok_or_else(|| format!("{ty} at byte {offset_bytes} overlaps the output"))
    }
}
