#include "base/variables.h"

#include "base/log.h"
#include "base/suggest.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "REDPOLL_";
enum { PREFIX_BYTES = sizeof prefix - 1 };

/* Behind the prefix, in order. A new option or variable adds its name:
 * tests/cli/variables_test.c says which is missing. */
static const char *const names[] = {"ACCUMULATE",
                                    "ACCURACY_RUNS",
                                    "ACTIVATIONS",
                                    "ACTIVATIONS_CODEC",
                                    "AGAINST",
                                    "ALGORITHM",
                                    "ALL",
                                    "ANSWER_TIMEOUT",
                                    "ASAN_BUILD",
                                    "AUGMENT",
                                    "BACKEND",
                                    "BACKWARD",
                                    "BATCH_SIZE",
                                    "BETA1",
                                    "BETA2",
                                    "BIND",
                                    "BIND_TO",
                                    "BRIEF",
                                    "BUCKET_MB",
                                    "BUDGET",
                                    "BUILD",
                                    "CHECK",
                                    "CHECKPOINT",
                                    "CHECKPOINT_EVERY",
                                    "CHECKPOINT_PIECES",
                                    "CHECKPOINT_TIME",
                                    "CHECK_REPLICAS",
                                    "CHUNK",
                                    "CHUNKS",
                                    "CLASSES",
                                    "CLIP",
                                    "CODEC",
                                    "CODEC_GROUPS",
                                    "CODEC_MIN_SIZE",
                                    "COMPARE",
                                    "COMPRESS",
                                    "CONFIG",
                                    "CONNECT",
                                    "CONNECT_TIMEOUT",
                                    "CORES",
                                    "COUNT",
                                    "CP",
                                    "CSV",
                                    "CUDA",
                                    "CUDA_LIBRARY",
                                    "DATA",
                                    "DATA_DIR",
                                    "DATA_THREADS",
                                    "DECAY",
                                    "DECENTRALISED_RUNS",
                                    "DELAY",
                                    "DEMO_STEPS",
                                    "DETECT",
                                    "DEVICE",
                                    "DEVICES",
                                    "DP",
                                    "DTYPE",
                                    "DURABLE",
                                    "ECHO",
                                    "ELASTIC",
                                    "END",
                                    "ENV",
                                    "EPOCHS",
                                    "EPSILON",
                                    "ERROR_FEEDBACK",
                                    "EVAL",
                                    "EVAL_EVERY",
                                    "EVAL_IMAGES",
                                    "EVERY",
                                    "EXPLAIN",
                                    "FAILURES",
                                    "FAST_LINK",
                                    "FAST_PRICE",
                                    "FAST_STEP",
                                    "FIRST",
                                    "FIT",
                                    "FOLDER",
                                    "FORCE",
                                    "FORMAT",
                                    "FORMS",
                                    "FORWARD",
                                    "FRAGMENTS",
                                    "FROM",
                                    "FRONTIER",
                                    "FUSED_ATTENTION",
                                    "GENERATION",
                                    "GLOBAL_BATCH_SIZE",
                                    "GRACE",
                                    "HOST",
                                    "HOSTFILE",
                                    "HOSTS",
                                    "HOST_SHARDS",
                                    "HWLOC",
                                    "IGNORE_END",
                                    "IMAGE",
                                    "IMAGE_SIZE",
                                    "IN",
                                    "INSTEAD_OF",
                                    "INTERLEAVE",
                                    "INTERVAL",
                                    "IN_PLACE",
                                    "ISA",
                                    "ITERS",
                                    "JAX_VENV",
                                    "JITTER",
                                    "JOIN",
                                    "JSON",
                                    "KEEP",
                                    "KEPT",
                                    "KEY",
                                    "KJV",
                                    "LABEL_SMOOTHING",
                                    "LAYERS",
                                    "LEAST",
                                    "LINK",
                                    "LINKS",
                                    "LOCAL",
                                    "LOG",
                                    "LOG_EVERY",
                                    "LONG_TESTS",
                                    "LOST_AFTER",
                                    "LR",
                                    "LR_DECAY_START",
                                    "LR_DECAY_STEPS",
                                    "LR_DROP_EVERY",
                                    "LR_GAMMA",
                                    "LR_MIN",
                                    "LR_SCHEDULE",
                                    "LR_WARMUP_STEPS",
                                    "MACHINE",
                                    "MARKDOWN",
                                    "MAX_BYTES",
                                    "MAX_NEW_TOKENS",
                                    "MEMORY",
                                    "MEMORY_CHECK",
                                    "MICRO_BATCHES",
                                    "MICRO_BATCH_SIZE",
                                    "MIN_BYTES",
                                    "MIXUP",
                                    "MODEL",
                                    "MOMENTUM",
                                    "NESTEROV",
                                    "NODES",
                                    "NOTICE",
                                    "NP",
                                    "OFFER",
                                    "ON_LOSS",
                                    "OPTIMIZER",
                                    "OPTIONS",
                                    "OUT",
                                    "OUTPUT",
                                    "OUTPUT_DIR",
                                    "OVERWRITE",
                                    "PARAMETERS",
                                    "PAY_SPARES",
                                    "PLAIN_SPECIAL",
                                    "PLOT_SIZES",
                                    "PLOT_STEPS",
                                    "PORT",
                                    "PORTS",
                                    "PP",
                                    "PRECISION",
                                    "PREEMPTIONS",
                                    "PREFIX",
                                    "PRICE",
                                    "PROFILE",
                                    "PROGRESS_THREAD",
                                    "PROMPT",
                                    "PROMPT_FILE",
                                    "PYTHON",
                                    "PYTHON_TESTS",
                                    "RANK",
                                    "RANKS",
                                    "RANKS_PER_HOST",
                                    "RAW",
                                    "RECOMPUTE",
                                    "REDUCE",
                                    "REGISTERED",
                                    "RELEASES",
                                    "REMOTE_REDPOLL",
                                    "REPLICAS",
                                    "REPORT_BINDINGS",
                                    "RESTART",
                                    "RESUME",
                                    "ROOT",
                                    "ROUND_TRIPS",
                                    "SAMPLES",
                                    "SAMPLE_EVERY",
                                    "SAMPLE_TOKENS",
                                    "SAVE",
                                    "SCHEDULE",
                                    "SECRET",
                                    "SECRET_FILE",
                                    "SEED",
                                    "SEGMENTS",
                                    "SEQUENCE_PARALLEL",
                                    "SEQ_LENGTH",
                                    "SETUP",
                                    "SIMULATE",
                                    "SITE_VENV",
                                    "SIZE",
                                    "SIZES",
                                    "SKIP_BROKEN",
                                    "SOCKET_IFNAME",
                                    "SPECIAL",
                                    "SPLIT",
                                    "SPLIT_LINES",
                                    "SPOT",
                                    "SPOT_PRICE",
                                    "SSH",
                                    "STAGES",
                                    "STAGE_CUT",
                                    "STALL",
                                    "STATS",
                                    "STEP",
                                    "STEPS",
                                    "STEP_BYTES",
                                    "STEP_FACTOR",
                                    "STORE",
                                    "STRATEGY",
                                    "STREAMS",
                                    "STRICT",
                                    "SUMMARY",
                                    "SVG",
                                    "TEMPERATURE",
                                    "TENSORBOARD",
                                    "TEST_IMAGES",
                                    "THOROUGH",
                                    "THREADS",
                                    "TIME",
                                    "TIMEOUT",
                                    "TITLE",
                                    "TLS",
                                    "TO",
                                    "TOKENIZER",
                                    "TOKENIZERS",
                                    "TOKENS",
                                    "TOLERANCE",
                                    "TOP",
                                    "TOPOLOGY",
                                    "TOP_K",
                                    "TOP_P",
                                    "TORCH_VENV",
                                    "TP",
                                    "TRACE",
                                    "TRAIN_IMAGES",
                                    "TRANSPORT",
                                    "WARMUP",
                                    "WARMUP_EXACT",
                                    "WARN_AFTER",
                                    "WDIR",
                                    "WEIGHTS",
                                    "WEIGHTS_CODEC",
                                    "WEIGHT_DECAY",
                                    "WIDTH",
                                    "WITHIN",
                                    "WORK",
                                    "ZERO"};

const char *rpi_variable_name(int index) {
    int count = (int)(sizeof names / sizeof names[0]);
    return index >= 0 && index < count ? names[index] : NULL;
}

/* ---- Kubernetes ---- */

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* "tcp://10.0.0.1:80" */
static bool is_url(const char *value) {
    size_t letters = strspn(value, "abcdefghijklmnopqrstuvwxyz");
    return letters > 0 && strncmp(value + letters, "://", 3) == 0;
}

/* NAME_PORT_80_TCP, NAME_PORT_80_TCP_ADDR */
static bool has_port_number(const char *name) {
    for (const char *at = name; (at = strstr(at, "_PORT_")) != NULL; at++) {
        size_t digits = strspn(at + 6, "0123456789");
        const char *behind = at + 6 + digits;
        if (digits && (strncmp(behind, "_TCP", 4) == 0 || strncmp(behind, "_UDP", 4) == 0 ||
                       strncmp(behind, "_SCTP", 5) == 0))
            return true;
    }
    return false;
}

bool rpi_variable_is_of_service(const char *name, const char *value) {
    return ends_with(name, "_SERVICE_HOST") || ends_with(name, "_SERVICE_PORT") ||
           strstr(name, "_SERVICE_PORT_") || has_port_number(name) ||
           (ends_with(name, "_PORT") && is_url(value));
}

/* ---- mistakes ---- */

static const char *name_at(const void *context, int index) {
    (void)context;
    return rpi_variable_name(index);
}

static bool is_ours(const char *name) {
    if (strncmp(name, "TEST_", 5) == 0) return true;
    for (int i = 0; rpi_variable_name(i); i++)
        if (strcmp(rpi_variable_name(i), name) == 0) return true;
    return false;
}

static bool check(const char *assignment) {
    char name[96];
    size_t length = strcspn(assignment, "=");
    if (strncmp(assignment, prefix, PREFIX_BYTES) != 0 || length >= sizeof name) return true;
    snprintf(name, sizeof name, "%.*s", (int)length, assignment);
    const char *value = assignment + length + (assignment[length] == '=');
    if (is_ours(name + PREFIX_BYTES) || rpi_variable_is_of_service(name, value)) return true;
    const char *nearest = rpi_suggest(name + PREFIX_BYTES, name_at, NULL);
    if (!nearest) return true;
    rpi_log(RP_LOG_WARNING,
            "environment variable %s is none of Redpoll's, and changes nothing; did you mean "
            "'%s%s'?",
            name, prefix, nearest);
    return false;
}

int rpi_variables_check(char *const *list) {
    int mistakes = 0;
    for (; *list; list++) mistakes += !check(*list);
    return mistakes;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void check_own(void) {
    if (environ) (void)rpi_variables_check(environ);
}

void rpi_variables_check_own(void) {
    pthread_once(&once, check_own);
}
