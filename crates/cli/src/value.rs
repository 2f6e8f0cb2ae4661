//! Argument values with a meaning of their own.

use clap::builder::PossibleValuesParser;
use trueup::blocks::DType;
use trueup::runtime::device::cpu::Isa;

/// `4096`, `512K`, `300M`, `2G`, `2GiB`: bytes, in powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let text = text.strip_suffix("iB").filter(|text| text.ends_with(['K', 'M', 'G'])).unwrap_or(text);
    let (digits, unit) = match text.char_indices().last() {
        Some((last, 'k' | 'K')) => (&text[..last], 1 << 10),
        Some((last, 'm' | 'M')) => (&text[..last], 1 << 20),
        Some((last, 'g' | 'G')) => (&text[..last], 1 << 30),
        _ => (text, 1),
    };
    let count: u64 = digits.parse().map_err(|_| "write a number of bytes, like 4096, 300M or 2G".to_owned())?;
    let bytes = count.checked_mul(unit).ok_or_else(|| "too large".to_owned())?;
    if bytes == 0 { Err("must be more than 0".to_owned()) } else { Ok(bytes) }
}

/// A type that tensors can be written as.
pub fn tensor_type(text: &str) -> Result<DType, String> {
    let names = || DType::all().filter(can_be_written).map(DType::name).collect::<Vec<_>>().join(", ");
    DType::from_name(text).filter(can_be_written).ok_or_else(|| format!("one of {}", names()))
}

fn can_be_written(dtype: &DType) -> bool {
    dtype.codec().is_some() && *dtype != DType::F64
}

/// Names of the instruction sets that this build has kernels for, whether the machine can run them or not.
pub fn instruction_sets() -> PossibleValuesParser {
    PossibleValuesParser::new(Isa::ALL.iter().rev().map(|isa| isa.name()))
}

/// Threads that are worth starting.
const THREADS_MAX: usize = 1024;

/// A number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
    count.ok_or_else(|| format!("write a number from 1 to {THREADS_MAX}"))
}

/// A number of tokens that is not 0.
pub fn tokens(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a whole number above 0".to_owned())
}

/// How many tokens to generate at most; -1 stands for no limit.
pub fn tokens_max(text: &str) -> Result<TokensMax, String> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(TokensMax(None)),
        Ok(count) if count >= 0 => Ok(TokensMax(usize::try_from(count).ok())),
        Ok(_) | Err(_) => Err("write a whole number, or -1 for no limit".to_owned()),
    }
}

/// A limit of generated tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokensMax(pub Option<usize>);

/// How many tokens to keep; -1 stands for all.
pub fn keep(text: &str) -> Result<Keep, String> {
    let count = tokens_max(text).map_err(|_| "write a whole number, or -1 for all".to_owned())?;
    Ok(Keep(count.0))
}

/// A number of tokens that stay; `None` is all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep(pub Option<usize>);

/// A finite number that is at least 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number that is at least 0", |number| number >= 0.0)
}

/// A finite number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |number| number > 0.0)
}

/// A probability that is not 0.
pub fn probability(text: &str) -> Result<f64, String> {
    number(text, "a number above 0 and at most 1", |number| number > 0.0 && number <= 1.0)
}

/// A number from 0 to 1.
pub fn share(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))
}

fn number(text: &str, wanted: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && fits(*number));
    number.ok_or_else(|| format!("write {wanted}"))
}

/// A sample of a test suite, `1/N`: about one case in N.
pub fn sample(text: &str) -> Result<u64, String> {
    let count = text.strip_prefix("1/").and_then(|count| count.parse().ok()).filter(|count| *count > 0);
    count.ok_or_else(|| "expected a fraction such as 1/40".to_owned())
}

/// Token ids, separated by spaces or commas.
pub fn ids(text: &str) -> Result<Ids, String> {
    let words = text.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty());
    let ids = words.map(|word| word.parse().map_err(|_| format!("{word:?} is not a token id")));
    Ok(Ids(ids.collect::<Result<_, _>>()?))
}

/// Token ids given as one argument.
#[derive(Clone, Debug)]
pub struct Ids(pub Vec<u32>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("6GiB"), Ok(6 << 30));
        for bad in ["", "0", "G", "1.5G", "-1", "99999999999G", "5T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(threads("2"), Ok(2));
        assert!(threads("0").is_err() && threads("1025").is_err() && threads("-1").is_err());
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
    fn a_sample_is_one_case_in_a_number() {
        assert_eq!((sample("1/1"), sample("1/40")), (Ok(1), Ok(40)));
        for bad in ["40", "1/0", "2/3", "1/", "1/-2", "0.1", ""] {
            assert!(sample(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_numbers() {
        assert_eq!(ids("1 5,9\n").unwrap().0, [1, 5, 9]);
        assert!(ids("1 x").is_err());
        assert_eq!(ids("").unwrap().0, [0u32; 0]);
    }
}
