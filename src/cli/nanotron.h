/* Configuration files of nanotron, Hugging Face's trainer of LLaMA, as files of our own: what
 * only it has is taken out, and put under our keys. A file with model.model_config is one. */
#ifndef RPI_CLI_NANOTRON_H
#define RPI_CLI_NANOTRON_H

#include "base/option.h"

#include <yaml.h>

bool rpi_nanotron_is(yaml_document_t *document);

/* RP_INVALID, with file, line and key: the file is for a family of models that is none here. */
rp_status rpi_nanotron_check_family(const char *file, yaml_document_t *document);

/* Keys that mean the same to both stay; what the file leaves out is what nanotron takes then.
 * RP_INVALID names file, line and key: something that we do not have, a key of older releases,
 * with its place now, or no key of nanotron's where only these are. Other files stay. */
rp_status rpi_nanotron_translate(const char *file, yaml_document_t *document);

/* The replicas that the file has, before it is translated, of several ranks each: its dp; 0: of
 * one rank each. */
long long rpi_nanotron_replicas(yaml_document_t *document);

#endif
