//! Lies in `.flm` files: one that FastLLM's quantizing program wrote (4-bit codes, joined tensors, bytes with a sign),
//! taken apart and put together again with one thing changed.

use crate::case::{Call, Case, Entry, Files};
use crate::random::Random;

const MODEL: &str = "model.flm";
const READERS: &[Call] = &[Call::Inspect, Call::Tokenize, Call::Convert];
const USERS: &[Call] = &[Call::Tokenize, Call::Convert];
const ALL: &[Call] = &[Call::Inspect, Call::Show, Call::Tokenize, Call::Convert, Call::Diff];

/// A text with the length that the file claims for it.
#[derive(Clone)]
struct Text {
    length: i32,
    bytes: Vec<u8>,
}

#[derive(Clone)]
struct Token {
    length: i32,
    bytes: Vec<i32>,
    id: i32,
    score: f32,
}

#[derive(Clone)]
struct Tensor {
    name: Text,
    dimensions: i32,
    sizes: Vec<i32>,
    dtype: i32,
    axis: Option<i32>,
    /// Groups and their size, in type 9.
    groups: Option<(i32, i32)>,
    /// Pairs of minimum and maximum, then codes; or numbers.
    data: Vec<u8>,
}

/// A file's parts; `None` for a count that is true.
#[derive(Clone)]
struct Parts {
    version: i32,
    entries: Option<i32>,
    table: Vec<(Text, Text)>,
    adapters: Vec<u8>,
    count: Option<i32>,
    tokens: Vec<Token>,
    special: Vec<u8>,
    tensor_count: Option<i32>,
    tensors: Vec<Tensor>,
    tail: Vec<u8>,
}

/// Reads a good file.
struct Cursor<'b>(&'b [u8]);

impl Cursor<'_> {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken.to_vec()
    }

    fn number(&mut self) -> i32 {
        i32::from_le_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    fn text(&mut self) -> Text {
        let length = self.number();
        Text { length, bytes: self.bytes(length as usize) }
    }

    fn token(&mut self) -> Token {
        let length = self.number();
        let bytes = (0..length).map(|_| self.number()).collect();
        Token { length, bytes, id: self.number(), score: f32::from_bits(self.number() as u32) }
    }

    fn tensor(&mut self) -> Tensor {
        let (name, dimensions) = (self.text(), self.number());
        let sizes: Vec<i32> = (0..dimensions).map(|_| self.number()).collect();
        let (dtype, elements) = (self.number(), sizes.iter().product::<i32>() as usize);
        let axis = (dtype == 8).then(|| self.number());
        let data = match dtype {
            0 => 4 * elements,
            1 => 2 * elements,
            8 => 8 * sizes[0] as usize + elements / 2,
            other => panic!("type {other} in the good file"),
        };
        Tensor { name, dimensions, sizes, dtype, axis, groups: None, data: self.bytes(data) }
    }
}

fn text(text: &str) -> Text {
    Text { length: text.len() as i32, bytes: text.as_bytes().to_vec() }
}

impl Text {
    fn file(&self) -> Vec<u8> {
        [&self.length.to_le_bytes()[..], &self.bytes].concat()
    }
}

impl Parts {
    fn good(file: &[u8]) -> Parts {
        let mut cursor = Cursor(file);
        let version = cursor.number();
        let table = (0..cursor.number()).map(|_| (cursor.text(), cursor.text())).collect();
        let tokens = (0..cursor.number()).map(|_| cursor.token()).collect();
        let tensors = (0..cursor.number()).map(|_| cursor.tensor()).collect();
        assert!(cursor.0.is_empty(), "nothing follows the last tensor");
        let (none, empty) = (None, Vec::new);
        Parts {
            version,
            entries: none,
            table,
            adapters: empty(),
            count: none,
            tokens,
            special: empty(),
            tensor_count: none,
            tensors,
            tail: empty(),
        }
    }

    fn file(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let number = |out: &mut Vec<u8>, value: i32| out.extend(value.to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &Text| out.extend(text.file());
        number(&mut out, self.version);
        number(&mut out, self.entries.unwrap_or(self.table.len() as i32));
        for (key, value) in &self.table {
            text(&mut out, key);
            text(&mut out, value);
        }
        out.extend(&self.adapters);
        number(&mut out, self.count.unwrap_or(self.tokens.len() as i32));
        for token in &self.tokens {
            number(&mut out, token.length);
            token.bytes.iter().for_each(|byte| number(&mut out, *byte));
            number(&mut out, token.id);
            out.extend(token.score.to_le_bytes());
        }
        out.extend(&self.special);
        number(&mut out, self.tensor_count.unwrap_or(self.tensors.len() as i32));
        for tensor in &self.tensors {
            text(&mut out, &tensor.name);
            number(&mut out, tensor.dimensions);
            tensor.sizes.iter().for_each(|size| number(&mut out, *size));
            number(&mut out, tensor.dtype);
            tensor.axis.iter().for_each(|axis| number(&mut out, *axis));
            tensor.groups.iter().for_each(|(groups, size)| {
                number(&mut out, *groups);
                number(&mut out, *size);
            });
            out.extend(&tensor.data);
        }
        out.extend(&self.tail);
        out
    }

    fn set(&mut self, key: &str, value: &str) {
        match self.table.iter_mut().find(|(known, _)| known.bytes == key.as_bytes()) {
            Some((_, old)) => *old = text(value),
            None => self.table.push((text(key), text(value))),
        }
    }

    fn drop_key(&mut self, key: &str) {
        self.table.retain(|(known, _)| known.bytes != key.as_bytes());
    }

    fn tensor(&mut self, end: &str) -> &mut Tensor {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name.bytes.ends_with(end.as_bytes()));
        found.expect("the good file has such a tensor")
    }
}

/// Its name, what the message says of it, the change.
type Lie = (&'static str, &'static str, fn(&mut Parts, &mut Random));

/// Address space of a command in KiB: a model of a megabyte needs a quarter of it.
const MEMORY_KIB: u64 = 1 << 18;

/// A matrix of 4-bit codes in the good file.
const CODES: &str = "layers.1.self_attn.o_proj.weight";
const NORM: &str = "model.norm.weight";

/// No reader believes these.
const FILE: &[Lie] = &[
    ("version 3", "expected version 0, 1 or 2 of FastLLM, found 3", |p, _| p.version = 3),
    ("version -1", "expected version 0, 1 or 2 of FastLLM, found -1", |p, _| p.version = -1),
    ("version 2^31-1", "expected version 0, 1 or 2 of FastLLM, found 2147483647", |p, _| p.version = i32::MAX),
    ("version 0 of a file with a table", "token 0 at byte 12: expected bytes from -128 to 255", |p, _| p.version = 0),
    ("table one entry longer", "key 103 of the table of keys", |p, _| p.entries = Some(p.table.len() as i32 + 1)),
    ("table one entry shorter", "length of token 0", |p, _| p.entries = Some(p.table.len() as i32 - 1)),
    (
        "table of -1 entries",
        "size of the table of keys at byte 4: expected a number from 0 to 65536, found -1",
        |p, _| p.entries = Some(-1),
    ),
    (
        "table of 2^31-1 entries",
        "size of the table of keys at byte 4: expected a number from 0 to 65536, found 2147483647",
        |p, _| p.entries = Some(i32::MAX),
    ),
    ("key of length -1", "of the table of keys", |p, r| any_entry(p, r).0.length = -1),
    ("key of length 2^31-1", "found 2147483647", |p, r| any_entry(p, r).0.length = i32::MAX),
    ("key one byte longer", "length of value", |p, r| any_entry(p, r).0.length += 1),
    ("value of length -2^31", "found -2147483648", |p, r| any_entry(p, r).1.length = i32::MIN),
    ("a key twice", "\"use_cache\" occurs twice", |p, _| p.table.push((text("use_cache"), text("False")))),
    ("value of 2 MiB", "expected a number from 0 to 1048576, found 2097152", |p, _| {
        p.set("transformers_version", &"x".repeat(2 << 20))
    }),
    ("key that is no UTF-8", "of the table of keys", |p, r| any_entry(p, r).0.bytes[0] = 0xff),
    ("peft_size of words", "expected a number from 0 to 65536, found \"many\"", |p, _| p.set("peft_size", "many")),
    ("peft_size -1", "expected a number from 0 to 65536, found \"-1\"", |p, _| p.set("peft_size", "-1")),
    ("peft_size without adapters", "name of adapter 0", |p, _| p.set("peft_size", "1")),
    ("peft_size 65537", "expected a number from 0 to 65536, found \"65537\"", |p, _| p.set("peft_size", "65537")),
    ("scores that are not there", "score of token 0 at byte 2910: expected a number, found NaN", |p, _| {
        p.tokens.iter_mut().for_each(|token| token.score = f32::NAN);
    }),
    ("scores forgotten", "length of token 1", |p, _| p.drop_key("tokenizer_use_score")),
    ("special tokens that are not there", "special token", |p, _| p.set("tokenizer_has_special_tokens", "1")),
    ("special tokens 2^31-1", "number of special tokens at byte 18375: expected a number from 0 to 2097152", |p, _| {
        p.set("tokenizer_has_special_tokens", "1");
        p.special = i32::MAX.to_le_bytes().to_vec();
    }),
    ("vocabulary one longer", "token 512 at byte 18342: expected bytes from -128 to 255", |p, _| {
        p.count = Some(p.tokens.len() as i32 + 1)
    }),
    ("vocabulary one shorter", "of tensor 0", |p, _| p.count = Some(p.tokens.len() as i32 - 1)),
    (
        "vocabulary of -1",
        "size of the vocabulary at byte 2894: expected a number from 0 to 2097152, found -1",
        |p, _| p.count = Some(-1),
    ),
    (
        "vocabulary of 2^31-1",
        "size of the vocabulary at byte 2894: expected a number from 0 to 2097152, found 2147483647",
        |p, _| p.count = Some(i32::MAX),
    ),
    ("token of length -1", "expected a number from 0 to 4096, found -1", |p, r| any_token(p, r).length = -1),
    ("token of length 2^31-1", "expected a number from 0 to 4096, found 2147483647", |p, r| {
        any_token(p, r).length = i32::MAX
    }),
    ("token one byte longer", "token ", |p, r| any_token(p, r).length += 1),
    ("token with byte 256", "expected bytes from -128 to 255, found 256", |p, r| any_token(p, r).bytes[0] = 256),
    ("token with byte -129", "expected bytes from -128 to 255, found -129", |p, r| any_token(p, r).bytes[0] = -129),
    ("token with id -1", "id of token", |p, r| any_token(p, r).id = -1),
    ("token with id 2^31-1", "expected a number from 0 to 2097152, found 2147483647", |p, r| {
        any_token(p, r).id = i32::MAX
    }),
    ("score infinite", "expected a number, found inf", |p, r| any_token(p, r).score = f32::INFINITY),
    ("tensors one more", "length of name of tensor 21 at byte 185685: expected 4 bytes, found 0", |p, _| {
        p.tensor_count = Some(p.tensors.len() as i32 + 1)
    }),
    ("tensors one less", "expected the end of the file, found 289 more bytes", |p, _| {
        p.tensor_count = Some(p.tensors.len() as i32 - 1)
    }),
    ("tensors -1", "number of tensors at byte 18338: expected a number from 0 to 1048576, found -1", |p, _| {
        p.tensor_count = Some(-1)
    }),
    (
        "tensors 2^31-1",
        "number of tensors at byte 18338: expected a number from 0 to 1048576, found 2147483647",
        |p, _| p.tensor_count = Some(i32::MAX),
    ),
    (
        "name of length -1",
        "length of name of tensor 13 at byte 155789: expected a number from 0 to 1048576, found -1",
        |p, _| p.tensor(CODES).name.length = -1,
    ),
    (
        "name of length 2^31-1",
        "length of name of tensor 13 at byte 155789: expected a number from 0 to 1048576, found 2147483647",
        |p, _| p.tensor(CODES).name.length = i32::MAX,
    ),
    ("name that is no UTF-8", "name of tensor 13 at byte 155793: expected UTF-8 text", |p, _| {
        p.tensor(CODES).name.bytes[0] = 0xfe
    }),
    ("name twice", "tensor model.norm.weight: the name occurs twice", |p, _| {
        let name = p.tensor(NORM).name.clone();
        p.tensor(CODES).name = name;
    }),
    ("dimensions -1", "o_proj.weight at byte 155831: expected a number from 0 to 4, found -1", |p, _| {
        p.tensor(CODES).dimensions = -1
    }),
    ("dimensions 5", "o_proj.weight at byte 155831: expected a number from 0 to 4, found 5", |p, _| {
        p.tensor(CODES).dimensions = 5
    }),
    ("dimensions 2^31-1", "o_proj.weight at byte 155831: expected a number from 0 to 4, found 2147483647", |p, _| {
        p.tensor(CODES).dimensions = i32::MAX
    }),
    ("size 0", "expected sizes of 1 or more, found [0, 64]", |p, _| p.tensor(CODES).sizes[1] = 0),
    (
        "size -1",
        "size of tensor model.layers.1.self_attn.o_proj.weight at byte 155835: expected a number from 0 to 2147483647, found -1",
        |p, _| p.tensor(CODES).sizes[0] = -1,
    ),
    ("size 2^31-1", "expected 2147483647 items of at least 8 bytes, found 29834 bytes", |p, _| {
        p.tensor(CODES).sizes[0] = i32::MAX
    }),
    (
        "sizes that overflow",
        "expected sizes of 1 or more, found [2147483647, 2147483647, 2147483647, 2147483647]",
        |p, _| {
            let tensor = p.tensor(CODES);
            tensor.dimensions = 4;
            tensor.sizes = vec![i32::MAX; 4];
        },
    ),
    ("type 2", "expected type 0, 1, 3, 4, 7, 8 or 9, found 2;", |p, _| p.tensor(CODES).dtype = 2),
    ("type -1", "expected type 0, 1, 3, 4, 7, 8 or 9, found -1;", |p, _| p.tensor(CODES).dtype = -1),
    ("type 10", "expected type 0, 1, 3, 4, 7, 8 or 9, found 10;", |p, _| p.tensor(NORM).dtype = 10),
    ("type f32 of codes", "length of name of tensor 14", |p, _| p.tensor(CODES).dtype = 0),
    ("8 bits of 4", "length of name of tensor 14", |p, _| p.tensor(CODES).dtype = 3),
    ("groups that are not there", "groups of tensor model.layers.1.self_attn.o_proj.weight", |p, _| {
        p.tensor(CODES).dtype = 9
    }),
    (
        "axis 1",
        "axis of tensor model.layers.1.self_attn.o_proj.weight at byte 155847: expected 0 or -1, found 1",
        |p, _| p.tensor(CODES).axis = Some(1),
    ),
    (
        "axis -2",
        "axis of tensor model.layers.1.self_attn.o_proj.weight at byte 155847: expected 0 or -1, found -2",
        |p, _| p.tensor(CODES).axis = Some(-2),
    ),
    ("one pair for all rows", "length of name of tensor 14", |p, _| p.tensor(CODES).axis = Some(-1)),
    ("groups of 0", "expected groups that fill rows of 64, found 0 of 0", |p, _| grouped(p, (0, 0))),
    (
        "groups of -1",
        "groups of tensor model.layers.1.self_attn.o_proj.weight at byte 155855: expected a number from 0 to 2147483647",
        |p, _| grouped(p, (1, -1)),
    ),
    ("groups that do not fill a row", "expected groups that fill rows of 64, found 1 of 32", |p, _| {
        grouped(p, (1, 32))
    }),
    ("more groups than a row has", "expected groups that fill rows of 64, found 4 of 32", |p, _| grouped(p, (4, 32))),
    ("groups 2^31-1", "expected groups that fill rows of 64, found 2147483647 of 1", |p, _| grouped(p, (i32::MAX, 1))),
    (
        "adapter with a name of length -1",
        "length of name of adapter 0 at byte 2912: expected a number from 0 to 1048576, found -1",
        |p, _| adapter(p, &[(-1_i32).to_le_bytes().to_vec()]),
    ),
    (
        "adapter with 2^31-1 keys",
        "size of the keys of adapter 0 at byte 2917: expected a number from 0 to 65536, found 2147483647",
        |p, _| adapter(p, &[text("a").file(), i32::MAX.to_le_bytes().to_vec()]),
    ),
    ("adapter with a key twice", "key 1 of the keys of adapter 0 at byte 2935: \"r\" occurs twice", |p, _| {
        let (key, value) = (text("r").file(), text("8").file());
        adapter(p, &[text("a").file(), 2_i32.to_le_bytes().to_vec(), key.clone(), value.clone(), key, value]);
    }),
    ("adapters two for one", "name of adapter 1", |p, _| {
        adapter(p, &[text("a").file(), 0_i32.to_le_bytes().to_vec()]);
        p.set("peft_size", "2");
    }),
    (
        "special token of length -1",
        "length of special token 0 at byte 18379: expected a number from 0 to 1048576, found -1",
        |p, _| {
            p.set("tokenizer_has_special_tokens", "1");
            p.special = [1_i32.to_le_bytes(), (-1_i32).to_le_bytes()].concat();
        },
    ),
    ("special token that is no UTF-8", "special token 0 at byte 18383: expected UTF-8 text", |p, _| {
        p.set("tokenizer_has_special_tokens", "1");
        p.special = [&1_i32.to_le_bytes()[..], &1_i32.to_le_bytes(), &[0xff]].concat();
    }),
    ("type 5", "expected type 0, 1, 3, 4, 7, 8 or 9, found 5;", |p, _| p.tensor(CODES).dtype = 5),
    ("type 1000", "expected type 0, 1, 3, 4, 7, 8 or 9, found 1000;", |p, _| p.tensor(NORM).dtype = 1000),
    (
        "a byte less",
        "numbers of tensor model.norm.weight at byte 185425: expected 64 items of at least 4 bytes, found 255 bytes",
        |p, _| {
            p.tensors.last_mut().expect("a tensor").data.pop();
        },
    ),
    ("a byte more", "expected the end of the file, found 1 more bytes", |p, _| p.tail.push(0)),
    ("a megabyte more", "expected the end of the file, found 1048576 more bytes", |p, _| p.tail = vec![0; 1 << 20]),
];

/// The file can be looked at, but is no model.
const MEANING: &[Lie] = &[
    ("no class", "expected a list with one class name, found no such key", |p, _| {
        p.drop_key("architectures");
        p.drop_key("model_type");
    }),
    ("unknown class", "expected a supported class, found \"UnheardOfForCausalLM\"", |p, _| {
        p.set("architectures", "['UnheardOfForCausalLM']")
    }),
    ("two classes", "expected a list with one class name, found 2 class names", |p, _| {
        p.set("architectures", "['LlamaForCausalLM', 'Qwen2ForCausalLM']")
    }),
    ("width 0", "hidden_size: expected 1 to 4194304, found 0", |p, _| p.set("hidden_size", "0")),
    ("width 63", "num_attention_heads: expected a divisor of hidden_size (63)", |p, _| p.set("hidden_size", "63")),
    ("width 2^40", "hidden_size: expected 1 to 4194304, found 1099511627776", |p, _| {
        p.set("hidden_size", "1099511627776")
    }),
    ("width of words", "hidden_size: expected a positive integer, found \"wide\"", |p, _| p.set("hidden_size", "wide")),
    ("width -64", "hidden_size: expected a positive integer, found -64", |p, _| p.set("hidden_size", "-64")),
    ("one layer more", "tensor model.layers.3.input_layernorm.weight is missing", |p, _| {
        p.set("num_hidden_layers", "4")
    }),
    ("one layer less", "expected 2 layers (config.json), found 6 tensors of other layers", |p, _| {
        p.set("num_hidden_layers", "2")
    }),
    ("layers 2^31", "num_hidden_layers: expected 1 to 65536, found 2147483648", |p, _| {
        p.set("num_hidden_layers", "2147483648")
    }),
    ("heads 0", "num_attention_heads: expected 1 to 65536, found 0", |p, _| p.set("num_attention_heads", "0")),
    ("heads 3", "num_attention_heads: expected a divisor of hidden_size (64)", |p, _| {
        p.set("num_attention_heads", "3")
    }),
    ("KV heads 3", "number of KV heads: expected a divisor of 4 (the number of attention heads), found 3", |p, _| {
        p.set("num_key_value_heads", "3")
    }),
    (
        "vocabulary of one less",
        "tensor model.embed_tokens.weight: expected shape [511, 64], found [512, 64]",
        |p, _| p.set("vocab_size", "511"),
    ),
    ("vocabulary missing", "vocab_size: expected a positive integer, found nothing", |p, _| p.drop_key("vocab_size")),
    ("epsilon nothing", "rms_norm_eps: expected a number, found []", |p, _| p.set("rms_norm_eps", "[]")),
    ("rope scaling of a list", "rope_scaling: expected an object, found [1,2]", |p, _| p.set("rope_scaling", "[1, 2]")),
    ("unknown rope scaling", "found \"sideways\"", |p, _| {
        p.drop_key("rope_scaling");
        p.set("rope_scaling.type", "sideways");
    }),
    ("linear rope scaling without a factor", "rope_scaling: factor: expected a number, found nothing", |p, _| {
        p.drop_key("rope_scaling");
        p.set("rope_scaling.type", "linear");
    }),
    ("a tensor of another name", "tensor model.layers.1.self_attn.o_proj.weight is missing", |p, _| {
        p.tensor(CODES).name = text("model.layers.1.self_attn.z_proj.weight")
    }),
    (
        "a separate part next to its fused tensor",
        "tensor model.layers.1.self_attn.q_proj.weight is not known to LlamaForCausalLM",
        |p, _| {
            p.tensor(CODES).name = text("model.layers.1.self_attn.q_proj.weight");
        },
    ),
    (
        "joined tensor with an odd number of rows",
        "tensor model.layers.0.mlp.gateup_proj.weight: expected shape [320, 64], found [319, 64]",
        |p, _| {
            let tensor = p.tensor("layers.0.mlp.gateup_proj.weight");
            tensor.sizes[0] -= 1;
            tensor.data.drain(..8);
            let codes = tensor.data.len() - 32;
            tensor.data.truncate(codes);
        },
    ),
    (
        "joined queries, keys and values of other rows",
        "self_attn.mergeqkv.weight: expected shape [64, 32], found [128, 64]",
        |p, _| p.set("hidden_size", "32"),
    ),
    (
        "joined tensor of a layer that is not there",
        "found 1 tensor of other layers, such as model.layers.7.mlp.gateup_proj.weight",
        |p, _| {
            p.tensor("layers.0.mlp.gateup_proj.weight").name = text("model.layers.7.mlp.gateup_proj.weight");
        },
    ),
    ("a tensor without a name", "tensor model.layers.1.self_attn.o_proj.weight is missing", |p, _| {
        p.tensor(CODES).name = text("")
    }),
    ("an empty width", "hidden_size: expected a positive integer, found nothing", |p, _| p.set("hidden_size", "")),
    ("half a layer", "num_hidden_layers: expected a positive integer, found 1.5", |p, _| {
        p.set("num_hidden_layers", "1.5")
    }),
    ("heads that are true", "num_attention_heads: expected a positive integer, found true", |p, _| {
        p.set("num_attention_heads", "True")
    }),
    ("epsilon that is no number", "rms_norm_eps: expected a number, found \"nan\"", |p, _| {
        p.set("rms_norm_eps", "nan")
    }),
    ("epsilon -1", "rms_norm_eps: expected a positive number, found -1", |p, _| p.set("rms_norm_eps", "-1.0")),
    ("rotation base 0", "rope_theta: expected a positive number, found 0", |p, _| p.set("rope_theta", "0")),
    ("unknown activation", "hidden_act: expected \"silu\" or \"swish\", found \"sideways\"", |p, _| {
        p.set("hidden_act", "sideways")
    }),
    ("context 0", "max_position_embeddings: expected 1 to 2147483647, found 0", |p, _| {
        p.set("max_position_embeddings", "0")
    }),
    ("id outside of the model", "expected an ID below 512, found 512", |p, r| any_token(p, r).id = 512),
];

/// Ranges that give no numbers.
const RANGES: &[Lie] = &[
    ("a minimum that is NaN", "found others in 1 of 64 pairs", |p, _| {
        p.tensor(CODES).data[..4].copy_from_slice(&f32::NAN.to_le_bytes())
    }),
    ("a minimum that is infinite", "found others in 1 of 64 pairs", |p, _| {
        p.tensor(CODES).data[..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    }),
    ("a maximum that is NaN", "found others in 1 of 64 pairs", |p, _| {
        p.tensor(CODES).data[4..8].copy_from_slice(&f32::NAN.to_le_bytes())
    }),
    ("a maximum that is infinite", "found others in 1 of 64 pairs", |p, _| {
        p.tensor(CODES).data[4..8].copy_from_slice(&f32::INFINITY.to_le_bytes())
    }),
    ("a range that overflows", "found others in 1 of 64 pairs", |p, _| {
        p.tensor(CODES).data[..4].copy_from_slice(&f32::MIN.to_le_bytes());
        p.tensor(CODES).data[4..8].copy_from_slice(&f32::MAX.to_le_bytes());
    }),
];

const ACCEPTED: &[Lie] = &[
    ("as it is", "", |_, _| ()),
    ("version 1", "", |p, _| p.version = 1),
    ("a token twice", "", |p, _| p.tokens.push(p.tokens[0].clone())),
    ("a token missing", "", |p, _| drop(p.tokens.pop())),
    ("bytes without a sign", "", |p, _| {
        p.tokens.iter_mut().flat_map(|token| &mut token.bytes).for_each(|byte| *byte &= 0xff);
    }),
    ("an end outside of the vocabulary", "", |p, _| p.set("eos_token_id", "151645")),
    ("control characters", "", |p, _| p.set("user_role", "\u{1b}[2J\u{202e}\u{7}")),
    ("lengths that count characters", "", |p, _| {
        p.set("user_role", "用户：");
        p.set("bot_role", "助手：");
        let texts = p.table.iter_mut().flat_map(|(key, value)| [key, value]);
        texts.for_each(|text| text.length = String::from_utf8_lossy(&text.bytes).chars().count() as i32);
    }),
    ("a special token that is no token", "", |p, _| {
        p.set("tokenizer_has_special_tokens", "1");
        p.special = [1_i32.to_le_bytes(), 4_i32.to_le_bytes(), *b"<|x>"].concat();
    }),
    ("an adapter", "", |p, _| {
        adapter(p, &[text("a").file(), 0_i32.to_le_bytes().to_vec()]);
        let mut tensor = p.tensor(NORM).clone();
        tensor.name = text("model.layers.0.self_attn.q_proj.lora_A.a.weight");
        p.tensors.push(tensor);
    }),
    ("groups", "", |p, _| {
        grouped(p, (2, 32));
        let tensor = p.tensor(CODES);
        let pairs = tensor.data[..8 * 64].to_vec();
        tensor.data.splice(..0, pairs);
    }),
    ("a range of nothing", "", |p, _| p.tensor(CODES).data[..8].fill(0)),
];

/// All cases; `good` is a file that FastLLM wrote.
pub fn cases(seed: u64, good: &[u8]) -> Vec<Case> {
    let good = Parts::good(good);
    let mut cases = lies(seed, &good, FILE, READERS);
    cases.extend(lies(seed, &good, MEANING, USERS));
    cases.extend(lies(seed, &good, RANGES, READERS));
    cases.extend(lies(seed, &good, ACCEPTED, &[]).into_iter().map(|good| Case { accepted_by: ALL, ..good }));
    cases.extend(things(seed, &good));
    cases
}

fn lies(seed: u64, good: &Parts, lies: &[Lie], refused_by: &'static [Call]) -> Vec<Case> {
    let lie = |(name, says, lie): &Lie| {
        assert!(refused_by.is_empty() || !says.is_empty(), "{name} must be told by its words");
        let mut parts = good.clone();
        lie(&mut parts, &mut Random::new(seed, name));
        case(name, says, vec![(MODEL.to_owned(), Entry::File(parts.file()))], refused_by)
    };
    lies.iter().map(lie).collect()
}

/// Cut files, holes, and what is no file.
fn things(seed: u64, good: &Parts) -> Vec<Case> {
    let file = good.file();
    let mut random = Random::new(seed, "things");
    let mut cut = |end: usize| Entry::File(file[..random.below(end)].to_vec());
    let model = |entry| vec![(MODEL.to_owned(), entry)];
    let mut cases = vec![
        case("cut in the table", "bytes, found ", model(cut(2500)), READERS),
        case("cut in the vocabulary", "bytes, found ", model(cut(18_000)), READERS),
        case("cut in the tensors", "bytes, found ", model(cut(file.len())), READERS),
        case("empty", "version at byte 0: expected 4 bytes, found 0", model(Entry::File(Vec::new())), READERS),
        case(
            "zeros",
            "end of the tensors at byte 8: expected the end of the file, found 4084 more bytes",
            model(Entry::File(vec![0; 4096])),
            READERS,
        ),
        case("ones", "expected version 0, 1 or 2 of FastLLM, found -1", model(Entry::File(vec![0xff; 4096])), READERS),
        case(
            "a hole of 1 TiB",
            "expected the end of the file, found 1099511442091 more bytes",
            model(Entry::Sparse(file.clone(), 1 << 40)),
            READERS,
        ),
        case("a pipe", "expected a regular file, found a pipe", model(Entry::Pipe), READERS),
        case("a link to itself", "cannot be opened", model(Entry::Link(MODEL.to_owned())), READERS),
    ];
    let behind = |place: usize| Entry::File(file[..place].to_vec());
    for (name, says, place) in ends(good) {
        cases.push(case(name, says, model(behind(place)), READERS));
    }
    cases
}

/// Where sections end: what a file without the next ones has before their counts.
fn ends(good: &Parts) -> Vec<(&'static str, &'static str, usize)> {
    let until = |changed: Parts, counts: usize| changed.file().len() - COUNT_BYTES * counts;
    let table = until(Parts { tokens: Vec::new(), tensors: Vec::new(), ..good.clone() }, 2);
    let vocabulary = until(Parts { tensors: Vec::new(), ..good.clone() }, 1);
    let one = until(Parts { tensors: good.tensors[..1].to_vec(), ..good.clone() }, 0);
    vec![
        ("cut behind the version", "size of the table of keys at byte 4: expected 4 bytes, found 0", COUNT_BYTES),
        ("cut behind the size of the table", "expected 103 items of at least 8 bytes, found 0 bytes", 2 * COUNT_BYTES),
        ("cut behind the table", "size of the vocabulary at byte 2894: expected 4 bytes, found 0", table),
        (
            "cut behind the size of the vocabulary",
            "expected 512 items of at least 12 bytes, found 0 bytes",
            table + COUNT_BYTES,
        ),
        ("cut behind the vocabulary", "number of tensors at byte 18338: expected 4 bytes, found 0", vocabulary),
        (
            "cut behind the number of tensors",
            "expected 21 items of at least 18 bytes, found 0 bytes",
            vocabulary + COUNT_BYTES,
        ),
        ("cut behind the first tensor", "length of name of tensor 1 at byte 38860: expected 4 bytes, found 0", one),
        ("cut before the last byte", "expected 64 items of at least 4 bytes, found 255 bytes", good.file().len() - 1),
    ]
}

/// Bytes of a count.
const COUNT_BYTES: usize = 4;

fn case(name: &str, says: &'static str, files: Files, refused_by: &'static [Call]) -> Case {
    Case {
        name: name.to_owned(),
        files,
        model: MODEL,
        trace: None,
        named: MODEL,
        says,
        memory_kib: MEMORY_KIB,
        refused_by,
        accepted_by: &[],
    }
}

fn any_entry<'p>(parts: &'p mut Parts, random: &mut Random) -> &'p mut (Text, Text) {
    let place = random.below(parts.table.len());
    &mut parts.table[place]
}

fn any_token<'p>(parts: &'p mut Parts, random: &mut Random) -> &'p mut Token {
    let place = random.below(parts.tokens.len());
    &mut parts.tokens[place]
}

/// Says that the codes lie in groups.
fn grouped(parts: &mut Parts, groups: (i32, i32)) {
    let tensor = parts.tensor(CODES);
    (tensor.dtype, tensor.groups) = (9, Some(groups));
}

/// Says that there is an adapter, whose section has these pieces.
fn adapter(parts: &mut Parts, pieces: &[Vec<u8>]) {
    parts.set("peft_size", "1");
    parts.adapters = pieces.concat();
}
