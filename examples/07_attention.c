// A new attention: each head learns how fast what is far away fades. Written with plain ops, it
// gets its gradients and its kernels like any other; ct_check_grad compares them with differences.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>

enum { B = 2, H = 3, T = 7, D = 4, INPUTS = 4 };

// softmax(q k' / sqrt(D) - softplus(fade) * distance) v over the keys up to each query's place
// q, k, v (B, H, T, D), fade (H,) -> (B, H, T, D)
static ct_tensor fading_attention(ct_tensor q, ct_tensor k, ct_tensor v, ct_tensor fade) {
    int64_t heads = ct_dim(q, 1), length = ct_dim(q, 2), width = ct_dim(q, 3);
    ct_tensor scores = ct_matmul(q, ct_permute(k, CT_AXES(0, 1, 3, 2))); // (B, H, T, T)
    scores = ct_mul(scores, ct_f(1 / sqrt((double)width)));
    ct_tensor query = ct_iota(CT_I32, CT_DIMS(length, length), 0); // (T, T), the row's number
    ct_tensor key = ct_iota(CT_I32, CT_DIMS(length, length), 1);   // (T, T), the column's
    ct_tensor distance = ct_cast(ct_sub(query, key), ct_dtype_of(q));
    ct_tensor speed = ct_reshape(ct_softplus(fade), CT_DIMS(heads, 1, 1)); // (H, 1, 1)
    scores = ct_sub(scores, ct_mul(speed, distance));                      // (B, H, T, T)
    scores = ct_select(ct_less_equal(key, query), scores, ct_f(-INFINITY));
    return ct_matmul(ct_softmax(scores), v);
}

static void fading(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = fading_attention(in[0], in[1], in[2], in[3]);
}

int main(void) {
    CT_SCOPE;
    ct_tensor in[INPUTS];
    for (int i = 0; i < INPUTS; i++)
        in[i] = ct_random_normal(ct_random_key(i), i < 3 ? CT_DIMS(B, H, T, D) : CT_DIMS(H));
    bool right = ct_check_grad(fading, NULL, in, INPUTS, .order = 2);
    if (!right) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    puts("the gradients of q, k, v and fade agree with differences, to the second order");
    return 0;
}
