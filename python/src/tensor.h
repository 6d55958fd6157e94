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
    bool holds; // a reference of the parent
    struct tensor_object *children;        // its views, of which each one knows
    struct tensor_object *next, *previous; // the parent's other children
    // The value without its history, of which detach() gives views: they need not hold the history.
    struct tensor_object *twin;
    bool traced;   // a traced function's
    uint64_t seen; // the parent's version that the handle was made of
    move *moves;   // (n_moves) from the parent's value to this one
    size_t n_moves;
} tensor_object;

// A new one, of a class that is Tensor or below it.
PyObject *tensor_of_type(PyTypeObject *type, ct_tensor t, ct_loc here);
void tensor_unname(tensor_object *self);                           // unpins the handle
bool tensor_rename(tensor_object *self, ct_tensor t, ct_loc here); // pins another value

// moves.c
// Whole axes and parts of them, in their order; the results are never the operand itself. A slice goes
// from the first place in steps, which may be negative, up to but not including `stop`; it lies inside.
struct move {
    enum {
        MOVE_SLICE,
        MOVE_PERMUTE,
        MOVE_RESHAPE,
        MOVE_EXPAND,
        MOVE_DIAGONAL, // of the last two axes
        MOVE_WINDOWS,  // along an axis, which may have a place in common: a new last axis
        MOVE_REAL,     // from here on elements are not what they were
        MOVE_IMAG,
        MOVE_CONJ,
        MOVE_PAIRS,    // complex numbers to a last axis of 2
        MOVE_OF_PAIRS, // the other way
        MOVE_BITS,     // as another dtype of the same size
    } kind;
    size_t n; // of each list
    int64_t *
        list[4]; // SLICE: axes, start, stop, step; WINDOWS: {axis, size, step}; DIAGONAL: {offset};
                 // BITS: {dtype}; else sizes, or axes
};
bool move_new(move *to, int kind, const int64_t *const lists[4],
              size_t n); // copies; false: no memory
void moves_free(move *moves, size_t n);
ct_tensor move_forward(const move *m, ct_tensor t, ct_loc here);
ct_tensor move_backward(const move *m, ct_tensor before, ct_tensor part, ct_loc here);
bool moves_repeat(const move *moves, size_t n); // may an element come several times?
ct_tensor moves_put(const move *moves, size_t n, ct_tensor whole, ct_tensor part, ct_loc here);
// Where a view's elements lie in the tensor of which it is one.
typedef struct layout {
    int rank;
    int64_t size[CT_MAX_RANK + 1], step[CT_MAX_RANK + 1];
    bool expanded, unknown; // shared, and not followed any further
} layout;
void layout_begin(layout *l, ct_tensor t);
void layout_move(layout *l, const move *m);
bool layout_shares(const layout *l);          // may several elements be one?
move *moves_parse(PyObject *list, size_t *n); // of a tuple: malloc's; NULL: an exception
bool same_sizes(ct_tensor a, ct_tensor b);
ct_tensor with_shape_of(ct_tensor t, ct_tensor of, bool expand, ct_loc here);
ct_tensor same_value(ct_tensor t, ct_loc here); // by another handle: one has one name

// views.c
// A view of o; takes the moves, whose memory is malloc's.
PyObject *view_new(PyObject *o, move *moves, size_t n, ct_loc here);
// The value without a history, as an object of the class; writes are seen in both.
PyObject *view_detached(PyObject *o, PyTypeObject *type, ct_loc here);
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
bool autograd_has_hooks(const tensor_object *self);
bool autograd_written(tensor_object *self); // in its place
bool make_variable(PyObject *o, bool tracked, ct_loc here);
// The Tensor that is a variable of somebody's set.
PyObject *variable_of(ct_tensor variable, ct_params *set, PyObject *holder, bool tracked,
                      ct_loc here);
extern PyMethodDef autograd_methods[];
extern PyGetSetDef autograd_getters[];
bool autograd_start(PyObject *module);

#endif
