//! Perplexity and KL divergence against llama-perplexity, and importance sums against transformers.

use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::convert;
use trueup::formats::{ImportanceSums, LogitsFile, LogitsRecord, LogitsShape, LogitsWriter, OpenOptions, open};
use trueup::quality::{Corpus, Figures, ImatrixOptions, Percentile, Position, Score, Totals, collect};
use trueup::quantize::NoProgress;
use trueup::runtime::{DeviceOptions, ModelFile, Session, SessionOptions, Weights, open_device};
use trueup_tests::root;

const CONTEXT: usize = 64;
const VOCABULARY: usize = 301;

/// The golden file.
struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    fn read() -> Golden {
        Golden { bytes: fs::read(root().join("fixtures/quality/divergence.safetensors")).expect("the fixture exists") }
    }

    fn numbers<T, const N: usize>(&self, name: &str, number: impl Fn([u8; N]) -> T) -> Vec<T> {
        let arrays = SafeTensors::deserialize(&self.bytes).expect("the fixture is safetensors");
        let array = arrays.tensor(name).expect("the array exists");
        array.data().as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.numbers(name, f32::from_le_bytes)
    }

    /// The printed figures by name.
    fn stats(&self) -> HashMap<String, f64> {
        let (_, head) = SafeTensors::read_metadata(&self.bytes).expect("the fixture has a header");
        let names = head.metadata().as_ref().expect("metadata")["stats"].clone();
        names.split(' ').map(str::to_owned).zip(self.numbers("stats", f64::from_le_bytes)).collect()
    }

    /// A base file with the golden's ids and records.
    fn base_file(&self, folder: &std::path::Path) -> std::path::PathBuf {
        let path = folder.join("base.logits");
        let bytes = [self.numbers("head", |byte: [u8; 1]| byte[0]), self.numbers("records", |byte: [u8; 1]| byte[0])];
        fs::write(&path, bytes.concat()).expect("files can be written");
        path
    }
}

/// The score of every position, chunk after chunk.
fn scores(golden: &Golden, file: &LogitsFile) -> Vec<Score> {
    let logits = golden.floats("logits");
    let (first, scored) = (file.shape().first(), file.shape().scored());
    let score = |(index, logits): (usize, &[f32])| {
        let (chunk, position) = (index / scored, index % scored);
        let next = file.ids()[chunk * CONTEXT + first + position + 1] as usize;
        Position::new(logits).against_record(&file.record(chunk, position).expect("the record exists"), next)
    };
    logits.chunks_exact(VOCABULARY).enumerate().map(score).collect()
}

#[test]
fn positions_have_the_divergence_of_llama_perplexity() {
    let (golden, folder) = (Golden::read(), tempfile::tempdir().expect("a scratch directory"));
    let file = LogitsFile::open(golden.base_file(folder.path())).expect("the file is valid");
    let (kl, change) = (golden.floats("kl"), golden.floats("dp"));
    for (index, score) in scores(&golden, &file).iter().enumerate() {
        let against = score.against.expect("there is a reference");
        let near = |found: f32, expected: f32, least: f32| (found - expected).abs() <= least.max(1e-6 * expected.abs());
        assert!(near(against.kl, kl[index], 2e-6), "position {index}: KL {} for {}", against.kl, kl[index]);
        assert!(near(against.probability_change, change[index], 1e-8), "position {index}: change of probability");
    }
}

#[test]
fn figures_are_those_that_llama_perplexity_prints() {
    let (golden, folder) = (Golden::read(), tempfile::tempdir().expect("a scratch directory"));
    let file = LogitsFile::open(golden.base_file(folder.path())).expect("the file is valid");
    let mut totals = Totals::default();
    scores(&golden, &file).iter().for_each(|score| totals.add(score));
    let found = named(&totals.figures());
    let stats = golden.stats();
    assert_eq!(found.len(), stats.len(), "every golden figure is compared");
    for (name, expected) in stats {
        let value = found[&name];
        // Logarithms and exponentials of two libraries differ in the last place of f32.
        let close = (value - expected).abs() <= 2e-6_f64.max(2e-5 * expected.abs());
        assert!(close, "{name}: {value}, expected {expected}");
    }
}

/// The figures under the golden's names.
fn named(figures: &Figures) -> HashMap<String, f64> {
    let against = figures.against.as_ref().expect("there is a reference");
    let (kl, change) = (&against.kl, &against.probability);
    let mut named = HashMap::new();
    let mut add = |name: &str, value: f64| named.insert(name.to_owned(), value);
    for (name, estimate) in [
        ("ppl", figures.perplexity),
        ("ppl_base", against.reference_perplexity),
        ("ln_ratio", against.log_ratio),
        ("kld", kl.mean),
        ("dp", change.mean),
        ("dp_rms", change.rms),
        ("same_top", against.same_top),
    ] {
        add(name, estimate.value);
        add(&format!("{name}_unc"), estimate.error);
    }
    add("cor", against.correlation.expect("both vary"));
    add("kld_max", kl.maximum);
    add("kld_min", kl.minimum);
    add("dp_max", change.maximum);
    add("dp_min", change.minimum);
    let mut each = |prefix: &str, percentiles: &[Percentile]| {
        for Percentile { percent, value } in percentiles {
            let end =
                if *percent == 50.0 { "median".to_owned() } else { format!("{}", (percent * 10.0).round() / 1000.0) };
            add(&format!("{prefix}_{end}"), *value);
        }
    };
    each("kld", &kl.percentiles);
    each("dp", &change.percentiles);
    named
}

#[test]
fn logits_are_encoded_as_llama_perplexity_does() {
    let (golden, folder) = (Golden::read(), tempfile::tempdir().expect("a scratch directory"));
    let file = LogitsFile::open(golden.base_file(folder.path())).expect("the file is valid");
    let base = golden.floats("base_logits");
    for (position, logits) in base.chunks_exact(VOCABULARY).enumerate() {
        let own = Position::new(logits);
        let record = LogitsRecord::of(logits, own.greatest, own.log_sum);
        assert_eq!(record, file.record(0, position).expect("the record exists"), "position {position}");
    }
}

#[test]
fn a_written_file_is_the_file_that_was_read() {
    let (golden, folder) = (Golden::read(), tempfile::tempdir().expect("a scratch directory"));
    let base = golden.base_file(folder.path());
    let file = LogitsFile::open(&base).expect("the file is valid");
    let LogitsShape { context, chunks, .. } = *file.shape();
    assert_eq!((context, chunks, file.shape().vocabulary), (CONTEXT, 5, VOCABULARY));
    let copy = folder.path().join("copy.logits");
    let mut writer = LogitsWriter::create(&copy, file.shape(), file.ids(), &[]).expect("a file can be begun");
    for index in 0..chunks * file.shape().scored() {
        let record = file.record(index / file.shape().scored(), index % file.shape().scored());
        writer.push(&record.expect("the record exists")).expect("a record can be written");
    }
    writer.finish().expect("the file is complete");
    assert!(fs::read(base).expect("readable") == fs::read(copy).expect("readable"), "the copy differs");
}

#[test]
fn damaged_files_are_refused_with_the_cause() {
    let (golden, folder) = (Golden::read(), tempfile::tempdir().expect("a scratch directory"));
    let whole = fs::read(golden.base_file(folder.path())).expect("readable");
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let path = folder.path().join("damaged.logits");
        fs::write(&path, bytes).expect("files can be written");
        let error = match LogitsFile::open(&path) {
            Err(error) => error,
            Ok(file) => file.record(0, 0).expect_err("the damage is found"),
        };
        error.to_string().split_once("damaged.logits: ").expect("the file is named").1.to_owned()
    };
    let number =
        |at: usize, value: i32| move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let cut = refusal(&|bytes| bytes.truncate(5000));
    assert!(
        cut.starts_with("expected 96160 bytes for 5 chunks of 64 tokens and a vocabulary of 301, found 5000"),
        "{cut}"
    );
    for (change, expected) in [
        (number(8, 1), "context at byte 8: expected at least 2 and below 2^31, found 1"),
        (number(12, -1), "vocabulary at byte 12: expected at least 1 and below 2^31, found 4294967295"),
        (number(16, i32::MAX), "2147483647 chunks of 64 tokens"),
        (number(20, 301), "id 0 at byte 20: expected an id below 301, found 301"),
        (number(20 + 4 * 320, -1), "expected a finite scale of at least 0"),
        (number(0, 7), "which starts with \"_logits_\""),
    ] {
        let problem = refusal(&change);
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn importance_sums_are_those_of_transformers() {
    let golden = fs::read(root().join("fixtures/quality/importance.json")).expect("the fixture exists");
    let golden: Value = serde_json::from_slice(&golden).expect("the fixture is JSON");
    for model in golden["models"].as_array().expect("models") {
        let folder = tempfile::tempdir().expect("a scratch directory");
        let file = folder.path().join("model.gguf");
        let source = open(
            root().join("fixtures/models").join(model["model"].as_str().expect("a name")),
            &OpenOptions::default(),
        );
        convert::convert(
            source.expect("the fixture is valid").as_ref(),
            &file,
            &convert::Options::default(),
            &NoProgress,
        )
        .expect("the fixture can be converted");
        let ids = model["ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect();
        let context = model["context"].as_u64().expect("a number") as usize;
        let corpus = Corpus::of_ids(ids, context, None, None).expect("the chunks are whole");
        let options =
            SessionOptions { context: Some(context), kv: Some(DType::F32), fusion: false, ..SessionOptions::default() };
        let device = open_device("cpu", &DeviceOptions::default()).expect("cpu exists");
        let opened = Arc::new(ModelFile::open(&file).expect("the file is valid"));
        let mut session = Session::new(Arc::new(Weights::new(opened, device, None)), &options).expect("memory");
        let mut sums = ImportanceSums::default();
        let mut chunks = 0;
        collect(&mut session, &corpus, &mut sums, ImatrixOptions::default(), &mut |_, _| {
            chunks += 1;
            Ok(())
        })
        .expect("the model is sound");
        assert_eq!((chunks, sums.chunks), (3, 3));
        let expected = model["entries"].as_object().expect("entries");
        assert!(sums.entries.keys().eq(expected.keys()), "{:?}", sums.entries.keys());
        for (name, entry) in &sums.entries {
            let counts: Vec<u64> = numbers(&expected[name]["counts"]).iter().map(|count| *count as u64).collect();
            assert_eq!(entry.counts, counts, "{name}");
            for (column, (sum, expected)) in entry.sums.iter().zip(numbers(&expected[name]["sums"])).enumerate() {
                let close = (f64::from(*sum) - expected).abs() <= 2e-5 * expected.abs().max(1e-6);
                assert!(close, "{name}: {sum} in column {column}, expected {expected}");
            }
        }
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}
