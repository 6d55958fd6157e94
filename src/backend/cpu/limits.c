// Measures the machine's limits over all threads: multiply-adds, memory bandwidth and random words.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/os.h"
#include "cotan/profile.h"

enum { TRIES = 5, FMA_ROUNDS = 1 << 20, THREEFRY_ROUNDS = 1 << 16, MAX_THREADS = 256 };

static _Atomic float sink;             // uses each result, so that no computation is removed
static volatile float factor = 0.999f; // volatile, so that the compiler computes nothing in advance
static void limits_keep(float x) { atomic_store_explicit(&sink, x, memory_order_relaxed); }

// ----------------------------------------------------------------------------------- multiply-adds

// Uses as many chains as hide the latency and fit into the registers.
#define FMA_LOOP(name, attribute, vector, lanes, chains, splat, fma, store)                        \
    attribute static double name(void) {                                                           \
        vector x[chains], a = splat(factor), b = splat(1 - factor);                                \
        float sum[lanes];                                                                          \
        for (int c = 0; c < (chains); c++) x[c] = splat((float)c);                                 \
        for (int t = 0; t < FMA_ROUNDS; t++) {                                                     \
            _Pragma("GCC unroll 32") for (int c = 0; c < (chains); c++) x[c] = fma(x[c], a, b);    \
        }                                                                                          \
        for (int c = 0; c < (chains); c++) {                                                       \
            store(sum, x[c]);                                                                      \
            limits_keep(sum[0]);                                                                   \
        }                                                                                          \
        return 2.0 * (lanes) * (chains) * (double)FMA_ROUNDS;                                      \
    }

#if defined(__x86_64__)
#define AVX2_FMA(x, a, b) _mm256_fmadd_ps(x, a, b)
#define AVX512_FMA(x, a, b) _mm512_fmadd_ps(x, a, b)
FMA_LOOP(limits_fma_avx512, __attribute__((target("avx512f"))), __m512, 16, 24, _mm512_set1_ps,
         AVX512_FMA, _mm512_storeu_ps)
FMA_LOOP(limits_fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, 12, _mm256_set1_ps,
         AVX2_FMA, _mm256_storeu_ps)
#define SSE_FMA(x, a, b) _mm_add_ps(_mm_mul_ps(x, a), b)
FMA_LOOP(limits_fma_plain, , __m128, 4, 12, _mm_set1_ps, SSE_FMA, _mm_storeu_ps)
#elif defined(__aarch64__)
#define NEON_FMA(x, a, b) vfmaq_f32(b, x, a)
FMA_LOOP(limits_fma_plain, , float32x4_t, 4, 24, vdupq_n_f32, NEON_FMA, vst1q_f32)
#else
#define PLAIN_SPLAT(x) (x)
#define PLAIN_FMA(x, a, b) ((x) * (a) + (b))
#define PLAIN_STORE(to, x) (*(to) = (x))
FMA_LOOP(limits_fma_plain, , float, 1, 8, PLAIN_SPLAT, PLAIN_FMA, PLAIN_STORE)
#endif

static double limits_multiply_adds(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return limits_fma_avx512();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return limits_fma_avx2();
#endif
    return limits_fma_plain();
}

// Four products of bytes and their sum in each lane, if the processor has the instruction that
// kernels use (DOT4).
#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) static double limits_byte_products(void) {
    enum { CHAINS = 16, LANES = 16 };
    const int seed = (int)(factor * 1000);
    __m512i x[CHAINS], a = _mm512_set1_epi32(seed), b = _mm512_set1_epi32(seed + 1);
    for (int c = 0; c < CHAINS; c++) x[c] = _mm512_set1_epi32(c);
    for (int t = 0; t < FMA_ROUNDS; t++) {
        _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; c++) x[c] =
            _mm512_dpbusd_epi32(x[c], a, b);
    }
    for (int c = 0; c < CHAINS; c++)
        limits_keep((float)_mm512_cvtsi512_si32(x[c])); // the sum of all would overflow
    return 8.0 * LANES * CHAINS * FMA_ROUNDS;
}
static bool limits_has_byte_products(void) { return __builtin_cpu_supports("avx512vnni"); }
#else
static double limits_byte_products(void) { return 0; }
static bool limits_has_byte_products(void) { return false; }
#endif

// ---------------------------------------------------------------------------------------- threefry

typedef uint32_t words __attribute__((vector_size(64)));

// Computes four blocks of 16 counters at a time, to hide the latency of one.
static inline __attribute__((always_inline)) double limits_threefry(void) {
    static const int rotate[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    enum { BLOCKS = 4 };
    uint32_t seed = (uint32_t)(factor * 1000);
    words key[3], last = {0};
    for (int i = 0; i < 3; i++) key[i] = (words){0} + (seed + (uint32_t)i);
    for (uint32_t t = 0; t < THREEFRY_ROUNDS; t++) {
        words a[BLOCKS], b[BLOCKS];
        for (uint32_t i = 0; i < BLOCKS; i++) a[i] = key[0], b[i] = key[1] + (t * BLOCKS + i);
        _Pragma("GCC unroll 20") for (int round = 0; round < 20; round++) {
            int s = round / 4 + 1;
            _Pragma("GCC unroll 4") for (int i = 0; i < BLOCKS; i++) {
                int by = rotate[round % 8];
                a[i] += b[i];
                b[i] = ((b[i] << by) | (b[i] >> (32 - by))) ^ a[i];
                if (round % 4 == 3) {
                    a[i] += key[s % 3];
                    b[i] += key[(s + 1) % 3] + (uint32_t)s;
                }
            }
        }
        for (int i = 0; i < BLOCKS; i++) last ^= a[i] ^ b[i];
    }
    for (int i = 0; i < 16; i++) limits_keep((float)last[i]);
    return 16.0 * BLOCKS * THREEFRY_ROUNDS;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double limits_threefry_avx512(void) {
    return limits_threefry();
}
__attribute__((target("avx2"))) static double limits_threefry_avx2(void) {
    return limits_threefry();
}
#endif

static double limits_random_words(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return limits_threefry_avx512();
    if (__builtin_cpu_supports("avx2")) return limits_threefry_avx2();
#endif
    return limits_threefry();
}

// ------------------------------------------------------------------------------------------ memory

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards a measurement and the arrays
static float *arrays;                                    // three, one after the other
static int64_t array_size;                               // elements of one

// STREAM requires arrays four times as large as the last-level cache; a virtual machine may report
// a larger cache than it has, so the size is bounded.
static bool limits_allocate_arrays(void) {
    if (arrays) return true;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
    long cache = 0;
#endif
    int64_t bytes = 4 * (int64_t)cache;
    if (bytes < 64 << 20) bytes = 64 << 20;
    if (bytes > 256 << 20) bytes = 256 << 20;
    array_size = bytes / (int64_t)sizeof *arrays;
    arrays = aligned_alloc(4096, (size_t)bytes * 3);
    if (arrays) memset(arrays, 0, (size_t)bytes * 3);
    return arrays != NULL;
}

void ct_machine_limits_free(void) {
    pthread_mutex_lock(&lock);
    free(arrays);
    arrays = NULL;
    pthread_mutex_unlock(&lock);
}

// Uses non-temporal stores if the processor has them: the line is not read before it is written.
static void limits_store4(float *to, const float v[4]) {
#if defined(__x86_64__)
    _mm_stream_ps(to, _mm_loadu_ps(v));
#else
    memcpy(to, v, 4 * sizeof *v);
#endif
}

static double limits_copy(float *a, const float *b, const float *c, int64_t n) {
    (void)c;
    for (int64_t i = 0; i < n; i += 4) limits_store4(a + i, b + i);
    return 2.0 * (double)n * sizeof *a;
}

static double limits_triad(float *a, const float *b, const float *c, int64_t n) {
    float s = factor;
    for (int64_t i = 0; i < n; i += 4) {
        float v[4];
        for (int j = 0; j < 4; j++) v[j] = b[i + j] + s * c[i + j];
        limits_store4(a + i, v);
    }
    return 3.0 * (double)n * sizeof *a;
}

static double limits_sum(float *a, const float *b, const float *c, int64_t n) {
    (void)b, (void)c;
    float s[32] = {0};
    for (int64_t i = 0; i < n; i += 32)
        for (int j = 0; j < 32; j++) s[j] += a[i + j];
    for (int j = 0; j < 32; j++) limits_keep(s[j]);
    return (double)n * sizeof *a;
}

// ------------------------------------------------------------------------------------- all threads

typedef struct task {
    double (*registers)(void); // either this or `memory`
    double (*memory)(float *a, const float *b, const float *c, int64_t n);
    int id, threads;
    pthread_mutex_t *gate; // held until all threads have started
    const bool *cancelled; // read after the gate
    pthread_barrier_t *start;
    double done;
} task;

static double limits_run_once(const task *t) {
    if (t->registers) return t->registers();
    int64_t blocks = array_size / 32, from = blocks * t->id / t->threads * 32,
            n = blocks * (t->id + 1) / t->threads * 32 - from;
    float *a = arrays + from;
    return t->memory(a, a + array_size, a + 2 * array_size, n);
}

static void *limits_run_task(void *arg) {
    task *t = arg;
    pthread_mutex_lock(t->gate);
    pthread_mutex_unlock(t->gate);
    for (int i = 0; i < TRIES && !*t->cancelled; i++) {
        pthread_barrier_wait(t->start);
        t->done = limits_run_once(t);
        pthread_barrier_wait(t->start);
    }
    return NULL;
}

// Returns the work of all threads per second, in the best of the tries. Negative: threads cannot be
// started.
static double limits_best_rate(task kind, int threads) {
    task tasks[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_barrier_t start;
    bool cancelled = false;
    double most = -1;
    int n = 0;
    if (pthread_barrier_init(&start, NULL, (unsigned)threads)) return -1;
    pthread_mutex_lock(&gate);
    for (; n < threads && !cancelled; n += !cancelled) {
        tasks[n] = kind;
        tasks[n].id = n, tasks[n].threads = threads, tasks[n].start = &start;
        tasks[n].gate = &gate, tasks[n].cancelled = &cancelled;
        cancelled = n && pthread_create(&ids[n], NULL, limits_run_task, &tasks[n]);
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < TRIES && !cancelled; i++) {
        double all = 0;
        pthread_barrier_wait(&start);
        double begin = ct__now();
        tasks[0].done = limits_run_once(&tasks[0]);
        pthread_barrier_wait(&start);
        double seconds = ct__now() - begin;
        for (int t = 0; t < threads; t++) all += tasks[t].done;
        if (all / seconds > most) most = all / seconds;
    }
    for (int i = 1; i < n; i++) pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&start);
    return most;
}

static bool limits_raise(double *limit, task kind, int threads) {
    double now = limits_best_rate(kind, threads);
    if (now > *limit) *limit = now;
    return now >= 0;
}

static bool limits_measure(ct_machine_limits *l, int threads, bool memory) {
    if (!limits_raise(&l->flops, (task){.registers = limits_multiply_adds}, threads)) return false;
    if (!memory) return true;
    return limits_allocate_arrays() &&
           limits_raise(&l->stream_bandwidth, (task){.memory = limits_copy}, threads) &&
           limits_raise(&l->stream_bandwidth, (task){.memory = limits_triad}, threads) &&
           limits_raise(&l->read_bandwidth, (task){.memory = limits_sum}, threads) &&
           limits_raise(&l->random_words, (task){.registers = limits_random_words}, threads) &&
           (!limits_has_byte_products() ||
            limits_raise(&l->int8_ops, (task){.registers = limits_byte_products}, threads));
}

bool ct_measure_machine_limits(ct_machine_limits *l, int threads, bool memory) {
    if (!l || threads < 1 || threads > MAX_THREADS) return false;
    pthread_mutex_lock(&lock);
    const bool ok = limits_measure(l, threads, memory);
    pthread_mutex_unlock(&lock);
    return ok;
}
