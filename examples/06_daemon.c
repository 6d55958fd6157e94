// Training inside a server: one thread serves a Unix socket, another trains, and is cancelled
// between two launches when a client says so.
//     06_daemon SOCKET        makes it
//     nc -U SOCKET            talks to it; docs/embedding.md does so with Python
// A line is a command: "train N" (until step N), "status", "stop", "quit". Each gets a line back:
//     step 40 of 60, loss 0.125, weights 5b1f0a22
// or, where it is no command, the list of them.
#include <cotan/optim.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROWS = 256, HIDDEN = 64, CLIENTS = 8 };

static struct {
    pthread_mutex_t lock; // of all below
    pthread_cond_t wake;
    ct_ctx *ctx; // the trainer's, while it lives
    int step, target;
    bool stop, quit;
    double loss;
    unsigned weights; // a sum of their bytes
    char said[200];   // the newest words of the library
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void hear(ct_log_kind kind, const char *text, void *user) {
    (void)kind, (void)user;
    pthread_mutex_lock(&shared.lock);
    snprintf(shared.said, sizeof shared.said, ", said: %s", text);
    pthread_mutex_unlock(&shared.lock);
}

static ct_params *make_params(void) {
    CT_SCOPE; // at its end they have their values
    ct_params *p = ct_params_new();
    ct_tensor w1 = ct_param(p, "w1", CT_F32, CT_DIMS(2, HIDDEN));
    ct_tensor b1 = ct_param(p, "b1", CT_F32, CT_DIMS(HIDDEN));
    ct_tensor w2 = ct_param(p, "w2", CT_F32, CT_DIMS(HIDDEN, 1));
    ct_assign(w1, ct_random_normal(ct_random_key(1), CT_DIMS(2, HIDDEN)));
    ct_assign(b1, ct_zeros(CT_F32, CT_DIMS(HIDDEN)));
    ct_assign(w2, ct_mul(ct_random_normal(ct_random_key(2), CT_DIMS(HIDDEN, 1)), ct_f(0.1)));
    return p;
}

// Learns the product of two numbers. False: the context has the reason.
static bool train_step(const ct_params *p, ct_optim *adam, double *mean) {
    float xs[ROWS][2], ys[ROWS];
    for (int i = 0; i < ROWS; i++) {
        xs[i][0] = (float)(i % 16 - 8) / 8;
        xs[i][1] = (float)(i / 16 - 8) / 8;
        ys[i] = xs[i][0] * xs[i][1];
    }
    CT_SCOPE;
    ct_tensor x = ct_from(xs, CT_F32, CT_DIMS(ROWS, 2)), y = ct_from(ys, CT_F32, CT_DIMS(ROWS, 1));
    ct_tensor h = ct_gelu(ct_add(ct_matmul(x, ct_params_get(p, 0)), ct_params_get(p, 1)));
    ct_tensor loss = ct_mean(ct_square(ct_sub(ct_matmul(h, ct_params_get(p, 2)), y)));
    ct_optim_step(adam, loss);
    *mean = ct_item(loss); // the step runs
    return !ct_failed();
}

static unsigned sum_weights(const ct_params *p) {
    unsigned sum = 2166136261u;
    CT_SCOPE;
    for (size_t i = 0; i < ct_params_count(p); i++) {
        const unsigned char *bytes = ct_data(ct_params_get(p, i));
        for (int64_t k = 0; bytes && k < 4 * ct_size(ct_params_get(p, i)); k++)
            sum = (sum ^ bytes[k]) * 16777619u;
    }
    return sum;
}

static void *train(void *unused) {
    ct_set_log(hear, NULL);
    ct_params *params = make_params();
    ct_optim *adam = ct_adam(params, .lr = 0.01);
    pthread_mutex_lock(&shared.lock);
    shared.ctx = ct_ctx_current();
    while (!shared.quit) {
        if (shared.step >= shared.target) {
            pthread_cond_wait(&shared.wake, &shared.lock);
            continue;
        }
        pthread_mutex_unlock(&shared.lock);
        double loss = 0;
        bool ok = train_step(params, adam, &loss);
        unsigned weights = sum_weights(params);
        pthread_mutex_lock(&shared.lock);
        if (ok) {
            shared.step++;
            shared.loss = loss;
            shared.weights = weights;
        } else { // cancelled, or worse; the weights are those of the last step
            if (ct_error_code() != CT_E_INTERRUPTED)
                snprintf(shared.said, sizeof shared.said, ", failed: %s", ct_error_text());
            if (ct_error_code() != CT_E_INTERRUPTED || shared.stop) shared.target = shared.step;
            ct_error_clear();
        }
    }
    shared.ctx = NULL;
    pthread_mutex_unlock(&shared.lock);
    ct_optim_free(adam);
    ct_params_free(params);
    return unused;
}

enum { MOST_STEPS = 1000000000 };

// The N of "train N", from 1 to MOST_STEPS; 0: that is not what it says.
static int steps_of(const char *command) {
    if (strncmp(command, "train ", 6) != 0 || command[6] < '1' || command[6] > '9') return 0;
    char *end;
    long steps = strtol(command + 6, &end, 10); // of too many digits: the largest
    return *end || steps > MOST_STEPS ? 0 : (int)steps;
}

static void obey(char *command, char *answer, size_t size) {
    bool known = true;
    int steps = steps_of(command);
    pthread_mutex_lock(&shared.lock);
    if (steps) {
        shared.target = steps;
        shared.stop = false;
        pthread_cond_signal(&shared.wake);
    } else if (strcmp(command, "stop") == 0 || strcmp(command, "quit") == 0) {
        shared.stop = true;
        shared.quit = *command == 'q';
        ct_cancel(shared.ctx);
        pthread_cond_signal(&shared.wake);
    } else {
        known = strcmp(command, "status") == 0;
    }
    snprintf(answer, size, "step %d of %d, loss %.6g, weights %08x%.150s\n", shared.step,
             shared.target, shared.loss, shared.weights, shared.said);
    pthread_mutex_unlock(&shared.lock);
    if (!known)
        snprintf(answer, size,
                 "unknown: \"%s\"; commands are train N (1 to %d), status, stop and quit\n",
                 command, MOST_STEPS);
}

typedef struct {
    char text[100]; // what came of a line that has no end yet
    size_t n;
} input;

// Answers each line that is whole. False: the client is gone, or its line is no command's.
static bool serve(int fd, input *in) {
    ssize_t got = read(fd, in->text + in->n, sizeof in->text - in->n);
    if (got <= 0) return false;
    in->n += (size_t)got;
    for (char *end; (end = memchr(in->text, '\n', in->n));) {
        char answer[300];
        *end = '\0';
        in->text[strcspn(in->text, "\r")] = '\0';
        obey(in->text, answer, sizeof answer);
        send(fd, answer, strlen(answer), MSG_NOSIGNAL); // if nobody listens, read tells
        in->n -= (size_t)(end + 1 - in->text);
        memmove(in->text, end + 1, in->n);
    }
    return in->n < sizeof in->text;
}

static int listen_at(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, CLIENTS) == 0) return fd;
    perror(path);
    exit(1);
}

int main(int argc, char **argv) {
    setlocale(LC_ALL, ""); // numbers are shown as users here like them
    if (argc != 2)
        return fprintf(stderr,
                       "usage: %s SOCKET\nmakes it, and answers lines: train N, status, stop, quit "
                       "(nc -U SOCKET)\n",
                       *argv),
               2;
    struct pollfd fds[1 + CLIENTS] = {{listen_at(argv[1]), POLLIN, 0}};
    input in[1 + CLIENTS];
    nfds_t n = 1;
    pthread_t trainer;
    if (pthread_create(&trainer, NULL, train, NULL) != 0) return perror("thread"), 1;
    while (!shared.quit && poll(fds, n, -1) > 0) { // only this thread sets quit
        int fd = fds[0].revents ? accept(fds[0].fd, NULL, NULL) : -1;
        if (fd >= 0) {
            in[n].n = 0;
            fds[n++] = (struct pollfd){fd, POLLIN, 0};
        }
        for (nfds_t i = 1; i < n; i++) {
            if (!fds[i].revents || serve(fds[i].fd, &in[i])) continue;
            close(fds[i].fd);
            in[i] = in[--n];
            fds[i--] = fds[n];
        }
        fds[0].events = n <= CLIENTS ? POLLIN : 0; // who finds no room waits
    }
    for (nfds_t i = 0; i < n; i++) close(fds[i].fd);
    unlink(argv[1]);
    pthread_join(trainer, NULL);
    return ct_shutdown() ? 0 : 1; // nothing is left behind
}
