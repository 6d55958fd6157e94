"""What the source of a Python file shows of types: what functions return and what __init__ assigns."""
import ast
from pathlib import Path

_CALLS = {"len": "int", "isinstance": "bool", "any": "bool", "all": "bool", "bool": "bool", "int": "int", "str": "str"}


class Source:
    """functions: {path: type, or None if that is not seen}; attributes: {class: [(name, "Parameter" or the name assigned)]};
    imported and assigned: names at the top."""

    def __init__(self, path):
        self.functions, self.attributes, self.imported, self.assigned = {}, {}, set(), set()
        self.is_python = bool(path and path.endswith(".py"))
        if self.is_python:
            self._read(ast.parse(Path(path).read_text()), "")

    def _read(self, node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self._read(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                self.functions[prefix + child.name] = _returned(child)
                if child.name == "__init__":
                    self.attributes[prefix[:-1]] = list(_assigned(child))
            elif isinstance(child, (ast.If, ast.Try, ast.With)):
                self._read(child, prefix)
            elif isinstance(child, (ast.ImportFrom, ast.Import)):
                self.imported |= {alias.asname or alias.name for alias in child.names}
            elif isinstance(child, ast.Assign):
                self.assigned |= {target.id for target in child.targets if isinstance(target, ast.Name)}


def _own_nodes(function):
    """Yields the nodes of a function without those of functions inside of it."""
    queue = list(function.body)
    while queue:
        node = queue.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            queue += ast.iter_child_nodes(node)


def _returned(function):
    nodes = list(_own_nodes(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        return "Any" if function.decorator_list else "Iterator[Any]"
    kinds = {_kind(node.value) for node in nodes if isinstance(node, ast.Return) and node.value is not None}
    if not kinds:
        return None if isinstance(function.body[-1], ast.Raise) else "None"
    return kinds.pop() if len(kinds) == 1 else None


def _kind(value):
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not) or \
            isinstance(value, ast.Compare) and isinstance(value.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return "bool"
    if isinstance(value, ast.Constant) and type(value.value) in (bool, str):
        return type(value.value).__name__
    if isinstance(value, ast.Name) and value.id == "self":
        return "Self"
    return "str" if isinstance(value, ast.JoinedStr) else _CALLS.get(getattr(getattr(value, "func", None), "id", ""))


def _assigned(function):
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            several = isinstance(target, ast.Tuple)
            targets = target.elts if several else [target]
            values = node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value] * len(targets)
            for one, value in zip(targets, values):
                if isinstance(one, ast.Attribute) and getattr(one.value, "id", "") == "self":
                    is_parameter = getattr(getattr(value, "func", None), "id", "") in ("Parameter", "_empty_parameter")
                    yield one.attr, "Parameter" if is_parameter else getattr(value, "id", None)
