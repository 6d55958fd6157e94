// The serving engine: runs requests together and appends each token to the list of its request.
#include "lm.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

static const char capsule_name[] = "cotan.engine";

typedef struct engine {
    ct_engine *engine;
    model *model;
    PyObject *capsule; // the model's capsule
} engine;

static engine *py_engine_from_capsule(PyObject *o) { return PyCapsule_GetPointer(o, capsule_name); }
static void py_engine_destroy(PyObject *o) {
    engine *e = py_engine_from_capsule(o);
    ct_ctx *mine = ct_ctx_use(e->model->ctx);
    ct_engine_free(e->engine);
    ct_ctx_use(mine);
    Py_DECREF(e->capsule);
    free(e);
}

typedef struct engine_new_call {
    const ct_lm *lm;
    ct_engine_options o;
    ct_engine *engine;
} engine_new_call;
static void py_engine_create(void *user) {
    engine_new_call *m = user;
    m->engine = ct_engine_new_with(m->lm, m->o);
}

// _engine_new(model, tokenizer or None, max_sequences, max_queued, context, memory)
static PyObject *py_engine_new(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *t;
    long long max_sequences, max_queued, context, memory;
    engine_new_call m = {.o.here = api_enter()};
    if (!PyArg_ParseTuple(args, "OOLLLL:_engine_new", &o, &t, &max_sequences, &max_queued, &context,
                          &memory))
        return NULL;
    model *owner = model_from_capsule(o);
    if (!owner || (t != Py_None && !(m.o.tokenizer = tokenizer_from_capsule(t)))) return NULL;
    m.lm = owner->lm;
    m.o.max_sequences = max_sequences, m.o.max_queued = max_queued, m.o.context = context;
    m.o.cache_memory = memory < 0 ? 0 : (uint64_t)memory;
    if (!model_run(owner, py_engine_create, &m, m.o.here)) return NULL;
    engine *e = calloc(1, sizeof *e);
    if (e) *e = (engine){m.engine, owner, Py_NewRef(o)};
    PyObject *capsule = e ? PyCapsule_New(e, capsule_name, py_engine_destroy) : PyErr_NoMemory();
    if (!capsule) {
        ct_engine_free(m.engine);
        if (e) Py_DECREF(o);
        free(e);
    }
    return capsule;
}

// --------------------------------------------------------------------------------------- callbacks

static PyObject *py_engine_top_logprobs(const ct_engine_token *t) {
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < t->n_top_logprobs; i++) {
        PyObject *key = PyLong_FromLong(t->top_logprobs[i].token);
        PyObject *value = PyFloat_FromDouble(t->top_logprobs[i].logprob);
        const bool ok = key && value && PyDict_SetItem(dict, key, value) == 0;
        release(key, value);
        if (!ok) Py_CLEAR(dict);
    }
    return dict;
}

// Called for each token during a step, which runs without the GIL: appends (token, log-probability, top
// log-probabilities, text).
static bool py_engine_on_token(const ct_engine_token *t, void *user) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(t->text ? t->text : "", (Py_ssize_t)t->text_n, "replace");
    PyObject *top = text ? py_engine_top_logprobs(t) : NULL;
    const bool ok =
        top && list_append(user, Py_BuildValue("(idNN)", (int)t->token, t->logprob, top, text));
    if (!top) Py_XDECREF(text);
    PyGILState_Release(state);
    return ok;
}

// Called at the end of a request: appends (None, end, why, stop, text, prompt, cached, generated) as the last
// item.
static void py_engine_on_done(const ct_engine_result *r, void *user) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace; // an exception may be set
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = PyUnicode_DecodeUTF8(r->text ? r->text : "", (Py_ssize_t)r->text_n, "replace");
    PyObject *why = r->error ? wording_translate(r->error) : Py_NewRef(Py_None);
    const bool ok =
        text && why &&
        list_append(user,
                    Py_BuildValue("(OiNzNnnn)", Py_None, (int)r->finish_reason, why, r->stop_string,
                                  text, (Py_ssize_t)r->prompt_tokens, (Py_ssize_t)r->cached_tokens,
                                  (Py_ssize_t)r->generated_tokens));
    if (!ok) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_DECREF((PyObject *)user);
    PyGILState_Release(state);
}

// ---------------------------------------------------------------------------------------- requests

static bool py_engine_parse_double(PyObject *o, double *to) { // None leaves `to` unchanged
    if (o == Py_None) return true;
    *to = PyFloat_AsDouble(o);
    return !PyErr_Occurred();
}
static bool py_engine_parse_num(PyObject *o, ct_num *to) {
    double value;
    if (o == Py_None) return true;
    if (!py_engine_parse_double(o, &value)) return false;
    *to = CT_F(value);
    return true;
}

static bool py_engine_parse_int(PyObject *o, int64_t *to, const char *name) {
    return o == Py_None || int_parse(o, to, name);
}

typedef struct engine_add_call {
    ct_engine *engine;
    ct_engine_request request;
    int64_t id;
    int32_t *prompt, *ends;
    const char **stops;
    ct_lm_logit_bias *bias;
    ct_lm_tokens *banned;
    size_t n_banned;
} engine_add_call;
static void py_engine_add_request(void *user) {
    engine_add_call *a = user;
    a->id = ct_engine_add_with(a->engine, a->request);
}

// Parses (temperature, top_k, top_p, min_p, typical_p, repetition, no_repeat_ngram_size, min_new_tokens,
// min_length, frequency, presence, seed).
static bool py_engine_parse_sampling(PyObject *o, ct_lm_sampling *s) {
    PyObject *temperature, *top_k, *top_p, *min_p, *typical_p, *repetition, *frequency, *presence,
        *no_repeat, *min_new, *min_length;
    unsigned long long seed;
    if (!PyArg_ParseTuple(o, "OOOOOOOOOOOK:_engine_add", &temperature, &top_k, &top_p, &min_p,
                          &typical_p, &repetition, &no_repeat, &min_new, &min_length, &frequency,
                          &presence, &seed))
        return false;
    s->seed = seed;
    return py_engine_parse_int(top_k, &s->top_k, "top_k") &&
           py_engine_parse_int(no_repeat, &s->no_repeat_ngram_size, "no_repeat_ngram_size") &&
           py_engine_parse_int(min_new, &s->min_new_tokens, "min_new_tokens") &&
           py_engine_parse_int(min_length, &s->min_length, "min_length") &&
           py_engine_parse_num(temperature, &s->temperature) &&
           py_engine_parse_num(top_p, &s->top_p) && py_engine_parse_double(min_p, &s->min_p) &&
           py_engine_parse_num(typical_p, &s->typical_p) &&
           py_engine_parse_num(repetition, &s->repetition_penalty) &&
           py_engine_parse_double(frequency, &s->frequency_penalty) &&
           py_engine_parse_double(presence, &s->presence_penalty);
}

static bool py_engine_parse_stops(PyObject *list, engine_add_call *a) {
    a->request.n_stops = (size_t)PyList_Size(list);
    a->request.stops = a->stops = calloc(a->request.n_stops + 1, sizeof *a->stops);
    bool ok = a->stops || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < a->request.n_stops; i++)
        ok = (a->stops[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, (Py_ssize_t)i), NULL));
    return ok;
}

static bool py_engine_parse_bias(PyObject *list, engine_add_call *a) {
    ct_lm_sampling *s = &a->request.sampling;
    s->n_logit_bias = (size_t)PyList_Size(list);
    s->logit_bias = a->bias = calloc(s->n_logit_bias + 1, sizeof *a->bias);
    bool ok = a->bias || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < s->n_logit_bias; i++) {
        int token;
        ok = PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "if:logit_bias", &token,
                              &a->bias[i].bias);
        a->bias[i].token = token;
    }
    return ok;
}

static bool py_engine_parse_banned(PyObject *list, engine_add_call *a) {
    ct_lm_sampling *s = &a->request.sampling;
    s->n_banned = (size_t)PyList_Size(list);
    s->banned = a->banned = calloc(s->n_banned + 1, sizeof *a->banned);
    if (!a->banned) PyErr_NoMemory();
    for (; a->banned && a->n_banned < s->n_banned; a->n_banned++) {
        ct_lm_tokens *b = &a->banned[a->n_banned];
        int32_t *v;
        if (!tokens_parse(PyList_GetItem(list, (Py_ssize_t)a->n_banned), &v, &b->n,
                          "bad_words_ids"))
            return false;
        b->v = v;
    }
    return a->banned;
}

// _engine_add(engine, prompt, list, max_tokens, eos_ids, stops, sampling, bias, banned, top_logprobs,
// logprobs, include_special)
static PyObject *py_engine_add(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *prompt, *list, *eos_ids, *stops, *sampling, *bias, *banned;
    long long max_tokens, top_logprobs;
    int logprobs, include_special;
    engine_add_call a = {.request.here = api_enter()};
    if (!PyArg_ParseTuple(args, "OOO!LOO!OO!O!Lpp:_engine_add", &o, &prompt, &PyList_Type, &list,
                          &max_tokens, &eos_ids, &PyList_Type, &stops, &sampling, &PyList_Type,
                          &bias, &PyList_Type, &banned, &top_logprobs, &logprobs, &include_special))
        return NULL;
    const engine *e = py_engine_from_capsule(o);
    ct_engine_request *r = &a.request;
    bool ok = e && tokens_parse(prompt, &a.prompt, &r->n_prompt, "prompt");
    if (ok && !(ok = tokens_parse(eos_ids, &a.ends, &r->n_eos_ids, "stop_token_ids")))
        a.ends = NULL;
    ok = ok && py_engine_parse_stops(stops, &a) &&
         py_engine_parse_sampling(sampling, &r->sampling) && py_engine_parse_bias(bias, &a) &&
         py_engine_parse_banned(banned, &a);
    if (ok) {
        a.engine = e->engine;
        r->prompt = a.prompt, r->eos_ids = a.ends;
        r->max_tokens = max_tokens, r->top_logprobs = top_logprobs, r->logprobs = logprobs,
        r->include_special = include_special;
        r->on_token = py_engine_on_token, r->on_finish = py_engine_on_done,
        r->user = Py_NewRef(list);
        // another thread may be in a step, which calls back with the GIL
        ok = run_without_gil(py_engine_add_request, &a);
        if (!a.id) Py_DECREF(list);
    }
    PyMem_Free(a.prompt);
    PyMem_Free(a.ends);
    free(a.stops);
    free(a.bias);
    for (size_t i = 0; i < a.n_banned; i++) PyMem_Free((void *)(uintptr_t)a.banned[i].v);
    free(a.banned);
    return ok ? PyLong_FromLongLong(a.id) : NULL;
}

// ----------------------------------------------------------------------------------------- running

typedef struct engine_call {
    ct_engine *engine;
    int64_t id;
    ct_loc here;
    bool more;
} engine_call;
static void py_engine_run_step(void *user) {
    engine_call *s = user;
    s->more = ct_engine_step_at(s->engine, s->here);
}
static void py_engine_run_cancel(void *user) {
    const engine_call *s = user;
    ct_engine_cancel(s->engine, s->id);
}

// _engine_step(engine): runs one step; returns True if there is more to do.
static PyObject *py_engine_step(PyObject *Py_UNUSED(module), PyObject *o) {
    engine *e = py_engine_from_capsule(o);
    if (!e) return NULL;
    engine_call s = {.engine = e->engine, .here = api_enter()};
    if (!model_run(e->model, py_engine_run_step, &s, s.here) || PyErr_CheckSignals() < 0)
        return NULL;
    return PyBool_FromLong(s.more);
}

// _engine_cancel(engine, id)
static PyObject *py_engine_cancel(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o;
    long long id;
    if (!PyArg_ParseTuple(args, "OL:_engine_cancel", &o, &id)) return NULL;
    engine *e = py_engine_from_capsule(o);
    engine_call s = {.engine = e ? e->engine : NULL, .id = id, .here = api_enter()};
    return none_if(e && run_without_gil(py_engine_run_cancel, &s));
}

PyMethodDef engine_methods[] = {
    {"_engine_new", py_engine_new, METH_VARARGS, NULL},
    {"_engine_add", py_engine_add, METH_VARARGS, NULL},
    {"_engine_step", py_engine_step, METH_O, NULL},
    {"_engine_cancel", py_engine_cancel, METH_VARARGS, NULL},
    {0},
};
