#include "harness/check.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/safetensors.h"
#include "train_ranks.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int files_in(const char *path) {
    int count = 0;
    DIR *stream = opendir(path);
    for (struct dirent *entry; stream && (entry = readdir(stream)) != NULL;)
        count += entry->d_name[0] != '.';
    if (stream) closedir(stream);
    return count;
}

static rpi_train_options small_options(const char *codec) {
    rpi_train_options options = ranks_options();
    options.codec = codec;
    options.overwrite = true;
    options.eval = false;
    return options;
}

/* Train to `steps` in one go, and with a stop in between. */
static void compare_stopped(rpi_train_options options, int world, int64_t stop, int64_t steps) {
    options.steps = steps;
    options.lr_schedule = "constant";
    options.out = ranks_folder("whole");
    REQUIRE_OK(ranks_train(&options, world, NULL));
    options.steps = stop;
    options.out = ranks_folder("parts");
    REQUIRE_OK(ranks_train(&options, world, NULL));
    options.steps = steps;
    options.resume = options.out;
    options.overwrite = false;
    rpi_train_result result = {0};
    REQUIRE_OK(ranks_train(&options, world, &result));
    CHECK_EQ(result.first_step, stop + 1);
    CHECK_EQ(result.steps, steps - stop);
    CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), "model.safetensors"),
                          ranks_path(ranks_folder("parts"), "model.safetensors")));
    bool has_rank_files = world > 1 && strcmp(options.codec, "fp32") != 0;
    for (int rank = 0; rank < world && has_rank_files; rank++) {
        char name[96];
        snprintf(name, sizeof name, "rank-%d-of-%d-step-%lld.safetensors", rank, world,
                 (long long)steps);
        CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), name),
                              ranks_path(ranks_folder("parts"), name)));
    }
}

static void stopping_changes_no_byte(void) {
    static const char *const codecs[] = {"fp32", "q4", "q2:rounding=stochastic",
                                         "q1:bucket=64"};
    for (size_t c = 0; c < sizeof codecs / sizeof codecs[0]; c++)
        for (int world = 1; world <= 3; world++)
            compare_stopped(small_options(codecs[c]), world, 4, 9);
    rpi_train_options options = small_options("q4");
    options.optimizer = "adamw";
    compare_stopped(options, 2, 4, 9);
}

/* Whichever rank is told to end: all do after the same step, and going on gives the bytes of a
 * run that nobody stopped. */
static void a_preempted_run_goes_on_to_the_same_bytes(void) {
    static const char *const codecs[] = {"fp32", "q2:rounding=stochastic"};
    for (int c = 0; c < 2; c++)
        for (int world = 1; world <= 3; world++) {
            rpi_train_options options = small_options(codecs[c]);
            options.lr_schedule = "cosine";
            options.eval = true;
            options.eval_every = 2;
            options.log_every = 1; /* all know it in the step in which one is told */
            options.out = ranks_folder("unbroken");
            REQUIRE_OK(ranks_train(&options, world, NULL));
            options.out = ranks_folder("preempted");
            rpi_train_result result = {0};
            for (int stop = 0; stop < 3; stop++) {
                ranks_ask((ranks_wish){stop % world, stop + 2, RPI_ASKED_STOP});
                REQUIRE_OK(ranks_train(&options, world, &result));
                CHECK(result.stopped);
                CHECK_EQ(result.steps, stop + 2);
                options.resume = options.out;
                options.overwrite = false;
            }
            CHECK_EQ(result.first_step + result.steps - 1, 9);
            ranks_ask((ranks_wish){0});
            REQUIRE_OK(ranks_train(&options, world, &result));
            CHECK(!result.stopped && result.evaluated);
            CHECK_EQ(result.steps, 1);
            CHECK(ranks_same_file(ranks_path(ranks_folder("unbroken"), "model.safetensors"),
                                  ranks_path(ranks_folder("preempted"), "model.safetensors")));
        }
}

static void one_that_is_asked_for_changes_nothing(void) {
    rpi_train_options options = small_options("q4");
    options.keep = 9;
    options.log_every = 1;
    options.out = ranks_folder("unasked");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.out = ranks_folder("asked");
    ranks_ask((ranks_wish){1, 3, RPI_ASKED_SAVE});
    rpi_train_result result = {0};
    REQUIRE_OK(ranks_train(&options, 2, &result));
    ranks_ask((ranks_wish){0});
    CHECK(!result.stopped);
    CHECK_EQ(result.steps, 10);
    CHECK(access(ranks_path(options.out, "model-step-3.safetensors"), F_OK) == 0);
    CHECK(access(ranks_path(options.out, "rank-1-of-2-step-3.safetensors"), F_OK) == 0);
    CHECK(ranks_same_file(ranks_path(ranks_folder("unasked"), "model.safetensors"),
                          ranks_path(options.out, "model.safetensors")));
    options.checkpoint_time_s = 1e-9; /* after every step */
    options.out = ranks_folder("timed");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK(access(ranks_path(options.out, "model-step-2.safetensors"), F_OK) == 0);
    CHECK_EQ(files_in(options.out), 9 * 3 + 1);
    CHECK(ranks_same_file(ranks_path(ranks_folder("unasked"), "model.safetensors"),
                          ranks_path(options.out, "model.safetensors")));
    options.checkpoint = false; /* nothing is saved, and it ends all the same */
    options.out = ranks_folder("unsaved");
    ranks_ask((ranks_wish){1, 3, RPI_ASKED_STOP});
    REQUIRE_OK(ranks_train(&options, 2, &result));
    ranks_ask((ranks_wish){0});
    CHECK(result.stopped);
    CHECK_EQ(result.steps, 3);
    CHECK_EQ(files_in(options.out), 1);
}

static void running_statistics_resume_exactly(void) {
    rpi_train_options options = small_options("q4");
    options.model = "resnet20:width=2";
    options.train_images = 24;
    options.global_batch_size = 4;
    compare_stopped(options, 2, 2, 4);
}

static void old_rank_files_go(void) {
    rpi_train_options options = small_options("q4");
    options.checkpoint_every = 2;
    options.out = ranks_folder("many");
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    CHECK_EQ(files_in(options.out), 3 + 2); /* of three ranks; the model and the metrics */
    options.steps = 12;
    options.resume = options.out;
    options.overwrite = false;
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    CHECK_EQ(files_in(options.out), 2 + 2);
}

static void so_many_are_kept(void) {
    rpi_train_options options = small_options("q4");
    options.checkpoint_every = 2;
    options.keep = 3;
    options.out = ranks_folder("kept");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    static const char *const stay[] = {
        "model.safetensors",
        "model-step-8.safetensors",
        "model-step-6.safetensors",
        "rank-0-of-2-step-10.safetensors",
        "rank-1-of-2-step-8.safetensors",
        "rank-1-of-2-step-6.safetensors",
    };
    for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++)
        CHECK_MSG(access(ranks_path(options.out, stay[i]), F_OK) == 0, "%s is gone", stay[i]);
    CHECK_EQ(files_in(options.out), 3 * 3 + 1);
    options.steps = 13;
    options.keep = 1;
    options.resume = options.out;
    options.overwrite = false;
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    CHECK_EQ(files_in(options.out), 1 + 3 + 1);
}

static void flip(const char *path, long at, unsigned char bits) {
    FILE *stream = fopen(path, "r+b");
    if (!stream) return;
    fseek(stream, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(stream);
    fseek(stream, -1, SEEK_CUR);
    fputc(byte ^ bits, stream);
    fclose(stream);
}

/* The newest is damaged, or a part of it is: named, and the run goes on from the one before,
 * to the same bytes. */
static void a_damaged_checkpoint_gives_way_to_the_one_before(void) {
    static const struct {
        const char *file, *said;
        int cut; /* to nothing, instead of one bit; 2: gone; 3: another run's */
    } damages[] = {
        {"model.safetensors", "model.safetensors is damaged: its bytes do not match", 0},
        {"model.safetensors", "model.safetensors is no safetensors file: it is too short", 1},
        {"model.safetensors", "model.safetensors is missing", 2},
        {"rank-1-of-2-step-10.safetensors", "the part of rank 1 of the checkpoint", 0},
        {"rank-0-of-2-step-10.safetensors", "rank-0-of-2-step-10.safetensors is missing", 2},
        {"rank-1-of-2-step-10.safetensors", "rank-1-of-2-step-10.safetensors is of another run",
         3},
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        rpi_train_options options = small_options("q4");
        options.checkpoint_every = 4;
        options.keep = 2;
        options.out = ranks_folder("sound");
        REQUIRE_OK(ranks_train(&options, 2, NULL));
        rpi_train_options another = options;
        another.seed = 7;
        another.out = ranks_folder("another");
        REQUIRE_OK(ranks_train(&another, 2, NULL));
        options.out = ranks_folder("hurt");
        REQUIRE_OK(ranks_train(&options, 2, NULL));
        const char *hurt = ranks_path(options.out, damages[i].file);
        if (damages[i].cut == 0) flip(hurt, -9, 4);
        if (damages[i].cut == 1) REQUIRE(truncate(hurt, 0) == 0);
        if (damages[i].cut == 2) REQUIRE(unlink(hurt) == 0);
        if (damages[i].cut == 3)
            REQUIRE(rename(ranks_path(another.out, damages[i].file), hurt) == 0);
        options.resume = options.out;
        options.overwrite = false;
        CHECK_OK(rpi_checkpoint_check(&options));
        rpi_train_result result = {0};
        REQUIRE_OK(ranks_train(&options, 2, &result));
        CHECK_EQ(result.first_step, 9);
        CHECK_MSG(strstr(ranks_notes(), damages[i].said) &&
                      strstr(ranks_notes(), "going on from the one of step 8"),
                  "the note is '%s'", ranks_notes());
        CHECK(ranks_same_file(ranks_path(ranks_folder("sound"), "model.safetensors"),
                              ranks_path(options.out, "model.safetensors")));
        CHECK_EQ(files_in(options.out), 2 * 3 + 1);
    }
}

static void any_one_bit_is_noticed(void) {
    rpi_train_options options = small_options("q4");
    options.model = "mlp:hidden=4";
    options.steps = 1;
    options.out = ranks_folder("bits");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    const char *path = ranks_path(options.out, "model.safetensors");
    size_t bytes = 0;
    free(ranks_file(path, &bytes));
    int unnoticed = 0;
    size_t step = check_long() ? 1 : 5; /* through the header, where most goes wrong */
    for (size_t bit = 0; bit < 8 * bytes; bit += bit < 8 * 1600 ? step : 997) {
        flip(path, (long)(bit / 8), (unsigned char)(1u << bit % 8));
        rpi_train_options again = options;
        again.resume = options.out;
        rp_status status = rpi_checkpoint_check(&again);
        unnoticed += status == RP_OK;
        if (status == RP_OK && unnoticed < 9) printf("bit %zu is not missed\n", bit);
        flip(path, (long)(bit / 8), (unsigned char)(1u << bit % 8));
    }
    CHECK_EQ(unnoticed, 0);
}

/* Damage of the checksum's name, and of the name that says who wrote the file. */
static void a_file_without_a_checksum_is_no_checkpoint(void) {
    static const char *const names[] = {"\"checksum\"", "\"redpoll\""};
    rpi_train_options options = small_options("fp32");
    options.steps = 1;
    options.out = ranks_folder("nameless");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    const char *path = ranks_path(options.out, "model.safetensors");
    size_t bytes = 0;
    char *text = (char *)ranks_file(path, &bytes);
    for (int i = 0; i < 2; i++) {
        char *name = memmem(text, bytes, names[i], strlen(names[i]));
        REQUIRE(name);
        flip(path, name + 3 - text, 1);
    }
    free(text);
    options.resume = options.out;
    CHECK_EQ(rpi_checkpoint_check(&options), RP_CORRUPT);
    CHECK_MSG(strstr(rp_last_error()->message, "model.safetensors has no checksum"), "%s",
              rp_last_error()->message);
}

static void another_ranks_part_is_refused(void) {
    rpi_train_options options = small_options("q4");
    options.out = ranks_folder("swapped");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    const char *mine = ranks_path(options.out, "rank-0-of-2-step-10.safetensors");
    REQUIRE(rename(mine, ranks_path(options.out, "rank-1-of-2-step-10.safetensors")) == 0);
    options.resume = options.out;
    options.overwrite = false;
    options.steps = 12;
    CHECK_FAILS(ranks_train(&options, 2, NULL), NOT_FOUND, "the part of rank 0");
    CHECK_FAILS(ranks_train(&options, 3, NULL), NOT_FOUND, "the part of rank 0");
    REQUIRE(link(ranks_path(options.out, "rank-1-of-2-step-10.safetensors"), mine) == 0);
    CHECK_FAILS(ranks_train(&options, 2, NULL), CORRUPT,
                "rank-1-of-2-step-10.safetensors is the part of rank 0 of 2 of step 10");
}

/* The sum over ranks of one tensor's error feedback. */
static double owed(const char *out, int world, int64_t step, double *size) {
    double sum = 0;
    *size = 0;
    for (int rank = 0; rank < world; rank++) {
        char name[96];
        snprintf(name, sizeof name, "rank-%d-of-%d-step-%lld.safetensors", rank, world,
                 (long long)step);
        rpi_safetensors *file = NULL;
        CHECK_OK(rpi_safetensors_open(ranks_path(out, name), &file));
        const rpi_named_tensor *tensor =
            file ? rpi_safetensors_find(file, "residual.fc1.weight") : NULL;
        CHECK(tensor != NULL);
        if (!tensor) return 0;
        size_t count = (size_t)rpi_shape_count(&tensor->shape);
        float *values = calloc(count, sizeof *values);
        CHECK_OK(rpi_safetensors_read(file, tensor->name, RP_F32, &tensor->shape, values));
        for (size_t i = 0; i < count; i++) {
            sum += (double)values[i] * (double)(i % 7 + 1);
            *size += fabs((double)values[i]) * 7;
        }
        free(values);
        rpi_safetensors_close(file);
    }
    return sum;
}

static rp_status save_at_once(void *context, rp_comm *comm) {
    const rpi_train_options *options = context;
    rpi_trainer trainer = {0};
    char note[512];
    rp_status status = rpi_trainer_open(&trainer, options, comm);
    if (status == RP_OK)
        status = rpi_checkpoint_load(&trainer, options->resume, note, sizeof note);
    if (status == RP_OK) mkdir(options->out, 0700);
    if (status == RP_OK) status = rpi_checkpoint_save(&trainer, options->out);
    rpi_trainer_close(&trainer);
    return status;
}

static void another_number_of_ranks_keeps_what_is_owed(void) {
    rpi_train_options options = small_options("q2");
    options.out = ranks_folder("three");
    REQUIRE_OK(ranks_train(&options, 3, NULL));
    options.resume = ranks_folder("three");
    double size, before = owed(options.resume, 3, 10, &size);
    CHECK(size > 0);
    for (int world = 2; world <= 4; world += 2) {
        char name[16];
        snprintf(name, sizeof name, "again-%d", world);
        options.out = ranks_folder(name);
        REQUIRE_OK(ranks_run(world, save_at_once, &options));
        double ignored, after = owed(options.out, world, 10, &ignored);
        CHECK_NEAR(after, before, 1e-6 * size);
    }
    options.steps = 14;
    options.out = ranks_folder("on");
    CHECK_OK(ranks_train(&options, 2, NULL));
    options.out = ranks_folder("alone");
    CHECK_OK(ranks_train(&options, 1, NULL));
}

static void a_checkpoint_of_another_model_names_both(void) {
    rpi_train_options options = small_options("fp32");
    options.steps = 1;
    options.out = ranks_folder("mlp");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.resume = options.out;
    options.out = ranks_folder("other");
    options.model = "resnet20:width=2";
    CHECK_FAILS(ranks_train(&options, 2, NULL), MISMATCH,
                "holds the model mlp:hidden=48, not resnet20:width=2");
    CHECK(access(options.out, F_OK) != 0);
    CHECK_FAILS(rpi_checkpoint_check(&options), MISMATCH, "mlp:hidden=48");
    options.resume = ranks_folder("nothing");
    CHECK_FAILS(ranks_train(&options, 1, NULL), NOT_FOUND,
                "nothing/model.safetensors is missing: there is no checkpoint to go on from");
    CHECK_FAILS(rpi_checkpoint_check(&options), NOT_FOUND, "no checkpoint to go on from");
}

static void a_checkpoint_of_another_optimizer_names_both(void) {
    rpi_train_options options = small_options("fp32");
    options.optimizer = "adamw";
    options.out = ranks_folder("adamw");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    options.resume = options.out;
    options.overwrite = false;
    options.steps = 12;
    options.optimizer = "lamb"; /* whose state has the same names */
    CHECK_OK(rpi_checkpoint_check(&options));
    options.optimizer = "sgd";
    CHECK_FAILS(rpi_checkpoint_check(&options), MISMATCH,
                "holds the state of --optimizer adamw");
    for (int world = 1; world <= 2; world++)
        CHECK_FAILS(ranks_train(&options, world, NULL), MISMATCH,
                    "leave --optimizer out, or say adamw");
}

static void a_model_in_other_words_is_the_same(void) {
    rpi_train_options options = small_options("fp32");
    options.steps = 1;
    options.model = "resnet20:width=2";
    options.out = ranks_folder("words");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    options.resume = options.out;
    options.out = ranks_folder("other-words");
    options.steps = 2;
    options.model = "resnet20:norm=batch,width=2";
    CHECK_OK(rpi_checkpoint_check(&options));
    CHECK_OK(ranks_train(&options, 1, NULL));
    options.model = "resnet20:norm=group,width=2";
    CHECK_FAILS(rpi_checkpoint_check(&options), MISMATCH, "not resnet20:norm=group,width=2");
}

static void going_on_and_starting_over_exclude_each_other(void) {
    rpi_train_options options = small_options("fp32");
    options.steps = 2;
    options.out = ranks_folder("both");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    options.resume = options.out;
    CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID, "say one of them");
    CHECK_FAILS(rpi_train_check(&options, 0), INVALID, "say one of them");
    options.out =
        ranks_folder("both-other"); /* to go on into another folder that holds a run */
    CHECK_OK(ranks_train(&options, 1, NULL));
}

static void a_lost_rank_file_is_named(void) {
    rpi_train_options options = small_options("q4");
    options.out = ranks_folder("lost");
    REQUIRE_OK(ranks_train(&options, 2, NULL));
    REQUIRE(unlink(ranks_path(options.out, "rank-1-of-2-step-10.safetensors")) == 0);
    options.resume = options.out;
    options.overwrite = false;
    options.steps = 12;
    CHECK_FAILS(ranks_train(&options, 2, NULL), NOT_FOUND, "the part of rank 1");
    CHECK_FAILS(ranks_train(&options, 3, NULL), NOT_FOUND, "rank-1-of-2-step-10");
}

/* Rank 1's part goes to a disk that is full: every rank fails with its name, and the checkpoint
 * that was there stays. */
static void a_full_disk_fails_all_and_keeps_the_old_checkpoint(void) {
    if (access("/dev/full", W_OK) != 0) {
        check_skip("no /dev/full here");
        return;
    }
    static const char *const full[] = {"rank-1-of-2-step-4.safetensors.tmp",
                                       "model.safetensors.tmp"};
    for (int i = 0; i < 2; i++) {
        rpi_train_options options = small_options("q4");
        options.steps = 2;
        options.out = ranks_folder(i ? "full-model" : "full-rank");
        REQUIRE_OK(ranks_train(&options, 2, NULL));
        REQUIRE(symlink("/dev/full", ranks_path(options.out, full[i])) == 0);
        options.resume = options.out;
        options.overwrite = false;
        options.steps = 4;
        CHECK(ranks_train(&options, 2, NULL) != RP_OK);
        char who[64];
        snprintf(who, sizeof who, "rank %d cannot save the checkpoint of step 4", i ? 0 : 1);
        for (int rank = 0; rank < 2; rank++)
            CHECK_MSG(strstr(ranks_message(rank), who) &&
                          strstr(ranks_message(rank), "No space"),
                      "rank %d says '%s'", rank, ranks_message(rank));
        rpi_train_result result = {0};
        CHECK_OK(ranks_train(&options, 2, &result)); /* what was aside is gone: it works now */
        CHECK_EQ(result.first_step, 3);
    }
}

CASES({"stopping changes no byte", stopping_changes_no_byte},
      {"a preempted run goes on to the same bytes", a_preempted_run_goes_on_to_the_same_bytes},
      {"one that is asked for changes nothing", one_that_is_asked_for_changes_nothing},
      {"running statistics resume exactly", running_statistics_resume_exactly},
      {"old rank files go", old_rank_files_go}, {"so many are kept", so_many_are_kept},
      {"a damaged checkpoint gives way to the one before",
       a_damaged_checkpoint_gives_way_to_the_one_before},
      {"any one bit is noticed", any_one_bit_is_noticed},
      {"a file without a checksum is no checkpoint",
       a_file_without_a_checksum_is_no_checkpoint},
      {"another rank's part is refused", another_ranks_part_is_refused},
      {"another number of ranks keeps what is owed",
       another_number_of_ranks_keeps_what_is_owed},
      {"a checkpoint of another optimizer names both",
       a_checkpoint_of_another_optimizer_names_both},
      {"a checkpoint of another model names both", a_checkpoint_of_another_model_names_both},
      {"a model in other words is the same", a_model_in_other_words_is_the_same},
      {"going on and starting over exclude each other",
       going_on_and_starting_over_exclude_each_other},
      {"a lost rank file is named", a_lost_rank_file_is_named},
      {"a full disk fails all and keeps the old checkpoint",
       a_full_disk_fails_all_and_keeps_the_old_checkpoint})
