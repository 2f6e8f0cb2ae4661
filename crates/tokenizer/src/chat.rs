//! Chat templates: a conversation becomes the text that the model was trained on.
//!
//! ```text
//! [{role: user, content: Hi}] ── Jinja template of the model ──> "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
//! ```
//!
//! Templates come with the model, so they are hostile until proven otherwise: they run without any input or output, with
//! bounded steps, depth, text and output. What is refused is refused with a sentence.

use crate::chat_budget::{self, Budget};
use crate::chat_guard;
use crate::vocabulary::Vocabulary;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error as JinjaError, ErrorKind, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trueup_formats::{Error, Result, quote};

/// Steps that one rendering may take.
const FUEL: u64 = 500_000;
/// Depth of loops, macros and blocks within each other.
const DEPTH_MAX: usize = 128;
/// Widest indentation of JSON, in spaces.
const INDENT_MAX: usize = 16;
/// Longest line of a template as it is compiled, in characters: the engine's messages count columns no further, and fail beyond.
const LINE_CHARS_MAX: usize = 65_534;
/// Longest template, in bytes.
const SOURCE_BYTES_MAX: usize = 256 * 1024;

/// One turn of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    budget: Budget,
    path: PathBuf,
    bos: String,
    eos: String,
}

/// The only template of its environment.
const NAME: &str = "chat template";

impl ChatTemplate {
    /// Compiles the template of a vocabulary, if it has one. Fails when it is not valid Jinja or does what is refused.
    pub fn of(vocabulary: &Vocabulary) -> Result<Option<ChatTemplate>> {
        let text =
            |id: Option<u32>| id.and_then(|id| vocabulary.token(id)).map_or(String::new(), |token| token.text.clone());
        let (bos, eos) = (text(vocabulary.special().bos), text(vocabulary.special().eos));
        let source = vocabulary.chat_template();
        source.map(|source| ChatTemplate::new(source, &bos, &eos, vocabulary.path())).transpose()
    }

    /// Compiles a template; `bos` and `eos` are the texts it knows as `bos_token` and `eos_token`, `path` is the file that
    /// errors name.
    pub fn new(source: &str, bos: &str, eos: &str, path: &Path) -> Result<ChatTemplate> {
        let fail = |problem: String| {
            Error::new(path, problem).at(NAME).help("give another template, or use the model without one")
        };
        if source.len() > SOURCE_BYTES_MAX {
            return Err(fail(format!("it has {} bytes, at most {SOURCE_BYTES_MAX} are supported", source.len())));
        }
        let guarded = chat_guard::guard(source).map_err(fail)?;
        if guarded.split('\n').any(|line| line.len() > LINE_CHARS_MAX && line.chars().count() > LINE_CHARS_MAX) {
            return Err(fail(format!("it has a line of more than {LINE_CHARS_MAX} characters")));
        }
        let budget = Budget::default();
        let mut environment = environment(&budget).map_err(|problem| fail(one_sentence(&problem)))?;
        environment.add_template_owned(NAME, guarded).map_err(|problem| fail(one_sentence(&problem)))?;
        Ok(ChatTemplate { environment, budget, path: path.to_owned(), bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the answer begins. Special tokens stand in it as
    /// text, so it is encoded without adding any.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let fail = |problem: JinjaError| Error::new(&self.path, one_sentence(&problem)).at(NAME);
        let bytes = messages.iter().map(|message| message.content.len().saturating_add(message.role.len()));
        self.budget.fill(u64::try_from(bytes.sum::<usize>()).unwrap_or(u64::MAX));
        let turns = messages
            .iter()
            .map(|turn| Value::from(BTreeMap::from([("role", turn.role.clone()), ("content", turn.content.clone())])));
        let context = minijinja::context! {
            messages => turns.collect::<Value>(),
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
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
fn environment(budget: &Budget) -> std::result::Result<Environment<'static>, JinjaError> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH_MAX);
    environment.add_function("raise_exception", raise_exception);
    // No `strftime_now`: today's date would give another text every day, and templates that ask whether it is defined have a
    // date of their own for when it is not.
    chat_budget::install(&mut environment, budget);
    let counted = budget.clone();
    environment.add_filter("tojson", move |value: Value, options: Kwargs| to_json(&counted, &value, &options));
    Ok(environment)
}

/// What templates call when a conversation does not suit them.
fn raise_exception(message: String) -> std::result::Result<Value, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, format!("it refuses the conversation: {}", quote(&message))))
}

/// JSON as Python's `json.dumps(ensure_ascii=False)` writes it: a space after commas and colons.
fn to_json(budget: &Budget, value: &Value, options: &Kwargs) -> std::result::Result<String, JinjaError> {
    let indent: Option<usize> = options.get("indent").ok().flatten();
    let _: Option<bool> = options.get("ensure_ascii").ok().flatten();
    options.assert_all_used()?;
    if indent.is_some_and(|width| width > INDENT_MAX) {
        let problem = format!("tojson indents by at most {INDENT_MAX} spaces");
        return Err(JinjaError::new(ErrorKind::InvalidOperation, problem));
    }
    budget.build_whole(value)?;
    let mut out = String::new();
    write_json(value, indent, 0, &mut out)?;
    Ok(out)
}

/// Writes a value whose depth has been checked.
fn write_json(
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    out: &mut String,
) -> std::result::Result<(), JinjaError> {
    let map = value.kind() == ValueKind::Map;
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool | ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::String => out.push_str(&serde_json::Value::from(value.as_str().unwrap_or_default()).to_string()),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            let inside = depth.saturating_add(1);
            out.push(if map { '{' } else { '[' });
            let mut empty = true;
            for item in value.try_iter()? {
                if !empty {
                    out.push_str(if indent.is_some() { "," } else { ", " });
                }
                empty = false;
                new_line(indent, inside, out);
                if map {
                    write_json(&Value::from(item.to_string()), indent, inside, out)?;
                    out.push_str(": ");
                    write_json(&value.get_item(&item)?, indent, inside, out)?;
                } else {
                    write_json(&item, indent, inside, out)?;
                }
            }
            if !empty {
                new_line(indent, depth, out);
            }
            out.push(if map { '}' } else { ']' });
        }
        other => return Err(JinjaError::new(ErrorKind::BadSerialization, format!("{other} has no JSON"))),
    }
    Ok(())
}

fn new_line(indent: Option<usize>, depth: usize, out: &mut String) {
    if let Some(width) = indent {
        out.push('\n');
        out.push_str(&" ".repeat(width.saturating_mul(depth)));
    }
}

/// An error of the engine on one line.
fn one_sentence(problem: &JinjaError) -> String {
    let place = problem.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let what = problem.detail().map_or_else(|| problem.kind().to_string(), str::to_owned);
    quote(&format!("{place}{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String> {
        let messages = [
            Message { role: "user".into(), content: " Hi ".into() },
            Message { role: "assistant".into(), content: "Yes".into() },
        ];
        ChatTemplate::new(source, "<s>", "</s>", Path::new("model"))?.render(&messages, true)
    }

    /// Expected values by the rules of Jinja2 with `trim_blocks` and `lstrip_blocks`.
    #[test]
    fn renders_what_jinja_does() {
        let cases = [
            (
                "{{ bos_token }}{% for m in messages %}\n{{ m.role + ':' + m['content']|trim }}\n{% endfor %}\nend",
                "<s>user:Hi\nassistant:Yes\nend",
            ),
            ("{% set x = [1, 2] + [3] %}{{ x|length ~ '/' ~ x[0] }}", "3/1"),
            ("{{ 'ab' * 2 }}{{ '-' if not add_generation_prompt else '+' }}", "abab+"),
            ("{{ {'a': [1, 'b'], 'c': none}|tojson }}", r#"{"a": [1, "b"], "c": null}"#),
            ("{% macro f(a, b=1) %}{{ a ~ b }}{% endmacro %}{{ f('x', b=2) }}{{ f('y') }}", "x2y1"),
            ("{{ messages[0].content.strip() }}|{{ 'a-b'.split('-')[1] }}|{{ 'aa'.replace('a', 'b') }}", "Hi|b|bb"),
            ("{{ ['a', 'b']|join(', ') }}{# comment + ~ * #}{{- ' x' }}", "a, b x"),
            (
                "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.role %}{% endfor %}{{ ns.t }}",
                "userassistant",
            ),
            ("{% if strftime_now is defined %}{{ strftime_now('%d') }}{% else %}26 Jul 2024{% endif %}", "26 Jul 2024"),
            (
                "{{ messages[0].content[1:][::-1] }}|{{ 'abc'[-1] }}|{{ [[1, 2], 3][0][1] }}|{{ messages[1]['role'] }}",
                " iH|c|2|assistant",
            ),
            (
                "{{ messages[2:][::-1]|length }}|{{ ''[::-1] }}|{{ 'abc'[2:0:-1] }}|{{ (1, 2)[:0][::-1]|list }}",
                "0||cb|[]",
            ),
            (
                "{% for m in messages[::-1] %}{{ m['role'][::2] }},{% endfor %}{{ [1, 2, 3][3 - 1::0 - 2][1] }}",
                "assat,ue,1",
            ),
            (
                "{% for m in messages %}\n  {%- if m.role == 'assistant' %}{% generation %}\n{{ m.content }}{%- endgeneration -%} !{% endif %}{% endfor %}",
                "Yes!",
            ),
            (
                "{% set n = 3 %}{% for m in messages %}{{ loop.index * n + n * 2 }},{{ (2 * loop.index0) * n }};{% endfor %}",
                "9,0;12,6;",
            ),
            (
                "{{ 1.5 * 2 }}|{{ 7 / 2 * 2 }}|{{ 2 ** 3 }}|{{ ('ab' * 2) * 2 }}|{{ 2 * [1] }}",
                "3.0|7.0|8|abababab|[1, 1]",
            ),
            (
                "{% for (k, v) in {'a': 1}.items() %}{{ k ~ v }}{% endfor %}{% for k, v in {'b': 2}|items if v in [2] %}{{ k }}{% endfor %}",
                "a1b",
            ),
            (
                "{% macro f(a, b=[1, 2], c='x' ~ 'y') %}{{ a ~ b[1] ~ c }}{% endmacro %}{{ f(1) }}{% set a, b = 1, 2 %}{{ b }}",
                "12xy2",
            ),
            (
                "{% macro g(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) g('q' ~ 1) %}{{ x }}{% endcall %}{{ 'q' in 'aqb' and 'z' not in ['q'] }}",
                "<q1>True",
            ),
            (
                "{{ [3, 1, 2]|sort|reverse|join }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ range(3)|list }}",
                "3211[0, 1, 2]",
            ),
            ("{{ messages[1:]|length }}{{ (1, 2)|length }}{{ 1 + 2 }}{{ -1 }}", "123-1"),
        ];
        for (source, expected) in cases {
            assert_eq!(render(source).unwrap_or_else(|error| error.to_string()), expected, "{source}");
        }
    }

    #[test]
    fn long_chains_are_refused_and_short_ones_understood() {
        let chains: [(&str, &str); 8] =
            [("not ", ""), ("- ", ""), ("1 + ", ""), ("1 ~ ", ""), ("1 and ", ""), ("", ".a"), ("", "()"), ("", "[0]")];
        for (before, after) in chains {
            let many = format!("{{{{ {}1{} }}}}", before.repeat(20_000), after.repeat(20_000));
            let error = ChatTemplate::new(&many, "", "", Path::new("m")).expect_err("a long chain").to_string();
            assert!(error.contains("words and signs"), "{before}{after}: {error}");
        }
        let many = format!("{{% if x %}}{}{{% endif %}}", "{%elif(x)%}".repeat(10_000));
        let error = ChatTemplate::new(&many, "", "", Path::new("m")).expect_err("many alternatives").to_string();
        assert!(error.contains("alternatives"), "{error}");
        let sum = format!("{{{{ {}1 }}}}", "1 + ".repeat(490));
        let alternatives = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(240));
        for (template, expected) in [(sum, "491"), (alternatives, "")] {
            let template = ChatTemplate::new(&template, "", "", Path::new("m")).expect("a short chain");
            assert_eq!(template.render(&[], true).expect("it is understood"), expected);
        }
    }

    #[test]
    fn hostile_templates_are_refused() {
        let nested = format!("{{{{ {}x", "(".repeat(100_000));
        let deep_loops = format!("{}x{}", "{% for a in [1] %}".repeat(5000), "{% endfor %}".repeat(5000));
        let text = "y".repeat(5000);
        let many_lists: String = (0..7000).map(|n| format!("{{% set a{n} = range(99999)|list %}}")).collect();
        let raw = format!("{{% set a %}}{{% for i in range(100000) %}}{text}{{% endfor %}}{{% endset %}}");
        let cases = [
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', 'aaaaaaaa') %}{% endfor %}",
            "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x]|join('') %}{% endfor %}",
            "{{ 'x' * 999999999 }}",
            "{% set n = 100000 %}{{ 'x' * n }}",
            "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f('a') }}",
            "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('aaaaaaaaaaaaaaaa') }}",
            "{{ raise_exception('no') }}",
            "{{ strftime_now('%d') }}",
            "{% include 'other' %}",
            "{{ unclosed",
            "{% if %}",
            "{{ 'a'|indent(999999999) }}",
            "{% for i in range(20000) %}{% set a = range(99999)|list|sort|reverse|list %}{% endfor %}",
            "{% set a = range(30000)|list %}{% for i in range(99999) %}{% if a == a[:] %}{% endif %}{% endfor %}",
            "{% set a = range(30000)|list %}{% for i in range(99999) %}{% if 'x' in a %}{% endif %}{% endfor %}",
            "{% set a = range(30000)|list %}{% for i in range(99999) %}{% if a is eq a %}{% endif %}{% endfor %}",
            "{% set a = ('x' * 1000) * 100 %}{% for i in range(99999) %}{% set b = a[1:] %}{% set c = a[-1] %}{% endfor %}",
            "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = ns.x, %}{% endfor %}",
            "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = 1, ns.x %}{% endfor %}",
            "{% set ns = namespace(x='aaaaaaaa') %}{% macro f(a=ns.x ~ ns.x) %}{% set ns.x = a %}{% endmacro %}\
             {% for i in range(60) %}{{ f() }}{% endfor %}",
            "{% set n = 1000000 %}{{ n * 'x' }}",
            "{{ 'x' * 1000 * 1000 }}",
            "{{ 'x' * 1000 / 1 * 1000000000 }}",
            "{{ 1000000000 / 1 * 'x' }}",
            "{{ 'x' * 2 ** 30 }}",
            "{{ 'x' * 3e9 }}",
            "{{ 'x' * 1|default(9)|replace('1', '99999999')|int }}",
            "{% set x = ['a'] * 1000 %}{% set y = x * 1000 %}{% set z = y * 1000 %}{{ z }}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x[:] %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x * 1 %}{% endfor %}",
            "{% generation x %}{% endgeneration %}",
            &many_lists,
            &nested,
            &deep_loops,
            &raw,
        ];
        for source in cases {
            let shown = &source[..source.len().min(90)];
            let error = render(source).err().unwrap_or_else(|| panic!("{shown} was not refused")).to_string();
            assert!(error.starts_with("model: chat template: "), "{shown}: {error}");
        }
    }
}
