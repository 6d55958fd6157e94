// The CPU as a device: host memory, kernels compiled from C, and a thread pool that splits each
// kernel's grid.
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/memory.h"
#include "backend/cpu/build.h"
#include "backend/cpu/cc.h"
#include "backend/cpu/code.h"
#include "backend/cpu/interp.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/start.h"
#include "backend/cpu/cache.h"
#include "base/number.h"
#include "base/os.h"
#include "base/pool.h"
#include "graph/plans.h"
#include "kir/kir.h"

enum { HUGE_PAGE = 2 << 20 };

// Large buffers use huge pages where the kernel grants them: fewer page faults, which cost more
// than the computation on such buffers.
static void *cpu_alloc(ct_device *device, size_t bytes, ct_err *err) {
    (void)device;
    bool large = bytes >= HUGE_PAGE;
    void *p = ct__aligned(large ? HUGE_PAGE : 64, bytes ? bytes : 64);
    if (!p)
        ct__err_memory(err, CT_NOWHERE, "cpu", bytes);
    else if (large)
        madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); // not beyond its end
    return p;
}

// --------------------------------------------------------------------------------------- threads

static atomic_int asked_threads; // by ct_set_threads; 0: the environment, else the cores

static int cpu_clamp_threads(int threads) {
    return threads < CT_POOL_MAX_THREADS ? threads : CT_POOL_MAX_THREADS;
}

void ct_set_threads(int n) {
    if (n >= 0) {
        asked_threads = cpu_clamp_threads(n);
        return;
    }
    ct_ctx *ctx = ct__ctx();
    if (ctx)
        ct__err(&ctx->err, CT_E_ARGUMENT, CT_NOWHERE, "set_threads",
                "%d threads: 1 to %d can be, and 0 is the default", n, CT_POOL_MAX_THREADS);
}

// Reads COTAN_THREADS into *n; 0 if it is not set.
static bool cpu_env_threads(int *n, ct_err *err) {
    const char *text = getenv("COTAN_THREADS"), *at = text;
    for (*n = 0; at && *at >= '0' && *at <= '9' && *n <= CT_POOL_MAX_THREADS; at++)
        *n = *n * 10 + *at - '0';
    if (!text || !*text || (!*at && *n >= 1 && *n <= CT_POOL_MAX_THREADS)) return true;
    *n = 0;
    return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                   "COTAN_THREADS is \"%.40s\", not a whole number from 1 to %d", text,
                   CT_POOL_MAX_THREADS);
}

int ct_threads(void) {
    static atomic_int by_default;
    if (asked_threads) return asked_threads;
    if (!by_default) {
        int n;
        cpu_env_threads(&n, NULL); // opening the device has reported an invalid value
        by_default = n ? n : cpu_clamp_threads(ct__cores_allowed());
    }
    return by_default;
}

// The pool of the process, shared by all contexts. A thread that runs a job holds the lock for
// reading, so that the pool is resized between jobs only: its number of workers, from which scratch
// memory is sized, does not change during a job.
static pthread_rwlock_t pool_lock = PTHREAD_RWLOCK_INITIALIZER;
static ct_pool *pool;

// Returns a pool of this many threads, locked for reading; NULL (not locked) if there is no memory.
static ct_pool *cpu_lock_pool(int threads) {
    for (;;) {
        pthread_rwlock_rdlock(&pool_lock);
        if (pool && ct__pool_threads(pool) == threads) return pool;
        pthread_rwlock_unlock(&pool_lock);
        pthread_rwlock_wrlock(&pool_lock);
        if (pool)
            ct__pool_resize(pool, threads);
        else
            pool = ct__pool_new(threads);
        bool made = pool != NULL;
        pthread_rwlock_unlock(&pool_lock);
        if (!made) return NULL;
    }
}

void ct__parallel_for(ct__pool_fn fn, void *arg, int64_t count, int64_t grain, int threads) {
    ct_pool *workers = threads > 1 ? cpu_lock_pool(threads) : NULL;
    if (workers && ct__pool_usable(workers))
        ct__pool_run(workers, fn, arg, count, grain);
    else
        fn(arg, 0, count, 0);
    if (workers) pthread_rwlock_unlock(&pool_lock);
}

void ct__cpu_end(void) {
    pthread_rwlock_wrlock(&pool_lock);
    ct__pool_free(pool);
    pool = NULL;
    pthread_rwlock_unlock(&pool_lock);
    ct__cpu_build_end();
}

// -------------------------------------------------------------------------------------- launches

typedef struct {
    char *scratch; // of all threads
    size_t bytes;
} cpu_state;

typedef struct {
    const ct_cpu_code *code;
    const ct_interp *interp; // for chunks that begin before there is code
    void *const *bufs;
    const int64_t *numbers;
    size_t scratch; // bytes a thread
    char *scratches;
    const atomic_bool *stop; // NULL: it cannot be stopped
    atomic_bool skipped;     // some chunks were skipped
} launch;

static void cpu_run_range(void *arg, int64_t begin, int64_t end, int worker) {
    launch *l = arg;
    if (l->stop && atomic_load_explicit(l->stop, memory_order_relaxed)) {
        atomic_store_explicit(&l->skipped, true, memory_order_relaxed);
        return;
    }
    void *scratch = l->scratches + (size_t)worker * l->scratch;
    ct__kernel_fn fn = ct__code_fn(l->code);
    if (fn)
        fn(l->bufs, l->numbers, begin, end, scratch);
    else if (!ct__interp_run(l->interp, l->bufs, l->numbers, begin, end, scratch, l->stop))
        atomic_store_explicit(&l->skipped, true, memory_order_relaxed);
}

enum { NS_PER_THREAD = 20000, CHUNKS_PER_THREAD = 8 }; // chunks even out differences in speed
enum { NS_PER_CHUNK = 1000000 }; // nanoseconds: a launch can be stopped between chunks

// Estimates how long a launch takes on one core, in nanoseconds: the larger of its bytes at 10 GB/s
// and its operations at 20 GFLOP/s.
static double cpu_estimate_ns(const ct_command *c) {
    enum { INTERPRETED = 5 }; // slower by this factor
    double bytes = (double)c->bytes / 10, flops = c->flops / 20;
    if (c->kind == CT_COMMAND_COPY) return 2 * bytes;
    return (bytes > flops ? bytes : flops) * (c->kernel->interpreted ? INTERPRETED : 1);
}

static char *cpu_get_scratch(ct_device *device, size_t bytes, ct_err *err) {
    cpu_state *state = device->state;
    if (bytes <= state->bytes) return state->scratch;
    ct__free(state->scratch);
    ct__account_sub(device->account, state->bytes, CT_MEMORY_WORKSPACES);
    state->scratch = NULL;
    state->bytes = 0;
    if (!ct__account_add(device->account, bytes, CT_MEMORY_WORKSPACES, err)) return NULL;
    state->scratch = ct__aligned(64, bytes);
    if (state->scratch) {
        state->bytes = bytes;
    } else {
        ct__account_sub(device->account, bytes, CT_MEMORY_WORKSPACES);
        ct__err_memory(err, CT_NOWHERE, "cpu", bytes);
    }
    return state->scratch;
}

// Returns the number of threads that the launch is worth.
static int cpu_choose_threads(const ct_command *c, int threads) {
    double most = cpu_estimate_ns(c) / NS_PER_THREAD + 1;
    if (threads > most) threads = (int)most;
    if (threads > c->grid) threads = c->grid < 1 ? 1 : (int)c->grid;
    return threads;
}

// Any worker of the pool may run a chunk, so each has scratch.
static size_t cpu_workspace(const ct_device *device, const ct_command *c) {
    size_t scratch = ct__round_up(c->kernel->scratch, 64);
    int most = ct_threads();
    return (void)device,
           scratch * (size_t)(c->batched || cpu_choose_threads(c, most) > 1 ? most : 1);
}

static bool cpu_report_forked(ct_err *err) {
    return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "cpu",
                   "the threads of this process stayed in its parent: no use after fork");
}

static bool cpu_run_launch(ct_device *device, const ct_command *c, launch *l, ct_pool *workers,
                           int threads, ct_err *err) {
    if (workers && !ct__pool_usable(workers)) return cpu_report_forked(err);
    size_t scratch = l->scratch * (size_t)(workers ? ct__pool_threads(workers) : 1);
    if (scratch && !(l->scratches = cpu_get_scratch(device, scratch, err))) return false;
    int64_t chunks = workers ? (int64_t)threads * CHUNKS_PER_THREAD : 1;
    double by_time = l->stop ? cpu_estimate_ns(c) / NS_PER_CHUNK : 0;
    if (by_time > (double)chunks) chunks = (int64_t)by_time;
    if (chunks > c->grid) chunks = c->grid < 1 ? 1 : c->grid;
    int64_t grain = (c->grid + chunks - 1) / chunks;
    if (workers)
        ct__pool_run(workers, cpu_run_range, l, c->grid, grain);
    else
        for (int64_t at = 0; at < c->grid; at += grain)
            cpu_run_range(l, at, at + grain < c->grid ? at + grain : c->grid, 0);
    return !atomic_load_explicit(&l->skipped, memory_order_relaxed) || !ct__stopped(device, err);
}

static launch cpu_make_launch(const ct_device *device, const ct_command *c, void **bufs) {
    ct_cpu_code *code = c->kernel->code;
    for (uint32_t i = 0; i < c->n_args; i++)
        bufs[i] = (char *)c->args[i].buffer + c->args[i].offset;
    launch l = {.code = code,
                .interp = ct__code_fn(code) ? NULL : ct__code_acquire_interp(code),
                .bufs = bufs,
                .numbers = c->numbers,
                .scratch = ct__round_up(c->kernel->scratch, 64),
                .stop = device->stop};
    if (l.interp) {
        size_t frame = ct__round_up(ct__interp_scratch(l.interp), 64);
        if (frame > l.scratch) l.scratch = frame;
    }
    return l;
}

static bool cpu_run_kernel(ct_device *device, const ct_command *c, ct_err *err) {
    void *few[32], **bufs = few;
    if (c->n_args > 32 && !(bufs = ct__malloc(c->n_args * sizeof *bufs)))
        return ct__err_memory(err, CT_NOWHERE, "cpu", c->n_args * sizeof *bufs);
    int most = ct_threads(), threads = cpu_choose_threads(c, most);
    launch l = cpu_make_launch(device, c, bufs);
    ct__counters.launches_interpreted += l.interp != NULL;
    ct_pool *workers = threads > 1 ? cpu_lock_pool(most) : NULL; // NULL: on this thread
    bool ok = cpu_run_launch(device, c, &l, workers, threads, err);
    if (workers) pthread_rwlock_unlock(&pool_lock);
    if (l.interp) ct__code_release_interp(c->kernel->code);
    if (bufs != few) ct__free(bufs);
    return ok;
}

static void cpu_copy_bytes(const ct_command *c, size_t first, size_t n) {
    if (n)
        memmove((char *)c->args[1].buffer + c->args[1].offset + first,
                (char *)c->args[0].buffer + c->args[0].offset + first, n);
}

// ------------------------------------------------------------------------------------- batches

enum { COPY_CHUNK = 1 << 16 }; // bytes; the smallest chunk of a copy

// Commands whose chunks are one job of the pool: those of the first command, then those of the
// second, ...
typedef struct {
    const ct_command *commands; // (n)
    size_t n;
    launch *launches; // (n)
    int64_t *ends;    // (n) number of chunks up to the end of each command
} batch;

static int64_t cpu_grid_of(const ct_command *c) {
    if (c->kind == CT_COMMAND_COPY) return (int64_t)((c->bytes + COPY_CHUNK - 1) / COPY_CHUNK);
    return c->grid < 0 ? 0 : c->grid;
}

static void cpu_run_batch_chunk(const batch *b, size_t i, int64_t begin, int64_t end, int worker) {
    const ct_command *c = &b->commands[i];
    if (c->kind != CT_COMMAND_COPY) {
        cpu_run_range(&b->launches[i], begin, end, worker);
        return;
    }
    const size_t first = (size_t)begin * COPY_CHUNK, last = (size_t)end * COPY_CHUNK;
    cpu_copy_bytes(c, first, (last < c->bytes ? last : c->bytes) - first);
}

static void cpu_run_batch_chunks(void *arg, int64_t begin, int64_t end, int worker) {
    const batch *b = arg;
    size_t low = 0, high = b->n - 1;
    while (low < high) { // finds the command that the first chunk belongs to
        const size_t middle = (low + high) / 2;
        if (b->ends[middle] > begin)
            high = middle;
        else
            low = middle + 1;
    }
    for (int64_t i = begin; i < end; i++) {
        while (b->ends[low] <= i) low++;
        const int64_t before = low ? b->ends[low - 1] : 0, n = b->ends[low] - before;
        const int64_t grid = cpu_grid_of(&b->commands[low]), at = i - before;
        // grid / n for each chunk, and one more for the first grid % n
        const int64_t each = grid / n, more = grid % n;
        const int64_t first = at * each + (at < more ? at : more);
        cpu_run_batch_chunk(b, low, first, first + each + (at < more), worker);
    }
}

// Splits the commands into chunks, in total about as many as the threads are worth. Returns the
// number of threads.
static int cpu_partition_batch(batch *b, int most) {
    double total = 0;
    int64_t chunks = 0;
    for (size_t i = 0; i < b->n; i++) total += cpu_estimate_ns(&b->commands[i]);
    int threads = total / NS_PER_THREAD + 1 < most ? (int)(total / NS_PER_THREAD + 1) : most;
    for (size_t i = 0; i < b->n; i++) {
        const int64_t grid = cpu_grid_of(&b->commands[i]);
        double own = threads > 1
                         ? cpu_estimate_ns(&b->commands[i]) / total * threads * CHUNKS_PER_THREAD
                         : 0;
        double by_time = b->launches[i].stop ? cpu_estimate_ns(&b->commands[i]) / NS_PER_CHUNK : 0;
        int64_t n = 1 + (int64_t)(own > by_time ? own : by_time);
        b->ends[i] = chunks += n < grid ? n : grid;
    }
    return threads < chunks ? threads : chunks ? (int)chunks : 1;
}

static bool cpu_run_partitioned(ct_device *device, batch *b, int threads, ct_pool *workers,
                                ct_err *err) {
    if (workers && !ct__pool_usable(workers)) return cpu_report_forked(err);
    size_t scratch = 0;
    char *scratches = NULL;
    for (size_t i = 0; i < b->n; i++)
        if (b->launches[i].scratch > scratch) scratch = b->launches[i].scratch;
    if (scratch && !(scratches = cpu_get_scratch(
                         device, scratch * (size_t)(workers ? ct__pool_threads(workers) : 1), err)))
        return false;
    for (size_t i = 0; i < b->n; i++) {
        b->launches[i].scratch = scratch;
        b->launches[i].scratches = scratches;
    }
    const int64_t chunks = b->ends[b->n - 1];
    const int64_t grain = chunks / ((int64_t)threads * CHUNKS_PER_THREAD * 2);
    if (workers)
        ct__pool_run(workers, cpu_run_batch_chunks, b, chunks, grain > 1 ? grain : 1);
    else if (chunks)
        cpu_run_batch_chunks(b, 0, chunks, 0);
    bool skipped = false;
    for (size_t i = 0; i < b->n; i++) skipped |= atomic_load(&b->launches[i].skipped);
    return !skipped || !ct__stopped(device, err);
}

static bool cpu_run_batch(void *device, const ct_command *commands, size_t n, ct_err *err) {
    size_t n_args = 0, at = 0;
    for (size_t i = 0; i < n; i++) n_args += commands[i].n_args;
    batch b = {.commands = commands,
               .n = n,
               .launches = ct__calloc(n, sizeof *b.launches),
               .ends = ct__malloc(n * sizeof *b.ends)};
    void **bufs = ct__malloc((n_args + 1) * sizeof *bufs);
    bool ok = b.launches && b.ends && bufs, interpreted = false;
    for (size_t i = 0; i < n && ok; at += commands[i++].n_args) {
        if (commands[i].kind == CT_COMMAND_COPY) continue;
        b.launches[i] = cpu_make_launch(device, &commands[i], bufs + at);
        interpreted |= b.launches[i].interp != NULL;
    }
    if (ok) {
        const int most = ct_threads(), threads = cpu_partition_batch(&b, most);
        ct__counters.launches_interpreted += interpreted;
        ct_pool *workers = threads > 1 ? cpu_lock_pool(most) : NULL; // NULL: on this thread
        ok = cpu_run_partitioned(device, &b, threads, workers, err);
        if (workers) pthread_rwlock_unlock(&pool_lock);
        for (size_t i = 0; i < n; i++)
            if (b.launches[i].interp) ct__code_release_interp(commands[i].kernel->code);
    } else {
        ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *b.launches);
    }
    ct__free(b.launches);
    ct__free(b.ends);
    ct__free(bufs);
    return ok;
}

// Distributes a host function's work over the cores, an item at a time.
static void cpu_parallel_for(ct__pool_fn fn, void *arg, int64_t n) {
    const int most = ct_threads();
    ct_pool *workers = most > 1 && n > 1 ? cpu_lock_pool(most) : NULL;
    if (workers && ct__pool_usable(workers))
        ct__pool_run(workers, fn, arg, n, 1);
    else
        fn(arg, 0, n, 0);
    if (workers) pthread_rwlock_unlock(&pool_lock);
}

static bool cpu_run_call(const ct_device *device, const ct_command *c, ct_err *err) {
    void **args = ct__malloc((c->n_args + 1) * sizeof *args);
    if (!args) return ct__err_memory(err, CT_NOWHERE, "cpu", c->n_args * sizeof *args);
    for (uint32_t k = 0; k < c->n_args; k++)
        args[k] = (char *)c->args[k].buffer + c->args[k].offset;
    const bool ok = ct__call_node(c->node, args, device->stop, cpu_parallel_for, err);
    ct__free(args);
    return ok;
}

static bool cpu_run_command(void *device, const ct_command *c, const ct_command *original,
                            ct_err *err) {
    (void)original;
    if (c->kind == CT_COMMAND_NODE) return cpu_run_call(device, c, err);
    if (c->kind == CT_COMMAND_KERNEL) return cpu_run_kernel(device, c, err);
    cpu_copy_bytes(c, 0, c->bytes);
    return true;
}

// The host program's rounding mode and flush-to-zero must not change bits: kernels run in the
// default floating-point environment (the pool's threads have it), and the caller's is restored
// afterwards.
static bool cpu_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    if (device->recorder) return true;
    const ct_runner runner = {
        .device = device, .run = cpu_run_command, .run_batch = cpu_run_batch, .user = device};
    fenv_t caller_env;
    fegetenv(&caller_env);
    fesetenv(FE_DFL_ENV);
    bool ok = ct__run_commands(&runner, commands, n, err);
    fesetenv(&caller_env);
    return ok;
}

// GFLOP/s of a core: rough values of what such processors reach.
enum { WITH_AVX512 = 160, WITH_FMA = 60, WITH_LESS = 15, INTERPRETED = 4 };

// Decides whether products of bf16 are dot products of pairs: yes if the processor has an
// instruction for them (on a Zen 4 it runs at the rate of fused multiply-adds, and does two of
// them), unless COTAN_BF16_DOT decides it. With 1 other processors compute them in parts, slowly. A
// process keeps its first answer, since plans depend on it.
bool ct__cpu_pairs(bool *pairs, ct_err *err) {
    enum { NOT_ASKED, BY_PROCESSOR, NEVER, ALWAYS };
    static atomic_int answer;
    const char *asked = getenv("COTAN_BF16_DOT");
    if (answer == NOT_ASKED) {
        if (asked && *asked && strcmp(asked, "0") != 0 && strcmp(asked, "1") != 0)
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                           "COTAN_BF16_DOT is \"%.40s\", neither 0 nor 1", asked);
        answer = !asked || !*asked ? BY_PROCESSOR : *asked == '1' ? ALWAYS : NEVER;
    }
#if defined(__x86_64__)
    *pairs = ct__cc_native() && __builtin_cpu_supports("avx512bf16");
#else
    *pairs = false;
#endif
    if (answer != BY_PROCESSOR) *pairs = answer == ALWAYS;
    return true;
}

static ct_target cpu_target(void) {
    if (ct__pack_target()) return *ct__pack_target();
    ct_target target = {.cores = ct__cores_allowed(),
                        .lanes = 4,
                        .registers = 32,
                        CT_TARGET_CPU_TASKS,
                        .gflops = WITH_LESS};
#if defined(__x86_64__)
    // If the target is another processor, nothing is known of it: most have AVX2.
    const bool here = ct__cc_native();
    target.lanes = here && !__builtin_cpu_supports("avx2") ? 4 : 8;
    target.registers = 16;
    if (here && __builtin_cpu_supports("fma")) target.gflops = WITH_FMA;
    if (here && __builtin_cpu_supports("avx512f")) {
        target.lanes = 16;
        target.registers = 32;
        target.gflops = WITH_AVX512;
    }
#endif
    ct__cpu_pairs(&target.pairs, NULL); // opening the device has reported an invalid value
    if (ct__cc_missing()) target.gflops = INTERPRETED;
    target.gflops *= ct_threads();
    return target;
}

// Without a compiler the scratch is the interpreter's frame, which is known once its code is made.
// A kernel that may be interpreted until it is compiled gets enough for most frames.
static bool cpu_measure(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    // Most packed kernels are found; building reports what the others need.
    bool interpreted = !device->recorder && !ct__pack_target() && ct__cc_missing() != NULL;
    size_t room = device->wait_for_compiler ? 0 : CT_FRAME_ROOM;
    for (size_t i = 0; i < n; i++) {
        ct_kernel *k = kernels[i];
        ct_interp *interp = interpreted ? ct__interp_make(k->ir, err) : NULL;
        if (interpreted && !interp) return false;
        k->interpreted = interpreted;
        k->scratch = interpreted ? ct__interp_scratch(interp) : ct__kir_scratch(k->ir) + room;
        k->measured = true;
        ct__interp_free(interp);
    }
    return true;
}

static void cpu_apply_build(ct_kernel *k, const ct__kernel_source *built) {
    k->code = built->code;
    k->unfinished = !built->fn && !built->interp && !built->failure;
    if (built->failure) {
        k->notice = built->failure;
    } else if (built->interp) {
        k->interpreted = true;
        k->scratch = ct__interp_scratch(built->interp); // it may have been measured as compiled
        k->notice = built->why;
        k->hint = built->hint;
    }
}

static bool cpu_record_kernels(ct_recorder *recorder, ct_kernel *const *kernels, size_t n,
                               ct_err *err) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) ok = recorder->kernel(recorder, kernels[i], err);
    return ok;
}

static bool cpu_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    if (device->recorder) return cpu_record_kernels(device->recorder, kernels, n, err);
    ct__kernel_source *sources = ct__malloc((n + 1) * sizeof *sources);
    if (!sources) return ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *sources);
    for (size_t i = 0; i < n; i++)
        sources[i] = (ct__kernel_source){
            .name = kernels[i]->name, .text = kernels[i]->text, .ir = kernels[i]->ir};
    bool ok = device->wait_for_compiler ? ct__cpu_build(sources, n, ct_threads(), err)
                                        : ct__cpu_build_async(sources, n, err);
    for (size_t i = 0; i < n && ok; i++) cpu_apply_build(kernels[i], &sources[i]);
    ct__free(sources);
    return ok;
}

static bool cpu_start(ct_device *device, const ct_command *commands, size_t n,
                      const atomic_bool *stop, bool *finished, ct_err *err) {
    (void)device;
    return ct__cpu_start(commands, n, ct_threads(), stop, finished, err);
}

static bool cpu_open(ct_device *device, ct_err *err) {
    int threads;
    bool pairs;
    if ((!asked_threads && !cpu_env_threads(&threads, err)) || !ct__cpu_pairs(&pairs, err) ||
        !ct__cache_check(err) || !ct__cc_check(err) || !ct__pack_environment(err))
        return false;
    if (pairs)
        snprintf(device->numerics, sizeof device->numerics, "%s d2", device->backend->numerics);
    device->state = ct__calloc(1, sizeof(cpu_state));
    return device->state || ct__err_memory(err, CT_NOWHERE, "cpu", sizeof(cpu_state));
}
static void cpu_close(ct_device *device) {
    cpu_state *state = device->state;
    ct__account_sub(device->account, state->bytes, CT_MEMORY_WORKSPACES);
    ct__free(state->scratch);
    ct__free(state);
}

// Reads the value of a line "key : value" of /proc/cpuinfo.
static bool cpu_read_cpuinfo(const char *key, char *value, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        snprintf(value, size, "%.*s", (int)strcspn(colon + 1, "\n") - 1, colon + 2);
        found = true;
    }
    if (f) fclose(f);
    return found;
}

void ct__cpu_about(ct_text *text) {
    char model[200] = "a processor without a name";
    cpu_read_cpuinfo("model name", model, sizeof model);
    ct__textf(text, "%s: ", model);
#if defined(__x86_64__)
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    const char *vectors = avx512 ? "AVX-512" : __builtin_cpu_supports("avx2") ? "AVX2" : "SSE2";
    ct__textf(text, "%s, %s", vectors,
              __builtin_cpu_supports("fma") ? "fused multiply-add" : "no fused multiply-add");
#elif defined(__aarch64__)
    ct__text_add(text, "NEON, fused multiply-add");
#else
    ct__text_add(text, "vectors of 16 bytes");
#endif
}

static void cpu_about(const ct_device *device, ct_text *what, uint64_t *memory) {
    (void)device, (void)memory;
    ct__cpu_about(what);
}

const ct_backend ct__backend_cpu = {
    .name = "cpu",
    .about = cpu_about,
    .on_host = true,
    .several = true,
    .caches_buffers = true,
    .numerics = CT_NUMERICS_KERNELS,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = ct__host_free,
    .copy_in = ct__host_copy_in,
    .copy_out = ct__host_copy_out,
    .submit = cpu_submit,
    .workspace = cpu_workspace,
    .target = cpu_target,
    .measure = cpu_measure,
    .build = cpu_build,
    .start = cpu_start,
};
