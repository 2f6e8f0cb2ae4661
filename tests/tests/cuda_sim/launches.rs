//! How many kernels a token of each fixture is launched as: what docs/cuda.md says. More are slower on a card, and
//! nothing else would tell.

use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType::{self, F16, Q4_0, Q8_0};
use trueup::quantize::Layout;
use trueup::runtime::device::Device;
use trueup::runtime::device::cuda::{Cuda, CudaOptions};
use trueup::runtime::{Entry, Error, ModelFile, Session, SessionOptions, Weights};
use trueup_tests::{convert, fixtures, quantize};

/// Launches with weights of 32 codes a block, and with f16.
const LAUNCHES: [(&str, [u64; 2]); 17] = [
    ("baichuan", [17, 15]),
    ("baichuan2-13b", [19, 17]),
    ("chatglm1", [67, 58]),
    ("chatglm2", [17, 15]),
    ("chatglm3", [17, 15]),
    ("glm4", [15, 15]),
    ("internlm", [21, 19]),
    ("llama-linear", [17, 15]),
    ("llama-yarn", [30, 26]),
    ("llama2", [17, 15]),
    ("llama3", [17, 15]),
    ("llama3-tied", [15, 15]),
    ("mistral", [17, 15]),
    ("moss", [37, 28]),
    ("qwen", [17, 15]),
    ("qwen2", [17, 15]),
    ("qwen3", [15, 15]),
];

/// Fixtures that are launched as more or fewer.
pub fn launches(card: &CudaOptions) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut wrong = Vec::new();
    for fixture in fixtures() {
        // Fusion is counted on these; a new architecture needs no entry.
        let Some((_, expected)) = LAUNCHES.iter().find(|(name, _)| *name == fixture.name) else { continue };
        let source = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &source, None, None);
        for (place, dtype) in [(0, Q4_0), (0, Q8_0), (1, F16)] {
            let target = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&source, &target, dtype, Layout::Block);
            let found = of_token(&target, card).unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
            wrong.extend(unlike(&fixture.name, dtype, found, expected[place]));
        }
    }
    let is_there = |name: &str| fixtures().iter().any(|fixture| fixture.name == name);
    wrong.extend(
        LAUNCHES.iter().filter(|(name, _)| !is_there(name)).map(|(name, _)| format!("there is no fixture {name}")),
    );
    let uncounted = fixtures().iter().filter(|fixture| LAUNCHES.iter().all(|(name, _)| *name != fixture.name)).count();
    println!(
        "cuda-sim, simulated: launches of a token, {} fixtures with others than they should have, {uncounted} not counted",
        wrong.len()
    );
    wrong
}

fn unlike(name: &str, dtype: DType, found: u64, expected: u64) -> Option<String> {
    (expected != found).then(|| format!("a token of {name} as {dtype} is {found} launches, not {expected}"))
}

/// Kernels of the first token, which are launched one by one.
fn of_token(model: &Path, card: &CudaOptions) -> Result<u64, Error> {
    let device = Arc::new(Cuda::new(card).unwrap_or_else(|error| panic!("{error}")));
    let model = Arc::new(ModelFile::open(model)?);
    let weights = Weights::new(model, Arc::clone(&device) as Arc<dyn Device>, None);
    let mut session = Session::new(Arc::new(weights), &SessionOptions::default())?;
    let before = device.launched().kernels;
    session.compute(&[Entry { token: 1, sequence: 0, wants_logits: true }], None)?;
    Ok(device.launched().kernels - before)
}
