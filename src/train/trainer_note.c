#include "base/append.h"
#include "train/trainer.h"

/* Appends it to those that were not told yet. */
void rpi_trainer_note(rpi_trainer *t, const char *line) {
    rpi_append(t->note, sizeof t->note, "%s%s", t->note[0] ? "\n" : "", line);
}
