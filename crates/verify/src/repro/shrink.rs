//! Cuts a failing scene by halves along tokens, rows and depth for as long as it still fails on the device.

use super::execute::execute;
use crate::activation::BLOCK_LEN;
use crate::bound::gate;
use crate::plant::fits_alone;
use crate::scene::{Axis, Scene};
use trueup_runtime::device::Device;

/// Runs on the device that one node costs at most.
const TRIES_MAX: usize = 64;

/// The smallest scene found that fails on `device`, with the result it had there; `None` where the whole does not fail
/// when it is run alone. A scene that can have the fault `planted` is cut no smaller than it still can.
pub(super) fn shrink(scene: &Scene, index: usize, device: &dyn Device, planted: Option<&str>) -> Option<Scene> {
    let planted = planted.filter(|name| fits_alone(name, scene));
    let mut search = Search { index, device, planted, tries: TRIES_MAX };
    let mut smallest = search.failing(scene.clone())?;
    // Fewer tokens first: they make all further runs cheaper.
    for axis in [Axis::Tokens, Axis::Rows, Axis::Depth] {
        smallest = search.along(smallest, axis);
    }
    Some(smallest)
}

struct Search<'a> {
    index: usize,
    device: &'a dyn Device,
    planted: Option<&'a str>,
    tries: usize,
}

impl Search<'_> {
    /// The scene as the device computes it now, if that fails.
    fn failing(&mut self, scene: Scene) -> Option<Scene> {
        if self.planted.is_some_and(|name| !fits_alone(name, &scene)) {
            return None;
        }
        self.tries = self.tries.checked_sub(1)?;
        let computed = execute(&scene, self.index, self.device).ok()?;
        let (statistics, _) = computed.judged();
        gate(&computed.op).verdict(&statistics, false).fails().then_some(computed)
    }

    /// Leaves out pieces of the axis: halves, then quarters, down to single ones.
    fn along(&mut self, mut scene: Scene, axis: Axis) -> Scene {
        let Some(len) = scene.len(axis) else { return scene };
        let unit = if axis == Axis::Depth { granule(&scene) } else { 1 };
        let mut units = len / unit;
        let mut piece = units.div_ceil(2);
        while piece > 0 && units > 1 && len.is_multiple_of(unit) {
            let mut start = 0;
            while start < units && units > piece {
                let kept = (0..units).filter(|place| !(start..start + piece).contains(place));
                let keep: Vec<usize> = kept.flat_map(|place| place * unit..(place + 1) * unit).collect();
                match scene.pick(axis, &keep).and_then(|smaller| self.failing(smaller)) {
                    Some(smaller) => {
                        scene = smaller;
                        units = keep.len() / unit;
                    }
                    None => start += piece,
                }
            }
            piece = if piece == 1 { 0 } else { piece.div_ceil(2).min(units) };
        }
        scene
    }
}

/// What the depth of a sum is cut in: whole blocks of weights and of quantized activations.
fn granule(scene: &Scene) -> usize {
    let blocks = scene.inputs.iter().map(|input| input.ty.dtype.block_len());
    blocks.max().unwrap_or(1).max(BLOCK_LEN)
}
