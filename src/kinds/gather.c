// Elements at positions that are data.
#include "kinds/movement.h"

const ct_kind ct__kind_gather = {
    .name = "gather",
    .doc = "Each element is one of operand 0, at a position along an axis that operand 1 holds.",
    .scheduled = CT_MAPPED,
    .value = ct__value_by_map,
    .positions = 1,
};
