// What scripts/gen-ops.awk derives for each op, and what calls it.
#ifndef COTAN_PYTHON_CALL_H
#define COTAN_PYTHON_CALL_H

#include "core.h"

typedef enum attr_kind {
    ATTR_INT,
    ATTR_INTS,
    ATTR_FLOAT,
    ATTR_BOOL,
    ATTR_NUM,
    ATTR_DTYPE,
    ATTR_MODE,
    ATTR_LAYOUT
} attr_kind;

typedef struct op_attr {
    const char *name;
    attr_kind kind;
    size_t offset; // in the arguments
} op_attr;

enum { OP_MOST_BYTES = 256, OP_MOST_OUT = 4 };

// An op's arguments are a struct: its operands, or a list and its length; then its attributes.
typedef struct op_entry {
    const char *name;
    const char *const *operands;
    const op_attr *attrs;
    int n_operands, n_needed, n_attrs, n_out;
    bool list;    // the only operand is a list
    bool options; // attributes are keywords, and may be left out
    void (*run)(void *args, ct_loc here, ct_tensor *out);
    const char *const *outputs; // of several
    PyTypeObject **result;      // their named tuple
} op_entry;

PyObject *call_op(const op_entry *op, PyObject *const *args, Py_ssize_t n, PyObject *names);

// Derived.
extern PyMethodDef op_methods[];
extern const op_entry *const op_entries[];
extern const size_t op_count;

#endif
