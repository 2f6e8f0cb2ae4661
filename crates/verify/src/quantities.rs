//! Durations and sizes, as people read them.

/// A duration for people.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    format!("{} min {:02} s", whole / 60, whole % 60)
}

/// Bytes for people.
pub(crate) fn bytes_in_words(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 9.995e8 => format!("{:.2} GB", bytes / 1e9),
        bytes => format!("{:.0} MB", (bytes / 1e6).max(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let words = [1, 12_345_678, 999_400_000, 1_234_567_890].map(bytes_in_words);
        assert_eq!(words, ["1 MB", "12 MB", "999 MB", "1.23 GB"]);
    }

    #[test]
    fn durations_have_tenths_below_a_minute() {
        let words = [0.04, 59.94, 60.0, 61.6, 3_725.0].map(duration);
        assert_eq!(words, ["0.0 s", "59.9 s", "1 min 00 s", "1 min 02 s", "62 min 05 s"]);
    }
}
