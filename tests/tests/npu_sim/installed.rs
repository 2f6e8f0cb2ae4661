//! An installation of CANN as the device `npu` finds it: the simulator in the place of the vendor's libraries, under
//! their names. What is here is listed card by card, and what is not here, or cannot be opened, is said.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use trueup::runtime::{DeviceOptions, list_devices};

/// The part that lists, in a process for each installation.
pub const LISTED: &str = "listed";

/// Cards of the installation.
const SETTINGS: &str = r#"{"chip": "310p", "cards": 3, "memory_bytes": 1073741824}"#;

/// Libraries that are whole, one that is not, and what the list then has, and has not.
type Case = (&'static [&'static str], Option<&'static str>, &'static [&'static str], &'static str);

const CASES: [Case; 4] = [
    (
        &["libascendcl.so", "libnnopbase.so", "libopapi_legacy.so"],
        None,
        &["npu here: Ascend310P", "npu:1 here: Ascend310P", "npu:2 here: Ascend310P", "npu-sim here: simulated"],
        "npu:3",
    ),
    (
        &["libnnopbase.so", "libopapi.so"],
        Some("libascendcl.so"),
        &["npu not here: ", "lib64/libascendcl.so: cannot be opened"],
        "install the CANN toolkit",
    ),
    (&["libascendcl.so", "libnnopbase.so"], None, &["npu not here: ", "found no libopapi.so"], "npu:1"),
    (
        &["libascendcl.so", "libnnopbase.so"],
        Some("libopapi.so"),
        &["npu not here: ", "lib64/libopapi.so: cannot be opened"],
        "nowhere",
    ),
];

/// Lists what is here.
pub fn listed() {
    for device in list_devices(&DeviceOptions::default()) {
        println!("{} {}: {}", device.name, if device.available { "here" } else { "not here" }, device.description);
    }
}

/// What is not right.
pub fn installed() -> Vec<String> {
    let wrong: Vec<String> = CASES.iter().filter_map(wrong).collect();
    println!("npu-sim, simulated: {} installations, {} not told as they are", CASES.len(), wrong.len());
    wrong
}

fn wrong((whole, broken, has, has_not): &Case) -> Option<String> {
    let program = std::env::current_exe().expect("the test's own path");
    let simulator = program.with_file_name("libtrueup_npu_sim.so");
    let home = tempfile::tempdir().expect("a scratch directory");
    install(home.path(), &simulator, whole, *broken);
    let settings = home.path().join("settings.json");
    std::fs::write(&settings, SETTINGS).expect("settings are written");
    let mut command = Command::new(&program);
    command.args(["--part", LISTED]).env("ASCEND_HOME_PATH", home.path()).env("TRUEUP_NPU_SIM", &settings);
    ["ASCEND_TOOLKIT_HOME", "ASCEND_RT_VISIBLE_DEVICES", "LD_LIBRARY_PATH"].into_iter().for_each(|variable| {
        command.env_remove(variable);
    });
    let output = command.output().expect("the test starts itself");
    let said = String::from_utf8_lossy(&output.stdout);
    let is_told = has.iter().all(|part| said.contains(part)) && !said.contains(has_not) && output.status.success();
    (!is_told).then(|| format!("with {whole:?}, broken {broken:?}: {said}, not {has:?}, or {has_not}"))
}

fn install(home: &Path, simulator: &Path, whole: &[&str], broken: Option<&str>) {
    let folder = home.join("lib64");
    std::fs::create_dir(&folder).expect("a directory is made");
    for name in whole {
        symlink(simulator, folder.join(name)).expect("a link is made");
    }
    if let Some(name) = broken {
        std::fs::write(folder.join(name), "no library").expect("a file is written");
    }
}
