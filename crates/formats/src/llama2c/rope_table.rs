//! The rope angles that a version 0 file carries: which base they were made with.
//!
//! ```text
//! cosines [context, head / 2] | sines [context, head / 2]        angle(p, i) = p * theta^(-2 i / head)
//! ```
//!
//! Today's programs ignore the tables and compute with theta 10000; a model that was trained with another theta says so
//! only here. The table is compared with 10000 first, then with the theta that its smallest angle gives. A table that
//! fits neither is made by a rule of its own (scaled positions, for example) and refused.

use super::THETA;
use super::header::Header;
use super::layout::F32_BYTES;
use crate::error::{Error, Result};
use crate::source_file::SourceFile;

/// Half a unit in the last place of an f32, relative.
const HALF_ULP: f64 = 1.0 / 16_777_216.0;

/// Thetas that a table can speak of.
const THETAS: std::ops::RangeInclusive<f64> = 1.0..=1e12;

/// The base of the angles in the file; `angles` is the byte where the cosines start.
pub(super) fn theta(source: &SourceFile, header: &Header, angles: u64) -> Result<f64> {
    let table = Table::new(source, header, angles);
    let Err(difference) = table.compare(THETA)? else { return Ok(THETA) };
    let solved = table.solve()?;
    if let Some(theta) = solved
        && table.compare(theta)?.is_ok()
    {
        return Ok(theta);
    }
    let guess = solved.map_or_else(String::new, |theta| format!(" nor with theta {theta}"));
    Err(Error::new(source.path(), format!("the rope table matches neither theta {THETA}{guess}: {difference}"))
        .at("freqs_cos, freqs_sin")
        .help("the model uses a rope that this format cannot describe; convert it from its original checkpoint"))
}

struct Table<'a> {
    source: &'a SourceFile,
    /// Byte of the first cosine.
    start: u64,
    positions: u64,
    /// Pairs in a head.
    pairs: u64,
}

impl<'a> Table<'a> {
    fn new(source: &'a SourceFile, header: &Header, start: u64) -> Table<'a> {
        let pairs = header.head_dim().checked_div(2).unwrap_or(0);
        Table { source, start, positions: header.context, pairs }
    }

    /// Cosines and sines of one position.
    fn row(&self, position: u64) -> Result<Vec<(f32, f32)>> {
        let row_bytes = self.pairs.saturating_mul(F32_BYTES);
        let cosines = self.start.saturating_add(position.saturating_mul(row_bytes));
        let sines = cosines.saturating_add(self.positions.saturating_mul(row_bytes));
        let read = |start| {
            let mut bytes = vec![[0_u8; 4]; usize::try_from(self.pairs).unwrap_or(usize::MAX)];
            self.source.read_at(start, bytes.as_flattened_mut())?;
            Ok(bytes.into_iter().map(f32::from_le_bytes))
        };
        Ok(read(cosines)?.zip(read(sines)?).collect())
    }

    /// How many turns per position pair number `pair` makes with a theta: `theta^(-2 i / head)`, in radians.
    fn frequency(&self, theta: f64, pair: u32) -> f64 {
        let pairs = u32::try_from(self.pairs).map_or(f64::INFINITY, f64::from);
        theta.powf(-f64::from(pair) / pairs)
    }

    /// Whether every number agrees with a theta; else the first that does not.
    ///
    /// The writer computes in f32: the exponent is rounded (an error of `ln theta` half units in the power), and the
    /// power, its inverse and the product with the position by a few half units each. A relative error of the angle
    /// moves cosine and sine by at most that part of the angle, and each is rounded once more. All doubled, since
    /// libraries differ in the last place.
    fn compare(&self, theta: f64) -> Result<std::result::Result<(), String>> {
        let relative = 2.0 * (theta.ln() + 8.0) * HALF_ULP;
        for position in 0..self.positions {
            let place = u32::try_from(position).map_or(f64::INFINITY, f64::from);
            for (pair, (cosine, sine)) in (0_u32..).zip(self.row(position)?) {
                let angle = place * self.frequency(theta, pair);
                let tolerance = angle * relative + 4.0 * HALF_ULP;
                let agrees = |found: f32, expected: f64| (f64::from(found) - expected).abs() <= tolerance;
                if !(agrees(cosine, angle.cos()) && agrees(sine, angle.sin())) {
                    let (cos, sin) = (angle.cos(), angle.sin());
                    return Ok(Err(format!(
                        "at position {position}, pair {pair}, expected {cos:.7} and {sin:.7}, found {cosine:.7} and {sine:.7}"
                    )));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The theta that the smallest angle of position 1 stands for: `angle = theta^(-i / pairs)`. A base that was meant
    /// as a whole number is given back as one.
    fn solve(&self) -> Result<Option<f64>> {
        if self.positions < 2 {
            return Ok(None);
        }
        let row = self.row(1)?;
        let Some((last, (cosine, sine))) = (0_u32..).zip(row).last().filter(|(last, _)| *last > 0) else {
            return Ok(None);
        };
        let angle = f64::from(sine).atan2(f64::from(cosine));
        let pairs = f64::from(last) + 1.0;
        let theta = angle.powf(-pairs / f64::from(last));
        let whole = theta.round();
        let theta = if (theta - whole).abs() <= 1e-5 * theta { whole } else { theta };
        Ok(Some(theta).filter(|theta| THETAS.contains(theta)))
    }
}
