// Checkpoints of a run: DIR/checkpoints/step-N, a folder each, that appears complete or not at all. The
// newest one's files are also in DIR itself, as hard links.
#ifndef COTAN_TRAIN_CHECKPOINT_H
#define COTAN_TRAIN_CHECKPOINT_H

#include "base/error.h"
#include "base/text.h"
#include "io/run_names.h"

enum { CT_RUN_PATH = 4096, CT_CHECKPOINTS_KEPT = 2 };

// Makes the folder "run", or the first of run-2, run-3 ... that does not exist, for the caller alone: two
// processes that ask at once get one each. `dir` gets its name.
bool ct__run_make_folder(char dir[CT_RUN_PATH], ct_err *err);
// Returns false, with an error that names the folder, if `dir` is a file, maybe one of a run or a model.
bool ct__run_is_folder(const char *dir, ct_err *err);
// Locks `dir` against training by other processes until the lock is closed. It waits some seconds for a
// process that has the lock: a killed process keeps its lock until it is gone. On file systems without
// locks nothing is locked.
bool ct__run_lock(const char *dir, int *lock, ct_err *err);
void ct__run_unlock(int lock);
// Removes what processes left that died while writing. Call it only with the lock, and in a folder that is
// known to be a run's or to become one. Only files with the names of a save's files are removed, and no
// link below `dir` is followed.
void ct__run_tidy(const char *dir);

// Describes what another run in `dir` would replace or overwrite: nothing if `names` is empty.
typedef struct ct_run_contents {
    ct_text names; // file names, separated by ", "; freed with ct__text_free, also after an error
    bool saved;    // there is a checkpoint
    int64_t steps; // number of steps of the run; 0 if it is not known
} ct_run_contents;
bool ct__run_list_contents(const char *dir, ct_run_contents *contents, ct_err *err);
// Returns false if a folder of the run is on another disk or mount, where its replacement cannot be moved.
bool ct__run_could_replace(const char *dir, ct_err *err);

// A run that replaces another one is written to a folder of its own, `next`, inside `dir`, and moves up
// with its first save: until then the other run is complete. All of these need the lock. ct__run_complete_replace
// comes first: it completes the replacement of a process that died after its first save.
bool ct__run_complete_replace(const char *dir, ct_err *err);
bool ct__run_begin_replace(const char *dir, char next[CT_RUN_PATH], ct_err *err);
// With its first checkpoint `next` is complete: everything that ct__run_list_contents names is removed, and the
// contents of `next` move up. Other files stay. If it fails, one of the two runs is there.
bool ct__run_replace(const char *dir, ct_err *err);
void ct__run_abandon_replace(const char *dir); // removes a run that has not replaced anything

// Returns false if the place of a run's folder of best weights is taken, or is a link to the run's own
// folder or to one of its saves.
bool ct__run_check_best(const char *dir, ct_err *err);

// Lists the steps of the checkpoints, the newest first; freed with ct__free. It is an error if something
// else has the name of their folder, but not if there is none.
bool ct__checkpoint_list(const char *dir, int64_t **steps, size_t *n, ct_err *err);
// Lists those in the folder of checkpoints itself.
bool ct__checkpoint_list_in(const char *folder, int64_t **steps, size_t *n, ct_err *err);
// Makes the path of a file of a checkpoint; name NULL: of the checkpoint itself.
bool ct__checkpoint_path(const char *dir, int64_t step, const char *name, char path[CT_RUN_PATH],
                         ct_err *err);

// A save: begin makes a folder to fill; commit makes it the checkpoint of that step; publish links its
// files in DIR and removes checkpoints beyond the newest CT_CHECKPOINTS_KEPT.
bool ct__checkpoint_begin(const char *dir, int64_t step, char folder[CT_RUN_PATH], ct_err *err);
bool ct__checkpoint_commit(const char *dir, int64_t step, ct_err *err);
void ct__checkpoint_abandon(const char *dir, int64_t step);
bool ct__checkpoint_publish(const char *dir, int64_t step, ct_err *err);
// Links the current best weights of DIR, if there are any, in a save's folder.
bool ct__checkpoint_link_best(const char *dir, const char *folder, ct_err *err);
// The opposite: restores DIR/best, if it is the run's, as it was at that checkpoint; it is removed if the
// checkpoint has none, or if they are lost.
bool ct__checkpoint_has_best(const char *dir, int64_t step);
bool ct__checkpoint_restore_best(const char *dir, int64_t step, bool lost, ct_err *err);
// Removes the checkpoints after this step; -1: all.
bool ct__checkpoint_remove_after(const char *dir, int64_t step, ct_err *err);

#endif
