//! Rows, tokens or heads that are right, at the wrong place.

use super::{Evidence, SignatureKind, close};

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
        let holds = |slice: usize, other: usize| holds(evidence, &sizes, dimension, slice, other);
        Some((SignatureKind::Moved, described(&found?, &slices, sizes[dimension], name, holds)?))
    })
}

/// Whether the device has at `slice` what `other` should hold.
fn holds(evidence: &Evidence, sizes: &[usize; 4], dimension: usize, slice: usize, other: usize) -> bool {
    let mut pairs = elements(sizes, dimension, slice).zip(elements(sizes, dimension, other));
    pairs.all(|(index, other)| evidence.fits(index, other))
}

/// Which slice's expectation the device has at `slice`: the only one, or none.
fn source(evidence: &Evidence, sizes: &[usize; 4], dimension: usize, slice: usize) -> Option<usize> {
    let fits = |other: &usize| holds(evidence, sizes, dimension, slice, *other);
    // The next ones come first: a shift is likelier than a coincidence far away.
    let near = [slice.wrapping_sub(1), slice + 1];
    let near = near.into_iter().filter(|other| *other < sizes[dimension]);
    let all = (0..sizes[dimension].min(CANDIDATES_MAX)).filter(|other| *other != slice);
    near.chain(all).find(fits)
}

/// The pattern of the `(place, source)` pairs `found`, which are those of the first of the bad slices; it must hold for
/// all of `bad`.
fn described(
    found: &[(usize, usize)],
    bad: &[usize],
    size: usize,
    name: &str,
    holds: impl Fn(usize, usize) -> bool,
) -> Option<String> {
    let (first, source) = *found.first()?;
    if bad.len() == 2 && found.get(1) == Some(&(source, first)) {
        return Some(format!("{name}s {first} and {source} are swapped"));
    }
    let rest = &bad[found.len()..];
    let all = |rule: &dyn Fn(usize) -> usize| {
        let known = found.iter().all(|(place, from)| *from == rule(*place));
        known && rest.iter().all(|place| holds(*place, rule(*place)))
    };
    if all(&|_| source) {
        return Some(match bad.len() {
            1 => format!("{name} {first} contains the values of {name} {source}"),
            count if count + 1 == size => format!("all {name}s contain the values of {name} {source}"),
            count => format!("{count} {name}s, starting at {first}, contain the values of {name} {source}"),
        });
    }
    let distance = (source + size - first) % size;
    let shift = if 2 * distance > size { distance as isize - size as isize } else { distance as isize };
    if all(&|place| (place + distance) % size) {
        let count = bad.len();
        let inside = |place: &usize| (0..size as isize).contains(&(*place as isize + shift));
        let wraps = if bad.iter().all(inside) { "" } else { ", wrapping around" };
        let other = match shift {
            1 => format!("the next {name}"),
            -1 => format!("the previous {name}"),
            shift if shift > 0 => format!("the {name} {shift} places after it"),
            shift => format!("the {name} {} places before it", shift.unsigned_abs()),
        };
        let which = if count == size {
            format!("each of the {count} {name}s")
        } else {
            format!("each of {count} {name}s, starting at {first},")
        };
        return Some(format!("{which} contains the values of {other}{wraps}"));
    }
    let pairs: Vec<String> = found.iter().take(4).map(|(place, from)| format!("{from} at {place}")).collect();
    rest.is_empty().then(|| format!("{} {name}s are permuted: {} ...", bad.len(), pairs.join(", ")))
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

/// Whether two values are the same but for noise; for patterns that know what an element should be otherwise.
pub(super) fn same(evidence: &Evidence, index: usize, value: f64) -> bool {
    evidence.expected[index].is_some_and(|expected| close(evidence.scene.device[index], &expected, value))
}
