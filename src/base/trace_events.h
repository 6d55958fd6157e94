// Trace events: the time between a begin and an end, recorded while profiling is on
// (src/train/profile.c). While it is off, a launch costs one check of a flag.
#ifndef COTAN_BASE_TRACE_EVENTS_H
#define COTAN_BASE_TRACE_EVENTS_H

#include <stdatomic.h>

#include "base/mem.h"

typedef enum {
    CT_TRACE_KERNEL,  // a launch
    CT_TRACE_COPY,    // of bytes
    CT_TRACE_OP,      // a node evaluated by itself: on device ref, or a library function
    CT_TRACE_RUN,     // a plan, from handing over its launches to their end, or to enqueueing them
    CT_TRACE_PLAN,    // making a plan
    CT_TRACE_COMPILE, // waiting for the compiler
    CT_TRACE_USER,    // named by the program
    CT_TRACE_KINDS
} ct_trace_event_kind;

// What events of one kind have in common; texts are copied.
typedef struct ct_trace_event_key {
    ct_trace_event_kind kind;
    const char *name;   // "matmul+add"
    const char *device; // "" on the host
    const char *file;   // the program's source line; NULL: unknown
    uint32_t line;
} ct_trace_event_key;

typedef struct ct_trace_event_row { // all events with one key
    ct_trace_event_key what;
    uint64_t calls;
    int64_t total, least, most; // ns
    double bytes, flops;        // of all calls; lower bounds
} ct_trace_event_row;
typedef struct ct_trace_event {
    uint32_t row, thread; // threads are numbered from 0, in the order of their first event
    int64_t begin, end;   // ns since the trace began
} ct_trace_event;
typedef struct ct_trace_memory { // bytes of device memory in use
    int64_t at;
    uint64_t bytes;
} ct_trace_memory;

// The trace; valid until the next one begins. Events beyond the list's maximum are counted in rows
// alone.
typedef struct ct_trace_events {
    const ct_trace_event_row *rows; // (n_rows)
    const ct_trace_event *spans;    // (n_spans), ordered by end
    const ct_trace_memory *memory;
    size_t n_rows, n_spans, n_memory;
    uint64_t n_left_out;
    uint32_t n_threads;
    int64_t length; // ns that were traced
} ct_trace_events;

extern atomic_bool ct__trace_events_on;
static inline bool ct__trace_enabled(void) {
    return __builtin_expect(atomic_load_explicit(&ct__trace_events_on, memory_order_relaxed), 0);
}
int64_t ct__trace_event_now(void); // ns on a monotonic clock
void ct__trace_events_begin(void); // clears the earlier trace
void ct__trace_events_pause(bool pause);
ct_trace_events ct__trace_events_end(void);
// Adds an event that ends now. Without memory it is left out.
void ct__trace_event_add(const ct_trace_event_key *what, int64_t begin, double bytes, double flops);
void ct__trace_memory_add(uint64_t bytes);
void ct__trace_events_clear(void); // frees the trace's memory

// Start the trace that the environment asks for, once a process; and end and clear any. Defined in
// src/train.
void ct__profile_start_from_env(void);
void ct__profile_stop(void);

#endif
