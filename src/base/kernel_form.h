/* Kernels that have several forms, of which this processor is quickest with one and that with
 * another: a prefetch, an order of passes. All forms of a kernel give the same bytes, and a
 * process measures once which of them to take.
 *
 * A kernel has one of these, and asks rpi_form_for() at each call. It is listed where
 * `redpoll info` looks for it (cli/kernel_forms.c), and its tests walk its forms. */
#ifndef RPI_BASE_KERNEL_FORM_H
#define RPI_BASE_KERNEL_FORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    RPI_FORMS_MAX = 4,
    RPI_FORM_BYTES = 128 * 1024, /* what a measured call works on */
    RPI_FORM_LEAST = 64 * 1024   /* shorter calls are no reason to measure */
};

typedef struct rpi_kernel_form {
    const char *kernel;       /* as REDPOLL_FORMS and `redpoll info` call it */
    const char *const *names; /* of the forms; NULL behind the last. The first is taken as long
                               * as nothing is known, and where no other is quicker */
    /* A call of this form over RPI_FORM_BYTES of floats, all different, which lie in memory and
     * in no cache; it may write them. False: with the instruction set in use there is but one.
     */
    bool (*run)(int form, float *memory);
    _Atomic int state; /* 0; then which form (kernel_form.c) */
} rpi_kernel_form;

/* The form for a call over `bytes`. The first call of RPI_FORM_LEAST or more measures, about a
 * millisecond long, while calls of other threads take the first form; REDPOLL_FORMS
 * ("quantise=fetch,add-two=plain") says it instead, for all calls. Without memory to measure it
 * is the first. */
int rpi_form_for(rpi_kernel_form *kernel, size_t bytes);
/* From now on this one, or with a form below 0 as if nothing were known: for tests. */
void rpi_form_set(rpi_kernel_form *kernel, int form);
int rpi_form_count(const rpi_kernel_form *kernel);

/* Seconds of a call over what lies in memory, and over the same once it is in the cache. */
typedef struct rpi_form_times {
    double memory[RPI_FORMS_MAX], cache[RPI_FORMS_MAX];
} rpi_form_times;

/* Of those that take RPI_FORM_GAIN more than the quickest in memory, or less, the first that
 * none behind it beats by as much in the cache. */
#define RPI_FORM_GAIN 0.05
int rpi_form_quickest(const rpi_form_times *times, int count);

#endif
