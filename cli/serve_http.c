// Connections: one thread each, by libmicrohttpd. Receiving a request and sending a reply have
// deadlines, and a client that disconnects cancels its generation. The main thread checks both
// (listener_poll).
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
typedef struct conn {
    struct conn *next;
    listener *owner;
    int fd;
    double deadline;  // when it is closed; 0: none, the server is working
    bool busy;        // a request is being handled
    bool reading;     // a request is being received
    bool replying;    // a reply is being sent
    bool is_http_1_0; // HTTP/1.0, which has no interim replies
    bool probed;      // an interim reply was sent to test whether the client is connected
    bool client_gone;
    double idle_since; // since when it neither sends a request nor waits for a reply
    generation *generation;
} conn;

struct listener {
    server *server;
    mhd_daemon *daemon;
    int fd, port;
    bool stopped_accepting;
    pthread_mutex_t lock;
    conn *conns;
    size_t n_conns;
    atomic_size_t body_bytes; // bytes of request bodies
};

// ------------------------------------------------------------------------------------ looking after

static void conn_set_deadline(conn *w, bool busy, double seconds) {
    pthread_mutex_lock(&w->owner->lock);
    w->busy = busy;
    w->deadline = seconds > 0 ? seconds_now() + seconds : 0;
    pthread_mutex_unlock(&w->owner->lock);
}

void conn_set_generation(conn *w, generation *what) {
    pthread_mutex_lock(&w->owner->lock);
    w->generation = what;
    pthread_mutex_unlock(&w->owner->lock);
}

// True if the client has disconnected. A client that has closed its sending side may still read. If it
// has closed both sides, the server learns of it only when it sends something: an interim reply, which
// clients ignore, then resets the connection. The lock must be held.
static bool conn_client_is_gone(conn *w) {
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct pollfd p = {.fd = w->fd, .events = POLLRDHUP};
    if (poll(&p, 1, 0) <= 0) return false;
    if (p.revents & (POLLHUP | POLLERR)) return true;
    if (!w->probed && !w->replying && !w->is_http_1_0) {
        w->probed = true;
        return send(w->fd, interim, sizeof interim - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
    }
    return false;
}

bool client_is_disconnected(void *user) {
    conn *w = ((const exchange *)user)->conn;
    pthread_mutex_lock(&w->owner->lock);
    const bool gone = conn_client_is_gone(w);
    pthread_mutex_unlock(&w->owner->lock);
    return gone;
}

// If there are too many connections, closes the one that has been idle longest.
static void listener_close_idlest(listener *l) {
    conn *idlest = NULL;
    if (l->n_conns <= MAX_CONNECTIONS) return;
    for (conn *w = l->conns; w; w = w->next)
        if (!w->busy && !w->reading && w->deadline > 0 &&
            (!idlest || w->idle_since < idlest->idle_since))
            idlest = w;
    if (!idlest) return;
    shutdown(idlest->fd, SHUT_RDWR);
    idlest->deadline = 0;
}

void listener_poll(listener *l) {
    const double now = seconds_now();
    pthread_mutex_lock(&l->lock);
    for (conn *w = l->conns; w; w = w->next) {
        if (w->deadline > 0 && now > w->deadline) {
            shutdown(w->fd, SHUT_RDWR);
            w->deadline = 0;
        }
        if (w->generation && !w->client_gone && conn_client_is_gone(w)) {
            w->client_gone = true;
            generation_cancel(w->generation);
        }
    }
    pthread_mutex_unlock(&l->lock);
}

size_t listener_busy_count(listener *l) {
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (const conn *w = l->conns; w; w = w->next) n += w->busy;
    pthread_mutex_unlock(&l->lock);
    return n;
}

void listener_cancel_all(listener *l) {
    pthread_mutex_lock(&l->lock);
    for (conn *w = l->conns; w; w = w->next)
        if (w->generation) generation_cancel(w->generation);
    pthread_mutex_unlock(&l->lock);
}

static void http_server_on_connection(void *user, mhd_connection *connection, void **of_connection,
                                      int what) {
    listener *l = user;
    if (what == MHD_STARTED) {
        const mhd_info *info = mhd.get_connection_info(connection, MHD_INFO_FD);
        conn *w = calloc(1, sizeof *w);
        *of_connection = w;
        if (!w || !info) return;
        w->owner = l;
        w->fd = info->fd;
        w->idle_since = seconds_now();
        w->deadline = w->idle_since + (double)l->server->is.timeout;
        pthread_mutex_lock(&l->lock);
        w->next = l->conns;
        l->conns = w;
        l->n_conns++;
        listener_close_idlest(l);
        pthread_mutex_unlock(&l->lock);
        return;
    }
    conn *w = *of_connection;
    if (!w) return;
    pthread_mutex_lock(&l->lock);
    for (conn **at = &l->conns; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            l->n_conns--;
            break;
        }
    pthread_mutex_unlock(&l->lock);
    free(w);
}

// ----------------------------------------------------------------------------------------- replies

// Counts bytes of the body. False: all bodies together would exceed the limit.
static bool http_server_count_body(exchange *x, size_t n) {
    listener *l = x->conn->owner;
    if (atomic_fetch_add(&l->body_bytes, n) + n > l->server->is.max_body_bytes) {
        atomic_fetch_sub(&l->body_bytes, n);
        return false;
    }
    x->body_bytes += n;
    return true;
}

static void exchange_free(exchange *x) {
    if (x->end_state) x->end_state(x->state);
    atomic_fetch_sub(&x->conn->owner->body_bytes, x->body_bytes);
    const bool large = x->body_bytes >= LARGE_BODY;
    json_decref(x->request);
    free(x->body.v);
    free(x->out.v);
    free(x);
    ct_error_clear(); // an error must not affect the next request of the connection
#ifdef __GLIBC__
    if (large) malloc_trim(0); // otherwise the memory stays in the arena of a thread that ends
#else
    (void)large;
#endif
}

static const char *http_server_header(mhd_connection *connection, const char *name) {
    return mhd.lookup_connection_value(connection, MHD_HEADERS, name);
}

static ssize_t http_server_read_stream(void *user, uint64_t at, char *to, size_t most) {
    exchange *x = user;
    (void)at;
    conn_set_deadline(x->conn, true, 0);
    bool more = true;
    while (!x->out.n && more && !x->out.failed) more = x->next_chunk(x->state, &x->out);
    const size_t n = x->out.n < most ? x->out.n : most;
    if (n) {
        memcpy(to, x->out.v, n);
        memmove(x->out.v, x->out.v + n, x->out.n - n);
        x->out.n -= n;
    }
    conn_set_deadline(x->conn, true, (double)x->server->is.timeout);
    return n ? (ssize_t)n : x->out.failed ? MHD_BREAK_OFF : MHD_ALL_SENT;
}

// Adds CORS headers. Clients send headers of their own (x-stainless-os ...): an allowed origin may send
// the headers that it requests.
static void http_server_add_cors(const server *s, mhd_connection *connection,
                                 mhd_response *response) {
    if (!s->is.cors) return;
    static const char names[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    const char *asked = http_server_header(connection, "Access-Control-Request-Headers");
    const bool sound = asked && *asked && strlen(asked) < 1000 && !asked[strspn(asked, names)];
    mhd.add_response_header(response, "Access-Control-Allow-Origin", s->is.cors);
    mhd.add_response_header(response, "Access-Control-Allow-Headers",
                            sound ? asked : "Authorization, Content-Type");
    mhd.add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    mhd.add_response_header(response, "Vary", "Origin");
}

static int http_server_send_reply(exchange *x, mhd_connection *connection) {
    mhd_response *response;
    pthread_mutex_lock(&x->conn->owner->lock);
    x->conn->replying = true;
    pthread_mutex_unlock(&x->conn->owner->lock);
    metrics_count_request(x->server->metrics, x->route, x->code);
    if (x->next_chunk) {
        response = mhd.create_response_from_callback(MHD_ANY_SIZE, 16 << 10,
                                                     http_server_read_stream, x, NULL);
    } else {
        response = mhd.create_response_from_buffer(x->out.n, x->out.v, MHD_MUST_FREE);
        if (response) x->out = (buffer){0};
    }
    if (!response) return MHD_NO;
    if (x->content_type) mhd.add_response_header(response, "Content-Type", x->content_type);
    if (x->allow) mhd.add_response_header(response, "Allow", x->allow);
    if (x->code == 401) mhd.add_response_header(response, "WWW-Authenticate", "Bearer");
    if (x->retry_after) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", x->retry_after);
        mhd.add_response_header(response, "Retry-After", seconds);
    }
    if (x->next_chunk) mhd.add_response_header(response, "Cache-Control", "no-cache");
    // Browsers must not guess another type from content that a client controls.
    mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (atomic_load(&x->server->stopping)) mhd.add_response_header(response, "Connection", "close");
    http_server_add_cors(x->server, connection, response);
    const int sent = mhd.queue_response(connection, (unsigned)x->code, response);
    mhd.destroy_response(response);
    conn_set_deadline(x->conn, true, (double)x->server->is.timeout);
    return sent;
}

// ---------------------------------------------------------------------------------------- requests

// Returns the route of a method and path. NULL: none; `*allowed` (or NULL) is the route of another
// method.
static const route *http_server_find_route(const char *method, const char *path, const char **rest,
                                           const route **allowed) {
    *allowed = NULL;
    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < n_routes; i++) {
        const route *r = &routes[i];
        const size_t n = strlen(r->path);
        const bool here =
            r->has_suffix ? strncmp(path, r->path, n) == 0 && path[n] : strcmp(path, r->path) == 0;
        if (!here) continue;
        *rest = path + n;
        if (strcmp(method, r->method) == 0) return r;
        *allowed = r;
    }
    return NULL;
}

// Compares in constant time, for wrong and right keys alike.
static bool http_server_keys_equal(const char *key, const char *given) {
    const size_t n = strlen(key), m = strlen(given);
    unsigned differ = n != m;
    for (size_t i = 0; i < m; i++)
        differ |= (unsigned char)given[i] ^ (unsigned char)(n ? key[i % n] : 1);
    return !differ;
}

static bool http_server_has_api_key(const server *s, mhd_connection *connection) {
    const char *given = http_server_header(connection, "Authorization");
    bool found = false;
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        for (size_t i = 0; i < s->is.n_keys; i++)
            found |= http_server_keys_equal(s->is.keys[i], given + 7);
    return found || !s->is.n_keys;
}

// True if the request's origin is allowed. A web page from elsewhere must not use a server that listens
// only on this machine: browsers send the page's origin, and the host name by which it addresses the
// server.
static bool http_server_origin_is_allowed(const server *s, mhd_connection *connection) {
    const char *origin = http_server_header(connection, "Origin"),
               *host = http_server_header(connection, "Host");
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

// False: the encoding of the body is not supported.
static bool http_server_check_encoding(exchange *x, mhd_connection *connection) {
    const char *encoding = http_server_header(connection, "Content-Encoding");
    if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0) return true;
    x->is_compressed = strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0 ||
                       strcasecmp(encoding, "deflate") == 0;
    return x->is_compressed ||
           fail_request(x, 415, NULL, "Content-Encoding %s is not read, but gzip and deflate",
                        printable(encoding));
}

// Checks what is known before the body arrives. False: an error was replied.
static bool http_server_admit(exchange *x, mhd_connection *connection, const char *method,
                              const char *url) {
    const route *allowed;
    const server *s = x->server;
    if (strcmp(method, "OPTIONS") == 0 && s->is.cors) {
        x->code = 204;
        return false;
    }
    x->route = http_server_find_route(method, url, &x->path_suffix, &allowed);
    if (!http_server_origin_is_allowed(s, connection))
        return fail_request(x, 403, NULL, "pages of %s may not use this server (--cors allows it)",
                            printable(http_server_header(connection, "Origin")));
    if (!x->route && allowed) {
        x->route = allowed;
        x->allow = allowed->method;
        return fail_request(x, 405, NULL, "%s takes %s, not %s", allowed->path, allowed->method,
                            printable(method));
    }
    if (!x->route) {
        x->route = strncmp(url, "/api/", 5) == 0 ? &routes[n_routes - 1] : NULL;
        fail_request(x, 404, NULL, "there is no %s", printable(url));
        x->route = NULL;
        return false;
    }
    if (!x->route->is_public && !http_server_has_api_key(s, connection))
        return fail_request(x, 401, NULL, "%s",
                            http_server_header(connection, "Authorization")
                                ? "the API key is wrong"
                                : "an API key is needed: Authorization: Bearer KEY");
    if (!http_server_check_encoding(x, connection)) return false;
    if (atomic_load(&s->stopping)) {
        x->retry_after = 10;
        return fail_request(x, 503, NULL, "the server is stopping");
    }
    for (size_t i = 0; i < s->n_models && !x->route->works_while_loading; i++)
        if (atomic_load(&s->models[i].state) == MODEL_LOADING) {
            x->retry_after = 1;
            return fail_request(x, 503, NULL, "%s is being loaded", s->models[i].name);
        }
    return true;
}

// True if lists and objects are nested deeper than the parsers' limit.
static bool http_server_json_is_too_deep(const buffer *body) {
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
            if (++depth > MAX_DEPTH) return true;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

static bool http_server_reject_overload(exchange *x) {
    x->retry_after = 1;
    return fail_request(x, 503, NULL,
                        "the requests that are being read take more than %llu MB: try again later",
                        (unsigned long long)x->server->is.max_body_bytes / 1000000);
}

// Decompresses the body. False: an error was replied.
static bool http_server_decompress_body(exchange *x) {
    z_stream z = {.next_in = (Bytef *)x->body.v, .avail_in = (uInt)x->body.n};
    buffer out = {0};
    char piece[16 << 10];
    int status = inflateInit2(&z, 15 + 32); // gzip or zlib, as the header says
    while (status == Z_OK && out.n <= MAX_BODY && !out.failed) {
        z.next_out = (Bytef *)piece;
        z.avail_out = sizeof piece;
        status = inflate(&z, Z_NO_FLUSH);
        const size_t n = sizeof piece - z.avail_out;
        x->is_over_limit = !http_server_count_body(x, n);
        if (x->is_over_limit) break;
        buffer_put(&out, piece, n);
    }
    inflateEnd(&z);
    free(x->body.v);
    x->body = out;
    if (x->is_over_limit) return http_server_reject_overload(x);
    if (out.n > MAX_BODY)
        return fail_request(x, 413, NULL, "the body is larger than %d MiB", MAX_BODY >> 20);
    return status == Z_STREAM_END || out.failed ||
           fail_request(x, 400, NULL, "the body is not gzip, although Content-Encoding is gzip");
}

static void http_server_dispatch(exchange *x) {
    json_error_t at;
    if (x->is_compressed && !http_server_decompress_body(x)) return;
    if (x->body.failed) {
        fail_request(x, 503, NULL, "there is no memory for the request");
        return;
    }
    if (strcmp(x->route->method, "POST") == 0) {
        if (http_server_json_is_too_deep(&x->body)) {
            fail_request(x, 400, NULL, "the body has lists and objects deeper than %d", MAX_DEPTH);
            return;
        }
        // Zero bytes are allowed: a byte-level model may have generated one, which the client sends
        // again.
        x->request = json_loadb(x->body.n ? x->body.v : "", x->body.n, JSON_ALLOW_NUL, &at);
        free(x->body.v); // the JSON has copies of everything
        x->body.v = NULL;
        if (!json_is_object(x->request)) {
            if (x->request || !x->body.n)
                fail_request(x, 400, NULL, "the body must be a JSON object%s%s",
                             x->request ? ", not " : ": it is empty",
                             x->request ? json_excerpt(x->request) : "");
            else
                fail_request(x, 400, NULL, "the body is no JSON: line %d, column %d: %s", at.line,
                             at.column, at.text);
            return;
        }
    }
    if (reject_unsupported_fields(x, x->route->families, x->request, "")) x->route->handle(x);
}

static bool http_server_declares_large_body(mhd_connection *connection) {
    const char *length = http_server_header(connection, "Content-Length");
    return length && strtod(length, NULL) > 4.0 * MAX_BODY;
}

static int http_server_begin_request(listener *l, mhd_connection *connection, const char *url,
                                     const char *method, const char *version, void **request) {
    const mhd_info *info = mhd.get_connection_info(connection, MHD_INFO_OF_CONNECTION);
    exchange *x = calloc(1, sizeof *x);
    if (!x || !info || !info->of_connection) {
        free(x);
        return MHD_NO;
    }
    *request = x;
    x->server = l->server;
    x->conn = info->of_connection;
    x->code = 200;
    pthread_mutex_lock(&l->lock);
    x->conn->reading = true;
    x->conn->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    pthread_mutex_unlock(&l->lock);
    if (!http_server_admit(x, connection, method, url))
        return http_server_send_reply(x, connection);
    if (!http_server_declares_large_body(connection)) return MHD_YES;
    fail_request(x, 413, NULL, "the body is larger than %d MiB", MAX_BODY >> 20);
    return http_server_send_reply(x, connection);
}

// Called for the head of a request, for pieces of its body, and for its end.
static int http_server_on_request(void *user, mhd_connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **request) {
    exchange *x = *request;
    if (!x) return http_server_begin_request(user, connection, url, method, version, request);
    if (*n) { // the rest of a body that is too large is read, too, so that the client receives the error
        x->is_over_limit =
            x->is_over_limit || (x->body.n <= MAX_BODY && !http_server_count_body(x, *n));
        if (x->body.n <= MAX_BODY && !x->is_over_limit) buffer_put(&x->body, data, *n);
        *n = 0;
        return MHD_YES;
    }
    conn_set_deadline(x->conn, true, 0);
    if (x->is_over_limit)
        http_server_reject_overload(x);
    else if (x->body.n > MAX_BODY) {
        fail_request(x, 413, NULL, "the body is larger than %d MiB", MAX_BODY >> 20);
    } else {
        http_server_dispatch(x);
    }
    return http_server_send_reply(x, connection);
}

static void http_server_on_complete(void *user, mhd_connection *connection, void **request,
                                    int how) {
    listener *l = user;
    exchange *x = *request;
    (void)connection, (void)how;
    if (!x) return;
    conn *w = x->conn;
    exchange_free(x);
    *request = NULL;
    pthread_mutex_lock(&l->lock);
    w->reading = w->replying = w->probed = false;
    w->idle_since = seconds_now();
    pthread_mutex_unlock(&l->lock);
    conn_set_deadline(w, false, (double)l->server->is.timeout);
}

// --------------------------------------------------------------------------------------- listening

#ifdef COTAN_STATIC
// A static program parses addresses only: name lookup needs libraries that the C library opens.
static bool http_server_resolve_host(const serve_settings *is, struct sockaddr_storage *at,
                                     socklen_t *n, const char **why) {
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
static bool http_server_resolve_host(const serve_settings *is, struct sockaddr_storage *at,
                                     socklen_t *n, const char **why) {
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

static int http_server_open_socket(const serve_settings *is, int *family, int *port,
                                   const char **why) {
    struct sockaddr_storage at;
    socklen_t n;
    if (!http_server_resolve_host(is, &at, &n, why)) return -1;
    const int on = 1;
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *family = at.ss_family;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 128) == 0 &&
                    getsockname(fd, (struct sockaddr *)&at, &n) == 0;
    *why = errno == EADDRINUSE
               ? "Address already in use\n  hint: --port selects another, 0 a free one"
               : strerror(errno);
    if (!ok && fd >= 0) close(fd);
    *port = ntohs(*family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                      : ((struct sockaddr_in *)&at)->sin_port);
    return ok ? fd : -1;
}

listener *listener_open(server *s, int *status) {
    const char *why = mhd_unavailable_reason();
    int family;
    listener *l = why ? NULL : calloc(1, sizeof *l);
    *status = EXIT_FAILED;
    if (!l) {
        fprintf(stderr, "cotan: serve: %s\n", why ? why : "out of memory");
        return NULL;
    }
    l->server = s;
    pthread_mutex_init(&l->lock, NULL);
    l->fd = http_server_open_socket(&s->is, &family, &l->port, &why);
    if (l->fd < 0) {
        fprintf(stderr, "cotan: serve: port %lld of %s: %s\n", (long long)s->is.port,
                printable(s->is.host), why);
        free(l);
        return NULL;
    }
    const unsigned flags = MHD_THREAD_PER_CONNECTION | MHD_INTERNAL_THREAD | MHD_POLL | MHD_ITC |
                           (family == AF_INET6 ? MHD_IPV6 : 0);
    l->daemon = mhd.start_daemon(
        flags, 0, NULL, NULL, http_server_on_request, l, MHD_LISTEN_SOCKET, l->fd,
        MHD_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS + SPARE_CONNECTIONS, MHD_NOTIFY_COMPLETED,
        http_server_on_complete, l, MHD_NOTIFY_CONNECTION, http_server_on_connection, l, MHD_END);
    if (l->daemon) return l;
    fprintf(stderr, "cotan: serve: libmicrohttpd does not start\n");
    close(l->fd);
    free(l);
    return NULL;
}

int listener_port(const listener *l) { return l->port; }

void listener_stop_accepting(listener *l) {
    if (l->stopped_accepting) return;
    l->stopped_accepting = true;
    const int fd = mhd.quiesce_daemon(l->daemon);
    if (fd >= 0) close(fd);
}

void listener_close(listener *l) {
    listener_stop_accepting(l);
    mhd.stop_daemon(l->daemon);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
