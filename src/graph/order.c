// The canonical order and record of pending nodes: the plan key.
#include <string.h>

#include "graph/graph.h"

static _Atomic uint64_t order_epoch = 1;
uint64_t ct__new_epoch(void) {
    return atomic_fetch_add_explicit(&order_epoch, 1, memory_order_relaxed);
}

static inline bool order_put(ct_order *o, const void *words, size_t n) {
    if (!CT_GROW(o->words, o->words_cap, o->n_words + n)) return false;
    if (n) memcpy(o->words + o->n_words, words, n * sizeof *o->words);
    o->n_words += n;
    return true;
}

static inline uint64_t order_type_word(const ct_type *t) {
    return (uint64_t)t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->weak << 16 |
           (uint64_t)t->device << 24 | (uint64_t)t->dyn << 32;
}
static bool order_put_type(ct_order *o, const ct_type *t) {
    uint64_t head = order_type_word(t);
    return order_put(o, &head, 1) && order_put(o, t->dim, t->rank);
}

static bool order_put_bytes(ct_order *o, const void *bytes, size_t n) {
    uint64_t size = n;
    size_t words = (n + 7) / 8;
    if (!order_put(o, &size, 1) || !CT_GROW(o->words, o->words_cap, o->n_words + words))
        return false;
    if (words) o->words[o->n_words + words - 1] = 0;
    if (n) memcpy(o->words + o->n_words, bytes, n);
    o->n_words += words;
    return true;
}

static bool order_put_body(ct_order *o, const ct_body *body) {
    uint64_t n = body ? body->n_words : 0;
    return order_put(o, &n, 1) && (n == 0 || order_put(o, body->words, (size_t)n));
}

static bool order_put_attr(ct_order *o, const ct_field *f, const void *attrs) {
    const void *at = (const char *)attrs + f->offset;
    uint64_t w = 0;
    switch (f->kind) {
    case CT_FIELD_i64:
    case CT_FIELD_f64: return order_put(o, at, 1);
    case CT_FIELD_num: {
        const ct_num *num = at;
        w = num->given;
        return order_put(o, &w, 1) && order_put(o, &num->value, 1);
    }
    case CT_FIELD_bool: w = *(const bool *)at; return order_put(o, &w, 1);
    case CT_FIELD_dtype: w = (uint64_t) * (const ct_dtype *)at; return order_put(o, &w, 1);
    case CT_FIELD_ints: {
        const ct_ints *list = at;
        w = (uint64_t)list->n;
        return order_put(o, &w, 1) && (w == 0 || order_put(o, list->v, (size_t)w));
    }
    case CT_FIELD_body: return order_put_body(o, *(ct_body *const *)at);
    case CT_FIELD_bodies: {
        const ct_bodies *list = at;
        w = list->n;
        bool ok = order_put(o, &w, 1);
        for (size_t i = 0; i < list->n && ok; i++) ok = order_put_body(o, list->v[i]);
        return ok;
    }
    case CT_FIELD_data:
        return order_put_bytes(o, ((const ct_data_bytes *)at)->bytes,
                               ((const ct_data_bytes *)at)->n);
    case CT_FIELD_type: return order_put_type(o, at);
    }
    return false;
}

// The slot of a storage, or of another context's variable: its entry, or the free one for it.
static struct ct_leaf_slot *order_leaf_slot(const ct_order *o, const void *key) {
    size_t mask = o->n_slots - 1,
           at = (size_t)(((uint64_t)(uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (o->slots[at].epoch == o->epoch && o->slots[at].key != key) at = (at + 1) & mask;
    return &o->slots[at];
}

static uint32_t order_find_leaf(const ct_order *o, const void *key) {
    const struct ct_leaf_slot *slot = o->n_slots && key ? order_leaf_slot(o, key) : NULL;
    return slot && slot->epoch == o->epoch ? slot->index : UINT32_MAX;
}
uint32_t ct__order_leaf(const ct_order *o, const ct_storage *storage) {
    return order_find_leaf(o, storage);
}
uint32_t ct__order_var(const ct_order *o, const ct_var *var) {
    if (var->owner != o->owner) return order_find_leaf(o, var);
    return var->epoch == o->epoch ? var->index : UINT32_MAX;
}

static bool order_grow_slots(ct_order *o) {
    if (o->n_slots >= (o->n_leaves + 1) * 2) return true;
    size_t n = o->n_slots ? o->n_slots * 2 : 64;
    while (n < (o->n_leaves + 1) * 2) n *= 2; // variables added leaves without growing the table
    struct ct_leaf_slot *slots = ct__calloc(n, sizeof *slots);
    if (!slots) return false;
    ct__free(o->slots);
    o->slots = slots;
    o->n_slots = n;
    for (size_t i = 0; i < o->n_leaves; i++) { // the context's own variables are not in the table
        const ct_node *node = o->leaf_nodes[i];
        const void *key = ct__reads_var(node) ? (const void *)node->var : o->leaves[i];
        *order_leaf_slot(o, key) = (struct ct_leaf_slot){key, o->epoch, (uint32_t)i};
    }
    return true;
}

static bool order_add_leaf(ct_order *o, ct_node *node, ct_storage *storage) {
    if (!CT_GROW(o->leaves, o->leaves_cap, o->n_leaves + 1) ||
        !CT_GROW(o->leaf_nodes, o->leaf_nodes_cap, o->n_leaves + 1))
        return false;
    o->leaf_nodes[o->n_leaves] = node;
    o->leaves[o->n_leaves++] = storage;
    return true;
}

// Writes a leaf's storage by number: leaves that share one have the same. `n` values of its node follow.
static bool order_put_leaf(ct_order *o, uint32_t number, uint64_t n, const ct_type *type) {
    if (!CT_GROW(o->words, o->words_cap, o->n_words + 2 + type->rank)) return false;
    uint64_t *word = o->words + o->n_words;
    *word++ = 1ull << 63 | n << 32 | number;
    *word++ = order_type_word(type);
    for (int a = 0; a < type->rank; a++) *word++ = (uint64_t)type->dim[a];
    o->n_words = (size_t)(word - o->words);
    return true;
}

static bool order_number_leaf(ct_order *o, ct_node *node, const void *key, ct_storage *storage,
                              uint32_t *number) {
    if (!order_grow_slots(o)) return false;
    struct ct_leaf_slot *slot = order_leaf_slot(o, key);
    if (slot->epoch != o->epoch) {
        *slot = (struct ct_leaf_slot){key, o->epoch, (uint32_t)o->n_leaves};
        if (!order_add_leaf(o, node, storage)) return false;
    }
    *number = slot->index;
    return true;
}

// No other leaf shares a variable's storage, so the variable itself stores the number; but not for other
// contexts, which may be doing the same concurrently. The storage is only certain once the plan that runs has
// the variable's lock.
static bool order_put_read(ct_order *o, ct_node *node) {
    ct_var *var = node->var;
    uint32_t number;
    if (var->owner != o->owner)
        return order_number_leaf(o, node, var, var->storage, &number) &&
               order_put_leaf(o, number, 1, node->out);
    if (var->epoch != o->epoch) {
        var->epoch = o->epoch;
        var->index = (uint32_t)o->n_leaves;
        if (!order_add_leaf(o, node, var->storage)) return false;
    }
    return order_put_leaf(o, var->index, 1, node->out);
}

static bool order_put_values(ct_order *o, ct_node *node) {
    uint32_t number;
    for (int i = 0; i < node->n_out; i++)
        if (node->value[i] &&
            !(order_number_leaf(o, node, node->value[i], node->value[i], &number) &&
              order_put_leaf(o, number, node->n_out - (unsigned)i, &node->out[i])))
            return false;
    return true;
}

// Records that the node has a value, was computed before, or may be computed by an outer frame.
static void order_note_known(ct_order *o, const ct_node *node) {
    const bool known = node->value || node->flags & (CT_NODE_RAN | CT_NODE_STORED);
    if (!known && node->frame->depth >= o->inner) return;
    o->known = true;
    if (node->frame->depth > o->deepest) o->deepest = node->frame->depth;
}

// Writes one node's part of the record; its operands were written before.
static bool order_put_node(ct_order *o, ct_node *node) {
    const ct_opdef *op = node->op;
    if (op == &ct__op_read)
        return node->value ? order_put_values(o, node) : order_put_read(o, node);
    if (node->value || o->inner || node->flags & (CT_NODE_RAN | CT_NODE_STORED)) {
        if (node->n_in) order_note_known(o, node);
        if (ct__reads_var(node)) return order_put_read(o, node);
        if (ct__is_order_leaf(node)) return order_put_values(o, node);
    }
    o->n_transforms += op->kind == &ct__kind_transform;
    if (!CT_GROW(o->words, o->words_cap, o->n_words + 1 + node->n_in)) return false;
    uint64_t *word = o->words + o->n_words;
    *word++ = (uint64_t)op->id | (uint64_t)node->n_in << 32 | (uint64_t)node->n_out << 48;
    for (int i = 0; i < node->n_in; i++)
        *word++ = (uint64_t)node->in[i].node->index << 16 | node->in[i].out;
    o->n_words = (size_t)(word - o->words);
    if (op->kind == &ct__kind_leaf) {
        if (!order_put_type(o, node->out)) return false;
        if (op == &ct__op_param && !order_put(o, &node->number, 1)) return false;
        if (op == &ct__op_scalar) {
            if (!CT_GROW(o->scalars, o->scalars_cap, o->n_scalars + 1)) return false;
            o->scalars[o->n_scalars++] = node;
        }
    }
    for (size_t i = 0; i < op->n_fields; i++)
        if (!order_put_attr(o, &op->fields[i], node->attrs)) return false;
    return true;
}

// --------------------------------------------------------------------------- comparing two records

// Number of words of a node's part of the record before its attributes.
static size_t node_head_words(const ct_node *node) {
    size_t n = 0;
    if (ct__reads_var(node)) return 2u + node->out->rank;
    if (ct__is_order_leaf(node)) {
        for (int i = 0; i < node->n_out; i++) n += node->value[i] ? 2u + node->out[i].rank : 0;
        return n;
    }
    n = 1u + node->n_in;
    if (node->op->kind == &ct__kind_leaf) n += 1u + node->out->rank + (node->op == &ct__op_param);
    return n;
}

size_t ct__attr_words(const ct_field *field, const void *attrs) {
    const void *at = (const char *)attrs + field->offset;
    switch (field->kind) {
    case CT_FIELD_num: return 2;
    case CT_FIELD_ints: return 1 + (size_t)((const ct_ints *)at)->n;
    case CT_FIELD_body: return 1 + (*(ct_body *const *)at ? (*(ct_body *const *)at)->n_words : 0);
    case CT_FIELD_bodies: {
        const ct_bodies *list = at;
        size_t n = 1;
        for (size_t i = 0; i < list->n; i++) n += 1 + list->v[i]->n_words;
        return n;
    }
    case CT_FIELD_data: return 1 + (((const ct_data_bytes *)at)->n + 7) / 8;
    case CT_FIELD_type: return 1u + ((const ct_type *)at)->rank;
    default: return 1;
    }
}

size_t ct__node_words(const ct_node *node, size_t *before) {
    size_t n = node_head_words(node);
    *before = n;
    if (ct__is_order_leaf(node)) return n;
    for (size_t i = 0; i < node->op->n_fields; i++)
        n += ct__attr_words(&node->op->fields[i], node->attrs);
    return n;
}

size_t ct__words_begin(const ct_order *o) {
    return o->numerics ? 1 + (strlen(o->numerics) + 7) / 8 : 0;
}

ct_difference ct__order_difference(const ct_order *o, const uint64_t *words, size_t n_words) {
    size_t most = n_words < o->n_words ? n_words : o->n_words, at = 0, first = 0;
    while (first < most && words[first] == o->words[first]) first++;
    at = ct__words_begin(o);
    for (size_t i = 0; i < o->n; i++) {
        const ct_node *node = o->nodes[i];
        size_t fields = ct__is_order_leaf(node) ? 0 : node->op->n_fields;
        at += node_head_words(node);
        if (first < at) return (ct_difference){.node = node};
        for (size_t k = 0; k < fields; k++) {
            const ct_field *field = &node->op->fields[k];
            const size_t n = ct__attr_words(field, node->attrs);
            if (first < at + n) return (ct_difference){node, field, words + at};
            at += n;
        }
    }
    return (ct_difference){0};
}

static void difference_print_attr(ct_text *text, ct_field_kind kind, const void *at,
                                  const uint64_t *words) {
    union {
        ct_num num;
        ct_ints ints;
        bool flag;
        ct_dtype dtype;
    } v;
    if (kind == CT_FIELD_num) v.num = (ct_num){.given = words[0]};
    if (kind == CT_FIELD_num) memcpy(&v.num.value, words + 1, sizeof v.num.value);
    if (kind == CT_FIELD_ints) v.ints = (ct_ints){(int64_t)words[0], (const int64_t *)(words + 1)};
    if (kind == CT_FIELD_bool) v.flag = words[0];
    if (kind == CT_FIELD_dtype) v.dtype = (ct_dtype)words[0];
    bool plain = kind == CT_FIELD_i64 || kind == CT_FIELD_f64; // stored as it is
    ct__attr_print(text, kind, at);
    ct__text_add(text, ", it was ");
    ct__attr_print(text, kind, plain ? (const void *)words : &v);
}

static const void *difference_attr(const ct_difference *d) {
    return (const char *)d->node->attrs + d->field->offset;
}

void ct__difference_text(ct_text *text, const ct_difference *d) {
    switch (d->field->kind) {
    case CT_FIELD_body:
    case CT_FIELD_bodies: ct__text_add(text, "another function"); break;
    case CT_FIELD_data: ct__text_add(text, "others"); break;
    case CT_FIELD_type: ct__text_add(text, "another type"); break;
    default: difference_print_attr(text, d->field->kind, difference_attr(d), d->was);
    }
}

bool ct__difference_declared(const ct_difference *d) {
    if (!d->field || d->field->kind != CT_FIELD_ints) return false;
    const ct_ints *now = difference_attr(d);
    const int64_t *was = (const int64_t *)(d->was + 1);
    if ((uint64_t)now->n != d->was[0]) return false;
    for (int64_t i = 0; i < now->n; i++)
        if (now->v[i] != was[i] && !(ct__marked(now->v[i]) && ct__marked(was[i]))) return false;
    return true;
}

// `gradient`: the gradient that needs the value; NULL: the value is needed itself.
static bool order_fail_stale_read(ct_ctx *ctx, const ct_node *read, const ct_node *gradient,
                                  ct_loc here) {
    ct__rwlock_lock(read->var->lock, false, NULL);
    const ct_loc ran = read->var->ran;
    const bool freed = read->var->freed;
    ct__rwlock_unlock(read->var->lock, false);
    ct__fail(ctx, CT_E_OVERWRITTEN, gradient ? gradient->here : here,
             gradient ? gradient->op->name : "read",
             "the value needs variable \"%s\" as it was read at %s:%u, but it was %s at "
             "%s:%u and is gone",
             read->var->name, read->here.file ? read->here.file : "?", read->here.line,
             freed ? "freed after its assignment" : "assigned", ran.file ? ran.file : "?",
             ran.line);
    if (freed)
        ct__err_hint(&ctx->err, "recorded work runs when its scope ends: free it after that; use "
                                "CT_SCOPE; in a loop, so that each iteration runs by itself");
    else if (gradient)
        ct__err_hint(&ctx->err, "take the gradient before the assignment runs, or mark the value "
                                "as a constant by ct_stop_gradient");
    else
        ct__err_hint(&ctx->err, "read the value, or ct_keep it, before the variable is assigned");
    return false;
}
bool ct__fail_stale_read(ct_ctx *ctx, const ct_node *read, ct_loc here) {
    return order_fail_stale_read(ctx, read, NULL, here);
}

static bool order_push(ct_order *o, size_t *top, ct_node *node) {
    if (!CT_GROW(o->stack, o->stack_cap, *top + 1)) return false;
    o->stack[*top].node = node;
    o->stack[(*top)++].next = 0;
    return true;
}

// The gradient that needs the nodes to which the first n nodes of the stack lead: it is with respect to them,
// or differentiates through one of them; NULL: none.
static const ct_node *order_gradient_of(const ct_order *o, size_t n) {
    if (n && o->stack[n - 1].node->op->kind == &ct__kind_transform) return o->stack[n - 1].node;
    while (n--)
        for (size_t i = 0; i < o->n_open && o->stack[n].node->flags & CT_NODE_OPEN; i++)
            if (o->open[i].node == o->stack[n].node) return o->open[i].gradient;
    return NULL;
}

// Gives the node the next number; its operands have theirs. `depth`: of the stack.
static inline bool order_number_node(ct_ctx *ctx, ct_order *o, ct_node *node, size_t depth,
                                     ct_loc here) {
    if (ct__reads_var(node) && ct__version_of(node) != node->var->version) {
        if (!ct__held_storage(node))
            return order_fail_stale_read(ctx, node, order_gradient_of(o, depth), here);
        ct__read_detach(node);
    }
    node->epoch = o->epoch;
    node->index = (uint32_t)o->n;
    if (!CT_GROW(o->nodes, o->cap, o->n + 1))
        return ct__err_memory(&ctx->err, here, "order", sizeof *o->nodes);
    o->nodes[o->n++] = node;
    return order_put_node(o, node) || ct__err_memory(&ctx->err, here, "order", o->n_words * 8);
}

// Depth first without recursion: a node is numbered after its operands, and one that the order treats as a
// leaf at once. The stack is a path of the graph, which has no cycles, so a node is on it only once.
static bool order_visit(ct_ctx *ctx, ct_order *o, ct_node *root, ct_loc here) {
    size_t top = 0;
    if (root->epoch == o->epoch) return true;
    if (!order_push(o, &top, root))
        return ct__err_memory(&ctx->err, here, "order", sizeof *o->stack);
    while (top) {
        ct_node *node = o->stack[top - 1].node, *open = NULL;
        uint32_t next = o->stack[top - 1].next, n_in = ct__is_order_leaf(node) ? 0 : node->n_in;
        if (!next) // all of them are read next
            for (uint32_t k = 1; k < n_in; k++) __builtin_prefetch(node->in[k].node);
        while (next < n_in && !open) {
            ct_node *in = node->in[next++].node;
            if (in->epoch == o->epoch) continue;
            if (in->n_in && !ct__is_order_leaf(in))
                open = in;
            else if (!order_number_node(ctx, o, in, top, here))
                return false;
        }
        if (open) {
            o->stack[top - 1].next = next;
            if (!order_push(o, &top, open))
                return ct__err_memory(&ctx->err, here, "order", sizeof *o->stack);
        } else {
            top--;
            if (!order_number_node(ctx, o, node, top, here)) return false;
        }
    }
    return true;
}

bool ct__may_have_derivative(const ct_node *node, int operand) {
    bool none = node->op->jvp == CT_NO_GRAD && !node->op->expand;
    return !none && ct__is_differentiable(ct__type(node->in[operand])->dtype);
}

// Flags, in `index`, of nodes in the traversal below.
enum { WALK_WRT = 1, WALK_REACHED = 2, WALK_VISITED = 4, WALK_BETWEEN = 8 };

static bool order_open_node(ct_order *o, ct_node *node, const ct_node *gradient) {
    if (node->flags & CT_NODE_OPEN) return true;
    if (!CT_GROW(o->open, o->open_cap, o->n_open + 1)) return false;
    o->open[o->n_open++] = (struct ct_open){node, gradient};
    ct__flag(node, CT_NODE_OPEN);
    return true;
}

// Opens the nodes between a loss and the nodes flagged WALK_WRT: along paths that carry derivatives, or along
// any. Nodes of frames outside the outermost one cannot depend on them.
static bool order_open_paths(ct_order *o, const ct_node *gradient, uint64_t epoch,
                             uint32_t outermost, bool any) {
    ct_node *loss = gradient->in[0].node;
    size_t top = 0;
    if (loss->epoch != epoch) loss->epoch = epoch, loss->index = 0;
    if (loss->index & WALK_WRT) loss->index |= WALK_REACHED;
    if (loss->index & WALK_WRT && loss->n_out == 1) return true;
    loss->index |= WALK_VISITED;
    if (!order_push(o, &top, loss)) return false;
    while (top) {
        ct_node *node = o->stack[top - 1].node;
        uint32_t next = o->stack[top - 1].next++;
        if (next == node->n_in) {
            if (node->index & WALK_BETWEEN && !order_open_node(o, node, gradient)) return false;
            if (--top) o->stack[top - 1].node->index |= node->index & WALK_BETWEEN;
            continue;
        }
        ct_node *in = node->in[next].node;
        if (!any && !ct__may_have_derivative(node, (int)next)) continue;
        if (in->epoch != epoch) in->epoch = epoch, in->index = 0;
        if (in->index & WALK_WRT) in->index |= WALK_REACHED;
        if (in->index & (WALK_WRT | WALK_BETWEEN)) node->index |= WALK_BETWEEN;
        if (in->index & WALK_VISITED || (in->index & WALK_WRT && in->n_out == 1)) continue;
        if (!in->n_in || in->frame->depth < outermost) continue;
        in->index |= WALK_VISITED;
        if (!order_push(o, &top, in)) return false;
    }
    return true;
}

// The outermost frame of the nodes with respect to which the gradient is taken.
static uint32_t gradient_outermost_wrt(const ct_node *gradient) {
    uint32_t depth = UINT32_MAX;
    for (int i = 1; i < gradient->n_in; i++)
        if (gradient->in[i].node->frame->depth < depth) depth = gradient->in[i].node->frame->depth;
    return depth;
}

// Opens the nodes through which the gradient is taken. If no path that carries derivatives leads to one of
// its operands, its gradient is zero if there is any other path, and an error if there is none.
static bool order_open_gradient(ct_order *o, const ct_node *gradient) {
    const uint32_t outermost = gradient_outermost_wrt(gradient);
    uint64_t epoch = 0;
    bool missing = true;
    for (int any = 0; any < 2 && missing; any++) {
        const uint64_t before = epoch;
        epoch = ct__new_epoch();
        for (int i = 1; i < gradient->n_in; i++) {
            ct_node *wrt = gradient->in[i].node;
            if (!any || wrt->epoch != before || !(wrt->index & WALK_REACHED))
                wrt->epoch = epoch, wrt->index = WALK_WRT;
        }
        if (!order_open_paths(o, gradient, epoch, outermost, any)) return false;
        missing = false;
        for (int i = 1; i < gradient->n_in; i++)
            missing |= gradient->in[i].node->epoch == epoch &&
                       !(gradient->in[i].node->index & WALK_REACHED);
    }
    return true;
}

static bool order_visit_roots(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    o->n = o->n_words = o->n_leaves = o->n_scalars = o->n_transforms = 0;
    o->known = false;
    o->deepest = 0;
    o->epoch = ct__new_epoch();
    if (o->numerics && !order_put_bytes(o, o->numerics, strlen(o->numerics)))
        return ct__err_memory(&ctx->err, CT_NOWHERE, "order", o->words_cap * sizeof *o->words);
    for (size_t i = 0; i < n_roots; i++)
        if (!order_visit(ctx, o, roots[i].val.node, roots[i].here)) return false;
    return true;
}

// Values between a gradient's loss and its operands are opened, so that the order continues through them.
// That may add gradients, which are treated alike.
static bool order_open_values(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    for (size_t opened = 0; o->known && o->n_transforms > opened;) {
        bool walked = false; // the traversal overwrites the nodes' numbers
        opened = o->n_transforms;
        for (size_t i = 0; i < o->n; i++) {
            const ct_node *node = o->nodes[i];
            if (node->op->kind != &ct__kind_transform || ct__is_order_leaf(node) ||
                gradient_outermost_wrt(node) > o->deepest)
                continue;
            walked = true;
            if (!order_open_gradient(o, node))
                return ct__err_memory(&ctx->err, CT_NOWHERE, "order", o->n * sizeof *o->open);
        }
        if (walked && !order_visit_roots(ctx, o, roots, n_roots)) return false;
    }
    return true;
}

bool ct__order(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    o->owner = ctx->id;
    o->inner = 0;
    for (size_t d = 0; o->numerics && d + 1 < ctx->depth; d++)
        if (ctx->frames[d]->has_ops) o->inner = (uint32_t)ctx->depth - 1;
    if (!order_visit_roots(ctx, o, roots, n_roots) || !order_open_values(ctx, o, roots, n_roots))
        return false;
    for (size_t i = 0; i < n_roots; i++) {
        const ct_root *r = &roots[i];
        uint64_t target = UINT32_MAX;
        if (r->var && r->var->storage) {
            uint32_t leaf = ct__order_var(o, r->var);
            target = leaf != UINT32_MAX ? leaf : UINT32_MAX - 1;
        }
        uint64_t w[2] = {(uint64_t)r->kind << 60 | 1ull << 59 | r->val.node->index,
                         (uint64_t)r->val.out << 32 | target};
        if (!order_put(o, w, 2)) return ct__err_memory(&ctx->err, r->here, "order", sizeof w);
    }
    o->hash = ct__hash_bytes(o->words, o->n_words * sizeof *o->words, (ct_hash){0, 0});
    return true;
}

void ct__order_close(ct_order *o) {
    while (o->n_open) ct__unflag(o->open[--o->n_open].node, CT_NODE_OPEN);
}

void ct__order_free(ct_order *o) {
    ct__order_close(o);
    ct__free(o->open);
    ct__free(o->nodes);
    ct__free(o->leaves);
    ct__free(o->leaf_nodes);
    ct__free(o->slots);
    ct__free(o->scalars);
    ct__free(o->words);
    ct__free(o->stack);
    *o = (ct_order){0};
}
