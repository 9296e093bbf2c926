"""
Which names a template uses that nothing in it defines: found in its parsed form, through extends, include and for.

A name that the step does not give renders as nothing, without an error; ``manage.py check`` compares what is found here
with the columns of the step's query.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from django.template import Template, TemplateDoesNotExist, TemplateSyntaxError
from django.template.base import FilterExpression, Node, NodeList, TokenType, Variable, VariableNode
from django.template.defaulttags import FilterNode, ForNode, IfNode, WithNode
from django.template.loader_tags import BlockNode, ExtendsNode, IncludeNode
from django.template.smartif import TokenBase
from django.templatetags.i18n import BlockTranslateNode

from .loading import template, try_template

#: What Django puts into every context.
BUILTIN = frozenset({"True", "False", "None", "forloop", "block"})
#: Attributes by which tags keep the name they store something under (``{% now "Y" as year %}``).
STORING = ("asvar", "target_var", "var_name", "variable_name", "variable", "as_var")
#: Stands for the names of a template that is chosen when it is rendered: they may be any.
ANY = ""
#: Templates within templates; a template that includes itself ends when it is rendered, not here.
DEPTH_MAX = 20


class Use(NamedTuple):
    """One use of a name: where it stands."""

    name: str
    template: str
    line: int


@dataclass(frozen=True)
class Walk:
    """Where the walk is: the names defined so far, the blocks of templates below, how deep."""

    bound: frozenset[str] = BUILTIN
    blocks: Mapping[str, tuple[BlockNode, str]] = field(default_factory=dict)
    name: str = ""
    line: int = 0
    depth: int = 0

    def binding(self, names: Iterable[str]) -> "Walk":
        """Return the walk with more names defined."""
        return replace(self, bound=self.bound | frozenset(names))


def unknown_names(name: str, known: Iterable[str]) -> list[Use]:
    """
    Return each use of a name, in a template of this name and those it consists of, that is not one of the known.

    Raises: TemplateDoesNotExist, TemplateSyntaxError.
    """
    start = Walk(bound=BUILTIN | frozenset(known), name=name)
    found = {use for use in walk_nodes(template(name).nodelist, start) if use.name != ANY}
    return sorted(found, key=lambda use: (use.template, use.line, use.name))


def names_of(compiled: Template) -> set[str]:
    """Return the names that a compiled template needs from outside; ``ANY`` among them when not all can be known."""
    return {use.name for use in walk_nodes(compiled.nodelist, Walk())}


def is_used(name: str, templates: Iterable[str]) -> bool:
    """Whether one of these templates uses, or may use, a name; those that are not there use none."""
    try:
        return any({name, ANY} & names_of(found) for found in filter(None, map(try_template, templates)))
    except (TemplateDoesNotExist, TemplateSyntaxError):  # rendering says so
        return True


def walk_nodes(nodes: Iterable[Node], walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of nodes in their order; what one stores is known to those after it."""
    for node in nodes:
        token = getattr(node, "token", None)
        walk = replace(walk, line=getattr(token, "lineno", None) or walk.line)
        yield from walk_node(node, walk)
        walk = walk.binding(stored_by(node))


def stored_by(node: Node) -> list[str]:
    """Return the names under which a tag stores something for what follows it."""
    found = [getattr(node, attribute, None) for attribute in STORING]
    return [name for name in found if isinstance(name, str)]


def walk_node(node: Node, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of one node."""
    match node:
        case ForNode():
            yield from walk_value(node.sequence, walk)
            yield from walk_value(node.nodelist_loop, walk.binding(node.loopvars))
            yield from walk_value(node.nodelist_empty, walk)
        case WithNode():
            yield from walk_value(node.extra_context, walk)
            yield from walk_nodes(node.nodelist, walk.binding(node.extra_context))
        case IfNode():
            for condition, nodes in node.conditions_nodelists:
                yield from walk_value(condition, walk)
                yield from walk_nodes(nodes, walk)
        case IncludeNode():
            yield from walk_include(node, walk)
        case ExtendsNode():
            yield from walk_extends(node, walk)
        case BlockNode():
            yield from walk_block(node, walk)
        case BlockTranslateNode():
            yield from walk_translation(node, walk)
        case VariableNode():
            yield from walk_value(node.filter_expression, walk)
        case FilterNode():
            yield from walk_value([node.filter_expr, node.nodelist], walk.binding(["var"]))
        case _:
            yield from walk_value(vars(node), walk.binding(stored_by(node)))


def walk_value(value: Any, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names in an expression, or in whatever holds some: a tag's arguments, a condition."""
    if isinstance(value, Variable):
        # ``lookups`` is None for a literal.
        if value.lookups and value.lookups[0] not in walk.bound:
            yield Use(value.lookups[0], walk.name, walk.line)
    elif isinstance(value, FilterExpression):
        yield from walk_value(value.var, walk)
        for _filter, arguments in value.filters:
            yield from walk_value([argument for _is_variable, argument in arguments], walk)
    elif isinstance(value, TokenBase):
        yield from walk_value([value.value, value.first, value.second], walk)
    elif isinstance(value, NodeList):
        yield from walk_nodes(value, walk)
    elif isinstance(value, Node):
        yield from walk_node(value, walk)
    elif isinstance(value, Mapping):
        yield from walk_value(list(value.values()), walk)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from walk_value(inner, walk)


def walk_include(node: IncludeNode, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of an include and, when its name is written out, of what it includes."""
    yield from walk_value([node.template, node.extra_context], walk)
    name = literal_of(node.template)
    if name is None or walk.depth >= DEPTH_MAX:
        yield Use(ANY, walk.name, walk.line)
        return
    bound = BUILTIN if node.isolated_context else walk.bound
    inner = Walk(bound=bound | frozenset(node.extra_context), name=name, depth=walk.depth + 1)
    try:
        found = template(name)
    except TemplateDoesNotExist:
        return  # rendering says so
    yield from walk_nodes(found.nodelist, inner)


def walk_extends(node: ExtendsNode, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of what a template extends, with its own blocks in place."""
    yield from walk_value(node.parent_name, walk)
    name = literal_of(node.parent_name)
    if name is None or walk.depth >= DEPTH_MAX:
        # What it extends is not known before it is rendered; its own blocks are.
        yield Use(ANY, walk.name, walk.line)
        for block in node.blocks.values():
            yield from walk_nodes(block.nodelist, walk)
        return
    blocks = {**{own: (block, walk.name) for own, block in node.blocks.items()}, **walk.blocks}
    inner = Walk(bound=walk.bound, blocks=blocks, name=name, depth=walk.depth + 1)
    yield from walk_nodes(template(name).nodelist, inner)


def walk_block(node: BlockNode, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of a block, as the lowest template has it; those of its parent when it is shown too."""
    block, name = walk.blocks.get(node.name, (node, walk.name))
    yield from walk_nodes(block.nodelist, replace(walk, name=name))
    if block is not node and "block" in names_in(block.nodelist):
        yield from walk_nodes(node.nodelist, walk)


def names_in(nodes: Iterable[Node]) -> set[str]:
    """Return the names that nodes use, whether defined or not."""
    return {use.name for use in walk_nodes(nodes, Walk(bound=frozenset()))}


def walk_translation(node: BlockTranslateNode, walk: Walk) -> Iterator[Use]:
    """Yield the unknown names of a translated text."""
    given = [*node.extra_context.values(), node.counter, node.message_context]
    yield from walk_value([value for value in given if isinstance(value, FilterExpression | Variable)], walk)
    bound = walk.bound | set(node.extra_context) | ({node.countervar} if node.countervar else set())
    for token in [*node.singular, *(node.plural or ())]:
        name = token.contents.split("|")[0].split(".")[0].strip()
        if token.token_type == TokenType.VAR and name not in bound:
            yield Use(name, walk.name, token.lineno or walk.line)


def literal_of(expression: Any) -> str | None:
    """Return the text of an expression that is one, written out."""
    variable = getattr(expression, "var", None)
    return variable if isinstance(variable, str) and not expression.filters else None
