// Random programs of distinct structure: cpu, fused and unfused, against ref. Fused and unfused
// agree in every bit; ref, which computes in double, closely. The seed of a failing program is
// printed: COTAN_SEED=N runs that one alone.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cotan/cotan.h"

enum { PROGRAMS = 320, POOL = 40, OUTS = 4 };

static uint64_t state;
static uint32_t random32(void) { // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)(z >> 32);
}
static int below(int n) { return (int)(random32() % (uint32_t)n); }

typedef struct {
    ct_tensor t[POOL]; // f32, moderate values
    int n;
} pool;

static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 33};
static ct_tensor leaf(int rank) {
    int64_t dim[4], n = 1;
    for (int i = 0; i < rank; i++) n *= dim[i] = sizes[below(8)];
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(random32() >> 8) / (float)(1 << 23) - 1.0f;
    ct_tensor t = ct_from(v, CT_F32, ((ct_ints){rank, dim}));
    free(v);
    return t;
}
static ct_tensor pick(pool *p) { return p->t[below(p->n)]; }
// Two of one shape, or that broadcast; the first tensor twice when nothing fits.
static bool fits(ct_tensor a, ct_tensor b) {
    int r = ct_rank(a) < ct_rank(b) ? ct_rank(a) : ct_rank(b);
    for (int i = 1; i <= r; i++) {
        int64_t x = ct_dim(a, -i), y = ct_dim(b, -i);
        if (x != y && x != 1 && y != 1) return false;
    }
    return true;
}
static ct_tensor partner(pool *p, ct_tensor a) {
    for (int tries = 0; tries < 12; tries++) {
        ct_tensor b = pick(p);
        if (fits(a, b)) return b;
    }
    return a;
}

static ct_tensor smooth(ct_tensor x) {
    switch (below(8)) {
    case 0: return ct_tanh(x);
    case 1: return ct_sin(x);
    case 2: return ct_exp(ct_neg(ct_abs(x)));
    case 3: return ct_div(x, ct_add(ct_mul(x, x), ct_f(1)));
    case 4: return ct_sqrt(ct_add(ct_mul(x, x), ct_f(0.5)));
    case 5: return ct_erf(x);
    case 6: return ct_neg(x);
    default: return ct_mul(x, ct_f(0.75));
    }
}
static ct_tensor binary(pool *p, ct_tensor a) {
    ct_tensor b = partner(p, a);
    switch (below(5)) {
    case 0: return ct_add(a, b);
    case 1: return ct_sub(b, a);
    case 2: return ct_mul(a, ct_tanh(b));
    case 3: return ct_maximum(a, b);
    default: return ct_minimum(a, ct_mul(b, b));
    }
}
static ct_tensor reduced(ct_tensor x) {
    int rank = ct_rank(x), n = 0;
    int64_t axes[4];
    for (int a = 0; a < rank; a++)
        if (below(2)) axes[n++] = a;
    if (n == 0) axes[n++] = rank - 1;
    ct_ints list = {n, axes};
    bool keep = below(2);
    ct_tensor scale = ct_f(1.0 / 16);
    switch (below(3)) {
    case 0: return ct_max(x, .axes = list, .keepdims = keep);
    case 1: return ct_min(x, .axes = list, .keepdims = keep);
    default: return ct_tanh(ct_mul(ct_sum(x, .axes = list, .keepdims = keep), scale));
    }
}
static ct_tensor normalised(ct_tensor x) { // softmax and a norm, over a random axis
    ct_ints axis = CT_AXES(below(ct_rank(x)));
    if (below(2)) {
        ct_tensor e = ct_exp(ct_sub(x, ct_max(x, .axes = axis, .keepdims = true)));
        return ct_div(e, ct_sum(e, .axes = axis, .keepdims = true));
    }
    ct_tensor d = ct_sub(x, ct_mul(ct_sum(x, .axes = axis, .keepdims = true), ct_f(0.1)));
    ct_tensor v = ct_sum(ct_mul(d, d), .axes = axis, .keepdims = true);
    return ct_div(d, ct_sqrt(ct_add(v, ct_f(0.5))));
}
static ct_tensor reshaped(ct_tensor x) {
    int rank = ct_rank(x);
    int64_t dim[8];
    int n = 0;
    if (rank > 1 && below(2)) { // joins two neighbours
        int at = below(rank - 1);
        for (int a = 0; a < rank; a++) {
            if (a == at + 1) continue;
            dim[n++] = a == at ? ct_dim(x, a) * ct_dim(x, a + 1) : ct_dim(x, a);
        }
    } else { // splits one
        int at = below(rank);
        for (int a = 0; a < rank; a++) {
            int64_t size = ct_dim(x, a), part = size % 2 ? 1 : 2;
            if (a == at) dim[n++] = part;
            dim[n++] = a == at ? size / part : size;
        }
    }
    return n > 4 ? x : ct_reshape(x, ((ct_ints){n, dim}));
}
static ct_tensor permuted(ct_tensor x) {
    int64_t axes[4];
    int rank = ct_rank(x);
    for (int a = 0; a < rank; a++) axes[a] = a;
    for (int a = rank - 1; a > 0; a--) {
        int b = below(a + 1);
        int64_t t = axes[a];
        axes[a] = axes[b];
        axes[b] = t;
    }
    return ct_permute(x, ((ct_ints){rank, axes}));
}
static ct_tensor windowed(pool *p, ct_tensor x) {
    int a = below(ct_rank(x));
    int64_t n = ct_dim(x, a), low[4] = {0}, high[4] = {0}, inside[4] = {0};
    switch (below(6)) {
    case 0:
        return ct_slice(x, .axes = CT_AXES(a), .start = CT_AXES(n / 3), .stop = CT_AXES(n),
                        .step = CT_AXES(1 + below(2)));
    case 1:
        low[a] = below(3);
        high[a] = below(3);
        inside[a] = below(4) == 0;
        return ct_pad(x, ct_f(0.5), .low = {ct_rank(x), low}, .high = {ct_rank(x), high},
                      .interior = {ct_rank(x), inside});
    case 2: return ct_flip(x, CT_AXES(a));
    case 3: return ct_concat(((ct_tensor[]){x, smooth(x), x}), 3, a);
    case 4: {
        ct_tensor at = ct_cast(ct_mul(ct_abs(ct_max(pick(p))), ct_f(3)), CT_I32);
        return ct_dynamic_slice(x, ct_stop_gradient(ct_mul(at, ct_i(0))), .axes = CT_AXES(a),
                                .sizes = CT_AXES(n > 1 ? n - 1 : 1));
    }
    default: {
        int32_t rows[7];
        for (int i = 0; i < 7; i++) rows[i] = below((int)n + 1); // one beyond: zeros
        return ct_gather(x, ct_from(rows, CT_I32, CT_DIMS(7)), .axis = a, .zero_outside = true);
    }
    }
}
static ct_tensor multiplied(pool *p, ct_tensor x) {
    if (ct_rank(x) < 2) return smooth(x);
    ct_tensor y = partner(p, x);
    if (ct_rank(y) != ct_rank(x)) y = x;
    int64_t axes[4];
    int r = ct_rank(y);
    for (int a = 0; a < r; a++) axes[a] = a;
    axes[r - 1] = r - 2;
    axes[r - 2] = r - 1;
    ct_tensor turned = ct_permute(y, ((ct_ints){r, axes}));
    if (ct_dim(turned, -2) != ct_dim(x, -1)) turned = ct_permute(x, ((ct_ints){r, axes}));
    return ct_tanh(ct_mul(ct_matmul(x, turned), ct_f(0.25)));
}

static ct_tensor step(pool *p) {
    ct_tensor x = pick(p);
    if (ct_rank(x) == 0) return smooth(x);
    switch (below(10)) {
    case 0:
    case 1: return smooth(x);
    case 2:
    case 3: return binary(p, x);
    case 4: return reduced(x);
    case 5: return normalised(x);
    case 6: return reshaped(x);
    case 7: return permuted(x);
    case 8: return windowed(p, x);
    default: return multiplied(p, x);
    }
}

static int build(uint64_t seed, ct_tensor *out) {
    pool p = {.n = 0};
    state = seed;
    int leaves = 2 + below(3), ops = 3 + below(16);
    for (int i = 0; i < leaves; i++) p.t[p.n++] = leaf(1 + below(3));
    for (int i = 0; i < ops; i++) {
        ct_tensor t = step(&p);
        if (ct_size(t) > 60000 || ct_size(t) == 0) t = smooth(p.t[p.n - 1]);
        p.t[p.n++] = t;
    }
    out[0] = p.t[p.n - 1];
    int n = 1 + below(OUTS);
    for (int i = 1; i < n; i++) out[i] = p.t[leaves + below(ops)];
    return n;
}

typedef struct {
    int n;
    size_t count[OUTS];
    float *data[OUTS];
} result;

static result run(uint64_t seed, const char *device, const char *fuse) {
    result r = {0};
    ct_tensor out[OUTS];
    setenv("COTAN_FUSE", fuse, 1);
    assert_true(ct_set_device(device));
    {
        CT_SCOPE;
        r.n = build(seed, out);
        if (!ct_eval(out, (size_t)r.n))
            fail_msg("seed %llu on %s: %s", (unsigned long long)seed, device, ct_error_text());
        for (int i = 0; i < r.n; i++) {
            r.count[i] = (size_t)ct_size(out[i]);
            const void *data = ct_data(out[i]);
            assert_non_null(data);
            r.data[i] = malloc(r.count[i] * sizeof(float) + 1);
            memcpy(r.data[i], data, r.count[i] * sizeof(float));
        }
    }
    if (ct_failed()) fail_msg("seed %llu: %s", (unsigned long long)seed, ct_error_text());
    return r;
}
static void release(result *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
}

static void compare(uint64_t seed) {
    result ref = run(seed, "ref", "1"), plain = run(seed, "cpu", "0"),
           fused = run(seed, "cpu", "1");
    for (int o = 0; o < ref.n; o++) {
        if (memcmp(plain.data[o], fused.data[o], plain.count[o] * sizeof(float)) != 0)
            fail_msg("seed %llu: output %d: fused and unfused differ", (unsigned long long)seed, o);
        for (size_t i = 0; i < ref.count[o]; i++) {
            float x = fused.data[o][i], y = ref.data[o][i];
            if (x == y || (isnan(x) && isnan(y))) continue;
            if (!(fabsf(x - y) <= 1e-3f * (1 + fabsf(y))))
                fail_msg("seed %llu: output %d, element %zu: %.9g, ref has %.9g",
                         (unsigned long long)seed, o, i, (double)x, (double)y);
        }
    }
    release(&ref);
    release(&plain);
    release(&fused);
}

static void test_graphs(void **unused) {
    (void)unused;
    const char *one = getenv("COTAN_SEED");
    if (one) {
        compare(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) compare(seed);
    print_message("seeds 1 to %d\n", PROGRAMS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
