// Runs GPT-2 on given weights and batches, for test_gpt2.py:
//     gpt2_dump DEVICE MODEL_DIR BATCHES OUT SAVED_DIR
// BATCHES holds tokens and targets (steps, B, T) i32. OUT gets logits, loss and every gradient
// (grad.NAME) of the first batch, and the losses of one AdamW step on each; SAVED_DIR the model
// after them.
#include <stdio.h>
#include <string.h>

#include "cotan/cotan.h"
#include "cotan/lm.h"
#include "cotan/optim.h"
#include "io/safetensors.h"
#include "nn/store.h"

enum { STEPS = 64 };

static const ct_st_entry *batches, *answers;

static ct_tensor batch(const ct_st_entry *entry, int64_t step) {
    int64_t b = (int64_t)entry->shape[1], t = (int64_t)entry->shape[2];
    return ct_from((const int32_t *)entry->data + step * b * t, CT_I32, CT_DIMS(b, t));
}

static bool put(ct_store *out, const char *prefix, const char *name, ct_tensor t, ct_err *err) {
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(t); a++) dim[a] = ct_dim(t, a);
    const void *data = ct_data(t);
    return data &&
           ct__store_put(out, prefix, name, ct_dtype_of(t), (ct_ints){ct_rank(t), dim}, data, err);
}

static bool first_batch(ct_lm *model, ct_store *out, ct_err *err) {
    ct_params *params = ct_lm_params(model);
    size_t n = ct_params_count(params);
    ct_tensor wrt[512], all[514];
    if (n > 512) return false;
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    ct_tensor logits = ct_lm_logits(model, batch(batches, 0), NULL);
    ct_tensor loss = ct_cross_entropy(logits, batch(answers, 0));
    all[n] = logits;
    all[n + 1] = loss;
    ct_grad(loss, wrt, n, all);
    bool ok = ct_eval(all, n + 2) && put(out, "", "logits", logits, err) &&
              put(out, "", "loss", loss, err);
    for (size_t i = 0; i < n && ok; i++)
        ok = put(out, "grad.", ct_params_name(params, i), all[i], err);
    return ok;
}

static bool train(ct_lm *model, float *losses, int64_t steps) {
    ct_optim *adamw = ct_adamw(ct_lm_params(model), .lr = 1e-3, .weight_decay = CT_F(0.1),
                               .beta2 = CT_F(0.99), .clip = 1.0);
    for (int64_t step = 0; step < steps && adamw && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor loss = ct_lm_loss(model, batch(batches, step), batch(answers, step),
                                    &(ct_nn_mode){.training = true});
        ct_optim_step(adamw, loss);
        losses[step] = (float)ct_item(loss);
    }
    ct_optim_free(adamw);
    return !ct_failed();
}

static bool run(char **argv, ct_err *err) {
    ct_st in = {0};
    const void *map = NULL;
    size_t n = 0;
    ct_store out = {0};
    float losses[STEPS];
    ct_lm *model = NULL;
    CT_SCOPE;
    bool ok = ct_set_device(argv[1]) && ct__file_map(argv[3], &map, &n, err) &&
              ct__st_parse(argv[3], map, n, &in, err) &&
              (model = ct_lm_load(argv[2], .trainable = true)) != NULL;
    if (ok) {
        batches = ct__st_find(&in, "tokens");
        answers = ct__st_find(&in, "targets");
        int64_t steps = (int64_t)batches->shape[0];
        ok = steps <= STEPS && first_batch(model, &out, err) && train(model, losses, steps) &&
             ct__store_put(&out, "", "losses", CT_F32, CT_DIMS(steps), losses, err) &&
             ct__st_write(argv[4], out.out, out.n, NULL, 0, err) && ct_lm_save(model, argv[5]);
    }
    ct__st_close(&in);
    ct__file_unmap(map, n);
    ct__store_free(&out);
    ct_lm_free(model);
    return ok;
}

int main(int argc, char **argv) {
    ct_err err = {0};
    if (argc == 6 && run(argv, &err)) return 0;
    fprintf(stderr, "gpt2_dump: %s%s\n", err.text, ct_error_text());
    return 1;
}
