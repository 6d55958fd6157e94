// The scheduler's buffers, the buffers of leaves, and walks over what a group computes.
#include "compile/schedule/sched.h"

static bool sched_no_memory(ct_sched *s, size_t bytes) {
    return ct__err_memory(s->err, CT_NOWHERE, "plan", bytes);
}

uint32_t ct__sched_buf(ct_sched *s, ct_buf buf) {
    uint32_t number = ct__program_buf(s->program, buf);
    if (number == UINT32_MAX) sched_no_memory(s, sizeof buf);
    return number;
}
const ct_target *ct__sched_target(const ct_sched *s) { return &s->program->target; }
uint32_t ct__sched_temp(ct_sched *s, int64_t size) {
    return ct__sched_buf(s, (ct_buf){.kind = CT_BUF_TEMP, .size = size});
}

bool ct__sched_place_leaf(ct_sched *s, ct_node *node) {
    ct_sval *val = &s->vals[node->index][0];
    ct_location location;
    if (val->buf != UINT32_MAX) return true;
    if (!ct__program_leaf(s->program, node, s->leaf_buf, &s->scalars_buf, &location))
        return sched_no_memory(s, sizeof(ct_buf));
    val->buf = location.buf;
    val->offset = location.offset;
    return true;
}

bool ct__verifies(void) {
#ifndef NDEBUG
    return true;
#else
    return ct__env_flag("COTAN_VERIFY"); // the tests set it
#endif
}

// ------------------------------------------------------------------------------------------- walks

static bool sched_push(ct_sched *s, size_t *n, ct_node *node) {
    if (!CT_GROW(s->stack, s->stack_cap, *n + 1)) return sched_no_memory(s, *n * sizeof node);
    s->stack[(*n)++] = node;
    return true;
}

bool ct__sched_walk(ct_sched *s, int32_t group, const ct_val *from, size_t n_from, ct_visit visit,
                    void *env) {
    size_t n = 0;
    s->stamp_now++;
    for (size_t i = n_from; i-- > 0;) {
        if (s->stamp[from[i].node->index] == s->stamp_now) continue;
        s->stamp[from[i].node->index] = s->stamp_now;
        if (!sched_push(s, &n, from[i].node)) return false;
    }
    while (n > 0) {
        ct_node *node = s->stack[--n];
        if (!visit(env, (ct_val){node, 0}, false)) return false;
        for (int i = 0; i < node->n_in; i++) {
            ct_val v = node->in[i];
            const ct_sval *val = ct__sval(s, v);
            bool loaded = ct__is_leaf(v.node) || (val->group >= 0 && val->group != group);
            if (s->stamp[v.node->index] == s->stamp_now && !(loaded && v.node->n_out > 1)) continue;
            s->stamp[v.node->index] = s->stamp_now;
            if (loaded) {
                if (!visit(env, v, true)) return false;
            } else if (!sched_push(s, &n, v.node)) {
                return false;
            }
        }
    }
    return true;
}
