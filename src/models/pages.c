#include "models/pages.h"

#include <string.h>

#include "base/mem.h"

bool ct__pages_init(ct_pages *pages, int64_t n) {
    *pages = (ct_pages){.n = n, .n_buckets = 1, .oldest = -1, .newest = -1};
    while (pages->n_buckets < n) pages->n_buckets *= 2;
    pages->page = ct__calloc((size_t)n, sizeof *pages->page);
    pages->bucket = ct__malloc((size_t)pages->n_buckets * sizeof *pages->bucket);
    if (!pages->page || !pages->bucket) return false;
    for (int64_t i = 0; i < pages->n_buckets; i++) pages->bucket[i] = -1;
    for (int32_t i = (int32_t)n - 1; i >= 0; i--) {
        pages->page[i].holders = 1;
        ct__pages_drop(pages, i);
    }
    return true;
}

void ct__pages_free(ct_pages *pages) {
    ct__free(pages->page);
    ct__free(pages->bucket);
    *pages = (ct_pages){0};
}

static int32_t *bucket_of(const ct_pages *pages, uint64_t before) {
    const uint64_t mixed = before * 0x9e3779b97f4a7c15u; // 2^64 over the golden ratio
    return &pages->bucket[(mixed >> 32) & ((uint64_t)pages->n_buckets - 1)];
}

static void forget(ct_pages *pages, int32_t page) {
    ct_page *p = &pages->page[page];
    if (!p->content) return;
    int32_t *at = bucket_of(pages, p->before);
    while (*at != page) at = &pages->page[*at].next;
    *at = p->next;
    p->content = 0;
}

static void unlist(ct_pages *pages, int32_t page) {
    const ct_page *p = &pages->page[page];
    *(p->older < 0 ? &pages->oldest : &pages->page[p->older].newer) = p->newer;
    *(p->newer < 0 ? &pages->newest : &pages->page[p->newer].older) = p->older;
    pages->left--;
}

int32_t ct__pages_take(ct_pages *pages) {
    const int32_t page = pages->oldest;
    if (page < 0) return -1;
    ct__pages_hold(pages, page);
    forget(pages, page);
    return page;
}

void ct__pages_hold(ct_pages *pages, int32_t page) {
    if (!pages->page[page].holders++) unlist(pages, page);
}

void ct__pages_drop(ct_pages *pages, int32_t page) {
    ct_page *p = &pages->page[page];
    if (--p->holders) return;
    const bool known = p->content != 0; // others go before it
    p->older = known ? pages->newest : -1;
    p->newer = known ? -1 : pages->oldest;
    *(p->older < 0 ? &pages->oldest : &pages->page[p->older].newer) = page;
    *(p->newer < 0 ? &pages->newest : &pages->page[p->newer].older) = page;
    pages->left++;
}

int32_t ct__pages_find(const ct_pages *pages, uint64_t before, const int32_t *tokens, int64_t n,
                       int64_t *same) {
    int32_t best = -1;
    *same = 0;
    for (int32_t i = *bucket_of(pages, before); i >= 0; i = pages->page[i].next) {
        const ct_page *p = &pages->page[i];
        if (p->before != before) continue;
        int64_t k = 0;
        while (k < CT_LM_PAGE && k < n && p->tokens[k] == tokens[k]) k++;
        if (k <= *same) continue;
        *same = k;
        best = i;
    }
    return best;
}

uint64_t ct__pages_know(ct_pages *pages, int32_t page, uint64_t before, const int32_t *tokens) {
    ct_page *p = &pages->page[page];
    int64_t same;
    const int32_t other = ct__pages_find(pages, before, tokens, CT_LM_PAGE, &same);
    if (same == CT_LM_PAGE) return pages->page[other].content;
    int32_t *bucket = bucket_of(pages, before);
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->before = before;
    p->content = ++pages->contents;
    p->next = *bucket;
    *bucket = page;
    return p->content;
}
