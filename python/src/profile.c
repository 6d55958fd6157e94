// The C part of cotan.profiler: a profile of the process, and annotated ranges of a program.
#include "core.h"

#include <cotan/profile.h>

static PyObject *py_profile_begin(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    const ct_loc here = api_enter();
    return none_if(ct_profile_begin_at(here) || raise_error());
}
static PyObject *py_profile_pause(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    ct_profile_pause();
    Py_RETURN_NONE;
}
static PyObject *py_profile_resume(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    ct_profile_resume();
    Py_RETURN_NONE;
}
// _profile_end(trace or None, limits)
static PyObject *py_profile_end(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *trace;
    int limits;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "zp:_profile_end", &trace, &limits)) return NULL;
    return none_if(ct_profile_end_at(trace, limits, here) || raise_error());
}

static PyObject *py_profile_make_row(const ct_profile_row *r) {
    static const char *const kinds[] = {"kernel",           "copy", "op", "plan run", "plan made",
                                        "compiler awaited", "user"};
    PyObject *line =
        r->here.file ? Py_BuildValue("(sI)", r->here.file, r->here.line) : Py_NewRef(Py_None);
    return Py_BuildValue("(sssNKddddd)", kinds[r->kind], r->name, r->device, line, r->calls,
                         r->seconds, r->min_seconds, r->max_seconds, r->bytes, r->flops);
}
// _profile_seen(): returns (rows, seconds, launches, left out, peak bytes, flops and bytes per second of the
// machine, the table).
static PyObject *py_profile_get_result(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    const ct_profile *p = ct_profile_result();
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows && p && i < p->n_rows; i++)
        if (!list_append(rows, py_profile_make_row(&p->rows[i]))) Py_CLEAR(rows);
    if (!rows || !p) return rows;
    return Py_BuildValue("(NddKKdds)", rows, p->seconds, p->launch_seconds, p->dropped_events,
                         p->peak_bytes, p->limits.flops, p->limits.stream_bandwidth,
                         ct_profile_table());
}

static PyObject *py_profile_annotate_begin(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) {
    return PyLong_FromLongLong(ct_annotate_now());
}
// _annotate_end(name, begin)
static PyObject *py_profile_annotate_end(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *name;
    long long since;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "sL:_annotate_end", &name, &since)) return NULL;
    ct_annotation annotation = {name, since, here};
    ct_annotate_end(&annotation);
    Py_RETURN_NONE;
}

PyMethodDef profile_methods[] = {
    {"_profile_begin", py_profile_begin, METH_NOARGS, NULL},
    {"_profile_pause", py_profile_pause, METH_NOARGS, NULL},
    {"_profile_resume", py_profile_resume, METH_NOARGS, NULL},
    {"_profile_end", py_profile_end, METH_VARARGS, NULL},
    {"_profile_seen", py_profile_get_result, METH_NOARGS, NULL},
    {"_annotate_begin", py_profile_annotate_begin, METH_NOARGS, NULL},
    {"_annotate_end", py_profile_annotate_end, METH_VARARGS, NULL},
    {0},
};
