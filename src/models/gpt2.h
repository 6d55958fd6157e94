// What the files of the GPT-2 model share.
#ifndef COTAN_MODELS_GPT2_H
#define COTAN_MODELS_GPT2_H

#include "cotan/models.h"
#include "graph/graph.h"
#include "io/config.h"

typedef struct ct_gpt2_block {
    ct_nn_norm ln_1, ln_2;
    ct_nn_attention attn;
    ct_nn_mlp mlp;
} ct_gpt2_block;

struct ct_gpt2 {
    ct_gpt2_config config; // its strings belong to the model
    ct_params *params;
    ct_nn_embedding wte, wpe;
    ct_gpt2_block *blocks; // (layers)
    ct_nn_norm ln_f;
};

// True if the sizes make a model; else sets the context's error.
bool ct__gpt2_check(const ct_gpt2_config *config, ct_ctx *ctx, ct_loc here);
// Makes the variables, with initial values unless `skip_init`. Returns NULL with the context's error set.
ct_gpt2 *ct__gpt2_make(const ct_gpt2_config *config, uint64_t seed, bool skip_init, ct_loc here);
// Adds further keys to config.json. Returns false with the error set.
typedef bool (*ct__config_more)(struct ct_config *config, void *user, ct_err *err);
// ct_gpt2_save with further keys in config.json; more NULL: none.
bool ct__gpt2_save(const ct_gpt2 *model, const char *dir, ct__config_more add_keys, void *user,
                   ct_loc here);

#endif
