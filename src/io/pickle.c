#include "io/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/utf8.h"

typedef ct_pickle_value value;

enum { MOST_MADE = 1 << 19, LONGEST_KEY = 256 };

// ------------------------------------------------------------------- what a pickle may name, and call

typedef enum global_kind {
    ORDERED_DICT,
    SIZE,
    REBUILD,    // (storage, offset, sizes, strides ...): elements are of the storage's type
    REBUILD_V3, // (storage, offset, sizes, strides, requires_grad, hooks, dtype)
    PARAMETER,  // (tensor, requires_grad, hooks)
    STORAGE,
    DTYPE,
} global_kind;

typedef struct ct_pickle_global {
    const char *module, *name;
    global_kind kind;
    ct_pickle_type type; // of a storage, or the dtype
} global;

#define TYPE(name, storage, dtype)                                                                 \
    {"torch", storage, STORAGE, {name, dtype}}, {                                                  \
        "torch", name, DTYPE, { name, dtype }                                                      \
    }
#define NEW_TYPE(name, dtype)                                                                      \
    {                                                                                              \
        "torch", name, DTYPE, { name, dtype }                                                      \
    } // which has no storage of its own
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
    NEW_TYPE("uint16", CT_U16),
    NEW_TYPE("uint32", CT_U32),
    NEW_TYPE("uint64", CT_U64),
    NEW_TYPE("float8_e4m3fn", CT_F8E4M3),
    NEW_TYPE("float8_e5m2", CT_F8E5M2),
};

// ----------------------------------------------------------------------------------------- the machine

typedef struct machine {
    ct_pickle *p;
    const unsigned char *start, *at, *end;
    size_t opcode; // the byte at which it stands
    value **stack;
    size_t n, cap;
    size_t *marks; // heights of the stack
    size_t n_marks, marks_cap;
    value **memo;
    size_t n_memo, memo_cap; // all below n_memo are set, or NULL
    size_t made;             // storages and tensors
    ct_err *err;
} machine;

__attribute__((format(printf, 2, 3))) static bool refuse(machine *m, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err_part(m->err, m->p->label, m->p->part, "byte %zu: %s", m->opcode, text);
}

static bool no_memory(machine *m, size_t bytes) {
    return ct__err_memory(m->err, CT_NOWHERE, m->p->label, bytes);
}

static bool take(machine *m, void *to, size_t n) {
    if ((size_t)(m->end - m->at) < n)
        return refuse(m, "the pickle ends at byte %zu, inside an opcode",
                      (size_t)(m->end - m->start));
    memcpy(to, m->at, n);
    m->at += n;
    return true;
}

static bool push(machine *m, value *v) {
    if (!CT_GROW(m->stack, m->cap, m->n + 1)) return no_memory(m, m->cap * 2 * sizeof *m->stack);
    m->stack[m->n++] = v;
    return true;
}

static value *new_value(machine *m, ct_pickle_kind kind) {
    value *v = ct__arena_zero(&m->p->arena, sizeof *v);
    if (!v) no_memory(m, sizeof *v);
    if (v) v->kind = (uint8_t)kind;
    return v;
}

static bool push_whole(machine *m, ct_pickle_kind kind, int64_t whole) {
    value *v = new_value(m, kind);
    if (v) v->whole = whole;
    return v && push(m, v);
}

// What the opcode wants from the stack is above the last mark.
static bool need(machine *m, size_t n) {
    size_t floor = m->n_marks ? m->marks[m->n_marks - 1] : 0;
    return m->n - floor >= n || refuse(m, "opcode 0x%02x wants %zu value%s, but the stack has %zu",
                                       m->start[m->opcode], n, n == 1 ? "" : "s", m->n - floor);
}

// The values above the last mark, which goes.
static bool to_mark(machine *m, value ***items, size_t *n) {
    if (!m->n_marks)
        return refuse(m, "opcode 0x%02x wants a mark, but there is none", m->start[m->opcode]);
    size_t floor = m->marks[--m->n_marks];
    *items = m->n > floor ? m->stack + floor : NULL;
    *n = m->n - floor;
    m->n = floor;
    return true;
}

static const char *kind_name(const value *v) {
    static const char *const names[] = {
        [CT_PICKLE_NONE] = "None",         [CT_PICKLE_BOOL] = "a bool",
        [CT_PICKLE_INT] = "an integer",    [CT_PICKLE_BIG] = "an integer",
        [CT_PICKLE_REAL] = "a float",      [CT_PICKLE_TEXT] = "a string",
        [CT_PICKLE_TUPLE] = "a tuple",     [CT_PICKLE_LIST] = "a list",
        [CT_PICKLE_DICT] = "a dict",       [CT_PICKLE_GLOBAL] = "a global",
        [CT_PICKLE_STORAGE] = "a storage", [CT_PICKLE_TENSOR] = "a tensor"};
    return names[v->kind];
}

// ---------------------------------------------------------------------------------------- containers

static bool append(machine *m, value *to, value **items, size_t n) {
    if (to->count + n > to->cap) {
        size_t cap = to->cap * 2 > to->count + n ? to->cap * 2 : to->count + n;
        value **room = ct__arena(&m->p->arena, cap * sizeof *room);
        if (!room) return no_memory(m, cap * sizeof *room);
        if (to->count) memcpy(room, to->items, to->count * sizeof *room);
        to->items = room;
        to->cap = cap;
    }
    if (n) memcpy(to->items + to->count, items, n * sizeof *items);
    to->count += n;
    return true;
}

static bool push_tuple(machine *m, value **items, size_t n) {
    value *v = new_value(m, CT_PICKLE_TUPLE);
    return v && append(m, v, items, n) && push(m, v);
}

static bool short_tuple(machine *m, size_t n) {
    if (!need(m, n)) return false;
    m->n -= n;
    return push_tuple(m, m->stack + m->n, n);
}

// Appends to the list or dict below them.
static bool extend(machine *m, ct_pickle_kind kind, value **items, size_t n) {
    if (!need(m, 1)) return false;
    value *to = m->stack[m->n - 1];
    if (to->kind != kind)
        return refuse(m, "values are added to %s, not to %s", kind_name(to),
                      kind == CT_PICKLE_LIST ? "a list" : "a dict");
    if (kind == CT_PICKLE_DICT && n % 2) return refuse(m, "a key without a value");
    return append(m, to, items, n);
}

static bool container(machine *m, unsigned op) {
    value **items = NULL, *v = NULL;
    size_t n = op == 'a' ? 1 : 2;
    switch (op) {
    case ']': return (v = new_value(m, CT_PICKLE_LIST)) && push(m, v);
    case '}': return (v = new_value(m, CT_PICKLE_DICT)) && push(m, v);
    case ')': return push_tuple(m, NULL, 0);
    case 't': return to_mark(m, &items, &n) && push_tuple(m, items, n);
    case 0x85: return short_tuple(m, 1);
    case 0x86: return short_tuple(m, 2);
    case 0x87: return short_tuple(m, 3);
    case 'a': // one value, or a key and its value
    case 's':
        if (!need(m, n + 1)) return false;
        m->n -= n;
        return extend(m, op == 'a' ? CT_PICKLE_LIST : CT_PICKLE_DICT, m->stack + m->n, n);
    case 'e': return to_mark(m, &items, &n) && extend(m, CT_PICKLE_LIST, items, n);
    default: return to_mark(m, &items, &n) && extend(m, CT_PICKLE_DICT, items, n); // 'u'
    }
}

// ------------------------------------------------------------------------------------- plain values

static uint64_t little_endian(const unsigned char *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

// n bytes of text, or of a long integer.
static bool push_bytes(machine *m, ct_pickle_kind kind, uint64_t n) {
    if (n > (uint64_t)(m->end - m->at))
        return refuse(m, "a value of %" PRIu64 " bytes, but the pickle ends at byte %zu", n,
                      (size_t)(m->end - m->start));
    const unsigned char *bytes = m->at;
    m->at += n;
    if (kind == CT_PICKLE_BIG && n <= 8) {
        uint64_t v = little_endian(bytes, n);
        if (n && n < 8 && bytes[n - 1] & 0x80) v |= UINT64_MAX << (8 * n);
        return push_whole(m, CT_PICKLE_INT, (int64_t)v);
    }
    if (kind == CT_PICKLE_TEXT && ct__utf8_bad(bytes, n) < n)
        return refuse(m, "a string is not UTF-8");
    value *v = new_value(m, kind);
    if (!v) return false;
    v->s = (const char *)bytes;
    v->n = n;
    return push(m, v);
}

// A value whose length stands in the `width` bytes before it.
static bool push_counted(machine *m, ct_pickle_kind kind, size_t width) {
    unsigned char length[8] = {0};
    return take(m, length, width) && push_bytes(m, kind, little_endian(length, width));
}

static bool plain(machine *m, unsigned op) {
    unsigned char b[8] = {0};
    value *v = NULL;
    switch (op) {
    case 'N': return push_whole(m, CT_PICKLE_NONE, 0);
    case 0x88: return push_whole(m, CT_PICKLE_BOOL, 1);
    case 0x89: return push_whole(m, CT_PICKLE_BOOL, 0);
    case 'J': return take(m, b, 4) && push_whole(m, CT_PICKLE_INT, (int32_t)little_endian(b, 4));
    case 'K': return take(m, b, 1) && push_whole(m, CT_PICKLE_INT, b[0]);
    case 'M': return take(m, b, 2) && push_whole(m, CT_PICKLE_INT, (int64_t)little_endian(b, 2));
    case 0x8a: return push_counted(m, CT_PICKLE_BIG, 1);
    case 0x8b: return push_counted(m, CT_PICKLE_BIG, 4);
    case 0x8c: return push_counted(m, CT_PICKLE_TEXT, 1);
    case 'X': return push_counted(m, CT_PICKLE_TEXT, 4);
    case 0x8d: return push_counted(m, CT_PICKLE_TEXT, 8);
    default: break;
    }
    if (!take(m, b, 8) || !(v = new_value(m, CT_PICKLE_REAL))) return false; // 'G', big-endian
    uint64_t bits = __builtin_bswap64(little_endian(b, 8));
    memcpy(&v->real, &bits, sizeof bits);
    return push(m, v);
}

// ---------------------------------------------------------------------------------------------- memo

static bool put(machine *m, uint64_t i) {
    if (!need(m, 1)) return false;
    // Whoever writes one counts from 0: there is an opcode for each.
    if (i > m->opcode)
        return refuse(m, "place %" PRIu64 " of the memo is further than there are opcodes", i);
    if (!CT_GROW(m->memo, m->memo_cap, i + 1)) return no_memory(m, (i + 1) * sizeof *m->memo);
    while (m->n_memo <= i) m->memo[m->n_memo++] = NULL;
    m->memo[i] = m->stack[m->n - 1];
    return true;
}

static bool get(machine *m, uint64_t i) {
    if (i >= m->n_memo || !m->memo[i])
        return refuse(m, "place %" PRIu64 " of the memo is empty", i);
    return push(m, m->memo[i]);
}

static bool memo(machine *m, unsigned op) {
    unsigned char b[4] = {0};
    size_t width = op == 'q' || op == 'h' ? 1 : 4;
    if (op == 0x94) return put(m, m->n_memo);
    if (!take(m, b, width)) return false;
    return op == 'q' || op == 'r' ? put(m, little_endian(b, width))
                                  : get(m, little_endian(b, width));
}

// -------------------------------------------------------------------------------- globals, and tensors

static bool equal(const char *name, const char *s, size_t n) {
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

static bool push_global(machine *m, const char *module, size_t module_n, const char *name,
                        size_t name_n) {
    char shown[CT_PRINTABLE], shown_name[CT_PRINTABLE];
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        const global *g = &globals[i];
        if (!equal(g->module, module, module_n) || !equal(g->name, name, name_n)) continue;
        value *v = new_value(m, CT_PICKLE_GLOBAL);
        if (v) v->global = g;
        return v && push(m, v);
    }
    return refuse(m,
                  "it names \"%s.%s\": only tensors and plain values are read, nothing is called",
                  ct__printable(module, module_n, shown, sizeof shown),
                  ct__printable(name, name_n, shown_name, sizeof shown_name));
}

// Two lines of text, or two values.
static bool take_global(machine *m, unsigned op) {
    if (op == 0x93) {
        if (!need(m, 2)) return false;
        const value *module = m->stack[m->n - 2], *name = m->stack[m->n - 1];
        if (module->kind != CT_PICKLE_TEXT || name->kind != CT_PICKLE_TEXT)
            return refuse(m, "the name of a global is %s and %s, not two strings",
                          kind_name(module), kind_name(name));
        m->n -= 2;
        return push_global(m, module->s, module->n, name->s, name->n);
    }
    const unsigned char *first = m->at;
    const unsigned char *middle = memchr(first, '\n', (size_t)(m->end - first));
    const unsigned char *last =
        middle ? memchr(middle + 1, '\n', (size_t)(m->end - middle - 1)) : NULL;
    if (!last)
        return refuse(m, "the pickle ends at byte %zu, inside an opcode",
                      (size_t)(m->end - m->start));
    m->at = last + 1;
    return push_global(m, (const char *)first, (size_t)(middle - first), (const char *)middle + 1,
                       (size_t)(last - middle - 1));
}

// A few bytes make one, over and over from the same values of the memo: only so many.
static bool may_make(machine *m) {
    return m->made++ < MOST_MADE || refuse(m, "more than %d storages and tensors", MOST_MADE);
}

// ("storage", type, key, place, elements ...)
static bool push_storage(machine *m) {
    if (!need(m, 1)) return false;
    const value *t = m->stack[--m->n];
    value **item = t->items;
    if (t->kind != CT_PICKLE_TUPLE || t->count < 5 || item[0]->kind != CT_PICKLE_TEXT ||
        !equal("storage", item[0]->s, item[0]->n) || item[1]->kind != CT_PICKLE_GLOBAL ||
        item[1]->global->kind != STORAGE || item[2]->kind != CT_PICKLE_TEXT ||
        item[4]->kind != CT_PICKLE_INT)
        return refuse(m,
                      "a persistent id that is no storage's (a type, a key, a place and a size)");
    if (item[2]->n > LONGEST_KEY)
        return refuse(m, "a storage's key of %zu bytes, at most %d are read", item[2]->n,
                      LONGEST_KEY);
    if (item[4]->whole < 0) return refuse(m, "a storage of %" PRId64 " elements", item[4]->whole);
    if (t->count > 5 && item[5]->kind != CT_PICKLE_NONE)
        return refuse(m, "a storage that is a view of another one, which is not supported");
    value *v = may_make(m) ? new_value(m, CT_PICKLE_STORAGE) : NULL;
    if (!v) return false;
    ct_pickle_storage *storage = ct__arena(&m->p->arena, sizeof *storage);
    char *key =
        storage ? ct__arena_printf(&m->p->arena, "%.*s", (int)item[2]->n, item[2]->s) : NULL;
    if (!key) return no_memory(m, sizeof *storage);
    *storage = (ct_pickle_storage){key, &item[1]->global->type, item[4]->whole, m->p->storages};
    v->storage = m->p->storages = storage;
    return push(m, v);
}

// Sizes or strides.
static const int64_t *take_sizes(machine *m, const value *v, const char *what) {
    if (v->count > CT_MAX_RANK)
        return (
            refuse(m, "a tensor with %zu %s, at most %d are allowed", v->count, what, CT_MAX_RANK),
            NULL);
    int64_t *sizes = ct__arena(&m->p->arena, v->count * sizeof *sizes);
    if (!sizes) return (no_memory(m, v->count * sizeof *sizes), NULL);
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->kind != CT_PICKLE_INT || v->items[i]->whole < 0)
            return (refuse(m, "a tensor whose %s are not whole numbers from 0 on", what), NULL);
        sizes[i] = v->items[i]->whole;
    }
    return sizes;
}

static bool push_tensor(machine *m, const global *g, const value *args) {
    value **a = args->items;
    size_t least = g->kind == REBUILD_V3 ? 7 : 4;
    if (args->count < least || a[0]->kind != CT_PICKLE_STORAGE || a[1]->kind != CT_PICKLE_INT ||
        a[1]->whole < 0 || a[2]->kind != CT_PICKLE_TUPLE || a[3]->kind != CT_PICKLE_TUPLE ||
        a[2]->count != a[3]->count ||
        (g->kind == REBUILD_V3 && (a[6]->kind != CT_PICKLE_GLOBAL || a[6]->global->kind != DTYPE)))
        return refuse(m, "%s of what is no storage, offset, sizes and strides", g->name);
    value *v = may_make(m) ? new_value(m, CT_PICKLE_TENSOR) : NULL;
    if (!v) return false;
    ct_pickle_tensor *t = ct__arena_zero(&m->p->arena, sizeof *t);
    if (!t) return no_memory(m, sizeof *t);
    *t = (ct_pickle_tensor){
        .storage = a[0]->storage,
        .type = g->kind == REBUILD_V3 ? &a[6]->global->type : a[0]->storage->type,
        .offset = a[1]->whole,
        .rank = a[2]->count,
        .dim = take_sizes(m, a[2], "sizes"),
        .stride = take_sizes(m, a[3], "strides"),
    };
    if (!t->dim || !t->stride) return false;
    if (t->type->dtype == CT_DEFAULT) return refuse(m, "%s of bytes without a dtype", g->name);
    v->tensor = t;
    return push(m, v);
}

static bool reduce(machine *m) {
    value *v = NULL;
    if (!need(m, 2)) return false;
    const value *called = m->stack[m->n - 2], *args = m->stack[m->n - 1];
    m->n -= 2;
    if (called->kind != CT_PICKLE_GLOBAL || args->kind != CT_PICKLE_TUPLE)
        return refuse(m, "%s is called with %s", kind_name(called), kind_name(args));
    const global *g = called->global;
    switch (g->kind) {
    case ORDERED_DICT:
        if (args->count)
            return refuse(m, "an OrderedDict made of something, which is not supported");
        return (v = new_value(m, CT_PICKLE_DICT)) && push(m, v);
    case SIZE:
        if (args->count != 1 || args->items[0]->kind != CT_PICKLE_TUPLE)
            return refuse(m, "a Size of what is no tuple");
        return push(m, args->items[0]);
    case PARAMETER:
        if (!args->count || args->items[0]->kind != CT_PICKLE_TENSOR)
            return refuse(m, "a parameter of what is no tensor");
        return push(m, args->items[0]);
    case REBUILD:
    case REBUILD_V3: return push_tensor(m, g, args);
    case STORAGE:
    case DTYPE: break;
    }
    return refuse(m, "\"%s.%s\" is called, which makes no tensor", g->module, g->name);
}

// Attributes of a dict, as state dicts have them (_metadata), are dropped.
static bool build(machine *m) {
    if (!need(m, 2)) return false;
    const value *to = m->stack[m->n - 2], *state = m->stack[m->n - 1];
    if (to->kind != CT_PICKLE_DICT || state->kind != CT_PICKLE_DICT)
        return refuse(m, "%s is given attributes (%s): only dicts have some", kind_name(to),
                      kind_name(state));
    m->n--;
    return true;
}

// -------------------------------------------------------------------------------------------- opcodes

static bool refuse_opcode(machine *m, unsigned op) {
    static const struct {
        unsigned code;
        const char *name;
    } makers[] = {{'i', "INST"},       {'o', "OBJ"},       {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},
                  {0x82, "EXT1"},      {0x83, "EXT2"},     {0x84, "EXT4"},   {'P', "PERSID"},
                  {0x8f, "EMPTY_SET"}, {0x91, "FROZENSET"}};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (makers[i].code == op)
            return refuse(m, "opcode %s makes an object: only tensors and plain values are read",
                          makers[i].name);
    return refuse(m, "opcode 0x%02x is none of those that PyTorch writes", op);
}

static bool step(machine *m, unsigned op) {
    unsigned char b[8] = {0};
    value **items;
    size_t n;
    switch (op) {
    case 0x80: // PROTO
        return take(m, b, 1) && ((b[0] >= 2 && b[0] <= 5) ||
                                 refuse(m, "protocol %d is not supported, 2 to 5 are", b[0]));
    case 0x95: return take(m, b, 8); // FRAME: a length for who reads streams
    case '(':
        if (!CT_GROW(m->marks, m->marks_cap, m->n_marks + 1))
            return no_memory(m, m->marks_cap * 2 * sizeof *m->marks);
        m->marks[m->n_marks++] = m->n;
        return true;
    case '0': return need(m, 1) && (m->n--, true);
    case '1': return to_mark(m, &items, &n);
    case '2': return need(m, 1) && push(m, m->stack[m->n - 1]);
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
    case 0x8d: return plain(m, op);
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
    case 'u': return container(m, op);
    case 'q':
    case 'r':
    case 'h':
    case 'j':
    case 0x94: return memo(m, op);
    case 'c':
    case 0x93: return take_global(m, op);
    case 'Q': return push_storage(m);
    case 'R': return reduce(m);
    case 'b': return build(m);
    default: return refuse_opcode(m, op);
    }
}

static bool run(machine *m, value **result) {
    for (;;) {
        unsigned char op;
        m->opcode = (size_t)(m->at - m->start);
        if (m->at == m->end) return refuse(m, "the pickle ends without its last opcode");
        op = *m->at++;
        if (op != '.') {
            if (!step(m, op)) return false;
            continue;
        }
        if (m->n != 1 || m->n_marks)
            return refuse(m, "it ends with %zu values, not with one", m->n);
        *result = m->stack[0];
        return true;
    }
}

bool ct__pickle_read(ct_pickle *p, const void *bytes, size_t n, value **result, size_t *used,
                     ct_err *err) {
    machine m = {
        .p = p, .start = bytes, .at = bytes, .end = (const unsigned char *)bytes + n, .err = err};
    bool ok = n <= CT_PICKLE_MOST ||
              refuse(&m, "a pickle of %zu bytes, at most %d are read", n, CT_PICKLE_MOST);
    ok = ok && run(&m, result);
    *used = (size_t)(m.at - m.start);
    ct__free(m.stack);
    ct__free(m.marks);
    ct__free(m.memo);
    return ok;
}
