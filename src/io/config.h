// config.json: typed values, with error messages for values that are missing, of another type or
// out of range.
#ifndef COTAN_IO_CONFIG_H
#define COTAN_IO_CONFIG_H

#include "base/error.h"

typedef struct ct_config {
    char *path;
    struct json_t *root; // a JSON object
    bool failed;         // a value could not be set; ct__config_write reports the error
} ct_config;

bool ct__config_read(const char *path, ct_config *config, ct_err *err);
void ct__config_close(ct_config *config); // also after a failure

bool ct__config_has(const ct_config *config, const char *key);
bool ct__config_is_null(const ct_config *config, const char *key); // true if its value is null
// Each of these fails if the key is missing or its value is of another type or out of range.
bool ct__config_int(const ct_config *config, const char *key, int64_t low, int64_t high,
                    int64_t *value, ct_err *err);
bool ct__config_real(const ct_config *config, const char *key, double low, double high,
                     double *value, ct_err *err); // accepts integers, too
bool ct__config_bool(const ct_config *config, const char *key, bool *value, ct_err *err);
bool ct__config_string(const ct_config *config, const char *key, const char **value, size_t *n,
                       ct_err *err); // valid until the config is closed
// Matches a string against NULL-terminated names; returns the index.
bool ct__config_choice(const ct_config *config, const char *key, const char *const *names,
                       int *value, ct_err *err);

// Gets a nested object as a configuration of its own; the length of a list, and its i-th string.
bool ct__config_child(const ct_config *config, const char *key, ct_config *child, ct_err *err);
bool ct__config_list(const ct_config *config, const char *key, size_t *n, ct_err *err);
bool ct__config_list_text(const ct_config *config, const char *key, size_t i, const char **text,
                          ct_err *err);

bool ct__config_new(const char *path, ct_config *config, ct_err *err);
void ct__config_set_int(ct_config *config, const char *key, int64_t value);
void ct__config_set_real(ct_config *config, const char *key, double value); // must be finite
void ct__config_set_bool(ct_config *config, const char *key, bool value);
void ct__config_set_string(ct_config *config, const char *key, const char *value, size_t n);
void ct__config_set_child(ct_config *config, const char *key, const ct_config *child);
void ct__config_set_list(ct_config *config, const char *key, const char *const *texts, size_t n);
// Stores a checksum of all other values in key "crc32c". It does not depend on their order and
// spelling.
void ct__config_seal(ct_config *config);
// Compares the values with that checksum. A file without one is an error only if it is `required`.
bool ct__config_verify(const ct_config *config, bool required, ct_err *err);
// Replaces the file atomically; keys have the order in which they were first set.
bool ct__config_write(const ct_config *config, ct_err *err);

#endif
