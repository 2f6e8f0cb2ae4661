//! Chat templates: a conversation becomes the text that the model was trained on.
//!
//! ```text
//! [{role: user, content: Hi}] ── template of the model ──> "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
//! ```
//!
//! The text is the one that the transformers library gives. Templates come with models, so they can be hostile: they
//! run without input and output, and depth, steps and created text are bounded.

use crate::date::Date;
use crate::jinja::{Budget, Problem, Template, Value};
use crate::vocabulary::Vocabulary;
use std::path::{Path, PathBuf};
use trueup_formats::{Error, Result, quote};

/// What errors call the place.
const NAME: &str = "chat template";

/// One turn of a conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another role that the template knows.
    pub role: String,
    /// The text of the turn.
    pub content: String,
}

/// A chat template, with the special tokens of the vocabulary that it can write.
#[derive(Debug)]
pub struct ChatTemplate {
    template: Template,
    path: PathBuf,
    /// Names such as `bos_token` with their texts. A token that does not exist is undefined in the template.
    tokens: Vec<(&'static str, String)>,
    date: Option<Date>,
}

impl ChatTemplate {
    /// The template of a vocabulary, if it has one. Fails when it is not valid.
    pub fn of(vocabulary: &Vocabulary) -> Result<Option<ChatTemplate>> {
        let source = vocabulary.chat_template();
        source.map(|source| ChatTemplate::with_tokens_of(vocabulary, source, vocabulary.path())).transpose()
    }

    /// A template from elsewhere, with the special tokens of a vocabulary. Errors name `path`.
    pub fn with_tokens_of(vocabulary: &Vocabulary, source: &str, path: &Path) -> Result<ChatTemplate> {
        let special = vocabulary.special();
        let ids = [
            ("bos_token", special.bos),
            ("eos_token", special.eos),
            ("unk_token", special.unknown),
            ("pad_token", special.padding),
            ("sep_token", special.separator),
            ("mask_token", special.mask),
        ];
        let text = |(name, id): (&'static str, Option<u32>)| Some((name, vocabulary.token(id?)?.text.clone()));
        ChatTemplate::build(source, ids.into_iter().filter_map(text).collect(), path)
    }

    /// A template with the texts of `bos_token` and `eos_token`; an empty text means that the token does not exist.
    /// Errors name `path`.
    pub fn new(source: &str, bos: &str, eos: &str, path: &Path) -> Result<ChatTemplate> {
        let tokens = [("bos_token", bos), ("eos_token", eos)].into_iter().filter(|(_, text)| !text.is_empty());
        ChatTemplate::build(source, tokens.map(|(name, text)| (name, text.to_owned())).collect(), path)
    }

    fn build(source: &str, tokens: Vec<(&'static str, String)>, path: &Path) -> Result<ChatTemplate> {
        let template = Template::parse(source).map_err(|problem| {
            sentence(path, &problem).help("pass another template with --chat-template FILE, or use trueup run")
        })?;
        Ok(ChatTemplate { template, path: path.to_owned(), tokens, date: None })
    }

    /// The same template at a date: what `strftime_now` tells it. Without a date, templates that call it fail.
    #[must_use]
    pub fn at(self, date: Date) -> ChatTemplate {
        ChatTemplate { date: Some(date), ..self }
    }

    /// The text of a conversation; with `add_generation_prompt` it ends where the answer begins. It contains special
    /// tokens as text, so encode it without adding any.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let turn = |turn: &Message| serde_json::json!({"role": turn.role, "content": turn.content});
        let messages: serde_json::Value = messages.iter().map(turn).collect();
        let variables = [
            ("messages".to_owned(), messages),
            ("tools".to_owned(), serde_json::Value::Null),
            ("documents".to_owned(), serde_json::Value::Null),
            ("add_generation_prompt".to_owned(), add_generation_prompt.into()),
        ];
        self.render_with(&variables.into_iter().collect())
    }

    /// The text for any variables: `messages`, `tools`, `documents`, `add_generation_prompt` and others that the
    /// template knows. They take precedence over the special tokens.
    pub fn render_with(&self, variables: &serde_json::Map<String, serde_json::Value>) -> Result<String> {
        let budget = Budget::new(variables.values().map(size).fold(0, usize::saturating_add));
        let fail = |problem: Problem| sentence(&self.path, &problem);
        let mut values: Vec<(&str, Value)> = Vec::new();
        for (name, text) in &self.tokens {
            values.push((name, Value::text(text)));
        }
        for (name, value) in variables {
            values.push((name, Value::from_json(value, &budget).map_err(fail)?));
        }
        self.template.render(values, self.date, &budget).map_err(fail)
    }
}

/// A number that is about the bytes of a value.
fn size(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::String(text) => text.len().saturating_add(1),
        serde_json::Value::Array(items) => items.iter().map(size).fold(1, usize::saturating_add),
        serde_json::Value::Object(entries) => {
            let entry = |(key, value): (&String, &serde_json::Value)| key.len().saturating_add(size(value));
            entries.iter().map(entry).fold(1, usize::saturating_add)
        }
        _ => 1,
    }
}

/// A problem of a template as an error on one line.
fn sentence(path: &Path, problem: &Problem) -> Error {
    let text = problem.to_string();
    let error = Error::new(path, quote(&text)).at(NAME);
    match text.contains("the template rejects the conversation") {
        true => error.help("change the messages, or use another template"),
        false => error,
    }
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

    #[test]
    fn long_chains_of_operators_work() {
        let chains = [("1 + ", "1", "20001"), ("'' ~ ", "1", "1"), ("1 and ", "2", "2"), ("0 or ", "2", "2")];
        for (before, last, expected) in chains {
            assert_eq!(render(&format!("{{{{ {}{last} }}}}", before.repeat(20_000))).unwrap(), expected, "{before}");
        }
        let branches = format!("{{% if x %}}{}{{% else %}}y{{% endif %}}", "{% elif x %}".repeat(10_000));
        assert_eq!(render(&branches).unwrap(), "y");
    }

    #[test]
    fn chains_that_nest_are_refused() {
        for (before, after) in [("not ", ""), ("- ", ""), ("(", ")"), ("[", "]"), ("{1:", "}"), ("f(", ")")] {
            let many = format!("{{{{ {}1{} }}}}", before.repeat(10_000), after.repeat(10_000));
            let error = ChatTemplate::new(&many, "", "", Path::new("m")).expect_err("a deep template").to_string();
            assert!(error.contains("nests more than"), "{before}{after}: {error}");
        }
    }

    #[test]
    fn the_deepest_run_fits_into_the_stack_of_a_thread() {
        let blocks = format!("{}x{}", "{% if true %}".repeat(99), "{% endif %}".repeat(99));
        let brackets = format!("{{{{ {}1{} }}}}", "(".repeat(98), ")".repeat(98));
        let macros = "{% macro f(n) %}{% if true %}{% for i in [[[n]]] %}{{ [f([f(n)])] }}{% endfor %}{% endif %}{% endmacro %}{{ f(1) }}";
        let loops = "{% for x in [[1]] recursive %}{% if true %}{{ [[loop([x])]] }}{% endif %}{% endfor %}";
        let lists = "{% set ns = namespace(x=[1]) %}{% for i in range(95) %}{% set ns.x = [ns.x] %}{% endfor %}\
                     {{ ns.x|tojson|length }} {{ ns.x|string|length }} {{ ns.x == ns.x }}";
        let results = std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || [&*blocks, &*brackets, macros, loops, lists].map(|source| render(source).is_ok()))
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(results, [true, true, false, false, true]);
    }

    #[test]
    fn a_sort_without_a_total_order_does_not_panic() {
        let source = "{% set n = 1e308 * 10 - 1e308 * 10 %}{% set l = (range(90)|list + [n, 1, n, -5.5]) * 9 %}{{ (l|sort)|length }}\
                      {{ (l|sort(reverse=true))|length }}{{ l|min }}";
        assert!(render(source).unwrap().starts_with("846846"));
        assert!(render("{{ ([1, 'a', none] * 40)|sort }}").is_err());
    }

    #[test]
    fn the_date_is_the_one_that_is_given() {
        let template = || ChatTemplate::new("{{ strftime_now('%d %B %Y, %H:%M') }}", "", "", Path::new("m")).unwrap();
        let error = template().render(&[], true).expect_err("no date").to_string();
        assert!(error.contains("the current date"), "{error}");
        let date = "2023-02-01T08:05".parse().unwrap();
        assert_eq!(template().at(date).render(&[], true).unwrap(), "01 February 2023, 08:05");
    }

    const HOSTILE: &[&str] = &[
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', 'aaaaaaaa') %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x]|join('') %}{% endfor %}",
        "{{ 'x' * 999999999 }}",
        "{% set n = 100000000 %}{{ 'x' * n }}",
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
        "{% set n = 100000000 %}{{ n * 'x' }}",
        "{{ 'x' * 10000 * 1000 }}",
        "{{ 'x' * 1000 / 1 * 1000000000 }}",
        "{{ 1000000000 / 1 * 'x' }}",
        "{{ 'x' * 2 ** 30 }}",
        "{{ 'x' * 3e9 }}",
        "{{ 'x' * 1|default(9)|replace('1', '99999999')|int }}",
        "{% set x = ['a'] * 1000 %}{% set y = x * 1000 %}{% set z = y * 1000 %}{{ z }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x[:] %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x * 1 %}{% endfor %}",
        "{% generation x %}{% endgeneration %}",
        "{% set ns = namespace(x=1) %}{% for i in range(90000) %}{% set ns.x = [ns.x]|map('string') %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace(x='%s') %}{% for i in range(90) %}{% set ns.x = (ns.x ~ ns.x) % (ns.x, ns.x) %}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ ''.expandtabs(9) }}{{ '\\t'.expandtabs(999999999) }}",
        "{{ 10 ** 9999999999 }}",
        "{{ [1]|batch(999999999, 'x')|list }}",
        "{{ [1]|slice(999999999)|list }}",
        "{% set a = range(30000)|list %}{{ a|unique|list|length }}",
        "{% set a = range(9000)|list %}{{ a|map('in', a)|list }}{{ a|select('in', a)|list|length }}",
        "{{ 1|round(999999999) }}{{ 1.5|indent(999999999) }}",
        "{{ 'x'|center(999999999) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    ];

    #[test]
    fn hostile_templates_are_refused() {
        let nested = format!("{{{{ {}x", "(".repeat(100_000));
        let deep_loops = format!("{}x{}", "{% for a in [1] %}".repeat(5000), "{% endfor %}".repeat(5000));
        let text = "y".repeat(5000);
        let many_lists: String = (0..7000).map(|n| format!("{{% set a{n} = range(99999)|list %}}")).collect();
        let raw = format!("{{% set a %}}{{% for i in range(100000) %}}{text}{{% endfor %}}{{% endset %}}");
        let made = [&*many_lists, &nested, &deep_loops, &raw];
        let mut faults = Vec::new();
        for source in HOSTILE.iter().copied().chain(made) {
            let shown = &source[..source.len().min(120)];
            match render(source) {
                Ok(_) => faults.push(format!("{shown} was not refused")),
                Err(error) if error.to_string().starts_with("model: chat template: ") => {}
                Err(error) => faults.push(format!("{shown}: {error}")),
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
