// Runs a ResNet on given weights and images, for test_resnet.py:
//     resnet_dump DEVICE DEPTH CLASSES SMALL WEIGHTS IMAGES OUT SAVED
// IMAGES holds images (N, 3, H, W), whose dtype is the model's, and labels (N,) i32. OUT gets the logits of both modes, the
// loss while training and its gradients (grad.NAME); SAVED the model after a step of SGD with
// momentum on each of two turns.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/cotan.h"
#include "cotan/models.h"
#include "cotan/optim.h"
#include "io/safetensors.h"
#include "nn/store.h"

enum { MOST = 256 };

static bool put(ct_store *out, const char *prefix, const char *name, ct_tensor t, ct_err *err) {
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(t); a++) dim[a] = ct_dim(t, a);
    const void *data = ct_data(t);
    return data &&
           ct__store_put(out, prefix, name, ct_dtype_of(t), (ct_ints){ct_rank(t), dim}, data, err);
}

static ct_tensor tensor(const ct_st *file, const char *name) {
    const ct_st_entry *e = ct__st_find(file, name);
    int64_t dim[CT_MAX_RANK];
    for (size_t a = 0; a < e->rank; a++) dim[a] = (int64_t)e->shape[a];
    ct_ints dims = {(int64_t)e->rank, dim};
    return ct_from(e->data, e->dtype, dims);
}

static bool run(char **argv, ct_resnet *model, const ct_st *in, ct_err *err) {
    const ct_nn_mode training = {.training = true};
    ct_params *params = ct_resnet_params(model);
    size_t n = ct_params_count(params);
    ct_tensor wrt[MOST], all[MOST + 3], images = tensor(in, "images"),
                                        labels = tensor(in, "labels");
    ct_store out = {0};
    if (n > MOST) return false;
    ct_optim *sgd = ct_sgd(params, .lr = 0.01, .momentum = 0.9);
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    all[n] = ct_resnet_logits(model, images, NULL);
    all[n + 1] = ct_resnet_logits(model, images, &training);
    all[n + 2] = ct_cross_entropy(all[n + 1], labels);
    ct_grad(all[n + 2], wrt, n, all);
    bool ok = sgd && ct_eval(all, n + 3) && put(&out, "", "evaluation", all[n], err) &&
              put(&out, "", "training", all[n + 1], err) && put(&out, "", "loss", all[n + 2], err);
    for (size_t i = 0; i < n && ok; i++)
        ok = put(&out, "grad.", ct_params_name(params, i), all[i], err);
    ok = ok && ct__st_write(argv[7], out.out, out.n, NULL, 0, err);
    ct__store_free(&out);
    for (int step = 0; step < 2 && ok; step++) {
        CT_SCOPE;
        ct_tensor loss = ct_cross_entropy(ct_resnet_logits(model, images, &training), labels);
        ct_optim_step(sgd, loss);
    }
    ct_optim_free(sgd);
    return ok && ct_resnet_save_weights(model, argv[8]);
}

int main(int argc, char **argv) {
    ct_err err = {0};
    ct_st in = {0};
    const void *map = NULL;
    size_t n = 0;
    if (argc != 9 || !ct_set_device(argv[1])) return 2;
    CT_SCOPE;
    ct_resnet_config config = {
        .depth = atoi(argv[2]), .classes = atoi(argv[3]), .small_images = atoi(argv[4])};
    bool ok = ct__file_map(argv[6], &map, &n, &err) && ct__st_parse(argv[6], map, n, &in, &err);
    if (ok) config.dtype = ct__st_find(&in, "images")->dtype;
    ct_resnet *model = ok ? ct_resnet_new(&config, 1) : NULL;
    ok = model && ct_resnet_load_weights(model, argv[5]) && run(argv, model, &in, &err);
    ct__st_close(&in);
    ct__file_unmap(map, n);
    ct_resnet_free(model);
    if (!ok) fprintf(stderr, "resnet_dump: %s%s\n", err.text, ct_error_text());
    return !ok;
}
