/* Which token ends a text, by the files beside a tokenizer.json. */
#include "harness/check.h"
#include "redpoll/log.h"
#include "train/data/token_writer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ids 0 to 4. The bar is U+FF5C, as in files of DeepSeek. */
#define END                                                                                    \
    "<\xef\xbd\x9c"                                                                            \
    "end\xef\xbd\x9c>"
static const char tokenizer[] =
    "{\"added_tokens\":[{\"id\":2,\"content\":\"" END "\",\"special\":true},"
    "{\"id\":3,\"content\":\"</s>\",\"special\":true},"
    "{\"id\":4,\"content\":\"<|im_end|>\",\"special\":true}],"
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,\"a\":1}}"
    "}";

static char told[1024];

static void listen(void *context, rp_log_level level, const char *line) {
    (void)context, (void)level;
    snprintf(told, sizeof told, "%s", line);
}

static const char *path_of(const char *name) {
    static char paths[2][700];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", check_folder(), name);
    return path;
}

static void put(const char *name, const char *text) {
    const char *path = path_of(name);
    unlink(path);
    if (!text) return;
    FILE *stream = fopen(path, "wb");
    REQUIRE(stream);
    fputs(text, stream);
    fclose(stream);
}

static const struct {
    const char *config, *map; /* NULL: there is no such file */
    int wanted;               /* -1: refused */
    const char *says;
} rows[] = {
    {NULL, NULL, 3, ""}, /* by its usual name */
    {"{\"eos_token\": \"" END "\"}", NULL, 2, ""},
    {"{\"eos_token\": {\"__type\": \"AddedToken\", \"content\": \"" END "\"}}", NULL, 2, ""},
    {"{\"eos_token\": null}", NULL, 3, ""},
    {"{\"eos_token\": null}", "{\"eos_token\": {\"content\": \"<|im_end|>\"}}", 4, ""},
    {"{}", "{\"eos_token\": \"<|im_end|>\"}", 4, ""},
    {"{\"eos_token\": \"" END "\"}", "{\"eos_token\": \"<|im_end|>\"}", 2, ""},
    {"{\"eos_token\": \"<eos>\"}", NULL, 3,
     "has no token '<eos>', which tokenizer_config.json"},
    {"{\"eos_token\": ", NULL, -1, "tokenizer_config.json is no JSON"},
    {"[]", NULL, -1, "tokenizer_config.json is no JSON object"},
};

static void the_files_beside_it_tell(void) {
    put("tokenizer.json", tokenizer);
    rp_log_set_sink(listen, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_tokenizer *t = NULL;
        uint32_t id = 99;
        told[0] = '\0';
        put("tokenizer_config.json", rows[i].config);
        put("special_tokens_map.json", rows[i].map);
        rp_status status =
            rpi_tokenizer_open(i % 2 ? check_folder() : path_of("tokenizer.json"), &t);
        CHECK_EQ(status == RP_OK, rows[i].wanted >= 0);
        const char *said = status == RP_OK ? told : rp_last_error()->message;
        CHECK_MSG(strstr(said, rows[i].says), "row %zu: '%s'", i, said);
        if (status != RP_OK) continue;
        CHECK(rpi_tokenizer_special(t, RPI_SPECIAL_END, &id));
        CHECK_MSG((int)id == rows[i].wanted, "row %zu: %u", i, id);
        rpi_tokenizer_close(t);
    }
    rp_log_set_sink(NULL, NULL);
}

/* The tokenizer that lies beside tokens knows it, too. */
static void it_is_kept_beside_tokens(void) {
    rpi_tokenizer *t = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t id = 1;
    put("special_tokens_map.json", NULL);
    put("tokenizer_config.json", "{\"eos_token\": \"" END "\"}");
    REQUIRE_OK(rpi_tokenizer_open(path_of("tokenizer.json"), &t));
    REQUIRE_OK(rpi_token_writer_open(path_of("kept"), t, &writer));
    CHECK_OK(rpi_token_writer_add(writer, &id, 1));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(t);
    REQUIRE_OK(rpi_tokenizer_open(path_of("kept.tokenizer.json"), &t));
    CHECK(rpi_tokenizer_special(t, RPI_SPECIAL_END, &id) && id == 2);
    rpi_tokenizer_close(t);
}

CASES({"the files beside it tell", the_files_beside_it_tell},
      {"it is kept beside tokens", it_is_kept_beside_tokens})
