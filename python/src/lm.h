// Language models: what their files in src share.
#ifndef COTAN_PYTHON_LM_H
#define COTAN_PYTHON_LM_H

#include "core.h"
#include "threads.h"

#include <cotan/lm.h>
#include <cotan/tokenizer.h>

// A model, in a capsule. What runs whole, an engine's steps too, does so in a context of its own, by one thread at a time
// (lm.py has a lock); logits are recorded by who asks for them.
typedef struct model {
    ct_lm *lm;
    ct_ctx *ctx;
    thread *owner; // who loaded it: gives it back when nothing reads its variables
} model;
model *model_of(PyObject *capsule); // NULL: an exception

// Calls without the GIL, in the model's context; what is pending in the thread's own runs before. False: an exception.
bool model_run(model *m, void (*call)(void *user), void *user, ct_loc here);
// The same in the thread's own context, of what runs no plan.
bool run_free(void (*call)(void *user), void *user);
bool interrupted(void *unused); // a ct_stop_fn: Ctrl-C, with Python's exception

// NULL: an exception; of what does not name one of them (None), too.
ct_tokenizer *tokenizer_of(PyObject *capsule);
// Tokens of a sequence of whole numbers, for PyMem_Free. False: an exception. `what` names it in errors.
bool parse_tokens(PyObject *o, int32_t **tokens, size_t *n, const char *what);
PyObject *tokens_list(const int32_t *tokens, size_t n);

extern PyMethodDef lm_methods[], text_methods[], engine_methods[];

#endif
