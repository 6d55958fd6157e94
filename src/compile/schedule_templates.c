// Which template writes the kernels of a node.
#include "compile/schedule.h"

ct_template ct__template_of(const ct_node *node) {
    switch (node->op->kind) {
    default: return NULL;
    }
}
