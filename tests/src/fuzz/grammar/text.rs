//! Texts: lines of words, and templates of blocks.

use crate::fuzz::node::Node;

/// Lines, each of words and what stands between them.
pub fn lines(bytes: &[u8]) -> Node {
    let items = bytes.split(|byte| *byte == b'\n').map(|line| Node::Group(words(line))).collect();
    Node::List { open: Vec::new(), between: vec![b'\n'], close: Vec::new(), items }
}

/// A Jinja template: text, and the words of its blocks.
pub fn template(bytes: &[u8]) -> Node {
    let mut items = Vec::new();
    let mut rest = bytes;
    while let Some(start) = rest.windows(2).position(|pair| matches!(pair, b"{%" | b"{{" | b"{#")) {
        let (text, block) = rest.split_at(start);
        let close: &[u8] = match block[1] {
            b'%' => b"%}",
            b'{' => b"}}",
            _ => b"#}",
        };
        let Some(end) = block.windows(2).skip(2).position(|pair| pair == close) else { break };
        items.push(Node::Text(text.to_vec()));
        items.push(Node::List {
            open: block[..2].to_vec(),
            between: Vec::new(),
            close: close.to_vec(),
            items: words(&block[2..end + 2]),
        });
        rest = &block[end + 4..];
    }
    items.push(Node::Text(rest.to_vec()));
    Node::Group(items)
}

/// Words of letters and digits, and the signs and spaces between them.
fn words(line: &[u8]) -> Vec<Node> {
    let class = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'.' | b'-' | 0x80.. => 0,
        b' ' | b'\t' => 1,
        _ => 2,
    };
    let chunk =
        |chunk: &[u8]| if class(chunk[0]) == 0 { Node::Word(chunk.to_vec()) } else { Node::Text(chunk.to_vec()) };
    line.chunk_by(|a, b| class(*a) == class(*b)).map(chunk).collect()
}
