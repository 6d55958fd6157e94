// Recognises folders of models for other programs, to say in an error what they are.
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/config.h"
#include "io/utf8.h"
#include "io/weights.h"

// Files that identify such a folder; `beside`, if not NULL, must exist, too.
static const struct {
    const char *file, *beside, *what;
} formats[] = {
    {"model.bin", "vocabulary.json", "CTranslate2"},
    {"model.bin", "vocabulary.txt", "CTranslate2"},
    {"model.bin", "shared_vocabulary.json", "CTranslate2"},
    {"model.bin", "shared_vocabulary.txt", "CTranslate2"},
    {"model.onnx", NULL, "ONNX"},
    {"onnx/model.onnx", NULL, "ONNX"},
    {"openvino_model.xml", NULL, "OpenVINO"},
    {"tf_model.h5", NULL, "TensorFlow"},
    {"flax_model.msgpack", NULL, "Flax"},
    {"consolidated.00.pth", "params.json", "Meta's own program"},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static bool foreign_has_file(const char *folder, const char *name, char path[PATH_MAX]) {
    struct stat st;
    const int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX && stat(path, &st) == 0;
}

// Reports an adapter of PEFT: weights that are added to those of the model that adapter_config.json
// names.
static void foreign_refuse_adapter(const char *folder, const char *path, ct_err *err) {
    ct_config config;
    ct_err ignored = {0};
    char base[CT_PRINTABLE], type[CT_PRINTABLE];
    const char *name = NULL, *kind = NULL;
    const bool read = ct__config_read(path, &config, &ignored);
    if (read) {
        name = json_string_value(json_object_get(config.root, "base_model_name_or_path"));
        kind = json_string_value(json_object_get(config.root, "peft_type"));
    }
    if (name) ct__printable(name, strlen(name), base, sizeof base);
    ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, folder,
            "this is an adapter (%s), not a model: its weights are added to those of %s",
            kind ? ct__printable(kind, strlen(kind), type, sizeof type) : "PEFT",
            name ? base : "another model");
    ct__err_hint(err,
                 "merge_and_unload() and save_pretrained() of PEFT make a model of both; without "
                 "the adapter it is %s",
                 name ? base : "that other model");
    if (read) ct__config_close(&config);
}

bool ct__weights_are_foreign(const char *folder, ct_err *err) {
    char path[PATH_MAX], beside[PATH_MAX];
    if (ct__weights_are_in(folder)) return false;
    if (foreign_has_file(folder, "adapter_config.json", path)) {
        foreign_refuse_adapter(folder, path, err);
        return true;
    }
    for (int i = 0; i < N_FORMATS; i++) {
        if (!foreign_has_file(folder, formats[i].file, path) ||
            (formats[i].beside && !foreign_has_file(folder, formats[i].beside, beside)))
            continue;
        ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, folder,
                "this is a model for %s (%s), whose files are not read", formats[i].what,
                formats[i].file);
        ct__err_hint(err, "name the model that it was made from: a folder with safetensors or "
                          "PyTorch's .bin, or a GGUF file");
        return true;
    }
    return false;
}
