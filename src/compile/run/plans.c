// The plans of an engine, by the records that they were made of.
//
// A record that is equal finds its plan. So does one that differs only in what is dynamic: marked by the
// user, or by itself, which an axis or a position becomes when a second value of it is met.
#include <string.h>

#include "base/os.h"
#include "compile/run/explain.h"

enum { MOST_PLANS = 256 };

static bool same_words(const ct_plan *p, const ct_order *o) {
    return ct__hash_equal(p->hash, o->hash) && p->n_words == o->n_words &&
           memcmp(p->words, o->words, o->n_words * sizeof *o->words) == 0;
}

// ---------------------------------------------------------------------------------- by their shape

// The record without its sizes, in the engine's scratch, and its hash. False: no memory.
static bool take_shape(ct_engine *e, ct_hash *hash) {
    const ct_order *o = &e->order;
    if (!ct__order_size_words(o, &e->sizes) ||
        !CT_GROW(e->shape_words, e->shape_cap, o->n_words + 1) ||
        !CT_GROW(e->also, e->also_cap, o->n_words + 1))
        return false;
    memcpy(e->shape_words, o->words, o->n_words * sizeof *o->words);
    for (size_t i = 0; i < e->sizes.n; i++) e->shape_words[e->sizes.v[i].word] = 0;
    *hash = ct__hash_bytes(e->shape_words, o->n_words * sizeof *o->words, (ct_hash){0, 1});
    return true;
}

// Do the records differ in sizes alone?
static bool same_shape(const ct_engine *e, const ct_plan *p, ct_hash hash) {
    size_t from = 0;
    if (!ct__hash_equal(p->shape, hash) || p->n_words != e->order.n_words) return false;
    for (size_t i = 0; i <= e->sizes.n; i++) {
        const size_t to = i < e->sizes.n ? e->sizes.v[i].word : p->n_words;
        if (memcmp(p->words + from, e->order.words + from, (to - from) * sizeof *p->words))
            return false;
        from = to + 1;
    }
    return true;
}

// May the value be one of a dynamic size? Those that are marked may be any.
static bool may_vary(const ct_size_word *size, uint64_t word) {
    const int64_t value = ct__unmarked((int64_t)word);
    if (size->marked) return true;
    if (size->varies == CT_VARIES_NOT || value >= CT_DYN_END) return false;
    return value >= (size->varies == CT_VARIES_SIZE ? 2 : 0);
}

// Is the order one of those that the plan can be told?
static bool fits(const ct_engine *e, ct_plan *p) {
    size_t next = 0;
    if (!p->n_dynamic) return false;
    for (size_t i = 0; i < e->sizes.n; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        const bool dynamic = next < p->n_dynamic && p->dynamic[next] == size->word;
        next += dynamic;
        if (dynamic ? !may_vary(size, e->order.words[size->word])
                    : p->words[size->word] != e->order.words[size->word])
            return false;
    }
    return ct__symbols_bind(p->program.symbols, e->order.words, p->values);
}

ct_plan *ct__plans_find(ct_engine *e) {
    ct_hash shape;
    const ct_order *o = &e->order;
    for (ct_plan *p = e->buckets[o->hash.lo & (e->n_buckets - 1)]; p; p = p->next)
        if (same_words(p, o)) {
            p->stamp = ++e->clock;
            return p;
        }
    if (!take_shape(e, &shape)) return NULL;
    for (ct_plan *p = e->of_shape[shape.lo & (e->n_buckets - 1)]; p; p = p->of_shape)
        if (same_shape(e, p, shape) && fits(e, p)) {
            p->stamp = ++e->clock;
            return p;
        }
    return NULL;
}

// ------------------------------------------------------------------------------------ making plans

// What is dynamic in the new plan: what is marked, what was dynamic in the newest plan of this shape, and
// what differs from it, if all of that may. `by_itself`: some of it is not marked.
static size_t choose_dynamic(ct_engine *e, ct_hash shape, bool *by_itself) {
    const ct_plan *before = NULL;
    for (const ct_plan *p = e->of_shape[shape.lo & (e->n_buckets - 1)]; p; p = p->of_shape)
        if (same_shape(e, p, shape) && (!before || p->stamp > before->stamp)) before = p;
    size_t n = 0, next = 0;
    *by_itself = false;
    memset(e->also, 0, e->order.n_words * sizeof *e->also);
    for (size_t i = 0; i < e->sizes.n && before; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        const uint64_t now = e->order.words[size->word], was = before->words[size->word];
        const bool dynamic = next < before->n_dynamic && before->dynamic[next] == size->word;
        next += dynamic;
        if (size->marked || (!dynamic && now == was)) continue;
        if (!may_vary(size, now) || !may_vary(size, was)) { // a plan of its own
            memset(e->also, 0, e->order.n_words * sizeof *e->also);
            *by_itself = false;
            before = NULL;
            break;
        }
        e->also[size->word] = *by_itself = true;
    }
    for (size_t i = 0; i < e->sizes.n; i++)
        n += e->sizes.v[i].marked || e->also[e->sizes.v[i].word];
    return n;
}

static bool note_dynamic(ct_engine *e, ct_plan *p, size_t n) {
    if (!n || !ct__symbols_complete(p->program.symbols)) return true;
    p->dynamic = ct__malloc(n * sizeof *p->dynamic);
    p->bound = ct__malloc(n * sizeof *p->bound);
    p->values = ct__malloc((ct__symbols_count(p->program.symbols) + 1) * sizeof *p->values);
    if (!p->dynamic || !p->bound || !p->values) return false;
    for (size_t i = 0; i < e->sizes.n; i++) {
        const uint32_t word = e->sizes.v[i].word;
        if (!e->sizes.v[i].marked && !e->also[word]) continue;
        p->dynamic[p->n_dynamic] = word;
        p->bound[p->n_dynamic++] = e->order.words[word];
    }
    return true;
}

static void unlink_plan(ct_engine *e, const ct_plan *p) {
    ct_plan **at = &e->buckets[p->hash.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    at = &e->of_shape[p->shape.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->of_shape;
    *at = p->of_shape;
    e->n_plans--;
}

static void drop_oldest(ct_engine *e) {
    ct_plan *oldest = NULL;
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i]; p; p = p->next)
            if (!oldest || p->stamp < oldest->stamp) oldest = p;
    if (!oldest) return;
    unlink_plan(e, oldest);
    if (e->newest == oldest) e->newest = NULL;
    ct__plan_free(e, oldest);
}

ct_plan *ct__plans_make(ct_ctx *ctx, ct_engine *e, const ct_root *roots, size_t n_roots) {
    const double begin = ct__now();
    ct_hash shape;
    bool by_itself;
    if (!take_shape(e, &shape)) {
        ct__err_memory(&ctx->err, roots[0].here, "plan", e->order.n_words * sizeof *e->shape_words);
        return NULL;
    }
    const size_t n_dynamic = choose_dynamic(e, shape, &by_itself);
    if (e->n_plans >= MOST_PLANS) drop_oldest(e);
    ct_plan *p = ct__plan_make(ctx, e, &e->order, roots, n_roots);
    if (!p) return NULL;
    if (!note_dynamic(e, p, n_dynamic)) {
        ct__err_memory(&ctx->err, roots[0].here, "plan", n_dynamic * sizeof *p->bound);
        ct__plan_free(e, p);
        return NULL;
    }
    p->by_itself = by_itself && p->n_dynamic;
    p->number = ++e->made;
    ct__explain_new(ctx, e, p, &e->order, ct__now() - begin);
    ct_plan **bucket = &e->buckets[p->hash.lo & (e->n_buckets - 1)],
            **of_shape = &e->of_shape[shape.lo & (e->n_buckets - 1)];
    p->next = *bucket;
    *bucket = p;
    p->shape = shape;
    p->of_shape = *of_shape;
    *of_shape = p;
    e->n_plans++;
    p->stamp = ++e->clock;
    return p;
}

void ct__plans_free(ct_engine *e) {
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i], *next; p; p = next) {
            next = p->next;
            ct__plan_free(e, p);
        }
}
