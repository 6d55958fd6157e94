// The plan cache of an executor, keyed by the records that plans were made from.
//
// An equal record finds its plan. So does one that differs only in dynamic sizes: those that the user marked,
// and those that became dynamic automatically, as an axis or a position does when its second value is met.
//
// The least recently used plans are dropped when all of them, with the kernels that they hold, take more
// memory than is allowed.
#include <string.h>

#include "base/os.h"
#include "compile/run/explain.h"
#include "kir/kir.h"

enum { PLANS_FIRST_BUCKETS = 64 };

static bool plans_same_words(const ct_plan *p, const ct_order *o) {
    return ct__hash_equal(p->hash, o->hash) && p->n_words == o->n_words &&
           memcmp(p->words, o->words, o->n_words * sizeof *o->words) == 0;
}

// ---------------------------------------------------------------------------------- lookup by shape

// Computes the record without its sizes, in the executor's scratch, and its hash. False: out of memory.
static bool plans_compute_shape(ct_executor *e, ct_hash *hash) {
    const ct_order *o = &e->order;
    if (!ct__order_size_words(o, &e->sizes) ||
        !CT_GROW(e->shape_words, e->shape_cap, o->n_words + 1) ||
        !CT_GROW(e->auto_dynamic, e->auto_dynamic_cap, o->n_words + 1))
        return false;
    memcpy(e->shape_words, o->words, o->n_words * sizeof *o->words);
    for (size_t i = 0; i < e->sizes.n; i++) e->shape_words[e->sizes.v[i].word] = 0;
    *hash = ct__hash_bytes(e->shape_words, o->n_words * sizeof *o->words, (ct_hash){0, 1});
    return true;
}

// True if the records differ only in sizes.
static bool plans_same_shape(const ct_executor *e, const ct_plan *p, ct_hash hash) {
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

// True if the value may be one of a dynamic size. Sizes that the user marked may have any value.
static bool plans_may_vary(const ct_size_word *size, uint64_t word) {
    const int64_t value = ct__unmarked((int64_t)word);
    if (size->marked) return true;
    if (size->varies == CT_VARIES_NOT || value >= CT_DYN_END) return false;
    return value >= (size->varies == CT_VARIES_SIZE ? 2 : 0);
}

// True if the plan can be bound to the sizes of the order.
static bool plans_fits_sizes(const ct_executor *e, ct_plan *p) {
    size_t next = 0;
    if (!p->n_dynamic) return false;
    for (size_t i = 0; i < e->sizes.n; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        const bool dynamic = next < p->n_dynamic && p->dynamic[next] == size->word;
        next += dynamic;
        if (dynamic ? !plans_may_vary(size, e->order.words[size->word])
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
        if (plans_same_words(p, o)) {
            p->stamp = ++e->clock;
            return p;
        }
    if (!plans_compute_shape(e, &shape)) return NULL;
    for (ct_plan *p = e->shape_buckets[shape.lo & (e->n_buckets - 1)]; p; p = p->next_of_shape)
        if (plans_same_shape(e, p, shape) && plans_fits_sizes(e, p)) {
            p->stamp = ++e->clock;
            return p;
        }
    return NULL;
}

// ------------------------------------------------------------------------------------ making plans

static size_t plans_count_dynamic(const ct_executor *e) {
    size_t n = 0;
    for (size_t i = 0; i < e->sizes.n; i++)
        n += e->sizes.v[i].marked || e->auto_dynamic[e->sizes.v[i].word];
    return n;
}

// Chooses the dynamic sizes of the new plan: those that are marked, those that were dynamic in the latest
// plan of this shape, and those that differ from it, if all of these may vary. auto_dynamic: some of them
// are not marked.
static size_t plans_choose_dynamic(ct_executor *e, ct_hash shape, bool *auto_dynamic) {
    const ct_plan *before = NULL;
    for (const ct_plan *p = e->shape_buckets[shape.lo & (e->n_buckets - 1)]; p;
         p = p->next_of_shape)
        if (plans_same_shape(e, p, shape) && (!before || p->stamp > before->stamp)) before = p;
    size_t next = 0;
    *auto_dynamic = false;
    memset(e->auto_dynamic, 0, e->order.n_words * sizeof *e->auto_dynamic);
    for (size_t i = 0; i < e->sizes.n && before; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        const uint64_t now = e->order.words[size->word], was = before->words[size->word];
        const bool dynamic = next < before->n_dynamic && before->dynamic[next] == size->word;
        next += dynamic;
        if (size->marked || (!dynamic && now == was)) continue;
        // the new plan shares nothing with it
        if (!plans_may_vary(size, now) || !plans_may_vary(size, was)) {
            memset(e->auto_dynamic, 0, e->order.n_words * sizeof *e->auto_dynamic);
            *auto_dynamic = false;
            before = NULL;
            break;
        }
        e->auto_dynamic[size->word] = *auto_dynamic = true;
    }
    for (size_t i = 0; i < e->sizes.n; i++) {
        const ct_size_word *size = &e->sizes.v[i];
        if (size->open && plans_may_vary(size, e->order.words[size->word]))
            e->auto_dynamic[size->word] = true;
    }
    return plans_count_dynamic(e);
}

static bool plans_store_dynamic(ct_executor *e, ct_plan *p, size_t n) {
    if (!n || !ct__symbols_complete(p->program.symbols)) return true;
    p->dynamic = ct__malloc(n * sizeof *p->dynamic);
    p->bound_sizes = ct__malloc(n * sizeof *p->bound_sizes);
    p->values = ct__malloc((ct__symbols_count(p->program.symbols) + 1) * sizeof *p->values);
    if (!p->dynamic || !p->bound_sizes || !p->values) return false;
    for (size_t i = 0; i < e->sizes.n; i++) {
        const uint32_t word = e->sizes.v[i].word;
        if (!e->sizes.v[i].marked && !e->auto_dynamic[word]) continue;
        p->dynamic[p->n_dynamic] = word;
        p->bound_sizes[p->n_dynamic++] = e->order.words[word];
    }
    return true;
}

static void plans_unlink(ct_executor *e, const ct_plan *p) {
    ct_plan **at = &e->buckets[p->hash.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    at = &e->shape_buckets[p->shape.lo & (e->n_buckets - 1)];
    while (*at != p) at = &(*at)->next_of_shape;
    *at = p->next_of_shape;
    e->n_plans--;
    e->plan_bytes -= p->bytes;
}

static void plans_drop_oldest(ct_executor *e) {
    ct_plan *oldest = NULL;
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i]; p; p = p->next)
            if (!oldest || p->stamp < oldest->stamp) oldest = p;
    if (!oldest) return;
    plans_unlink(e, oldest);
    if (e->latest_plan == oldest) e->latest_plan = NULL;
    ct__plan_free(e, oldest);
}

static _Atomic uint64_t plans_cache_limit; // by ct_set_plan_cache; 0: not set

void ct_set_plan_cache(uint64_t bytes) { plans_cache_limit = bytes; }

static void plans_count_bytes(ct_executor *e, size_t now) {
    atomic_fetch_add(&ct__counters.plan_bytes, (uint64_t)now - e->counted_bytes);
    e->counted_bytes = now;
}

// Keeps the latest plan, whatever its size: it is about to run.
static void plans_evict(ct_executor *e) {
    const uint64_t limit = plans_cache_limit ? plans_cache_limit : e->max_bytes;
    while (e->n_plans > 1 && e->plan_bytes + e->kernel_cache.bytes > limit) plans_drop_oldest(e);
    plans_count_bytes(e, e->plan_bytes + e->kernel_cache.bytes);
}

// Returns the bytes of a plan without its kernels, which others may share.
static size_t plans_bytes_of(const ct_plan *p) {
    const ct_program *program = &p->program;
    size_t bytes = sizeof *p + p->arena.bytes + p->n_words * sizeof *p->words +
                   p->n_commands * sizeof *p->commands + p->n_operands * sizeof *p->operands +
                   p->n_bindings * sizeof *p->bindings + p->n_scalars * 8 +
                   program->n_launches * sizeof *program->launches +
                   program->n_bufs * (sizeof *program->bufs + sizeof *p->const_buffers);
    for (size_t i = 0; i < program->n_bufs; i++)
        if (program->bufs[i].kind == CT_BUF_CONST) bytes += program->bufs[i].bytes;
    for (size_t i = 0; i < p->n_subplans; i++) bytes += plans_bytes_of(p->subplans[i].plan);
    for (size_t i = 0; i < program->n_kernels; i++) {
        const ct_kir *ir = program->kernels[i].ir;
        bytes += sizeof *program->kernels + sizeof *ir + ir->cap * sizeof *ir->ins +
                 ir->bufs_cap * sizeof *ir->bufs + ir->shared_cap * sizeof *ir->shared;
    }
    return bytes;
}

static bool plans_grow_buckets(ct_executor *e) {
    if (e->n_plans < e->n_buckets) return true;
    const size_t n = e->n_buckets ? e->n_buckets * 2 : PLANS_FIRST_BUCKETS;
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
            p->next_of_shape = of_shape[p->shape.lo & (n - 1)];
            of_shape[p->shape.lo & (n - 1)] = p;
        }
    ct__free(e->buckets);
    ct__free(e->shape_buckets);
    e->buckets = buckets;
    e->shape_buckets = of_shape;
    e->n_buckets = n;
    return true;
}

static void plans_add(ct_executor *e, ct_plan *p, ct_hash shape) {
    ct_plan **bucket = &e->buckets[p->hash.lo & (e->n_buckets - 1)],
            **of_shape = &e->shape_buckets[shape.lo & (e->n_buckets - 1)];
    p->next = *bucket;
    *bucket = p;
    p->shape = shape;
    p->next_of_shape = *of_shape;
    *of_shape = p;
    p->stamp = ++e->clock;
    p->bytes = plans_bytes_of(p);
    e->n_plans++;
    e->plan_bytes += p->bytes;
}

ct_plan *ct__plans_make(ct_ctx *ctx, ct_executor *e, const ct_root *roots, size_t n_roots) {
    const double begin = ct__now();
    ct_hash shape;
    bool auto_dynamic;
    if (!plans_compute_shape(e, &shape) || !plans_grow_buckets(e))
        return ct__null_memory(&ctx->err, roots[0].here, "plan",
                               e->order.n_words * sizeof *e->shape_words);
    size_t n_dynamic = plans_choose_dynamic(e, shape, &auto_dynamic);
    ct_plan *p = ct__plan_make(ctx, e, &e->order, roots, n_roots);
    // Some ops need a size when a plan is made. If the user marked none, each size gets a plan of its own.
    if (!p && auto_dynamic && ctx->err.code == CT_E_SHAPE) {
        ctx->err = (ct_err){0};
        memset(e->auto_dynamic, 0, e->order.n_words * sizeof *e->auto_dynamic);
        auto_dynamic = false;
        n_dynamic = plans_count_dynamic(e);
        p = ct__plan_make(ctx, e, &e->order, roots, n_roots);
    }
    if (!p) return NULL;
    if (!plans_store_dynamic(e, p, n_dynamic)) {
        ct__err_memory(&ctx->err, roots[0].here, "plan", n_dynamic * sizeof *p->bound_sizes);
        ct__plan_free(e, p);
        return NULL;
    }
    p->auto_dynamic = auto_dynamic && p->n_dynamic;
    p->number = ++e->n_made;
    ct__explain_new(ctx, e, p, &e->order, ct__now() - begin);
    plans_add(e, p, shape);
    plans_evict(e);
    return p;
}

void ct__plans_free(ct_executor *e) {
    for (size_t i = 0; i < e->n_buckets; i++)
        for (ct_plan *p = e->buckets[i], *next; p; p = next) {
            next = p->next;
            ct__plan_free(e, p);
        }
    ct__free(e->kernel_cache.buckets);
    plans_count_bytes(e, 0);
}
