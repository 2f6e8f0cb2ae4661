//! Former spellings of flags: they still work, and no help text shows them.

use crate::trueup::{Scratch, argument, tiny, trueup};

/// Each former flag, its replacement, and the commands that take it.
const RENAMED: [(&str, &str, &[&[&str]]); 5] = [
    ("--slim-vocab", "--prune-vocab", &[&["convert"]]),
    ("--plant", "--inject-fault", &[&["verify"], &["repro"]]),
    ("--one-of", "--sample", &[&["ops", "test"]]),
    ("--linear", "--matmul", &[&["run"], &["verify"], &["bench"], &["ops", "test"], &["ops", "perf"]]),
    ("--repack", "--no-repack", &[&["run"], &["verify"], &["plan"], &["repro"], &["ops", "list"]]),
];

#[test]
fn help_shows_the_new_flags_only() {
    for (old, new, commands) in RENAMED {
        for command in commands {
            for flag in ["-h", "--help"] {
                let help = trueup(&[command, &[flag][..]].concat()).exits(0).stdout;
                let shows = |name: &str| help.split([' ', '\n', '=', '[', ',']).any(|word| word == name);
                assert!(shows(new) && !shows(old), "{old}, {new} in {help}");
            }
        }
    }
}

#[test]
fn former_flags_do_what_the_new_ones_do() {
    let scratch = Scratch::new();
    let folder = argument(&tiny("llama3"));
    let (model, target) = (scratch.gguf(&tiny("llama3"), "model.gguf"), scratch.path("pruned.gguf"));
    let convert = ["convert", &folder, &target, "--dry-run", "--json"];
    let verify = ["verify", &model, "--ids", "1 5", "--steps", "0", "-q"];
    let test = ["ops", "test", "--op", "swiglu", "--seed", "7"];
    let run = ["run", &model, "--ids", "1 5", "-n", "2", "-q"];
    let pairs: [(&[&str], &[&str], &[&str]); 7] = [
        (&convert, &["--slim-vocab", "drop:300-301"], &["--prune-vocab", "drop:300-301"]),
        (&["verify"], &["--plant", "list"], &["--inject-fault", "list"]),
        (&verify, &["--plant", "gain@ffn_up-1"], &["--inject-fault", "gain@ffn_up-1"]),
        (&test, &["--one-of", "3"], &["--sample", "1/3"]),
        (&run, &["--repack", "off"], &["--no-repack"]),
        (&run, &["--repack", "on"], &[]),
        (&run, &["--linear", "dequantize"], &["--matmul", "dequantize"]),
    ];
    for (call, old, new) in pairs {
        let [old, new] = [old, new].map(|flags| trueup(&[call, flags].concat()));
        let same = |line: &&str| !line.starts_with("took ");
        let lines = |text: &str| text.lines().filter(same).map(str::to_owned).collect::<Vec<_>>();
        assert!(old.code < 2 && old.code == new.code, "{old:?} {new:?}");
        assert_eq!(lines(&old.stdout), lines(&new.stdout), "{old:?} {new:?}");
    }
    for bad in [&["--repack", "off", "--no-repack"][..], &["--no-repack=off"], &["--repack", "maybe"]] {
        trueup(&[&run[..], bad].concat()).refuses(&[]);
    }
    for bad in [&["--sample", "3"][..], &["--sample", "1/0"], &["--sample", "1/3", "--one-of", "3"]] {
        trueup(&[&test[..], bad].concat()).refuses(&[]);
    }
}
