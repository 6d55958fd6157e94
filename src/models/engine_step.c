// Runs one pass of the engine: allocates pages, reuses those of equal prefixes, and makes the input
// tensors.
#include <string.h>

#include "base/mem.h"
#include "models/engine.h"
#include "ops/rules.h"

bool ct__engine_room(ct_engine *e, ct_sequence *seq, int64_t time, ct_loc here) {
    while (e->is_paged && seq->n_pages * CT_LM_PAGE < seq->n_computed + time) {
        const int32_t page = ct__pages_take(&e->pages);
        if (page < 0) return false;
        if (e->options.poison) ct__lm_cache_copy(e->cache, -1, page, here);
        seq->page[seq->n_pages++] = page;
    }
    return true;
}

// Replaces the sequence's page `at` by a page that another sequence holds or held.
static void engine_replace_page(ct_engine *e, ct_sequence *seq, int64_t at, int32_t page) {
    ct__pages_hold(&e->pages, page);
    if (at < seq->n_pages)
        ct__pages_drop(&e->pages, seq->page[at]);
    else
        seq->n_pages++;
    seq->page[at] = page;
}

void ct__engine_share(ct_engine *e, ct_sequence *seq, ct_loc here) {
    // The last token is always computed again, since its logits are needed.
    while (e->is_paged && seq->n_computed / CT_LM_PAGE == seq->n_indexed) {
        const int64_t at = seq->n_indexed, begin = at * CT_LM_PAGE,
                      n_before = seq->n_computed - begin;
        int64_t n_equal;
        const int32_t page = ct__pages_find(&e->pages, seq->prefix_id, seq->tokens + begin,
                                            seq->n - 1 - begin, &n_equal);
        if (n_equal == CT_LM_PAGE) {
            engine_replace_page(e, seq, at, page);
            seq->prefix_id = e->pages.page[page].prefix_id;
            seq->n_indexed++;
        } else if (n_equal >= n_before + CT_LM_PAGE / 2 && at < seq->n_pages) {
            // A page with a partly equal prefix is copied, and overwritten from the first difference.
            ct__lm_cache_copy(e->cache, page, seq->page[at], here);
        } else {
            return;
        }
        seq->n_computed = begin + n_equal;
        if (seq->n == (int64_t)seq->ask.n_prompt) seq->cached += n_equal - n_before;
    }
}

void ct__engine_learn(ct_engine *e, ct_sequence *seq) {
    for (; e->is_paged && (seq->n_indexed + 1) * CT_LM_PAGE <= seq->n_computed; seq->n_indexed++)
        seq->prefix_id = ct__pages_know(&e->pages, seq->page[seq->n_indexed], seq->prefix_id,
                                        seq->tokens + seq->n_indexed * CT_LM_PAGE);
}

void ct__engine_give_back(ct_engine *e, ct_sequence *seq, ct_loc here) {
    while (
        // the last page becomes free first, since it cannot be found without those before it
        seq->n_pages) {
        const int32_t page = seq->page[--seq->n_pages];
        ct__pages_drop(&e->pages, page);
        const ct_page *p = &e->pages.page[page];
        if (e->options.poison && !p->prefix_id && !p->ref_count)
            ct__lm_cache_copy(e->cache, -1, page, here);
    }
    if (seq->state >= 0) e->state_slot_used[seq->state] = false;
    seq->state = -1;
    if (seq->n == (int64_t)seq->ask.n_prompt) seq->cached = 0;
    seq->n_computed = seq->n_indexed = 0;
    seq->prefix_id = 0;
}

// A size of 1 has plans of its own; all other sizes share one.
static int64_t engine_dynamic_size(int64_t n) { return n > 1 ? CT_DYN(n) : n; }

static ct_tensor engine_int_matrix(const int32_t *values, int64_t rows, int64_t columns,
                                   ct_loc here) {
    return ct_from_at(values, CT_I32,
                      CT_DIMS(engine_dynamic_size(rows), engine_dynamic_size(columns)), here);
}

static ct_lm_part engine_make_inputs(ct_engine *e, const ct_engine_group *g, ct_loc here) {
    const int64_t n = g->n, n_tokens = g->n_tokens;
    int64_t pages = 2; // a minimum of 2, since a single page would need one more plan
    for (int64_t i = 0; i < n; i++)
        if (g->sequences[i]->n_pages > pages) pages = g->sequences[i]->n_pages;
    int32_t *tokens = e->step_ints, *position = tokens + n * n_tokens, *state = position + n,
            *table = state + n;
    memset(table, 0, (size_t)(n * pages) * sizeof *table);
    for (int64_t i = 0; i < n; i++) {
        const ct_sequence *seq = g->sequences[i];
        memcpy(tokens + i * n_tokens, seq->tokens + seq->n_computed,
               (size_t)n_tokens * sizeof *tokens);
        position[i] = (int32_t)seq->n_computed;
        state[i] = seq->state;
        memcpy(table + i * pages, seq->page, (size_t)seq->n_pages * sizeof *table);
    }
    return (ct_lm_part){.every = g->every,
                        .tokens = engine_int_matrix(tokens, n, n_tokens, here),
                        .position = engine_int_matrix(position, n, 1, here),
                        .table = engine_int_matrix(table, n, pages, here),
                        .state = ct_from_at(state, CT_I32, CT_DIMS(engine_dynamic_size(n)), here)};
}

const float *ct__engine_pass(ct_engine *e, const ct_engine_group group[2], ct_loc here) {
    ct_lm_part part[2];
    ct_ctx *ctx = ct__ctx();
    const bool several_before = ctx->several;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const ct_engine_group *g = &group[i];
        const size_t needed = (size_t)(g->n * (g->n_tokens + 2 + e->max_pages + 2));
        if (!g->n) continue;
        if (!CT_GROW(e->step_ints, e->n_step_ints, needed))
            return ct__null_memory(&ctx->err, here, "engine_step", needed * sizeof *e->step_ints);
        part[n] = engine_make_inputs(e, g, here);
        if (e->memory.bits)
            part[n].memory = ct_expand_at(
                e->memory,
                CT_DIMS(engine_dynamic_size(g->n), ct__size_like(e->memory, 1), e->lm->spec.width),
                here);
        n++;
    }
    ct_tensor logits = ct__lm_step(e->lm, e->cache, part, n, e->options.context, here);
    ctx->several = true;                            // keeps one plan for each kind of step
    const float *values = ct_data_at(logits, here); // (n of both, vocab)
    ctx->several = several_before;
    return values;
}
