// The kind of loops over a traced body.
#include "kinds/kind.h"

const ct_kind ct__kind_loop = {
    .name = "loop",
    .doc = "A traced body that runs many times: a list of launches between two marks.",
};
