#include "io/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/utf8.h"

typedef ct_pickle_value value;

enum { MAX_MADE = 1 << 19, MAX_KEY = 256 };

// --------------------------------------------------------------------- globals that a pickle may name

typedef enum global_kind {
    ORDERED_DICT,
    SIZE,
    REBUILD,    // (storage, offset, sizes, strides ...): the elements have the storage's type
    REBUILD_V3, // (storage, offset, sizes, strides, requires_grad, hooks, dtype)
    PARAMETER,  // (tensor, requires_grad, hooks)
    STORAGE,
    DTYPE,
} global_kind;

typedef struct ct_pickle_global {
    const char *module, *name;
    global_kind kind;
    ct_pickle_type type; // of a storage, or the dtype itself
} global;

#define TYPE(name, storage, dtype)                                                                 \
    {"torch", storage, STORAGE, {name, dtype}}, {                                                  \
        "torch", name, DTYPE, { name, dtype }                                                      \
    }
#define DTYPE_ONLY(name, dtype)                                                                    \
    {                                                                                              \
        "torch", name, DTYPE, { name, dtype }                                                      \
    } // for dtypes without a storage class
static const global globals[] = {
    {"collections", "OrderedDict", ORDERED_DICT, {0}},
    {"torch", "Size", SIZE, {0}},
    {"torch._utils", "_rebuild_tensor", REBUILD, {0}},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD, {0}},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_V3, {0}},
    {"torch._utils", "_rebuild_parameter", PARAMETER, {0}},
    {"torch.storage", "UntypedStorage", STORAGE, {"bytes", CT_DEFAULT}},
    TYPE("bool", "BoolStorage", CT_BOOL),
    TYPE("uint8", "ByteStorage", CT_U8),
    TYPE("int8", "CharStorage", CT_I8),
    TYPE("int16", "ShortStorage", CT_I16),
    TYPE("int32", "IntStorage", CT_I32),
    TYPE("int64", "LongStorage", CT_I64),
    TYPE("float16", "HalfStorage", CT_F16),
    TYPE("bfloat16", "BFloat16Storage", CT_BF16),
    TYPE("float32", "FloatStorage", CT_F32),
    TYPE("float64", "DoubleStorage", CT_F64),
    TYPE("complex64", "ComplexFloatStorage", CT_C64),
    TYPE("complex128", "ComplexDoubleStorage", CT_C128),
    DTYPE_ONLY("uint16", CT_U16),
    DTYPE_ONLY("uint32", CT_U32),
    DTYPE_ONLY("uint64", CT_U64),
    DTYPE_ONLY("float8_e4m3fn", CT_F8E4M3),
    DTYPE_ONLY("float8_e5m2", CT_F8E5M2),
};

// ------------------------------------------------------------------------------------------- unpickler

typedef struct unpickler {
    ct_pickle *p;
    const unsigned char *start, *at, *end;
    size_t opcode; // offset of the current opcode
    value **stack;
    size_t n, cap;
    size_t *marks; // stack heights
    size_t n_marks, marks_cap;
    value **memo;
    size_t n_memo, memo_cap; // entries below n_memo are set, or NULL
    size_t n_made;           // number of storages and tensors
    ct_err *err;
} unpickler;

__attribute__((format(printf, 2, 3))) static bool pickle_refuse(unpickler *u, const char *format,
                                                                ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err_part(u->err, u->p->label, u->p->part, "byte %zu: %s", u->opcode, text);
}

static bool pickle_refuse_memory(unpickler *u, size_t bytes) {
    return ct__err_memory(u->err, CT_NOWHERE, u->p->label, bytes);
}

static bool pickle_read_bytes(unpickler *u, void *to, size_t n) {
    if ((size_t)(u->end - u->at) < n)
        return pickle_refuse(u, "the pickle ends at byte %zu, inside an opcode",
                             (size_t)(u->end - u->start));
    memcpy(to, u->at, n);
    u->at += n;
    return true;
}

static bool pickle_push(unpickler *u, value *v) {
    if (!CT_GROW(u->stack, u->cap, u->n + 1))
        return pickle_refuse_memory(u, u->cap * 2 * sizeof *u->stack);
    u->stack[u->n++] = v;
    return true;
}

static value *pickle_new_value(unpickler *u, ct_pickle_kind kind) {
    value *v = ct__arena_zero(&u->p->arena, sizeof *v);
    if (!v) pickle_refuse_memory(u, sizeof *v);
    if (v) v->kind = (uint8_t)kind;
    return v;
}

static bool pickle_push_integer(unpickler *u, ct_pickle_kind kind, int64_t integer) {
    value *v = pickle_new_value(u, kind);
    if (v) v->integer = integer;
    return v && pickle_push(u, v);
}

// Checks that the stack has n values above the last mark, for the current opcode.
static bool pickle_check_stack(unpickler *u, size_t n) {
    size_t floor = u->n_marks ? u->marks[u->n_marks - 1] : 0;
    return u->n - floor >= n ||
           pickle_refuse(u, "opcode 0x%02x needs %zu value%s, but the stack has %zu",
                         u->start[u->opcode], n, n == 1 ? "" : "s", u->n - floor);
}

// Pops the last mark and the values above it.
static bool pickle_pop_mark(unpickler *u, value ***items, size_t *n) {
    if (!u->n_marks)
        return pickle_refuse(u, "opcode 0x%02x needs a mark, but there is none",
                             u->start[u->opcode]);
    size_t floor = u->marks[--u->n_marks];
    *items = u->n > floor ? u->stack + floor : NULL;
    *n = u->n - floor;
    u->n = floor;
    return true;
}

static const char *pickle_kind_name(const value *v) {
    static const char *const names[] = {
        [CT_PICKLE_NONE] = "None",         [CT_PICKLE_BOOL] = "a bool",
        [CT_PICKLE_INT] = "an integer",    [CT_PICKLE_BIGINT] = "an integer",
        [CT_PICKLE_REAL] = "a float",      [CT_PICKLE_TEXT] = "a string",
        [CT_PICKLE_TUPLE] = "a tuple",     [CT_PICKLE_LIST] = "a list",
        [CT_PICKLE_DICT] = "a dict",       [CT_PICKLE_GLOBAL] = "a global",
        [CT_PICKLE_STORAGE] = "a storage", [CT_PICKLE_TENSOR] = "a tensor"};
    return names[v->kind];
}

// ---------------------------------------------------------------------------------------- containers

static bool pickle_append(unpickler *u, value *to, value **items, size_t n) {
    if (to->count + n > to->cap) {
        size_t cap = to->cap * 2 > to->count + n ? to->cap * 2 : to->count + n;
        value **larger = ct__arena(&u->p->arena, cap * sizeof *larger);
        if (!larger) return pickle_refuse_memory(u, cap * sizeof *larger);
        if (to->count) memcpy(larger, to->items, to->count * sizeof *larger);
        to->items = larger;
        to->cap = cap;
    }
    if (n) memcpy(to->items + to->count, items, n * sizeof *items);
    to->count += n;
    return true;
}

static bool pickle_push_tuple(unpickler *u, value **items, size_t n) {
    value *v = pickle_new_value(u, CT_PICKLE_TUPLE);
    return v && pickle_append(u, v, items, n) && pickle_push(u, v);
}

static bool pickle_push_short_tuple(unpickler *u, size_t n) {
    if (!pickle_check_stack(u, n)) return false;
    u->n -= n;
    return pickle_push_tuple(u, u->stack + u->n, n);
}

// Appends to the list or dict on top of the stack.
static bool pickle_extend(unpickler *u, ct_pickle_kind kind, value **items, size_t n) {
    if (!pickle_check_stack(u, 1)) return false;
    value *to = u->stack[u->n - 1];
    if (to->kind != kind)
        return pickle_refuse(u, "values are added to %s, not to %s", pickle_kind_name(to),
                             kind == CT_PICKLE_LIST ? "a list" : "a dict");
    if (kind == CT_PICKLE_DICT && n % 2) return pickle_refuse(u, "a key without a value");
    return pickle_append(u, to, items, n);
}

static bool pickle_run_container_op(unpickler *u, unsigned op) {
    value **items = NULL, *v = NULL;
    size_t n = op == 'a' ? 1 : 2;
    switch (op) {
    case ']': return (v = pickle_new_value(u, CT_PICKLE_LIST)) && pickle_push(u, v);
    case '}': return (v = pickle_new_value(u, CT_PICKLE_DICT)) && pickle_push(u, v);
    case ')': return pickle_push_tuple(u, NULL, 0);
    case 't': return pickle_pop_mark(u, &items, &n) && pickle_push_tuple(u, items, n);
    case 0x85: return pickle_push_short_tuple(u, 1);
    case 0x86: return pickle_push_short_tuple(u, 2);
    case 0x87: return pickle_push_short_tuple(u, 3);
    case 'a': // one value; 's': a key and its value
    case 's':
        if (!pickle_check_stack(u, n + 1)) return false;
        u->n -= n;
        return pickle_extend(u, op == 'a' ? CT_PICKLE_LIST : CT_PICKLE_DICT, u->stack + u->n, n);
    case 'e': return pickle_pop_mark(u, &items, &n) && pickle_extend(u, CT_PICKLE_LIST, items, n);
    default:
        return pickle_pop_mark(u, &items, &n) && pickle_extend(u, CT_PICKLE_DICT, items, n); // 'u'
    }
}

// ------------------------------------------------------------------------------------------ scalars

static uint64_t pickle_little_endian(const unsigned char *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

// Pushes a string of n bytes, or an integer of n bytes.
static bool pickle_push_bytes(unpickler *u, ct_pickle_kind kind, uint64_t n) {
    if (n > (uint64_t)(u->end - u->at))
        return pickle_refuse(u, "a value of %" PRIu64 " bytes, but the pickle ends at byte %zu", n,
                             (size_t)(u->end - u->start));
    const unsigned char *bytes = u->at;
    u->at += n;
    if (kind == CT_PICKLE_BIGINT && n <= 8) {
        uint64_t v = pickle_little_endian(bytes, n);
        if (n && n < 8 && bytes[n - 1] & 0x80) v |= UINT64_MAX << (8 * n);
        return pickle_push_integer(u, CT_PICKLE_INT, (int64_t)v);
    }
    if (kind == CT_PICKLE_TEXT && ct__utf8_bad(bytes, n) < n)
        return pickle_refuse(u, "a string is not UTF-8");
    value *v = pickle_new_value(u, kind);
    if (!v) return false;
    v->s = (const char *)bytes;
    v->n = n;
    return pickle_push(u, v);
}

// Pushes a value whose length is in the `width` bytes before it.
static bool pickle_push_counted(unpickler *u, ct_pickle_kind kind, size_t width) {
    unsigned char length[8] = {0};
    return pickle_read_bytes(u, length, width) &&
           pickle_push_bytes(u, kind, pickle_little_endian(length, width));
}

static bool pickle_run_scalar_op(unpickler *u, unsigned op) {
    unsigned char b[8] = {0};
    value *v = NULL;
    switch (op) {
    case 'N': return pickle_push_integer(u, CT_PICKLE_NONE, 0);
    case 0x88: return pickle_push_integer(u, CT_PICKLE_BOOL, 1);
    case 0x89: return pickle_push_integer(u, CT_PICKLE_BOOL, 0);
    case 'J':
        return pickle_read_bytes(u, b, 4) &&
               pickle_push_integer(u, CT_PICKLE_INT, (int32_t)pickle_little_endian(b, 4));
    case 'K': return pickle_read_bytes(u, b, 1) && pickle_push_integer(u, CT_PICKLE_INT, b[0]);
    case 'M':
        return pickle_read_bytes(u, b, 2) &&
               pickle_push_integer(u, CT_PICKLE_INT, (int64_t)pickle_little_endian(b, 2));
    case 0x8a: return pickle_push_counted(u, CT_PICKLE_BIGINT, 1);
    case 0x8b: return pickle_push_counted(u, CT_PICKLE_BIGINT, 4);
    case 0x8c: return pickle_push_counted(u, CT_PICKLE_TEXT, 1);
    case 'X': return pickle_push_counted(u, CT_PICKLE_TEXT, 4);
    case 0x8d: return pickle_push_counted(u, CT_PICKLE_TEXT, 8);
    default: break;
    }
    if (!pickle_read_bytes(u, b, 8) || !(v = pickle_new_value(u, CT_PICKLE_REAL)))
        return false; // 'G', big-endian
    uint64_t bits = __builtin_bswap64(pickle_little_endian(b, 8));
    memcpy(&v->real, &bits, sizeof bits);
    return pickle_push(u, v);
}

// ---------------------------------------------------------------------------------------------- memo

static bool pickle_memo_put(unpickler *u, uint64_t i) {
    if (!pickle_check_stack(u, 1)) return false;
    // Writers count from 0, so an index is not larger than the number of opcodes.
    if (i > u->opcode)
        return pickle_refuse(u, "place %" PRIu64 " of the memo is further than there are opcodes",
                             i);
    if (!CT_GROW(u->memo, u->memo_cap, i + 1))
        return pickle_refuse_memory(u, (i + 1) * sizeof *u->memo);
    while (u->n_memo <= i) u->memo[u->n_memo++] = NULL;
    u->memo[i] = u->stack[u->n - 1];
    return true;
}

static bool pickle_memo_get(unpickler *u, uint64_t i) {
    if (i >= u->n_memo || !u->memo[i])
        return pickle_refuse(u, "place %" PRIu64 " of the memo is empty", i);
    return pickle_push(u, u->memo[i]);
}

static bool pickle_run_memo_op(unpickler *u, unsigned op) {
    unsigned char b[4] = {0};
    size_t width = op == 'q' || op == 'h' ? 1 : 4;
    if (op == 0x94) return pickle_memo_put(u, u->n_memo);
    if (!pickle_read_bytes(u, b, width)) return false;
    return op == 'q' || op == 'r' ? pickle_memo_put(u, pickle_little_endian(b, width))
                                  : pickle_memo_get(u, pickle_little_endian(b, width));
}

// --------------------------------------------------------------------------------- globals and tensors

static bool pickle_equal(const char *name, const char *s, size_t n) {
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

static bool pickle_push_global(unpickler *u, const char *module, size_t module_n, const char *name,
                               size_t name_n) {
    char shown[CT_PRINTABLE], shown_name[CT_PRINTABLE];
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        const global *g = &globals[i];
        if (!pickle_equal(g->module, module, module_n) || !pickle_equal(g->name, name, name_n))
            continue;
        value *v = pickle_new_value(u, CT_PICKLE_GLOBAL);
        if (v) v->global = g;
        return v && pickle_push(u, v);
    }
    return pickle_refuse(
        u, "it names \"%s.%s\": only tensors and plain values are read, nothing is called",
        ct__printable(module, module_n, shown, sizeof shown),
        ct__printable(name, name_n, shown_name, sizeof shown_name));
}

// Reads the name of a global: two lines of text, or two values of the stack.
static bool pickle_read_global(unpickler *u, unsigned op) {
    if (op == 0x93) {
        if (!pickle_check_stack(u, 2)) return false;
        const value *module = u->stack[u->n - 2], *name = u->stack[u->n - 1];
        if (module->kind != CT_PICKLE_TEXT || name->kind != CT_PICKLE_TEXT)
            return pickle_refuse(u, "the name of a global is %s and %s, not two strings",
                                 pickle_kind_name(module), pickle_kind_name(name));
        u->n -= 2;
        return pickle_push_global(u, module->s, module->n, name->s, name->n);
    }
    const unsigned char *first = u->at;
    const unsigned char *middle = memchr(first, '\n', (size_t)(u->end - first));
    const unsigned char *last =
        middle ? memchr(middle + 1, '\n', (size_t)(u->end - middle - 1)) : NULL;
    if (!last)
        return pickle_refuse(u, "the pickle ends at byte %zu, inside an opcode",
                             (size_t)(u->end - u->start));
    u->at = last + 1;
    return pickle_push_global(u, (const char *)first, (size_t)(middle - first),
                              (const char *)middle + 1, (size_t)(last - middle - 1));
}

// Limits the number of storages and tensors: a few bytes make one, and may do so repeatedly from
// the same values of the memo.
static bool pickle_count_made(unpickler *u) {
    return u->n_made++ < MAX_MADE ||
           pickle_refuse(u, "more than %d storages and tensors", MAX_MADE);
}

// The persistent id is ("storage", type, key, location, elements ...).
static bool pickle_push_storage(unpickler *u) {
    if (!pickle_check_stack(u, 1)) return false;
    const value *t = u->stack[--u->n];
    value **item = t->items;
    if (t->kind != CT_PICKLE_TUPLE || t->count < 5 || item[0]->kind != CT_PICKLE_TEXT ||
        !pickle_equal("storage", item[0]->s, item[0]->n) || item[1]->kind != CT_PICKLE_GLOBAL ||
        item[1]->global->kind != STORAGE || item[2]->kind != CT_PICKLE_TEXT ||
        item[4]->kind != CT_PICKLE_INT)
        return pickle_refuse(
            u, "a persistent id that is no storage's (a type, a key, a place and a size)");
    if (item[2]->n > MAX_KEY)
        return pickle_refuse(u, "a storage's key of %zu bytes, at most %d are read", item[2]->n,
                             MAX_KEY);
    if (item[4]->integer < 0)
        return pickle_refuse(u, "a storage of %" PRId64 " elements", item[4]->integer);
    if (t->count > 5 && item[5]->kind != CT_PICKLE_NONE)
        return pickle_refuse(u, "a storage that is a view of another one, which is not supported");
    value *v = pickle_count_made(u) ? pickle_new_value(u, CT_PICKLE_STORAGE) : NULL;
    if (!v) return false;
    ct_pickle_storage *storage = ct__arena(&u->p->arena, sizeof *storage);
    char *key =
        storage ? ct__arena_printf(&u->p->arena, "%.*s", (int)item[2]->n, item[2]->s) : NULL;
    if (!key) return pickle_refuse_memory(u, sizeof *storage);
    *storage = (ct_pickle_storage){key, &item[1]->global->type, item[4]->integer, u->p->storages};
    v->storage = u->p->storages = storage;
    return pickle_push(u, v);
}

// Reads sizes or strides.
static const int64_t *pickle_read_sizes(unpickler *u, const value *v, const char *what) {
    if (v->count > CT_MAX_RANK)
        return (pickle_refuse(u, "a tensor with %zu %s, at most %d are allowed", v->count, what,
                              CT_MAX_RANK),
                NULL);
    int64_t *sizes = ct__arena(&u->p->arena, v->count * sizeof *sizes);
    if (!sizes) return (pickle_refuse_memory(u, v->count * sizeof *sizes), NULL);
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->kind != CT_PICKLE_INT || v->items[i]->integer < 0)
            return (pickle_refuse(u, "a tensor whose %s are not whole numbers from 0 on", what),
                    NULL);
        sizes[i] = v->items[i]->integer;
    }
    return sizes;
}

static bool pickle_push_tensor(unpickler *u, const global *g, const value *args) {
    value **a = args->items;
    size_t least = g->kind == REBUILD_V3 ? 7 : 4;
    if (args->count < least || a[0]->kind != CT_PICKLE_STORAGE || a[1]->kind != CT_PICKLE_INT ||
        a[1]->integer < 0 || a[2]->kind != CT_PICKLE_TUPLE || a[3]->kind != CT_PICKLE_TUPLE ||
        a[2]->count != a[3]->count ||
        (g->kind == REBUILD_V3 && (a[6]->kind != CT_PICKLE_GLOBAL || a[6]->global->kind != DTYPE)))
        return pickle_refuse(u, "%s of what is no storage, offset, sizes and strides", g->name);
    value *v = pickle_count_made(u) ? pickle_new_value(u, CT_PICKLE_TENSOR) : NULL;
    if (!v) return false;
    ct_pickle_tensor *t = ct__arena_zero(&u->p->arena, sizeof *t);
    if (!t) return pickle_refuse_memory(u, sizeof *t);
    *t = (ct_pickle_tensor){
        .storage = a[0]->storage,
        .type = g->kind == REBUILD_V3 ? &a[6]->global->type : a[0]->storage->type,
        .offset = a[1]->integer,
        .rank = a[2]->count,
        .dim = pickle_read_sizes(u, a[2], "sizes"),
        .stride = pickle_read_sizes(u, a[3], "strides"),
    };
    if (!t->dim || !t->stride) return false;
    if (t->type->dtype == CT_DEFAULT)
        return pickle_refuse(u, "%s of bytes without a dtype", g->name);
    v->tensor = t;
    return pickle_push(u, v);
}

static bool pickle_reduce(unpickler *u) {
    value *v = NULL;
    if (!pickle_check_stack(u, 2)) return false;
    const value *called = u->stack[u->n - 2], *args = u->stack[u->n - 1];
    u->n -= 2;
    if (called->kind != CT_PICKLE_GLOBAL || args->kind != CT_PICKLE_TUPLE)
        return pickle_refuse(u, "%s is called with %s", pickle_kind_name(called),
                             pickle_kind_name(args));
    const global *g = called->global;
    switch (g->kind) {
    case ORDERED_DICT:
        if (args->count)
            return pickle_refuse(u, "an OrderedDict made of something, which is not supported");
        return (v = pickle_new_value(u, CT_PICKLE_DICT)) && pickle_push(u, v);
    case SIZE:
        if (args->count != 1 || args->items[0]->kind != CT_PICKLE_TUPLE)
            return pickle_refuse(u, "a Size of what is no tuple");
        return pickle_push(u, args->items[0]);
    case PARAMETER:
        if (!args->count || args->items[0]->kind != CT_PICKLE_TENSOR)
            return pickle_refuse(u, "a parameter of what is no tensor");
        return pickle_push(u, args->items[0]);
    case REBUILD:
    case REBUILD_V3: return pickle_push_tensor(u, g, args);
    case STORAGE:
    case DTYPE: break;
    }
    return pickle_refuse(u, "\"%s.%s\" is called, which makes no tensor", g->module, g->name);
}

// Drops attributes of a dict; state dicts have some (_metadata).
static bool pickle_build(unpickler *u) {
    if (!pickle_check_stack(u, 2)) return false;
    const value *to = u->stack[u->n - 2], *state = u->stack[u->n - 1];
    if (to->kind != CT_PICKLE_DICT || state->kind != CT_PICKLE_DICT)
        return pickle_refuse(u, "%s is given attributes (%s): only dicts have some",
                             pickle_kind_name(to), pickle_kind_name(state));
    u->n--;
    return true;
}

// -------------------------------------------------------------------------------------------- opcodes

static bool pickle_refuse_opcode(unpickler *u, unsigned op) {
    static const struct {
        unsigned code;
        const char *name;
    } makers[] = {{'i', "INST"},       {'o', "OBJ"},       {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},
                  {0x82, "EXT1"},      {0x83, "EXT2"},     {0x84, "EXT4"},   {'P', "PERSID"},
                  {0x8f, "EMPTY_SET"}, {0x91, "FROZENSET"}};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (makers[i].code == op)
            return pickle_refuse(
                u, "opcode %s makes an object: only tensors and plain values are read",
                makers[i].name);
    return pickle_refuse(u, "opcode 0x%02x is none of those that PyTorch writes", op);
}

static bool pickle_step(unpickler *u, unsigned op) {
    unsigned char b[8] = {0};
    value **items;
    size_t n;
    switch (op) {
    case 0x80: // PROTO
        return pickle_read_bytes(u, b, 1) &&
               ((b[0] >= 2 && b[0] <= 5) ||
                pickle_refuse(u, "protocol %d is not supported, 2 to 5 are", b[0]));
    case 0x95: return pickle_read_bytes(u, b, 8); // FRAME: a length for stream readers
    case '(':
        if (!CT_GROW(u->marks, u->marks_cap, u->n_marks + 1))
            return pickle_refuse_memory(u, u->marks_cap * 2 * sizeof *u->marks);
        u->marks[u->n_marks++] = u->n;
        return true;
    case '0': return pickle_check_stack(u, 1) && (u->n--, true);
    case '1': return pickle_pop_mark(u, &items, &n);
    case '2': return pickle_check_stack(u, 1) && pickle_push(u, u->stack[u->n - 1]);
    case 'N':
    case 0x88:
    case 0x89:
    case 'J':
    case 'K':
    case 'M':
    case 'G':
    case 0x8a:
    case 0x8b:
    case 0x8c:
    case 'X':
    case 0x8d: return pickle_run_scalar_op(u, op);
    case ']':
    case '}':
    case ')':
    case 't':
    case 0x85:
    case 0x86:
    case 0x87:
    case 'a':
    case 'e':
    case 's':
    case 'u': return pickle_run_container_op(u, op);
    case 'q':
    case 'r':
    case 'h':
    case 'j':
    case 0x94: return pickle_run_memo_op(u, op);
    case 'c':
    case 0x93: return pickle_read_global(u, op);
    case 'Q': return pickle_push_storage(u);
    case 'R': return pickle_reduce(u);
    case 'b': return pickle_build(u);
    default: return pickle_refuse_opcode(u, op);
    }
}

static bool pickle_run(unpickler *u, value **result) {
    for (;;) {
        unsigned char op;
        u->opcode = (size_t)(u->at - u->start);
        if (u->at == u->end) return pickle_refuse(u, "the pickle ends without its last opcode");
        op = *u->at++;
        if (op != '.') {
            if (!pickle_step(u, op)) return false;
            continue;
        }
        if (u->n != 1 || u->n_marks)
            return pickle_refuse(u, "it ends with %zu values, not with one", u->n);
        *result = u->stack[0];
        return true;
    }
}

bool ct__pickle_read(ct_pickle *p, const void *bytes, size_t n, value **result, size_t *used,
                     ct_err *err) {
    unpickler u = {
        .p = p, .start = bytes, .at = bytes, .end = (const unsigned char *)bytes + n, .err = err};
    bool ok =
        n <= CT_PICKLE_MAX_BYTES ||
        pickle_refuse(&u, "a pickle of %zu bytes, at most %d are read", n, CT_PICKLE_MAX_BYTES);
    ok = ok && pickle_run(&u, result);
    *used = (size_t)(u.at - u.start);
    ct__free(u.stack);
    ct__free(u.marks);
    ct__free(u.memo);
    return ok;
}
