// Names of the files in a run's folder, for the writer of the run and for readers of text beside
// it.
#ifndef COTAN_IO_RUN_NAMES_H
#define COTAN_IO_RUN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

// The folder of the best weights in a run's folder, if the run keeps them: a model and its
// configuration. A checkpoint has further hard links to them, CT_SAVED_BEST..., so that the best
// ones at its step can be restored.
#define CT_RUN_BEST "best"
#define CT_SAVED_BEST_MODEL "best.safetensors"
#define CT_SAVED_BEST_CONFIG "best.json"
// Files beside the model that other programs need: the tokenizer and the eos tokens. They never
// change, so checkpoints do not contain them.
#define CT_RUN_SIDE_FILES                                                                          \
    "tokenizer.json", "tokenizer_config.json", "generation_config.json",                           \
        "special_tokens_map.json", "tokenizer.model", "chat_template.jinja"
enum { CT_N_RUN_SIDE_FILES = 6 };
// The text as tokens, if a tokenizer made them.
#define CT_RUN_TOKENS "tokens.npy"
// The folder of the checkpoints, each a folder "step-N", and the suffix of the name of one that is
// being written or removed.
#define CT_RUN_SAVES "checkpoints"
#define CT_SAVE_UNFINISHED ".tmp"

// True if this is a checkpoint's name; "step-004" is none.
bool ct__is_save_name(const char *name, int64_t *step);
// True for the name of one that is being written or removed: "step-6.tmp", or "step-6.2.tmp" if
// that name was taken.
bool ct__is_unfinished_save_name(const char *name);

#endif
