// The kind of values that enter a graph from outside.
#include "kinds/kind.h"

const ct_kind ct__kind_leaf = {
    .name = "leaf",
    .doc = "An input: data, a scalar, a constant, a variable, a parameter of a body.",
};
