#!/usr/bin/env python3
"""Write chat templates with the texts that the transformers library renders from them.

    pip install transformers==4.57.6 jinja2==3.1.6
    python scripts/make_template_fixtures.py [--out fixtures/templates.json]
    python scripts/make_template_fixtures.py --compare target/debug/examples/render 'FOLDER/*.jinja'

Every case has a template, the variables that differ from the common ones, and the text, or `"fails": true`. The environment is that of
`apply_chat_template`. The current date is DATE.

--families FOLDER writes fixtures/family-templates.json from family_templates.py and the published templates in FOLDER.

--compare writes nothing: it renders the templates of other folders for many conversations, and compares the texts with those of the example
`render` (cargo build -p trueup-tokenizer --example render).
"""
import argparse
import datetime
import glob
import hashlib
import json
import os
import subprocess
from importlib.metadata import version

from transformers.utils import chat_template_utils

from family_templates import FAMILIES

DATE = "2024-07-06T14:03:09"


class FixedDate(datetime.datetime):
    """The class `datetime` with the current date of the fixtures."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


chat_template_utils.datetime = FixedDate

COMMON = {
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None, "documents": None,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Say \"miau\" & <go>\n"},
        {"role": "assistant", "content": "Miau, it's\tme \\ é😀"},
    ],
}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather, \"now\".",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "days": {"type": "integer", "default": 3}, "share": {"type": "number", "enum": [0.5, 1.0, 1e-7, 1e22]},
        "strict": {"type": ["boolean", "null"], "default": None}, "flag": {"default": True}}}}}]
CALL = [
    {"role": "user", "content": "Weather in Köln?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2, "x": None}}}]},
    {"role": "tool", "tool_call_id": "a1", "content": "{\"temp\": 20.5}"},
]
LIST = {"list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": {"a": {"b": [10, {"c": "x"}]}, "n": None},
        "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30, "tags": []}]}

# A name, a template and the variables that differ from COMMON.
CASES = [
    # Text and white space
    ("trim_blocks", "a\n{% if true %}\nb\n{% endif %}\nc {{ 1 }}\nd\n", {}),
    ("lstrip_blocks", "x\n   {% if true %}y{% endif %}   {% if true %}z{% endif %}\n  \t{# c #}\nend", {}),
    ("minus_signs", "a  \n {{- 1 -}} \n b {%- if true -%} \n c {%- endif +%}\n d {#- no -#} e", {}),
    ("plus_signs", "a\n  {%+ if true %}b{%+ endif %}\n  {%+ set x = 1 +%}\nc{{+ x }}", {}),
    ("raw", "{% raw %}{{ a }} {% if %}{% endraw %}!\n  {%- raw -%}  {# b #} {%- endraw -%}  c", {}),
    ("line_breaks", "a\r\nb\rc{% if true %}\r\nd{% endif %}\r\n", {}),
    ("two_line_ends", "a\n\n", {}),
    ("comment_at_line_start", "{# a #}\n  {# b #}\nx{# c #}\n\ny", {}),
    ("dict_in_print", "{{ {'a': {'b': 1}}.a.b }}{{ {'x':{}}}}", {}),
    ("literals", "{{ 1_000 }},{{ 0x1F }},{{ 0b11 }},{{ 0o17 }},{{ 1.5 }},{{ 1e3 }},{{ 2.5e-7 }},{{ True }},{{ none }},{{ 'a' \"b\" }}", {}),
    ("escapes", r"{{ 'a\n\t\\\'\"\x41\u00e9\U0001F600\101\q' }}|{{ 'é' }}", {}),
    # Printing as Python does
    ("print_values", "{{ none }},{{ true }},{{ [1, 'a', none, true, 1.0] }},{{ {'a': 'b', 1: [2]} }},{{ (1,) }},{{ () }},{{ (1, 'x') }}", {}),
    ("print_quotes", "{{ [\"it's\", 'say \"x\"', 'both \\' and \"', 'é\\n\\t\\\\', '\\x00\\x7f\\u200b\\u3000'] }}", {}),
    ("print_floats", "{{ [1.0, 0.1, 1e16, 1e15, 123456789012345680.0, 0.0001, 0.00001, -0.0, 1e100, 2.5, 1/3, 1e22] }}", {}),
    ("print_messages", "{{ messages }}", {}),
    ("print_views", "{{ messages[0].items() }}{{ messages[0].keys() }}{{ messages[0].values() }}{{ range(3) }}{{ range(1, 9, 2) }}", {}),
    ("print_undefined", "[{{ nothing }}][{{ messages[0].nothing }}][{{ messages[9] }}][{{ 'abc'[7] }}][{{ nothing ~ 'x' }}]", {}),
    ("print_namespace", "{% set ns = namespace(a=1, b='x') %}{{ ns }}", {}),
    # Operators
    ("arithmetic", "{{ 7 // 2 }},{{ -7 // 2 }},{{ 7 % 3 }},{{ -7 % 3 }},{{ 7 / 2 }},{{ 6 / 2 }},{{ 2 ** 10 }},{{ 2 ** -1 }},{{ 7.5 // 2 }},{{ -7.5 % 2 }},{{ 1 + 2 * 3 - 4 }}", {}),
    ("precedence", "{{ 'a' + 2 ~ 3 + 'b' }},{{ not 1 == 2 }},{{ -2 ** 2 }},{{ 2 ** 3 ** 2 }},{{ 1 ~ 2 * 3 }},{{ 'a' if 0 else 'b' if 0 else 'c' }}", {}),
    ("repetition", "{{ 'ab' * 3 }},{{ 2 * [1] }},{{ 'x' * -1 }},{{ '=' * (3 + 2) }},{{ true * 'y' }},{{ (1, 2) * 2 }}", {}),
    ("lists_and_tuples", "{{ [1] + [2, 3] }},{{ (1,) + (2,) }},{{ [1, 2] == [1, 2] }},{{ [1] < [1, 0] }},{{ 1 == 1.0 }},{{ 1 == true }},{{ '1' == 1 }}", {}),
    ("comparison_chains", "{{ 1 < 2 < 3 }},{{ 1 < 3 < 2 }},{{ 'a' < 'b' }},{{ 3 >= 3 != 4 }},{{ 1 in [1] in [[1]] }}", {}),
    ("membership", "{{ 'a' in 'cat' }},{{ 'role' in messages[0] }},{{ 1 in [1.0] }},{{ 'x' not in ['y'] }},{{ 'x' in nothing }},{{ 2 in range(3) }},{{ 'b' in {'b': 1}.keys() }}", {}),
    ("and_or", "{{ 0 or 'x' }},{{ 'a' and 'b' }},{{ none or '' or 0 }},{{ [] and 1 }},{{ not [] }},{{ not nothing }}", {}),
    ("percent", "{{ '%s|%5s|%-5s|%05d|%.2f|%x|%r|%%' % ('a', 'b', 'c', 42, 3.14159, 255, 'q') }},{{ '%s' % 'one' }},{{ '%(k)s-%(n)d' % {'k': 'v', 'n': 3} }},{{ '%s' % [1] }},{{ '%e %g %+d' % (12345.678, 0.0001, 5) }}", {}),
    ("condition_without_else", "[{{ 'x' if false }}][{{ ('x' if false) is defined }}]", {}),
    # Indexes, slices and attributes
    ("indexes", "{{ list[-1] }},{{ list[0] }},{{ 'abc'[-2] }},{{ nested['a']['b'][1]['c'] }},{{ nested.a.b.0 }},{{ nested.n is none }},{{ nested.n.x is defined }},{{ {1: 'x'}[1] }},{{ (4, 5)[1] }}", LIST),
    ("slices", "{{ list[1:] }},{{ list[::-1] }},{{ 'abcdef'[1:-1:2] }},{{ 'abc'[::-1] }},{{ list[:-1] }},{{ list[-2:] }},{{ list[5:] }},{{ (1, 2, 3)[1:] }},{{ 'héllo'[1:3] }},{{ messages[1:]|length }},{{ list[none:2] }}", LIST),
    ("methods_before_keys", "{{ d.items is callable }},{{ d['items'] }},{{ d.get('items') }},{{ d.values() | list }},{{ d.x }}", {"d": {"items": 1, "x": 2}}),
    ("attributes_of_values", "{{ 'abc'.upper() }},{{ 'abc'['upper']() }},{{ messages[0].content.nothing is defined }},{{ list.x is defined }},{{ (5).x is defined }},{{ none.x is defined }}", LIST),
    ("missing_attribute_of_undefined", "{{ nothing.x }}", {}),
    ("undefined_arithmetic", "{{ nothing + 1 }}", {}),
    ("undefined_call", "{{ nothing() }}", {}),
    ("string_plus_number", "{{ 'a' + 1 }}", {}),
    ("order_of_types", "{{ 'a' < 1 }}", {}),
    ("append_is_refused", "{% set l = [1] %}{{ l.append(2) }}", {}),
    ("pop_is_refused", "{% set d = {'a': 1} %}{{ d.pop('a') }}", {}),
    # String methods
    ("strip", "[{{ '  a b  '.strip() }}][{{ 'xxaxx'.strip('x') }}][{{ '  a '.lstrip() }}][{{ ' a  '.rstrip() }}][{{ 'abcba'.lstrip('ab') }}][{{ '\\n\\u3000a\\x1f'.strip() }}]", {}),
    ("split", "{{ 'a,b,,c'.split(',') }}{{ ' a  b\\nc '.split() }}{{ 'a-b-c'.split('-', 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ 'a b  c d'.split(none, 2) }}{{ ''.split() }}{{ ''.split(',') }}{{ 'a--b'.split('--')[-1] }}{{ ' a b c '.rsplit(None, 1) }}", {}),
    ("splitlines", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028'.splitlines() }}{{ 'a\\nb'.splitlines(true) }}{{ ''.splitlines() }}", {}),
    ("cases", "{{ 'hELLO wORLD it\\'s'.title() }},{{ 'hELLO'.capitalize() }},{{ 'aB'.swapcase() }},{{ 'Straße'.upper() }},{{ 'ÀÉ'.lower() }},{{ 'Straße'.casefold() }}", {}),
    ("starts_and_ends", "{{ 'abc'.startswith('ab') }},{{ 'abc'.startswith(('x', 'a')) }},{{ 'abc'.endswith('c') }},{{ 'abc'.startswith('b', 1) }},{{ 'abc'.endswith('b', 0, 2) }}", {}),
    ("find", "{{ 'banana'.find('an') }},{{ 'banana'.rfind('an') }},{{ 'banana'.find('x') }},{{ 'banana'.count('an') }},{{ 'héé'.index('é') }},{{ 'banana'.find('an', 2) }},{{ 'aaa'.count('') }}", {}),
    ("replace", "{{ 'aaa'.replace('a', 'b', 2) }},{{ 'abc'.replace('', '-') }},{{ 'a.b'.replace('.', '') }}", {}),
    ("join", "{{ ', '.join(['a', 'b']) }},{{ '-'.join('abc') }},{{ ''.join(messages[0].keys()) }}", {}),
    ("join_of_numbers", "{{ ','.join([1, 2]) }}", {}),
    ("format", "{{ '{} {1}'.format(1, 2) if false else '{} {}'.format('a', 1) }},{{ '{1}{0}'.format('a', 'b') }},{{ '{x:>5}|{y:05.1f}|{z:,}'.format(x='ab', y=3.14159, z=1234567) }},{{ '{0.role} {0[content]}'.format(messages[0]) }},{{ '{!r} {{}}'.format('q') }},{{ '{:^7}|{:*<4}|{:+d}|{:x}|{:.3}|{:%}'.format('mid', 'a', 5, 255, 'abcdef', 0.25) }},{{ '{:5}|{:<5}|{}'.format(42, 42, 1.0) }}", {}),
    ("pads", "[{{ 'a'.center(4) }}][{{ 'ab'.center(5, '*') }}][{{ 'a'.ljust(3) }}][{{ 'a'.rjust(3, '.') }}][{{ '-5'.zfill(4) }}][{{ 'a\\tb'.expandtabs(4) }}]", {}),
    ("is_methods", "{{ 'abc'.isalpha() }},{{ '12'.isdigit() }},{{ 'a1'.isalnum() }},{{ ' \\n'.isspace() }},{{ 'AB'.isupper() }},{{ ''.isalpha() }},{{ 'Ab Cd'.istitle() }},{{ 'a b'.isidentifier() }},{{ 'é'.isascii() }},{{ '1.5'.isdecimal() }}", {}),
    ("partitions", "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'x'.partition('=') }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}", {}),
    # Dictionaries and lists
    ("dict_methods", "{{ nested.get('a').get('z', 'd') }},{{ nested.get('z') }},{% for k, v in nested.items() %}{{ k }}={{ v }};{% endfor %}{{ nested.keys()|list }},{{ nested.values()|list|length }},{{ nested.copy() == nested }}", LIST),
    ("list_methods", "{{ [1, 2, 1].count(1) }},{{ ['a', 'b'].index('b') }},{{ (1, 2).index(2) }}", {}),
    ("dict_function", "{{ dict(a=1, b='x') }}{{ dict([('k', 'v')], z=1) }}{{ dict({'a': 1}, a=2) }}", {}),
    # Filters
    ("text_filters", "{{ ' a '|trim }},{{ 'xax'|trim('x') }},{{ 'abc'|upper }},{{ 'ABC'|lower }},{{ 'hello wORLD-x (y'|title }},{{ 'hELLO'|capitalize }},{{ 5|string }},{{ none|string }},{{ 'a b c'|wordcount }},{{ 'abc'|reverse }},{{ 'aXbX'|replace('X', '-') }},{{ 'aaa'|replace('a', 'b', 2) }}", {}),
    ("indent", "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(width=1, blank=true) }}|{{ 'a\\nb'|indent('> ') }}|{{ 'a\\nb\\n'|indent(2) }}|", {}),
    ("escape_and_safe", "{{ '<a href=\"x\">\\'&'|e }},{{ '<b>'|safe }},{{ '<p>a  <b>b</b></p> &amp; c'|striptags }},{{ 'a b/c&d=é'|urlencode }}", {}),
    ("markup", "{{ '<a>'|safe + '<b>' + \"'x'\" }},{{ '<' ~ '<i>'|safe ~ 1 ~ '&' }},{{ ('<'|e) ~ '>' }},{{ '<a>'|safe == '<a>' }},{{ ('<'|safe)|length }},{{ ['<a>'|safe] }},{% set s = '<b>'|safe %}{{ s + '<' }}{{ s.upper() }}", {}),
    ("center_and_truncate", "[{{ 'ab'|center(6) }}]{{ 'one two three four'|truncate(12) }}|{{ 'one two three four'|truncate(9, true) }}|{{ 'short'|truncate(3) }}|{{ 'a b c d e f g h'|truncate(5, false, '!', 0) }}", {}),
    ("number_filters", "{{ '42'|int }},{{ 'x'|int }},{{ 'x'|int(7) }},{{ '3.9'|int }},{{ 3.9|int }},{{ '1.5'|float }},{{ -3|abs }},{{ 2.5|round }},{{ 3.14159|round(2) }},{{ 2.1|round(0, 'ceil') }},{{ 2.9|round(method='floor') }},{{ 7|round }},{{ 'ff'|int(0, 16) }},{{ true|int }}", {}),
    ("default", "{{ nothing|default('d') }},{{ ''|default('d') }},{{ ''|default('d', true) }},{{ none|d('x') }},{{ none|d('x', boolean=true) }},{{ messages[0].x|default('no') }}", {}),
    ("list_filters", "{{ list|sort }},{{ words|sort }},{{ words|sort(case_sensitive=true) }},{{ list|sort(reverse=true) }},{{ list|first }},{{ list|last }},{{ list|length }},{{ list|sum }},{{ list|min }},{{ words|max }},{{ list|join('-') }},{{ list|reverse|list }},{{ words|unique|list }},{{ 'abc'|list }},{{ nested|list }}", LIST),
    ("people", "{{ people|map(attribute='name')|join(', ') }},{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }},{{ people|rejectattr('tags')|map(attribute='name')|list }},{{ people|sort(attribute='name')|map(attribute='name')|list }},{{ people|sort(attribute='age,name')|map(attribute='name')|list }},{{ people|sum(attribute='age') }},{{ people|map(attribute='tags', default='none')|list }},{{ people|selectattr('tags', 'defined')|list|length }},{{ people|join('/', attribute='name') }}", LIST),
    ("groupby", "{% for age, group in people|groupby('age') %}{{ age }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}{{ (people|groupby('age'))[0][0] }}", LIST),
    ("batch_and_slice", "{{ range(5)|batch(2)|list }},{{ range(5)|batch(3, 'x')|list }},{{ range(7)|slice(3)|list }},{{ range(4)|slice(3, '-')|list }}", {}),
    ("dictsort", "{{ {'b': 1, 'A': 3, 'c': 2}|dictsort }},{{ {'b': 1, 'A': 3}|dictsort(by='value') }},{{ {'b': 1, 'A': 3}|dictsort(case_sensitive=true) }},{{ {'a': 1, 'b': 2}|dictsort(reverse=true) }},{{ {'x': 1}|items|list }}", {}),
    ("select", "{{ [0, 1, '', 'a', none]|select|list }},{{ [1, 2, 3]|select('odd')|list }},{{ [1, 2, 3]|reject('gt', 1)|list }},{{ ['a', 1]|select('string')|list }},{{ none|select|list }},{{ [1, 2]|map('string')|list }},{{ ['a', 'b']|map('upper')|join }},{{ ['ab', 'c']|map('replace', 'a', 'x')|list }}", {}),
    ("generators_run_once", "{% set g = [1, 2]|map('string') %}{{ g|list }}{{ g|list }}", {}),
    ("pprint", "{{ {'b': [1, 'x'], 'a': none}|pprint }}", {}),
    ("format_filter", "{{ '%s is %d'|format('a', 3) }},{{ '%(x)s'|format(x=1) }}", {}),
    ("attr", "{{ messages[0]|attr('role') is defined }},{{ ('abc'|attr('upper'))() }}", {}),
    ("filter_on_test", "{{ (messages|length is odd)|string }},{{ -1|abs }},{{ [1, 2]|length + 1 }},{{ 'a'|upper ~ 'b' }}", {}),
    # JSON
    ("tojson", "{{ tools|tojson }}", {"tools": TOOLS}),
    ("tojson_indent", "{{ tools[0].function.parameters|tojson(indent=2) }}{{ [[], {}, [1]]|tojson(indent=4) }}", {"tools": TOOLS}),
    ("tojson_text", "{{ \"<é😀&'\\\"\\\\ \\n\\t\\x07\\x7f\\u2028>\"|tojson }}{{ 'é😀'|tojson(ensure_ascii=true) }}", {}),
    ("tojson_options", "{{ {'b': 1, 'a': [1, 2]}|tojson(sort_keys=true) }}{{ {'b': 1, 'a': [1, 2]}|tojson(separators=(',', ':')) }}{{ {1: none, none: 2, true: 3, 1.5: 4}|tojson }}{{ [1.0, 1e16, -0.0, 1e-7]|tojson }}{{ (1, 2)|tojson }}{{ {'a': 1}|tojson(indent='  ') }}{{ {'a': [1]}|tojson(indent=1, separators=(', ', '=')) }}{{ [1]|tojson(false, 2) }}", {}),
    ("tojson_undefined", "{{ nothing|tojson }}", {}),
    ("tojson_view", "{{ {'a': 1}.keys()|tojson }}", {}),
    # Tests
    ("tests_of_types", "{% for x in [none, true, 1, 1.5, 'a', [1], {'a': 1}, (1,), range(2)] %}{{ x is none }}{{ x is boolean }}{{ x is integer }}{{ x is float }}{{ x is number }}{{ x is string }}{{ x is sequence }}{{ x is mapping }}{{ x is iterable }}{{ x is callable }};{% endfor %}", {}),
    ("tests_of_undefined", "{{ nothing is defined }}{{ nothing is undefined }}{{ nothing is none }}{{ nothing is string }}{{ nothing is sequence }}{{ nothing is iterable }}{{ nothing == none }}{{ nothing == other }}{{ nothing is mapping }}{{ nothing|length }}", {}),
    ("tests_that_compare", "{{ 1 is eq 1 }}{{ 2 is gt(1) }}{{ 'a' is in ['a'] }}{{ 4 is divisibleby 2 }}{{ 3 is odd }}{{ 3 is not even }}{{ 'abc' is lower }}{{ 'A1' is upper }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ none is sameas none }}{{ 1 is ne 2 }}{{ 1 is lessthan 2 }}{{ 'a' is equalto 'a' }}", {}),
    ("tests_of_names", "{{ 'tojson' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}", {}),
    ("views_are_no_sequences", "{{ {'a': 1}.items() is sequence }}{{ {'a': 1}.items() is iterable }}{{ 'x'|map('upper') is sequence }}{{ 'x'|map('upper') is iterable }}", {}),
    # Statements
    ("loop_variables", "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }};{% endfor %}", {}),
    ("loop_else_and_filter", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.role }}{{ loop.length }}{% else %}none{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}", {}),
    ("loop_scope", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{{ i is defined }}", {}),
    ("loop_over_things", "{% for c in 'ab' %}{{ c }}.{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}{% for x in nothing %}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}", {}),
    ("break_and_continue", "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", {}),
    ("recursive_loop", "{% for n in tree recursive %}{{ loop.depth }}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}", {"tree": [{"v": "a", "c": [{"v": "b", "c": [{"v": "d"}]}, {"v": "e"}]}, {"v": "f"}]}),
    ("loop_over_none", "{% for x in none %}{% endfor %}", {}),
    ("unpack_fails", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", {}),
    ("set_forms", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}{% set block %} x {{ a }} {% endset %}[{{ block }}]{% set up | upper | trim %} abc {% endset %}[{{ up }}]{% set (c, d) = [3, 4] %}{{ c + d }}", {}),
    ("namespace", "{% set ns = namespace(n=0, seen=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.seen = ns.seen + [m.role] %}{% set ns.new = loop.index %}{% endfor %}{{ ns.n }}{{ ns.seen }}{{ ns.new }}{{ ns.no is defined }}{% set o = namespace({'k': 1}) %}{{ o.k }}", {}),
    ("set_attribute_of_dict", "{% set d = {} %}{% set d.x = 1 %}", {}),
    ("if_forms", "{% if 0 %}a{% elif '' %}b{% elif [0] %}c{% else %}d{% endif %}{% if nothing %}x{% else %}y{% endif %}{% if not nothing and 1 %}z{% endif %}", {}),
    ("macros", "{% macro f(a, b=2, *c) %}{% endmacro %}", {}),
    ("macro_arguments", "{% macro f(a, b=a ~ '!', c=none) %}{{ a }},{{ b }},{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 2, 3) }}{{ f(c=1, a=2) }}{{ f() }}{{ f.name }}", {}),
    ("macro_rest", "{% macro f(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}{% macro g() %}{{ caller('q') }}{% endmacro %}{% call(x) g() %}<{{ x }}>{% endcall %}{% macro h() %}{{ caller is defined }}{% endmacro %}{{ h() }}", {}),
    ("macro_scope", "{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}{{ x }}{% macro g(n) %}{{ n }}{% if n > 0 %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}", {}),
    ("macro_recursion_over_schema", "{%- macro show(s, d) -%}{{ '  ' * d }}{{ s.type }}{% for k, v in s.get('properties', {}).items() %}\n{{ k }}: {{ show(v, d + 1) }}{% endfor %}{%- endmacro -%}{{ show(tools[0].function.parameters, 0) }}", {"tools": TOOLS}),
    ("splat", "{% macro f(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2], **{'c': 3}) }}{{ '{}-{}'.format(*['x', 'y']) }}", {}),
    ("with", "{% with a = 1, b = 2 %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a is defined }}", {}),
    ("filter_block", "{% filter upper|replace('A', '-') %}banana {{ 'x' }}{% endfilter %}", {}),
    ("generation", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% set y = 1 %}{% endgeneration %}{{ y is defined }}{% endif %}{% endfor %}", {}),
    ("generation_trims", "a\n  {%- generation -%}\n  b\n  {%- endgeneration %}\nc", {}),
    ("print_statement", "{% print 1, 2 %}{% print 'x' %}", {}),
    ("block", "{% block a %}x{{ bos_token }}{% endblock a %}", {}),
    ("joiner_and_cycler", "{% set j = joiner('|') %}{% for i in [1, 2, 3] %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}", {}),
    ("raise_exception", "{{ raise_exception('no') }}", {}),
    ("unknown_tag", "{% explode %}", {}),
    ("unknown_filter_not_reached", "{% if false %}{{ 1|nope }}{% endif %}x", {}),
    ("include", "{% include 'x' %}", {}),
    ("strftime_now", "{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A, %B %-d, %Y') }}|{{ strftime_now('%a %e %j %p %I %y %U %W %V %u %w %c %x %X %D %F %T %R %h %%') }}|{{ strftime_now is defined }}", {}),
    # As models use them
    ("tokens", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ cls_token }}", {}),
    ("without_tokens", "{% if bos_token is defined %}{{ bos_token }}{% else %}no{% endif %}", {"bos_token": None}),
    ("none_content", "{% for m in messages %}{{ m.content is none }}{{ m.content }}{% if m.tool_calls %}{% for t in m.tool_calls %}{{ t.function.arguments|tojson }}{{ t.function.arguments|items|list }}{% endfor %}{% endif %}{% endfor %}", {"messages": CALL}),
    ("parts", "{% for p in messages[0].content %}{% if p.type == 'text' %}{{ p['text'] }}{% elif 'image' in p %}<img>{% endif %}{% endfor %}{{ messages[0].content is string }}", {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "image": "x"}]}]}),
    ("rev_loop", "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% set i = messages|length - 1 - loop.index0 %}{% if ns.last < 0 and m.role == 'user' %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}", {}),
    ("think", "{% set c = '<think>\\nhm\\n</think>\\n\\nYes' %}{{ c.split('</think>')[-1].lstrip('\\n') }}|{{ c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}", {}),
    ("tool_prompt", "{% if tools %}{{- '# Tools\\n' }}{% for tool in tools %}{{ '\\n' + tool|tojson }}{% endfor %}{% endif %}{{ tools is not none and tools|length > 0 }}", {"tools": TOOLS}),
    ("typed_schema", "{% for n, p in tools[0].function.parameters.properties.items() %}{{ n }}: {% if p.type is string %}{{ p.type }}{% elif p.type is iterable and p.type is not mapping %}{{ p.type|join(' | ') }}{% else %}any{% endif %}{% if p.default is defined %} = {{ p.default|tojson }}{% endif %}{% if p.enum %} {{ p.enum }}{% endif %}\n{% endfor %}", {"tools": TOOLS}),
    ("unicode_names", "{% set größe = 3 %}{{ größe }}{{ {'é': 1}.é }}", {}),
    ("dotted_numbers", "{{ messages.0.role }}{{ messages.1['role'] }}{{ [[1, 2]].0.1 }}", {}),
    ("empty", "", {}),
    ("unclosed", "{{ 1", {}),
    ("unexpected_end", "{% endif %}", {}),
]


def variables_of(own):
    merged = {**COMMON, **own}
    return {name: value for name, value in merged.items() if not (name == "bos_token" and value is None)}


def render(template, variables):
    """The text, or nothing when transformers fails."""
    try:
        return chat_template_utils._compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def write(path):
    cases = []
    for name, template, own in CASES:
        text = render(template, variables_of(own))
        outcome = {"fails": True} if text is None else {"text": text}
        cases.append({"name": name, "template": template, **({"variables": own} if own else {}), **outcome})
    made = {"command": "python scripts/make_template_fixtures.py", "transformers": version("transformers"), "jinja2": version("jinja2"),
            "date": DATE, "common": COMMON}
    with open(path, "w", encoding="utf-8") as file:
        head = json.dumps(made, ensure_ascii=False)
        file.write(head[:-1] + ', "cases": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")
    fails = [case["name"] for case in cases if "fails" in case]
    print(f"{path}: {len(cases)} templates, of which {len(fails)} fail: {', '.join(fails)}")


def conversations():
    """Conversations of many kinds by name."""
    system, user = {"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Which animal says <meow> & \"miau\"?"}
    cat, result = {"role": "assistant", "content": "Cats. é😀"}, {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "{\"temp\": 20.5}"}
    call = lambda content, arguments: {"role": "assistant", "content": content, "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": arguments}}]}
    think = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nCats.", "reasoning_content": "hm"}
    parts = {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "what?"}]}
    object_call = call("", {"city": "Köln", "days": 3, "x": 1.0, "y": None, "z": True, "l": [1, "a"]})
    return {"plain": [user], "turns": [user, cat, user], "system": [system, user], "system turns": [system, user, cat, user, cat],
            "calls": [system, user, object_call, result, cat, user], "calls as text": [user, call(None, "{\"city\": \"Rome\"}"), result],
            "parts": [parts], "thoughts": [user, think, user], "two results": [user, object_call, result, result, cat], "two users": [user, user],
            "none": [], "developer": [{"role": "developer", "content": "Be brief."}, user]}


def compare(program, pattern):
    """How many templates give the same texts."""
    common = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "documents": None}
    cases = []
    for path in sorted(glob.glob(pattern)):
        with open(path, encoding="utf-8", newline="") as file:
            template = file.read()
        for name, messages in conversations().items():
            for tools in (None, TOOLS):
                for prompt in (True, False):
                    for more in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
                        variables = {**common, "messages": messages, "tools": tools, "add_generation_prompt": prompt, **more}
                        cases.append((os.path.basename(path), name, template, variables))
    lines = "".join(json.dumps({"template": template, "variables": variables, "date": DATE}) + "\n" for _, _, template, variables in cases)
    answers = subprocess.run([program], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode().removesuffix("\n").split("\n")
    same, texts, different = {}, 0, 0
    for (path, name, template, variables), answer in zip(cases, answers, strict=True):
        expected, found = render(template, variables), json.loads(answer).get("text")
        texts += expected is not None
        same[path] = same.get(path, True) and expected == found
        if expected != found:
            different += 1
            print(f"{path}, {name}:\n  expected {expected!r}\n  found {answer}")
    print(f"{sum(same.values())} of {len(same)} templates are the same in all of {len(cases)} renderings, of which {texts} give a text; {different} differ")


def family_conversations():
    """Conversations by name, and those whose texts are stored, with their generation prompt."""
    system, user = {"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Say \"miau\" & <go>"}
    cat, more = {"role": "assistant", "content": "Miau, it's me. é😀"}, {"role": "user", "content": "And where to?\nTell me!"}
    conversations = {"question": [user], "turns": [user, cat, more], "system": [system, user], "answered": [system, user, cat],
                     "system turns": [system, user, cat, more], "two questions": [user, more], "answer first": [cat, user]}
    return conversations, [("turns", True), ("system", True), ("answered", False)]


def write_families(folder, path):
    conversations, stored = family_conversations()
    lines = []
    for name, (source, file, template) in FAMILIES.items():
        with open(os.path.join(folder, file + ".jinja"), "rb") as opened:
            published = opened.read()
        texts = {}
        for conversation, messages in conversations.items():
            for prompt in (True, False):
                variables = {**COMMON, "messages": messages, "add_generation_prompt": prompt}
                texts[conversation, prompt] = render(published.decode(), variables)
                assert render(template, variables) == texts[conversation, prompt], f"{name}: {conversation} gives another text"
        family = {"name": name, "source": source, "sha256": hashlib.sha256(published).hexdigest(), "template": template,
                  "texts": [texts[key] for key in stored]}
        lines.append(json.dumps(family, ensure_ascii=False))
    made = {"command": "python scripts/make_template_fixtures.py --families FOLDER", "transformers": version("transformers"),
            "jinja2": version("jinja2"), "date": DATE, "bos_token": COMMON["bos_token"], "eos_token": COMMON["eos_token"],
            "cases": [{"messages": conversations[name], "add_generation_prompt": prompt} for name, prompt in stored]}
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(made, ensure_ascii=False)[:-1] + ', "families": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{path}: {len(lines)} families, {len(conversations) * 2} texts each are those of the published template")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="fixtures/templates.json")
    parser.add_argument("--compare", nargs=2, metavar=("PROGRAM", "PATTERN"))
    parser.add_argument("--families", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(*arguments.compare)
    elif arguments.families:
        write_families(arguments.families, "fixtures/family-templates.json")
    else:
        write(arguments.out)
