// A training step as C, ahead of time: for a machine that has a C compiler and no more.
// usage: 08_compile PATH     e.g. 08_compile mnist_step, which writes mnist_step.c and mnist_step.h
// Nothing is run here, so neither data nor a compiler is needed.
#include <cotan/nn.h>
#include <cotan/optim.h>
#include <stdio.h>

enum { BATCH = 64, PIXELS = 28 * 28, HIDDEN = 512 };

int main(int argc, char **argv) {
    static uint8_t some_images[BATCH * PIXELS], some_labels[BATCH]; // what inputs look like
    if (argc != 2) return fprintf(stderr, "usage: %s PATH\n", argv[0]), 2;
    bool ok = ct_set_device("dry:cpu");
    ct_params *params = ct_params_new();
    ct_nn_builder place = ct_nn_builder_for(params, 1);
    ct_nn_linear in = ct_nn_linear_new(ct_nn_builder_child(place, "in"), .in = PIXELS,
                                       .out = HIDDEN),
                 out = ct_nn_linear_new(ct_nn_builder_child(place, "out"), .in = HIDDEN, .out = 10);
    ct_optim *adamw = ct_adamw(params, .lr = 1e-3);
    if (ok && !ct_failed()) {
        CT_SCOPE;
        ct_tensor images = ct_from(some_images, CT_U8, CT_DIMS(BATCH, PIXELS)),
                  labels = ct_from(some_labels, CT_U8, CT_DIMS(BATCH)),
                  x = ct_div(ct_cast(images, CT_F32), ct_f(255)); // 0 to 1
        ct_tensor h = ct_relu(ct_nn_linear_apply(&in, x));        // (BATCH, HIDDEN)
        ct_tensor loss = ct_cross_entropy(ct_nn_linear_apply(&out, h), labels);
        ct_metric("loss", loss);
        ct_optim_step(adamw, loss);
        ok = ct_compile(argv[1],
                        .names = CT_NAMED_LIST({"images", images}, {"labels", labels},
                                               {"learning_rate", ct_optim_lr_operand(adamw)}));
    }
    ct_optim_free(adamw);
    ct_params_free(params);
    return ct_failed() || !ok ? fprintf(stderr, "%s\n", ct_error_text()), 1 : 0;
}
