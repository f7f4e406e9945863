/* Folders of pictures as data: what is listed, dealt, held out, refused, and learnt from. */
#include "harness/check.h"
#include "picture_files.h"
#include "redpoll/log.h"
#include "train/data/dataset.h"
#include "train/data/picture_data.h"
#include "train/data/picture_options.h"
#include "train/data/source.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES = 3, PER_CLASS = 5, HELD_OUT = 2, SIZE = 16, PIXELS = SIZE * SIZE };
enum { PICTURES = CLASSES * PER_CLASS };

/* "été" sorts behind "zebra" by its bytes, whatever a locale says. */
static const char *const classes[CLASSES] = {"Ant", "zebra", "\xc3\xa9t\xc3\xa9"};

/* A picture tells its class by its red, its number by its green. */
static void colour_of(int label, int number, uint8_t rgb[3]) {
    rgb[0] = (uint8_t)(40 + 80 * label);
    rgb[1] = (uint8_t)(10 + 20 * number);
    rgb[2] = 100;
}

static void put(const char *root, int label, const char *name, int number) {
    uint8_t rgb[3];
    colour_of(label, number, rgb);
    picture_put(root, classes[label], name, 20 + 3 * number, 30 - 2 * number, rgb);
}

/* FOLDER/train and FOLDER/val, written in an order of chance. */
static const char *make_folder(const char *name) {
    static char root[700];
    char train[720], val[720], file[32];
    snprintf(root, sizeof root, "%s/%s", check_folder(), name);
    snprintf(train, sizeof train, "%s/train", root);
    snprintf(val, sizeof val, "%s/val", root);
    for (int i = 0; i < PICTURES; i++) {
        int at = i * 7 % PICTURES;
        snprintf(file, sizeof file, "p%d.%s", at % PER_CLASS, at % 2 ? "png" : "PNG");
        put(train, at / PER_CLASS, file, at % PER_CLASS);
    }
    for (int i = 0; i < CLASSES * HELD_OUT; i++) {
        snprintf(file, sizeof file, "v%d.png", i % HELD_OUT);
        put(val, i / HELD_OUT, file, i % HELD_OUT);
    }
    return root;
}

static const char *data_of(const char *root, const char *rest) {
    static char text[2000];
    snprintf(text, sizeof text, "images:%s%s", root, rest);
    return text;
}

static rpi_source_options options_of(const char *data) {
    return (rpi_source_options){.data = data,
                                .seed = 5,
                                .pictures = {.size = SIZE},
                                .global_batch = 4,
                                .most = 4,
                                .world = 1};
}

/* ---- the log, as it comes ---- */

static char told[4096];

static void listen(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level;
    size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s\n", line);
}

static void start_listening(void) {
    told[0] = '\0';
    rp_log_set_sink(listen, NULL);
}

/* ---- what is dealt ---- */

/* The number behind a channel of picture i. */
static int level_of(const rpi_source_batch *batch, int64_t i, int channel) {
    static const double means[] = {0.485, 0.456, 0.406}, deviations[] = {0.229, 0.224, 0.225};
    const float *images = batch->inputs[0];
    double x = (double)images[(i * 3 + channel) * PIXELS + PIXELS / 2 + SIZE / 2];
    return (int)lround((x * deviations[channel] + means[channel]) * 255);
}

static int32_t label_of(const rpi_source_batch *batch, int64_t i) {
    return ((const int32_t *)batch->inputs[1])[i];
}

static void every_picture_comes_once_an_epoch(void) {
    rpi_source source;
    rpi_source_options options = options_of(data_of(make_folder("epoch"), ""));
    REQUIRE_OK(rpi_source_open(&options, &source));
    CHECK_EQ(source.train_count, PICTURES);
    CHECK_EQ(source.test_count, CLASSES * HELD_OUT);
    CHECK_EQ(source.shape.classes, CLASSES);
    CHECK_EQ(source.shape.channels, 3);
    CHECK_EQ(source.shape.height, SIZE);
    CHECK_EQ(rpi_source_steps_per_epoch(&source), 4);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[PICTURES] = {0};
        for (int step = 0; step < 4; step++) {
            rpi_source_batch batch;
            REQUIRE_OK(rpi_source_deal(&source, epoch * 4 + step, &batch));
            CHECK_EQ(batch.count, step < 3 ? 4 : 3);
            CHECK_EQ(batch.global_labels, batch.count);
            for (int64_t i = 0; i < batch.count; i++) {
                int label = label_of(&batch, i), number = (level_of(&batch, i, 1) - 10) / 20;
                CHECK_EQ(level_of(&batch, i, 0), 40 + 80 * label);
                CHECK_EQ(level_of(&batch, i, 2), 100);
                seen[label * PER_CLASS + number]++;
            }
        }
        for (int i = 0; i < PICTURES; i++) CHECK_EQ(seen[i], 1);
    }
    rpi_source_close(&source);
}

/* The picture at 0 has the level 100 of blue. */
static void colours_can_be_from_minus_one_to_one(void) {
    static const struct {
        const char *rest;
        double blue;
    } rows[] = {{",normalize=half", 100 / 127.5 - 1},
                {",validation=20%,normalize=imagenet", (100 / 255.0 - 0.406) / 0.225}};
    for (int i = 0; i < 2; i++) {
        rpi_source source;
        rpi_source_batch batch;
        rpi_source_options options = options_of(data_of(make_folder("colours"), rows[i].rest));
        REQUIRE_OK(rpi_source_open(&options, &source));
        REQUIRE_OK(rpi_source_hold_out(&source, 0, 1, &batch));
        const float *images = batch.inputs[0];
        CHECK_NEAR(images[2 * PIXELS], rows[i].blue, 1e-6);
        rpi_source_close(&source);
    }
}

static void the_held_out_lie_in_order(void) {
    rpi_source source;
    rpi_source_batch batch;
    rpi_source_options options = options_of(data_of(make_folder("held-out"), ""));
    options.pictures.threads = 3;
    REQUIRE_OK(rpi_source_open(&options, &source));
    REQUIRE_OK(rpi_source_hold_out(&source, 2, 4, &batch));
    CHECK_EQ(batch.count, 4);
    CHECK_EQ(batch.labels, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(label_of(&batch, i), (2 + i) / HELD_OUT);
        CHECK_EQ(level_of(&batch, i, 1), 10 + 20 * (i % HELD_OUT));
    }
    rpi_source_close(&source);
}

/* A thousandth of a picture's bytes, which differ where its box does. */
static void add_to_sum(const rpi_source_batch *batch, int64_t i, uint64_t *sum) {
    const uint32_t *words = (const uint32_t *)batch->inputs[0] + i * 3 * PIXELS;
    for (int p = 0; p < 3 * PIXELS; p++) *sum = *sum * 31 + words[p];
}

enum { STEPS = 9, FIRST = 6 };

/* A sum of each sample of steps [first, STEPS), in the world's order. */
static void deal_all(const char *data, int world, int threads, int first,
                     uint64_t sums[STEPS][4]) {
    for (int rank = 0; rank < world; rank++) {
        rpi_source source;
        rpi_source_options options = options_of(data);
        options.pictures.augment = "standard";
        options.pictures.threads = threads;
        options.rank = rank;
        options.world = world;
        REQUIRE_OK(rpi_source_open(&options, &source));
        for (int step = first; step < STEPS; step++) {
            rpi_source_batch batch;
            REQUIRE_OK(rpi_source_deal(&source, step, &batch));
            int64_t before = 0;
            for (int r = 0; r < rank; r++)
                before += batch.global_count / world + (r < batch.global_count % world);
            for (int64_t i = 0; i < batch.count; i++)
                add_to_sum(&batch, i, &sums[step][before + i]);
        }
        rpi_source_close(&source);
    }
}

/* Pictures of more than one colour, whose boxes can be told from each other. */
static const char *make_patterns(const char *name) {
    static char root[700];
    char path[800];
    snprintf(root, sizeof root, "%s/%s", check_folder(), name);
    for (int i = 0; i < PICTURES; i++) {
        picture_kind kind = i % 3 ? PICTURE_PNG_RGB : PICTURE_PNG_PALETTE;
        picture_file file = picture_encode(kind, 30 + i, 45 - i);
        snprintf(path, sizeof path, "%s/class%d/%d.png", root, i % CLASSES, i);
        picture_write(path, file.bytes, file.count);
        free(file.bytes);
    }
    return root;
}

/* The boxes of a run are its seed's: not its threads', ranks', or where it was resumed. */
static void boxes_depend_on_nothing_else(void) {
    static const struct {
        int world, threads, first;
    } runs[] = {{1, 4, 0}, {2, 1, 0}, {3, 3, 0}, {1, 2, FIRST}, {2, 2, FIRST}};
    char data[2000];
    uint64_t wanted[STEPS][4] = {{0}};
    snprintf(data, sizeof data, "%s", data_of(make_patterns("boxes"), ",validation=20%"));
    deal_all(data, 1, 1, 0, wanted);
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        uint64_t got[STEPS][4] = {{0}};
        deal_all(data, runs[r].world, runs[r].threads, runs[r].first, got);
        for (int step = runs[r].first; step < STEPS; step++)
            CHECK_MSG(memcmp(got[step], wanted[step], sizeof got[step]) == 0,
                      "%d ranks, %d threads, from step %d: step %d", runs[r].world,
                      runs[r].threads, runs[r].first, step);
    }
    CHECK(memcmp(wanted[0], wanted[3], sizeof wanted[0]) != 0);
}

/* ---- what is found ---- */

static void counts_of(const char *data, int64_t *out_train, int64_t *out_test) {
    rpi_source source;
    rpi_source_options options = options_of(data);
    *out_train = *out_test = -1;
    REQUIRE_OK(rpi_source_open(&options, &source));
    *out_train = source.train_count;
    *out_test = source.test_count;
    rpi_source_close(&source);
}

static void the_other_folder_is_found(void) {
    char root[700], words[800];
    int64_t train, test;
    snprintf(root, sizeof root, "%s", make_folder("found"));
    counts_of(data_of(root, "/train"), &train, &test);
    CHECK(train == PICTURES && test == CLASSES * HELD_OUT);
    counts_of(data_of(root, "/train/"), &train, &test);
    CHECK(train == PICTURES && test == CLASSES * HELD_OUT);
    counts_of(data_of(root, "/val"), &train, &test);
    CHECK(train == CLASSES * HELD_OUT - 1 && test == 1);
    counts_of(data_of(root, ",validation=20%"), &train, &test);
    CHECK(train == PICTURES - 3 && test == 3);
    snprintf(words, sizeof words, "/val,validation=%s/train", root);
    counts_of(data_of(root, words), &train, &test);
    CHECK(train == CLASSES * HELD_OUT && test == PICTURES);
}

/* A share is taken out of every class, not off the end. */
static void a_share_is_of_every_class(void) {
    rpi_source source;
    rpi_source_batch batch;
    rpi_source_options options =
        options_of(data_of(make_folder("share"), "/train,validation=0.2"));
    REQUIRE_OK(rpi_source_open(&options, &source));
    REQUIRE_OK(rpi_source_hold_out(&source, 0, 3, &batch));
    for (int i = 0; i < 3; i++) CHECK_EQ(label_of(&batch, i), i);
    rpi_source_close(&source);
}

static void other_files_are_told(void) {
    char path[800], root[700];
    int64_t train, test;
    snprintf(root, sizeof root, "%s", make_folder("others"));
    snprintf(path, sizeof path, "%s/train/Ant/notes.txt", root);
    picture_write(path, "hello", 5);
    snprintf(path, sizeof path, "%s/train/zebra/more/p9.gif", root);
    picture_write(path, "hello", 5);
    snprintf(path, sizeof path, "%s/train/beside.md", root); /* of no class */
    picture_write(path, "hello", 5);
    snprintf(path, sizeof path, "%s/train/zebra/.hidden", root);
    picture_write(path, "hello", 5);
    start_listening();
    counts_of(data_of(root, ""), &train, &test);
    rp_log_set_sink(NULL, NULL);
    CHECK_EQ(train, PICTURES);
    CHECK_MSG(
        strstr(told, "3 files are no pictures by name (.jpg, .jpeg, .png) and left out: ") &&
            strstr(told, "beside.md") && strstr(told, "Ant/notes.txt") &&
            strstr(told, "zebra/more/p9.gif"),
        "%s", told);
}

/* Layouts of folders, each file a picture of 4 x 4 unless it has a text; a layout that is not
 * here yet is a row. Labels are those of the pictures, in the order they are listed. */
#define TINY                                                                                   \
    "train/n1/images/a.png", "train/n2/images/b.png", "val/images/v0.png", "val/images/v1.png"
#define ANNOTATIONS "val/val_annotations.txt"
static const struct layout {
    const char *files[8];
    const char *texts[2]; /* a name, what it holds */
    const char *rest;     /* of the data's text */
    const char *wanted;   /* "train labels / held-out labels"; or "!" and what is said */
} layouts[] = {
    {{"a/1.png", "a/x/2.png", "a/x/y/3.png", "b/4.png"}, {0}, ",validation=25%", "000/1"},
    {{"a/images/1.png", "a/images/2.png", "b/images/1.png", "b/images/2.png"},
     {0},
     ",validation=50%",
     "01/01"},
    {{"train/a/1.png", "train/b/1.png", "train/c/1.png", "val/c/x/1.png", "val/b/2.png"},
     {0},
     "",
     "012/12"},
    {{"train/a/1.png", "train/b/1.png", "val/b/1.png"}, {0}, "", "01/1"},
    {{"train/a/1.png", "train/b/1.png", "val/d/1.png"}, {0}, "", "!has the class 'd', which "},
    {{"train/a/1.png", "train/b/1.png", "val/1.png"},
     {0},
     "",
     "!/val holds pictures itself (1.png)"},
    {{"train/a/1.png", "train/b/1.png", "val/images/1.png"},
     {0},
     "",
     "!has the class 'images', which "},
    {{"training/a/1.png", "training/b/1.png", "testing/a/1.png"},
     {0},
     "",
     "!/testing is no class, but has folders of its own: name the parts, as images:"},
    {{"Train/a/1.png", "Train/b/1.png", "Val/a/1.png"}, {0}, "", "!/Train,validation="},
    {{"test/1.png", "train-station/x/1.png"}, {0}, ",validation=50%", "0/1"},

    /* a class that is called as a part is */
    {{"bus/1.png", "car/1.png", "train/1.png", "train/2.png"}, {0}, ",validation=50%", "02/12"},
    {{"bus/1.png", "test/1.png", "train/1.png", "val/1.png"}, {0}, ",validation=50%", "02/13"},
    {{"bus/x/1.png", "train/1.png", "train/x/2.png"}, {0}, ",validation=33%", "01/1"},
    {{"train/bus/1.png", "train/train/1.png", "val/bus/1.png", "val/train/1.png"},
     {0},
     "",
     "01/01"},
    {{"train/a/1.png", "train/b/1.png", "notes/1.png"}, {0}, ",validation=50%", "0/1"},
    {{"train/1.png", "val/1.png"}, {0}, "", "!/train holds pictures itself (1.png): put those"},
    {{"train/1.png", "validation/1.png", "Test/1.png"}, {0}, "", "!/train holds pictures"},
    {{"bus/1.png", "train/steam/1.png"}, {0}, "", "!/train has 1 sub-folder; one for each"},

    {{TINY},
     {ANNOTATIONS, "v0.png\tn2\t0\t0\t62\t62\r\nv1.png\tn1\t1\t2\t3\t4\n"},
     "",
     "01/01"},
    {{TINY}, {ANNOTATIONS, "v0.png\tn2\n"}, "", "01/1"},
    {{TINY},
     {ANNOTATIONS, "v0.png\tn2\nv7.png\tn1\n"},
     "",
     "!val_annotations.txt:2 names images/v7.png, which is missing"},
    {{TINY},
     {ANNOTATIONS, "\nv0.png n2\n"},
     "",
     "!val_annotations.txt:2: a line is NAME, a tabulator, CLASS"},
    {{TINY}, {ANNOTATIONS, "v1.png\tn1\nv0.png\tn2"}, "", "01/01"}, /* no last end of line */
    {{TINY},
     {ANNOTATIONS, "v0.png\tn2\n\tn1\n"},
     "",
     "!val_annotations.txt:2: a line is NAME, a tabulator, CLASS"},
    {{TINY}, {ANNOTATIONS, "v0.png\t\n"}, "", "!val_annotations.txt:1: a line is NAME, a tab"},
    {{TINY}, {ANNOTATIONS, "v0.png\t\tn1\n"}, "", "!:1: a line is NAME, a tabulator, CLASS"},
    {{TINY},
     {ANNOTATIONS, "v0.txt\tn2\n"},
     "",
     "!val_annotations.txt:1: no picture by its name (.jpg, .jpeg, .png)"},
    {{TINY}, {"val/annotations.txt", "v0.png\tn2\n"}, "", "!has the class 'images', which "},
    {{"a/1.png"}, {0}, "", "! has 1 sub-folder; one for each class is wanted, two at least"},
    {{"train/a/1.png", "train/b/1.png"},
     {"val/notes.txt", "none"},
     "",
     "!/val has 0 sub-folders; one for each class is wanted, one at least"},
    {{"other/1.png", "Valid/b/1.png", "Valid/a/1.png"},
     {0},
     ",validation=50%",
     "!/Valid is no class, but has folders of its own: name the parts, as images:"},
    {{TINY}, {ANNOTATIONS, "v0.png\tn3\n"}, "", "!has the class 'n3', which "},
    {{TINY}, {ANNOTATIONS, ""}, "", "!val_annotations.txt names no pictures"},
};

static void make_layout(const struct layout *l, const char *root) {
    static const uint8_t grey[3] = {9, 9, 9};
    char path[800];
    for (int i = 0; i < 8 && l->files[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, l->files[i]);
        *strrchr(path, '/') = '\0';
        picture_put(path, ".", strrchr(l->files[i], '/') + 1, 4, 4, grey);
    }
    if (!l->texts[0]) return;
    snprintf(path, sizeof path, "%s/%s", root, l->texts[0]);
    picture_write(path, l->texts[1], strlen(l->texts[1]));
}

/* "000/1" */
static void labels_text(const rpi_picture_data *d, char *out) {
    const rpi_picture_folder *held_out = d->split ? &d->train : &d->validation;
    for (int64_t i = 0; i < d->train_count; i++)
        *out++ = (char)('0' + d->train.pictures[d->split ? d->split[i] : (uint32_t)i].label);
    *out++ = '/';
    for (int64_t i = 0; i < d->test_count; i++)
        *out++ =
            (char)('0' +
                   held_out->pictures[d->split ? d->split[d->train_count + i] : (uint32_t)i]
                       .label);
    *out = '\0';
}

static void every_layout_is_read_or_named(void) {
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        rpi_picture_data data;
        char root[700], got[64] = "";
        snprintf(root, sizeof root, "%s/layout-%zu", check_folder(), i);
        make_layout(&layouts[i], root);
        rp_status status = rpi_picture_data_open(data_of(root, layouts[i].rest), &data);
        const char *wanted = layouts[i].wanted;
        if (status == RP_OK) labels_text(&data, got);
        if (wanted[0] == '!')
            CHECK_MSG(status != RP_OK && strstr(rp_last_error()->message, wanted + 1),
                      "row %zu: '%s' %s", i, got, status ? rp_last_error()->message : "");
        else
            CHECK_MSG(strcmp(got, wanted) == 0, "row %zu: '%s', not '%s': %s", i, got, wanted,
                      status ? rp_last_error()->message : "");
        if (status == RP_OK) rpi_picture_data_close(&data);
    }
}

/* What lies beside a list's pictures is of no class, and told. */
static void pictures_that_no_list_names_are_told(void) {
    static const struct layout tiny = {{TINY}, {ANNOTATIONS, "v1.png\tn2\n"}, "", ""};
    char root[700];
    int64_t train, test;
    snprintf(root, sizeof root, "%s/unlisted", check_folder());
    make_layout(&tiny, root);
    start_listening();
    counts_of(data_of(root, ""), &train, &test);
    rp_log_set_sink(NULL, NULL);
    CHECK_EQ(test, 1);
    CHECK_MSG(strstr(told, "1 file is no picture and left out: images/v0.png") ||
                  (strstr(told, "images/v0.png") && !strstr(told, "images/v1.png")),
              "%s", told);
}

/* More classes, pictures, rows of a list and folders beside each other than there is room for
 * at first. */
static void lists_grow(void) {
    enum { MANY = 140, ROWS = 600 };
    static const uint8_t grey[3] = {9, 9, 9};
    static char list[ROWS * 32];
    char root[700], path[800], name[64];
    rpi_picture_data data;
    snprintf(root, sizeof root, "%s/many", check_folder());
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "%s/train/c%03d", root, MANY - 1 - i);
        picture_put(path, "x", "a.png", 4, 4, grey);
        snprintf(path, sizeof path, "%s/train/c000/s%03d", root, i);
        picture_put(path, ".", "a.png", 4, 4, grey);
    }
    snprintf(path, sizeof path, "%s/val", root);
    picture_put(path, "images", "v.png", 4, 4, grey);
    for (int i = 0; i < ROWS; i++) {
        snprintf(name, sizeof name, "v.png\tc%03d\n", (i * 7) % MANY);
        memcpy(list + strlen(list), name, strlen(name) + 1);
    }
    snprintf(path, sizeof path, "%s/val/val_annotations.txt", root);
    picture_write(path, list, strlen(list));
    REQUIRE_OK(rpi_picture_data_open(data_of(root, ""), &data));
    CHECK_EQ(data.train.class_count, MANY);
    CHECK_EQ(data.train_count, 2 * MANY);
    CHECK_EQ(data.test_count, ROWS);
    for (int c = 0; c < MANY; c++) {
        snprintf(name, sizeof name, "c%03d", c);
        CHECK(strcmp(data.train.classes[c], name) == 0);
    }
    for (int64_t i = 0; i < data.train_count; i++) {
        int label = i <= MANY ? 0 : (int)(i - MANY);
        CHECK_EQ(data.train.pictures[i].label, label);
        CHECK(strcmp(data.train.pictures[i].class_name, data.train.classes[label]) == 0);
    }
    for (int64_t i = 1; i < data.test_count; i++)
        CHECK(data.validation.pictures[i].label >= data.validation.pictures[i - 1].label);
    rpi_picture_data_close(&data);
}

/* 32 folders below each other, that of the class among them. */
static void folders_are_not_walked_too_deep(void) {
    static const uint8_t grey[3] = {9, 9, 9};
    for (int deep = 32; deep <= 33; deep++) {
        char root[700], path[1000];
        rpi_picture_data data;
        snprintf(root, sizeof root, "%s/deep%d", check_folder(), deep);
        snprintf(path, sizeof path, "%s/b", root);
        picture_put(path, ".", "1.png", 4, 4, grey);
        snprintf(path, sizeof path, "%s/a", root);
        for (int i = 1; i < deep; i++) strcat(path, "/x");
        picture_put(path, ".", "1.png", 4, 4, grey);
        rp_status status = rpi_picture_data_open(data_of(root, ",validation=50%"), &data);
        if (status == RP_OK) rpi_picture_data_close(&data);
        CHECK_MSG(deep < 33 ? status == RP_OK
                            : status == RP_INVALID &&
                                  strstr(rp_last_error()->message,
                                         "32 folders below each other are the most"),
                  "%d: %s", deep, status ? rp_last_error()->message : "it is read");
    }
}

static void links_that_lead_back_are_named(void) {
    char root[700], path[800];
    rpi_picture_data data;
    snprintf(root, sizeof root, "%s", make_folder("loop"));
    snprintf(path, sizeof path, "%s/train/Ant/again", root);
    CHECK(symlink("..", path) == 0);
    CHECK_FAILS(rpi_picture_data_open(data_of(root, ""), &data), INVALID,
                "again/Ant is a link that leads back to a folder above it");
}

static void links_are_followed(void) {
    char root[700], from[800], to[800];
    int64_t train, test;
    snprintf(root, sizeof root, "%s", make_folder("links"));
    snprintf(from, sizeof from, "%s/train/Ant/link.png", root);
    CHECK(symlink("p1.png", from) == 0);
    snprintf(from, sizeof from, "%s/train/linked", root);
    snprintf(to, sizeof to, "%s/train/zebra", root);
    CHECK(symlink(to, from) == 0);
    counts_of(data_of(root, "/train,validation=10%"), &train, &test);
    CHECK_EQ(train + test, PICTURES + 1 + PER_CLASS);
    snprintf(from, sizeof from, "%s/train/Ant/lost.png", root);
    CHECK(symlink("nowhere", from) == 0);
    rpi_source source;
    rpi_source_options options = options_of(data_of(root, ""));
    CHECK_FAILS(rpi_source_open(&options, &source), NOT_FOUND,
                "/train/Ant/lost.png is a link that leads nowhere");
}

/* ---- what is refused ---- */

static void mistakes_are_named(void) {
    char root[700], path[900];
    rpi_source source;
    snprintf(root, sizeof root, "%s", make_folder("mistakes"));
    const struct {
        const char *rest, *part;
        rp_status status;
    } bad[] = {
        {"/nowhere", "--data images: there is no folder ", RP_NOT_FOUND},
        {"/train/Ant", "/train/Ant holds pictures itself (", RP_INVALID},
        {",validation=", "validation= is empty; write images:FOLDER", RP_INVALID},
        {",validation=120%", "a share above 0 and below 1", RP_INVALID},
        {",normalize=haf", "unknown normalize 'haf'; there are imagenet, half; did you mean",
         RP_INVALID},
        {",size=3", "'size=3' is no option of images; write images:FOLDER", RP_INVALID},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_source_options options = options_of(data_of(root, bad[i].rest));
        rp_status status = rpi_source_open(&options, &source);
        CHECK_MSG(status == bad[i].status && strstr(rp_last_error()->message, bad[i].part),
                  "%s: %s", bad[i].rest, rp_last_error()->message);
    }
    rpi_source_options options = options_of("images:");
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID, "no folder of pictures is named");
    options = options_of(data_of(root, ""));
    options.pictures.augment = "crop";
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID, "there are none, flip, standard");

    uint8_t grey[3] = {9, 9, 9};
    snprintf(path, sizeof path, "%s/val", root);
    picture_put(path, "bee", "b.png", 4, 4, grey);
    options = options_of(data_of(root, ""));
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID, "has the class 'bee', which ");
    snprintf(path, sizeof path, "%s/val/bee/b.png", root);
    CHECK(unlink(path) == 0);
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID, "/val/bee holds no pictures");
    snprintf(path, sizeof path, "%s/one", root);
    picture_put(path, "only", "b.png", 4, 4, grey);
    options = options_of(data_of(path, ""));
    CHECK_FAILS(rpi_source_open(&options, &source), INVALID,
                "has 1 sub-folder; one for each class is wanted, two at least");
}

static void options_of_pictures_are_for_pictures(void) {
    char data[2000];
    rpi_picture_options pictures = {.augment = "standard"};
    snprintf(data, sizeof data, "%s", data_of(make_folder("probe"), ""));
    CHECK_FAILS(rpi_dataset_check("tokens:some", &pictures), INVALID,
                "--augment is for images, not for tokens");
    CHECK_OK(rpi_dataset_check("synthetic", &pictures));
    CHECK_OK(rpi_dataset_check(data, &pictures));
    pictures = (rpi_picture_options){.size = 64};
    CHECK_FAILS(rpi_dataset_check("idx", &pictures), INVALID,
                "--image-size is for folders of pictures, --data images:FOLDER, not for idx");
    CHECK_OK(rpi_dataset_check(data, &pictures));
    rpi_dataset_options options = {.pictures = pictures};
    CHECK_OK(rpi_dataset_probe(data, &options));
    options.folder = "somewhere";
    CHECK_FAILS(rpi_dataset_probe(data, &options), INVALID, "write images:FOLDER");
}

/* ---- broken pictures ---- */

/* The second of Ant ends too early, the first of those held out is none. */
static const char *break_some(const char *name) {
    static char root[700];
    char path[800];
    snprintf(root, sizeof root, "%s", make_folder(name));
    picture_file file = picture_encode(PICTURE_PNG_RGB, 20, 20);
    snprintf(path, sizeof path, "%s/train/Ant/p1.png", root);
    picture_write(path, file.bytes, file.count / 2);
    snprintf(path, sizeof path, "%s/val/Ant/v0.png", root);
    picture_write(path, "no picture", 10);
    free(file.bytes);
    return root;
}

static rp_status deal_epochs(rpi_source *source, int epochs, int counts[PICTURES]) {
    for (int step = 0; step < 4 * epochs; step++) {
        rpi_source_batch batch;
        RP_TRY(rpi_source_deal(source, step, &batch));
        for (int64_t i = 0; i < batch.count; i++)
            counts[label_of(&batch, i) * PER_CLASS + (level_of(&batch, i, 1) - 10) / 20]++;
    }
    return RP_OK;
}

static void a_broken_picture_is_named(void) {
    rpi_source source;
    rpi_source_batch batch;
    int counts[PICTURES] = {0};
    rpi_source_options options = options_of(data_of(break_some("broken"), ""));
    REQUIRE_OK(rpi_source_open(&options, &source));
    CHECK_FAILS(deal_epochs(&source, 1, counts), CORRUPT, "/train/Ant/p1.png: PNG: ");
    CHECK(strstr(rp_last_error()->message, "at byte ") != NULL);
    CHECK(strstr(rp_last_error()->message, "or go on without: --skip-broken") != NULL);
    CHECK_FAILS(rpi_source_hold_out(&source, 0, 2, &batch), CORRUPT,
                "/val/Ant/v0.png: it is no JPEG or PNG: it begins with 6e 6f 20 70");
    rpi_source_close(&source);
}

static void broken_pictures_can_be_skipped(void) {
    rpi_source source;
    rpi_source_batch batch;
    int counts[PICTURES] = {0};
    rpi_source_options options = options_of(data_of(break_some("skipped"), ""));
    options.pictures.skip_broken = true;
    start_listening();
    REQUIRE_OK(rpi_source_open(&options, &source));
    CHECK_OK(deal_epochs(&source, 2, counts));
    for (int i = 0; i < PICTURES; i++) CHECK_EQ(counts[i], i == 1 ? 0 : i == 2 ? 4 : 2);
    CHECK_OK(rpi_source_hold_out(&source, 0, 3, &batch));
    CHECK_EQ(batch.count, 3);
    CHECK_EQ(batch.labels, 2);
    CHECK_EQ(label_of(&batch, 0), -100);
    rpi_source_close(&source);
    rp_log_set_sink(NULL, NULL);
    const char *first = strstr(told, "train/Ant/p1.png");
    CHECK_MSG(first && !strstr(first + 1, "train/Ant/p1.png"), "told once: %s", told);
    CHECK_MSG(strstr(told, "train: 1 broken picture was skipped"), "%s", told);
    CHECK_MSG(strstr(told, "val: 1 broken picture was skipped"), "%s", told);
}

static void nothing_but_broken_ones_is_an_error(void) {
    char root[700], path[800];
    rpi_source source;
    rpi_source_batch batch;
    snprintf(root, sizeof root, "%s/all-broken", check_folder());
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%c/%d.jpg", root, 'a' + i % 2, i);
        picture_write(path, "none", 4);
    }
    rpi_source_options options = options_of(data_of(root, ""));
    options.pictures.skip_broken = true;
    start_listening();
    REQUIRE_OK(rpi_source_open(&options, &source));
    CHECK_FAILS(rpi_source_deal(&source, 0, &batch), CORRUPT, "none of the 3 pictures in ");
    rpi_source_close(&source);
    rp_log_set_sink(NULL, NULL);
}

/* ---- learning ---- */

static rpi_train_options small(const char *data) {
    rpi_train_options options = ranks_options();
    options.model = "mlp:hidden=16";
    options.data = data;
    options.train_images = options.test_images = 0;
    options.pictures = (rpi_picture_options){.augment = "standard", .size = 8};
    options.global_batch_size = 6;
    options.lr = 0.05;
    options.steps = 8;
    return options;
}

static void a_resumed_run_has_the_same_bytes(void) {
    char data[2000];
    rpi_train_result result = {0};
    snprintf(data, sizeof data, "%s", data_of(make_folder("resume"), ""));
    rpi_train_options options = small(data);
    options.out = ranks_folder("whole");
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK_EQ(result.test.count, CLASSES * HELD_OUT);
    options.out = ranks_folder("resumed");
    options.steps = 4;
    REQUIRE_OK(ranks_train(&options, 2, &result));
    options.steps = 8;
    options.resume = options.out;
    options.pictures.threads = 1;
    REQUIRE_OK(ranks_train(&options, 2, &result));
    CHECK(ranks_same_file(ranks_path(ranks_folder("whole"), "model.safetensors"),
                          ranks_path(ranks_folder("resumed"), "model.safetensors")));
}

static void colours_are_learnt(void) {
    rpi_train_options options = small(data_of(make_folder("learnt"), ""));
    rpi_train_result result = {0};
    options.steps = 60;
    REQUIRE_OK(ranks_train(&options, 1, &result));
    CHECK_MSG(result.test.accuracy > 0.99, "accuracy %g", result.test.accuracy);
}

static void threads_follow_the_cores(void) {
    static const struct {
        int64_t asked;
        int cores, threads;
    } rows[] = {{0, 1, 1}, {0, 2, 2}, {0, 64, 2}, {1, 64, 1}, {5, 1, 5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_EQ(rpi_picture_threads(rows[i].asked, rows[i].cores), rows[i].threads);
}

CASES({"threads follow the cores", threads_follow_the_cores},
      {"every picture comes once an epoch", every_picture_comes_once_an_epoch},
      {"colours can be from -1 to 1", colours_can_be_from_minus_one_to_one},
      {"the held out lie in order", the_held_out_lie_in_order},
      {"boxes depend on nothing else", boxes_depend_on_nothing_else},
      {"the other folder is found", the_other_folder_is_found},
      {"a share is of every class", a_share_is_of_every_class},
      {"other files are told", other_files_are_told},
      {"every layout is read or named", every_layout_is_read_or_named},
      {"pictures that no list names are told", pictures_that_no_list_names_are_told},
      {"lists grow", lists_grow},
      {"folders are not walked too deep", folders_are_not_walked_too_deep},
      {"links that lead back are named", links_that_lead_back_are_named},
      {"links are followed", links_are_followed}, {"mistakes are named", mistakes_are_named},
      {"options of pictures are for pictures", options_of_pictures_are_for_pictures},
      {"a broken picture is named", a_broken_picture_is_named},
      {"broken pictures can be skipped", broken_pictures_can_be_skipped},
      {"nothing but broken ones is an error", nothing_but_broken_ones_is_an_error},
      {"a resumed run has the same bytes", a_resumed_run_has_the_same_bytes},
      {"colours are learnt", colours_are_learnt})
