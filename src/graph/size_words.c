// Finds the words of a canonical record that are sizes and positions: what may vary between the runs of a
// plan.
#include "graph/graph.h"

// False: out of memory.
static bool size_words_add(ct_size_words *list, size_t word, ct_varies varies, bool marked) {
    if (!varies && !marked) return true;
    if (!CT_GROW(list->v, list->cap, list->n + 1)) return false;
    list->v[list->n++] = (ct_size_word){.word = (uint32_t)word, .varies = varies, .marked = marked};
    return true;
}

// The lanes of a kernel and the blocks of a matmul are along the last axis of floats, so its size stays part
// of the plan.
static bool size_words_add_dims(ct_size_words *list, size_t word, const ct_type *type, bool leaf) {
    for (int a = 0; a < type->rank; a++) {
        const bool is_static =
            leaf && type->rank >= 2 && a == type->rank - 1 && ct__is_float((ct_dtype)type->dtype);
        if (!size_words_add(list, word + (size_t)a, is_static ? CT_VARIES_NOT : CT_VARIES_SIZE,
                            ct__is_dyn(type, a)))
            return false;
    }
    return true;
}

static bool size_words_add_read(ct_size_words *list, size_t word, const ct_node *node) {
    const size_t axis_0 = list->n;
    if (!size_words_add_dims(list, word, node->out, true)) return false;
    if (list->n > axis_0 && list->v[axis_0].word == word) list->v[axis_0].open = node->var->open;
    return true;
}

static bool size_words_add_nodes(ct_size_words *list, ct_node *const *nodes, size_t n, size_t word);

static bool size_words_add_attrs(ct_size_words *list, const ct_node *node, size_t word) {
    bool has_limits = false;
    for (size_t f = 0; f < node->op->n_fields; f++)
        has_limits |= node->op->fields[f].means == CT_MEANS_limits;
    for (size_t f = 0; f < node->op->n_fields; f++) {
        const ct_field *field = &node->op->fields[f];
        const void *at = (const char *)node->attrs + field->offset;
        ct_varies varies = CT_VARIES_NOT;
        if (field->means == CT_MEANS_sizes || field->means == CT_MEANS_extents ||
            field->means == CT_MEANS_turns)
            varies = CT_VARIES_SIZE;
        // Where a slice begins and ends; a pad's gaps between elements are not arguments of kernels.
        if (has_limits && (field->means == CT_MEANS_offsets || field->means == CT_MEANS_limits))
            varies = CT_VARIES_POSITION;
        bool ok = true;
        if (field->kind == CT_FIELD_i64)
            ok = size_words_add(list, word, varies, ct__marked(*(const int64_t *)at));
        const ct_ints *ints = field->kind == CT_FIELD_ints ? at : NULL;
        for (int64_t i = 0; ints && i < ints->n && ok; i++)
            ok = size_words_add(list, word + 1 + (size_t)i, varies, ct__marked(ints->v[i]));
        const ct_body *body = field->kind == CT_FIELD_body ? *(ct_body *const *)at : NULL;
        if (body) ok = size_words_add_nodes(list, body->nodes, body->n_nodes, word + 1);
        const ct_bodies *bodies = field->kind == CT_FIELD_bodies ? at : NULL;
        for (size_t i = 0, begin = word + 1; bodies && i < bodies->n && ok; i++) {
            ok = size_words_add_nodes(list, bodies->v[i]->nodes, bodies->v[i]->n_nodes, begin + 1);
            begin += 1 + bodies->v[i]->n_words;
        }
        if (!ok) return false;
        word += ct__attr_words(field, node->attrs);
    }
    return true;
}

static bool size_words_add_values(ct_size_words *list, const ct_node *node, size_t word) {
    for (int i = 0; i < node->n_out; i++) {
        if (!node->value[i]) continue;
        if (!size_words_add_dims(list, word + 2, &node->out[i], true)) return false;
        word += 2u + node->out[i].rank;
    }
    return true;
}

static bool size_words_add_nodes(ct_size_words *list, ct_node *const *nodes, size_t n,
                                 size_t word) {
    for (size_t i = 0; i < n; i++) {
        const ct_node *node = nodes[i];
        size_t before;
        const size_t words = ct__node_words(node, &before);
        bool ok;
        if (ct__reads_var(node))
            ok = size_words_add_read(list, word + 2, node);
        else if (ct__is_order_leaf(node))
            ok = size_words_add_values(list, node, word);
        else if (node->op == &ct__op_param) // follows its operand
            ok = size_words_add_dims(list, word + 2, node->out, false);
        else
            ok = size_words_add_attrs(list, node, word + before);
        if (!ok) return false;
        word += words;
    }
    return true;
}

bool ct__order_size_words(const ct_order *order, ct_size_words *list) {
    list->n = 0;
    return size_words_add_nodes(list, order->nodes, order->n, ct__words_begin(order));
}
