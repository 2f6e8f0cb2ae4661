//! Argument values with a meaning of their own.

use trueup::blocks::DType;

/// `4096`, `512K`, `300M`, `2G`: bytes, in powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
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
        for bad in ["", "0", "G", "1.5G", "-1", "99999999999G", "5T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_numbers() {
        assert_eq!(ids("1 5,9\n").unwrap().0, [1, 5, 9]);
        assert!(ids("1 x").is_err());
        assert_eq!(ids("").unwrap().0, [0u32; 0]);
    }
}
