// Which template writes the kernels of a node.
#include "compile/schedule.h"
#include "compile/templates.h"
#include "graph/graph.h"

ct_template ct__template_of(const ct_node *node) {
    switch (node->op->kind) {
    case CT_KIND_CONTRACT: return ct__template_contract;
    default: return NULL;
    }
}
