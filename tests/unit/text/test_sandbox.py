"""Templates that nobody should run: what they reach, and what they may spend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.errors import RequestError
from edge.text import sandbox_budget
from edge.text.template import ChatTemplate, render_chat
from edge.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "Hi"}]


def render(source: str, tokenizer: Tokenizer, **variables: Any) -> str:
    return render_chat(ChatTemplate(source, tokenizer, "t"), HI, variables=variables).text


CALLS_OUT = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('touch pwned').read() }}",  # CVE-2026-5760
    "{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}",
    "{{ lipsum.__globals__['os'].popen('touch pwned').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['time'] }}",
    "{{ range.__call__.__self__ }}",
    "{{ messages | attr('__class__') }}",
    "{{ messages.append(1) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends '/etc/passwd' %}",
]
ENDLESS = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{{ 1 / 0 }}",
]
HUGE = [
    "{{ range(10 ** 12) | list }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ [0] * 10 ** 10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{% set ns = namespace(x=10) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x.replace('a', 'aaaa') %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x | replace('a', 'aaaa') %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = '{}{}'.format(ns.x, ns.x) %}{% endfor %}",
    "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
    "{% set c = 'a' * 99999 %}{% set ns = namespace(x=0) %}{% for i in range(999) %}{% set ns.x = [c[1:], ns.x] %}{% endfor %}",
    "{% set c = 'a' * 99999 %}{% set ns = namespace(x=0) %}{% for i in range(99) %}{% set ns.x = [c|list, ns.x] %}{% endfor %}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a\nb' | indent(1000000000) }}",
    "{{ messages | tojson(indent=1000000000) }}",
    "{{ strftime_now('%1000000000Y') }}",
    "{% for i in range(100000) %}" + "x" * 1000 + "{% endfor %}",
    "{{ (1).to_bytes(2000000000, 'big') }}",
    "{{ 1.5 | round(30000000, 'ceil') }}",
    "{{ 15 | round(-30000000, 'floor') }}",
    "{{ ('{' ~ ':' * 20000) | format(1) }}",
    "{{ ('{' ~ ':' * 20000).format(1) }}",
    "{{ '%(a)1000000000d' % {'a': 1} }}",
    "{{ '%(a(b)c)1000000000d' % {'a(b)c': 1} }}",
    "{{ '%5%%1000000000d' % 1 }}",
    "{{ '%l%%1000000000d' % 1 }}",
    "{{ '{a[}]:1000000000}'.format(a={'}': 1}) }}",
    "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "{{ ('%(a)s' * 700) % {'a': 'x' * 1000000} }}",
    "{{ ('{0}' * 700).format('x' * 1000000) }}",
    "{{ ([0] * 100000) | tojson(separators=('x' * 100000, ':')) }}",
    "{{ ('a' * 1500000).rfind('ab' ~ 'a' * 700000) }}",
    "{{ ('a' * 1500000).strip('b' * 1000000 ~ 'a') }}",
    "{{ 'a' * 1500000 | trim('b' * 1000000 ~ 'a') }}",
    "{% macro m() %}{% endmacro %}{% set r = range(100000) %}{% for i in range(999) %}{{ m(*r) }}{% endfor %}",
    "{% set r = range(100000) %}{% for i in range(999) %}{% set x = r | map('string') | list %}{% endfor %}",
    "{% set x = [0] * 100000 %}{{ range(100000) | map(attribute='no', default=x) | sort }}",
    "{% set x, y = [0] * 99999, [0] * 99999 %}{% for i in range(99999) %}{% if x == y %}{% endif %}{% endfor %}",
    "{% set x, y = [0] * 99999, [0] * 99999 %}{% for i in range(99999) %}{% if x is eq y %}{% endif %}{% endfor %}",
    "{% set x = (0,) * 99999 %}{% set d = {x: 1} %}{% for i in range(99999) %}{% if d[x] %}{% endif %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% endif %}{{ varargs }}{% endmacro %}{{ m(30, 1) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1, a=kwargs, b=kwargs) }}{% endif %}{{ kwargs }}{% endmacro %}{{ m(30, c=1) }}",
    "{% set ns = namespace() %}{% set ns.x = [ns, ns] %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.x = [ns, ns] %}{{ ns.x | tojson }}",
]
# Each doubles what it is given, without writing it out.
DOUBLED = ["[ns.x, ns.x]", "(ns.x, ns.x)", "{1: ns.x, 2: ns.x}", "[ns.x] * 2", "[ns.x] + [ns.x]", "dict(a=ns.x, b=ns.x)",
           "dict(a=ns.x, b=ns.x).values() | list", "{1: ns.x, 2: ns.x} | dictsort", "[ns.x, ns.x][:]"]  # fmt: skip
USED = ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.y }}", "{{ ns.x in [ns.y] }}", "{{ {(1, ns.x): 1} }}",
        "{{ 'a' ~ ns.x }}", "{{ [ns.x, ns.y] | sort }}",
        "{{ [ns.x, ns.y] | unique | list }}", "{{ '%s' % [ns.x] }}", "{{ '{}'.format(ns.x) }}",
        "{{ ns.x | upper }}", "{{ [ns.x] | join }}", "{{ ns.x | replace('a', 'b') }}"]  # fmt: skip
HUGE += [
    "{% set ns = namespace(x='a', y='a') %}{% for i in range(40) %}"
    f"{{% set ns.x = {doubled} %}}{{% set ns.y = {doubled.replace('ns.x', 'ns.y')} %}}{{% endfor %}}{used}"
    for doubled in DOUBLED
    for used in (USED if doubled == DOUBLED[0] else USED[:3])
]
HUGE.append("{% set ns = namespace(x=()) %}{% for i in range(100000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}")
WRONG = [
    "{% for %}",
    "{{ nope.x }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "x" * 300000,
    "{{ x | tojson(ensure_ascii=true) }}",
    "{{ messages[0].content | striptags }}",
    "{{ (messages[0].content | safe).unescape() }}",
    "{{ (messages[0].content | e).striptags() }}",
    "{% autoescape true %}{{ (messages[0].content | e).unescape() }}{% endautoescape %}",
    "{{ (5).bit_length() }}",
]


@pytest.mark.parametrize("source", CALLS_OUT + ENDLESS + HUGE + WRONG)
def test_a_template_that_misbehaves_is_refused_in_one_line(
    source: str, bytes_tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError) as caught:
        render(source, bytes_tokenizer, x="")
    assert str(caught.value).startswith("t: ")
    assert "--chat-template-file" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    assert not list(tmp_path.iterdir())


def test_internals_are_empty_where_they_are_no_error(bytes_tokenizer: Tokenizer) -> None:
    assert render("{{ '{0.__class__}'.format(messages) }}", bytes_tokenizer) == ""
    assert "class" not in render("{{ messages | map(attribute='__class__') | list }}", bytes_tokenizer)


def test_a_template_that_takes_too_long_is_stopped(bytes_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_budget, "MAX_SECONDS", -1.0)
    with pytest.raises(RequestError, match="runs longer"):
        render("{% for m in messages %}{% endfor %}", bytes_tokenizer)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 1.2345 | round(2) }} {{ 17 | round(-1) }} {{ 1.25 | round(1, 'floor') }}", "1.23 20 1.2"),
        ("{{ '12' | int }} {{ '0x1f' | int(base=16) }} {{ '1e3' | float }} {{ 'x' | int(7) }}", "12 31 1000.0 7"),
        ("{{ ('9' * 9999) | int(3) }}", "3"),
        ("{{ '%(a)03d of %(b)s: 100%% in December 2023' % {'a': 7, 'b': 'x'} }}", "007 of x: 100% in December 2023"),
        ("{{ '{{{a[0]:>4}}} in December 2023'.format(a=['x']) }}", "{   x} in December 2023"),
        ("{{ '<b>&' | e }} {{ '<b>' | safe ~ '&' }}", "&lt;b&gt;&amp; <b>&"),
        ("{{ [3, 1, 2] | sort }} {{ {'b': 1, 'a': (2,)} | dictsort }}", "[1, 2, 3] [('a', (2,)), ('b', 1)]"),
        ("{{ range(5) | map('string') | reject('eq', '2') | join('-') }}", "0-1-3-4"),
        ("{% set ns = namespace(n=1) %}{% set l = [ns] + [ns] %}{{ l[1].n }} {{ l[0] == ns }}", "1 True"),
        ("{% macro m(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, [2], k=(3,)) }}", "1([2],){'k': (3,)}"),
        ("{{ ('a', 1) in [('a', 1)] }} {{ {('a', 1): 'x'}[('a', 1)] }} {{ 1 < 2 < 3 }}", "True x True"),
        ("{% set a, (b, c) = 1, [2, 3] %}{% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ a }}{{ c }}", "x113"),
    ],
)
def test_what_is_bounded_works_as_ever(source: str, text: str, bytes_tokenizer: Tokenizer) -> None:
    assert render(source, bytes_tokenizer) == text
