// A small GPT, written with the layers of nn.h, that learns to write like a text, byte by byte.
// usage: 05_gpt TEXT [STEPS]
#include <cotan/data.h>
#include <cotan/nn.h>
#include <cotan/optim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 256, CONTEXT = 64, LAYERS = 4, HEADS = 4, WIDTH = 128, BATCH = 12, LENGTH = 400 };
typedef struct {
    ct_nn_norm norm1, norm2;
    ct_nn_attention attention;
    ct_nn_mlp mlp;
} block;
typedef struct {
    ct_nn_embedding tokens, places;
    block blocks[LAYERS];
    ct_nn_norm norm;
} gpt;

static gpt gpt_new(ct_params *params) {
    ct_nn_builder top = ct_nn_builder_for(params, 1);
    ct_nn_init small = CT_NN_NORMAL(0.02 / sqrt(2 * LAYERS)); // of what is added to the stream
    gpt m;
    m.tokens =
        ct_nn_embedding_new(ct_nn_builder_child(top, "tokens"), .count = VOCAB, .width = WIDTH);
    m.places =
        ct_nn_embedding_new(ct_nn_builder_child(top, "places"), .count = CONTEXT, .width = WIDTH);
    for (int i = 0; i < LAYERS; i++) {
        ct_nn_builder at = ct_nn_builder_child(top, "blocks.%d", i);
        m.blocks[i] = (block){
            ct_nn_norm_new(ct_nn_builder_child(at, "norm1"), .width = WIDTH),
            ct_nn_norm_new(ct_nn_builder_child(at, "norm2"), .width = WIDTH),
            ct_nn_attention_new(ct_nn_builder_child(at, "attention"), .width = WIDTH,
                                .heads = HEADS, .proj_init = small),
            ct_nn_mlp_new(ct_nn_builder_child(at, "mlp"), .width = WIDTH, .proj_init = small)};
    }
    m.norm = ct_nn_norm_new(ct_nn_builder_child(top, "norm"), .width = WIDTH);
    return m;
}

// tokens (B, CONTEXT) i32 -> logits of each next token (B, CONTEXT, VOCAB)
static ct_tensor gpt_apply(const gpt *m, ct_tensor tokens) {
    ct_tensor x = ct_add(ct_nn_embedding_apply(&m->tokens, tokens), m->places.weight);
    for (int i = 0; i < LAYERS; i++) { // x (B, CONTEXT, WIDTH)
        const block *b = &m->blocks[i];
        x = ct_add(x, ct_nn_attention_apply(&b->attention, ct_nn_norm_apply(&b->norm1, x), NULL));
        x = ct_add(x, ct_nn_mlp_apply(&b->mlp, ct_nn_norm_apply(&b->norm2, x), NULL));
    }
    // The rows of the embedding are the columns of the output layer.
    ct_tensor out = ct_permute(m->tokens.weight, CT_AXES(1, 0)); // (WIDTH, VOCAB)
    return ct_matmul(ct_nn_norm_apply(&m->norm, x), out);
}

// The loss in BATCH windows of the text (N,) u8, which begin at random places.
static ct_tensor gpt_loss(const gpt *m, ct_tensor text, ct_tensor key) {
    ct_tensor last = ct_i(ct_size(text) - CONTEXT);
    ct_tensor at = ct_random_int(key, ct_i(0), last, CT_DIMS(BATCH, 1)); // (BATCH, 1)
    at = ct_add(at, ct_iota(CT_I32, CT_DIMS(CONTEXT), 0));               // (BATCH, CONTEXT)
    ct_tensor x = ct_cast(ct_gather(text, at), CT_I32);                  // (BATCH, CONTEXT)
    ct_tensor y = ct_cast(ct_gather(text, ct_add(at, ct_i(1))), CT_I32); // (BATCH, CONTEXT)
    return ct_cross_entropy(gpt_apply(m, x), y);
}

static void gpt_write(const gpt *m, ct_tensor key) {
    int32_t seen[CONTEXT] = {'\n'};
    for (int i = 0, n = 1; i < LENGTH; i++) {
        CT_SCOPE;
        ct_tensor logits = gpt_apply(m, ct_from(seen, CT_I32, CT_DIMS(1, CONTEXT)));
        logits = ct_gather(logits, ct_i(n - 1), .axis = 1); // (1, VOCAB), behind the n seen
        // The largest logit plus a draw of Gumbel's distribution: a draw from the softmax.
        ct_tensor u = ct_random_uniform(ct_random_fold_in(key, ct_i(i)), CT_DIMS(1, VOCAB));
        ct_tensor noise = ct_neg(ct_log(ct_neg(ct_log(u)))); // (1, VOCAB)
        ct_tensor drawn = ct_argmax(ct_add(ct_div(logits, ct_f(0.8)), noise), .axis = 1); // (1,)
        double next = ct_item(drawn);
        if (ct_failed()) return;
        if (n == CONTEXT) { // full: the newer half stays
            n /= 2;
            memmove(seen, seen + CONTEXT - n, (size_t)n * sizeof *seen);
        }
        seen[n++] = (int32_t)next;
        putchar((int)next);
    }
    putchar('\n');
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: %s TEXT [STEPS]\n", argv[0]), 2;
    CT_SCOPE;
    ct_tensor text = ct_load_bytes(argv[1]); // (N,) u8
    int64_t steps = argc > 2 ? atol(argv[2]) : 2000, every = (steps + 9) / 10;
    if (steps < 1) return fprintf(stderr, "STEPS is no number above 0: %s\n", argv[2]), 2;
    if (ct_ok(text) && ct_size(text) <= CONTEXT)
        return fprintf(stderr, "%s: too short\n", argv[1]), 1;

    ct_params *params = ct_params_new();
    gpt m = gpt_new(params);
    ct_optim *adamw =
        ct_adamw(params, .clip = 1, .beta2 = CT_F(0.99),
                 .schedule = {CT_LR_COSINE, .lr = 1e-3, .min_lr = 1e-4,
                              .warmup = steps < 200 ? steps / 2 : 100, .steps = steps});
    ct_tensor key = ct_random_key(1);
    for (int64_t step = 0; step < steps && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor loss = gpt_loss(&m, text, ct_random_fold_in(key, ct_i(step)));
        ct_optim_step(adamw, loss);
        if ((step + 1) % every == 0)
            printf("step %5ld  loss %.3f\n", (long)step + 1, ct_item(loss));
    }
    if (!ct_failed()) gpt_write(&m, key);
    ct_optim_free(adamw);
    ct_params_free(params);
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    return 0;
}
