// The kind of ops that are defined by a body of other ops.
#include "kinds/kind.h"

const ct_kind ct__kind_composition = {
    .name = "composition",
    .doc = "An op defined in terms of other ops: it owns a body, which replaces it when a plan is "
           "made.",
};
