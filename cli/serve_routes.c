// The routes, and the parts that all replies share.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve.h"

const route routes[] = {
    {"GET", "/", .is_public = true, .works_while_loading = true, .handle = handle_page},
    {"GET", "/health", .is_public = true, .works_while_loading = true, .handle = handle_health},
    {"GET", "/metrics", .works_while_loading = true, .handle = handle_metrics},
    {"GET", "/v1/models", .handle = handle_models},
    {"GET", "/v1/models/", .has_suffix = true, .handle = handle_model},
    {"POST", "/v1/chat/completions", .families = FIELDS_CHAT, .handle = handle_chat},
    {"POST", "/v1/completions", .families = FIELDS_COMPLETION, .handle = handle_completions},
    {"POST", "/v1/responses", .families = FIELDS_RESPONSES, .handle = handle_responses},
    {"POST", "/v1/embeddings", .handle = handle_embeddings},
    {"POST", "/tokenize", .handle = handle_tokenize},
    {"POST", "/detokenize", .handle = handle_detokenize},
    {"POST", "/apply-template", .families = FIELDS_CHAT, .handle = handle_apply_template},
    {"POST", "/completion", .families = FIELDS_NATIVE, .handle = handle_native},
    {"GET", "/props", .handle = handle_props},
    {"GET", "/slots", .handle = handle_slots},
    {"POST", "/rerank", .handle = handle_rerank},
    {"POST", "/v1/rerank", .handle = handle_rerank},
    {"POST", "/embed", .handle = handle_tei_embed},
    {"POST", "/predict", .handle = handle_predict},
    {"POST", "/api/chat", .style = STYLE_OLLAMA, .families = FIELDS_OLLAMA,
     .handle = handle_ollama_chat},
    {"POST", "/api/generate", .style = STYLE_OLLAMA, .families = FIELDS_OLLAMA,
     .handle = handle_ollama_generate},
    {"POST", "/api/embed", .style = STYLE_OLLAMA, .handle = handle_ollama_embed},
    {"POST", "/api/embeddings", .style = STYLE_OLLAMA, .handle = handle_ollama_embeddings},
    {"GET", "/api/tags", .style = STYLE_OLLAMA, .handle = handle_ollama_tags},
    {"POST", "/api/show", .style = STYLE_OLLAMA, .handle = handle_ollama_show},
    {"GET", "/api/ps", .style = STYLE_OLLAMA, .handle = handle_ollama_ps},
    {"POST", "/api/create", .style = STYLE_OLLAMA, .handle = handle_ollama_unsupported},
    {"POST", "/api/push", .style = STYLE_OLLAMA, .handle = handle_ollama_unsupported},
    {"POST", "/api/pull", .style = STYLE_OLLAMA, .handle = handle_ollama_unsupported},
    {"POST", "/api/copy", .style = STYLE_OLLAMA, .handle = handle_ollama_unsupported},
    {"DELETE", "/api/delete", .style = STYLE_OLLAMA, .handle = handle_ollama_unsupported},
    {"GET", "/api/version", .style = STYLE_OLLAMA, .works_while_loading = true,
     .handle = handle_ollama_version},
};
const size_t n_routes = sizeof routes / sizeof *routes;

// ------------------------------------------------------------------------------------------- texts

void buffer_put(buffer *to, const char *text, size_t n) {
    if (to->failed) return;
    if (to->n + n + 1 > to->cap) {
        const size_t cap = 2 * (to->n + n) + 64;
        char *v = realloc(to->v, cap);
        if (!v) {
            to->failed = true;
            return;
        }
        to->v = v;
        to->cap = cap;
    }
    if (n) memcpy(to->v + to->n, text, n);
    to->n += n;
    to->v[to->n] = '\0';
}

void buffer_putf(buffer *to, const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        to->failed = true;
        return;
    }
    buffer_put(to, text, (size_t)n);
    free(text);
}

static int buffer_on_json(const char *text, size_t n, void *user) {
    buffer *to = user;
    buffer_put(to, text, n);
    return to->failed ? -1 : 0;
}

void buffer_put_json(buffer *to, json_t *value) {
    if (!value || json_dump_callback(value, buffer_on_json, to, JSON_COMPACT | JSON_ENCODE_ANY))
        to->failed = true;
    json_decref(value);
}

void buffer_put_event(buffer *to, const char *name, json_t *value) {
    if (name) buffer_putf(to, "event: %s\n", name);
    buffer_put(to, "data: ", 6);
    buffer_put_json(to, value);
    buffer_put(to, "\n\n", 2);
}

json_t *json_utf8(const char *text, size_t n) {
    json_t *value = json_stringn(text ? text : "", text ? n : 0);
    return value ? value : json_string("\xef\xbf\xbd");
}

// ----------------------------------------------------------------------------------------- replies

static const char *routes_error_type(int code) {
    switch (code) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 500:
    case 503: return "server_error";
    default: return "invalid_request_error";
    }
}

static json_t *routes_error_code(int code, const char *param) {
    if (code == 401) return json_string("invalid_api_key");
    if (code == 404 && param) return json_string("model_not_found");
    if (code == 429) return json_string("queue_full");
    return json_null();
}

json_t *error_object(error_style style, int code, const char *param, const char *what) {
    json_t *text = json_utf8(what, strlen(what));
    if (style == STYLE_OLLAMA) return json_pack("{s:o}", "error", text);
    // A prompt that exceeds the context has a code of its own, which clients check.
    const bool long_ = code == 400 && strstr(what, "the context of");
    return json_pack("{s:{s:o, s:s, s:s?, s:o}}", "error", "message", text, "type",
                     routes_error_type(code), "param", param, "code",
                     long_ ? json_string("context_length_exceeded")
                           : routes_error_code(code, param));
}

static void routes_reply_error(exchange *x, int code, const char *param, const char *what) {
    x->code = code;
    x->content_type = "application/json";
    x->out.n = 0;
    buffer_put_json(&x->out,
                    error_object(x->route ? x->route->style : STYLE_OPENAI, code, param, what));
}

bool fail_request(exchange *x, int code, const char *param, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&text, format, args);
    va_end(args);
    routes_reply_error(x, code, param, n < 0 ? "there is no memory" : text);
    if (n >= 0) free(text);
    return false;
}

bool fail_request_from_error(exchange *x, int code, const char *param) {
    routes_reply_error(x, code, param, ct_failed() ? ct_error_text() : "there is no memory");
    ct_error_clear();
    return false;
}

bool reply_json(exchange *x, json_t *value) {
    x->content_type = "application/json";
    buffer_put_json(&x->out, value);
    return !x->out.failed || fail_request(x, 500, NULL, "there is no memory for the reply");
}

bool reply_stream(exchange *x, const char *type, bool (*next)(void *, buffer *),
                  void (*end)(void *), void *state) {
    x->content_type = type;
    x->next_chunk = next;
    x->end_state = end;
    x->state = state;
    return true;
}

// ------------------------------------------------------------------------------------------ numbers

uint64_t random_number(void) {
    uint64_t n = 0;
    if (getrandom(&n, sizeof n, 0) != (ssize_t)sizeof n) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        n = (uint64_t)t.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)t.tv_sec;
    }
    return n;
}

void make_id(const char *prefix, char id[ID_BYTES]) {
    snprintf(id, ID_BYTES, "%s%016llx%08x", prefix, (unsigned long long)random_number(),
             (unsigned)random_number());
}
