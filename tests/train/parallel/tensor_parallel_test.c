/* Transformers that tensor ranks hold together learn what one rank learns: each rank's losses,
 * right answers and gradients are those of the whole, element by element. */
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/instance.h"
#include "harness/check.h"
#include "train/models/layer_names.h"
#include "train/parallel/tensor_nodes.h"
#include "train/parallel/tensor_sums.h"
#include "train_ranks.h"

#include <math.h>

enum { ROWS = 3, TOKENS = 12, RUNS = 2, SEED = 5, VOCABULARY = 67 };

#define GPT2  "gpt2:layers=2,hidden=24,heads=6,vocabulary=67,positions=16"
#define LLAMA "llama:layers=2,hidden=24,heads=6,intermediate=34,vocabulary=67,head=4"
#define BERT  "bert:layers=2,hidden=24,heads=6,vocabulary=67,positions=16"
#define VIT   "vit:layers=2,hidden=24,heads=6,patch=7"

/* A row a model, with what it is tried with, over each number of ranks in `ranks`: a stranger
 * adds one. 67 tokens, 34 and 50 units inside divide over few of them. */
static const struct model_row {
    const char *text;
    int ranks[4];
    double smoothing;
    bool recompute, repeats;
    const char *backend; /* NULL: the reference */
    const char *transport;
    int sums; /* all-reduces of a run: two a block each way, of tokens and of logits */
    /* With sequence parallelism: all-gathers and reduce-scatters of a run, of tokens; and the
     * length of a sequence, TOKENS where it is 0. */
    int moves, length;
    bool bf16; /* products, and what crosses */
} rows[] = {
    {.text = GPT2, .ranks = {2, 3}, .sums = 10},
    {.text = GPT2,
     .ranks = {2},
     .smoothing = 0.1,
     .recompute = true,
     .transport = "shm",
     .sums = 10},
    {.text = GPT2 ",dropout=0.2,attention-dropout=0.1,intermediate=50",
     .ranks = {2, 3},
     .recompute = true,
     .repeats = true,
     .sums = 12},
    {.text = GPT2, .ranks = {6}, .backend = "cpu", .sums = 10},
    {.text = LLAMA ",kv-heads=2", .ranks = {2, 6}, .sums = 10},
    {.text = "llama:layers=1,hidden=16,heads=8,kv-heads=2,vocabulary=67",
     .ranks = {4, 8},
     .sums = 6},
    {.text = LLAMA ",kv-heads=1,qk-norm=on,attention-bias=on,mlp-bias=on",
     .ranks = {2, 3},
     .recompute = true,
     .repeats = true,
     .sums = 12},
    {.text = LLAMA ",kv-heads=3,tied=on,attention-dropout=0.2,qk-norm=on",
     .ranks = {3, 6},
     .smoothing = 0.2,
     .recompute = true,
     .backend = "cpu",
     .sums = 10},
    {.text = BERT, .ranks = {2, 3}, .sums = 10},
    {.text = BERT ",dropout=0.1,attention-dropout=0.1,pre-ln=on",
     .ranks = {6},
     .recompute = true,
     .repeats = true,
     .sums = 12},
    {.text = BERT ",spans=on", .ranks = {2}, .backend = "cpu", .sums = 9},
    {.text = VIT, .ranks = {2, 3}, .sums = 8},
    {.text = VIT ",dropout=0.2,attention-dropout=0.1,intermediate=50",
     .ranks = {2, 6},
     .recompute = true,
     .repeats = true,
     .backend = "cpu",
     .sums = 10},
    /* Ranks share the tokens between the layers. Of a block two gathers and two scatters
     * forward, and backward the same the other way round and two gathers again. */
    {.text = GPT2, .ranks = {2, 3}, .moves = 25},
    {.text = GPT2, .ranks = {6}, .backend = "cpu", .transport = "shm", .moves = 25},
    {.text = GPT2,
     .ranks = {2, 3},
     .smoothing = 0.1,
     .recompute = true,
     .moves = 25,
     .length = 7},
    {.text = GPT2 ",dropout=0.2,attention-dropout=0.1,intermediate=50",
     .ranks = {2, 3},
     .recompute = true,
     .repeats = true,
     .moves = 27},
    {.text = GPT2 ",dropout=0.2", .ranks = {6}, .backend = "cpu", .moves = 25, .length = 13},
    {.text = LLAMA ",kv-heads=2", .ranks = {2, 6}, .moves = 25},
    {.text = "llama:layers=1,hidden=16,heads=8,kv-heads=2,vocabulary=67",
     .ranks = {4, 8},
     .moves = 15},
    {.text = LLAMA ",kv-heads=1,qk-norm=on,attention-bias=on,mlp-bias=on",
     .ranks = {2, 3},
     .recompute = true,
     .repeats = true,
     .moves = 27,
     .length = 11},
    {.text = LLAMA ",kv-heads=3,tied=on,attention-dropout=0.2,qk-norm=on",
     .ranks = {3},
     .smoothing = 0.2,
     .recompute = true,
     .backend = "cpu",
     .moves = 25},
    {.text = LLAMA, .ranks = {2}, .moves = 25, .length = 1},
    {.text = BERT, .ranks = {2, 3}, .moves = 25},
    {.text = BERT ",dropout=0.1,attention-dropout=0.1,pre-ln=on",
     .ranks = {6},
     .recompute = true,
     .repeats = true,
     .moves = 27},
    {.text = BERT ",spans=on", .ranks = {2, 3}, .backend = "cpu", .moves = 23, .length = 13},
    {.text = VIT, .ranks = {2, 3}, .moves = 20},
    {.text = VIT ",dropout=0.2,attention-dropout=0.1,intermediate=50",
     .ranks = {2, 6},
     .recompute = true,
     .repeats = true,
     .backend = "cpu",
     .moves = 22},
    /* In bf16, with half the bytes. */
    {.text = GPT2, .ranks = {2, 3}, .sums = 10, .bf16 = true},
    {.text = LLAMA ",kv-heads=2", .ranks = {2}, .sums = 10, .bf16 = true},
    {.text = BERT ",dropout=0.1", .ranks = {2}, .recompute = true, .sums = 10, .bf16 = true},
    {.text = VIT, .ranks = {2}, .backend = "cpu", .sums = 8, .bf16 = true},
    {.text = GPT2 ",dropout=0.1", .ranks = {2, 3}, .moves = 25, .bf16 = true},
    {.text = LLAMA ",kv-heads=2", .ranks = {2}, .recompute = true, .moves = 25, .bf16 = true},
    {.text = BERT, .ranks = {3}, .backend = "cpu", .moves = 25, .length = 7, .bf16 = true},
    {.text = VIT, .ranks = {2}, .moves = 20, .bf16 = true},
};
enum { MODELS = sizeof rows / sizeof rows[0] };

static const rpi_data_shape data = {.sequence = TOKENS,
                                    .vocabulary = VOCABULARY,
                                    .channels = 1,
                                    .height = 14,
                                    .width = 14,
                                    .classes = 10};

static int length_of(const struct model_row *row) {
    return row->length ? row->length : TOKENS;
}

static rpi_data_shape data_of(const struct model_row *row) {
    rpi_data_shape shape = data;
    shape.sequence = length_of(row);
    return shape;
}

/* ---- inputs, the same on all ranks ---- */

typedef struct batch {
    void *memory[RPI_TASK_INPUTS];
    const void *inputs[RPI_NETWORK_INPUTS];
    float scale;
} batch;

static bool is_label(const rpi_task *task, int input) {
    return !strcmp(task->inputs[input].name, "labels");
}

/* Documents go up, labels are ignored here and there, tokens are of the whole vocabulary. */
static int32_t draw_integer(const rpi_task *task, int input, rpi_rng *rng, size_t at) {
    const char *name = task->inputs[input].name;
    if (!strcmp(name, "documents")) return (int32_t)(at % TOKENS / 5);
    if (!strcmp(name, "segments") || !strcmp(name, "next"))
        return (int32_t)rpi_rng_below(rng, 2);
    if (!strcmp(name, "tokens")) return (int32_t)rpi_rng_below(rng, VOCABULARY);
    bool words = is_label(task, input) && task->label_input == input;
    if (words && at % 5 == 3) return -100;
    return (int32_t)rpi_rng_below(rng, words ? VOCABULARY : 10);
}

static void open_batch(const rpi_task *task, const struct model_row *row, int number,
                       batch *b) {
    const rpi_data_shape shape = data_of(row);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)number);
    *b = (batch){.scale = 1.0f / (ROWS * RUNS)};
    for (int i = 0; i < task->input_count; i++) {
        size_t bytes = ROWS * rpi_task_input_bytes(&task->inputs[i], &shape);
        REQUIRE_OK(rpi_alloc(bytes, "inputs", &b->memory[i]));
        for (size_t k = 0; k < bytes / 4; k++)
            if (task->inputs[i].dtype == RP_F32)
                ((float *)b->memory[i])[k] = rpi_rng_normal(&rng);
            else
                ((int32_t *)b->memory[i])[k] = draw_integer(task, i, &rng, k);
        b->inputs[i] = b->memory[i];
    }
    b->inputs[task->input_count] = b->inputs[task->input_count + 1] = &b->scale;
}

static void close_batch(batch *b) {
    for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(b->memory[i]);
}

/* ---- a network and what it learns of two micro-batches ---- */

typedef struct learner {
    rpi_network network;
    rpi_weights *weights;
    float losses[RUNS];
    int32_t correct[RUNS];
    rpi_program_facts facts;
} learner;

static rp_status compile(const struct model_row *row, const learner *l, rpi_session *session,
                         rpi_program **out) {
    const rpi_graph *graph = l->network.graph;
    rpi_segment *blocks = NULL;
    rpi_program_options options = {.training = true,
                                   .result_count = 1,
                                   .results = {l->network.correct},
                                   .compute = row->bf16 ? RP_BF16 : RP_F32};
    for (int i = 0, n = 0; i < rpi_graph_dimension_count(graph); i++) {
        const char *name = rpi_graph_dimension_name(graph, i);
        options.dimensions[n++] =
            (rpi_dimension_binding){name, strcmp(name, "batch") ? length_of(row) : ROWS};
    }
    if (row->recompute) RP_TRY(rpi_blocks_of(graph, &blocks, &options.recompute_count));
    options.recompute = blocks;
    rp_status status = rpi_program_compile(session, graph, l->network.loss, &options, out);
    rpi_free(blocks);
    return status;
}

static rp_status run_all(const struct model_row *row, learner *l, rpi_instance *instance) {
    for (int r = 0; r < RUNS; r++) {
        batch b;
        rpi_tensor value;
        open_batch(l->network.task, row, r, &b);
        rp_status status =
            rpi_instance_run(instance, &(rpi_run_options){.inputs = b.inputs,
                                                          .accumulate = r > 0,
                                                          .seed = 11,
                                                          .step = 3,
                                                          .run = (uint64_t)r,
                                                          .first_sample = ROWS * r});
        close_batch(&b);
        RP_TRY(status);
        RP_TRY(rpi_instance_result(instance, l->network.loss, &value));
        l->losses[r] = *(const float *)value.data;
        RP_TRY(rpi_instance_result(instance, l->network.correct, &value));
        l->correct[r] = *(const int32_t *)value.data;
    }
    return RP_OK;
}

static rp_status learn(const struct model_row *row, const rpi_tensor_split *split, learner *l) {
    const rpi_backend *backend = NULL;
    const rpi_backend_options usual = {.threads = 1};
    const rpi_loss_options loss = {.smoothing = row->smoothing};
    const rpi_data_shape shape = data_of(row);
    rpi_session *session = NULL;
    rpi_program *program = NULL;
    rpi_instance *instance = NULL;
    RP_TRY(rpi_backend_find(row->backend ? row->backend : "reference", &backend));
    RP_TRY(rpi_network_build_split(row->text, &shape, &loss, split, &l->network));
    RP_TRY(rpi_weights_create(l->network.graph, l->network.loss, &l->weights));
    rpi_network_initialise(&l->network, l->weights, SEED);
    RP_TRY(rpi_session_create(l->weights, backend, &usual, &session));
    rp_status status = compile(row, l, session, &program);
    if (status == RP_OK) status = rpi_instance_create(program, &instance);
    if (status == RP_OK) l->facts = rpi_program_get_facts(program);
    if (status == RP_OK) status = run_all(row, l, instance);
    rpi_instance_destroy(instance);
    rpi_program_destroy(program);
    rpi_session_destroy(session);
    return status;
}

static void close_learner(learner *l) {
    rpi_weights_destroy(l->weights);
    rpi_network_close(&l->network);
}

/* ---- a rank beside the whole ---- */

typedef struct comparison {
    const struct model_row *row;
    const learner *whole, *part;
    double largest; /* of the whole's gradients */
    const char *name;
    const float *values[2], *gradients[2];
    double own; /* the largest of this tensor's */
    double *covered;
} comparison;

static double largest_of(const float *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Within 1e-5 of the tensor's largest; where terms cancel (biases of keys, of spans) beside an
 * ulp or two of the terms. Of bf16, which has 8 bits, within 2e-2. */
static rp_status compare_run(void *context, const rpi_parameter *parameter,
                             const rpi_shard_run *run) {
    comparison *c = context;
    double bound =
        c->row->bf16 ? 2e-2 * (c->own + c->largest) : 1e-5 * c->own + 3e-7 * c->largest;
    for (int64_t i = 0; i < run->count; i++) {
        CHECK(c->values[1][run->local + i] == c->values[0][run->whole + i]);
        double got = (double)c->gradients[1][run->local + i];
        double wanted = (double)c->gradients[0][run->whole + i];
        CHECK_MSG(fabs(got - wanted) <= bound, "%s: %s[%lld] is %g, of the whole %g",
                  c->row->text, parameter->name, (long long)(run->whole + i), got, wanted);
    }
    *c->covered += (double)run->count / run->holders;
    return RP_OK;
}

static rp_status compare_parameter(comparison *c, int index) {
    const rpi_parameter *parameter = &c->part->network.parameters[index];
    const rpi_weight *whole = rpi_weights_find(c->whole->weights, parameter->name);
    const rpi_weight *part = rpi_weights_find(c->part->weights, parameter->name);
    if (!whole || !part)
        return RP_FAIL(NOT_FOUND, "'%s' is not in both models", parameter->name);
    c->values[0] = rpi_weights_value_at(c->whole->weights, whole->index);
    c->values[1] = rpi_weights_value_at(c->part->weights, part->index);
    c->gradients[0] = rpi_weights_gradient_at(c->whole->weights, whole->index);
    c->gradients[1] = rpi_weights_gradient_at(c->part->weights, part->index);
    c->own = largest_of(c->gradients[0], whole->count);
    CHECK(rpi_shape_equal(&parameter->shape, &whole->shape));
    return rpi_network_runs(&c->part->network, index, compare_run, c);
}

typedef struct trial {
    const struct model_row *row;
    const learner *whole;
    double covered[RANKS_MOST];
    rpi_tensor_traffic traffic[RANKS_MOST];
    rp_comm_stats stats[RANKS_MOST];
} trial;

static rp_status compare(trial *t, int rank, const learner *part) {
    const learner *whole = t->whole;
    comparison c = {.row = t->row, .whole = whole, .part = part, .covered = &t->covered[rank]};
    c.largest =
        largest_of(rpi_weights_gradients(whole->weights), rpi_weights_count(whole->weights));
    for (int r = 0; r < RUNS; r++) {
        CHECK_MSG(fabs((double)part->losses[r] - (double)whole->losses[r]) <=
                      (t->row->bf16 ? 2e-2 : 1e-6) * fmax(1, fabs((double)whole->losses[r])),
                  "%s: loss %.8f, of the whole %.8f", t->row->text, (double)part->losses[r],
                  (double)whole->losses[r]);
        if (!t->row->bf16) CHECK_EQ(part->correct[r], whole->correct[r]);
    }
    for (int i = 0; i < part->network.parameter_count; i++) RP_TRY(compare_parameter(&c, i));
    return RP_OK;
}

/* All gradients' squares, as clipping by the global norm wants them. */
static rp_status compare_norm(const trial *t, rp_comm *comm, const learner *part) {
    const rpi_kernel_run run = {.threads = 1, .isa = rpi_cpu_isa()};
    rpi_square_sum whole = {{0}, 0}, all;
    rpi_kernel_square_sum(&run, rpi_weights_gradients(t->whole->weights),
                          rpi_weights_count(t->whole->weights), &whole);
    RP_TRY(rpi_tensor_square_sum(comm, &part->network, part->weights, &all));
    double wanted = sqrt(rpi_square_sum_value(&whole));
    CHECK_NEAR(sqrt(rpi_square_sum_value(&all)), wanted, (t->row->bf16 ? 2e-2 : 1e-5) * wanted);
    return RP_OK;
}

static rp_status try_rank(void *context, rp_comm *comm) {
    trial *t = context;
    int rank = rp_comm_rank(comm);
    rpi_tensor_nodes *nodes = NULL;
    rpi_tensor_sums *sums = NULL;
    learner part = {0};
    rpi_tensor_nodes_options options = {.repeats_sums = t->row->repeats,
                                        .cuts_tokens = t->row->moves > 0};
    if (t->row->bf16) RP_TRY(rp_codec_parse("bf16", &options.plain));
    RP_TRY(rpi_tensor_nodes_create(comm, &options, &nodes));
    rpi_tensor_split split = rpi_tensor_nodes_split(nodes);
    rp_status status = learn(t->row, &split, &part);
    if (status == RP_OK)
        status = rpi_tensor_sums_create(comm, &part.network, part.weights, &sums);
    if (status == RP_OK) status = rpi_tensor_sums_run(sums);
    if (status == RP_OK) status = compare(t, rank, &part);
    if (status == RP_OK) status = compare_norm(t, comm, &part);
    t->traffic[rank] = rpi_tensor_nodes_traffic(nodes);
    rp_comm_get_stats(rpi_tensor_nodes_comm(nodes), &t->stats[rank]);
    rpi_tensor_sums_destroy(sums);
    close_learner(&part);
    rpi_tensor_nodes_destroy(nodes);
    return status;
}

/* All ranks together hold each element once, times its holders, and have moved as much. */
static void check_together(const trial *t, int ranks) {
    double covered = 0;
    for (int r = 0; r < ranks; r++) {
        covered += t->covered[r];
        CHECK_EQ(t->traffic[r].sums, t->traffic[0].sums);
        CHECK_EQ(t->traffic[r].summed_bytes, t->traffic[0].summed_bytes);
        CHECK_EQ(t->traffic[r].token_bytes, t->traffic[0].token_bytes);
    }
    int64_t moves = t->traffic[0].token_gathers + t->traffic[0].token_scatters;
    CHECK_MSG(t->traffic[0].sums == RUNS * t->row->sums, "%s: %lld sums, %d are wanted",
              t->row->text, (long long)t->traffic[0].sums, RUNS * t->row->sums);
    CHECK_MSG(moves == RUNS * t->row->moves, "%s: %lld moves of tokens, %d are wanted",
              t->row->text, (long long)moves, RUNS * t->row->moves);
    CHECK(t->traffic[0].summed_bytes + t->traffic[0].token_bytes > 0);
    CHECK_NEAR(covered, (double)rpi_weights_count(t->whole->weights), 1e-6 * covered);
}

static void parallel_is_serial(void) {
    static const rpi_tensor_split alone;
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

/* ---- what cannot be, and what would ---- */

static const struct refused_row {
    const char *text;
    int ranks;
    const char *says;
} refused[] = {
    {GPT2, 4, "heads=6 over 4 tensor ranks: they divide over 1, 2, 3, 6"},
    {GPT2, 12, "heads=6 over 12 tensor ranks"},
    {LLAMA ",kv-heads=2", 4, "heads=6 over 4 tensor ranks: they divide over 1, 2, 3, 6"},
    {"llama:layers=1,hidden=48,heads=12,kv-heads=4,vocabulary=67", 6,
     "kv-heads=4 over 6 tensor ranks: they divide over 1, 2, 4, and multiples of 4 share them"},
    {BERT, 5, "heads=6 over 5 tensor ranks"},
    {VIT, 4, "heads=6 over 4 tensor ranks"},
    {"mlp", 2, "mlp is held by one rank as a whole; models that tensor ranks share are"},
    {"transformer-xl:layers=1", 2, "is held by one rank as a whole"},
    {"resnet20", 2, "is held by one rank as a whole"},
    {"gpt2:layers=1,hidden=12,heads=6,vocabulary=67,positions=16,intermediate=4", 6,
     "intermediate=4 over 6 tensor ranks: each has one at least; up to 4 fit"},
    {"gpt2:layers=1,hidden=12,heads=6,vocabulary=67,positions=16,intermediate=3", 6,
     "intermediate=3 over 6 tensor ranks: each has one at least; up to 3 fit"},
    {"llama:layers=1,hidden=12,heads=6,vocabulary=3", 6,
     "vocabulary=3 over 6 tensor ranks: each has one at least"},
    {"bert:layers=1,hidden=12,heads=6,vocabulary=67,positions=16,intermediate=2", 6,
     "intermediate=2 over 6 tensor ranks: each has one at least"},
    {"vit:layers=1,hidden=12,heads=6,intermediate=1", 6,
     "intermediate=1 over 6 tensor ranks: each has one at least"},
};

static void what_does_not_fit(void) {
    static const rpi_loss_options plain;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rpi_network network = {0};
        const rpi_tensor_split split = {.ranks = refused[i].ranks,
                                        .rank = refused[i].ranks - 1};
        CHECK_FAILS(rpi_network_build_split(refused[i].text, &data, &plain, &split, &network),
                    INVALID, refused[i].says);
    }
}

/* ---- memory ---- */

/* Without a communicator a rank's part is compiled and counted: what is cut is halved, what is
 * not stays; and it cannot run. */
static void a_rank_is_counted(void) {
    static const rpi_tensor_split alone;
    const char *text = "gpt2:layers=2,hidden=48,heads=4,vocabulary=96,positions=16";
    const struct model_row row = {.text = text};
    learner whole = {0};
    int64_t counts[4] = {0};
    REQUIRE_OK(learn(&row, &alone, &whole));
    for (int r = 0; r < 4; r++) {
        learner part = {0};
        const rpi_tensor_split split = {.ranks = 4, .rank = r};
        CHECK_FAILS(learn(&row, &split, &part), STATE, "can be counted, not run");
        counts[r] = rpi_weights_count(part.weights);
        CHECK(part.facts.memory_bytes > 0 &&
              part.facts.memory_bytes < whole.facts.memory_bytes);
        CHECK(part.facts.forward_flops < whole.facts.forward_flops / 2);
        close_learner(&part);
    }
    /* Of 2 layers: 12 h^2 + 3 h + 4 h of matrices and their biases, and 96 h of tokens, are
     * cut; 16 h of positions, and 10 h of norms, are not; the first adds 4 h of biases. */
    const int64_t h = 48, cut = 2 * (12 * h * h + 7 * h) + 96 * h, kept = 16 * h + 10 * h;
    for (int r = 0; r < 4; r++) CHECK_EQ(counts[r], cut / 4 + kept + (r == 0 ? 4 * h : 0));
    CHECK_EQ(rpi_weights_count(whole.weights), cut + kept + 4 * h);
    close_learner(&whole);
}

/* ---- what sequence parallelism spares, and what bf16 does ---- */

static size_t in_flight_of(const struct model_row *row, const rpi_tensor_split *split) {
    learner part = {0};
    CHECK_FAILS(learn(row, split, &part), STATE, "can be counted, not run");
    size_t bytes = part.facts.in_flight_bytes;
    close_learner(&part);
    return bytes;
}

/* What a block keeps from forward to backward, by the difference of two: with all tokens
 * between the layers each rank keeps the block's input, both norms' and what they make of it,
 * whole; with a part, a part of each. */
static void tokens_are_shared(void) {
    enum { T = 4, LAYERS = 2 };
    size_t kept[2][LAYERS];
    for (int layers = 1; layers <= LAYERS; layers++) {
        char text[128];
        snprintf(text, sizeof text,
                 "gpt2:layers=%d,hidden=48,heads=4,vocabulary=96,positions=16", layers);
        const struct model_row row = {.text = text};
        for (int tokens = 0; tokens < 2; tokens++) {
            const rpi_tensor_split split = {.ranks = T, .rank = 1, .tokens = tokens};
            kept[tokens][layers - 1] = in_flight_of(&row, &split);
        }
    }
    const double each = ROWS * TOKENS * 48 * sizeof(float);
    double block[2] = {(double)(kept[0][1] - kept[0][0]), (double)(kept[1][1] - kept[1][0])};
    /* Two inputs of norms and what they make, of b s h each. */
    CHECK_MSG(block[0] - block[1] > 0.9 * 4 * each * (T - 1) / T,
              "a block keeps %.0f bytes with all tokens and %.0f with a part; b s h is %.0f",
              block[0], block[1], each);
    CHECK(block[1] > 0);
}

static uint64_t bytes_sent(const char *text, bool tokens, bool bf16) {
    struct model_row row = {.text = text, .bf16 = bf16, .moves = tokens};
    static const rpi_tensor_split alone;
    learner whole = {0};
    CHECK_OK(learn(&row, &alone, &whole));
    trial t = {.row = &row, .whole = &whole};
    CHECK_OK(ranks_run(2, try_rank, &t));
    close_learner(&whole);
    return t.stats[0].wire_bytes_sent;
}

/* In bf16 activations and their gradients travel in 16 bits: half of what fp32 sends, but for
 * heads of frames and what the loss tells. */
static void bf16_halves_what_crosses(void) {
    for (int tokens = 0; tokens < 2; tokens++) {
        const char *text = "gpt2:layers=2,hidden=240,heads=6,vocabulary=67,positions=16";
        double whole = (double)bytes_sent(text, tokens, false);
        double half = (double)bytes_sent(text, tokens, true);
        CHECK_MSG(half < 0.55 * whole && half > 0.45 * whole,
                  "%.0f bytes in bf16, %.0f in fp32", half, whole);
    }
}

CASES({"parallel is serial", parallel_is_serial}, {"tokens are shared", tokens_are_shared},
      {"bf16 halves what crosses", bf16_halves_what_crosses},
      {"what does not fit", what_does_not_fit}, {"a rank is counted", a_rank_is_counted})
