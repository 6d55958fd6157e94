// Names of what a run has in its folder, for those who write it and those who read text beside it.
#ifndef COTAN_IO_RUN_NAMES_H
#define COTAN_IO_RUN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

// A folder in a run's, for the weights that were best, where a run keeps them: a model and its
// configuration. A save has further names of them, CT_SAVED_BEST..., so that those of its step can
// come back.
#define CT_RUN_BEST "best"
#define CT_SAVED_BEST_MODEL "best.safetensors"
#define CT_SAVED_BEST_CONFIG "best.json"
// What a run has beside its model so that others read it: how text becomes tokens, and what ends a text. It
// never changes, so saves have none of it.
#define CT_RUN_BESIDE                                                                              \
    "tokenizer.json", "tokenizer_config.json", "generation_config.json",                           \
        "special_tokens_map.json", "tokenizer.model", "chat_template.jinja"
enum { CT_RUN_BESIDE_N = 6 };
// The text as tokens, where a tokenizer made them.
#define CT_RUN_TOKENS "tokens.npy"
// The folder of the saves, each a folder "step-N", and what stands behind the name of one that is
// being made or removed.
#define CT_RUN_SAVES "checkpoints"
#define CT_SAVE_UNFINISHED ".tmp"

// Is this a save's name? Not "step-004".
bool ct__names_save(const char *name, int64_t *step);
// And of one that is being made or removed: "step-6.tmp" or, where that was somebody's,
// "step-6.2.tmp".
bool ct__names_unfinished_save(const char *name);

#endif
