// The interface of a device: memory, copies, one in-order queue, events, kernels.
//
// Buffers are opaque: only the device may access their bytes. Everything enqueued runs in order;
// copy_out and wait are the only calls that block. A device error is reported by the next call that
// can report it (wait, copy_out, submit).
#ifndef COTAN_BACKEND_BACKEND_H
#define COTAN_BACKEND_BACKEND_H

#include <pthread.h>

#include "graph/graph.h"
#include "kir/target.h"

enum { CT_DEVICE_NAME = 48 };
typedef struct ct_device ct_device;
typedef struct ct_account ct_account; // backend/memory.h

typedef struct ct_operand {
    void *buffer;
    size_t offset; // bytes
} ct_operand;

// A kernel's source, and what the device made of it.
typedef struct ct_kernel {
    const char *name, *text;
    const struct ct_kir *ir; // what the text is rendered from; needed during measure and build
    ct_loc here;             // of the first node that needed it
    // Set by measure, before there is a text.
    bool measured;
    bool interpreted; // it will be slow
    size_t scratch;   // bytes a thread needs
    // Set by build.
    void *code;      // the device's compiled code; valid until ct__cpu_end
    bool unfinished; // a faster version is still being compiled
    // Why it is slow, and how to avoid that, for the user: texts that stay valid; NULL or "":
    // nothing.
    const char *notice, *hint;
} ct_kernel;

typedef enum {
    CT_COMMAND_NODE,
    CT_COMMAND_KERNEL,
    CT_COMMAND_COPY,
    // Structure. A LOOP, SWITCH or BATCH extends to its own END.
    CT_COMMAND_LOOP,   // repeats the commands up to its END
    CT_COMMAND_SWITCH, // runs one of its branches
    CT_COMMAND_BRANCH, // begins a branch
    CT_COMMAND_BATCH,  // contains kernels and copies that may run in any order, or at once
    CT_COMMAND_END,
} ct_command_kind;

// Operand `arg` moves by `bytes` with each iteration of the loop at `depth` (0: the outermost one);
// if `reverse`, by `bytes` for each iteration that is left.
typedef struct ct_step {
    uint32_t arg, depth;
    int64_t bytes;
    bool reverse;
} ct_step;

// One resolved launch. NODE: args are the operands, then the outputs of `node`. COPY: args[0] to
// args[1]. LOOP: `count` iterations; if it has args[0], a bool, it ends before an iteration in
// which that is false. SWITCH: args[0], an integer, selects one of the `count` branches; a value
// out of range selects the nearest one.
typedef struct ct_command {
    ct_command_kind kind;
    ct_dtype dtype;      // SWITCH: of args[0]
    const ct_node *node; // the first node that it computes
    const char *label;   // what it computes, "matmul+add", for profiles; NULL: the node's op
    const ct_kernel *kernel;
    const struct ct_kir *ir; // of the kernel; lives as long as the plan
    const ct_operand *args;
    const ct_step *steps; // (n_steps)
    uint32_t n_args, n_steps, n_numbers;
    uint32_t iteration_of; // KERNEL: its last number (of at most 8) is the iteration of the loop at
                           // depth iteration_of - 1; 0: it has none
    bool batched;          // KERNEL, COPY: is in a BATCH
    uint32_t skip; // distance to: LOOP, BATCH: its END; SWITCH, BRANCH: the next BRANCH, or the END
    const int64_t *numbers;
    int64_t grid;
    int64_t count;
    size_t bytes; // COPY: to copy; KERNEL: read and written
    double flops;
} ct_command;

typedef enum { CT_LANGUAGE_C, CT_LANGUAGE_OPENCL } ct_language; // compile/render/render_c.h

// The numerics of devices that run generated kernels, each operation as in kir.h.
#define CT_NUMERICS_KERNELS "7 fma k256 r1024x16 s1024 h32"

typedef struct ct_backend {
    const char *name;
    bool evaluates_ops;   // takes NODE commands; otherwise KERNEL commands, and NODE of kind call
    bool on_host;         // a buffer is the address of its bytes in host memory
    bool several;         // there may be several devices: NAME:0, NAME:1 ...
    ct_language language; // of kernels
    bool caches_buffers;  // freed buffers may be kept for reuse (backend/memory.c)
    // What determines the bits of results (docs/design/bits.md): the rules' version, and the
    // choices among them. Contains no sizes, host or thread count.
    const char *numerics;
    // Returns the number of devices, if drivers must be asked; -1 with the error set: none is
    // possible. NULL: one.
    int (*count)(const struct ct_backend *self, ct_err *err);
    // Describes an open device; sets *memory to the bytes of its memory, which stays 0 if that is
    // the host's.
    void (*about)(const ct_device *device, ct_text *what, uint64_t *memory);
    bool (*open)(ct_device *device, ct_err *err);
    void (*close)(ct_device *device);
    void *(*alloc)(ct_device *device, size_t bytes,
                   ct_err *err); // 64-byte aligned; NULL: no memory
    void (*free)(ct_device *device, void *buffer);
    // The host's bytes may be reused once copy_in returns.
    bool (*copy_in)(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err);
    bool (*copy_out)(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err);
    // Enqueues commands; what they point to (nodes, args, numbers, steps) must live until the event
    // has passed.
    bool (*submit)(ct_device *device, const ct_command *commands, size_t n, ct_err *err);
    // The event after everything enqueued so far, and the wait for it. NULL if all work runs within
    // submit: use ct__device_event and ct__device_wait.
    uint64_t (*event)(ct_device *device);
    bool (*wait)(ct_device *device, ct_err *err);
    // True if work after event `begin` up to event `end` was not run, because of a fault that was
    // reported. NULL if all work runs within submit, which reports faults.
    bool (*lost)(ct_device *device, uint64_t begin, uint64_t end);
    // Returns the most bytes that the device allocates for itself to run this launch of a kernel.
    // NULL: none.
    size_t (*workspace)(const ct_device *device, const ct_command *command);
    ct_target (*target)(void); // NULL where evaluates_ops
    // Sets what kernels will need when they run. NULL where evaluates_ops.
    bool (*measure)(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err);
    // Compiles kernels, or starts compiling them. NULL where evaluates_ops.
    bool (*build)(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err);
    // Called before commands are submitted some of whose kernels are unfinished: waits for those
    // that are worth it, until *stop. *finished: later runs will have nothing to wait for. NULL:
    // kernels are never unfinished.
    bool (*start)(ct_device *device, const ct_command *commands, size_t n, const atomic_bool *stop,
                  bool *finished, ct_err *err);
} ct_backend;

// Collects kernels for another machine than this one: plans are made for `target`, and nothing is
// run.
typedef struct ct_recorder {
    ct_target target;
    bool (*kernel)(struct ct_recorder *self, const ct_kernel *kernel,
                   ct_err *err); // called for each kernel of a plan
} ct_recorder;

enum { CT_GUARD = 64 };
enum { CT_SPARES = 128 };
struct ct_spare { // a freed buffer, kept for an allocation of equal size
    void *buffer;
    size_t bytes;
};

struct ct_device {
    const ct_backend *backend;
    ct_device *inner;          // async, dry: the device that computes, or that would
    int ordinal;               // index among the backend's devices
    char name[CT_DEVICE_NAME]; // by which it was opened; an inner device has it too
    char numerics[64];         // the backend's, with this device's deviations
    void *state;               // the backend's
    ct_account *account;       // counts its memory
    size_t guard;              // unused bytes after each buffer: 0 or CT_GUARD
    bool wait_for_compiler;    // waits until everything is compiled; no kernel is unfinished
    ct_recorder *recorder;     // only of device cpu; NULL: it computes
    const atomic_bool *
        stop; // checked between commands, and between chunks of long ones; NULL: it cannot be stopped
    atomic_int refs;
    pthread_mutex_t spare_lock;
    struct ct_spare spare[CT_SPARES];
    int next_spare; // the oldest
    _Atomic size_t spare_bytes;
};

// Opens "cpu", "ref" or "opencl", with an index if there are several ("opencl:1"), each also with
// "async:" or "dry:" before it. Returns NULL with the error set for other names.
ct_device *ct__device_open(const char *name, ct_err *err);
void ct__device_name(const char *name, char to[CT_DEVICE_NAME]); // "opencl" of "opencl:0"
void ct__device_close(ct_device *device);
ct_target ct__target_unmeasured(void); // of devices whose properties are not known
uint64_t ct__device_event(ct_device *device);
bool ct__device_wait(ct_device *device, ct_err *err);
extern const ct_backend *const ct__backends[]; // built-in backends; ends with NULL
// Iterates over the built-in backends, then over plugins: returns the one after `last` (NULL: the
// first); NULL: no more. `why` gets the error of a plugin library that could not be loaded.
const ct_backend *ct__backend_next(const ct_backend *last, ct_err *why);
// Storages hold a reference, so that a value outlives the context that computed it.
ct_device *ct__device_retain(ct_device *device);
void ct__device_release(ct_device *device); // the last holder closes it

// Process-wide counters, for ct_get_stats.
typedef struct ct_counters {
    _Atomic uint64_t plans_made, plans_run, kernels_compiled, kernels_loaded, kernels_failed;
    _Atomic uint64_t kernels_packed, kernels_pending;
    _Atomic uint64_t launches, launches_interpreted;
    _Atomic uint64_t plan_bytes;
} ct_counters;
extern ct_counters ct__counters;

// True if the device was asked to stop; then the error is set.
#define CT_CANCELLED "cancelled: no variable has changed"
bool ct__stopped(const ct_device *device, ct_err *err);
bool ct__stop_requested(const atomic_bool *stop, ct_err *err); // NULL: false

// Runs a list of commands with its loops and branches (commands.c). `run` is called with each NODE,
// KERNEL and COPY, with its operands moved according to the iteration, and with the original
// command.
typedef struct ct_runner {
    const ct_device *device; // may be asked to stop
    bool (*run)(void *user, const ct_command *command, const ct_command *original, ct_err *err);
    // Runs the n commands of a BATCH. NULL: they run one after the other.
    bool (*run_batch)(void *user, const ct_command *commands, size_t n, ct_err *err);
    // Reads the scalar of a LOOP or SWITCH. NULL: the host can read the device's memory.
    bool (*read)(void *user, ct_operand from, void *to, size_t n, ct_err *err);
    void *user;
} ct_runner;
bool ct__run_commands(const ct_runner *runner, const ct_command *commands, size_t n, ct_err *err);
// Returns the number of commands in this one: 1, or all from a LOOP, SWITCH or BATCH to its END.
size_t ct__command_span(const ct_command *command);

// Implementations for devices that use host memory (host.c).
void ct__host_free(ct_device *device, void *buffer);
bool ct__host_copy_in(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err);
bool ct__host_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err);

// Runs a NODE of kind call for a device without host memory: the function gets copies of its
// operands, and its outputs are copied back.
bool ct__call_on_copies(ct_device *device, const ct_command *command, ct_err *err);

extern const ct_backend ct__backend_ref;
extern const ct_backend ct__backend_cpu;
extern const ct_backend ct__backend_opencl;
extern const ct_backend ct__backend_async, ct__backend_dry; // these wrap `inner`

bool ct__cpu_pairs(bool *pairs,
                   ct_err *err);   // true if bf16 products are dot products of pairs here
void ct__cpu_about(ct_text *text); // describes the processor and its vector instructions

// For ct_shutdown: joins threads and unloads kernels. Only while no device is open.
void ct__cpu_end(void);

// Evaluates one node on host memory, as device ref does.
bool ct__ref_node(const ct_node *node, void *const *args, const atomic_bool *stop, ct_err *err);
// Does the same for a node of kind call, on any device that uses host memory.
bool ct__call_node(const ct_node *node, void *const *args, const atomic_bool *stop,
                   ct_parallel_for spread, ct_err *err);

#endif
