// Graphs as text, one line per node, and the verifier of their invariants.
#include "graph/graph.h"
#include "graph/symbols.h"

void ct__print_type(ct_text *text, const ct_type *type) {
    ct__textf(text, "%s", ct_dtype_name(type->dtype));
    ct__text_dims(text, type);
}

void ct__print_nodes(ct_text *text, ct_node *const *nodes, size_t n) {
    uint64_t epoch = ct__new_epoch();
    for (size_t i = 0; i < n; i++) {
        ct_node *node = nodes[i];
        node->epoch = epoch;
        node->index = (uint32_t)i;
        ct__textf(text, "%%%zu = %s", i, node->op->name);
        for (int k = 0; k < node->n_in; k++) {
            const ct_node *in = node->in[k].node;
            if (in->epoch == epoch)
                ct__textf(text, " %%%u", in->index);
            else
                ct__text_add(text, " %?");
            if (in->n_out > 1) ct__textf(text, ".%u", node->in[k].out);
        }
        if (node->op->n_fields && node->attrs) {
            ct__text_add(text, " {");
            ct__attrs_print(text, node->op, node->attrs);
            ct__text_add(text, "}");
        }
        ct__text_add(text, " :");
        for (int k = 0; k < node->n_out; k++) {
            ct__text_add(text, k ? ", " : " ");
            ct__print_type(text, &node->out[k]);
        }
        ct__text_add(text, "\n");
    }
}

static bool verify_equal_types(const ct_type *a, const ct_type *b) {
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    // In a plan a dynamic size may have been unified with a number.
    if (!a->mark && !b->mark) return same && ct__same_shape(a, b);
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

static bool verify_node(const ct_node *node, size_t i, uint64_t epoch, ct_arena *arena,
                        ct_err *err) {
    const ct_type *few[64], **types = few;
    if (node->n_in > 64) types = ct__arena(arena, node->n_in * sizeof *types);
    if (!types) return ct__err_memory(err, node->here, "verify", node->n_in * sizeof *types);
    if (node->op->n_in >= 0 && node->n_in != node->op->n_in)
        return ct__err(err, CT_E_INTERNAL, node->here, "verify", "node %zu: %s has %d operands", i,
                       node->op->name, node->n_in);
    for (int k = 0; k < node->n_in; k++) {
        const ct_node *in = node->in[k].node;
        if (in->epoch != epoch)
            return ct__err(err, CT_E_INTERNAL, node->here, "verify",
                           "node %zu: %s uses a later or foreign node", i, node->op->name);
        if (node->in[k].out >= in->n_out)
            return ct__err(err, CT_E_INTERNAL, node->here, "verify",
                           "node %zu: %s uses output %u of %s", i, node->op->name, node->in[k].out,
                           in->op->name);
        types[k] = ct__type(node->in[k]);
    }
    if (node->op->kind == &ct__kind_leaf || node->value) return true;
    int n_out = node->op->n_out < 0 ? 0 : node->op->n_out;
    void *attrs = node->op->n_fields ? ct__attrs_copy(arena, node->op, node->attrs) : NULL;
    if (node->op->n_fields && !attrs)
        return ct__err_memory(err, node->here, "verify", node->op->attr_size);
    ct_call call = {node->op, attrs, node->n_in, types, n_out, NULL,
                    arena,    err,   node->here, NULL,  false, ct__symbols_now() != NULL,
                    NULL};
    if ((n_out && !ct__call_outs(&call, n_out)) || !node->op->infer(&call)) return false;
    for (int k = 0; k < call.n_out; k++)
        if (call.n_out != node->n_out || !verify_equal_types(&call.out[k], &node->out[k]))
            return ct__err(err, CT_E_INTERNAL, node->here, "verify",
                           "node %zu: %s: output %d is %s, by its rule it is %s", i, node->op->name,
                           k, ct__type_text(&node->out[k]).s, ct__type_text(&call.out[k]).s);
    return true;
}

bool ct__verify(ct_node *const *nodes, size_t n, ct_err *err) {
    CT_ARENA arena = {0};
    uint64_t epoch = ct__new_epoch();
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = verify_node(nodes[i], i, epoch, &arena, err);
        nodes[i]->epoch = epoch;
        nodes[i]->index = (uint32_t)i;
    }
    return ok;
}
