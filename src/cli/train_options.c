/* The options of `redpoll train`. */
#include "cli/train_settings.h"

#include "base/status.h"
#include "cli/option_rows.h"
#include "cli/run.h"
#include "codec/codec.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/batch_ring.h"
#include "train/data/label_split.h"
#include "train/parallel/stage_choice.h"

#include <stddef.h>
#include <string.h>

static rp_status check_split(const char *text) {
    rpi_label_split split;
    return rpi_split_parse(text, &split);
}

static rp_status check_weights_codec(const char *text) {
    rp_codec codec;
    return rpi_codec_parse_dense(text, &codec);
}

#define FIELD(name) offsetof(rpi_train_settings, train.name)
#define LR          "optimizer.learning_rate_scheduler."
const rpi_option rpi_train_table[] = {
    {"config", NULL, NULL, RPI_OPTION_TEXT, offsetof(rpi_train_settings, config), NULL, 0, 0,
     "FILE", "YAML with the keys below; the command line wins", NULL},
    {"model", NULL, "model.name", RPI_OPTION_TEXT, FIELD(model), "resnet18", 0, 0, "MODEL",
     "mlp, resnet20, resnet18, 34, 50, 101 or 152, vgg16, vgg16-bn, vit, vit-b16, gpt2, "
     "llama, bert or transformer-xl; with options as mlp:hidden=512x256 (redpoll info lists "
     "them); or "
     "hf:FOLDER, a Hugging Face checkpoint to go on from",
     NULL},
    {"data", NULL, "data.dataset", RPI_OPTION_TEXT, FIELD(data), "fashion-mnist", 0, 0, "NAME",
     "cifar10:FOLDER, cifar100:FOLDER, fashion-mnist, idx, synthetic, images:FOLDER, "
     "tokens:PATH or masked:PATH (for bert), each of the last three with [,validation=PATH or "
     "5%], stages:tokens:PATH;STEP=tokens:PATH, pairs:FILE.jsonl,tokenizer=NAME, or "
     "spans:FILE.json,tokenizer=NAME (for bert)",
     NULL},
    {"augment", NULL, "data.augment", RPI_OPTION_TEXT, FIELD(pictures.augment), NULL, 0, 0,
     "NAME",
     "of images: none, flip (half of them mirrored), or standard: that, and a random box of "
     "pictures, a random shift of small images; none when absent",
     NULL},
    {"image-size", NULL, "data.image_size", RPI_OPTION_COUNT, FIELD(pictures.size), NULL, 1,
     RPI_PICTURE_SIZE_MOST, "N", "of images: pixels a side that a model sees; 224 when absent",
     NULL},
    {"skip-broken", NULL, "data.skip_broken", RPI_OPTION_FLAG, FIELD(pictures.skip_broken),
     NULL, 0, 0, NULL,
     "of images, and of rows of questions and pairs: go on without those that cannot be read",
     NULL},
    {"data-threads", NULL, "data.num_loading_workers", RPI_OPTION_COUNT,
     FIELD(pictures.threads), NULL, 1, RPI_BATCH_THREADS_MOST, "N",
     "of images: threads of each rank that decode ahead; 2 when absent, 1 with one core", NULL},
    {"split", NULL, "data.split", RPI_OPTION_TEXT, FIELD(split), "iid", 0, 0,
     "iid|by-label|dirichlet=A",
     "of images: which rank sees which: all of them all; one label after the other; or shares "
     "of "
     "the labels drawn from Dir(A), few labels a rank where A is small",
     check_split},
    {"seq-length", NULL, "tokens.sequence_length", RPI_OPTION_COUNT, FIELD(seq_length), NULL, 1,
     1 << 20, "N", "tokens that a language model sees at once; 256 when absent", NULL},
    {"data-dir", NULL, "data.folder", RPI_OPTION_TEXT, FIELD(data_dir), NULL, 0, 0, "FOLDER",
     "where the data's files are", NULL},
    {"train-images", NULL, "data.train_images", RPI_OPTION_COUNT, FIELD(train_images), NULL, 1,
     1e9, "N", "of synthetic data; 2048 when absent", NULL},
    {"test-images", NULL, "data.test_images", RPI_OPTION_COUNT, FIELD(test_images), NULL, 1,
     1e9, "N", "of synthetic data; 512 when absent", NULL},
    {"steps", NULL, "tokens.train_steps", RPI_OPTION_COUNT, FIELD(steps), NULL, 1, 1e12, "N",
     "steps of the whole run; beats --epochs", NULL},
    {"epochs", NULL, "tokens.train_epochs", RPI_OPTION_COUNT, FIELD(epochs), NULL, 1, 1e9, "N",
     "passes over the data; 1 when neither is given", NULL},
    {"global-batch-size", NULL, "tokens.global_batch_size", RPI_OPTION_COUNT,
     FIELD(global_batch_size), NULL, 1, 1e9, "N",
     "samples of a step, of all ranks; 64 when absent", NULL},
    {"batch-size", NULL, "tokens.micro_batch_size", RPI_OPTION_COUNT, FIELD(batch_size), NULL,
     1, 1e9, "N", "samples that a rank runs at once: a step, or with --accumulate a part of it",
     NULL},
    {"accumulate", NULL, "tokens.batch_accumulation_per_replica", RPI_OPTION_COUNT,
     FIELD(accumulate), "1", 1, 1e6, "N",
     "micro-batches of each rank in a step: memory of one, gradients of all", NULL},
    {"micro-batch-size", NULL, "tokens.samples_of_a_run", RPI_OPTION_COUNT,
     FIELD(micro_batch_size), NULL, 1, 1e9, "N",
     "samples in one run of the model: a rank's part of a step, --batch-size, is then made of "
     "such runs",
     NULL},
    {"tp", NULL, "parallelism.tp", RPI_OPTION_COUNT, FIELD(tensor_ranks), NULL, 1,
     RPI_TENSOR_RANKS, "N",
     "ranks that share each layer of one model, heads and the wide middle; 1 when absent",
     NULL},
    {"sequence-parallel", NULL, "parallelism.sequence_parallel", RPI_OPTION_FLAG,
     FIELD(sequence_parallel), NULL, 0, 0, NULL,
     "with --tp, those ranks share the tokens between the layers, too (norms, dropout, sums): "
     "less memory, about as many bytes, the same training; nanotron's tp_mode REDUCE_SCATTER",
     NULL},
    {"cp", NULL, "parallelism.context_parallel_size", RPI_OPTION_COUNT, FIELD(context_ranks),
     NULL, 1, RPI_CONTEXT_RANKS, "N",
     "ranks that share each sequence of one model, two pieces of its tokens each; 1 when "
     "absent",
     NULL},
    {"dp", NULL, "parallelism.replicas", RPI_OPTION_COUNT, FIELD(replicas), NULL, 1, 1 << 20,
     "N",
     "replicas that there must be, each of --tp x --cp x --pp ranks; as many as -n makes when "
     "absent",
     NULL},
    {"pp", NULL, "parallelism.pp", RPI_OPTION_COUNT, FIELD(stages), NULL, 1,
     RPI_PIPELINE_STAGES, "N",
     "ranks that hold one model together, each some of its blocks: a pipeline through which "
     "micro-batches go; 1 when absent",
     NULL},
    {"schedule", NULL, "parallelism.pp_engine", RPI_OPTION_TEXT, FIELD(schedule), "1f1b", 0, 0,
     "NAME",
     "of a pipeline's passes: afab, 1f1b, eager-1f1b, interleaved, zb-h1, zb-h2 or zb-v "
     "(redpoll plan pipeline shows them); auto: the quickest by what layers and links are "
     "measured to take",
     rpi_stage_schedule_check},
    {"stage-cut", NULL, "parallelism.stage_cut", RPI_OPTION_TEXT, FIELD(stage_cut), NULL, 0, 0,
     "HOW",
     "where a pipeline's model is cut: counted (few operations on the stage with most), "
     "measured (little time), or the layers that stages begin with, as h.3,h.6; measured with "
     "--schedule auto, else counted",
     NULL},
    {"memory-check", NULL, "general.memory_check", RPI_OPTION_FLAG, FIELD(memory_check), "true",
     0, 0, NULL,
     "--no-memory-check: start what does not fit into the memory of its host by redpoll's "
     "count",
     NULL},
    {"recompute", NULL, "parallelism.recompute_layer", RPI_OPTION_FLAG, FIELD(recompute), NULL,
     0, 0, NULL,
     "keep no activations inside blocks, but compute them again for the gradients: less "
     "memory, "
     "up to a third more time, the same bits",
     NULL},
    {"seed", NULL, "general.seed", RPI_OPTION_COUNT, FIELD(seed), "1", 0, 1e15, "N",
     "of parameters, order of the data, stochastic rounding", NULL},

    {"optimizer", NULL, "optimizer.optimizer_factory.name", RPI_OPTION_TEXT, FIELD(optimizer),
     "sgd", 0, 0, "NAME", "sgd, adamw or lamb", NULL},
    {"lr", NULL, LR "learning_rate", RPI_OPTION_REAL, FIELD(lr), "0.05", 0, 1e30, "RATE",
     "learning rate, at its highest; adamw and lamb: 0.001 when absent", NULL},
    {"momentum", NULL, "optimizer.optimizer_factory.momentum", RPI_OPTION_REAL, FIELD(momentum),
     "0.9", 0, 1, "SHARE", "sgd: of the gradient's running sum", NULL},
    {"nesterov", NULL, "optimizer.optimizer_factory.nesterov", RPI_OPTION_FLAG, FIELD(nesterov),
     NULL, 0, 0, NULL, "sgd: Nesterov's momentum", NULL},
    {"beta1", NULL, "optimizer.optimizer_factory.adam_beta1", RPI_OPTION_REAL, FIELD(beta1),
     "0.9", 0, 1, "SHARE", "adamw, lamb: of the gradient's running mean", NULL},
    {"beta2", NULL, "optimizer.optimizer_factory.adam_beta2", RPI_OPTION_REAL, FIELD(beta2),
     "0.999", 0, 1, "SHARE", "adamw, lamb: of its square's running mean", NULL},
    {"epsilon", NULL, "optimizer.optimizer_factory.adam_eps", RPI_OPTION_REAL, FIELD(epsilon),
     "1e-8", 0, 1e30, "NUMBER", "adamw, lamb: added to the root of that mean", NULL},
    {"weight-decay", NULL, "optimizer.weight_decay", RPI_OPTION_REAL, FIELD(weight_decay),
     "5e-4", 0, 1e30, "RATE",
     "sgd, lamb: this times the parameter joins the gradient, or the step's direction; adamw: "
     "it shrinks by this",
     NULL},
    {"decay", NULL, "optimizer.decay", RPI_OPTION_TEXT, FIELD(decay), "all", 0, 0, "WHICH",
     "all parameters, or weights: no biases, scales and shifts", NULL},
    {"clip", NULL, "optimizer.clip_grad", RPI_OPTION_REAL, FIELD(clip), NULL, 0, 1e30, "NORM",
     "the most that the norm of all gradients together may be; 0 or absent: anything", NULL},
    {"mixup", NULL, "data.mixup", RPI_OPTION_REAL, FIELD(mixup), NULL, 0, 1, "ALPHA",
     "images, and their labels, are blended in pairs in training, by a share of Beta(ALPHA, "
     "ALPHA); evaluations are without; 0, none, when absent",
     NULL},
    {"label-smoothing", NULL, "optimizer.label_smoothing", RPI_OPTION_REAL,
     FIELD(label_smoothing), NULL, 0, 1, "SHARE",
     "of a label's probability that all classes, or tokens, share in training; evaluations are "
     "without; 0 when absent",
     NULL},
    {"lr-schedule", NULL, LR "lr_decay_style", RPI_OPTION_TEXT, FIELD(lr_schedule), "constant",
     0, 0, "NAME", "constant, warmup, step, cosine, linear, 1-sqrt, wsd or inverse-sqrt", NULL},
    {"lr-warmup-steps", NULL, LR "lr_warmup_steps", RPI_OPTION_COUNT, FIELD(lr_warmup_steps),
     NULL, 0, 1e12, "N", "linear warm-up before any schedule", NULL},
    {"lr-min", NULL, LR "min_decay_lr", RPI_OPTION_REAL, FIELD(lr_min), "0", 0, 1e30, "RATE",
     "where cosine, linear, 1-sqrt and wsd end", NULL},
    {"lr-decay-start", NULL, LR "lr_decay_starting_step", RPI_OPTION_COUNT,
     FIELD(lr_decay_start), NULL, 0, 1e12, "STEP",
     "the peak is held until then; after the warm-up when absent, wsd: at the end", NULL},
    {"lr-decay-steps", NULL, LR "lr_decay_steps", RPI_OPTION_COUNT, FIELD(lr_decay_steps), NULL,
     0, 1e12, "N", "steps down to --lr-min; to the end of the run when absent", NULL},
    {"lr-drop-every", NULL, LR "lr_drop_every", RPI_OPTION_COUNT, FIELD(lr_drop_every), NULL, 0,
     1e12, "N", "steps between two drops of the schedule step", NULL},
    {"lr-gamma", NULL, LR "lr_gamma", RPI_OPTION_REAL, FIELD(lr_gamma), "0.1", 0, 1, "FACTOR",
     "of each drop", NULL},

    {"strategy", NULL, "parallelism.strategy", RPI_OPTION_TEXT, FIELD(strategy), "all-reduce",
     0, 0, "NAME",
     "all-reduce; gossip:topology=base,algorithm=atc, local-sgd:outer=diloco,every=100 or "
     "parameter-server:servers=2,staleness=4 (below; docs/decentralised.md); single for one "
     "rank",
     NULL},
    {"on-loss", NULL, "parallelism.on_loss", RPI_OPTION_TEXT,
     offsetof(rpi_train_settings, on_loss), NULL, 0, 0, "stop|continue",
     "when a rank dies: the strategy's option of this name, of gossip, local-sgd, "
     "parameter-server and async-local-sgd; stop when absent",
     NULL},
    {"restart", NULL, "parallelism.restart", RPI_OPTION_COUNT,
     offsetof(rpi_train_settings, restarts), "0", 0, RPI_LAUNCH_MOST_RESTARTS, "N",
     "a worker that is killed is started again, N times at most each, and comes back: of "
     "parameter-server and async-local-sgd, with --on-loss continue",
     NULL},
    {"codec", NULL, "communication.codec", RPI_OPTION_TEXT, FIELD(codec), "fp32", 0, 0, "CODEC",
     "of gradients: fp32 (exact), bf16, fp16, q1 ... q8, v1 ... v8, topk, randk, sign; "
     "q4:bucket=1024,rounding=stochastic; auto:like=q4,every=100 chooses bits for each tensor; "
     "auto does where that is faster than fp32",
     rpi_check_adaptive_codec},
    RPI_ROW_ALGORITHM(FIELD(algorithm), "communication.algorithm",
                      "of the all-reduce: ring or sra; chosen when absent",
                      rpi_check_all_reduce),
    {"error-feedback", NULL, "communication.error_feedback", RPI_OPTION_FLAG,
     FIELD(error_feedback), "on", 0, 0, "on|off",
     "add what a lossy codec lost to the next gradient", NULL},
    {"zero", NULL, "optimizer.zero_stage", RPI_OPTION_COUNT, FIELD(zero), NULL, 0, 3, "0..3",
     "1: ranks share the optimizer's state, and each steps its part of the parameters, of "
     "--strategy all-reduce; 2: gradients, too; 3: parameters, too, which are gathered where "
     "they are used; 0, each has all of it, when absent",
     NULL},
    {"host-shards", NULL, "optimizer.host_shards", RPI_OPTION_FLAG, FIELD(host_shards), NULL, 0,
     0, NULL,
     "with --zero 3 over several hosts: the ranks of a host keep a second copy of all "
     "parameters "
     "among them, so that a step gathers each once from other hosts",
     NULL},
    {"weights-codec", NULL, "communication.weights_codec", RPI_OPTION_TEXT,
     FIELD(weights_codec), NULL, 0, 0, "CODEC",
     "with --zero, of the parameters that owners send to the other ranks, as q8: all ranks "
     "compute with what it makes of them; fp32, exact, when absent",
     check_weights_codec},
    {"activations-codec", NULL, "communication.activations_codec", RPI_OPTION_TEXT,
     FIELD(activations_codec), NULL, 0, 0, "CODEC",
     "with --pp or --tp, of activations and their gradients that ranks hand each other, as q8: "
     "without error feedback, and not in evaluations; fp32, exact, when absent",
     rpi_check_codec},
    {"warmup-exact", NULL, "communication.warmup_exact", RPI_OPTION_COUNT, FIELD(warmup_exact),
     NULL, 0, 1e12, "N", "first steps with exact gradients", NULL},
    RPI_ROW_BUCKET(FIELD(bucket_mb), "communication.bucket_mb", "gradients in one all-reduce"),

    {"out", NULL, "checkpoints.checkpoints_path", RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0,
     "FOLDER", "where results go; runs/MODEL-DATA-TIME when absent", NULL},
    {"overwrite", NULL, NULL, RPI_OPTION_FLAG, FIELD(overwrite), NULL, 0, 0, NULL,
     "start over in a folder that holds a run", NULL},
    {"resume", NULL, "checkpoints.resume_checkpoint_path", RPI_OPTION_TEXT, FIELD(resume), NULL,
     0, 0, "FOLDER", "go on with the run in this folder and its options", NULL},
    {"checkpoint-every", NULL, "checkpoints.checkpoint_interval", RPI_OPTION_COUNT,
     FIELD(checkpoint_every), NULL, 0, 1e12, "N",
     "steps between checkpoints; 0: by time and at the end", NULL},
    {"checkpoint-time", NULL, "checkpoints.checkpoint_time", RPI_OPTION_SECONDS,
     FIELD(checkpoint_time_s), "10min", 0, 1e9, "TIME",
     "at the latest so long after the one before; 0: by steps alone", NULL},
    {"keep", NULL, "checkpoints.keep", RPI_OPTION_COUNT, FIELD(keep), "3", 1,
     RPI_CHECKPOINT_MOST_KEPT, "N", "newest checkpoints that stay in the folder", NULL},
    {"checkpoint-pieces", NULL, "checkpoints.pieces", RPI_OPTION_FLAG, FIELD(checkpoint_pieces),
     NULL, 0, 0, NULL,
     "each rank saves its part of parameters and optimizer, all at once, into a folder that "
     "all see: for large models",
     NULL},
    {"checkpoint", NULL, "checkpoints.save_final_state", RPI_OPTION_FLAG, FIELD(checkpoint),
     "true", 0, 0, NULL, "--no-checkpoint: save nothing", NULL},
    {"eval", NULL, "evaluation.enabled", RPI_OPTION_FLAG, FIELD(eval), "true", 0, 0, NULL,
     "--no-eval: do not use the test set", NULL},
    {"eval-every", NULL, "tokens.val_check_interval", RPI_OPTION_COUNT, FIELD(eval_every), NULL,
     -1, 1e12, "N", "steps between evaluations; 0, or -1: at the end only", NULL},
    {"eval-images", NULL, "evaluation.images", RPI_OPTION_COUNT, FIELD(eval_images), NULL, 0,
     1e9, "N", "first images, or sequences, of those held out; 0: all", NULL},
    {"sample-every", NULL, "logging.sample_every", RPI_OPTION_COUNT, FIELD(sample_every), NULL,
     0, 1e12, "N",
     "of language models: steps between two texts that rank 0's model writes behind --prompt; "
     "0: "
     "none",
     NULL},
    {"prompt", NULL, "logging.prompt", RPI_OPTION_TEXT, FIELD(prompt), NULL, 0, 0, "TEXT",
     "that these texts begin with", NULL},
    {"sample-tokens", NULL, "logging.sample_tokens", RPI_OPTION_COUNT, FIELD(sample_tokens),
     "40", 1, 1 << 20, "N", "new tokens of such a text at most", NULL},
    {"check-replicas", NULL, "general.check_replicas", RPI_OPTION_COUNT, FIELD(check_replicas),
     "100", 0, 1e12, "N",
     "steps between two comparisons of all ranks' parameters; 0: only at the start and before "
     "checkpoints",
     NULL},
    {"log-every", NULL, "logging.iteration_step_info_interval", RPI_OPTION_COUNT,
     FIELD(log_every), NULL, 1, 256, "N",
     "steps after which ranks tell each other their losses, and are saved or stopped when "
     "asked "
     "to; about a fifth of a second when absent",
     NULL},
    {"trace", NULL, "logging.trace", RPI_OPTION_FLAG, FIELD(trace), NULL, 0, 0, NULL,
     "write trace.json for ui.perfetto.dev", NULL},
    {"profile", NULL, "logging.profile", RPI_OPTION_FLAG, FIELD(profile), NULL, 0, 0, NULL,
     "at the end, say where a step's time goes, by kind of work", NULL},
    RPI_ROW_MACHINE(offsetof(rpi_train_settings, machine), "logging.machine",
                    "say before the first step what a step will take, by this machine (redpoll "
                    "bench machine "
                    "-o), and keep that with the run for redpoll report"),
    {"dtype", NULL, "model.dtype", RPI_OPTION_TEXT, FIELD(dtype), "fp32", 0, 0, "TYPE",
     "of what matrix products and convolutions multiply: fp32, or bf16 (summed in fp32; "
     "parameters stay fp32), on processors with AVX512-BF16 or AMX",
     NULL},
    {"backend", NULL, "general.backend", RPI_OPTION_TEXT, FIELD(backend), NULL, 0, 0, "NAME",
     "of the engine; the fastest when absent", NULL},
    {"threads", NULL, "general.threads", RPI_OPTION_COUNT, FIELD(threads), NULL, 1, 4096, "N",
     "of each rank; its share of the cores when absent", NULL},
    RPI_WORLD_OPTIONS(rpi_train_settings, world),
    {0},
};
