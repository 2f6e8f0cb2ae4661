//! One lie: files that differ from a good model in one thing, the commands that read them, and what these must do.

use std::fs;
use std::io::Write;
use std::path::Path;

/// What stands at a name in the folder of a case.
#[derive(Clone, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File(Vec<u8>),
    /// A regular file that begins with these bytes and has this size; the rest is a hole.
    Sparse(Vec<u8>, u64),
    /// A symbolic link.
    Link(String),
    /// A pipe with a name, which nobody writes to.
    Pipe,
    /// An empty folder.
    Folder,
}

/// The files of a case by name; `/` separates folders.
pub type Files = Vec<(String, Entry)>;

/// A command that reads the model of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `inspect --json`
    Inspect,
    /// `inspect`, whose text a terminal shows.
    Show,
    /// `tokenize -p`
    Tokenize,
    /// `convert`
    Convert,
    /// `quantize -b 8`
    Quantize,
    /// `run -n 1`
    Run,
    /// `run --logits FILE` of an encoder
    Embed,
    /// `verify --steps 1`
    Verify,
    /// `chat -n 1` with one line of input.
    Chat,
    /// `verify --ref TRACE` with a good model.
    Trace,
    /// `diff` with itself.
    Diff,
}

/// Address space of a command in KiB. The fixtures need a hundredth; a size out of a file that is believed needs more.
pub const MEMORY_KIB: u64 = 2 << 20;

/// A lie, or a truth that looks like one.
#[derive(Clone)]
pub struct Case {
    /// Unique in its family.
    pub name: String,
    /// What lies in its folder.
    pub files: Files,
    /// The file or folder that the commands are given.
    pub model: &'static str,
    /// The trace that the model is compared with.
    pub trace: Option<&'static str>,
    /// A part of the message's file name; empty where the folder is named.
    pub named: &'static str,
    /// Words of the message, whichever command refuses it.
    pub says: &'static str,
    /// Address space of a command in KiB.
    pub memory_kib: u64,
    /// Commands that must refuse it.
    pub refused_by: &'static [Call],
    /// Commands that must accept it.
    pub accepted_by: &'static [Call],
}

impl Case {
    /// Whether something must refuse it.
    pub fn is_refused(&self) -> bool {
        !self.refused_by.is_empty()
    }

    /// Puts the files into an empty folder.
    pub fn write(&self, folder: &Path) {
        for (name, entry) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a directory above")).expect("a directory can be made");
            match entry {
                Entry::File(bytes) => fs::write(&path, bytes).expect("a file can be written"),
                Entry::Sparse(bytes, size) => {
                    let mut file = fs::File::create(&path).expect("a file can be made");
                    file.write_all(bytes).expect("a file can be written");
                    file.set_len(*size).expect("a hole takes no room");
                }
                Entry::Link(target) => std::os::unix::fs::symlink(target, &path).expect("a link can be made"),
                Entry::Pipe => {
                    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
                    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe can be made");
                }
                Entry::Folder => fs::create_dir(&path).expect("a directory can be made"),
            }
        }
    }
}
