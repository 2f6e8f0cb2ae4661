//! A day of the calendar. The library asks no clock: today is handed in.

use std::fmt;

/// A day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Date {
    year: i64,
    month: u8,
    day: u8,
}

impl Date {
    /// The day `days` days after 1970-01-01.
    pub fn from_days(days: u32) -> Date {
        // Years from March on, so that a leap day is the last day of its year; 1970-01-01 is day 719468 behind
        // 0000-03-01.
        let days = i64::from(days) + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Date { year, month: month as u8, day: day as u8 }
    }

    /// The day of a TOML date without a time.
    pub(crate) fn from_toml(date: &toml::value::Datetime) -> Option<Date> {
        let day = date.date.filter(|_| date.time.is_none() && date.offset.is_none())?;
        Some(Date { year: i64::from(day.year), month: day.month, day: day.day })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        // date -u -d @$((DAYS * 86400)) +%F
        for (days, text) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_778, "2026-11-21"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(Date::from_days(days).to_string(), text);
        }
        assert!(Date::from_days(20_777) < Date::from_days(20_778));
    }
}
