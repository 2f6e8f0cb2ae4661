//! Rows, tokens or heads that are right, at the wrong place.

use super::{Evidence, SignatureKind, close};
use trueup_graph::Op;

/// Wrong slices that are searched for at most.
const SLICES_MAX: usize = 64;

/// Slices that a search looks through at most.
const CANDIDATES_MAX: usize = 65_536;

/// The elements of slice `slice` along a dimension, in order.
fn elements(sizes: &[usize; 4], dimension: usize, slice: usize) -> impl Iterator<Item = usize> {
    let inner: usize = sizes[..dimension].iter().product();
    let outer: usize = sizes[dimension + 1..].iter().product();
    let size = sizes[dimension];
    (0..outer).flat_map(move |block| (0..inner).map(move |place| (block * size + slice) * inner + place))
}

/// The slices along a dimension that hold a bad element.
fn bad_slices(evidence: &Evidence, sizes: &[usize; 4], dimension: usize) -> Vec<usize> {
    let inner: usize = sizes[..dimension].iter().product();
    let mut slices: Vec<usize> = evidence.bad.iter().map(|index| index / inner % sizes[dimension]).collect();
    slices.sort_unstable();
    slices.dedup();
    slices
}

/// Slices along one dimension, each equal to what another one should be.
pub(super) fn moved(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let sizes = evidence.scene.output.shape.sizes();
    if evidence.expected.iter().any(Option::is_none) {
        return None;
    }
    // Outer dimensions first: where tokens are exchanged, so is every row of them.
    (0..4).rev().filter(|dimension| sizes[*dimension] > 1).find_map(|dimension| {
        let name = *evidence.axes.get(dimension)?;
        let slices = bad_slices(evidence, &sizes, dimension);
        let searched = &slices[..slices.len().min(SLICES_MAX)];
        let found: Option<Vec<(usize, usize)>> =
            searched.iter().map(|slice| Some((*slice, source(evidence, &sizes, dimension, *slice)?))).collect();
        found.map(|found| (SignatureKind::Moved, describe(&found, slices.len(), name)))
    })
}

/// Which slice's expectation the device has at `slice`: the only one, or none.
fn source(evidence: &Evidence, sizes: &[usize; 4], dimension: usize, slice: usize) -> Option<usize> {
    let fits = |other: &usize| {
        let pairs = elements(sizes, dimension, slice).zip(elements(sizes, dimension, *other));
        pairs.into_iter().all(|(index, other)| evidence.fits(index, other))
    };
    // The next ones come first: a shift is likelier than a coincidence far away.
    let near = [slice.wrapping_sub(1), slice + 1];
    let near = near.into_iter().filter(|other| *other < sizes[dimension]);
    let all = (0..sizes[dimension].min(CANDIDATES_MAX)).filter(|other| *other != slice);
    near.chain(all).find(fits)
}

/// The pattern of `(place, source)` pairs.
fn describe(found: &[(usize, usize)], bad: usize, name: &str) -> String {
    let (first, source) = found[0];
    let shift = source as isize - first as isize;
    let exchanged = found.len() == 2 && found[1] == (source, first);
    if exchanged {
        return format!("{name}s {first} and {source} are exchanged");
    }
    if found.iter().all(|(_, from)| *from == source) {
        return if bad > 1 {
            format!("{bad} {name}s, from {first} on, hold what {name} {source} should hold")
        } else {
            format!("{name} {first} holds what {name} {source} should hold")
        };
    }
    if found.iter().all(|(place, from)| *from as isize - *place as isize == shift) {
        return format!(
            "{bad} {name}s, from {first} on, hold what the {name} {shift:+} should hold: shifted by {}",
            -shift
        );
    }
    let pairs: Vec<String> = found.iter().take(4).map(|(place, from)| format!("{from} at {place}")).collect();
    format!("{bad} {name}s are permuted: {} ...", pairs.join(", "))
}

/// A matrix stored in the other order.
pub(super) fn transposed(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let sizes = evidence.scene.output.shape.sizes();
    let pairs = [(0, 1), (1, 2), (0, 2)];
    pairs.into_iter().filter(|(a, b)| sizes[*a] > 1 && sizes[*b] > 1).find_map(|(a, b)| {
        let fits = (0..evidence.scene.device.len()).all(|index| evidence.fits(exchanged(index, &sizes, a, b), index));
        let names = [evidence.axes.get(a)?, evidence.axes.get(b)?];
        let text = format!("{}s and {}s are transposed in memory", names[0], names[1]);
        fits.then_some((SignatureKind::Transposed, text))
    })
}

/// Where element `index` lies when dimensions `a` and `b` change places in memory.
fn exchanged(index: usize, sizes: &[usize; 4], a: usize, b: usize) -> usize {
    let mut places = [0; 4];
    let mut rest = index;
    for (place, size) in places.iter_mut().zip(sizes) {
        *place = rest % size;
        rest /= size;
    }
    let mut other = *sizes;
    other.swap(a, b);
    places.swap(a, b);
    (0..4).rev().fold(0, |index, dimension| index * other[dimension] + places[dimension])
}

/// A row that entered the KV cache at another place than its index says.
pub(super) fn cache_row(evidence: &Evidence) -> Option<(SignatureKind, String)> {
    let scene = evidence.scene;
    if !matches!(scene.op, Op::KvStore(_)) {
        return None;
    }
    let (width, rows) = (scene.output.shape[0], scene.output.shape.rows());
    let precision = crate::precision::Precision::of(scene.output.dtype);
    let [x, index] = [1, 2].map(|input| scene.inputs[input].operand());
    let mut shifts = Vec::new();
    for (token, wanted) in index.indices().iter().enumerate() {
        let mut buffer = Vec::new();
        let x: Vec<f64> = x.row(token, &mut buffer).iter().map(|value| precision.round(*value)).collect();
        let same = |row: &usize| scene.device[row * width..][..width] == x[..];
        let wanted = usize::try_from(*wanted).ok()?;
        let found = [wanted, wanted + 1, wanted.wrapping_sub(1)].into_iter().filter(|row| *row < rows).find(same);
        let found = found.or_else(|| (0..rows).find(same));
        shifts.push(found.map(|found| found as isize - wanted as isize));
    }
    let first = *shifts.first()?;
    if shifts.iter().any(|shift| *shift != first) || first == Some(0) {
        return None;
    }
    let text = first.map_or("no row entered the cache".to_owned(), |shift| {
        format!(
            "rows enter the cache {} {} their index says",
            shift.unsigned_abs(),
            if shift > 0 { "behind where" } else { "before where" }
        )
    });
    Some((SignatureKind::CacheRow, text))
}

/// Whether two values are the same but for noise; for patterns that know what an element should be otherwise.
pub(super) fn same(evidence: &Evidence, index: usize, value: f64) -> bool {
    evidence.expected[index].is_some_and(|expected| close(evidence.scene.device[index], &expected, value))
}
