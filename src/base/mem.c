#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t fail_after = -1;

static bool must_fail(void) {
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub(&fail_after, 1) == 0;
}

void ct__fail_alloc_after(int64_t n) { atomic_store(&fail_after, n); }

void *ct__malloc(size_t bytes) { return must_fail() ? NULL : malloc(bytes ? bytes : 1); }
void *ct__calloc(size_t count, size_t size) {
    return must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
}
void *ct__realloc(void *old, size_t bytes) {
    return must_fail() ? NULL : realloc(old, bytes ? bytes : 1);
}
void ct__free(void *p) { free(p); }

void *ct__aligned(size_t align, size_t bytes) {
    if (must_fail() || bytes > SIZE_MAX - align) return NULL;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

char *ct__strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = ct__malloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

bool ct__grow(void **array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return true;
    size_t want = *cap ? *cap * 2 : 16;
    if (want < need) want = need;
    if (want > SIZE_MAX / size) return false;
    void *grown = ct__realloc(*array, want * size);
    if (!grown) return false;
    *array = grown;
    *cap = want;
    return true;
}

struct ct_block {
    ct_block *below;
    size_t size; // of the usable part
    _Alignas(16) char data[];
};

enum { FIRST_BLOCK = 1 << 14, LARGEST_STEP = 1 << 22 };

void *ct__arena_slow(ct_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    size_t size = arena->head ? arena->head->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_STEP) size = LARGEST_STEP;
    if (size < bytes) size = bytes;
    ct_block *block = ct__malloc(sizeof *block + size);
    if (!block) return NULL;
    block->below = arena->head;
    block->size = size;
    arena->head = block;
    arena->next = block->data + bytes;
    arena->end = block->data + size;
    arena->bytes += bytes;
    return block->data;
}

void *ct__arena_zero(ct_arena *arena, size_t bytes) {
    void *p = ct__arena(arena, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

char *ct__arena_str(ct_arena *arena, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = ct__arena(arena, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *ct__arena_printf(ct_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : ct__arena(arena, (size_t)n + 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void ct__arena_reset(ct_arena *arena) {
    ct_block *keep = arena->head;
    for (ct_block *b = keep ? keep->below : NULL; b;) {
        ct_block *below = b->below;
        ct__free(b);
        b = below;
    }
    if (keep && keep->size > LARGEST_STEP) { // a single large thing; the next use may be small
        ct__free(keep);
        *arena = (ct_arena){0};
    } else if (keep) {
        keep->below = NULL;
        arena->next = keep->data;
        arena->end = keep->data + keep->size;
    }
    arena->bytes = 0;
}

void ct__arena_free(ct_arena *arena) {
    for (ct_block *b = arena->head; b;) {
        ct_block *below = b->below;
        ct__free(b);
        b = below;
    }
    *arena = (ct_arena){0};
}
