#include "base/append.h"
#include "base/status.h"
#include "codec/codec.h"
#include "plan/pipelines/pipeline_kind.h"
#include "plan/plan.h"
#include "redpoll/adaptive.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/data/dataset.h"
#include "train/data/stages.h"
#include "train/huggingface/hf_pictures.h"
#include "train/huggingface/hf_weights.h"
#include "train/strategies/sharded.h"

#include <stdio.h>
#include <string.h>

rpi_optimizer_rates rpi_train_rates(const rpi_train_options *o) {
    return (rpi_optimizer_rates){.learning_rate = (float)o->lr,
                                 .weight_decay = (float)o->weight_decay,
                                 .momentum = (float)o->momentum,
                                 .nesterov = o->nesterov,
                                 .beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .epsilon = o->epsilon,
                                 .threads = o->threads > 1 ? (int)o->threads : 1};
}

static rp_status check_split(const rpi_train_options *o, const rpi_task *task) {
    rpi_label_split split;
    RP_TRY(rpi_split_parse(o->split, &split));
    if (split.kind == RPI_SPLIT_IID || strcmp(task->name, "classification") == 0) return RP_OK;
    return RP_FAIL(INVALID,
                   "--split %s is by labels of images, and --data %s has none: a token's label "
                   "is the next token. Give each rank files of its own instead",
                   o->split, o->data);
}

static rp_status check_smoothing(const rpi_train_options *o, const rpi_task *task) {
    if (!(o->label_smoothing >= 0 && o->label_smoothing < 1))
        return RP_FAIL(INVALID, "--label-smoothing: %g; 0 (none) or more, and below 1",
                       o->label_smoothing);
    if (o->label_smoothing == 0 || task->takes_smoothing) return RP_OK;
    return RP_FAIL(INVALID,
                   "--label-smoothing is for images:, tokens: and pairs:, not for the task %s",
                   task->name);
}

static rp_status check_mixup(const rpi_train_options *o, const rpi_task *task) {
    bool is_some = o->mixup >= 0.01 && o->mixup <= 1;
    if (!is_some && o->mixup != 0)
        return RP_FAIL(INVALID, "--mixup: %g; 0 (none), or 0.01 to 1 (any share is as likely)",
                       o->mixup);
    if (o->mixup == 0 || task->takes_mixing) return RP_OK;
    return RP_FAIL(INVALID, "--mixup blends pictures; --data %s has %s", o->data, task->data);
}

static rp_status check_samples(const rpi_train_options *o, const rpi_task *task) {
    if (o->sample_every < 0 || o->sample_tokens < 0)
        return RP_FAIL(INVALID, "--sample-every and --sample-tokens are at least 0");
    if (!o->sample_every && o->prompt)
        return RP_FAIL(INVALID,
                       "--prompt is what samples begin with: say --sample-every N, too");
    if (!o->sample_every) return RP_OK;
    if (strcmp(task->name, "language-model") != 0)
        return RP_FAIL(INVALID, "--sample-every is for models that write texts (gpt2, llama, "
                                "transformer-xl)");
    if (o->prompt && *o->prompt) return RP_OK;
    return RP_FAIL(INVALID, "--sample-every: which text shall go on? --prompt TEXT");
}

/* Do the data contain what the model learns from? */
static rp_status check_task(const rpi_train_options *o, const rpi_model_choice *choice) {
    const rpi_model *model = choice->model;
    const rpi_task *task = NULL, *wanted = rpi_task_find(rpi_model_task(choice));
    RP_TRY(rpi_source_task(o->data, &task));
    if (!wanted) return RP_FAIL(INTERNAL, "model %s is for no task", model->name);
    if (rpi_stages_are(o->data) && !o->steps)
        return RP_FAIL(INVALID, "--data stages: how long is the last? --steps N");
    if (task == wanted) {
        RP_TRY(check_split(o, task));
        RP_TRY(check_samples(o, task));
        RP_TRY(check_mixup(o, task));
        return check_smoothing(o, task);
    }
    return RP_FAIL(INVALID, "model %s learns from %s, and --data %s has %s; say %s",
                   model->name, wanted->data, o->data, task->data, wanted->advice);
}

static rp_status check_compute(const rpi_backend *backend, rp_dtype compute) {
    rp_status status = rpi_backend_check_compute(backend, compute);
    return status == RP_OK
               ? RP_OK
               : rpi_fail_context(status, "--dtype %s: ", rpi_compute_name(compute));
}

static rp_status check_names(const rpi_train_options *o) {
    rpi_model_choice choice;
    const rpi_strategy *strategy = NULL;
    const rpi_lr_schedule *schedule = NULL;
    const rpi_backend *backend = rpi_backend_default();
    rp_dtype compute = RP_F32;
    const rpi_optimizer *optimizer = NULL;
    rp_adaptive_codec codec;
    RP_TRY(rpi_model_parse(o->model, &choice));
    RP_TRY(check_task(o, &choice));
    RP_TRY(rpi_dataset_check(o->data, &o->pictures));
    RP_TRY(rpi_strategy_find(o->strategy, &strategy));
    RP_TRY(rpi_lr_schedule_find(o->lr_schedule, &schedule));
    RP_TRY(rp_adaptive_codec_parse(o->codec, &codec));
    RP_TRY(rpi_optimizer_find(o->optimizer, &optimizer));
    if (o->backend) RP_TRY(rpi_backend_find(o->backend, &backend));
    if (o->dtype) RP_TRY(rpi_compute_parse(o->dtype, &compute));
    RP_TRY(check_compute(backend, compute));
    rpi_optimizer_rates rates = rpi_train_rates(o);
    return rpi_optimizer_check(optimizer, &rates);
}

static rp_status check_choices(const rpi_train_options *o) {
    if (strcmp(o->decay, "all") != 0 && strcmp(o->decay, "weights") != 0)
        return RP_FAIL(INVALID, "--decay: '%s' is neither all nor weights", o->decay);
    if (o->steps < 0 || o->epochs < 0 || o->eval_images < 0 || o->eval_every < 0 ||
        o->checkpoint_every < 0 || o->checkpoint_time_s < 0 || o->warmup_exact < 0)
        return RP_FAIL(INVALID, "steps, epochs and intervals are at least 0");
    if (o->overwrite && rpi_run_folder_continues(o))
        return RP_FAIL(INVALID,
                       "--resume goes on with the run in %s, --overwrite starts over in it: "
                       "say one of them",
                       o->out);
    if (!(o->clip >= 0))
        return RP_FAIL(INVALID, "--clip: a norm of %g; above 0, or 0 for any", o->clip);
    if (!(o->bucket_mb > 0)) return RP_FAIL(INVALID, "--bucket-mb must be above 0");
    return RP_OK;
}

/* "2 ranks", "2 ranks x 4 micro-batches" */
static const char *runs_text(const rpi_train_options *o, int world, char text[64]) {
    bool is_shared = o->stages > 1 || o->tensor_ranks > 1 || o->context_ranks > 1;
    int used = snprintf(text, 64, "%d %s%s", world, is_shared ? "replica" : "rank",
                        world == 1 ? "" : "s");
    if (o->accumulate > 1)
        snprintf(text + used, 64 - (size_t)used, " x %lld micro-batches",
                 (long long)o->accumulate);
    return text;
}

/* If the size of one run is given, --batch-size is a rank's part of a step. */
static rp_status batch_of_micro_batches(const rpi_train_options *o, int replicas,
                                        int64_t *out_batch) {
    int64_t micro = o->micro_batch_size, global = o->global_batch_size;
    int64_t times = o->accumulate > 1 ? o->accumulate : 0;
    if (!global && o->batch_size) global = o->batch_size * replicas;
    if (!global) global = times ? micro * times * replicas : 64;
    if (global % (micro * replicas) != 0)
        return RP_FAIL(INVALID,
                       "a global batch of %lld is not made of micro-batches of %lld on %d "
                       "replica%s; --global-batch-size %lld is",
                       (long long)global, (long long)micro, replicas, replicas == 1 ? "" : "s",
                       (long long)((global / (micro * replicas) + 1) * micro * replicas));
    if (o->batch_size && o->batch_size * replicas != global)
        return RP_FAIL(INVALID,
                       "--batch-size %lld on %d replica%s makes %lld, but "
                       "--global-batch-size is %lld",
                       (long long)o->batch_size, replicas, replicas == 1 ? "" : "s",
                       (long long)(o->batch_size * replicas), (long long)global);
    if (times && micro * times * replicas != global)
        return RP_FAIL(INVALID,
                       "--micro-batch-size %lld, --accumulate %lld and a global batch of %lld "
                       "on %d replica%s contradict each other; leave one out",
                       (long long)micro, (long long)times, (long long)global, replicas,
                       replicas == 1 ? "" : "s");
    *out_batch = global;
    return RP_OK;
}

int64_t rpi_train_micro_batches(const rpi_train_options *o, int replicas, int64_t batch) {
    if (o->micro_batch_size) return batch / replicas / o->micro_batch_size;
    return o->accumulate ? o->accumulate : 1;
}

rp_status rpi_train_global_batch(const rpi_train_options *o, int world, int64_t *out_batch) {
    char text[64];
    if (o->global_batch_size < 0 || o->batch_size < 0)
        return RP_FAIL(INVALID, "a batch holds at least 1 sample");
    if (o->accumulate < 0) return RP_FAIL(INVALID, "--accumulate is at least 1");
    if (o->micro_batch_size < 0) return RP_FAIL(INVALID, "--micro-batch-size is at least 1");
    if (world < 1) return RP_OK;
    if (o->micro_batch_size) return batch_of_micro_batches(o, world, out_batch);
    int64_t runs = world * (o->accumulate ? o->accumulate : 1);
    int64_t global = o->global_batch_size;
    if (!global) global = o->batch_size ? o->batch_size * runs : 64;
    if (global % runs != 0)
        return RP_FAIL(
            INVALID,
            "a global batch of %lld is not divisible by %s; --global-batch-size %lld is",
            (long long)global, runs_text(o, world, text),
            (long long)((global / runs + 1) * runs));
    if (o->batch_size && o->batch_size * runs != global)
        return RP_FAIL(INVALID,
                       "--batch-size %lld on %s makes %lld, but --global-batch-size is %lld",
                       (long long)o->batch_size, runs_text(o, world, text),
                       (long long)(o->batch_size * runs), (long long)global);
    *out_batch = global;
    return RP_OK;
}

/* Not every algorithm of an all-reduce exists as two halves. */
static rp_status check_halves(const rpi_train_options *o) {
    const char *algorithm = rpi_sharded_algorithm(o->algorithm);
    const rpi_algorithm *found = NULL;
    if (!algorithm || (rpi_algorithm_find(RPI_REDUCE_SCATTER, algorithm, &found) == RP_OK &&
                       rpi_algorithm_find(RPI_ALL_GATHER, algorithm, &found) == RP_OK))
        return RP_OK;
    return RP_FAIL(
        INVALID,
        "--algorithm %s, with --zero %lld: sums go to their owners, and parameters come "
        "back; sra, ring and two-level are made of these",
        o->algorithm, (long long)o->zero);
}

static rp_status check_weights_codec(const rpi_train_options *o) {
    rp_codec codec;
    if (!o->weights_codec) return RP_OK;
    RP_TRY(rpi_codec_parse_dense(o->weights_codec, &codec));
    if (rp_codec_is_exact(&codec, RP_F32)) return RP_OK;
    if (o->zero && rpi_codec_kind_of(&codec)->sparse)
        return RP_FAIL(
            INVALID,
            "--weights-codec %s: ranks would compute with zeros for all other parameters, as "
            "nothing is held back on this way; name a codec that sends each, such as q8",
            o->weights_codec);
    if (o->zero) return RP_OK;
    return RP_FAIL(INVALID,
                   "--weights-codec %s is of parameters that owners send to the other ranks: "
                   "say --zero 1, too, or --weights-codec= to do without",
                   o->weights_codec);
}

/* Owners sum what one backward pass reports in the order of the arena. */
static rp_status check_passing_schedule(const rpi_train_options *o) {
    const rpi_pipeline_kind *kind = NULL;
    char fit[96] = "";
    bool is_open = !o->schedule || strcmp(o->schedule, "auto") == 0;
    if (o->stages < 2 || is_open) return RP_OK;
    RP_TRY(rpi_pipeline_kind_find(o->schedule, &kind));
    if (rpi_pipeline_is_whole(kind)) return RP_OK;
    for (int i = 0; rpi_pipeline_kind_at(i); i++)
        if (rpi_pipeline_is_whole(rpi_pipeline_kind_at(i)))
            rpi_append(fit, sizeof fit, "%s%s", fit[0] ? ", " : "",
                       rpi_pipeline_kind_at(i)->name);
    return RP_FAIL(INVALID,
                   "--zero %lld with --schedule %s: a stage hands on its gradients behind each "
                   "micro-batch, whose backward pass this schedule runs in several; schedules "
                   "that run it in one are %s; --zero 1 goes with any",
                   (long long)o->zero, kind->name, fit);
}

/* Ranks that share gradients, or parameters, too, must run the model together. */
static rp_status check_passing(const rpi_train_options *o, bool chooses_bits) {
    RP_TRY(check_passing_schedule(o));
    if (chooses_bits)
        return RP_FAIL(INVALID,
                       "--zero %lld with --codec %s: bits are chosen by all of a rank's "
                       "gradients, which it has not at any time; name a codec, such as q4",
                       (long long)o->zero, o->codec);
    return RP_OK;
}

static rp_status check_host_shards(const rpi_train_options *o) {
    if (!o->host_shards || o->zero == 3) return RP_OK;
    return RP_FAIL(INVALID,
                   "--host-shards is of parameters that ranks share: say --zero 3, too, "
                   "or --no-host-shards");
}

/* Checks what ranks share of a model's memory by ZeRO. */
static rp_status check_zero(const rpi_train_options *o, const rpi_strategy *strategy,
                            bool chooses_bits) {
    RP_TRY(check_weights_codec(o));
    RP_TRY(check_host_shards(o));
    if (!o->zero) return RP_OK;
    if (o->zero > 3)
        return RP_FAIL(INVALID,
                       "--zero %lld: 0, 1, by which ranks share the optimizer's state, 2, by "
                       "which they share gradients, too, or 3, by which they share all",
                       (long long)o->zero);
    if (!strategy->shares_optimizer)
        return RP_FAIL(INVALID,
                       "--zero %lld is for --strategy all-reduce, whose ranks take the same "
                       "steps; by %s each has an optimizer of its own",
                       (long long)o->zero, strategy->name);
    if (o->zero > 1) RP_TRY(check_passing(o, chooses_bits));
    return check_halves(o);
}

static rp_status check_world(const rpi_train_options *o, int world) {
    const rpi_strategy *strategy = NULL;
    RP_TRY(rpi_strategy_find(o->strategy, &strategy));
    rp_adaptive_codec codec;
    RP_TRY(rp_adaptive_codec_parse(o->codec, &codec));
    const rpi_optimizer *optimizer = NULL;
    RP_TRY(rpi_optimizer_find(o->optimizer, &optimizer));
    rpi_strategy_request request = {
        .options = rpi_strategy_options(o->strategy),
        .world = world,
        .plain_sgd = strcmp(o->optimizer, "sgd") == 0 && o->momentum == 0 &&
                     o->weight_decay == 0 && o->clip == 0,
        .whole_tensors = optimizer->whole_tensors,
        .warmup_exact = o->warmup_exact > 0,
        .chooses_bits = codec.every > 0,
        .lossy = !rp_codec_is_exact(&codec.codec, RP_F32),
        .error_feedback = o->error_feedback,
    };
    RP_TRY(rpi_strategy_check(strategy, &request));
    RP_TRY(check_zero(o, strategy, codec.every > 0));
    int servers = strategy->servers && world ? strategy->servers(request.options) : 0;
    int64_t batch = 0;
    rpi_grid model;
    RP_TRY(rpi_train_grid(o, &model));
    RP_TRY(rpi_train_check_replica(o, strategy, codec.every > 0, world));
    return rpi_train_global_batch(o, (world - servers) / rpi_grid_world(&model), &batch);
}

rp_status rpi_train_check_layout(const rpi_train_options *options, int world) {
    const rpi_strategy *strategy = NULL;
    RP_TRY(rpi_strategy_find("all-reduce", &strategy));
    RP_TRY(check_zero(options, strategy, false));
    return rpi_train_check_replica(options, strategy, false, world);
}

rp_status rpi_train_check(const rpi_train_options *options, int world) {
    RP_TRY(check_names(options));
    RP_TRY(check_choices(options));
    return check_world(options, world);
}

rp_status rpi_train_check_files(const rpi_train_options *options) {
    RP_TRY(rpi_run_folder_check(options));
    RP_TRY(rpi_dataset_probe(options->data,
                             &(rpi_dataset_options){.folder = options->data_dir,
                                                    .sequence = options->seq_length,
                                                    .pictures = options->pictures}));
    if (options->resume) return rpi_checkpoint_check(options);
    if (!options->weights) return RP_OK;
    RP_TRY(rpi_hf_pictures_check(options->weights, options->data));
    return rpi_hf_check(options->weights);
}
