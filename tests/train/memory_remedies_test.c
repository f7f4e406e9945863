/* What does not fit is told what would: the words that cost least, by the account itself. The
 * models here are of terabytes, of which nothing is allocated. Add a row to `rows`. */
#include "base/memory_limit.h"
#include "base/status.h"
#include "harness/check.h"
#include "train/data/token_writer.h"
#include "train/parallel/rank_account.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <stdio.h>
#include <string.h>

/* Blocks of 12 x 65536^2 parameters and more, of which AdamW keeps 16 bytes each. */
#define MODEL  "gpt2:layers=24,hidden=65536,heads=1024,vocabulary=257,positions=16"
#define PARAMS (24.0 * 12 * 65536 * 65536)

static const struct remedy_row {
    int world;
    int64_t zero;
    int stages, tensor;
    double bytes;     /* a parameter and rank that a host has: of 16 when nothing is shared */
    const char *fits; /* NULL: nothing would */
    const char *schedule; /* NULL: the usual one */
} rows[] = {
    {2, 0, 0, 0, 13, "--zero 1", NULL},  {2, 0, 0, 0, 11, "--zero 2", NULL},
    {2, 1, 0, 0, 11, "--zero 2", NULL},  {2, 0, 0, 0, 9.5, "--zero 3", NULL},
    {2, 2, 0, 0, 9.5, "--zero 3", NULL}, {2, 0, 0, 0, 8.2, "--tp 2", NULL},
    {4, 0, 2, 0, 7, "--zero 1", NULL},   {4, 0, 2, 0, 5, "--tp 2", "zb-h1"},
    {4, 0, 0, 2, 4.1, "--tp 4", NULL},   {1, 0, 0, 0, 13, NULL, NULL},
    {2, 0, 0, 0, 5, NULL, NULL},
};
enum { ROWS = sizeof rows / sizeof rows[0], TOKENS = 200 };

static char corpus[600];

static void write_corpus(void) {
    char path[500];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[TOKENS];
    snprintf(path, sizeof path, "%s/corpus", check_folder());
    snprintf(corpus, sizeof corpus, "tokens:%s", path);
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = i % 200;
    CHECK_OK(rpi_token_writer_add(writer, ids, TOKENS));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rpi_train_options options_of(const struct remedy_row *row) {
    rpi_train_options options = ranks_options();
    if (!corpus[0]) write_corpus();
    options.model = MODEL;
    options.data = corpus;
    options.train_images = options.test_images = 0;
    options.seq_length = 16;
    options.optimizer = "adamw";
    options.global_batch_size = 4;
    options.micro_batch_size = 1;
    options.bucket_mb = 4;
    options.zero = row->zero;
    options.stages = row->stages;
    options.tensor_ranks = row->tensor;
    options.schedule = row->schedule;
    options.memory_bytes = row->bytes * PARAMS * row->world;
    return options;
}

static void check_row(const struct remedy_row *row) {
    rpi_train_options options = options_of(row);
    char told[64];
    CHECK(ranks_train(&options, row->world, NULL) == RP_NOMEM);
    snprintf(told, sizeof told, "that are there: %s would fit; more ranks", row->fits);
    for (int rank = 0; rank < row->world; rank++) {
        const char *says = ranks_message(rank);
        bool tells = row->fits ? strstr(says, told) != NULL : strstr(says, "would fit") == NULL;
        CHECK_MSG(tells, "row %d, rank %d: not '%s': %s", (int)(row - rows), rank,
                  row->fits ? told : "", says);
    }
}

static void the_cheapest_is_told(void) {
    for (int i = 0; i < ROWS; i++) check_row(&rows[i]);
}

/* ---- long sequences ---- */

enum { LONG = 16384 };
#define LONG_MODEL "gpt2:layers=1,hidden=64,heads=1,vocabulary=2048,positions=16384"

static void write_long_corpus(char data[600]) {
    char path[500];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    static uint32_t ids[5 * LONG];
    snprintf(path, sizeof path, "%s/long", check_folder());
    snprintf(data, 600, "tokens:%s", path);
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    for (uint32_t i = 0; i < 5 * LONG; i++) ids[i] = i % 200;
    CHECK_OK(rpi_token_writer_add(writer, ids, 5 * LONG));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static void count_one(double *out_need) {
    const rpi_data_shape shape = {.sequence = LONG, .vocabulary = 257};
    rpi_network network = {0};
    rpi_rank_account account;
    const rpi_backend *backend = NULL;
    REQUIRE_OK(rpi_backend_find(ranks_options().backend, &backend));
    REQUIRE_OK(rpi_network_build(LONG_MODEL, &shape, &network));
    const rpi_rank_account_options options = {.network = &network,
                                              .backend = backend,
                                              .compute = RP_F32,
                                              .recompute = true,
                                              .micro_batch = 1,
                                              .micro_batches = 2};
    REQUIRE_OK(rpi_rank_account_make(&options, &account));
    rpi_network_close(&network);
    *out_need = account.all;
}

/* What is one sample long, made again already, and of one head and layer, ranks can share by
 * its tokens alone. */
static void sequences_are_shared(void) {
    char data[600];
    double need = 0;
    rpi_train_options options = ranks_options();
    write_long_corpus(data);
    count_one(&need);
    options.model = LONG_MODEL;
    options.data = data;
    options.train_images = options.test_images = 0;
    options.seq_length = LONG;
    options.global_batch_size = 4;
    options.micro_batch_size = 1;
    options.recompute = true;
    options.memory_bytes = 2 * (0.8 * need + rpi_memory_resident());
    CHECK(ranks_train(&options, 2, NULL) == RP_NOMEM);
    for (int rank = 0; rank < 2; rank++)
        CHECK_MSG(strstr(ranks_message(rank), "that are there: --cp 2 would fit; more ranks"),
                  "%s", ranks_message(rank));
}

CASES({"the cheapest is told", the_cheapest_is_told},
      {"sequences are shared", sequences_are_shared})
