/* SPDX-License-Identifier: Apache-2.0
 *
 * st_read.c - the header of an open file: the length field, and what a file that is none seems to
 * be.
 */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

/* "4976698672" from the "size" line of a Git LFS pointer; "unknown" without one.  */
static const char *pointer_size(const unsigned char *head, size_t n, char buf[24])
{
    static const char key[] = "\nsize ";
    const unsigned char *line = n ? memmem(head, n, key, sizeof(key) - 1) : NULL;
    size_t digits = 0, at = line ? (size_t)(line - head) + sizeof(key) - 1 : n;

    /* A cut pointer file ends anywhere.  */
    while (at + digits < n && digits < 20 && head[at + digits] >= '0' && head[at + digits] <= '9') {
        buf[digits] = (char)head[at + digits];
        digits++;
    }
    buf[digits] = '\0';
    return digits ? buf : "unknown";
}

static bool starts_with(const unsigned char *head, size_t n, const char *magic, size_t len)
{
    return n >= len && memcmp(head, magic, len) == 0;
}

/* Fails with what a file whose length field is impossible seems to be; 0 if nothing is recognized.
 */
static int name_other_format(const unsigned char *head, size_t n, const char *path,
                             struct fp8q_error *err)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *id, *text;
    } formats[] = {
        {"PK\3\4", 4, "pickle", "a ZIP archive, as PyTorch's .bin and .pt files are"},
        {"\x80\2", 2, "pickle", "a Python pickle, as old PyTorch files are"},
        {"\x80\3", 2, "pickle", "a Python pickle, as old PyTorch files are"},
        {"\x80\4", 2, "pickle", "a Python pickle, as old PyTorch files are"},
        {"\x80\5", 2, "pickle", "a Python pickle, as old PyTorch files are"},
        {"GGUF", 4, "gguf", "a GGUF file"},
        {"\x89HDF", 4, "hdf5", "an HDF5 file"},
        {"\x93NUMPY", 6, "npy", "a NumPy array"},
        {"\x1f\x8b", 2, "gzip", "gzip-compressed"},
        {"<!DOCTYPE", 9, "html", "an HTML page (a failed download?)"},
        {"<!doctype", 9, "html", "an HTML page (a failed download?)"},
        {"<html", 5, "html", "an HTML page (a failed download?)"},
        {"<?xml", 5, "html", "an XML text (a failed download?)"},
        {"{", 1, "json-text", "a JSON text (an error message saved by a download?)"},
    };
    static const char lfs[] = "version https://git-lfs";
    struct fp8q_shown shown;
    char size[24];

    /* Here there is a remedy, so it has a message of its own.  */
    if (starts_with(head, n, lfs, sizeof(lfs) - 1))
        return fp8q_fail(err, FP8Q_E_FORMAT, "lfs-pointer",
                         "%s: is a Git LFS pointer for a file of %s bytes; run \"git lfs pull\"",
                         fp8q_show(&shown, path), pointer_size(head, n, size));

    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        if (starts_with(head, n, formats[i].magic, formats[i].len))
            return fp8q_fail(err, FP8Q_E_FORMAT, formats[i].id, "%s: is %s, no safetensors file",
                             fp8q_show(&shown, path), formats[i].text);
    }

    return FP8Q_OK;
}

/* Refuses a length field that cannot be right, before anything is allocated.  */
static int check_length(const unsigned char *head, size_t n_head, uint64_t n, uint64_t file_size,
                        const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (file_size >= 8 && n <= FP8Q_ST_MAX_HEADER && n <= file_size - 8)
        return FP8Q_OK;

    /* Only now: a header length could begin with any of these magic numbers.  */
    FP8Q_TRY(name_other_format(head, n_head, path, err));
    fp8q_show(&shown, path);

    if (file_size < 8)
        return fp8q_fail(err, FP8Q_E_FORMAT, "too-small",
                         "%s: %" PRIu64 " bytes%s, a safetensors file has at least 8", shown.text,
                         file_size, file_size ? "" : " (an empty file)");

    if (n > FP8Q_ST_MAX_HEADER)
        return fp8q_fail(err, FP8Q_E_FORMAT, "header-too-large",
                         "%s: a header of %" PRIu64 " bytes exceeds the format's limit of %u; "
                         "this is probably no safetensors file",
                         shown.text, n, FP8Q_ST_MAX_HEADER);
    return fp8q_fail(err, FP8Q_E_FORMAT, "header-truncated",
                     "%s: the header needs %" PRIu64 " bytes, the file has %" PRIu64
                     " after the length (incomplete download?)",
                     shown.text, n, file_size - 8);
}

int fp8q_st_read(int fd, uint64_t file_size, const char *path, struct fp8q_st_header *header_out,
                 struct fp8q_error *err)
{
    /* Enough for every magic number, and for a whole Git LFS pointer of the usual size.  */
    unsigned char head[512];
    struct fp8q_shown shown;
    size_t n_head = file_size < sizeof(head) ? (size_t)file_size : sizeof(head);
    uint64_t n = 0;

    *header_out = (struct fp8q_st_header){0};
    FP8Q_TRY(fp8q_pread(fd, head, n_head, 0, path, err));

    /* Little-endian on every machine.  */
    for (size_t i = 0; i < 8 && i < n_head; i++)
        n |= (uint64_t)head[i] << (8 * i);

    FP8Q_TRY(check_length(head, n_head, n, file_size, path, err));
    if (n == 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "json",
                         "%s: the header is empty (a preallocated, unfinished download?)",
                         fp8q_show(&shown, path));

    char *text = malloc((size_t)n);
    if (!text)
        return fp8q_fail_nomem(err);

    int status = fp8q_pread(fd, text, (size_t)n, 8, path, err);
    if (status == FP8Q_OK)
        status = fp8q_st_parse(text, (size_t)n, file_size - 8 - n, path, header_out, err);

    /* The table keeps copies of all that it needs.  */
    free(text);
    return status;
}
