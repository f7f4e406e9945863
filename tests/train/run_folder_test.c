/* Which folders a run may write to, and what it finds gone there. */
#include "train/checkpoint/run_folder.h"

#include "harness/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_folder(const char *name) {
    static char paths[64][900]; /* some are kept in options */
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", check_folder(), name);
    return path;
}

static void put(const char *name) {
    FILE *stream = fopen(in_folder(name), "w");
    if (stream) fclose(stream);
}

static bool is_there(const char *name) {
    return access(in_folder(name), F_OK) == 0;
}

/* Each of these alone tells that a run has been there. */
static const char *const traces[] = {"model.safetensors", "model-step-7.safetensors",
                                     "metrics.jsonl"};
enum { TRACES = sizeof traces / sizeof traces[0] };

static void a_folder_that_holds_a_run_is_refused(void) {
    for (int i = 0; i < TRACES; i++) {
        char name[96];
        snprintf(name, sizeof name, "run%d", i);
        mkdir(in_folder(name), 0700);
        rpi_train_options options = {.out = in_folder(name)};
        CHECK_OK(rpi_run_folder_check(&options)); /* empty */
        snprintf(name, sizeof name, "run%d/notes.txt", i);
        put(name);
        CHECK_OK(rpi_run_folder_check(&options)); /* of no run */
        snprintf(name, sizeof name, "run%d/%s", i, traces[i]);
        put(name);
        CHECK_FAILS(rpi_run_folder_check(&options), INVALID, "holds a run already");
        options.overwrite = true;
        CHECK_OK(rpi_run_folder_check(&options));
        options.overwrite = false;
        options.resume = check_folder(); /* of another folder */
        CHECK_FAILS(rpi_run_folder_check(&options), INVALID, "holds a run already");
        options.resume = options.out;
        CHECK_OK(rpi_run_folder_check(&options));
    }
}

static void what_is_no_folder_is_refused(void) {
    rpi_train_options options = {0};
    CHECK_OK(rpi_run_folder_check(&options)); /* nothing is written */
    options.out = in_folder("missing");
    CHECK_OK(rpi_run_folder_check(&options));
    CHECK(!is_there("missing")); /* and nothing made */
    put("file");
    options.out = in_folder("file");
    CHECK_FAILS(rpi_run_folder_check(&options), INVALID, "file is not a folder");
    char longest[902] = "";
    memset(longest, 'x', 900);
    options.out = longest;
    CHECK_OK(rpi_run_folder_check(&options));
    memset(longest, 'x', 901);
    CHECK_FAILS(rpi_run_folder_check(&options), INVALID, "longer than 900 bytes");
}

/* One folder may have several names; two may have the same files. */
static void it_continues_where_it_resumes_from(void) {
    mkdir(in_folder("one"), 0700);
    mkdir(in_folder("two"), 0700);
    REQUIRE(symlink("one", in_folder("other-name")) == 0);
    rpi_train_options options = {.out = in_folder("one")};
    CHECK(!rpi_run_folder_continues(&options));
    options.resume = in_folder("other-name");
    CHECK(rpi_run_folder_continues(&options));
    options.resume = in_folder("two");
    CHECK(!rpi_run_folder_continues(&options));
    options.resume = in_folder("gone");
    CHECK(!rpi_run_folder_continues(&options));
    options.out = in_folder("gone");
    CHECK(!rpi_run_folder_continues(&options));
    options.out = NULL;
    options.resume = in_folder("one");
    CHECK(!rpi_run_folder_continues(&options));
}

static const char *const of_the_old_run[] = {
    "again/model.safetensors",
    "again/model-step-7.safetensors",
    "again/rank-0-of-2-step-9.safetensors",
    "again/trace.json",
};
static const char *const of_the_user[] = {
    "again/notes.txt",      "again/other.safetensors", "again/model-step-7.safetensors.bak",
    "again/rank-notes.txt", "again/rank-list",
};
enum {
    OLD = sizeof of_the_old_run / sizeof of_the_old_run[0],
    USERS = sizeof of_the_user / sizeof of_the_user[0]
};

static void fill_again(void) {
    mkdir(in_folder("again"), 0700);
    for (int i = 0; i < OLD; i++) put(of_the_old_run[i]);
    for (int i = 0; i < USERS; i++) put(of_the_user[i]);
}

static void expect(bool old_run) {
    for (int i = 0; i < OLD; i++)
        CHECK_MSG(is_there(of_the_old_run[i]) == old_run, "%s", of_the_old_run[i]);
    for (int i = 0; i < USERS; i++)
        CHECK_MSG(is_there(of_the_user[i]), "%s is gone", of_the_user[i]);
}

static void starting_over_removes_the_old_checkpoint_alone(void) {
    rpi_train_options options = {.out = in_folder("again"), .overwrite = true};
    fill_again();
    CHECK_OK(rpi_run_folder_make(&options, 1)); /* rank 0 does it */
    expect(true);
    rpi_train_options on = {.out = options.out, .resume = options.out};
    CHECK_OK(rpi_run_folder_make(&on, 0));
    expect(true);
    CHECK_OK(rpi_run_folder_make(&options, 0));
    expect(false);
}

static void it_is_made_with_its_parents(void) {
    rpi_train_options options = {.out = in_folder("a/b/c")};
    CHECK_OK(rpi_run_folder_make(&(rpi_train_options){0}, 0));
    CHECK_OK(rpi_run_folder_make(&options, 0));
    CHECK(is_there("a/b/c"));
    put("plain");
    options.out = in_folder("plain/d");
    CHECK_FAILS(rpi_run_folder_make(&options, 0), IO, "plain");
    if (geteuid() == 0) return; /* whom no mode keeps out */
    mkdir(in_folder("closed"), 0500);
    options.out = in_folder("closed");
    CHECK_FAILS(rpi_run_folder_make(&options, 0), IO, "cannot write to the folder");
}

CASES({"a folder that holds a run is refused", a_folder_that_holds_a_run_is_refused},
      {"what is no folder is refused", what_is_no_folder_is_refused},
      {"it continues where it resumes from", it_continues_where_it_resumes_from},
      {"starting over removes the old checkpoint alone",
       starting_over_removes_the_old_checkpoint_alone},
      {"it is made with its parents", it_is_made_with_its_parents})
