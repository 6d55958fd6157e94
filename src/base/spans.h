// Where time goes: spans with a begin and an end, taken while somebody watches (src/train/profile.c). Nobody
// does most of the time: then a launch costs one look at a flag.
#ifndef COTAN_BASE_SPANS_H
#define COTAN_BASE_SPANS_H

#include <stdatomic.h>

#include "base/mem.h"

typedef enum {
    CT_SPAN_KERNEL,  // a launch
    CT_SPAN_COPY,    // of bytes
    CT_SPAN_OP,      // a node that is evaluated by itself: of device ref, a library's function
    CT_SPAN_RUN,     // a plan, from its launches being handed over to their end, or to a queue
    CT_SPAN_PLAN,    // a plan being made
    CT_SPAN_COMPILE, // waiting for the compiler
    CT_SPAN_USER,    // what the program names
    CT_SPAN_KINDS
} ct_span_kind;

// What spans of one kind have in common; texts are copied.
typedef struct ct_span_what {
    ct_span_kind kind;
    const char *name;   // "matmul+add"
    const char *device; // "" on the host
    const char *file;   // the program's line; NULL: unknown
    uint32_t line;
} ct_span_what;

typedef struct ct_span_row { // all spans of one `what`
    ct_span_what what;
    uint64_t calls;
    int64_t total, least, most; // ns
    double bytes, flops;        // of all calls, at least
} ct_span_row;
typedef struct ct_span {
    uint32_t row, thread; // threads count from 0, in the order in which they were met
    int64_t begin, end;   // ns since watching began
} ct_span;
typedef struct ct_span_memory { // bytes that devices hold
    int64_t at;
    uint64_t bytes;
} ct_span_memory;

// What was seen; valid until watching begins again. Spans beyond the room for them are counted in rows alone.
typedef struct ct_spans {
    const ct_span_row *rows; // (n_rows)
    const ct_span *spans;    // (n_spans) in the order of their ends
    const ct_span_memory *memory;
    size_t n_rows, n_spans, n_memory;
    uint64_t n_left_out;
    uint32_t n_threads;
    int64_t length; // ns that were watched
} ct_spans;

extern atomic_bool ct__spans_on;
static inline bool ct__watched(void) {
    return __builtin_expect(atomic_load_explicit(&ct__spans_on, memory_order_relaxed), 0);
}
int64_t ct__span_now(void); // ns of a monotonic clock
void ct__spans_begin(void); // forgets what was seen
void ct__spans_pause(bool pause);
ct_spans ct__spans_end(void);
// A span that ends now. Without memory for it, it is left out.
void ct__span_add(const ct_span_what *what, int64_t begin, double bytes, double flops);
void ct__span_memory_now(uint64_t bytes);
void ct__spans_forget(void); // the memory of what was seen goes

// Begins the profile that the environment asks for, once a process, and ends and forgets any. Defined by src/train.
void ct__profile_begins(void);
void ct__profile_ends(void);

#endif
