// Where a program's time and memory go, and what the machine could do at most.
//
//     ct_profile_begin();
//     for (int step = 0; step < 20; step++) train(step);
//     if (!ct_profile_end("step.json", true)) return 1;
//     fputs(ct_profile_table(), stdout);
//
// Without a change to a program: COTAN_PROFILE=FILE in its environment writes the trace to FILE and the table to
// standard error when the process ends, as `cotan profile` does.
#ifndef COTAN_PROFILE_H
#define COTAN_PROFILE_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------ limits

// What all threads do in a second in small loops that do nothing else, the best of several tries. 0: not measured.
typedef struct ct_limits {
    double flops;    // f32 multiply-adds in registers, two operations each
    double stream;   // bytes: the faster of STREAM's copy and triad
    double read;     // bytes of a sum
    double threefry; // random words, Threefry-2x32 of 20 rounds in registers
    double bytes;    // operations of dot products of bytes; 0: the processor has no instruction
} ct_limits;

// The better of what `limits` holds and what is measured now, in about a second; without `memory` the first alone,
// in a tenth. False: no memory, no threads, or no limits (NULL).
CT_API bool ct_measure_limits(ct_limits *limits, int threads, bool memory);
CT_API void ct_limits_free(void); // the memory that ct_measure_limits keeps

// ----------------------------------------------------------------------------------------- devices

// A device that can be asked for by name. The texts live as long as the call.
typedef struct ct_device_info {
    const char *name; // as ct_set_device takes it: "cpu", "opencl:0"
    const char *what; // "AMD EPYC: AVX-512, fused multiply-add"; or why it cannot be used
    bool usable;
    uint64_t memory; // bytes; where it computes in the host's, those that are free
    double read;     // bytes a second, measured by a sum of a large f32 tensor; 0: not measured
    double flops;    // a second, measured by a product of two 1,024 x 1,024 f32 matrices
} ct_device_info;
typedef void (*ct_device_fn)(const ct_device_info *info, void *user);

// Tells of every device, in a fixed order. Measuring takes a second or so a device, the first time with its compiler,
// and up to 256 MB of its memory; the reference device is not measured. What `cotan devices` prints.
CT_API bool ct_devices(bool measure, ct_device_fn each, void *user);

// --------------------------------------------------------------------------------------- profiling

// One profile at a time in a process, of all its threads and contexts. What was seen before is forgotten. False: one
// is under way; see ct_error_text.
CT_API bool ct_profile_begin_at(ct_loc here);
#define ct_profile_begin() ct_profile_begin_at(CT_HERE)
// What happens between these two does not count: steps that compile, say. (torch.profiler's schedule)
CT_API void ct_profile_pause(void);
CT_API void ct_profile_resume(void);

// trace: a file for chrome://tracing or ui.perfetto.dev, in the Trace Event Format; NULL: none. limits: measures the
// machine's, in a second, for the table's shares. False: none is under way, or the file cannot be written; what was
// seen stays.
CT_API CT_MUST_USE bool ct_profile_end_at(const char *trace, bool limits, ct_loc here);
#define ct_profile_end(trace, limits) ct_profile_end_at((trace), (limits), CT_HERE)

// A part of the program by a name of its own, until the scope is left; costs nothing while nobody watches. `name`
// must stay until then. (record_function)
//     CT_ANNOTATE("forward");
typedef struct ct_annotation {
    const char *name;
    int64_t begin; // 0: nobody watches
    ct_loc here;
} ct_annotation;
CT_API int64_t ct_annotate_now(void); // ns of a monotonic clock; 0: nobody watches
CT_API void ct_annotate_end(ct_annotation *annotation); // NULL: nothing
#define CT_ANNOTATE(text) CT__ANNOTATE_NAMED(CT__PASTE(ct__annotation_, __LINE__), text)
#define CT__ANNOTATE_NAMED(name, text)                                                             \
    ct_annotation name                                                                             \
        __attribute__((cleanup(ct_annotate_end), unused)) = {(text), ct_annotate_now(), CT_HERE}

typedef enum {
    CT_PROFILE_KERNEL,  // launches of a kernel
    CT_PROFILE_COPY,    // copies of bytes
    CT_PROFILE_OP,      // ops that are evaluated by themselves
    CT_PROFILE_RUN,     // plans that ran, with all their launches
    CT_PROFILE_PLAN,    // plans that were made
    CT_PROFILE_COMPILE, // waiting for the compiler
    CT_PROFILE_USER,    // annotations
    CT_PROFILE_KINDS
} ct_profile_kind;

// All spans of one kind, name and line.
typedef struct ct_profile_row {
    ct_profile_kind kind;
    const char *name;   // what it computes: "max+sum+div"
    const char *device; // "" on the host
    ct_loc here;        // the program's line; without a file where it is unknown
    uint64_t calls;
    double seconds, least, most; // of all calls, of the quickest and of the slowest one
    double bytes, flops;         // of all calls, at least
} ct_profile_row;
typedef struct ct_profile {
    const ct_profile_row *rows; // (n_rows) those that took longest first
    size_t n_rows;
    double seconds;      // that were watched
    double launches;     // seconds of kernels, copies and ops
    uint64_t left_out;   // spans for which there was no room: rows have them, the trace has not
    uint64_t peak_bytes; // that devices held at most, of what was seen to change
    ct_limits limits;    // 0: not measured
} ct_profile;
// What the last profile saw, valid until the next one begins. NULL: there was none, or no memory.
CT_API const ct_profile *ct_profile_seen(void);
// The same as a table for people, the longest rows first. "": there was none.
CT_API const char *ct_profile_table(void);

#ifdef __cplusplus
}
#endif

#endif
