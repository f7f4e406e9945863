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

/* An option of our model in config.json; a text is an activation. Keys may lie in an object:
 * "rope_parameters.rope_theta". NULL ends a list. */
typedef struct rpi_hf_option {
    const char *option, *key;
    const char *also; /* the key of other releases: read where the first is not there, and
                         written beside it; NULL: none */
    /* What a config.json means that has no such key: "1e-06"; "", which null means, too: what
     * our model means without the option. NULL: the key must be there. */
    const char *absent;
} rpi_hf_option;

/* What our model always is: config.json may leave it out, or say it in one of these ways. */
typedef struct rpi_hf_constant {
    const char *key;
    const char *json; /* which is written, too: "1e-05", "\"gelu_new\""; NULL: none is */
    const char *also; /* which is read only; NULL: nothing */
} rpi_hf_constant;

/* A tensor; '*' stands for the number of a layer. Theirs are named as in files of the model
 * with its head. */
typedef struct rpi_hf_tensor {
    const char *ours, *theirs;
    bool transposed; /* theirs is inputs x outputs */
    int part, parts; /* theirs is the part-th of so many equal parts of ours, by the first axis;
                        0 parts: all of it */
    bool is_for_data; /* its first axis is the classes of the data: one of others starts anew */
} rpi_hf_tensor;

/* One matrix of our model under two names of theirs: a file has either, or both alike. */
typedef struct rpi_hf_tie {
    const char *name, *also; /* the first is that of `tensors` */
    /* One of our parameters, without which the model has no use for the second name; NULL:
     * it has one unless that is a parameter of its own. */
    const char *used_by;
} rpi_hf_tie;

/* Another spelling of a key, as transformers' attribute_map has it. Its word counts there where
 * both are said, and so it does here. */
typedef struct rpi_hf_alias {
    const char *alias, *key;
} rpi_hf_alias;

#define RPI_HF_TENSOR(mine, name)                                                              \
    { .ours = (mine), .theirs = (name) }
#define RPI_HF_SAME(name) RPI_HF_TENSOR(name, name)
#define RPI_HF_TURNED(mine, name)                                                              \
    { .ours = (mine), .theirs = (name), .transposed = true }

typedef struct rpi_hf_family {
    const char *model; /* as redpoll train --model names it: "gpt2" */
    const char *flag;  /* of our model's options, that makes it this one when it is on, or a
                          number above 0 that is among `options`; NULL: none does */
    const char *model_type, *architecture; /* in config.json */
    /* With this flag of our model's options on, config.json has this architecture instead, and
     * says by it that it is on; NULL both: there is none. */
    const char *head_flag, *head_architecture;
    const char *prefix; /* of names that files of the bare model have without it */
    const rpi_hf_option *options;
    const rpi_hf_alias *aliases; /* NULL: there are none */
    const rpi_hf_constant *constants;
    bool may_untie;       /* where files hold two matrices, whatever config.json says: its
                             tie_word_embeddings is then read as false */
    bool is_rotary;       /* positions are, and may be stretched: hf_rope.h */
    bool has_layer_types; /* each layer may have a window: hf_windows.h */
    bool sees_pictures;   /* config.json has their sides, colours and classes */
    bool has_segments;    /* the model reads of which of two texts a token is */
    int64_t text_end;     /* the token between texts where the tokenizer is not known, and the
                             vocabulary has it; 0: none */
    const rpi_hf_tensor *tensors;
    const rpi_hf_tie *ties; /* NULL: there are none */
    /* What a file may lack, which then starts anew in training: heads, each by what its names
     * begin with, and whole or not at all; all else must be there. Those of bare_lacks only in
     * files of the bare model. NULL ends a list, or is an empty one. */
    const char *const *heads, *const *bare_lacks;
    /* Tensors of theirs that hold nothing to learn. */
    const char *const *ignored; /* NULL ends it */
} rpi_hf_family;

/* RP_INVALID: a model, or a model_type, that no family has; those that have one are named. */
struct rpi_model_choice;
rp_status rpi_hf_family_of_model(const struct rpi_model_choice *choice,
                                 const rpi_hf_family **out_family);
rp_status rpi_hf_family_of_type(const char *model_type, const rpi_hf_family **out_family);

/* RP_INVALID: that choice of the model is none that config.json of this family can say. */
rp_status rpi_hf_family_check(const rpi_hf_family *family,
                              const struct rpi_model_choice *choice);

/* "BertForPreTraining", or that of the head that was chosen. */
const char *rpi_hf_architecture(const rpi_hf_family *family,
                                const struct rpi_model_choice *choice);

/* The row of a tensor of ours, and its name there; NULL: there is none. after: the row before,
 * where ours is several of theirs; NULL: the first. */
const rpi_hf_tensor *rpi_hf_tensor_find(const rpi_hf_family *family, const char *ours,
                                        const rpi_hf_tensor *after, char theirs[RPI_HF_NAME]);
/* A name as files of old releases have it, where it is another: the weight and bias of a norm
 * were its gamma and beta. NULL: it is not. */
const char *rpi_hf_old_name(const char *name, char text[RPI_HF_NAME]);
/* A name of theirs as files of the bare model have it. */
const char *rpi_hf_bare_name(const rpi_hf_family *family, const char *theirs);
/* Is a name of theirs, of either file, one to pass over? */
bool rpi_hf_tensor_is_ignored(const rpi_hf_family *family, const char *theirs);

#endif
