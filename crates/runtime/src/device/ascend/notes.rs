//! What compositions derived from uploaded inputs. A captured graph is valid as long as these facts hold.
//!
//! ```text
//! Must::Be           the same indices: tokens of the same sequences
//! Must::LieBelow     any row indices of a table: the card reads them itself
//! Must::Differ       and all of them different: rows that are written
//! a table            numbers derived from inputs, recomputed when these change: angles of positions
//! ```

use super::acl::Transfers;
use super::memory::Memory;
use super::table::{Numbers, Table};
use crate::device::{Step, Tensor};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// What the indices of an input must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Must {
    /// These.
    Be(Vec<i32>),
    /// From 0 to below a count.
    LieBelow(usize),
    /// From 0 to below a count, no two of them alike.
    Differ(usize),
}

impl Must {
    fn holds(&self, indices: &[i32]) -> bool {
        match self {
            Must::Be(known) => known == indices,
            Must::LieBelow(count) => outside(indices, *count).is_none(),
            Must::Differ(count) => {
                let mut seen = HashSet::new();
                outside(indices, *count).is_none() && indices.iter().all(|index| seen.insert(index))
            }
        }
    }
}

/// The first index that does not lie between 0 and a count.
pub fn outside(indices: &[i32], count: usize) -> Option<i32> {
    indices.iter().copied().find(|index| usize::try_from(*index).map_or(true, |index| index >= count))
}

/// Indices from their bytes.
pub fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
}

/// What was noted of a list of steps.
#[derive(Default, Debug)]
pub struct Notes {
    /// The step that is composed.
    step: usize,
    needs: Vec<Need>,
    tables: Vec<Follows>,
    /// Whether something was made of what the card computed.
    is_of_results: bool,
}

/// An input by its place, and what it must hold.
#[derive(Debug)]
struct Need {
    input: Input,
    must: Must,
}

/// An input: which step's, which of them.
type Input = (usize, usize);

/// A table, and the inputs that it follows from.
struct Follows {
    inputs: Vec<Input>,
    table: Arc<Table>,
    numbers: Numbers,
}

impl fmt::Debug for Follows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follows").field("inputs", &self.inputs).field("table", &self.table).finish_non_exhaustive()
    }
}

impl Notes {
    /// What follows is noted of the step with this number.
    pub fn turn_to(&mut self, step: usize) {
        self.step = step;
    }

    /// An input was relied on.
    pub fn needs(&mut self, input: usize, must: Must) {
        self.needs.push(Need { input: (self.step, input), must });
    }

    /// A table was used that follows from inputs.
    pub fn follows(&mut self, inputs: &[usize], table: &Arc<Table>, numbers: Numbers) {
        if self.tables.iter().any(|known| Arc::ptr_eq(&known.table, table)) {
            return;
        }
        let inputs = inputs.iter().map(|input| (self.step, *input)).collect();
        self.tables.push(Follows { inputs, table: Arc::clone(table), numbers });
    }

    /// What the card computed was looked at: what was made of it fits this time only.
    pub fn looks_at_results(&mut self) {
        self.is_of_results = true;
    }

    /// Whether all follows from what the host wrote.
    pub fn are_whole(&self) -> bool {
        !self.is_of_results
    }

    /// Drops what says the same of the same tensor: layers rely on inputs that they share.
    pub fn reduce(&mut self, steps: &[Step]) {
        let mut kept: Vec<Need> = Vec::new();
        for need in self.needs.drain(..) {
            let is_same = |known: &Need| known.must == need.must && is_one(known.input, need.input, steps);
            if !kept.iter().any(is_same) {
                kept.push(need);
            }
        }
        self.needs = kept;
    }

    /// Whether what was made fits what the inputs of the same steps hold now, but for tables.
    pub fn hold(&self, steps: &[Step]) -> bool {
        let fits = |need: &Need| written(need.input, steps).is_some_and(|bytes| need.must.holds(&integers(&bytes)));
        self.needs.iter().all(fits) && self.tables.iter().all(|table| table.sources(steps).is_some())
    }

    /// Makes tables follow from what inputs hold now.
    pub fn fill_tables(&self, steps: &[Step], transfers: &Transfers) -> Result<(), String> {
        self.tables.iter().try_for_each(|follows| {
            let sources = follows.sources(steps).ok_or("an input that a table depends on was not written")?;
            follows.table.fill(transfers, &sources, &follows.numbers)
        })
    }
}

impl Follows {
    fn sources(&self, steps: &[Step]) -> Option<Vec<Vec<u8>>> {
        self.inputs.iter().map(|input| written(*input, steps)).collect()
    }
}

fn tensor((step, input): Input, steps: &[Step]) -> Option<&Tensor> {
    steps.get(step)?.inputs.get(input)
}

/// What the host wrote to an input.
fn written(input: Input, steps: &[Step]) -> Option<Vec<u8>> {
    let tensor = tensor(input, steps)?;
    Memory::of(tensor).ok()?.written(tensor)
}

fn is_one(a: Input, b: Input, steps: &[Step]) -> bool {
    let same = |a: &Tensor, b: &Tensor| {
        Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a.offset_bytes == b.offset_bytes && a.ty == b.ty
    };
    tensor(a, steps).zip(tensor(b, steps)).is_some_and(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_fit_what_was_made_of_others() {
        let cases = [
            (Must::Be(vec![2, 2]), vec![2, 2], true),
            (Must::Be(vec![2, 2]), vec![2, 1], false),
            (Must::Be(vec![2, 2]), vec![2], false),
            (Must::LieBelow(3), vec![2, 2, 0], true),
            (Must::LieBelow(3), vec![3], false),
            (Must::LieBelow(3), vec![-1], false),
            (Must::Differ(3), vec![2, 0], true),
            (Must::Differ(3), vec![2, 0, 2], false),
            (Must::Differ(3), vec![2, 3], false),
        ];
        for (must, indices, fits) in cases {
            assert_eq!(must.holds(&indices), fits, "{must:?} {indices:?}");
        }
    }
}
