// A crash of a thread kills the test program. cmocka turns the signals of a crash into a failed case, by a jump back
// to the thread that runs it; any other thread ends the program by exit(-1), without a word of the signal, and of what
// crashed. cmocka sets its handler by signal(), before each case: so this one, which a test program has in libc's place.
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

typedef void (*handler)(int);

static pthread_t thread; // which asked for the handlers last, and has them
static handler given[NSIG];

static void on_fault(int number) {
    if (pthread_equal(pthread_self(), thread)) {
        given[number](number);
    } else { // it is blocked in here: the process ends by it on return, where it crashed
        struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(number, &usual, NULL);
        raise(number);
    }
}

static bool is_fault(int number) {
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
           number == SIGSYS;
}

__attribute__((visibility("default"))) handler signal(int number, handler wanted) {
    struct sigaction new = {.sa_handler = wanted, .sa_flags = SA_RESTART}, old;
    bool caught = is_fault(number) && wanted != SIG_DFL && wanted != SIG_IGN;
    if (caught) new.sa_handler = on_fault;
    if (sigaction(number, &new, &old) != 0) return SIG_ERR;
    handler before = old.sa_handler == on_fault ? given[number] : old.sa_handler;
    if (caught) {
        given[number] = wanted;
        thread = pthread_self();
    }
    return before;
}
