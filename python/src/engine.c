// The engine: requests that go on together, each token of which is put into a list of the request's.
#include "lm.h"

#include <stdlib.h>
#include <string.h>

#include <cotan/engine.h>

static const char capsule_name[] = "cotan.engine";

typedef struct engine {
    ct_engine *engine;
    model *model;
    PyObject *capsule; // of the model
} engine;

static engine *engine_of(PyObject *o) { return PyCapsule_GetPointer(o, capsule_name); }
static void let_go(PyObject *o) {
    engine *e = engine_of(o);
    ct_ctx *mine = ct_ctx_use(e->model->ctx);
    ct_engine_free(e->engine);
    ct_ctx_use(mine);
    Py_DECREF(e->capsule);
    free(e);
}

typedef struct making {
    const ct_lm *lm;
    ct_engine_options o;
    ct_engine *engine;
} making;
static void make(void *user) {
    making *m = user;
    m->engine = ct_engine_new_with(m->lm, m->o);
}

// _engine_new(model, tokenizer or None, texts, waiting, context, memory)
static PyObject *new_engine(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *t;
    long long texts, waiting, context, memory;
    making m = {.o.here = enter()};
    if (!PyArg_ParseTuple(args, "OOLLLL:_engine_new", &o, &t, &texts, &waiting, &context, &memory))
        return NULL;
    model *owner = model_of(o);
    if (!owner || (t != Py_None && !(m.o.tokenizer = tokenizer_of(t)))) return NULL;
    m.lm = owner->lm;
    m.o.texts = texts, m.o.waiting = waiting, m.o.context = context;
    m.o.memory = memory < 0 ? 0 : (uint64_t)memory;
    if (!model_run(owner, make, &m, m.o.here)) return NULL;
    engine *e = calloc(1, sizeof *e);
    if (e) *e = (engine){m.engine, owner, Py_NewRef(o)};
    PyObject *capsule = e ? PyCapsule_New(e, capsule_name, let_go) : PyErr_NoMemory();
    if (!capsule) {
        ct_engine_free(m.engine);
        if (e) Py_DECREF(o);
        free(e);
    }
    return capsule;
}

// ------------------------------------------------------------------------------------- what is told

static bool put(PyObject *list, PyObject *what) {
    const bool ok = what && PyList_Append(list, what) == 0;
    Py_XDECREF(what);
    return ok;
}

static PyObject *likeliest(const ct_engine_token *t) {
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < t->n_top; i++) {
        PyObject *key = PyLong_FromLong(t->top[i].token);
        PyObject *value = PyFloat_FromDouble(t->top[i].log_probability);
        const bool ok = key && value && PyDict_SetItem(dict, key, value) == 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (!ok) Py_CLEAR(dict);
    }
    return dict;
}

// In the middle of a step, which runs without the GIL: (token, log-probability, likeliest, text)
static bool hear(const ct_engine_token *t, void *user) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(t->text ? t->text : "", (Py_ssize_t)t->text_n, "replace");
    PyObject *top = text ? likeliest(t) : NULL;
    const bool ok =
        top && put(user, Py_BuildValue("(idNN)", (int)t->token, t->log_probability, top, text));
    if (!top) Py_XDECREF(text);
    PyGILState_Release(state);
    return ok;
}

// (None, end, why, stop, text, prompt, cached, written): the last one of a request
static void ended(const ct_engine_result *r, void *user) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace; // an exception may be there
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = PyUnicode_DecodeUTF8(r->text ? r->text : "", (Py_ssize_t)r->text_n, "replace");
    PyObject *why = r->why ? in_python(r->why) : Py_NewRef(Py_None);
    const bool ok = text && why &&
                    put(user, Py_BuildValue("(OiNzNnnn)", Py_None, (int)r->end, why, r->stop, text,
                                            (Py_ssize_t)r->prompt, (Py_ssize_t)r->cached,
                                            (Py_ssize_t)r->written));
    if (!ok) PyErr_Clear();
    PyErr_Restore(type, value, trace);
    Py_DECREF((PyObject *)user);
    PyGILState_Release(state);
}

// ------------------------------------------------------------------------------------- what is asked

static bool number(PyObject *o, double *to) { // None: as it is
    if (o == Py_None) return true;
    *to = PyFloat_AsDouble(o);
    return !PyErr_Occurred();
}
static bool given(PyObject *o, ct_num *to) {
    double value;
    if (o == Py_None) return true;
    if (!number(o, &value)) return false;
    *to = CT_F(value);
    return true;
}

static bool whole(PyObject *o, int64_t *to, const char *name) {
    return o == Py_None || parse_int(o, to, name);
}

typedef struct asking {
    ct_engine *engine;
    ct_engine_request request;
    int64_t id;
    int32_t *prompt, *ends;
    const char **stops;
    ct_lm_bias *bias;
    ct_lm_tokens *banned;
    size_t n_banned;
} asking;
static void ask(void *user) {
    asking *a = user;
    a->id = ct_engine_add_with(a->engine, a->request);
}

// (temperature, top_k, top_p, min_p, typical_p, repetition, no_repeat_ngram_size, min_new_tokens, min_length, frequency,
// presence, seed)
static bool read_sampling(PyObject *o, ct_lm_sampling *s) {
    PyObject *temperature, *top_k, *top_p, *min_p, *typical_p, *repetition, *frequency, *presence,
        *no_repeat, *min_new, *min_length;
    unsigned long long seed;
    if (!PyArg_ParseTuple(o, "OOOOOOOOOOOK:_engine_add", &temperature, &top_k, &top_p, &min_p,
                          &typical_p, &repetition, &no_repeat, &min_new, &min_length, &frequency,
                          &presence, &seed))
        return false;
    s->seed = seed;
    return whole(top_k, &s->top_k, "top_k") &&
           whole(no_repeat, &s->no_repeat_ngram_size, "no_repeat_ngram_size") &&
           whole(min_new, &s->min_new_tokens, "min_new_tokens") &&
           whole(min_length, &s->min_length, "min_length") && given(temperature, &s->temperature) &&
           given(top_p, &s->top_p) && number(min_p, &s->min_p) && given(typical_p, &s->typical_p) &&
           given(repetition, &s->repetition_penalty) && number(frequency, &s->frequency_penalty) &&
           number(presence, &s->presence_penalty);
}

static bool read_stops(PyObject *list, asking *a) {
    a->request.n_stops = (size_t)PyList_Size(list);
    a->request.stops = a->stops = calloc(a->request.n_stops + 1, sizeof *a->stops);
    bool ok = a->stops || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < a->request.n_stops; i++)
        ok = (a->stops[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, (Py_ssize_t)i), NULL));
    return ok;
}

static bool read_bias(PyObject *list, asking *a) {
    ct_lm_sampling *s = &a->request.sampling;
    s->n_bias = (size_t)PyList_Size(list);
    s->bias = a->bias = calloc(s->n_bias + 1, sizeof *a->bias);
    bool ok = a->bias || (PyErr_NoMemory(), false);
    for (size_t i = 0; ok && i < s->n_bias; i++) {
        int token;
        ok = PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "if:logit_bias", &token,
                              &a->bias[i].add);
        a->bias[i].token = token;
    }
    return ok;
}

static bool read_banned(PyObject *list, asking *a) {
    ct_lm_sampling *s = &a->request.sampling;
    s->n_banned = (size_t)PyList_Size(list);
    s->banned = a->banned = calloc(s->n_banned + 1, sizeof *a->banned);
    if (!a->banned) PyErr_NoMemory();
    for (; a->banned && a->n_banned < s->n_banned; a->n_banned++) {
        ct_lm_tokens *b = &a->banned[a->n_banned];
        int32_t *v;
        if (!parse_tokens(PyList_GetItem(list, (Py_ssize_t)a->n_banned), &v, &b->n,
                          "bad_words_ids"))
            return false;
        b->v = v;
    }
    return a->banned;
}

// _engine_add(engine, prompt, list, most, ends, stops, sampling, bias, banned, likely, log_probabilities, keep_special)
static PyObject *add(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o, *prompt, *list, *ends, *stops, *sampling, *bias, *banned;
    long long most, likely;
    int logs, keep;
    asking a = {.request.here = enter()};
    if (!PyArg_ParseTuple(args, "OOO!LOO!OO!O!Lpp:_engine_add", &o, &prompt, &PyList_Type, &list,
                          &most, &ends, &PyList_Type, &stops, &sampling, &PyList_Type, &bias,
                          &PyList_Type, &banned, &likely, &logs, &keep))
        return NULL;
    const engine *e = engine_of(o);
    ct_engine_request *r = &a.request;
    bool ok = e && parse_tokens(prompt, &a.prompt, &r->n_prompt, "prompt");
    if (ok && !(ok = parse_tokens(ends, &a.ends, &r->n_ends, "stop_token_ids"))) a.ends = NULL;
    ok = ok && read_stops(stops, &a) && read_sampling(sampling, &r->sampling) &&
         read_bias(bias, &a) && read_banned(banned, &a);
    if (ok) {
        a.engine = e->engine;
        r->prompt = a.prompt, r->ends = a.ends;
        r->most = most, r->likely = likely, r->log_probabilities = logs, r->keep_special = keep;
        r->token = hear, r->done = ended, r->user = Py_NewRef(list);
        ok = run_free(ask, &a); // a step, in which tokens are told, may have the engine just now
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

// ------------------------------------------------------------------------------------------- running

typedef struct stepping {
    ct_engine *engine;
    int64_t id;
    ct_loc here;
    bool more;
    ct_engine_state state;
} stepping;
static void step_now(void *user) {
    stepping *s = user;
    s->more = ct_engine_step_at(s->engine, s->here);
}
static void cancel_now(void *user) {
    const stepping *s = user;
    ct_engine_cancel(s->engine, s->id);
}
static void look_now(void *user) {
    stepping *s = user;
    s->state = ct_engine_look(s->engine);
}

// _engine_step(engine): is there more to do?
static PyObject *step(PyObject *module, PyObject *o) {
    (void)module;
    engine *e = engine_of(o);
    if (!e) return NULL;
    stepping s = {.engine = e->engine, .here = enter()};
    if (!model_run(e->model, step_now, &s, s.here) || PyErr_CheckSignals() < 0) return NULL;
    return PyBool_FromLong(s.more);
}

// _engine_cancel(engine, id)
static PyObject *cancel(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *o;
    long long id;
    if (!PyArg_ParseTuple(args, "OL:_engine_cancel", &o, &id)) return NULL;
    engine *e = engine_of(o);
    stepping s = {.engine = e ? e->engine : NULL, .id = id, .here = enter()};
    if (!e || !run_free(cancel_now, &s)) return NULL;
    Py_RETURN_NONE;
}

// _engine_look(engine): a dict
static PyObject *look(PyObject *module, PyObject *o) {
    (void)module;
    const engine *e = engine_of(o);
    if (!e) return NULL;
    stepping s = {.engine = e->engine, .here = enter()};
    if (!run_free(look_now, &s)) return NULL;
    const ct_engine_state *a = &s.state;
    return Py_BuildValue("{sLsLsLsLsLsLsLsLsL}", "running", (long long)a->running, "waiting",
                         (long long)a->waiting, "steps", (long long)a->steps, "read",
                         (long long)a->read, "cached", (long long)a->cached, "written",
                         (long long)a->written, "preempted", (long long)a->preempted, "finished",
                         (long long)a->finished, "cancelled", (long long)a->cancelled);
}

PyMethodDef engine_methods[] = {
    {"_engine_new", new_engine, METH_VARARGS, NULL},
    {"_engine_add", add, METH_VARARGS, NULL},
    {"_engine_step", step, METH_O, NULL},
    {"_engine_cancel", cancel, METH_VARARGS, NULL},
    {"_engine_look", look, METH_O, NULL},
    {0},
};
