// The plans of an engine, by the records that they were made of.
//
// A record that is equal finds its plan. So does one that differs only in what is dynamic: marked by the
// user, or by itself, which an axis or a position becomes when a second value of it is met.
//
// Plans that were used longest ago go when all of them, and the kernels that they hold, weigh more than is
// allowed.
#include <string.h>

#include "base/os.h"
#include "compile/run/explain.h"
#include "kir/kir.h"

enum { FIRST_BUCKETS = 64 };

static bool same_words(const ct_plan *p, const ct_order *o) {
    return ct__hash_equal(p->hash, o->hash) && p->n_words == o->n_words &&
           memcmp(p->words, o->words, o->n_words * sizeof *o->words) == 0;
}

// ---------------------------------------------------------------------------------- by their shape

// The record without its sizes, in the engine's scratch, and its hash. False: no memory.
static bool take_shape(ct_executor *e, ct_hash *hash) {
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
static bool same_shape(const ct_executor *e, const ct_plan *p, ct_hash hash) {
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
static bool fits(const ct_executor *e, ct_plan *p) {
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

ct_plan *ct__plans_find(ct_executor *e) {
    ct_hash shape;
    const ct_order *o = &e->order;
    if (!e->n_plans) return NULL;
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

static size_t count_dynamic(const ct_executor *e) {
    size_t n = 0;
    for (size_t i = 0; i < e->sizes.n; i++)
        n += e->sizes.v[i].marked || e->also[e->sizes.v[i].word];
    return n;
}

// What is dynamic in the new plan: what is marked, what was dynamic in the newest plan of this shape, and
// what differs from it, if all of that may. `by_itself`: some of it is not marked.
static size_t choose_dynamic(ct_executor *e, ct_hash shape, bool *by_itself) {
    const ct_plan *before = NULL;
    for (const ct_plan *p = e->of_shape[shape.lo & (e->n_buckets - 1)]; p; p = p->of_shape)
        if (same_shape(e, p, shape) && (!before || p->stamp > before->stamp)) before = p;
    size_t next = 0;
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
    for (size_t i = 0; i < e->sizes.n; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        if (size->open && may_vary(size, e->order.words[size->word])) e->also[size->word] = true;
    }
    return count_dynamic(e);
}

static bool note_dynamic(ct_executor *e, ct_plan *p, size_t n) {
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

static void unlink_plan(ct_executor *e, const ct_plan *p) {
    ct_plan **at = &e->buckets[p->hash.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    at = &e->of_shape[p->shape.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->of_shape;
    *at = p->of_shape;
    e->n_plans--;
    e->plan_bytes -= p->bytes;
}

static void drop_oldest(ct_executor *e) {
    ct_plan *oldest = NULL;
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i]; p; p = p->next)
            if (!oldest || p->stamp < oldest->stamp) oldest = p;
    if (!oldest) return;
    unlink_plan(e, oldest);
    if (e->newest == oldest) e->newest = NULL;
    ct__plan_free(e, oldest);
}

static _Atomic uint64_t asked_bytes; // by ct_set_plan_cache; 0: by nobody

void ct_set_plan_cache(uint64_t bytes) { asked_bytes = bytes; }

static void count_bytes(ct_executor *e, size_t now) {
    atomic_fetch_add(&ct__counters.plan_bytes, (uint64_t)now - e->counted_bytes);
    e->counted_bytes = now;
}

// The newest plan stays, whatever it weighs: it is about to run.
static void drop_what_is_too_much(ct_executor *e) {
    const uint64_t most = asked_bytes ? asked_bytes : e->most_bytes;
    while (e->n_plans > 1 && e->plan_bytes + e->built.bytes > most) drop_oldest(e);
    count_bytes(e, e->plan_bytes + e->built.bytes);
}

// What a plan takes, kernels apart that others may have, too.
static size_t bytes_of(const ct_plan *p) {
    const ct_program *program = &p->program;
    size_t bytes = sizeof *p + p->arena.bytes + p->n_words * sizeof *p->words +
                   p->n_commands * sizeof *p->commands + p->n_operands * sizeof *p->operands +
                   p->n_binding * sizeof *p->binding + p->n_scalars * 8 +
                   program->n_launches * sizeof *program->launches +
                   program->n_bufs * (sizeof *program->bufs + sizeof *p->homes);
    for (size_t i = 0; i < program->n_bufs; i++)
        if (program->bufs[i].kind == CT_BUF_CONST) bytes += program->bufs[i].bytes;
    for (size_t i = 0; i < p->n_pieces; i++) bytes += bytes_of(p->pieces[i].plan);
    for (size_t i = 0; i < program->n_kernels; i++) {
        const ct_kir *ir = program->kernels[i].ir;
        bytes += sizeof *program->kernels + sizeof *ir + ir->cap * sizeof *ir->ins +
                 ir->bufs_cap * sizeof *ir->bufs + ir->shared_cap * sizeof *ir->shared;
    }
    return bytes;
}

static bool grow_buckets(ct_executor *e) {
    if (e->n_plans < e->n_buckets) return true;
    const size_t n = e->n_buckets ? e->n_buckets * 2 : FIRST_BUCKETS;
    ct_plan **buckets = ct__calloc(n, sizeof(ct_plan *));
    ct_plan **of_shape = ct__calloc(n, sizeof(ct_plan *));
    if (!buckets || !of_shape) {
        ct__free(buckets);
        ct__free(of_shape);
        return false;
    }
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i], *next; p; p = next) {
            next = p->next;
            p->next = buckets[p->hash.lo & (n - 1)];
            buckets[p->hash.lo & (n - 1)] = p;
            p->of_shape = of_shape[p->shape.lo & (n - 1)];
            of_shape[p->shape.lo & (n - 1)] = p;
        }
    ct__free(e->buckets);
    ct__free(e->of_shape);
    e->buckets = buckets;
    e->of_shape = of_shape;
    e->n_buckets = n;
    return true;
}

static void add_plan(ct_executor *e, ct_plan *p, ct_hash shape) {
    ct_plan **bucket = &e->buckets[p->hash.lo & (e->n_buckets - 1)],
            **of_shape = &e->of_shape[shape.lo & (e->n_buckets - 1)];
    p->next = *bucket;
    *bucket = p;
    p->shape = shape;
    p->of_shape = *of_shape;
    *of_shape = p;
    p->stamp = ++e->clock;
    p->bytes = bytes_of(p);
    e->n_plans++;
    e->plan_bytes += p->bytes;
}

ct_plan *ct__plans_make(ct_ctx *ctx, ct_executor *e, const ct_root *roots, size_t n_roots) {
    const double begin = ct__now();
    ct_hash shape;
    bool by_itself;
    if (!take_shape(e, &shape) || !grow_buckets(e)) {
        ct__err_memory(&ctx->err, roots[0].here, "plan", e->order.n_words * sizeof *e->shape_words);
        return NULL;
    }
    size_t n_dynamic = choose_dynamic(e, shape, &by_itself);
    ct_plan *p = ct__plan_make(ctx, e, &e->order, roots, n_roots);
    // Some ops need a size when a plan is made. Where nobody asked for a dynamic one, each has a plan of its own.
    if (!p && by_itself && ctx->err.code == CT_E_SHAPE) {
        ctx->err = (ct_err){0};
        memset(e->also, 0, e->order.n_words * sizeof *e->also);
        by_itself = false;
        n_dynamic = count_dynamic(e);
        p = ct__plan_make(ctx, e, &e->order, roots, n_roots);
    }
    if (!p) return NULL;
    if (!note_dynamic(e, p, n_dynamic)) {
        ct__err_memory(&ctx->err, roots[0].here, "plan", n_dynamic * sizeof *p->bound);
        ct__plan_free(e, p);
        return NULL;
    }
    p->by_itself = by_itself && p->n_dynamic;
    p->number = ++e->made;
    ct__explain_new(ctx, e, p, &e->order, ct__now() - begin);
    add_plan(e, p, shape);
    drop_what_is_too_much(e);
    return p;
}

void ct__plans_free(ct_executor *e) {
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i], *next; p; p = next) {
            next = p->next;
            ct__plan_free(e, p);
        }
    ct__free(e->built.buckets);
    count_bytes(e, 0);
}
