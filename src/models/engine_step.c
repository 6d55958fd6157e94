// One pass of the engine: pages for what is added, and the tensors that it is made of.
#include <string.h>

#include "base/mem.h"
#include "models/engine.h"
#include "ops/rules.h"

bool ct__engine_room(ct_engine *e, ct_writing *w, int64_t time, ct_loc here) {
    while (e->paged && w->n_pages * CT_LM_PAGE < w->read + time) {
        const int32_t page = ct__pages_take(&e->pages);
        if (page < 0) return false;
        if (e->options.poison) ct__lm_cache_copy(e->cache, -1, page, here);
        w->page[w->n_pages++] = page;
    }
    return true;
}

// Its page `at` is another one, which somebody holds or held.
static void trade(ct_engine *e, ct_writing *w, int64_t at, int32_t page) {
    ct__pages_hold(&e->pages, page);
    if (at < w->n_pages)
        ct__pages_drop(&e->pages, w->page[at]);
    else
        w->n_pages++;
    w->page[at] = page;
}

void ct__engine_share(ct_engine *e, ct_writing *w, ct_loc here) {
    // The last token is read again in any case: what follows it is asked for.
    while (e->paged && w->read / CT_LM_PAGE == w->known) {
        const int64_t at = w->known, begin = at * CT_LM_PAGE, had = w->read - begin;
        int64_t same;
        const int32_t page =
            ct__pages_find(&e->pages, w->content, w->tokens + begin, w->n - 1 - begin, &same);
        if (same == CT_LM_PAGE) {
            trade(e, w, at, page);
            w->content = e->pages.page[page].content;
            w->known++;
        } else if (same >= had + CT_LM_PAGE / 2 && at < w->n_pages) {
            // A page that begins alike is copied, and written on from where they differ.
            ct__lm_cache_copy(e->cache, page, w->page[at], here);
        } else {
            return;
        }
        w->read = begin + same;
        if (w->n == (int64_t)w->ask.n_prompt) w->cached += same - had;
    }
}

void ct__engine_learn(ct_engine *e, ct_writing *w) {
    for (; e->paged && (w->known + 1) * CT_LM_PAGE <= w->read; w->known++)
        w->content = ct__pages_know(&e->pages, w->page[w->known], w->content,
                                    w->tokens + w->known * CT_LM_PAGE);
}

void ct__engine_give_back(ct_engine *e, ct_writing *w, ct_loc here) {
    while (
        w->n_pages) { // the last one is taken first, as no other can be found without those before
        const int32_t page = w->page[--w->n_pages];
        ct__pages_drop(&e->pages, page);
        const ct_page *p = &e->pages.page[page];
        if (e->options.poison && !p->content && !p->holders)
            ct__lm_cache_copy(e->cache, -1, page, here);
    }
    if (w->state >= 0) e->place_taken[w->state] = false;
    w->state = -1;
    if (w->n == (int64_t)w->ask.n_prompt) w->cached = 0;
    w->read = w->known = 0;
    w->content = 0;
}

// 1 is a size of its own; all others have one plan.
static int64_t any(int64_t n) { return n > 1 ? CT_DYN(n) : n; }

static ct_tensor numbers(const int32_t *v, int64_t rows, int64_t columns, ct_loc here) {
    return ct_from_at(v, CT_I32, CT_DIMS(any(rows), any(columns)), here);
}

static ct_lm_part part_of(ct_engine *e, const ct_engine_group *g, ct_loc here) {
    const int64_t n = g->n, time = g->time;
    int64_t pages = 2; // one more plan would serve a single one
    for (int64_t i = 0; i < n; i++)
        if (g->text[i]->n_pages > pages) pages = g->text[i]->n_pages;
    int32_t *tokens = e->ints, *position = tokens + n * time, *state = position + n,
            *table = state + n;
    memset(table, 0, (size_t)(n * pages) * sizeof *table);
    for (int64_t i = 0; i < n; i++) {
        const ct_writing *w = g->text[i];
        memcpy(tokens + i * time, w->tokens + w->read, (size_t)time * sizeof *tokens);
        position[i] = (int32_t)w->read;
        state[i] = w->state;
        memcpy(table + i * pages, w->page, (size_t)w->n_pages * sizeof *table);
    }
    return (ct_lm_part){.every = g->every,
                        .tokens = numbers(tokens, n, time, here),
                        .position = numbers(position, n, 1, here),
                        .table = numbers(table, n, pages, here),
                        .state = ct_from_at(state, CT_I32, CT_DIMS(any(n)), here)};
}

const float *ct__engine_pass(ct_engine *e, const ct_engine_group group[2], ct_loc here) {
    ct_lm_part part[2];
    ct_ctx *ctx = ct__ctx();
    const bool before = ctx->several;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const ct_engine_group *g = &group[i];
        const size_t need = (size_t)(g->n * (g->time + 2 + e->most_pages + 2));
        if (!g->n) continue;
        if (!CT_GROW(e->ints, e->n_ints, need)) {
            ct__err_memory(&ctx->err, here, "engine_step", need * sizeof *e->ints);
            return NULL;
        }
        part[n] = part_of(e, g, here);
        if (e->memory.bits)
            part[n].memory = ct_expand_at(
                e->memory, CT_DIMS(any(g->n), ct__size_like(e->memory, 1), e->lm->spec.width),
                here);
        n++;
    }
    ct_tensor logits = ct__lm_step(e->lm, e->cache, part, n, e->options.context, here);
    ctx->several = true;                            // a plan for each kind of step
    const float *values = ct_data_at(logits, here); // (n of both, vocab)
    ctx->several = before;
    return values;
}
