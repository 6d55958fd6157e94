// Allocates pages of a key-value cache, indexed by prefix, in least recently used order.
#include "models/pages.h"

#include <string.h>

#include "base/mem.h"

bool ct__pages_init(ct_pages *pages, int64_t n) {
    *pages = (ct_pages){.n = n, .n_buckets = 1, .oldest = -1, .newest = -1};
    while (pages->n_buckets < n) pages->n_buckets *= 2;
    pages->page = ct__calloc((size_t)n, sizeof *pages->page);
    pages->buckets = ct__malloc((size_t)pages->n_buckets * sizeof *pages->buckets);
    if (!pages->page || !pages->buckets) return false;
    for (int64_t i = 0; i < pages->n_buckets; i++) pages->buckets[i] = -1;
    for (int32_t i = (int32_t)n - 1; i >= 0; i--) {
        pages->page[i].ref_count = 1;
        ct__pages_drop(pages, i);
    }
    return true;
}

void ct__pages_free(ct_pages *pages) {
    ct__free(pages->page);
    ct__free(pages->buckets);
    *pages = (ct_pages){0};
}

static int32_t *pages_bucket(const ct_pages *pages, uint64_t parent_id) {
    const uint64_t mixed = parent_id * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    return &pages->buckets[(mixed >> 32) & ((uint64_t)pages->n_buckets - 1)];
}

static void pages_unindex(ct_pages *pages, int32_t page) {
    ct_page *p = &pages->page[page];
    if (!p->prefix_id) return;
    int32_t *at = pages_bucket(pages, p->parent_id);
    while (*at != page) at = &pages->page[*at].next_in_bucket;
    *at = p->next_in_bucket;
    p->prefix_id = 0;
}

static void pages_remove_free(ct_pages *pages, int32_t page) {
    const ct_page *p = &pages->page[page];
    *(p->older < 0 ? &pages->oldest : &pages->page[p->older].newer) = p->newer;
    *(p->newer < 0 ? &pages->newest : &pages->page[p->newer].older) = p->older;
    pages->n_free--;
}

int32_t ct__pages_take(ct_pages *pages) {
    const int32_t page = pages->oldest;
    if (page < 0) return -1;
    ct__pages_hold(pages, page);
    pages_unindex(pages, page);
    return page;
}

void ct__pages_hold(ct_pages *pages, int32_t page) {
    if (!pages->page[page].ref_count++) pages_remove_free(pages, page);
}

void ct__pages_drop(ct_pages *pages, int32_t page) {
    ct_page *p = &pages->page[page];
    if (--p->ref_count) return;
    const bool is_indexed = p->prefix_id != 0; // pages that are not indexed are taken before it
    p->older = is_indexed ? pages->newest : -1;
    p->newer = is_indexed ? -1 : pages->oldest;
    *(p->older < 0 ? &pages->oldest : &pages->page[p->older].newer) = page;
    *(p->newer < 0 ? &pages->newest : &pages->page[p->newer].older) = page;
    pages->n_free++;
}

int32_t ct__pages_find(const ct_pages *pages, uint64_t parent_id, const int32_t *tokens, int64_t n,
                       int64_t *n_equal) {
    int32_t best = -1;
    *n_equal = 0;
    for (int32_t i = *pages_bucket(pages, parent_id); i >= 0; i = pages->page[i].next_in_bucket) {
        const ct_page *p = &pages->page[i];
        if (p->parent_id != parent_id) continue;
        int64_t k = 0;
        while (k < CT_LM_PAGE && k < n && p->tokens[k] == tokens[k]) k++;
        if (k <= *n_equal) continue;
        *n_equal = k;
        best = i;
    }
    return best;
}

uint64_t ct__pages_know(ct_pages *pages, int32_t page, uint64_t parent_id, const int32_t *tokens) {
    ct_page *p = &pages->page[page];
    int64_t n_equal;
    const int32_t other = ct__pages_find(pages, parent_id, tokens, CT_LM_PAGE, &n_equal);
    if (n_equal == CT_LM_PAGE) return pages->page[other].prefix_id;
    int32_t *bucket = pages_bucket(pages, parent_id);
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->parent_id = parent_id;
    p->prefix_id = ++pages->last_prefix_id;
    p->next_in_bucket = *bucket;
    *bucket = page;
    return p->prefix_id;
}
