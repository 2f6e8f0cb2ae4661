//! A GGUF file taken apart into the fields that a lie can be told in, and put together again without any check.

/// A key with its value's bytes.
#[derive(Clone)]
pub struct Key {
    pub name: Vec<u8>,
    /// Overrides the length of the name.
    pub name_length: Option<u64>,
    pub value_type: u32,
    pub value: Vec<u8>,
}

/// An entry of the list of tensors.
#[derive(Clone)]
pub struct Tensor {
    pub name: Vec<u8>,
    /// Overrides the number of dimensions.
    pub dimension_count: Option<u32>,
    pub dimensions: Vec<u64>,
    pub dtype: u32,
    pub offset: u64,
}

/// All of a file.
#[derive(Clone)]
pub struct Parts {
    pub magic: [u8; 4],
    pub version: u32,
    /// Overrides the number of tensors.
    pub tensor_count: Option<u64>,
    /// Overrides the number of keys.
    pub key_count: Option<u64>,
    pub keys: Vec<Key>,
    pub tensors: Vec<Tensor>,
    pub alignment: usize,
    pub data: Vec<u8>,
}

/// Type numbers of values.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("4 bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("8 bytes"))
    }

    fn string(&mut self) -> Vec<u8> {
        let length = self.u64() as usize;
        self.take(length).to_vec()
    }

    fn skip_value(&mut self, value_type: u32) {
        match value_type {
            0 | 1 | BOOL => drop(self.take(1)),
            2 | 3 => drop(self.take(2)),
            U32 | I32 | F32 => drop(self.take(4)),
            STRING => drop(self.string()),
            ARRAY => {
                let item = self.u32();
                (0..self.u64()).for_each(|_| self.skip_value(item));
            }
            _ => drop(self.take(8)),
        }
    }
}

impl Parts {
    /// Takes a good file apart.
    pub fn read(bytes: &[u8]) -> Parts {
        let mut cursor = Cursor(bytes);
        let magic = cursor.take(4).try_into().expect("4 bytes");
        let version = cursor.u32();
        let (tensor_count, key_count) = (cursor.u64(), cursor.u64());
        let keys = (0..key_count).map(|_| {
            let (name, value_type, before) = (cursor.string(), cursor.u32(), cursor.0);
            cursor.skip_value(value_type);
            let value = before[..before.len() - cursor.0.len()].to_vec();
            Key { name, name_length: None, value_type, value }
        });
        let keys = keys.collect();
        let tensors = (0..tensor_count).map(|_| {
            let (name, count) = (cursor.string(), cursor.u32());
            let dimensions = (0..count).map(|_| cursor.u64()).collect();
            Tensor { name, dimension_count: None, dimensions, dtype: cursor.u32(), offset: cursor.u64() }
        });
        let tensors = tensors.collect();
        let start = (bytes.len() - cursor.0.len()).next_multiple_of(32);
        let data = bytes[start..].to_vec();
        Parts { magic, version, tensor_count: None, key_count: None, keys, tensors, alignment: 32, data }
    }

    /// The bytes before the data, and where each field of them ends.
    fn header(&self) -> (Vec<u8>, Vec<usize>) {
        let mut out = self.magic.to_vec();
        let mut ends = vec![out.len()];
        let mut put = |bytes: &[u8]| {
            out.extend(bytes);
            ends.push(out.len());
        };
        put(&self.version.to_le_bytes());
        put(&self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        put(&self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for key in &self.keys {
            put(&key.name_length.unwrap_or(key.name.len() as u64).to_le_bytes());
            put(&key.name);
            put(&key.value_type.to_le_bytes());
            put(&key.value);
        }
        for tensor in &self.tensors {
            put(&(tensor.name.len() as u64).to_le_bytes());
            put(&tensor.name);
            put(&tensor.dimension_count.unwrap_or(tensor.dimensions.len() as u32).to_le_bytes());
            tensor.dimensions.iter().for_each(|size| put(&size.to_le_bytes()));
            put(&tensor.dtype.to_le_bytes());
            put(&tensor.offset.to_le_bytes());
        }
        (out, ends)
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header().0;
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }

    /// Where fields of the header end.
    pub fn ends(&self) -> Vec<usize> {
        self.header().1
    }

    /// The key of that name.
    pub fn key(&mut self, name: &str) -> &mut Key {
        self.keys.iter_mut().find(|key| key.name == name.as_bytes()).unwrap_or_else(|| panic!("no key {name}"))
    }

    /// The tensor of that name.
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name.as_bytes()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Gives a key another type and value; adds it where it is not.
    pub fn set(&mut self, name: &str, value_type: u32, value: &[u8]) {
        match self.keys.iter_mut().find(|key| key.name == name.as_bytes()) {
            Some(key) => (key.value_type, key.value) = (value_type, value.to_vec()),
            None => self.add(name.as_bytes(), value_type, value),
        }
    }

    /// Replaces an item of an array by these bytes.
    pub fn set_item(&mut self, name: &str, index: usize, item: &[u8]) {
        let key = self.key(name);
        assert_eq!(key.value_type, ARRAY, "{name} is an array");
        let (head, items) = key.value.split_at(12);
        let item_type = u32::from_le_bytes(head[..4].try_into().expect("4 bytes"));
        let mut cursor = Cursor(items);
        (0..index).for_each(|_| cursor.skip_value(item_type));
        let start = items.len() - cursor.0.len();
        cursor.skip_value(item_type);
        let end = items.len() - cursor.0.len();
        let value = [head, &items[..start], item, &items[end..]].concat();
        key.value = value;
    }

    /// A u32.
    pub fn set_u32(&mut self, name: &str, value: u32) {
        self.set(name, U32, &value.to_le_bytes());
    }

    /// An f32.
    pub fn set_f32(&mut self, name: &str, value: f32) {
        self.set(name, F32, &value.to_le_bytes());
    }

    /// A text.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.set(name, STRING, &string(text.as_bytes()));
    }

    /// Adds a key behind the others.
    pub fn add(&mut self, name: &[u8], value_type: u32, value: &[u8]) {
        self.keys.push(Key { name: name.to_vec(), name_length: None, value_type, value: value.to_vec() });
    }

    /// The value of `general.architecture`.
    pub fn architecture(&self) -> &str {
        let key = self.keys.iter().find(|key| key.name == b"general.architecture").expect("an architecture");
        std::str::from_utf8(&key.value[8..]).expect("an architecture is UTF-8")
    }

    /// Gives a tensor another shape, and zeros of that size at the end of the data.
    pub fn reshape(&mut self, name: &str, dimensions: &[u64]) {
        let offset = self.data.len().next_multiple_of(self.alignment);
        let tensor = self.tensor(name);
        let element_bytes = match tensor.dtype {
            0 => 4,
            1 | 30 => 2,
            other => panic!("{name} has type {other}"),
        };
        (tensor.dimensions, tensor.offset) = (dimensions.to_vec(), offset as u64);
        let bytes = dimensions.iter().product::<u64>() as usize * element_bytes;
        self.data.resize((offset + bytes).next_multiple_of(self.alignment), 0);
    }

    /// Adds a tensor of zeros in f32.
    pub fn add_tensor(&mut self, name: &str, dimensions: &[u64]) {
        let (name_bytes, none) = (name.as_bytes().to_vec(), Vec::new());
        self.tensors.push(Tensor { name: name_bytes, dimension_count: None, dimensions: none, dtype: 0, offset: 0 });
        self.reshape(name, dimensions);
    }

    /// Removes a tensor from the list; its data stays.
    pub fn remove_tensor(&mut self, name: &str) {
        self.tensor(name);
        self.tensors.retain(|tensor| tensor.name != name.as_bytes());
    }

    /// Takes a key away.
    pub fn remove(&mut self, name: &str) {
        self.key(name);
        self.keys.retain(|key| key.name != name.as_bytes());
    }
}

/// A length and the bytes.
pub fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

/// An item type, a count and the bytes of the items.
pub fn array(item_type: u32, count: u64, items: &[u8]) -> Vec<u8> {
    [&item_type.to_le_bytes(), &count.to_le_bytes()[..], items].concat()
}
