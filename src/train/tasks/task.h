/* The contract of a task, which tasks.c lists: the inputs of a model, its loss, and what is
 * counted and reported. A new task is one file that exports one `const rpi_task`, one row in
 * tasks.c and one word in CMakeLists.txt.
 *
 * A source of data (train/data/source.h) yields a task's inputs, and a model
 * (train/models/model.h) maps the first of them to logits; each names its task, and neither
 * knows the kinds of the other. */
#ifndef RPI_TRAIN_TASK_H
#define RPI_TRAIN_TASK_H

#include "engine/graph.h"
#include "train/data/data_shape.h"

enum { RPI_TASK_INPUTS = 5, RPI_TASK_AXES = 4 };

/* One input of the graph. Its first axis is the batch, so that a part of the samples is a range
 * of the input's elements. */
typedef struct rpi_task_input {
    const char *name;
    rp_dtype dtype;
    /* "batch" and "sequence" are named dimensions of the graph; other axes are numbers of the
     * data (rpi_data_axis), or the numbers themselves: "2". NULL ends them. If ranks share
     * sequences, a rank has its own tokens of "sequence", and all of "whole", which is then the
     * length of the whole sequence. */
    const char *axes[RPI_TASK_AXES + 1];
    double fill; /* the value of padding tokens, which are in no loss */
} rpi_task_input;

typedef struct rpi_task {
    const char *name, *summary;
    const char *data;   /* what it learns from, for messages: "images" */
    const char *sample; /* one element of a batch: "image" */
    const char *unit;   /* what rates and metrics count: "images" */
    /* Data that fits, for messages: "--data fashion-mnist". */
    const char *advice;

    /* The model reads the first ones; the last are the labels. */
    rpi_task_input inputs[RPI_TASK_INPUTS];
    int input_count;

    /* Add the loss of the model's logits. `scale` is an input of its own, 1 / (counted labels
     * of the whole step), so that ranks and micro-batches add up to the mean. Output 1 of the
     * loss's node is the number of right answers. smoothing: of labels, 0 if the task does not
     * take it. */
    rpi_value_id (*add_loss)(rpi_graph *graph, const char *name, rpi_value_id logits,
                             const rpi_value_id *inputs, rpi_value_id scale, double smoothing);
    /* The input that has the labels, for tasks on tokens. If they are labels of tokens, and
     * several ranks have a slice of the logits each, the loss is a cross-entropy over these
     * slices, with this name. If they are labels of samples, and ranks share sequences, only
     * the first of these ranks has the loss, as with a second one. */
    int label_input;
    const char *loss_name; /* NULL: "loss" */
    bool takes_smoothing;
    bool takes_mixing; /* samples are pictures, which can be blended, and their labels with them
                        */

    bool has_perplexity; /* e^loss is reported, too */
    /* Evaluations pass the logits of each sample to the source, whose scores are reported
     * (rpi_source_kind.judge). */
    bool judges_logits;

    /* A second loss, for a sample as a whole, which is added to the first. `scale` is then 1 /
     * samples of the whole step; output 1 as above. Its name in metrics: "nsp". Both NULL:
     * there is none. */
    const char *sample_metric;
    rpi_value_id (*add_sample_loss)(rpi_graph *graph, rpi_value_id logits,
                                    const rpi_value_id *inputs, rpi_value_id scale);

    /* In which way data must be alike for a model's parameters to mean the same, as a phrase.
     */
    void (*describe)(const rpi_data_shape *shape, char *text, size_t bytes);
} rpi_task;

/* The catalogue; NULL past the end. */
const rpi_task *rpi_task_at(int index);
/* NULL: there is none of this name. */
const rpi_task *rpi_task_find(const char *name);

/* The label of tokens that are in no loss; and the number that is added to logits which a
 * softmax must ignore: far below any of them, but finite, so that the sum stays a number. */
enum { RPI_TASK_IGNORED = -100 };
#define RPI_TASK_FAR_BELOW (-1e9f)

/* Whether it is an input of tokens, of which a rank that shares sequences has only its own, or
 * has all tokens. */
bool rpi_task_input_is_cut(const rpi_task_input *input);
bool rpi_task_input_is_whole(const rpi_task_input *input);

/* Declare the inputs of a task in a graph: out_values[input_count]. sharers: ranks that share
 * each sequence. */
void rpi_task_add_inputs(const rpi_task *task, rpi_graph *graph, const rpi_data_shape *shape,
                         int sharers, rpi_value_id *out_values);
/* Bytes of one sample of an input with all its tokens. */
size_t rpi_task_input_bytes(const rpi_task_input *input, const rpi_data_shape *shape);

#endif
