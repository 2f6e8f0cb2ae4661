//! Chat templates that loop, grow, reach out or are no templates, and those of known models' ways that must be
//! understood.

use crate::case::{Call, Case};
use crate::gguf::file_case;
use crate::gguf_parts::Parts;
use crate::random::Random;

const KEY: &str = "tokenizer.chat_template";

/// A name and a template.
type Template = (&'static str, &'static str);

const SYNTAX: &[Template] = &[
    ("an open tag", "{{ messages"),
    ("an open block", "{% for m in messages %}x"),
    ("an end without a start", "x{% endfor %}"),
    ("an unknown tag", "{% explode %}"),
    ("an empty expression", "{{ }}"),
    ("an open text", "{{ 'abc }}"),
    ("an open list", "{{ [1, 2 }}"),
    ("control characters in a tag", "{% \u{1b}[2J\u{202e}\u{7} %}"),
    ("a name of control characters", "{{ raise_exception('\u{1b}[2J\u{202e}\n\u{7}') }}"),
    ("a generation tag with more", "{% generation of energy %}x{% endgeneration %}"),
];

const REACH: &[Template] = &[
    ("includes a file", "{% include '/etc/passwd' %}"),
    ("imports a file", "{% import 'model.gguf' as m %}{{ m }}"),
    ("extends a file", "{% extends '../base' %}"),
    ("climbs to classes", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    ("opens a file", "{{ open('/etc/passwd').read() }}"),
    ("calls the system", "{{ cycler.__init__.__globals__.os.popen('id').read() }}"),
    ("an unknown function", "{{ launch() }}"),
    ("an unknown filter", "{{ messages|launch }}"),
    ("an unknown test", "{{ messages is launched }}"),
    ("an unknown method", "{{ 'a'.launch() }}"),
    ("raises", "{{ raise_exception('no') }}"),
    ("includes itself", "{% include 'chat template' %}"),
];

const GROWTH: &[Template] = &[
    ("repeats a text", "{{ 'a' * 1000000000 }}"),
    ("repeats a text from the left", "{{ 1000000000 * 'a' }}"),
    ("repeats a text by a name", "{% set n = 1000000000 %}{{ 'a' * n }}"),
    ("repeats a list", "{{ [1, 2, 3] * 1000000000 }}"),
    ("repeats by a filter", "{{ 'a' | center(1000000000) }}"),
    (
        "doubles 64 times",
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "doubles by adding",
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "doubles by a list",
        "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "doubles by lists of lists",
        "{% set ns = namespace(s=[1]) %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    ),
    (
        "doubles by join",
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "grows by replace",
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s|replace('a', 'aaaaaaaaaaaaaaaa') %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "grows by the method replace",
        "{% set ns = namespace(s='a') %}{% for i in range(64) %}{% set ns.s = ns.s.replace('a', 'aaaaaaaaaaaaaaaa') %}{% endfor %}{{ ns.s|length }}",
    ),
    (
        "grows by the method join",
        "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s.join([ns.s, ns.s, ns.s]) %}{% endfor %}{{ ns.s|length }}",
    ),
    ("grows by indent", "{{ 'a\n' * 900 | indent(100000000) }}"),
    ("grows by JSON", "{{ messages | tojson(indent=1000000000) }}"),
    (
        "grows by blocks",
        "{% set a %}xxxxxxxxxxxxxxxx{% endset %}{% set ns = namespace(s=a) %}{% for i in range(64) %}{% set b %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = b %}{% endfor %}",
    ),
    (
        "slices and doubles",
        "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s[:] ~ ns.s[:] %}{% endfor %}",
    ),
    ("counts a huge range", "{{ range(1000000000000) | list | length }}"),
    ("a range of all numbers", "{% for i in range(9223372036854775807) %}x{% endfor %}"),
    (
        "writes without end",
        "{% for i in range(100000) %}{% for j in range(100000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    ),
    ("loops without writing", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
    (
        "loops in loops",
        "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% for d in range(999) %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
    ),
    ("power of powers", "{{ 10 ** 10 ** 10 }}"),
    ("number beyond 128 bits", "{{ 99999999999999999999999999999999999999999999999999 }}"),
    ("divides by zero", "{{ 1 // 0 }}"),
    ("remainder by zero", "{{ 1 % 0 }}"),
];

const RECURSION: &[Template] = &[
    ("macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
    (
        "macros that call each other",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    ),
    (
        "macro that calls itself twice",
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
    ),
    ("block that shows itself", "{% block a %}{{ self.a() }}{% endblock %}"),
    ("recursive loop without end", "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}"),
    ("call block that calls itself", "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}"),
];

const ACCEPTED: &[Template] = &[
    ("raw blocks", "{% raw %}{{ x }}{% endraw %}{{ messages[0].content }}"),
    ("prints by format", "{{ '%s' | format('x' * 100) }}{{ '{:>9}'.format(messages[0].content) }}"),
    ("the date", "{{ strftime_now('%d %b %Y') }}{{ messages[0].content }}"),
    (
        "as ChatML",
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}",
    ),
    (
        "loops with conditions",
        "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}{{ m.content }}{% else %}none{% endfor %}",
    ),
    (
        "macros",
        "{% macro turn(m, end='.') %}{{ m.role }}: {{ m.content }}{{ end }}{% endmacro %}{% for m in messages %}{{ turn(m) }}{% endfor %}",
    ),
    (
        "namespaces",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    ),
    ("small repetitions", "{{ '-' * 20 }}{{ messages[0].content }}"),
    ("slices", "{% for m in messages[0:] %}{{ m.content[:100] }}{% endfor %}"),
    ("methods", "{{ messages[0]['content'].strip().split('x')[0].upper() }}{{ messages[-1].get('role') }}"),
    ("filters", "{{ messages[0]['content'] | trim | upper | tojson }}"),
    ("tests", "{% if tools is defined and tools is not none %}t{% else %}{{ messages[0].content }}{% endif %}"),
    (
        "a date if there is one",
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}{{ messages[0].content }}",
    ),
    ("generation tags", "{% generation %}{{ messages[0].content }}{% endgeneration %}"),
    (
        "comments and white space control",
        "{#- hello -#}\n  {%- for m in messages -%}\n {{- m.content -}} {%- endfor -%}",
    ),
    (
        "a refusal that is not met",
        "{% if messages[0].role == 'robot' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}",
    ),
    (
        "break and continue",
        "{% for m in messages %}{% if loop.first %}{{ m.content }}{% break %}{% endif %}{% continue %}{% endfor %}",
    ),
    ("control characters as text", "\u{1b}[2J\u{202e}{{ messages[0].content }}"),
    (
        "a sum of many terms",
        "{{ 1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1 }}",
    ),
    ("many small loops", "{% for i in range(1000) %}{% endfor %}{{ messages[0].content }}"),
];

/// A name and what makes a template.
type Made = (&'static str, fn(&mut Random) -> String);

/// Templates that are made.
const MADE: &[Made] = &[
    ("of a megabyte", |_| "x".repeat(1 << 20)),
    ("nested parentheses", |r| nested("{{ ", "(", "1", ")", " }}", r.between(2000, 5000))),
    ("nested lists", |r| nested("{{ ", "[", "1", "]", " }}", r.between(2000, 5000))),
    ("nested lists by 100000", |_| nested("{{ ", "[", "1", "]", " }}", 100_000)),
    ("nested objects", |r| nested("{{ ", "{'a':", "1", "}", " }}", r.between(2000, 5000))),
    ("nested conditions", |r| nested("", "{% if true %}", "x", "{% endif %}", "", r.between(2000, 5000))),
    ("nested loops", |r| nested("", "{% for a in messages %}", "x", "{% endfor %}", "", r.between(300, 3000))),
    ("nested negations", |r| chain("not ", "true", r.between(30_000, 60_000))),
    ("nested signs", |r| chain("-", "1", r.between(100_000, 200_000))),
    ("signs with spaces", |r| chain("- ", "1", r.between(60_000, 100_000))),
    ("nested signs and negations", |r| chain("not -", "1", r.between(20_000, 40_000))),
    ("attributes of many", |r| format!("{{{{ messages{} }}}}", ".a".repeat(r.between(60_000, 120_000)))),
    ("items of many", |r| format!("{{{{ messages{} }}}}", "[0]".repeat(r.between(40_000, 80_000)))),
    ("calls of many", |r| format!("{{{{ messages{} }}}}", "()".repeat(r.between(60_000, 120_000)))),
    ("filters of many", |r| format!("{{{{ messages{} }}}}", "|length".repeat(r.between(20_000, 35_000)))),
    ("tests of many", |r| format!("{{{{ messages{} }}}}", " is true".repeat(r.between(20_000, 30_000)))),
    ("alternatives of many", |r| {
        format!("{{% if x %}}{}{{% endif %}}{{{{ launch() }}}}", "{% elif x %}".repeat(r.between(15_000, 20_000)))
    }),
    ("nested filters", |r| nested("", "{% filter upper %}", "x", "{% endfilter %}", "", r.between(2000, 5000))),
    ("nested macros", |r| nested("", "{% macro f() %}", "x", "{% endmacro %}", "", r.between(2000, 5000))),
];

/// Long chains, which nest nothing.
const MADE_ACCEPTED: &[Made] = &[
    ("a sum of many", |r| chain("1+", "1", r.between(60_000, 100_000))),
    ("a text of many", |r| chain("''~", "1", r.between(60_000, 100_000))),
    ("powers of many", |r| chain("1**", "1", r.between(50_000, 80_000))),
    ("comparisons of many", |r| chain("1<", "1", r.between(60_000, 100_000))),
    ("conjunctions of many", |r| chain("1 and ", "1", r.between(20_000, 40_000))),
    ("conditions of many", |r| chain("1 if 0 else ", "1", r.between(15_000, 20_000))),
];

/// All cases.
pub fn cases(seed: u64, good: &[u8]) -> Vec<Case> {
    let parts = Parts::read(good);
    let mut cases = Vec::new();
    let mut add = |name: &str, template: &str, is_refused: bool| {
        let (refused, accepted): (&[Call], &[Call]) =
            if is_refused { (&[Call::Chat], &[Call::Inspect, Call::Show]) } else { (&[], &[Call::Chat, Call::Show]) };
        let mut parts = parts.clone();
        parts.set_text(KEY, template);
        cases.push(file_case(name, &parts, refused, accepted));
    };
    for (name, template) in [SYNTAX, REACH, GROWTH, RECURSION].concat() {
        add(name, template, true);
    }
    for (name, template) in MADE {
        add(name, &template(&mut Random::new(seed, name)), true);
    }
    for (name, template) in MADE_ACCEPTED {
        add(name, &template(&mut Random::new(seed, name)), false);
    }
    for (name, template) in ACCEPTED {
        add(name, template, false);
        if *name == "as ChatML" {
            let half = format!("{}\n", "<|".repeat(1000)).repeat(100);
            add("100000 halves of markers in a comment", &format!("{{# {half} #}}{template}"), false);
        }
    }
    cases
}

/// A prefix many times before an operand.
fn chain(prefix: &str, operand: &str, count: usize) -> String {
    format!("{{{{ {}{operand} }}}}", prefix.repeat(count))
}

fn nested(before: &str, open: &str, inner: &str, close: &str, after: &str, depth: usize) -> String {
    format!("{before}{}{inner}{}{after}", open.repeat(depth), close.repeat(depth))
}
