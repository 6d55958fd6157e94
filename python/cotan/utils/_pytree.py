"""torch.utils._pytree: trees of containers, whose leaves are everything else; None is a leaf too."""
import collections
import functools

from .. import tree_util

Context = PyTree = object
DictKey = MappingKey = tree_util.DictKey
SequenceKey, GetAttrKey, keystr = tree_util.SequenceKey, tree_util.GetAttrKey, tree_util.keystr
NodeDef = collections.namedtuple("NodeDef", "type flatten_fn unflatten_fn flatten_with_keys_fn", defaults=[None])


def _dict_flatten(d):
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d):
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values, context):
    return dict(zip(context, values))


def _indexed(x):
    return [(SequenceKey(i), value) for i, value in enumerate(x)], None


SUPPORTED_NODES = {
    tuple: NodeDef(tuple, lambda x: (list(x), None), lambda values, _: tuple(values), _indexed),
    list: NodeDef(list, lambda x: (x, None), lambda values, _: list(values), _indexed),
    dict: NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    collections.OrderedDict: NodeDef(collections.OrderedDict, _dict_flatten,
                                     lambda values, keys: collections.OrderedDict(zip(keys, values)), _dict_flatten_with_keys),
    collections.defaultdict: NodeDef(
        collections.defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d)]),
        lambda values, context: collections.defaultdict(context[0], zip(context[1], values)),
        lambda d: (_dict_flatten_with_keys(d)[0], [d.default_factory, list(d)])),
    collections.deque: NodeDef(collections.deque, lambda x: (list(x), x.maxlen), lambda values, n: collections.deque(values,
                                                                                                                     maxlen=n),
                               lambda x: (_indexed(x)[0], x.maxlen)),
}
_named_tuple = NodeDef(tuple, lambda x: (list(x), type(x)), lambda values, kind: kind(*values),
                       lambda x: ([(GetAttrKey(name), getattr(x, name)) for name in x._fields], type(x)))
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)


def _get_node_type(x):
    return collections.namedtuple if isinstance(x, tuple) and hasattr(x, "_fields") else type(x)


def _node_of(x):
    node = SUPPORTED_NODES.get(type(x))
    return _named_tuple if node is None and isinstance(x, tuple) and hasattr(x, "_fields") else node


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
                         from_dumpable_context=None, flatten_with_keys_fn=None):
    """Registers a container: flatten_fn(x) -> (children, context), unflatten_fn(children, context) -> x."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = _private_register_pytree_node = register_pytree_node


def register_dataclass(cls):
    import dataclasses
    names = [field.name for field in dataclasses.fields(cls)]
    register_pytree_node(cls, lambda x: ([getattr(x, name) for name in names], None),
                         lambda values, _: cls(**dict(zip(names, values))),
                         flatten_with_keys_fn=lambda x: ([(GetAttrKey(name), getattr(x, name)) for name in names], None))


class TreeSpec:
    """The structure of a tree: a node's type and context, and the structures of its children."""

    def __init__(self, type, context, children_specs):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_children = len(self.children_specs)
        self.num_leaves = sum(one.num_leaves for one in self.children_specs) if type is not None else 1
        self.num_nodes = 1 + sum(one.num_nodes for one in self.children_specs)

    def is_leaf(self):
        return self.type is None

    def __eq__(self, other):
        return isinstance(other, TreeSpec) and (self.type, self.context, self.children_specs) == (
            other.type, other.context, other.children_specs)

    def __hash__(self):
        return hash((self.type, tuple(self.children_specs)))

    def __repr__(self):
        return "*" if self.type is None else f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"

    def flatten_up_to(self, tree):
        """Returns the parts of a tree at this structure's leaves."""
        if self.type is None:
            return [tree]
        node = _node_of(tree)
        if node is None or type(tree) is not self.type and node is not _named_tuple:
            raise ValueError(f"Type mismatch; expected {self.type}, but got {type(tree)}.")
        children, context = node.flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if isinstance(tree, dict) and set(self.context) == set(tree) != set() and type(tree) is dict:
            children, context = [tree[key] for key in self.context], self.context
        if context != self.context:
            raise ValueError(f"Node context mismatch; expected {self.context!r}, but got {context!r}.")
        return [part for spec, child in zip(self.children_specs, children) for part in spec.flatten_up_to(child)]

    def unflatten(self, leaves):
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree "
                             f"that holds {self.num_leaves} items ({self}).")
        return self._build(iter(leaves))

    def _build(self, leaves):
        if self.type is None:
            return next(leaves)
        node = SUPPORTED_NODES.get(self.type, _named_tuple)
        return node.unflatten_fn([one._build(leaves) for one in self.children_specs], self.context)


class LeafSpec(TreeSpec):
    def __init__(self):
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def _flatten(tree, is_leaf, leaves):
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        leaves.append(tree)
        return _LEAF
    children, context = node.flatten_fn(tree)
    return TreeSpec(type(tree), context, [_flatten(child, is_leaf, leaves) for child in children])


def tree_flatten(tree, is_leaf=None):
    """Returns (leaves, TreeSpec)."""
    leaves = []
    return leaves, _flatten(tree, is_leaf, leaves)


def tree_unflatten(leaves, treespec):
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type "
                        f"{type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree, is_leaf=None):
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """Returns a tree of func(leaf, the parts of `rests` at its place)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *(spec.flatten_up_to(rest) for rest in rests)))


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls func as tree_map does, and returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types_or_pred):
    """Returns a decorator: the function is called with values of these types, others are given back."""
    chosen = type_or_types_or_pred
    if isinstance(chosen, (type, tuple)):
        def chosen(x):
            return isinstance(x, type_or_types_or_pred)
    return lambda func: functools.wraps(func)(lambda x: func(x) if chosen(x) else x)


def tree_map_only(type_or_types_or_pred, func, tree, is_leaf=None):
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_iter(tree, is_leaf)))


def _leaves_with_path(tree, path, is_leaf):
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        yield path, tree
        return
    if node.flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a flatten_with_keys_fn "
                         "argument to register_pytree_node.")
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from _leaves_with_path(child, (*path, key), is_leaf)


def tree_flatten_with_path(tree, is_leaf=None):
    """Returns ([(path, leaf)], TreeSpec)."""
    return list(_leaves_with_path(tree, (), is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    return spec.unflatten(map(func, *zip(*pairs), *(spec.flatten_up_to(rest) for rest in rests)) if pairs else [])


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """Returns the tree's leaves, each as often as the structure has leaves at its place; None if it does not fit."""
    if treespec.is_leaf() or _node_of(tree) is None or is_leaf is not None and is_leaf(tree):
        return [tree] * treespec.num_leaves
    children, context = _node_of(tree).flatten_fn(tree)
    if type(tree) is not treespec.type or len(children) != treespec.num_children or context != treespec.context:
        return None
    parts = [_broadcast_to_and_flatten(child, spec, is_leaf) for child, spec in zip(children, treespec.children_specs)]
    return None if None in parts else [x for part in parts for x in part]
