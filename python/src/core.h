// cotan._core: the extension over the public headers, for the stable ABI of Python 3.11.
//
// Everything here runs with the GIL held, but plans (run.c). A function that returns NULL, or false,
// has set a Python exception; one that returns a tensor gives a poisoned one then.
#ifndef COTAN_PYTHON_CORE_H
#define COTAN_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <structmember.h>

#include "cotan/binding.h"
#include "cotan/cotan.h"
#include "cotan/extend.h"

// ------------------------------------------------------------------------------------ where.c
// The user's line: that of the innermost frame whose file is not the package's. It also is what each
// entry begins with: the thread's context is there, and what other threads gave back is unpinned.
ct_loc enter(void);
bool where_start(PyObject *folder); // of the package, with a slash behind it

// ----------------------------------------------------------------------------------- errors.c
bool errors_start(PyObject *module);
// Raises what the context says, clears it there, and gives NULL. An exception that is there already stays:
// it tells why the tensor was missing of which the context speaks.
PyObject *raise_failure(void);
typedef struct failure {
    ct_code code;
    char text[2048];
} failure;
void take_failure(failure *to); // clears it in the context
PyObject *raise_text(ct_code code, const char *text);
void errors_log(ct_log_kind kind, const char *text, void *user);
// Between them texts wait: Python's functions that they go to let other threads run.
void errors_log_later(void);
void errors_log_now(void);

// ---------------------------------------------------------------------------------- wording.c
PyObject *in_python(const char *said); // what the library says, with Python's names: a new string

// -------------------------------------------------------------------------------------- run.c
// Reads that may run a plan: without the GIL, and ended by Ctrl-C.
const void *run_borrow(ct_tensor t, ct_loan **loan,
                       ct_loc here); // until ct_loan_end; NULL: an exception
bool run_eval(const ct_tensor *t, size_t n, ct_loc here);
struct thread;
bool run_there(struct thread *owner, const ct_tensor *t, size_t n, ct_loc here); // another thread's

// ------------------------------------------------------------------------------------ dtype.c
bool dtype_start(PyObject *module);
PyObject *dtype_object(ct_dtype dtype); // a new reference
// Of a dtype, NumPy's, a Python type, a string, or None (0). False: TypeError.
bool dtype_parse(PyObject *o, ct_dtype *dtype);
const char *dtype_text(ct_dtype dtype);    // "float32"
const char *dtype_format(ct_dtype dtype);  // of the buffer protocol; NULL: it has none
const char *dtype_storage(ct_dtype dtype); // NumPy's name of what has the same bits
PyObject *dtype_numpy(ct_dtype dtype);     // a new reference to NumPy's dtype
ct_dtype dtype_of_name(const char *name);  // CT_DEFAULT: no such name
ct_dtype dtype_of_format(const char *format, Py_ssize_t bytes, bool *swapped);
char dtype_kind(ct_dtype dtype); // b bool, i and u integers, f floats, c complex

// ----------------------------------------------------------------------------------- tensor.c
extern PyTypeObject *tensor_type;
bool tensor_start(PyObject *module);
// The object that names t: it pins t, or raises the context's error.
PyObject *tensor_new(ct_tensor t, ct_loc here);
PyObject *tensor_one_of(ct_tensor t, ct_loc here); // where others have no name yet: nothing runs
bool tensor_check(PyObject *o);
// Of a Tensor: its value, to be read or looked at; and as an operand, which has no history where none
// is kept. Another thread's is evaluated first, and has no history here: as an operand it is then an error where
// histories are kept. CT_NONE: an exception.
ct_tensor tensor_handle(PyObject *o);
ct_tensor tensor_value(PyObject *o, ct_loc here);
// Its sizes and dtype alone are asked for: nothing runs. CT_NONE: an exception.
ct_tensor tensor_look(PyObject *o);
bool tensor_is_own(PyObject *o);                           // this thread's, or a variable
PyObject *tensor_shape(ct_tensor t);                       // a cotan.Size
PyObject *tensor_classes(PyObject *size, PyObject *count); // cotan.Size, and of Tensor.size

// ------------------------------------------------------------------------------------- make.c
// What an operand is: a Tensor, a number (weak), or an array, a buffer, a list (copied).
bool operand(PyObject *o, ct_tensor *t, ct_loc here);
bool operand_for(PyObject *o, ct_dtype target, ct_tensor *t,
                 ct_loc here); // of what is written there
bool is_operand(PyObject *o);  // of operators: neither a list nor a buffer of bytes
// A tensor of the default dtypes or `dtype`, and not a weak number.
bool make_tensor(PyObject *o, ct_dtype dtype, ct_tensor *t, ct_loc here);
ct_tensor cast_data(ct_tensor t, ct_dtype want, ct_loc here); // of few elements at once
bool make_strong(PyObject *o, ct_tensor *t, ct_loc here);
bool is_number(PyObject *o);
// Whole numbers: one, a sequence or None (n 0). `what` names it in errors.
bool parse_ints(PyObject *o, int64_t *to, size_t room, size_t *n, const char *what);
bool parse_int(PyObject *o, int64_t *to, const char *what);
PyObject *numpy_module(void); // borrowed; imported at the first use

// ------------------------------------------------------------------------------------- read.c
PyObject *read_item(ct_tensor t, ct_loc here);
PyObject *read_tolist(PyObject *self, PyObject *unused);
PyObject *read_numpy(PyObject *self, ct_loc here);
int read_buffer(PyObject *self, Py_buffer *view, int flags);
void read_release(PyObject *self, Py_buffer *view);
extern PyMethodDef read_methods[];

// ----------------------------------------------------------------------------------- dlpack.c
bool is_cpu(PyObject *device); // or None; else ValueError
// Another library's array, shared where that is possible; `copy` is None, True or False.
bool dlpack_import(PyObject *x, PyObject *copy, ct_tensor *t, ct_loc here);
void dlpack_flush(void); // gives back memory of others that nothing needs any more
extern PyMethodDef dlpack_methods[], dlpack_functions[];

// -------------------------------------------------------------------------------- operators.c
extern PyType_Slot operator_slots[]; // ended by {0}
extern PyMethodDef operator_functions[];

// ------------------------------------------------------------------------------------- call.c
bool call_start(PyObject *module);
extern PyMethodDef make_methods[];

// ---------------------------------------------------------------------------------- library.c
extern PyMethodDef library_methods[], profile_methods[];

// ------------------------------------------------------------------------------------ files.c
extern PyMethodDef file_functions[];

// ----------------------------------------------------------------------------------- places.c
const char *place_name(PyObject *name);                            // a device's; NULL: an exception
ct_tensor place_beside(ct_tensor t, ct_tensor other, ct_loc here); // t, where the other lies
extern PyMethodDef place_methods[], place_functions[];

#endif
