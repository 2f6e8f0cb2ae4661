//! NumPy's `.npz` archives, written field by field so that each can lie. After PKWARE's APPNOTE and NumPy's NEP 1.

/// An array and what is claimed of it.
#[derive(Clone)]
pub struct Array {
    /// With `.npy`.
    pub name: Vec<u8>,
    pub magic: [u8; 8],
    pub descr: &'static str,
    pub fortran: bool,
    pub shape: String,
    pub header_length: Option<u16>,
    pub data: Vec<u8>,
    /// Overrides the contents of the entry.
    pub whole: Option<Vec<u8>>,
    /// Changes the CRC-32 where it is not 0.
    pub check: u32,
    pub flags: u16,
    pub method: u16,
    /// Override what the directory says.
    pub size_claimed: Option<u32>,
    pub place_claimed: Option<u32>,
}

impl Array {
    /// A good array.
    pub fn new(name: &str, descr: &'static str, shape: String, data: &[u8]) -> Array {
        Array {
            name: format!("{name}.npy").into_bytes(),
            magic: *b"\x93NUMPY\x01\x00",
            descr,
            fortran: false,
            shape,
            header_length: None,
            data: data.to_vec(),
            whole: None,
            check: 0,
            flags: 0,
            method: 0,
            size_claimed: None,
            place_claimed: None,
        }
    }

    fn contents(&self) -> Vec<u8> {
        if let Some(whole) = &self.whole {
            return whole.clone();
        }
        let order = if self.fortran { "True" } else { "False" };
        let mut header = format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': {}, }}", self.descr, self.shape);
        let padding = 64 - (header.len() + 11) % 64;
        header.push_str(&" ".repeat(padding));
        header.push('\n');
        let length = self.header_length.unwrap_or(header.len() as u16);
        [&self.magic, &length.to_le_bytes()[..], header.as_bytes(), &self.data].concat()
    }

    /// Version, flags, method, time, date, CRC-32, sizes, length of the name, of extra fields.
    fn fields(&self, contents: &[u8], size: u32) -> Vec<u8> {
        let words = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let sizes = [checksum(contents) ^ self.check, contents.len() as u32, size];
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        [words(&[20, self.flags, self.method, 0, 0]), sizes, words(&[self.name.len() as u16, 0])].concat()
    }
}

/// The file.
pub fn archive(arrays: &[Array]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for array in arrays {
        let contents = array.contents();
        let size = array.size_claimed.unwrap_or(contents.len() as u32);
        let place = array.place_claimed.unwrap_or(file.len() as u32);
        let fields = array.fields(&contents, size);
        file.extend([b"PK\x03\x04", &fields[..], &array.name, &contents].concat());
        directory.extend([b"PK\x01\x02\x14\x00", &fields[..], &[0; 10], &place.to_le_bytes(), &array.name].concat());
    }
    let (count, place) = ((arrays.len() as u16).to_le_bytes(), file.len() as u32);
    file.extend(&directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count].concat());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(place.to_le_bytes());
    file.extend([0, 0]);
    file
}

/// CRC-32 of ISO 3309, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

/// Zeros by gigabytes, deflated: a literal zero and copies of it, 258 bytes for two bits each (RFC 1951, fixed codes).
pub fn bomb() -> Vec<u8> {
    let mut bits = vec![1, 1, 0];
    bits.extend([0, 0, 1, 1, 0, 0, 0, 0]); // literal 0
    for _ in 0..200_000 {
        bits.extend([1, 1, 0, 0, 0, 1, 0, 1]); // length 258, symbol 285
        bits.extend([0, 0, 0, 0, 0]); // distance 1
    }
    bits.extend([0; 7]); // the end
    bits.chunks(8)
        .map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit) << (8 - bits.len()) >> (8 - bits.len()))
        .collect()
}
