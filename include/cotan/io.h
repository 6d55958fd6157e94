// Tensors in files: NumPy's .npy holds one, .npz several by name, as .safetensors does. Parameter
// sets: ct_params_save and ct_params_load of cotan/nn.h, where their names come from; whole models:
// ct_gpt2_save and ct_gpt2_load of cotan/models.h; MNIST's files: ct_load_idx of cotan/data.h.
//
// NumPy's files: the integers of 8 to 64 bits, bool, f16, f32, f64, c64 and c128 are read and written; any other dtype is
// refused by a sentence that names it. Files are taken as hostile: what they say of lengths, places
// and sizes is checked before it is used, and nothing in them is evaluated.
#ifndef COTAN_IO_H
#define COTAN_IO_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------------- one array

// Evaluates t and writes it, byte for byte as numpy.save does; the file appears whole or not at
// all. False: see ct_error_text.
CT_API CT_MUST_USE bool ct_save_npy_at(const char *path, ct_tensor t, ct_loc here);
#define ct_save_npy(path, t) ct_save_npy_at((path), (t), CT_HERE)
// A leaf with the file's array, in row-major order whatever the file's; poisoned when it failed.
CT_API ct_tensor ct_load_npy_at(const char *path, ct_loc here);
#define ct_load_npy(path) ct_load_npy_at((path), CT_HERE)

// ---------------------------------------------------------------------------------- several arrays

typedef struct ct_npz_options {
    bool deflate; // packed; slower by far to write, and smaller where values repeat
    ct_loc here;
} ct_npz_options;
// Evaluates the tensors and writes them, as numpy.savez or numpy.savez_compressed would; the file
// appears whole or not at all. Names are UTF-8, none twice. False: see ct_error_text.
//     if (!ct_save_npz("run.npz", arrays, 2, .deflate = true)) return 1;
CT_API CT_MUST_USE bool ct_save_npz_with(const char *path, const ct_named *tensors, size_t n,
                                         ct_npz_options options);
#define ct_save_npz(path, tensors, ...) CT__NPZ_SAVE(path, tensors, __VA_ARGS__, .here = CT_HERE)
#define CT__NPZ_SAVE(path, tensors, n, ...)                                                        \
    ct_save_npz_with((path), (tensors), (n), (ct_npz_options){__VA_ARGS__})

// An open .npz file; belongs to no context, and is used by one thread at a time. An array's bytes
// are read when it is asked for: where the file was shortened meanwhile, that is an error. A file
// that was replaced (as ct_save_npz does) is still read as it was.
typedef struct ct_npz ct_npz;
CT_API ct_npz *ct_npz_open_at(const char *path, ct_loc here); // NULL: see ct_error_text
#define ct_npz_open(path) ct_npz_open_at((path), CT_HERE)
CT_API void ct_npz_close(ct_npz *npz); // tensors that came from it stay; NULL: nothing
CT_API size_t ct_npz_count(const ct_npz *npz);
CT_API const char *ct_npz_name(const ct_npz *npz, size_t i); // in the file's order; NULL: no such i
// A leaf with the array of that name; poisoned when it failed.
CT_API ct_tensor ct_npz_get_at(ct_npz *npz, const char *name, ct_loc here);
#define ct_npz_get(npz, name) ct_npz_get_at((npz), (name), CT_HERE)

// ------------------------------------------------------------------------------------- safetensors

// Tensors by name, in one file. Names are UTF-8, none twice, the empty one too; "__metadata__" is the
// format's own. What a set of parameters holds is saved by ct_params_save of cotan/nn.h.
typedef struct ct_metadata {
    const char *key, *value; // UTF-8
} ct_metadata;
typedef struct ct_safetensors_options {
    const ct_metadata *metadata; // texts beside the tensors, no key twice
    size_t n_metadata;
    ct_loc here;
} ct_safetensors_options;
// Evaluates the tensors and writes them, byte for byte as the format's reference writer does; the file
// appears whole or not at all. False: see ct_error_text.
//     if (!ct_save_safetensors("w.safetensors", arrays, 2)) return 1;
CT_API CT_MUST_USE bool ct_save_safetensors_with(const char *path, const ct_named *tensors,
                                                 size_t n, ct_safetensors_options options);
#define ct_save_safetensors(path, tensors, ...)                                                    \
    CT__SAFETENSORS_SAVE(path, tensors, __VA_ARGS__, .here = CT_HERE)
#define CT__SAFETENSORS_SAVE(path, tensors, n, ...)                                                \
    ct_save_safetensors_with((path), (tensors), (n), (ct_safetensors_options){__VA_ARGS__})

// An open file, whose header is read and checked: what ct_npz is to an .npz file. Of NULL there are 0, NULL.
typedef struct ct_safetensors ct_safetensors;
CT_API ct_safetensors *ct_safetensors_open_at(const char *path, ct_loc here); // NULL: an error
#define ct_safetensors_open(path) ct_safetensors_open_at((path), CT_HERE)
CT_API void ct_safetensors_close(ct_safetensors *from); // tensors that came from it stay
CT_API size_t ct_safetensors_count(const ct_safetensors *from);
// In the order of their bytes; NULL: no such i.
CT_API const char *ct_safetensors_name(const ct_safetensors *from, size_t i);
// A leaf with the tensor of that name; poisoned when it failed.
CT_API ct_tensor ct_safetensors_get_at(ct_safetensors *from, const char *name, ct_loc here);
#define ct_safetensors_get(file, name) ct_safetensors_get_at((file), (name), CT_HERE)
// NULL: absent.
CT_API const char *ct_safetensors_metadata(const ct_safetensors *from, const char *key);
// The metadata's keys in their order; NULL: no such i.
CT_API const char *ct_safetensors_metadata_key(const ct_safetensors *from, size_t i);

#ifdef __cplusplus
}
#endif

#endif
