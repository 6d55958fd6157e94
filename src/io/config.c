#include "io/config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/text.h"
#include "io/crc32c.h"
#include "io/json.h"
#include "io/utf8.h"

static const char *config_type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: break;
    }
    return "null";
}

bool ct__config_new(const char *path, ct_config *config, ct_err *err) {
    *config = (ct_config){.path = ct__strdup(path), .root = json_object()};
    if (config->path && config->root) return true;
    ct__config_close(config);
    return ct__err_memory(err, CT_NOWHERE, path, strlen(path) + sizeof(json_t));
}

bool ct__config_read(const char *path, ct_config *config, ct_err *err) {
    char *text, shown[JSON_ERROR_TEXT_LENGTH];
    size_t n;
    json_error_t fault;
    *config = (ct_config){0};
    if (!ct__file_read(path, &text, &n, err)) return false;
    config->path = ct__strdup(path);
    config->root = ct__json_read_bigint(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &fault);
    ct__free(text);
    bool ok = config->path && config->root && json_is_object(config->root);
    if (!config->path)
        ct__err_memory(err, CT_NOWHERE, path, strlen(path) + 1);
    else if (!config->root)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "not JSON: line %d, column %d: %s", fault.line,
                fault.column, ct__printable(fault.text, strlen(fault.text), shown, sizeof shown));
    else if (!ok)
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, path, "the file holds %s, not an object",
                config_type_name(config->root));
    if (!ok) ct__config_close(config);
    return ok;
}

void ct__config_close(ct_config *config) {
    json_decref(config->root);
    ct__free(config->path);
    *config = (ct_config){0};
}

bool ct__config_has(const ct_config *config, const char *key) {
    return json_object_get(config->root, key) != NULL;
}

bool ct__config_is_null(const ct_config *config, const char *key) {
    return json_is_null(json_object_get(config->root, key));
}

static const json_t *config_find(const ct_config *config, const char *key, ct_err *err) {
    const json_t *value = json_object_get(config->root, key);
    if (!value) ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path, "key \"%s\" is missing", key);
    return value;
}

static bool config_refuse_type(const ct_config *config, const char *key, const json_t *value,
                               const char *wanted, ct_err *err) {
    return ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path, "key \"%s\" is %s, not %s", key,
                   config_type_name(value), wanted);
}

bool ct__config_int(const ct_config *config, const char *key, int64_t low, int64_t high,
                    int64_t *out, ct_err *err) {
    const json_t *value = config_find(config, key, err);
    if (!value) return false;
    if (!json_is_integer(value)) return config_refuse_type(config, key, value, "an integer", err);
    int64_t v = json_integer_value(value);
    if (v < low || v > high)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path,
                       "key \"%s\" is %" PRId64 ", not from %" PRId64 " to %" PRId64, key, v, low,
                       high);
    *out = v;
    return true;
}

bool ct__config_real(const ct_config *config, const char *key, double low, double high, double *out,
                     ct_err *err) {
    const json_t *value = config_find(config, key, err);
    if (!value) return false;
    if (!json_is_number(value)) return config_refuse_type(config, key, value, "a number", err);
    double v = json_number_value(value);
    if (v < low || v > high) {
        ct_text text = {0};
        ct__json_real(&text, v);
        ct__text_add(&text, ", not from ");
        ct__json_real(&text, low);
        ct__text_add(&text, " to ");
        ct__json_real(&text, high);
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path, "key \"%s\" is %s", key,
                text.failed ? "out of range" : text.s);
        ct__text_free(&text);
        return false;
    }
    *out = v;
    return true;
}

bool ct__config_bool(const ct_config *config, const char *key, bool *out, ct_err *err) {
    const json_t *value = config_find(config, key, err);
    if (!value) return false;
    if (!json_is_boolean(value))
        return config_refuse_type(config, key, value, "true or false", err);
    *out = json_is_true(value);
    return true;
}

bool ct__config_string(const ct_config *config, const char *key, const char **out, size_t *n,
                       ct_err *err) {
    const json_t *value = config_find(config, key, err);
    if (!value) return false;
    if (!json_is_string(value)) return config_refuse_type(config, key, value, "a string", err);
    *out = json_string_value(value);
    *n = json_string_length(value);
    return true;
}

bool ct__config_choice(const ct_config *config, const char *key, const char *const *names, int *out,
                       ct_err *err) {
    const char *word = NULL;
    char shown[CT_PRINTABLE];
    size_t n = 0;
    if (!ct__config_string(config, key, &word, &n, err)) return false;
    for (int i = 0; names[i]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], word, n) == 0) {
            *out = i;
            return true;
        }
    ct_text list = {0};
    for (int i = 0; names[i]; i++) ct__textf(&list, "%s%s", i ? ", " : "", names[i]);
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path, "key \"%s\" is \"%s\", not one of: %s", key,
            ct__printable(word, n, shown, sizeof shown), list.failed ? "..." : list.s);
    ct__text_free(&list);
    return false;
}

bool ct__config_child(const ct_config *config, const char *key, ct_config *child, ct_err *err) {
    const json_t *value = config_find(config, key, err);
    *child = (ct_config){0};
    if (!value) return false;
    if (!json_is_object(value)) return config_refuse_type(config, key, value, "an object", err);
    *child = (ct_config){.path = ct__strdup(config->path),
                         .root = json_incref((json_t *)(uintptr_t)value)};
    if (child->path) return true;
    ct__config_close(child);
    return ct__err_memory(err, CT_NOWHERE, config->path, strlen(config->path) + 1);
}

bool ct__config_list(const ct_config *config, const char *key, size_t *n, ct_err *err) {
    const json_t *value = config_find(config, key, err);
    if (!value) return false;
    if (!json_is_array(value)) return config_refuse_type(config, key, value, "a list", err);
    *n = json_array_size(value);
    return true;
}

bool ct__config_list_text(const ct_config *config, const char *key, size_t i, const char **text,
                          ct_err *err) {
    const json_t *value = json_array_get(json_object_get(config->root, key), i);
    if (!json_is_string(value))
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path,
                       "key \"%s\": entry %zu is no string", key, i);
    *text = json_string_value(value);
    return true;
}

static void config_set(ct_config *config, const char *key, json_t *value) {
    // json_object_set_new takes ownership of the value, and fails if a constructor returned NULL.
    if (json_object_set_new(config->root, key, value) != 0) config->failed = true;
}

void ct__config_set_int(ct_config *config, const char *key, int64_t value) {
    config_set(config, key, json_integer(value));
}
void ct__config_set_real(ct_config *config, const char *key, double value) {
    config_set(config, key, json_real(value));
}
void ct__config_set_bool(ct_config *config, const char *key, bool value) {
    config_set(config, key, json_boolean(value));
}
void ct__config_set_string(ct_config *config, const char *key, const char *value, size_t n) {
    config_set(config, key, json_stringn(value, n));
}

void ct__config_set_child(ct_config *config, const char *key, const ct_config *child) {
    config->failed = config->failed || child->failed;
    config_set(config, key, json_incref(child->root));
}
void ct__config_set_list(ct_config *config, const char *key, const char *const *texts, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_string(texts[i])) != 0) config->failed = true;
    config_set(config, key, list);
}

// Computes the checksum of the values alone: other programs may reorder keys and format numbers
// differently.
static bool config_compute_checksum(const ct_config *config, char digits[9]) {
    CT_TEXT text = {0};
    json_t *others = json_copy(config->root); // shallow
    if (others) json_object_del(others, "crc32c");
    if (others) ct__json_canonical(&text, others);
    bool ok = others && !text.failed;
    if (ok) snprintf(digits, 9, "%08" PRIx32, ct__crc32c(text.s, text.n));
    json_decref(others);
    return ok;
}

void ct__config_seal(ct_config *config) {
    char digits[9];
    if (config_compute_checksum(config, digits))
        ct__config_set_string(config, "crc32c", digits, 8);
    else
        config->failed = true;
}

bool ct__config_verify(const ct_config *config, bool required, ct_err *err) {
    char digits[9], shown[CT_PRINTABLE];
    const char *stored = NULL;
    size_t n = 0;
    if (!required && !ct__config_has(config, "crc32c")) return true;
    if (!ct__config_string(config, "crc32c", &stored, &n, err)) return false;
    if (!config_compute_checksum(config, digits))
        return ct__err_memory(err, CT_NOWHERE, config->path, sizeof(json_t));
    return strcmp(stored, digits) == 0 ||
           ct__err(err, CT_E_FORMAT, CT_NOWHERE, config->path,
                   "the file is damaged or was changed: the CRC-32C of its values is %s, not %s%s",
                   digits, ct__printable(stored, n, shown, sizeof shown),
                   required ? "" : "; where the change is meant, remove the key \"crc32c\"");
}

bool ct__config_write(const ct_config *config, ct_err *err) {
    ct_text text = {0};
    if (config->failed)
        return ct__err(err, CT_E_ARGUMENT, CT_NOWHERE, config->path,
                       "a value cannot be written: a number that is not finite, text that is not "
                       "UTF-8, or no memory");
    ct__json_tree(&text, config->root);
    bool ok = !text.failed || ct__err_memory(err, CT_NOWHERE, config->path, text.cap * 2);
    ok = ok && ct__file_write(config->path, text.s, text.n, err);
    ct__text_free(&text);
    return ok;
}
