// Memory: all host allocations, and arenas that grow and are freed as a whole.
#ifndef COTAN_BASE_MEM_H
#define COTAN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cotan/cotan.h"

// All host memory of the library is allocated here (a test can make the n-th allocation fail).
void *ct__malloc(size_t bytes);              // NULL: no memory
void *ct__calloc(size_t count, size_t size); // zeroed; checks count * size for overflow
void *ct__realloc(void *old, size_t bytes);  // NULL: no memory, `old` is unchanged
void ct__free(void *p);
void *ct__aligned(size_t align, size_t bytes); // freed with ct__free; align: a power of two
char *ct__strdup(const char *text);
// Returns false if memory was allocated already. NULL: the C library's allocator.
bool ct__set_allocator(const ct_allocator *allocator);
void ct__all_freed(void);             // for ct_shutdown: everything allocated was freed
void ct__fail_alloc_after(int64_t n); // for tests: the n-th allocation from now fails; < 0: none
// The number of this thread's allocations that failed. Work that must not continue after a failure
// compares the number before and after: that covers all functions it calls, however they handled
// the failure.
uint64_t ct__failed_allocations(void);
size_t ct__failed_allocation_bytes(void);    // of the last one
void ct__set_failed_allocations(uint64_t n); // for failures since then that had a fallback

// Grows *array (of *cap elements of `size` bytes) to hold at least `need`. False: no memory,
// nothing changed.
bool ct__grow(void **array, size_t *cap, size_t need, size_t size);
#define CT_GROW(array, cap, need)                                                                  \
    ((size_t)(need) <= (cap) || ct__grow((void **)&(array), &(cap), (need), sizeof *(array)))

typedef struct ct_block ct_block;
typedef struct ct_arena {
    ct_block *head;   // newest block, the one being filled
    char *next, *end; // free part of it
    size_t bytes;     // allocated since the last reset
} ct_arena;

typedef struct {
    ct_block *head;
    char *next;
    size_t bytes;
} ct_arena_mark;

void *ct__arena_slow(ct_arena *arena, size_t bytes);
// 16-byte aligned, not zeroed; bytes may be 0. NULL: no memory.
static inline void *ct__arena(ct_arena *arena, size_t bytes) {
    // The rest of the block is a multiple of 16, so a smaller size fits after rounding up.
    if (bytes >= (size_t)(arena->end - arena->next)) return ct__arena_slow(arena, bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    void *p = arena->next;
    arena->next += bytes;
    arena->bytes += bytes;
    return p;
}
void *ct__arena_zero(ct_arena *arena, size_t bytes);
char *ct__arena_str(ct_arena *arena, const char *text);
char *ct__arena_printf(ct_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ct__arena_reset(ct_arena *arena); // empties it; keeps the newest block for reuse
void ct__arena_free(ct_arena *arena);  // frees all its memory
// An arena that is freed at the end of its scope: CT_ARENA arena = {0};
#define CT_ARENA __attribute__((cleanup(ct__arena_free))) ct_arena

#endif
