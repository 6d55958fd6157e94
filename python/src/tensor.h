// The object behind cotan.Tensor.
#ifndef COTAN_PYTHON_TENSOR_H
#define COTAN_PYTHON_TENSOR_H

#include "core.h"
#include "threads.h"

typedef struct move move; // views.c

typedef struct tensor_object {
    PyObject_HEAD ct_tensor handle;
    thread *owner;    // where it is pinned; of a variable, who assigned it last
    ct_tensor shared; // the value for other threads, once one has asked
    ct_params *set;   // of a variable, which it then is; else NULL
    PyObject *holder; // a model, to which the set belongs; NULL: it is the tensor's own
    uint64_t version; // how often it was written in its place
    PyObject *grad, *dict, *weak;
    // A view is another tensor's value moved: a write to one is seen in the other.
    struct tensor_object *parent; // NULL: it is none
    bool bare;  // its history is not the parent's, and its writes are not known to gradients
    bool holds; // a reference of it; else the parent knows its only child:
    struct tensor_object *child;
    bool holds_children; // its children hold it
    bool traced;         // a traced function's
    uint64_t seen;       // the parent's version that the handle was made of
    move *moves;         // (n_moves) from the parent's value to this one
    size_t n_moves;
} tensor_object;

void tensor_unname(tensor_object *self);                           // unpins the handle
bool tensor_rename(tensor_object *self, ct_tensor t, ct_loc here); // pins another value

// views.c
// Whole axes and parts of them, in their order; the results are never the operand itself. A slice goes
// from the first place in steps, which may be negative, up to but not including `stop`; it lies inside.
struct move {
    enum { MOVE_SLICE, MOVE_PERMUTE, MOVE_RESHAPE, MOVE_EXPAND } kind;
    size_t n;         // of each list
    int64_t *list[4]; // SLICE: axes, start, stop, step; else sizes, or axes
};
bool move_new(move *to, int kind, const int64_t *const lists[4],
              size_t n); // copies; false: no memory
void moves_free(move *moves, size_t n);
ct_tensor move_forward(const move *m, ct_tensor t, ct_loc here);
// A view of o; takes the moves, whose memory is malloc's.
PyObject *view_new(PyObject *o, move *moves, size_t n, ct_loc here);
void view_forget(tensor_object *self); // it is being collected
bool view_refresh(tensor_object *self, ct_loc here);
// The value in its place: o's and that of all of which it is a view. It is broadcast and cast.
bool tensor_write(PyObject *o, ct_tensor value, ct_loc here);
// The same of what the moves make of o; the part has its sizes and o's dtype.
bool tensor_write_part(PyObject *o, const move *moves, size_t n, ct_tensor part, ct_loc here);
// Is o the view of the parent by these moves, with its newest value?
bool view_is(PyObject *o, PyObject *parent, const move *moves, size_t n);
extern PyMethodDef view_functions[], view_methods[];

// indexing.c
extern PyMethodDef indexing_methods[];
PyObject *index_get(PyObject *self, PyObject *key);
int index_set(PyObject *self, PyObject *key, PyObject *value); // NULL: del

// join.c
extern PyMethodDef join_functions[];

// functions.c
extern int functions_asked;       // so many threads ask what traced functions meet
void functions_meet(PyObject *o); // an operand, where a function is traced
bool functions_tracing(void);     // inside of a traced function, where nothing runs
extern PyMethodDef function_methods[];

// marks.c
void marks_flush(void); // gives owners of marks back that have gone
extern PyMethodDef mark_functions[];

// autograd.c
static inline bool grad_enabled(void) { return !thread_here()->no_grad; }
void autograd_forget(tensor_object *self);
bool make_variable(PyObject *o, bool tracked, ct_loc here);
// The Tensor that is a variable of somebody's set.
PyObject *variable_of(ct_tensor variable, ct_params *set, PyObject *holder, bool tracked,
                      ct_loc here);
extern PyMethodDef autograd_methods[];
extern PyGetSetDef autograd_getters[];
bool autograd_start(PyObject *module);

#endif
