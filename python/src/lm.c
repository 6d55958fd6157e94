// Language models from their files: their logits and parameters, scores of sequences, embeddings and classes.
#include "lm.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/embed.h>
#include <cotan/eval.h>
#include <cotan/hub.h>

static const char capsule_name[] = "cotan.lm";

model *model_from_capsule(PyObject *capsule) { return PyCapsule_GetPointer(capsule, capsule_name); }
int model_parse(PyObject *capsule, void *to) {
    return (*(model **)to = model_from_capsule(capsule)) != NULL;
}

// ----------------------------------------------------------------------------------------- running

bool is_interrupted(void *Py_UNUSED(unused)) {
    PyGILState_STATE state = PyGILState_Ensure();
    const bool is = PyErr_CheckSignals() < 0;
    PyGILState_Release(state);
    return is;
}

static bool py_model_restore_context(ct_ctx *back) {
    const bool ok = !ct_failed();
    library_error why;
    if (!ok) take_error(&why);
    if (back) ct_ctx_use(back);
    if (!ok && !PyErr_Occurred()) raise_message(why.code, why.text);
    return ok && !PyErr_Occurred();
}

bool model_run(model *m, void (*call)(void *), void *user, ct_loc here) {
    if (ct_rolling_pending() && !run_eval(NULL, 0, here)) return false;
    ct_ctx *mine = ct_ctx_use(m->ctx);
    PyThreadState *state = PyEval_SaveThread();
    call(user);
    PyEval_RestoreThread(state);
    return py_model_restore_context(mine);
}

bool run_without_gil(void (*call)(void *), void *user) {
    thread *self = thread_get();
    thread_run_begin(self);
    PyThreadState *state = PyEval_SaveThread();
    call(user);
    PyEval_RestoreThread(state);
    thread_run_end(self);
    return py_model_restore_context(NULL);
}

// ----------------------------------------------------------------------------------------- loading

typedef struct load_call {
    const char *path;
    ct_lm_load_options options;
    ct_lm *lm;
} load_call;
static void py_lm_run_load(void *user) {
    load_call *l = user;
    l->lm = ct_lm_load_with(l->path, l->options);
}

static void py_lm_free(void *lm) { ct_lm_free(lm); }
static void py_lm_destroy(PyObject *capsule) {
    model *m = model_from_capsule(capsule);
    if (m->ctx) ct_ctx_free(m->ctx);
    thread_free_when_unread(m->owner, ct_lm_params(m->lm), py_lm_free, m->lm);
    free(m);
}

static ct_ctx *py_lm_new_context(void) {
    const char *device = ct_device_of(ct_f(0));
    ct_ctx *mine = ct_ctx_current(), *ctx = ct_ctx_new();
    if (!ctx) return NULL;
    ct_ctx_use(ctx);
    ct_set_log(errors_log, NULL);
    const bool ok = device && ct_set_device(device);
    ct_ctx_use(mine);
    if (ok) return ctx;
    ct_ctx_free(ctx);
    return NULL;
}

// _lm_load(path, trainable, f32): f32 means that activations are f32 with quantised weights.
static PyObject *py_lm_load(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    int trainable, f32;
    load_call l = {.options = {.here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&pp:_lm_load", PyUnicode_FSConverter, &path, &trainable, &f32))
        return NULL;
    l.path = PyBytes_AsString(path);
    l.options.trainable = trainable;
    l.options.activations = f32 ? CT_F32 : CT_I8;
    bool ok = run_without_gil(py_lm_run_load, &l);
    Py_DECREF(path);
    model *m = ok ? calloc(1, sizeof *m) : NULL;
    if (m) *m = (model){.lm = l.lm, .ctx = py_lm_new_context(), .owner = thread_get()};
    if (m && !m->ctx) ok = raise_error();
    if (ok && !m) PyErr_NoMemory();
    PyObject *capsule = m && m->ctx ? PyCapsule_New(m, capsule_name, py_lm_destroy) : NULL;
    if (!capsule) {
        if (m && m->ctx) ct_ctx_free(m->ctx);
        ct_lm_free(l.lm);
        free(m);
    }
    return capsule;
}

// _lm_find(name): returns the folder of ORG/NAME in the Hub's cache.
static PyObject *py_lm_find(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    char path[4096];
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "s:_lm_find", &name)) return NULL;
    if (!ct_hub_find_at(name, NULL, path, sizeof path, here)) return raise_error();
    return PyUnicode_DecodeFSDefault(path);
}

// _lm_architecture(row): defines an architecture.
static PyObject *py_lm_architecture(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *row;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "s:_lm_architecture", &row)) return NULL;
    return none_if(ct_lm_add_architecture_at(row, here) || raise_error());
}

// _lm_info(model): returns type, context, vocab, width, layers, is_generative, is_encoder_decoder, has_lm_head,
// labels, and whether activations are f32.
static PyObject *py_lm_info(PyObject *Py_UNUSED(module), PyObject *o) {
    const model *m = model_from_capsule(o);
    if (!m) return NULL;
    const ct_lm_properties a = ct_lm_info(m->lm);
    return Py_BuildValue("(sLLLLNNNLN)", a.type, (long long)a.context, (long long)a.vocab,
                         (long long)a.width, (long long)a.layers, PyBool_FromLong(a.is_generative),
                         PyBool_FromLong(a.is_encoder_decoder), PyBool_FromLong(a.has_lm_head),
                         (long long)a.labels, PyBool_FromLong(a.activations == CT_F32));
}

typedef struct save_call {
    const ct_lm *lm;
    const char *path;
    ct_loc here;
} save_call;
static void py_lm_run_save(void *user) {
    const save_call *s = user;
    if (!ct_lm_save_at(s->lm, s->path, s->here)) return; // the context has the error
}
// _lm_save(model, folder)
static PyObject *py_lm_save(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    model *m;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O&O&:_lm_save", model_parse, &m, PyUnicode_FSConverter, &path))
        return NULL;
    save_call s = {m->lm, PyBytes_AsString(path), here};
    const bool ok = model_run(m, py_lm_run_save, &s, here);
    Py_DECREF(path);
    return none_if(ok);
}

// --------------------------------------------------------------------------------------- computing

// _lm_logits(model, tokens), _lm_hidden, _lm_pair_logits(model, source, target): record the result.
static PyObject *py_lm_record(PyObject *args, const char *format, int what) {
    PyObject *first, *second = NULL;
    model *m;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, format, model_parse, &m, tensor_type, &first, tensor_type, &second))
        return NULL;
    const ct_tensor tokens = tensor_value(first, here);
    const ct_tensor target = second ? tensor_value(second, here) : CT_NONE;
    if (!tokens.bits || (second && !target.bits)) return NULL;
    const ct_tensor y = what == 0   ? ct_lm_logits_at(m->lm, tokens, NULL, here)
                        : what == 1 ? ct_lm_hidden_at(m->lm, tokens, NULL, here)
                                    : ct_lm_seq2seq_logits_at(m->lm, tokens, target, NULL, here);
    return tensor_new(y, here);
}
static PyObject *py_lm_logits(PyObject *Py_UNUSED(module), PyObject *args) {
    return py_lm_record(args, "O&O!:_lm_logits", 0);
}
static PyObject *py_lm_hidden(PyObject *Py_UNUSED(module), PyObject *args) {
    return py_lm_record(args, "O&O!:_lm_hidden", 1);
}
static PyObject *py_lm_pair_logits(PyObject *Py_UNUSED(module), PyObject *args) {
    return py_lm_record(args, "O&O!O!:_lm_pair_logits", 2);
}

// _lm_parameters(model, tracked): returns pairs of a name and the variable. To be called once: a variable has
// one Tensor.
static PyObject *py_lm_parameters(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o;
    int tracked;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "Op:_lm_parameters", &o, &tracked)) return NULL;
    const model *m = model_from_capsule(o);
    ct_params *set = m ? ct_lm_params(m->lm) : NULL;
    PyObject *list = m ? PyList_New(0) : NULL;
    for (size_t i = 0; list && i < ct_params_count(set); i++) {
        PyObject *t = tensor_from_param(ct_params_get(set, i), set, o, tracked, here);
        if (!list_append(list, t ? Py_BuildValue("(sN)", ct_params_name(set, i), t) : NULL))
            Py_CLEAR(list);
    }
    return list;
}

// ----------------------------------------------------------------------------------------- scoring

typedef struct scoring {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    ct_lm_score_input *texts;
    ct_eval_pair *pairs;
    size_t n;
    ct_lm_score *scores;
    const char *text; // a text, or a path
    Py_ssize_t text_n;
    ct_perplexity sum;
    ct_multiple_choice_result choices;
    ct_eval_options o;
} scoring;
static void py_lm_run_score(void *user) {
    scoring *j = user;
    if (!ct_lm_score_tokens_with(j->lm, j->texts, j->n, j->scores, j->o)) return;
}
static void py_lm_run_log_likelihood(void *user) {
    scoring *j = user;
    if (!ct_eval_log_likelihood_with(j->lm, j->tokenizer, j->pairs, j->n, j->scores, j->o)) return;
}
static void py_lm_run_perplexity(void *user) {
    scoring *j = user;
    if (!ct_eval_perplexity_with(j->lm, j->tokenizer, j->text, (size_t)j->text_n, &j->sum, j->o))
        return;
}
static void py_lm_run_choices(void *user) {
    scoring *j = user;
    if (!ct_eval_multiple_choice_with(j->lm, j->tokenizer, j->text, &j->choices, j->o)) return;
}

static PyObject *py_lm_scores_to_list(const scoring *j) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < j->n; i++)
        if (!list_append(list, Py_BuildValue("(dN)", j->scores[i].log_likelihood,
                                             PyBool_FromLong(j->scores[i].greedy))))
            Py_CLEAR(list);
    return list;
}

// _lm_score(model, [(tokens, number of scored tokens), ...], context, batch)
static PyObject *py_lm_score(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *sequences, *result = NULL;
    model *m;
    long long context, batch;
    scoring j = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O!LL:_lm_score", model_parse, &m, &PyList_Type, &sequences,
                          &context, &batch))
        return NULL;
    j.lm = m->lm, j.o.context = context, j.o.batch_tokens = batch;
    const size_t n = (size_t)PyList_Size(sequences);
    j.texts = calloc(n + 1, sizeof *j.texts);
    j.scores = calloc(n + 1, sizeof *j.scores);
    bool ok = (j.texts && j.scores) || (PyErr_NoMemory(), false);
    for (; ok && j.n < n; j.n++) {
        PyObject *tokens;
        Py_ssize_t n_scored;
        int32_t *v;
        ct_lm_score_input *t = &j.texts[j.n];
        ok = PyArg_ParseTuple(PyList_GetItem(sequences, (Py_ssize_t)j.n), "On:_lm_score", &tokens,
                              &n_scored) &&
             tokens_parse(tokens, &v, &t->n, "tokens");
        if (!ok) break;
        t->tokens = v, t->n_scored = (size_t)n_scored;
    }
    if (ok && model_run(m, py_lm_run_score, &j, j.o.here)) result = py_lm_scores_to_list(&j);
    for (size_t i = 0; j.texts && i < j.n; i++) PyMem_Free((void *)(uintptr_t)j.texts[i].tokens);
    free(j.texts);
    free(j.scores);
    return result;
}

// _lm_log_likelihood(model, tokenizer, [(prompt, continuation), ...], context, batch)
static PyObject *py_lm_log_likelihood(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list, *result = NULL;
    model *m;
    long long context, batch;
    scoring j = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O&O!LL:_lm_log_likelihood", model_parse, &m, tokenizer_parse,
                          &j.tokenizer, &PyList_Type, &list, &context, &batch))
        return NULL;
    j.lm = m->lm, j.o.context = context, j.o.batch_tokens = batch;
    j.n = (size_t)PyList_Size(list);
    j.pairs = calloc(j.n + 1, sizeof *j.pairs);
    j.scores = calloc(j.n + 1, sizeof *j.scores);
    bool ok = (j.pairs && j.scores) || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < j.n; i++) {
        Py_ssize_t given, rest;
        ct_eval_pair *p = &j.pairs[i];
        ok = PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "s#s#:_lm_log_likelihood",
                              &p->context, &given, &p->continuation, &rest);
        if (ok) p->n_context = (size_t)given, p->n_continuation = (size_t)rest;
    }
    if (ok && model_run(m, py_lm_run_log_likelihood, &j, j.o.here))
        result = py_lm_scores_to_list(&j);
    free(j.pairs);
    free(j.scores);
    return result;
}

// _lm_perplexity(model, tokenizer, text, context, stride, batch): returns the log-likelihood and the numbers
// of tokens, words, bytes and windows.
static PyObject *py_lm_perplexity(PyObject *Py_UNUSED(module), PyObject *args) {
    model *m;
    long long context, stride, batch;
    scoring j = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O&s#LLL:_lm_perplexity", model_parse, &m, tokenizer_parse,
                          &j.tokenizer, &j.text, &j.text_n, &context, &stride, &batch))
        return NULL;
    j.lm = m->lm, j.o.context = context, j.o.stride = stride, j.o.batch_tokens = batch;
    if (!model_run(m, py_lm_run_perplexity, &j, j.o.here)) return NULL;
    return Py_BuildValue("(dLLLL)", j.sum.log_likelihood, (long long)j.sum.tokens,
                         (long long)j.sum.words, (long long)j.sum.bytes, (long long)j.sum.windows);
}

// _lm_choices(model, tokenizer, path, context, limit, batch)
static PyObject *py_lm_choices(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    model *m;
    long long context, limit, batch;
    scoring j = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O&O&LLL:_lm_choices", model_parse, &m, tokenizer_parse,
                          &j.tokenizer, PyUnicode_FSConverter, &path, &context, &limit, &batch))
        return NULL;
    j.text = PyBytes_AsString(path);
    j.lm = m->lm, j.o.context = context, j.o.limit = limit, j.o.batch_tokens = batch;
    const bool ok = model_run(m, py_lm_run_choices, &j, j.o.here);
    Py_DECREF(path);
    if (!ok) return NULL;
    const ct_multiple_choice_result *c = &j.choices;
    return Py_BuildValue("(Ldddddd)", (long long)c->questions, c->acc, c->acc_stderr, c->acc_norm,
                         c->acc_norm_stderr, c->acc_bytes, c->acc_bytes_stderr);
}

// --------------------------------------------------------------------------------------- embedding

// _lm_embedding(model, path): returns pooling, normalised, max_tokens.
static PyObject *py_lm_embedding(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path;
    model *m;
    ct_pooling_config how;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "O&O&:_lm_embedding", model_parse, &m, PyUnicode_FSConverter,
                          &path))
        return NULL;
    const bool ok =
        ct_pooling_config_read_at(PyBytes_AsString(path), m->lm, &how, here) || raise_error();
    Py_DECREF(path);
    if (!ok) return NULL;
    return Py_BuildValue("(iNL)", (int)how.pooling, PyBool_FromLong(how.normalised),
                         (long long)how.max_tokens);
}

typedef struct embed_call {
    const ct_lm *lm;
    const ct_tokenizer *tokenizer;
    ct_lm_text *texts;
    size_t n;
    float *vectors;
    bool probabilities; // of classes, instead of logits
    ct_embed_options o;
} embed_call;
static void py_lm_run_embed(void *user) {
    embed_call *e = user;
    if (!ct_lm_embed_with(e->lm, e->tokenizer, e->texts, e->n, e->vectors, e->o)) return;
}

// Parses one text, or two in a tuple.
static bool py_lm_parse_sequence(PyObject *one, ct_lm_text *text) {
    Py_ssize_t n, second = 0;
    if (!PyTuple_Check(one)) {
        text->s = PyUnicode_AsUTF8AndSize(one, &n);
    } else if (!PyArg_ParseTuple(one, "s#s#", &text->s, &n, &text->text_pair, &second)) {
        return false;
    }
    if (!text->s) return false;
    text->n = (size_t)n;
    text->n_text_pair = (size_t)second;
    return true;
}

// Runs the call on a list of texts, each of which gets a row of `width` numbers: (n, width).
static PyObject *py_lm_run_on_texts(model *m, void (*run)(void *), embed_call *e, PyObject *list,
                                    int64_t width) {
    PyObject *result = NULL;
    e->lm = m->lm;
    e->n = (size_t)PyList_Size(list);
    e->texts = calloc(e->n + 1, sizeof *e->texts);
    e->vectors = calloc(e->n * (size_t)width + 1, sizeof *e->vectors);
    bool ok = (e->texts && e->vectors) || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < e->n; i++)
        ok = py_lm_parse_sequence(PyList_GetItem(list, (Py_ssize_t)i), &e->texts[i]);
    if (ok && model_run(m, run, e, e->o.here))
        result = tensor_new(
            ct_from_at(e->vectors, CT_F32, CT_DIMS((int64_t)e->n, width), e->o.here), e->o.here);
    free(e->texts);
    free(e->vectors);
    return result;
}

// _lm_embed(model, tokenizer, texts, pooling, normalised, max_tokens, truncate, batch): returns (n, width).
static PyObject *py_lm_embed(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list;
    model *m;
    int pooling, normalised, truncate;
    long long max_tokens, batch;
    embed_call e = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O&O!ipLpL:_lm_embed", model_parse, &m, tokenizer_parse,
                          &e.tokenizer, &PyList_Type, &list, &pooling, &normalised, &max_tokens,
                          &truncate, &batch))
        return NULL;
    e.o.pooling = (ct_pooling_config){(ct_pooling)pooling, normalised, max_tokens};
    e.o.truncate = truncate, e.o.batch_tokens = batch;
    return py_lm_run_on_texts(m, py_lm_run_embed, &e, list, ct_lm_info(m->lm).width);
}

// _lm_label(model, i): returns the name of class i.
static PyObject *py_lm_label(PyObject *Py_UNUSED(module), PyObject *args) {
    model *m;
    long long i;
    char name[512];
    if (!PyArg_ParseTuple(args, "O&L:_lm_label", model_parse, &m, &i)) return NULL;
    ct_lm_label(m->lm, i, name, sizeof name);
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static void py_lm_run_classify(void *user) {
    embed_call *e = user;
    if (!ct_lm_classify_with(e->lm, e->tokenizer, e->texts, e->n, e->vectors, e->o)) return;
    if (e->probabilities) ct_lm_class_probabilities(e->lm, e->vectors, e->n);
}

// _lm_classify(model, tokenizer, texts, truncate, probabilities, batch): returns (n, labels).
static PyObject *py_lm_classify(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *list;
    model *m;
    int truncate, probabilities;
    long long batch;
    embed_call e = {.o = {.should_stop = is_interrupted, .here = api_enter()}};
    if (!PyArg_ParseTuple(args, "O&O&O!ppL:_lm_classify", model_parse, &m, tokenizer_parse,
                          &e.tokenizer, &PyList_Type, &list, &truncate, &probabilities, &batch))
        return NULL;
    e.o.truncate = truncate, e.o.batch_tokens = batch, e.probabilities = probabilities;
    return py_lm_run_on_texts(m, py_lm_run_classify, &e, list, ct_lm_info(m->lm).labels);
}

PyMethodDef lm_methods[] = {
    {"_lm_load", py_lm_load, METH_VARARGS, NULL},
    {"_lm_find", py_lm_find, METH_VARARGS, NULL},
    {"_lm_architecture", py_lm_architecture, METH_VARARGS, NULL},
    {"_lm_info", py_lm_info, METH_O, NULL},
    {"_lm_save", py_lm_save, METH_VARARGS, NULL},
    {"_lm_logits", py_lm_logits, METH_VARARGS, NULL},
    {"_lm_hidden", py_lm_hidden, METH_VARARGS, NULL},
    {"_lm_pair_logits", py_lm_pair_logits, METH_VARARGS, NULL},
    {"_lm_parameters", py_lm_parameters, METH_VARARGS, NULL},
    {"_lm_score", py_lm_score, METH_VARARGS, NULL},
    {"_lm_log_likelihood", py_lm_log_likelihood, METH_VARARGS, NULL},
    {"_lm_perplexity", py_lm_perplexity, METH_VARARGS, NULL},
    {"_lm_choices", py_lm_choices, METH_VARARGS, NULL},
    {"_lm_embedding", py_lm_embedding, METH_VARARGS, NULL},
    {"_lm_embed", py_lm_embed, METH_VARARGS, NULL},
    {"_lm_label", py_lm_label, METH_VARARGS, NULL},
    {"_lm_classify", py_lm_classify, METH_VARARGS, NULL},
    {0},
};
