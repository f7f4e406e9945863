/* Callers that do not have the job's secret: a thousand who say nothing, half a message, noise,
 * lengths without end, what they have recorded. They get nothing, and those who have the secret
 * get in among them. */
#include "link_pair.h"

#include "base/clock.h"
#include "base/rng.h"
#include "harness/check.h"
#include "net/bytes/endian.h"
#include "net/bytes/frame.h"
#include "net/control/control.h"
#include "net/control/control_connection.h"
#include "net/socket/stream.h"
#include "net/store/store_tcp.h"
#include "net/store/store_wire.h"
#include "net/trust/channel.h"
#include "net/trust/proof.h"
#include "redpoll/log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_BYTES = 4096, CALLERS = 1000, DESCRIPTORS = 4096, WORD_BYTES = 200 };
/* More than a refusal in words is nobody's business. */
enum { HEARD_MAX = 600, MEGABYTE = 1024 * 1024 };

#define PRIVATE "what only the ranks of the job may read"

static rpi_secret ours, theirs;

/* ---- what strangers say ---- */

typedef enum stranger_manner {
    SILENT,
    HALF,      /* a call that breaks off */
    CALL,      /* a whole call, and no proof after it */
    GUESS,     /* a proof that is none */
    RECORDING, /* a proof that was good once */
    NOISE,
    LENGTHS,  /* headers that announce all there is */
    NO_PROOF, /* the protocol itself, as in an open job */
    MANNERS
} stranger_manner;

static const char *const manner_names[] = {"silent", "half",  "call",    "guess",
                                           "record", "noise", "lengths", "no proof"};

/* A good exchange of somebody who had the secret, for each purpose. */
typedef struct recording {
    unsigned char call[RPI_PROOF_CALL_BYTES], end[RPI_PROOF_END_BYTES];
} recording;
static recording recordings[RPI_PROOF_CONTROL + 1];

typedef struct callers {
    rpi_proof_purpose purpose;
    stranger_manner manner;
    int port, count;
    int fds[CALLERS];
    pthread_t thread;
} callers;

static size_t announce(rpi_proof_purpose purpose, unsigned char *word) {
    memset(word, 0xff, WORD_BYTES);
    switch (purpose) {
    case RPI_PROOF_STORE:
        rpi_put_u32(word, RPI_STORE_MAGIC);
        word[4] = RPI_STORE_VERSION;
        word[5] = RPI_STORE_SET;
        return WORD_BYTES;
    case RPI_PROOF_CONTROL:
        rpi_put_u32(word, RPI_CONTROL_MAGIC);
        word[4] = RPI_CONTROL_VERSION;
        return WORD_BYTES;
    default: memcpy(word, "RPLL", 4); return WORD_BYTES;
    }
}

/* The first words of the protocol, without a proof. */
static size_t speak(rpi_proof_purpose purpose, unsigned char *word) {
    rpi_store_header get = {.operation = RPI_STORE_GET, .key_bytes = 1};
    rpi_frame_header hello = {
        .kind = RPI_FRAME_HELLO, .sequence = 0x5ec3e7, .part = 1, .count = 2};
    if (purpose == RPI_PROOF_STORE) {
        rpi_store_pack(&get, word);
        word[RPI_STORE_HEADER_BYTES] = 'k';
        return RPI_STORE_HEADER_BYTES + 1;
    }
    if (purpose == RPI_PROOF_CONTROL) return announce(purpose, word);
    hello.bucket = FRAME_BYTES;
    rpi_frame_seal(word, &hello, 0, false);
    return RPI_FRAME_HEADER_BYTES;
}

static size_t word_of(const callers *c, rpi_rng *rng, unsigned char word[WORD_BYTES]) {
    const recording *old = &recordings[c->purpose];
    memcpy(word, old->call, sizeof old->call);
    memcpy(word + sizeof old->call, old->end, sizeof old->end);
    switch (c->manner) {
    case HALF: return 1 + rpi_rng_below(rng, sizeof old->call - 1);
    case CALL: return sizeof old->call;
    case GUESS:
        for (size_t i = 8; i < sizeof old->end; i++)
            word[sizeof old->call + i] = (unsigned char)rpi_rng_u32(rng);
        return sizeof *old;
    case RECORDING: return sizeof *old;
    case NOISE:
        for (size_t i = 0; i < WORD_BYTES; i++) word[i] = (unsigned char)rpi_rng_u32(rng);
        return WORD_BYTES;
    case LENGTHS: return announce(c->purpose, word);
    case NO_PROOF: return speak(c->purpose, word);
    default: return 0;
    }
}

static void *pester(void *argument) {
    callers *c = argument;
    unsigned char word[WORD_BYTES];
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)c->manner);
    for (int i = 0; i < CALLERS; i++) c->fds[i] = -1;
    for (int i = 0; i < c->count; i++) {
        /* The listener of links closes behind the last rank. */
        if (rpi_stream_dial(NULL, c->port, rpi_deadline_ns(0.5), &c->fds[i]) != RP_OK) break;
        size_t bytes = word_of(c, &rng, word);
        if (bytes) (void)rpi_stream_write(c->fds[i], word, bytes, rpi_deadline_ns(2));
    }
    return NULL;
}

static void come(callers *c) {
    pthread_create(&c->thread, NULL, pester, c);
}

static void all_are_there(callers *c) {
    pthread_join(c->thread, NULL);
}

/* They have heard nothing of ours; and go. */
static void leave(callers *c) {
    for (int i = 0; i < c->count; i++) {
        char heard[HEARD_MAX + 1] = "";
        ssize_t got = c->fds[i] < 0 ? 0 : recv(c->fds[i], heard, HEARD_MAX, MSG_DONTWAIT);
        CHECK_MSG(got < HEARD_MAX, "a stranger (%s) heard %zd bytes", manner_names[c->manner],
                  got);
        CHECK(got <= 0 || !memmem(heard, (size_t)got, PRIVATE, strlen(PRIVATE)));
        if (c->fds[i] >= 0) close(c->fds[i]);
    }
}

/* ---- to begin with ---- */

typedef struct exchange {
    int fd;
    rpi_proof_terms terms;
} exchange;

static void *prove(void *argument) {
    exchange *e = argument;
    CHECK_OK(rpi_proof_give(e->fd, &ours, &e->terms, rpi_deadline_ns(10), NULL));
    return NULL;
}

static void record(rpi_proof_purpose purpose) {
    bool store = purpose == RPI_PROOF_STORE;
    exchange e = {.terms = {purpose, store ? -1 : 1, store ? -1 : 0, store ? 0 : 2, 0x5ec3e7}};
    rpi_proof proof = {0};
    pthread_t thread;
    int pair[2];
    rp_status status;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    e.fd = pair[0];
    pthread_create(&thread, NULL, prove, &e);
    while ((status = rpi_proof_receive(&proof, pair[1], &ours, &e.terms)) == RP_PENDING) {
        struct pollfd wait = {.fd = pair[1], .events = POLLIN};
        (void)poll(&wait, 1, 1000);
    }
    CHECK_OK(status);
    pthread_join(thread, NULL);
    memcpy(recordings[purpose].call, proof.call, sizeof proof.call);
    memcpy(recordings[purpose].end, proof.end, sizeof proof.end);
    close(pair[0]), close(pair[1]);
}

static void ignore(void *context, rp_log_level level, const char *connection) {
    (void)context, (void)level, (void)connection;
}

/* False, and said why: this build or machine cannot run the case. */
static bool prepare(void) {
    struct rlimit limit;
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return false;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < DESCRIPTORS) limit.rlim_cur = DESCRIPTORS;
    if (limit.rlim_cur > limit.rlim_max || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        check_skip("this process may not have %d descriptors", DESCRIPTORS);
        return false;
    }
    rp_log_set_sink(ignore, NULL); /* they are many */
    CHECK_OK(rpi_secret_make("ours", "the secret of this job", &ours));
    CHECK_OK(rpi_secret_make("theirs", "the secret of that job", &theirs));
    for (int purpose = RPI_PROOF_STORE; purpose <= RPI_PROOF_CONTROL; purpose++)
        record((rpi_proof_purpose)purpose);
    return true;
}

/* ---- the listeners ---- */

static void enter_store(int port) {
    rp_store store = {0};
    char value[64] = "";
    size_t bytes = 0;
    REQUIRE_OK(rpi_store_connect(NULL, port, 10, &ours, &store));
    CHECK_OK(store.ops->get(store.context, "k", 5, value, sizeof value, &bytes));
    CHECK(strcmp(value, PRIVATE) == 0);
    rp_store_close(&store);
}

static void strangers_at_the_store(void) {
    static callers c;
    rp_store_server *server = NULL;
    rp_store member = {0};
    int before = check_descriptors(), port = 0;
    if (!prepare()) return;
    REQUIRE_OK(rpi_store_serve(NULL, 0, &ours, &server, &port));
    REQUIRE_OK(rpi_store_connect(NULL, port, 10, &ours, &member));
    CHECK_OK(member.ops->set(member.context, "k", PRIVATE, sizeof PRIVATE));
    for (int manner = 0; manner < MANNERS; manner++) {
        c = (callers){RPI_PROOF_STORE, (stranger_manner)manner, port, CALLERS, {0}, 0};
        come(&c);
        enter_store(port); /* among them */
        all_are_there(&c);
        enter_store(port);
        leave(&c);
        for (int i = 0; i < 20; i++) /* and who was in stays in */
            CHECK_OK(member.ops->set(member.context, "k", PRIVATE, sizeof PRIVATE));
    }
    rp_store_close(&member);
    rp_store_server_stop(server);
    CHECK_EQ(check_descriptors(), before);
}

static const rpi_transport *tcp(void) {
    const rpi_transport *transport = NULL;
    CHECK_OK(rpi_transport_find("tcp", &transport));
    return transport;
}

static int port_of(const char *address) {
    return atoi(strrchr(address, ':') + 1);
}

typedef struct waiting {
    rpi_endpoint *endpoint;
    rpi_link *link;
    rp_status status;
} waiting;

static void *wait_for_rank_1(void *argument) {
    waiting *w = argument;
    w->status = tcp()->connect(w->endpoint, 1, "", rpi_deadline_ns(10), &w->link);
    return NULL;
}

/* Of so many connections. */
static void come_to_a_link(int streams, int count) {
    static callers c;
    int before = check_descriptors();
    if (!prepare()) return;
    for (int manner = 0; manner < MANNERS; manner++) {
        link_pair pair;
        char address[256];
        pthread_t thread;
        rpi_link *link = NULL;
        link_pair_options(&pair, tcp(), FRAME_BYTES);
        for (int rank = 0; rank < 2; rank++) {
            pair.options[rank].secret = &ours;
            pair.options[rank].streams = streams;
            REQUIRE_OK(tcp()->open(&pair.options[rank], &pair.endpoints[rank]));
        }
        REQUIRE_OK(tcp()->address(pair.endpoints[0], address, sizeof address));
        waiting w = {.endpoint = pair.endpoints[0]};
        pthread_create(&thread, NULL, wait_for_rank_1, &w);
        c = (callers){RPI_PROOF_LINK, (stranger_manner)manner, port_of(address), count, {0}, 0};
        come(&c);
        CHECK_OK(tcp()->connect(pair.endpoints[1], 0, address, rpi_deadline_ns(10), &link));
        pthread_join(thread, NULL);
        CHECK_MSG(w.status == RP_OK, "among the %s", manner_names[manner]);
        all_are_there(&c);
        leave(&c);
        link_pair_close(&pair);
    }
    CHECK_EQ(check_descriptors(), before);
}

static void strangers_at_a_link(void) {
    come_to_a_link(1, CALLERS);
}

static void strangers_at_a_link_of_streams(void) {
    come_to_a_link(3, CALLERS / 4);
}

/* The same where links are made on need, before and behind the one that belongs there. */
static void come_to_a_link_on_need(int streams, int count) {
    static callers c;
    int before = check_descriptors();
    if (!prepare()) return;
    for (int manner = 0; manner < MANNERS; manner++) {
        link_pair pair;
        char address[256];
        link_pair_options(&pair, tcp(), FRAME_BYTES);
        for (int rank = 0; rank < 2; rank++) {
            pair.options[rank].secret = &ours;
            pair.options[rank].on_need = true;
            pair.options[rank].streams = streams;
            REQUIRE_OK(tcp()->open(&pair.options[rank], &pair.endpoints[rank]));
        }
        REQUIRE_OK(tcp()->address(pair.endpoints[0], address, sizeof address));
        c = (callers){RPI_PROOF_LINK, (stranger_manner)manner, port_of(address), count, {0}, 0};
        come(&c);
        CHECK_OK(tcp()->call(pair.endpoints[1], 0, address));
        for (int rank = 1; rank >= 0; rank--) {
            int64_t deadline_ns = rpi_deadline_ns(20);
            int peer = -1;
            while (tcp()->connected(pair.endpoints[rank], &peer, &pair.links[rank]) ==
                       RP_PENDING &&
                   rpi_now_ns() < deadline_ns)
                link_wait(pair.endpoints[rank]);
            CHECK_MSG(pair.links[rank] != NULL, "among the %s", manner_names[manner]);
        }
        all_are_there(&c);
        if (pair.links[0] && pair.links[1]) {
            CHECK_OK(link_send_wait(pair.links[1], 1, 1000));
            CHECK_OK(link_receive_wait(pair.links[0], 1, 1000));
        }
        leave(&c);
        link_pair_close(&pair);
    }
    CHECK_EQ(check_descriptors(), before);
}

static void strangers_at_a_link_on_need(void) {
    come_to_a_link_on_need(1, CALLERS);
}

static void strangers_at_a_link_of_streams_on_need(void) {
    come_to_a_link_on_need(3, CALLERS / 4);
}

typedef struct party {
    rp_store store;
    int rank;
    double timeout_s;
    const rpi_secret *secret;
    rp_status status;
    char message[400];
} party;

static void *join_control(void *argument) {
    party *p = argument;
    rpi_control *control = NULL;
    rpi_control_options options = {
        .prefix = "world", .session = 0x5ec3e7, .secret = p->secret, .timeout_s = p->timeout_s};
    p->status = rpi_control_open(&p->store, p->rank, 2, &options, &control);
    if (p->status != RP_OK)
        snprintf(p->message, sizeof p->message, "%s", rp_last_error()->message);
    rpi_control_close(control);
    return NULL;
}

static void strangers_at_the_control_connection(void) {
    static callers c;
    int before = check_descriptors();
    if (!prepare()) return;
    for (int manner = 0; manner < MANNERS; manner++) {
        pthread_t threads[2];
        party parties[2] = {{.rank = 0, .timeout_s = 10, .secret = &ours},
                            {.rank = 1, .timeout_s = 10, .secret = &ours}};
        rp_store store = {0};
        char address[64] = "";
        size_t bytes = 0;
        REQUIRE_OK(rp_store_open_local(&store));
        parties[0].store = parties[1].store = store;
        pthread_create(&threads[0], NULL, join_control, &parties[0]);
        CHECK_OK(store.ops->get(store.context, "world/control", 10, address, sizeof address,
                                &bytes));
        c = (callers){
            RPI_PROOF_CONTROL, (stranger_manner)manner, atoi(address), CALLERS / 4, {0}, 0};
        come(&c);
        pthread_create(&threads[1], NULL, join_control, &parties[1]);
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            CHECK_MSG(parties[i].status == RP_OK, "rank %d among the %s: %s", i,
                      manner_names[manner], parties[i].message);
        }
        all_are_there(&c);
        leave(&c);
        rp_store_close(&store);
    }
    CHECK_EQ(check_descriptors(), before);
}

/* A rank 0 that waits for longer than rank 1 calls again, and its caller; begun side by side.
 */
typedef struct held_pair {
    rp_store store;
    party parties[2];
    pthread_t threads[2];
} held_pair;

static void begin(held_pair *it, const rpi_secret *coordinator, const rpi_secret *leaf) {
    const rpi_secret *secrets[] = {coordinator, leaf};
    REQUIRE_OK(rp_store_open_local(&it->store));
    for (int i = 0; i < 2; i++) {
        it->parties[i] = (party){
            .store = it->store, .rank = i, .timeout_s = i ? 10 : 5, .secret = secrets[i]};
        pthread_create(&it->threads[i], NULL, join_control, &it->parties[i]);
    }
}

static void a_leaf_without_the_secret_is_told(void) {
    static const char *const words[] = {"another secret", "rank 0 ended, or refused",
                                        "the other side has no secret"};
    static held_pair pairs[3];
    if (!prepare()) return;
    begin(&pairs[0], &ours, &theirs);
    begin(&pairs[1], &ours, NULL);
    begin(&pairs[2], NULL, &theirs);
    for (int what = 0; what < 3; what++) {
        const party *parties = pairs[what].parties;
        for (int i = 0; i < 2; i++) pthread_join(pairs[what].threads[i], NULL);
        CHECK_EQ(parties[0].status, RP_TIMEOUT);
        CHECK_MSG(strstr(parties[1].message, words[what]), "it says '%s'", parties[1].message);
        rp_store_close(&pairs[what].store);
    }
}

/* ---- what they cost ---- */

static long resident_bytes(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void many_callers_cost_little_memory(void) {
    static callers c;
    rp_store_server *server = NULL;
    int port = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    check_skip("a sanitizer keeps memory that has been given back");
    return;
#endif
    if (!prepare()) return;
    REQUIRE_OK(rpi_store_serve(NULL, 0, &ours, &server, &port));
    long before = resident_bytes();
    for (int manner = 0; manner < MANNERS; manner++) {
        c = (callers){RPI_PROOF_STORE, (stranger_manner)manner, port, CALLERS, {0}, 0};
        come(&c);
        all_are_there(&c);
        CHECK_MSG(resident_bytes() - before < 16 * MEGABYTE, "%ld bytes for the %s",
                  resident_bytes() - before, manner_names[manner]);
        leave(&c);
    }
    rp_store_server_stop(server);
}

/* ---- who has a secret, and not for this purpose ---- */

static void a_secret_is_for_its_job_alone(void) {
    rp_store_server *server = NULL;
    int port = 0, fd = -1;
    rpi_proof_terms link = {RPI_PROOF_LINK, 1, 0, 2, 0x5ec3e7, false};
    rp_store store;
    if (!prepare()) return;
    REQUIRE_OK(rpi_store_serve(NULL, 0, &ours, &server, &port));
    REQUIRE_OK(rpi_stream_dial(NULL, port, rpi_deadline_ns(10), &fd));
    CHECK(rpi_proof_give(fd, &ours, &link, rpi_deadline_ns(10), NULL) < 0);
    close(fd);
    CHECK_FAILS(rpi_store_connect(NULL, port, 10, &theirs, &store), MISMATCH, "another secret");
    rp_store_server_stop(server);
}

/* In a child of another user; 0: it was turned away. */
static int call_as_another_user(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;
    if (setgid(65534) != 0 || setuid(65534) != 0) return 77;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (connect(fd, (struct sockaddr *)&address, length) != 0) return 2;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    (void)poll(&wait, 1, 5000);
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 ? 0 : 1; /* hung up, without a word */
}

static void other_users_do_not_reach_shared_memory(void) {
    const rpi_transport *shm = NULL;
    link_pair pair;
    char address[256];
    int status = 0;
    rpi_link *link = NULL;
    if (geteuid() != 0) {
        check_skip("only root can be another user");
        return;
    }
    rp_log_set_sink(ignore, NULL);
    REQUIRE_OK(rpi_transport_find("shm", &shm));
    link_pair_options(&pair, shm, FRAME_BYTES);
    REQUIRE_OK(shm->open(&pair.options[0], &pair.endpoints[0]));
    REQUIRE_OK(shm->address(pair.endpoints[0], address, sizeof address));
    pid_t child = fork();
    if (child == 0) _exit(call_as_another_user(address + 4));
    CHECK(shm->connect(pair.endpoints[0], 1, "", rpi_deadline_ns(0.7), &link) == RP_TIMEOUT);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d",
              WEXITSTATUS(status));
    link_pair_close(&pair);
}

CASES({"strangers_at_the_store", strangers_at_the_store},
      {"strangers_at_a_link", strangers_at_a_link},
      {"strangers_at_a_link_on_need", strangers_at_a_link_on_need},
      {"strangers_at_a_link_of_streams", strangers_at_a_link_of_streams},
      {"strangers_at_a_link_of_streams_on_need", strangers_at_a_link_of_streams_on_need},
      {"strangers_at_the_control_connection", strangers_at_the_control_connection},
      {"a_leaf_without_the_secret_is_told", a_leaf_without_the_secret_is_told},
      {"many_callers_cost_little_memory", many_callers_cost_little_memory},
      {"a_secret_is_for_its_job_alone", a_secret_is_for_its_job_alone},
      {"other_users_do_not_reach_shared_memory", other_users_do_not_reach_shared_memory})
