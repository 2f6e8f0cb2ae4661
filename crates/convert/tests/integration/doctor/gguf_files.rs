//! Damaged GGUF files.

use super::damage::Scratch;
use super::gguf_parts::{ARRAY, F32, Parts, STRING, Tensor, U32, array, string};
use super::root;
use std::fs;
use std::path::{Path, PathBuf};
use trueup_blocks::DType;
use trueup_formats::gguf::Gguf;
use trueup_quantize::{Layout, NoProgress, Options, Recipe, quantize};

const UP: &str = "blk.0.ffn_up.weight";
const QUERY: &str = "blk.0.attn_q.weight";
/// bf16 NaN.
const NAN: [u8; 2] = 0x7fc0_u16.to_le_bytes();

/// A fixture as GGUF, with a change.
fn changed(scratch: &Scratch, fixture: &str, change: impl FnOnce(&mut Parts)) -> PathBuf {
    let path = scratch.fixture(fixture);
    rewrite(&path, change);
    path
}

fn qwen(scratch: &Scratch, change: impl FnOnce(&mut Parts)) -> PathBuf {
    changed(scratch, "qwen2", change)
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Parts)) {
    let mut parts = Parts::read(&fs::read(path).expect("a model"));
    change(&mut parts);
    fs::write(path, parts.bytes()).expect("a file can be written");
}

/// Where a tensor of two bytes an element begins in the data, and how many bytes it has.
fn bytes_of(parts: &mut Parts, name: &str) -> std::ops::Range<usize> {
    let tensor = parts.tensor(name);
    let dtype = DType::from_gguf_id(tensor.dtype).expect("a known type");
    let elements: u64 = tensor.dimensions.iter().product();
    let start = tensor.offset as usize;
    start..start + dtype.row_bytes(elements).expect("whole blocks") as usize
}

/// The bytes of a tensor.
fn data<'a>(parts: &'a mut Parts, name: &str) -> &'a mut [u8] {
    let range = bytes_of(parts, name);
    &mut parts.data[range]
}

/// qwen2 in three files.
fn split(scratch: &Scratch) -> [PathBuf; 3] {
    let first = scratch.convert(&root().join("fixtures/models/qwen2"), "model.gguf", None, Some(90_000));
    let part = |number: usize| first.with_file_name(format!("model-{number:05}-of-00003.gguf"));
    let files = [1, 2, 3].map(part);
    assert!(files.iter().all(|file| file.exists()), "{first:?} is the first of three");
    files
}

/// A change in the second of three files.
fn in_second(scratch: &Scratch, change: impl FnOnce(&mut Parts)) -> PathBuf {
    let [first, second, _] = split(scratch);
    rewrite(&second, change);
    first
}

pub fn cut_short(scratch: &Scratch) -> PathBuf {
    let path = scratch.fixture("qwen2");
    let bytes = fs::read(&path).expect("a model");
    fs::write(&path, &bytes[..bytes.len() - 100]).expect("a file can be written");
    path
}

pub fn one_tensor_more(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor_count = Some(g.tensors.len() as u64 + 1))
}

pub fn alignment(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("general.alignment", 33))
}

pub fn name_twice(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensors[1].name = g.tensors[0].name.clone())
}

pub fn retired_type(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor(UP).dtype = 4)
}

pub fn empty_dimension(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor(UP).dimensions = vec![64, 0])
}

pub fn rows_of_33(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        let tensor = g.tensor(UP);
        (tensor.dtype, tensor.dimensions) = (DType::Q8_0.gguf_id(), vec![33, 96]);
    })
}

pub fn misaligned(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        g.tensor("output_norm.weight").offset += 4;
        g.data.extend([0; 32]);
    })
}

pub fn overlap(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensors[2].offset = g.tensors[1].offset)
}

/// Many tensors over the bytes of the first, and as many behind the file's end.
pub fn faults_of_two_kinds(scratch: &Scratch, count: u64) -> PathBuf {
    qwen(scratch, |g| {
        let (first, end) = (g.tensors[0].clone(), g.data.len() as u64 + 32);
        for number in 0..2 * count {
            let name = format!("blk.{number}.more.weight").into_bytes();
            let offset = if number < count { first.offset } else { end.next_multiple_of(32) };
            g.tensors.push(Tensor { name, offset, ..first.clone() });
        }
    })
}

/// One more tensor, of 8 GiB that were never written.
pub fn sparse(scratch: &Scratch) -> PathBuf {
    let path = qwen(scratch, |g| {
        g.tensors.truncate(20);
        let offset = g.data.len().next_multiple_of(32) as u64;
        let name = b"extra.weight".to_vec();
        g.tensors.push(Tensor { name, dimension_count: None, dimensions: vec![1 << 20, 1 << 11], dtype: 0, offset });
    });
    let file = fs::File::options().write(true).open(&path).expect("a model");
    let bytes = file.metadata().expect("a model").len();
    file.set_len(bytes + (8 << 30) + 64).expect("a hole takes no room");
    path
}

pub fn part_linked(scratch: &Scratch) -> PathBuf {
    let [first, second, _] = split(scratch);
    fs::remove_file(&second).expect("it was there");
    std::os::unix::fs::symlink(&first, second).expect("a link");
    first
}

pub fn bytes_after(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.data.extend([7; 64]))
}

pub fn layout(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_text("trueup.layout", "origami"))
}

pub fn part_missing(scratch: &Scratch) -> PathBuf {
    let [first, second, _] = split(scratch);
    fs::remove_file(second).expect("it was there");
    first
}

/// Split models of which a later file is named.
pub fn later_part(scratch: &Scratch) -> PathBuf {
    let [_, second, _] = split(scratch);
    second
}

/// The same without the first file.
pub fn first_part_missing(scratch: &Scratch) -> PathBuf {
    let [first, second, _] = split(scratch);
    fs::remove_file(first).expect("it was there");
    second
}

pub fn part_is_pointer(scratch: &Scratch) -> PathBuf {
    let [first, second, _] = split(scratch);
    fs::write(second, super::POINTER).expect("a file can be written");
    first
}

/// Half of the bytes of all tensors.
pub fn half(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.data.truncate(g.data.len() / 2))
}

/// A model whose tensors were all cut off but the first three, its layers more than these.
pub fn all_but_three(scratch: &Scratch) -> PathBuf {
    changed(scratch, "stories-1M", |g| {
        let end = g.tensors[3].offset as usize;
        g.data.truncate(end);
    })
}

/// Values and scales apart, and the last tensor cut: scales or values without the other half.
pub fn half_of_split_scale(scratch: &Scratch, scales: bool) -> PathBuf {
    let whole = scratch.convert(&root().join("fixtures/models/qwen2"), "whole.gguf", Some(DType::Q8_0), None);
    let path = scratch.folder().join("model.gguf");
    let source = Gguf::open(whole).expect("a model");
    let recipe = Recipe::new(Some(DType::Q8_0));
    let options = Options { recipe, layout: Layout::Split, threads: None, dry_run: false, resume: false };
    quantize(&source, &path, &options, &NoProgress).expect("a model");
    rewrite(&path, |g| {
        let name = if scales { "blk.0.attn_q.weight.scale" } else { "blk.0.attn_q.weight" };
        g.tensor(name).offset += 1 << 40;
    });
    path
}

/// A file with the value of one key of another type: the text `x`, or 7 for a text. `None` behind the last key.
pub fn key_of_other_type(scratch: &Scratch, number: usize) -> Option<(String, PathBuf)> {
    let mut name = None;
    let path = qwen(scratch, |g| {
        let Some(key) = g.keys.get_mut(number) else { return };
        let is_text = key.value_type == STRING;
        (key.value_type, key.value) = if is_text { (U32, vec![7, 0, 0, 0]) } else { (STRING, string(b"x")) };
        name = Some(String::from_utf8(key.name.clone()).expect("UTF-8"));
    });
    Some((name?, path))
}

pub fn byte_after(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        let padding = g.data.len().next_multiple_of(32) - g.data.len();
        g.data.extend(vec![7; padding + 1]);
    })
}

pub fn missing_part_and_nan(scratch: &Scratch) -> PathBuf {
    let [first, second, third] = split(scratch);
    fs::remove_file(second).expect("it was there");
    rewrite(&third, |g| {
        let name = String::from_utf8(g.tensors[0].name.clone()).expect("UTF-8");
        data(g, &name)[..2].copy_from_slice(&NAN);
    });
    first
}

pub fn parts_exchanged(scratch: &Scratch) -> PathBuf {
    let [first, second, third] = split(scratch);
    let other = first.with_file_name("other");
    fs::rename(&second, &other).and_then(|()| fs::rename(&third, &second)).expect("names can be changed");
    fs::rename(&other, &third).expect("names can be changed");
    first
}

pub fn part_number_a_text(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.set_text("split.no", "x"))
}

pub fn part_count(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.set_u32("split.count", 4))
}

pub fn part_tensors(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.set_u32("split.tensors.count", 7))
}

pub fn part_alignment(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| {
        g.set_u32("general.alignment", 16);
        g.alignment = 16;
    })
}

pub fn part_of_other_model(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.set_text("general.name", "other"))
}

pub fn part_version(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.version = 2)
}

pub fn part_repeats(scratch: &Scratch) -> PathBuf {
    in_second(scratch, |g| g.tensors[0].name = b"token_embd.weight".to_vec())
}

pub fn part_of_other_set(scratch: &Scratch) -> PathBuf {
    let [first, ..] = split(scratch);
    fs::copy(&first, first.with_file_name("model-00001-of-00009.gguf")).expect("a file can be copied");
    first
}

pub fn no_architecture(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.remove("general.architecture"))
}

pub fn unknown_architecture(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_text("general.architecture", "toaster"))
}

/// The keys that convert_hf_to_gguf.py --mmproj writes.
pub fn projector(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        g.set_text("general.architecture", "clip");
        g.set_text("general.type", "mmproj");
    })
}

/// The keys that convert_lora_to_gguf.py writes.
pub fn adapter(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        g.set_text("general.type", "adapter");
        g.set_text("general.base_model.0.name", "Base");
    })
}

pub fn heads(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("qwen2.attention.head_count", 3))
}

pub fn layers(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("qwen2.block_count", 1))
}

pub fn more_layers(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("qwen2.block_count", 5))
}

pub fn without_first_layer(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensors.retain(|tensor| !tensor.name.starts_with(b"blk.0.")))
}

pub fn no_tensors(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        g.tensors.clear();
        g.data.clear();
    })
}

pub fn tensor_missing(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensors.retain(|tensor| tensor.name != b"blk.1.ffn_up.weight"))
}

pub fn tensor_renamed(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor("blk.1.ffn_up.weight").name = b"blk.1.ffn_upward.weight".to_vec())
}

pub fn on_its_side(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor("blk.0.ffn_down.weight").dimensions.reverse())
}

pub fn of_integers(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor("output_norm.weight").dtype = DType::I32.gguf_id())
}

pub fn epsilon(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_f32("qwen2.attention.layer_norm_rms_epsilon", 0.5))
}

pub fn rope_base(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_f32("qwen2.rope.freq_base", 2.0))
}

pub fn rope_factor(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        g.set_text("qwen2.rope.scaling.type", "linear");
        g.set_f32("qwen2.rope.scaling.factor", 0.25);
    })
}

pub fn context(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("qwen2.context_length", 8))
}

pub fn unknown_tokenizer(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_text("tokenizer.ggml.model", "rwkv"))
}

pub fn no_merges(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.remove("tokenizer.ggml.merges"))
}

pub fn one_type(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set("tokenizer.ggml.token_type", ARRAY, &array(5, 1, &[1, 0, 0, 0])))
}

pub fn row_less(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.tensor("token_embd.weight").dimensions = vec![64, 399])
}

pub fn types_of_99(scratch: &Scratch) -> PathBuf {
    let types = [99, 0, 0, 0].repeat(400);
    qwen(scratch, |g| g.set("tokenizer.ggml.token_type", ARRAY, &array(5, 400, &types)))
}

/// The type of the token that ends a turn becomes "user-defined".
pub fn end_type(scratch: &Scratch) -> PathBuf {
    let path = scratch.fixture("qwen2");
    let mut types = {
        let model = Gguf::open(&path).expect("a model");
        let tokens = model.metadata().strings("tokenizer.ggml.tokens").expect("tokens");
        let end = tokens.iter().position(|token| token == "<|im_end|>").expect("the token");
        let mut types = model.metadata().i32s("tokenizer.ggml.token_type").expect("types").to_vec();
        types[end] = 4;
        types
    };
    let items: Vec<u8> = types.drain(..).flat_map(i32::to_le_bytes).collect();
    rewrite(&path, |g| g.set("tokenizer.ggml.token_type", ARRAY, &array(5, 400, &items)));
    path
}

pub fn score(scratch: &Scratch) -> PathBuf {
    changed(scratch, "llama2", |g| {
        let key = g.key("tokenizer.ggml.scores");
        let place = 12 + 4 * 300;
        key.value[place..place + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(key.value[..4], F32.to_le_bytes());
    })
}

pub fn no_pre(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.remove("tokenizer.ggml.pre"))
}

pub fn default_pre(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set("tokenizer.ggml.pre", STRING, &string(b"default")))
}

pub fn token_repeated(scratch: &Scratch) -> PathBuf {
    with_tokens(scratch, |tokens| tokens[301] = tokens[300].clone())
}

pub fn tokens_empty(scratch: &Scratch) -> PathBuf {
    with_tokens(scratch, |tokens| tokens[300..303].iter_mut().for_each(String::clear))
}

/// A model whose tokens `change` has changed, without merges.
fn with_tokens(scratch: &Scratch, change: impl FnOnce(&mut [String])) -> PathBuf {
    let path = scratch.fixture("qwen2");
    let mut tokens = {
        let model = Gguf::open(&path).expect("a model");
        model.metadata().strings("tokenizer.ggml.tokens").expect("tokens").to_vec()
    };
    change(&mut tokens);
    let items: Vec<u8> = tokens.iter().flat_map(|token| string(token.as_bytes())).collect();
    rewrite(&path, |g| {
        g.set("tokenizer.ggml.tokens", ARRAY, &array(STRING, tokens.len() as u64, &items));
        g.set("tokenizer.ggml.merges", ARRAY, &array(STRING, 0, &[]));
    });
    path
}

pub fn merge(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set("tokenizer.ggml.merges", ARRAY, &array(STRING, 1, &string(b"zzz yyy"))))
}

pub fn end_outside(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("tokenizer.ggml.eos_token_id", 400))
}

pub fn no_end(scratch: &Scratch) -> PathBuf {
    // Without its type, `</s>` is not known as an end by its name either.
    changed(scratch, "llama2", |g| {
        g.remove("tokenizer.ggml.eos_token_id");
        g.remove("tokenizer.ggml.token_type");
    })
}

pub fn end_of_text(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.set_u32("tokenizer.ggml.eos_token_id", 5))
}

pub fn template(scratch: &Scratch, source: &str) -> PathBuf {
    qwen(scratch, |g| g.set_text("tokenizer.chat_template", source))
}

pub fn not_finite(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        let values = data(g, UP);
        let place = 2 * (2 * 64 + 3);
        values[place..place + 2].copy_from_slice(&NAN);
        values[6000..6002].copy_from_slice(&0xff80_u16.to_le_bytes());
    })
}

pub fn nan_everywhere(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| g.data.fill(0xff))
}

/// qwen2 in q8_0, whose rows of 64 are two blocks.
fn quantized(scratch: &Scratch, change: impl FnOnce(&mut Parts)) -> PathBuf {
    let path = scratch.convert(&root().join("fixtures/models/qwen2"), "model.gguf", Some(DType::Q8_0), None);
    rewrite(&path, change);
    path
}

pub fn scale_not_finite(scratch: &Scratch) -> PathBuf {
    quantized(scratch, |g| data(g, UP)[3 * 34..3 * 34 + 2].copy_from_slice(&0x7c00_u16.to_le_bytes()))
}

/// A matrix in another type with rows of 256, whose block number 5 is changed. All other blocks are sound.
fn damaged_block(scratch: &Scratch, dtype: DType, change: impl Fn(&mut [u8])) -> PathBuf {
    qwen(scratch, |g| {
        let weights: Vec<f32> = (0..6144).map(|place| (place * place % 97) as f32 / 97.0 - 0.5).collect();
        let mut blocks = vec![0; weights.len() / dtype.block_len() * dtype.block_bytes()];
        (dtype.codec().expect("a codec").encode)(&weights, &mut blocks);
        change(blocks.chunks_exact_mut(dtype.block_bytes()).nth(5).expect("more blocks"));
        let tensor = g.tensor(UP);
        (tensor.dtype, tensor.dimensions) = (dtype.gguf_id(), vec![256, 24]);
        data(g, UP)[..blocks.len()].copy_from_slice(&blocks);
    })
}

/// The f16 scale at `place` of a block becomes NaN or infinite.
pub fn block_scale(scratch: &Scratch, dtype: DType, place: usize, scale: u16) -> PathBuf {
    damaged_block(scratch, dtype, |block| block[place..place + 2].copy_from_slice(&scale.to_le_bytes()))
}

pub fn block_byte(scratch: &Scratch, dtype: DType, place: usize, byte: u8) -> PathBuf {
    damaged_block(scratch, dtype, |block| block[place] = byte)
}

pub fn zero_block_rows(scratch: &Scratch) -> PathBuf {
    quantized(scratch, |g| data(g, QUERY)[..32 * 2 * 34].fill(0))
}

pub fn subnormal_scales(scratch: &Scratch) -> PathBuf {
    quantized(scratch, |g| {
        let blocks = data(g, QUERY).chunks_exact_mut(34);
        blocks.for_each(|block| block[..2].copy_from_slice(&3_u16.to_le_bytes()));
    })
}

pub fn rope_factors(scratch: &Scratch) -> PathBuf {
    changed(scratch, "llama3", |g| data(g, "rope_freqs.weight")[..4].copy_from_slice(&0.0_f32.to_le_bytes()))
}

pub fn zero_tensor(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, "blk.1.ffn_up.weight").fill(0))
}

pub fn zero_bias(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, "blk.1.attn_k.bias").fill(0))
}

pub fn zero_rows(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, "blk.1.ffn_up.weight")[48 * 64 * 2..].fill(0))
}

pub fn zero_tokens(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, "token_embd.weight")[100 * 64 * 2..120 * 64 * 2].fill(0))
}

pub fn subnormal_values(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, UP).as_chunks_mut().0.iter_mut().for_each(|value| *value = 5_u16.to_le_bytes()))
}

pub fn far_out(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        // The highest bit of the exponent flipped.
        let values = data(g, UP);
        values[2 * (7 * 64 + 5) + 1] ^= 0x40;
    })
}

pub fn norm_far_out(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| data(g, "output_norm.weight")[9 * 4..10 * 4].copy_from_slice(&1e30_f32.to_le_bytes()))
}

pub fn out_of_scale(scratch: &Scratch) -> PathBuf {
    changed(scratch, "stories-1M", |g| {
        // Divided by 2^10: the exponent is in bits 7 to 14.
        for value in data(g, "blk.3.ffn_up.weight").as_chunks_mut::<2>().0 {
            let bits = u16::from_le_bytes(*value);
            let exponent = bits >> 7 & 0xff;
            *value = if exponent > 10 { bits - (10 << 7) } else { bits & 0x8000 }.to_le_bytes();
        }
    })
}

pub fn not_read(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        let tensor = g.tensor(UP);
        (tensor.dtype, tensor.dimensions) = (DType::I8.gguf_id(), vec![128, 96]);
    })
}

pub fn head_repeated(scratch: &Scratch) -> PathBuf {
    changed(scratch, "llama2", |g| {
        let embedding = data(g, "token_embd.weight").to_vec();
        data(g, "output.weight").copy_from_slice(&embedding);
    })
}

pub fn tensor_repeated(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        let first = data(g, UP).to_vec();
        data(g, "blk.1.ffn_up.weight").copy_from_slice(&first);
    })
}

/// bf16 weights that are a power of two times an integer from -7 to 7, as int4 weights are.
pub fn on_grid(scratch: &Scratch) -> PathBuf {
    qwen(scratch, |g| {
        for name in [UP, "blk.1.ffn_up.weight"] {
            for (place, value) in data(g, name).as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let code = (place * place % 97 % 15) as f32 - 7.0;
                *value = (((code / 64.0).to_bits() >> 16) as u16).to_le_bytes();
            }
        }
        // Another tensor of the same bytes would be a finding.
        data(g, "blk.1.ffn_up.weight")[..2].copy_from_slice(&0x3d00_u16.to_le_bytes());
    })
}
