// A device that runs another one on its own thread, with buffers that the host cannot access, like
// a GPU; for tests. A buffer's handle is its real address with the upper bits flipped, so that any
// access faults; commands are copied into a queue and run in order.
#include <fenv.h>
#include <pthread.h>
#include <string.h>

#include "backend/backend.h"
#include "base/pool.h"

#define HANDLE_TAG 0xa5a5000000000000u

typedef struct item { // commands that belong together, or an upload
    struct item *next;
    ct_command *commands; // (n)
    size_t n;
    const atomic_bool *stop; // NULL: they cannot be stopped
    void *bytes;             // an upload: its only command is a COPY to args[0]
} item;

enum { MAX_LOST = 16 };
struct lost_range {
    uint64_t first, last;
};

typedef struct async {
    pthread_t thread;
    pthread_mutex_t lock; // guards all below
    pthread_cond_t work, done;
    item *first, **last;
    uint64_t enqueued, finished;
    bool closing;
    ct_err err;                       // the first fault, until it is reported
    uint64_t failed;                  // the item that failed; numbered from 1
    struct lost_range lost[MAX_LOST]; // items that never ran, of reported faults
    size_t n_lost;
} async;

static void *async_tag(void *p) { return (void *)((uintptr_t)p ^ HANDLE_TAG); }

static void async_run_item(ct_device *inner, item *it, ct_err *err) {
    inner->stop = it->stop;
    if (it->bytes)
        inner->backend->copy_in(inner, it->commands->args[0], it->bytes, it->commands->bytes, err);
    else
        inner->backend->submit(inner, it->commands, it->n, err);
    inner->stop = NULL;
}

// After a fault nothing runs until it is reported; then only items enqueued after that run.
static bool async_should_run(const async *a, uint64_t number) {
    return !a->err.code && (!a->n_lost || number > a->lost[a->n_lost - 1].last);
}

static void *async_worker(void *arg) {
    ct_device *device = arg;
    async *a = device->state;
    fesetenv(FE_DFL_ENV); // the host program's thread may have had another
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->first && !a->closing) pthread_cond_wait(&a->work, &a->lock);
        item *it = a->first;
        if (!it) break;
        a->first = it->next;
        if (!a->first) a->last = &a->first;
        ct_err err = {0};
        bool run = async_should_run(a, a->finished + 1);
        pthread_mutex_unlock(&a->lock);
        if (run) async_run_item(device->inner, it, &err);
        ct__free(it);
        pthread_mutex_lock(&a->lock);
        a->finished++;
        if (err.code) {
            a->err = err;
            a->failed = a->finished;
        }
        pthread_cond_broadcast(&a->done);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static bool async_open(ct_device *device, ct_err *err) {
    async *a = ct__calloc(1, sizeof *a);
    if (!a) return ct__err_memory(err, CT_NOWHERE, "async", sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    pthread_cond_init(&a->done, NULL);
    a->last = &a->first;
    device->state = a;
    int failed = ct__thread_start(&a->thread, async_worker, device);
    if (!failed) return true;
    ct__free(a);
    return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "async", "cannot start a thread: %s",
                   strerror(failed));
}

static void async_close(ct_device *device) {
    async *a = device->state;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->done);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->lock);
    ct__free(a);
}

// Called once the fault is reported: the failed item and all enqueued by now are lost.
static void async_close_fault(async *a) {
    a->err.code = CT_OK;
    // If more faults occur than can be remembered, items that ran between two count as lost too.
    if (a->n_lost == MAX_LOST)
        a->lost[MAX_LOST - 1].last = a->enqueued;
    else
        a->lost[a->n_lost++] = (struct lost_range){a->failed, a->enqueued};
    atomic_fetch_add(&ct__faults, 1);
}

static bool async_lost(ct_device *device, uint64_t begin, uint64_t end) {
    async *a = device->state;
    bool found = false;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->n_lost; i++)
        found |= begin < a->lost[i].last && end >= a->lost[i].first && begin < end;
    pthread_mutex_unlock(&a->lock);
    return found;
}

static bool async_wait(ct_device *device, ct_err *err) {
    async *a = device->state;
    pthread_mutex_lock(&a->lock);
    const uint64_t event = a->enqueued;
    while (a->finished < event) pthread_cond_wait(&a->done, &a->lock);
    bool ok = !a->err.code;
    if (!ok && err && !err->code) {
        *err = a->err; // else the fault stays for the next call that reports it
        async_close_fault(a);
    }
    pthread_mutex_unlock(&a->lock);
    return ok;
}
static uint64_t async_event(ct_device *device) {
    async *a = device->state;
    pthread_mutex_lock(&a->lock);
    uint64_t event = a->enqueued;
    pthread_mutex_unlock(&a->lock);
    return event;
}

static void *async_alloc(ct_device *device, size_t bytes, ct_err *err) {
    void *p = device->inner->backend->alloc(device->inner, bytes, err);
    return p ? async_tag(p) : NULL;
}
static void async_free(ct_device *device,
                       void *buffer) { // waits until the enqueued commands have used it
    async_wait(device, NULL);
    device->inner->backend->free(device->inner, async_tag(buffer));
}

static void async_enqueue(async *a, item *it) {
    pthread_mutex_lock(&a->lock);
    *a->last = it;
    a->last = &it->next;
    a->enqueued++;
    pthread_cond_signal(&a->work);
    pthread_mutex_unlock(&a->lock);
}

static void async_copy_command(ct_command *to, const ct_command *c, ct_operand **args,
                               int64_t **numbers) {
    *to = *c;
    to->args = *args;
    to->numbers = *numbers;
    for (uint32_t i = 0; i < c->n_args; i++)
        *(*args)++ = (ct_operand){async_tag(c->args[i].buffer), c->args[i].offset};
    for (uint32_t i = 0; i < c->n_numbers; i++) *(*numbers)++ = c->numbers[i];
}

// Copies commands, followed by their operands, numbers and bytes.
static item *async_make_item(const ct_command *commands, size_t n, const void *bytes,
                             size_t n_bytes) {
    size_t n_args = 0, n_numbers = 0;
    for (size_t i = 0; i < n; i++) n_args += commands[i].n_args, n_numbers += commands[i].n_numbers;
    item *it = ct__malloc(sizeof *it + n * sizeof *commands + n_args * sizeof(ct_operand) +
                          n_numbers * sizeof(int64_t) + n_bytes);
    if (!it) return NULL;
    *it = (item){.commands = (ct_command *)(it + 1), .n = n};
    ct_operand *args = (ct_operand *)(it->commands + n);
    int64_t *numbers = (int64_t *)(args + n_args);
    for (size_t i = 0; i < n; i++)
        async_copy_command(&it->commands[i], &commands[i], &args, &numbers);
    if (bytes) it->bytes = memcpy(numbers, bytes, n_bytes);
    return it;
}

static bool async_copy_in(ct_device *device, ct_operand to, const void *host, size_t n,
                          ct_err *err) {
    if (!n) return true;
    ct_command c = {.kind = CT_COMMAND_COPY, .args = &to, .n_args = 1, .bytes = n};
    item *it = async_make_item(&c, 1, host, n);
    if (!it) return ct__err_memory(err, CT_NOWHERE, "async", n);
    async_enqueue(device->state, it);
    return true;
}
static bool async_copy_out(ct_device *device, ct_operand from, void *host, size_t n, ct_err *err) {
    if (!async_wait(device, err)) return false;
    from.buffer = async_tag(from.buffer);
    return device->inner->backend->copy_out(device->inner, from, host, n, err);
}
// True if a loop may run until its predicate fails; other enqueued commands cannot be stopped.
static bool async_has_unbounded_loop(const ct_command *commands, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((commands[i].kind == CT_COMMAND_LOOP && commands[i].n_args) ||
            (commands[i].kind == CT_COMMAND_NODE && commands[i].node->op->kind == &ct__kind_loop))
            return true;
    return false;
}
static bool async_submit(ct_device *device, const ct_command *commands, size_t n, ct_err *err) {
    for (size_t i = 0, span; i < n; i += span) {
        if (ct__stopped(device, err)) return false;
        span = ct__command_span(&commands[i]);
        item *it = async_make_item(&commands[i], span, NULL, 0);
        if (!it) return ct__err_memory(err, CT_NOWHERE, "async", sizeof *it);
        it->stop = async_has_unbounded_loop(&commands[i], span) ? device->stop : NULL;
        async_enqueue(device->state, it);
    }
    return true;
}
static bool async_build(ct_device *device, ct_kernel *const *kernels, size_t n, ct_err *err) {
    return device->inner->backend->build(device->inner, kernels, n, err);
}
static bool async_start(ct_device *device, const ct_command *commands, size_t n,
                        const atomic_bool *stop, bool *finished, ct_err *err) {
    const ct_device *inner = device->inner;
    return !inner->backend->start ||
           inner->backend->start(device->inner, commands, n, stop, finished, err);
}

const ct_backend ct__backend_async = {
    .name = "async",
    .open = async_open,
    .close = async_close,
    .alloc = async_alloc,
    .free = async_free,
    .copy_in = async_copy_in,
    .copy_out = async_copy_out,
    .submit = async_submit,
    .event = async_event,
    .wait = async_wait,
    .lost = async_lost,
    .build = async_build,
    .start = async_start,
};
