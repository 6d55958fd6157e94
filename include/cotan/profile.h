// The profiler: the time and memory of a program, and the limits of the machine.
//
//     ct_profile_begin();
//     for (int step = 0; step < 20; step++) train(step);
//     if (!ct_profile_end("step.json", true)) return 1;
//     fputs(ct_profile_table(), stdout);
//
// Without a change to a program, COTAN_PROFILE=FILE in its environment writes the trace to FILE and
// the table to standard error when the process ends, as `cotan profile` does.
#ifndef COTAN_PROFILE_H
#define COTAN_PROFILE_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------ limits

// The throughput of all threads per second in small loops that do nothing else, the best of several
// runs. 0: not measured.
typedef struct ct_machine_limits {
    double flops;            // f32 multiply-adds in registers, two operations each
    double stream_bandwidth; // bytes: the faster of STREAM's copy and triad
    double read_bandwidth;   // bytes read by a sum
    double random_words;     // random words, Threefry-2x32 of 20 rounds in registers
    // Operations of int8 dot products; 0: the processor has no instruction for them.
    double int8_ops;
} ct_machine_limits;

// Measures in about a second and sets each limit to the maximum of its old and its new value;
// without `memory` it measures only the limits that do not need memory, in a tenth of a second.
// False: out of memory, no threads, or limits is NULL.
CT_API bool ct_measure_machine_limits(ct_machine_limits *limits, int threads, bool memory);
CT_API void ct_machine_limits_free(void); // frees the memory that ct_measure_machine_limits caches

// ----------------------------------------------------------------------------------------- devices

// A device that can be selected by name. The strings are valid during the call.
typedef struct ct_device_info {
    const char *name;        // name for ct_set_device: "cpu", "opencl:0"
    const char *description; // "AMD EPYC: AVX-512, fused multiply-add"; or why it cannot be used
    bool usable;
    uint64_t memory; // bytes; for a device that uses the host's memory, the free bytes
    // Bytes per second, measured by a sum of a large f32 tensor; 0: not measured.
    double read_bandwidth;
    double flops; // per second, measured by a product of two 1,024 x 1,024 f32 matrices
} ct_device_info;
typedef void (*ct_device_fn)(const ct_device_info *info, void *user);

// Calls `each` for every device, in a fixed order. Measuring takes about a second per device, more
// the first time, when kernels are compiled, and up to 256 MB of its memory; the reference device
// is not measured. It is what `cotan devices` prints.
CT_API bool ct_devices(bool measure, ct_device_fn each, void *user);

// --------------------------------------------------------------------------------------- profiling

// Begins a profile of all threads and contexts of the process, of which there is one at a time. The
// results of the previous profile are discarded. False: one is running; see ct_error_text.
CT_API bool ct_profile_begin_at(ct_loc here);
#define ct_profile_begin() ct_profile_begin_at(CT_HERE)
// Events between these two are not recorded, for example steps that compile. (torch.profiler's
// schedule)
CT_API void ct_profile_pause(void);
CT_API void ct_profile_resume(void);

// Ends the profile. trace: a file for chrome://tracing or ui.perfetto.dev in the Trace Event
// Format; NULL: none. limits: measures the limits of the machine, in a second, for the percentages
// in the table. False: no profile is running, or the file cannot be written; what was recorded is
// kept.
CT_API CT_MUST_USE bool ct_profile_end_at(const char *trace, bool limits, ct_loc here);
#define ct_profile_end(trace, limits) ct_profile_end_at((trace), (limits), CT_HERE)

// Names a part of the program until the end of the scope; it costs nothing while no profile is
// running. `name` must stay valid until then. (record_function)
//     CT_ANNOTATE("forward");
typedef struct ct_annotation {
    const char *name;
    int64_t begin; // 0: no profile is running
    ct_loc here;
} ct_annotation;
CT_API int64_t ct_annotate_now(void); // ns of a monotonic clock; 0: no profile is running
CT_API void ct_annotate_end(ct_annotation *annotation); // NULL is ignored
#define CT_ANNOTATE(text) CT__ANNOTATE_NAMED(CT__PASTE(ct__annotation_, __LINE__), text)
#define CT__ANNOTATE_NAMED(name, text)                                                             \
    ct_annotation name                                                                             \
        __attribute__((cleanup(ct_annotate_end), unused)) = {(text), ct_annotate_now(), CT_HERE}

typedef enum {
    CT_PROFILE_KERNEL,  // launches of a kernel
    CT_PROFILE_COPY,    // copies of bytes
    CT_PROFILE_OP,      // ops that run by themselves
    CT_PROFILE_RUN,     // runs of plans, with all their launches
    CT_PROFILE_PLAN,    // plans that were created
    CT_PROFILE_COMPILE, // waits for the compiler
    CT_PROFILE_USER,    // annotations
    CT_PROFILE_KINDS
} ct_profile_kind;

// All trace events of one kind, name and line.
typedef struct ct_profile_row {
    ct_profile_kind kind;
    const char *name;   // what it computes: "max+sum+div"
    const char *device; // "" on the host
    ct_loc here;        // line of the program; without a file if unknown
    uint64_t calls;
    // Of all calls, of the fastest and of the slowest call.
    double seconds, min_seconds, max_seconds;
    double bytes, flops; // of all calls, lower bounds
} ct_profile_row;
typedef struct ct_profile {
    const ct_profile_row *rows; // (n_rows) longest total time first
    size_t n_rows;
    double seconds;        // duration of the profile
    double launch_seconds; // seconds of kernels, copies and ops
    // Trace events that did not fit into the buffer: they are counted in rows, but not in the
    // trace.
    uint64_t dropped_events;
    uint64_t peak_bytes;      // peak bytes of devices, among the changes that were recorded
    ct_machine_limits limits; // 0: not measured
} ct_profile;
// Returns the results of the last profile, valid until the next one begins. NULL: there is none, or
// out of memory.
CT_API const ct_profile *ct_profile_result(void);
// Returns the same as a table for people, the longest rows first. "": there is none.
CT_API const char *ct_profile_table(void);

#ifdef __cplusplus
}
#endif

#endif
