// Which page of a cache holds what, and who holds it: an allocator of pages that knows what the ones hold that are
// full, so that a text that begins alike takes them as they are (Kwon et al. 2023, section 4.4).
#ifndef COTAN_MODELS_PAGES_H
#define COTAN_MODELS_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "models/stack.h"

typedef struct ct_page {
    int64_t holders; // texts
    uint64_t
        content; // number of what it holds, with all before it; 0: it is not full, or not told of
    uint64_t before;            // content of the page before; 0: it is a text's first
    int32_t tokens[CT_LM_PAGE]; // where content
    int32_t next;               // in its bucket
    int32_t older, newer;       // among those that nobody holds
} ct_page;
typedef struct ct_pages {
    ct_page *page;   // (n)
    int32_t *bucket; // (n_buckets) by `before`: the first page, or -1
    int64_t n, n_buckets;
    int64_t left;           // that nobody holds
    int32_t oldest, newest; // of these; the oldest is taken first
    uint64_t contents;      // numbers given out
} ct_pages;

bool ct__pages_init(ct_pages *pages, int64_t n); // false: no memory
void ct__pages_free(ct_pages *pages);
// A page for one holder, whatever it held; -1: all are held.
int32_t ct__pages_take(ct_pages *pages);
void ct__pages_hold(ct_pages *pages, int32_t page); // by one more
// By one less. What it holds stays known until the page is taken.
void ct__pages_drop(ct_pages *pages, int32_t page);
// The page that holds the most of the next tokens (n) behind what `before` says; *same: how many of them. -1: none.
int32_t ct__pages_find(const ct_pages *pages, uint64_t before, const int32_t *tokens, int64_t n,
                       int64_t *same);
// The page is full of these tokens. Returns their content's number: another page's, where one holds them already.
uint64_t ct__pages_know(ct_pages *pages, int32_t page, uint64_t before, const int32_t *tokens);

#endif
