// Which template writes the kernels of a node.
#include "compile/schedule/schedule.h"
#include "compile/schedule/templates.h"
#include "graph/graph.h"

ct_template ct__template_of(const ct_node *node) {
    switch (node->op->kind) {
    case CT_KIND_CONTRACT: return ct__template_contract;
    case CT_KIND_INDEX: return ct__template_index;
    case CT_KIND_SCAN: return ct__template_scan;
    case CT_KIND_SORT: return ct__template_sort;
    case CT_KIND_LOOP: return ct__template_loop;
    default: return NULL;
    }
}
