#include "net/trust/secret.h"

#include "base/option.h"
#include "net/bytes/random_bytes.h"
#include "net/trust/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef RPI_WITH_OPENSSL
#    include <openssl/crypto.h>
#    include <openssl/evp.h>
#    include <openssl/hmac.h>
#endif

#define LABEL "redpoll job secret 1"

#ifdef RPI_WITH_OPENSSL
static rp_status sign(const void *key, size_t key_bytes, const void *text, size_t bytes,
                      unsigned char mac[RPI_MAC_BYTES]) {
    unsigned length = 0;
    if (!HMAC(EVP_sha256(), key, (int)key_bytes, text, bytes, mac, &length) ||
        length != RPI_MAC_BYTES)
        return RP_FAIL(INTERNAL, "OpenSSL cannot make an HMAC-SHA-256");
    return RP_OK;
}

bool rpi_secret_is_supported(void) {
    return true;
}

bool rpi_macs_are_equal(const unsigned char a[RPI_MAC_BYTES],
                        const unsigned char b[RPI_MAC_BYTES]) {
    return CRYPTO_memcmp(a, b, RPI_MAC_BYTES) == 0;
}
#else
static rp_status sign(const void *key, size_t key_bytes, const void *text, size_t bytes,
                      unsigned char mac[RPI_MAC_BYTES]) {
    (void)key, (void)key_bytes, (void)text, (void)bytes, (void)mac;
    return RP_FAIL(UNSUPPORTED,
                   "a secret is set, but this build of redpoll has no OpenSSL: install "
                   "libssl-dev and build again, or set no secret on any rank");
}

bool rpi_secret_is_supported(void) {
    return false;
}

bool rpi_macs_are_equal(const unsigned char a[RPI_MAC_BYTES],
                        const unsigned char b[RPI_MAC_BYTES]) {
    (void)a, (void)b;
    return false;
}
#endif

void rpi_secret_wipe(rpi_secret *secret) {
    explicit_bzero(secret, sizeof *secret);
}

rp_status rpi_secret_sign(const rpi_secret *secret, const void *text, size_t bytes,
                          unsigned char mac[RPI_MAC_BYTES]) {
    return sign(secret->key, sizeof secret->key, text, bytes, mac);
}

rp_status rpi_secret_draw(char text[RPI_SECRET_TEXT_BYTES]) {
    unsigned char random[(RPI_SECRET_TEXT_BYTES - 1) / 2];
    RP_TRY(rpi_random_bytes("a secret", random, sizeof random));
    for (size_t i = 0; i < sizeof random; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
    explicit_bzero(random, sizeof random);
    return RP_OK;
}

rp_status rpi_secret_make(const char *name, const char *text, rpi_secret *out_secret) {
    size_t letters = strlen(text);
    if (letters < RPI_SECRET_LETTERS_MIN || letters > RPI_SECRET_LETTERS_MAX)
        return RP_FAIL(INVALID,
                       "%s has %zu letters; %d to %d are allowed (`openssl rand -hex 32` makes "
                       "a good one)",
                       name, letters, RPI_SECRET_LETTERS_MIN, RPI_SECRET_LETTERS_MAX);
    rpi_secret secret = {.is_set = true};
    RP_TRY(sign(text, letters, LABEL, strlen(LABEL), secret.key));
    *out_secret = secret;
    return RP_OK;
}

/* ---- in a file ---- */

static rp_status check_owner(const char *path, int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0) return RP_FAIL_ERRNO(IO, "cannot look at %s", path);
    if (!S_ISREG(about.st_mode))
        return RP_FAIL(INVALID, "%s (REDPOLL_SECRET_FILE) is no ordinary file", path);
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return RP_FAIL(INVALID, "%s (REDPOLL_SECRET_FILE) belongs to another user", path);
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        return RP_FAIL(INVALID,
                       "others may read or write %s (REDPOLL_SECRET_FILE, mode %03o): "
                       "chmod 600 it, and make a new secret if they have",
                       path, (unsigned)(about.st_mode & 0777));
    return RP_OK;
}

static rp_status read_text(const char *path, int fd, char *text, size_t capacity) {
    size_t bytes = 0;
    ssize_t got = 0;
    do {
        bytes += (size_t)got;
        got = read(fd, text + bytes, capacity - 1 - bytes);
    } while (got > 0 || (got < 0 && errno == EINTR && (got = 0) == 0));
    if (got < 0) return RP_FAIL_ERRNO(IO, "cannot read %s (REDPOLL_SECRET_FILE)", path);
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1])) bytes--;
    text[bytes] = '\0';
    if (strlen(text) < bytes)
        return RP_FAIL(INVALID, "%s (REDPOLL_SECRET_FILE) is no text", path);
    return RP_OK;
}

static rp_status read_file(const char *path, rpi_secret *out_secret) {
    char text[RPI_SECRET_LETTERS_MAX + 16], name[400];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return RP_FAIL_ERRNO(IO, "cannot open %s (REDPOLL_SECRET_FILE)", path);
    snprintf(name, sizeof name, "the secret in %.300s (REDPOLL_SECRET_FILE)", path);
    rp_status status = check_owner(path, fd);
    if (status == RP_OK) status = read_text(path, fd, text, sizeof text);
    close(fd);
    if (status == RP_OK) status = rpi_secret_make(name, text, out_secret);
    explicit_bzero(text, sizeof text);
    return status;
}

rp_status rpi_secret_ask_for_tls(rpi_secret *secret) {
    RP_TRY(rpi_tls_check());
    if (!secret->is_set)
        return RP_FAIL(INVALID,
                       "TLS is asked for (--tls, REDPOLL_TLS), and the job has no secret to "
                       "make its keys from: start it with `redpoll run`, which draws one, or "
                       "set REDPOLL_SECRET_FILE on all ranks (docs/security.md)");
    secret->tls = true;
    return RP_OK;
}

static rp_status find_secret(const rpi_environment *environment, rpi_secret *out_secret) {
    const char *text = environment->get(environment->context, "REDPOLL_SECRET");
    const char *path = environment->get(environment->context, "REDPOLL_SECRET_FILE");
    bool has_text = text && *text, has_path = path && *path;
    *out_secret = (rpi_secret){0};
    if (has_text && has_path)
        return RP_FAIL(INVALID,
                       "REDPOLL_SECRET and REDPOLL_SECRET_FILE are both set; unset one");
    if (has_text) return rpi_secret_make("REDPOLL_SECRET", text, out_secret);
    return has_path ? read_file(path, out_secret) : RP_OK;
}

static rp_status obey(const rpi_environment *environment, rpi_secret *secret) {
    const char *text = environment->get(environment->context, "REDPOLL_TLS");
    bool tls = false;
    if (text && *text && !rpi_parse_switch(text, &tls))
        return RP_FAIL(INVALID, "REDPOLL_TLS is '%s', neither on nor off", text);
    return tls ? rpi_secret_ask_for_tls(secret) : RP_OK;
}

rp_status rpi_secret_find(const rpi_environment *environment, rpi_secret *out_secret) {
    RP_TRY(find_secret(environment, out_secret));
    return obey(environment, out_secret);
}

static const char *get_own(const void *context, const char *name) {
    (void)context;
    return getenv(name);
}

rp_status rpi_secret_obey_environment(rpi_secret *secret) {
    return obey(&(rpi_environment){.get = get_own}, secret);
}

rp_status rpi_secret_find_own(rpi_secret *out_secret) {
    return rpi_secret_find(&(rpi_environment){.get = get_own}, out_secret);
}
