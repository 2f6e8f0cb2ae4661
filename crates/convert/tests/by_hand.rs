use std::path::Path;
use trueup_convert::{Options, check, convert, Agreement};
use trueup_formats::{Gguf, OpenOptions, open, Checkpoint};
use trueup_quantize::{NoProgress, Recipe};
use trueup_blocks::DType;
#[test]
fn go() {
    let f = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for m in ["models/llama2","models/llama3","models/llama3-tied","models/llama-linear","models/llama-yarn","models/mistral","models/qwen2","models/qwen3","stories-1M"] {
        let s = open(f.join(m), &OpenOptions::default()).unwrap();
        let out = Path::new("/tmp/models-out").join(format!("{}.gguf", m.replace('/', "-")));
        std::fs::create_dir_all("/tmp/models-out").unwrap();
        let r = convert(s.as_ref(), &out, &Options { recipe: Recipe::new(Some(DType::F32)), ..Options::default() }, &NoProgress).unwrap();
        eprintln!("{m} {:?}", r.notes);
    }
    let mut outs = vec![];
    for m in ["llama2c/stories-1M-v0.bin","llama2c/stories-1M-v1.bin","llama2c/stories-1M-v2.bin","stories-1M","stories-1M-f32-sharded"] {
        let s = open(Path::new("/work/shared/models").join(m), &OpenOptions::default()).unwrap();
        let out = Path::new("/tmp/models-out").join(format!("shared-{}.gguf", m.replace('/', "-")));
        let r = convert(s.as_ref(), &out, &Options { recipe: Recipe::new(Some(DType::F32)), ..Options::default() }, &NoProgress).unwrap();
        eprintln!("{m} {:?}", r.notes);
        let g = Gguf::open(&out).unwrap();
        assert!(check(s.as_ref(), &g, None).unwrap().iter().all(|l| l.agreement == Agreement::Exact));
        outs.push(g);
    }
    for (i, t) in outs[0].tensors().iter().enumerate() {
        let read = |g: &Gguf| { let n = g.tensors().iter().position(|u| u.name == t.name).unwrap(); let mut b = vec![0; t.bytes as usize]; g.read(n, 0, &mut b).unwrap(); b };
        let a = read(&outs[0]);
        for j in [1, 3, 4] { assert!(a == read(&outs[j]), "{} {j}", t.name); }
        let _ = i;
    }
}
