//! The values of `--type`: a type for all matrices, or a published recipe such as Q4_K_M.

use super::facts::ModelFacts;
use super::layers::Place;
use super::role::Role;
use super::table::SCHEMES;
use std::fmt;
use trueup_blocks::DType;

/// A base type, and the tensors that get another type.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// In lower case: `q4_k_m`.
    pub(super) name: &'static str,
    pub(super) alias: Option<&'static str>,
    /// The type of all tensors without an exception.
    pub(super) base: DType,
    /// `general.file_type`; `None` if no number was published.
    pub(super) file_type: Option<u32>,
    /// The type of the output head, also if it is the token embedding.
    pub(super) output: DType,
    /// The type of a token embedding that is not the output head.
    pub(super) token_embedding: DType,
    /// Exceptions from the base type. The first that applies is used.
    pub(super) mixes: &'static [Mix],
    /// Whether weights get too few bits without an importance matrix.
    pub(super) needs_importance: bool,
}

/// One exception: tensors of `role`, if all of `when` hold, get `dtype`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// `None` applies to every role.
    pub role: Option<Role>,
    pub when: &'static [When],
    pub dtype: DType,
}

/// A condition of a [`Mix`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    /// Sensitive layers: the first and last eighth of the layers, and every third layer in between.
    Sensitive,
    FirstEighth,
    FirstSixteenth,
    First(u64),
    /// At least four query heads share a key-value head.
    SharedByFour,
    EightExperts,
    NotEightExperts,
    Falcon,
    NotFalcon,
    WithImportance,
    WithoutImportance,
    /// All weights except those of experts.
    NotExperts,
}

/// The subject of the conditions.
pub(super) struct Subject<'a> {
    pub role: Role,
    pub place: Place,
    /// Whether the tensor contains several matrices.
    pub is_stack: bool,
    pub facts: &'a ModelFacts,
}

impl Scheme {
    /// The scheme with this name, ignoring case. Some of its types may not be writable.
    pub fn from_name(name: &str) -> Option<Scheme> {
        let is_name = |known: &str| known.eq_ignore_ascii_case(name);
        SCHEMES.iter().find(|scheme| is_name(scheme.name) || scheme.alias.is_some_and(is_name)).copied()
    }

    /// All schemes that this build can write, the simplest first.
    pub fn written() -> impl Iterator<Item = Scheme> {
        SCHEMES.iter().filter(|scheme| scheme.is_written()).copied()
    }

    /// Whether all types of the scheme can be written.
    pub fn is_written(&self) -> bool {
        let ends = [self.base, self.output, self.token_embedding];
        let has_codec = |dtype: DType| dtype.codec().is_some();
        ends.into_iter().chain(self.mixes.iter().map(|mix| mix.dtype)).all(has_codec)
    }

    /// The name in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The type of all tensors without an exception.
    pub fn base(&self) -> DType {
        self.base
    }

    /// `general.file_type` of a file; `None` if no number was published (q8_1, mxfp4, nvfp4).
    ///
    /// Source: the GGUF specification, "general.file_type".
    pub fn file_type(&self) -> Option<u32> {
        self.file_type
    }

    /// The type of a tensor, and which tensors get it if it is not the base type. `is_output` says whether the tensor
    /// is the output head, alone or as the token embedding.
    pub(super) fn choose(&self, name: &str, subject: &Subject, is_output: bool) -> (DType, String) {
        let facts = subject.facts;
        let is_sensitive = facts.is_glm5() && GLM5_SENSITIVE.iter().any(|part| name.contains(part));
        if is_sensitive {
            return (DType::Q8_0, "such matrices of this architecture".to_owned());
        }
        if is_output {
            let dtype = if facts.is_falcon() && self.output == DType::Q6K { DType::Q8_0 } else { self.output };
            let also = if subject.role == Role::Output { "" } else { ", which is also the output head" };
            return (dtype, format!("{}{also}", subject.role));
        }
        if subject.role == Role::TokenEmbedding {
            return (self.token_embedding, subject.role.to_string());
        }
        let applies = |mix: &&Mix| {
            mix.role.is_none_or(|role| role == subject.role) && mix.when.iter().all(|when| when.holds(subject))
        };
        let mix = self.mixes.iter().find(applies);
        let (dtype, tensors) = mix.map_or((self.base, String::new()), |mix| (mix.dtype, mix.tensors()));
        match subject.role {
            Role::Value | Role::Key if facts.experts == 8 && self.base != DType::Mxfp4 => {
                (DType::Q8_0, format!("{}{}", subject.role, When::EightExperts.phrase()))
            }
            Role::Value if facts.is_70b() && matches!(dtype, DType::Q3K | DType::Q4K) => {
                (DType::Q5K, format!("{} of 70B models", subject.role))
            }
            _ => (dtype, tensors),
        }
    }
}

/// The scheme that is named after the type, or one that gives it to every matrix.
impl From<DType> for Scheme {
    fn from(dtype: DType) -> Scheme {
        Scheme::from_name(dtype.name()).unwrap_or(Scheme::uniform(dtype, None))
    }
}

impl Scheme {
    /// One type for all matrices.
    pub(super) const fn uniform(dtype: DType, file_type: Option<u32>) -> Scheme {
        Scheme {
            name: dtype.name(),
            alias: None,
            base: dtype,
            file_type,
            output: dtype,
            token_embedding: dtype,
            mixes: &[],
            needs_importance: false,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl When {
    fn holds(self, subject: &Subject) -> bool {
        let Place { index, count } = subject.place;
        let facts = subject.facts;
        match self {
            When::Sensitive => is_sensitive_layer(index, count),
            When::FirstEighth => index < count / 8,
            When::FirstSixteenth => index < count / 16,
            When::First(few) => index < few,
            When::SharedByFour => facts.heads_per_kv_head() >= 4,
            When::EightExperts => facts.experts == 8,
            When::NotEightExperts => facts.experts != 8,
            When::Falcon => facts.is_falcon(),
            When::NotFalcon => !facts.is_falcon(),
            When::WithImportance => facts.has_importance,
            When::WithoutImportance => !facts.has_importance,
            When::NotExperts => !subject.is_stack || facts.has_stacks_of_heads() && !subject.role.is_feed_forward(),
        }
    }

    /// The end of a reason, such as ` in the first eighth of the layers`; empty for conditions that need no
    /// explanation.
    fn phrase(self) -> String {
        let phrase = match self {
            When::Sensitive => "in the first and last eighth of the layers and in every third between",
            When::FirstEighth => "in the first eighth of the layers",
            When::FirstSixteenth => "in the first sixteenth of the layers",
            When::First(few) => return format!(" in the first {few} layers"),
            When::SharedByFour => "that four or more heads share",
            When::EightExperts => "of models with 8 experts",
            When::Falcon => "of Falcon models",
            When::WithImportance => "if an importance matrix is used",
            When::WithoutImportance => "if no importance matrix is used",
            When::NotExperts => "except expert weights",
            When::NotEightExperts | When::NotFalcon => return String::new(),
        };
        format!(" {phrase}")
    }
}

impl Mix {
    /// The tensors of the exception: `attention values in the first 4 layers`.
    pub fn tensors(&self) -> String {
        let role = self.role.map_or_else(|| "all matrices".to_owned(), |role| role.to_string());
        self.when.iter().fold(role, |text, when| text + &when.phrase())
    }
}

/// Parts of names of matrices in GLM 5 that have large errors in types smaller than q8_0.
const GLM5_SENSITIVE: [&str; 3] = ["attn_q_a", "attn_q_b", "nextn.eh_proj"];

/// Whether layer `index` of `count` is sensitive.
fn is_sensitive_layer(index: u64, count: u64) -> bool {
    let first = count / 8;
    index < first || index >= count.saturating_mul(7) / 8 || (index - first) % 3 == 2
}
