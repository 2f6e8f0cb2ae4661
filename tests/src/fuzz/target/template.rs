//! Chat templates, on a few conversations.

use super::super::seeds::fixture_file;
use super::super::{Answer, law, refused};
use std::path::Path;
use trueup::tokenizer::{ChatTemplate, Message};

/// Characters that a conversation of ours can become at most: more than any template in use makes of it.
const TEXT_CHARS_MAX: usize = 32 << 20;

/// Templates of the fixtures, and of all that the language has.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![fixture_file("models/qwen3/chat_template.jinja")];
    for name in ["llama3", "mistral", "qwen2", "llama2", "llama-linear"] {
        let config = fixture_file(&format!("models/{name}/tokenizer_config.json"));
        let config: serde_json::Value = serde_json::from_slice(&config).expect("a fixture is JSON");
        seeds.extend(config["chat_template"].as_str().map(|template| template.as_bytes().to_vec()));
    }
    let whole: [&str; 8] = [
        "{% macro m(a, b=2) %}{{ a ~ b }}{{ caller() if caller else '' }}{% endmacro %}{{ m(1) }}{% call m('x') %}y{% endcall %}",
        "{% for i in range(9) recursive %}{% if loop.index is odd %}{{ i }}{% elif loop.last %}{% break %}{% else %}{% continue %}{% endif %}{% else %}none{% endfor %}",
        "{% set ns = namespace(a=1, l=[1, 2]) %}{% for m in messages %}{% set ns.a = ns.a + loop.index %}{% endfor %}{{ ns.a }}{{ ns.l | join('-') }}",
        "{{ messages | tojson(indent=2) }}{{ messages[0]['content'] | trim | upper | replace('H', 'hh') }}{{ 'a,b'.split(',')[-1] }}",
        "{% filter upper %}{{ bos_token }}{% endfilter %}{% raw %}{{ x }}{% endraw %}{% set t %}x{% endset %}{{ t[::-1] * 3 }}",
        "{{ messages | map(attribute='role') | list | unique | sort | first }}{{ {'a': [1, {'b': none}]} | tojson }}{{ 7 // 2 ** 3 % 5 }}",
        "{% if messages[0].role == 'system' and (messages | length) > 1 %}{{ raise_exception('no') }}{% endif %}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "{{ '%s-%d' | format('a', 3) }}{{ 'x' | indent(4) | center(20) }}{{ [3, 1] | sort | batch(2) | list }}{{ dict(a=1) | items | list }}{{ 'abc' is in 'xabc' }}",
    ];
    seeds.extend(whole.map(|template| template.as_bytes().to_vec()));
    seeds
}

/// The text of a template.
pub fn run(input: &[u8], folder: &Path) -> Result<Answer, String> {
    match ChatTemplate::new(&String::from_utf8_lossy(input), "<s>", "</s>", &folder.join("model")) {
        Ok(template) => check(&template),
        Err(problem) => refused(&problem),
    }
}

/// Conversations of none, one and three turns give the same text each time, or a sentence.
pub fn check(template: &ChatTemplate) -> Result<Answer, String> {
    let turn = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
    let conversations = [
        Vec::new(),
        vec![turn("user", "Hi {{ x }} \u{202e}\0")],
        vec![
            turn("system", "Be short."),
            turn("user", &"long ".repeat(200)),
            turn("assistant", "<think>a</think>Yes"),
            turn("user", ""),
        ],
    ];
    let mut answer = Answer::Accepted("text");
    for messages in &conversations {
        match (template.render(messages, true), template.render(messages, true)) {
            (Ok(text), Ok(again)) => {
                law(text == again, "a conversation becomes another text the second time")?;
                law(text.len() <= TEXT_CHARS_MAX, "a conversation becomes a text without end")?;
            }
            (Err(problem), Err(_)) => answer = refused(&problem)?,
            (Ok(_), Err(problem)) | (Err(problem), Ok(_)) => return Err(format!("refused one time only: {problem}")),
        }
    }
    Ok(answer)
}
