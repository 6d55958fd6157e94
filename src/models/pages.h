// Allocates the pages of a key-value cache and indexes the full ones by their prefix, so that a sequence
// with the same prefix reuses them (Kwon et al. 2023, section 4.4).
#ifndef COTAN_MODELS_PAGES_H
#define COTAN_MODELS_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "models/stack.h"

typedef struct ct_page {
    int64_t ref_count; // number of sequences that hold it
    // identifies its tokens together with all tokens before them; 0: it is not full, or not indexed
    uint64_t prefix_id;
    uint64_t parent_id;         // prefix_id of the page before it; 0: it is the first of a sequence
    int32_t tokens[CT_LM_PAGE]; // valid where prefix_id is not 0
    int32_t next_in_bucket;     // in its bucket
    int32_t older, newer;       // neighbours in the list of pages that nobody holds
} ct_page;
typedef struct ct_pages {
    ct_page *page;    // (n)
    int32_t *buckets; // (n_buckets) by parent_id: the first page of the chain, or -1
    int64_t n, n_buckets;
    int64_t n_free;          // number of pages that nobody holds
    int32_t oldest, newest;  // of these; the oldest is taken first
    uint64_t last_prefix_id; // the last prefix_id given out
} ct_pages;

bool ct__pages_init(ct_pages *pages, int64_t n); // returns false if out of memory
void ct__pages_free(ct_pages *pages);
// Returns a page with one holder, whose old contents are forgotten; -1: all pages are held.
int32_t ct__pages_take(ct_pages *pages);
void ct__pages_hold(ct_pages *pages, int32_t page); // adds a holder
// Removes a holder. The page stays indexed until it is taken again.
void ct__pages_drop(ct_pages *pages, int32_t page);
// Returns the page that holds the longest beginning of the next n tokens after the prefix parent_id, and in
// *n_equal the number of tokens that agree; -1: none agrees.
int32_t ct__pages_find(const ct_pages *pages, uint64_t parent_id, const int32_t *tokens, int64_t n,
                       int64_t *n_equal);
// Indexes the full page under these tokens and returns its prefix id, which is another page's if one holds
// the same prefix already.
uint64_t ct__pages_know(ct_pages *pages, int32_t page, uint64_t parent_id, const int32_t *tokens);

#endif
