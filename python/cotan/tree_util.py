"""Trees of Python containers ("pytrees"), as in jax.tree_util.

A tree is a leaf, None (a node without leaves), or a tuple, list, dict, named tuple, OrderedDict, defaultdict,
Partial or registered class whose children are trees. Subclasses of tuple (except named tuples), list and dict
are leaves, as in JAX. A dict's children are in the order of its sorted keys. `tree_flatten` returns the
leaves from left to right and a `PyTreeDef`, which has everything else; its repr, and the strings that
`keystr` makes of paths, are JAX's.

Differences from JAX: errors name the position in the tree, and PyTreeDef lacks the methods that are specific
to JAX.
"""
import functools
from collections import OrderedDict, defaultdict

from ._paths import own_names as _own_names


# ------------------------------------------------------------------------------------------------ paths

class _Key:
    """A step of a path, with one field."""
    __slots__ = ("_value",)

    def __init__(self, value):
        self._value = value

    def __eq__(self, other):
        return type(self) is type(other) and self._value == other._value

    def __hash__(self):
        return hash((type(self), self._value))

    def __repr__(self):
        return f"{type(self).__name__}({self._field}={self._value!r})"


class SequenceKey(_Key):
    """A position in a tuple or list, `[0]`."""
    __slots__, _field = (), "idx"
    idx = property(lambda self: self._value)

    def __str__(self):
        return f"[{self.idx!r}]"


class DictKey(_Key):
    """A key of a dict, `['a']`."""
    __slots__, _field = (), "key"
    key = property(lambda self: self._value)

    def __str__(self):
        return f"[{self.key!r}]"


class GetAttrKey(_Key):
    """A field of a named tuple or dataclass, `.a`."""
    __slots__, _field = (), "name"
    name = property(lambda self: self._value)

    def __str__(self):
        return f".{self.name}"


class FlattenedIndexKey(_Key):
    """A child of a class that was registered without keys, `[<flat index 0>]`."""
    __slots__, _field = (), "key"
    key = property(lambda self: self._value)

    def __str__(self):
        return f"[<flat index {self.key}>]"


def keystr(keys, *, simple=False, separator=""):
    """Returns a path as a string: `['a'][0].b`; with simple=True only what is between the brackets: `a/0/b`
    for separator "/"."""
    def text(key):
        if isinstance(key, SequenceKey):
            return str(key.idx)
        if isinstance(key, GetAttrKey):
            return key.name
        return str(key.key if isinstance(key, (DictKey, FlattenedIndexKey)) else key)
    return separator.join(text(key) if simple else str(key) for key in keys)


def _path_text(path):
    return f"at {keystr(path)}" if path else "at the root"


# ------------------------------------------------------------------------------------------------ node types

class _NodeType:
    """The functions of a node type: flatten(x) -> (children, aux), unflatten(aux, children), keys(x, number
    of children)."""

    def __init__(self, flatten, unflatten, keys):
        self.flatten, self.unflatten, self.keys = flatten, unflatten, keys


def _sequence_keys(x, n):
    return [SequenceKey(i) for i in range(n)]


def _index_keys(x, n):
    return [FlattenedIndexKey(i) for i in range(n)]


def _dict_flatten(x):
    try:
        keys = sorted(x)
    except TypeError:
        raise ValueError(f"a dict's keys must be sortable, but {', '.join(map(repr, x))} are not") from None
    return [x[key] for key in keys], keys


_registry = {
    type(None): _NodeType(lambda x: ((), None), lambda aux, children: None, _sequence_keys),
    tuple: _NodeType(lambda x: (x, None), lambda aux, children: tuple(children), _sequence_keys),
    list: _NodeType(lambda x: (x, None), lambda aux, children: list(children), _sequence_keys),
    dict: _NodeType(_dict_flatten, lambda aux, children: dict(zip(aux, children)),
                    lambda x, n: [DictKey(key) for key in sorted(x)]),
    OrderedDict: _NodeType(lambda x: (tuple(x.values()), tuple(x)), lambda aux, children: OrderedDict(zip(aux, children)),
                           lambda x, n: [DictKey(key) for key in x]),
    defaultdict: _NodeType(lambda x: (lambda flat: (flat[0], (x.default_factory, tuple(flat[1]))))(_dict_flatten(x)),
                           lambda aux, children: defaultdict(aux[0], zip(aux[1], children)),
                           lambda x, n: [DictKey(key) for key in sorted(x)]),
}
_BUILT_IN = (tuple, list, dict)
_namedtuple = _NodeType(lambda x: (tuple(x), None), None, lambda x, n: [GetAttrKey(name) for name in x._fields])


def _node_type_of(x):
    """Returns the node type of a node, None for a leaf."""
    entry = _registry.get(type(x))
    if entry is None and isinstance(x, tuple) and hasattr(x, "_fields"):
        return _namedtuple
    return entry


def _register(nodetype, entry):
    if not isinstance(nodetype, type):
        raise TypeError(f"a type is registered, not {nodetype!r}")
    if nodetype in _registry:
        raise ValueError(f"{nodetype.__name__} is registered already")
    _registry[nodetype] = entry


def register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func=None):
    """Registers a node type: flatten_func(x) -> (children, aux), unflatten_func(aux, children) -> x.

    aux must be comparable with ==, and hashable where structures are put into sets. With
    flatten_with_keys_func, which returns pairs (key, child) for children, paths have these keys.
    """
    keys = _index_keys
    if flatten_with_keys_func is not None:
        def keys(x, n):
            return [key for key, _ in flatten_with_keys_func(x)[0]]
    _register(nodetype, _NodeType(flatten_func, unflatten_func, keys))


def register_pytree_with_keys(nodetype, flatten_with_keys, unflatten_func, flatten_func=None):
    """Registers a node type as register_pytree_node does, with flatten_with_keys(x) -> (pairs (key, child),
    aux) first."""
    def flatten(x):
        children, aux = flatten_with_keys(x)
        return [child for _, child in children], aux
    register_pytree_node(nodetype, flatten_func or flatten, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls):
    """A decorator: registers a class that has tree_flatten(self) -> (children, aux) and the classmethod
    tree_unflatten(aux, children)."""
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls):
    """A decorator: registers a class that has tree_flatten_with_keys(self), the classmethod tree_unflatten,
    and optionally tree_flatten."""
    flatten = (lambda x: x.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    register_pytree_with_keys(cls, lambda x: x.tree_flatten_with_keys(), cls.tree_unflatten, flatten)
    return cls


def register_static(cls):
    """A decorator: objects of the class are nodes without leaves, compared with ==."""
    register_pytree_node(cls, lambda x: ((), x), lambda x, children: x)
    return cls


def register_dataclass(nodetype, data_fields=None, meta_fields=None, drop_fields=()):
    """Registers a dataclass (or a class that takes its fields as keywords) as a node type: data_fields are
    children, meta_fields belong to the structure. Without both, fields with metadata={"static": True} are
    meta fields, all others data fields."""
    from dataclasses import fields, is_dataclass  # slow to import
    if (data_fields is None) != (meta_fields is None):
        raise TypeError("register_dataclass takes data_fields and meta_fields together or neither")
    if data_fields is None:
        if not is_dataclass(nodetype):
            raise TypeError(f"register_dataclass needs data_fields and meta_fields: {nodetype!r} is no dataclass")
        meta_fields = [f.name for f in fields(nodetype) if f.metadata.get("static", False) and f.name not in drop_fields]
        data_fields = [f.name for f in fields(nodetype) if f.init and f.name not in (*meta_fields, *drop_fields)]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if both := sorted({*data} & {*meta}):
        raise ValueError(f"register_dataclass: {', '.join(both)} cannot be both a data field and a meta field")
    if is_dataclass(nodetype):
        wanted = {f.name for f in fields(nodetype) if f.init} - {*drop_fields}
        if missing := sorted(wanted - {*data, *meta}):
            raise ValueError(f"register_dataclass: {nodetype.__name__} has the fields {', '.join(missing)}, which are "
                             "neither data_fields nor meta_fields nor drop_fields")
        if extra := sorted({*data, *meta} - wanted):
            raise ValueError(f"register_dataclass: {nodetype.__name__} takes no field {', '.join(extra)}")
    _register(nodetype, _NodeType(
        lambda x: (tuple(getattr(x, name) for name in data), tuple(getattr(x, name) for name in meta)),
        lambda aux, children: nodetype(**dict(zip(meta, aux)), **dict(zip(data, children))),
        lambda x, n: [GetAttrKey(name) for name in data]))
    return nodetype


class Partial(functools.partial):
    """functools.partial as a node: its arguments are children, its function belongs to the structure."""


register_pytree_node(Partial, lambda x: ((x.args, x.keywords), x.func),
                     lambda func, children: Partial(func, *children[0], **children[1]))


# ------------------------------------------------------------------------------------------------ structures

class PyTreeDef:
    """The structure of a tree: equal for trees that differ only in leaves; hashable, and a dict key if aux
    data are."""
    __slots__ = ("_type", "_aux", "_children", "num_leaves", "num_nodes")

    def __init__(self, node_type, aux, children):
        """node_type None means a leaf."""
        self._type, self._aux, self._children = node_type, aux, tuple(children)
        self.num_leaves = sum(child.num_leaves for child in self._children) if node_type else 1
        self.num_nodes = 1 + sum(child.num_nodes for child in self._children)

    def __getstate__(self):
        return self._type, self._aux, self._children

    def __setstate__(self, state):
        self.__init__(*state)

    def __eq__(self, other):
        if not isinstance(other, PyTreeDef):
            return NotImplemented
        return self._type is other._type and self._aux == other._aux and self._children == other._children

    def __hash__(self):
        # Equal structures have equal parts here; aux data may have no hash.
        return hash((self._type, self._children))

    def __repr__(self):
        return f"PyTreeDef({self._text()})"

    def _text(self):
        inside = [child._text() for child in self._children]
        if self._type is None:
            return "*"
        if self._type is type(None):
            return "None"
        if self._type is tuple:
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        if self._type is list:
            return f"[{', '.join(inside)}]"
        if self._type is dict:
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(self._aux, inside)) + "}"
        name, aux = ("namedtuple", self._type.__name__) if self._type not in _registry else (self._type.__name__, self._aux)
        return f"CustomNode({name}[{aux}], [{', '.join(inside)}])"

    def children(self):
        """Returns the structures of the root's children, a list."""
        return list(self._children)

    def node_data(self):
        """Returns (type, aux data) of the root, None for a leaf."""
        return None if self._type is None else (self._type, self._aux)

    def unflatten(self, leaves):
        return tree_unflatten(self, leaves)

    def flatten_up_to(self, tree):
        """Returns the subtrees of `tree` at this structure's leaves; raises an error that says where `tree`
        does not fit."""
        result = []
        _flatten_up_to(self, tree, result, (), "flatten_up_to: the tree does not fit the structure")
        return result

    def compose(self, inner):
        """Returns this structure with `inner` in place of each leaf."""
        if self._type is None:
            return inner
        return PyTreeDef(self._type, self._aux, [child.compose(inner) for child in self._children])

    def _build(self, leaves):
        """Builds the tree, which takes its leaves from an iterator."""
        if self._type is None:
            return next(leaves)
        children = [child._build(leaves) for child in self._children]
        entry = _registry.get(self._type)
        return entry.unflatten(self._aux, tuple(children)) if entry else self._type(*children)


_LEAF = PyTreeDef(None, None, ())


def _flatten(x, is_leaf, leaves, keys_of, path):
    """Returns the structure of x and appends its leaves to `leaves`, as pairs (path, leaf) if keys_of."""
    entry = None if is_leaf is not None and is_leaf(x) else _node_type_of(x)
    if entry is None:
        leaves.append((path, x) if keys_of else x)
        return _LEAF
    children, aux = entry.flatten(x)
    children = tuple(children)
    keys = entry.keys(x, len(children)) if keys_of else None
    return PyTreeDef(type(x), aux, [_flatten(child, is_leaf, leaves, keys_of, (*path, keys[i]) if keys_of else path)
                                    for i, child in enumerate(children)])


def _find_error(x, is_leaf, path):
    """Returns where flattening fails, (path, error) of the innermost node, or None."""
    entry = None if is_leaf is not None and is_leaf(x) else _node_type_of(x)
    if entry is None:
        return None
    try:
        children = tuple(entry.flatten(x)[0])
        keys = entry.keys(x, len(children))
    except Exception as error:
        return path, error
    result = (_find_error(child, is_leaf, (*path, key)) for child, key in zip(children, keys))
    return next((each for each in result if each), None)


def _checked_flatten(name, tree, is_leaf, with_path):
    leaves = []
    try:
        return leaves, _flatten(tree, is_leaf, leaves, with_path, ())
    except RecursionError:
        raise RecursionError(f"{name}: the tree contains itself, or is deeper than Python's recursion limit") from None
    except ValueError as error:
        where = _find_error(tree, is_leaf, ())
        if where is None:
            raise
        raise ValueError(f"{name}: {_path_text(where[0])}: {where[1]}") from error


def _kind(x):
    return "None" if x is None else f"a {type(x).__name__}"


def _listed(keys):
    return ", ".join(map(repr, keys)) or "none"


def _flatten_up_to(structure, x, result, path, what):
    if structure._type is None:
        result.append(x)
        return
    where = f"{what}: {_path_text(path)}: "
    entry = _node_type_of(x)
    if type(x) is not structure._type or entry is None:
        wanted = "None" if structure._type is type(None) else f"a {structure._type.__name__}"
        raise ValueError(f"{where}{wanted} is expected, got {_kind(x)}")
    if structure._type is dict and x.keys() != {*structure._aux}:
        raise ValueError(f"{where}a dict with the keys {_listed(structure._aux)} is expected, got one with {_listed(x)}")
    children, aux = entry.flatten(x)
    children = tuple(children)
    if len(children) != len(structure._children):
        raise ValueError(f"{where}a {structure._type.__name__} of {len(structure._children)} is expected, "
                         f"got one of {len(children)}")
    if structure._type not in _BUILT_IN and aux != structure._aux:
        raise ValueError(f"{where}a {structure._type.__name__} with {structure._aux!r} is expected, got one with {aux!r}")
    for child, inner, key in zip(children, structure._children, entry.keys(x, len(children))):
        _flatten_up_to(inner, child, result, (*path, key), what)


# ------------------------------------------------------------------------------------------------ functions

def tree_flatten(tree, is_leaf=None):
    """Returns (list of leaves, PyTreeDef). is_leaf(x) -> bool is called for each node first; if it is true,
    the node is a leaf."""
    return _checked_flatten("tree_flatten", tree, is_leaf, False)


def tree_leaves(tree, is_leaf=None):
    """Returns the leaves, from left to right."""
    return _checked_flatten("tree_leaves", tree, is_leaf, False)[0]


def tree_structure(tree, is_leaf=None):
    """Returns the PyTreeDef."""
    return _checked_flatten("tree_structure", tree, is_leaf, False)[1]


def tree_unflatten(treedef, leaves):
    """Returns the tree of this structure with these leaves (an iterable of as many as the structure has)."""
    leaves = list(leaves)
    if len(leaves) != treedef.num_leaves:
        raise ValueError(f"tree_unflatten: {treedef} has {treedef.num_leaves} leaves, {len(leaves)} were given")
    return treedef._build(iter(leaves))


def tree_flatten_with_path(tree, is_leaf=None):
    """Returns (list of pairs (path, leaf), PyTreeDef); a path is a tuple of SequenceKey, DictKey, GetAttrKey
    and so on."""
    return _checked_flatten("tree_flatten_with_path", tree, is_leaf, True)


def tree_leaves_with_path(tree, is_leaf=None):
    """Returns the pairs (path, leaf)."""
    return _checked_flatten("tree_leaves_with_path", tree, is_leaf, True)[0]


def _flatten_rest(name, structure, rest):
    """Returns for each leaf the subtrees at its position in the trees of `rest`."""
    columns = []
    for number, tree in enumerate(rest, 2):
        columns.append([])
        _flatten_up_to(structure, tree, columns[-1], (), f"{name}: tree {number} does not fit the first")
    return zip(*columns) if columns else iter(lambda: (), None)


def tree_map(f, tree, *rest, is_leaf=None):
    """Calls f with each leaf of `tree` and the subtrees at its position in the trees of `rest`; returns a
    tree of the results."""
    leaves, structure = _checked_flatten("tree_map", tree, is_leaf, False)
    return structure._build(iter([f(leaf, *others) for leaf, others in zip(leaves, _flatten_rest("tree_map", structure, rest))]))


def tree_map_with_path(f, tree, *rest, is_leaf=None):
    """The same as tree_map, with the leaf's path as f's first argument."""
    leaves, structure = _checked_flatten("tree_map_with_path", tree, is_leaf, True)
    others = _flatten_rest("tree_map_with_path", structure, rest)
    return structure._build(iter([f(path, leaf, *more) for (path, leaf), more in zip(leaves, others)]))


_MISSING = object()


def tree_reduce(function, tree, initializer=_MISSING, is_leaf=None):
    """Applies functools.reduce to the leaves."""
    leaves = tree_leaves(tree, is_leaf)
    if initializer is not _MISSING:
        return functools.reduce(function, leaves, initializer)
    if not leaves:
        raise TypeError("tree_reduce: a tree without leaves needs an initializer")
    return functools.reduce(function, leaves)


def tree_all(tree, *, is_leaf=None):
    """True if all leaves are true."""
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef, inner_treedef, pytree_to_transpose):
    """Turns a tree of outer structure whose leaves are trees of inner structure inside out. inner_treedef
    None means that of the first leaf."""
    subtrees = []
    _flatten_up_to(outer_treedef, pytree_to_transpose, subtrees, (),
                   "tree_transpose: the tree does not fit outer_treedef")
    if inner_treedef is None:
        if not subtrees:
            raise ValueError("tree_transpose: without leaves in outer_treedef, inner_treedef must be given")
        inner_treedef = tree_structure(subtrees[0])
    if not outer_treedef.num_leaves or not inner_treedef.num_leaves:
        raise ValueError("tree_transpose: outer_treedef and inner_treedef must each have a leaf")
    rows = []
    for subtree in subtrees:
        leaves, structure = tree_flatten(subtree)
        if structure != inner_treedef:
            raise ValueError(f"tree_transpose: {inner_treedef} is expected at each leaf of outer_treedef, got {structure}")
        rows.append(leaves)
    return tree_unflatten(inner_treedef, [tree_unflatten(outer_treedef, column) for column in zip(*rows)])


def all_leaves(iterable, is_leaf=None):
    """True if none of the values is a node."""
    return all(_node_type_of(x) is None or (is_leaf is not None and is_leaf(x)) for x in iterable)


def treedef_is_leaf(treedef):
    return treedef.num_nodes == 1  # also true for a node without children, as in JAX


def treedef_children(treedef):
    return treedef.children()


def treedef_tuple(treedefs):
    """Returns the structure of a tuple of trees, from their structures."""
    return PyTreeDef(tuple, None, treedefs)


__all__ = _own_names(globals())
