// cotan serve: published models over HTTP. The command, its start and shutdown; serve.h describes the
// other files.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

extern const char serve_page[];

bool handle_page(exchange *x) {
    x->content_type = "text/html; charset=utf-8";
    buffer_put(&x->out, serve_page, strlen(serve_page));
    return true;
}

// ------------------------------------------------------------------------------------------- words

// Returns the next word of a list that is separated by commas or newlines. NULL: none; n: its length.
static const char *serve_next_word(const char **list, size_t *n) {
    *list += strspn(*list, ",\n");
    const char *word = *list;
    *n = strcspn(word, ",\n");
    *list += *n;
    return *n ? word : NULL;
}

static int serve_add_keys(serve_settings *is, const char *list) {
    size_t n;
    for (const char *key; (key = serve_next_word(&list, &n));) {
        if (is->n_keys == MAX_KEYS) return usage_error("serve: at most %d API keys", MAX_KEYS);
        if (!(is->keys[is->n_keys] = strndup(key, n))) return usage_error("serve: out of memory");
        is->n_keys++;
    }
    return EXIT_DONE;
}

static int serve_read_keys(serve_settings *is, const char *given, const char *path) {
    const char *environment = getenv("COTAN_API_KEY");
    char *text = NULL;
    size_t cap = 0;
    int status = given ? serve_add_keys(is, given) : EXIT_DONE;
    if (status == EXIT_DONE && given && !is->n_keys)
        return usage_error(
            "serve: --api-key names no key, and without one the server is open to all");
    const size_t own = is->n_keys;
    if (status == EXIT_DONE && environment) status = serve_add_keys(is, environment);
    if (status == EXIT_DONE && environment && is->n_keys == own)
        return usage_error(
            "serve: COTAN_API_KEY names no key, and without one the server is open to "
            "all: unset it, or set it to a key");
    if (status != EXIT_DONE || !path) return status;
    FILE *file = fopen(path, "r");
    if (!file) return usage_error("serve: --api-key-file %s: %s", printable(path), strerror(errno));
    const size_t before = is->n_keys;
    if (getdelim(&text, &cap, '\0', file) > 0) status = serve_add_keys(is, text);
    fclose(file);
    free(text);
    if (status == EXIT_DONE && is->n_keys == before)
        return usage_error("serve: --api-key-file %s: it is empty", printable(path));
    return status;
}

static int serve_models_init(server *s, char **words, size_t n, const char *names) {
    const char *list = names;
    size_t name_n = 0;
    if (n > MAX_MODELS) return usage_error("serve: at most %d models, not %zu", MAX_MODELS, n);
    s->models = calloc(n, sizeof *s->models);
    if (!s->models) return usage_error("serve: out of memory");
    s->n_models = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = names ? serve_next_word(&list, &name_n) : NULL;
        if (names && !name)
            return usage_error("serve: --served-name %s has fewer names than there are models",
                               printable(names));
        s->models[i].server = s;
        s->models[i].path = words[i];
        model_set_name(&s->models[i], name, name_n);
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->models[k].name, s->models[i].name) == 0)
                return usage_error(
                    "serve: two models are called %s: --served-name gives them others",
                    printable(s->models[i].name));
    }
    if (names && serve_next_word(&list, &name_n))
        return usage_error("serve: --served-name %s has more names than there are models",
                           printable(names));
    return EXIT_DONE;
}

// ------------------------------------------------------------------------------------- from start to end

// Polls the connections until `seconds` have passed or a signal arrives. Returns the signal's number, or
// 0.
static int serve_poll_until(listener *l, double seconds) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    const double until = seconds_now() + seconds;
    do {
        const struct timespec tick = {.tv_nsec = 50 * 1000 * 1000};
        const int signal = sigtimedwait(&both, NULL, &tick);
        listener_poll(l);
        if (signal > 0) return signal;
    } while (seconds_now() < until);
    return 0;
}

static int serve_wait_for_models(server *s, listener *l) {
    const model *broken = NULL;
    bool stopped = false;
    progress_watch_kernels(true);
    for (size_t i = 0; i < s->n_models && !stopped && !broken; i++) {
        const model *m = &s->models[i];
        while (!stopped && atomic_load(&m->state) == MODEL_LOADING)
            stopped = serve_poll_until(l, 0) != 0;
        if (atomic_load(&m->state) == MODEL_FAILED) broken = m;
    }
    progress_watch_kernels(false);
    if (stopped) return EXIT_INTERRUPTED;
    if (broken) {
        fprintf(stderr, "cotan: serve: %s\n", broken->error);
        return EXIT_FAILED;
    }
    const bool six = strchr(s->is.host, ':') != NULL;
    printf("listening on http://%s%s%s:%d\n", six ? "[" : "", s->is.host, six ? "]" : "",
           listener_port(l));
    return flush_output() ? EXIT_DONE : EXIT_FAILED;
}

// Drains running requests for a while; a second signal ends the process.
static void serve_drain_requests(listener *l) {
    listener_stop_accepting(l);
    // The second round waits until cancelled requests have been replied to.
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        const double until = seconds_now() + (cancelled ? 1 : SHUTDOWN_SECONDS);
        if (cancelled) listener_cancel_all(l);
        while (listener_busy_count(l) && seconds_now() < until)
            if (serve_poll_until(l, 0)) _exit(EXIT_INTERRUPTED);
    }
    // Embeddings of many texts, which cannot be cancelled.
    if (listener_busy_count(l)) _exit(EXIT_INTERRUPTED);
}

// A model thread that is blocked in a read or a long step does not prevent the end of the process.
static void serve_stop_models(server *s, size_t started, int status) {
    for (size_t i = 0; i < started; i++)
        if (!model_stop(&s->models[i])) _exit(status == EXIT_DONE ? EXIT_INTERRUPTED : status);
}

// Makes malloc map large blocks, which are returned to the system when they are freed. By default glibc
// raises the threshold to the size of the largest block that was freed, and the arena of each thread
// retains as much at its top, which malloc_trim does not reach.
static void serve_map_large_blocks(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, LARGE_BODY);
#endif
}

static int serve_run(server *s) {
    int status;
    serve_map_large_blocks();
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &both, NULL); // for all threads: serve_poll_until waits for them
    signal(SIGPIPE, SIG_IGN);
    truncation_install_handler();
    json_object_seed(0); // before other threads exist
    listener *l = listener_open(s, &status);
    if (!l) return status;
    size_t started = 0;
    while (started < s->n_models && model_start(&s->models[started])) started++;
    status = started < s->n_models ? EXIT_FAILED : serve_wait_for_models(s, l);
    if (status == EXIT_DONE)
        while (!serve_poll_until(l, 3600)) continue;
    atomic_store(&s->stopping, true);
    serve_drain_requests(l);
    listener_close(l);
    serve_stop_models(s, started, status);
    return status;
}

// -------------------------------------------------------------------------------------------- command

static const char what_it_does[] =
    "Serves published models over HTTP: MODEL is a Hugging Face folder, a GGUF file, or ORG/NAME\n"
    "that cotan pull downloaded. The OpenAI-compatible API is at http://HOST:PORT/v1 (chat,\n"
    "completions, responses, embeddings, tools, streams), Ollama's API and a chat page for\n"
    "browsers are at http://HOST:PORT. Several models can be served; a request names one, or gets\n"
    "the first. /metrics has Prometheus metrics, /health reports when all models are loaded.\n"
    "Ctrl-C drains running requests for five seconds; a second one stops at once. Without\n"
    "--api-key anyone who can reach the port may use it: by default only this machine, see\n"
    "--host.\n";

static const char *const cache_types[] = {"f32", "f16", "bf16", "i8", NULL};

static const char examples[] =
    "  cotan serve HuggingFaceTB/SmolLM2-135M-Instruct\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",\n"
    "      \"content\": \"Hello\"}]}'\n"
    "  cotan serve small.gguf large.gguf --served-name small,large --max-sequences 64\n"
    "  COTAN_API_KEY=secret cotan serve my-model --host 0.0.0.0\n";

enum { QUEUE = 1024, BODIES = 64 << 20 };

int run_serve(int argc, char **argv) {
    server s = {.is = {.host = "127.0.0.1", .timeout = 60}};
    ct_num port = CT_F(8080);
    const char *name = NULL, *names = NULL, *keys = NULL, *key_file = NULL;
    serve_settings *is = &s.is;
    int status;
    opt options[] = {
        {"host", OPT_PATH, "ADDRESS", "where to listen; 0.0.0.0: on all networks (127.0.0.1)",
         .out = &is->host},
        {"port", OPT_OPTIONAL_INT, "N", "0: one that is free (8080)", 0, 65535, .out = &port},
        {"served-name", OPT_PATH, "NAMES",
         "how requests call the models, commas between (by their files)", .out = &names},
        {"api-key", OPT_PATH, "KEYS",
         "API keys, separated by commas, one of which requests must send (COTAN_API_KEY)",
         .out = &keys},
        {"api-key-file", OPT_PATH, "FILE",
         "the same from a file, a line each, which ps does not show", .out = &key_file},
        {"context", OPT_INT, "N",
         "maximum number of tokens of a sequence (the model's default, at most 8192)", 16, 1e7,
         .out = &is->context},
        {"max-sequences", OPT_INT, "N", "maximum number of running sequences (32)", 1, 1024,
         .out = &is->max_sequences},
        {"max-queued", OPT_INT, "N",
         "maximum number of queued requests; more get status 429 (1024)", 1, 1e6,
         .out = &is->max_queued},
        {"cache-memory", OPT_BYTES, "SIZE",
         "memory of the KV cache: 500MB, 2GiB (enough for the sequences)", 1e5,
         .out = &is->cache_bytes},
        {"body-memory", OPT_BYTES, "SIZE",
         "memory of the bodies of all requests; more get status 503 (64MiB)", 1e6,
         .out = &is->max_body_bytes},
        {"cache-type", OPT_CHOICE, "TYPE", "of keys and values: f32, f16, bf16 or i8 (f32)",
         .choices = cache_types, .out = &is->cache_type},
        activations_option(&is->activations),
        {"speculate", OPT_INT, "N", "maximum number of draft tokens per step, by prompt lookup (0)",
         0, 15, .out = &is->speculate},
        {"prefill-chunk", OPT_INT, "N", "maximum number of prompt tokens per step (256)", 16, 4096,
         .out = &is->prefill_chunk},
        {"cors", OPT_PATH, "ORIGIN", "lets pages from there use it, *: from anywhere (none)",
         .out = &is->cors},
        {"timeout", OPT_INT, "N", "seconds for a request to arrive, and a client to take more (60)",
         1, 86400, .out = &is->timeout},
        MACHINE_OPTIONS(is->machine),
    };
    command c = {
        .name = "serve",
        .usage = "MODEL... [options]",
        .operand = "MODEL",
        .many_operands = true,
        .text = what_it_does,
        .examples = examples,
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!options_parse(&c, argc, argv, &name, &status)) return status;
    is->port = (int64_t)port.value;
    if (!is->max_queued) is->max_queued = QUEUE;
    if (!is->max_body_bytes) is->max_body_bytes = BODIES;
    status = serve_read_keys(is, keys, key_file);
    if (status == EXIT_DONE) status = serve_models_init(&s, argv, c.n_operands, names);
    if (status == EXIT_DONE && machine_apply(&is->machine, c.name, &status)) {
        s.metrics = metrics_new();
        status = s.metrics ? serve_run(&s) : EXIT_FAILED;
        metrics_free(s.metrics);
    }
    for (size_t i = 0; i < is->n_keys; i++) free(is->keys[i]);
    free(s.models);
    return status;
}
