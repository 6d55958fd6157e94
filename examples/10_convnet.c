// Handwritten digits again, by convolutions: two of them with batch norms and pooling.
// usage: 10_convnet TRAIN TEST [EPOCHS]     e.g. 10_convnet mnist/train mnist/t10k
// where TRAIN-images-idx3-ubyte, TRAIN-labels-idx1-ubyte and TEST's two are files, unpacked.
#include <cotan/data.h>
#include <cotan/nn.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, SHIFT = 2, WIDE = 32, SIDE = 28 };
typedef struct {
    ct_tensor images, labels; // (N, 28, 28) u8, (N,) u8
} digits;
typedef struct {
    ct_nn_conv conv;
    ct_nn_batch_norm norm;
} stage;
typedef struct {
    stage one, two;
    ct_nn_linear out;
} convnet;

static digits load(const char *prefix) {
    char images[4096], labels[4096];
    snprintf(images, sizeof images, "%s-images-idx3-ubyte", prefix);
    snprintf(labels, sizeof labels, "%s-labels-idx1-ubyte", prefix);
    return (digits){ct_load_idx(images), ct_load_idx(labels)};
}

// Random digits, all moved by the same few pixels. The draws are part of the step's plan.
static digits draw(digits all, ct_tensor key) {
    ct_tensor where = ct_random_fold_in(key, ct_i(0)), shift = ct_random_fold_in(key, ct_i(1));
    ct_tensor rows = ct_random_int(where, ct_i(0), ct_i(ct_dim(all.images, 0)), CT_DIMS(BATCH));
    ct_tensor x = ct_gather(all.images, rows); // (BATCH, 28, 28)
    x = ct_pad(x, .value = ct_scalar(0, CT_U8), .low = CT_INTS(0, SHIFT, SHIFT),
               .high = CT_INTS(0, SHIFT, SHIFT)); // (BATCH, 32, 32)
    x = ct_dynamic_slice(x, .axes = CT_AXES(1, 2), .sizes = CT_DIMS(SIDE, SIDE),
                         .starts = ct_random_int(shift, ct_i(0), ct_i(2 * SHIFT + 1), CT_DIMS(2)));
    return (digits){x, ct_gather(all.labels, rows)};
}

// No bias: the norm takes a mean away, and adds its own.
static stage make(ct_nn_builder place, ct_nn_builder running, int64_t in, int64_t out) {
    return (stage){ct_nn_conv_new(ct_nn_builder_child(place, "conv"), .in = in, .out = out,
                                  .kernel = CT_INTS(3, 3), .same = true, .no_bias = true),
                   ct_nn_batch_norm_new(ct_nn_builder_child(place, "norm"),
                                        ct_nn_builder_child(running, "norm"), .channels = out)};
}

// (B, in, H, W) -> (B, out, H / 2, W / 2)
static ct_tensor pass(const stage *s, ct_tensor x, const ct_nn_mode *mode) {
    x = ct_nn_batch_norm_apply(&s->norm, ct_nn_conv_apply(&s->conv, x), mode);
    return ct_max_pool(ct_relu(x), .kernel = CT_INTS(2, 2), .stride = CT_INTS(2));
}

// images (B, 28, 28) u8 -> logits (B, 10). mode: NULL is evaluation.
static ct_tensor apply(const convnet *net, ct_tensor images, const ct_nn_mode *mode) {
    ct_tensor x = ct_div(ct_cast(images, CT_F32), ct_f(255));    // 0 to 1
    x = ct_reshape(x, CT_DIMS(-1, 1, SIDE, SIDE));               // (B, 1, 28, 28)
    x = pass(&net->two, pass(&net->one, x, mode), mode);         // (B, 64, 7, 7)
    x = ct_reshape(x, CT_DIMS(-1, 2 * WIDE * SIDE * SIDE / 16)); // (B, 3136)
    return ct_nn_linear_apply(&net->out, x);
}

// The share of the digits that the network tells right; NaN where something failed.
static double accuracy(const convnet *net, digits test) {
    CT_SCOPE;
    ct_tensor guess = ct_argmax(apply(net, test.images, NULL), .axis = -1); // (N,) i32
    ct_tensor right = ct_equal(guess, ct_cast(test.labels, CT_I32));        // (N,) bool
    return ct_item(ct_mean(ct_cast(right, CT_F32)));
}

int main(int argc, char **argv) {
    long epochs = argc > 3 ? atol(argv[3]) : 10;
    if (argc < 3 || epochs < 1) return fprintf(stderr, "usage: %s TRAIN TEST [EPOCHS]\n", *argv), 2;
    CT_SCOPE;
    digits train = load(argv[1]), test = load(argv[2]);
    long steps = (long)ct_dim(train.images, 0) / BATCH;

    // Running statistics are a set of their own, which no optimizer updates.
    ct_params *params = ct_params_new(), *running = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(params, 1), other = ct_nn_builder_for(running, 1);
    convnet net = {
        make(ct_nn_builder_child(place, "one"), ct_nn_builder_child(other, "one"), 1, WIDE),
        make(ct_nn_builder_child(place, "two"), ct_nn_builder_child(other, "two"), WIDE, 2 * WIDE),
        ct_nn_linear_new(ct_nn_builder_child(place, "out"), .in = 2 * WIDE * SIDE * SIDE / 16,
                         .out = 10)};
    ct_optim *adamw =
        ct_adamw(params, .schedule = {CT_LR_COSINE, .lr = 2e-3, .steps = epochs * steps});
    for (long epoch = 0; epoch < epochs && !ct_failed(); epoch++) {
        for (long step = epoch * steps; step < (epoch + 1) * steps && !ct_failed(); step++) {
            CT_SCOPE;
            ct_nn_mode training = {.training = true};
            digits batch = draw(train, ct_random_key(step));
            ct_tensor logits = apply(&net, batch.images, &training);
            ct_tensor loss = ct_cross_entropy(logits, batch.labels);
            ct_metric("loss", loss);
            ct_optim_step(adamw, loss);
        }
        printf("epoch %2ld  loss %.3f  accuracy %.2f %%\n", epoch + 1, ct_metric_value("loss"),
               100 * accuracy(&net, test));
        fflush(stdout);
    }
    ct_optim_free(adamw);
    ct_params_free(running);
    ct_params_free(params);
    return ct_failed() ? fprintf(stderr, "%s\n", ct_error_text()), 1 : 0;
}
