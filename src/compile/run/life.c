// Shuts the library down.
#include "backend/backend.h"
#include "base/trace_events.h"

bool ct_shutdown(void) {
    if (!ct__contexts_end()) return false;
    ct__cpu_end();
    ct__profile_stop();
    ct__slots_end();
    ct__vars_end();
    ct__all_freed();
    return true;
}
