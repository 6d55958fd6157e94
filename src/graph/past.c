// What a kept value was computed from, or one of another context. Its scope's nodes are gone, but a
// gradient must not take a value for a constant that depends on what it is taken with respect to.
#include <string.h>

#include "graph/handle.h"

typedef struct {
    ct_ctx *ctx;
    uint64_t epoch; // of nodes with a row
    size_t to;      // nodes of frames behind this one end
    size_t words;   // of a row: a bit for each kept node that needs the node
    uint64_t *rows;
    size_t n_rows, rows_cap;
    ct_node **sources; // leaves, and nodes that stay
    size_t n_sources, sources_cap;
    ct_origin *origins;
    size_t *origin_row;
    size_t n_origins, origins_cap, origin_row_cap;
    size_t *places; // (n_places) a power of two: origins hashed, from 1 on
    size_t n_places;
} trail;

static bool ends(const trail *t, const ct_node *node) { return node->frame->depth > t->to; }

static bool new_row(trail *t, size_t *row) {
    if (!CT_GROW(t->rows, t->rows_cap, (t->n_rows + 1) * t->words)) return false;
    memset(t->rows + t->n_rows * t->words, 0, t->words * sizeof *t->rows);
    *row = t->n_rows++;
    return true;
}
static void add_row(trail *t, size_t to, size_t from) {
    for (size_t w = 0; w < t->words; w++)
        t->rows[to * t->words + w] |= t->rows[from * t->words + w];
}

static bool touch(trail *t, ct_node *node) {
    size_t row;
    if (node->epoch == t->epoch) return true;
    if (!new_row(t, &row)) return false;
    node->epoch = t->epoch;
    node->index = (uint32_t)row;
    if (node->n_in && ends(t, node)) return true;
    if (!CT_GROW(t->sources, t->sources_cap, t->n_sources + 1)) return false;
    t->sources[t->n_sources++] = node;
    return true;
}

bool ct__slopes(const ct_node *node, int operand) {
    bool none = node->op->jvp == CT_NO_GRAD && !node->op->expand;
    return !none && ct__is_float(ct__type(node->in[operand])->dtype);
}

static size_t *place_of(const trail *t, const ct_origin *o) {
    uint64_t key = (o->node ? (uint64_t)(uintptr_t)o->node >> 4 : o->of.bits) + o->version;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & (t->n_places - 1);
    for (; t->places[at]; at = (at + 1) & (t->n_places - 1)) {
        const ct_origin *have = &t->origins[t->places[at] - 1];
        if (have->node == o->node && have->of.bits == o->of.bits && have->version == o->version)
            break;
    }
    return &t->places[at];
}

static bool add_origin(trail *t, ct_origin o, size_t from) {
    if (t->n_places < 2 * (t->n_origins + 1)) {
        size_t n = t->n_places ? 2 * t->n_places : 64;
        size_t *places = ct__calloc(n, sizeof *places);
        if (!places) return false;
        ct__free(t->places);
        t->places = places;
        t->n_places = n;
        for (size_t i = 0; i < t->n_origins; i++) *place_of(t, &t->origins[i]) = i + 1;
    }
    size_t *place = place_of(t, &o);
    if (!*place) {
        size_t row;
        if (!CT_GROW(t->origins, t->origins_cap, t->n_origins + 1) ||
            !CT_GROW(t->origin_row, t->origin_row_cap, t->n_origins + 1) || !new_row(t, &row))
            return false;
        t->origin_row[t->n_origins] = row;
        t->origins[t->n_origins++] = o;
        *place = t->n_origins;
    }
    add_row(t, t->origin_row[*place - 1], from);
    return true;
}

// A version that is gone, or will be when the pending assignment runs, is nothing that a gradient
// can be taken with respect to; nor is a leaf without a handle. So a state that is carried on does
// not remember all its steps.
static bool add_version(trail *t, const ct_var *var, uint64_t version, size_t from) {
    if (var->writer == t->ctx || var->freed || var->version != version || !var->node.slot)
        return true;
    ct_tensor of = ct__handle((ct_node *)(uintptr_t)&var->node, 0);
    return add_origin(t, (ct_origin){.of = of, .version = version}, from);
}

static bool add_past(trail *t, const ct_past *past, size_t from) {
    for (size_t i = 0; past && i < past->n; i++) {
        ct_origin o = past->of[i];
        uint32_t out;
        bool ok = true;
        if (o.version) { // of a variable, whose set another thread may be freeing
            ct_var *var = ct__var_hold(o.of, t->ctx);
            if (!var) continue;
            ok = add_version(t, var, o.version, from);
            ct__var_unref(var, t->ctx);
        } else if (o.node ? !ends(t, o.node) : ct__peek(o.of, &out) != NULL) { // not dropped
            ok = add_origin(t, o, from);
        }
        if (!ok) return false;
    }
    return true;
}

static bool add_source(trail *t, ct_node *node) {
    size_t row = node->index;
    if (node->op == &ct__op_read) return add_version(t, node->var, node->number, row);
    if (node->n_in) return add_origin(t, (ct_origin){.node = node}, row);
    if (!ends(t, node) && node->slot && !add_origin(t, (ct_origin){.of = ct__handle(node, 0)}, row))
        return false;
    return node->op != &ct__op_data || add_past(t, node->past, row);
}

// Which kept nodes need what: users before operands, which the frames' lists are in.
static bool trace(trail *t) {
    for (size_t d = t->ctx->depth - 1; d > t->to; d--)
        for (ct_node *node = t->ctx->frames[d]->nodes; node; node = node->next) {
            if (node->epoch != t->epoch) continue;
            if (ct__is_newest_version(node) &&
                !add_version(t, node->var, node->var->version, node->index))
                return false;
            for (int k = 0; k < node->n_in; k++) {
                ct_node *in = node->in[k].node;
                if (!ct__slopes(node, k)) continue;
                if (!touch(t, in)) return false;
                add_row(t, in->index, node->index);
            }
            const ct_past *past = node->op == &ct__op_data ? node->past : NULL;
            for (size_t i = 0; past && i < past->n; i++) {
                ct_node *in = past->of[i].node;
                if (!in) continue;
                if (!touch(t, in)) return false;
                add_row(t, in->index, node->index);
            }
        }
    for (size_t i = 0; i < t->n_sources; i++)
        if (!add_source(t, t->sources[i])) return false;
    for (size_t i = 0; i < t->ctx->n_roots; i++) { // what they read as the newest version
        const ct_var *var = t->ctx->roots[i].var;
        const ct_node *version = var ? ct__pending_version(var) : NULL;
        if (!version || version->epoch != t->epoch) continue;
        ct_origin o = {.of = ct__handle((ct_node *)(uintptr_t)&var->node, 0),
                       .version = var->version + 1};
        if (!add_origin(t, o, version->index)) return false;
    }
    return true;
}

static ct_past *collect(const trail *t, size_t kept) {
    size_t n = 0;
    for (int store = 0; store < 2; store++) {
        ct_past *past = store && n ? ct__malloc(sizeof *past + n * sizeof *past->of) : NULL;
        if (store && !past) return NULL;
        if (past) past->n = 0, past->elsewhere = false;
        for (size_t i = 0; i < t->n_origins; i++) {
            if (!(t->rows[t->origin_row[i] * t->words + kept / 64] >> kept % 64 & 1)) continue;
            if (past)
                past->of[past->n++] = t->origins[i];
            else
                n++;
        }
        if (past) return past;
    }
    return NULL;
}

bool ct__pasts(ct_ctx *ctx, size_t to, ct_node *const *kept, ct_past **pasts, size_t n) {
    trail t = {.ctx = ctx, .epoch = ct__new_epoch(), .to = to, .words = (n + 63) / 64};
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = touch(&t, kept[i]);
        if (ok) t.rows[kept[i]->index * t.words + i / 64] |= 1ull << i % 64;
    }
    ok = ok && trace(&t);
    for (size_t i = 0; i < n && ok; i++) // kept ones for each other
        ok = add_origin(&t, (ct_origin){.of = ct__handle(kept[i], 0)}, kept[i]->index);
    for (size_t i = 0; i < n && ok; i++) {
        // not for itself
        size_t row = t.origin_row[*place_of(&t, &(ct_origin){.of = ct__handle(kept[i], 0)}) - 1];
        t.rows[row * t.words + i / 64] &= ~(1ull << i % 64);
        pasts[i] = ct__is_float(kept[i]->out->dtype) || kept[i]->n_out > 1 ? collect(&t, i) : NULL;
    }
    ct__free(t.rows);
    ct__free(t.sources);
    ct__free(t.origins);
    ct__free(t.origin_row);
    ct__free(t.places);
    return ok || ct__err_memory(&ctx->err, CT_NOWHERE, "keep", n * sizeof *pasts);
}

// ------------------------------------------------------------------------ values of other contexts

typedef struct {
    const ct_node **seen; // (places) a power of two: nodes hashed by address
    const ct_node **todo;
    size_t places, n_seen, n_todo, todo_cap;
    ct_past *past;
    size_t cap;
} far_walk;

static const ct_node **seen_at(const far_walk *w, const ct_node *node) {
    size_t at = (size_t)(((uint64_t)(uintptr_t)node >> 4) * 0x9e3779b97f4a7c15u >> 32);
    while (w->seen[at & (w->places - 1)] && w->seen[at & (w->places - 1)] != node) at++;
    return &w->seen[at & (w->places - 1)];
}
static bool far_meet(far_walk *w, const ct_node *node) {
    if (w->places < 2 * (w->n_seen + 1)) {
        const ct_node **old = w->seen;
        size_t n = w->places;
        w->seen = ct__calloc(n ? 2 * n : 64, sizeof *old);
        if (!w->seen) return w->seen = old, false;
        w->places = n ? 2 * n : 64;
        for (size_t i = 0; i < n; i++)
            if (old[i]) *seen_at(w, old[i]) = old[i];
        ct__free(old);
    }
    const ct_node **place = seen_at(w, node);
    if (*place) return true;
    *place = node;
    w->n_seen++;
    if (!CT_GROW(w->todo, w->todo_cap, w->n_todo + 1)) return false;
    w->todo[w->n_todo++] = node;
    return true;
}
static bool far_origin(far_walk *w, ct_tensor of, uint64_t version) {
    if (w->past->n == w->cap) {
        size_t cap = 2 * w->cap;
        ct_past *past = ct__realloc(w->past, sizeof *past + cap * sizeof *past->of);
        if (!past) return false;
        w->past = past;
        w->cap = cap;
    }
    w->past->of[w->past->n++] = (ct_origin){.of = of, .version = version};
    return true;
}
static bool far_node(far_walk *w, const ct_node *node) {
    if (node->op == &ct__op_read)
        return !node->var->node.slot ||
               far_origin(w, ct__handle((ct_node *)(uintptr_t)&node->var->node, 0), node->number);
    bool leaf = !node->n_in && node->slot;
    if (leaf && !far_origin(w, ct__handle((ct_node *)(uintptr_t)node, 0), 0)) return false;
    const ct_past *past = node->op == &ct__op_data ? node->past : NULL;
    for (size_t i = 0; past && i < past->n; i++) {
        const ct_origin *o = &past->of[i];
        if (!(o->node ? far_meet(w, o->node) : far_origin(w, o->of, o->version))) return false;
    }
    for (int k = 0; k < node->n_in; k++)
        if (ct__slopes(node, k) && !far_meet(w, node->in[k].node)) return false;
    return true;
}

// Nodes there are read and not marked: that context may be at work in another thread.
ct_past *ct__past_elsewhere(const ct_node *node, ct_tensor t) {
    far_walk w = {.cap = 4, .past = ct__calloc(1, sizeof(ct_past) + 4 * sizeof(ct_origin))};
    bool ok = w.past && far_origin(&w, t, 0) && far_meet(&w, node);
    while (ok && w.n_todo) ok = far_node(&w, w.todo[--w.n_todo]);
    ct__free(w.seen);
    ct__free(w.todo);
    if (!ok) {
        ct__free(w.past);
        return NULL;
    }
    w.past->elsewhere = true;
    return w.past;
}
