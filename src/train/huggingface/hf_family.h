/* The contract of a family of models in Hugging Face folders, which hf_families.c lists: its
 * names there, and how they map to ours. A new family is one file that exports one
 * `const rpi_hf_family`, one row in hf_families.c and one word in CMakeLists.txt. */
#ifndef RPI_TRAIN_HF_FAMILY_H
#define RPI_TRAIN_HF_FAMILY_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_HF_NAME = 192 };

/* An option of ours that is a whole number in config.json. NULL ends a list. */
typedef struct rpi_hf_size {
    const char *option, *key;
} rpi_hf_size;

/* What our model always is: config.json may leave it out, or say it in one of these ways. */
typedef struct rpi_hf_constant {
    const char *key;
    const char *json;   /* which is written, too: "1e-05", "\"gelu_new\"" */
    const char *also;   /* likewise; NULL: nothing */
    int times;          /* so many times... */
    const char *of_key; /* what this key is; NULL: nothing */
} rpi_hf_constant;

/* A tensor; '*' stands for the number of a layer. */
typedef struct rpi_hf_tensor {
    const char *ours, *theirs;
    bool transposed; /* theirs is inputs x outputs */
} rpi_hf_tensor;

typedef struct rpi_hf_family {
    const char *model;                     /* as redpoll train --model names it: "gpt2" */
    const char *model_type, *architecture; /* in config.json */
    const char *prefix; /* before all names of theirs; files of the bare model lack it */
    const rpi_hf_size *sizes;
    const rpi_hf_constant *constants;
    const char *written; /* a JSON object: further keys of config.json that we write */
    int64_t text_end;    /* the token between texts, where the vocabulary has it */
    const rpi_hf_tensor *tensors;
    /* Tensors of theirs that hold nothing to learn, or what stands elsewhere, too. */
    const char *const *ignored; /* NULL ends it */
} rpi_hf_family;

/* RP_INVALID: a model, or a model_type, that no family has; those that have one are named. */
rp_status rpi_hf_family_of_model(const char *model, const rpi_hf_family **out_family);
rp_status rpi_hf_family_of_type(const char *model_type, const rpi_hf_family **out_family);

/* The row of a tensor of ours, and its name there without the prefix; NULL: there is none. */
const rpi_hf_tensor *rpi_hf_tensor_find(const rpi_hf_family *family, const char *ours,
                                        char theirs[RPI_HF_NAME]);
/* Is a name of theirs, without the prefix, one to pass over? */
bool rpi_hf_tensor_is_ignored(const rpi_hf_family *family, const char *theirs);

#endif
