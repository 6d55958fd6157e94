// The CPU as a device: host memory, kernels compiled from C, a thread pool that splits each
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
#include "kir/kir.h"

enum { PAGE = 2 << 20 };

// Large buffers lie on huge pages where the kernel grants them: fewer faults, which cost more than
// the work here.
static void *cpu_alloc(ct_device *device, size_t bytes, ct_err *err) {
    (void)device;
    bool large = bytes >= PAGE;
    void *p = ct__aligned(large ? PAGE : 64, bytes ? bytes : 64);
    if (!p)
        ct__err_memory(err, CT_NOWHERE, "cpu", bytes);
    else if (large)
        madvise(p, bytes / PAGE * PAGE, MADV_HUGEPAGE); // no more of them than it fills
    return p;
}

// --------------------------------------------------------------------------------------- threads

static atomic_int asked_threads; // by ct_set_threads; 0: the environment, else the cores

static int at_most(int threads) { return threads < CT_POOL_MOST ? threads : CT_POOL_MOST; }

void ct_set_threads(int n) {
    if (n >= 0) {
        asked_threads = at_most(n);
        return;
    }
    ct_ctx *ctx = ct__ctx();
    if (ctx)
        ct__err(&ctx->err, CT_E_ARGUMENT, CT_NOWHERE, "set_threads",
                "%d threads: 1 to %d can be, and 0 is the default", n, CT_POOL_MOST);
}

// COTAN_THREADS into *n, 0 where it says nothing.
static bool environment_threads(int *n, ct_err *err) {
    const char *text = getenv("COTAN_THREADS"), *at = text;
    for (*n = 0; at && *at >= '0' && *at <= '9' && *n <= CT_POOL_MOST; at++)
        *n = *n * 10 + *at - '0';
    if (!text || !*text || (!*at && *n >= 1 && *n <= CT_POOL_MOST)) return true;
    *n = 0;
    return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                   "COTAN_THREADS is \"%.40s\", not a whole number from 1 to %d", text,
                   CT_POOL_MOST);
}

static int thread_count(void) {
    static atomic_int by_default;
    if (asked_threads) return asked_threads;
    if (!by_default) {
        int n;
        environment_threads(&n, NULL); // opening the device told of nonsense
        by_default = n ? n : at_most(ct__cores_allowed());
    }
    return by_default;
}

// The pool of the process, in which contexts take turns. Whoever runs a job holds the lock for
// reading: the pool grows and shrinks between jobs alone, so that its number of workers, by which
// scratch memory is sized, stays.
static pthread_rwlock_t pool_lock = PTHREAD_RWLOCK_INITIALIZER;
static ct_pool *pool;

// Locks a pool of this many threads for reading; NULL (and not locked): no memory.
static ct_pool *lock_pool(int threads) {
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

int ct__cpu_threads(void) { return thread_count(); }

void ct__cpu_each(ct__pool_fn fn, void *arg, int64_t count, int64_t grain, int threads) {
    ct_pool *workers = threads > 1 ? lock_pool(threads) : NULL;
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
    const ct_interp *interp; // for pieces that begin before there is code
    void *const *bufs;
    const int64_t *numbers;
    size_t scratch; // bytes a thread
    char *scratches;
    const atomic_bool *stop; // NULL: it goes to its end
    atomic_bool left_out;    // some pieces were
} launch;

static void run_piece(void *arg, int64_t begin, int64_t end, int worker) {
    launch *l = arg;
    if (l->stop && atomic_load_explicit(l->stop, memory_order_relaxed)) {
        atomic_store_explicit(&l->left_out, true, memory_order_relaxed);
        return;
    }
    void *scratch = l->scratches + (size_t)worker * l->scratch;
    ct__kernel_fn fn = ct__code_fn(l->code);
    if (fn)
        fn(l->bufs, l->numbers, begin, end, scratch);
    else if (!ct__interp_run(l->interp, l->bufs, l->numbers, begin, end, scratch, l->stop))
        atomic_store_explicit(&l->left_out, true, memory_order_relaxed);
}

enum { WORTH_A_THREAD = 20000, PIECES_A_THREAD = 8 }; // nanoseconds; pieces even out what differs
enum { LONG_PIECE = 1000000 }; // nanoseconds: between pieces a launch can be given up

// About how long a launch takes on one core, in nanoseconds: by bytes at 10 GB/s, by operations at
// 20 GFLOP/s.
static double weight(const ct_command *c) {
    enum { INTERPRETED = 5 }; // times as long
    double bytes = (double)c->bytes / 10, flops = c->flops / 20;
    if (c->kind == CT_COMMAND_COPY) return 2 * bytes;
    return (bytes > flops ? bytes : flops) * (c->kernel->interpreted ? INTERPRETED : 1);
}

static char *scratch_of(ct_device *device, size_t bytes, ct_err *err) {
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

// How many of the threads the launch is worth.
static int threads_for(const ct_command *c, int threads) {
    double most = weight(c) / WORTH_A_THREAD + 1;
    if (threads > most) threads = (int)most;
    if (threads > c->grid) threads = c->grid < 1 ? 1 : (int)c->grid;
    return threads;
}

// Any of the pool's workers may take a piece, so each has scratch.
static size_t cpu_workspace(const ct_device *device, const ct_command *c) {
    size_t scratch = ct__round_up(c->kernel->scratch, 64);
    int most = thread_count();
    return (void)device, scratch * (size_t)(c->batched || threads_for(c, most) > 1 ? most : 1);
}

static bool no_pool(ct_err *err) {
    return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "cpu",
                   "the threads of this process stayed in its parent: no use after fork");
}

static bool run_pieces(ct_device *device, const ct_command *c, launch *l, ct_pool *workers,
                       int threads, ct_err *err) {
    if (workers && !ct__pool_usable(workers)) return no_pool(err);
    size_t scratch = l->scratch * (size_t)(workers ? ct__pool_threads(workers) : 1);
    if (scratch && !(l->scratches = scratch_of(device, scratch, err))) return false;
    int64_t pieces = workers ? (int64_t)threads * PIECES_A_THREAD : 1;
    double by_time = l->stop ? weight(c) / LONG_PIECE : 0;
    if (by_time > (double)pieces) pieces = (int64_t)by_time;
    if (pieces > c->grid) pieces = c->grid < 1 ? 1 : c->grid;
    int64_t grain = (c->grid + pieces - 1) / pieces;
    if (workers)
        ct__pool_run(workers, run_piece, l, c->grid, grain);
    else
        for (int64_t at = 0; at < c->grid; at += grain)
            run_piece(l, at, at + grain < c->grid ? at + grain : c->grid, 0);
    return !atomic_load_explicit(&l->left_out, memory_order_relaxed) || !ct__stopped(device, err);
}

static launch launch_of(const ct_device *device, const ct_command *c, void **bufs) {
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

static bool run_kernel(ct_device *device, const ct_command *c, ct_err *err) {
    void *few[32], **bufs = few;
    if (c->n_args > 32 && !(bufs = ct__malloc(c->n_args * sizeof *bufs)))
        return ct__err_memory(err, CT_NOWHERE, "cpu", c->n_args * sizeof *bufs);
    int most = thread_count(), threads = threads_for(c, most);
    launch l = launch_of(device, c, bufs);
    ct__counters.launches_interpreted += l.interp != NULL;
    ct_pool *workers = threads > 1 ? lock_pool(most) : NULL; // without memory for one: alone
    bool ok = run_pieces(device, c, &l, workers, threads, err);
    if (workers) pthread_rwlock_unlock(&pool_lock);
    if (l.interp) ct__code_release_interp(c->kernel->code);
    if (bufs != few) ct__free(bufs);
    return ok;
}

static void copy_bytes(const ct_command *c, size_t first, size_t n) {
    if (n)
        memmove((char *)c->args[1].buffer + c->args[1].offset + first,
                (char *)c->args[0].buffer + c->args[0].offset + first, n);
}

// ------------------------------------------------------------------------------------- batches

enum { COPIED = 1 << 16 }; // bytes, of a copy's smallest piece

// Commands whose pieces are one job of the pool: those of the first, then those of the second, ...
typedef struct {
    const ct_command *commands; // (n)
    size_t n;
    launch *launches; // (n)
    int64_t *behind;  // (n) how many pieces there are up to the end of each
} batch;

static int64_t grid_of(const ct_command *c) {
    if (c->kind == CT_COMMAND_COPY) return (int64_t)((c->bytes + COPIED - 1) / COPIED);
    return c->grid < 0 ? 0 : c->grid;
}

static void run_batch_piece(const batch *b, size_t i, int64_t begin, int64_t end, int worker) {
    const ct_command *c = &b->commands[i];
    if (c->kind != CT_COMMAND_COPY) {
        run_piece(&b->launches[i], begin, end, worker);
        return;
    }
    const size_t first = (size_t)begin * COPIED, last = (size_t)end * COPIED;
    copy_bytes(c, first, (last < c->bytes ? last : c->bytes) - first);
}

static void run_batch_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    const batch *b = arg;
    size_t low = 0, high = b->n - 1;
    while (low < high) { // whose piece the first one is
        const size_t middle = (low + high) / 2;
        if (b->behind[middle] > begin)
            high = middle;
        else
            low = middle + 1;
    }
    for (int64_t i = begin; i < end; i++) {
        while (b->behind[low] <= i) low++;
        const int64_t before = low ? b->behind[low - 1] : 0, n = b->behind[low] - before;
        const int64_t grid = grid_of(&b->commands[low]), at = i - before;
        // grid / n to each, and one more to the first grid % n
        const int64_t each = grid / n, more = grid % n;
        const int64_t first = at * each + (at < more ? at : more);
        run_batch_piece(b, low, first, first + each + (at < more), worker);
    }
}

// Cuts the commands into pieces, about as many of all as threads are worth. Gives the threads.
static int cut_batch(batch *b, int most) {
    double total = 0;
    int64_t pieces = 0;
    for (size_t i = 0; i < b->n; i++) total += weight(&b->commands[i]);
    int threads = total / WORTH_A_THREAD + 1 < most ? (int)(total / WORTH_A_THREAD + 1) : most;
    for (size_t i = 0; i < b->n; i++) {
        const int64_t grid = grid_of(&b->commands[i]);
        double own = threads > 1 ? weight(&b->commands[i]) / total * threads * PIECES_A_THREAD : 0;
        double by_time = b->launches[i].stop ? weight(&b->commands[i]) / LONG_PIECE : 0;
        int64_t n = 1 + (int64_t)(own > by_time ? own : by_time);
        b->behind[i] = pieces += n < grid ? n : grid;
    }
    return threads < pieces ? threads : pieces ? (int)pieces : 1;
}

static bool run_cut(ct_device *device, batch *b, int threads, ct_pool *workers, ct_err *err) {
    if (workers && !ct__pool_usable(workers)) return no_pool(err);
    size_t scratch = 0;
    char *scratches = NULL;
    for (size_t i = 0; i < b->n; i++)
        if (b->launches[i].scratch > scratch) scratch = b->launches[i].scratch;
    if (scratch && !(scratches = scratch_of(
                         device, scratch * (size_t)(workers ? ct__pool_threads(workers) : 1), err)))
        return false;
    for (size_t i = 0; i < b->n; i++) {
        b->launches[i].scratch = scratch;
        b->launches[i].scratches = scratches;
    }
    const int64_t pieces = b->behind[b->n - 1];
    const int64_t grain = pieces / ((int64_t)threads * PIECES_A_THREAD * 2);
    if (workers)
        ct__pool_run(workers, run_batch_pieces, b, pieces, grain > 1 ? grain : 1);
    else if (pieces)
        run_batch_pieces(b, 0, pieces, 0);
    bool left_out = false;
    for (size_t i = 0; i < b->n; i++) left_out |= atomic_load(&b->launches[i].left_out);
    return !left_out || !ct__stopped(device, err);
}

static bool run_batch(void *device, const ct_command *commands, size_t n, ct_err *err) {
    size_t n_args = 0, at = 0;
    for (size_t i = 0; i < n; i++) n_args += commands[i].n_args;
    batch b = {.commands = commands,
               .n = n,
               .launches = ct__calloc(n, sizeof *b.launches),
               .behind = ct__malloc(n * sizeof *b.behind)};
    void **bufs = ct__malloc((n_args + 1) * sizeof *bufs);
    bool ok = b.launches && b.behind && bufs, interpreted = false;
    for (size_t i = 0; i < n && ok; at += commands[i++].n_args) {
        if (commands[i].kind == CT_COMMAND_COPY) continue;
        b.launches[i] = launch_of(device, &commands[i], bufs + at);
        interpreted |= b.launches[i].interp != NULL;
    }
    if (ok) {
        const int most = thread_count(), threads = cut_batch(&b, most);
        ct__counters.launches_interpreted += interpreted;
        ct_pool *workers = threads > 1 ? lock_pool(most) : NULL; // without memory for one: alone
        ok = run_cut(device, &b, threads, workers, err);
        if (workers) pthread_rwlock_unlock(&pool_lock);
        for (size_t i = 0; i < n; i++)
            if (b.launches[i].interp) ct__code_release_interp(commands[i].kernel->code);
    } else {
        ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *b.launches);
    }
    ct__free(b.launches);
    ct__free(b.behind);
    ct__free(bufs);
    return ok;
}

// Work that a called function shares among the cores, an item at a time.
static void spread(ct__pool_fn piece, void *arg, int64_t n) {
    const int most = thread_count();
    ct_pool *workers = most > 1 && n > 1 ? lock_pool(most) : NULL;
    if (workers && ct__pool_usable(workers))
        ct__pool_run(workers, piece, arg, n, 1);
    else
        piece(arg, 0, n, 0);
    if (workers) pthread_rwlock_unlock(&pool_lock);
}

static bool run_call(const ct_device *device, const ct_command *c, ct_err *err) {
    void **args = ct__malloc((c->n_args + 1) * sizeof *args);
    if (!args) return ct__err_memory(err, CT_NOWHERE, "cpu", c->n_args * sizeof *args);
    for (uint32_t k = 0; k < c->n_args; k++)
        args[k] = (char *)c->args[k].buffer + c->args[k].offset;
    const bool ok = ct__call_node(c->node, args, device->stop, spread, err);
    ct__free(args);
    return ok;
}

static bool run_command(void *device, const ct_command *c, const ct_command *given, ct_err *err) {
    (void)given;
    if (c->kind == CT_COMMAND_NODE) return run_call(device, c, err);
    if (c->kind == CT_COMMAND_KERNEL) return run_kernel(device, c, err);
    copy_bytes(c, 0, c->bytes);
    return true;
}

// The host program's rounding mode and flush-to-zero must not change bits: kernels run in the
// default floating-point environment (the pool's threads have it), and the caller's is put back.
static bool cpu_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    if (device->recorder) return true;
    const ct_runner runner = {
        .device = device, .run = run_command, .run_batch = run_batch, .user = device};
    fenv_t host;
    fegetenv(&host);
    fesetenv(FE_DFL_ENV);
    bool ok = ct__run_commands(&runner, commands, n, err);
    fesetenv(&host);
    return ok;
}

// Everything runs within submit, so there is nothing to wait for.
static uint64_t cpu_event(ct_device *device) { return (void)device, 0; }
static bool cpu_wait(ct_device *device, uint64_t event, ct_err *err) {
    return (void)device, (void)event, (void)err, true;
}

// GFLOP/s of a core: some of what processors of the kind reach.
enum { WITH_AVX512 = 160, WITH_FMA = 60, WITH_LESS = 15, INTERPRETED = 4 };

// Are products of bf16 dots of pairs? Where the processor has an instruction for them (on a Zen 4 at the rate of fused
// multiply-adds, of which it is two), unless the environment says it: with 1 they are computed in parts elsewhere,
// slowly. A process keeps its first answer: plans hang on it.
bool ct__cpu_pairs(bool *pairs, ct_err *err) {
    enum { NOT_ASKED, BY_PROCESSOR, NEVER, ALWAYS };
    static atomic_int answer;
    const char *asked = getenv("COTAN_PAIRS");
    if (answer == NOT_ASKED) {
        if (asked && *asked && strcmp(asked, "0") != 0 && strcmp(asked, "1") != 0)
            return ct__err(err, CT_E_USAGE, CT_NOWHERE, "cpu",
                           "COTAN_PAIRS is \"%.40s\", neither 0 nor 1", asked);
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
    // Of another processor than this one nothing is known: most have AVX2.
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
    ct__cpu_pairs(&target.pairs, NULL); // opening the device told of nonsense
    if (ct__cc_missing()) target.gflops = INTERPRETED;
    target.gflops *= thread_count();
    return target;
}

// Without a compiler the interpreter's frame is the scratch: it is known when the code is made. What
// may be interpreted until it is compiled gets room for most frames.
static bool cpu_measure(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    // Of packed kernels most are found; of those that are not, building says what they need.
    bool interpreted = !device->recorder && !ct__pack_target() && ct__cc_missing() != NULL;
    size_t room = device->waits ? 0 : CT_FRAME_ROOM;
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

static void take_built(ct_kernel *k, const ct__kernel_source *built) {
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

static bool tell_recorder(ct_recorder *recorder, ct_kernel *const *kernels, size_t n, ct_err *err) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) ok = recorder->kernel(recorder, kernels[i], err);
    return ok;
}

static bool cpu_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    if (device->recorder) return tell_recorder(device->recorder, kernels, n, err);
    ct__kernel_source *sources = ct__malloc((n + 1) * sizeof *sources);
    if (!sources) return ct__err_memory(err, CT_NOWHERE, "cpu", n * sizeof *sources);
    for (size_t i = 0; i < n; i++)
        sources[i] = (ct__kernel_source){
            .name = kernels[i]->name, .text = kernels[i]->text, .ir = kernels[i]->ir};
    bool ok = device->waits ? ct__cpu_build(sources, n, thread_count(), err)
                            : ct__cpu_build_async(sources, n, err);
    for (size_t i = 0; i < n && ok; i++) take_built(kernels[i], &sources[i]);
    ct__free(sources);
    return ok;
}

static bool cpu_start(ct_device *device, const ct_command *commands, size_t n,
                      const atomic_bool *stop, bool *finished, ct_err *err) {
    (void)device;
    return ct__cpu_start(commands, n, thread_count(), stop, finished, err);
}

static bool cpu_open(ct_device *device, ct_err *err) {
    int threads;
    bool pairs;
    if ((!asked_threads && !environment_threads(&threads, err)) || !ct__cpu_pairs(&pairs, err) ||
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

// The value of a line "key : value" of /proc/cpuinfo.
static bool cpu_line(const char *key, char *value, size_t size) {
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
    cpu_line("model name", model, sizeof model);
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
    .spares = true,
    .numerics = CT_NUMERICS_KERNELS,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = ct__host_free,
    .copy_in = ct__host_copy_in,
    .copy_out = ct__host_copy_out,
    .submit = cpu_submit,
    .event = cpu_event,
    .wait = cpu_wait,
    .workspace = cpu_workspace,
    .target = cpu_target,
    .measure = cpu_measure,
    .build = cpu_build,
    .start = cpu_start,
};
