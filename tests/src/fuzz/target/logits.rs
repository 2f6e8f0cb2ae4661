//! Files of reference logits.

use super::super::node::{Cursor, Node};
use super::super::{Answer, later, law, refused};
use std::fs;
use std::path::Path;
use trueup::formats::{LogitsFile, LogitsRecord, LogitsShape, LogitsWriter};

/// Records that are read from one file.
const RECORDS_MAX: usize = 64;

/// Two chunks of 8 tokens with 5 and with 6 logits.
pub fn seeds() -> Vec<Vec<u8>> {
    [5, 6].map(seed).to_vec()
}

fn seed(vocabulary: u16) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a scratch directory can be made");
    let path = folder.path().join("seed.logits");
    let shape = LogitsShape { context: 8, vocabulary: usize::from(vocabulary), chunks: 2 };
    let ids: Vec<u32> = (0..16).map(|id| id % u32::from(vocabulary)).collect();
    let mut writer = LogitsWriter::create(&path, &shape, &ids, &[]).expect("the sizes are small");
    for record in 0..2 * shape.scored() {
        let codes = (0..vocabulary).map(|code| code * 9000).collect();
        let record = LogitsRecord { scale: 1e-4, minimum: -(record as f32), codes };
        writer.push(&record).expect("the record fits");
    }
    writer.finish().expect("all records were written");
    fs::read(path).expect("the file was written")
}

/// Numbers of four bytes up to the records, then bytes.
pub fn grammar(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..2 + 3 + 16 {
        match cursor.take(4) {
            Some(number) => nodes.push(Node::Number(number.to_vec())),
            None => break,
        }
    }
    nodes.push(Node::Bytes(cursor.0.to_vec()));
    Node::Group(nodes)
}

/// Opens a file, reads its records, and writes it again.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    let path = folder.join("base.logits");
    later(fs::write(&path, input), "the input can be written")?;
    let file = match LogitsFile::open(&path) {
        Ok(file) => file,
        Err(problem) => return refused(&problem),
    };
    let shape = file.shape();
    law(file.ids().len() == shape.context * shape.chunks, "there are ids for all chunks")?;
    let all = shape.scored() * shape.chunks;
    let mut records = Vec::new();
    for index in 0..all.min(RECORDS_MAX) {
        match file.record(index / shape.scored(), index % shape.scored()) {
            Ok(record) => records.push(record),
            Err(problem) => return refused(&problem),
        }
    }
    law(records.iter().all(|record| record.codes.len() == shape.vocabulary), "a record has all codes")?;
    if all <= RECORDS_MAX && shape.vocabulary.is_multiple_of(2) {
        let copy = folder.join("copy.logits");
        let mut writer = later(LogitsWriter::create(&copy, shape, file.ids(), &[]), "a copy can be begun")?;
        for record in &records {
            later(writer.push(record), "a record can be copied")?;
        }
        later(writer.finish(), "the copy is complete")?;
        law(later(fs::read(copy), "the copy can be read")? == input, "the copy is the file")?;
    }
    Ok(Answer::Accepted("logits"))
}
