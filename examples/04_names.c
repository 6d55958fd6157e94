// Names, letter by letter: a network that sees the five letters before and predicts the next one.
// usage: 04_names NAMES [STEPS]     NAMES: a text with a name in each line, of letters a to z
#include <cotan/data.h>
#include <cotan/nn.h>
#include <cotan/optim.h>
#include <stdio.h>
#include <stdlib.h>

// Letter 0 is a line's end; 1 to 26 are a to z.
enum { LETTERS = 27, SEEN = 5, WIDTH = 16, HIDDEN = 200, BATCH = 256, NAMES = 10, LONGEST = 20 };
typedef struct {
    ct_nn_embedding letters;
    ct_nn_linear hidden, out;
} model;

static model model_new(ct_params *params) {
    ct_nn_builder place = ct_nn_builder_for(params, 1);
    return (model){
        ct_nn_embedding_new(ct_nn_builder_child(place, "letters"), .count = LETTERS,
                            .width = WIDTH),
        ct_nn_linear_new(ct_nn_builder_child(place, "hidden"), .in = SEEN * WIDTH, .out = HIDDEN),
        ct_nn_linear_new(ct_nn_builder_child(place, "out"), .in = HIDDEN, .out = LETTERS)};
}

// seen (B, SEEN) i32 -> logits (B, LETTERS)
static ct_tensor apply(const model *m, ct_tensor seen) {
    // What lies before a line's end belongs to another name: hidden, as if it were all line's ends.
    ct_tensor ends = ct_cast(ct_equal(seen, ct_i(0)), CT_I32);           // (B, SEEN)
    ct_tensor ends_behind = ct_cumsum(ends, .axis = 1, .reverse = true); // (B, SEEN)
    seen = ct_select(ct_greater(ends_behind, ct_i(0)), ct_i(0), seen);   // (B, SEEN)
    ct_tensor x = ct_nn_embedding_apply(&m->letters, seen);              // (B, SEEN, WIDTH)
    x = ct_reshape(x, CT_DIMS(-1, SEEN * WIDTH));                        // (B, SEEN * WIDTH)
    ct_tensor h = ct_tanh(ct_nn_linear_apply(&m->hidden, x));            // (B, HIDDEN)
    return ct_nn_linear_apply(&m->out, h);
}

// The loss at `rows` random places of text[from, to), in nats a letter.
static ct_tensor loss_in(const model *m, ct_tensor text, int64_t from, int64_t to, int64_t rows,
                         ct_tensor key) {
    ct_tensor at = ct_random_int(key, ct_i(from), ct_i(to - SEEN), CT_DIMS(rows, 1)); // (rows, 1)
    at = ct_add(at, ct_iota(CT_I32, CT_DIMS(SEEN + 1), 0));                // (rows, SEEN + 1)
    ct_tensor bytes = ct_cast(ct_gather(text, at), CT_I32);                // (rows, SEEN + 1)
    ct_tensor letters = ct_maximum(ct_sub(bytes, ct_i('a' - 1)), ct_i(0)); // (rows, SEEN + 1)
    ct_tensor seen = ct_slice(letters, .axes = CT_AXES(1), .stop = CT_INTS(SEEN));
    ct_tensor next = ct_slice(letters, .axes = CT_AXES(1), .start = CT_INTS(SEEN)); // (rows, 1)
    return ct_cross_entropy(apply(m, seen), ct_reshape(next, CT_DIMS(rows)));
}

// NAMES names at once, a letter of each in a step.
static void write_names(const model *m, ct_tensor key) {
    int32_t seen[NAMES][SEEN] = {0};
    char names[NAMES][LONGEST + 1] = {0};
    for (int i = 0; i < LONGEST; i++) {
        CT_SCOPE;
        ct_tensor logits = apply(m, ct_from(seen, CT_I32, CT_DIMS(NAMES, SEEN)));
        // The largest logit plus a draw of Gumbel's distribution: a draw from the softmax.
        ct_tensor u = ct_random_uniform(ct_random_fold_in(key, ct_i(i)), CT_DIMS(NAMES, LETTERS));
        ct_tensor noise = ct_neg(ct_log(ct_neg(ct_log(u)))); // (NAMES, LETTERS)
        const int32_t *next = ct_data(ct_argmax(ct_add(logits, noise), .axis = 1)); // (NAMES,)
        for (int n = 0; next && n < NAMES; n++) {
            bool over = i > 0 && !names[n][i - 1];
            names[n][i] = over || !next[n] ? 0 : (char)('a' - 1 + next[n]);
            for (int k = 1; k < SEEN; k++) seen[n][k - 1] = seen[n][k];
            seen[n][SEEN - 1] = next[n];
        }
    }
    for (int n = 0; n < NAMES; n++) puts(names[n]);
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: %s NAMES [STEPS]\n", argv[0]), 2;
    CT_SCOPE;
    ct_tensor text = ct_load_bytes(argv[1]); // (N,) u8
    int64_t steps = argc > 2 ? atol(argv[2]) : 5000, every = (steps + 4) / 5;
    if (steps < 1) return fprintf(stderr, "STEPS is no number above 0: %s\n", argv[2]), 2;
    int64_t n = ct_size(text), train = n / 10 * 9; // the last tenth is held out
    if (ct_ok(text) && n < 100) return fprintf(stderr, "%s: too short\n", argv[1]), 1;
    const uint8_t *bytes = ct_data(text);
    for (int64_t i = 0, line = 1; bytes && i < n; line += bytes[i++] == '\n')
        if (bytes[i] != '\n' && (bytes[i] < 'a' || bytes[i] > 'z'))
            return fprintf(stderr, "%s:%ld: only letters a to z are known\n", argv[1], (long)line),
                   1;

    ct_params *params = ct_params_new();
    model m = model_new(params);
    ct_optim *adamw = ct_adamw(params, .schedule = {CT_LR_COSINE, .lr = 5e-3, .steps = steps});
    ct_tensor key = ct_random_key(1);
    for (int64_t step = 0; step < steps && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor loss = loss_in(&m, text, 0, train, BATCH, ct_random_fold_in(key, ct_i(step)));
        ct_metric("loss", loss);
        ct_optim_step(adamw, loss);
        if ((step + 1) % every && step + 1 < steps) continue;
        double held_out = ct_item(loss_in(&m, text, train, n, 8192, key));
        printf("step %5ld  loss %.3f  held out %.3f\n", (long)step + 1, ct_metric_value("loss"),
               held_out);
    }
    if (!ct_failed()) write_names(&m, key);
    ct_optim_free(adamw);
    ct_params_free(params);
    if (ct_failed()) return fprintf(stderr, "%s\n", ct_error_text()), 1;
    return 0;
}
