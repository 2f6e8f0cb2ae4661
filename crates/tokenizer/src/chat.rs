//! Chat templates: a conversation becomes the text that the model was trained on.
//!
//! ```text
//! [{role: user, content: Hi}] ── Jinja template of the model ──> "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
//! ```
//!
//! Templates come with the model, so they are hostile until proven otherwise: they run without any input or output, with
//! bounded steps, depth, text and output. What is refused is refused with a sentence.

use crate::chat_guard;
use crate::vocabulary::Vocabulary;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error as JinjaError, ErrorKind, State, Value};
use serde::Serialize;
use std::path::{Path, PathBuf};
use trueup_formats::{Error, Result, quote};

/// Steps that one rendering may take.
const FUEL: u64 = 2_000_000;
/// Depth of loops, macros and blocks within each other.
const DEPTH_MAX: usize = 128;
/// Longest template, in bytes.
const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// One turn of a conversation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    bos: String,
    eos: String,
}

/// The only template of its environment.
const NAME: &str = "chat template";

impl ChatTemplate {
    /// Compiles the template of a vocabulary, if it has one. Fails when it is not valid Jinja or does what is refused.
    pub fn of(vocabulary: &Vocabulary) -> Result<Option<ChatTemplate>> {
        let text = |id: Option<u32>| id.and_then(|id| vocabulary.token(id)).map_or(String::new(), |token| token.text.clone());
        let (bos, eos) = (text(vocabulary.special().bos), text(vocabulary.special().eos));
        let source = vocabulary.chat_template();
        source.map(|source| ChatTemplate::new(source, &bos, &eos, vocabulary.path())).transpose()
    }

    /// Compiles a template; `bos` and `eos` are the texts it knows as `bos_token` and `eos_token`, `path` is the file that
    /// errors name.
    pub fn new(source: &str, bos: &str, eos: &str, path: &Path) -> Result<ChatTemplate> {
        let fail = |problem: String| Error::new(path, problem).at(NAME).help("give another template, or use the model without one");
        if source.len() > SOURCE_BYTES_MAX {
            return Err(fail(format!("it has {} bytes, at most {SOURCE_BYTES_MAX} are read", source.len())));
        }
        let guarded = chat_guard::guard(source).map_err(fail)?;
        let mut environment = environment().map_err(|problem| fail(one_sentence(&problem)))?;
        environment.add_template_owned(NAME, guarded).map_err(|problem| fail(one_sentence(&problem)))?;
        Ok(ChatTemplate { environment, path: path.to_owned(), bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the answer begins. Special tokens stand in it as
    /// text, so it is encoded without adding any.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let fail = |problem: JinjaError| Error::new(&self.path, one_sentence(&problem)).at(NAME);
        chat_guard::begin();
        let context = minijinja::context! {
            messages,
            add_generation_prompt,
            bos_token => self.bos,
            eos_token => self.eos,
            tools => Value::from(()),
        };
        let template = self.environment.get_template(NAME).map_err(fail)?;
        template.render(context).map_err(fail)
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Jinja as the transformers library sets it up, within bounds.
fn environment() -> std::result::Result<Environment<'static>, JinjaError> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH_MAX);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    chat_guard::install(&mut environment);
    environment.add_filter("tojson", to_json);
    Ok(environment)
}

/// What templates call when a conversation does not suit them.
fn raise_exception(message: String) -> std::result::Result<Value, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, format!("it refuses the conversation: {}", quote(&message))))
}

/// Templates that ask for today's date would give another text every day.
fn strftime_now(_format: String) -> std::result::Result<Value, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, "it asks for the date, which is not given so that results repeat"))
}

/// JSON as Python's `json.dumps(ensure_ascii=False)` writes it: a space after commas and colons.
fn to_json(state: &State<'_, '_>, value: Value, options: Kwargs) -> std::result::Result<String, JinjaError> {
    let indent: Option<usize> = options.get("indent").ok().flatten();
    let _: Option<bool> = options.get("ensure_ascii").ok().flatten();
    options.assert_all_used()?;
    chat_guard::count(state, &value)?;
    let bad = |problem: serde_json::Error| JinjaError::new(ErrorKind::BadSerialization, problem.to_string());
    let mut out = Vec::new();
    match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter)).map_err(bad)?;
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PythonSpaces)).map_err(bad)?,
    }
    String::from_utf8(out).map_err(|problem| JinjaError::new(ErrorKind::BadSerialization, problem.to_string()))
}

/// Python's separators.
struct PythonSpaces;

impl serde_json::ser::Formatter for PythonSpaces {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// An error of the engine on one line.
fn one_sentence(problem: &JinjaError) -> String {
    let place = problem.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = problem.detail().map_or_else(|| problem.kind().to_string(), str::to_owned);
    quote(&format!("{place}{what}"))
}
