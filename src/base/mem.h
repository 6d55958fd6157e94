// Memory: the one door to the allocator, and arenas that grow and are freed whole.
#ifndef COTAN_BASE_MEM_H
#define COTAN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cotan/cotan.h"

// All host memory of the library comes through these three (a test can make the n-th one fail).
void *ct__malloc(size_t bytes);              // NULL when there is none
void *ct__calloc(size_t count, size_t size); // zeroed; checks count * size
void *ct__realloc(void *old, size_t bytes);  // NULL leaves old untouched
void ct__free(void *p);
void *ct__aligned(size_t align, size_t bytes); // freed with ct__free; align a power of two
char *ct__strdup(const char *text);
// False: memory has been given out already. NULL: the C library's.
bool ct__set_allocator(const ct_allocator *allocator);
void ct__all_freed(void);             // for ct_shutdown: nothing that was given out is left
void ct__fail_alloc_after(int64_t n); // tests: the n-th allocation from now fails; < 0: none
// How many allocations of this thread failed. Work that must not go on without one of its parts compares the
// number before and after: that holds for every function it calls, whatever the function made of its failure.
uint64_t ct__refused(void);
size_t ct__refused_bytes(void);   // of the last of them
void ct__refused_set(uint64_t n); // what failed since then was had in another way

// Grows *array (of *cap elements of `size` bytes) so that it holds at least `need`. False: no
// memory, unchanged.
bool ct__grow(void **array, size_t *cap, size_t need, size_t size);
#define CT_GROW(array, cap, need)                                                                  \
    ((size_t)(need) <= (cap) || ct__grow((void **)&(array), &(cap), (need), sizeof *(array)))

typedef struct ct_block ct_block;
typedef struct ct_arena {
    ct_block *head;   // newest block, the one being filled
    char *next, *end; // free part of it
    size_t bytes;     // handed out since the last reset
} ct_arena;

typedef struct {
    ct_block *head;
    char *next;
    size_t bytes;
} ct_mark;

void *ct__arena_slow(ct_arena *arena, size_t bytes);
// 16-byte aligned, not zeroed, 0 bytes too; NULL: no memory.
static inline void *ct__arena(ct_arena *arena, size_t bytes) {
    // What is left is a multiple of 16, so less than that still fits when rounded up.
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
void ct__arena_reset(ct_arena *arena); // empties it, keeps its largest block for reuse
void ct__arena_free(ct_arena *arena);  // gives all memory back

#endif
