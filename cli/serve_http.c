// Connections: a thread each, by libmicrohttpd. What a request has sent, and what is sent to it, has a time; a client
// that goes away while texts are written for it ends them. The main thread sees to both (look_after).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "serve.h"
#include "serve_mhd.h"

// A connection, from its first byte to its last.
typedef struct watch {
    struct watch *next;
    listener *of;
    int fd;
    double deadline; // when it is closed; 0: it waits for us
    bool busy;       // a request of it is answered
    bool reading;    // a request of it arrives
    bool replying;   // its reply is being sent
    bool old;        // of HTTP/1.0, which knows no interim replies
    bool probed;     // it was asked whether its client is still there
    bool gone;
    double idle_since; // where it neither sends a request nor waits for one
    writing *writing;
} watch;

struct listener {
    server *server;
    mhd_daemon *daemon;
    int fd, port;
    bool quiet;
    pthread_mutex_t lock;
    watch *watches;
    size_t n_watches;
    atomic_size_t held; // bytes of bodies
};

// ------------------------------------------------------------------------------------ looking after

static void set_deadline(watch *w, bool busy, double seconds) {
    pthread_mutex_lock(&w->of->lock);
    w->busy = busy;
    w->deadline = seconds > 0 ? seconds_now() + seconds : 0;
    pthread_mutex_unlock(&w->of->lock);
}

void watch_writing(watch *w, writing *what) {
    pthread_mutex_lock(&w->of->lock);
    w->writing = what;
    pthread_mutex_unlock(&w->of->lock);
}

// A client that has closed its sending half may still read. Of one that has closed both this side learns nothing until
// it sends something: an interim reply, which clients pass over, then brings the connection down. Call with the lock.
static bool client_is_gone(watch *w) {
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct pollfd p = {.fd = w->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0) return false;
    if (p.revents & (POLLHUP | POLLERR)) return true;
    if (!w->probed && !w->replying && !w->old) {
        w->probed = true;
        return send(w->fd, interim, sizeof interim - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
    }
    return false;
}

bool nobody_waits(void *user) {
    watch *w = ((const exchange *)user)->watch;
    pthread_mutex_lock(&w->of->lock);
    const bool gone = client_is_gone(w);
    pthread_mutex_unlock(&w->of->lock);
    return gone;
}

// Where there are more connections than may be, that which has been idle longest makes room.
static void close_idlest(listener *l) {
    watch *idlest = NULL;
    if (l->n_watches <= MOST_CONNECTIONS) return;
    for (watch *w = l->watches; w; w = w->next)
        if (!w->busy && !w->reading && w->deadline > 0 &&
            (!idlest || w->idle_since < idlest->idle_since))
            idlest = w;
    if (!idlest) return;
    shutdown(idlest->fd, SHUT_RDWR);
    idlest->deadline = 0;
}

void look_after(listener *l) {
    const double now = seconds_now();
    pthread_mutex_lock(&l->lock);
    for (watch *w = l->watches; w; w = w->next) {
        if (w->deadline > 0 && now > w->deadline) {
            shutdown(w->fd, SHUT_RDWR);
            w->deadline = 0;
        }
        if (w->writing && !w->gone && client_is_gone(w)) {
            w->gone = true;
            cancel_writing(w->writing);
        }
    }
    pthread_mutex_unlock(&l->lock);
}

size_t busy_requests(listener *l) {
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (const watch *w = l->watches; w; w = w->next) n += w->busy;
    pthread_mutex_unlock(&l->lock);
    return n;
}

void cancel_all(listener *l) {
    pthread_mutex_lock(&l->lock);
    for (watch *w = l->watches; w; w = w->next)
        if (w->writing) cancel_writing(w->writing);
    pthread_mutex_unlock(&l->lock);
}

static void hear_connection(void *user, mhd_connection *connection, void **of_connection,
                            int what) {
    listener *l = user;
    if (what == MHD_STARTED) {
        const mhd_info *info = mhd.get_connection_info(connection, MHD_INFO_FD);
        watch *w = calloc(1, sizeof *w);
        *of_connection = w;
        if (!w || !info) return;
        w->of = l;
        w->fd = info->fd;
        w->idle_since = seconds_now();
        w->deadline = w->idle_since + (double)l->server->is.timeout;
        pthread_mutex_lock(&l->lock);
        w->next = l->watches;
        l->watches = w;
        l->n_watches++;
        close_idlest(l);
        pthread_mutex_unlock(&l->lock);
        return;
    }
    watch *w = *of_connection;
    if (!w) return;
    pthread_mutex_lock(&l->lock);
    for (watch **at = &l->watches; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            l->n_watches--;
            break;
        }
    pthread_mutex_unlock(&l->lock);
    free(w);
}

// ----------------------------------------------------------------------------------------- replies

// Keeps count of the bytes that the body takes. False: all bodies together would take more than they may.
static bool count_body(exchange *x, size_t n) {
    listener *l = x->watch->of;
    if (atomic_fetch_add(&l->held, n) + n > l->server->is.bodies) {
        atomic_fetch_sub(&l->held, n);
        return false;
    }
    x->held += n;
    return true;
}

static void free_exchange(exchange *x) {
    if (x->end) x->end(x->state);
    atomic_fetch_sub(&x->watch->of->held, x->held);
    const bool large = x->held >= LARGE_BODY;
    json_decref(x->asked);
    free(x->body.v);
    free(x->out.v);
    free(x);
#ifdef __GLIBC__
    if (large) malloc_trim(0); // else it stays in the pool of a thread that ends
#else
    (void)large;
#endif
}

static const char *header(mhd_connection *connection, const char *name) {
    return mhd.lookup_connection_value(connection, MHD_HEADERS, name);
}

static ssize_t read_stream(void *user, uint64_t at, char *to, size_t most) {
    exchange *x = user;
    (void)at;
    set_deadline(x->watch, true, 0);
    bool more = true;
    while (!x->out.n && more && !x->out.failed) more = x->next(x->state, &x->out);
    const size_t n = x->out.n < most ? x->out.n : most;
    if (n) {
        memcpy(to, x->out.v, n);
        memmove(x->out.v, x->out.v + n, x->out.n - n);
        x->out.n -= n;
    }
    set_deadline(x->watch, true, (double)x->server->is.timeout);
    return n ? (ssize_t)n : x->out.failed ? MHD_BREAK_OFF : MHD_ALL_SENT;
}

// Clients send headers of their own (x-stainless-os ...): a page that is let in may send what it asks for.
static void add_cors(const server *s, mhd_connection *connection, mhd_response *response) {
    if (!s->is.cors) return;
    static const char names[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    const char *asked = header(connection, "Access-Control-Request-Headers");
    const bool sound = asked && *asked && strlen(asked) < 1000 && !asked[strspn(asked, names)];
    mhd.add_response_header(response, "Access-Control-Allow-Origin", s->is.cors);
    mhd.add_response_header(response, "Access-Control-Allow-Headers",
                            sound ? asked : "Authorization, Content-Type");
    mhd.add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    mhd.add_response_header(response, "Vary", "Origin");
}

static int send_reply(exchange *x, mhd_connection *connection) {
    mhd_response *response;
    pthread_mutex_lock(&x->watch->of->lock);
    x->watch->replying = true;
    pthread_mutex_unlock(&x->watch->of->lock);
    count_request(x->server->metrics, x->route, x->code);
    if (x->next) {
        response = mhd.create_response_from_callback(MHD_ANY_SIZE, 16 << 10, read_stream, x, NULL);
    } else {
        response = mhd.create_response_from_buffer(x->out.n, x->out.v, MHD_MUST_FREE);
        if (response) x->out = (buffer){0};
    }
    if (!response) return MHD_NO;
    if (x->type) mhd.add_response_header(response, "Content-Type", x->type);
    if (x->allow) mhd.add_response_header(response, "Allow", x->allow);
    if (x->code == 401) mhd.add_response_header(response, "WWW-Authenticate", "Bearer");
    if (x->retry_after) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", x->retry_after);
        mhd.add_response_header(response, "Retry-After", seconds);
    }
    if (x->next) mhd.add_response_header(response, "Cache-Control", "no-cache");
    // What was asked is not read as anything else by a browser.
    mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (atomic_load(&x->server->stopping)) mhd.add_response_header(response, "Connection", "close");
    add_cors(x->server, connection, response);
    const int sent = mhd.queue_response(connection, (unsigned)x->code, response);
    mhd.destroy_response(response);
    set_deadline(x->watch, true, (double)x->server->is.timeout);
    return sent;
}

// ---------------------------------------------------------------------------------------- requests

// The route of a method and path. NULL: there is none; `*allowed` (or NULL) is the one of another method.
static const route *find_route(const char *method, const char *path, const char **rest,
                               const route **allowed) {
    *allowed = NULL;
    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < n_routes; i++) {
        const route *r = &routes[i];
        const size_t n = strlen(r->path);
        const bool here =
            r->more ? strncmp(path, r->path, n) == 0 && path[n] : strcmp(path, r->path) == 0;
        if (!here) continue;
        *rest = path + n;
        if (strcmp(method, r->method) == 0) return r;
        *allowed = r;
    }
    return NULL;
}

// As long for a wrong key as for a right one.
static bool same_key(const char *key, const char *given) {
    const size_t n = strlen(key), m = strlen(given);
    unsigned differ = n != m;
    for (size_t i = 0; i < m; i++)
        differ |= (unsigned char)given[i] ^ (unsigned char)(n ? key[i % n] : 1);
    return !differ;
}

static bool has_key(const server *s, mhd_connection *connection) {
    const char *given = header(connection, "Authorization");
    bool found = false;
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        for (size_t i = 0; i < s->is.n_keys; i++) found |= same_key(s->is.keys[i], given + 7);
    return found || !s->is.n_keys;
}

// A page of another place must not use a server that listens for this machine alone: browsers say where a page is
// from, and by which name it thinks to reach us.
static bool may_come(const server *s, mhd_connection *connection) {
    const char *origin = header(connection, "Origin"), *host = header(connection, "Host");
    if (!origin ||
        (s->is.cors && (strcmp(s->is.cors, "*") == 0 || strcmp(s->is.cors, origin) == 0)))
        return true;
    const char *place = strstr(origin, "://");
    if (!place || !host || strcasecmp(place + 3, host) != 0) return false;
    const bool local = strncmp(s->is.host, "127.", 4) == 0 ||
                       strcmp(s->is.host, "localhost") == 0 || strcmp(s->is.host, "::1") == 0;
    const size_t name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const bool by_number = *host == '[' || strspn(host, "0123456789.") == name;
    return !local || by_number || (name == 9 && strncasecmp(host, "localhost", 9) == 0);
}

// False: the body comes in a form that is not read.
static bool read_encoding(exchange *x, mhd_connection *connection) {
    const char *encoding = header(connection, "Content-Encoding");
    if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0) return true;
    x->packed = strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0 ||
                strcasecmp(encoding, "deflate") == 0;
    return x->packed ||
           refuse_request(x, 415, NULL, "Content-Encoding %s is not read, but gzip and deflate",
                          plain(encoding));
}

// What can be said before the body is there. False: it has been refused.
static bool admit(exchange *x, mhd_connection *connection, const char *method, const char *url) {
    const route *allowed;
    const server *s = x->server;
    if (strcmp(method, "OPTIONS") == 0 && s->is.cors) {
        x->code = 204;
        return false;
    }
    x->route = find_route(method, url, &x->rest, &allowed);
    if (!may_come(s, connection))
        return refuse_request(x, 403, NULL,
                              "pages of %s may not use this server (--cors allows it)",
                              plain(header(connection, "Origin")));
    if (!x->route && allowed) {
        x->route = allowed;
        x->allow = allowed->method;
        return refuse_request(x, 405, NULL, "%s takes %s, not %s", allowed->path, allowed->method,
                              plain(method));
    }
    if (!x->route) {
        x->route = strncmp(url, "/api/", 5) == 0 ? &routes[n_routes - 1] : NULL;
        refuse_request(x, 404, NULL, "there is no %s", plain(url));
        x->route = NULL;
        return false;
    }
    if (!x->route->open && !has_key(s, connection))
        return refuse_request(x, 401, NULL, "%s",
                              header(connection, "Authorization")
                                  ? "the API key is wrong"
                                  : "an API key is needed: Authorization: Bearer KEY");
    if (!read_encoding(x, connection)) return false;
    if (atomic_load(&s->stopping)) {
        x->retry_after = 10;
        return refuse_request(x, 503, NULL, "the server is stopping");
    }
    for (size_t i = 0; i < s->n_models && !x->route->waits; i++)
        if (atomic_load(&s->models[i].state) == MODEL_LOADING) {
            x->retry_after = 5;
            return refuse_request(x, 503, NULL, "%s is being loaded", s->models[i].name);
        }
    return true;
}

// Lists and objects in each other: no reader goes deeper than this.
static bool too_deep(const buffer *body) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < body->n; i++) {
        const char c = body->v[i];
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > MOST_DEPTH) return true;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

static bool refuse_crowded(exchange *x) {
    x->retry_after = 1;
    return refuse_request(
        x, 503, NULL, "the requests that are being read take more than %llu MB: try again later",
        (unsigned long long)x->server->is.bodies / 1000000);
}

// Unpacks a body that came compressed. False: it has been refused.
static bool unpack_body(exchange *x) {
    z_stream z = {.next_in = (Bytef *)x->body.v, .avail_in = (uInt)x->body.n};
    buffer out = {0};
    char piece[16 << 10];
    int status = inflateInit2(&z, 15 + 32); // of gzip or zlib, as its head says
    while (status == Z_OK && out.n <= MOST_BODY && !out.failed) {
        z.next_out = (Bytef *)piece;
        z.avail_out = sizeof piece;
        status = inflate(&z, Z_NO_FLUSH);
        const size_t n = sizeof piece - z.avail_out;
        x->crowded = !count_body(x, n);
        if (x->crowded) break;
        put(&out, piece, n);
    }
    inflateEnd(&z);
    free(x->body.v);
    x->body = out;
    if (x->crowded) return refuse_crowded(x);
    if (out.n > MOST_BODY)
        return refuse_request(x, 413, NULL, "the body is larger than %d MiB", MOST_BODY >> 20);
    return status == Z_STREAM_END || out.failed ||
           refuse_request(x, 400, NULL, "the body is no gzip, as Content-Encoding says it is");
}

static void answer(exchange *x) {
    json_error_t at;
    if (x->packed && !unpack_body(x)) return;
    if (x->body.failed) {
        refuse_request(x, 503, NULL, "there is no memory for the request");
        return;
    }
    if (strcmp(x->route->method, "POST") == 0) {
        if (too_deep(&x->body)) {
            refuse_request(x, 400, NULL, "the body has lists and objects deeper than %d",
                           MOST_DEPTH);
            return;
        }
        // A model of bytes may have said a zero byte, which its client sends again.
        x->asked = json_loadb(x->body.n ? x->body.v : "", x->body.n, JSON_ALLOW_NUL, &at);
        free(x->body.v); // all of it is in the JSON now
        x->body.v = NULL;
        if (!json_is_object(x->asked)) {
            if (x->asked || !x->body.n)
                refuse_request(x, 400, NULL, "the body must be a JSON object%s%s",
                               x->asked ? ", not " : ": it is empty",
                               x->asked ? shown(x->asked) : "");
            else
                refuse_request(x, 400, NULL, "the body is no JSON: line %d, column %d: %s", at.line,
                               at.column, at.text);
            return;
        }
    }
    if (refuse_known(x, x->route->names, x->asked, "")) x->route->answer(x);
}

static bool declared_too_large(mhd_connection *connection) {
    const char *length = header(connection, "Content-Length");
    return length && strtod(length, NULL) > 4.0 * MOST_BODY;
}

static int begin(listener *l, mhd_connection *connection, const char *url, const char *method,
                 const char *version, void **request) {
    const mhd_info *info = mhd.get_connection_info(connection, MHD_INFO_OF_CONNECTION);
    exchange *x = calloc(1, sizeof *x);
    if (!x || !info || !info->of_connection) {
        free(x);
        return MHD_NO;
    }
    *request = x;
    x->server = l->server;
    x->watch = info->of_connection;
    x->code = 200;
    pthread_mutex_lock(&l->lock);
    x->watch->reading = true;
    x->watch->old = strcmp(version, "HTTP/1.0") == 0;
    pthread_mutex_unlock(&l->lock);
    if (!admit(x, connection, method, url)) return send_reply(x, connection);
    if (!declared_too_large(connection)) return MHD_YES;
    refuse_request(x, 413, NULL, "the body is larger than %d MiB", MOST_BODY >> 20);
    return send_reply(x, connection);
}

// Called for the head of a request, for pieces of its body, and for its end.
static int handle(void *user, mhd_connection *connection, const char *url, const char *method,
                  const char *version, const char *data, size_t *n, void **request) {
    exchange *x = *request;
    if (!x) return begin(user, connection, url, method, version, request);
    if (*n) { // what is too much is read too, so that the client gets the answer
        x->crowded = x->crowded || (x->body.n <= MOST_BODY && !count_body(x, *n));
        if (x->body.n <= MOST_BODY && !x->crowded) put(&x->body, data, *n);
        *n = 0;
        return MHD_YES;
    }
    set_deadline(x->watch, true, 0);
    if (x->crowded)
        refuse_crowded(x);
    else if (x->body.n > MOST_BODY) {
        refuse_request(x, 413, NULL, "the body is larger than %d MiB", MOST_BODY >> 20);
    } else {
        answer(x);
    }
    return send_reply(x, connection);
}

static void complete(void *user, mhd_connection *connection, void **request, int how) {
    listener *l = user;
    exchange *x = *request;
    (void)connection, (void)how;
    if (!x) return;
    watch *w = x->watch;
    free_exchange(x);
    *request = NULL;
    pthread_mutex_lock(&l->lock);
    w->reading = w->replying = w->probed = false;
    w->idle_since = seconds_now();
    pthread_mutex_unlock(&l->lock);
    set_deadline(w, false, (double)l->server->is.timeout);
}

// --------------------------------------------------------------------------------------- listening

#ifdef COTAN_STATIC
// Names would be looked up by libraries that the C library opens.
static bool find_address(const serve_settings *is, struct sockaddr_storage *at, socklen_t *n,
                         const char **why) {
    struct sockaddr_in *four = (struct sockaddr_in *)at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)at;
    const char *host = strcmp(is->host, "localhost") == 0 ? "127.0.0.1" : is->host;
    *at = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)is->port);
        *n = sizeof *four;
        return true;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)is->port);
    *n = sizeof *six;
    *why = "a program that is linked statically takes addresses, no names";
    return inet_pton(AF_INET6, host, &six->sin6_addr) == 1;
}
#else
static bool find_address(const serve_settings *is, struct sockaddr_storage *at, socklen_t *n,
                         const char **why) {
    char service[16];
    struct addrinfo *found = NULL,
                    hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    snprintf(service, sizeof service, "%lld", (long long)is->port);
    const int error = getaddrinfo(is->host, service, &hints, &found);
    if (error) {
        *why = gai_strerror(error);
        return false;
    }
    *n = found->ai_addrlen;
    memcpy(at, found->ai_addr, *n);
    freeaddrinfo(found);
    return true;
}
#endif

static int open_socket(const serve_settings *is, int *family, int *port, const char **why) {
    struct sockaddr_storage at;
    socklen_t n;
    if (!find_address(is, &at, &n, why)) return -1;
    const int on = 1;
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *family = at.ss_family;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 128) == 0 &&
                    getsockname(fd, (struct sockaddr *)&at, &n) == 0;
    *why = strerror(errno);
    if (!ok && fd >= 0) close(fd);
    *port = ntohs(*family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                      : ((struct sockaddr_in *)&at)->sin_port);
    return ok ? fd : -1;
}

listener *listen_http(server *s, int *status) {
    const char *why = mhd_missing();
    int family;
    listener *l = why ? NULL : calloc(1, sizeof *l);
    *status = EXIT_FAILED;
    if (!l) {
        fprintf(stderr, "cotan: serve: %s\n", why ? why : "out of memory");
        return NULL;
    }
    l->server = s;
    pthread_mutex_init(&l->lock, NULL);
    l->fd = open_socket(&s->is, &family, &l->port, &why);
    if (l->fd < 0) {
        fprintf(stderr, "cotan: serve: port %lld of %s: %s\n", (long long)s->is.port,
                plain(s->is.host), why);
        free(l);
        return NULL;
    }
    const unsigned flags = MHD_THREAD_PER_CONNECTION | MHD_INTERNAL_THREAD | MHD_POLL | MHD_ITC |
                           (family == AF_INET6 ? MHD_IPV6 : 0);
    l->daemon = mhd.start_daemon(
        flags, 0, NULL, NULL, handle, l, MHD_LISTEN_SOCKET, l->fd, MHD_CONNECTION_LIMIT,
        (unsigned)MOST_CONNECTIONS + SPARE_CONNECTIONS, MHD_NOTIFY_COMPLETED, complete, l,
        MHD_NOTIFY_CONNECTION, hear_connection, l, MHD_END);
    if (l->daemon) return l;
    fprintf(stderr, "cotan: serve: libmicrohttpd does not start\n");
    close(l->fd);
    free(l);
    return NULL;
}

int listener_port(const listener *l) { return l->port; }

void refuse_more(listener *l) {
    if (l->quiet) return;
    l->quiet = true;
    const int fd = mhd.quiesce_daemon(l->daemon);
    if (fd >= 0) close(fd);
}

void close_http(listener *l) {
    refuse_more(l);
    mhd.stop_daemon(l->daemon);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
