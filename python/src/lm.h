// Language models: what lm.c, engine.c and text.c share.
#ifndef COTAN_PYTHON_LM_H
#define COTAN_PYTHON_LM_H

#include "core.h"
#include "threads.h"

#include <cotan/lm.h>
#include <cotan/tokenizer.h>

// A model, in a capsule. Computations that run as a whole, such as an engine's steps, use a context of the
// model, by one thread at a time (lm.py has a lock); logits are recorded in the caller's context.
typedef struct model {
    ct_lm *lm;
    ct_ctx *ctx;
    // The thread that loaded it, in whose context it is freed when nothing reads its variables.
    thread *owner;
} model;
model *model_from_capsule(PyObject *capsule); // NULL with an exception set
// Converters of PyArg_ParseTuple: a model's capsule into a model *, a tokenizer's into a ct_tokenizer *.
int model_parse(PyObject *capsule, void *to);
int tokenizer_parse(PyObject *capsule, void *to);

// Calls without the GIL, in the model's context; runs what is pending in the thread's own context before.
// False with an exception set.
bool model_run(model *m, void (*call)(void *user), void *user, ct_loc here);
// The same in the thread's own context, for functions that run no plan.
bool run_without_gil(void (*call)(void *user), void *user);
bool is_interrupted(void *unused); // a ct_stop_fn: true after Ctrl-C, with Python's exception set

// NULL with an exception set, also for an object that is no tokenizer (None).
ct_tokenizer *tokenizer_from_capsule(PyObject *capsule);
// Parses a sequence of integers; free the tokens by PyMem_Free. False with an exception set. `what` names the
// argument in errors.
bool tokens_parse(PyObject *o, int32_t **tokens, size_t *n, const char *what);
PyObject *tokens_to_list(const int32_t *tokens, size_t n);

extern PyMethodDef lm_methods[], tokenizer_methods[], engine_methods[];

#endif
