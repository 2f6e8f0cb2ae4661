//! Right rows at wrong indices: what enters the KV cache, what is taken from a table, and old activations.
//!
//! A supposition counts where the node would pass if its inputs were those supposed.

use super::{Evidence, SignatureKind};
use crate::bound::gate;
use crate::cached::expected_rows;
use crate::explain::Supposed;
use crate::scene::{Content, Scene};
use crate::statistics::Expected;
use trueup_formats::counted;
use trueup_graph::Op;

/// Whether the device's result would pass if input `input` held `content`; `None` where it holds that already.
fn passes_with(scene: &Scene, input: usize, content: Content) -> bool {
    if scene.inputs[input].content == content {
        return false;
    }
    let mut supposed = scene.clone();
    supposed.inputs[input].content = content;
    gate(&supposed.op).verdict(&supposed.judged().0, false).passes()
}

/// A row that entered the KV cache at another place than its index says, or not at all.
pub(super) fn cache_row(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let scene = evidence.scene;
    if !matches!(scene.op, Op::KvStore(_)) {
        return None;
    }
    let [cache, _, rows] = scene.inputs.as_slice() else { return None };
    let Content::Integers(wanted) = &rows.content else { return None };
    let kind = SignatureKind::CacheRow;
    let same = scene.device.iter().zip(cache.operand().all().iter()).all(|(device, before)| device == before);
    if same {
        return Some((kind, "no row was written to the cache".to_owned()));
    }
    let (room, all) = (scene.output.shape[1] as i32, scene.output.shape.rows());
    if room > 0 {
        let first: Vec<i32> = wanted.iter().map(|row| row % room).collect();
        if passes_with(scene, 2, Content::Integers(first)) {
            return Some((kind, "rows of every sequence are written to the cache of the first sequence".to_owned()));
        }
    }
    let shift = shift(scene, *wanted.first()?)?;
    let moved = wanted.iter().map(|row| row.checked_add(shift).filter(|row| (0..all as i32).contains(row)));
    let moved: Vec<i32> = moved.collect::<Option<_>>()?;
    let side = if shift > 0 { "after" } else { "before" };
    passes_with(scene, 2, Content::Integers(moved)).then(|| {
        (kind, format!("rows are written {} {side} their index", counted(u64::from(shift.unsigned_abs()), "row")))
    })
}

/// How far from its index the first token's row lies in the cache; near places come first.
fn shift(scene: &Scene, wanted: i32) -> Option<i32> {
    let (width, rows) = (scene.output.shape[0], scene.output.shape.rows() as i32);
    let mut buffer = Vec::new();
    let x = expected_rows(scene.output.dtype, scene.inputs[1].operand().row(0, &mut buffer), true);
    let lies = |row: &i32| {
        let same = |(found, x): (&f64, &Expected)| found == &x.declared || (found - x.declared).abs() <= x.ties;
        (0..rows).contains(row) && scene.device[*row as usize * width..][..width].iter().zip(&x).all(same)
    };
    let near = [wanted.checked_add(1), wanted.checked_sub(1)].into_iter().flatten();
    near.chain(0..rows).filter(|row| *row != wanted).find(lies).map(|found| found - wanted)
}

/// The first rows of a table instead of those that are asked for.
pub(super) fn first_rows(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let scene = evidence.scene;
    if !matches!(scene.op, Op::GetRows(_)) {
        return None;
    }
    let Content::Integers(wanted) = &scene.inputs.get(1)?.content else { return None };
    let rows = scene.inputs[0].ty.shape[1];
    let inside = wanted.len() <= rows && i32::try_from(rows).is_ok();
    let in_order = Content::Integers((0..wanted.len() as i32).collect());
    let found = inside && passes_with(scene, 1, in_order);
    found.then(|| (SignatureKind::Moved, "the first rows are read, whatever the index".to_owned()))
}

/// Rows of a result that a supposition is tried on first: the whole is judged only where they fit.
const ROWS: usize = 64;

/// The activations of the step before, or of another node.
pub(crate) fn old_activations(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let scene = evidence.scene;
    let worst = *evidence.bad.first()?;
    let sample = scene.sampled(worst, ROWS, usize::MAX);
    let passes = |scene: &Scene, input, content: &[f64]| passes_with(scene, input, Content::Numbers(content.to_vec()));
    let fits = |supposed: &&Supposed| {
        let (input, content) = (supposed.input, supposed.content.as_slice());
        let whole = sample.inputs[input].ty == scene.inputs[input].ty;
        (!whole || passes(&sample, input, content)) && passes(scene, input, content)
    };
    evidence.supposed.iter().find(fits).map(|supposed| (SignatureKind::Stale, supposed.text.clone()))
}
