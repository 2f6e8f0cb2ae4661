//! A date with a time of day, and `strftime` of it in the C locale.

use std::fmt;
use std::str::FromStr;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const SECONDS_PER_DAY: u64 = 86_400;
const YEAR_MAX: u32 = 9999;

/// A moment of the Gregorian calendar, without a time zone.
///
/// ```
/// let date: trueup_tokenizer::Date = "2024-07-26".parse().unwrap();
/// assert_eq!(date.format("%d %b %Y").unwrap(), "26 Jul 2024");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Date {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Date {
    /// A date and a time; nothing if it does not exist. Years are 1 to 9999.
    pub fn new((year, month, day): (u32, u32, u32), (hour, minute, second): (u32, u32, u32)) -> Option<Date> {
        let exists = (1..=YEAR_MAX).contains(&year) && (1..=12).contains(&month);
        let exists = exists && day >= 1 && day <= days_of(year, month);
        (exists && hour < 24 && minute < 60 && second < 60).then_some(Date { year, month, day, hour, minute, second })
    }

    /// The date of this many seconds after 1970-01-01 00:00:00. Later years than 9999 give the end of 9999.
    pub fn from_unix_seconds(seconds: u64) -> Date {
        let mut days = seconds.div_euclid(SECONDS_PER_DAY);
        let in_day = u32::try_from(seconds.rem_euclid(SECONDS_PER_DAY)).unwrap_or(0);
        let mut year = 1970;
        while year < YEAR_MAX && days >= u64::from(days_of_year(year)) {
            days = days.saturating_sub(u64::from(days_of_year(year)));
            year = year.saturating_add(1);
        }
        let last = days_of_year(year).saturating_sub(1);
        let mut left = u32::try_from(days).unwrap_or(u32::MAX).min(last);
        let mut month = 1;
        while left >= days_of(year, month) {
            left = left.saturating_sub(days_of(year, month));
            month = month.saturating_add(1);
        }
        let (hour, minute) = (in_day.div_euclid(3600), in_day.rem_euclid(3600).div_euclid(60));
        Date { year, month, day: left.saturating_add(1), hour, minute, second: in_day.rem_euclid(60) }
    }

    /// The day of the year, from 1.
    fn day_of_year(self) -> u32 {
        let before: u32 = (1..self.month).map(|month| days_of(self.year, month)).sum();
        before.saturating_add(self.day)
    }

    /// The day of the week, from Sunday as 0.
    fn weekday(self) -> u32 {
        let before = self.year.saturating_sub(1);
        let leaps = before.div_euclid(4).saturating_sub(before.div_euclid(100)).saturating_add(before.div_euclid(400));
        // 0001-01-01 is a Monday.
        let days = before.saturating_mul(365).saturating_add(leaps).saturating_add(self.day_of_year());
        days.rem_euclid(7)
    }

    /// Year and week by ISO 8601: the week of a day is that of its Thursday.
    fn iso_week(self) -> (u32, u32) {
        let weekday = self.weekday().saturating_add(6).rem_euclid(7);
        let thursday = i64::from(self.day_of_year()).saturating_add(3).saturating_sub(i64::from(weekday));
        let week = |thursday: i64| u32::try_from(thursday.saturating_add(6).div_euclid(7)).unwrap_or(1);
        if thursday < 1 {
            let before = self.year.saturating_sub(1);
            return (before, week(thursday.saturating_add(i64::from(days_of_year(before)))));
        }
        if thursday > i64::from(days_of_year(self.year)) {
            return (self.year.saturating_add(1), 1);
        }
        (self.year, week(thursday))
    }

    /// The date in the notation of `strftime`. Fails for a directive that does not exist.
    pub fn format(self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut flag = None;
            let mut directive = chars.next();
            if let Some(c @ ('-' | '_' | '0' | '^' | '#')) = directive {
                flag = Some(c);
                directive = chars.next();
            }
            let Some(directive) = directive else {
                out.push('%');
                return Ok(out);
            };
            let text =
                self.directive(directive).ok_or_else(|| format!("strftime: unsupported directive %{directive}"))?;
            out.push_str(&flagged(text, flag, directive));
        }
        Ok(out)
    }

    fn directive(self, directive: char) -> Option<String> {
        let weekday = self.weekday();
        let two = |number: u32| format!("{number:02}");
        let hour = match self.hour.rem_euclid(12) {
            0 => 12,
            hour => hour,
        };
        // Weeks that begin on Sunday or Monday, counted from the first such day.
        let week = |first: u32| {
            let since = weekday.saturating_add(7).saturating_sub(first).rem_euclid(7);
            self.day_of_year().saturating_add(6).saturating_sub(since).div_euclid(7)
        };
        Some(match directive {
            'Y' => self.year.to_string(),
            'C' => two(self.year.div_euclid(100)),
            'y' => two(self.year.rem_euclid(100)),
            'm' => two(self.month),
            'd' => two(self.day),
            'e' => format!("{:2}", self.day),
            'H' => two(self.hour),
            'k' => format!("{:2}", self.hour),
            'I' => two(hour),
            'l' => format!("{hour:2}"),
            'M' => two(self.minute),
            'S' => two(self.second),
            'f' => "000000".to_owned(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            'P' => if self.hour < 12 { "am" } else { "pm" }.to_owned(),
            'A' => name(&WEEKDAYS, weekday),
            'a' => name(&WEEKDAYS, weekday).chars().take(3).collect(),
            'B' => name(&MONTHS, self.month.saturating_sub(1)),
            'b' | 'h' => name(&MONTHS, self.month.saturating_sub(1)).chars().take(3).collect(),
            'j' => format!("{:03}", self.day_of_year()),
            'w' => weekday.to_string(),
            'u' => if weekday == 0 { 7 } else { weekday }.to_string(),
            'U' => two(week(0)),
            'W' => two(week(1)),
            'V' => two(self.iso_week().1),
            'G' => self.iso_week().0.to_string(),
            'g' => two(self.iso_week().0.rem_euclid(100)),
            'D' | 'x' => return self.format("%m/%d/%y").ok(),
            'F' => return self.format("%Y-%m-%d").ok(),
            'T' | 'X' => return self.format("%H:%M:%S").ok(),
            'R' => return self.format("%H:%M").ok(),
            'r' => return self.format("%I:%M:%S %p").ok(),
            'c' => return self.format("%a %b %e %H:%M:%S %Y").ok(),
            // A date without a time zone has neither.
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn name(names: &[&str], place: u32) -> String {
    usize::try_from(place).ok().and_then(|place| names.get(place)).copied().unwrap_or_default().to_owned()
}

/// The text of a directive with a flag: `-` drops zeros at the front, `_` makes them spaces, `^` and `#` change the
/// case.
fn flagged(text: String, flag: Option<char>, directive: char) -> String {
    match flag {
        Some('-') => match text.trim_start_matches(['0', ' ']) {
            "" if !text.is_empty() => "0".to_owned(),
            plain => plain.to_owned(),
        },
        Some('_') => {
            let digits = text.trim_start_matches('0');
            format!("{}{digits}", " ".repeat(text.len().saturating_sub(digits.len())))
        }
        Some('0') => text.replace(' ', "0"),
        Some('#') if directive == 'p' => text.to_lowercase(),
        Some('^' | '#') => text.to_uppercase(),
        _ => text,
    }
}

fn days_of_year(year: u32) -> u32 {
    let leaps = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    if leaps { 366 } else { 365 }
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => days_of_year(year).saturating_sub(337),
        _ => 31,
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Date { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

impl FromStr for Date {
    type Err = String;

    /// Reads `YYYY-MM-DD`, with ` HH:MM` or ` HH:MM:SS` after it; a `T` can stand for the space.
    fn from_str(text: &str) -> Result<Date, String> {
        let fail = || "expected a date such as 2024-07-26 or 2024-07-26T14:30:00".to_owned();
        let (date, time) = text.trim().split_once([' ', 'T']).unwrap_or((text.trim(), "00:00:00"));
        let numbers = |text: &str, between: char| -> Option<Vec<u32>> {
            let number = |part: &str| part.parse().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
            text.split(between).map(number).collect()
        };
        let (date, time) = (numbers(date, '-').ok_or_else(fail)?, numbers(time, ':').ok_or_else(fail)?);
        let time = match time.as_slice() {
            [hour, minute] => (*hour, *minute, 0),
            [hour, minute, second] => (*hour, *minute, *second),
            _ => return Err(fail()),
        };
        match date.as_slice() {
            [year, month, day] => Date::new((*year, *month, *day), time).ok_or_else(fail),
            _ => Err(fail()),
        }
    }
}
