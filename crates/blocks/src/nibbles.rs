//! Thirty-two codes of 4 or 5 bits in bytes.
//!
//! ```text
//!  byte j of 16        bit of a u32, little-endian
//!  ┌───────┬───────┐   ┌────┬─────┬────┬────┐
//!  │ 7...4 │ 3...0 │   │ 31 │ ... │  1 │  0 │
//!  └───┬───┴───┬───┘   └──┬─┴─────┴──┬─┴──┬─┘
//!   element  element    fifth bit of element j
//!    j + 16     j
//! ```

use crate::scale::LEN;

/// Bytes that hold the low four bits of a block's codes.
pub(crate) const BYTES: usize = LEN / 2;

/// The low four bits of each code.
#[inline(always)]
pub(crate) fn pack(codes: &[u8; LEN]) -> [u8; BYTES] {
    std::array::from_fn(|j| codes[j] & 15 | codes[j + BYTES] << 4)
}

/// Codes of four bits.
#[inline(always)]
pub(crate) fn unpack(bytes: &[u8; BYTES]) -> [u8; LEN] {
    std::array::from_fn(|j| if j < BYTES { bytes[j] & 15 } else { bytes[j - BYTES] >> 4 })
}

/// The fifth bit of each code, element 0 lowest.
#[inline(always)]
pub(crate) fn pack_fifth_bits(codes: &[u8; LEN]) -> [u8; 4] {
    let bits = codes.iter().enumerate().fold(0u32, |bits, (j, &code)| bits | u32::from(code >> 4 & 1) << j);
    bits.to_le_bytes()
}

/// Codes of five bits.
#[inline(always)]
pub(crate) fn unpack_five_bits(bytes: &[u8; BYTES], fifth_bits: [u8; 4]) -> [u8; LEN] {
    let bits = u32::from_le_bytes(fifth_bits);
    let mut codes = unpack(bytes);
    for (j, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> j & 1) as u8) << 4;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_share_a_byte() {
        let codes: [u8; LEN] = std::array::from_fn(|j| j as u8);
        assert_eq!(pack(&codes)[..3], [0x00, 0x11, 0x22], "16 is 0 in four bits");
        assert_eq!(pack_fifth_bits(&codes), [0, 0, 0xFF, 0xFF]);
        assert_eq!(unpack_five_bits(&pack(&codes), pack_fifth_bits(&codes)), codes);
    }
}
