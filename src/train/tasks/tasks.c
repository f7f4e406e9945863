#include "train/tasks/task.h"

#include <string.h>

extern const rpi_task rpi_task_classification;
extern const rpi_task rpi_task_language_model;
extern const rpi_task rpi_task_masked_lm;
extern const rpi_task rpi_task_spans;

static const rpi_task *const tasks[] = {
    &rpi_task_classification,
    &rpi_task_language_model,
    &rpi_task_masked_lm,
    &rpi_task_spans,
};
enum { TASKS = sizeof tasks / sizeof tasks[0] };

const rpi_task *rpi_task_at(int index) {
    return index >= 0 && index < TASKS ? tasks[index] : NULL;
}

const rpi_task *rpi_task_find(const char *name) {
    for (int i = 0; i < TASKS; i++)
        if (strcmp(tasks[i]->name, name) == 0) return tasks[i];
    return NULL;
}
