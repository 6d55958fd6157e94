// What a device is to the layers above: memory, copies, one queue in order, events, kernels.
//
// Buffers are opaque: only the device may look inside. Everything enqueued runs in order; copy_out
// and wait are the only calls that block. A device error is reported by the next call that can
// (wait, copy_out, submit).
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

// A kernel as source, and what the device made of it.
typedef struct ct_kernel {
    const char *name, *text;
    const struct ct_kir *ir; // what the text is rendered from; needed during measure and build
    ct_loc here;             // of the node that it serves first, where it was first needed
    // Filled by measure, before there is a text.
    bool measured;
    bool interpreted; // it will be slow
    size_t scratch;   // bytes a thread needs
    // Filled by build.
    void *code;      // the device's, which lives as long as the process
    bool unfinished; // it is to be replaced by a faster one, which is not there yet
    // Why it is slow, which the user should know, and what to do about it: texts that stay; NULL or
    // "": nothing.
    const char *notice, *hint;
} ct_kernel;

typedef enum {
    CT_COMMAND_NODE,
    CT_COMMAND_KERNEL,
    CT_COMMAND_COPY,
    // Structure. What a LOOP or a SWITCH opens reaches to the END that belongs to it.
    CT_COMMAND_LOOP,   // what follows is repeated
    CT_COMMAND_SWITCH, // one of the branches that follow is run
    CT_COMMAND_BRANCH, // begins a branch
    CT_COMMAND_BATCH,  // what follows are kernels and copies that may run in any order, or at once
    CT_COMMAND_END,
} ct_command_kind;

// Operand `arg` lies `bytes` further on with each iteration of the loop at `depth`, from 0: the
// outermost one. reverse: with each that is still to come.
typedef struct ct_step {
    uint32_t arg, depth;
    int64_t bytes;
    bool reverse;
} ct_step;

// One resolved launch. NODE: args are the operands, then the outputs of `node`. COPY: args[0] to
// args[1]. LOOP: `count` times, and with args[0], a bool, no longer than it holds before an
// iteration. SWITCH: args[0], a whole number, says which of the `count` branches; one outside of
// them is the nearest.
typedef struct ct_command {
    ct_command_kind kind;
    ct_dtype dtype;      // SWITCH: of args[0]
    const ct_node *node; // what it serves first
    const char *label;   // what it computes, "matmul+add", for profiles; NULL: the node's op
    const ct_kernel *kernel;
    const struct ct_kir *ir; // of the kernel, for as long as the plan lives
    const ct_operand *args;
    const ct_step *steps; // (n_steps)
    uint32_t n_args, n_steps, n_numbers;
    uint32_t turn; // KERNEL: its last number of at most 8 is the iteration of the loop at depth
                   // turn - 1; 0: of none
    bool batched;  // KERNEL, COPY: stands in a BATCH
    uint32_t
        skip; // LOOP, BATCH: how far away its END is; SWITCH, BRANCH: the next BRANCH, or the END
    const int64_t *numbers;
    int64_t grid;
    int64_t count;
    size_t bytes; // COPY: how many; KERNEL: what it moves
    double flops;
} ct_command;

typedef enum { CT_LANGUAGE_C, CT_LANGUAGE_OPENCL } ct_language; // compile/render/render_c.h

// The numerics of devices that run what the compiler makes, each operation as kir.h says.
#define CT_NUMERICS_KERNELS "7 fma k256 r1024x16 s1024 h32"

typedef struct ct_backend {
    const char *name;
    bool evaluates_ops;   // takes NODE commands; otherwise KERNEL commands, and NODE of kind call
    bool on_host;         // a buffer is the address of its bytes in host memory, for all to read
    bool several;         // there may be several such devices: NAME:0, NAME:1 ...
    ct_language language; // of kernels
    bool spares;          // freed buffers may wait for the next of their size (backend/memory.c)
    // What decides its bits, by docs/design/bits.md: version of the rules, and the choices made in
    // them. No sizes, no host, no threads.
    const char *numerics;
    // How many there are, where drivers have to be asked; -1, and a sentence: why none can be. NULL: one.
    int (*count)(const struct ct_backend *self, ct_err *err);
    // What an open one is, in words, and the bytes of its memory, which stay 0 where it is the host's.
    void (*about)(const ct_device *device, ct_text *what, uint64_t *memory);
    bool (*open)(ct_device *device, ct_err *err);
    void (*close)(ct_device *device);
    void *(*alloc)(ct_device *device, size_t bytes,
                   ct_err *err); // 64-byte aligned; NULL: no memory
    void (*free)(ct_device *device, void *buffer);
    // Host bytes may be reused when copy_in returns.
    bool (*copy_in)(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err);
    bool (*copy_out)(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err);
    // Enqueues commands; what they point to (nodes, args, numbers, steps) must live until the event
    // has passed.
    bool (*submit)(ct_device *device, const ct_command *commands, size_t n, ct_err *err);
    uint64_t (*event)(ct_device *device); // of all that is enqueued so far
    bool (*wait)(ct_device *device, uint64_t event, ct_err *err);
    // Did any of the work behind event `begin` up to event `end` not run, by a fault that was
    // reported? NULL where all work runs within submit, which reports it.
    bool (*lost)(ct_device *device, uint64_t begin, uint64_t end);
    // Bytes that it takes for itself, at most, to run this launch of a kernel. NULL: none.
    size_t (*workspace)(const ct_device *device, const ct_command *command);
    ct_target (*target)(void); // NULL where evaluates_ops
    // Says what kernels will need when they run. NULL where evaluates_ops.
    bool (*measure)(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err);
    // Compiles kernels, or begins to. NULL where evaluates_ops.
    bool (*build)(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err);
    // Before commands are submitted of whose kernels some are unfinished: waits for those that are
    // worth it, until *stop. *finished: there will be nothing to wait for in later runs. NULL: none
    // ever is unfinished.
    bool (*start)(ct_device *device, const ct_command *commands, size_t n, const atomic_bool *stop,
                  bool *finished, ct_err *err);
} ct_backend;

// Somebody who wants kernels for another machine than this one: plans are made for it, and nothing is run.
typedef struct ct_recorder {
    ct_target target;
    bool (*kernel)(struct ct_recorder *self, const ct_kernel *kernel,
                   ct_err *err); // hears of each that a plan has
} ct_recorder;

enum { CT_GUARD = 64 };
enum { CT_SPARES = 128 };
struct ct_spare { // a freed buffer that waits for the next of its size
    void *buffer;
    size_t bytes;
};

struct ct_device {
    const ct_backend *backend;
    ct_device *inner; // of an asynchronous device: what really computes; of a dry one: what would
    int ordinal;      // which of several
    char name[CT_DEVICE_NAME]; // by which it was opened; of an inner one, too
    char numerics[64];         // the backend's, with what this very device does otherwise
    void *state;               // the backend's
    ct_account *account;       // where its memory is counted
    size_t guard;              // bytes kept free behind each buffer: 0 or CT_GUARD
    bool waits;                // for the compiler, whatever that takes; nothing is unfinished
    ct_recorder *recorder;     // of device cpu; NULL: it computes
    const atomic_bool *stop;   // asked between commands that may be left out, and between pieces of
                               // long ones; NULL: never
    atomic_int refs;
    pthread_mutex_t spare_lock;
    struct ct_spare spare[CT_SPARES];
    int next_spare; // the oldest
    _Atomic size_t spare_bytes;
};

// "cpu", "ref", "opencl", with a number where there are several ("opencl:1"), each also behind "async:" or "dry:". NULL
// and an error for other names.
ct_device *ct__device_open(const char *name, ct_err *err);
void ct__device_name(const char *name, char to[CT_DEVICE_NAME]); // "opencl" of "opencl:0"
void ct__device_close(ct_device *device);
extern const ct_backend *const ct__backends[]; // the library's own, NULL behind the last
// Those, then what came from outside: the one behind `last` (NULL: the first); NULL: no more. `why`: the error of a
// library that was to bring one.
const ct_backend *ct__backend_next(const ct_backend *last, ct_err *why);
// Storages hold their device, so that a value outlives the context that computed it.
ct_device *ct__device_retain(ct_device *device);
void ct__device_release(ct_device *device); // closes it with the last holder

// Process-wide counters behind ct_get_stats.
typedef struct ct_counters {
    _Atomic uint64_t plans_made, plans_run, kernels_compiled, kernels_loaded, kernels_failed;
    _Atomic uint64_t kernels_packed, kernels_pending;
    _Atomic uint64_t launches, launches_interpreted;
    _Atomic uint64_t plan_bytes;
} ct_counters;
extern ct_counters ct__counters;

// Was the device asked to stop? Then the error says so.
#define CT_CANCELLED "cancelled: no variable has changed"
bool ct__stopped(const ct_device *device, ct_err *err);
bool ct__asked_to_stop(const atomic_bool *stop, ct_err *err); // NULL: no

// Runs a list of commands by its structure (commands.c). `run` is called with each NODE, KERNEL and
// COPY that is to run, its operands moved to their place in the iteration, and with the same command
// as it was given.
typedef struct ct_runner {
    const ct_device *device; // that may be asked to stop
    bool (*run)(void *user, const ct_command *command, const ct_command *given, ct_err *err);
    // The n commands of a BATCH. NULL: they run one after the other.
    bool (*run_batch)(void *user, const ct_command *commands, size_t n, ct_err *err);
    // Brings a scalar that decides how it goes on. NULL: the host can read the device's memory.
    bool (*read)(void *user, ct_operand from, void *to, size_t n, ct_err *err);
    void *user;
} ct_runner;
bool ct__run_commands(const ct_runner *runner, const ct_command *commands, size_t n, ct_err *err);
// How many commands belong together: one, or all from a LOOP, a SWITCH or a BATCH to its END.
size_t ct__command_span(const ct_command *command);

// Memory of devices whose memory is the host's (host.c).
void ct__host_free(ct_device *device, void *buffer);
bool ct__host_copy_in(ct_device *device, ct_operand to, const void *host, size_t n, ct_err *err);
bool ct__host_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err);

// A NODE of kind call on a device that is not: the function runs on copies of what it reads and of what it makes.
bool ct__call_on_copies(ct_device *device, const ct_command *command, ct_err *err);

extern const ct_backend ct__backend_ref;
extern const ct_backend ct__backend_cpu;
extern const ct_backend ct__backend_opencl;
extern const ct_backend ct__backend_async, ct__backend_dry; // wrap `inner`

bool ct__cpu_pairs(bool *pairs, ct_err *err); // are products of bf16 dots of pairs here?
void ct__cpu_about(ct_text *text); // the processor, and the vectors that kernels could have

// Work of the host by the threads that run kernels: fn over [0, count) in pieces of `grain` (base/pool.h), by `threads`
// of them, which ct__cpu_threads says. Not within a kernel.
int ct__cpu_threads(void);
void ct__cpu_each(void (*fn)(void *arg, int64_t begin, int64_t end, int worker), void *arg,
                  int64_t count, int64_t grain, int threads);

// For ct_shutdown: threads are joined, kernels unloaded. Only while no device is open.
void ct__cpu_end(void);

// Evaluates one node op by op on host memory; what ref does.
bool ct__ref_node(const ct_node *node, void *const *args, const atomic_bool *stop, ct_err *err);
// The same of a node of kind call, on any device whose memory is the host's.
bool ct__call_node(const ct_node *node, void *const *args, const atomic_bool *stop,
                   ct_parallel_for spread, ct_err *err);

#endif
