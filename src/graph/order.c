// The canonical order and record of what is pending: the plan key.
#include <string.h>

#include "graph/graph.h"

static _Atomic uint64_t epochs = 1;
uint64_t ct__new_epoch(void) { return atomic_fetch_add_explicit(&epochs, 1, memory_order_relaxed); }

static inline bool put(ct_order *o, const void *words, size_t n) {
    if (!CT_GROW(o->words, o->words_cap, o->n_words + n)) return false;
    if (n) memcpy(o->words + o->n_words, words, n * sizeof *o->words);
    o->n_words += n;
    return true;
}

static inline uint64_t type_word(const ct_type *t) {
    return (uint64_t)t->dtype | (uint64_t)t->rank << 8 | (uint64_t)t->weak << 16 |
           (uint64_t)t->place << 24 | (uint64_t)t->dyn << 32;
}
static bool put_type(ct_order *o, const ct_type *t) {
    uint64_t head = type_word(t);
    return put(o, &head, 1) && put(o, t->dim, t->rank);
}

static bool put_bytes(ct_order *o, const void *bytes, size_t n) {
    uint64_t size = n;
    size_t words = (n + 7) / 8;
    if (!put(o, &size, 1) || !CT_GROW(o->words, o->words_cap, o->n_words + words)) return false;
    if (words) o->words[o->n_words + words - 1] = 0;
    if (n) memcpy(o->words + o->n_words, bytes, n);
    o->n_words += words;
    return true;
}

static bool put_body(ct_order *o, const ct_body *body) {
    uint64_t n = body ? body->n_words : 0;
    return put(o, &n, 1) && (n == 0 || put(o, body->words, (size_t)n));
}

static bool put_attr(ct_order *o, const ct_field *f, const void *attrs) {
    const void *at = (const char *)attrs + f->offset;
    uint64_t w = 0;
    switch (f->kind) {
    case CT_FIELD_i64:
    case CT_FIELD_f64: return put(o, at, 1);
    case CT_FIELD_num: {
        const ct_num *num = at;
        w = num->given;
        return put(o, &w, 1) && put(o, &num->value, 1);
    }
    case CT_FIELD_bool: w = *(const bool *)at; return put(o, &w, 1);
    case CT_FIELD_dtype: w = (uint64_t) * (const ct_dtype *)at; return put(o, &w, 1);
    case CT_FIELD_ints: {
        const ct_ints *list = at;
        w = (uint64_t)list->n;
        return put(o, &w, 1) && (w == 0 || put(o, list->v, (size_t)w));
    }
    case CT_FIELD_body: return put_body(o, *(ct_body *const *)at);
    case CT_FIELD_bodies: {
        const ct_bodies *list = at;
        w = list->n;
        bool ok = put(o, &w, 1);
        for (size_t i = 0; i < list->n && ok; i++) ok = put_body(o, list->v[i]);
        return ok;
    }
    case CT_FIELD_data:
        return put_bytes(o, ((const ct_data_bytes *)at)->bytes, ((const ct_data_bytes *)at)->n);
    case CT_FIELD_type: return put_type(o, at);
    }
    return false;
}

// Where the entry of a storage, or of another context's variable, is or would be.
static struct ct_leaf_place *place_of(const ct_order *o, const void *key) {
    size_t mask = o->n_places - 1,
           at = (size_t)(((uint64_t)(uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (o->places[at].epoch == o->epoch && o->places[at].key != key) at = (at + 1) & mask;
    return &o->places[at];
}

static uint32_t leaf_of(const ct_order *o, const void *key) {
    const struct ct_leaf_place *place = o->n_places && key ? place_of(o, key) : NULL;
    return place && place->epoch == o->epoch ? place->index : UINT32_MAX;
}
uint32_t ct__order_leaf(const ct_order *o, const ct_storage *storage) {
    return leaf_of(o, storage);
}
uint32_t ct__order_var(const ct_order *o, const ct_var *var) {
    if (var->owner != o->owner) return leaf_of(o, var);
    return var->epoch == o->epoch ? var->index : UINT32_MAX;
}

static bool grow_places(ct_order *o) {
    if (o->n_places >= (o->n_leaves + 1) * 2) return true;
    size_t n = o->n_places ? o->n_places * 2 : 64;
    while (n < (o->n_leaves + 1) * 2) n *= 2; // variables came without asking for room
    struct ct_leaf_place *places = ct__calloc(n, sizeof *places);
    if (!places) return false;
    ct__free(o->places);
    o->places = places;
    o->n_places = n;
    for (size_t i = 0; i < o->n_leaves; i++) { // the context's own variables are not looked for
        const ct_node *node = o->leaf_nodes[i];
        const void *key = ct__reads_var(node) ? (const void *)node->var : o->leaves[i];
        *place_of(o, key) = (struct ct_leaf_place){key, o->epoch, (uint32_t)i};
    }
    return true;
}

static bool add_leaf(ct_order *o, ct_node *node, ct_storage *storage) {
    if (!CT_GROW(o->leaves, o->leaves_cap, o->n_leaves + 1) ||
        !CT_GROW(o->leaf_nodes, o->leaf_nodes_cap, o->n_leaves + 1))
        return false;
    o->leaf_nodes[o->n_leaves] = node;
    o->leaves[o->n_leaves++] = storage;
    return true;
}

// A leaf's storage by number: leaves that share one get the same. `n` values follow of its node.
static bool put_leaf(ct_order *o, uint32_t number, uint64_t n, const ct_type *type) {
    if (!CT_GROW(o->words, o->words_cap, o->n_words + 2 + type->rank)) return false;
    uint64_t *word = o->words + o->n_words;
    *word++ = 1ull << 63 | n << 32 | number;
    *word++ = type_word(type);
    for (int a = 0; a < type->rank; a++) *word++ = (uint64_t)type->dim[a];
    o->n_words = (size_t)(word - o->words);
    return true;
}

static bool number_of(ct_order *o, ct_node *node, const void *key, ct_storage *storage,
                      uint32_t *number) {
    if (!grow_places(o)) return false;
    struct ct_leaf_place *place = place_of(o, key);
    if (place->epoch != o->epoch) {
        *place = (struct ct_leaf_place){key, o->epoch, (uint32_t)o->n_leaves};
        if (!add_leaf(o, node, storage)) return false;
    }
    *number = place->index;
    return true;
}

// No other leaf shares a variable's storage, so the variable can remember the number, but for other
// contexts, which may be doing the same at this time. Where the storage lies is known for sure when
// the plan that runs has the variable's lock.
static bool put_read(ct_order *o, ct_node *node) {
    ct_var *var = node->var;
    uint32_t number;
    if (var->owner != o->owner)
        return number_of(o, node, var, var->storage, &number) && put_leaf(o, number, 1, node->out);
    if (var->epoch != o->epoch) {
        var->epoch = o->epoch;
        var->index = (uint32_t)o->n_leaves;
        if (!add_leaf(o, node, var->storage)) return false;
    }
    return put_leaf(o, var->index, 1, node->out);
}

static bool put_values(ct_order *o, ct_node *node) {
    uint32_t number;
    for (int i = 0; i < node->n_out; i++)
        if (node->value[i] && !(number_of(o, node, node->value[i], node->value[i], &number) &&
                                put_leaf(o, number, node->n_out - (unsigned)i, &node->out[i])))
            return false;
    return true;
}

// Is the node's value there, or could it be: was it computed before, or will it be again?
static void note_known(ct_order *o, const ct_node *node) {
    const bool known = node->value || node->flags & (CT_NODE_RAN | CT_NODE_STORED);
    if (!known && node->frame->depth >= o->inner) return;
    o->known = true;
    if (node->frame->depth > o->deepest) o->deepest = node->frame->depth;
}

// One node's part of the record; its operands have theirs already.
static bool put_node(ct_order *o, ct_node *node) {
    const ct_opdef *op = node->op;
    if (op == &ct__op_read) return node->value ? put_values(o, node) : put_read(o, node);
    if (node->value || o->inner || node->flags & (CT_NODE_RAN | CT_NODE_STORED)) {
        if (node->n_in) note_known(o, node);
        if (ct__reads_var(node)) return put_read(o, node);
        if (ct__stops(node)) return put_values(o, node);
    }
    o->n_transforms += op->kind == &ct__kind_transform;
    if (!CT_GROW(o->words, o->words_cap, o->n_words + 1 + node->n_in)) return false;
    uint64_t *word = o->words + o->n_words;
    *word++ = (uint64_t)op->id | (uint64_t)node->n_in << 32 | (uint64_t)node->n_out << 48;
    for (int i = 0; i < node->n_in; i++)
        *word++ = (uint64_t)node->in[i].node->index << 16 | node->in[i].out;
    o->n_words = (size_t)(word - o->words);
    if (op->kind == &ct__kind_leaf) {
        if (!put_type(o, node->out)) return false;
        if (op == &ct__op_param && !put(o, &node->number, 1)) return false;
        if (op == &ct__op_scalar) {
            if (!CT_GROW(o->scalars, o->scalars_cap, o->n_scalars + 1)) return false;
            o->scalars[o->n_scalars++] = node;
        }
    }
    for (size_t i = 0; i < op->n_fields; i++)
        if (!put_attr(o, &op->fields[i], node->attrs)) return false;
    return true;
}

// ------------------------------------------------------------------------------------- two records

// Words of a node's part of the record before its attributes.
static size_t head_words(const ct_node *node) {
    size_t n = 0;
    if (ct__reads_var(node)) return 2u + node->out->rank;
    if (ct__stops(node)) {
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
    size_t n = head_words(node);
    *before = n;
    if (ct__stops(node)) return n;
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
        size_t fields = ct__stops(node) ? 0 : node->op->n_fields;
        at += head_words(node);
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

static void say_attr(ct_text *text, ct_field_kind kind, const void *at, const uint64_t *words) {
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
    bool plain = kind == CT_FIELD_i64 || kind == CT_FIELD_f64; // its words are itself
    ct__attr_print(text, kind, at);
    ct__text_add(text, ", it was ");
    ct__attr_print(text, kind, plain ? (const void *)words : &v);
}

static const void *attr_of(const ct_difference *d) {
    return (const char *)d->node->attrs + d->field->offset;
}

void ct__say_difference(ct_text *text, const ct_difference *d) {
    switch (d->field->kind) {
    case CT_FIELD_body:
    case CT_FIELD_bodies: ct__text_add(text, "another function"); break;
    case CT_FIELD_data: ct__text_add(text, "others"); break;
    case CT_FIELD_type: ct__text_add(text, "another type"); break;
    default: say_attr(text, d->field->kind, attr_of(d), d->was);
    }
}

bool ct__difference_declared(const ct_difference *d) {
    if (!d->field || d->field->kind != CT_FIELD_ints) return false;
    const ct_ints *now = attr_of(d);
    const int64_t *was = (const int64_t *)(d->was + 1);
    if ((uint64_t)now->n != d->was[0]) return false;
    for (int64_t i = 0; i < now->n; i++)
        if (now->v[i] != was[i] && !(ct__marked(now->v[i]) && ct__marked(was[i]))) return false;
    return true;
}

// `gradient`: what needs it; NULL: the value itself does.
static bool spent(ct_ctx *ctx, const ct_node *read, const ct_node *gradient, ct_loc here) {
    ct__rwlock_lock(read->var->lock, false, NULL);
    const ct_loc ran = read->var->ran;
    const bool freed = read->var->freed;
    ct__rwlock_unlock(read->var->lock, false);
    ct__fail(
        ctx, CT_E_SPENT, gradient ? gradient->here : here, gradient ? gradient->op->name : "read",
        "the value needs variable \"%s\" as it was read at %s:%u, but it was %s at "
        "%s:%u and is gone",
        read->var->name, read->here.file ? read->here.file : "?", read->here.line,
        freed ? "freed after its assignment" : "assigned", ran.file ? ran.file : "?", ran.line);
    if (freed)
        ct__err_hint(&ctx->err, "what is recorded runs where its scope ends: free behind that; a "
                                "loop's turns run one by one with CT_SCOPE; in the loop");
    else if (gradient)
        ct__err_hint(&ctx->err, "take the gradient before the assignment runs, or say by "
                                "ct_stop_gradient that the value is a constant");
    else
        ct__err_hint(&ctx->err, "read the value, or ct_keep it, before the variable is assigned");
    return false;
}
bool ct__spent(ct_ctx *ctx, const ct_node *read, ct_loc here) {
    return spent(ctx, read, NULL, here);
}

static bool push(ct_order *o, size_t *top, ct_node *node) {
    if (!CT_GROW(o->stack, o->stack_cap, *top + 1)) return false;
    o->stack[*top].node = node;
    o->stack[(*top)++].next = 0;
    return true;
}

// The gradient that needs what the first n nodes of the stack lead to: it is with respect to that, or
// looks behind one of them; NULL: there is none.
static const ct_node *gradient_of(const ct_order *o, size_t n) {
    if (n && o->stack[n - 1].node->op->kind == &ct__kind_transform) return o->stack[n - 1].node;
    while (n--)
        for (size_t i = 0; i < o->n_open && o->stack[n].node->flags & CT_NODE_OPEN; i++)
            if (o->open[i].node == o->stack[n].node) return o->open[i].gradient;
    return NULL;
}

// The next number is this node's; all its operands have theirs. `depth`: of the stack.
static inline bool number(ct_ctx *ctx, ct_order *o, ct_node *node, size_t depth, ct_loc here) {
    if (ct__reads_var(node) && ct__version_of(node) != node->var->version) {
        if (!ct__held(node)) return spent(ctx, node, gradient_of(o, depth), here);
        ct__read_apart(node);
    }
    node->epoch = o->epoch;
    node->index = (uint32_t)o->n;
    if (!CT_GROW(o->nodes, o->cap, o->n + 1))
        return ct__err_memory(&ctx->err, here, "order", sizeof *o->nodes);
    o->nodes[o->n++] = node;
    return put_node(o, node) || ct__err_memory(&ctx->err, here, "order", o->n_words * 8);
}

// Depth first without recursion: a node is numbered when all its operands are, which those behind
// which the order does not look are at once. The stack is one path of the graph, which has no
// circles, so a node cannot be on it twice.
static bool visit(ct_ctx *ctx, ct_order *o, ct_node *root, ct_loc here) {
    size_t top = 0;
    if (root->epoch == o->epoch) return true;
    if (!push(o, &top, root)) return ct__err_memory(&ctx->err, here, "order", sizeof *o->stack);
    while (top) {
        ct_node *node = o->stack[top - 1].node, *open = NULL;
        uint32_t next = o->stack[top - 1].next, n_in = ct__stops(node) ? 0 : node->n_in;
        if (!next) // all of them are looked at, one after the other
            for (uint32_t k = 1; k < n_in; k++) __builtin_prefetch(node->in[k].node);
        while (next < n_in && !open) {
            ct_node *in = node->in[next++].node;
            if (in->epoch == o->epoch) continue;
            if (in->n_in && !ct__stops(in))
                open = in;
            else if (!number(ctx, o, in, top, here))
                return false;
        }
        if (open) {
            o->stack[top - 1].next = next;
            if (!push(o, &top, open))
                return ct__err_memory(&ctx->err, here, "order", sizeof *o->stack);
        } else {
            top--;
            if (!number(ctx, o, node, top, here)) return false;
        }
    }
    return true;
}

bool ct__slopes(const ct_node *node, int operand) {
    bool none = node->op->jvp == CT_NO_GRAD && !node->op->expand;
    return !none && ct__is_differentiable(ct__type(node->in[operand])->dtype);
}

enum { WRT = 1, MET = 2, SEEN = 4, BETWEEN = 8 }; // of nodes in the walk below

static bool open_node(ct_order *o, ct_node *node, const ct_node *gradient) {
    if (node->flags & CT_NODE_OPEN) return true;
    if (!CT_GROW(o->open, o->open_cap, o->n_open + 1)) return false;
    o->open[o->n_open++] = (struct ct_open){node, gradient};
    ct__flag(node, CT_NODE_OPEN);
    return true;
}

// Opens what lies between a loss and the nodes marked WRT: along paths that carry derivatives, or
// along any. Nodes of frames outside of all of these cannot depend on them.
static bool open_paths(ct_order *o, const ct_node *gradient, uint64_t epoch, uint32_t outermost,
                       bool any) {
    ct_node *loss = gradient->in[0].node;
    size_t top = 0;
    if (loss->epoch != epoch) loss->epoch = epoch, loss->index = 0;
    if (loss->index & WRT) loss->index |= MET;
    if (loss->index & WRT && loss->n_out == 1) return true;
    loss->index |= SEEN;
    if (!push(o, &top, loss)) return false;
    while (top) {
        ct_node *node = o->stack[top - 1].node;
        uint32_t next = o->stack[top - 1].next++;
        if (next == node->n_in) {
            if (node->index & BETWEEN && !open_node(o, node, gradient)) return false;
            if (--top) o->stack[top - 1].node->index |= node->index & BETWEEN;
            continue;
        }
        ct_node *in = node->in[next].node;
        if (!any && !ct__slopes(node, (int)next)) continue;
        if (in->epoch != epoch) in->epoch = epoch, in->index = 0;
        if (in->index & WRT) in->index |= MET;
        if (in->index & (WRT | BETWEEN)) node->index |= BETWEEN;
        if (in->index & SEEN || (in->index & WRT && in->n_out == 1)) continue;
        if (!in->n_in || in->frame->depth < outermost) continue;
        in->index |= SEEN;
        if (!push(o, &top, in)) return false;
    }
    return true;
}

// The outermost frame of what the gradient is taken with respect to.
static uint32_t outermost_wrt(const ct_node *gradient) {
    uint32_t depth = UINT32_MAX;
    for (int i = 1; i < gradient->n_in; i++)
        if (gradient->in[i].node->frame->depth < depth) depth = gradient->in[i].node->frame->depth;
    return depth;
}

// Opens what the gradient is taken through. Where it has no path that carries derivatives to one of
// its operands, that is a zero if there is any path, and an error if there is none.
static bool open_gradient(ct_order *o, const ct_node *gradient) {
    const uint32_t outermost = outermost_wrt(gradient);
    uint64_t epoch = 0;
    bool missing = true;
    for (int any = 0; any < 2 && missing; any++) {
        const uint64_t before = epoch;
        epoch = ct__new_epoch();
        for (int i = 1; i < gradient->n_in; i++) {
            ct_node *wrt = gradient->in[i].node;
            if (!any || wrt->epoch != before || !(wrt->index & MET))
                wrt->epoch = epoch, wrt->index = WRT;
        }
        if (!open_paths(o, gradient, epoch, outermost, any)) return false;
        missing = false;
        for (int i = 1; i < gradient->n_in; i++)
            missing |= gradient->in[i].node->epoch == epoch && !(gradient->in[i].node->index & MET);
    }
    return true;
}

static bool visit_all(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    o->n = o->n_words = o->n_leaves = o->n_scalars = o->n_transforms = 0;
    o->known = false;
    o->deepest = 0;
    o->epoch = ct__new_epoch();
    if (o->numerics && !put_bytes(o, o->numerics, strlen(o->numerics)))
        return ct__err_memory(&ctx->err, CT_NOWHERE, "order", o->words_cap * sizeof *o->words);
    for (size_t i = 0; i < n_roots; i++)
        if (!visit(ctx, o, roots[i].val.node, roots[i].here)) return false;
    return true;
}

// Values between a gradient's loss and its operands are looked behind. Gradients that appear there
// may have others.
static bool open_values(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    for (size_t opened = 0; o->known && o->n_transforms > opened;) {
        bool walked = false; // which leaves other numbers in the nodes
        opened = o->n_transforms;
        for (size_t i = 0; i < o->n; i++) {
            const ct_node *node = o->nodes[i];
            if (node->op->kind != &ct__kind_transform || ct__stops(node) ||
                outermost_wrt(node) > o->deepest)
                continue;
            walked = true;
            if (!open_gradient(o, node))
                return ct__err_memory(&ctx->err, CT_NOWHERE, "order", o->n * sizeof *o->open);
        }
        if (walked && !visit_all(ctx, o, roots, n_roots)) return false;
    }
    return true;
}

bool ct__order(ct_ctx *ctx, ct_order *o, const ct_root *roots, size_t n_roots) {
    o->owner = ctx->id;
    o->inner = 0;
    for (size_t d = 0; o->numerics && d + 1 < ctx->depth; d++)
        if (ctx->frames[d]->computes) o->inner = (uint32_t)ctx->depth - 1;
    if (!visit_all(ctx, o, roots, n_roots) || !open_values(ctx, o, roots, n_roots)) return false;
    for (size_t i = 0; i < n_roots; i++) {
        const ct_root *r = &roots[i];
        uint64_t target = UINT32_MAX;
        if (r->var && r->var->storage) {
            uint32_t leaf = ct__order_var(o, r->var);
            target = leaf != UINT32_MAX ? leaf : UINT32_MAX - 1;
        }
        uint64_t w[2] = {(uint64_t)r->kind << 60 | 1ull << 59 | r->val.node->index,
                         (uint64_t)r->val.out << 32 | target};
        if (!put(o, w, 2)) return ct__err_memory(&ctx->err, r->here, "order", sizeof w);
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
    ct__free(o->places);
    ct__free(o->scalars);
    ct__free(o->words);
    ct__free(o->stack);
    *o = (ct_order){0};
}
