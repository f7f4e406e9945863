/* Configuration files of nanotron, Hugging Face's trainer of LLaMA, as files of our own: what
 * only it has is taken out, and put under our keys. */
#ifndef RPI_CLI_NANOTRON_H
#define RPI_CLI_NANOTRON_H

#include "redpoll/status.h"

#include <yaml.h>

/* Keys that mean the same to both stay. A file with model.model_config is nanotron's, and what
 * it leaves out is what nanotron takes then. RP_INVALID names file, line and key: something
 * that we do not have, or no key of nanotron's where only these are. */
rp_status rpi_nanotron_translate(const char *file, yaml_document_t *document);

#endif
