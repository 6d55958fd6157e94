// cotan serve: published models behind HTTP. The command, its start and its end; serve.h says what the other files do.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

extern const char serve_page[];

bool answer_page(exchange *x) {
    x->type = "text/html; charset=utf-8";
    put(&x->out, serve_page, strlen(serve_page));
    return true;
}

// ------------------------------------------------------------------------------------------- words

// The next word of a list with commas or lines between them. NULL: there is none; n: its bytes.
static const char *next_word(const char **list, size_t *n) {
    *list += strspn(*list, ",\n");
    const char *word = *list;
    *n = strcspn(word, ",\n");
    *list += *n;
    return *n ? word : NULL;
}

static int add_keys(serve_settings *is, const char *list) {
    size_t n;
    for (const char *key; (key = next_word(&list, &n));) {
        if (is->n_keys == MOST_KEYS) return refuse("serve: at most %d API keys", MOST_KEYS);
        if (!(is->keys[is->n_keys] = strndup(key, n))) return refuse("serve: out of memory");
        is->n_keys++;
    }
    return EXIT_DONE;
}

static int read_keys(serve_settings *is, const char *given, const char *path) {
    const char *environment = getenv("COTAN_API_KEY");
    char *text = NULL;
    size_t cap = 0;
    int status = given ? add_keys(is, given) : EXIT_DONE;
    if (status == EXIT_DONE && given && !is->n_keys)
        return refuse("serve: --api-key names no key, and without one the server is open to all");
    const size_t own = is->n_keys;
    if (status == EXIT_DONE && environment) status = add_keys(is, environment);
    if (status == EXIT_DONE && environment && is->n_keys == own)
        return refuse("serve: COTAN_API_KEY names no key, and without one the server is open to "
                      "all: unset it, or set it to a key");
    if (status != EXIT_DONE || !path) return status;
    FILE *file = fopen(path, "r");
    if (!file) return refuse("serve: --api-key-file %s: %s", plain(path), strerror(errno));
    const size_t before = is->n_keys;
    if (getdelim(&text, &cap, '\0', file) > 0) status = add_keys(is, text);
    fclose(file);
    free(text);
    if (status == EXIT_DONE && is->n_keys == before)
        return refuse("serve: --api-key-file %s: it is empty", plain(path));
    return status;
}

static int list_models(server *s, char **words, size_t n, const char *names) {
    const char *list = names;
    size_t name_n = 0;
    if (n > MOST_MODELS) return refuse("serve: at most %d models, not %zu", MOST_MODELS, n);
    s->models = calloc(n, sizeof *s->models);
    if (!s->models) return refuse("serve: out of memory");
    s->n_models = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = names ? next_word(&list, &name_n) : NULL;
        if (names && !name)
            return refuse("serve: --name %s has fewer names than there are models", plain(names));
        s->models[i].server = s;
        s->models[i].path = words[i];
        name_model(&s->models[i], name, name_n);
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->models[k].name, s->models[i].name) == 0)
                return refuse("serve: two models are called %s: --name gives them others",
                              plain(s->models[i].name));
    }
    if (names && next_word(&list, &name_n))
        return refuse("serve: --name %s has more names than there are models", plain(names));
    return EXIT_DONE;
}

// ------------------------------------------------------------------------------------- from start to end

// Looks after the connections, until `seconds` are over or a signal comes, whose number it returns; else 0.
static int look_on(listener *l, double seconds) {
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    const double until = seconds_now() + seconds;
    do {
        const struct timespec tick = {.tv_nsec = 50 * 1000 * 1000};
        const int signal = sigtimedwait(&both, NULL, &tick);
        look_after(l);
        if (signal > 0) return signal;
    } while (seconds_now() < until);
    return 0;
}

static int load_models(server *s, listener *l) {
    for (size_t i = 0; i < s->n_models; i++) {
        model *m = &s->models[i];
        while (atomic_load(&m->state) == MODEL_LOADING)
            if (look_on(l, 0)) return EXIT_INTERRUPTED;
        if (atomic_load(&m->state) == MODEL_BROKEN) {
            fprintf(stderr, "cotan: serve: %s\n", m->why);
            return EXIT_FAILED;
        }
    }
    const bool six = strchr(s->is.host, ':') != NULL;
    printf("listening on http://%s%s%s:%d\n", six ? "[" : "", s->is.host, six ? "]" : "",
           listener_port(l));
    return flush_output() ? EXIT_DONE : EXIT_FAILED;
}

// Requests that run are given a moment; a second signal ends all at once.
static void end_requests(listener *l) {
    refuse_more(l);
    for (int cancelled = 0; cancelled < 2; cancelled++) { // what was cancelled is told so
        const double until = seconds_now() + (cancelled ? 1 : LAST_SECONDS);
        if (cancelled) cancel_all(l);
        while (busy_requests(l) && seconds_now() < until)
            if (look_on(l, 0)) _exit(EXIT_INTERRUPTED);
    }
    if (busy_requests(l)) _exit(EXIT_INTERRUPTED); // vectors of many texts, which nothing cancels
}

// A file that cannot be read to its end, or a step that lasts, does not hold the process.
static void end_models(server *s, size_t started, int status) {
    for (size_t i = 0; i < started; i++)
        if (!stop_model(&s->models[i])) _exit(status == EXIT_DONE ? EXIT_INTERRUPTED : status);
}

static int serve(server *s) {
    int status;
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &both, NULL); // for all threads: look_on waits for them
    signal(SIGPIPE, SIG_IGN);
    guard_files();
    json_object_seed(0); // before there are threads
    listener *l = listen_http(s, &status);
    if (!l) return status;
    size_t started = 0;
    while (started < s->n_models && start_model(&s->models[started])) started++;
    status = started < s->n_models ? EXIT_FAILED : load_models(s, l);
    if (status == EXIT_DONE)
        while (!look_on(l, 3600)) continue;
    atomic_store(&s->stopping, true);
    end_requests(l);
    close_http(l);
    end_models(s, started, status);
    return status;
}

// -------------------------------------------------------------------------------------------- command

static const char what_it_does[] =
    "Serves published models over HTTP, to many at once: MODEL is its folder as Hugging Face has\n"
    "it, a GGUF file, or ORG/NAME that cotan pull brought. Clients of OpenAI's API find it at\n"
    "http://HOST:PORT/v1 (chat, completions, responses, embeddings, tools, streams), those of\n"
    "Ollama's at http://HOST:PORT, and a browser finds a page to chat at the same place. Several\n"
    "models are served beside each other; requests name one, or get the first. /metrics counts,\n"
    "/health says when all is loaded. Ctrl-C lets what runs end for five seconds, a second one\n"
    "does not. Without --api-key whoever reaches the port may use it: it is this machine alone\n"
    "that does, unless --host says otherwise.\n";

static const char *const cache_types[] = {"f32", "f16", "bf16", "i8", NULL};

static const char examples[] =
    "  cotan serve HuggingFaceTB/SmolLM2-135M-Instruct\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",\n"
    "      \"content\": \"Hello\"}]}'\n"
    "  cotan serve small.gguf large.gguf --name small,large --parallel 64\n"
    "  COTAN_API_KEY=secret cotan serve my-model --host 0.0.0.0\n";

enum { QUEUE = 1024, BODIES = 64 << 20 };

int run_serve(int argc, char **argv) {
    server s = {.is = {.host = "127.0.0.1", .timeout = 60}};
    ct_num port = CT_F(8080);
    const char *name = NULL, *names = NULL, *keys = NULL, *key_file = NULL;
    serve_settings *is = &s.is;
    opt on[MACHINE_OPTIONS];
    int status;
    list_machine_options(&is->machine, on);
    opt options[] = {
        {"host", OPT_PATH, "ADDRESS", "where to listen; 0.0.0.0: on all networks (127.0.0.1)",
         .out = &is->host},
        {"port", OPT_COUNT, "N", "0: one that is free (8080)", 0, 65535, .out = &port},
        {"name", OPT_PATH, "NAMES", "how requests call the models, commas between (by their files)",
         .out = &names},
        {"api-key", OPT_PATH, "KEYS",
         "requests must bring one of these, commas between (COTAN_API_KEY)", .out = &keys},
        {"api-key-file", OPT_PATH, "FILE",
         "the same from a file, a line each, which ps does not show", .out = &key_file},
        {"context", OPT_WHOLE, "N",
         "tokens that a text may have (the model's before it is stretched, at most 8192)", 16, 1e7,
         .out = &is->context},
        {"parallel", OPT_WHOLE, "N", "texts that are written at one time (32)", 1, 1024,
         .out = &is->parallel},
        {"queue", OPT_WHOLE, "N", "texts that wait beside them, before 429 is said (1024)", 1, 1e6,
         .out = &is->queue},
        {"cache-memory", OPT_BYTES, "SIZE", "for keys and values: 500MB, 2GiB (as the texts need)",
         1e5, .out = &is->cache},
        {"body-memory", OPT_BYTES, "SIZE",
         "for the bodies of all requests together, before 503 is said (64MiB)", 1e6,
         .out = &is->bodies},
        {"cache-type", OPT_CHOICE, "TYPE", "of keys and values: f32, f16, bf16 or i8 (f32)",
         .choices = cache_types, .out = &is->cache_type},
        {"guesses", OPT_WHOLE, "N",
         "tokens that a text alone guesses from its own repetitions (none)", 0, 15,
         .out = &is->guesses},
        {"cors", OPT_PATH, "ORIGIN", "lets pages from there use it, *: from anywhere (none)",
         .out = &is->cors},
        {"timeout", OPT_WHOLE, "N",
         "seconds for a request to arrive, and a client to take more (60)", 1, 86400,
         .out = &is->timeout},
        on[0],
        on[1],
        on[2],
        on[3],
    };
    command c = {
        .name = "serve",
        .usage = "MODEL... [options]",
        .operand = "MODEL",
        .several = true,
        .text = what_it_does,
        .examples = examples,
        .opts = options,
        .n = sizeof options / sizeof *options,
    };
    if (!parse(&c, argc, argv, &name, &status)) return status;
    is->port = (int64_t)port.value;
    if (!is->queue) is->queue = QUEUE;
    if (!is->bodies) is->bodies = BODIES;
    status = read_keys(is, keys, key_file);
    if (status == EXIT_DONE) status = list_models(&s, argv, c.n_words, names);
    if (status == EXIT_DONE && use_machine(&is->machine, c.name, &status)) {
        s.metrics = metrics_new();
        status = s.metrics ? serve(&s) : EXIT_FAILED;
        metrics_free(s.metrics);
    }
    for (size_t i = 0; i < is->n_keys; i++) free(is->keys[i]);
    free(s.models);
    return status;
}
