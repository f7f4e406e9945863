#include "train/data/data_tokenizer.h"

#include "base/status.h"
#include "train/data/token_data.h"
#include "train/data/token_file.h"

#include <string.h>

rp_status rpi_data_tokenizer_open(const char *data, rpi_tokenizer **out_tokenizer) {
    rpi_token_data tokens;
    rpi_token_file *file = NULL;
    if (strncmp(data, "tokens:", 7) != 0)
        return RP_FAIL(NOT_FOUND, "--data %s is no tokens:PATH", data);
    RP_TRY(rpi_token_data_parse(data, &tokens));
    RP_TRY(rpi_token_file_open(tokens.train, &file));
    const char *spec = file->tokenizer_json ? file->tokenizer_json : file->tokenizer;
    rp_status status =
        spec ? rpi_tokenizer_open(spec, out_tokenizer)
             : RP_FAIL(NOT_FOUND, "there is none beside the tokens of %s", tokens.train);
    rpi_token_file_close(file);
    return status;
}
