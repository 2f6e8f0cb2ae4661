//! `quantize --attest` and `reproduce`: the statement, a run that is repeated, what differs, hostile statements.

use crate::trueup::{Scratch, stories, tiny, trueup};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;

/// The SHA-256 of a file.
fn hash(path: &str) -> String {
    let digest = Sha256::digest(fs::read(path).expect("a file"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &str) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// A model, its quantized form, and the attestation.
struct Attested {
    scratch: Scratch,
    source: String,
    output: String,
    statement: String,
}

impl Attested {
    fn new(flags: &[&str]) -> Attested {
        let scratch = Scratch::new();
        let source = scratch.gguf(&tiny("qwen2"), "source.gguf");
        let (output, statement) = (scratch.path("out.gguf"), scratch.path("out.intoto.json"));
        let call = [&["quantize", &source, &output, "--attest", &statement, "-q"], flags].concat();
        trueup(&call).exits(0);
        Attested { scratch, source, output, statement }
    }

    /// The statement with a change, as another file in the same directory.
    fn changed(&self, change: impl FnOnce(&mut Value)) -> String {
        let (mut statement, path) = (read(&self.statement), self.scratch.path("changed.json"));
        change(&mut statement);
        fs::write(&path, statement.to_string()).expect("a file");
        path
    }
}

#[test]
fn a_statement_names_inputs_options_output_and_losses() {
    let flags = ["--type", "q4_0", "--pure", "--rule", "ffn_down=q5_0"];
    let attested = Attested::new(&flags);
    let statement = read(&attested.statement);
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let subject = &statement["subject"][0];
    assert_eq!((&subject["name"], &subject["digest"]["sha256"]), (&json!("out.gguf"), &json!(hash(&attested.output))));
    let build = &statement["predicate"]["buildDefinition"];
    let input = json!([{"name": "source.gguf", "digest": {"sha256": hash(&attested.source)}}]);
    assert_eq!(build["resolvedDependencies"], input);
    let recipe = &build["externalParameters"]["recipe"];
    assert_eq!((&recipe["type"], &recipe["pure"]), (&json!("q4_0"), &json!(true)));
    assert_eq!(recipe["rules"], json!(["ffn_down=q5_0"]));
    let versions = &statement["predicate"]["runDetails"]["builder"]["version"];
    assert_eq!(versions["trueup"], env!("CARGO_PKG_VERSION"));
    let again = attested.scratch.path("again.json");
    let call = ["quantize", &attested.source, &attested.output, "-t", "1", "--attest", &again, "--json", "-q"];
    let report = trueup(&[&call[..], &flags].concat()).exits(0).json();
    assert!(fs::read(&again).expect("a file") == fs::read(&attested.statement).expect("a file"));
    let hashes = trueup(&["inspect", &attested.output, "--hash"]).exits(0).stdout;
    let tensors = subject["annotations"]["tensors"].as_array().expect("tensors");
    for (tensor, line) in tensors.iter().zip(report["tensors"].as_array().expect("tensors")) {
        for field in ["name", "type", "source_type", "rmse", "cosine", "max_error", "bytes"] {
            assert_eq!(tensor[field], line[field], "{field}");
        }
        let (sha256, name) = (tensor["sha256"].as_str().expect("a hash"), tensor["name"].as_str().expect("a name"));
        assert!(hashes.lines().any(|line| line == format!("{sha256}  {name}")), "{name}");
    }
    assert!(tensors.iter().any(|tensor| tensor["rmse"].as_f64().is_some_and(|rmse| rmse > 0.0)));
}

#[test]
fn an_attested_run_can_be_repeated() {
    for flags in [&["-b", "8"][..], &["-b", "4", "--layout", "split"], &["--type", "q5_k_m", "--pure"]] {
        let attested = Attested::new(flags);
        let answer = trueup(&["reproduce", &attested.statement]).exits(0);
        assert_eq!(answer.stdout, "out.gguf: reproduced, identical bytes\n", "{answer:?}");
        let again = attested.scratch.path("again.gguf");
        let answer = trueup(&["reproduce", &attested.statement, "-o", &again, "-t", "1", "--json"]).exits(0).json();
        assert_eq!((&answer["equal"], &answer["differences"]), (&json!(true), &json!([])));
        assert_eq!(hash(&again), hash(&attested.output));
    }
    let attested = Attested::new(&["-b", "8"]);
    let folder = attested.scratch.path("temporary");
    let call = ["reproduce", &attested.statement, "--temp-dir", &folder];
    trueup(&call).refuses(&["expected a directory for the temporary file, found none"]);
    fs::create_dir(&folder).expect("a folder");
    trueup(&call).exits(0);
    // The file is gone.
    fs::remove_dir(&folder).expect("an empty folder");
    let moved = attested.scratch.path("moved.gguf");
    fs::rename(&attested.source, &moved).expect("a file");
    trueup(&["reproduce", &attested.statement]).refuses(&["source.gguf", "found no file; pass its path with --source"]);
    trueup(&["reproduce", &attested.statement, "--source", &moved, "-o", &moved])
        .refuses(&["the output path is also an input"]);
    let statement = attested.statement.as_str();
    trueup(&["reproduce", statement, "--source", &moved, "-o", statement])
        .refuses(&["the output path is also an input"]);
    trueup(&["reproduce", statement, "--source", &moved, "--imatrix", &moved]).refuses(&["remove --imatrix"]);
    trueup(&["reproduce", statement, "--source", &moved]).exits(0);
    assert_eq!(attested.scratch.names(), ["moved.gguf", "out.gguf", "out.intoto.json"]);
}

#[test]
fn an_importance_matrix_may_have_another_name_when_a_run_is_repeated() {
    let scratch = Scratch::new();
    let (source, matrix) = (scratch.gguf(&stories(), "source.gguf"), scratch.path("imatrix.gguf"));
    let (output, statement) = (scratch.path("out.gguf"), scratch.path("out.json"));
    let corpus = scratch.path("corpus.txt");
    fs::write(&corpus, "Once upon a time there was a little girl. ".repeat(40)).expect("a file");
    trueup(&["imatrix", &source, "--corpus", &corpus, "-c", "32", "--chunks", "4", "-o", &matrix, "-q"]).exits(0);
    let call = ["quantize", &source, &output, "-b", "4", "--imatrix", &matrix, "--attest", &statement, "-q"];
    trueup(&call).exits(0);
    let dependencies = &read(&statement)["predicate"]["buildDefinition"]["resolvedDependencies"];
    let expected = json!({"name": "imatrix.gguf", "digest": {"sha256": hash(&matrix)}});
    assert_eq!(dependencies[1], expected);
    trueup(&["reproduce", &statement]).exits(0);
    let moved = scratch.path("moved.gguf");
    fs::rename(&matrix, &moved).expect("a file");
    trueup(&["reproduce", &statement]).refuses(&["imatrix.gguf", "pass its path with --imatrix"]);
    trueup(&["reproduce", &statement, "--imatrix", &moved]).exits(0);
    let call = ["imatrix", &source, "--corpus", &corpus, "-c", "32", "--chunks", "5", "-o", &matrix, "-q"];
    trueup(&call).exits(0);
    let answer = trueup(&["reproduce", &statement]).exits(1);
    assert!(answer.stdout.starts_with("imatrix.gguf: expected SHA-256"), "{answer:?}");
    assert!(answer.stdout.contains("; pass the importance matrix of the attested run with --imatrix\n"), "{answer:?}");
}

#[test]
fn what_differs_is_named() {
    let attested = Attested::new(&["-b", "8"]);
    let zero = json!("0".repeat(64));
    let answer = trueup(&["reproduce", &attested.statement, "--source", &attested.output]).exits(1);
    let named = format!("{} (attested as source.gguf): expected SHA-256", attested.output);
    assert!(answer.stdout.starts_with(&named), "{answer:?}");
    assert!(answer.stdout.contains("; pass the source model of the attested run with --source\n"), "{answer:?}");
    assert!(answer.stdout.ends_with("out.gguf: not reproduced: an input differs\n"), "{answer:?}");
    let path = attested.changed(|statement| {
        statement["subject"][0]["digest"]["sha256"] = zero.clone();
        statement["predicate"]["runDetails"]["builder"]["version"]["trueup"] = json!("0.0.1");
    });
    let answer = trueup(&["reproduce", &path]).exits(1);
    assert!(answer.stdout.contains("all tensors are equal; the metadata"), "{answer:?}");
    assert!(answer.stderr.contains("used trueup 0.0.1; this is trueup"), "{answer:?}");
    let path = attested.changed(|statement| {
        statement["subject"][0]["digest"]["sha256"] = zero.clone();
        statement["subject"][0]["annotations"]["tensors"][3]["sha256"] = zero.clone();
        statement["subject"][0]["annotations"]["tensors"][5]["sha256"] = zero.clone();
        statement["subject"][0]["annotations"]["tensors"][5]["name"] = json!("other");
    });
    let name = read(&path)["subject"][0]["annotations"]["tensors"][3]["name"].as_str().expect("a name").to_owned();
    let answer = trueup(&["reproduce", &path]).exits(1);
    let sum = "out.gguf: not reproduced: the inputs are equal, but the results differ\n";
    assert!(answer.stdout.contains(&format!("the first is {name}: sha256: expected 000")), "{answer:?}");
    assert!(answer.stdout.contains("2 of ") && answer.stdout.ends_with(sum), "{answer:?}");
    for (field, value) in [
        ("rmse", json!(0.25)),
        ("cosine", json!(null)),
        ("max_error", json!(0.5)),
        ("sha256", zero),
        ("type", json!("q5_1")),
        ("shape", json!([1])),
        ("note", json!("a reason")),
    ] {
        let path = attested.changed(|statement| statement["subject"][0]["annotations"]["tensors"][3][field] = value);
        let answer = trueup(&["reproduce", &path]).exits(1);
        assert!(answer.stdout.contains(&format!("the first is {name}: {field}: expected ")), "{answer:?}");
        assert!(answer.stdout.starts_with("1 of ") && answer.stdout.ends_with(sum), "{answer:?}");
    }
    let path = attested.changed(|statement| {
        statement["subject"][0]["annotations"]["tensors"].as_array_mut().expect("tensors").clear();
    });
    let answer = trueup(&["reproduce", &path]).exits(1);
    assert!(answer.stdout.starts_with("expected 0 tensors, as attested, found "), "{answer:?}");
    let path = attested.changed(|statement| {
        statement["predicate"]["buildDefinition"]["externalParameters"]["recipe"]["type"] = json!("q5_0");
    });
    let answer = trueup(&["reproduce", &path, "--json"]).exits(1).json();
    assert_eq!((&answer["equal"], &answer["inputs_equal"]), (&json!(false), &json!(true)));
}

#[test]
fn control_characters_of_a_statement_are_not_printed() {
    let attested = Attested::new(&["-b", "8"]);
    for field in ["type", "source_type", "note", "name"] {
        let path = attested.changed(|statement| {
            statement["subject"][0]["annotations"]["tensors"][3][field] = json!("\u{1b}[2Jq8_0\u{202e}");
        });
        let answer = trueup(&["reproduce", &path]).exits(1);
        assert!(!answer.stdout.contains(['\u{1b}', '\u{202e}']), "{answer:?}");
        assert!(answer.stdout.contains("[2Jq8_0"), "{answer:?}");
    }
}

#[test]
fn types_of_tensors_that_cannot_be_assigned_are_refused() {
    let attested = Attested::new(&["-b", "8"]);
    let cases = [
        (json!({"output.weight": "q9"}), "output.weight: expected a type that trueup can write, found q9"),
        (json!({"output.weight": 8}), "invalid type: integer `8`, expected a string"),
        (json!({"no.weight": "q8_0"}), "tensor_types: no.weight: the model has no tensor of this name"),
    ];
    for (types, problem) in cases {
        let path = attested.changed(|statement| {
            statement["predicate"]["buildDefinition"]["externalParameters"]["recipe"]["tensor_types"] = types;
        });
        trueup(&["reproduce", &path]).refuses(&[problem]);
    }
}

#[test]
fn names_with_directories_are_rejected() {
    let attested = Attested::new(&["-b", "8"]);
    let names = ["../source.gguf", "/etc/passwd", "", ".", "..", "a/b", "source.gguf/", "a\0b"];
    for name in names {
        let path = attested.changed(|statement| {
            let definition = &mut statement["predicate"]["buildDefinition"];
            definition["resolvedDependencies"][0]["name"] = json!(name);
            definition["externalParameters"]["source"] = json!(name);
        });
        let place = "predicate.buildDefinition.resolvedDependencies[0].name";
        trueup(&["reproduce", &path]).refuses(&[place, "expected a file name without a directory"]);
        let path = attested.changed(|statement| statement["subject"][0]["name"] = json!(name));
        trueup(&["reproduce", &path]).refuses(&["subject[0].name: expected a file name without a directory"]);
    }
}

#[test]
fn hostile_statements_are_refused_in_one_sentence() {
    let attested = Attested::new(&["-b", "8"]);
    let build = |statement: &mut Value, field: &str, value: Value| {
        statement["predicate"]["buildDefinition"][field] = value;
    };
    let parameter = |statement: &mut Value, field: &str, value: Value| {
        statement["predicate"]["buildDefinition"]["externalParameters"][field] = value;
    };
    type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;
    let changes: Vec<(Change, &str)> = vec![
        (Box::new(|it| it["_type"] = json!("https://in-toto.io/Statement/v2")), "_type: expected"),
        (Box::new(|it| it["predicateType"] = json!(7)), "invalid type"),
        (Box::new(|it| it["predicateType"] = json!("https://slsa.dev/provenance/v2")), "predicateType: expected"),
        (Box::new(|it| *it = json!({"payloadType": "application/vnd.in-toto+json", "payload": ""})), "envelope"),
        (Box::new(|it| *it = json!([1, 2])), "expected"),
        (Box::new(|it| it["subject"] = json!([])), "subject: expected 1 output, found 0"),
        (Box::new(|it| it["subject"][0]["digest"] = json!({"sha512": "00"})), "missing field"),
        (
            Box::new(|it| it["subject"][0]["digest"]["sha256"] = json!("0".repeat(63))),
            "subject[0].digest.sha256: expected 64",
        ),
        (
            Box::new(|it| it["subject"][0]["annotations"]["tensors"][1]["sha256"] = json!("X")),
            "subject[0].annotations.tensors[1].sha256: expected 64 lower-case hexadecimal digits",
        ),
        (Box::new(|it| build(it, "buildType", json!("urn:trueup:quantize:v2"))), "buildType: expected"),
        (
            Box::new(|it| build(it, "resolvedDependencies", json!([]))),
            "resolvedDependencies: expected a model, found 0 files",
        ),
        (Box::new(|it| parameter(it, "surprise", json!(1))), "unknown field"),
        (Box::new(|it| parameter(it, "layout", json!("spiral"))), "unknown variant"),
        (
            Box::new(|it| parameter(it, "source", json!("out.gguf"))),
            "externalParameters.source: expected source.gguf, as in resolvedDependencies, found out.gguf",
        ),
        (Box::new(|it| parameter(it, "importance", json!({"file": "x"}))), "missing field"),
        (Box::new(|it| parameter(it, "recipe", json!({"type": "q8_0", "surprise": 1}))), "unknown field"),
        (
            Box::new(|it| it["predicate"]["buildDefinition"]["externalParameters"]["recipe"]["type"] = json!("q9")),
            "recipe: expected a type that trueup can write, found q9",
        ),
        (
            Box::new(|it| {
                it["predicate"]["buildDefinition"]["externalParameters"]["recipe"]["rules"] = json!(["(=q8_0"]);
            }),
            "unclosed group",
        ),
    ];
    for (change, expected) in changes {
        let path = attested.changed(change);
        trueup(&["reproduce", &path]).refuses(&[expected]);
    }
    let path = attested.scratch.path("changed.json");
    let deep = format!("{{\"_type\":{}", "[".repeat(100_000));
    let twice = fs::read_to_string(&attested.statement).expect("a file").replacen('{', "{\"_type\":\"x\",", 1);
    for (text, expected) in [("", "end of the file"), ("{", "end of the file"), (&deep, "recursion"), (&twice, "twice")]
    {
        fs::write(&path, text).expect("a file");
        trueup(&["reproduce", &path]).refuses(&[expected]);
    }
    fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    trueup(&["reproduce", &path]).refuses(&["expected at most"]);
    trueup(&["reproduce", &attested.scratch.path("none.json")]).refuses(&["none.json"]);
    assert_eq!(attested.scratch.names(), ["changed.json", "out.gguf", "out.intoto.json", "source.gguf"]);
}

#[test]
fn an_attestation_replaces_no_input_and_no_output() {
    let scratch = Scratch::new();
    let (source, output) = (scratch.gguf(&tiny("qwen2"), "source.gguf"), scratch.path("out.gguf"));
    let call = |attest: &str| trueup(&["quantize", &source, &output, "-b", "8", "--attest", attest]);
    call(&source).refuses(&["the output path is also an input"]);
    call(&output).refuses(&["--attest: this path is also the output model"]);
    call(&scratch.path("none/out.json")).refuses(&["does not exist"]);
    call("-").refuses(&["--attest: expected a file name, found -"]);
    let flm = scratch.path("out.flm");
    trueup(&["quantize", &source, &flm, "-b", "8", "--attest", &scratch.path("a.json")]).refuses(&["remove --attest"]);
    let dry = ["quantize", &source, &output, "-b", "8", "--dry-run", "--attest", &scratch.path("a.json")];
    trueup(&dry).exits(2);
    assert_eq!(scratch.names(), ["source.gguf"]);
}
