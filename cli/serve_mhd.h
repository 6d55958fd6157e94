// The part of libmicrohttpd's ABI that is used (libmicrohttpd.so.12, since 2015); the library is opened
// when a server starts.
#ifndef COTAN_CLI_SERVE_MHD_H
#define COTAN_CLI_SERVE_MHD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct mhd_daemon mhd_daemon;
typedef struct mhd_connection mhd_connection;
typedef struct mhd_response mhd_response;
typedef int (*mhd_handler)(void *user, mhd_connection *connection, const char *url,
                           const char *method, const char *version, const char *data, size_t *n,
                           void **request);
typedef void (*mhd_completed)(void *user, mhd_connection *connection, void **request, int how);
typedef void (*mhd_notify)(void *user, mhd_connection *connection, void **of_connection, int what);
typedef ssize_t (*mhd_reader)(void *user, uint64_t at, char *to, size_t most);
typedef union mhd_info {
    int fd;
    void *of_connection;
} mhd_info;

enum { MHD_NO = 0, MHD_YES = 1 };
enum { // flags of a daemon
    MHD_THREAD_PER_CONNECTION = 4,
    MHD_INTERNAL_THREAD = 8,
    MHD_IPV6 = 16,
    MHD_POLL = 64,
    MHD_ITC = 1024,
};
enum { // options of a daemon
    MHD_END = 0,
    MHD_CONNECTION_LIMIT = 2,
    MHD_NOTIFY_COMPLETED = 4,
    MHD_LISTEN_SOCKET = 12,
    MHD_NOTIFY_CONNECTION = 27,
};
enum { MHD_HEADERS = 1 };
enum { MHD_INFO_FD = 6, MHD_INFO_OF_CONNECTION = 7 };
enum { MHD_STARTED = 0, MHD_CLOSED = 1 };
enum { MHD_MUST_FREE = 1 };
enum { MHD_ALL_SENT = -1, MHD_BREAK_OFF = -2 };
#define MHD_ANY_SIZE UINT64_MAX

typedef struct mhd_functions {
    mhd_daemon *(*start_daemon)(unsigned flags, uint16_t port, void *policy, void *policy_user,
                                mhd_handler handler, void *user, ...);
    int (*quiesce_daemon)(mhd_daemon *daemon);
    void (*stop_daemon)(mhd_daemon *daemon);
    const mhd_info *(*get_connection_info)(mhd_connection *connection, int what, ...);
    const char *(*lookup_connection_value)(mhd_connection *connection, int kind, const char *key);
    mhd_response *(*create_response_from_buffer)(size_t n, void *bytes, int mode);
    mhd_response *(*create_response_from_callback)(uint64_t n, size_t block, mhd_reader reader,
                                                   void *user, void (*end)(void *user));
    int (*add_response_header)(mhd_response *response, const char *name, const char *value);
    int (*queue_response)(mhd_connection *connection, unsigned code, mhd_response *response);
    void (*destroy_response)(mhd_response *response);
} mhd_functions;
extern mhd_functions mhd;

// Returns a sentence why there can be no server; NULL: there can.
const char *mhd_unavailable_reason(void);

#endif
