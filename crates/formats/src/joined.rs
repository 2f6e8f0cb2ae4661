//! Tensors that checkpoints store joined and models use separately: queries, keys and values, or gate and up, row
//! after row.
//!
//! ```text
//! self_attn.W_pack.weight   [3 * hidden, hidden]        ──▶  self_attn.q_proj.weight | k_proj | v_proj   Baichuan
//! self_attn.mergeqkv.weight                             ──▶  the same                                    FastLLM
//! attn.c_attn.weight                                    ──▶  attn.q_proj.weight | k_proj | v_proj        Qwen
//! mlp.gateup_proj.weight    [2 * intermediate, hidden]  ──▶  mlp.gate_proj.weight | up_proj              FastLLM
//! ```
//!
//! A reader presents the parts under Hugging Face names, so mapping, `diff`, `--check` and the doctor see a single
//! form.

use crate::checkpoint::TensorInfo;
use crate::error::Result;
use serde_json::{Map, Value};

/// Names in which queries, keys and values are one tensor, and what their names begin with.
const ATTENTION: [(&str, &str); 3] =
    [("self_attn.mergeqkv.", "self_attn"), ("self_attn.W_pack.", "self_attn"), (".attn.c_attn.", ".attn")];
/// The name in which gate and up are one tensor.
const FEED_FORWARD: &str = "mlp.gateup_proj.";

/// The tensors whose rows, one behind the other, are this one's; `None` for a tensor of its own. The description says
/// how many heads share keys.
pub(crate) fn parts(whole: &TensorInfo, config: &Map<String, Value>) -> Option<Result<Vec<TensorInfo>>> {
    let rows = whole.shape.last().copied()?;
    let attention = ATTENTION.into_iter().find_map(|(kind, part)| Some((whole.name.split_once(kind)?, part)));
    let (start, end, parts) = match attention {
        Some(((start, end), part)) => {
            let parts = attention_rows(rows, config)?;
            (start, end, parts.into_iter().map(|(name, rows)| (format!("{part}.{name}"), rows)).collect())
        }
        None => {
            let (start, end) = whole.name.split_once(FEED_FORWARD)?;
            let half = rows.checked_div(2).filter(|half| rows.is_multiple_of(2) && *half > 0)?;
            (start, end, vec![("mlp.gate_proj".to_owned(), half), ("mlp.up_proj".to_owned(), half)])
        }
    };
    let part = |(name, rows): (String, u64)| {
        let mut shape = whole.shape.clone();
        shape.pop();
        shape.push(rows);
        TensorInfo::new(format!("{start}{name}.{end}"), &shape, whole.dtype)
    };
    Some(parts.into_iter().map(part).collect())
}

/// The name of the tensor that Qwen's checkpoints have in place of the one of this name and others, whose rows stand in
/// it one behind the other; `None` for a tensor that checkpoints have too.
pub fn joined_name(part: &str) -> Option<String> {
    let [_, _, (whole, start)] = ATTENTION;
    let names = ["q_proj", "k_proj", "v_proj"].map(|name| format!("{start}.{name}."));
    let (before, after) = names.iter().find_map(|name| part.split_once(name.as_str()))?;
    Some(format!("{before}{whole}{after}"))
}

/// What a person should know where `count` tensors were divided.
pub(crate) fn note(count: usize) -> Option<String> {
    (count > 0).then(|| format!("{count} fused tensors are read as separate tensors"))
}

fn attention_rows(rows: u64, config: &Map<String, Value>) -> Option<Vec<(&'static str, u64)>> {
    let number = |key: &str| config.get(key).and_then(Value::as_u64);
    let queries = match number("head_dim") {
        Some(size) => size.checked_mul(number("num_attention_heads")?)?,
        None => number("hidden_size")?,
    };
    let keys = rows.checked_sub(queries)?;
    let half = keys.checked_div(2).filter(|half| keys.is_multiple_of(2) && *half > 0)?;
    let names = [("q_proj", queries), ("k_proj", half), ("v_proj", half)];
    (queries > 0).then(|| names.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trueup_blocks::DType;

    fn names_and_rows(name: &str, shape: &[u64], config: &Value) -> Option<Vec<(String, u64)>> {
        let whole = TensorInfo::new(name, shape, DType::F16).expect("a tensor");
        let parts = parts(&whole, config.as_object().expect("an object"))?.expect("parts");
        assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), whole.bytes);
        Some(parts.iter().map(|part| (part.name.clone(), part.shape.last().copied().unwrap_or(0))).collect())
    }

    #[test]
    fn rows_belong_to_queries_then_keys_then_values() {
        let config = json!({"hidden_size": 8, "num_attention_heads": 4});
        let found = names_and_rows("model.layers.3.self_attn.W_pack.weight", &[8, 24], &config).expect("parts");
        let wanted = ["q", "k", "v"].map(|part| (format!("model.layers.3.self_attn.{part}_proj.weight"), 8));
        assert_eq!(found, wanted);
        // Heads of their own size that share keys; a bias has rows of one element.
        let config = json!({"hidden_size": 8, "num_attention_heads": 4, "head_dim": 4});
        let found = names_and_rows("a.self_attn.mergeqkv.bias", &[24], &config).expect("parts");
        assert_eq!(found.iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [16, 4, 4]);
        assert_eq!(found[2].0, "a.self_attn.v_proj.bias");
        let found = names_and_rows("a.attn.c_attn.bias", &[24], &config).expect("parts");
        assert_eq!(found[1], ("a.attn.k_proj.bias".to_owned(), 4));
        let found = names_and_rows("a.mlp.gateup_proj.weight", &[8, 10], &config).expect("parts");
        assert_eq!(found, [("a.mlp.gate_proj.weight".to_owned(), 5), ("a.mlp.up_proj.weight".to_owned(), 5)]);
    }

    #[test]
    fn what_cannot_be_divided_stays_whole() {
        let config = json!({"hidden_size": 8, "num_attention_heads": 4});
        assert_eq!(names_and_rows("a.self_attn.W_pack.weight", &[8, 8], &config), None);
        assert_eq!(names_and_rows("a.self_attn.W_pack.weight", &[8, 11], &config), None);
        assert_eq!(names_and_rows("a.self_attn.W_pack.weight", &[8, 24], &json!({})), None);
        assert_eq!(names_and_rows("a.mlp.gateup_proj.weight", &[8, 9], &config), None);
        assert_eq!(names_and_rows("a.self_attn.q_proj.weight", &[8, 8], &config), None);
    }
}
