// Raises the library's errors as Python exceptions, and writes its log.
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name;
    PyObject **base; // the exception that Python's own code would raise
    PyObject *type;
} error_classes[] = {
    [CT_E_MEMORY] = {"OutOfMemoryError", &PyExc_MemoryError, NULL},
    [CT_E_SHAPE] = {"ShapeError", &PyExc_ValueError, NULL},
    [CT_E_DTYPE] = {"DTypeError", &PyExc_TypeError, NULL},
    [CT_E_ARGUMENT] = {"ArgumentError", &PyExc_ValueError, NULL},
    [CT_E_STALE] = {"StaleError", &PyExc_RuntimeError, NULL},
    [CT_E_OVERWRITTEN] = {"OverwrittenError", &PyExc_RuntimeError, NULL},
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
    [CT_E_CUSTOM_OP] = {"OpError", &PyExc_RuntimeError, NULL},
};
enum { N_ERROR_CLASSES = sizeof error_classes / sizeof *error_classes };
static PyObject *base_error;

bool errors_init(PyObject *module) {
    base_error = PyErr_NewExceptionWithDoc(
        "cotan.Error", "An error of the library: .text is its sentence, .code its number.",
        PyExc_RuntimeError, NULL); // which PyTorch raises for nearly all of them
    if (!base_error || PyModule_AddObjectRef(module, "Error", base_error) < 0) return false;
    for (int i = 1; i < N_ERROR_CLASSES; i++) {
        char name[64], doc[512];
        snprintf(name, sizeof name, "cotan.%s", error_classes[i].name);
        snprintf(doc, sizeof doc, "%s.", ct_code_title((ct_code)i));
        PyObject *bases = *error_classes[i].base == PyExc_RuntimeError
                              ? PyTuple_Pack(1, base_error)
                              : PyTuple_Pack(2, base_error, *error_classes[i].base);
        error_classes[i].type = bases ? PyErr_NewExceptionWithDoc(name, doc, bases, NULL) : NULL;
        Py_XDECREF(bases);
        if (!error_classes[i].type ||
            PyModule_AddObjectRef(module, error_classes[i].name, error_classes[i].type) < 0)
            return false;
    }
    return true;
}

void take_error(library_error *to) {
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

PyObject *raise_error(void) {
    library_error why;
    take_error(&why);
    return PyErr_Occurred() ? NULL : raise_message(why.code, why.text);
}

PyObject *raise_message(ct_code code, const char *message) {
    PyObject *type =
        code > 0 && (int)code < N_ERROR_CLASSES ? error_classes[code].type : base_error;
    PyObject *text = wording_translate(message);
    PyObject *error = text ? PyObject_CallFunctionObjArgs(type, text, NULL) : NULL;
    PyObject *number = error ? PyLong_FromLong(code) : NULL;
    if (number && PyObject_SetAttrString(error, "text", text) == 0 &&
        PyObject_SetAttrString(error, "code", number) == 0)
        PyErr_SetObject(type, error);
    release(number, error, text);
    return NULL;
}

// --------------------------------------------------------------------------------------------- log

static void py_log_write_to_stream(const char *stream, const char *text, const char *end) {
    PyObject *file = PySys_GetObject(stream);
    if (!file || file == Py_None) return;
    if (PyFile_WriteString(text, file) == 0 && *end) PyFile_WriteString(end, file);
}

static void py_log_warn(const char *text) {
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "cotan") : NULL;
    PyObject *message = logger ? wording_translate(text) : NULL;
    PyObject *done = message ? PyObject_CallMethod(logger, "warning", "sO", "%s", message) : NULL;
    release(done, message, logger, logging);
}

// Writes a message. Warnings go to logging's logger "cotan", which writes them to standard error if it is not
// configured; the output of COTAN_EXPLAIN and COTAN_DUMP goes to standard error; that of ct_print to standard
// output.
static void py_log_write(ct_log_kind kind, const char *text) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (kind == CT_LOG_WARNING)
        py_log_warn(text);
    else
        py_log_write_to_stream(kind == CT_LOG_PRINT ? "stdout" : "stderr", text,
                               kind == CT_LOG_DUMP ? "" : "\n");
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
}

static bool log_is_deferred; // guarded by the GIL, as all below
static struct log_entry {
    struct log_entry *next;
    ct_log_kind kind;
    char text[];
} * log_first, **log_last = &log_first;

static void py_log_defer(ct_log_kind kind, const char *text) {
    const size_t bytes = strlen(text) + 1;
    struct log_entry *log_entry = malloc(sizeof *log_entry + bytes);
    if (!log_entry) return;
    log_entry->next = NULL;
    log_entry->kind = kind;
    memcpy(log_entry->text, text, bytes);
    *log_last = log_entry;
    log_last = &log_entry->next;
}

void errors_log(ct_log_kind kind, const char *text, void *Py_UNUSED(user)) {
    if (!Py_IsInitialized()) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    if (log_is_deferred)
        py_log_defer(kind, text);
    else
        py_log_write(kind, text);
    PyGILState_Release(state);
}
void errors_log_defer(void) { log_is_deferred = true; }
void errors_log_flush(void) {
    log_is_deferred = false;
    while (log_first) {
        struct log_entry *log_entry = log_first;
        if (!(log_first = log_entry->next)) log_last = &log_first;
        py_log_write(log_entry->kind, log_entry->text);
        free(log_entry);
    }
}

// --------------------------------------------------------------------------------------- objects

void release_all(PyObject *const *objects, size_t n) {
    for (size_t i = 0; i < n; i++) Py_XDECREF(objects[i]);
}

PyObject *none_if(bool ok) { return ok ? Py_NewRef(Py_None) : NULL; }
bool list_append(PyObject *list, PyObject *item) {
    const bool ok = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return ok;
}
bool tuple_set(PyObject *tuple, Py_ssize_t i, PyObject *item) {
    return item && PyTuple_SetItem(tuple, i, item) == 0;
}
