#include "net/trust/tls.h"

#include "base/memory.h"

#include <poll.h>

#ifdef RPI_WITH_TLS
#    include <errno.h>
#    include <openssl/bio.h>
#    include <openssl/crypto.h>
#    include <openssl/err.h>
#    include <openssl/ssl.h>
#    include <pthread.h>
#    include <stdio.h>
#    include <string.h>
#    include <sys/socket.h>
#    include <sys/uio.h>

/* A record has at most this many bytes; AES-GCM may protect 2^24.5 of them with one key (RFC
 * 8446, 5.5). */
enum { RECORD_BYTES = 16 * 1024, RECORDS_PER_KEY = 1 << 23, AHEAD_BYTES = 512 };

static const char cipher_suites[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
static const unsigned char cipher_of_key[] = {0x13,
                                              0x01}; /* the first: its hash is the key's */
static const unsigned char identity[] = "redpoll";

struct rpi_tls {
    SSL *ssl;
    int fd;
    short awaits;
    int error;  /* errno of the socket, kept because OpenSSL may change it in between */
    int broken; /* errno of the failure that ended it: OpenSSL reports it once */
    bool more, ended;
    unsigned records;
    unsigned char key[RPI_TLS_KEY_BYTES];
    unsigned char ahead[AHEAD_BYTES]; /* read beyond what was asked for */
    size_t ahead_first, ahead_bytes;
};

/* Shared by all connections; made once, never changed. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *socket_method;
static SSL_CTX *context;

/* ---- the socket below: as OpenSSL's own, but without SIGPIPE, and with MSG_MORE ---- */

static int note(BIO *bio, ssize_t result, short awaits) {
    rpi_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (result >= 0) return (int)result;
    tls->error = errno;
    if (errno == EAGAIN || errno == EINTR) {
        tls->awaits = awaits;
        if (awaits == POLLIN)
            BIO_set_retry_read(bio);
        else
            BIO_set_retry_write(bio);
    }
    return -1;
}

static int write_socket(BIO *bio, const char *data, int bytes) {
    const rpi_tls *tls = BIO_get_data(bio);
    int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (tls->more ? MSG_MORE : 0);
    ssize_t sent;
    do sent = send(tls->fd, data, (size_t)bytes, flags);
    while (sent < 0 && errno == EINTR);
    return note(bio, sent, POLLOUT);
}

static int take_ahead(rpi_tls *tls, char *data, int bytes) {
    size_t taken = tls->ahead_bytes < (size_t)bytes ? tls->ahead_bytes : (size_t)bytes;
    memcpy(data, tls->ahead + tls->ahead_first, taken);
    tls->ahead_first += taken;
    tls->ahead_bytes -= taken;
    return (int)taken;
}

/* OpenSSL asks for the head of a record and then for the rest. A little more is read: the next
 * head, or all of a short record, so that one call is enough; not much, as it is copied. */
static int read_socket(BIO *bio, char *data, int bytes) {
    rpi_tls *tls = BIO_get_data(bio);
    struct iovec pieces[2] = {{data, (size_t)bytes}, {tls->ahead, sizeof tls->ahead}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    BIO_clear_retry_flags(bio);
    if (tls->ahead_bytes > 0) return take_ahead(tls, data, bytes);
    ssize_t got;
    do got = recvmsg(tls->fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0) tls->ended = true;
    if (got <= bytes) return note(bio, got, POLLIN);
    tls->ahead_first = 0;
    tls->ahead_bytes = (size_t)(got - bytes);
    return bytes;
}

static long control_socket(BIO *bio, int what, long number, void *pointer) {
    const rpi_tls *tls = BIO_get_data(bio);
    (void)number, (void)pointer;
    if (what == BIO_CTRL_EOF) return tls->ended;
    return what == BIO_CTRL_FLUSH || what == BIO_CTRL_DUP;
}

static int create_socket(BIO *bio) {
    BIO_set_init(bio, 1);
    return 1;
}

static bool make_method(void) {
    socket_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "redpoll");
    return socket_method && BIO_meth_set_write(socket_method, write_socket) &&
           BIO_meth_set_read(socket_method, read_socket) &&
           BIO_meth_set_ctrl(socket_method, control_socket) &&
           BIO_meth_set_create(socket_method, create_socket);
}

/* ---- the key ---- */

static SSL_SESSION *session_of(SSL *ssl) {
    const rpi_tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_of_key);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session && cipher && SSL_SESSION_set1_master_key(session, tls->key, sizeof tls->key) &&
        SSL_SESSION_set_cipher(session, cipher) &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *hash, const unsigned char **out_name,
                   size_t *out_bytes, SSL_SESSION **out_session) {
    *out_session = NULL;
    if (hash && EVP_MD_get_type(hash) != EVP_MD_get_type(EVP_sha256())) return 0;
    *out_name = identity;
    *out_bytes = sizeof identity - 1;
    *out_session = session_of(ssl);
    return *out_session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *name, size_t bytes,
                    SSL_SESSION **out_session) {
    bool known = bytes == sizeof identity - 1 && memcmp(name, identity, bytes) == 0;
    *out_session = known ? session_of(ssl) : NULL;
    return !known || *out_session != NULL;
}

/* ---- opening ---- */

static void make_context(void) {
    /* Threads may still use it while the process ends. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    SSL_CTX *fresh = SSL_CTX_new(TLS_method());
    if (fresh && make_method() && SSL_CTX_set_min_proto_version(fresh, TLS1_3_VERSION) &&
        SSL_CTX_set_max_proto_version(fresh, TLS1_3_VERSION) &&
        SSL_CTX_set_ciphersuites(fresh, cipher_suites) && SSL_CTX_set_num_tickets(fresh, 0)) {
        SSL_CTX_set_session_cache_mode(fresh, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(fresh, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
        SSL_CTX_set_mode(fresh,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_psk_use_session_callback(fresh, use_key);
        SSL_CTX_set_psk_find_session_callback(fresh, find_key);
        context = fresh;
        return;
    }
    SSL_CTX_free(fresh);
}

static const char *reason(char *text, size_t bytes) {
    unsigned long code = ERR_peek_last_error();
    const char *known = code ? ERR_reason_error_string(code) : NULL;
    snprintf(text, bytes, "%s", known ? known : "no reason given");
    ERR_clear_error();
    return text;
}

bool rpi_tls_is_supported(void) {
    return true;
}

const char *rpi_tls_version(void) {
    return OpenSSL_version(OPENSSL_VERSION_STRING);
}

rp_status rpi_tls_check(void) {
    return RP_OK;
}

static rp_status set_up(rpi_tls *tls, bool is_caller) {
    tls->ssl = SSL_new(context);
    BIO *bio = tls->ssl ? BIO_new(socket_method) : NULL;
    if (!bio) return RP_FAIL(NOMEM, "OpenSSL has no memory for a connection");
    BIO_set_data(bio, tls);
    SSL_set_bio(tls->ssl, bio, bio);
    SSL_set_app_data(tls->ssl, tls);
    if (is_caller) {
        SSL_set_verify(tls->ssl, SSL_VERIFY_PEER,
                       NULL); /* no certificate is accepted in place of the key */
        SSL_set_connect_state(tls->ssl);
    } else {
        SSL_set_accept_state(tls->ssl);
    }
    return RP_OK;
}

rp_status rpi_tls_open(int fd, bool is_caller, const unsigned char key[RPI_TLS_KEY_BYTES],
                       rpi_tls **out_tls) {
    char text[120];
    pthread_once(&once, make_context);
    if (!context)
        return RP_FAIL(INTERNAL, "OpenSSL cannot do TLS 1.3 here: %s",
                       reason(text, sizeof text));
    rpi_tls *tls = NULL;
    RP_TRY(rpi_alloc(sizeof *tls, "a TLS connection", &tls));
    tls->fd = fd;
    memcpy(tls->key, key, sizeof tls->key);
    rp_status status = set_up(tls, is_caller);
    if (status != RP_OK) {
        rpi_tls_close(tls);
        return status;
    }
    *out_tls = tls;
    return RP_OK;
}

rp_status rpi_tls_shake_hands(rpi_tls *tls) {
    char text[120];
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1 && SSL_session_reused(tls->ssl)) {
        explicit_bzero(tls->key, sizeof tls->key);
        return RP_OK;
    }
    int error = SSL_get_error(tls->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return RP_PENDING;
    if (tls->ended || error == SSL_ERROR_SYSCALL)
        return RP_FAIL(PEER, "connection closed by peer while TLS was begun");
    return RP_FAIL(MISMATCH, "TLS with the other side failed: %s", reason(text, sizeof text));
}

/* ---- sending and receiving ---- */

/* The errno of a call that OpenSSL has ended. */
static int errno_of(const rpi_tls *tls, int error) {
    switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return EAGAIN;
    case SSL_ERROR_SYSCALL: return tls->error ? tls->error : EPIPE;
    case SSL_ERROR_ZERO_RETURN: return EPIPE;
    default: return EBADMSG;
    }
}

/* As errno and -1; a final failure stays so. */
static ssize_t fail(rpi_tls *tls, int error) {
    if (error != EAGAIN && error != EINTR) tls->broken = error;
    errno = error;
    return -1;
}

/* Each is a record: all except the last may wait in the kernel for the next. */
ssize_t rpi_tls_send(rpi_tls *tls, const void *data, size_t bytes, bool more) {
    const char *next = data;
    size_t done = 0, part = 0, sent = 0;
    if (tls->broken) return fail(tls, tls->broken);
    for (; done < bytes; done += sent) {
        part = bytes - done < RECORD_BYTES ? bytes - done : RECORD_BYTES;
        tls->more = more || done + part < bytes;
        tls->error = 0;
        ERR_clear_error();
        int result = SSL_write_ex(tls->ssl, next + done, part, &sent);
        tls->more = false;
        if (result != 1) {
            int error = errno_of(tls, SSL_get_error(tls->ssl, result));
            if (done > 0 && error == EAGAIN) return (ssize_t)done;
            return fail(tls, error);
        }
        if (++tls->records >= RECORDS_PER_KEY) (void)rpi_tls_renew_keys(tls);
    }
    return (ssize_t)done;
}

ssize_t rpi_tls_receive(rpi_tls *tls, void *data, size_t bytes) {
    size_t got = 0;
    if (tls->broken) return fail(tls, tls->broken);
    tls->error = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls->ssl, data, bytes, &got);
    if (result == 1) return (ssize_t)got;
    int error = SSL_get_error(tls->ssl, result);
    if (error == SSL_ERROR_ZERO_RETURN || (tls->ended && error == SSL_ERROR_SYSCALL)) return 0;
    return fail(tls, errno_of(tls, error));
}

short rpi_tls_awaits(const rpi_tls *tls) {
    return tls->awaits;
}

bool rpi_tls_renew_keys(rpi_tls *tls) {
    bool done = SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
    if (done) tls->records = 0;
    ERR_clear_error();
    return done;
}

void rpi_tls_send_end(rpi_tls *tls) {
    /* A second call would wait for bytes of the other side, and read those that come before
     * them. */
    if (SSL_get_shutdown(tls->ssl) & SSL_SENT_SHUTDOWN) return;
    ERR_clear_error();
    (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

void rpi_tls_close(rpi_tls *tls) {
    if (!tls) return;
    SSL_free(tls->ssl);
    explicit_bzero(tls->key, sizeof tls->key);
    rpi_free(tls);
}
#else
bool rpi_tls_is_supported(void) {
    return false;
}

const char *rpi_tls_version(void) {
    return NULL;
}

rp_status rpi_tls_check(void) {
    return RP_FAIL(UNSUPPORTED,
                   "this build of redpoll has no TLS: install libssl-dev and build "
                   "again, or leave out --tls (REDPOLL_TLS)");
}

rp_status rpi_tls_open(int fd, bool is_caller, const unsigned char key[RPI_TLS_KEY_BYTES],
                       rpi_tls **out_tls) {
    (void)fd, (void)is_caller, (void)key, (void)out_tls;
    return rpi_tls_check();
}

rp_status rpi_tls_shake_hands(rpi_tls *tls) {
    (void)tls;
    return rpi_tls_check();
}

ssize_t rpi_tls_send(rpi_tls *tls, const void *data, size_t bytes, bool more) {
    (void)tls, (void)data, (void)bytes, (void)more;
    return -1;
}

ssize_t rpi_tls_receive(rpi_tls *tls, void *data, size_t bytes) {
    (void)tls, (void)data, (void)bytes;
    return -1;
}

short rpi_tls_awaits(const rpi_tls *tls) {
    (void)tls;
    return POLLIN;
}

bool rpi_tls_renew_keys(rpi_tls *tls) {
    (void)tls;
    return false;
}

void rpi_tls_send_end(rpi_tls *tls) {
    (void)tls;
}

void rpi_tls_close(rpi_tls *tls) {
    (void)tls;
}
#endif
