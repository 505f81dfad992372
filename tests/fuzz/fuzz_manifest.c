/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_manifest.c - what a conversion leaves for verify, --resume and finish to read.
 *
 * The first byte says what the rest is: 'f' a manifest file as it is, 'm' the manifest's text in a
 * file whose checksums are right, 'q' a request, 'r' and 'R' a shard's record, without and with its
 * checksum made right, 'l' a lock file.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "format/names.h"
#include "plan/lock.h"
#include "plan/manifest.h"
#include "convert/record.h"
#include "convert/stream.h"

static char *made;

static void clean_up(void)
{
    (void)fp8q_remove_tree(made, NULL);
}

static const char *scratch(void)
{
    static char dir[] = "/dev/shm/fp8q-fuzz-XXXXXX", other[] = "/tmp/fp8q-fuzz-XXXXXX";
    if (made)
        return made;
    made = mkdtemp(dir);
    if (!made)
        made = mkdtemp(other);
    FUZZ_REQUIRE(made);
    atexit(clean_up);
    return made;
}

/* The file that holds the input; the same name every time.  */
static void write_input(const char *name, const void *data, size_t size)
{
    struct fp8q_error err = {0};
    int fd;
    char *path = fp8q_join(scratch(), name);
    FUZZ_REQUIRE(fp8q_unlink(path, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_create(path, &fd, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_pwrite(fd, data, size, 0, path, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_close(&fd, path, &err) == FP8Q_OK);
    free(path);
}

/* ---- manifest -------------------------------------------------------------------------------- */

static void read_manifest(void)
{
    struct fp8q_ckpt ckpt = {.is_dir = true, .dir = (char *)(uintptr_t)scratch()};
    struct fp8q_manifest m;
    struct fp8q_error err = {0};
    bool found;
    int status = fp8q_manifest_read(&ckpt, &m, &found, &err);
    if (status != FP8Q_OK) {
        FUZZ_REQUIRE(err.id[0] && err.message[0]);
        FUZZ_REQUIRE(status == FP8Q_E_FORMAT || status == FP8Q_E_MISMATCH);
        return;
    }
    FUZZ_REQUIRE(found && m.json && m.request.source);
    for (size_t i = 0; i < m.n_tensors; i++) {
        uint32_t crc;
        FUZZ_REQUIRE(i == 0 || strcmp(m.tensors[i - 1].name, m.tensors[i].name) <= 0);
        FUZZ_REQUIRE(fp8q_manifest_crc(&m, m.tensors[i].name, &crc));
    }
    fp8q_manifest_reset(&m);
}

/* As fp8q_manifest_file() seals it.  */
static void write_sealed(const char *text, size_t size)
{
    struct fp8q_text file = {0};
    char digits[16];
    fp8q_text_puts(&file, "{\n \"fp8q.header_crc32\": \"00000000\",\n \"fp8q.manifest\": ");
    fp8q_text_json_string(&file, text, size);
    fp8q_text_printf(
        &file, ",\n \"fp8q.manifest_crc32\": \"%08x\",\n \"fp8q.sidecar_version\": \"1.0\"\n}\n",
        (unsigned)fp8q_crc32(0, text, size));
    snprintf(digits, sizeof(digits), "%08x", (unsigned)fp8q_crc32(0, file.data, file.len));
    memcpy(strstr(file.data, "00000000"), digits, 8);
    write_input(FP8Q_MANIFEST_NAME, file.data, file.len);
    fp8q_text_reset(&file);
}

/* ---- request --------------------------------------------------------------------------------- */

static char *request_text(const struct fp8q_request *r)
{
    struct fp8q_jsonw w = {.indent = 0};
    fp8q_request_write(r, NULL, &w);
    FUZZ_REQUIRE(!w.text.failed);
    return w.text.data;
}

/* What was read and written again reads as the same.  */
static void read_request(const char *text, size_t size)
{
    struct fp8q_error err = {0};
    struct fp8q_json *json, *again;
    struct fp8q_request r, s;
    if (fp8q_json_parse(text, size, 0, "input", &json, &err) != FP8Q_OK)
        return;
    int status = fp8q_request_parse(json, &r, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (status == FP8Q_E_FORMAT && err.message[0]));
    if (status == FP8Q_OK) {
        char *once = request_text(&r);
        FUZZ_REQUIRE(fp8q_json_parse(once, strlen(once), 0, "again", &again, &err) == FP8Q_OK);
        FUZZ_REQUIRE(fp8q_request_parse(again, &s, &err) == FP8Q_OK);
        char *twice = request_text(&s);
        FUZZ_REQUIRE(strcmp(once, twice) == 0);
        fp8q_request_reset(&s);
        fp8q_request_reset(&r);
        fp8q_json_free(again);
        free(once);
        free(twice);
    }
    fp8q_json_free(json);
}

/* ---- record ---------------------------------------------------------------------------------- */

/* A shard of two pieces with one scale each, from two source tensors.  */
static void read_record(const char *data, size_t size, bool seal)
{
    struct fp8q_tensor tensors[2] = {{.name = "a"}, {.name = "b"}};
    struct fp8q_ckpt ckpt = {.tensors = tensors, .n_tensors = 2};
    struct fp8q_out_shard shard = {.name = (char *)(uintptr_t) "s",
                                   .header_crc32 = 0x01234567,
                                   .size_bytes = 100,
                                   .n_pieces = 2,
                                   .scale_bytes = 8};
    struct fp8q_piece pieces[2] = {{.source = 0, .output = 0, .scale = 1},
                                   {.source = 1, .output = 2, .scale = 3, .scale_offset = 4}};
    struct fp8q_plan plan = {.ckpt = &ckpt,
                             .shards = &shard,
                             .n_shards = 1,
                             .pieces = pieces,
                             .n_pieces = 2,
                             .n_tensors = 4,
                             .sidecar = SIZE_MAX};
    struct fp8q_piece_crc crcs[2];
    struct fp8q_record record = {.crcs = crcs};
    struct fp8q_error err = {0};
    bool found;
    char *copy = malloc(size + 4);
    FUZZ_REQUIRE(copy);
    memcpy(copy, data, size);
    uint32_t crc = fp8q_crc32(0, data, size);
    memcpy(copy + size, &crc, 4);
    write_input("shard-000000.record", copy, seal ? size + 4 : size);
    free(copy);

    FUZZ_REQUIRE(fp8q_record_read(&plan, 0, scratch(), &record, &found, &err) == FP8Q_OK);
    FUZZ_REQUIRE(found == (record.scales != NULL));
    free(record.scales);
}

/* ---- lock ------------------------------------------------------------------------------------ */

static void read_lock(const char *data, size_t size)
{
    const uint64_t shape[2] = {0, 3};
    struct fp8q_tensor tensor = {
        .name = "a.weight", .dtype = FP8Q_F8_E4M3, .shape = shape, .ndim = 2};
    struct fp8q_ckpt ckpt = {.tensors = &tensor, .n_tensors = 1};
    struct fp8q_lock_result r;
    struct fp8q_error err = {0};
    write_input("lock.json", data, size);
    char *path = fp8q_join(scratch(), "lock.json");
    int status = fp8q_lock_compare(path, &ckpt, &r, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (status == FP8Q_E_FORMAT && err.message[0]));
    fp8q_lock_result_reset(&r);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size--;
    switch (data[0]) {
    case 'f':
        write_input(FP8Q_MANIFEST_NAME, text, size);
        read_manifest();
        break;
    case 'm':
        write_sealed(text, size);
        read_manifest();
        break;
    case 'q':
        read_request(text, size);
        break;
    case 'r':
    case 'R':
        read_record(text, size, data[0] == 'R');
        break;
    case 'l':
        read_lock(text, size);
        break;
    default:
        break;
    }
    return 0;
}
