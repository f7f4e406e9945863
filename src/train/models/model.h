/* The contract of a model, which models.c lists. A new model is one file that exports one
 * `const rpi_model`, one row in models.c and one word in CMakeLists.txt. */
#ifndef RPI_TRAIN_MODEL_H
#define RPI_TRAIN_MODEL_H

#include "base/option.h"
#include "plan/foresight/transformer.h"
#include "train/data/data_shape.h"
#include "train/models/blocks.h"

#include <stdalign.h>
#include <stddef.h>

enum { RPI_MODEL_TEXT = 512, RPI_MODEL_OPTIONS = 256, RPI_MODEL_HELP = 2048 };

/* A size that has a name: "gpt2:medium" is what its options say. */
typedef struct rpi_model_size {
    const char *name, *options; /* NULL ends a list */
} rpi_model_size;

/* A flag of a model's options that gives it another head, for another task. */
typedef struct rpi_model_head {
    const char *flag, *task; /* NULL ends a list */
} rpi_model_head;

typedef struct rpi_model {
    const char *name, *summary;
    const char *task;            /* whose first input it reads, but with one of the heads */
    const rpi_model_head *heads; /* NULL: none */
    /* What a user may choose behind the name ("resnet18:width=32"), into a struct of the
     * model's own of at most RPI_MODEL_OPTIONS bytes. Name, type, offset, fallback, limits,
     * value, help and check are as for commands; yaml is the name. NULL: nothing. */
    const rpi_option *options;
    const rpi_model_size *sizes; /* NULL: none */
    /* Optional: how many tokens of the segments before each row remembers (0: none), where the
     * model has a memory (rpi_block_with_memory): batches are then segments that go on. */
    int64_t (*memory)(const void *options);
    /* Optional: give what the user left open its value, which follows from other options. */
    void (*fill_in)(void *options);
    /* Optional: what planners know it by, where it is a decoder of transformer blocks. */
    void (*transformer)(const void *options, rpi_transformer *out);
    /* Optional: can so many tensor ranks hold it together? RP_INVALID says what would fit.
     * NULL: no two can. */
    rp_status (*check_split)(const void *options, const rpi_tensor_split *split);
    /* Can context ranks share its sequences? All that its layers do with several tokens of one
     * at a time is attention, by the blocks (blocks.h), as is what knows their places; and what
     * is said of a sample is said of its first token, or of all tokens that a block gathers. */
    bool shares_sequences;
    /* Add the nodes between the task's first input (images; others: builder->inputs) and the
     * logits (batch x classes), and return these; builder->sample_logits where the task has a
     * loss of them. */
    rpi_value_id (*build)(rpi_builder *builder, const void *options,
                          const rpi_data_shape *shape, rpi_value_id input);
} rpi_model;

/* An option of a model. */
#define RPI_MODEL_OPTION(name, type, offset, fallback, min, max, value, help, check)           \
    { name, NULL, name, type, offset, fallback, min, max, value, help, check }

/* The catalogue; NULL past the end. */
const rpi_model *rpi_model_at(int index);

/* NULL: it has no option of this name. */
const rpi_option *rpi_model_option(const rpi_model *model, const char *name);

/* What a user has chosen, with what was left open filled in. Texts of its options lie in it: it
 * is used where it stands. */
typedef struct rpi_model_choice {
    const rpi_model *model;
    char words[RPI_MODEL_TEXT], size_words[RPI_MODEL_TEXT];
    alignas(max_align_t) unsigned char options[RPI_MODEL_OPTIONS];
} rpi_model_choice;

/* Tokens that a row remembers; 0: the model has no memory. */
int64_t rpi_model_memory(const rpi_model_choice *choice);

/* Give the model of a text another memory, of 1 token or more. RP_INVALID: it has none. */
rp_status rpi_model_set_memory(char text[RPI_MODEL_TEXT], int64_t memory);

/* What this choice is for: the name of the task of its head. */
const char *rpi_model_task(const rpi_model_choice *choice);
/* Give the model of a text the head for a task, if it has another and there is one. */
rp_status rpi_model_add_head(char text[RPI_MODEL_TEXT], const char *task);

/* A whole number of a choice's options; 0: it has none of this name. */
int64_t rpi_model_number(const rpi_model_choice *choice, const char *name);

/* Parse "name", or "name:size,option=value,...". RP_INVALID names what is wrong, with the
 * nearest. */
rp_status rpi_model_parse(const char *text, rpi_model_choice *out_choice);

/* Do two texts say one model, whatever they leave to their defaults and in which order? */
bool rpi_model_is_same(const char *text, const char *other);

/* "linear layers with ReLU; options: hidden=256 (widths ...)". Returns text. */
const char *rpi_model_help(const rpi_model *model, char *text, size_t bytes);

#endif
