/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c - what a wrong checkpoint may do to pass.  A table of changes to right outputs, each
 * with the check that must not pass, without the source and with it.
 */
#include "support/support.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "format/names.h"
#include "support/maker.h"
#include "verify/verify.h"

#define SHARD "model-00001-of-00001.safetensors"

/* ---- outputs ----------------------------------------------------------------------------- */

static char *dir; /* holds them all */

/* Path below the directory of this test; valid until the next call but three.  */
static const char *at(const char *fmt, ...)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    int n = snprintf(path, sizeof(paths[0]), "%s/", dir);
    va_list args;
    va_start(args, fmt);
    vsnprintf(path + n, sizeof(paths[0]) - (size_t)n, fmt, args);
    va_end(args);
    return path;
}

static void shell(const char *fmt, ...)
{
    char command[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static void convert(const char *name, const struct fp8q_request *request)
{
    struct fp8q_conversion *conversion;
    struct fp8q_error err = {0};
    assert_ok(fp8q_conversion_open(request, NULL, &conversion, NULL, &err), &err);
    assert_ok(fp8q_conversion_run(conversion, at("%s", name), NULL, &err), &err);
    fp8q_conversion_close(conversion);
}

static int make_outputs(void **state)
{
    (void)state;
    dir = temp_dir_make();
    struct fp8q_request r = {.size = sizeof(r), .source = data_path("checkpoints/qwen3")};
    convert("sidecar", &r);
    r.scale_fmt = FP8Q_SCALE_UE8M0;
    convert("other", &r);
    r.scale_fmt = FP8Q_SCALE_F32;
    r.scales = FP8Q_SCALES_INLINE;
    convert("inline", &r);
    return 0;
}

static int remove_outputs(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

/* ---- changes ----------------------------------------------------------------------------- */

/* Replaces the first @from in the file @name of the output in hand.  */
static void edit(const char *name, const char *from, const char *to)
{
    char *data;
    size_t len, cut = strlen(from);
    struct fp8q_error err = {0};
    struct fp8q_text text = {0};
    assert_ok(fp8q_read_file(at("x/%s", name), 1 << 28, &data, &len, &err), &err);
    char *place = memmem(data, len, from, cut);
    if (!place)
        fail_msg("%s holds no %s", name, from);

    fp8q_text_add(&text, data, (size_t)(place - data));
    fp8q_text_puts(&text, to);
    fp8q_text_add(&text, place + cut, len - (size_t)(place - data) - cut);
    assert_int_equal(unlink(at("x/%s", name)), 0);
    assert_ok(fp8q_write_file(at("x/%s", name), text.data, text.len, &err), &err);
    fp8q_text_reset(&text);
    free(data);
}

static void add_file(const char *name, const char *text)
{
    struct fp8q_error err = {0};
    assert_ok(fp8q_write_file(at("x/%s", name), text, strlen(text), &err), &err);
}

/* Flips the lowest bit of a byte, counted from the end of the file.  */
static void flip(const char *name, long from_end)
{
    FILE *f = fopen(at("x/%s", name), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -from_end, SEEK_END), 0);
    fputc(c ^ 1, f);
    fclose(f);
}

/* Writes the sidecar anew with its manifest changed (@from NULL: without any manifest), and both
 * checksums made right: what somebody does who knows the format.  */
static void reseal(const char *from, const char *to)
{
    struct fp8q_st_header h;
    struct fp8q_error err = {0};
    struct fp8q_text manifest = {0}, out = {0};
    struct stat st;
    char *data, crc[16];
    size_t len;
    int fd;
    const char *path = at("x/" FP8Q_SIDECAR_NAME);
    assert_ok(fp8q_open_read(path, &st, &fd, &err), &err);
    assert_ok(fp8q_st_read(fd, (uint64_t)st.st_size, path, &h, &err), &err);
    assert_ok(fp8q_close(&fd, path, &err), &err);
    assert_ok(fp8q_read_file(path, 1 << 28, &data, &len, &err), &err);

    for (size_t i = 0; i < h.n_metadata && from; i++) {
        struct fp8q_st_pair *p = &h.metadata[i];
        if (strcmp(p->key, FP8Q_KEY_MANIFEST) == 0) {
            const char *place = strstr(p->value, from);
            if (!place)
                fail_msg("the manifest holds no %s", from);
            fp8q_text_add(&manifest, p->value, (size_t)(place - p->value));
            fp8q_text_puts(&manifest, to);
            fp8q_text_puts(&manifest, place + strlen(from));
            p->value = manifest.data;
            p->value_len = manifest.len;
            snprintf(crc, sizeof(crc), "%08x",
                     (unsigned)fp8q_crc32(0, manifest.data, manifest.len));
        }
    }
    for (size_t i = 0; i < h.n_metadata && from; i++) {
        if (strcmp(h.metadata[i].key, FP8Q_KEY_MANIFEST_CRC) == 0)
            h.metadata[i].value = crc;
        if (strcmp(h.metadata[i].key, FP8Q_KEY_HEADER_CRC) == 0)
            h.metadata[i].value = FP8Q_NO_CRC;
    }
    static const struct fp8q_st_pair format = {"format", "pt", 6, 2};
    assert_ok(fp8q_st_emit(h.tensors, h.n_tensors, from ? h.metadata : &format,
                           from ? h.n_metadata : 1, 0, &out, &err),
              &err);
    if (from) {
        static const char before[] = "\"" FP8Q_KEY_HEADER_CRC "\":\"";
        char *place = (char *)memmem(out.data, out.len, before, strlen(before)) + strlen(before);
        snprintf(crc, sizeof(crc), "%08x", (unsigned)fp8q_crc32(0, out.data, out.len));
        memcpy(place, crc, 8);
    }
    fp8q_text_add(&out, data + h.data_start, len - (size_t)h.data_start);
    assert_int_equal(unlink(path), 0);
    assert_ok(fp8q_write_file(path, out.data, out.len, &err), &err);
    fp8q_text_reset(&out);
    fp8q_text_reset(&manifest);
    fp8q_st_reset(&h);
    free(data);
}

static void take_from(const char *output, const char *name)
{
    shell("cp '%s' '%s'", at("%s/%s", output, name), at("x/%s", name));
}

static void remove_file(const char *name)
{
    assert_int_equal(unlink(at("x/%s", name)), 0);
}

/* The weight q_proj under another name of the same length, here and in index and manifest.  */
static void rename_everywhere(void)
{
    edit(SHARD, "self_attn.q_proj.weight\"", "self_attn.z_proj.weight\"");
    edit(FP8Q_INDEX_NAME, "self_attn.q_proj.weight\"", "self_attn.z_proj.weight\"");
}

/* A second copy of a shard, which the index names for one tensor.  */
static void add_indexed_shard(void)
{
    shell("cp '%s' '%s'", at("x/" SHARD), at("x/model-00002-of-00002.safetensors"));
    edit(FP8Q_INDEX_NAME, "\"model.norm.weight\": \"" SHARD,
         "\"model.norm.weight\": \"model-00002-of-00002.safetensors");
}

enum change {
    NOTHING,
    /* manifest */
    MANIFEST_TAKEN_OUT,
    MANIFEST_ENTRY_TAKEN_OUT,
    MANIFEST_TEXT,
    MANIFEST_SEAL,
    MANIFEST_OF_TENSOR,
    MANIFEST_WITHOUT_TENSOR,
    MANIFEST_FINGERPRINT,
    MANIFEST_SOURCE,
    MANIFEST_ROUNDING,
    MANIFEST_REQUEST,
    MANIFEST_HEADERS,
    MANIFEST_WITHOUT_CONFIG,
    MANIFEST_MAJOR,
    MANIFEST_FILE_BESIDE,
    MANIFEST_IN_A_SHARD_TOO,
    /* files of another run */
    SIDECAR_OF_OTHER,
    SHARD_OF_OTHER,
    CONFIG_OF_OTHER,
    INDEX_TO_NOWHERE,
    /* bytes */
    WEIGHT_BYTE,
    SCALE_BYTE,
    SHARD_HEADER,
    TENSOR_RENAMED,
    /* index */
    INDEX_TOTAL,
    INDEX_ENTRY,
    INDEX_GONE,
    SHARD_ADDED,
    SHARD_ADDED_AND_INDEXED,
    SINGLE_BESIDE,
    /* config */
    CONFIG_ELSEWHERE,
    CONFIG_SCHEME,
    CONFIG_LIST,
    CONFIG_METHOD,
    CONFIG_NESTED,
    CONFIG_OF_SOURCE,
    CONFIG_GONE,
    CONFIG_SPACES,
    /* side files */
    SIDE_FILE,
    SIDE_FILE_GONE,
    SIDE_FILE_A_DIRECTORY,
    ADAPTER_ADDED,
    PICKLE_ADDED,
    README_ADDED,
    /* inline */
    INLINE_NOTHING,
    INLINE_GONE,
    INLINE_BYTE,
    INLINE_OF_OTHER,
};

static void apply(enum change change)
{
    switch (change) {
    case NOTHING:
    case INLINE_NOTHING:
        break;
    case MANIFEST_TAKEN_OUT:
        reseal(NULL, NULL);
        break;
    case MANIFEST_ENTRY_TAKEN_OUT:
        edit(FP8Q_SIDECAR_NAME, "\"fp8q.manifest_crc32\"", "\"xp8q.manifest_crc32\"");
        break;
    case MANIFEST_TEXT:
        edit(FP8Q_SIDECAR_NAME, "nearest-even", "nearest-odd!");
        break;
    case MANIFEST_SEAL:
        edit(FP8Q_SIDECAR_NAME, "\"format\":\"pt\"", "\"format\":\"tf\"");
        break;
    case MANIFEST_OF_TENSOR: /* of a weight: then of all bytes it is this one that is wrong */
        reseal("\"model.norm.weight\": \"", "\"model.norm.weight\": \"00000000\", \"x\": \"");
        break;
    case MANIFEST_WITHOUT_TENSOR:
        reseal("\"model.norm.weight\"", "\"model.norm.other!\"");
        break;
    case MANIFEST_FINGERPRINT:
        reseal("\"fingerprint\": \"", "\"fingerprint\": \"00000000\", \"x\": \"");
        reseal("}, \"fingerprint\": \"", "}, \"fingerprint\": \"00000000\", \"x\": \"");
        break;
    case MANIFEST_SOURCE:
        reseal("\"fingerprint\": \"", "\"fingerprint\": \"00000000\", \"x\": \"");
        break;
    case MANIFEST_ROUNDING:
        reseal("nearest-even", "nearest-odd");
        break;
    case MANIFEST_REQUEST:
        reseal("\"request\"", "\"tseuqer\"");
        break;
    case MANIFEST_HEADERS:
        reseal("\"headers\": {", "\"headers\": {}, \"x\": {");
        break;
    case MANIFEST_WITHOUT_CONFIG:
        reseal("\"config_crc32\"", "\"xonfig_crc32\"");
        break;
    case MANIFEST_MAJOR:
        edit(FP8Q_SIDECAR_NAME, "\"fp8q.sidecar_version\":\"1.0\"",
             "\"fp8q.sidecar_version\":\"2.0\"");
        break;
    case MANIFEST_FILE_BESIDE:
        shell("cp '%s' '%s'", at("inline/" FP8Q_MANIFEST_NAME), at("x/" FP8Q_MANIFEST_NAME));
        break;
    case MANIFEST_IN_A_SHARD_TOO:
        shell("cp '%s' '%s'", at("other/" FP8Q_SIDECAR_NAME), at("x/more.safetensors"));
        edit(FP8Q_INDEX_NAME, "\"model.layers.0.mlp.up_proj.weight_scale_inv\": \"model-scales",
             "\"model.layers.0.mlp.up_proj.weight_scale_inv\": \"more");
        break;
    case SIDECAR_OF_OTHER:
        take_from("other", FP8Q_SIDECAR_NAME);
        break;
    case SHARD_OF_OTHER:
        take_from("other", SHARD);
        break;
    case CONFIG_OF_OTHER:
        take_from("other", FP8Q_CONFIG_NAME);
        break;
    case INDEX_TO_NOWHERE:
        edit(FP8Q_INDEX_NAME, "\"model.norm.weight\": \"model-00001",
             "\"model.norm.weight\": \"model-00003");
        break;
    case WEIGHT_BYTE:
        flip(SHARD, 1000);
        break;
    case SCALE_BYTE:
        flip(FP8Q_SIDECAR_NAME, 6);
        break;
    case SHARD_HEADER:
        edit(SHARD, "\"format\":\"pt\"", "\"format\":\"tf\"");
        break;
    case TENSOR_RENAMED:
        rename_everywhere();
        break;
    case INDEX_TOTAL:
        edit(FP8Q_INDEX_NAME, "\"total_size\": ", "\"total_size\": 1");
        break;
    case INDEX_ENTRY:
        edit(FP8Q_INDEX_NAME, "\"model.norm.weight\"", "\"model.morn.weight\"");
        break;
    case INDEX_GONE:
        remove_file(FP8Q_INDEX_NAME);
        break;
    case SHARD_ADDED:
        shell("cp '%s' '%s'", at("x/" SHARD), at("x/other.safetensors"));
        break;
    case SHARD_ADDED_AND_INDEXED:
        add_indexed_shard();
        break;
    case SINGLE_BESIDE:
        shell("cp '%s' '%s'", at("x/" SHARD), at("x/" FP8Q_SINGLE_NAME));
        break;
    case CONFIG_ELSEWHERE:
        edit(FP8Q_CONFIG_NAME, "\"rms_norm_eps\": ", "\"rms_norm_eps\": 1");
        break;
    case CONFIG_SCHEME:
        edit(FP8Q_CONFIG_NAME, "\"dynamic\"", "\"static\"");
        break;
    case CONFIG_LIST:
        edit(FP8Q_CONFIG_NAME, "\"lm_head\"", "\"lm_heap\"");
        break;
    case CONFIG_METHOD:
        edit(FP8Q_CONFIG_NAME, "\"quant_method\": \"fp8\"", "\"quant_method\": \"fbgemm_fp8\"");
        break;
    case CONFIG_NESTED:
        edit(FP8Q_CONFIG_NAME, "{", "{\"text_config\": {\"quantization_config\": {}}, ");
        break;
    case CONFIG_OF_SOURCE:
        shell("cp '%s' '%s'", data_path("checkpoints/qwen3/config.json"),
              at("x/" FP8Q_CONFIG_NAME));
        break;
    case CONFIG_GONE:
        remove_file(FP8Q_CONFIG_NAME);
        break;
    case CONFIG_SPACES:
        edit(FP8Q_CONFIG_NAME, "\"quant_method\": ", "\"quant_method\" :   ");
        break;
    case SIDE_FILE:
        edit("generation_config.json", "{", "{ ");
        break;
    case SIDE_FILE_GONE:
        remove_file("generation_config.json");
        break;
    case SIDE_FILE_A_DIRECTORY:
        remove_file("generation_config.json");
        assert_int_equal(mkdir(at("x/generation_config.json"), 0777), 0);
        break;
    case ADAPTER_ADDED:
        add_file("adapter_config.json", "{}");
        break;
    case PICKLE_ADDED:
        add_file("pytorch_model.bin", "PK");
        break;
    case README_ADDED:
        add_file("NOTES.md", "# notes\n");
        break;
    case INLINE_GONE:
        remove_file(FP8Q_MANIFEST_NAME);
        break;
    case INLINE_BYTE:
        flip(FP8Q_SINGLE_NAME, 1000);
        break;
    case INLINE_OF_OTHER: /* four shards' worth of another run's manifest, whole in itself */
        edit(FP8Q_MANIFEST_NAME, "nearest-even", "nearest-odd!");
        break;
    }
}

/* ---- verdicts ---------------------------------------------------------------------------- */

enum verdict { PASSES, WARNS, FAILS, ERROR };

static const struct {
    enum change change;
    const char *what;
    enum verdict alone, with_source;
    const char *check; /* that says so; NULL: opening does, or nothing */
    const char *with_source_check;
} table[] = {
    {NOTHING, "nothing", PASSES, PASSES, NULL, NULL},
    {MANIFEST_TAKEN_OUT, "the sidecar's manifest is taken out", WARNS, WARNS, "manifest", NULL},
    {MANIFEST_ENTRY_TAKEN_OUT, "one of its four entries is renamed", FAILS, FAILS, "manifest",
     NULL},
    {MANIFEST_TEXT, "its text is edited", FAILS, FAILS, "manifest", NULL},
    {MANIFEST_SEAL, "the header around it is edited", FAILS, FAILS, "manifest", NULL},
    {MANIFEST_OF_TENSOR, "a checksum in it is edited, and it is sealed again", FAILS, FAILS,
     "tensor-crc", NULL},
    {MANIFEST_WITHOUT_TENSOR, "a tensor in it is renamed, sealed", FAILS, FAILS, "tensor-set",
     NULL},
    {MANIFEST_FINGERPRINT, "its fingerprint of the output is edited, sealed", FAILS, FAILS,
     "fingerprint", NULL},
    {MANIFEST_SOURCE, "its fingerprint of the source is edited, sealed", PASSES, FAILS, NULL,
     "source-fingerprint"},
    {MANIFEST_ROUNDING, "its rounding method is edited, sealed", FAILS, FAILS, "manifest", NULL},
    {MANIFEST_REQUEST, "its request is taken out, sealed", FAILS, FAILS, "manifest", NULL},
    {MANIFEST_HEADERS, "its headers are emptied, sealed", FAILS, FAILS, "header-crc", NULL},
    {MANIFEST_WITHOUT_CONFIG, "it forgets config.json, sealed", WARNS, WARNS, "config-crc", NULL},
    {MANIFEST_MAJOR, "its version is a later one", FAILS, FAILS, "manifest", NULL},
    {MANIFEST_FILE_BESIDE, "a manifest of another run stands beside", FAILS, FAILS, "manifest",
     NULL},
    {MANIFEST_IN_A_SHARD_TOO, "a sidecar of another run is a shard too", FAILS, FAILS, "manifest",
     NULL},
    {SIDECAR_OF_OTHER, "the sidecar is another run's", FAILS, FAILS, "tensor-crc", "codes-equal"},
    {SHARD_OF_OTHER, "the shard is another run's", FAILS, FAILS, "tensor-crc", "codes-equal"},
    {CONFIG_OF_OTHER, "config.json is another run's", FAILS, FAILS, "quantization-config-crc",
     NULL},
    {INDEX_TO_NOWHERE, "the index names a shard that is not there", ERROR, ERROR, NULL, NULL},
    {WEIGHT_BYTE, "a bit of a tensor is flipped", FAILS, FAILS, "tensor-crc", NULL},
    {SCALE_BYTE, "a bit of a scale is flipped", FAILS, FAILS, "tensor-crc", "scales-equal"},
    {SHARD_HEADER, "a shard's metadata is edited", FAILS, FAILS, "header-crc", NULL},
    {TENSOR_RENAMED, "a weight is renamed, in the index too", FAILS, FAILS, "tensor-set",
     "source-tensors"},
    {INDEX_TOTAL, "the index's total_size is edited", FAILS, FAILS, "index-crc", NULL},
    {INDEX_ENTRY, "an entry of the index is renamed", ERROR, ERROR, NULL, NULL},
    {INDEX_GONE, "the index is gone", ERROR, ERROR, NULL, NULL},
    {SHARD_ADDED, "a shard is added", FAILS, FAILS, "index", NULL},
    {SHARD_ADDED_AND_INDEXED, "a shard is added, and the index names it", FAILS, FAILS,
     "header-crc", NULL},
    {SINGLE_BESIDE, "model.safetensors stands beside the index", FAILS, FAILS, "index", NULL},
    {CONFIG_ELSEWHERE, "config.json is edited outside quantization_config", WARNS, WARNS,
     "config-crc", NULL},
    {CONFIG_SCHEME, "the activation scheme is edited", FAILS, FAILS, "quantization-config-crc",
     NULL},
    {CONFIG_LIST, "an entry of one exclusion list is edited", FAILS, FAILS, "quantization-config",
     NULL},
    {CONFIG_METHOD, "quant_method is edited", FAILS, FAILS, "quantization-config", NULL},
    {CONFIG_NESTED, "a nested quantization_config is added", FAILS, FAILS, "quantization-config",
     NULL},
    {CONFIG_OF_SOURCE, "config.json is the source's", FAILS, FAILS, "quantization-config", NULL},
    {CONFIG_GONE, "config.json is gone", FAILS, FAILS, "config", NULL},
    {CONFIG_SPACES, "quantization_config is printed otherwise", WARNS, WARNS, "config-crc", NULL},
    {SIDE_FILE, "a copied file is edited", FAILS, FAILS, "file-crc", NULL},
    {SIDE_FILE_GONE, "a copied file is gone", FAILS, FAILS, "file-crc", NULL},
    {SIDE_FILE_A_DIRECTORY, "a copied file is a directory", FAILS, FAILS, "file-crc", NULL},
    {ADAPTER_ADDED, "an adapter is added", WARNS, WARNS, "files-added", NULL},
    {PICKLE_ADDED, "other weights are added", WARNS, WARNS, "files-added", NULL},
    {README_ADDED, "a README is added", PASSES, PASSES, NULL, NULL},
    {INLINE_NOTHING, "inline: nothing", PASSES, PASSES, NULL, NULL},
    {INLINE_GONE, "inline: the manifest is gone", WARNS, WARNS, "manifest", NULL},
    {INLINE_BYTE, "inline: a bit of a tensor is flipped", FAILS, FAILS, "tensor-crc", NULL},
    {INLINE_OF_OTHER, "inline: the manifest is edited", FAILS, FAILS, "manifest", NULL},
};

static enum verdict verdict_of(const struct fp8q_report *r, int status)
{
    if (status != FP8Q_OK && status != FP8Q_E_MISMATCH)
        return ERROR;
    if (r->n_failed)
        return FAILS;
    return r->n_warned ? WARNS : PASSES;
}

static bool did_not_pass(const struct fp8q_report *r, const char *id)
{
    for (size_t i = 0; i < r->n_checks; i++)
        if (strcmp(r->checks[i].id, id) == 0)
            return r->checks[i].status != FP8Q_CHECK_PASS && r->findings[i].n_items > 0;
    return false;
}

static void judge(size_t row, const char *source, enum verdict expected, const char *check)
{
    static const char *const words[] = {"passes", "warns", "fails", "is an error"};
    struct fp8q_verify_options o = {
        .source = source, .threads = 2, .kernel = fp8q_kernel_select(NULL)};
    struct fp8q_report report;
    struct fp8q_warnings warnings = {0};
    struct fp8q_error err = {0};
    int status = fp8q_verify(at("x"), &o, &report, &warnings, &err);
    enum verdict found = verdict_of(&report, status);
    if (found != expected || (check && !did_not_pass(&report, check)))
        fail_msg("%s%s: %s, expected: %s, by %s; said: %s", table[row].what,
                 source ? ", with the source" : "", words[found], words[expected],
                 check ? check : "nothing", err.message);
    fp8q_report_reset(&report);
    fp8q_warnings_reset(&warnings);

    /* What warns fails with strict.  */
    o.strict = true;
    status = fp8q_verify(at("x"), &o, &report, NULL, &err);
    assert_int_equal(status != FP8Q_OK, expected != PASSES);
    fp8q_report_reset(&report);
}

static void test_changes(void **state)
{
    (void)state;
    char source[512];
    snprintf(source, sizeof(source), "%s", data_path("checkpoints/qwen3"));
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        const char *base = table[i].change >= INLINE_NOTHING ? "inline" : "sidecar";
        shell("cp -r '%s' '%s'", at("%s", base), at("x"));
        apply(table[i].change);
        judge(i, NULL, table[i].alone, table[i].check);
        judge(i, source, table[i].with_source,
              table[i].with_source_check ? table[i].with_source_check : table[i].check);
        shell("rm -rf '%s'", at("x"));
    }
}

/* What is empty is FP8 by its name only: neither a scale nor an exclusion is missing.  */
static void empty_fp8_tensors_are_nothing_quantized(void **state)
{
    static const char *const empty[] = {"vision_tower.layers.0.mlp.fc1.weight",
                                        "model.layers.0.mlp.gate_proj.weight"};
    const uint64_t shape[] = {128, 128}, none[] = {0, 128};
    (void)state;

    for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++) {
        struct maker m = {.sparse = true};
        maker_add(&m, "model.layers.0.mlp.down_proj.weight", FP8Q_BF16, 2, shape, 0);
        maker_add(&m, empty[i], FP8Q_F8_E4M3, 2, none, 0);
        maker_write(&m, at("empty"), "{\"model_type\": \"llama\"}");
        maker_free(&m);

        struct fp8q_request r = {.size = sizeof(r), .source = at("empty")};
        struct fp8q_verify_options o = {
            .source = at("empty"), .threads = 1, .kernel = fp8q_kernel_select(NULL)};
        struct fp8q_report report;
        struct fp8q_error err = {0};
        convert("x", &r);
        assert_ok(fp8q_verify(at("x"), &o, &report, NULL, &err), &err);
        assert_int_equal(report.n_failed, 0);
        fp8q_report_reset(&report);
        shell("rm -rf '%s' '%s'", at("x"), at("empty"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(empty_fp8_tensors_are_nothing_quantized),
    };
    return cmocka_run_group_tests(tests, make_outputs, remove_outputs);
}
