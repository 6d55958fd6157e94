// Models of the Hugging Face Hub that lie in its cache, where `cotan pull ORG/NAME` and
// huggingface_hub put them: $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub. Nothing
// here opens a connection.
#ifndef COTAN_HUB_H
#define COTAN_HUB_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// The cache's folder of the model ORG/NAME, as n bytes of text at `path`, whether or not it is
// there: it holds blobs, refs and snapshots. False: no such name can be, or the path does not fit;
// see ct_error_text, and so below.
CT_API CT_MUST_USE bool ct_hub_folder_at(const char *name, char *path, size_t n, ct_loc here);
#define ct_hub_folder(name, path, n) ct_hub_folder_at((name), (path), (n), CT_HERE)
// The folder with the files of a revision of it: a branch, a tag or a commit's 40 digits; NULL:
// main. ORG/NAME:TAG and ORG/NAME/FILE are a file of it: the GGUF file whose name has the tag, of several parts the first.
// False also where it is not in the cache, or several GGUF files have the tag.
CT_API CT_MUST_USE bool ct_hub_find_at(const char *name, const char *revision, char *path, size_t n,
                                       ct_loc here);
#define ct_hub_find(name, revision, path, n)                                                       \
    ct_hub_find_at((name), (revision), (path), (n), CT_HERE)

// Which of n names of files, the parts of one side by side, are GGUF files whose name or folder has the tag as a word
// (Q4_K_M), whatever its case; NULL: any tag. of[i] is 0: it is none, or the projector of a model of images (mmproj);
// 1: it is the first such file, or a part of it; 2: the next, and so on. Returns how many there are.
CT_API size_t ct_hub_gguf(const char *const *names, size_t n, const char *tag, size_t *of);

#ifdef __cplusplus
}
#endif

#endif
