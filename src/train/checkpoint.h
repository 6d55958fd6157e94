// Checkpoints of a run: DIR/checkpoints/step-N, a folder each, that appears whole or not at all.
// The newest one's files also stand in DIR itself, as further names of the same files.
#ifndef COTAN_TRAIN_CHECKPOINT_H
#define COTAN_TRAIN_CHECKPOINT_H

#include "base/error.h"
#include "base/text.h"
#include "io/run_names.h"

enum { CT_RUN_PATH = 4096, CT_CHECKPOINTS_KEPT = 2 };

// Makes the folder "run", or the first of run-2, run-3 ... that is not there, for the caller alone:
// of two processes that ask at once each gets its own. `dir` gets its name.
bool ct__run_make_free(char dir[CT_RUN_PATH], ct_err *err);
// False, with an error that names the folder: `dir` is a file, maybe one of a run or a model.
bool ct__run_is_folder(const char *dir, ct_err *err);
// Keeps other processes from training in `dir` until it is closed. One that has it is waited for some
// seconds: killed, it has it until it is gone. Where the file system has no
// locks, there is none.
bool ct__run_lock(const char *dir, int *lock, ct_err *err);
void ct__run_unlock(int lock);
// Removes what processes left that died while they wrote: only under the lock, and in a folder that
// is known to be a run's or to become one. Nothing but what a save is made of goes, under the names
// that one gives it, and no link below `dir` is followed: what else lies there stays.
void ct__run_tidy(const char *dir);

// What another run in `dir` would take away or write over: nothing, where `names` stays empty.
typedef struct ct_run_there {
    ct_text names; // of the files, ", " between them; freed with ct__text_free, after an error too
    bool saved;    // there is a checkpoint
    int64_t steps; // that the run did; where none is known, 0
} ct_run_there;
bool ct__run_there(const char *dir, ct_run_there *there, ct_err *err);
// False: a folder of the run is on another disk or mount, where what takes its place cannot be moved.
bool ct__run_could_replace(const char *dir, ct_err *err);

// A run that takes another's place is filled in a folder of its own, `next`, inside `dir`, and has
// that place with its first save: until then the other is whole. Only under the lock, all of them;
// ct__run_settle comes first: it ends what a process had begun that died behind the first save.
bool ct__run_settle(const char *dir, ct_err *err);
bool ct__run_next(const char *dir, char next[CT_RUN_PATH], ct_err *err);
// With its first checkpoint `next` is whole: all that ct__run_there names is removed, and what is
// in `next` moves up. Other files stay. Where it fails, either run is there.
bool ct__run_replace(const char *dir, ct_err *err);
void ct__run_abandon_next(const char *dir); // one that has not replaced anything

// False: something else is where a run keeps its best weights in a folder, or a link to the run's
// own folder or one of its saves.
bool ct__run_could_keep_best(const char *dir, ct_err *err);

// Steps of the checkpoints, the newest first; freed with ct__free. None is no error, but something
// else in the place of their folder is.
bool ct__checkpoint_list(const char *dir, int64_t **steps, size_t *n, ct_err *err);
// Of the folder of checkpoints itself.
bool ct__checkpoint_list_in(const char *folder, int64_t **steps, size_t *n, ct_err *err);
// The path of a file of a checkpoint; name NULL: the checkpoint's own.
bool ct__checkpoint_path(const char *dir, int64_t step, const char *name, char path[CT_RUN_PATH],
                         ct_err *err);

// A save: begin gives a folder to fill; commit makes it the checkpoint of that step; publish gives
// its files their names in DIR and removes checkpoints beyond the newest CT_CHECKPOINTS_KEPT.
bool ct__checkpoint_begin(const char *dir, int64_t step, char folder[CT_RUN_PATH], ct_err *err);
bool ct__checkpoint_commit(const char *dir, int64_t step, ct_err *err);
void ct__checkpoint_abandon(const char *dir, int64_t step);
bool ct__checkpoint_publish(const char *dir, int64_t step, ct_err *err);
// Gives a save's folder, filled or not, the best weights of DIR as they are now, if there are any.
bool ct__checkpoint_take_best(const char *dir, const char *folder, ct_err *err);
// The other way: DIR/best, where it is the run's, as it was at that checkpoint; it goes where that
// has none, and where they are lost.
bool ct__checkpoint_has_best(const char *dir, int64_t step);
bool ct__checkpoint_give_best(const char *dir, int64_t step, bool lost, ct_err *err);
// Removes the checkpoints of later steps than this one; -1: all.
bool ct__checkpoint_forget_after(const char *dir, int64_t step, ct_err *err);

#endif
