//! The libraries and their functions, each looked for when it is first called.
//!
//! ```text
//!  acl*, aclrt*, aclmdlRI*    libascendcl.so, else libacl_rt.so
//!  aclCreate*, aclDestroy*    libnnopbase.so
//!  aclnn*                     custom operators, then libopapi_*.so, then libopapi.so
//! ```
//!
//! A simulated card has one library for all. A function that no library has is an answer, not a crash: operators differ from version to version.

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::NamedTempFile;

/// Which libraries stand behind the interface.
#[derive(Clone, Debug)]
pub enum Source {
    /// Those of the cards that are here.
    Vendor,
    /// Ours, which computes on the processor.
    Simulator(PathBuf, Settings),
}

/// What is simulated: the same for all cards of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The chip, by the name that the simulator gives it.
    pub chip: String,
    /// How many cards there are.
    pub cards: usize,
    /// Bytes of memory of each.
    pub memory_bytes: u64,
    /// More of its settings, as they stand in JSON between the braces: `"timing": "late"`; may be empty.
    pub more: String,
}

impl Settings {
    /// The file that the simulator reads.
    fn text(&self) -> String {
        let Settings { chip, cards, memory_bytes, more } = self;
        let comma = if more.is_empty() { "" } else { ", " };
        format!("{{\"chip\": \"{chip}\", \"cards\": {cards}, \"memory_bytes\": {memory_bytes}{comma}{more}}}\n")
    }
}

/// The libraries, opened and started, for as long as the process lives.
#[derive(Debug)]
pub struct Library {
    /// In the order in which functions are looked for.
    opened: Vec<Opened>,
    found: Mutex<HashMap<&'static CStr, usize>>,
}

/// The answer of functions that were called in a good way.
const SUCCESS: c_int = 0;

/// What starting again answers.
const STARTED_BEFORE: c_int = 100_002;

/// What this process has opened: one or the other.
static OPENED: Mutex<Option<(Option<Settings>, Arc<Library>)>> = Mutex::new(None);

impl Library {
    /// The libraries, opened and started once for the whole process.
    pub fn open(source: &Source) -> Result<Arc<Library>, String> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = match source {
            Source::Vendor => None,
            Source::Simulator(_, settings) => Some(settings),
        };
        if let Some((settings, library)) = &*opened {
            return match (settings, wanted) {
                (None, None) => Ok(Arc::clone(library)),
                (Some(has), Some(wanted)) if has == wanted => Ok(Arc::clone(library)),
                (Some(has), Some(_)) => Err(format!(
                    "this process has opened {} simulated cards of chip {} with {} bytes of memory and other settings; use these in a process of their own",
                    has.cards, has.chip, has.memory_bytes
                )),
                (Some(_), None) => {
                    Err("this process has opened the simulator already; use npu in a process of its own".to_owned())
                }
                (None, Some(_)) => {
                    Err("this process has opened Ascend cards already; use npu-sim in a process of its own".to_owned())
                }
            };
        }
        let library = Arc::new(Library::open_first(source)?);
        *opened = Some((wanted.cloned(), Arc::clone(&library)));
        Ok(library)
    }

    fn open_first(source: &Source) -> Result<Library, String> {
        let opened = match source {
            Source::Vendor => vendor()?,
            Source::Simulator(path, _) => vec![load(path, RTLD_LOCAL)?],
        };
        let library = Library { opened, found: Mutex::default() };
        let file = match source {
            Source::Vendor => None,
            Source::Simulator(_, settings) => Some(settings_file(settings)?),
        };
        library.start(file.as_ref().map(NamedTempFile::path))?;
        Ok(library)
    }

    fn start(&self, settings: Option<&Path>) -> Result<(), String> {
        type Init = unsafe extern "C" fn(*const c_char) -> c_int;
        let path = settings.map(|path| CString::new(path.as_os_str().as_encoded_bytes())).transpose();
        let path = path.map_err(|error| format!("the folder for temporary files has a name with a zero: {error}"))?;
        // SAFETY: a function of that name has this form.
        let init = unsafe { self.function::<Init>(c"aclInit") }?;
        // SAFETY: a path that ends with a zero, or none.
        match unsafe { init(path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr())) } {
            STARTED_BEFORE => Ok(()),
            code => self.expect(c"aclInit", code),
        }
    }

    /// Whether a library has a function of that name.
    pub fn has(&self, name: &'static CStr) -> bool {
        self.address(name).is_some()
    }

    /// A function by its name.
    ///
    /// # Safety
    ///
    /// `F` must be the form of that function.
    pub(super) unsafe fn function<F: Copy>(&self, name: &'static CStr) -> Result<F, String> {
        assert_eq!(size_of::<F>(), size_of::<usize>(), "a function is called by its address");
        let address = self.address(name);
        let address =
            address.ok_or_else(|| format!("the installed CANN has no {}; a newer one may", name.to_string_lossy()))?;
        // SAFETY: an address of a function, which the caller says has this form; sizes are equal.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    fn address(&self, name: &'static CStr) -> Option<usize> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = found.get(name) {
            return Some(*address).filter(|address| *address != 0);
        }
        let look = |library: &Opened| {
            // SAFETY: the address is only kept; who calls says which form it has.
            let symbol = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
            symbol.ok().map(|symbol| symbol.into_raw() as usize)
        };
        let address = self.opened.iter().find_map(look).unwrap_or(0);
        found.insert(name, address);
        Some(address).filter(|address| *address != 0)
    }

    /// Turns an answer that is not success into a sentence: function, number, what the library says.
    pub(super) fn expect(&self, name: &CStr, code: c_int) -> Result<(), String> {
        if code == SUCCESS { Ok(()) } else { Err(self.sentence(name, code)) }
    }

    fn sentence(&self, name: &CStr, code: c_int) -> String {
        let meaning = MEANINGS.iter().find(|(known, _)| *known == code).map_or("an error", |(_, meaning)| meaning);
        let said = self.recent_message();
        let said = said.trim();
        let end = if said.is_empty() { String::new() } else { format!(": {said}") };
        format!("{} answers {code}, {meaning}{end}", name.to_string_lossy())
    }

    /// What the library says of this thread's last error.
    fn recent_message(&self) -> String {
        type Recent = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: a function of that name has this form.
        let Ok(recent) = (unsafe { self.function::<Recent>(c"aclGetRecentErrMsg") }) else { return String::new() };
        // SAFETY: takes nothing.
        let text = unsafe { recent() };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: text that ends with a zero and stays until this thread's next call.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// What numbers mean that users meet.
const MEANINGS: [(c_int, &str); 19] = [
    (100_000, "an invalid parameter"),
    (100_001, "not initialised"),
    (107_000, "an invalid parameter"),
    (107_001, "no such card"),
    (107_002, "no context is current"),
    (107_003, "a stream of another context"),
    (107_017, "an invalid handle"),
    (107_027, "the stream is being captured"),
    (107_030, "not allowed while a graph is captured"),
    (161_001, "a pointer that is null"),
    (161_002, "arguments that the operator does not take"),
    (207_000, "not supported by this chip"),
    (207_001, "no memory"),
    (207_018, "no memory left on the card"),
    (361_001, "not supported by this chip, or a runtime error"),
    (507_014, "an operator did not end in time"),
    (507_015, "an exception of the cube cores"),
    (507_035, "an exception of the vector cores"),
    (561_107, "the package of operators was not found: is its environment set?"),
];

/// The file that tells the simulator what to imitate, which is there as long as it starts.
fn settings_file(settings: &Settings) -> Result<NamedTempFile, String> {
    let written = NamedTempFile::new().and_then(|mut file| file.write_all(settings.text().as_bytes()).map(|()| file));
    written.map_err(|error| format!("the simulator's settings cannot be written to a temporary file: {error}"))
}

/// Folders of a toolkit, below its own.
const FOLDERS: [&str; 2] = ["lib64", "devlib"];

/// Where toolkits are installed by default.
const TOOLKITS: [&str; 3] =
    ["/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/latest", "/usr/local/Ascend/nnrt/latest"];

/// Where the driver's own libraries lie.
const DRIVER: &str = "/usr/local/Ascend/driver/lib64";

/// The vendor's libraries.
fn vendor() -> Result<Vec<Opened>, String> {
    let folders = folders();
    let first = |names: &[&str]| names.iter().find_map(|name| find(&folders, name));
    let runtime = first(&["libascendcl.so", "libacl_rt.so"]);
    let runtime = runtime.ok_or_else(|| {
        "no CANN is here: its library libascendcl.so could not be loaded; install the toolkit and source its set_env.sh".to_owned()
    })?;
    let meta = first(&["libnnopbase.so"]).ok_or_else(|| {
        "CANN is here without its operators: libnnopbase.so could not be loaded; source set_env.sh of the toolkit"
            .to_owned()
    })?;
    let mut all = vec![runtime, meta];
    all.extend(custom_operators());
    all.extend(
        ["math", "nn", "cv", "transformer"].iter().filter_map(|part| find(&folders, &format!("libopapi_{part}.so"))),
    );
    all.extend(find(&folders, "libopapi.so"));
    Ok(all)
}

/// Folders that libraries are looked for in, behind those that the system's loader knows.
fn folders() -> Vec<PathBuf> {
    let named = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkits = named.chain(TOOLKITS.iter().map(PathBuf::from));
    let mut all: Vec<PathBuf> = toolkits.flat_map(|toolkit| FOLDERS.map(|folder| toolkit.join(folder))).collect();
    all.push(PathBuf::from(DRIVER));
    all
}

/// Operators of the user's own, which go before the vendor's.
fn custom_operators() -> Vec<Opened> {
    let roots = ["ASCEND_CUSTOM_OPP_PATH", "ASCEND_OPP_PATH"].iter().filter_map(std::env::var_os);
    let roots: Vec<PathBuf> = roots.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>()).collect();
    let vendors = roots.iter().flat_map(|root| {
        let entries = std::fs::read_dir(root.join("vendors"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    });
    let places = roots.iter().cloned().chain(vendors).map(|place| place.join("op_api/lib/libcust_opapi.so"));
    places.filter_map(|path| load(&path, RTLD_GLOBAL).ok()).collect()
}

/// A library as the system's loader finds it, or in one of the folders.
fn find(folders: &[PathBuf], name: &str) -> Option<Opened> {
    let paths = folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file());
    [PathBuf::from(name)].into_iter().chain(paths).find_map(|path| load(&path, RTLD_GLOBAL).ok())
}

fn load(path: &Path, scope: c_int) -> Result<Opened, String> {
    // SAFETY: a library of the vendor, or ours, started as any program would; it stays open as long as the process lives.
    let opened = unsafe { Opened::open(Some(path), RTLD_LAZY | scope) };
    opened.map_err(|error| format!("{}: cannot be opened: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_json() {
        let settings = Settings { chip: "310p".to_owned(), cards: 2, memory_bytes: 5, more: String::new() };
        assert_eq!(settings.text(), "{\"chip\": \"310p\", \"cards\": 2, \"memory_bytes\": 5}\n");
        let settings = Settings { more: "\"seed\": 3".to_owned(), ..settings };
        assert_eq!(settings.text(), "{\"chip\": \"310p\", \"cards\": 2, \"memory_bytes\": 5, \"seed\": 3}\n");
    }
}
