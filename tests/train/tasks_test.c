/* Tasks, and what names them: every model, every kind of data. */
#include "train/tasks/task.h"

#include "engine/dimension.h"
#include "harness/check.h"
#include "train/data/dataset.h"
#include "train/data/source.h"
#include "train/models/model.h"

#include <string.h>

static const rpi_data_shape some = {
    .channels = 3, .height = 8, .width = 6, .classes = 5, .sequence = 7, .vocabulary = 11};

/* Samples lie one behind the other: micro-batches are ranges of each input. */
static void inputs_begin_with_the_batch(void) {
    const rpi_task *task;
    for (int i = 0; (task = rpi_task_at(i)) != NULL; i++) {
        rpi_graph *graph = NULL;
        rpi_value_id values[RPI_TASK_INPUTS];
        REQUIRE_OK(rpi_graph_create(&graph));
        rpi_task_add_inputs(task, graph, &some, 1, values);
        CHECK_OK(rpi_graph_check(graph));
        CHECK(task->input_count >= 2 && task->input_count <= RPI_TASK_INPUTS);
        for (int k = 0; k < task->input_count; k++) {
            const rpi_value *value = rpi_graph_value(graph, values[k]);
            CHECK_MSG(value->shape.size[0] == rpi_graph_dimension(graph, "batch"), "%s: %s",
                      task->name, value->name);
            CHECK(strcmp(value->name, task->inputs[k].name) == 0);
            CHECK(rpi_task_input_bytes(&task->inputs[k], &some) > 0);
        }
        CHECK(rpi_task_find(task->name) == task);
        rpi_graph_destroy(graph);
    }
    CHECK(rpi_task_find("juggling") == NULL);
}

/* Where two share a sequence each has its tokens, and the documents of all. */
static void ranks_that_share_sequences_see_whole_documents(void) {
    const rpi_task *task = rpi_task_find("masked-lm");
    rpi_graph *graph = NULL;
    rpi_value_id values[RPI_TASK_INPUTS];
    int64_t whole = 0;
    REQUIRE(task);
    REQUIRE_OK(rpi_graph_create(&graph));
    rpi_task_add_inputs(task, graph, &some, 2, values);
    CHECK_OK(rpi_graph_check(graph));
    int64_t own = rpi_graph_dimension(graph, "sequence");
    CHECK(rpi_dimension_multiply(own, 2, &whole));
    for (int k = 0; k < task->input_count; k++) {
        const rpi_value *value = rpi_graph_value(graph, values[k]);
        bool is_documents = strcmp(task->inputs[k].name, "documents") == 0;
        CHECK_EQ(rpi_task_input_is_whole(&task->inputs[k]), is_documents);
        CHECK_EQ(rpi_task_input_is_cut(&task->inputs[k]),
                 !is_documents && value->shape.dims > 1);
        if (value->shape.dims > 1) CHECK_EQ(value->shape.size[1], is_documents ? whole : own);
    }
    rpi_graph_destroy(graph);
}

static void a_sample_has_its_bytes(void) {
    const rpi_task *task = rpi_task_find("classification");
    REQUIRE(task);
    CHECK_EQ(rpi_task_input_bytes(&task->inputs[0], &some), 3 * 8 * 6 * sizeof(float));
    CHECK_EQ(rpi_task_input_bytes(&task->inputs[1], &some), sizeof(int32_t));
}

static void models_and_data_name_their_task(void) {
    const rpi_model *model;
    const rpi_dataset_kind *kind;
    for (int i = 0; (model = rpi_model_at(i)) != NULL; i++)
        CHECK_MSG(rpi_task_find(model->task), "model %s", model->name);
    for (int i = 0; (kind = rpi_dataset_kind_at(i)) != NULL; i++)
        CHECK_MSG(rpi_task_find(kind->source->task), "data %s", kind->name);
}

CASES({"inputs_begin_with_the_batch", inputs_begin_with_the_batch},
      {"ranks that share sequences see whole documents",
       ranks_that_share_sequences_see_whole_documents},
      {"a_sample_has_its_bytes", a_sample_has_its_bytes},
      {"models_and_data_name_their_task", models_and_data_name_their_task})
