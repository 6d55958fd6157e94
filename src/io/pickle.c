#include "io/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "io/utf8.h"

typedef ct_pickle_value value;

enum { MAX_KEY = 256, MAX_LINE = 200 };

// --------------------------------------------------------------------- globals that a pickle may name

typedef enum global_kind {
    MAKE_DICT, // of a list of pairs, or of a dict
    MAKE_SET,
    MAKE_SIZE,
    MAKE_BYTES,
    MAKE_BYTEARRAY,
    MAKE_VALUE, // of arguments that may be anything of their types
    REBUILD,    // (storage, offset, sizes, strides, requires_grad, hooks, dtype of v3, metadata)
    PARAMETER,  // (tensor, requires_grad, hooks)
    STORAGE,
    DTYPE,
} global_kind;

typedef struct ct_pickle_global {
    const char *module, *name, *shown;
    const char *made, *arguments; // the type of what a call makes, the types that it may take, or
                                  // the least number of arguments of REBUILD
    global_kind kind;
    ct_pickle_type type; // of a storage, or the dtype itself
} global;

#define CALL(module, name, kind, made, arguments)                                                  \
    {                                                                                              \
        module, name, module "." name, made, arguments, kind, { 0 }                                \
    }
#define STORE(module, name, dtype_name, dtype)                                                     \
    {                                                                                              \
        module, name, name, "", "", STORAGE, { dtype_name, dtype }                                 \
    }
#define DTYPE_ONLY(name, dtype)                                                                    \
    {                                                                                              \
        "torch", name, "dtype", "", "", DTYPE, { name, dtype }                                     \
    } // for dtypes without a storage class
#define TYPE(name, storage, dtype) STORE("torch", storage, name, dtype), DTYPE_ONLY(name, dtype)
static const global globals[] = {
    CALL("collections", "OrderedDict", MAKE_DICT, "OrderedDict", "|list"),
    CALL("collections", "Counter", MAKE_DICT, "Counter", "|dict"),
    CALL("builtins", "set", MAKE_SET, "set", "|list"),
    CALL("builtins", "bytes", MAKE_BYTES, "bytes", ""),
    CALL("_codecs", "encode", MAKE_BYTES, "bytes", "str, str"),
    CALL("builtins", "bytearray", MAKE_BYTEARRAY, "bytearray", "|bytes|str, str"),
    CALL("builtins", "complex", MAKE_VALUE, "complex", "float, float"),
    CALL("torch", "device", MAKE_VALUE, "str", "str|str, int"),
    CALL("torch", "Size", MAKE_SIZE, "Size", "tuple"),
    CALL("torch._utils", "_rebuild_tensor", REBUILD, "Tensor", "4"),
    CALL("torch._utils", "_rebuild_tensor_v2", REBUILD, "Tensor", "6"),
    CALL("torch._utils", "_rebuild_tensor_v3", REBUILD, "Tensor", "7"),
    CALL("torch._utils", "_rebuild_parameter", PARAMETER, "Parameter", "Tensor, bool, OrderedDict"),
    STORE("torch", "UntypedStorage", "uint8", CT_U8),
    STORE("torch.storage", "UntypedStorage", "uint8", CT_U8),
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
    size_t floor;  // height of the stack at the last mark
    size_t *marks; // and at those before it
    size_t n_marks, marks_cap;
    value **memo;
    size_t n_memo, memo_cap; // entries below n_memo are set, or NULL
    uint64_t spent;          // of the budget
    ct_err *err;
} unpickler;

__attribute__((format(printf, 2, 3))) static bool pickle_refuse(unpickler *u, const char *format,
                                                                ...) {
    char text[CT_ERROR_TEXT], where[CT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(where, sizeof where, "%s, byte %zu", u->p->label, u->opcode);
    return ct__err(u->err, CT_E_FORMAT, CT_NOWHERE, where, "%s", text);
}

static bool pickle_refuse_memory(unpickler *u, size_t bytes) {
    return ct__err_memory(u->err, CT_NOWHERE, u->p->label, bytes);
}

// Counts bytes that a few bytes of a pickle may make repeatedly, from the same values of the memo.
static bool pickle_spend(unpickler *u, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (!__builtin_mul_overflow(n, size, &bytes) && bytes <= u->p->budget - u->spent)
        return u->spent += bytes, true;
    return pickle_refuse(
        u, "its objects take more than %" PRIu64 " bytes, 16 times the file and 64 MiB",
        u->p->budget);
}

static bool pickle_check_bytes(unpickler *u, uint64_t n) {
    size_t left = (size_t)(u->end - u->at);
    return n <= left || pickle_refuse(u, "%" PRIu64 " bytes are needed, %zu are left", n, left);
}

static bool pickle_read_bytes(unpickler *u, void *to, size_t n) {
    if (!pickle_check_bytes(u, n)) return false;
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

// Checks that the stack has n values above the last mark.
static bool pickle_check_stack(unpickler *u, size_t n) {
    return u->n - u->floor >= n || pickle_refuse(u, "an operand is missing on the stack");
}

// Pops the last mark and the values above it.
static bool pickle_pop_mark(unpickler *u, value ***items, size_t *n) {
    if (!u->n_marks) return pickle_refuse(u, "a mark is missing on the stack");
    *items = u->n > u->floor ? u->stack + u->floor : NULL;
    *n = u->n - u->floor;
    u->n = u->floor;
    u->floor = u->marks[--u->n_marks];
    return true;
}

// Returns the name of the value's type in Python, or what else it is.
static const char *pickle_type_name(const value *v) {
    static const char *const names[] = {
        [CT_PICKLE_NONE] = "NoneType",  [CT_PICKLE_BOOL] = "bool",  [CT_PICKLE_INT] = "int",
        [CT_PICKLE_BIGINT] = "int",     [CT_PICKLE_REAL] = "float", [CT_PICKLE_TEXT] = "str",
        [CT_PICKLE_TUPLE] = "tuple",    [CT_PICKLE_LIST] = "list",  [CT_PICKLE_DICT] = "dict",
        [CT_PICKLE_STORAGE] = "Storage"};
    if (v->has_global) return "a tuple with a storage or a function in it";
    if (v->global) return v->kind == CT_PICKLE_GLOBAL ? v->global->shown : v->global->made;
    return names[v->kind];
}

static bool pickle_is_value(const value *v) {
    return v->kind != CT_PICKLE_STORAGE && !v->has_global &&
           (v->kind != CT_PICKLE_GLOBAL || v->global->kind == DTYPE);
}

static bool pickle_check_value(unpickler *u, const value *v) {
    return pickle_is_value(v) || pickle_refuse(u, "%s is not a value", pickle_type_name(v));
}

// True for what can be hashed, which recurses no further than into one tuple.
static bool pickle_is_key(const value *v, bool nested) {
    if (v->kind == CT_PICKLE_CALL) return v->global->kind != MAKE_BYTEARRAY;
    if (v->kind != CT_PICKLE_TUPLE || nested)
        return v->kind <= CT_PICKLE_TEXT ||
               (v->kind == CT_PICKLE_GLOBAL && v->global->kind == DTYPE);
    for (size_t i = 0; i < v->count; i++)
        if (!pickle_is_key(v->items[i], true)) return false;
    return true;
}

static bool pickle_check_key(unpickler *u, const value *v) {
    return pickle_is_key(v, false) ||
           pickle_refuse(u, "a %s is no key of a dict or element of a set", pickle_type_name(v));
}

// ---------------------------------------------------------------------------------------- containers

static bool pickle_append(unpickler *u, value *to, value **items, size_t n) {
    if (n > UINT32_MAX / 2 - to->count) return pickle_refuse_memory(u, n * sizeof *items);
    if (to->count + n > to->cap) {
        size_t cap = to->count * 2 > to->count + n ? to->count * 2 : to->count + n;
        value **larger = ct__arena(&u->p->arena, cap * sizeof *larger);
        if (!larger) return pickle_refuse_memory(u, cap * sizeof *larger);
        if (to->count) memcpy(larger, to->items, to->count * sizeof *larger);
        to->items = larger;
        to->cap = (uint32_t)cap;
    }
    if (n) memcpy(to->items + to->count, items, n * sizeof *items);
    to->count += (uint32_t)n;
    return true;
}

static bool pickle_push_tuple(unpickler *u, value **items, size_t n) {
    value *v = pickle_new_value(u, CT_PICKLE_TUPLE);
    for (size_t i = 0; v && i < n; i++) v->has_global |= !pickle_is_value(items[i]);
    return v && pickle_append(u, v, items, n) && pickle_push(u, v);
}

static bool pickle_push_short_tuple(unpickler *u, size_t n) {
    if (!pickle_check_stack(u, n)) return false;
    u->n -= n;
    return pickle_push_tuple(u, u->stack + u->n, n);
}

static bool pickle_refuse_target(unpickler *u, const value *to, const char *wanted) {
    return pickle_refuse(u, "elements are put into %s, not into %s",
                         to ? pickle_type_name(to) : "nothing", wanted);
}

// Appends to the list or dict on top of the stack.
static bool pickle_extend(unpickler *u, ct_pickle_kind kind, value **items, size_t n) {
    value *to = u->n > u->floor ? u->stack[u->n - 1] : NULL;
    if (!to || to->kind != kind)
        return pickle_refuse_target(u, to, kind == CT_PICKLE_LIST ? "list" : "dict");
    if (kind == CT_PICKLE_DICT && n % 2) return pickle_refuse(u, "a key has no value");
    for (size_t i = 0; i < n; i++)
        if (kind == CT_PICKLE_DICT && i % 2 == 0 ? !pickle_check_key(u, items[i])
                                                 : !pickle_check_value(u, items[i]))
            return false;
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

// True for UTF-8 in which surrogates may stand alone, as in Python's strings.
static bool pickle_is_text(const unsigned char *s, size_t n) {
    for (size_t i = 0; (i += ct__utf8_bad(s + i, n - i)) < n; i += 3)
        if (n - i < 3 || s[i] != 0xed || (s[i + 1] & 0xe0) != 0xa0 || (s[i + 2] & 0xc0) != 0x80)
            return false;
    return true;
}

// Pushes a string of n bytes, or an integer of n bytes.
static bool pickle_push_bytes(unpickler *u, ct_pickle_kind kind, uint64_t n) {
    if (!pickle_check_bytes(u, n)) return false;
    const unsigned char *bytes = u->at;
    u->at += n;
    if (kind == CT_PICKLE_BIGINT && n <= 8) {
        uint64_t v = pickle_little_endian(bytes, n);
        if (n && n < 8 && bytes[n - 1] & 0x80) v |= UINT64_MAX << (8 * n);
        return pickle_push_integer(u, CT_PICKLE_INT, (int64_t)v);
    }
    if (kind == CT_PICKLE_TEXT && !pickle_is_text(bytes, n))
        return pickle_refuse(u, "a string is no UTF-8");
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
    case 'U':
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
        return pickle_refuse(u, "object %" PRIu64 " of the memo is further than there are opcodes",
                             i);
    if (!CT_GROW(u->memo, u->memo_cap, i + 1))
        return pickle_refuse_memory(u, (i + 1) * sizeof *u->memo);
    while (u->n_memo <= i) u->memo[u->n_memo++] = NULL;
    u->memo[i] = u->stack[u->n - 1];
    return true;
}

static bool pickle_memo_get(unpickler *u, uint64_t i) {
    if (i >= u->n_memo || !u->memo[i])
        return pickle_refuse(u, "object %" PRIu64 " of the memo is read and was not written", i);
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

// ------------------------------------------------------------------------------- globals and storages

static bool pickle_equal(const char *name, const char *s, size_t n) {
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

static bool pickle_text_is(const value *v, const char *text) {
    return v->kind == CT_PICKLE_TEXT && pickle_equal(text, v->s, v->n);
}

static bool pickle_push_global(unpickler *u, const char *module, size_t module_n, const char *name,
                               size_t name_n) {
    char shown[CT_PRINTABLE], shown_name[CT_PRINTABLE];
    bool cuda = pickle_equal("torch.cuda", module, module_n);
    if (cuda) module_n = strlen("torch");
    if (pickle_equal("__builtin__", module, module_n))
        module = "builtins", module_n = strlen(module);
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        const global *g = &globals[i];
        if (!pickle_equal(g->module, module, module_n) || !pickle_equal(g->name, name, name_n) ||
            (cuda && g->kind != STORAGE))
            continue;
        value *v = pickle_new_value(u, CT_PICKLE_GLOBAL);
        if (v) v->global = g;
        return v && pickle_push(u, v);
    }
    return pickle_refuse(
        u, "the global '%s.%s' is none of those that data needs; code in files is never run",
        ct__printable(module, module_n, shown, sizeof shown),
        ct__printable(name, name_n, shown_name, sizeof shown_name));
}

// Reads a line of text without its end.
static const char *pickle_read_line(unpickler *u, size_t *n) {
    const char *line = (const char *)u->at;
    size_t left = (size_t)(u->end - u->at);
    const char *end = memchr(line, '\n', left < MAX_LINE ? left : MAX_LINE);
    if (!end) return (pickle_refuse(u, "the name of a global has no end"), NULL);
    *n = (size_t)(end - line);
    u->at += *n + 1;
    return line;
}

// Reads the name of a global: two lines of text, or two values of the stack.
static bool pickle_read_global(unpickler *u, unsigned op) {
    size_t module_n, name_n;
    if (op == 0x93) {
        if (!pickle_check_stack(u, 2)) return false;
        const value *module = u->stack[u->n - 2], *name = u->stack[u->n - 1];
        if (module->kind != CT_PICKLE_TEXT || name->kind != CT_PICKLE_TEXT)
            return pickle_refuse(u, "the name of a global is %s and %s, not two strings",
                                 pickle_type_name(module), pickle_type_name(name));
        u->n -= 2;
        return pickle_push_global(u, module->s, module->n, name->s, name->n);
    }
    const char *module = pickle_read_line(u, &module_n),
               *name = module ? pickle_read_line(u, &name_n) : NULL;
    return name && pickle_push_global(u, module, module_n, name, name_n);
}

typedef struct shown {
    char s[256];
} shown;

// Shows integers and strings, and tuples of them, as Python does; of other values, their type.
static shown pickle_show(const value *v) {
    shown to = {"("};
    char text[CT_PRINTABLE];
    bool tuple = v->kind == CT_PICKLE_TUPLE;
    size_t n = tuple, count = tuple ? v->count : 1;
    for (size_t i = 0; i < count && n < sizeof to.s; i++) {
        const value *one = tuple ? v->items[i] : v;
        const char *of = pickle_type_name(one), *quote = one->kind == CT_PICKLE_TEXT ? "'" : "";
        if (one->kind == CT_PICKLE_BOOL) of = one->integer ? "True" : "False";
        snprintf(text, sizeof text, "%s", of);
        if (one->kind == CT_PICKLE_INT) snprintf(text, sizeof text, "%" PRId64, one->integer);
        if (one->kind == CT_PICKLE_BIGINT)
            snprintf(text, sizeof text, "an integer of %zu bytes", one->n);
        if (*quote) ct__printable(one->s, one->n, text, sizeof text);
        n += (size_t)snprintf(to.s + n, sizeof to.s - n, "%s%s%s%s", i ? ", " : "", quote, text,
                              quote);
    }
    if (tuple && n < sizeof to.s) snprintf(to.s + n, sizeof to.s - n, count == 1 ? ",)" : ")");
    return to;
}

// Compares the storage's size with its record.
static bool pickle_check_record(unpickler *u, const ct_pickle_storage *s) {
    if (!u->p->record_bytes) return true;
    int64_t bytes = u->p->record_bytes(u->p->user, s->key),
            width = (int64_t)ct_dtype_size(s->type->dtype);
    if (bytes < 0) return pickle_refuse(u, "the record of storage '%s' is missing", s->key);
    return bytes / width == s->elements ||
           pickle_refuse(u,
                         "storage '%s' has %" PRId64
                         " elements of %s, %.0Lf bytes, its record has %" PRId64,
                         s->key, s->elements, s->type->name,
                         (long double)s->elements * (long double)width, bytes);
}

// The persistent id is ("storage", type, key, location, elements ...).
static bool pickle_push_storage(unpickler *u) {
    if (!pickle_check_stack(u, 1)) return false;
    const value *t = u->stack[--u->n];
    value **item = t->items;
    if (t->kind != CT_PICKLE_TUPLE || t->count < 5 || t->count > 6 ||
        !pickle_text_is(item[0], "storage"))
        return pickle_refuse(
            u, "a persistent id is a %s, not (\"storage\", class, key, device, elements)",
            t->kind == CT_PICKLE_TUPLE ? "tuple" : pickle_type_name(t));
    if (item[1]->kind != CT_PICKLE_GLOBAL || item[1]->global->kind != STORAGE)
        return pickle_refuse(u, "a storage is of class %s, which is none",
                             pickle_type_name(item[1]));
    if (item[2]->kind != CT_PICKLE_TEXT || !item[2]->n ||
        strspn(item[2]->s, "0123456789") < item[2]->n)
        return pickle_refuse(u, "a storage's key is %s, not a string of digits",
                             pickle_show(item[2]).s);
    if (item[2]->n > MAX_KEY)
        return pickle_refuse(u, "a storage's key has %zu bytes, at most %d are read", item[2]->n,
                             MAX_KEY);
    int n = (int)item[2]->n;
    const char *key = item[2]->s;
    if (item[3]->kind != CT_PICKLE_TEXT || item[4]->kind != CT_PICKLE_INT || item[4]->integer < 0)
        return pickle_refuse(u, "storage '%.*s' has %s elements on %s", n, key,
                             pickle_show(item[4]).s, pickle_show(item[3]).s);
    if (t->count > 5 && item[5]->kind != CT_PICKLE_NONE)
        return pickle_refuse(u, "storage '%.*s' is a view of another, which Cotan does not read", n,
                             key);
    ct_pickle_storage *storage = ct__arena(&u->p->arena, sizeof *storage);
    char *copy = storage ? ct__arena_printf(&u->p->arena, "%.*s", n, key) : NULL;
    value *v = copy ? pickle_new_value(u, CT_PICKLE_STORAGE) : NULL;
    if (!v) return pickle_refuse_memory(u, sizeof *storage);
    *storage = (ct_pickle_storage){copy, &item[1]->global->type, item[4]->integer, u->p->storages};
    v->storage = u->p->storages = storage;
    return pickle_spend(u, 1, MAX_KEY) && pickle_check_record(u, storage) && pickle_push(u, v);
}

// -------------------------------------------------------------------------------------------- tensors

// Checks a tensor's offset, sizes or strides.
static bool pickle_check_numbers(unpickler *u, const char *what, const value *v) {
    const value *const one[] = {v},
                       offset = {.kind = CT_PICKLE_TUPLE, .items = (value **)one, .count = 1};
    if (*what == 'o') v = &offset;
    bool ok = v->kind == CT_PICKLE_TUPLE;
    for (size_t i = 0; ok && i < v->count; i++)
        ok = v->items[i]->kind == CT_PICKLE_INT && v->items[i]->integer >= 0 &&
             v->items[i]->integer < INT64_C(1) << 60;
    return ok || pickle_refuse(u, "a tensor's %s is %s: whole numbers from 0 to 2^60 must be there",
                               what, pickle_show(v).s);
}

// Checks that the view is inside of its storage, which has `count` elements of its type, and sets
// its number of elements.
static bool pickle_check_view(unpickler *u, ct_pickle_tensor *t, int64_t count, const value *dim,
                              const value *stride) {
    int64_t most = 1, last = t->offset, reach; // `most`: the product without zeros
    bool fits = true, empty = false;
    for (size_t i = 0; i < t->rank; i++) {
        empty |= t->dim[i] == 0;
        if (t->dim[i])
            fits = fits && !__builtin_mul_overflow(most, t->dim[i], &most) && most >> 60 == 0;
        if (__builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            last = INT64_MAX;
    }
    if (!fits)
        return pickle_refuse(u, "a tensor's sizes %s multiply to 2^60 or more", pickle_show(dim).s);
    t->elements = empty ? 0 : most;
    return empty || last < count ||
           pickle_refuse(u,
                         "a tensor of sizes %s and strides %s from element %" PRId64
                         " on reads element %" PRId64 ", its storage '%s' has %" PRId64,
                         pickle_show(dim).s, pickle_show(stride).s, t->offset, last,
                         t->storage->key, count);
}

static bool pickle_check_gradients(unpickler *u, const ct_pickle_tensor *t, const value *wanted) {
    if (wanted->kind != CT_PICKLE_BOOL)
        return pickle_refuse(u, "requires_grad is a %s", pickle_type_name(wanted));
    return !wanted->integer || ct__is_float(t->type->dtype) || ct__is_complex(t->type->dtype) ||
           pickle_refuse(u, "a tensor of %s requires gradients", t->type->name);
}

// Reads the metadata: a dict of `conj` and `neg`, lazy conjugation and negation.
static bool pickle_read_metadata(unpickler *u, ct_pickle_tensor *t, const value *metadata) {
    if (metadata->kind == CT_PICKLE_NONE) return true;
    bool ok = metadata->kind == CT_PICKLE_DICT && !metadata->global;
    for (size_t i = 0; ok && i < metadata->count; i += 2) {
        const value *key = metadata->items[i], *set = metadata->items[i + 1];
        ok = (pickle_text_is(key, "conj") || pickle_text_is(key, "neg")) &&
             set->kind == CT_PICKLE_BOOL;
        t->negated |= ok && set->integer;
    }
    return ok || pickle_refuse(u, "a tensor's metadata are not of conj and neg alone");
}

static bool pickle_push_tensor(unpickler *u, const global *g, const value *args) {
    value **a = args->items;
    const size_t least = (size_t)(*g->arguments - '0');
    ct_pickle_tensor *t = ct__arena_zero(&u->p->arena, sizeof *t);
    value *v = t ? pickle_new_value(u, CT_PICKLE_TENSOR) : NULL;
    if (!v) return pickle_refuse_memory(u, sizeof *t);
    t->storage = a[0]->storage;
    t->type = t->storage->type;
    int64_t count = t->storage->elements, width = (int64_t)ct_dtype_size(t->type->dtype);
    if (least == 7) {
        if (a[6]->kind != CT_PICKLE_GLOBAL || a[6]->global->kind != DTYPE)
            return pickle_refuse(u, "a tensor's dtype is a %s", pickle_type_name(a[6]));
        t->type = &a[6]->global->type;
        const int64_t other = (int64_t)ct_dtype_size(t->type->dtype);
        count = count / other * width + count % other * width / other;
    }
    if ((least > 4 && !pickle_check_gradients(u, t, a[4])) ||
        !pickle_check_numbers(u, "offset", a[1]) || !pickle_check_numbers(u, "size", a[2]) ||
        !pickle_check_numbers(u, "stride", a[3]))
        return false;
    if (a[2]->count != a[3]->count)
        return pickle_refuse(u, "a tensor has %u sizes and %u strides", a[2]->count, a[3]->count);
    if (a[2]->count > CT_MAX_RANK)
        return pickle_refuse(u, "the sizes are %u numbers, at most %d are possible", a[2]->count,
                             CT_MAX_RANK);
    t->rank = a[2]->count;
    t->offset = a[1]->integer;
    int64_t *sizes = ct__arena(&u->p->arena, 2 * t->rank * sizeof *sizes);
    if (!sizes) return pickle_refuse_memory(u, 2 * t->rank * sizeof *sizes);
    for (size_t i = 0; i < 2 * t->rank; i++)
        sizes[i] = a[2 + i / t->rank]->items[i % t->rank]->integer;
    t->dim = sizes;
    t->stride = sizes + t->rank;
    v->tensor = t;
    v->global = g;
    return pickle_check_view(u, t, count, a[2], a[3]) &&
           (args->count == least || pickle_read_metadata(u, t, a[least])) &&
           pickle_spend(u, (uint64_t)t->elements, ct_dtype_size(t->type->dtype)) &&
           pickle_spend(u, t->rank + 8, 16) && pickle_push(u, v);
}

// ---------------------------------------------------------------------------------------------- calls

// Checks that the types of the arguments are one of the global's choices.
static bool pickle_check_arguments(unpickler *u, const global *g, const value *args) {
    char types[256] = "";
    size_t n = 0, least = (size_t)(*g->arguments - '0'), length;
    for (size_t i = 0; i < args->count && n < sizeof types; i++)
        n += (size_t)snprintf(types + n, sizeof types - n, "%s%s", i ? ", " : "",
                              pickle_type_name(args->items[i]));
    if (g->kind == REBUILD && (args->count == least || (least > 4 && args->count == least + 1)) &&
        args->items[0]->kind == CT_PICKLE_STORAGE)
        return true;
    for (const char *choice = g->arguments; g->kind != REBUILD; choice += length + 1) {
        length = strcspn(choice, "|");
        if (length == n && strncmp(choice, types, n) == 0) return true;
        if (!choice[length]) break;
    }
    return pickle_refuse(u, "%s is called with (%s)", g->shown, types);
}

// Makes a dict of a list of pairs or of a dict, or a set of a list.
static bool pickle_push_container(unpickler *u, const global *g, const value *from) {
    value *v = pickle_new_value(u, g->kind == MAKE_SET ? CT_PICKLE_SET : CT_PICKLE_DICT);
    if (!v) return false;
    v->global = g;
    if (from && !pickle_spend(u, from->count, 100)) return false;
    if (from && from->kind == CT_PICKLE_DICT)
        return pickle_append(u, v, from->items, from->count) && pickle_push(u, v);
    for (size_t i = 0; from && i < from->count; i++) {
        value *one = from->items[i], **items = g->kind == MAKE_SET ? &one : one->items;
        if (g->kind == MAKE_DICT &&
            ((one->kind != CT_PICKLE_LIST && one->kind != CT_PICKLE_TUPLE) || one->count != 2))
            return pickle_refuse(u, "%s is made of a list whose elements are no pairs", g->shown);
        if (!pickle_check_key(u, items[0]) ||
            (g->kind == MAKE_DICT && !pickle_append(u, v, items, 2)))
            return false;
    }
    return pickle_push(u, v);
}

// Makes a Size, bytes or another value that has no parts for this reader.
static bool pickle_push_call(unpickler *u, const global *g, const value *args) {
    const value *of = args->count ? args->items[0] : NULL;
    value *v = pickle_new_value(u, g->kind == MAKE_SIZE ? CT_PICKLE_TUPLE : CT_PICKLE_CALL);
    if (!v) return false;
    if (g->kind == MAKE_SIZE) {
        for (size_t i = 0; i < of->count; i++)
            if (of->items[i]->kind != CT_PICKLE_INT && of->items[i]->kind != CT_PICKLE_BIGINT)
                return pickle_refuse(u, "%s is made of a tuple whose elements are no integers",
                                     g->shown);
        *v = *of;
    } else if (of && of->kind != CT_PICKLE_REAL) { // a string or bytes
        v->s = of->s;
        v->n = of->n;
        bool ok = true, encoded = args->count == 2 && g->kind != MAKE_VALUE;
        if (encoded)
            ok = pickle_text_is(args->items[1], g->kind == MAKE_BYTES ? "latin1" : "latin-1");
        for (size_t i = 0; ok && encoded && i < v->n; i++)
            ok = (unsigned char)v->s[i] < 0xc4; // the first byte of U+0100
        if (!ok) return pickle_refuse(u, "bytes are given as a string that is not latin1");
    }
    v->global = g;
    return pickle_spend(u, g->kind == MAKE_SIZE ? v->count : v->n, g->kind == MAKE_SIZE ? 8 : 1) &&
           pickle_push(u, v);
}

static bool pickle_reduce(unpickler *u) {
    if (!pickle_check_stack(u, 2)) return false;
    const value *called = u->stack[u->n - 2], *args = u->stack[u->n - 1];
    const global *g = called->global;
    u->n -= 2;
    if (called->kind != CT_PICKLE_GLOBAL || g->kind >= STORAGE)
        return pickle_refuse(u, "%s is called, it is no function", pickle_type_name(called));
    if (args->kind != CT_PICKLE_TUPLE)
        return pickle_refuse(u, "%s is called with a %s, not with a tuple", g->shown,
                             pickle_type_name(args));
    if (!pickle_check_arguments(u, g, args)) return false;
    switch (g->kind) {
    case MAKE_DICT:
    case MAKE_SET: return pickle_push_container(u, g, args->count ? args->items[0] : NULL);
    case REBUILD: return pickle_push_tensor(u, g, args);
    case PARAMETER: {
        value *v = pickle_new_value(u, CT_PICKLE_TENSOR);
        if (!v || !pickle_check_gradients(u, args->items[0]->tensor, args->items[1])) return false;
        v->tensor = args->items[0]->tensor;
        v->global = g;
        return pickle_push(u, v);
    }
    default: return pickle_push_call(u, g, args);
    }
}

// Drops attributes; state dicts have some (_metadata).
static bool pickle_build(unpickler *u) {
    if (!pickle_check_stack(u, 1)) return false;
    const value *state = u->stack[--u->n];
    const value *to = u->n > u->floor ? u->stack[u->n - 1] : NULL;
    if (!to || strcmp(pickle_type_name(to), "OrderedDict") != 0)
        return pickle_refuse_target(u, to, "OrderedDict");
    bool ok = state->kind == CT_PICKLE_DICT && !state->global;
    for (size_t i = 0; u->p->strict && ok && i < state->count; i += 2) {
        const value *metadata = state->items[i + 1];
        if (!pickle_text_is(state->items[i], "_metadata"))
            ok = false;
        else if (metadata->kind != CT_PICKLE_DICT)
            return pickle_refuse(u, "_metadata is of type %s, not dict",
                                 pickle_type_name(metadata));
    }
    return ok || pickle_refuse(u, "an OrderedDict is given attributes other than _metadata");
}

// -------------------------------------------------------------------------------------------- opcodes

static bool pickle_step(unpickler *u, unsigned op) {
    unsigned char b[8] = {0};
    value **items;
    size_t n;
    // In strict pickles: what other protocols have, and what torch.save does not write.
    if (u->p->strict && memchr("012\x8b\x8c\x8d\x93\x94\x95", (int)op, 9)) op = 0;
    if (memchr("NUJKMGX\x88\x89\x8a\x8b\x8c\x8d", (int)op, 13)) return pickle_run_scalar_op(u, op);
    if (memchr("]})taesu\x85\x86\x87", (int)op, 11)) return pickle_run_container_op(u, op);
    if (memchr("qrhj\x94", (int)op, 5)) return pickle_run_memo_op(u, op);
    switch (op) {
    case 0x80: // PROTO
        return pickle_read_bytes(u, b, 1) &&
               ((b[0] >= 2 && b[0] <= (u->p->strict ? 2 : 5)) ||
                pickle_refuse(u, "the pickle is of protocol %d, PyTorch's files are of 2", b[0]));
    case 0x95: return pickle_read_bytes(u, b, 8); // FRAME: a length for stream readers
    case '(':
        if (!CT_GROW(u->marks, u->marks_cap, u->n_marks + 1))
            return pickle_refuse_memory(u, u->marks_cap * 2 * sizeof *u->marks);
        u->marks[u->n_marks++] = u->floor;
        u->floor = u->n;
        return true;
    case '0': return pickle_check_stack(u, 1) && (u->n--, true);
    case '1': return pickle_pop_mark(u, &items, &n);
    case '2': return pickle_check_stack(u, 1) && pickle_push(u, u->stack[u->n - 1]);
    case 'c':
    case 0x93: return pickle_read_global(u, op);
    case 'Q': return pickle_push_storage(u);
    case 'R': return pickle_reduce(u);
    case 'b': return pickle_build(u);
    default: return pickle_refuse(u, "opcode 0x%02x is none that data needs", u->start[u->opcode]);
    }
}

static bool pickle_run(unpickler *u, value **result) {
    for (;;) {
        unsigned char op;
        u->opcode = (size_t)(u->at - u->start);
        if (!pickle_read_bytes(u, &op, 1)) return false;
        if (op != '.') {
            if (!pickle_step(u, op)) return false;
            continue;
        }
        if (!pickle_check_stack(u, 1) || !pickle_check_value(u, *result = u->stack[u->n - 1]))
            return false;
        return (u->n == 1 && !u->n_marks) ||
               pickle_refuse(u, "more than one object is left on the stack");
    }
}

bool ct__pickle_read(ct_pickle *p, const void *bytes, size_t n, size_t *at, value **result,
                     ct_err *err) {
    const unsigned char *start = bytes;
    unpickler u = {.p = p, .start = start, .at = start + *at, .end = start + n, .err = err};
    bool ok = pickle_run(&u, result);
    *at = (size_t)(u.at - u.start);
    ct__free(u.stack);
    ct__free(u.marks);
    ct__free(u.memo);
    return ok;
}
