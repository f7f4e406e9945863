/* Ranks that share sequences learn what one rank learns: losses, right answers and gradients
 * add up to those of the whole; each has done as much of it, and holds a part of its
 * activations. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/instance.h"
#include "harness/check.h"
#include "train/models/layer_names.h"
#include "train/models/network.h"
#include "train/parallel/context_batch.h"
#include "train/parallel/context_nodes.h"
#include "train/parallel/rank_account.h"
#include "train_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 3, TOKENS = 24, RUNS = 2, SEED = 5, VOCABULARY = 67, LAYERS = 2 };

#define GPT2  "gpt2:layers=2,hidden=24,heads=6,vocabulary=67,positions=32"
#define BERT  "bert:layers=2,hidden=24,heads=6,vocabulary=67,positions=24"
#define LLAMA "llama:layers=2,hidden=24,heads=6,intermediate=34,vocabulary=67,head=4"

/* A row a model, with what it is tried with, over each number of ranks in `ranks`: a stranger
 * adds one. */
static const struct model_row {
    const char *text;
    int ranks[4];
    double smoothing;
    bool recompute;
    const char *backend; /* NULL: the reference */
    const char *transport;
    int tokens; /* of a sequence; 0: 24 */
} rows[] = {
    {GPT2, {2, 3, 4, 6}, 0, false, NULL, NULL, 0},
    {GPT2 ",dropout=0.2,attention-dropout=0.1", {2, 4}, 0.1, false, NULL, "shm", 0},
    {GPT2 ",dropout=0.2,attention-dropout=0.1", {2, 3}, 0, true, "cpu", NULL, 0},
    {LLAMA ",kv-heads=2", {2, 4}, 0, false, NULL, NULL, 0},
    {LLAMA ",kv-heads=1,qk-norm=on,attention-bias=on,mlp-bias=on", {3}, 0, true, NULL, NULL, 0},
    {LLAMA ",kv-heads=3,tied=on,attention-dropout=0.2", {2, 6}, 0, false, "cpu", NULL, 0},
    {LLAMA ",window=7,rope-factor=2", {2}, 0, false, "cpu", NULL, 0},
    {LLAMA ",kv-heads=2", {2, 4}, 0, false, "cpu", NULL, 17},
    {GPT2 ",positions=22,dropout=0.2,attention-dropout=0.1", {2, 3}, 0, true, NULL, NULL, 22},
    {BERT, {2, 3, 4}, 0, false, NULL, NULL, 0},
    {BERT ",dropout=0.2,attention-dropout=0.1", {2, 4}, 0, true, "cpu", "shm", 0},
    {BERT ",positions=21,pre-ln=on,dropout=0.1,attention-dropout=0.1",
     {2, 4},
     0,
     false,
     NULL,
     NULL,
     21},
    {BERT ",spans=on", {2, 4}, 0, false, "cpu", NULL, 0},
    {BERT ",spans=on,positions=23,dropout=0.1", {3}, 0, true, NULL, NULL, 23},
};
enum { MODELS = sizeof rows / sizeof rows[0] };

static rpi_data_shape data_of(const struct model_row *row) {
    return (rpi_data_shape){.sequence = row->tokens ? row->tokens : TOKENS,
                            .vocabulary = VOCABULARY};
}

/* ---- a network and what it learns of two micro-batches ---- */

typedef struct learner {
    rpi_network network;
    rpi_weights *weights;
    double losses[RUNS];
    int32_t correct[RUNS]; /* of labels, and of samples where these are counted, too */
    rpi_program_facts facts;
} learner;

/* Each input of a batch, of four bytes an element. */
typedef struct filled {
    int32_t inputs[RPI_TASK_INPUTS][2 * SAMPLES * TOKENS];
} filled;

/* Tokens of text that sample `s` has, behind which is padding. */
static int text_of(const rpi_data_shape *shape, int s) {
    return shape->sequence - 3 * s;
}

static int32_t draw(const rpi_task *task, int input, const rpi_data_shape *shape, int at,
                    int number, rpi_rng *rng) {
    const char *name = task->inputs[input].name;
    int sample = at / shape->sequence, token = at % shape->sequence;
    bool is_padding = token >= text_of(shape, sample);
    if (!strcmp(name, "segments") || !strcmp(name, "next")) return rpi_rng_below(rng, 2) != 0;
    if (!strcmp(name, "documents")) return is_padding;
    if (!strcmp(name, "ends")) return (int32_t)rpi_rng_below(rng, TOKENS / 2);
    if (strcmp(name, "labels") != 0) return (int32_t)rpi_rng_below(rng, VOCABULARY);
    if (task->sample_metric && (is_padding || token % 3 == 1)) return -100;
    if (token % 5 == 3 || sample == number) return -100;
    return (int32_t)rpi_rng_below(rng, VOCABULARY);
}

/* The same on all ranks; labels are ignored here and there, and one sample has none. */
static void fill(const rpi_task *task, const rpi_data_shape *shape, int number, filled *out) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)number);
    int count = SAMPLES * shape->sequence;
    for (int input = 0; input < task->input_count; input++) {
        float *numbers = (float *)out->inputs[input];
        if (task->inputs[input].dtype == RP_F32)
            for (int i = 0; i < 2 * count; i++)
                numbers[i] = i % shape->sequence < text_of(shape, i / shape->sequence / 2)
                                 ? 0
                                 : RPI_TASK_FAR_BELOW;
        else
            for (int i = 0; i < count; i++)
                out->inputs[input][i] = draw(task, input, shape, i, number, &rng);
    }
}

static rp_status compile(const struct model_row *row, const learner *l, rpi_session *session,
                         rpi_program **out) {
    const rpi_graph *graph = l->network.graph;
    rpi_segment *blocks = NULL;
    rpi_program_options options = {
        .training = true,
        .result_count = 1,
        .results = {l->network.correct},
        .dimensions = {{"batch", SAMPLES}, {"sequence", l->network.shape.sequence}}};
    if (row->recompute) RP_TRY(rpi_blocks_of(graph, &blocks, &options.recompute_count));
    options.recompute = blocks;
    if (l->network.task->sample_metric)
        options.results[options.result_count++] = l->network.sample_correct;
    rp_status status = rpi_program_compile(session, graph, l->network.loss, &options, out);
    rpi_free(blocks);
    return status;
}

static rp_status read_correct(rpi_instance *instance, rpi_value_id which, int32_t *sum) {
    rpi_tensor value;
    RP_TRY(rpi_instance_result(instance, which, &value));
    *sum += *(const int32_t *)value.data;
    return RP_OK;
}

/* What is said of samples is the first rank's to say. */
static rp_status run_one(const struct model_row *row, learner *l, rpi_instance *instance,
                         const rpi_token_pieces *pieces, rpi_context_batch *memory,
                         int number) {
    filled all;
    const rpi_task *task = l->network.task;
    const rpi_data_shape shape = data_of(row);
    const float scale = 1.0f / (RUNS * SAMPLES * TOKENS), none = 0;
    bool is_first = pieces->at[0] == 0;
    bool has_labels = is_first || rpi_task_input_is_cut(&task->inputs[task->label_input]);
    rpi_source_batch batch = {.count = SAMPLES};
    rpi_tensor value;
    fill(task, &shape, number, &all);
    for (int i = 0; i < task->input_count; i++) batch.inputs[i] = all.inputs[i];
    RP_TRY(rpi_context_batch_cut(memory, task, &shape, pieces, &batch));
    const void *inputs[RPI_NETWORK_INPUTS] = {NULL};
    memcpy(inputs, batch.inputs, sizeof batch.inputs);
    inputs[task->input_count] = has_labels ? &scale : &none;
    inputs[task->input_count + 1] = is_first ? &scale : &none;
    RP_TRY(rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs,
                                                         .accumulate = number > 0,
                                                         .seed = 11,
                                                         .step = 3,
                                                         .run = (uint64_t)number,
                                                         .first_sample = SAMPLES * number}));
    RP_TRY(rpi_instance_result(instance, l->network.loss, &value));
    l->losses[number] = (double)*(const float *)value.data;
    if (has_labels) RP_TRY(read_correct(instance, l->network.correct, &l->correct[number]));
    if (task->sample_metric && is_first)
        RP_TRY(read_correct(instance, l->network.sample_correct, &l->correct[number]));
    return RP_OK;
}

static rp_status run_all(const struct model_row *row, learner *l, rpi_instance *instance,
                         const rpi_token_pieces *pieces) {
    rpi_context_batch memory = {0};
    rp_status status = RP_OK;
    for (int r = 0; r < RUNS && status == RP_OK; r++)
        status = run_one(row, l, instance, pieces, &memory, r);
    rpi_context_batch_close(&memory);
    return status;
}

static rp_status learn(const struct model_row *row, const rpi_context_split *context,
                       learner *l) {
    const rpi_backend *backend = NULL;
    const rpi_backend_options usual = {.threads = 1};
    const rpi_loss_options loss = {.smoothing = row->smoothing};
    const rpi_tensor_split split = {.context = *context};
    const rpi_data_shape data = data_of(row);
    const rpi_token_pieces pieces = rpi_context_pieces(context, data.sequence);
    rpi_session *session = NULL;
    rpi_program *program = NULL;
    rpi_instance *instance = NULL;
    RP_TRY(rpi_backend_find(row->backend ? row->backend : "reference", &backend));
    RP_TRY(rpi_network_build_split(row->text, &data, &loss, &split, &l->network));
    RP_TRY(rpi_weights_create(l->network.graph, l->network.loss, &l->weights));
    rpi_network_initialise(&l->network, l->weights, SEED);
    RP_TRY(rpi_session_create(l->weights, backend, &usual, &session));
    rp_status status = compile(row, l, session, &program);
    if (status == RP_OK) status = rpi_instance_create(program, &instance);
    if (status == RP_OK) l->facts = rpi_program_get_facts(program);
    if (status == RP_OK) status = run_all(row, l, instance, &pieces);
    rpi_instance_destroy(instance);
    rpi_program_destroy(program);
    rpi_session_destroy(session);
    return status;
}

static void close_learner(learner *l) {
    rpi_weights_destroy(l->weights);
    rpi_network_close(&l->network);
}

/* ---- ranks beside the whole ---- */

typedef struct trial {
    const struct model_row *row;
    const learner *whole;
    rpi_context_traffic traffic[RANKS_MOST];
    int64_t flops[RANKS_MOST];
} trial;

static double largest_of(const float *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Within 1e-5 of the tensor's largest; where terms cancel (biases of keys) beside an ulp or two
 * of the terms. */
static void compare_gradients(const trial *t, const learner *part, const float *sums) {
    const float *whole = rpi_weights_gradients(t->whole->weights);
    double all = largest_of(whole, rpi_weights_count(t->whole->weights));
    for (int i = 0; i < rpi_weights_parameter_count(part->weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(part->weights, i);
        double bound = 1e-5 * largest_of(whole + w->first, w->count) + 3e-7 * all;
        for (int64_t e = w->first; e < w->first + w->count; e++)
            CHECK_MSG(fabs((double)sums[e] - (double)whole[e]) <= bound,
                      "%s: %s[%lld] is %g, of the whole %g", t->row->text, w->name,
                      (long long)(e - w->first), (double)sums[e], (double)whole[e]);
    }
}

static rp_status compare(const trial *t, rp_comm *comm, learner *part) {
    int64_t count = rpi_weights_count(part->weights);
    double numbers[2 * RUNS];
    CHECK_EQ(count, rpi_weights_count(t->whole->weights));
    for (int r = 0; r < RUNS; r++) {
        numbers[r] = part->losses[r];
        numbers[RUNS + r] = part->correct[r];
    }
    rp_segment sums = {.data = numbers, .count = 2 * RUNS, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(comm, &sums, 1, NULL));
    for (int r = 0; r < RUNS; r++) {
        CHECK_NEAR(numbers[r], t->whole->losses[r], 1e-6 * fmax(1, t->whole->losses[r]));
        CHECK_NEAR(numbers[RUNS + r], t->whole->correct[r], 0);
    }
    rp_segment gradients = {
        .data = rpi_weights_gradients(part->weights), .count = (size_t)count, .dtype = RP_F32};
    RP_TRY(rp_all_reduce(comm, &gradients, 1, NULL));
    compare_gradients(t, part, rpi_weights_gradients(part->weights));
    return RP_OK;
}

static rp_status try_rank(void *context, rp_comm *comm) {
    trial *t = context;
    int rank = rp_comm_rank(comm);
    rpi_context_nodes *nodes = NULL;
    learner part = {0};
    RP_TRY(rpi_context_nodes_create(comm, NULL, &nodes));
    rpi_context_split split = rpi_context_nodes_split(nodes);
    rp_status status = learn(t->row, &split, &part);
    if (status == RP_OK) status = compare(t, comm, &part);
    t->traffic[rank] = rpi_context_nodes_traffic(nodes);
    t->flops[rank] = part.facts.forward_flops + part.facts.backward_flops;
    close_learner(&part);
    rpi_context_nodes_destroy(nodes);
    return status;
}

/* Tokens that fill up see fewer keys than others where these look back alone, and by a window
 * the first tokens do. */
static bool is_even(const struct model_row *row, int ranks) {
    bool is_full = data_of(row).sequence % (2 * ranks) == 0;
    return !strstr(row->text, "window") && (is_full || strstr(row->text, "bert"));
}

/* A layer gathers forward and once more backward, and scatters once; work is even. Where spans
 * begin and end is gathered once. */
static void check_together(const trial *t, int ranks) {
    int spans = strstr(t->row->text, "spans") != NULL;
    for (int r = 0; r < ranks; r++) {
        CHECK_EQ(t->traffic[r].gathers, (2 * LAYERS + spans) * RUNS);
        CHECK_EQ(t->traffic[r].scatters, (LAYERS + spans) * RUNS);
        if (!spans) CHECK_EQ(t->traffic[r].gathered_bytes, 2 * t->traffic[r].scattered_bytes);
        if (is_even(t->row, ranks)) CHECK_EQ(t->flops[r], t->flops[0]);
    }
}

static void parallel_is_serial(void) {
    static const rpi_context_split alone;
    for (int m = 0; m < MODELS; m++) {
        learner whole = {0};
        REQUIRE_OK(learn(&rows[m], &alone, &whole));
        ranks_over(rows[m].transport);
        for (int i = 0; i < 4 && rows[m].ranks[i]; i++) {
            trial t = {.row = &rows[m], .whole = &whole};
            rp_status status = ranks_run(rows[m].ranks[i], try_rank, &t);
            CHECK_MSG(status == RP_OK, "%s over %d ranks: %s", rows[m].text, rows[m].ranks[i],
                      rp_last_error()->message);
            if (status == RP_OK) check_together(&t, rows[m].ranks[i]);
        }
        ranks_over(NULL);
        close_learner(&whole);
    }
}

/* ---- a batch ---- */

/* Of 2 sequences of 8 tokens what rank 1 of 2 has, pieces 1 and 2, and its labels. */
static void a_batch_is_cut(void) {
    const rpi_task *task = rpi_task_find("language-model");
    const rpi_data_shape shape = {.sequence = 8, .vocabulary = VOCABULARY};
    const rpi_token_pieces pieces = {.count = 4, .at = {1, 2}};
    int32_t tokens[16], labels[16];
    rpi_context_batch memory = {0};
    rpi_source_batch batch = {.inputs = {tokens, labels},
                              .count = 2,
                              .global_count = 6,
                              .labels = 16,
                              .global_labels = 48};
    for (int i = 0; i < 16; i++) {
        tokens[i] = i;
        labels[i] = i == 4 || i == 7 ? -100 : 100 + i;
    }
    REQUIRE_OK(rpi_context_batch_cut(&memory, task, &shape, &pieces, &batch));
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(((const int32_t *)batch.inputs[0])[i], i / 4 * 8 + 2 + i % 4);
        CHECK_EQ(((const int32_t *)batch.inputs[1])[i],
                 i == 2 ? -100 : 102 + i / 4 * 8 + i % 4);
    }
    CHECK_EQ(batch.count, 2);
    CHECK_EQ(batch.labels, 7);
    CHECK_EQ(batch.global_count, 6);
    CHECK_EQ(batch.global_labels, 48);
    rpi_context_batch_close(&memory);
}

/* Of a sequence of 9 tokens what rank 0 of 2 has, pieces 0 and 3 of three tokens, of which the
 * last has none; and what it has as a whole. */
static void a_batch_is_filled_up(void) {
    const rpi_task *task = rpi_task_find("spans");
    const rpi_data_shape shape = {.sequence = 9, .vocabulary = VOCABULARY};
    const rpi_context_split first = {.ranks = 2, .rank = 0}, second = {.ranks = 2, .rank = 1};
    filled all;
    rpi_context_batch memory = {0};
    const rpi_source_batch dealt = {
        .inputs = {all.inputs[0], all.inputs[1], all.inputs[2], all.inputs[3], all.inputs[4]},
        .count = SAMPLES,
        .labels = 2 * SAMPLES};
    rpi_source_batch batch = dealt;
    rpi_token_pieces pieces = rpi_context_pieces(&first, 9);
    fill(task, &shape, 0, &all);
    CHECK_EQ(rpi_context_own(&first, 9), 6);
    CHECK_EQ(rpi_context_tokens(&first, 9), 3);
    CHECK_EQ(rpi_context_tokens(&second, 9), 6);
    REQUIRE_OK(rpi_context_batch_cut(&memory, task, &shape, &pieces, &batch));
    for (int i = 0; i < SAMPLES * 6; i++)
        CHECK_EQ(((const int32_t *)batch.inputs[0])[i],
                 i % 6 < 3 ? all.inputs[0][i / 6 * 9 + i % 6] : 0);
    for (int i = 0; i < SAMPLES * 12; i++)
        CHECK_EQ(((const int32_t *)batch.inputs[2])[i],
                 i % 12 < 9 ? all.inputs[2][i / 12 * 9 + i % 12] : -1);
    for (int i = 0; i < 2 * SAMPLES * 12; i++)
        CHECK_NEAR(((const float *)batch.inputs[3])[i],
                   i % 12 < 9 ? ((const float *)all.inputs[3])[i / 12 * 9 + i % 12]
                              : RPI_TASK_FAR_BELOW,
                   0);
    CHECK(batch.inputs[4] == all.inputs[4]);
    CHECK_EQ(batch.labels, 2 * SAMPLES);
    batch = dealt;
    pieces = rpi_context_pieces(&second, 9);
    REQUIRE_OK(rpi_context_batch_cut(&memory, task, &shape, &pieces, &batch));
    CHECK_EQ(batch.labels, 0);
    rpi_context_batch_close(&memory);
}

/* ---- what cannot be, and what would ---- */

static const struct refused_row {
    const char *text;
    int ranks, rank, tokens;
    const char *says;
} refused[] = {
    {GPT2, 4, 0, 6,
     "sequences of 6 tokens over 4 context ranks, two pieces each: 8 tokens would fit, or --cp "
     "3"},
    {BERT, 8, 0, 3, "two pieces each: 16 tokens would fit"},
    {LLAMA, 2, 2, 16, "context rank 2 of 2"},
    {"vit", 2, 0, 16,
     "vit has its samples on one rank as wholes; models whose sequences context ranks share "
     "are"},
    {"vit", 2, 0, 16, "bert"},
    {"vit", 2, 0, 16, "; --tp N with --sequence-parallel shares its tokens, of any number"},
    {"transformer-xl:layers=1", 2, 0, 16, "has its samples on one rank as wholes"},
    {GPT2, 2, 0, 64, "sequences of 64 tokens, and the model has 32 positions"},
};

static void what_does_not_fit(void) {
    static const rpi_loss_options plain;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rpi_network network = {0};
        const rpi_data_shape shape = {.sequence = refused[i].tokens, .vocabulary = VOCABULARY};
        const rpi_tensor_split split = {
            .context = {.ranks = refused[i].ranks, .rank = refused[i].rank}};
        CHECK_FAILS(rpi_network_build_split(refused[i].text, &shape, &plain, &split, &network),
                    INVALID, refused[i].says);
    }
}

/* ---- memory ---- */

/* Without a communicator a rank's part is counted: what it holds of a long sequence falls with
 * the number of ranks, but for the keys and values of one layer, which travel; and it cannot
 * run. */
static void a_rank_is_counted(void) {
    static const rpi_loss_options plain;
    const char *text = "llama:layers=6,hidden=64,heads=8,kv-heads=2,vocabulary=96,"
                       "positions=1024";
    const rpi_data_shape shape = {.sequence = 1024, .vocabulary = 96};
    enum { KEYS = 16, BATCH = 2 };
    double held[4] = {0};
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        rpi_network network = {0};
        rpi_rank_account account;
        const rpi_tensor_split split = {.context = {.ranks = ranks, .rank = 0}};
        REQUIRE_OK(rpi_network_build_split(text, &shape, &plain, &split, &network));
        const rpi_rank_account_options options = {
            .network = &network, .compute = RP_F32, .micro_batch = BATCH, .micro_batches = 1};
        REQUIRE_OK(rpi_rank_account_make(&options, &account));
        held[ranks - 1] = account.bytes[RPI_HELD_ACTIVATIONS];
        CHECK_NEAR(account.bytes[RPI_HELD_MESSAGES],
                   ranks > 1 ? 2.0 * BATCH * 1024 * KEYS * sizeof(float) : 0, 0.5);
        rpi_network_close(&network);
    }
    /* Gathered keys and values, and their gradients, of one layer. */
    double gathered = 4.0 * BATCH * 1024 * KEYS * sizeof(float);
    CHECK_MSG(held[1] < held[0] / 2 + gathered, "%g of %g bytes", held[1], held[0]);
    CHECK_MSG(held[3] < held[0] / 4 + gathered, "%g of %g bytes", held[3], held[0]);
    learner part = {0};
    CHECK_FAILS(learn(&rows[0], &(rpi_context_split){.ranks = 2, .rank = 1}, &part), STATE,
                "can be counted, not run");
    close_learner(&part);
}

CASES({"parallel is serial", parallel_is_serial}, {"a batch is cut", a_batch_is_cut},
      {"a batch is filled up", a_batch_is_filled_up}, {"what does not fit", what_does_not_fit},
      {"a rank is counted", a_rank_is_counted})
