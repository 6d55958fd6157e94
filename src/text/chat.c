// Chat templates: loading from models' folders, and rendering of conversations.
#include "cotan/chat.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/os.h"
#include "graph/graph.h"
#include "io/config.h"
#include "io/hub.h"
#include "io/json.h"
#include "io/utf8.h"
#include "text/chat_forms.h"
#include "io/weights.h"
#include "text/gguf.h"
#include "text/jinja.h"

// Limits of a template: a few seconds, and enough for a conversation of millions of tokens.
static const ct_jinja_limits chat_default_limits = {
    .steps = 200 * 1000 * 1000, .memory = (size_t)1 << 30, .output = 64 * 1000 * 1000};

typedef struct chat_named_template {
    char *name, *text; // the text contains the marks of the model's family
    ct_jinja *jinja;
} chat_named_template;

struct ct_chat_template {
    chat_named_template *of;
    size_t n, cap;
    json_t *tokens; // an object: the variables defined by the model
    ct_text out;
};

void ct_chat_template_free(ct_chat_template *chat) {
    if (!chat) return;
    for (size_t i = 0; i < chat->n; i++) {
        ct__free(chat->of[i].name);
        ct__free(chat->of[i].text);
        ct__jinja_free(chat->of[i].jinja);
    }
    ct__free(chat->of);
    json_decref(chat->tokens);
    ct__text_free(&chat->out);
    ct__free(chat);
}

const char *ct_chat_template_text(const ct_chat_template *chat) {
    for (size_t i = 0; chat && i < chat->n; i++)
        if (strcmp(chat->of[i].name, "default") == 0) return chat->of[i].text;
    return chat && chat->n ? chat->of[0].text : "";
}

bool ct__chat_contains(const ct_chat_template *chat, const char *mark) {
    for (size_t i = 0; i < chat->n; i++)
        if (strstr(chat->of[i].text, mark)) return true;
    return false;
}

// ----------------------------------------------------------------------------------------- loading

static bool chat_add_template(ct_chat_template *chat, const char *label, const char *name,
                              const char *text, size_t n, ct_err *err) {
    ct_jinja *jinja = ct__jinja_parse(label, text, n, err);
    char *copy = jinja ? ct__strdup(name) : NULL, *same = copy ? ct__malloc(n + 1) : NULL;
    if (same && CT_GROW(chat->of, chat->cap, chat->n + 1)) {
        memcpy(same, text, n);
        same[n] = '\0';
        chat->of[chat->n++] = (chat_named_template){copy, same, jinja};
        return true;
    }
    ct__jinja_free(jinja);
    ct__free(copy);
    ct__free(same);
    return jinja ? ct__err_memory(err, CT_NOWHERE, label, sizeof *chat->of) : false;
}

static bool chat_add_file(ct_chat_template *chat, const char *path, const char *name, ct_err *err) {
    char *text;
    size_t n;
    if (!ct__file_read(path, &text, &n, err)) return false;
    bool ok = chat_add_template(chat, path, name, text, n, err);
    ct__free(text);
    return ok;
}

static bool chat_add_config_text(ct_chat_template *chat, const ct_config *config, const char *name,
                                 const json_t *text, ct_err *err) {
    char label[4096];
    if (!json_is_string(text))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path,
                       "key \"chat_template\" is neither a string nor a list of named ones");
    snprintf(label, sizeof label, "%s: chat_template", config->path);
    return chat_add_template(chat, label, name, json_string_value(text), json_string_length(text),
                             err);
}

// One template, or a list of {"name": ..., "template": ...}.
static bool chat_add_from_config(ct_chat_template *chat, const ct_config *config, ct_err *err) {
    const json_t *value = json_object_get(config->root, "chat_template"), *item;
    size_t i;
    if (!value || json_is_null(value)) return true;
    if (!json_is_array(value)) return chat_add_config_text(chat, config, "default", value, err);
    json_array_foreach(value, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!name) name = "default";
        if (!chat_add_config_text(chat, config, name, json_object_get(item, "template"), err))
            return false;
    }
    return true;
}

static bool chat_is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// A folder that is searched for additional templates.
typedef struct chat_folder {
    ct_chat_template *chat;
    const char *path;
    ct_err *err;
} chat_folder;

static void chat_visit_file(int at, const char *name, void *user) {
    static const char end[] = ".jinja";
    chat_folder *f = user;
    char path[4096], bare[256];
    size_t n = strlen(name);
    (void)at;
    if (!ct__ends_with(name, end) || n >= sizeof bare || f->err->code) return;
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    snprintf(bare, sizeof bare, "%.*s", (int)(n - strlen(end)), name);
    chat_add_file(f->chat, path, bare, f->err);
}

static bool chat_read_tokens(json_t *tokens, const ct_config *config) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    bool ok = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(config->root, names[i]);
        if (json_is_object(value)) value = json_object_get(value, "content");
        if (json_is_string(value) && !json_object_get(tokens, names[i]))
            ok &= json_object_set(tokens, names[i], value) == 0;
    }
    return ok;
}

// Reads the file `name` of the folder if it exists: special tokens and, while no template is
// loaded, templates.
static bool chat_read_config(ct_chat_template *chat, const char *path, const char *name,
                             ct_err *err) {
    char file[4096];
    ct_config config;
    snprintf(file, sizeof file, "%s/%s", path, name);
    if (!chat_is_file(file)) return true;
    if (!ct__config_read(file, &config, err)) return false;
    bool ok = chat_read_tokens(chat->tokens, &config) ||
              ct__err_memory(err, CT_NOWHERE, file, sizeof(json_t));
    ok = ok && (chat->n || chat_add_from_config(chat, &config, err));
    ct__config_close(&config);
    return ok;
}

static bool chat_read_gguf(ct_chat_template *chat, const char *path, ct_err *err) {
    ct_gguf_file file;
    if (!ct__gguf_open(path, &file, err)) return false;
    ct_config config = {.path = (char *)(uintptr_t)path, .root = ct__chat_of_gguf(&file.gguf, err)};
    ct__gguf_file_close(&file);
    if (!config.root) return false;
    const bool ok = chat_read_tokens(chat->tokens, &config) ||
                    ct__err_memory(err, CT_NOWHERE, path, sizeof(json_t));
    const bool all = ok && chat_add_from_config(chat, &config, err);
    json_decref(config.root);
    return all;
}

static bool chat_load(ct_chat_template *chat, const char *path, ct_err *err) {
    char file[4200], more[4200], cached[4096];
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT && ct__hub_is_name(path)) {
        if (!ct__hub_find(path, NULL, cached, sizeof cached, err)) return false;
        path = cached;
    }
    if (stat(path, &st) != 0) return ct__err_system(err, path, "open");
    if (!S_ISDIR(st.st_mode)) {
        if (!ct__weights_find_gguf(path, file, sizeof file, err)) return false;
        return *file ? chat_read_gguf(chat, file, err) : chat_add_file(chat, path, "default", err);
    }
    if (strlen(path) > sizeof file - 64)
        return ct__err(err, CT_E_FILE, CT_NOWHERE, path, "the path is too long");
    snprintf(file, sizeof file, "%s/chat_template.jinja", path);
    snprintf(more, sizeof more, "%s/additional_chat_templates", path);
    if (chat_is_file(file) && !chat_add_file(chat, file, "default", err)) return false;
    ct__for_each_entry(AT_FDCWD, more, chat_visit_file, &(chat_folder){chat, more, err});
    if (err->code || !chat_read_config(chat, path, "tokenizer_config.json", err) ||
        !chat_read_config(chat, path, "chat_template.json", err) ||
        !chat_read_config(chat, path, "special_tokens_map.json", err))
        return false;
    if (!chat->n && !ct__weights_find_gguf(path, file, sizeof file, err)) return false;
    if (!chat->n && *file) return chat_read_gguf(chat, file, err);
    return chat->n || ct__err(err, CT_E_FILE, CT_NOWHERE, path,
                              "the folder has no chat template: neither chat_template.jinja nor "
                              "chat_template in tokenizer_config.json");
}

static ct_chat_template *chat_new_template(ct_ctx *ctx, ct_loc here, const char *op) {
    ct_chat_template *chat = ct__calloc(1, sizeof *chat);
    if (chat) chat->tokens = json_object();
    if (chat && chat->tokens) return chat;
    ct_chat_template_free(chat);
    return ct__null_memory(&ctx->err, here, op, sizeof *chat);
}

static ct_chat_template *chat_finish_load(ct_ctx *ctx, ct_chat_template *chat, bool ok, ct_loc here,
                                          const char *op) {
    if (ok) return chat;
    ct__err_locate(&ctx->err, here, op);
    ct_chat_template_free(chat);
    return NULL;
}

ct_chat_template *ct_chat_template_new_at(const char *text, ct_loc here) {
    static const char op[] = "chat_template_new";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, text, here, op, "the text") || ctx->err.code) return NULL;
    ct_chat_template *chat = chat_new_template(ctx, here, op);
    if (!chat) return NULL;
    bool ok = chat_add_template(chat, "chat template", "default", text, strlen(text), &ctx->err);
    return chat_finish_load(ctx, chat, ok, here, op);
}

ct_chat_template *ct_chat_template_load_at(const char *path, ct_loc here) {
    static const char op[] = "chat_template_load";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, path, here, op, "the path") || ctx->err.code) return NULL;
    ct_chat_template *chat = chat_new_template(ctx, here, op);
    return chat ? chat_finish_load(ctx, chat, chat_load(chat, path, &ctx->err), here, op) : NULL;
}

// --------------------------------------------------------------------------------------- rendering

json_t *ct__chat_parse_json(const char *text, const char *what, bool list, ct_err *err) {
    json_error_t error;
    char printable[JSON_ERROR_TEXT_LENGTH];
    json_t *json = ct__json_read(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!json) {
        ct__err(err, CT_E_DATA, CT_NOWHERE, what, "not JSON: line %d, column %d: %s", error.line,
                error.column,
                ct__printable(error.text, strlen(error.text), printable, sizeof printable));
        return NULL;
    }
    if (list ? json_is_array(json) : json_is_object(json)) return json;
    ct__err(err, CT_E_DATA, CT_NOWHERE, what, "a JSON %s is expected", list ? "list" : "object");
    json_decref(json);
    return NULL;
}

// Normalizes messages as transformers does: drops members that are null, and stores a message's
// reasoning under each name by which templates read it.
static bool chat_normalize_messages(json_t *messages, ct_err *err) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *message, *value;
    size_t i;
    const char *key;
    void *next;
    if (!json_array_size(messages))
        return ct__err(err, CT_E_DATA, CT_NOWHERE, "messages", "there is none");
    json_array_foreach(messages, i, message) {
        if (!json_is_object(message))
            return ct__err(err, CT_E_DATA, CT_NOWHERE, "messages", "message %zu is no object", i);
        json_object_foreach_safe(message, next, key, value) if (json_is_null(value))
            json_object_del(message, key);
        json_t *reasoning = NULL;
        for (int k = 0; k < 3 && !reasoning; k++) reasoning = json_object_get(message, names[k]);
        if (!reasoning) continue;
        bool ok = json_object_set(message, names[0], reasoning) == 0;
        if (!json_object_get(message, names[1]))
            ok = ok && json_object_set(message, names[1], reasoning) == 0;
        if (!ok) return ct__err_memory(err, CT_NOWHERE, "messages", sizeof(json_t));
    }
    return true;
}

static const chat_named_template *chat_choose_template(const ct_chat_template *chat,
                                                       const ct_chat_options *o, ct_err *err) {
    char names[256] = "", printable[CT_PRINTABLE];
    const char *wanted = o->name ? o->name : o->tools ? "tool_use" : "default";
    for (int attempt = 0; attempt < 2; attempt++, wanted = "default")
        for (size_t i = 0; i < chat->n && (attempt == 0 || !o->name); i++)
            if (strcmp(chat->of[i].name, wanted) == 0) return &chat->of[i];
    for (size_t i = 0; i < chat->n; i++) {
        strncat(names, i ? ", " : "", sizeof names - strlen(names) - 1);
        const char *name = chat->of[i].name;
        ct__printable(name, strlen(name), printable, sizeof printable);
        strncat(names, printable, sizeof names - strlen(names) - 1);
    }
    wanted = o->name ? o->name : "default";
    ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, "chat template",
            "there is none named \"%s\", there are: %s",
            ct__printable(wanted, strlen(wanted), printable, sizeof printable), names);
    return NULL;
}

// The variables of the template. NULL: see err.
static json_t *chat_variables(const ct_chat_template *chat, const char *messages,
                              const ct_chat_options *o, ct_err *err) {
    json_t *all = json_copy(chat->tokens), *variables = NULL, *tools = NULL;
    json_t *list = ct__chat_parse_json(messages, "messages", true, err);
    bool ok = list && chat_normalize_messages(list, err);
    if (ok && o->variables)
        ok = (variables = ct__chat_parse_json(o->variables, "variables", false, err)) != NULL;
    if (ok && o->tools) ok = (tools = ct__chat_parse_json(o->tools, "tools", true, err)) != NULL;
    if (ok) {
        ok = all && json_object_set_new(all, "documents", json_null()) == 0 &&
             json_object_set_new(all, "add_generation_prompt", json_false()) == 0 &&
             (!variables || json_object_update(all, variables) == 0) &&
             json_object_set(all, "messages", list) == 0 &&
             json_object_set(all, "tools", tools ? tools : json_null()) == 0;
        if (!ok) ct__err_memory(err, CT_NOWHERE, "chat_render", sizeof(json_t));
    }
    json_decref(list);
    json_decref(variables);
    json_decref(tools);
    if (ok) return all;
    json_decref(all);
    return NULL;
}

static bool chat_render_template(ct_chat_template *chat, const char *messages,
                                 const ct_chat_options *o, ct_err *err) {
    const chat_named_template *one = chat_choose_template(chat, o, err);
    json_t *variables = one ? chat_variables(chat, messages, o, err) : NULL;
    if (!variables) return false;
    ct_jinja_limits bounds = chat_default_limits;
    bounds.now = o->now.given ? o->now.value : (double)time(NULL);
    ct__text_free(&chat->out);
    bool ok = ct__jinja_render(one->jinja, variables, &bounds, &chat->out, err);
    json_decref(variables);
    return ok;
}

const char *ct_chat_render_with(ct_chat_template *chat, const char *messages,
                                ct_chat_options options) {
    static const char op[] = "chat_render";
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, chat, options.here, op, "the template") ||
        !ct__given(ctx, messages, options.here, op, "the messages") || ctx->err.code)
        return NULL;
    if (!chat_render_template(chat, messages, &options, &ctx->err)) {
        ct__err_locate(&ctx->err, options.here, op);
        return NULL;
    }
    if (options.length) *options.length = chat->out.n;
    return chat->out.s;
}
