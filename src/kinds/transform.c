// The kind of transforms of the graph, such as gradients.
#include "kinds/kind.h"

const ct_kind ct__kind_transform = {
    .name = "transform",
    .doc = "A function of the graph itself, such as a gradient, which is expanded when a plan is "
           "made.",
};
