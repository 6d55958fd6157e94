// Sources: elements are computed from indices alone (iota).
#include "kinds/movement.h"

const ct_kind ct__kind_source = {
    .name = "source",
    .doc = "Each element is computed from its index; there are no operands.",
    .scheduled = CT_MAPPED,
    .value = ct__value_by_map,
    .copies = true,
};
