//! Bytes as digits: hashes as other tools write them.

/// Two lower-case hexadecimal digits for each byte.
///
/// ```
/// use trueup_formats::hexadecimal;
///
/// assert_eq!(hexadecimal(&[0, 10, 255]), "000aff");
/// ```
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
