/* Turns configuration files of nanotron, Hugging Face's trainer of LLaMA, into our own: its
 * keys are replaced by ours. A file with model.model_config is one of nanotron's. */
#ifndef RPI_CLI_NANOTRON_H
#define RPI_CLI_NANOTRON_H

#include "base/option.h"

#include <yaml.h>

bool rpi_nanotron_is(yaml_document_t *document);

/* RP_INVALID, with file, line and key: the file is for a family of models that Redpoll does not
 * have. */
rp_status rpi_nanotron_check_family(const char *file, yaml_document_t *document);

/* Keys with the same meaning stay; what the file leaves out gets nanotron's default. RP_INVALID
 * names file, line and key: a feature that Redpoll does not have, a key of older releases with
 * its new place, or an unknown key in a section that only nanotron has. Other files are not
 * changed. */
rp_status rpi_nanotron_translate(const char *file, yaml_document_t *document);

/* The replicas in the file, before it is translated, if they have several ranks each: its dp;
 * 0: they have one rank. */
long long rpi_nanotron_replicas(yaml_document_t *document);

#endif
