"""Runs a chat template that nobody has to trust. Owns: the sandbox and its limits. Needs: jinja2. Never: messages, tokens.

Jinja's own sandbox keeps a template from Python's internals (CVE-2026-5760 and its kind). What it does not bound is memory
and time, so every loop step, call, and character that an expression makes is charged to a budget; when that or the time is
spent, the render ends with an error. Filters and string methods are those on a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Template, nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Macro, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edge.text.sandbox_budget import (
    CHECKED_FILTERS,
    MAX_NUMBER_BITS,
    STEP_COST,
    bounded_range,
    budget_for,
    charge,
    charged,
    charged_output,
    check_format,
    check_product,
    counted,
    raise_exception,
    replaced_size,
    size_of,
    strftime_now,
    to_json,
)

COUNTED = "_counted"
FILTERS = frozenset({
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format", "groupby", "indent",
    "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace",
    "reverse", "round", "safe", "select", "selectattr", "sort", "string", "striptags", "title", "trim", "unique", "upper",
    "wordcount",
})  # fmt: skip
STRING_METHODS = frozenset({
    "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdecimal", "isdigit",
    "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
    "strip", "swapcase", "title", "upper",
})  # fmt: skip


class _Generation(Extension):
    """{% generation %}: marks an assistant's words for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ChargingGenerator(CodeGenerator):
    """`a ~ b` and `a[b:c]` through the environment, which charges for them."""

    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Any) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.sliced(")
        self.visit(node.node, frame)
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            self.visit(nodes.Const(None) if bound is None else bound, frame)
        self.write(")")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template."""

    code_generator_class = _ChargingGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        # Not optimised: folding constants would run filters while compiling, outside of any budget.
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=charged_output,
                         extensions=[_Generation, "jinja2.ext.loopcontrols"])  # fmt: skip
        self.filters = {name: charged(function) for name, function in self.filters.items() if name in FILTERS}
        for name, checked in CHECKED_FILTERS.items():
            self.filters[name] = checked(self.filters[name])
        self.filters |= {COUNTED: counted, "tojson": to_json}
        self.globals = {
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": raise_exception,
            "range": bounded_range,
            "strftime_now": strftime_now,
        }
        self._macro_cost = STEP_COST

    def render(self, template: Template, variables: Mapping[str, Any], input_size: int) -> str:
        """The text that a template of this environment makes of `variables`, which hold `input_size` characters.

        Raises jinja2.TemplateError, and what Python raises where a template does something senseless.
        """
        with budget_for(input_size):
            return "".join(template.generate(variables))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        self._macro_cost = STEP_COST + _constant_length(tree)
        for loop in tree.find_all(nodes.For):
            if loop.recursive:
                raise SecurityError("it has a recursive loop, which is not supported")
            cost = nodes.Const(STEP_COST + sum(_constant_length(child) for child in loop.body))
            loop.iter = nodes.Filter(loop.iter, COUNTED, [cost], [], None, None, lineno=loop.lineno)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if not all(isinstance(number, int | float) for number in (left, right)):
                raise SecurityError("it raises something other than numbers to a power")
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_NUMBER_BITS:
                raise SecurityError("it computes an enormous number")
        elif operator == "%" and isinstance(left, str):
            check_format(left, right if isinstance(right, tuple) else (right,))
        elif operator == "*":
            check_product(left, right)
        elif operator == "+":
            charge(size_of(left) + size_of(right))
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr not in STRING_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        charge(__self._macro_cost if isinstance(__obj, Macro) else STEP_COST)
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            name = __obj.__name__
            if name == "join":
                args = (list(args[0]), *args[1:])
                charge(sum(map(size_of, args[0])) + len(owner) * len(args[0]))
            elif name == "replace":
                charge(replaced_size(owner, str(args[0]), str(args[1])))
            else:
                charge(len(owner))
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        formatted = wrapped

        def checked(*args: Any, **kwargs: Any) -> str:
            check_format(value.__self__, (*args, *kwargs.values()))
            return formatted(*args, **kwargs)

        return checked

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        charge(size_of(value))
        return value[start:stop:step]

    def joined(self, parts: tuple[Any, ...]) -> str:
        """`a ~ b`."""
        text = [str(part) for part in parts]
        charge(sum(map(len, text)))
        return str_join(text)


def _constant_length(node: nodes.Node) -> int:
    own = len(node.data) if isinstance(node, nodes.TemplateData) else 0
    return own + sum(len(data.data) for data in node.find_all(nodes.TemplateData))
