//! The layer in the name of a GGUF tensor.

/// What the number of a layer follows in a name.
const START: &str = "blk.";

/// The part of a tensor's name that identifies its layer: `blk.7` in `blk.7.attn_q.weight`, `enc.blk.7` in an encoder.
/// `None` for a tensor outside of the layers.
pub fn layer_of(name: &str) -> Option<&str> {
    let start = if name.starts_with(START) { 0 } else { name.find(".blk.")?.saturating_add(1) };
    let number_at = start.saturating_add(START.len());
    let number = name.get(number_at..)?.split_once('.')?.0;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    name.get(..number_at.saturating_add(number.len())).filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tensors_of_layers_have_a_layer() {
        let cases = [
            ("blk.0.attn_q.weight", Some("blk.0")),
            ("blk.12.ffn_up.bias", Some("blk.12")),
            ("enc.blk.3.attn_rel_b.weight", Some("enc.blk.3")),
            ("dec.blk.10.cross_attn_k.weight", Some("dec.blk.10")),
            ("token_embd.weight", None),
            ("enc.output_norm.weight", None),
            ("blk.7", None),
            ("blk..weight", None),
            ("blk.x.weight", None),
            ("my_blk.1.weight", None),
        ];
        for (name, expected) in cases {
            assert_eq!(layer_of(name), expected, "{name}");
        }
    }
}
