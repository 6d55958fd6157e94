// Language models from text to text: train one on files, let one write, look into what was saved.
// What the program `cotan` does, for programs.
#ifndef COTAN_LM_H
#define COTAN_LM_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Takes text as it comes; false: it cannot, and the work ends with an error.
typedef bool (*ct_write_fn)(const char *text, size_t n, void *user);
// Asked between pieces of work; true: stop, and save what there is. Nothing here installs signal
// handlers: a program's own may set a flag that this function reads.
typedef bool (*ct_stop_fn)(void *user);

// --------------------------------------------------------------------------------------- looking

// Says what `path` holds, in lines: a safetensors file, a config.json, a folder that ct_lm_train
// wrote, or text. Names out of files are shown without control characters.
CT_API CT_MUST_USE bool ct_describe(const char *path, ct_write_fn write, void *user);

#ifdef __cplusplus
}
#endif

#endif
