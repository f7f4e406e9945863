/* BERT as transformers has it: BertForPreTraining, with spans=on BertForQuestionAnswering, and
 * with pre-ln=on Megatron's of both. Names are ours, too. The head of hidden tokens is the
 * table of tokens, and stands in no file but as its bias. */
#include "train/huggingface/hf_family.h"

extern const rpi_hf_family rpi_hf_bert, rpi_hf_megatron_bert;

static const rpi_hf_option options[] = {
    {"layers", "num_hidden_layers", NULL, NULL},
    {"hidden", "hidden_size", NULL, NULL},
    {"heads", "num_attention_heads", NULL, NULL},
    {"intermediate", "intermediate_size", NULL, NULL},
    {"vocabulary", "vocab_size", NULL, NULL},
    {"positions", "max_position_embeddings", NULL, NULL},
    {"dropout", "hidden_dropout_prob", NULL, "0.1"},
    {"attention-dropout", "attention_probs_dropout_prob", NULL, "0.1"},
    {"norm-epsilon", "layer_norm_eps", NULL, "1e-12"},
    {"activation", "hidden_act", NULL, "gelu"},
    {0},
};

static const rpi_hf_constant constants[] = {
    {"type_vocab_size", "2", NULL},        {"position_embedding_type", NULL, "\"absolute\""},
    {"is_decoder", "false", NULL},         {"add_cross_attention", "false", NULL},
    {"tie_word_embeddings", "true", NULL}, {0},
};

#define BOTH(name) RPI_HF_SAME(name ".weight"), RPI_HF_SAME(name ".bias")

/* What both have. */
#define COMMON                                                                                 \
    RPI_HF_SAME("bert.embeddings.word_embeddings.weight"),                                     \
        RPI_HF_SAME("bert.embeddings.position_embeddings.weight"),                             \
        RPI_HF_SAME("bert.embeddings.token_type_embeddings.weight"),                           \
        BOTH("bert.encoder.layer.*.attention.self.query"),                                     \
        BOTH("bert.encoder.layer.*.attention.self.key"),                                       \
        BOTH("bert.encoder.layer.*.attention.self.value"),                                     \
        BOTH("bert.encoder.layer.*.attention.output.dense"),                                   \
        BOTH("bert.encoder.layer.*.intermediate.dense"),                                       \
        BOTH("bert.encoder.layer.*.output.dense"), BOTH("bert.pooler.dense"),                  \
        RPI_HF_SAME("cls.predictions.bias"), BOTH("cls.predictions.transform.dense"),          \
        BOTH("cls.predictions.transform.LayerNorm"), BOTH("cls.seq_relationship"),             \
        BOTH("qa_outputs")

static const rpi_hf_tensor tensors[] = {
    COMMON,
    BOTH("bert.embeddings.LayerNorm"),
    BOTH("bert.encoder.layer.*.attention.output.LayerNorm"),
    BOTH("bert.encoder.layer.*.output.LayerNorm"),
    {0},
};

static const rpi_hf_tensor megatron_tensors[] = {
    COMMON,
    BOTH("bert.encoder.layer.*.attention.ln"),
    BOTH("bert.encoder.layer.*.ln"),
    BOTH("bert.encoder.ln"),
    {0},
};

#define USE "cls.predictions.bias"
static const rpi_hf_tie ties[] = {
    {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", USE},
    {"cls.predictions.bias", "cls.predictions.decoder.bias", USE},
    {0},
};

static const char *const heads[] = {"bert.pooler.", "cls.predictions.", "cls.seq_relationship.",
                                    "qa_outputs.", NULL};

/* Numbers of places. */
static const char *const ignored[] = {"bert.embeddings.position_ids", NULL};

#define BERT                                                                                   \
    .model = "bert", .head_flag = "spans", .prefix = "bert.", .options = options,              \
    .constants = constants, .ties = ties, .heads = heads, .ignored = ignored,                  \
    .has_segments = true

const rpi_hf_family rpi_hf_bert = {
    BERT,
    .model_type = "bert",
    .architecture = "BertForPreTraining",
    .head_architecture = "BertForQuestionAnswering",
    .tensors = tensors,
};

const rpi_hf_family rpi_hf_megatron_bert = {
    BERT,
    .flag = "pre-ln",
    .model_type = "megatron-bert",
    .architecture = "MegatronBertForPreTraining",
    .head_architecture = "MegatronBertForQuestionAnswering",
    .tensors = megatron_tensors,
};
