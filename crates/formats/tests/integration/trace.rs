//! Traces in every form: NumPy's own files, texts, our own; and files that lie.

use crate::support::{golden, write};
use trueup_blocks::DType;
use trueup_formats::{SafetensorsArray, Trace, TraceValues, TraceWriter, write_safetensors};

const PRINTED: &str = "number of input tokens = 2\n  1\n  9\n\
    x:    embd = (f32) GET_ROWS(token_embd.weight{4, 9, 1, 1}, inp_tokens{2, 1, 1, 1}}) = {4, 2, 1, 1}\n\
    [\n[\n[ 0.5000, -1.0000, 2.0000, 0.2500],\n[ 1.0000, 1.0000, 1.0000, 1.0000],\n],\n]\nsum = 5.750000\n";

fn values(trace: &Trace, step: usize, node: &str) -> Vec<f64> {
    let tensor = trace.find(step, node).unwrap_or_else(|| panic!("no {step}/{node}"));
    match trace.read(tensor).unwrap() {
        TraceValues::All(values) => values,
        TraceValues::Shown(shown) => shown.values.iter().map(|(_, value)| *value).collect(),
    }
}

#[test]
fn numpys_archives_are_read_stored_and_deflated() {
    for name in ["trace_npz.bin", "trace_npz_deflated.bin"] {
        let trace = Trace::open(golden(name)).unwrap();
        assert!(!trace.is_printed());
        assert_eq!(trace.ids(), Some(&[3, 1, 4][..]), "{name}");
        assert_eq!(trace.tokens(3).unwrap(), [2, 1], "{name}");
        let tensor = trace.find(0, "l_out-0").unwrap();
        assert_eq!((tensor.shape.as_slice(), tensor.dtype), (&[3, 2][..], DType::F32), "{name}");
        assert_eq!(values(&trace, 0, "l_out-0"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{name}");
        assert_eq!(values(&trace, 1, "l_out-0"), [0.25, -0.5, 1e300], "{name}");
        assert_eq!(values(&trace, 0, "inp_embd"), [1.5, -2.0], "{name}");
    }
}

#[test]
fn damaged_archives_give_errors_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace_npz.bin", "trace_npz_deflated.bin"] {
        let good = std::fs::read(golden(name)).unwrap();
        for len in (0..good.len()).step_by(7) {
            let path = write(folder.path(), "cut", &good[..len]);
            assert!(Trace::open(path).is_err(), "{name} cut to {len} bytes");
        }
        let known = Trace::open(golden(name)).unwrap();
        for place in 0..good.len() {
            for change in [0x01, 0x80, 0xFF] {
                let mut bad = good.clone();
                bad[place] ^= change;
                let Ok(trace) = Trace::open(write(folder.path(), "changed", &bad)) else { continue };
                for tensor in trace.tensors() {
                    let Some(original) = known.find(tensor.step, &tensor.node) else { continue };
                    let Ok(read) = trace.read(tensor) else { continue };
                    assert_eq!(read, known.read(original).unwrap(), "{name} changed at byte {place}");
                }
            }
        }
    }
}

#[test]
fn an_archive_with_a_huge_array_is_refused_before_memory_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(golden("trace_npz.bin")).unwrap();
    // The size of an entry's contents, in the central directory.
    let place = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    bytes[place + 24..place + 28].copy_from_slice(&0xFFFF_FF00_u32.to_le_bytes());
    let error = Trace::open(write(folder.path(), "huge", &bytes)).unwrap_err();
    assert!(error.to_string().contains("bytes"), "{error}");
}

#[test]
fn texts_are_read_with_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace::open(write(folder.path(), "text", PRINTED.as_bytes())).unwrap();
    assert!(trace.is_printed());
    assert!(trace.is_printed());
    assert_eq!(trace.ids(), Some(&[1, 9][..]));
    assert_eq!(values(&trace, 0, "inp_embd"), [0.5, -1.0, 2.0, 0.25, 1.0, 1.0, 1.0, 1.0]);
    let TraceValues::Shown(shown) = trace.read(&trace.tensors()[0]).unwrap() else { panic!("a text shows values") };
    assert_eq!((shown.sum, shown.unit), (Some(5.75), 1e-4));
    for place in 0..PRINTED.len() {
        let (before, behind) = PRINTED.split_at(place);
        for text in [before.to_owned(), format!("{before}]{behind}"), format!("{before}9{behind}")] {
            drop(Trace::open(write(folder.path(), "broken", text.as_bytes())));
        }
    }
}

#[test]
fn the_embeddings_of_a_text_tell_the_tokens_of_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let (_, step) = PRINTED.split_at(PRINTED.find("x:").unwrap());
    let trace = Trace::open(write(folder.path(), "text", format!("{PRINTED}{step}").as_bytes())).unwrap();
    assert_eq!((trace.steps(), trace.tokens(4).unwrap()), (2, vec![2, 2]));
}

#[test]
fn a_text_says_what_it_did_not_compute_apart() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Trace::open(write(folder.path(), "plain", PRINTED.as_bytes())).unwrap();
    assert!(!plain.has_fused_attention() && !plain.is_unwanted(0, "result_output"));
    let further = "    x: result_output = (f32) MUL_MAT(w{4, 9, 1, 1}, result_norm{4, 0, 1, 1}}) = {9, 0, 1, 1}\n\
        x: node_21 = (f32) FLASH_ATTN_EXT(q{16, 3, 4, 1}, cache_k_l0 (view){16, 256, 2, 1}}) = {16, 4, 3, 1}\n";
    let text = format!("{PRINTED}{further}");
    let trace = Trace::open(write(folder.path(), "further", text.as_bytes())).unwrap();
    assert!(trace.has_fused_attention());
    assert!(trace.is_unwanted(0, "result_output"));
    assert!(!trace.is_unwanted(1, "result_output") && !trace.is_unwanted(0, "embd"));
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.safetensors");
    let mut writer = TraceWriter::create(&path, &[]).unwrap();
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    writer.add(0, "inp_embd", &[2, 2], DType::F32, &bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    writer.add(1, "inp_embd", &[2], DType::F32, &bytes(&[5.0, 6.0])).unwrap();
    assert!(!path.exists(), "nothing is seen before the end");
    writer.finish(&[7, 8, 9], &[2, 1], &[("device".to_owned(), "cpu".to_owned())]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.ids(), trace.steps(), trace.text("device")), (Some(&[7, 8, 9][..]), 2, Some("cpu")));
    assert_eq!(values(&trace, 1, "inp_embd"), [5.0, 6.0]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");

    let mut twice = TraceWriter::create(&path, &[]).unwrap();
    twice.add(0, "a", &[1], DType::F32, &[0; 4]).unwrap();
    twice.add(0, "a", &[1], DType::F32, &[0; 4]).unwrap();
    assert!(twice.finish(&[1], &[1], &[]).unwrap_err().to_string().contains("twice"));
    let mut short = TraceWriter::create(&path, &[]).unwrap();
    short.add(0, "a", &[2], DType::F32, &[0; 4]).unwrap();
    assert!(short.finish(&[1], &[1], &[]).unwrap_err().to_string().contains("expected 8 bytes"));
}

#[test]
fn arrays_of_integers_name_the_tokens_of_other_programs_files() {
    let folder = tempfile::tempdir().unwrap();
    let opened = |ids: SafetensorsArray<'_>| {
        let path = folder.path().join("other.safetensors");
        write_safetensors(&path, &[SafetensorsArray::f32("a", &[1], &[1.0]), ids], &[], &[]).unwrap();
        Trace::open(&path)
    };
    assert_eq!(opened(SafetensorsArray::i32("ids", &[3], &[4, 0, 7])).unwrap().ids(), Some(&[4, 0, 7][..]));
    let wide = [4_i64, 9].iter().flat_map(|id| id.to_le_bytes()).collect();
    let wide = SafetensorsArray { name: "ids".to_owned(), shape: vec![2], dtype: DType::I64, bytes: wide };
    assert_eq!(opened(wide).unwrap().ids(), Some(&[4, 9][..]));
    let refused = |ids: SafetensorsArray<'_>| opened(ids).unwrap_err().to_string();
    assert!(refused(SafetensorsArray::i32("ids", &[2], &[4, -1])).contains("array ids: an index is below 0"));
    assert!(refused(SafetensorsArray::f32("ids", &[1], &[4.0])).contains("expected i32 or i64, found f32"));
    let many = vec![1; (1 << 20) + 1];
    assert!(refused(SafetensorsArray::i32("ids", &[many.len() as u64], &many)).contains("more than 1048576 tokens"));
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.safetensors");
    let array = |name: &str| SafetensorsArray::f32(name, &[1], &[1.0]);
    let written = |names: &[&str], ids: &str, tokens: Option<&str>| {
        let arrays: Vec<_> = names.iter().map(|name| array(name)).collect();
        let mut texts = vec![("ids".to_owned(), ids.to_owned())];
        texts.extend(tokens.map(|tokens| ("tokens".to_owned(), tokens.to_owned())));
        write_safetensors(&path, &arrays, &texts, &[]).unwrap();
        Trace::open(&path).and_then(|trace| trace.tokens(trace.ids().map_or(0, <[u32]>::len)))
    };
    assert_eq!(written(&["0/a", "1/a", "2/a"], "5, 6 7 8", None).unwrap(), [2, 1, 1]);
    // A file that ends early may announce more steps than it holds, but not fewer.
    assert_eq!(written(&["0/a"], "5 6 7 8", Some("2 1 1")).unwrap(), [2, 1, 1]);
    assert_eq!(written(&["0/a"], &"1 ".repeat(1 << 20), None).unwrap(), [1 << 20]);
    for (names, ids, tokens, told) in [
        (&["0/a"][..], "1 x", None, "found x"),
        (&["0/a"], "99999999999", None, "too large"),
        (&["0/a"], "1 2", Some("3"), "steps that add up to"),
        (&["0/a"], "1 2", Some("18446744073709551615 3"), "steps that add up to"),
        (&["0/a"], "1 2", Some("2 0"), "steps that add up to"),
        (&["0/a", "1/a"], "1 2", Some("2"), "expected 2 steps that add up to 2 token IDs, found steps of 2 tokens"),
        (&["0/a"], "1 2", Some("1 1 1 1 1 1 1 1"), "steps of 1, 1, 1, 1, 1, 1, 1, 1 tokens"),
        (&["0/a"], "1 2", Some("1 1 1 1 1 1 1 1 1"), "steps of 1, 1, 1, 1, 1, 1, 1, 1, ... tokens"),
        (&["0/a", "1/a"], "1", None, "steps that add up to"),
        (&["4000000000/a"], "1", None, "steps"),
        (&["1048576/a"], "1", None, "expected at most 1048576 steps, found 1048577"),
        (&["1048575/a"], "1", None, "expected 1048576 steps that add up to 1 token IDs"),
        (&["0/a"], "", None, "expected 1 to 1048576 token IDs, found 0"),
        (&["0/a"], &"1 ".repeat((1 << 20) + 1), None, "expected 1 to 1048576 token IDs, found 1048577"),
        (&["a", "0/a"], "1", None, "twice"),
        (&[], "1", None, "expected the tensors of a trace, found none"),
    ] {
        let error = written(names, ids, tokens).unwrap_err().to_string();
        assert!(error.contains(told), "{names:?} {ids}: {error}");
    }
}
