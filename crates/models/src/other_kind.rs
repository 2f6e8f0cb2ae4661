//! GGUF files that are not models: adapters, importance matrices, projectors of multimodal models, control vectors.

use std::path::Path;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Error, quote};

/// What a GGUF file holds in place of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherKind {
    what: String,
    help: &'static str,
    can_be_quantized: bool,
}

impl OtherKind {
    /// Recognizes a file by `general.type`, `general.architecture` and the keys that only such files have.
    pub fn of_metadata(metadata: &Metadata) -> Option<OtherKind> {
        let text = |key: &str| metadata.string(key).unwrap_or_default();
        let has = |start: &str| metadata.iter().any(|(key, _)| key.starts_with(start));
        let kind = (text("general.type"), text("general.architecture"));
        let (what, help) = match kind {
            ("adapter", _) => {
                let base = text("general.base_model.0.name");
                let base = if base.is_empty() { String::new() } else { format!(" of {}", quote(base)) };
                let help = "merge the adapter into its model, and convert the merged model";
                (format!("a LoRA adapter{base}"), help)
            }
            ("imatrix", _) | (_, "imatrix") => importance_matrix(),
            ("mmproj", _) | (_, "clip" | "mmproj") => return Some(projector()),
            (_, "") if has("clip.") => return Some(projector()),
            (_, "controlvector") => {
                ("a control vector, which modifies a model at run time".to_owned(), "pass the model itself")
            }
            ("", "") if has("imatrix.") => importance_matrix(),
            _ => return None,
        };
        Some(OtherKind { what, help, can_be_quantized: false })
    }

    /// What was found, for people: `a LoRA adapter of NAME`.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Whether the file can be quantized like a model: a projector.
    pub fn can_be_quantized(&self) -> bool {
        self.can_be_quantized
    }

    /// The error for using the file as a model.
    pub fn error(&self, path: &Path) -> Error {
        Error::new(path, format!("expected a model, found {}", self.what)).at("key general.type").help(self.help)
    }
}

fn importance_matrix() -> (String, &'static str) {
    let what = "an importance matrix, which contains activation statistics but no weights";
    (what.to_owned(), "pass the model that it was measured on")
}

fn projector() -> OtherKind {
    let what = "the image or audio encoder of a multimodal model (mmproj)".to_owned();
    OtherKind { what, help: "pass the GGUF file with the language model", can_be_quantized: true }
}

#[cfg(test)]
mod tests {
    use super::OtherKind;
    use trueup_formats::gguf::Metadata;

    /// Keys as llama.cpp's convert_lora_to_gguf.py, llama-imatrix, convert_hf_to_gguf.py --mmproj and
    /// llama-cvector-generator write them.
    #[test]
    fn files_without_a_model_are_named() {
        let kind = |keys: &[(&str, &str)]| {
            let mut metadata = Metadata::default();
            keys.iter().for_each(|(key, value)| drop(metadata.insert(*key, *value)));
            OtherKind::of_metadata(&metadata).map(|kind| kind.error("a.gguf".as_ref()).to_string())
        };
        for (keys, words) in [
            (
                &[
                    ("general.architecture", "llama"),
                    ("general.type", "adapter"),
                    ("general.base_model.0.name", "Base 7B"),
                ][..],
                &["a LoRA adapter of Base 7B", "merge the adapter"][..],
            ),
            (&[("general.type", "imatrix"), ("imatrix.datasets", "wiki")], &["an importance matrix", "measured on"]),
            (&[("imatrix.datasets", "wiki")], &["an importance matrix"]),
            (&[("general.architecture", "clip")], &["encoder of a multimodal model (mmproj)", "the language model"]),
            (&[("general.architecture", "clip"), ("general.type", "mmproj")], &["(mmproj)"]),
            (&[("general.architecture", "controlvector")], &["a control vector", "pass the model itself"]),
        ] {
            let said = kind(keys).unwrap_or_default();
            assert!(words.iter().all(|word| said.contains(word)), "{keys:?}: {said}");
        }
        for keys in
            [&[("general.architecture", "llama"), ("general.type", "model")][..], &[("general.architecture", "x")], &[]]
        {
            assert_eq!(kind(keys), None);
        }
    }
}
