// Recording: operands are resolved, shapes checked, a node is laid into the innermost frame.
#include <stdio.h>
#include <string.h>

#include "graph/handle.h"
#include "graph/symbols.h"

static void *attr_at(const ct_field *f, const void *attrs) {
    return (char *)(uintptr_t)attrs + f->offset;
}

void *ct__attrs_copy(ct_arena *arena, const ct_opdef *op, const void *attrs) {
    char *copy = ct__arena(arena, op->attr_size);
    if (!copy) return NULL;
    memcpy(copy, attrs, op->attr_size);
    for (size_t i = 0; i < op->n_fields; i++) {
        void *at = attr_at(&op->fields[i], copy);
        if (op->fields[i].kind == CT_FIELD_ints) {
            ct_ints *list = at;
            int64_t *v = ct__arena(arena, (size_t)list->n * sizeof *v);
            if (!v) return NULL;
            for (int64_t k = 0; k < list->n; k++) v[k] = list->v[k]; // a few
            list->v = v;
        } else if (op->fields[i].kind == CT_FIELD_bodies) {
            ct_bodies *bodies = at;
            ct_body **v = ct__arena(arena, bodies->n * sizeof *v);
            if (!v) return NULL;
            for (size_t k = 0; k < bodies->n; k++) v[k] = bodies->v[k];
            bodies->v = v;
        } else if (op->fields[i].kind == CT_FIELD_data) {
            ct_data_bytes *data = at;
            void *bytes = ct__arena(arena, data->n);
            if (!bytes) return NULL;
            if (data->n) memcpy(bytes, data->bytes, data->n);
            data->bytes = bytes;
        } else if (op->fields[i].kind == CT_FIELD_type) {
            ct_type *type = at;
            int64_t *dim = ct__arena(arena, type->rank * sizeof *dim);
            if (!dim) return NULL;
            if (type->rank) memcpy(dim, type->dim, type->rank * sizeof *dim);
            type->dim = dim;
        }
    }
    return copy;
}

static bool ints_equal(const ct_ints *a, const ct_ints *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0);
}

static bool same_body(const ct_body *a, const ct_body *b) {
    return a == b || (a && b && a->n_words == b->n_words && ct__hash_equal(a->hash, b->hash) &&
                      memcmp(a->words, b->words, a->n_words * sizeof *a->words) == 0);
}

bool ct__field_equal(const ct_field *f, const void *a, const void *b) {
    const void *x = attr_at(f, a), *y = attr_at(f, b);
    switch (f->kind) {
    case CT_FIELD_i64: return *(const int64_t *)x == *(const int64_t *)y;
    case CT_FIELD_f64: return memcmp(x, y, sizeof(double)) == 0;
    case CT_FIELD_num: {
        const ct_num *p = x, *q = y;
        return p->given == q->given && memcmp(&p->value, &q->value, sizeof p->value) == 0;
    }
    case CT_FIELD_bool: return *(const bool *)x == *(const bool *)y;
    case CT_FIELD_dtype: return *(const ct_dtype *)x == *(const ct_dtype *)y;
    case CT_FIELD_ints: return ints_equal(x, y);
    case CT_FIELD_body: return same_body(*(ct_body *const *)x, *(ct_body *const *)y);
    case CT_FIELD_bodies: {
        const ct_bodies *p = x, *q = y;
        bool same = p->n == q->n;
        for (size_t i = 0; i < p->n && same; i++) same = same_body(p->v[i], q->v[i]);
        return same;
    }
    case CT_FIELD_data: {
        const ct_data_bytes *p = x, *q = y;
        return p->n == q->n && (p->n == 0 || memcmp(p->bytes, q->bytes, p->n) == 0);
    }
    case CT_FIELD_type: {
        const ct_type *p = x, *q = y;
        return p->dtype == q->dtype && p->weak == q->weak && ct__same_shape(p, q);
    }
    }
    return false;
}

bool ct__attrs_equal(const ct_opdef *op, const void *a, const void *b) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (!ct__field_equal(&op->fields[i], a, b)) return false;
    return true;
}

static void print_body(ct_text *text, const ct_body *body) {
    char hex[33];
    ct__hash_hex(body->hash, hex);
    ct__textf(text, "body %.8s", hex);
}

void ct__attr_print(ct_text *text, ct_field_kind kind, const void *at) {
    switch (kind) {
    case CT_FIELD_i64: ct__textf(text, "%lld", (long long)*(const int64_t *)at); break;
    case CT_FIELD_f64: ct__textf(text, "%.17g", *(const double *)at); break;
    case CT_FIELD_num: {
        const ct_num *num = at;
        if (num->given)
            ct__textf(text, "%.17g", num->value);
        else
            ct__text_add(text, "default");
        break;
    }
    case CT_FIELD_bool: ct__text_add(text, *(const bool *)at ? "true" : "false"); break;
    case CT_FIELD_dtype: ct__text_add(text, ct_dtype_name(*(const ct_dtype *)at)); break;
    case CT_FIELD_ints: {
        const ct_ints *list = at;
        ct__text_add(text, "[");
        for (int64_t k = 0; k < list->n; k++) {
            int64_t v = list->v[k];
            ct__text_add(text, k ? ", " : "");
            if (v == CT_END)
                ct__text_add(text, "end");
            else
                ct__textf(text, "%s%lld", ct__marked(v) ? "n=" : "", (long long)ct__unmarked(v));
        }
        ct__text_add(text, "]");
        break;
    }
    case CT_FIELD_body: print_body(text, *(ct_body *const *)at); break;
    case CT_FIELD_bodies: {
        const ct_bodies *list = at;
        for (size_t k = 0; k < list->n; k++) {
            ct__text_add(text, k ? ", " : "");
            print_body(text, list->v[k]);
        }
        break;
    }
    case CT_FIELD_data: ct__textf(text, "%zu bytes", ((const ct_data_bytes *)at)->n); break;
    case CT_FIELD_type: ct__print_type(text, at); break;
    }
}

void ct__attrs_print(ct_text *text, const ct_opdef *op, const void *attrs) {
    for (size_t i = 0; i < op->n_fields; i++) {
        ct__textf(text, "%s%s=", i ? ", " : "", op->fields[i].name);
        ct__attr_print(text, op->fields[i].kind, attr_at(&op->fields[i], attrs));
    }
}

ct_along ct__along(const ct_node *node) {
    ct_along along = {0};
    for (size_t i = 0; i < node->op->n_fields; i++) {
        const ct_field *f = &node->op->fields[i];
        const void *at = attr_at(f, node->attrs);
        switch (f->means) {
        case CT_MEANS_axis:
            along.axis = (int)*(const int64_t *)at;
            along.axes |= 1u << along.axis;
            break;
        case CT_MEANS_axes: {
            const ct_ints *axes = at;
            for (int64_t k = 0; k < axes->n; k++) along.axes |= 1u << axes->v[k];
            break;
        }
        case CT_MEANS_leading: along.leading = (int)*(const int64_t *)at; break;
        case CT_MEANS_reverse: along.reverse = *(const bool *)at; break;
        case CT_MEANS_unique: along.unique = *(const bool *)at; break;
        case CT_MEANS_sorted: along.sorted = *(const bool *)at; break;
        case CT_MEANS_mode: along.mode = (ct_index_mode) * (const int64_t *)at; break;
        case CT_MEANS_count: along.count = *(const int64_t *)at; break;
        default: break;
        }
    }
    return along;
}

// ------------------------------------------------------------------------------------------ leaves

// A new node of a frame, without operands and outputs. Field by field, since compilers clear a
// record by a string instruction, which takes longer than recording a leaf.
static inline void lay(ct_node *node, const ct_opdef *op, ct_ctx *ctx, ct_frame *frame,
                       const ct_loc *here) {
    node->op = op;
    node->ctx = ctx;
    node->out = NULL;
    node->number = 0;
    node->value = NULL;
    node->epoch = 0;
    node->index = node->users = 0;
    node->n_in = node->n_out = 0;
    node->flags = 0;
    node->region = ctx->region;
    node->slot = 0;
    node->attrs = NULL;
    node->frame = frame;
    node->next = frame->nodes;
    node->here = *here;
    node->var = NULL;
    node->mirror = NULL;
    frame->nodes = node;
    frame->n_nodes++;
}

enum { LEAF_UNIT = 64, FEW_GONE = 16 };

// Leaves of about the same size; the last list has all larger ones.
static ct_node **spares(ct_frame *frame, size_t bytes) {
    size_t i = (bytes - sizeof(ct_node)) / LEAF_UNIT;
    return &frame->spare[i < CT_SPARE_SIZES ? i : CT_SPARE_SIZES - 1];
}

// A dropped leaf's memory serves again, so that loops that carry state do not grow. There, `number`
// holds its size.
static ct_node *leaf_room(ct_frame *frame, size_t bytes) {
    bytes = (bytes + LEAF_UNIT - 1) & ~(size_t)(LEAF_UNIT - 1);
    for (ct_node **at = spares(frame, bytes); *at; at = &(*at)->next)
        if ((*at)->number == bytes) {
            ct_node *node = *at;
            *at = node->next;
            return node;
        }
    return ct__arena(frame->arena, bytes);
}

static ct_node *lay_leaf(ct_ctx *ctx, ct_frame *frame, const ct_opdef *op, const void *attrs,
                         const ct_type *types, int n_out, ct_loc here) {
    size_t dims = 0;
    for (int i = 0; i < n_out; i++) dims += types[i].rank;
    size_t bytes = sizeof(ct_node) + (size_t)n_out * (sizeof(ct_type) + sizeof(ct_storage *)) +
                   dims * sizeof(int64_t);
    ct_node *node = leaf_room(frame, bytes);
    if (!node) return NULL;
    lay(node, op, ctx, frame, &here);
    ct_type *out = (ct_type *)(node + 1);
    ct_storage **value = (ct_storage **)(out + n_out);
    int64_t *dim = (int64_t *)(value + n_out);
    for (int i = 0; i < n_out; i++) {
        value[i] = NULL;
        out[i] = types[i];
        out[i].dim = dim;
        for (int a = 0; a < types[i].rank; a++) *dim++ = types[i].dim[a];
    }
    node->out = out;
    node->n_out = (uint16_t)n_out;
    node->attrs = attrs;
    if (op == &ct__op_data) node->value = value;
    return node;
}

ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here) {
    ct_frame *frame = ct__top(ctx);
    const void *copy = NULL;
    if (attrs && !(copy = ct__attrs_copy(frame->arena, op, attrs))) return NULL;
    return lay_leaf(ctx, frame, op, copy, &type, 1, here);
}

ct_node *ct__leaf(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type, ct_loc here) {
    ct_node *node = ct__leaf_quiet(ctx, op, attrs, type, here);
    if (!node) ct__err_memory(&ctx->err, here, op->name, sizeof *node);
    return node;
}

ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like) {
    const ct_opdef *op = like->op == &ct__op_scalar ? &ct__op_scalar : &ct__op_data;
    ct_node *node = lay_leaf(ctx, frame, op, NULL, like->out, like->n_out, like->here);
    if (!node) ct__err_memory(&ctx->err, like->here, "keep", sizeof *node);
    return node;
}

// Its room in bytes, as lay_leaf and read_leaf asked for it.
static size_t leaf_bytes(const ct_node *leaf) {
    size_t bytes = sizeof *leaf;
    for (int i = 0; i < leaf->n_out && leaf->op != &ct__op_read; i++) // its type is its variable's
        bytes +=
            sizeof(ct_type) + sizeof(ct_storage *) + (size_t)leaf->out[i].rank * sizeof(int64_t);
    return (bytes + LEAF_UNIT - 1) & ~(size_t)(LEAF_UNIT - 1);
}

// Gone leaves are taken out of the frame's list when they are half of it: one by one would take as
// many steps as there are nodes.
void ct__leaf_recycle(ct_node *leaf) {
    ct_frame *frame = leaf->frame;
    const size_t bytes = leaf_bytes(leaf);
    leaf->flags = CT_NODE_GONE;
    leaf->number = bytes;
    if (++frame->n_gone < FEW_GONE || frame->n_gone < frame->n_nodes / 2) return;
    for (ct_node **at = &frame->nodes; *at;) {
        ct_node *gone = *at;
        if (!(gone->flags & CT_NODE_GONE)) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        ct_node **to = spares(frame, gone->number);
        gone->next = *to;
        *to = gone;
    }
    frame->n_nodes -= frame->n_gone;
    frame->n_gone = 0;
}

// --------------------------------------------------------------------------------------- resolving

typedef struct argument_name {
    char s[24];
} argument_name;
static argument_name named(int argument) { // "operand 1"
    argument_name name;
    if (argument >= 0)
        snprintf(name.s, sizeof name.s, "operand %d", argument + 1);
    else
        snprintf(name.s, sizeof name.s, "output %d", -argument);
    return name;
}

static __attribute__((noinline)) bool bad_handle(ct_ctx *ctx, ct_tensor t, const char *op,
                                                 int argument, ct_loc here) {
    static const char *const why[] = {
        [CT_PAST_SCOPE] = "its scope ended",
        [CT_PAST_TRACE] = "the traced function that recorded it had returned",
        [CT_PAST_DROP] = "it was dropped",
        [CT_PAST_PARAMS] = "its parameter set was freed",
        [CT_PAST_CONTEXT] = "its context was freed",
    };
    ct_slot_past past;
    if (!t.bits) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op, "%s is no tensor", named(argument).s);
        return false;
    }
    if (!ct__stale_past(t, &past)) {
        ct__fail(ctx, CT_E_STALE, here, op,
                 "%s is stale: it ended with its scope or function, or was dropped, too "
                 "long ago to say where",
                 named(argument).s);
        return false;
    }
    ct_loc made = past.made, ended = past.ended;
    bool scope = past.kind == CT_PAST_SCOPE, drop = past.kind == CT_PAST_DROP;
    char lines[2][300] = {"", ""};
    if (made.file) snprintf(lines[0], sizeof lines[0], ": made at %s:%u", made.file, made.line);
    if (ended.file && (scope || drop))
        snprintf(lines[1], sizeof lines[1], "%s %s %s:%u", made.file ? "," : ":",
                 scope ? "the scope of" : "dropped at", ended.file, ended.line);
    ct__fail(ctx, CT_E_STALE, here, op, "%s was used after %s%s%s", named(argument).s,
             why[past.kind], lines[0], lines[1]);
    if (scope)
        ct__err_hint(&ctx->err, "carry it out of its scope with ct_keep");
    else if (past.kind == CT_PAST_TRACE)
        ct__err_hint(&ctx->err, "return it as a result of the function");
    return false;
}

// Of what a value was computed from it is only known whether there was a variable.
static void leave_variable(unsigned flags, ct_node *leaf) {
    if (flags & CT_NODE_FROM_VARIABLE && leaf->op == &ct__op_data)
        leaf->flags |= CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF;
}

static uint16_t of_variable(const ct_var *var) {
    return (uint16_t)(CT_NODE_FROM_VARIABLE | (var->tracked ? CT_NODE_TRACKED : 0));
}

// `here` goes by address where calls are frequent: passed on by value it is copied each time.
static ct_node *read_leaf(ct_ctx *ctx, ct_var *var, uint64_t version, const ct_loc *here) {
    ct_frame *frame = ctx->frames[ct__outside_depth(ctx) - 1];
    ct_node *leaf = leaf_room(frame, sizeof *leaf);
    if (!leaf) {
        ct__err_memory(&ctx->err, *here, "read", sizeof *leaf);
        return NULL;
    }
    ct__var_ref(var, ctx);
    lay(leaf, &ct__op_read, ctx, frame, here);
    leaf->out = &var->type; // lives while the leaf does
    leaf->n_out = 1;
    leaf->var = var;
    leaf->flags = of_variable(var);
    leaf->number = version;
    return leaf;
}
ct_node *ct__read_leaf(ct_ctx *ctx, ct_var *var, ct_loc here) {
    return read_leaf(ctx, var, atomic_load_explicit(&var->version, memory_order_acquire), &here);
}

// A storage may move to another device, and its old place go, but for who has the lock.
static __attribute__((noinline)) bool var_lost(const ct_var *var) {
    ct__rwlock_lock(var->lock, false, NULL);
    bool lost = ct__lost(var->storage);
    ct__rwlock_unlock(var->lock, false);
    return lost;
}

static __attribute__((noinline)) bool bad_var(ct_ctx *ctx, const ct_var *var, const char *op,
                                              ct_loc here) {
    ct__rwlock_lock(var->lock, false, NULL);
    const ct_loc ran = var->ran;
    ct__rwlock_unlock(var->lock, false);
    if (var->freed) {
        ct__fail(ctx, CT_E_STALE, here, op, "variable \"%s\" was freed", var->name);
    } else if (!var->storage) {
        ct__fail(ctx, CT_E_UNSET, here, op, "variable \"%s\" is read before its first assignment",
                 var->name);
        ct__err_hint(&ctx->err, "ct_assign gives it a value, ct_params_load those of a whole set");
    } else {
        if (ran.file)
            ct__fail(ctx, CT_E_DEVICE, here, op,
                     "variable \"%s\" is poisoned: the plan that was updating it for %s:%u failed",
                     var->name, ran.file, ran.line);
        else
            ct__fail(ctx, CT_E_DEVICE, here, op,
                     "variable \"%s\" is poisoned: what was giving it its value failed", var->name);
        ct__err_hint(&ctx->err, "assign it anew");
    }
    return false;
}

void ct__hold_version(const ct_ctx *ctx, ct_node *node) {
    ct_storage *storage = node->var->storage;
    if (!ctx->rolling || !storage || storage->version != ct__version_of(node)) return;
    node->held = ct__storage_ref(storage);
    if (storage->home == ctx->id)
        storage->home_holds++;
    else
        node->value = &node->held;
}
static void hold_newest(const ct_ctx *ctx, ct_node *node) {
    ct_var *var = node->var;
    if (!ctx->rolling) return;
    const bool touched = ct__rwlock_try_read_briefly(var->lock);
    if (!touched) ct__rwlock_lock(var->lock, false, NULL);
    if (!node->n_in) node->number = atomic_load_explicit(&var->version, memory_order_relaxed);
    ct__hold_version(ctx, node);
    if (touched)
        ct__rwlock_end_read(var->lock);
    else
        ct__rwlock_unlock(var->lock, false);
}

// The node of a version whose assignment's frame stands: the value, as a value of its own, since
// several variables may be assigned one. In the usual step of training there is none.
static __attribute__((noinline)) ct_node *
version_node(ct_ctx *ctx, ct_var *var, const ct_current *now, bool ran, const ct_loc *here) {
    ct_frame *frame = ctx->frames[now->depth];
    ct_version_node *version = ct__arena(frame->arena, sizeof *version);
    if (!version) {
        ct__err_memory(&ctx->err, *here, "read", sizeof *version);
        return NULL;
    }
    ct__var_ref(var, ctx);
    ct_node *node = &version->node;
    lay(node, &ct__op_same, ctx, frame, here);
    node->out = &var->type; // lives while the node does
    node->in = &version->value;
    node->n_in = node->n_out = 1;
    node->var = var;
    node->flags = (uint16_t)(of_variable(var) | (ran ? CT_NODE_STORED : 0));
    version->value = now->value;
    version->version = now->version;
    ct__use(now->value.node);
    frame->computes = true;
    ctx->nodes++;
    if (ran) hold_newest(ctx, node);
    return node;
}

static bool stands(const ct_ctx *ctx, const ct_current *now) {
    return now->carried ||
           (now->depth < ctx->depth && ctx->frames[now->depth]->serial == now->serial);
}

void ct__current_replaced(const ct_ctx *ctx, const ct_current *now) {
    ct_node *leaf = stands(ctx, now) && !now->carried ? now->node : NULL;
    if (leaf && !leaf->n_in && !leaf->mirror && !leaf->slot) ct__leaf_drop(leaf);
}

// A read without a node: of a variable that was told since whether what is made of it keeps its history, what was read
// before is another one. The tracked read stays the version's, which a gradient finds.
static bool read_otherwise(ct_ctx *ctx, ct_var *var, ct_current *now, ct_val *val,
                           const ct_loc *here) {
    ct_node *leaf = read_leaf(ctx, var, now->version, here);
    if (!leaf) return false;
    hold_newest(ctx, leaf);
    *val = (ct_val){leaf, 0};
    if (!var->tracked) return true;
    now->version = leaf->number;
    now->value.node = NULL;
    now->node = leaf;
    now->depth = leaf->frame->depth;
    now->serial = leaf->frame->serial;
    now->carried = false;
    return true;
}

static bool resolve_var(ct_ctx *ctx, ct_var *var, ct_val *val, const char *op, const ct_loc *here) {
    const bool pending = atomic_load_explicit(&var->writer, memory_order_relaxed) == ctx;
    // Loaded before the state is looked at: where another context frees or breaks the variable
    // meanwhile, the leaf has a version that is gone, not that of a value that is not there.
    const uint64_t version = atomic_load_explicit(&var->version, memory_order_acquire);
    if (!pending && (!var->storage || var->broken ||
                     (atomic_load_explicit(&ct__faults, memory_order_relaxed) && var_lost(var))))
        return bad_var(ctx, var, op, *here);
    ct_current *now = ct__current(ctx, var);
    if (!now) return ct__err_memory(&ctx->err, *here, "read", sizeof *now);
    if (!pending && (!stands(ctx, now) || now->version != version)) {
        ct_node *leaf = read_leaf(ctx, var, version, here);
        if (!leaf) return false;
        hold_newest(ctx, leaf);
        ct__current_replaced(ctx, now);
        now->version = leaf->number;
        now->value.node = NULL;
        now->node = leaf;
        now->depth = leaf->frame->depth;
        now->serial = leaf->frame->serial;
        now->carried = false;
    } else if (!now->node && !(now->node = version_node(ctx, var, now, !pending, here))) {
        return false;
    }
    if (ctx->rolling && !pending && !(now->node->flags & CT_NODE_TRACKED) != !var->tracked)
        return read_otherwise(ctx, var, now, val, here);
    *val = (ct_val){now->node, 0};
    return true;
}

// Outer tensors that a traced function uses become parameters of its body, one level after the
// other.
static __attribute__((noinline)) bool capture(ct_ctx *ctx, ct_val *val, ct_loc here) {
    for (size_t d = 0; d < ctx->depth; d++) {
        ct_frame *frame = ctx->frames[d];
        if (frame->kind != CT_FRAME_BODY || val->node->frame->serial >= frame->serial) continue;
        ct_body *body = frame->body;
        size_t i = 0;
        while (i < body->n_captured &&
               (body->captured_from[i].node != val->node || body->captured_from[i].out != val->out))
            i++;
        if (i == body->n_captured) {
            if (!CT_GROW(body->captured, body->captured_cap, i + 1) ||
                !CT_GROW(body->captured_from, body->captured_from_cap, i + 1))
                return ct__err_memory(&ctx->err, here, "capture", sizeof *val);
            size_t depth = ctx->depth;
            ctx->depth = d + 1; // the parameter belongs to the body's own frame
            ct_node *param = ct__leaf(ctx, &ct__op_param, NULL, *ct__type(*val), here);
            ctx->depth = depth;
            if (!param) return false;
            param->number = body->n_params + i;
            body->captured_from[i] = *val;
            body->captured[i] = param;
            body->n_captured++;
        }
        *val = (ct_val){body->captured[i], 0};
    }
    return true;
}

typedef enum ct_seen { SEEN_VALUE, SEEN_POISON, SEEN_LOST, SEEN_PENDING, SEEN_VARIABLE } ct_seen;
static ct_seen look_at(const ct_look *at) {
    const unsigned flags = ct__flags(at);
    if (flags & CT_NODE_POISON) return SEEN_POISON;
    if (flags & CT_NODE_VARIABLE) return SEEN_VARIABLE;
    if (at->node->op == &ct__op_scalar) return SEEN_VALUE;
    const ct_storage *value = ct__value(at, (int)at->out);
    return !value ? SEEN_PENDING : ct__lost(value) ? SEEN_LOST : SEEN_VALUE;
}

// A leaf in this context with the values of what is looked at. NULL: no memory, and nobody was told.
static ct_node *local_leaf(ct_ctx *ctx, const ct_look *at) {
    const ct_node *node = at->node;
    const ct_opdef *op = node->op == &ct__op_scalar ? node->op : &ct__op_data;
    ct_frame *frame = ctx->frames[ct__outside_depth(ctx) - 1];
    ct_node *leaf = lay_leaf(ctx, frame, op, NULL, node->out, node->n_out, node->here);
    if (!leaf) return NULL;
    if (op == &ct__op_scalar) {
        leaf->number = node->number;
        leaf->precise = node->precise;
    }
    for (int i = 0; i < node->n_out && op != &ct__op_scalar; i++)
        leaf->value[i] = ct__storage_ref(ct__value(at, i));
    leave_variable(ct__flags(at), leaf);
    return leaf;
}

static bool bad_seen(ct_ctx *ctx, ct_seen what, ct_loc made, const char *op, int argument,
                     ct_loc here) {
    if (what == SEEN_POISON && !ctx->err.code)
        ct__fail(ctx, CT_E_STALE, here, op, "%s is poisoned by an error that was cleared",
                 named(argument).s);
    if (what == SEEN_LOST)
        ct__fail(ctx, CT_E_DEVICE, here, op,
                 "%s is poisoned: the device failed while it was computed", named(argument).s);
    if (what == SEEN_PENDING)
        ct__fail(ctx, CT_E_CONTEXT, here, op,
                 "%s was recorded at %s:%u in another context and is not evaluated there yet",
                 named(argument).s, made.file ? made.file : "?", made.line);
    return false;
}

// What another context evaluated, which goes on meanwhile, is a leaf of this one.
static __attribute__((noinline)) bool resolve_foreign(ct_ctx *ctx, ct_tensor t, ct_val *val,
                                                      const char *op, int argument, ct_loc here) {
    ct_look at;
    if (!ct__look(t, &at)) return bad_handle(ctx, t, op, argument, here);
    const ct_seen what = look_at(&at);
    const ct_loc made = at.node->here;
    if (what == SEEN_VALUE) *val = (ct_val){local_leaf(ctx, &at), at.out};
    ct__looked(&at);
    if (what == SEEN_VALUE)
        return val->node || ct__err_memory(&ctx->err, made, "keep", sizeof *val->node);
    if (what != SEEN_VARIABLE) return bad_seen(ctx, what, made, op, argument, here);
    ct_var *var = ct__var_hold(t, ctx);
    if (!var) return bad_handle(ctx, t, op, argument, here);
    const bool ok = resolve_var(ctx, var, val, op, &here);
    ct__var_unref(var, ctx);
    return ok;
}

bool ct__resolve(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op, int argument, ct_loc here) {
    const ct_node *node = val->node = ct__peek_fast(ctx, t, &val->out);
    if (!node) {
        if (!resolve_foreign(ctx, t, val, op, argument, here)) return false;
    } else if (node->flags & CT_NODE_POISON) {
        return bad_seen(ctx, SEEN_POISON, node->here, op, argument, here);
    } else if (node->value && ct__lost(node->value[val->out])) {
        return bad_seen(ctx, SEEN_LOST, node->here, op, argument, here);
    } else if (node->flags & CT_NODE_VARIABLE) {
        if (!resolve_var(ctx, node->var, val, op, &here)) return false;
    }
    return !ctx->tracing || capture(ctx, val, here);
}

// --------------------------------------------------------------------------------------- recording

bool ct__call_err(ct_call *call, ct_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(call->err, code, call->here, call->op->name, format, args);
    va_end(args);
    return false;
}

bool ct__call_hint(ct_call *call, const char *format, ...) {
    char text[CT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ct__err_hint(call->err, "%s", text);
    return false;
}

int64_t *ct__call_dims(ct_call *call, int rank) {
    if (rank > CT_MAX_RANK) {
        ct__call_err(call, CT_E_SHAPE, "the result would have %d axes, at most %d are possible",
                     rank, CT_MAX_RANK);
        return NULL;
    }
    int64_t *dim = ct__arena(call->arena, (size_t)rank * sizeof *dim);
    if (!dim) ct__err_memory(call->err, call->here, call->op->name, (size_t)rank * sizeof *dim);
    return dim;
}

bool ct__call_outs(ct_call *call, int n) {
    call->out = ct__arena_zero(call->arena, (size_t)n * sizeof *call->out);
    if (!call->out)
        return ct__err_memory(call->err, call->here, call->op->name, (size_t)n * sizeof *call->out);
    call->n_out = n;
    return true;
}

// The very sizes of one of the first operands, which fit already.
static bool has_sizes_of_operand(const ct_call *call, const ct_type *out) {
    for (int i = 0; i < 2 && i < call->n_in && out->dtype != CT_C128; i++)
        if (out->dim == call->in[i]->dim && out->rank == call->in[i]->rank) return true;
    return false;
}

// What a node can hold: operands and outputs by number, and sizes.
static bool fits(ct_call *call) {
    if (call->n_in > UINT16_MAX || call->n_out > CT_MOST_OUTPUTS)
        return ct__call_err(call, CT_E_ARGUMENT,
                            "%d operands and %d outputs; at most %d and %d are possible",
                            call->n_in, call->n_out, UINT16_MAX, CT_MOST_OUTPUTS);
    for (int i = 0; i < call->n_out; i++)
        if (!has_sizes_of_operand(call, &call->out[i]) &&
            !ct__type_fits(&call->out[i], call->err, call->here, call->op->name))
            return false;
    return true;
}

// A mark without a symbol, in a plan: it fits the sizes alone that it is made for.
static int64_t canonical_size(ct_symbols *symbols, int64_t size) {
    if (ct__marked(size) && !ct__is_symbol(size)) ct__symbols_incomplete(symbols);
    return ct__size_canonical(symbols, size);
}
static void canonical_attrs(ct_symbols *symbols, const ct_opdef *op, void *attrs) {
    for (size_t f = 0; f < op->n_fields; f++) {
        void *at = (char *)attrs + op->fields[f].offset;
        if (op->fields[f].kind == CT_FIELD_i64)
            *(int64_t *)at = canonical_size(symbols, *(int64_t *)at);
        if (op->fields[f].kind != CT_FIELD_ints) continue;
        int64_t *v = (int64_t *)(uintptr_t)((ct_ints *)at)->v; // the node's own
        for (int64_t i = 0; i < ((ct_ints *)at)->n; i++) v[i] = canonical_size(symbols, v[i]);
    }
}

static bool keeps_operands(const ct_opdef *op);

#define CT_CAST_FLOATS (CT_MASK(CT_F16) | CT_MASK(CT_BF16) | CT_MASK(CT_F32))

// In a plan every dynamic size has a symbol: one of its own where the shape rule gave none. The rule
// that is asked again in another run knows the sizes of this run alone of what a body makes.
static bool name_sizes(ct_ctx *ctx, ct_node *node, ct_call *call) {
    canonical_attrs(ctx->symbols, call->op, call->attrs);
    for (int i = 0; i < call->n_out; i++) {
        ct_type *type = &call->out[i];
        if (!type->dyn || type->mark) continue;
        if (keeps_operands(call->op)) ct__symbols_incomplete(ctx->symbols);
        int64_t *mark = ct__arena(call->arena, type->rank * sizeof *mark);
        if (!mark) return ct__err_memory(call->err, call->here, call->op->name, type->rank * 8u);
        for (int a = 0; a < type->rank; a++)
            mark[a] = ct__is_dyn(type, a)
                          ? ct__symbol_axis(ctx->symbols, node, (uint32_t)i, a, type->dim[a])
                          : type->dim[a];
        type->mark = mark;
    }
    return true;
}

enum { FEW = 16 };
// The integers that do not hold all of i64.
#define BELOW_I64 (CT_INTEGERS & ~CT_MASK(CT_I64))

// The node, its operands and outputs lie together; the shape rule fills the outputs in place.
ct_node *ct__number_leaf(ct_ctx *ctx, ct_type type) {
    size_t depth = ctx->depth;
    // Outside of traced functions, which take it as a parameter: another value needs no other body.
    ctx->depth = ct__outside_depth(ctx);
    ct_node *node = ct__leaf(ctx, &ct__op_scalar, NULL, type, CT_NOWHERE);
    ctx->depth = depth;
    return node;
}

// Does each operand go its own way, whatever dtypes the others have? Those of a body are its
// parameters, of the dtypes with which it was traced; a gradient is with respect to the very ones.
static bool keeps_operands(const ct_opdef *op) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].kind == CT_FIELD_body || op->fields[i].kind == CT_FIELD_bodies)
            return true;
    return op->kind == &ct__kind_transform;
}

// What a parameter of a function that is being traced stands for; NULL: nobody knows.
static ct_node *stands_for(const ct_node *param) {
    if (param->op != &ct__op_param || param->frame->kind != CT_FRAME_BODY) return NULL;
    const ct_body *body = param->frame->body;
    if (param->number >= body->n_params)
        return body->captured_from[param->number - body->n_params].node;
    return param->number < body->n_operands ? body->operands[param->number].node : NULL;
}

bool ct__is_number(const ct_node *node) {
    while (node->op == &ct__op_param && node->frame->kind == CT_FRAME_BODY &&
           node->number >= node->frame->body->n_params)
        node = node->frame->body->captured_from[node->number - node->frame->body->n_params].node;
    return node->op == &ct__op_scalar;
}

// The bare number (ct_f) that a tensor is, be it the operand of a traced function; NULL: it is
// none. No gradient will find it behind what was recorded: it and its parameters are marked.
static const ct_node *number_to_widen(ct_node *node) {
    ct_node *number = node;
    while (number->op == &ct__op_param && (number = stands_for(number))) {
    }
    if (!number || number->op != &ct__op_scalar || !number->out->weak ||
        number->out->dtype != CT_F32)
        return NULL;
    for (ct__flag(number, CT_NODE_WIDENED); node != number; node = stands_for(node))
        ct__flag(node, CT_NODE_WIDENED);
    return number;
}

// Bare numbers that meet an f64 are taken as they were written, not as the f32 that they are alone.
// In a plan they have no values: those that met an f64 were f64 when it was recorded.
static ct_tensor in_f64(ct_ctx *ctx, ct_node *node) { // CT_NONE: it is no bare number
    if (node->op == &ct__op_complex && node->out->weak) {
        const ct_tensor part[2] = {in_f64(ctx, node->in[0].node), in_f64(ctx, node->in[1].node)};
        return part[0].bits && part[1].bits ? ct__record(node->op, NULL, part, 2, node->here)
                                            : CT_NONE;
    }
    const ct_node *number = number_to_widen(node);
    if (!number) return CT_NONE;
    ct_node *wide = ct__number_leaf(ctx, (ct_type){.dtype = CT_F64});
    if (!wide) return ct__poison(ctx, CT_NOWHERE);
    ct__store_f64(CT_F64, &wide->number, 0, number->precise);
    return ct__handle(wide, 0);
}
static bool numbers_in_f64(ct_ctx *ctx, const ct_opdef *op, int n_in, ct_val *val,
                           const ct_type **types, ct_loc here) {
    if (ct__in_plan(ctx) || keeps_operands(op)) return true;
    for (int i = 0; i < n_in; i++) {
        const ct_tensor wide = in_f64(ctx, val[i].node);
        ct_val to;
        if (!wide.bits) continue;
        if (!ct__resolve(ctx, wide, &to, op->name, i, here)) return false;
        ct__unuse(val[i].node);
        val[i] = to;
        types[i] = ct__type(to);
        ct__use(to.node);
    }
    return true;
}

// Bare numbers among the operands, whose dtypes are seen[1], beside tensors of those of seen[0].
static __attribute__((noinline)) bool numbers_meet(ct_ctx *ctx, ct_call *call,
                                                   const ct_dtypes seen[2], const ct_tensor *in,
                                                   ct_val *val, const ct_type **types) {
    const ct_dtypes wide = CT_MASK(CT_F64) | CT_MASK(CT_C128);
    if (seen[1] & CT_INTEGERS && seen[0] & BELOW_I64) call->whole = in;
    if (!(seen[1] & (CT_MASK(CT_F32) | CT_MASK(CT_C64)) && seen[0] & wide)) return true;
    return numbers_in_f64(ctx, call->op, call->n_in, val, types, call->here);
}

// The number that a tensor is made of, however it is shaped and however many traced functions took
// it as a parameter.
static const ct_node *origin_of(const ct_node *node) {
    for (;;) {
        const ct_node *behind =
            node->op->map && node->n_in == 1 ? node->in->node : stands_for(node);
        if (!behind) return node;
        node = behind;
    }
}

static bool whole_number(const ct_look *at, int64_t *value) { // is it a bare integer?
    const ct_node *node = at->lock ? at->node : origin_of(at->node);
    const bool whole =
        node->op == &ct__op_scalar && node->out->weak && !ct__is_float(node->out->dtype);
    if (whole) *value = ct__load_i64(node->out->dtype, &node->number, 0);
    return whole;
}

bool ct__bare_fits(ct_tensor t, ct_dtype dtype, int argument, bool compared, ct_err *err,
                   ct_loc here, const char *op) {
    ct_look at;
    int64_t value;
    if (!ct__is_int(dtype) || !ct__look(t, &at)) return true;
    const bool whole = whole_number(&at, &value);
    ct__looked(&at);
    if (!whole) return true;
    int64_t least = ct__int_min(dtype), most = ct__int_max(dtype); // of u64 the most is -1
    if (value >= least && (dtype == CT_U64 || value <= most)) return true;
    const char *name = ct_dtype_name(dtype);
    ct__err(err, CT_E_ARGUMENT, here, op,
            dtype == CT_U64 ? "operand %d is %lld, which does not fit %s (%lld to %llu)"
                            : "operand %d is %lld, which does not fit %s (%lld to %lld)",
            argument + 1, (long long)value, name, (long long)least, (long long)most);
    if (compared)
        ct__err_hint(err, "ct_cast the tensor to a wider dtype: ct_cast(x, CT_%s)",
                     dtype == CT_U64 ? "F64" : "I64");
    else
        ct__err_hint(err,
                     "ct_cast the tensor to a dtype that holds it, or the number to %s: that wraps",
                     name);
    return false;
}

bool ct__call_bare_fits(ct_call *call, int operand, ct_dtype dtype) {
    return ct__bare_fits(call->whole[operand], dtype, operand, call->compares, call->err,
                         call->here, call->op->name);
}

// Lists come from the caller: their lengths are looked at before they are read.
static bool lists_sound(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_loc here) {
    for (size_t i = 0; i < op->n_fields; i++) {
        const ct_field *field = &op->fields[i];
        if (field->kind != CT_FIELD_ints || field->means == CT_MEANS_places) continue;
        const ct_ints *list = attr_at(field, attrs);
        if (list->n >= 0 && list->n <= CT_MAX_RANK && (list->v || !list->n)) continue;
        if (list->n < 0 || list->n > CT_MAX_RANK)
            ct__fail(ctx, CT_E_SHAPE, here, op->name,
                     "%s has %lld numbers, at most %d are possible", op->fields[i].name,
                     (long long)list->n, CT_MAX_RANK);
        else
            ct__fail(ctx, CT_E_ARGUMENT, here, op->name, "the %lld numbers of %s are NULL",
                     (long long)list->n, op->fields[i].name);
        if (!list->v) // a number where a list is wanted, as in NumPy
            ct__err_hint(&ctx->err, "%s is a list: %s(%lld)", op->fields[i].name,
                         strcmp(op->fields[i].name, "axes") == 0 ? "CT_AXES" : "CT_INTS",
                         (long long)list->n);
        return false;
    }
    return true;
}

static __attribute__((noinline)) bool operands_sound(ct_ctx *ctx, const ct_opdef *op,
                                                     const ct_tensor *in, int n_in, ct_loc here) {
    if (n_in < 0 || n_in > UINT16_MAX) {
        ct__fail(ctx, CT_E_ARGUMENT, here, op->name, "%d operands, 0 to %d are possible", n_in,
                 UINT16_MAX);
        return false;
    }
    return ct__given(ctx, in, here, op->name, "the list of operands");
}

// ------------------------------------------------------------------------------------------ places

static bool is_key(const ct_type *type) { // of random numbers, which fit any tensor
    return type->dtype == CT_U32 && type->rank == 1 && type->dim[0] == 2;
}
// Is it no more than numbers, which are there on all devices, and what nobody sent anywhere?
static bool is_of_numbers(const ct_node *node) {
    enum { MOST = 64 }; // of what is recorded for zeros, ranges, keys of random numbers
    const ct_node *open[MOST];
    int n = 1, met = 0;
    for (open[0] = node; n && met < MOST; met++) {
        node = open[--n];
        if (!node->out->rank || is_key(node->out) || node->op == &ct__op_const) continue;
        if (node->value || node->op->kind == &ct__kind_leaf || node->op->moves ||
            node->out->place || node->n_in > MOST - n)
            return false;
        for (int i = 0; i < node->n_in; i++) open[n++] = node->in[i].node;
    }
    return !n;
}
static bool same_line(const ct_loc *a, const ct_loc *b) {
    return a->line == b->line &&
           (a->file == b->file || (a->file && b->file && !strcmp(a->file, b->file)));
}
bool ct__goes_anywhere(ct_val v, const ct_loc *here) {
    const ct_type *type = ct__type(v);
    if (type->rank == 0 || is_key(type) || v.node->op == &ct__op_const) return true;
    return !type->place && same_line(&v.node->here, here) && is_of_numbers(v.node);
}

// The operand that says where the results lie; -1: none does, all go anywhere.
static int leader(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++)
        if (!ct__goes_anywhere(call->vals[i], &call->here)) return i;
    return -1;
}

// Does its shape rule say where the results lie: a traced function, in which tensors may move, or a transform of one?
static bool says_places(const ct_opdef *op) {
    bool says = op->kind == &ct__kind_transform || op->scattered;
    for (size_t i = 0; i < op->n_fields && !says; i++) says = op->fields[i].kind == CT_FIELD_body;
    return says;
}

static const char *place_of(ct_ctx *ctx, const ct_type *type) {
    return ct__hooks.place_name(ctx, type->place);
}

// Operands of one op lie on one device. Rules in a plan may mix: they work on what was seen already.
static __attribute__((noinline)) bool meet(ct_ctx *ctx, ct_call *call) {
    const int first = leader(call);
    if (ct__in_plan(ctx) || first < 0 || says_places(call->op)) return true;
    for (int i = first + 1; i < call->n_in; i++) {
        if (ct__goes_anywhere(call->vals[i], &call->here) ||
            call->in[i]->place == call->in[first]->place)
            continue;
        const ct_loc a = call->vals[first].node->here, b = call->vals[i].node->here;
        ct__call_err(
            call, CT_E_DEVICE,
            "operands lie on two devices: operand %d is %s on %s (%s:%u), operand %d is %s "
            "on %s (%s:%u)",
            first + 1, ct__type_text(call->in[first]).s, place_of(ctx, call->in[first]),
            a.file ? a.file : "?", a.line, i + 1, ct__type_text(call->in[i]).s,
            place_of(ctx, call->in[i]), b.file ? b.file : "?", b.line);
        return ct__call_hint(call, "ct_to brings a tensor to another device");
    }
    return true;
}

// Results lie where the operands lie. In a plan what was sent away goes before what lies at home:
// rules make constants there.
static __attribute__((noinline)) bool place_outputs(ct_call *call) {
    int place = 0;
    const int first = leader(call);
    if (says_places(call->op)) return true;
    if (first >= 0) place = call->in[first]->place;
    for (int i = 0; i < call->n_in && !place; i++)
        if (first < 0 || !ct__goes_anywhere(call->vals[i], &call->here)) place = call->in[i]->place;
    for (int i = 0; i < call->n_out; i++) call->out[i].place = (uint8_t)place;
    return true;
}

enum { BEHIND = CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF | CT_NODE_TRACKED };
static void inherit(ct_node *node, unsigned behind) {
    const bool none = node->op->jvp == CT_NO_GRAD && !node->op->expand;
    if (!none && ct__is_differentiable(node->out->dtype)) node->flags = (uint16_t)(behind & BEHIND);
}

uint16_t ct__region_begin(ct_ctx *ctx) {
    if (ctx->region) return 0; // which ends nothing
    if (++ctx->newest_region == 0) ctx->newest_region = 1;
    return ctx->region = ctx->newest_region;
}
void ct__region_end(ct_ctx *ctx, uint16_t begun) {
    if (begun) ctx->region = 0;
}

// The operands in the dtype of the op's class. Equal casts of one step are one, so that a weight is cast once however
// often it is used. What is no float to cast, or no tensor, is the op's to judge. NULL: an error.
static __attribute__((noinline)) const ct_tensor *
cast_operands(ct_ctx *ctx, const ct_opdef *op, const ct_tensor *in, int n_in, ct_loc here) {
    ct_tensor *cast = ct__arena(ct__top(ctx)->arena, (size_t)n_in * sizeof *cast);
    ct_dtype to = op->autocast == CT_CAST_F32 ? CT_F32 : ctx->autocast;
    if (!cast) {
        ct__err_memory(&ctx->err, here, op->name, (size_t)n_in * sizeof *cast);
        return NULL;
    }
    for (int pass = op->autocast == CT_CAST_WIDEST ? 0 : 1; pass < 2; pass++)
        for (int i = 0; i < n_in; i++) {
            ct_look at;
            ct_dtype is = CT_DEFAULT; // of what takes part
            if (ct__look(in[i], &at)) {
                const ct_type *type = &at.node->out[at.out];
                const bool takes = !type->weak && CT_MASK(type->dtype) & CT_CAST_FLOATS;
                if (takes && !(ct__flags(&at) & CT_NODE_POISON)) is = (ct_dtype)type->dtype;
                ct__looked(&at);
            }
            const bool other = is != CT_DEFAULT && is != to;
            if (other && !pass) to = CT_F32;
            if (pass) cast[i] = other ? ct_cast_at(in[i], to, here) : in[i];
        }
    return cast;
}

ct_dtype ct_autocast_set_at(ct_dtype dtype, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_F32;
    const ct_dtype before = ct_autocast_dtype();
    if (dtype == CT_BF16 || dtype == CT_F16 || dtype == CT_F32)
        ctx->autocast = dtype == CT_F32 ? CT_DEFAULT : dtype;
    else
        ct__fail(ctx, CT_E_ARGUMENT, here, "autocast",
                 "the dtype is %s, it must be bf16 or f16, or f32, which casts nothing",
                 ct_dtype_name(dtype));
    return before;
}
ct_dtype ct_autocast_dtype(void) {
    const ct_ctx *ctx = ct__ctx();
    return ctx && ctx->autocast != CT_DEFAULT ? ctx->autocast : CT_F32;
}
void ct__autocast_cleanup(ct_dtype *before) { ct_autocast_set_at(*before, CT_NOWHERE); }

ct_tensor ct__record(const ct_opdef *op, const void *attrs, const ct_tensor *in, int n_in,
                     ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (((!in && n_in) || n_in < 0 || n_in > UINT16_MAX) &&
        !operands_sound(ctx, op, in, n_in, here))
        return ct__poison(ctx, here);
    if (__builtin_expect(ctx->autocast != CT_DEFAULT, 0) && op->autocast && !ct__in_plan(ctx) &&
        !(in = cast_operands(ctx, op, in, n_in, here)))
        return ct__poison(ctx, here);
    if (op->n_fields && !lists_sound(ctx, op, attrs, here)) return ct__poison(ctx, here);
    ct_frame *frame = ct__top(ctx);
    ct_arena *arena = frame->arena;
    size_t n_out = op->n_out < 0 ? 0 : (size_t)op->n_out;
    const ct_type *few_types[FEW], **types = few_types;
    ct_node *node =
        ct__arena(arena, sizeof *node + (size_t)n_in * sizeof(ct_val) + n_out * sizeof(ct_type));
    if (n_in > FEW) types = ct__arena(arena, (size_t)n_in * sizeof *types);
    void *own = op->n_fields ? ct__attrs_copy(arena, op, attrs) : NULL;
    if (!node || !types || (op->n_fields && !own))
        return ct__fail(ctx, CT_E_MEMORY, here, op->name, "out of memory while recording");
    ct_val *val = (ct_val *)(node + 1);
    ct_type *out = (ct_type *)(val + n_in);
    memset(out, 0, n_out * sizeof *out);
    ct_call call = {op,    own,       n_in, types, (int)n_out, n_out ? out : NULL,
                    arena, &ctx->err, here, NULL,  false,      ctx->symbols != NULL,
                    val};
    int used = 0;
    ct_dtypes seen[2] = {0}; // of tensors, and of bare numbers
    unsigned behind = 0, places = 0;
    while (used < n_in && ct__resolve_fast(ctx, in[used], &val[used], op->name, used, here)) {
        const ct_type *type = types[used] = ct__type(val[used]);
        seen[type->weak] |= CT_MASK(type->dtype);
        places |= type->place;
        behind |= val[used].node->flags;
        ct__use(val[used++].node);
    }
    bool ok = used == n_in && (!seen[1] || numbers_meet(ctx, &call, seen, in, val, types));
    ok = ok && (!places || meet(ctx, &call));
    if (!ok || !op->infer(&call) || !fits(&call) || (places && !place_outputs(&call)) ||
        (ctx->symbols && !name_sizes(ctx, node, &call))) {
        while (used--) ct__unuse(val[used].node);
        return ct__poison(ctx, here);
    }
    lay(node, op, ctx, frame, &here);
    node->attrs = own;
    node->in = val;
    node->out = call.out;
    node->n_in = (uint16_t)n_in;
    node->n_out = (uint16_t)call.n_out;
    if (behind & BEHIND) inherit(node, behind);
    frame->computes = true;
    ctx->nodes++;
    ct_tensor t = ct__handle(node, 0);
    return t.bits ? t : ct__fail(ctx, CT_E_MEMORY, here, op->name, "out of memory while recording");
}

void ct__outputs(ct_tensor first, ct_tensor *out, size_t n) {
    uint32_t zero;
    const ct_node *node = ct__peek(first, &zero);
    bool good = node && !(node->flags & CT_NODE_POISON);
    for (size_t i = 0; i < n; i++) out[i].bits = first.bits + (good ? i : 0);
}
ct_tensor ct__output(ct_tensor t, uint32_t out) {
    uint32_t first;
    const ct_node *node = ct__peek(t, &first);
    if (!node || node->flags & CT_NODE_POISON) return t;
    return (ct_tensor){t.bits - first + out};
}

ct_var *ct__var_of(ct_tensor t) {
    ct_look at;
    if (!ct__look(t, &at)) return NULL;
    ct_var *var = ct__flags(&at) & CT_NODE_VARIABLE ? at.node->var : NULL;
    ct__looked(&at);
    return var;
}
