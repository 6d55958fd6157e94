// A new attention: each head learns how fast what is far away fades. Written with plain ops, it
// gets its gradient and its kernels like any other; the gradient is checked by finite differences.
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

// A number that depends on every element of the result, each in its own way.
static ct_tensor probe(const ct_tensor in[INPUTS], ct_tensor weights) {
    return ct_sum(ct_mul(fading_attention(in[0], in[1], in[2], in[3]), weights));
}

int main(void) {
    CT_SCOPE;
    ct_tensor x[INPUTS], toward[INPUTS], slopes[INPUTS], ahead[INPUTS], behind[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        ct_ints dims = i < 3 ? CT_DIMS(B, H, T, D) : CT_DIMS(H);
        x[i] = ct_cast(ct_random_normal(ct_random_key(i), dims), CT_F64);
        toward[i] = ct_cast(ct_random_normal(ct_random_key(10 + i), dims), CT_F64);
    }
    ct_tensor weights =
        ct_cast(ct_random_normal(ct_random_key(20), CT_DIMS(B, H, T, D)), CT_F64); // (B, H, T, D)
    ct_grad(probe(x, weights), x, INPUTS, slopes);

    double worst = 0, h = 1e-5;
    ct_tensor step = ct_scalar(h, CT_F64);
    for (int i = 0; i < INPUTS; i++) { // one input at a time moves in a random direction
        for (int k = 0; k < INPUTS; k++) ahead[k] = behind[k] = x[k];
        ahead[i] = ct_add(x[i], ct_mul(step, toward[i]));
        behind[i] = ct_sub(x[i], ct_mul(step, toward[i]));
        double slope = ct_item(ct_sum(ct_mul(slopes[i], toward[i])));
        double rise = ct_item(ct_sub(probe(ahead, weights), probe(behind, weights)));
        printf("%s: gradient %+.8f, differences %+.8f\n",
               (const char *[]){"q", "k", "v", "fade"}[i], slope, rise / (2 * h));
        worst = fmax(worst, fabs(slope - rise / (2 * h)));
    }
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    return worst < 1e-8 ? 0 : 1;
}
