//! Parsers for argument values.

use clap::builder::PossibleValuesParser;
use regex::Regex;
use std::str::FromStr;
use trueup::blocks::DType;
use trueup::formats::{quote, regex_reason};
use trueup::quantize::{Scheme, written_type, written_types};
use trueup::runtime::device::cpu::Isa;

/// Parses a size in bytes: `4096`, `512K`, `300M`, `2G` or `2GiB`. Units are powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let given = text;
    let text = text.strip_suffix("iB").filter(|text| text.ends_with(['K', 'M', 'G'])).unwrap_or(text);
    let (digits, unit) = match text.char_indices().last() {
        Some((last, 'k' | 'K')) => (&text[..last], 1 << 10),
        Some((last, 'm' | 'M')) => (&text[..last], 1 << 20),
        Some((last, 'g' | 'G')) => (&text[..last], 1 << 30),
        _ => (text, 1),
    };
    let count: u64 = digits.parse().map_err(|_| {
        format!("expected a size such as 4096, 300M or 6GiB, found {}; K, M and G are powers of 1024", quote(given))
    })?;
    let bytes = count.checked_mul(unit).ok_or_else(|| "expected fewer than 2^64 bytes".to_owned())?;
    if bytes == 0 { Err("expected more than 0 bytes".to_owned()) } else { Ok(bytes) }
}

/// The size of `--target`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TargetSize {
    /// Bytes of the file.
    Bytes(u64),
    /// Bits of the file for each weight.
    BitsPerWeight(f64),
}

impl TargetSize {
    /// As bytes, for a model with this number of weights.
    pub fn bytes(self, weights: u64) -> u64 {
        match self {
            TargetSize::Bytes(bytes) => bytes,
            TargetSize::BitsPerWeight(bits) => (bits * weights as f64 / 8.0) as u64,
        }
    }
}

/// Parses the size of a file in bytes, such as `300M` or `4.6GiB`, or in bits per weight, such as `4.5bpw`.
pub fn target_size(text: &str) -> Result<TargetSize, String> {
    let expected = || {
        format!(
            "expected a size such as 300M, 4.6GiB or 4.5bpw, found {}; K, M, G and T are powers of 1024",
            quote(text)
        )
    };
    let number = |digits: &str| {
        let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        digits.parse::<f64>().ok().filter(|number| is_plain && number.is_finite())
    };
    let positive = |number: f64| if number > 0.0 { Ok(number) } else { Err("expected a size above 0".to_owned()) };
    if let Some(digits) = text.strip_suffix("bpw") {
        return positive(number(digits).ok_or_else(expected)?).map(TargetSize::BitsPerWeight);
    }
    let short = text.strip_suffix("iB").filter(|text| text.ends_with(['K', 'M', 'G', 'T'])).unwrap_or(text);
    let (digits, unit) = match short.char_indices().last() {
        Some((last, 'k' | 'K')) => (&short[..last], 1u64 << 10),
        Some((last, 'm' | 'M')) => (&short[..last], 1 << 20),
        Some((last, 'g' | 'G')) => (&short[..last], 1 << 30),
        Some((last, 't' | 'T')) => (&short[..last], 1 << 40),
        _ => (short, 1),
    };
    let bytes = positive(number(digits).ok_or_else(expected)?)? * unit as f64;
    if unit == 1 && bytes.fract() != 0.0 {
        return Err(expected());
    }
    if bytes < 2f64.powi(63) {
        Ok(TargetSize::Bytes(bytes as u64))
    } else {
        Err("expected fewer than 2^63 bytes".to_owned())
    }
}

/// Parses a tensor type that can be written.
pub fn tensor_type(text: &str) -> Result<DType, String> {
    written_type(text).ok_or_else(|| format!("expected one of {}", names(written_types().map(DType::name))))
}

/// Parses a tensor type, or the name of a recipe.
pub fn scheme(text: &str) -> Result<Scheme, String> {
    let scheme = Scheme::from_name(text).filter(Scheme::is_written);
    scheme.ok_or_else(|| format!("expected one of {}", names(Scheme::written().map(|scheme| scheme.name()))))
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Parses a regular expression. The error is one line.
pub fn regex(text: &str) -> Result<Regex, String> {
    let expected =
        |error: regex::Error| format!("expected a valid regular expression: {}", regex_reason(&error.to_string()));
    Regex::new(text).map_err(expected)
}

/// The instruction sets this build has kernels for, including those this machine cannot run.
pub fn instruction_sets() -> PossibleValuesParser {
    PossibleValuesParser::new(Isa::ALL.iter().rev().map(|isa| isa.name()))
}

/// Largest number of threads.
const THREADS_MAX: usize = 1024;

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
    count.ok_or_else(|| format!("expected a number from 1 to {THREADS_MAX}"))
}

/// Parses a number of tokens greater than 0.
pub fn tokens(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// Parses a whole number of at least 0.
pub fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number of at least 0".to_owned())
}

/// Parses a limit of generated tokens; -1 means no limit.
pub fn tokens_max(text: &str) -> Result<TokensMax, String> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(TokensMax(None)),
        Ok(count) if count >= 0 => Ok(TokensMax(usize::try_from(count).ok())),
        Ok(_) | Err(_) => Err("expected a whole number, or -1 for no limit".to_owned()),
    }
}

/// A limit of generated tokens; `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokensMax(pub Option<usize>);

/// Parses the number of tokens to keep; -1 means all.
pub fn keep(text: &str) -> Result<Keep, String> {
    let count = tokens_max(text).map_err(|_| "expected a whole number, or -1 for all".to_owned())?;
    Ok(Keep(count.0))
}

/// A number of tokens to keep; `None` means all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep(pub Option<usize>);

/// Parses a finite number of at least 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number of at least 0", |number| number >= 0.0)
}

/// Parses a finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |number| number > 0.0)
}

/// Parses a probability above 0.
pub fn probability(text: &str) -> Result<f64, String> {
    number(text, "a number above 0 and at most 1", |number| number > 0.0 && number <= 1.0)
}

/// Parses a number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))
}

fn number(text: &str, expected: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && fits(*number));
    number.ok_or_else(|| format!("expected {expected}"))
}

/// Parses the size of a sample, `1/N`, and returns N.
pub fn sample(text: &str) -> Result<u64, String> {
    let count = text.strip_prefix("1/").and_then(|count| count.parse().ok()).filter(|count| *count > 0);
    count.ok_or_else(|| "expected a fraction such as 1/40".to_owned())
}

/// Parses token IDs separated by spaces, commas, tabs or newlines.
pub fn ids(text: &str) -> Result<Ids, String> {
    let words = text.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty());
    let ids = words.map(|word| word.parse().map_err(|_| format!("expected token IDs, found {word:?}")));
    Ok(Ids(ids.collect::<Result<_, _>>()?))
}

/// The token IDs in one argument.
#[derive(Clone, Debug)]
pub struct Ids(pub Vec<u32>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("6GiB"), Ok(6 << 30));
        for bad in ["", "0", "G", "1.5G", "-1", "99999999999G", "5T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn target_sizes_are_bytes_or_bits_per_weight() {
        assert_eq!(target_size("4.5bpw"), Ok(TargetSize::BitsPerWeight(4.5)));
        assert_eq!(target_size("1.5K"), Ok(TargetSize::Bytes(1536)));
        assert_eq!(target_size("4.6GiB"), Ok(TargetSize::Bytes((4.6 * 2f64.powi(30)) as u64)));
        assert_eq!(target_size("12345"), Ok(TargetSize::Bytes(12345)));
        for bad in ["", "0", "0bpw", "bpw", "-1", "nanbpw", "infM", "1e3", "4.5", "4.5 bpw", "q4_0", "9999999999G"] {
            assert!(target_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_rejected() {
        assert_eq!(threads("2"), Ok(2));
        assert!(threads("0").is_err() && threads("1025").is_err() && threads("-1").is_err());
        assert_eq!((whole("0"), whole::<u64>("-1").is_err(), whole::<usize>("x").is_err()), (Ok(0_usize), true, true));
        assert_eq!(tokens_max("-1"), Ok(TokensMax(None)));
        assert_eq!(tokens_max("0"), Ok(TokensMax(Some(0))));
        assert!(tokens_max("-2").is_err() && tokens_max("x").is_err());
        assert_eq!((keep("-1"), keep("0"), keep("7")), (Ok(Keep(None)), Ok(Keep(Some(0))), Ok(Keep(Some(7)))));
        assert!(keep("-2").is_err() && keep("1.5").is_err());
        assert_eq!((probability("1"), share("0"), not_negative("0.8")), (Ok(1.0), Ok(0.0), Ok(0.8)));
        for bad in ["nan", "inf", "-1", "", "x"] {
            assert!(not_negative(bad).is_err() && positive(bad).is_err(), "{bad}");
            assert!(probability(bad).is_err() && share(bad).is_err(), "{bad}");
        }
        assert!(probability("0").is_err() && positive("0").is_err() && share("1.01").is_err());
    }

    #[test]
    fn samples_are_fractions() {
        assert_eq!((sample("1/1"), sample("1/40")), (Ok(1), Ok(40)));
        for bad in ["40", "1/0", "2/3", "1/", "1/-2", "0.1", ""] {
            assert!(sample(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_ids_are_parsed() {
        assert_eq!(ids("1 5,9\n").unwrap().0, [1, 5, 9]);
        assert!(ids("1 x").is_err());
        assert_eq!(ids("").unwrap().0, [0u32; 0]);
    }
}
