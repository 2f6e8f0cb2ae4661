//! A program in C, compiled here, linked against the vendor's names, and run on the simulator.

use crate::library::path;
use std::{
    path::Path,
    process::{Command, Output},
};

/// The names that programs link with.
const NAMES: [&str; 4] = ["libascendcl.so", "libacl_rt.so", "libnnopbase.so", "libopapi.so"];

/// On Linux.
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

fn compiler() -> Option<&'static str> {
    ["cc", "gcc", "clang"]
        .into_iter()
        .find(|compiler| Command::new(compiler).arg("--version").output().is_ok_and(|said| said.status.success()))
}

fn run(folder: &Path, argument: &str, settings: Option<&Path>, visible: Option<&str>) -> Output {
    let mut program = Command::new(folder.join("vectors"));
    program
        .arg(argument)
        .env("LD_LIBRARY_PATH", folder)
        .env_remove("TRUEUP_NPU_SIM")
        .env_remove("ASCEND_RT_VISIBLE_DEVICES");
    program.envs(settings.map(|path| ("TRUEUP_NPU_SIM", path)));
    program.envs(visible.map(|list| ("ASCEND_RT_VISIBLE_DEVICES", list)));
    program.output().expect("the program starts")
}

#[test]
#[allow(clippy::print_stdout, reason = "what is skipped is said by name")]
fn a_program_in_c_adds_two_vectors() {
    let Some(compiler) = compiler() else {
        println!("skipped: a_program_in_c_adds_two_vectors: there is no C compiler (cc, gcc, clang)");
        return;
    };
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let folder = folder.path();
    for name in NAMES {
        std::os::unix::fs::symlink(path(), folder.join(name)).expect("the folder can be written");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runtime/vectors.c");
    let mut compile = Command::new(compiler);
    compile.arg("-O1").arg("-Wall").arg("-Werror").arg(source).arg("-o").arg(folder.join("vectors"));
    compile.arg("-L").arg(folder).args(["-lascendcl", "-lnnopbase", "-lopapi"]);
    let said = compile.output().expect("the compiler starts");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));

    let right = run(folder, "right", None, None);
    let output = String::from_utf8_lossy(&right.stdout);
    assert!(right.status.success(), "{output} {}", String::from_utf8_lossy(&right.stderr));
    assert_eq!(output, "Ascend910B1: 1 devices: 3 5 7 9 11 13 15 17\n");

    let settings = folder.join("settings.json");
    std::fs::write(&settings, r#"{"chip": "310p", "cards": 4, "timing": "late"}"#).expect("the folder can be written");
    let other = run(folder, "right", Some(&settings), Some("0,2, 3"));
    assert_eq!(String::from_utf8_lossy(&other.stdout), "Ascend310P3: 2 devices: 3 5 7 9 11 13 15 17\n");

    // Without its synchronization the download is not ordered behind the sum.
    let wrong = run(folder, "unsynchronized", Some(&settings), None);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(1), "{said}");
    let line =
        said.lines().find(|line| line.starts_with("npu-sim: host_race: aclrtMemcpy argument src")).expect("a finding");
    assert!(line.contains("aclnnAdd argument out writes on stream"), "{line}");
    assert!(line.contains("called by main"), "{line}");

    // Its report is there although it has left without aclFinalize.
    std::fs::write(&settings, format!(r#"{{"timing": "late", "report": {:?}}}"#, folder.join("report.json")))
        .expect("the folder can be written");
    run(folder, "unsynchronized", Some(&settings), None);
    let report = std::fs::read_to_string(folder.join("report.json")).expect("a report");
    assert!(report.contains(r#""kind": "host_race""#), "{report}");

    std::fs::write(&settings, r#"{"on_finding": "abort"}"#).expect("the folder can be written");
    let aborted = run(folder, "unsynchronized", Some(&settings), None);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&aborted.status), Some(SIGABRT));

    // What is refused for want of a thread is neither waited for nor done later.
    let threadless = run(folder, "threadless", None, None);
    assert_eq!(String::from_utf8_lossy(&threadless.stdout), "207005 0 0 0\n");

    // A program that follows a device pointer crashes, as it does with hardware.
    let crash = run(folder, "follow", None, None);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&crash.status), Some(SIGSEGV));
}
