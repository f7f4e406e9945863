#include "train/agree.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { CHOICES = 2048 };

/* One choice a line: "seed 1". */
static void describe(const rpi_trainer *t, char text[CHOICES]) {
    const rpi_train_options *o = t->options;
    char codec[64], shape[96];
    t->network.task->describe(&t->source.shape, shape, sizeof shape);
    memset(text, 0, CHOICES);
    snprintf(
        text, CHOICES,
        "--model %s\n--data %s\n--seq-length %lld\ndata %lld of %s\n--seed %lld\n"
        "--global-batch-size %lld\n--accumulate %lld\nsteps of the run %lld\nsteps done %lld\n"
        "--optimizer %s\n--lr %.17g\n--momentum %.17g\n--nesterov %d\n"
        "--beta1 %.17g\n--beta2 %.17g\n--epsilon %.17g\n--weight-decay %.17g\n"
        "--decay %s\n--clip %.17g\n--lr-schedule %s\n--lr-warmup-steps %lld\n--lr-min %.17g\n"
        "--lr-drop-every %lld\n--lr-gamma %.17g\n--lr-decay-start %lld\n"
        "--lr-decay-steps %lld\n--strategy %s\n--codec %s\n--algorithm %s\n"
        "--error-feedback %d\n--warmup-exact %lld\n--bucket-mb %.17g\n--eval %d\n"
        "--eval-every %lld\n--eval-images %lld\n--checkpoint %d\n--checkpoint-every %lld\n"
        "--keep %lld\n"
        "--trace %d\n--out %d\n",
        t->network.text, o->data, (long long)o->seq_length, (long long)t->source.train_count,
        shape, (long long)o->seed, (long long)t->global_batch,
        (long long)(o->accumulate ? o->accumulate : 1), (long long)t->total_steps,
        (long long)t->step, o->optimizer, o->lr, o->momentum, o->nesterov, o->beta1, o->beta2,
        o->epsilon, o->weight_decay, o->decay, o->clip, o->lr_schedule,
        (long long)o->lr_warmup_steps, o->lr_min, (long long)o->lr_drop_every, o->lr_gamma,
        (long long)o->lr_decay_start, (long long)o->lr_decay_steps, o->strategy,
        rp_codec_text(&t->codec, codec, sizeof codec), o->algorithm ? o->algorithm : "",
        o->error_feedback, (long long)o->warmup_exact, o->bucket_mb, o->eval,
        (long long)o->eval_every, (long long)o->eval_images, o->checkpoint,
        (long long)o->checkpoint_every, (long long)o->keep, o->trace, o->out != NULL);
}

/* The line in which two texts first differ, into line. */
static void line_at(const char *text, size_t position, char *line, size_t bytes) {
    while (position > 0 && text[position - 1] != '\n') position--;
    snprintf(line, bytes, "%.*s", (int)strcspn(text + position, "\n"), text + position);
}

rp_status rpi_train_agree(const rpi_trainer *t) {
    if (t->world == 1) return RP_OK;
    char own[CHOICES], first[CHOICES];
    describe(t, own);
    memcpy(first, own, sizeof first);
    RP_TRY(rp_broadcast(t->comm, first, sizeof first, RP_U8, NULL));
    size_t position = 0;
    while (position < CHOICES - 1 && own[position] == first[position]) position++;
    if (position == CHOICES - 1) return RP_OK;
    char mine[160], theirs[160];
    line_at(own, position, mine, sizeof mine);
    first[CHOICES - 1] = '\0';
    line_at(first, position, theirs, sizeof theirs);
    return RP_FAIL(MISMATCH, "rank %d has '%s', rank 0 has '%s'; start all ranks alike",
                   t->rank, mine, theirs);
}
