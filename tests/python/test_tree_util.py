"""Trees against jax.tree_util: leaves, structures, paths, maps and their inverses; errors name the place."""
import pickle
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import jax
import jax.flatten_util
import jax.tree_util as theirs
import numpy
import pytest

import cotan
import cotan.tree_util as ours
from cotan.flatten_util import ravel_pytree

Point = namedtuple("Point", "x y")


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return (self.a, self.b) == (other.a, other.b)


class Keyed(Pair):
    def tree_flatten_with_keys(self):
        return [("first", self.a), ("second", self.b)], None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


class Methods(Pair):
    def tree_flatten(self):
        return (self.a,), self.b

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children, aux)


@dataclass
class Layer:
    weight: object
    bias: object
    name: str = ""


@dataclass
class Marked:
    data: object
    kind: str = field(default="k", metadata={"static": True})


@dataclass(frozen=True)
class Constant:
    value: int


class ListOfOurs(list):
    pass


for each in (ours, theirs):
    each.register_pytree_node(Pair, lambda x: ((x.a, x.b), ("aux", 1)), lambda aux, children: Pair(*children))
    each.register_pytree_with_keys_class(Keyed)
    each.register_pytree_node_class(Methods)
    each.register_dataclass(Layer, ["weight", "bias"], ["name"])
    each.register_dataclass(Marked)
    each.register_static(Constant)


def partial(module, *args, **kwargs):
    return module.Partial(*args, **kwargs)


TREES = [
    lambda m: 1,
    lambda m: None,
    lambda m: (),
    lambda m: [],
    lambda m: {},
    lambda m: (1,),
    lambda m: [1, (2, 3), [4, [5]]],
    lambda m: {"b": 1, "a": [2, None]},
    lambda m: {2: "x", 1: {"y": (1, None, ())}},
    lambda m: Point(1, Point([2, 3], {"z": 4})),
    lambda m: OrderedDict([("b", 1), ("a", (2, 3))]),
    lambda m: defaultdict(list, b=[1], a=2),
    lambda m: Pair(1, {"k": Pair(2, None)}),
    lambda m: Keyed([1, 2], 3),
    lambda m: Methods((1, 2), "label"),
    lambda m: Layer([1.0, 2.0], None, "linear"),
    lambda m: [Marked({"w": 1, "b": 2}, "dense"), Marked(3)],
    lambda m: m.Partial(max, 1, [2, 3], key={"a": 4}),
    lambda m: deque([1, 2]),
    lambda m: ListOfOurs([1, 2]),
    lambda m: [Constant(3), 4],
    lambda m: {"layers": [{"w": 1, "b": None} for _ in range(3)], "head": (Point(1, 2),), ("x",)[0]: {}},
    lambda m: {"it's": 1, 'a "b"': 2, "a\n": 3},
    lambda m: [True, 1.5, "text", b"bytes", 1j, {1}, frozenset([1])],
]


@pytest.mark.parametrize("make", TREES)
def test_trees_equal_jax(make):
    a, b = make(ours), make(theirs)
    leaves, structure = ours.tree_flatten(a)
    expected, jax_structure = theirs.tree_flatten(b)
    assert leaves == expected == ours.tree_leaves(a)
    assert repr(structure).replace("cotan.", "") == repr(jax_structure).replace("jax.", "")
    assert structure.num_leaves == jax_structure.num_leaves and structure.num_nodes == jax_structure.num_nodes
    assert structure == ours.tree_structure(a) and hash(structure) == hash(ours.tree_structure(a))
    assert [repr(c) for c in structure.children()] == [repr(c) for c in jax_structure.children()]
    assert ours.treedef_is_leaf(structure) == theirs.treedef_is_leaf(jax_structure)
    paths, _ = ours.tree_flatten_with_path(a)
    jax_paths, _ = theirs.tree_flatten_with_path(b)
    assert [leaf for _, leaf in paths] == [leaf for _, leaf in jax_paths]
    assert [repr(path) for path, _ in paths] == [repr(path) for path, _ in jax_paths]
    assert [ours.keystr(path) for path, _ in paths] == [theirs.keystr(path) for path, _ in jax_paths]
    back = ours.tree_unflatten(structure, leaves)
    assert type(back) is type(a) and ours.tree_structure(back) == structure and ours.tree_leaves(back) == leaves
    if not isinstance(a, ours.Partial):
        assert back == a
    numbered = ours.tree_map(lambda x, y: (repr(x), y), a, ours.tree_unflatten(structure, range(len(leaves))))
    assert [leaf for _, leaf in zip(leaves, ours.tree_leaves(numbered, lambda x: isinstance(x, tuple) and len(x) == 2
                                    and isinstance(x[0], str)))] == [(repr(x), i) for i, x in enumerate(leaves)]
    named = ours.tree_map_with_path(lambda path, x: ours.keystr(path), a)
    assert ours.tree_leaves(named) == [theirs.keystr(path) for path, _ in jax_paths]
    composed = structure.compose(ours.tree_structure({"q": [0, None]}))
    assert repr(composed) == repr(jax_structure.compose(theirs.tree_structure({"q": [0, None]})))


@pytest.mark.parametrize("make", TREES)
def test_trees_are_vectors(make):
    """Leaves of several shapes and dtypes as one vector, as jax.flatten_util has it, and back."""
    def arrays(m, mixed):
        leaves, structure = m.tree_flatten(make(m))
        dtypes = ["float32", "float32", "int32"] if mixed else ["float32"]
        values = [numpy.arange(2.0 * i).reshape(2, i)[:, ::-1].astype(dtypes[i % len(dtypes)]) for i in range(len(leaves))]
        return m.tree_unflatten(structure, [cotan.asarray(x) if m is ours else jax.numpy.asarray(x) for x in values])

    for mixed in (False, True):
        vector, unravel = ravel_pytree(arrays(ours, mixed))
        wanted, their_unravel = jax.flatten_util.ravel_pytree(arrays(theirs, mixed))
        assert vector.dtype.name == str(wanted.dtype) and vector.tolist() == wanted.tolist()
        back, their_back = unravel(vector * 2), their_unravel(wanted * 2)
        assert ours.tree_structure(back) == ours.tree_structure(arrays(ours, mixed))
        for a, b in zip(ours.tree_leaves(back), theirs.tree_leaves(their_back)):
            assert (a.dtype.name, tuple(a.shape), a.tolist()) == (str(b.dtype), b.shape, b.tolist())


def test_gradients_pass_through_vectors():
    tree = {"w": cotan.asarray([[1.0, 2.0]]), "b": cotan.asarray(3.0)}
    vector, unravel = ravel_pytree(tree)
    slope = cotan.grad(lambda v: (unravel(v)["w"] ** 2).sum() * unravel(v)["b"])(vector)
    assert vector.tolist() == [3, 1, 2] and slope.tolist() == [5, 6, 12]
    assert cotan.grad(lambda t: (ravel_pytree(t)[0] ** 2).sum())(tree)["w"].tolist() == [[2, 4]]
    with pytest.raises(ValueError, match=r"^unravel: the tree has 3 elements, a vector of \(3,\) is expected, got \(4,\)$"):
        unravel(cotan.ones(4))


def test_structures_differ():
    structures = [ours.tree_structure(make(ours)) for make in TREES]
    jaxes = [theirs.tree_structure(make(theirs)) for make in TREES]
    equal = [[a == b for b in structures] for a in structures]
    assert equal == [[a == b for b in jaxes] for a in jaxes]
    assert ours.tree_structure({"a": 1}) != ours.tree_structure({"b": 1})
    assert ours.tree_structure(Methods(1, "x")) != ours.tree_structure(Methods(1, "y"))
    assert ours.tree_structure(1) != 1
    again = pickle.loads(pickle.dumps(ours.tree_structure([1, {"a": Point(2, None)}])))
    assert again == ours.tree_structure([1, {"a": Point(2, None)}]) and again.num_leaves == 2


def test_functions():
    tree = {"a": [1, 2], "b": (3, None)}
    assert ours.tree_reduce(lambda a, b: a * 10 + b, tree) == 123
    assert ours.tree_reduce(lambda a, b: a + [b], tree, []) == [1, 2, 3]
    assert ours.tree_all(tree) and not ours.tree_all([1, 0]) and ours.tree_all([])
    assert ours.tree_leaves(tree, is_leaf=lambda x: isinstance(x, list)) == [[1, 2], 3]
    assert ours.tree_leaves([1, None], is_leaf=lambda x: x is None) == [1, None]
    assert ours.tree_map(lambda x, y: (x, y), [1, (2,)], [{"k": 3}, ([4, 5],)]) == [(1, {"k": 3}), ((2, [4, 5]),)]
    for m in (ours, theirs):
        inner = m.tree_structure({"x": 0, "y": [0]})
        turned = m.tree_transpose(m.tree_structure([0, 0]), inner, [{"x": 1, "y": [2]}, {"x": 3, "y": [4]}])
        assert turned == {"x": [1, 3], "y": [[2, 4]]}
        assert m.tree_transpose(m.tree_structure([0, 0]), None, [(1, 2), (3, 4)]) == ([1, 3], [2, 4])
        assert m.all_leaves([1, "a"]) and not m.all_leaves([1, (2,)])
        assert repr(m.treedef_tuple([inner, inner])) == "PyTreeDef(({'x': *, 'y': [*]}, {'x': *, 'y': [*]}))"
        assert m.treedef_children(inner)[0] == m.tree_structure(0)
        add = m.tree_map(lambda x: x * 2, m.Partial(pow, 3, 2))
        assert add() == 6**4 and isinstance(add, m.Partial)
    path = ours.tree_leaves_with_path({"a": [Point(0, Pair(1, 2))]})[2][0]
    assert ours.keystr(path, simple=True, separator="/") == "a/0/y/1"
    assert ours.keystr(path) == "['a'][0].y[<flat index 1>]"
    built = defaultdict(list, a=1)
    assert ours.tree_map(lambda x: x + 1, built).default_factory is list


@pytest.mark.parametrize("call, kind, text", [
    (lambda: ours.tree_flatten({"a": [{1: 2, "x": 3}]}), ValueError,
     "tree_flatten: at ['a'][0]: a dict's keys must be sortable, but 1, 'x' are not"),
    (lambda: ours.tree_unflatten(ours.tree_structure([1, 2]), [1]), ValueError,
     "tree_unflatten: PyTreeDef([*, *]) has 2 leaves, 1 were given"),
    (lambda: ours.tree_map(max, {"a": [1, 2]}, {"a": [1]}), ValueError,
     "tree_map: tree 2 does not fit the first: at ['a']: a list of 2 is expected, got one of 1"),
    (lambda: ours.tree_map(max, [1, (2,)], [1, (2,)], [1, [2]]), ValueError,
     "tree_map: tree 3 does not fit the first: at [1]: a tuple is expected, got a list"),
    (lambda: ours.tree_map(max, {"a": 1, "b": 2}, {"a": 1}), ValueError,
     "tree_map: tree 2 does not fit the first: at the root: a dict with the keys 'a', 'b' is expected, got one with 'a'"),
    (lambda: ours.tree_map(max, [None], [1]), ValueError,
     "tree_map: tree 2 does not fit the first: at [0]: None is expected, got a int"),
    (lambda: ours.tree_map(max, Point(1, [2]), Point(1, None)), ValueError,
     "tree_map: tree 2 does not fit the first: at .y: a list is expected, got None"),
    (lambda: ours.tree_map_with_path(max, [Methods(1, "x")], [Methods(1, "y")]), ValueError,
     "tree_map_with_path: tree 2 does not fit the first: at [0]: a Methods with 'x' is expected, got one with 'y'"),
    (lambda: ours.tree_structure([0]).flatten_up_to((1,)), ValueError,
     "flatten_up_to: the tree does not fit the structure: at the root: a list is expected, got a tuple"),
    (lambda: ours.tree_reduce(max, []), TypeError, "tree_reduce: a tree without leaves needs an initializer"),
    (lambda: ours.tree_transpose(ours.tree_structure([0, 0]), None, [(1, 2), (3,)]), ValueError,
     "tree_transpose: PyTreeDef((*, *)) is expected at each leaf of outer_treedef, got PyTreeDef((*,))"),
    (lambda: ours.tree_transpose(ours.tree_structure([]), ours.tree_structure([0]), []), ValueError,
     "tree_transpose: outer_treedef and inner_treedef must each have a leaf"),
    (lambda: ours.tree_transpose(ours.tree_structure([]), None, []), ValueError,
     "tree_transpose: without leaves in outer_treedef, inner_treedef must be given"),
    (lambda: ours.register_pytree_node(Pair, None, None), ValueError, "Pair is registered already"),
    (lambda: ours.register_pytree_node(3, None, None), TypeError, "a type is registered, not 3"),
    (lambda: ours.register_dataclass(Pair), TypeError,
     f"register_dataclass needs data_fields and meta_fields: {Pair!r} is no dataclass"),
    (lambda: ours.register_dataclass(Layer, ["weight"]), TypeError,
     "register_dataclass takes data_fields and meta_fields together or neither"),
    (lambda: ours.register_dataclass(Layer, ["weight"], ["name"]), ValueError,
     "register_dataclass: Layer has the fields bias, which are neither data_fields nor meta_fields nor drop_fields"),
    (lambda: ours.register_dataclass(Layer, ["weight", "bias", "more"], ["name"]), ValueError,
     "register_dataclass: Layer takes no field more"),
    (lambda: ours.register_dataclass(Layer, ["weight", "bias", "name"], ["name"]), ValueError,
     "register_dataclass: name cannot be both a data field and a meta field"),
])
def test_errors(call, kind, text):
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        call()


def test_a_tree_that_contains_itself():
    tree = []
    tree.append(tree)
    with pytest.raises(RecursionError, match="^tree_flatten: the tree contains itself, or is deeper than Python's recursion limit$"):
        ours.tree_flatten(tree)
