// Models of the Hugging Face Hub in its cache, where `cotan pull ORG/NAME` and huggingface_hub
// store them: $HF_HUB_CACHE, or else $HF_HOME/hub, or else ~/.cache/huggingface/hub. Nothing here
// opens a connection.
#ifndef COTAN_HUB_H
#define COTAN_HUB_H

#include "cotan/cotan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes the cache directory of the model ORG/NAME, which holds blobs, refs and snapshots, to
// `path` (n bytes), whether or not it exists. False: the name is not valid, or the path does not
// fit; see ct_error_text, also for the functions below.
CT_API CT_MUST_USE bool ct_hub_folder_at(const char *name, char *path, size_t n, ct_loc here);
#define ct_hub_folder(name, path, n) ct_hub_folder_at((name), (path), (n), CT_HERE)
// Writes the path of the directory with the files of a revision: a branch, a tag or the 40 digits
// of a commit; NULL: main. ORG/NAME:TAG and ORG/NAME/FILE give a file in it: the GGUF file whose
// name has the tag, or the first of its parts. Returns false also if it is not in the cache, or if
// several GGUF files have the tag.
CT_API CT_MUST_USE bool ct_hub_find_at(const char *name, const char *revision, char *path, size_t n,
                                       ct_loc here);
#define ct_hub_find(name, revision, path, n)                                                       \
    ct_hub_find_at((name), (revision), (path), (n), CT_HERE)

// Finds the GGUF files among n file names, in which the parts of a split file are adjacent, whose
// name or directory contains the tag as a word (Q4_K_M), ignoring case; NULL: any tag. Sets
// group[i] to 1 if name i is the first such file or a part of it, to 2 for the next, and so on, and
// to 0 if it is none, or is the projector of a multimodal model (mmproj). Returns the number of
// files.
CT_API size_t ct_hub_match_gguf(const char *const *names, size_t n, const char *tag, size_t *group);

#ifdef __cplusplus
}
#endif

#endif
