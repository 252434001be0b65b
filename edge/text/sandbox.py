"""Runs a chat template that nobody has to trust. Owns: the sandbox: what a template reaches, and the way of all that it does
past the budget. Needs: jinja2. Never: messages, tokens.

Jinja's own sandbox keeps a template from Python's internals (CVE-2026-5760 and its kind). What it does not bound is memory
and time, so every loop step, call, comparison, and character that an expression makes is charged to a budget; when that or
the time is spent, the render ends with an error. Attributes, filters and functions are those on a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Template, nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from edge.text.sandbox_budget import (
    MAX_NUMBER_BITS,
    STEP_COST,
    budget_for,
    charge,
    charge_comparison,
    check_built,
    counted,
    length_of,
    text_of,
    written_size,
)
from edge.text.sandbox_filters import (
    bounded_filters,
    bounded_range,
    bounded_tests,
    charge_replaced,
    charge_searched,
    raise_exception,
    strftime_now,
)
from edge.text.sandbox_formats import check_brace_format, check_percent_format

COUNTED, COMPARED = "_counted", "_compared"  # filters of our own, put in where a template is compiled
# What a template may take from a value of each type; from any other nothing.
ATTRIBUTES: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdecimal", "isdigit",
        "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
        "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith",
        "strip", "swapcase", "title", "upper",
    }),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
    dict: frozenset({"get", "items", "keys", "values"}),
    LoopContext: frozenset({
        "changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex",
        "revindex0",
    }),
}  # fmt: skip


class _Generation(Extension):
    """{% generation %}: marks an assistant's words for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _ChargingGenerator(CodeGenerator):
    """`a ~ b`, `a[b:c]` and new lists through the environment, which charges for them."""

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

    def visit_List(self, node: nodes.List, frame: Any) -> None:
        self.write("environment.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Any) -> None:
        self.write("environment.built(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Any) -> None:
        if node.ctx != "load":  # names that are set
            super().visit_Tuple(node, frame)
            return
        self.write("environment.built(")
        super().visit_Tuple(node, frame)
        self.write(")")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template."""

    code_generator_class = _ChargingGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        # Not optimised: folding constants would run filters while compiling, outside of any budget.
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=text_of,
                         extensions=[_Generation, "jinja2.ext.loopcontrols"])  # fmt: skip
        self.filters = {**bounded_filters(self.filters), COUNTED: counted, COMPARED: _compared}
        self.tests = bounded_tests(self.tests)
        self.globals = {
            "dict": dict,
            "namespace": Namespace,
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
            loop.iter = _filtered(loop.iter, COUNTED, cost)
        for comparison in tree.find_all(nodes.Compare):
            comparison.expr = _filtered(comparison.expr, COMPARED)
            for operand in comparison.ops:
                operand.expr = _filtered(operand.expr, COMPARED)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if not all(isinstance(number, int | float) for number in (left, right)):
                raise SecurityError("it raises something other than numbers to a power")
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_NUMBER_BITS:
                raise SecurityError("it computes an enormous number")
        elif operator == "%" and isinstance(left, str):
            check_percent_format(left, right if isinstance(right, tuple) else (right,))
        elif operator == "*":
            _check_product(left, right)
        elif operator == "+":
            charge(length_of(left) + length_of(right))
        result = super().call_binop(context, operator, left, right)
        check_built([result])
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if type(obj) is Namespace:
            return super().is_safe_attribute(obj, attr, value)
        return attr in ATTRIBUTES.get(type(obj), ())

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):  # a key is hashed, all that it holds
            charge_comparison(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        charge(len(args) + len(kwargs) + (__self._macro_cost if isinstance(__obj, Macro) else STEP_COST))
        check_built((*args, *kwargs.values()))
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            args = _charge_text_method(owner, __obj.__name__, args)
        elif not isinstance(__obj, Macro):
            charge_comparison(*args, *kwargs.values(), *(owner if isinstance(owner, list | tuple) else ()))
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        formatted = wrapped

        def checked(*args: Any, **kwargs: Any) -> str:
            check_brace_format(value.__self__, (*args, *kwargs.values()))
            return formatted(*args, **kwargs)

        return checked

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        charge(length_of(value))
        return value[start:stop:step]

    def joined(self, parts: tuple[Any, ...]) -> str:
        """`a ~ b`."""
        return "".join(map(text_of, parts))

    def built(self, value: Any) -> Any:
        """A list, tuple or dict that stands in the template."""
        charge(STEP_COST + len(value))
        check_built([value])
        return value


def _filtered(expression: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    """`expression | name(args)`."""
    assert isinstance(expression, nodes.Expr)
    return nodes.Filter(expression, name, list(args), [], None, None, lineno=expression.lineno)


def _compared(value: Any) -> Any:
    """One side of a comparison."""
    charge_comparison(value)
    return value


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_NUMBER_BITS:
            raise SecurityError("it computes an enormous number")
        return
    for text, times in ((left, right), (right, left)):
        if isinstance(text, str | list | tuple) and isinstance(times, int):
            charge(len(text) * max(times, 0))


def _charge_text_method(text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Charges for the method `name` of `text`; its arguments, a generator among them as the list that it gives."""
    if name == "join":
        parts = list(counted(args[0], 1))
        charge(sum(map(written_size, parts)) + len(text) * len(parts))
        return (parts, *args[1:])
    if name == "replace":
        charge_replaced(text, *args[:2])
    charge_searched(text, *args)
    return args


def _constant_length(node: nodes.Node) -> int:
    own = len(node.data) if isinstance(node, nodes.TemplateData) else 0
    return own + sum(len(data.data) for data in node.find_all(nodes.TemplateData))
