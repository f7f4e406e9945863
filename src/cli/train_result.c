/* What `redpoll train` says at the end. */
#include "cli/numbers.h"
#include "cli/train_profile.h"
#include "cli/train_settings.h"
#include "cli/train_signals.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *signal_name(int number) {
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

/* Prints a word quoted for a shell. */
static void print_quoted(const char *word) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (*word && !word[strspn(word, plain)]) {
        printf("%s", word);
        return;
    }
    putchar('\'');
    for (; *word; word++) {
        if (*word == '\'')
            printf("'\\''");
        else
            putchar(*word);
    }
    putchar('\'');
}

static void print_how_to_go_on(const rpi_train_settings *s, const rpi_world *world,
                               const rpi_train_result *result) {
    printf("stopped by %s after step %lld; ", signal_name(rpi_train_stop_signal()),
           (long long)(result->first_step + result->steps - 1));
    if (!s->train.checkpoint) {
        printf("nothing was saved, as --no-checkpoint says\n");
        return;
    }
    bool launched = world->ranks > 1 && !s->world.ranks;
    printf(launched ? "go on by starting it in the same way with --resume "
                    : "go on with: redpoll train --resume ");
    print_quoted(s->train.out);
    putchar('\n');
}

/* Most steps send next to nothing: a median would say that all do. */
static bool exchanges_seldom(const rpi_train_result *result) {
    return result->wire_bytes_median < .5 * result->wire_bytes_mean;
}

/* "2 replicas of 2 stages, each of 2 ranks that share its layers, times 2 that share sequences"
 */
static void print_layout(const rpi_train_options *o, int ranks) {
    int stages = o->stages > 1 ? (int)o->stages : 1;
    int tensor = o->tensor_ranks > 1 ? (int)o->tensor_ranks : 1;
    int context = o->context_ranks > 1 ? (int)o->context_ranks : 1;
    int replicas = ranks / stages / tensor / context;
    if (stages * tensor * context == 1) return;
    printf("%d replica%s of %d ", replicas, replicas == 1 ? "" : "s",
           stages > 1   ? stages
           : tensor > 1 ? tensor
                        : context);
    if (stages > 1 && tensor > 1)
        printf("stages, each of %d ranks that share its layers", tensor);
    else if (stages * tensor > 1)
        printf(stages > 1 ? "stages" : "ranks that share each layer");
    else
        printf("ranks that share each sequence");
    if (stages * tensor > 1 && context > 1)
        printf(", times %d ranks that share each sequence", context);
    putchar('\n');
}

void rpi_train_print_result(const rpi_train_settings *s, const rpi_world *world,
                            const rpi_train_result *result) {
    char time[3][RPI_TIME_BYTES], loss[RPI_NUMBER_BYTES];
    if (result->steps == 0)
        printf("nothing was left to train; --steps says how far to go\n");
    else
        printf("%lld steps in %s, %.1f %s/s (median), loss %s\n", (long long)result->steps,
               rpi_time_text(result->seconds, time[0]), result->rate_median, result->unit,
               rpi_loss_text(result->last_loss, loss));
    if (result->steps > 0 && world->ranks > 1 && exchanges_seldom(result))
        printf("a step: %s (median); on average %.3f MB sent by a rank and %s exposed\n",
               rpi_time_text(result->step_s_median, time[0]), 1e-6 * result->wire_bytes_mean,
               rpi_time_text(result->exposed_s_mean, time[1]));
    else if (result->steps > 0 && world->ranks > 1)
        printf("a step (median): %s, %.3f MB sent by a rank, communication %s, of which %s "
               "exposed\n",
               rpi_time_text(result->step_s_median, time[0]), 1e-6 * result->wire_bytes_median,
               rpi_time_text(result->comm_s_median, time[1]),
               rpi_time_text(result->exposed_s_median, time[2]));
    print_layout(&s->train, world->ranks);
    if (result->steps > 0 && !isnan(result->activations_error))
        printf("activations travelled by %s: off by %.3g %%, their gradients by %.3g %%\n",
               s->train.activations_codec, 100 * result->activations_error,
               100 * result->activation_gradients_error);
    if (result->back[0]) printf("back: %s\n", result->back);
    if (result->lost[0])
        printf("lost: %s; %d of %d ranks have ended the run\n", result->lost, result->ranks,
               world->ranks);
    rpi_train_profile_print(&result->profile, stdout);
    printf("results are in %s\n", s->train.out);
    if (result->stopped) print_how_to_go_on(s, world, result);
}
