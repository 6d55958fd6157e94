// Writes the weights with which `cotan train` starts the reference run, for
// bench/torch_reference.py: 4 layers, 4 heads, width 128, context 64, 65 characters, no biases.
//   build/bench/initial_weights SEED DIR
#include <cotan/cotan.h>
#include <cotan/lm.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: initial_weights SEED DIR\n"), 2;
    ct_lm_config config = {
        .vocab = 65, .context = 64, .layers = 4, .heads = 4, .width = 128, .no_bias = true};
    ct_lm *model = ct_lm_new(&config, strtoull(argv[1], NULL, 10));
    bool ok = model && ct_lm_save(model, argv[2]);
    if (!ok) fprintf(stderr, "%s\n", ct_error_text());
    ct_lm_free(model);
    return ok ? 0 : 1;
}
