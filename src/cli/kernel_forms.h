/* The kernels that have forms (base/kernel_form.h), for `redpoll info`. */
#ifndef RPI_CLI_KERNEL_FORMS_H
#define RPI_CLI_KERNEL_FORMS_H

#include "base/kernel_form.h"
#include "redpoll/status.h"

/* NULL past the end. */
rpi_kernel_form *rpi_kernel_form_at(int index);
/* "fetch (of plain, fetch)": the form that is used here, measured or forced; returns text. */
const char *rpi_kernel_form_text(rpi_kernel_form *kernel, char *text, size_t bytes);
/* RP_INVALID: REDPOLL_FORMS names a kernel or a form that does not exist; the message lists
 * those that do. */
rp_status rpi_kernel_forms_check(void);

#endif
