/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint.c - files and directories: every policy of the index, the test checkpoints, and
 * a source that changes underneath.
 */
#include "support/support.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "format/index.h"
#include "format/names.h"
#include "support/maker.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"

static bool has_warning(const struct fp8q_warnings *warnings, const char *id)
{
    for (size_t i = 0; i < warnings->count; i++) {
        if (strcmp(warnings->items[i].id, id) == 0)
            return true;
    }
    return false;
}

/* ---- the index corpus ---------------------------------------------------------------------- */

/* git holds neither FIFOs nor empty directories, and the corpus holds links as files with the
 * target in them: the test makes the real thing.  */
static void make_special_shard(const char *name, const char *dir)
{
    char *shard = fp8q_join(dir, "model-00001-of-00002.safetensors");
    if (strcmp(name, "shard_is_fifo") == 0)
        assert_int_equal(mkfifo(shard, 0600), 0);
    if (strcmp(name, "shard_is_dir") == 0)
        assert_int_equal(mkdir(shard, 0700), 0);
    if (strncmp(name, "shard_symlink_", 14) == 0) {
        struct fp8q_error err = {0};
        char *target;
        size_t len;
        assert_ok(fp8q_read_file(shard, 4096, &target, &len, &err), &err);
        assert_int_equal(unlink(shard), 0);
        assert_int_equal(symlink(target, shard), 0);
        free(target);
    }
    free(shard);
}

static void copy_tree(const char *from, const char *to)
{
    struct fp8q_error err = {0};
    char **names;
    size_t count;
    assert_ok(fp8q_list_dir(from, &names, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        char *a = fp8q_join(from, names[i]), *b = fp8q_join(to, names[i]);
        struct stat st;
        assert_int_equal(stat(a, &st), 0);
        if (S_ISDIR(st.st_mode)) {
            assert_int_equal(mkdir(b, 0700), 0);
            copy_tree(a, b);
        } else {
            assert_ok(fp8q_copy_file(a, b, NULL, NULL, &err), &err);
        }
        free(a);
        free(b);
    }
    fp8q_names_free(names, count);
}

/* What must be said about a case beyond its verdict: part of the error, or the warning's id.  */
static const struct {
    const char *name, *says;
} expectations[] = {
    {"no_metadata", "index-no-metadata"},
    {"metadata_null", "index-no-metadata"},
    {"total_size_wrong", "index-total-size"},
    {"total_size_zero", "index-total-size"},
    {"total_size_float", "index-total-size"},
    {"total_size_string", "index-total-size"},
    {"tensor_not_indexed", "unindexed-tensor"},
    {"tensor_in_two_shards", "tensor-in-two-shards"},
    {"index_and_single_file", "index-beside-model"},
    {"shard_case_alias", "shard-alias"},
    {"shard_missing", "should hold"},
    {"shard_symlink_dangling", "should hold"},
    {"shard_symlink_loop", "symbolic link"},
    {"shard_is_dir", "is a directory"},
    {"shard_is_fifo", "is a FIFO"},
    {"shard_truncated", "truncated by"},
    {"shard_empty", "empty file"},
    {"lfs_pointer_index", "git lfs pull"},
    {"lfs_pointer_shard", "git lfs pull"},
    {"tensor_not_in_shard", "which lacks it"},
    {"tensor_wrong_shard", "but it is in"},
    {"json_merge_conflict", "merge conflict"},
    {"dup_key_same", "duplicate key \"alpha\""},
    {"no_weight_map", "no weight_map"},
    {"weight_map_empty", "names no tensor"},
    {"path_abs", "absolute"},
    {"path_dotdot_inner", "\"..\""},
    {"path_newline", "control characters"},
    {"no_index_two_shards", "neither"},
};

static const char *expected_words(const char *name)
{
    for (size_t i = 0; i < sizeof(expectations) / sizeof(*expectations); i++) {
        if (strcmp(expectations[i].name, name) == 0)
            return expectations[i].says;
    }
    return NULL;
}

static void run_index_case(const char *name, const char *verdict)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_warnings warnings = {0};
    struct fp8q_error err = {0};
    char *dir = temp_dir_make();
    const char *words = expected_words(name);
    copy_tree(data_path("corpus/index/%s", name), dir);
    make_special_shard(name, dir);
    int status = fp8q_ckpt_open(dir, &ckpt, &warnings, &err);
    if ((status != FP8Q_OK) != (strcmp(verdict, "reject") == 0))
        fail_msg("%s: expected %s, found %s", name, verdict, status ? err.message : "OK");
    if (status != FP8Q_OK) {
        assert_null(ckpt);
        if (words && !strstr(err.message, words))
            fail_msg("%s: \"%s\" lacks \"%s\"", name, err.message, words);
    } else {
        bool said = warnings.count > 0 && !has_warning(&warnings, "unindexed-file");
        if (said != (strcmp(verdict, "warn") == 0))
            fail_msg("%s: expected %s, found %s", name, verdict,
                     warnings.count ? warnings.items[0].message : "no warning");
        if (words && !has_warning(&warnings, words))
            fail_msg("%s: no warning %s", name, words);
        assert_true(ckpt->n_tensors == 3 || strcmp(name, "no_index_single") == 0);
    }
    fp8q_ckpt_close(ckpt);
    fp8q_warnings_reset(&warnings);
    temp_dir_remove(dir);
}

static void index_corpus_gets_its_verdicts(void **state)
{
    (void)state;
    char line[1024];
    int count = 0;
    FILE *table = fopen(data_path("corpus/index/EXPECTED.tsv"), "r");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        char *verdict = strchr(line, '\t');
        if (line[0] == '#' || !verdict)
            continue;
        *verdict++ = '\0';
        verdict[strcspn(verdict, "\t\r\n")] = '\0';
        run_index_case(line, verdict);
        count++;
    }
    fclose(table);
    assert_int_equal(count, 60);
}

static void real_indexes_are_read_or_refused_cleanly(void **state)
{
    (void)state;
    char **names;
    size_t count, n_indexes = 0, n_good = 0;
    struct fp8q_error err = {0};
    assert_ok(fp8q_list_dir(data_path("corpus/index-real"), &names, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        struct fp8q_index index;
        char *text;
        size_t len;
        if (!strstr(names[i], ".index.json"))
            continue;
        n_indexes++;
        assert_ok(
            fp8q_read_file(data_path("corpus/index-real/%s", names[i]), 1 << 24, &text, &len, &err),
            &err);
        int status = fp8q_index_parse(text, len, names[i], &index, &err);
        print_message("%s: %s", names[i], status ? err.message : "");
        if (status == FP8Q_OK) {
            print_message("%zu tensors in %zu shards, total_size %s%llu\n", index.n_entries,
                          index.n_shards, index.total_size_ok ? "" : "unusable ",
                          (unsigned long long)index.total_size);
            n_good++;
            for (size_t j = 1; j < index.n_entries; j++)
                assert_true(strcmp(index.entries[j - 1].tensor, index.entries[j].tensor) < 0);
        } else {
            print_message("\n");
            assert_int_equal(status, FP8Q_E_FORMAT);
        }
        fp8q_index_reset(&index);
        free(text);
    }
    fp8q_names_free(names, count);
    assert_int_equal(n_indexes, 11);
    assert_true(n_good >= 8);
}

static void shard_names_are_safe_paths(void **state)
{
    (void)state;
    static const char *const good[] = {
        "model.safetensors", "a/b/c.safetensors",      "./x.safetensors",       "a..b.safetensors",
        "...safetensors",    "\xc3\xa9 x.safetensors", "model.fp32.safetensors"};
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "/x.safetensors",
                                      "../x.safetensors",
                                      "a/../x.safetensors",
                                      "a/..",
                                      "x.safetensors/..",
                                      "C:x.safetensors",
                                      "a\\x.safetensors",
                                      "x.bin",
                                      "x.safetensors.bin",
                                      "x.SAFETENSORS",
                                      "a\x01.safetensors",
                                      "a\x7f.safetensors",
                                      "x.safetensors ",
                                      "x.safetensors/",
                                      ".safetensors",
                                      "./.safetensors"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        assert_null(fp8q_index_bad_name(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_non_null(fp8q_index_bad_name(bad[i]));
}

/* ---- the test checkpoints ------------------------------------------------------------------ */

struct tally {
    char name[64];
    size_t n_tensors;
};

/* Number of tensors of each checkpoint of EXPECTED.tsv, checking each name on the way.  */
static size_t tally_expected(struct tally *tallies, size_t cap)
{
    char line[2048], open_name[64] = "";
    size_t n = 0;
    struct fp8q_ckpt *ckpt = NULL;
    struct fp8q_error err = {0};
    FILE *table = fopen(data_path("checkpoints/EXPECTED.tsv"), "r");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        if (line[0] == '#')
            continue;
        const char *name = strtok(line, "\t"), *tensor = strtok(NULL, "\t"),
                   *dtype = strtok(NULL, "\t"), *shape = strtok(NULL, "\t");
        assert_non_null(shape);
        if (strcmp(open_name, name) != 0) {
            fp8q_ckpt_close(ckpt);
            assert_ok(fp8q_ckpt_open(data_path("checkpoints/%s", name), &ckpt, NULL, &err), &err);
            snprintf(open_name, sizeof(open_name), "%s", name);
            assert_true(n < cap);
            snprintf(tallies[n].name, sizeof(tallies[n].name), "%s", name);
            tallies[n++].n_tensors = 0;
        }
        tallies[n - 1].n_tensors++;
        const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, tensor);
        struct fp8q_text text = {0};
        assert_non_null(t);
        assert_string_equal(fp8q_dtype_name(t->dtype), dtype);
        fp8q_text_puts(&text, "[");
        for (uint32_t i = 0; i < t->ndim; i++)
            fp8q_text_printf(&text, "%s%llu", i ? "," : "", (unsigned long long)t->shape[i]);
        fp8q_text_puts(&text, "]");
        assert_string_equal(text.data, shape);
        fp8q_text_reset(&text);
    }
    fp8q_ckpt_close(ckpt);
    fclose(table);
    return n;
}

static void test_checkpoints_have_their_tensors(void **state)
{
    (void)state;
    struct tally tallies[64];
    size_t n = tally_expected(tallies, 64);
    assert_int_equal(n, 32);
    for (size_t i = 0; i < n; i++) {
        struct fp8q_ckpt *ckpt;
        struct fp8q_warnings warnings = {0};
        struct fp8q_error err = {0};
        uint64_t bytes = 0;
        assert_ok(
            fp8q_ckpt_open(data_path("checkpoints/%s", tallies[i].name), &ckpt, &warnings, &err),
            &err);
        if (ckpt->n_tensors != tallies[i].n_tensors)
            fail_msg("%s: %zu tensors, expected %zu", tallies[i].name, ckpt->n_tensors,
                     tallies[i].n_tensors);
        for (size_t j = 0; j < ckpt->n_tensors; j++) {
            const struct fp8q_tensor *t = &ckpt->tensors[j];
            bytes += t->size_bytes;
            assert_true(j == 0 || strcmp(ckpt->tensors[j - 1].name, t->name) < 0);
            assert_true(t->offset + t->size_bytes <= (uint64_t)ckpt->shards[t->shard].stat.st_size);
            assert_ptr_equal(fp8q_ckpt_find(ckpt, t->name), t);
        }
        assert_true(bytes == ckpt->data_bytes);
        assert_null(fp8q_ckpt_find(ckpt, "no such tensor"));
        for (size_t j = 0; j < warnings.count; j++)
            print_message("%s: %s: %s\n", tallies[i].name, warnings.items[j].id,
                          warnings.items[j].message);
        assert_int_equal(has_warning(&warnings, "unindexed-file"),
                         strcmp(tallies[i].name, "mixtral") == 0);
        assert_int_equal(warnings.count, has_warning(&warnings, "unindexed-file"));
        if (strcmp(tallies[i].name, "bare-file") != 0)
            assert_true(fp8q_json_is_object(ckpt->config));
        fp8q_ckpt_close(ckpt);
        fp8q_warnings_reset(&warnings);
    }
}

static void one_file_is_a_checkpoint(void **state)
{
    (void)state;
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    assert_ok(
        fp8q_ckpt_open(data_path("checkpoints/bare-file/model.safetensors"), &ckpt, NULL, &err),
        &err);
    assert_false(ckpt->is_dir);
    assert_string_equal(ckpt->dir, data_path("checkpoints/bare-file"));
    assert_int_equal(ckpt->n_shards, 1);
    assert_string_equal(ckpt->shards[0].name, "model.safetensors");
    assert_int_equal(ckpt->n_tensors, 33);
    assert_null(ckpt->config);
    assert_int_equal(ckpt->n_other_files, 0);
    fp8q_ckpt_close(ckpt);
    assert_failed(fp8q_ckpt_open(data_path("no such file"), &ckpt, NULL, &err), FP8Q_E_IO, &err,
                  "No such file");
    assert_null(ckpt);
    assert_failed(fp8q_ckpt_open(data_path("checkpoints/mixtral/model.safetensors.index.json"),
                                 &ckpt, NULL, &err),
                  FP8Q_E_ARG, &err, "name its directory");
    assert_int_equal(fp8q_ckpt_open(data_path("checkpoints/README.md"), &ckpt, NULL, &err),
                     FP8Q_E_FORMAT);
}

static void other_files_are_listed(void **state)
{
    (void)state;
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    static const char *const expected[] = {"config.json", "experiment_cfg"};
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/gr00t-n1.5"), &ckpt, NULL, &err), &err);
    assert_int_equal(ckpt->n_other_files, 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(ckpt->other_files[i], expected[i]);
    assert_true(ckpt->has_index && ckpt->index_text && ckpt->index_total_size > 0);
    fp8q_ckpt_close(ckpt);
    /* An index that names model.safetensors itself is no index beside a model.  */
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/qwen3-fp8-ct"), &ckpt, NULL, &err), &err);
    assert_true(ckpt->has_index && ckpt->n_shards == 1);
    fp8q_ckpt_close(ckpt);
}

/* ---- made-up checkpoints ------------------------------------------------------------------- */

/* One shard of U8 tensors of one byte, named @prefix0 and so on.  */
static void write_shard(const char *dir, const char *name, const char *prefix, size_t count)
{
    struct fp8q_text text = {0};
    struct fp8q_error err = {0};
    fp8q_text_add(&text, "\0\0\0\0\0\0\0\0{", 9);
    for (size_t i = 0; i < count; i++)
        fp8q_text_printf(&text,
                         "%s\"%s%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                         i ? "," : "", prefix, i, i, i + 1);
    fp8q_text_puts(&text, "}");
    size_t len = text.len - 8;
    for (size_t i = 0; i < 8; i++)
        text.data[i] = (char)((uint64_t)len >> (8 * i));
    for (size_t i = 0; i < count; i++)
        fp8q_text_printf(&text, "%c", (char)('A' + i % 26));
    char *path = fp8q_join(dir, name);
    assert_ok(fp8q_write_file(path, text.data, text.len, &err), &err);
    free(path);
    fp8q_text_reset(&text);
}

static void write_text(const char *dir, const char *name, const struct fp8q_text *text)
{
    struct fp8q_error err = {0};
    char *path = fp8q_join(dir, name);
    assert_ok(fp8q_write_file(path, text->data, text->len, &err), &err);
    free(path);
}

static void directories_without_a_model_say_what_they_hold(void **state)
{
    (void)state;
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    char *dir = temp_dir_make();
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err, "no .safetensors file");
    char *bin = fp8q_join(dir, "pytorch_model.bin");
    assert_ok(fp8q_write_file(bin, "x", 1, &err), &err);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err, "pytorch_model.bin");
    char *shard = fp8q_join(dir, "model-00001-of-00003.safetensors");
    assert_ok(fp8q_write_file(shard, "\2\0\0\0\0\0\0\0{}", 10, &err), &err);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err, "one shard of several");
    write_shard(dir, "b.safetensors", "x", 1);
    char *other_index = fp8q_join(dir, "other.index.json"), *b = fp8q_join(dir, "b.safetensors");
    assert_ok(fp8q_write_file(other_index, "{}", 2, &err), &err);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err, "of another name");
    assert_int_equal(unlink(b), 0);
    free(other_index);
    free(b);
    char *whole = fp8q_join(dir, "model-00001-of-00001.safetensors");
    assert_int_equal(rename(shard, whole), 0);
    struct fp8q_warnings warnings = {0};
    assert_ok(fp8q_ckpt_open(dir, &ckpt, &warnings, &err), &err);
    assert_true(has_warning(&warnings, "no-tensors"));
    fp8q_ckpt_close(ckpt);
    fp8q_warnings_reset(&warnings);
    char *config = fp8q_join(dir, "config.json");
    assert_ok(fp8q_write_file(config, "[]", 2, &err), &err);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_FORMAT, &err, "no JSON object");
    free(bin);
    free(shard);
    free(whole);
    free(config);
    temp_dir_remove(dir);
}

static void a_thousand_shards_need_few_descriptors(void **state)
{
    (void)state;
    struct fp8q_text index = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    struct rlimit before, few;
    char *dir = temp_dir_make();
    fp8q_text_puts(&index, "{\"metadata\":{\"total_size\":2000},\"weight_map\":{");
    for (int i = 0; i < 1000; i++) {
        char name[64], prefix[32];
        snprintf(name, sizeof(name), "model-%05d-of-01000.safetensors", i + 1);
        snprintf(prefix, sizeof(prefix), "s%d.", i);
        write_shard(dir, name, prefix, 2);
        fp8q_text_printf(&index, "%s\"%s0\":\"%s\",\"%s1\":\"%s\"", i ? "," : "", prefix, name,
                         prefix, name);
    }
    fp8q_text_puts(&index, "}}");
    write_text(dir, "model.safetensors.index.json", &index);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int status = fp8q_ckpt_open(dir, &ckpt, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_ok(status, &err);
    assert_int_equal(ckpt->n_shards, 1000);
    assert_int_equal(ckpt->n_tensors, 2000);
    fp8q_ckpt_close(ckpt);
    fp8q_text_reset(&index);
    temp_dir_remove(dir);
}

static void all_missing_shards_are_named(void **state)
{
    (void)state;
    struct fp8q_text index = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    char *dir = temp_dir_make();
    write_shard(dir, "a.safetensors", "a", 1);
    fp8q_text_puts(&index, "{\"metadata\":{},\"weight_map\":{\"a0\":\"a.safetensors\","
                           "\"b0\":\"b.safetensors\",\"b1\":\"b.safetensors\","
                           "\"c0\":\"c.safetensors\"}}");
    write_text(dir, "model.safetensors.index.json", &index);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err,
                  "shard b.safetensors, which should hold 2 tensors (missing: 2 of 3 shards, also "
                  "c.safetensors)");
    assert_string_equal(err.id, "shard-missing");
    write_shard(dir, "model.safetensors", "x", 1);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_IO, &err, "may be stale");
    fp8q_text_reset(&index);
    temp_dir_remove(dir);
}

/* The copy that the index does not name is left out, whatever the order of the shards.  */
static void the_index_decides_between_two_copies(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct fp8q_text index = {0};
        struct fp8q_ckpt *ckpt;
        struct fp8q_error err = {0};
        char byte = 0, *dir = temp_dir_make();
        write_shard(dir, "a.safetensors", "x", first ? 1 : 2);
        write_shard(dir, "b.safetensors", "x", first ? 2 : 1);
        fp8q_text_printf(
            &index,
            "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"x0\":\"%c.safetensors\","
            "\"x1\":\"%c.safetensors\"}}",
            first ? 'a' : 'b', first ? 'b' : 'a');
        write_text(dir, "model.safetensors.index.json", &index);
        struct fp8q_warnings warnings = {0};
        assert_ok(fp8q_ckpt_open(dir, &ckpt, &warnings, &err), &err);
        assert_int_equal(warnings.count, 1);
        assert_string_equal(warnings.items[0].id, "tensor-in-two-shards");
        assert_int_equal(ckpt->n_tensors, 2);
        assert_int_equal(fp8q_ckpt_find(ckpt, "x0")->shard, first ? 0 : 1);
        assert_int_equal(fp8q_ckpt_find(ckpt, "x1")->shard, first ? 1 : 0);
        assert_ok(fp8q_ckpt_read(ckpt, fp8q_ckpt_find(ckpt, "x1"), 0, &byte, 1, &err), &err);
        assert_int_equal(byte, 'B');
        fp8q_ckpt_close(ckpt);
        fp8q_warnings_reset(&warnings);
        fp8q_text_reset(&index);
        temp_dir_remove(dir);
    }
}

static void an_unnamed_tensor_in_two_shards_is_an_error(void **state)
{
    (void)state;
    struct fp8q_text index = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    char *dir = temp_dir_make();
    write_shard(dir, "a.safetensors", "x", 2);
    write_shard(dir, "b.safetensors", "x", 3);
    fp8q_text_puts(&index, "{\"metadata\":{},\"weight_map\":{\"x0\":\"a.safetensors\","
                           "\"x2\":\"b.safetensors\"}}");
    write_text(dir, "model.safetensors.index.json", &index);
    assert_failed(fp8q_ckpt_open(dir, &ckpt, NULL, &err), FP8Q_E_FORMAT, &err,
                  "\"x1\" is in a.safetensors and in b.safetensors");
    fp8q_text_reset(&index);
    temp_dir_remove(dir);
}

static void hard_links_are_one_shard(void **state)
{
    (void)state;
    struct fp8q_text index = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_warnings warnings = {0};
    struct fp8q_error err = {0};
    char *dir = temp_dir_make();
    write_shard(dir, "m.safetensors", "x", 3);
    char *m = fp8q_join(dir, "m.safetensors"), *b = fp8q_join(dir, "b.safetensors"),
         *z = fp8q_join(dir, "z.safetensors");
    write_shard(dir, "c.safetensors", "y", 1);
    assert_int_equal(link(m, b), 0);
    assert_int_equal(symlink("m.safetensors", z), 0);
    fp8q_text_puts(&index, "{\"metadata\":{},\"weight_map\":{\"x0\":\"m.safetensors\","
                           "\"x1\":\"b.safetensors\",\"x2\":\"z.safetensors\","
                           "\"y0\":\"c.safetensors\"}}");
    write_text(dir, "model.safetensors.index.json", &index);
    assert_ok(fp8q_ckpt_open(dir, &ckpt, &warnings, &err), &err);
    assert_int_equal(ckpt->n_shards, 2);
    assert_int_equal(ckpt->n_tensors, 4);
    assert_int_equal(warnings.count, 4); /* two names too many, and the files behind them */
    assert_true(has_warning(&warnings, "shard-alias"));
    assert_string_equal(ckpt->shards[fp8q_ckpt_find(ckpt, "x2")->shard].name, "b.safetensors");
    assert_string_equal(ckpt->shards[fp8q_ckpt_find(ckpt, "y0")->shard].name, "c.safetensors");
    fp8q_ckpt_close(ckpt);
    fp8q_warnings_reset(&warnings);
    fp8q_text_reset(&index);
    free(m);
    free(b);
    free(z);
    temp_dir_remove(dir);
}

/* A sparse file with a tensor that begins beyond 4 GiB.  */
static void offsets_beyond_4_gib_are_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,"
        "5368709120]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
        "\"data_offsets\":[5368709120,5368709122]}}";
    const uint64_t end = 8 + sizeof(text) - 1 + UINT64_C(5368709122);
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    char length[8] = {(char)(sizeof(text) - 1)}, bytes[2];
    char *dir = temp_dir_make(), *path = fp8q_join(dir, "x.safetensors");
    int fd;
    assert_true(sizeof(text) - 1 < 256);
    assert_ok(fp8q_create(path, &fd, &err), &err);
    assert_ok(fp8q_pwrite(fd, length, 8, 0, path, &err), &err);
    assert_ok(fp8q_pwrite(fd, text, sizeof(text) - 1, 8, path, &err), &err);
    assert_ok(fp8q_pwrite(fd, "YZ", 2, end - 2, path, &err), &err);
    assert_ok(fp8q_close(&fd, path, &err), &err);
    assert_ok(fp8q_ckpt_open(path, &ckpt, NULL, &err), &err);
    assert_true(ckpt->data_bytes == UINT64_C(5368709122));
    assert_true(fp8q_ckpt_find(ckpt, "a")->n_elems == UINT64_C(5368709120));
    assert_ok(fp8q_ckpt_read(ckpt, fp8q_ckpt_find(ckpt, "b"), 0, bytes, 2, &err), &err);
    assert_memory_equal(bytes, "YZ", 2);
    fp8q_ckpt_close(ckpt);
    free(path);
    temp_dir_remove(dir);
}

static void a_changed_source_is_noticed(void **state)
{
    (void)state;
    struct fp8q_ckpt *ckpt;
    struct fp8q_error err = {0};
    char byte, *dir = temp_dir_make(), *path = fp8q_join(dir, "model.safetensors");
    write_shard(dir, "model.safetensors", "x", 3);
    assert_ok(fp8q_ckpt_open(dir, &ckpt, NULL, &err), &err);
    assert_ok(fp8q_ckpt_unchanged(ckpt, &err), &err);
    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, "x2");
    assert_ok(fp8q_ckpt_read(ckpt, t, 0, &byte, 1, &err), &err);
    assert_int_equal(byte, 'C');
    assert_int_equal(fp8q_ckpt_read(ckpt, t, 1, &byte, 1, &err), FP8Q_E_ARG);
    assert_int_equal(fp8q_ckpt_read(ckpt, t, UINT64_MAX, &byte, 2, &err), FP8Q_E_ARG);
    /* Another file of the same size under the name.  */
    write_shard(dir, "new", "x", 3);
    char *other = fp8q_join(dir, "new");
    assert_int_equal(rename(other, path), 0);
    assert_failed(fp8q_ckpt_unchanged(ckpt, &err), FP8Q_E_IO, &err, "changed since");
    assert_string_equal(err.id, "source-changed");
    assert_failed(fp8q_ckpt_read(ckpt, t, 0, &byte, 1, &err), FP8Q_E_IO, &err, "changed since");
    assert_int_equal(unlink(path), 0);
    assert_failed(fp8q_ckpt_unchanged(ckpt, &err), FP8Q_E_IO, &err, "is gone");
    fp8q_ckpt_close(ckpt);
    free(other);
    free(path);
    temp_dir_remove(dir);
}

/* A scale sidecar is known by its metadata; anything else under its name is left alone.  */
static void a_foreign_sidecar_is_no_part(void **state)
{
    (void)state;
    static const struct fp8q_st_pair ours[] = {{FP8Q_SIDECAR_VERSION_KEY, "1.0",
                                                sizeof(FP8Q_SIDECAR_VERSION_KEY) - 1, 3}},
                                     other[] = {{"format", "pt", 6, 2}};
    static const struct {
        const struct fp8q_st_pair *metadata;
        size_t n_shards;
    } cases[] = {{ours, 2}, {other, 1}};
    static const uint64_t shape[] = {1};
    static const float one = 1;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_warnings warnings = {0};
        struct fp8q_ckpt *ckpt;
        struct maker m = {0}, s = {.metadata = cases[i].metadata, .n_metadata = 1};
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "a.safetensors");
        char *scales = fp8q_join(dir, "a.scales.safetensors");
        maker_add(&m, "x.weight", FP8Q_F32, 1, shape, 0)->data = &one;
        maker_add(&s, "y.weight_scale", FP8Q_F32, 1, shape, 0)->data = &one;
        maker_write_shard(&m, 0, path);
        maker_write_shard(&s, 0, scales);
        assert_ok(fp8q_ckpt_open(path, &ckpt, &warnings, &err), &err);
        assert_int_equal(ckpt->n_shards, cases[i].n_shards);
        assert_int_equal(ckpt->n_tensors, cases[i].n_shards);
        assert_int_equal(has_warning(&warnings, "foreign-scales"), cases[i].n_shards == 1);
        fp8q_ckpt_close(ckpt);
        fp8q_warnings_reset(&warnings);
        maker_free(&m);
        maker_free(&s);
        free(path);
        free(scales);
        temp_dir_remove(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_foreign_sidecar_is_no_part),
        cmocka_unit_test(index_corpus_gets_its_verdicts),
        cmocka_unit_test(real_indexes_are_read_or_refused_cleanly),
        cmocka_unit_test(shard_names_are_safe_paths),
        cmocka_unit_test(test_checkpoints_have_their_tensors),
        cmocka_unit_test(one_file_is_a_checkpoint),
        cmocka_unit_test(other_files_are_listed),
        cmocka_unit_test(directories_without_a_model_say_what_they_hold),
        cmocka_unit_test(a_thousand_shards_need_few_descriptors),
        cmocka_unit_test(all_missing_shards_are_named),
        cmocka_unit_test(the_index_decides_between_two_copies),
        cmocka_unit_test(an_unnamed_tensor_in_two_shards_is_an_error),
        cmocka_unit_test(hard_links_are_one_shard),
        cmocka_unit_test(offsets_beyond_4_gib_are_read),
        cmocka_unit_test(a_changed_source_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
