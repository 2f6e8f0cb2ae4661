//! FastLLM's `.flm`: a table, a vocabulary and tensors behind their counts.

use crate::fuzz::node::{Counts, Cursor, Node, Unit, Width};

const SIZE: Width = Width::Bytes(4);

/// Takes a file apart.
pub fn flm(bytes: &[u8]) -> Node {
    let mut cursor = Cursor(bytes);
    let mut fields: Vec<Node> = cursor.field(4).into_iter().collect();
    let (table, keys) = list(&mut cursor, |cursor| {
        let (key, value) = (cursor.counted_text(SIZE)?, cursor.counted_text(SIZE)?);
        Some((Node::Group(vec![key.clone(), value.clone()]), [key.bytes(), value.bytes()]))
    });
    fields.push(table);
    let is_on = |name: &str| {
        let text = |text: &str| Node::counted_text(SIZE, text.as_bytes()).bytes();
        keys.contains(&[text(name), text("1")])
    };
    let scores = is_on("tokenizer_use_score");
    fields.push(list(&mut cursor, |cursor| Some((token(cursor, scores)?, ()))).0);
    if is_on("tokenizer_has_special_tokens") {
        fields.push(list(&mut cursor, |cursor| Some((cursor.counted_text(SIZE)?, ()))).0);
    }
    fields.push(list(&mut cursor, |cursor| Some((tensor(cursor)?, ()))).0);
    fields.push(cursor.rest());
    Node::Group(fields)
}

/// A list behind the number of its items, and what each item says.
fn list<T>(cursor: &mut Cursor<'_>, item: impl Fn(&mut Cursor<'_>) -> Option<(Node, T)>) -> (Node, Vec<T>) {
    let Some(count) = cursor.number(4) else { return (cursor.rest(), Vec::new()) };
    let (mut items, mut said) = (Vec::new(), Vec::new());
    while (items.len() as u64) < count {
        let before = *cursor;
        let Some((node, word)) = item(cursor) else {
            *cursor = before;
            break;
        };
        items.push(node);
        said.push(word);
    }
    let claim = (items.len() as u64 != count).then_some(count);
    (Node::Counted { width: SIZE, unit: Unit::Items, lists: vec![Counts { claim, items }] }, said)
}

fn token(cursor: &mut Cursor<'_>, has_score: bool) -> Option<Node> {
    let (bytes, _) = list(cursor, |cursor| Some((cursor.field(4)?, ())));
    let mut fields = vec![bytes, cursor.field(4)?];
    if has_score {
        fields.push(cursor.field(4)?);
    }
    Some(Node::Group(fields))
}

fn tensor(cursor: &mut Cursor<'_>) -> Option<Node> {
    let name = cursor.counted_text(SIZE)?;
    let mut sizes = Vec::new();
    let (dimensions, _) = {
        let before = *cursor;
        let count = cursor.number(4)?;
        for _ in 0..count.min(4) {
            sizes.push(cursor.number(4)?);
        }
        *cursor = before;
        list(cursor, |cursor| Some((cursor.field(4)?, ())))
    };
    let dtype = cursor.number(4)?;
    let mut fields = vec![name, dimensions, Node::Number((dtype as u32).to_le_bytes().to_vec())];
    let elements = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    let rows = *sizes.first()?;
    let (pairs, bytes) = match dtype {
        0 => (0, elements.checked_mul(4)?),
        1 | 7 => (0, elements.checked_mul(2)?),
        3 => (rows, elements),
        4 | 8 => (rows, elements.div_ceil(2)),
        9 => (0, elements.div_ceil(2)),
        _ => return None,
    };
    let mut pairs = pairs;
    if matches!(dtype, 3 | 4 | 8 | 9) {
        fields.push(cursor.field(4)?);
    }
    if dtype == 9 {
        let before = *cursor;
        pairs = rows.checked_mul(cursor.number(4)?)?;
        *cursor = before;
        fields.extend([cursor.field(4)?, cursor.field(4)?]);
    }
    for bytes in [pairs.checked_mul(8)?, bytes] {
        fields.push(Node::Bytes(cursor.take(usize::try_from(bytes).ok()?)?.to_vec()));
    }
    Some(Node::Group(fields))
}
