// Tensors in files: a NumPy .npy file holds one array; .npz and .safetensors files hold several by
// name. Parameter sets are saved by ct_params_save and ct_params_load of cotan/nn.h, which use the
// names of the parameters; whole models by ct_lm_save and ct_lm_load of cotan/lm.h; ct_load_idx of
// cotan/data.h reads MNIST's files.
//
// NumPy files are read and written with integers of 8 to 64 bits, bool, f16, f32, f64, c64 and
// c128; any other dtype is an error that names it. Files are untrusted: lengths, offsets and sizes
// are checked before they are used, and nothing in a file is evaluated.
#ifndef COTAN_IO_H
#define COTAN_IO_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// --------------------------------------------------------------------------------------- one array

// Evaluates t and writes it, byte for byte as numpy.save does, completely or not at all. False: see
// ct_error_text.
CT_API CT_MUST_USE bool ct_save_npy_at(const char *path, ct_tensor t, ct_loc here);
#define ct_save_npy(path, t) ct_save_npy_at((path), (t), CT_HERE)
// Returns a leaf with the array of the file, in row-major order whatever the order of the file;
// poisoned if it failed.
CT_API ct_tensor ct_load_npy_at(const char *path, ct_loc here);
#define ct_load_npy(path) ct_load_npy_at((path), CT_HERE)

// ---------------------------------------------------------------------------------- several arrays

typedef struct ct_npz_options {
    bool deflate; // compress; much slower to write, and smaller if values repeat
    ct_loc here;
} ct_npz_options;
// Evaluates the tensors and writes them, as numpy.savez or numpy.savez_compressed would, completely
// or not at all. Names are UTF-8 and unique. False: see ct_error_text.
//     if (!ct_save_npz("run.npz", arrays, 2, .deflate = true)) return 1;
CT_API CT_MUST_USE bool ct_save_npz_with(const char *path, const ct_named_tensor *tensors, size_t n,
                                         ct_npz_options options);
#define ct_save_npz(path, tensors, ...) CT__NPZ_SAVE(path, tensors, __VA_ARGS__, .here = CT_HERE)
#define CT__NPZ_SAVE(path, tensors, n, ...)                                                        \
    ct_save_npz_with((path), (tensors), (n), (ct_npz_options){__VA_ARGS__})

// An open .npz file. It belongs to no context and may be used by one thread at a time. The bytes of
// an array are read when it is requested; if the file was truncated in the meantime, that is an
// error. A file that was replaced (as ct_save_npz does) is still read as it was.
typedef struct ct_npz ct_npz;
CT_API ct_npz *ct_npz_open_at(const char *path, ct_loc here); // NULL: see ct_error_text
#define ct_npz_open(path) ct_npz_open_at((path), CT_HERE)
CT_API void ct_npz_close(ct_npz *npz); // its tensors remain valid; NULL is ignored
CT_API size_t ct_npz_count(const ct_npz *npz);
CT_API const char *ct_npz_name(const ct_npz *npz, size_t i); // in file order; NULL: no such i
// Returns a leaf with the array of that name; poisoned if it failed.
CT_API ct_tensor ct_npz_get_at(ct_npz *npz, const char *name, ct_loc here);
#define ct_npz_get(npz, name) ct_npz_get_at((npz), (name), CT_HERE)

// ------------------------------------------------------------------------------------- safetensors

// Tensors by name in one file. Names are UTF-8 and unique, and may be empty; "__metadata__" is
// reserved by the format. ct_params_save of cotan/nn.h saves a parameter set.
typedef struct ct_metadata {
    const char *key, *value; // UTF-8
} ct_metadata;
typedef struct ct_safetensors_options {
    const ct_metadata *metadata; // texts that are stored with the tensors; keys are unique
    size_t n_metadata;
    ct_loc here;
} ct_safetensors_options;
// Evaluates the tensors and writes them, byte for byte as the reference writer of the format does,
// completely or not at all. False: see ct_error_text.
//     if (!ct_save_safetensors("w.safetensors", arrays, 2)) return 1;
CT_API CT_MUST_USE bool ct_save_safetensors_with(const char *path, const ct_named_tensor *tensors,
                                                 size_t n, ct_safetensors_options options);
#define ct_save_safetensors(path, tensors, ...)                                                    \
    CT__SAFETENSORS_SAVE(path, tensors, __VA_ARGS__, .here = CT_HERE)
#define CT__SAFETENSORS_SAVE(path, tensors, n, ...)                                                \
    ct_save_safetensors_with((path), (tensors), (n), (ct_safetensors_options){__VA_ARGS__})

// An open file whose header was read and checked, as ct_npz for .npz files. For NULL counts are 0
// and names NULL.
typedef struct ct_safetensors ct_safetensors;
CT_API ct_safetensors *ct_safetensors_open_at(const char *path, ct_loc here); // NULL: an error
#define ct_safetensors_open(path) ct_safetensors_open_at((path), CT_HERE)
CT_API void ct_safetensors_close(ct_safetensors *from); // tensors from it remain valid
CT_API size_t ct_safetensors_count(const ct_safetensors *from);
// Returns a name, in the order of the tensors' bytes; NULL: i is out of range.
CT_API const char *ct_safetensors_name(const ct_safetensors *from, size_t i);
// Returns a leaf with the tensor of that name; poisoned if it failed.
CT_API ct_tensor ct_safetensors_get_at(ct_safetensors *from, const char *name, ct_loc here);
#define ct_safetensors_get(file, name) ct_safetensors_get_at((file), (name), CT_HERE)
// Returns a value of the metadata; NULL: the key is absent.
CT_API const char *ct_safetensors_metadata(const ct_safetensors *from, const char *key);
// Returns a key of the metadata, in their order; NULL: i is out of range.
CT_API const char *ct_safetensors_metadata_key(const ct_safetensors *from, size_t i);

#ifdef __cplusplus
}
#endif

#endif
