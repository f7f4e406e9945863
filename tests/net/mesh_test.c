/* Ranks that are threads find each other, or all say the same about why not. */
#include "net/world/mesh.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/trust/secret.h"
#include "redpoll/version.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_WORLD = 9 };

typedef struct party {
    rp_store store;
    int rank, world;
    rpi_mesh_options options;
    int rounds;         /* meshes of this name, one after the other */
    double delay_s;     /* it comes so much later */
    const char *hidden; /* end of a key: what the store says of it is not true for this rank */
    const char *lie;    /* the value of that key; NULL: there is none yet */
    rp_status status;
    char message[600];
    int hosts, links, endpoints;
} party;

static void look_at(party *self, rpi_mesh *mesh) {
    int later = -1;
    self->links = self->hosts = self->endpoints = 0;
    for (int peer = 0; peer < mesh->world; peer++) {
        self->hosts += mesh->host_of[peer] + 1;
        if (!mesh->links[peer]) continue;
        self->links++;
        CHECK_EQ(mesh->links[peer]->peer, peer);
    }
    while (mesh->endpoints[self->endpoints]) self->endpoints++;
    CHECK(!mesh->links[mesh->rank]);
    CHECK_EQ(rpi_mesh_connected(mesh, &later), RP_PENDING); /* all links are made */
    CHECK(mesh->session != 0);
    CHECK_EQ(mesh->peers[0].pid, getpid());
    /* Of two containers, processes with one pid are told apart by a random number. */
    CHECK(mesh->peers[0].process != 0 && mesh->peers[0].process != (uint64_t)getpid());
    CHECK(mesh->peers[0].process == mesh->peers[mesh->rank].process);
}

/* ---- a store that is not true to one rank ---- */

static bool is_hidden(const party *self, const char *key) {
    size_t length = strlen(key), end = self->hidden ? strlen(self->hidden) : 0;
    return end && length >= end && strcmp(key + length - end, self->hidden) == 0;
}

static rp_status false_get(void *context, const char *key, double timeout_s, void *value,
                           size_t capacity, size_t *bytes) {
    const party *self = context;
    if (!is_hidden(self, key))
        return self->store.ops->get(self->store.context, key, timeout_s, value, capacity,
                                    bytes);
    if (self->lie) {
        *bytes = strlen(self->lie);
        memcpy(value, self->lie, *bytes < capacity ? *bytes : capacity);
        return RP_OK;
    }
    rpi_sleep_until_ns(rpi_deadline_ns(timeout_s));
    return RP_FAIL(TIMEOUT, "nobody set store key '%s'", key);
}

static rp_status true_set(void *context, const char *key, const void *value, size_t bytes) {
    const party *self = context;
    return self->store.ops->set(self->store.context, key, value, bytes);
}

static rp_status true_add(void *context, const char *key, int64_t amount, int64_t *result) {
    const party *self = context;
    return self->store.ops->add(self->store.context, key, amount, result);
}

static rp_status true_remove(void *context, const char *key) {
    const party *self = context;
    return self->store.ops->remove(self->store.context, key);
}

static const rp_store_ops false_ops = {
    .set = true_set, .get = false_get, .add = true_add, .remove = true_remove};

/* ---- ranks ---- */

static void *come(void *context) {
    party *self = context;
    rp_store store = {.ops = &false_ops, .context = self};
    self->status = RP_OK;
    rpi_sleep_until_ns(rpi_deadline_ns(self->delay_s));
    for (int round = 0; round < self->rounds && self->status == RP_OK; round++) {
        rpi_mesh *mesh = NULL;
        self->status = rpi_mesh_connect(&store, self->rank, self->world, &self->options, &mesh);
        if (self->status != RP_OK) {
            snprintf(self->message, sizeof self->message, "%s", rp_last_error()->message);
            CHECK(!mesh);
            return NULL;
        }
        look_at(self, mesh);
        rpi_mesh_close(mesh);
    }
    return NULL;
}

static party member(int rank, int world) {
    return (party){.rank = rank,
                   .world = world,
                   .rounds = 1,
                   .options = {.prefix = "world", .frame_bytes = 4096, .timeout_s = 20}};
}

static void gather(party *parties, int count) {
    pthread_t threads[MAX_WORLD];
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    for (int i = 0; i < count; i++) {
        parties[i].store = store;
        pthread_create(&threads[i], NULL, come, &parties[i]);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    rp_store_close(&store);
}

static void every_world_meets(void) {
    int before = check_descriptors();
    for (int world = 1; world <= MAX_WORLD; world++) {
        party parties[MAX_WORLD];
        for (int i = 0; i < world; i++) parties[i] = member(i, world);
        gather(parties, world);
        for (int i = 0; i < world; i++) {
            CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].message);
            CHECK_EQ(parties[i].links, world - 1);
            CHECK_EQ(parties[i].hosts, world); /* all on host 0 */
            CHECK_EQ(parties[i].endpoints, world > 1);
        }
    }
    CHECK_EQ(check_descriptors(), before);
}

static void descriptor_0_serves_like_any(void) {
    check_without_stdin(every_world_meets);
}

static void a_name_serves_again(void) {
    party parties[3];
    for (int i = 0; i < 3; i++) {
        parties[i] = member(i, 3);
        parties[i].rounds = 20;
    }
    gather(parties, 3);
    for (int i = 0; i < 3; i++) CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].message);
}

/* What has failed before is another bootstrap: of those who were in it, and of one who was not.
 */
static void a_name_serves_again_behind_a_failure(void) {
    party parties[3];
    rp_store store = {0};
    pthread_t threads[3];
    REQUIRE_OK(rp_store_open_local(&store));
    for (int attempt = 0; attempt < 3; attempt++) {
        int count = attempt < 2 ? 2 : 3; /* rank 2 is missing, twice */
        for (int i = 0; i < count; i++) {
            parties[i] = member(i, 3);
            parties[i].store = store;
            parties[i].options.timeout_s = attempt < 2 ? 0.3 : 20;
            pthread_create(&threads[i], NULL, come, &parties[i]);
        }
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < count; i++)
            CHECK_MSG(attempt < 2 ? parties[i].status == RP_TIMEOUT &&
                                        strstr(parties[i].message, "rank 2 did not arrive")
                                  : parties[i].status == RP_OK,
                      "attempt %d, rank %d: %s", attempt, i, parties[i].message);
    }
    rp_store_close(&store);
}

/* All fail with this status, and all messages hold these words. */
static void all_say(const party *parties, int count, rp_status status, const char *words) {
    for (int i = 0; i < count; i++) {
        CHECK_EQ(parties[i].status, status);
        CHECK_MSG(strstr(parties[i].message, words), "rank %d says '%s'", parties[i].rank,
                  parties[i].message);
    }
}

static void missing_ranks_are_named(void) {
    party parties[2] = {member(0, 4), member(2, 4)};
    parties[0].options.timeout_s = 0.3;
    gather(parties, 2);
    all_say(parties, 2, RP_TIMEOUT, "ranks 1, 3 did not arrive");
    CHECK(strstr(parties[1].message, "rank 0 gave up"));
}

/* One rank of another release, newer, older, or so old that it does not say: named by all, with
 * both. */
static void versions_that_differ_are_named(void) {
    static const char *const theirs[][2] = {
        {"redpoll=99.1.0\nversion=77\n", "rank 1 has redpoll 99.1.0, rank 0 has redpoll "},
        {"version=1\nredpoll=0.0.9\n", "rank 1 has redpoll 0.0.9, rank 0 has redpoll "},
        {"version=1\n", "rank 1 has redpoll 0.2.0 or older, rank 0 has redpoll "}};
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
        party parties[3] = {member(0, 3), member(1, 3), member(2, 3)};
        char words[200];
        parties[0].hidden = "/info/1";
        parties[0].lie = theirs[i][0];
        gather(parties, 3);
        snprintf(words, sizeof words, "%s%s; install", theirs[i][1], rp_version());
        all_say(parties, 3, RP_MISMATCH, words);
    }
}

/* Rank 2 dials rank 1 where nobody listens. The others have done nothing wrong and are named by
 * nobody, whoever gives up first. */
static void a_pair_that_cannot_connect_is_named(void) {
    for (int late = 0; late < 4; late++) {
        party parties[4];
        for (int i = 0; i < 4; i++) {
            parties[i] = member(i, 4);
            parties[i].options.transport = "tcp";
            parties[i].options.timeout_s = 0.7;
        }
        parties[2].hidden = "/addresses/1";
        parties[2].lie = "tcp=tcp:127.0.0.1:1";
        parties[late].delay_s = 0.5;
        gather(parties, 4);
        all_say(parties, 4, RP_TIMEOUT, "ranks 1 and 2 did not connect to each other");
        all_say(parties, 4, RP_TIMEOUT, "nobody answered at 127.0.0.1:1");
        for (int i = 0; i < 4; i++) CHECK(!strstr(parties[i].message, "arrive within"));
    }
}

/* Rank 1 is not ready for the others: of them nobody is accused. */
static void a_rank_that_does_not_go_on_is_named(void) {
    party parties[4];
    for (int i = 0; i < 4; i++) {
        parties[i] = member(i, 4);
        parties[i].options.timeout_s = 0.5;
        parties[i].hidden = i == 1 ? NULL : "/addresses/1";
    }
    gather(parties, 4);
    all_say(parties, 4, RP_TIMEOUT, "rank 1 has arrived");
    for (int i = 0; i < 4; i++) CHECK(!strstr(parties[i].message, "arrive within"));
}

static void a_rank_that_comes_twice(void) {
    party parties[3] = {member(0, 3), member(1, 3), member(1, 3)};
    gather(parties, 3);
    all_say(parties, 3, RP_MISMATCH, "two processes say that they are rank 1");
}

/* Over sockets, where strangers could come. */
static void come_with_secrets(party *parties, int count, const rpi_secret *const *secrets,
                              const char *transport) {
    for (int i = 0; i < count; i++) {
        parties[i] = member(i, count);
        parties[i].options.transport = transport;
        parties[i].options.secret = secrets[i];
    }
    gather(parties, count);
}

static void ranks_with_one_secret_meet(void) {
    static const char *const transports[] = {"inproc", "shm", "tcp"};
    rpi_secret one = {0};
    const rpi_secret *secrets[5] = {&one, &one, &one, &one, &one};
    party parties[5];
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    REQUIRE_OK(rpi_secret_make("the secret", "sixteen letters, or more", &one));
    for (int i = 0; i < 3; i++) {
        come_with_secrets(parties, 5, secrets, transports[i]);
        for (int rank = 0; rank < 5; rank++)
            CHECK_MSG(parties[rank].status == RP_OK, "%s", parties[rank].message);
    }
}

static void secrets_that_differ_are_named(void) {
    rpi_secret one = {0}, other = {0};
    const rpi_secret *differ[3] = {&one, &other, &one}, *lack[3] = {&one, &one, NULL};
    party parties[3];
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    REQUIRE_OK(rpi_secret_make("the secret", "sixteen letters, or more", &one));
    REQUIRE_OK(rpi_secret_make("the secret", "sixteen others, or more", &other));
    come_with_secrets(parties, 3, differ, "tcp");
    all_say(parties, 3, RP_MISMATCH, "has another secret than rank");
    come_with_secrets(parties, 3, lack, "tcp");
    all_say(parties, 3, RP_MISMATCH, "and rank 2 has none: set REDPOLL_SECRET");
}

static void ranks_disagree(void) {
    for (int what = 0; what < 6; what++) {
        static const char *const words[] = {
            "the size of the world", "the transport",
            "the longest frame",     "the shaping of links",
            "the size of the world", "number of streams of a link (REDPOLL_STREAMS)"};
        party parties[4];
        for (int i = 0; i < 4; i++) parties[i] = member(i, 4);
        if (what == 0) parties[2].world = 3;
        if (what == 1) parties[1].options.transport = "inproc";
        if (what == 2) parties[3].options.frame_bytes = 8192;
        if (what == 3) parties[0].options.shape.bytes_per_s = 1e9;
        if (what == 4) parties[3].world = 7;
        if (what == 5) parties[2].options.streams = 4;
        gather(parties, 4);
        all_say(parties, 4, RP_MISMATCH, words[what]);
    }
}

static void unknown_transports(void) {
    party parties[2] = {member(0, 2), member(1, 2)};
    parties[0].options.transport = parties[1].options.transport = "inprok";
    gather(parties, 2);
    all_say(parties, 2, RP_NOT_FOUND, "did you mean 'inproc'");
}

static void shaped_links(void) {
    party parties[3];
    for (int i = 0; i < 3; i++) {
        parties[i] = member(i, 3);
        parties[i].options.shape.bytes_per_s = 1e9;
    }
    gather(parties, 3);
    for (int i = 0; i < 3; i++) CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].message);
    for (int i = 0; i < 3; i++) {
        parties[i] = member(i, 3);
        parties[i].options.transport = "shaped";
    }
    gather(parties, 3);
    all_say(parties, 3, RP_INVALID, "'shaped' wraps another");
}

/* Named hosts are hosts, on one machine, and shaped between each other only. */
static void named_hosts(void) {
    static const char *const names[] = {"big", "small", "big", "small", "big"};
    int before = check_descriptors();
    for (int shaped = 0; shaped < 2; shaped++) {
        party parties[5];
        for (int i = 0; i < 5; i++) {
            parties[i] = member(i, 5);
            parties[i].options.host = names[i];
            if (shaped) parties[i].options.shape.bytes_per_s = 1e9;
        }
        gather(parties, 5);
        for (int i = 0; i < 5; i++) {
            CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].message);
            CHECK_EQ(parties[i].links, 4);
            CHECK_EQ(parties[i].hosts, 3 * 1 + 2 * 2);
            CHECK_EQ(parties[i].endpoints, 1 + shaped);
        }
    }
    CHECK_EQ(check_descriptors(), before);
    party parties[3] = {member(0, 3), member(1, 3), member(2, 3)};
    parties[1].options.host = "big";
    gather(parties, 3);
    all_say(parties, 3, RP_MISMATCH, "names the host it counts as being on");
}

/* A call with a proof waits for its answer, and who waits for a rank of its own host answers
 * nobody from another: the order in which pairs meet keeps them out of a circle. */
static void hosts_that_interleave_meet(void) {
    static const char *const names[] = {"big", "small", "small", "big"};
    rpi_secret one = {0};
    party parties[4];
    if (!rpi_secret_is_supported()) {
        check_skip("this build has no OpenSSL");
        return;
    }
    REQUIRE_OK(rpi_secret_make("the secret", "sixteen letters, or more", &one));
    for (int i = 0; i < 4; i++) {
        parties[i] = member(i, 4);
        parties[i].options.host = names[i];
        parties[i].options.transport = "shm";
        parties[i].options.shape.bytes_per_s = 1e9;
        parties[i].options.secret = &one;
    }
    gather(parties, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_MSG(parties[i].status == RP_OK, "%s", parties[i].message);
        CHECK_EQ(parties[i].endpoints, 2);
    }
}

/* Before anything is connected, and in words that say what to do. Two ranks need 14 more when
 * each has its listener and epoll; there is room for these and for what a look at names opens.
 */
static void too_few_descriptors_are_named(void) {
    struct rlimit before;
    party parties[2] = {member(0, 2), member(1, 2)};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    struct rlimit few = before;
    few.rlim_cur = (rlim_t)check_descriptors() + 14;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    parties[0].options.transport = parties[1].options.transport = "tcp";
    gather(parties, 2);
    (void)setrlimit(RLIMIT_NOFILE, &before);
    all_say(parties, 2, RP_IO, "of 2 needs about 14 more open files");
    all_say(parties, 2, RP_IO, "`ulimit -n 1024`");
}

static void bad_arguments(void) {
    rpi_mesh *mesh = NULL;
    rpi_mesh_options options = {.prefix = "world", .timeout_s = 1};
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_FAILS(rpi_mesh_connect(&store, 3, 3, &options, &mesh), INVALID,
                "rank 3 of a world of 3");
    CHECK_FAILS(rpi_mesh_connect(&store, -1, 3, &options, &mesh), INVALID, "rank -1");
    CHECK_FAILS(rpi_mesh_connect(&store, 0, 0, &options, &mesh), INVALID, "world of 0");
    rp_store_close(&store);
    rpi_mesh_close(NULL);
}

CASES({"hosts_that_interleave_meet", hosts_that_interleave_meet},
      {"every_world_meets", every_world_meets},
      {"descriptor_0_serves_like_any", descriptor_0_serves_like_any},
      {"a_name_serves_again", a_name_serves_again},
      {"missing_ranks_are_named", missing_ranks_are_named},
      {"a_name_serves_again_behind_a_failure", a_name_serves_again_behind_a_failure},
      {"a_pair_that_cannot_connect_is_named", a_pair_that_cannot_connect_is_named},
      {"a_rank_that_does_not_go_on_is_named", a_rank_that_does_not_go_on_is_named},
      {"a_rank_that_comes_twice", a_rank_that_comes_twice},
      {"ranks_with_one_secret_meet", ranks_with_one_secret_meet},
      {"secrets_that_differ_are_named", secrets_that_differ_are_named},
      {"versions_that_differ_are_named", versions_that_differ_are_named},
      {"ranks_disagree", ranks_disagree}, {"unknown_transports", unknown_transports},
      {"shaped_links", shaped_links}, {"named_hosts", named_hosts},
      {"too_few_descriptors_are_named", too_few_descriptors_are_named},
      {"bad_arguments", bad_arguments})
