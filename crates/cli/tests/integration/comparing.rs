//! `inspect`, `diff`, `verify`, `plan`, `devices`, `demo`: what they say, and their exit codes.

use crate::trueup::{Scratch, argument, ids, stories, tiny, trueup};
use ::trueup::formats::{Checkpoint, Gguf};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[test]
fn hashes_can_be_checked_later() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&stories(), "stories.gguf");
    let list = scratch.path("stories.sha256");
    let hashes = trueup(&["inspect", &model, "--hash"]).exits(0).stdout;
    assert_eq!(trueup(&["inspect", &model, "--hash", "-t", "1"]).exits(0).stdout, hashes);
    fs::write(&list, &hashes).expect("a file");
    trueup(&["inspect", &model, "--check", &list]).exits(0);
    let other = scratch.path("other.gguf");
    trueup(&["quantize", &model, &other, "-b", "8"]).exits(0);
    let told = trueup(&["inspect", &other, "--check", &list]).exits(1);
    assert!(told.stdout.ends_with("43 differences in 56 tensors\n"), "{told:?}");
    let answer = trueup(&["inspect", &other, "--check", &list, "--json"]).exits(1).json();
    assert_eq!(answer["equal"], false);
    assert_eq!(answer["differences"].as_array().map(Vec::len), Some(43));
    trueup(&["inspect", &model, "--check", &model]).refuses(&["text"]);
    fs::write(&list, "hello\n").expect("a file");
    trueup(&["inspect", &model, "--check", &list]).refuses(&["line 1"]);
}

#[test]
fn two_models_of_any_format_are_compared() {
    let scratch = Scratch::new();
    let (folder, gguf) = (argument(&stories()), scratch.gguf(&stories(), "stories.gguf"));
    let told = trueup(&["diff", &folder, &gguf]).exits(0);
    assert!(told.stdout.starts_with("equal: ") && told.stdout.contains("56 tensors: 56 exact, 0 rounded"), "{told:?}");
    let quantized = scratch.quantized_stories("q8_0");
    let answer = trueup(&["diff", &folder, &quantized, "--json"]).exits(1).json();
    assert_eq!((&answer["equal"], answer["differences"].as_array().map(Vec::len)), (&json!(false), Some(43)));
    let line = &answer["differences"][0];
    assert_eq!((&line["kind"], &line["name"]), (&json!("tensor"), &json!("token_embd.weight")));
    assert_eq!(trueup(&["diff", &folder, &quantized, "--allow-rounding", "--json"]).exits(0).json()["equal"], true);
    let told = trueup(&["diff", &gguf, &scratch.gguf(&tiny("qwen3"), "qwen3.gguf"), "-t", "1"]).exits(1);
    assert!(told.stdout.contains("general.architecture") && told.stdout.contains("different: "), "{told:?}");
    trueup(&["diff", &gguf, &scratch.path("missing.gguf")]).refuses(&["missing.gguf"]);
}

/// A file quantized with an importance matrix, before and after damage to one of its matrices.
#[test]
fn weights_quantized_with_an_importance_matrix_are_compared_with_and_without_it() {
    let scratch = Scratch::new();
    let (model, weighted, imatrix) =
        (scratch.gguf(&stories(), "model.gguf"), scratch.path("w.gguf"), scratch.path("i"));
    let text = scratch.path("corpus.txt");
    fs::write(&text, "Once upon a time, Tom saw a big dog in the park. Lily was happy. ".repeat(20)).expect("a file");
    trueup(&["imatrix", &model, "--corpus", &text, "-o", &imatrix, "-c", "64", "-q"]).exits(0);
    trueup(&["quantize", &model, &weighted, "--type", "q4_k_m", "--imatrix", &imatrix, "-q"]).exits(0);

    let plain = trueup(&["diff", &model, &weighted, "--json"]).exits(1).json();
    let lines = plain["differences"].as_array().expect("differences");
    let of = |name: &str| lines.iter().find(|line| line["name"] == name).map(|line| line["values"].clone());
    let query = of("blk.0.attn_q.weight").expect("a matrix");
    assert_eq!((&query["rounded"], &query["weighted"]), (&json!(false), &json!(true)), "{query}");
    assert!(query["cosine"].as_f64().is_some_and(|cosine| cosine > 0.98), "{query}");
    let count = lines.iter().filter(|line| line["values"]["weighted"] == true).count();
    assert!(count >= 30 && plain["weighted"] == count && plain["exact"].as_u64() > Some(10), "{plain}");
    assert_eq!(lines.len() - count, plain["rounded"].as_u64().expect("a number") as usize);
    let shown = trueup(&["diff", &model, &weighted, "--allow-rounding"]).exits(1);
    assert!(shown.stdout.contains("quantized with an importance matrix: ") && shown.stdout.contains(", cosine 0.9"));
    assert!(shown.stdout.contains(&format!(" {count} quantized with an importance matrix, 0 different")), "{shown:?}");
    assert!(shown.stderr.contains("pass the importance matrix with --imatrix"), "{shown:?}");

    // The matrix makes the comparison exact, in both orders of the models.
    for pair in [[&model, &weighted], [&weighted, &model]] {
        let call = ["diff", pair[0], pair[1], "--imatrix", &imatrix, "--allow-rounding", "--json"];
        let found = trueup(&call).exits(0).json();
        assert_eq!((&found["equal"], &found["weighted"], &found["notes"]), (&json!(true), &json!(0), &json!([])));
    }
    // One changed code is found with the matrix, and blocks in another order without it.
    let file = Gguf::open(&weighted).expect("a model");
    let number = file.tensors().iter().position(|tensor| tensor.name == "blk.2.ffn_up.weight").expect("a matrix");
    let mut blocks = vec![0; file.tensors()[number].bytes as usize];
    file.read(number, 0, &mut blocks).expect("the file is whole");
    let bytes = fs::read(&weighted).expect("readable");
    let start = bytes.windows(blocks.len()).position(|window| window == blocks).expect("the blocks are in the file");
    let changed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        change(&mut bytes[start..start + blocks.len()]);
        fs::write(&weighted, bytes).expect("a file");
    };
    changed(&|blocks| blocks[50] ^= 0x10);
    let call = ["diff", &model, &weighted, "--imatrix", &imatrix, "--allow-rounding", "--json"];
    let found = trueup(&call).exits(1).json();
    let names: Vec<&Value> =
        found["differences"].as_array().expect("a list").iter().map(|line| &line["name"]).collect();
    assert_eq!((names, &found["weighted"]), (vec![&json!("blk.2.ffn_up.weight")], &json!(0)));
    // Of the 22 bytes of a block of q5_0.
    changed(&|blocks| blocks.rotate_left(22 * 7));
    let shown = trueup(&["diff", &model, &weighted, "--allow-rounding"]).exits(1);
    assert!(shown.stdout.contains("DIFFERENT: ") && shown.stdout.contains(", 1 different"), "{shown:?}");
    trueup(&["diff", &model, &weighted, "--imatrix", &text]).refuses(&["expected an importance matrix"]);
}

#[test]
fn every_format_can_be_inspected() {
    let scratch = Scratch::new();
    let gguf = scratch.gguf(&stories(), "stories.gguf");
    let arrays = scratch.path("logits.safetensors");
    trueup(&["run", &gguf, "-p", "Once", "-n", "0", "--logits", &arrays, "-q"]).exits(0);
    let folder = argument(&stories());
    for (file, format, tensors) in
        [(&gguf, "GGUF v3", 56), (&folder, "safetensors", 56), (&arrays, "safetensors, arrays alone", 1)]
    {
        let answer = trueup(&["inspect", file, "--json", "--hash"]).exits(0).json();
        assert_eq!(answer["format"], format);
        let listed = answer["tensors"].as_array().expect("tensors");
        assert_eq!(listed.len(), tensors, "{file}");
        assert!(listed.iter().all(|tensor| tensor["sha256"].as_str().is_some_and(|hash| hash.len() == 64)), "{file}");
        let page = trueup(&["inspect", file]).exits(0).stdout;
        assert!(page.contains(&format!(": {format}\n")) && page.contains("shape (innermost first)"), "{page}");
    }
    let metadata = &trueup(&["inspect", &gguf, "--json"]).exits(0).json()["metadata"];
    assert_eq!(metadata["llama.attention.layer_norm_rms_epsilon"], json!(1e-5));
    assert_eq!(metadata["tokenizer.ggml.tokens"].as_array().map(Vec::len), Some(1024));
}

#[test]
fn right_models_pass_verification() {
    let scratch = Scratch::new();
    let report = scratch.path("report.json");
    for model in [scratch.quantized_stories("q4_0"), scratch.gguf(&tiny("qwen3"), "qwen3.gguf")] {
        let told = trueup(&["verify", &model, "--steps", "2", "--json", &report, "-q"]).exits(0);
        assert!(told.stdout.starts_with("PASS") && told.stderr.is_empty(), "{told:?}");
        let written: Value = serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
        let call = ["verify", &model, "--steps", "2", "--json", "-", "--ref", "ref", "--device", "cpu", "-t", "1"];
        let told = trueup(&call).exits(0).json();
        for answer in [&written, &told] {
            assert_eq!(
                (&answer["version"], &answer["result"], &answer["first_bad"]),
                (&json!(1), &json!("pass"), &Value::Null)
            );
            let coverage = &answer["coverage"];
            assert_eq!(coverage["nodes"], coverage["checked"]);
            assert_eq!(coverage["on_device"], coverage["nodes"]);
            assert_eq!((&coverage["fell_back"], &coverage["waived"]), (&json!(0), &json!(0)));
            assert_eq!(answer["nodes"].as_array().map(|nodes| json!(nodes.len())), Some(coverage["nodes"].clone()));
            assert!(answer["tokens"].is_object());
        }
    }
}

#[test]
fn verification_takes_inputs_and_devices() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("mistral"), "model.gguf");
    let text = scratch.path("prompt.txt");
    fs::write(&text, "the old lighthouse").expect("a file");
    let call = [
        "verify", &model, "-p", "a", "-f", &text, "--ids", "1 5 9", "--steps", "1", "--json", "-", "--dev", "ref",
        "--ref", "cpu",
    ];
    let answer = trueup(&call).exits(0).json();
    assert_eq!(answer["prompts"].as_array().map(Vec::len), Some(3));
    assert_eq!(answer["prompts"][2], json!([1, 5, 9]));
    trueup(&["verify", &model, "--dev", "cuda"]).refuses(&["cuda"]);
    trueup(&["verify", &model, "--ids", "100000"]).refuses(&["100000"]);
    trueup(&["verify", &model, "--ids", ""]).refuses(&["token"]);
    trueup(&["verify", &argument(&stories())]).refuses(&["convert it first"]);
}

#[test]
fn planted_faults_are_named() {
    let scratch = Scratch::new();
    let model = scratch.quantized_stories("q8_0");
    let listed = trueup(&["verify", "--inject-fault", "list", "--json", "-"]).exits(0).json();
    assert!(listed.as_array().is_some_and(|faults| faults.len() >= 40), "{listed}");
    assert!(trueup(&["verify", "--inject-fault", "list"]).exits(0).stdout.contains("rope-position"));
    let answer =
        trueup(&["verify", &model, "--inject-fault", "rope-position", "--steps", "1", "--json", "-"]).exits(1).json();
    let node = answer["planted"]["node"].as_str().expect("a node");
    assert_eq!((answer["first_bad"]["node"].as_str(), answer["planted"]["op"].as_str()), (Some(node), Some("rope")));
    let told = trueup(&["verify", &model, "--inject-fault", "gain@ffn_up-2", "--steps", "1"]).exits(1);
    assert!(told.stdout.contains("gain injected at ffn_up-2"), "{told:?}");
    trueup(&["verify", &model, "--inject-fault", "nibble-order"]).refuses(&["q4_0 or q4_k_m"]);
    trueup(&["verify", &model, "--inject-fault", "nothing"]).refuses(&["--inject-fault list"]);
    trueup(&["verify", "--inject-fault", "gain"]).refuses(&["expected a model to verify"]);
}

#[test]
fn plans_name_nodes_devices_and_memory() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let answer = trueup(&["plan", &model, "--tokens", "8", "--length", "20", "--json"]).exits(0).json();
    let nodes = answer["nodes"].as_array().expect("nodes");
    assert_eq!(answer["devices"][0]["nodes"], nodes.len());
    assert!(nodes.iter().any(|node| node["name"] == "Qcur-1" && node["op"] == "mul_mat" && node["device"] == "cpu"));
    let told = trueup(&["plan", &model, "--dev", "ref"]).exits(0).stdout;
    assert!(told.contains("result_output") && told.contains("copies between devices: 0"), "{told}");
    trueup(&["plan", &model, "--tokens", "0"]).refuses(&["--tokens"]);
    trueup(&["plan", &model, "--tokens", "8", "--length", "4"]).refuses(&["--length"]);
    trueup(&["plan", &model, "--tokens", "100000"]).refuses(&["the context holds", "decrease --tokens\n"]);
    trueup(&["plan", &model, "-c", "4", "--length", "9"]).refuses(&["decrease --length, or increase -c\n"]);
    trueup(&["plan", &model, "--nvtx"]).refuses(&["--nvtx: this command computes nothing"]);
}

#[test]
fn the_plan_of_an_encoder_decoder_has_both_graphs() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("../encoder-decoders/t5"), "model.gguf");
    let answer = trueup(&["plan", &model, "--length", "600", "--json"]).exits(0).json();
    let has = |stage: &Value, name: &str| {
        stage["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(|node| node["name"] == name))
    };
    assert!(has(&answer, "result_output") && !has(&answer, "enc_kq-0"));
    assert!(has(&answer["encoder"], "enc_kq-0") && has(&answer["encoder"], "cross_cache_k-0"));
    trueup(&["verify", &model, "--ids", "5 6 1", "--inject-fault", "gain@enc_ffn_up-1", "--steps", "1"]).exits(1);
    let printed = trueup(&["plan", &model]).exits(0).stdout;
    assert!(printed.contains("encoder, for a text of 1 token:\n") && printed.contains("\ndecoder:\n"), "{printed}");
}

#[test]
fn layers_are_placed_where_there_is_room() {
    let scratch = Scratch::new();
    let model = scratch.gguf(&tiny("llama3"), "model.gguf");
    let plan = |place: &[&str]| {
        let call = [&["plan", &model, "--tokens", "32", "--length", "32", "-c", "32", "--json"], place].concat();
        trueup(&call).exits(0).json()
    };
    let alone = &plan(&["--device", "cpu"])["devices"][0];
    let bytes = |key: &str| alone[key].as_u64().expect("bytes");
    let all =
        ["weight_bytes", "kv_bytes", "input_bytes", "arena_bytes", "scratch_bytes"].map(bytes).iter().sum::<u64>();
    // Four fifths of it leave a layer to the second device, and what stands behind the layers.
    let most = (all / 5 * 4).to_string();
    let both = plan(&["--device", "cpu,ref", "--device-memory", &most]);
    let layers = |index: usize| both["devices"][index]["layers"].clone();
    let last = alone["layers"][1].as_u64().expect("a layer");
    assert_eq!((layers(0)[0].as_u64(), layers(1)[1].as_u64()), (Some(0), Some(last)), "{both}");
    assert_eq!(layers(0)[1].as_u64().map(|layer| layer + 1), layers(1)[0].as_u64(), "{both}");
    let place = ["--device", "cpu,ref", "--device-memory", &most, "-c", "32"];
    let told = trueup(&[&["plan", &model], &place[..]].concat()).exits(0).stdout;
    assert!(told.contains(" nodes of layers 0 to ") && told.contains("copies between devices: 1"), "{told}");
    trueup(&[&["run", &model, "--ids", "1 5 9", "-n", "3"], &place[..]].concat()).exits(0);
    trueup(&[&["verify", &model, "--ids", "1 5 9", "--steps", "1"], &place[..4]].concat()).exits(0);
    let small = ["run", &model, "--ids", "1 5 9", "--device", "cpu", "--device-memory", "1K"];
    trueup(&small).refuses(&["bytes of memory", "are available"]);
    trueup(&["run", &model, "--ids", "1", "--device-memory", "1G,1G"]).refuses(&["2 memory sizes for 1 device;"]);
    trueup(&["run", &model, "--ids", "1", "--device", "cpu,cpu"]).refuses(&["listed twice"]);
}

/// Two texts, one of which outgrows a cache that cannot grow: the other one is told whole, and what there is of the
/// first.
#[test]
fn a_text_without_memory_takes_no_other_along() {
    let scratch = Scratch::new();
    let folder = scratch.copy(&tiny("mistral"), "long");
    let config = fs::read_to_string(folder.join("config.json")).expect("a description");
    let longer = config.replace("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 1024");
    fs::write(folder.join("config.json"), longer).expect("a description");
    let model = scratch.gguf(&folder, "long.gguf");
    let place = ["--no-repack", "-c", "1024"];
    let call = [&["plan", &model, "--tokens", "1", "--length", "256", "--json"], &place[..]].concat();
    let planned = &trueup(&call).exits(0).json()["devices"][0];
    // Two sequences of 256 positions; another 64 of each would take all of the third part, where intermediate results
    // lie too.
    let memory = (3 * planned["kv_bytes"].as_u64().expect("bytes")).to_string();
    let run = |flags: &[&str]| {
        let texts = ["--ids", "5 6 7 8", "--ids", "9", "-n", "255", "--ignore-eos", "--device-memory", &memory];
        trueup(&[&["run", &model], &texts[..], &place[..], flags].concat()).exits(2)
    };
    let logits = scratch.path("logits.safetensors");
    let told = run(&["--json", "--logits", &logits]);
    let sentence = "device cpu: a KV cache of 320 positions needs";
    assert!(told.stderr.contains(&format!("error: prompt 0: {sentence}")), "{told:?}");
    let [long, short] = [0, 1].map(|number| told.json()["prompts"][number].clone());
    assert_eq!((&long["finish"], &short["finish"]), (&"error".into(), &"length".into()));
    assert!(long["error"].as_str().is_some_and(|error| error.starts_with(sentence)), "{long}");
    assert_eq!([&long, &short].map(|entry| ids(&entry["generated_ids"]).len()), [253, 255]);
    let alone = trueup(&["run", &model, "--ids", "9", "-n", "255", "--ignore-eos", "--json"]).exits(0).json();
    assert_eq!(short["generated_ids"], alone["prompts"][0]["generated_ids"]);
    let kept = String::from_utf8_lossy(&fs::read(&logits).expect("logits")).into_owned();
    assert!(kept.contains("p1_logits") && !kept.contains("p0_logits"), "of what has ended");
    let told = run(&[]);
    assert!(told.stdout.contains("[0] ") && told.stdout.contains("[1] "), "{told:?}");
    assert!(told.stderr.contains(&format!("note: [0] failed: {sentence}")), "{told:?}");
}

#[test]
fn fusion_is_a_choice_of_every_command_that_computes() {
    let scratch = Scratch::new();
    let (model, file) = (scratch.gguf(&tiny("llama3"), "model.gguf"), scratch.path("trace.safetensors"));
    let nodes = |fusion: &str| -> Vec<(String, String)> {
        let answer = trueup(&["plan", &model, "--fusion", fusion, "--json"]).exits(0).json();
        let text = |node: &Value, key: &str| node[key].as_str().expect("a text").to_owned();
        answer["nodes"].as_array().expect("nodes").iter().map(|node| (text(node, "name"), text(node, "op"))).collect()
    };
    let (on, off) = (nodes("on"), nodes("off"));
    let has = |nodes: &[(String, String)], name: &str, op: &str| nodes.contains(&(name.to_owned(), op.to_owned()));
    assert!(has(&on, "ffn_swiglu-1", "mul_mat_swiglu") && !has(&on, "ffn_up-1", "mul_mat"), "{on:?}");
    assert!(has(&on, "kqv_out-1", "kv_attention") && !has(&on, "kq-1", "kv_scores"), "{on:?}");
    assert!(has(&off, "kqv_out-1", "kv_mix") && has(&off, "kq-1", "kv_scores"), "{off:?}");
    assert!(has(&off, "ffn_swiglu-1", "swiglu") && has(&off, "ffn_up-1", "mul_mat"), "{off:?}");
    let call = ["verify", &model, "--ids", "1 5 9", "--steps", "1", "--json", "-"];
    let inside = [&call[..], &["--inject-fault", "fused-stale-ups"]].concat();
    let answer = trueup(&inside).exits(1).json();
    let sentence = answer["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("the fused kernel is at fault; try --fusion off"), "{sentence}");
    trueup(&[&inside[..], &["--fusion", "off"]].concat()).refuses(&["fused-stale-ups", "--fusion on"]);
    let answer = trueup(&[&call[..], &["--fusion", "off"]].concat()).exits(0).json();
    assert_eq!(answer["coverage"]["fused"], 0);
    // A trace holds what was computed: of fused nodes the last piece only.
    trueup(&["trace", &model, "--ids", "1 5", "--nodes", "^ffn_up", "-o", &file]).refuses(&["--fusion off"]);
    trueup(&["trace", &model, "--ids", "1 5", "--nodes", "^ffn_up", "--fusion", "off", "-o", &file, "-q"]).exits(0);
}

#[test]
fn devices_say_what_is_here_and_what_is_not_and_why() {
    let answer = trueup(&["devices", "--json"]).exits(0).json();
    let devices = answer["devices"].as_array().expect("devices");
    let told = trueup(&["devices"]).exits(0).stdout;
    for device in devices {
        let name = device["name"].as_str().expect("a name");
        // A simulator is here where its library was built beside the program.
        let beside = |library: &str| Path::new(env!("CARGO_BIN_EXE_trueup")).with_file_name(library).exists();
        let here = match name.split(':').next() {
            Some("ref" | "cpu") => true,
            Some("cuda-sim") => beside("libtrueup_cuda_sim.so"),
            Some("npu-sim") => beside("libtrueup_npu_sim.so"),
            _ => false,
        };
        assert_eq!(device["available"], here, "{name}");
        let line = told.lines().find(|line| line.split_whitespace().next() == Some(name)).expect("a line");
        assert_eq!(line.contains("unavailable"), !here, "{line}");
        assert_eq!(line.contains("simulated"), device["simulated"] == true, "{line}");
        assert!(device["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
    }
}

#[test]
fn the_demo_goes_the_whole_way() {
    let scratch = Scratch::new();
    let folder = scratch.path("demo");
    let told = trueup(&["demo", "--dir", &folder, "-q"]).exits(0);
    assert_eq!(told.stderr, "");
    for name in ["stories-1M.gguf", "stories-1M-q8_0.gguf", "stories-1M-q4_0.gguf"] {
        let file = format!("{folder}/{name}");
        assert!(told.stdout.contains(&file), "{file} in {told:?}");
        let report = file.replace(".gguf", ".verify.json");
        assert!(told.stdout.contains(&report), "{report} in {told:?}");
        let report: Value = serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
        assert_eq!(report["result"], "pass");
        trueup(&["inspect", &file]).exits(0);
    }
    assert!(told.stdout.contains("Once upon a time, there was"), "{told:?}");
}
