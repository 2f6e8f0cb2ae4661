//! Names of the files of a split model: `NAME-00001-of-00003.gguf`, counted from 1 in names and from 0 in the files.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The extension of all files.
const EXTENSION: &str = ".gguf";

/// One file's place among the files of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SplitName {
    /// The name before `-00001-of-00003.gguf`, with the folder.
    prefix: PathBuf,
    /// Counted from 0.
    pub number: u64,
    pub count: u64,
}

impl SplitName {
    /// Takes a path apart; `None` for another form.
    pub fn parse(path: &Path) -> Option<SplitName> {
        let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let number = five_digits(number)?.checked_sub(1)?;
        let count = five_digits(count)?;
        (number < count).then(|| SplitName { prefix: path.with_file_name(prefix), number, count })
    }

    /// The files that a model is split into when it is written to `path`.
    pub fn new(path: &Path, number: u64, count: u64) -> SplitName {
        let name = path.file_name().unwrap_or_default();
        let prefix = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)).map(|name| path.with_file_name(name));
        SplitName { prefix: prefix.unwrap_or_else(|| path.to_owned()), number, count }
    }

    /// The name before `-00001-of-00003.gguf`, without the folder.
    pub fn stem(&self) -> &OsStr {
        self.prefix.file_name().unwrap_or_default()
    }

    /// Whether both names begin alike.
    pub fn is_of_same_model(&self, other: &SplitName) -> bool {
        self.prefix == other.prefix
    }

    /// File number `number`, from 0.
    pub fn path(&self, number: u64) -> PathBuf {
        let mut name = self.prefix.file_name().unwrap_or_default().to_owned();
        name.push(format!("-{:05}-of-{:05}{EXTENSION}", number.saturating_add(1), self.count));
        self.prefix.with_file_name(name)
    }
}

/// The first file of the split model whose later file has this name; `None` for every other name.
pub fn first_of_split(path: &Path) -> Option<PathBuf> {
    let name = SplitName::parse(path)?;
    (name.number > 0).then(|| name.path(0))
}

fn five_digits(text: &str) -> Option<u64> {
    (text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::SplitName;
    use std::path::Path;

    #[test]
    fn only_names_of_the_form_are_of_a_set() {
        let parse =
            |name: &str| SplitName::parse(&Path::new("folder").join(name)).map(|name| (name.number, name.count));
        assert_eq!(parse("m-00001-of-00003.gguf"), Some((0, 3)));
        assert_eq!(parse("m-00003-of-00003.gguf"), Some((2, 3)));
        assert_eq!(parse("a-b-00002-of-00003-00002-of-00002.gguf"), Some((1, 2)));
        for name in [
            "m-00004-of-00003.gguf",
            "m-00000-of-00003.gguf",
            "m-00001-of-00000.gguf",
            "m-0001-of-00003.gguf",
            "m-00001-of-000003.gguf",
            "m-+0001-of-00003.gguf",
            "m-00001-of-0000x.gguf",
            "m-00001-of-00003.bin",
            "m.gguf",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn sets_are_told_apart_by_what_stands_before_their_numbers() {
        let name = |path: &str| SplitName::parse(Path::new(path)).unwrap();
        let first = name("a/m-00001-of-00003.gguf");
        assert!(first.is_of_same_model(&name("a/m-00002-of-00002.gguf")));
        assert!(!first.is_of_same_model(&name("a/n-00001-of-00003.gguf")));
        assert!(!first.is_of_same_model(&name("b/m-00001-of-00003.gguf")));
    }
}
