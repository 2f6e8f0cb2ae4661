//! The libraries and their functions, each looked for when it is first called.
//!
//! ```text
//!  acl*, aclrt*, aclmdlRI*    libascendcl.so, else libacl_rt.so
//!  aclCreate*, aclDestroy*    libnnopbase.so
//!  aclnn*                     custom operators, then libopapi_*.so, of which libopapi_legacy.so last, then libopapi.so
//! ```
//!
//! A simulated card has one library for all. A function that no library has is an answer, not a crash: operators differ
//! from version to version.

use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use std::collections::HashMap;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::NamedTempFile;
use trueup_formats::counted;

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
    /// What is wrong with those that are here and cannot be opened.
    problems: Vec<String>,
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
                    "this process already uses {} of chip {} with {} of memory; use other \
                        settings in a separate process",
                    counted(has.cards, "simulated card"),
                    has.chip,
                    counted(has.memory_bytes, "byte")
                )),
                (Some(_), None) => {
                    Err("this process already uses the simulator; use npu in a separate process".to_owned())
                }
                (None, Some(_)) => {
                    Err("this process already uses Ascend cards; use npu-sim in a separate process".to_owned())
                }
            };
        }
        let library = Arc::new(Library::open_first(source)?);
        *opened = Some((wanted.cloned(), Arc::clone(&library)));
        Ok(library)
    }

    fn open_first(source: &Source) -> Result<Library, String> {
        let (opened, problems) = match source {
            Source::Vendor => vendor()?,
            Source::Simulator(path, _) => (vec![load(path, RTLD_LOCAL)?], Vec::new()),
        };
        let library = Library { opened, problems, found: Mutex::default() };
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
        let path = path.map_err(|error| {
            format!(
                "the path of the directory for temporary files contains a NUL byte: \
            {error}"
            )
        })?;
        // SAFETY: a function of that name has this form.
        let init = unsafe { self.function::<Init>(c"aclInit") }?;
        // SAFETY: a path that ends with a zero, or none.
        match unsafe { init(path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr())) } {
            STARTED_BEFORE => Ok(()),
            code => self.expect(c"aclInit", code),
        }
    }

    /// Functions of a test's own, by their names and addresses.
    #[cfg(test)]
    pub fn of(functions: &[(&'static CStr, usize)]) -> Arc<Library> {
        let found = Mutex::new(functions.iter().copied().collect());
        Arc::new(Library { opened: Vec::new(), problems: Vec::new(), found })
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
        let address = address.ok_or_else(|| self.missing(name))?;
        // SAFETY: an address of a function, which the caller says has this form; sizes are equal.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    fn missing(&self, name: &CStr) -> String {
        let name = name.to_string_lossy();
        if self.problems.is_empty() {
            return format!("the installed CANN has no {name}; install a newer version");
        }
        format!("{name} is in none of the CANN libraries that can be opened: {}", self.problems.join("; "))
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
    (100_001, "not initialized"),
    (107_000, "an invalid parameter"),
    (107_001, "no such card"),
    (107_002, "no current context"),
    (107_003, "a stream of another context"),
    (107_017, "an invalid handle"),
    (107_027, "the stream is being captured"),
    (107_030, "not allowed while a graph is captured"),
    (161_001, "a null pointer"),
    (161_002, "arguments that the operator does not accept"),
    (207_000, "not supported by this chip"),
    (207_001, "no memory"),
    (207_018, "no memory left on the card"),
    (361_001, "not supported by this chip, or a runtime error"),
    (507_014, "an operator timed out"),
    (507_015, "an exception of the cube cores"),
    (507_035, "an exception of the vector cores"),
    (561_107, "the operator package was not found; source its set_env.sh"),
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

/// Whether the C library that this program holds has no loader.
const OPENS_NOTHING: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

/// The vendor's libraries, and what is wrong with those of its operators that are here and cannot be opened.
fn vendor() -> Result<(Vec<Opened>, Vec<String>), String> {
    if OPENS_NOTHING {
        return Err(
            "expected a program that can load CANN, found a statically linked one; use a build that is linked \
            to the system's C library"
                .to_owned(),
        );
    }
    let folders = folders();
    let runtime = find(&folders, &["libascendcl.so", "libacl_rt.so"]).map_err(|problems| {
        no_library(
            "expected CANN, found no libascendcl.so; install the CANN toolkit and source its set_env.sh, or use another \
                device",
            &problems,
        )
    })?;
    let without = "expected the CANN operator libraries, found no libnnopbase.so; source set_env.sh of the toolkit";
    let meta = find(&folders, &["libnnopbase.so"]).map_err(|problems| no_library(without, &problems))?;
    let (mut problems, mut operators) = (Vec::new(), Vec::new());
    for name in operator_names(&folders) {
        match find(&folders, &[&name]) {
            Ok(opened) => operators.push(opened),
            Err(more) => problems.extend(more),
        }
    }
    if operators.is_empty() {
        let without = "expected the CANN operator libraries, found no libopapi.so; install the operators for your chip";
        return Err(no_library(without, &problems));
    }
    let mut all = vec![runtime, meta];
    for path in custom_operators().iter().filter(|path| path.is_file()) {
        match load(path, RTLD_GLOBAL) {
            Ok(opened) => all.push(opened),
            Err(problem) => problems.push(problem),
        }
    }
    all.extend(operators);
    Ok((all, problems))
}

/// What is wrong where no library could be opened: those that are here, and else that there is none.
fn no_library(absent: &str, problems: &[String]) -> String {
    if problems.is_empty() {
        return absent.to_owned();
    }
    format!(
        "expected libraries of CANN that can be loaded, found: {}; check that the driver is installed and source \
            set_env.sh of the toolkit",
        problems.join("; ")
    )
}

/// Names of the vendor's operators, in the order in which they are looked for: parts that every version has, those
/// besides them in the first folder that has any, what is kept for programs of before, and what had everything once.
fn operator_names(folders: &[PathBuf]) -> Vec<String> {
    let in_folder = |folder: &PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|name| name.starts_with("libopapi_") && name.ends_with(".so")).collect();
        names.sort();
        names
    };
    let known = ["math", "nn", "cv", "transformer", "oam"].map(|part| format!("libopapi_{part}.so"));
    let last = ["libopapi_legacy.so", "libopapi.so"].map(str::to_owned);
    let found = folders.iter().map(in_folder).find(|names| !names.is_empty()).unwrap_or_default();
    let more = found.into_iter().filter(|name| !known.contains(name) && !last.contains(name)).collect::<Vec<_>>();
    [&known[..], &more, &last].concat()
}

/// Folders that libraries are looked for in, behind those that the system's loader knows.
fn folders() -> Vec<PathBuf> {
    let named = ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let toolkits = named.chain(TOOLKITS.iter().map(PathBuf::from));
    let mut all: Vec<PathBuf> = toolkits.flat_map(|toolkit| FOLDERS.map(|folder| toolkit.join(folder))).collect();
    all.push(PathBuf::from(DRIVER));
    all
}

/// Where operators of the user's own may lie, which go before the vendor's: in folders that are named, and in those of
/// an installation.
fn custom_operators() -> Vec<PathBuf> {
    let named = |variable: &str| {
        let list = std::env::var_os(variable).unwrap_or_default();
        std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect::<Vec<_>>()
    };
    let roots = [named("ASCEND_CUSTOM_OPP_PATH"), named("ASCEND_OPP_PATH")].concat();
    let packages = roots.iter().flat_map(|root| packages(&root.join("vendors")));
    roots.iter().cloned().chain(packages).map(|place| place.join("op_api/lib/libcust_opapi.so")).collect()
}

/// Packages of operators in a folder: those that its `config.ini` names, in its order, and then the others by name.
fn packages(folder: &Path) -> Vec<PathBuf> {
    let config = std::fs::read_to_string(folder.join("config.ini")).unwrap_or_default();
    let first = config.lines().find_map(|line| line.trim().strip_prefix("load_priority")?.trim().strip_prefix('='));
    let first: Vec<&str> = first.unwrap_or_default().split(',').map(str::trim).collect();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut packages: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    packages.sort_by_cached_key(|path| {
        let name = path.file_name().unwrap_or_default().to_owned();
        (first.iter().position(|first| name == *first).unwrap_or(first.len()), name)
    });
    packages
}

/// A library by the first of its names that can be opened, as the system's loader finds it or in one of the folders.
/// Fails with what is wrong with those that are there.
fn find(folders: &[PathBuf], names: &[&str]) -> Result<Opened, Vec<String>> {
    let mut problems = Vec::new();
    for name in names {
        let files = folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file());
        // The loader's sentence names the library that it does not find: this one, or one that this one needs.
        let nowhere = [
            format!("{name}: cannot be opened: {name}: cannot open shared object file"),
            format!("{name}: cannot be opened: Error loading shared library {name}: No such file"),
        ];
        for path in [PathBuf::from(name)].into_iter().chain(files) {
            match load(&path, RTLD_GLOBAL) {
                Ok(opened) => return Ok(opened),
                Err(problem) if nowhere.iter().any(|nowhere| problem.starts_with(nowhere)) => {}
                Err(problem) => problems.push(problem),
            }
        }
    }
    Err(problems)
}

fn load(path: &Path, scope: c_int) -> Result<Opened, String> {
    // SAFETY: a library of the vendor, or ours, started as any program would; it stays open as long as the process
    // lives.
    let opened = unsafe { Opened::open(Some(path), RTLD_LAZY | scope) };
    // The loader's own sentence stands behind the error.
    let reason = |error: libloading::Error| error.source().map_or_else(|| error.to_string(), ToString::to_string);
    opened.map_err(|error| format!("{}: cannot be opened: {}", path.display(), reason(error)))
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

    #[test]
    fn all_libraries_of_operators_are_looked_for() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let write =
            |folder: usize, name: &str| std::fs::write(folders[folder].path().join(name), "no library").unwrap();
        write(1, "libopapi_legacy.so");
        write(1, "libopapi_nn.so");
        write(1, "libopapi_audio.so");
        write(1, "libopapi_audio.so.bak");
        // Of another installation, whose operators are not mixed with those of the first.
        write(2, "libopapi_old.so");
        let paths = folders.each_ref().map(|folder| folder.path().to_owned());
        let parts =
            ["math", "nn", "cv", "transformer", "oam", "audio", "legacy"].map(|part| format!("libopapi_{part}.so"));
        assert_eq!(operator_names(&paths), [&parts[..], &["libopapi.so".to_owned()]].concat());
        assert_eq!(operator_names(&[]).len(), 7);
    }

    #[test]
    fn packages_of_operators_go_by_their_priority() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["beta", "alpha", "delta", "customize"];
        names.iter().for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
        let found = || {
            packages(folder.path())
                .iter()
                .map(|path| path.strip_prefix(folder.path()).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(found(), ["alpha", "beta", "customize", "delta"].map(PathBuf::from));
        std::fs::write(folder.path().join("config.ini"), "load_priority=delta, beta,gone\n").unwrap();
        assert_eq!(found(), ["delta", "beta", "alpha", "customize"].map(PathBuf::from));
    }

    #[test]
    fn what_is_there_and_cannot_be_opened_is_told() {
        if OPENS_NOTHING {
            let problem = vendor().unwrap_err();
            assert!(problem.contains("statically linked"), "{problem}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let names = ["libtrueup_nowhere.so", "libtrueup_broken.so"];
        let told = |problems: Vec<String>| no_library("there is none", &problems);
        assert_eq!(told(find(&folders, &names).unwrap_err()), "there is none");
        std::fs::write(folder.path().join(names[1]), "no library").unwrap();
        let problem = told(find(&folders, &names).unwrap_err());
        assert!(problem.contains("libtrueup_broken.so: cannot be opened") && !problem.contains(names[0]), "{problem}");
        let library =
            Library { opened: Vec::new(), problems: vec!["libopapi.so: broken".to_owned()], found: Mutex::default() };
        let missing = library.missing(c"aclnnAdd");
        assert!(missing.contains("aclnnAdd") && missing.contains("libopapi.so: broken"), "{missing}");
    }
}
