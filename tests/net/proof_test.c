/* Who has the job's secret can prove it, and nobody else: not by recordings, not by what the
 * other side said, not by a proof that was made for something else. */
#include "net/socket/stream.h"
#include "net/trust/channel.h"
#include "net/trust/proof.h"

#include "base/clock.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/store/store_tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const rpi_proof_terms link_terms = {
    .purpose = RPI_PROOF_LINK, .caller = 1, .callee = 0, .world = 2, .session = 77};
static const rpi_proof_terms store_terms = {
    .purpose = RPI_PROOF_STORE, .caller = -1, .callee = -1};

static bool has_no_openssl(void) {
    if (!rpi_secret_is_supported()) check_skip("this build has no OpenSSL");
    return !rpi_secret_is_supported();
}

static rpi_secret secret_of(const char *text) {
    rpi_secret secret = {0};
    CHECK_OK(rpi_secret_make("a test's secret", text, &secret));
    return secret;
}

static rpi_secret ours(void) {
    return secret_of("the secret of this job");
}

static rpi_secret theirs(void) {
    return secret_of("the secret of that job");
}

/* ---- secrets ---- */

typedef struct table {
    const char *text, *path;
} table;

static const char *look_up(const void *context, const char *name) {
    const table *t = context;
    if (strcmp(name, "REDPOLL_SECRET") == 0) return t->text;
    return strcmp(name, "REDPOLL_SECRET_FILE") == 0 ? t->path : NULL;
}

static rp_status find(const char *text, const char *path, rpi_secret *out_secret) {
    table t = {text, path};
    return rpi_secret_find(&(rpi_environment){.get = look_up, .context = &t}, out_secret);
}

static const char *put(const char *name, const char *content, mode_t mode) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    FILE *file = fopen(path, "w");
    if (!file) check_failed(__FILE__, __LINE__, "cannot write %s", path);
    if (file) {
        fputs(content, file);
        fclose(file);
    }
    CHECK(chmod(path, mode) == 0);
    return path;
}

static void a_secret_is_a_text_or_in_a_file(void) {
    rpi_secret text, file, none;
    if (has_no_openssl()) return;
    CHECK_OK(find(NULL, NULL, &none));
    CHECK(!none.is_set);
    CHECK_OK(find("", "", &none));
    CHECK(!none.is_set);
    CHECK_OK(find("0123456789abcdef", NULL, &text));
    CHECK_OK(find(NULL, put("good", "0123456789abcdef\n", 0600), &file));
    CHECK(text.is_set && file.is_set);
    CHECK(rpi_macs_are_equal(text.key, file.key));
    CHECK_OK(find("0123456789abcdeg", NULL, &text));
    CHECK(!rpi_macs_are_equal(text.key, file.key));
}

static void a_bad_secret_is_refused_with_advice(void) {
    rpi_secret secret;
    if (has_no_openssl()) return;
    CHECK_FAILS(find("short", NULL, &secret), INVALID, "REDPOLL_SECRET has 5 letters; 16 to");
    CHECK_FAILS(find("0123456789abcdef", "x", &secret), INVALID, "both set; unset one");
    CHECK_FAILS(find(NULL, "/no/such/file", &secret), IO,
                "/no/such/file (REDPOLL_SECRET_FILE)");
    CHECK_FAILS(find(NULL, "/dev/null", &secret), INVALID, "no ordinary file");
    CHECK_FAILS(find(NULL, put("group", "0123456789abcdef", 0640), &secret), INVALID,
                "mode 640): chmod 600 it");
    CHECK_FAILS(find(NULL, put("other", "0123456789abcdef", 0604), &secret), INVALID,
                "chmod 600 it");
    CHECK_FAILS(find(NULL, put("empty", "\n", 0600), &secret), INVALID, "has 0 letters");
    CHECK(!strstr(rp_last_error()->message, "0123456789abcdef"));
}

/* Only root can give a file away. */
static void a_secret_of_another_user_is_refused(void) {
    rpi_secret secret;
    if (has_no_openssl()) return;
    const char *path = put("foreign", "0123456789abcdef", 0600);
    if (geteuid() != 0 || chown(path, 12345, (gid_t)-1) != 0) {
        check_skip("this user cannot give a file to another one");
        return;
    }
    CHECK_FAILS(find(NULL, path, &secret), INVALID, "belongs to another user");
    CHECK(chown(path, 0, (gid_t)-1) == 0);
    CHECK_OK(find(NULL, path, &secret));
}

/* Add a row: so many letters, in the environment or in a file, and whether they are a secret.
 */
static const struct {
    size_t letters;
    bool good;
} lengths[] = {
    {RPI_SECRET_LETTERS_MIN - 1, false},  {RPI_SECRET_LETTERS_MIN, true},
    {RPI_SECRET_LETTERS_MAX, true},       {RPI_SECRET_LETTERS_MAX + 1, false},
    {RPI_SECRET_LETTERS_MAX + 15, false}, {RPI_SECRET_LETTERS_MAX + 900, false},
};

static void secrets_have_bounds(void) {
    if (has_no_openssl()) return;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char text[RPI_SECRET_LETTERS_MAX + 1000] = "";
        rpi_secret secret = {0}, in_file = {0};
        memset(text, 's', lengths[i].letters);
        rp_status status = find(text, NULL, &secret);
        CHECK_MSG(status == (lengths[i].good ? RP_OK : RP_INVALID), "%zu letters: %s",
                  lengths[i].letters, rp_status_name(status));
        status = find(NULL, put("long", text, 0600), &in_file);
        CHECK_MSG(status == (lengths[i].good ? RP_OK : RP_INVALID), "%zu letters: %s",
                  lengths[i].letters, rp_status_name(status));
        CHECK_EQ(secret.is_set, lengths[i].good);
        CHECK_EQ(in_file.is_set, lengths[i].good);
        if (lengths[i].good) CHECK(rpi_macs_are_equal(secret.key, in_file.key));
    }
    rpi_secret secret;
    CHECK_OK(find(NULL, put("blanks", "0123456789abcdef \t\r\n\n", 0600), &secret));
    const char *path = check_file("zero", "0123456789\0abcdef", 17);
    CHECK(chmod(path, 0600) == 0);
    CHECK_FAILS(find(NULL, path, &secret), INVALID, "is no text");
}

/* docs/wire.md, so that two builds may prove it to each other. */
static void the_key_is_the_documented_one(void) {
    static const unsigned char known[RPI_MAC_BYTES] = {
        0x7e, 0x14, 0x9a, 0xfe, 0x7a, 0x46, 0x23, 0x4a, 0x55, 0xb4, 0x01,
        0x18, 0xe1, 0xcd, 0x8b, 0x7a, 0x39, 0xe9, 0x55, 0xd9, 0x47, 0xd7,
        0x47, 0xed, 0xf1, 0x34, 0x28, 0x78, 0x07, 0x94, 0x6c, 0xb1};
    rpi_secret secret;
    if (has_no_openssl()) return;
    REQUIRE_OK(find("0123456789abcdef", NULL, &secret));
    CHECK(memcmp(secret.key, known, sizeof known) == 0);
}

static void drawn_secrets_differ(void) {
    char a[RPI_SECRET_TEXT_BYTES], b[RPI_SECRET_TEXT_BYTES];
    CHECK_OK(rpi_secret_draw(a));
    CHECK_OK(rpi_secret_draw(b));
    CHECK_EQ(strlen(a), 64);
    CHECK(strcmp(a, b) != 0);
    CHECK_EQ(strspn(a, "0123456789abcdef"), 64);
}

/* ---- proofs ---- */

typedef struct caller {
    int fd;
    rpi_secret secret;
    rpi_proof_terms terms;
    pthread_t thread;
    rp_status status;
    char message[400];
} caller;

static void *call(void *argument) {
    caller *c = argument;
    c->status = rpi_proof_give(c->fd, &c->secret, &c->terms, rpi_deadline_ns(10), NULL);
    snprintf(c->message, sizeof c->message, "%s",
             c->status == RP_OK ? "" : rp_last_error()->message);
    return NULL;
}

static rp_status hear(int fd, const rpi_secret *secret, const rpi_proof_terms *self,
                      rpi_proof *out_proof) {
    int64_t deadline_ns = rpi_deadline_ns(10);
    rpi_proof proof = {0};
    rp_status status;
    while ((status = rpi_proof_receive(&proof, fd, secret, self)) == RP_PENDING &&
           rpi_now_ns() < deadline_ns) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        (void)poll(&wait, 1, 100);
    }
    *out_proof = proof;
    return status;
}

/* One exchange over a socket pair; the answerer's status. */
static rp_status exchange(caller *c, const rpi_secret *secret, const rpi_proof_terms *self,
                          rpi_proof *out_proof) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return RP_INTERNAL;
    c->fd = pair[0];
    pthread_create(&c->thread, NULL, call, c);
    rp_status status = hear(pair[1], secret, self, out_proof);
    close(pair[1]);
    pthread_join(c->thread, NULL);
    close(pair[0]);
    return status;
}

static void who_has_the_secret_proves_it(void) {
    if (has_no_openssl()) return;
    caller c = {.secret = ours(), .terms = link_terms};
    rpi_secret secret = ours();
    rpi_proof proof = {0};
    CHECK_OK(exchange(&c, &secret, &link_terms, &proof));
    CHECK_MSG(c.status == RP_OK, "%s", c.message);
    CHECK_EQ(proof.claim.caller, 1);
    CHECK_EQ(proof.claim.session, 77);
}

static void another_secret_is_named_on_both_sides(void) {
    if (has_no_openssl()) return;
    caller c = {.secret = theirs(), .terms = link_terms};
    rpi_secret secret = ours();
    rpi_proof proof = {0};
    CHECK_FAILS(exchange(&c, &secret, &link_terms, &proof), MISMATCH,
                "has another secret than this job (REDPOLL_SECRET)");
    CHECK_EQ(c.status, RP_MISMATCH);
    CHECK(strstr(c.message, "the other side has another secret: REDPOLL_SECRET"));
}

static void a_proof_is_good_for_one_purpose(void) {
    if (has_no_openssl()) return;
    caller c = {.secret = ours(), .terms = link_terms};
    rpi_secret secret = ours();
    rpi_proof proof = {0};
    CHECK_FAILS(exchange(&c, &secret, &store_terms, &proof), MISMATCH, "for something else");
    CHECK(c.status < 0);
    c.terms.callee = 3; /* the called is rank 0 */
    exchange(&c, &secret, &link_terms, &proof);
    CHECK_EQ(c.status, RP_MISMATCH);
    CHECK(strstr(c.message, "rank 0 answered in the place of rank 3"));
}

static void an_open_job_says_so(void) {
    if (has_no_openssl()) return;
    caller c = {.secret = ours(), .terms = store_terms};
    int pair[2];
    unsigned char bytes[RPI_PROOF_CALL_BYTES];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    c.fd = pair[0];
    pthread_create(&c.thread, NULL, call, &c);
    CHECK_OK(rpi_stream_read(pair[1], bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK(rpi_proof_is_call(bytes));
    rpi_proof_decline(pair[1], RPI_PROOF_STORE);
    pthread_join(c.thread, NULL);
    CHECK_EQ(c.status, RP_MISMATCH);
    CHECK(strstr(c.message, "set it on all ranks of the job, or on none"));
    close(pair[0]), close(pair[1]);
}

/* What a caller sends in a good exchange, with the answer it got. */
typedef struct recording {
    unsigned char call[RPI_PROOF_CALL_BYTES], answer[RPI_PROOF_ANSWER_BYTES];
    unsigned char end[RPI_PROOF_END_BYTES];
} recording;

static rp_status record(const rpi_secret *secret, recording *out) {
    caller c = {.secret = *secret, .terms = link_terms};
    rpi_proof proof = {0};
    rp_status status = exchange(&c, secret, &link_terms, &proof);
    memcpy(out->call, proof.call, sizeof out->call);
    memcpy(out->answer, proof.answer, sizeof out->answer);
    memcpy(out->end, proof.end, sizeof out->end);
    return status;
}

/* Say these bytes to an answerer, at once, and see what it makes of them. */
static rp_status say(const void *first, size_t first_bytes, const void *second,
                     size_t second_bytes) {
    int pair[2];
    rpi_secret secret = ours();
    rpi_proof proof = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) return RP_INTERNAL;
    CHECK_OK(rpi_stream_write(pair[0], first, first_bytes, rpi_deadline_ns(10)));
    if (second) CHECK_OK(rpi_stream_write(pair[0], second, second_bytes, rpi_deadline_ns(10)));
    shutdown(pair[0], SHUT_WR);
    rp_status status = hear(pair[1], &secret, &link_terms, &proof);
    close(pair[0]), close(pair[1]);
    return status;
}

static void a_recording_is_worth_nothing(void) {
    recording old;
    if (has_no_openssl()) return;
    rpi_secret secret = ours();
    REQUIRE_OK(record(&secret, &old));
    CHECK_FAILS(say(old.call, sizeof old.call, old.end, sizeof old.end), MISMATCH,
                "another secret");
    CHECK_FAILS(say(old.call, sizeof old.call, NULL, 0), PEER, "before it had proved");
}

static void a_recorded_answer_is_worth_nothing(void) {
    recording old;
    unsigned char bytes[RPI_PROOF_CALL_BYTES];
    int pair[2];
    if (has_no_openssl()) return;
    rpi_secret secret = ours();
    REQUIRE_OK(record(&secret, &old));
    caller c = {.secret = secret, .terms = link_terms};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    c.fd = pair[0];
    pthread_create(&c.thread, NULL, call, &c);
    CHECK_OK(rpi_stream_read(pair[1], bytes, sizeof bytes, rpi_deadline_ns(10)));
    CHECK_OK(rpi_stream_write(pair[1], old.answer, sizeof old.answer, rpi_deadline_ns(10)));
    pthread_join(c.thread, NULL);
    CHECK_EQ(c.status, RP_MISMATCH);
    close(pair[0]), close(pair[1]);
}

/* The answerer's own proof, sent back as the caller's. */
static void a_reflection_is_worth_nothing(void) {
    recording old;
    unsigned char answer[RPI_PROOF_ANSWER_BYTES], end[RPI_PROOF_END_BYTES];
    int pair[2];
    if (has_no_openssl()) return;
    rpi_secret secret = ours();
    REQUIRE_OK(record(&secret, &old));
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    rpi_proof proof = {0};
    CHECK_OK(rpi_stream_write(pair[0], old.call, sizeof old.call, rpi_deadline_ns(10)));
    CHECK_EQ(rpi_proof_receive(&proof, pair[1], &secret, &link_terms), RP_PENDING);
    CHECK_OK(rpi_stream_read(pair[0], answer, sizeof answer, rpi_deadline_ns(10)));
    memcpy(end, old.end, 8);
    memcpy(end + 8, answer + RPI_PROOF_CALL_BYTES, RPI_MAC_BYTES);
    CHECK_OK(rpi_stream_write(pair[0], end, sizeof end, rpi_deadline_ns(10)));
    CHECK_FAILS(rpi_proof_receive(&proof, pair[1], &secret, &link_terms), MISMATCH,
                "another secret");
    close(pair[0]), close(pair[1]);
}

/* Any bit of a good exchange changed, any length cut: never a proof. */
static void damaged_calls_prove_nothing(void) {
    recording old;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    if (has_no_openssl()) return;
    rpi_secret secret = ours();
    REQUIRE_OK(record(&secret, &old));
    for (int i = 0; i < 300; i++) {
        recording bad = old;
        unsigned char *bytes = (unsigned char *)&bad;
        bytes[rpi_rng_below(&rng, sizeof bad)] ^= (unsigned char)(1U << rpi_rng_below(&rng, 8));
        CHECK(say(bad.call, sizeof bad.call, bad.end, rpi_rng_below(&rng, sizeof bad.end)) < 0);
        for (size_t k = 0; k < sizeof bad; k++) bytes[k] = (unsigned char)rpi_rng_u32(&rng);
        CHECK(say(bytes, 4 + rpi_rng_below(&rng, sizeof bad - 4), NULL, 0) < 0);
    }
}

/* ---- the store ---- */

static void a_store_lets_in_who_has_its_secret(void) {
    rp_store_server *server = NULL;
    rp_store store;
    int port = 0;
    if (has_no_openssl()) return;
    rpi_secret secret = ours(), other = theirs(), none = {0};
    REQUIRE_OK(rpi_store_serve(NULL, 0, &secret, &server, &port));
    CHECK_OK(rpi_store_connect(NULL, port, 10, &secret, &store));
    CHECK_OK(store.ops->set(store.context, "k", "v", 1));
    rp_store_close(&store);
    CHECK_FAILS(rpi_store_connect(NULL, port, 10, &none, &store), MISMATCH,
                "gave no proof of the job's secret: set REDPOLL_SECRET there");
    CHECK_FAILS(rpi_store_connect(NULL, port, 10, &other, &store), MISMATCH,
                "the other side has another secret");
    rp_store_server_stop(server);
    REQUIRE_OK(rpi_store_serve(NULL, 0, &none, &server, &port));
    CHECK_FAILS(rpi_store_connect(NULL, port, 10, &secret, &store), MISMATCH,
                "the other side has no secret");
    CHECK_OK(rpi_store_connect(NULL, port, 10, &none, &store));
    rp_store_close(&store);
    rp_store_server_stop(server);
}

/* Hangs up on the first who comes, as a store does that has too many callers, and then serves.
 */
static void *hang_up_then_serve(void *argument) {
    int *listener = argument, fd = -1, port = 0;
    static rp_store_server *server;
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    rpi_secret none = {0};
    struct pollfd wait = {.fd = *listener, .events = POLLIN};
    CHECK(getsockname(*listener, (struct sockaddr *)&address, &length) == 0);
    CHECK_EQ(poll(&wait, 1, 10000), 1);
    if ((fd = rpi_stream_accept(*listener)) >= 0) close(fd);
    close(*listener);
    CHECK_OK(rpi_store_serve(NULL, ntohs(address.sin_port), &none, &server, &port));
    return server;
}

static void who_was_hung_up_on_calls_again(void) {
    pthread_t thread;
    void *server = NULL;
    rp_store store = {0};
    rpi_secret none = {0};
    int listener = -1, port = 0;
    REQUIRE_OK(rpi_stream_listen(NULL, 0, &listener, &port));
    pthread_create(&thread, NULL, hang_up_then_serve, &listener);
    CHECK_OK(rpi_store_connect(NULL, port, 10, &none, &store));
    pthread_join(thread, &server);
    rp_store_close(&store);
    rp_store_server_stop(server);
}

CASES({"who_was_hung_up_on_calls_again", who_was_hung_up_on_calls_again},
      {"a_secret_is_a_text_or_in_a_file", a_secret_is_a_text_or_in_a_file},
      {"a_secret_of_another_user_is_refused", a_secret_of_another_user_is_refused},
      {"a_bad_secret_is_refused_with_advice", a_bad_secret_is_refused_with_advice},
      {"secrets_have_bounds", secrets_have_bounds},
      {"the_key_is_the_documented_one", the_key_is_the_documented_one},
      {"drawn_secrets_differ", drawn_secrets_differ},
      {"who_has_the_secret_proves_it", who_has_the_secret_proves_it},
      {"another_secret_is_named_on_both_sides", another_secret_is_named_on_both_sides},
      {"a_proof_is_good_for_one_purpose", a_proof_is_good_for_one_purpose},
      {"an_open_job_says_so", an_open_job_says_so},
      {"a_recording_is_worth_nothing", a_recording_is_worth_nothing},
      {"a_recorded_answer_is_worth_nothing", a_recorded_answer_is_worth_nothing},
      {"a_reflection_is_worth_nothing", a_reflection_is_worth_nothing},
      {"damaged_calls_prove_nothing", damaged_calls_prove_nothing},
      {"a_store_lets_in_who_has_its_secret", a_store_lets_in_who_has_its_secret})
