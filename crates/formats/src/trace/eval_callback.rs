//! The text that llama.cpp's eval-callback example prints: for each tensor its name, operator and shape, the first and
//! last values along each dimension, and the sum of all.
//!
//! ```text
//!   common_debug_cb_eval:   Qcur-0 = (f32)    MUL_MAT(blk.0.attn_q.weight{64, 64, 1, 1}, attn_norm-0{64, 9, 1, 1}}) = {64, 9, 1, 1}
//!       [
//!        [
//!         [ -0.0546, -0.3512, 0.5605, ..., 2.2524, -1.1366, 0.1703],
//!         ...,
//!        ],
//!       ]
//!       sum = -6.991160
//! ```
//!
//! Names are not unique there: the operator tells tensors of one name apart, and an embedding, or a second tensor of
//! the same name and operator, begins the next step. Other lines are ignored. With flash attention one operator without
//! a name of its own stands for scores, weights and mixed values; its layer is that of the cache it reads.

use crate::error::{Error, Result, quote};
use crate::source_file::SourceFile;
use std::collections::HashSet;

/// The longest text that is read.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// Dimensions in the text.
const DIMENSIONS: usize = 4;

/// Operators that only move or show what another tensor holds.
const MOVES: [&str; 7] = ["RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE", "CPY", "SET_ROWS", "RMS_NORM"];

/// Names of sums of two branches, which keep their name; sums of other names add a bias.
const SUMS: [&str; 2] = ["ffn_inp", "l_out"];

/// The node of a step that has a row for each of its tokens.
const EMBEDDING: &str = "inp_embd";

/// The operator that computes all of attention.
const FUSED_ATTENTION: &str = "FLASH_ATTN_EXT";

/// How the cache of keys is called that a layer reads.
const CACHE: &str = "cache_k_l";

/// What the text shows of a tensor.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shown {
    /// Indices innermost first, and the value there.
    pub values: Vec<([u64; DIMENSIONS], f64)>,
    /// Sum of all elements, or of those that are shown: versions differ.
    pub sum: Option<f64>,
    /// The last digit's worth: values are rounded to multiples of it.
    pub unit: f64,
}

/// One tensor of the text.
#[derive(Clone, PartialEq, Debug)]
struct Printed {
    step: usize,
    node: String,
    sizes: [u64; DIMENSIONS],
    shown: Shown,
}

/// A parsed text.
#[derive(Debug)]
pub(super) struct PrintedTrace {
    source: SourceFile,
    ids: Option<Vec<u32>>,
    tensors: Vec<Printed>,
    fused_attention: bool,
    system_info: Option<String>,
    /// Steps and nodes of which no row was wanted.
    unwanted: HashSet<(usize, String)>,
}

impl PrintedTrace {
    /// Reads the text; an error where it shows no tensor, or ends within one.
    pub fn read(source: SourceFile) -> Result<PrintedTrace> {
        let bytes = source.read_all(TEXT_BYTES_MAX)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut parser = Parser::default();
        for (number, line) in (1_u64..).zip(text.lines()) {
            parser.line(line.trim()).map_err(|problem| {
                let help = "the text is damaged; record the trace again";
                Error::new(source.path(), problem).at(format!("line {number}")).help(help)
            })?;
        }
        if parser.tensors.is_empty() {
            let found =
                if bytes.starts_with(b"GGUF") { "a GGUF model" } else { "a text file that contains no tensors" };
            return Err(Error::new(source.path(), format!("expected a trace, found {found}"))
                .help("pass a safetensors or .npz file, or the output of llama.cpp's eval-callback"));
        }
        // Each tensor ends with its sum.
        if let Some(cut) =
            parser.tensors.iter().find(|tensor| !tensor.shown.values.is_empty() && tensor.shown.sum.is_none())
        {
            let name = format!("tensor {}/{}", cut.step, quote(&cut.node));
            let problem = "the text is truncated: the sum after the values is missing";
            return Err(Error::new(source.path(), problem).at(name).help("record the trace again"));
        }
        let ids = parser.ids.filter(|ids| !ids.is_empty());
        let unwanted = parser.tensors.iter().filter(|tensor| tensor.sizes.contains(&0));
        let unwanted = unwanted.map(|tensor| (tensor.step, tensor.node.clone())).collect();
        // Of a tensor in a type that is not printed there is a name only.
        parser.tensors.retain(|tensor| !tensor.shown.values.is_empty());
        let Parser { tensors, fused_attention, system_info, .. } = parser;
        Ok(PrintedTrace { source, ids, tensors, fused_attention, system_info, unwanted })
    }

    /// Whether attention was computed by one operator.
    pub fn has_fused_attention(&self) -> bool {
        self.fused_attention
    }

    /// The instruction sets that llama.cpp was built with, as it prints them.
    pub fn system_info(&self) -> Option<&str> {
        self.system_info.as_deref()
    }

    /// Whether the text says that no row of the node was wanted in that step.
    pub fn is_unwanted(&self, step: usize, node: &str) -> bool {
        self.unwanted.contains(&(step, node.to_owned()))
    }

    /// How many tokens each step computed, by the shape of its embedding; none where a step shows none.
    pub fn tokens(&self) -> Option<Vec<u64>> {
        let mut tokens: Vec<Option<u64>> = Vec::new();
        for tensor in &self.tensors {
            tokens.resize(tokens.len().max(tensor.step.saturating_add(1)), None);
            let [_, rows, ..] = tensor.sizes;
            if let Some(slot) = tokens.get_mut(tensor.step).filter(|_| tensor.node == EMBEDDING) {
                *slot = Some(rows);
            }
        }
        tokens.into_iter().collect()
    }

    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// The ids, where the text has them.
    pub fn ids(&self) -> Option<&[u32]> {
        self.ids.as_deref()
    }

    /// Step, node and shape of each tensor.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, String, Vec<u64>)> {
        self.tensors.iter().map(|tensor| (tensor.step, tensor.node.clone(), tensor.sizes.to_vec()))
    }

    /// What is shown of a tensor.
    pub fn shown(&self, place: usize) -> &Shown {
        match self.tensors.get(place) {
            Some(tensor) => &tensor.shown,
            None => unreachable!("tensor number {place} of {}", self.tensors.len()),
        }
    }
}

/// Reads line by line.
#[derive(Default)]
struct Parser {
    ids: Option<Vec<u32>>,
    tensors: Vec<Printed>,
    step: usize,
    /// Nodes of the current step.
    seen: HashSet<String>,
    fused_attention: bool,
    system_info: Option<String>,
    /// Whether the lines belong to the last tensor.
    open: bool,
    /// How many brackets are open.
    depth: usize,
    /// Indices of the next row: places in dimensions 1, 2 and 3.
    row: u64,
    plane: u64,
    outer: u64,
}

impl Parser {
    fn line(&mut self, line: &str) -> std::result::Result<(), String> {
        if let Some((node, sizes)) = heading(line) {
            let sizes = shape(sizes)?;
            self.fused_attention |= node.is_some() && line.contains(FUSED_ATTENTION);
            self.open = node.is_some();
            (self.depth, self.row, self.plane, self.outer) = (0, 0, 0, 0);
            if let Some(node) = node {
                self.begin(node, sizes);
            }
        } else if let Some(info) = logged(line).strip_prefix("system_info:") {
            self.system_info = Some(info.trim().to_owned());
        } else if let Some(count) = logged(line).strip_prefix("number of input tokens = ") {
            self.ids = count.trim().parse::<u32>().ok().map(|_| Vec::new());
        } else if let (Some(ids), Ok(id), true) = (&mut self.ids, logged(line).parse(), self.tensors.is_empty()) {
            ids.push(id);
        } else if self.open {
            self.values(line);
        }
        Ok(())
    }

    fn begin(&mut self, node: String, sizes: [u64; DIMENSIONS]) {
        // Every step begins with its embedding, also where that of the step before is not shown.
        if self.seen.contains(&node) || (node == EMBEDDING && !self.seen.is_empty()) {
            self.step = self.step.saturating_add(1);
            self.seen.clear();
        }
        self.seen.insert(node.clone());
        self.tensors.push(Printed { step: self.step, node, sizes, shown: Shown::default() });
    }

    fn values(&mut self, line: &str) {
        let Some(tensor) = self.tensors.last_mut() else { return };
        let [_, rows, planes, _] = tensor.sizes;
        if let Some(sum) = line.strip_prefix("sum = ") {
            tensor.shown.sum = Some(number(sum.trim()));
        } else if line == "[" {
            self.depth = self.depth.saturating_add(1);
            self.row = 0;
            if self.depth == 1 {
                self.plane = 0;
            }
        } else if line == "]" || line == "]," {
            self.depth = self.depth.saturating_sub(1);
            match self.depth {
                0 => self.outer = self.outer.saturating_add(1),
                _ => self.plane = self.plane.saturating_add(1),
            }
        } else if line.starts_with("...") {
            // As many are shown behind the gap as before it.
            if self.depth == 1 {
                self.plane = planes.saturating_sub(self.plane);
            } else {
                self.row = rows.saturating_sub(self.row);
            }
        } else if let Some(row) = line.strip_prefix('[') {
            tensor.read_row(row.trim_end_matches(',').trim_end_matches(']'), [self.row, self.plane, self.outer]);
            self.row = self.row.saturating_add(1);
        }
    }
}

impl Printed {
    /// Reads the values of one row at these places in dimensions 1, 2 and 3.
    fn read_row(&mut self, row: &str, [one, two, three]: [u64; 3]) {
        let [columns, rows, planes, outer] = self.sizes;
        let mut column = 0_u64;
        for word in row.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if word == "..." {
                column = columns.saturating_sub(column);
                continue;
            }
            if column < columns && one < rows && two < planes && three < outer {
                self.shown.values.push(([column, one, two, three], number(word)));
            }
            if self.shown.unit == 0.0 {
                self.shown.unit = unit(word);
            }
            column = column.saturating_add(1);
        }
    }
}

/// The number that is written; NaN where none is.
fn number(word: &str) -> f64 {
    word.parse().unwrap_or(f64::NAN)
}

/// What the last digit of a decimal number is worth.
fn unit(word: &str) -> f64 {
    let digits = word.split_once('.').map_or(0, |(_, digits)| digits.len());
    i32::try_from(digits).map_or(1.0, |digits| 10f64.powi(digits.saturating_neg()))
}

/// Node and sizes, as they are written, of a line that begins a tensor; no node for one that is not compared.
fn heading(line: &str) -> Option<(Option<String>, &str)> {
    let (before, rest) = line.split_once(" = (")?;
    let (_, name) = before.split_once(": ")?;
    let (_, rest) = rest.split_once(") ")?;
    let (operator, rest) = rest.trim_start().split_once('(')?;
    let (inputs, sizes) = rest.rsplit_once(" = {")?;
    let sizes = sizes.trim_end().strip_suffix('}')?;
    Some((node(name.trim(), operator.trim(), inputs), sizes))
}

/// The sizes between the braces of a heading.
fn shape(words: &str) -> std::result::Result<[u64; DIMENSIONS], String> {
    let sizes: std::result::Result<Vec<u64>, _> = words.split(", ").map(str::parse).collect();
    let sizes = sizes.ok().and_then(|sizes| <[u64; DIMENSIONS]>::try_from(sizes).ok());
    sizes.ok_or_else(|| format!("expected {DIMENSIONS} sizes of a tensor, found {{{}}}", quote(words)))
}

/// The name that this program gives to the node; none for what it has no node for.
fn node(name: &str, operator: &str, inputs: &str) -> Option<String> {
    if MOVES.contains(&operator) || name.contains(' ') {
        return None;
    }
    if operator == FUSED_ATTENTION {
        let (_, layer) = inputs.split_once(CACHE)?;
        let digits = layer.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
        return Some(format!("kqv_out-{digits}"));
    }
    let (base, layer) = match name.rsplit_once('-') {
        Some((base, layer)) if layer.parse::<u32>().is_ok() => (base, format!("-{layer}")),
        Some(_) | None => (name, String::new()),
    };
    let base = match operator {
        "GET_ROWS" => return inputs.starts_with("token_embd.weight").then(|| EMBEDDING.to_owned()),
        "ROPE" => format!("{base}_rope"),
        "ADD" if !SUMS.contains(&base) => format!("{base}_bias"),
        _ => base.to_owned(),
    };
    Some(format!("{base}{layer}"))
}

/// A line without the time and the level that newer versions print before messages: `0.00.128.720 I number of input
/// tokens = 1`.
fn logged(line: &str) -> &str {
    let parts = |time: &str| time.split('.').count() == 4 && time.split('.').all(|part| part.parse::<u32>().is_ok());
    match line.split_once(' ') {
        Some((time, rest)) if parts(time) => rest.get(1..).map_or(line, str::trim),
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parser {
        let mut parser = Parser::default();
        text.lines().for_each(|line| parser.line(line.trim()).unwrap());
        parser
    }

    #[test]
    fn lines_of_the_log_are_read_with_and_without_time_and_level() {
        assert_eq!(logged("0.00.128.720 I number of input tokens = 1"), "number of input tokens = 1");
        assert_eq!(logged("0.00.128.729 I   26843"), "26843");
        for line in ["26843", "1.2.3 I 7", "sum = 1.0", "0.00.128.729"] {
            assert_eq!(logged(line), line);
        }
    }

    #[test]
    fn the_instruction_sets_of_the_build_are_read() {
        let line = "0.00.139.434 I system_info: n_threads = 2 / 2 | CPU : NEON = 1 | FP16_VA = 1 | ";
        let expected = "n_threads = 2 / 2 | CPU : NEON = 1 | FP16_VA = 1 |";
        assert_eq!(parsed(line).system_info.as_deref(), Some(expected));
        assert_eq!(parsed("no system_info: x").system_info, None);
    }

    #[test]
    fn sizes_that_are_none_are_told() {
        let line = |sizes: &str| format!("x: a-0 = (f32) ADD(a{{1}}, }}) = {{{sizes}}}");
        for sizes in ["64, 18446744073709551616, 1, 1", "64, -3, 1, 1", "64, 3, 1", "64, 3, 1, 1, 1", "", "a, b, c, d"]
        {
            let told = Parser::default().line(&line(sizes)).unwrap_err();
            assert_eq!(told, format!("expected 4 sizes of a tensor, found {{{sizes}}}"));
        }
        Parser::default().line("x: a note = (not) one of (its) lines").unwrap();
    }

    #[test]
    fn gaps_are_counted_from_the_end() {
        let text = "x: a-0 = (f32) MUL_MAT(w{1, 1, 1, 1}, y{1, 1, 1, 1}}) = {9, 8, 1, 1}\n[\n[\n\
                    [1.00, 2.00, 3.00, ..., 7.00, 8.00, 9.00],\n[1, 2, 3, ..., 7, 8, 9],\n[1, 2, 3, ..., 7, 8, 9],\n..., \n\
                    [4, 5, 6, ..., 1, 2, 3],\n],\n]\nsum = 2.5\n";
        let parser = parsed(text);
        let shown = &parser.tensors[0].shown;
        assert_eq!((shown.sum, shown.unit, shown.values.len()), (Some(2.5), 0.01, 24));
        assert_eq!(shown.values[3], ([6, 0, 0, 0], 7.0));
        assert_eq!(shown.values[18], ([0, 5, 0, 0], 4.0));
    }

    #[test]
    fn operators_tell_equal_names_apart_and_a_repetition_is_a_step() {
        let line = |name: &str, operator: &str| format!("x: {name} = (f32) {operator}(a{{1}}, }}) = {{2, 1, 1, 1}}\n");
        let text = [
            ("Qcur-0", "MUL_MAT"),
            ("Qcur-0", "ADD"),
            ("Qcur-0", "RESHAPE"),
            ("Qcur-0", "ROPE"),
            ("Qcur-0", "MUL_MAT"),
        ]
        .map(|(name, operator)| line(name, operator))
        .concat();
        let found: Vec<(usize, String)> =
            parsed(&text).tensors.into_iter().map(|tensor| (tensor.step, tensor.node)).collect();
        let names = ["Qcur-0", "Qcur_bias-0", "Qcur_rope-0"].map(|name| (0, name.to_owned()));
        assert_eq!(found[..3], names);
        assert_eq!(found[3], (1, "Qcur-0".to_owned()));
    }

    #[test]
    fn planes_begin_anew_and_those_beyond_the_shape_are_dropped() {
        let text = "x: a-0 = (f32) ADD(a{1}, }) = {1, 1, 2, 2}\n[\n[\n[1],\n],\n[\n[2],\n],\n[\n[9],\n],\n],\n\
                    [\n[\n[3],\n],\n[\n[4],\n],\n],\n[\n[\n[8],\n],\n]\n";
        let shown = &parsed(text).tensors[0].shown.values;
        let at = |plane, outer| [0, 0, plane, outer];
        assert_eq!(*shown, [(at(0, 0), 1.0), (at(1, 0), 2.0), (at(0, 1), 3.0), (at(1, 1), 4.0)]);
    }

    #[test]
    fn only_a_number_behind_a_name_is_a_layer_and_sums_are_no_biases() {
        let named = |name: &str, operator: &str| node(name, operator, "a{1}").unwrap();
        assert_eq!(named("Qcur-3", "ROPE"), "Qcur_rope-3");
        assert_eq!(named("k-shift", "ROPE"), "k-shift_rope");
        for sum in SUMS {
            assert_eq!(named(&format!("{sum}-2"), "ADD"), format!("{sum}-2"));
        }
        assert_eq!(named("Qcur-2", "ADD"), "Qcur_bias-2");
    }

    #[test]
    fn an_embedding_begins_a_step_whether_the_one_before_had_one_or_not() {
        let line = |name: &str, operator: &str| format!("x: {name} = (f32) {operator}, }}) = {{2, 1, 1, 1}}\n");
        let (embedding, product) =
            (line("embd", "GET_ROWS(token_embd.weight{2, 9, 1, 1}"), line("Qcur-0", "MUL_MAT(a{1}"));
        let steps =
            |text: &[&str]| parsed(&text.concat()).tensors.into_iter().map(|tensor| tensor.step).collect::<Vec<_>>();
        assert_eq!(steps(&[&embedding, &product, &embedding, &product]), [0, 0, 1, 1]);
        assert_eq!(steps(&[&product, &embedding, &product]), [0, 1, 1]);
    }

    #[test]
    fn fused_attention_is_named_by_the_cache_it_reads() {
        let inputs = "Qcur-0 (view) (permuted){16, 3, 4, 1}, cache_k_l12 (view) (permuted){16, 256, 4, 1}}";
        for name in ["node_21", "__fattn__-12"] {
            assert_eq!(node(name, FUSED_ATTENTION, inputs).as_deref(), Some("kqv_out-12"), "{name}");
        }
        assert_eq!(node("node_21", FUSED_ATTENTION, "Qcur-0{16}, Kcur-0{16}"), None);
        let text = format!("x: node_21 = (f32) FLASH_ATTN_EXT({inputs}) = {{16, 4, 3, 1}}\n");
        assert!(parsed(&text).fused_attention);
    }

    #[test]
    fn values_outside_the_shape_are_dropped() {
        let text = "x: a-0 = (f32) ADD(a{1}, }) = {2, 1, 1, 1}\n[\n[\n[1, 2, 3, 4],\n[5, 6],\n],\n],\n[\n[\n[7, 8],\n";
        assert_eq!(parsed(text).tensors[0].shown.values.len(), 2);
    }
}
