"""Chat templates by a grammar. Owns: its words, the ways to damage a template. Needs: nothing. Never: the sandbox."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

NAMES = ("messages", "message", "tools", "bos_token", "add_generation_prompt", "ns", "x", "message.content", "message.role",
         "messages[0]", "x", "message")  # fmt: skip
ODD_NAMES = (
    "loop", "undefined_name", "self", "range", "namespace", "dict", "raise_exception", "strftime_now", "caller", "varargs",
    "cycler", "lipsum", "__builtins__", "m",
)  # fmt: skip
ATTRIBUTES = ("role", "content", "upper", "split", "strip", "join", "replace", "items", "get", "x")
ODD_ATTRIBUTES = (
    "format", "index0", "last", "tool_calls", "__class__", "__globals__", "__init__", "__mro__", "mro", "gi_frame",
    "format_map", "append", "pop", "update", "encode", "zfill", "ljust", "translate", "previtem", "cycle", "changed",
)  # fmt: skip
FILTERS = (
    "trim", "length", "tojson", "join", "first", "last", "upper", "replace('a', 'b')", "default('x')", "list", "int",
    "float", "map(attribute='role')", "selectattr('role', 'equalto', 'user')", "reject('none')", "sort", "unique", "max",
    "min", "indent(4)", "round(2)", "abs", "string", "safe", "e", "items", "dictsort", "reverse", "format(1)", "wordcount",
    "title", "tojson(indent=2)", "join(x)",
)  # fmt: skip
ODD_FILTERS = ("attr('x')", "batch(2)", "groupby('role')", "xmlattr", "urlize", "pprint", "random", "sum", "center", "x")
PREAMBLE = (
    "{% set ns = namespace(x=1) %}{% set x = 'abc' %}{% set message = messages[0] %}{% macro m(x=1) %}{{ x }}{% endmacro %}"
)
TESTS = (
    "defined",
    "none",
    "string",
    "mapping",
    "iterable",
    "number",
    "sameas x",
    "equalto 1",
    "in messages",
    "divisibleby 0",
    "odd",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", " and ", " or ", " in ", " not in ")
CONSTANTS = (
    "0", "1", "-1", "2", "1.5", "1e308", "99999999999999999999", "10 ** 9", "''", "'a'", "'%s%5d'", "'{:>9}{0}'", "'\\n'",
    "none", "true", "[]", "{}", "[1, 'a']", "{'a': 1}", "()", "(1,)", "'<|im_start|>'", "'ß' * 3", "'\\ud800'", "'\\x1b'",
)  # fmt: skip
RUNS = (
    ("(", ")"), ("[", "]"), ("{% if 1 %}", "{% endif %}"), ("{% for x in [1] %}", "{% endfor %}"), ("not ", ""),
    ("1 + ", ""), ("'a' ~ ", ""), ("x.", ""), ("x|trim|", "trim"), ("{% elif x %}", ""), ("-", ""), ("{'a':", "}"),
    ("{% set x = 1 %}", ""), ("{{ x }}", ""), ("x if x else ", ""), ("{% macro m() %}", "{% endmacro %}"), ("f(", ")"),
    ("x[", "]"), ("x and ", ""), ("1 < ", ""), ("{#", "#}"), ("{% raw %}", ""),
)  # fmt: skip
DEPTH = 3  # of statements in statements
_NAMED = frozenset(
    {"messages", "message", "tools", "content", "role", "loop", "index0", "ns", "trim", "system_message", "tool_call"}
)
_TOKEN = re.compile(r"\{[{%#]-?|-?[%}#]\}|\w+|'[^']*'|\s+|.", re.DOTALL)


def _usual(random: Random, usual: Sequence[str], odd: Sequence[str]) -> str:
    return random.choice(usual if random.random() < 0.9 else odd)


def expression(random: Random, depth: int) -> str:
    """An expression nested at most `depth` deep."""
    if depth <= 0:
        return _usual(random, NAMES, ODD_NAMES) if random.random() < 0.5 else random.choice(CONSTANTS)
    inner = expression(random, depth - 1)
    match random.randrange(11):
        case 0 | 1:
            return f"({inner} {random.choice(OPERATORS)} {expression(random, depth - 1)})"
        case 2 | 3:
            return f"{inner} | {_usual(random, FILTERS, ODD_FILTERS)}"
        case 4:
            return f"{inner}.{_usual(random, ATTRIBUTES, ODD_ATTRIBUTES)}"
        case 5:
            return f"{inner}[{expression(random, depth - 1)}]"
        case 6:
            return f"{inner}[{random.choice(CONSTANTS)}:{random.choice(('', '1', '-1', 'x'))}:{random.choice(('', '-1', '0'))}]"
        case 7:
            return f"{inner}.{_usual(random, ATTRIBUTES, ODD_ATTRIBUTES)}({expression(random, depth - 1)})"
        case 8:
            function = random.choice(("m", "range", "namespace", "dict", "strftime_now", *ODD_NAMES))
            return f"{function}({inner}{random.choice(('', '', ', x=1', ', *messages', ', **message'))})"
        case 9:
            return f"({inner} if {expression(random, depth - 1)} is {random.choice(TESTS)} else {random.choice(CONSTANTS)})"
        case _:
            return random.choice(("not ", "-", "+")) + inner


def template(random: Random, depth: int = DEPTH) -> str:
    """A template of a few statements."""
    text = "".join(_statement(random, depth) for _ in range(random.randint(1, 3)))
    return PREAMBLE + text if depth == DEPTH and random.random() < 0.9 else text


def _statement(random: Random, depth: int) -> str:
    if depth <= 0:
        return random.choice(("x", "\n", "{{ message.content }}", "{{ x }}", "<|im_start|>", "{#c#}"))
    value = expression(random, random.randint(0, 3))
    body = template(random, depth - 1)
    match random.randrange(13):
        case 0 | 1 | 2:
            return f"{{{{ {value} }}}}"
        case 3 | 4:
            target = random.choice(("message", "x", "a, b", "loop", "ns.x", "range"))
            inside = random.choice(("", "", "{{ loop.index0 }}", "{% if loop.last %}{% break %}{% endif %}", "{% continue %}"))
            how = random.choice(("", "", "", " if x", " recursive")) if random.random() < 0.3 else ""
            return f"{{% for {target} in {value}{how} %}}{inside}{body}{{% else %}}e{{% endfor %}}"
        case 5:
            return f"{{%- if {value} -%}}{body}{{% elif x %}}y{{% else %}}{body}{{% endif %}}"
        case 6:
            return f"{{% set {random.choice(('x', 'ns', 'ns.x', 'x, y', 'messages', 'loop', 'self'))} = {value} %}}"
        case 7:
            return f"{{% set x %}}{body}{{% endset %}}{{{{ x }}}}"
        case 8:
            return (
                f"{{% macro m(x={value}) %}}{body}{random.choice(('', '{{ caller() }}'))}{{% endmacro %}}{{{{ m({value}) }}}}"
            )
        case 9:
            return f"{{% call m() %}}{body}{{% endcall %}}"
        case 10:
            return f"{{% filter {_usual(random, FILTERS, ODD_FILTERS)} %}}{body}{{% endfilter %}}"
        case 11:
            return f"{{% generation %}}{body}{{% endgeneration %}}"
        case _:
            odd = ("autoescape true", "trans", "include 'x'", "extends x", "import 'x' as y", "do x")
            word = _usual(random, ("with x = 1", "block b", "raw"), odd)
            return f"{{% {word} %}}{body}{{% end{word.split()[0]} %}}"


def damaged(random: Random, seeds: Sequence[str]) -> str:
    """A seed with some of its tokens replaced, moved, doubled or gone."""
    tokens = _TOKEN.findall(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(tokens))
        if random.random() < 0.7:  # a word or a text for another, so that it stays a template
            words = [place for place, token in enumerate(tokens) if token[0] == "'" or token in _NAMED] or [at]
            tokens[random.choice(words)] = random.choice((expression(random, 1), *NAMES, *CONSTANTS))
            continue
        match random.randrange(6):
            case 0:
                tokens[at] = random.choice(NAMES + ATTRIBUTES + CONSTANTS + OPERATORS)
            case 1:
                del tokens[at : at + random.choice((1, 1, 5, 50))]
            case 2:
                tokens[at:at] = tokens[at : at + random.choice((1, 5, 50))] * random.choice((1, 2, 100))
            case 3:
                tokens[at] = random.choice(tokens)
            case 4:
                tokens[at] = f" {expression(random, 2)} "
            case _:
                tokens[at:at] = [template(random, 2)]
        tokens = tokens or [" "]
    return "".join(tokens)


def monstrous(random: Random) -> str:
    """Deep, long or wide beyond sense."""
    count = random.choice((50, 400, 3000, 20_000))
    left, right = random.choice(RUNS)
    text = left * count + "1" + right * count
    return text if "{" in left[:1] and left[:2] != "{'" else f"{{{{ {text} }}}}"
