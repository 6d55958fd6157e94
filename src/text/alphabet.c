// Writes and reads the tokenizer of an alphabet: a BPE without merges.
#include "text/alphabet.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "io/config.h"
#include "io/json.h"
#include "io/utf8.h"
#include "text/steps.h"

static void alphabet_write_token(const ct_vocab *vocab, int32_t i, ct_text *json) {
    char name[4];
    const bool bytes = vocab->kind == CT_TOKENS_BYTES;
    ct__json_string(json, name, ct__utf8_put(bytes ? ct__byte_chars[i] : vocab->chars[i], name));
}

void ct__alphabet_json(const ct_vocab *vocab, ct_text *json) {
    const bool bytes = vocab->kind == CT_TOKENS_BYTES;
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": false}";
    ct__textf(json,
              "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  "
              "\"added_tokens\": [],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  "
              "\"post_processor\": null,\n  \"decoder\": %s,\n  \"model\": {\n    \"type\": "
              "\"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    "
              "\"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
              "\"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": "
              "false,\n    \"vocab\": {",
              bytes ? level : "null", bytes ? level : "{\"type\": \"Fuse\"}");
    for (int32_t i = 0; i < vocab->n; i++) {
        ct__text_add(json, i ? ",\n      " : "\n      ");
        alphabet_write_token(vocab, i, json);
        ct__textf(json, ": %" PRId32, i);
    }
    ct__text_add(json, "\n    },\n    \"merges\": []\n  }\n}\n");
}

static bool alphabet_read_vocab(const ct_config *config, ct_vocab *vocab, ct_err *err) {
    static const char *const kinds[] = {"bytes", "chars", NULL};
    const char *characters = NULL;
    size_t n = 0;
    int kind = 0;
    return ct__config_choice(config, "tokenizer", kinds, &kind, err) &&
           (!kind || ct__config_string(config, "vocabulary", &characters, &n, err)) &&
           ct__vocab_parse(config->path, kind ? CT_TOKENS_CHARS : CT_TOKENS_BYTES, characters, n,
                           vocab, err);
}

bool ct__alphabet_of(const char *folder, ct_text *json, ct_err *err) {
    char path[4096];
    struct stat st;
    ct_config config;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path ||
        stat(path, &st) || !ct__config_read(path, &config, err))
        return false;
    ct_vocab vocab;
    const bool found =
        ct__config_has(&config, "tokenizer") && alphabet_read_vocab(&config, &vocab, err);
    if (found) {
        ct__alphabet_json(&vocab, json);
        ct__vocab_free(&vocab);
    }
    ct__config_close(&config);
    if (json->failed) return ct__err_memory(err, CT_NOWHERE, folder, json->n);
    return found;
}
