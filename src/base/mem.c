#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

static _Atomic int64_t fail_after = -1;

static bool mem_must_fail(void) {
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0) return false;
    return atomic_fetch_sub(&fail_after, 1) == 0;
}

void ct__fail_alloc_after(int64_t n) { atomic_store(&fail_after, n); }

// The host program's allocator; alloc is NULL if it has none.
static ct_allocator host_allocator;
static atomic_bool allocated; // something was allocated: the allocator can no longer be changed
enum { PLAIN_ALIGN = _Alignof(max_align_t) };

static void mem_note_allocation(void) {
    if (!atomic_load_explicit(&allocated, memory_order_relaxed)) atomic_store(&allocated, true);
}

bool ct__set_allocator(const ct_allocator *allocator) {
    if (atomic_load(&allocated)) return false;
    host_allocator = allocator ? *allocator : (ct_allocator){0};
    return true;
}
void ct__all_freed(void) { atomic_store(&allocated, false); }

static _Thread_local uint64_t refused;
static _Thread_local size_t refused_bytes;
uint64_t ct__failed_allocations(void) { return refused; }
size_t ct__failed_allocation_bytes(void) { return refused_bytes; }
void ct__set_failed_allocations(uint64_t n) { refused = n; }
static void *mem_count_failure(void *p, size_t bytes) {
    if (p) return p;
    refused++;
    refused_bytes = bytes;
    return NULL;
}

void *ct__malloc(size_t bytes) {
    if (mem_must_fail()) return mem_count_failure(NULL, bytes);
    mem_note_allocation();
    if (!bytes) bytes = 1;
    return mem_count_failure(host_allocator.alloc
                                 ? host_allocator.alloc(PLAIN_ALIGN, bytes, host_allocator.user)
                                 : malloc(bytes),
                             bytes);
}
void *ct__calloc(size_t count, size_t size) {
    size_t bytes;
    if (!host_allocator.alloc) {
        mem_note_allocation();
        return mem_count_failure(
            mem_must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1), count * size);
    }
    if (__builtin_mul_overflow(count, size, &bytes)) return mem_count_failure(NULL, SIZE_MAX);
    void *p = ct__malloc(bytes);
    return p ? memset(p, 0, bytes) : NULL;
}
void *ct__realloc(void *old, size_t bytes) {
    if (!old) return ct__malloc(bytes);
    if (mem_must_fail()) return mem_count_failure(NULL, bytes);
    if (!bytes) bytes = 1;
    return mem_count_failure(host_allocator.alloc
                                 ? host_allocator.realloc(old, bytes, host_allocator.user)
                                 : realloc(old, bytes),
                             bytes);
}
void ct__free(void *p) {
    if (host_allocator.alloc && p)
        host_allocator.free(p, host_allocator.user);
    else
        free(p);
}

void *ct__aligned(size_t align, size_t bytes) {
    if (mem_must_fail() || bytes > SIZE_MAX - align) return mem_count_failure(NULL, bytes);
    mem_note_allocation();
    if (host_allocator.alloc)
        return mem_count_failure(
            host_allocator.alloc(align, bytes ? bytes : 1, host_allocator.user), bytes);
    return mem_count_failure(aligned_alloc(align, ct__round_up(bytes, align)), bytes);
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
    if (want > SIZE_MAX / size) return mem_count_failure(NULL, SIZE_MAX) != NULL;
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

enum { FIRST_BLOCK = 1 << 14, MAX_BLOCK = 1 << 22 };

void *ct__arena_slow(ct_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return mem_count_failure(NULL, bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    size_t size = arena->head ? arena->head->size * 2 : FIRST_BLOCK;
    if (size > MAX_BLOCK) size = MAX_BLOCK;
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
    ct_text text = {0};
    va_list args;
    va_start(args, format);
    ct__textf_v(&text, format, args);
    va_end(args);
    char *copy = text.s && !text.failed ? ct__arena_str(arena, text.s) : NULL;
    ct__text_free(&text);
    return copy;
}

void ct__arena_reset(ct_arena *arena) {
    ct_block *keep = arena->head;
    for (ct_block *b = keep ? keep->below : NULL; b;) {
        ct_block *below = b->below;
        ct__free(b);
        b = below;
    }
    if (keep && keep->size > MAX_BLOCK) { // of one large allocation; the next may be small
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
