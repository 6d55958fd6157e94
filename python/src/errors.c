// Errors of the library as Python's exceptions, and its log.
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name;
    PyObject **base; // what Python's own code would raise
    PyObject *type;
} classes[] = {
    [CT_E_MEMORY] = {"OutOfMemoryError", &PyExc_MemoryError, NULL},
    [CT_E_SHAPE] = {"ShapeError", &PyExc_ValueError, NULL},
    [CT_E_DTYPE] = {"DTypeError", &PyExc_TypeError, NULL},
    [CT_E_ARGUMENT] = {"ArgumentError", &PyExc_ValueError, NULL},
    [CT_E_STALE] = {"StaleError", &PyExc_RuntimeError, NULL},
    [CT_E_SPENT] = {"SpentError", &PyExc_RuntimeError, NULL},
    [CT_E_CONTEXT] = {"ContextError", &PyExc_RuntimeError, NULL},
    [CT_E_TRACE] = {"TraceError", &PyExc_RuntimeError, NULL},
    [CT_E_GRAD] = {"GradError", &PyExc_RuntimeError, NULL},
    [CT_E_FILE] = {"FileError", &PyExc_OSError, NULL},
    [CT_E_FORMAT] = {"FormatError", &PyExc_ValueError, NULL},
    [CT_E_DATA] = {"DataError", &PyExc_ValueError, NULL},
    [CT_E_USAGE] = {"UsageError", &PyExc_ValueError, NULL},
    [CT_E_COMPILER] = {"CompilerError", &PyExc_RuntimeError, NULL},
    [CT_E_DEVICE] = {"DeviceError", &PyExc_RuntimeError, NULL},
    [CT_E_UNSET] = {"UnsetError", &PyExc_RuntimeError, NULL},
    [CT_E_UNSUPPORTED] = {"UnsupportedError", &PyExc_NotImplementedError, NULL},
    [CT_E_INTERRUPTED] = {"Interrupted", &PyExc_RuntimeError, NULL},
    [CT_E_INTERNAL] = {"InternalError", &PyExc_RuntimeError, NULL},
    [CT_E_LIMIT] = {"MemoryLimitError", &PyExc_MemoryError, NULL},
    [CT_E_FORK] = {"ForkError", &PyExc_RuntimeError, NULL},
    [CT_E_CHECK] = {"CheckError", &PyExc_RuntimeError, NULL},
    [CT_E_LINALG] = {"LinAlgError", &PyExc_ValueError, NULL},
    [CT_E_OUTSIDE] = {"OpError", &PyExc_RuntimeError, NULL},
};
enum { CLASSES = sizeof classes / sizeof *classes };
static PyObject *base_error;

bool errors_start(PyObject *module) {
    base_error = PyErr_NewExceptionWithDoc(
        "cotan.Error", "An error of the library: .text is its sentence, .code its number.", NULL,
        NULL);
    if (!base_error || PyModule_AddObjectRef(module, "Error", base_error) < 0) return false;
    for (int i = 1; i < CLASSES; i++) {
        char name[64], doc[512];
        snprintf(name, sizeof name, "cotan.%s", classes[i].name);
        snprintf(doc, sizeof doc, "%s.", ct_code_title((ct_code)i));
        PyObject *bases = PyTuple_Pack(2, base_error, *classes[i].base);
        classes[i].type = bases ? PyErr_NewExceptionWithDoc(name, doc, bases, NULL) : NULL;
        Py_XDECREF(bases);
        if (!classes[i].type || PyModule_AddObjectRef(module, classes[i].name, classes[i].type) < 0)
            return false;
    }
    return true;
}

void take_failure(failure *to) {
    to->code = ct_error_code();
    snprintf(to->text, sizeof to->text, "%s",
             to->code == CT_E_FORK
                 ? "this process was forked from one that had used Cotan, and cannot use it\n"
                   "  hint: multiprocessing's start methods \"spawn\" and \"forkserver\" "
                   "work; or fork before the first use"
             : to->code ? ct_error_text()
                        : "the tensor has no value: what should have computed it failed before");
    ct_error_clear();
}

PyObject *raise_failure(void) {
    failure why;
    take_failure(&why);
    return PyErr_Occurred() ? NULL : raise_text(why.code, why.text);
}

PyObject *raise_text(ct_code code, const char *said) {
    PyObject *type = code > 0 && (int)code < CLASSES ? classes[code].type : base_error;
    PyObject *text = in_python(said);
    PyObject *error = text ? PyObject_CallFunctionObjArgs(type, text, NULL) : NULL;
    PyObject *number = error ? PyLong_FromLong(code) : NULL;
    if (number && PyObject_SetAttrString(error, "text", text) == 0 &&
        PyObject_SetAttrString(error, "code", number) == 0)
        PyErr_SetObject(type, error);
    Py_XDECREF(number);
    Py_XDECREF(error);
    Py_XDECREF(text);
    return NULL;
}

// ---------------------------------------------------------------------------------------------- log

static void write_to(const char *stream, const char *text, const char *end) {
    PyObject *file = PySys_GetObject(stream);
    if (!file || file == Py_None) return;
    if (PyFile_WriteString(text, file) == 0 && *end) PyFile_WriteString(end, file);
}

static void warn(const char *text) {
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "cotan") : NULL;
    PyObject *said = logger ? in_python(text) : NULL;
    PyObject *done = said ? PyObject_CallMethod(logger, "warning", "sO", "%s", said) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(said);
    Py_XDECREF(logger);
    Py_XDECREF(logging);
}

// Warnings go to logging's logger "cotan", which writes them to standard error where nobody has set
// it up; what COTAN_EXPLAIN and COTAN_DUMP ask for to standard error; ct_print to standard output.
static void say(ct_log_kind kind, const char *text) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (kind == CT_LOG_WARNING)
        warn(text);
    else
        write_to(kind == CT_LOG_PRINT ? "stdout" : "stderr", text, kind == CT_LOG_DUMP ? "" : "\n");
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

static bool waits; // with the GIL, as all below
static struct said {
    struct said *next;
    ct_log_kind kind;
    char text[];
} * first, **last = &first;

static void keep(ct_log_kind kind, const char *text) {
    const size_t bytes = strlen(text) + 1;
    struct said *said = malloc(sizeof *said + bytes);
    if (!said) return;
    said->next = NULL;
    said->kind = kind;
    memcpy(said->text, text, bytes);
    *last = said;
    last = &said->next;
}

void errors_log(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (!Py_IsInitialized()) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    if (waits)
        keep(kind, text);
    else
        say(kind, text);
    PyGILState_Release(state);
}
void errors_log_later(void) { waits = true; }
void errors_log_now(void) {
    waits = false;
    while (first) {
        struct said *said = first;
        if (!(first = said->next)) last = &first;
        say(said->kind, said->text);
        free(said);
    }
}
