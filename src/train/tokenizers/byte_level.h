/* GPT-2's way to write bytes as text: each of the 256 is one printable character, 188 are
 * themselves and the others U+0100 to U+0143; and its way to cut text into words. */
#ifndef RPI_TRAIN_BYTE_LEVEL_H
#define RPI_TRAIN_BYTE_LEVEL_H

#include "train/tokenizers/text_buffer.h"

int32_t rpi_byte_level_code(uint8_t byte);
/* The byte that a character stands for; -1: none. */
int rpi_byte_level_byte(int32_t code);

rp_status rpi_byte_level_write(const char *bytes, size_t count, rpi_text *out);
/* A text with a character that stands for no byte is appended as it is. */
rp_status rpi_byte_level_read(const char *text, size_t count, rpi_text *out);

/* Add the words of text[start .. start + bytes) as this regular expression finds them:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
#define RPI_GPT2_PATTERN                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
rp_status rpi_byte_level_words(rpi_text_piece whole, rpi_pieces *out);

#endif
