/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_output.c - result files over everything that can stand at a path, and what guards the
 * files that are read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/output.h"
#include "support/support.h"

static char dir[64];

static int enter(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/fp8q-output-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    return chdir("/") == 0 && fp8q_remove_tree(dir, NULL) == FP8Q_OK ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    (void)unlink(path);
    assert_int_equal(fp8q_write_file(path, text, strlen(text), NULL), FP8Q_OK);
}

static void expect_text(const char *path, const char *text)
{
    char *data;
    size_t len;
    assert_int_equal(fp8q_read_file(path, 1 << 20, &data, &len, NULL), FP8Q_OK);
    assert_string_equal(data, text);
    free(data);
}

static int check(const char *path, struct fp8q_guard_list *guard, struct fp8q_error *err)
{
    *err = (struct fp8q_error){0};
    return fp8q_output_check(path, guard, err);
}

/* Entries of the directory at hand: whether something was left over.  */
static size_t count(void)
{
    char **names;
    size_t n;
    assert_int_equal(fp8q_list_dir(".", &names, &n, NULL), FP8Q_OK);
    fp8q_names_free(names, n);
    return n;
}

static void test_files(void **state)
{
    (void)state;
    struct fp8q_error err;
    struct stat st, after;
    assert_int_equal(fp8q_output_write("new", "1", 1, &err), FP8Q_OK);
    expect_text("new", "1");

    /* The mode stays, and so does a link to the file of before: the new one is another inode.  */
    assert_int_equal(chmod("new", 0640), 0);
    assert_int_equal(link("new", "hard"), 0);
    assert_int_equal(fp8q_output_write("new", "22", 2, &err), FP8Q_OK);
    expect_text("new", "22");
    expect_text("hard", "1");
    assert_int_equal(stat("new", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);

    /* A link stays a link, through a directory and over several steps.  */
    assert_int_equal(mkdir("sub", 0777), 0);
    assert_int_equal(symlink("../new", "sub/one"), 0);
    assert_int_equal(symlink("sub/one", "two"), 0);
    assert_int_equal(fp8q_output_write("two", "333", 3, &err), FP8Q_OK);
    expect_text("new", "333");
    assert_int_equal(lstat("two", &after), 0);
    assert_true(S_ISLNK(after.st_mode));

    /* One that leads nowhere makes the file that it names.  */
    assert_int_equal(symlink("sub/made", "dangling"), 0);
    assert_int_equal(fp8q_output_write("dangling", "4", 1, &err), FP8Q_OK);
    expect_text("sub/made", "4");
    assert_int_equal(count(), 5);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *id;
        int status;
    } table[] = {
        {".", "output-directory", FP8Q_E_ARG},    {"d", "output-directory", FP8Q_E_ARG},
        {"d/", "output-directory", FP8Q_E_ARG},   {"to-d", "output-directory", FP8Q_E_ARG},
        {"none/file", "io", FP8Q_E_IO},           {"round", "link-loop", FP8Q_E_IO},
        {"/proc/self/fd/999", "io", FP8Q_E_IO},   {"", "output-directory", FP8Q_E_ARG},
        {"new/", "output-directory", FP8Q_E_ARG},
    };
    struct fp8q_error err;
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(symlink("d", "to-d"), 0);
    assert_int_equal(symlink("round", "round"), 0);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        assert_int_equal(check(table[i].path, NULL, &err), table[i].status);
        assert_string_equal(err.id, table[i].id);
        assert_int_not_equal(fp8q_output_write(table[i].path, "x", 1, &err), FP8Q_OK);
    }
    assert_int_equal(count(), 3);
}

/* What is no regular file is written into, and stays what it was.  */
static void test_written_into(void **state)
{
    (void)state;
    struct fp8q_error err;
    struct stat st;
    char buf[16] = "", path[32];
    assert_int_equal(mkfifo("fifo", 0666), 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    assert_int_equal(check("fifo", NULL, &err), FP8Q_OK);
    assert_int_equal(fp8q_output_write("fifo", "abc", 3, &err), FP8Q_OK);
    assert_int_equal(read(reader, buf, sizeof(buf)), 3);
    assert_int_equal(lstat("fifo", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(reader);
    assert_int_equal(fp8q_output_write("/dev/null", "abc", 3, &err), FP8Q_OK);

    /* A descriptor goes on where it stands, in a file as in a pipe.  */
    int fd = open("log", O_RDWR | O_CREAT, 0666);
    assert_int_equal(write(fd, "1 ", 2), 2);
    snprintf(path, sizeof(path), "/dev/fd/%d", fd);
    assert_int_equal(check(path, NULL, &err), FP8Q_OK);
    assert_int_equal(fp8q_output_write(path, "2 ", 2, &err), FP8Q_OK);
    assert_int_equal(write(fd, "3", 1), 1);
    close(fd);
    expect_text("log", "1 2 3");

    int ends[2];
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
    assert_int_equal(symlink(path, "to-pipe"), 0);
    assert_int_equal(fp8q_output_write("to-pipe", "xy", 2, &err), FP8Q_OK);
    assert_int_equal(read(ends[0], buf, sizeof(buf)), 2);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(count(), 3);
}

/* An abandoned one leaves the file of before.  */
static void test_abandoned(void **state)
{
    (void)state;
    struct fp8q_output out;
    struct fp8q_error err;
    put("f", "old");
    assert_int_equal(fp8q_output_open("f", &out, &err), FP8Q_OK);
    assert_int_equal(fp8q_output_add(&out, "new", 3, &err), FP8Q_OK);
    fp8q_output_abandon(&out);
    expect_text("f", "old");
    assert_int_equal(count(), 1);
}

/* As a run that is killed just before the last rename leaves it; its path.  */
static const char *put_orphan(const char *name, const char *text)
{
    static char path[128];
    struct stat st;
    put("orphan", text);
    assert_int_equal(stat("orphan", &st), 0);
    snprintf(path, sizeof(path), ".fp8q-%s.inode-%llx", name, (unsigned long long)st.st_ino);
    assert_int_equal(rename("orphan", path), 0);
    return path;
}

/* What a killed run left goes with the next run for the same file, and nothing else does.  */
static void test_orphans(void **state)
{
    (void)state;
    static const char *const foreign[] = {".fp8q-f.inode-",   ".fp8q-f.inode-1",
                                          ".fp8q-f.inode-1x", ".fp8q-f.0123456789abcdef",
                                          ".fp8q-f",          "f.inode-1"};
    struct fp8q_error err;

    put_orphan("f", "half");
    assert_int_equal(fp8q_output_write("f", "1", 1, &err), FP8Q_OK);
    assert_int_equal(count(), 1);

    for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
        put(foreign[i], "theirs");
    put_orphan("g", "of another file");
    assert_int_equal(mkdir(".fp8q-f.inode-2", 0777), 0);
    assert_int_equal(symlink("f", ".fp8q-f.inode-3"), 0);
    size_t before = count();
    assert_int_equal(fp8q_output_write("f", "2", 1, &err), FP8Q_OK);
    assert_int_equal(count(), before);
    expect_text("f", "2");

    /* One that is locked is being written by somebody else.  */
    const char *path = put_orphan("f", "at work");
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(fp8q_output_write("f", "3", 1, &err), FP8Q_OK);
    assert_int_equal(count(), before + 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(fp8q_output_write("f", "4", 1, &err), FP8Q_OK);
    assert_int_equal(count(), before);
}

static void put_bytes(const char *path, const void *bytes, size_t len)
{
    assert_int_equal(fp8q_write_file(path, bytes, len, NULL), FP8Q_OK);
}

/* What a result would replace, whoever reads it: weights by their bytes, and whatever lies beside the
 * config.json of a checkpoint.  */
static void test_replaced(void **state)
{
    (void)state;
    static const char bare[] = "\x02\0\0\0\0\0\0\0{}";
    static const char calib[] =
        "\x30\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"fp8q-calib/1\"}}";
    static const struct {
        const char *path;
        bool refused;
    } table[] = {
        {"weights", true},         {"link", true},
        {"x.gguf", true},          {"x.bin", true},
        {"old.pt", true},          {"model/config.json", true},
        {"model/notes.txt", true}, {"model/new.json", false},
        {"calib", false},          {"empty", false},
        {"text", false},           {"settings/config.json", false},
        {"short", false},
    };
    struct fp8q_error err;

    put_bytes("weights", bare, sizeof(bare) - 1);
    put_bytes("calib", calib, sizeof(calib) - 1);
    put_bytes("short", bare, 8);
    put_bytes("empty", "", 0);
    put("text", "{}");
    put("x.gguf", "GGUF....");
    put("x.bin", "PK\3\4....");
    put("old.pt", "\x80\2....");
    assert_int_equal(symlink("weights", "link"), 0);
    assert_int_equal(mkdir("model", 0777), 0);
    put("model/config.json", "{}");
    put("model/notes.txt", "mine");
    put("model/pytorch_model.bin", "x");
    assert_int_equal(mkdir("settings", 0777), 0);
    put("settings/config.json", "{}");

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        int status = check(table[i].path, NULL, &err);
        if (status != (table[i].refused ? FP8Q_E_ARG : FP8Q_OK))
            fail_msg("%s: %d %s", table[i].path, status, err.message);
        if (table[i].refused)
            assert_string_equal(err.id, "output-is-checkpoint");
    }
}

static void test_guard(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool refused;
    } table[] = {
        {"src/a.safetensors", true},
        {"src/../src/a.safetensors", true},
        {"src/", true},
        {"hard", true},
        {"soft", true},
        {"calib", true},
        {"src/README.md", true},
        {"src/sub/deep", true},
        {"src/new.safetensors", true},
        {"src/x.index.json", true},
        {"src/config.json", true},
        {"src/sub/new.safetensors", true},
        {"dir-link/README.md", true},
        {"outside", false},
        {"src/evidence.json", false},
        {"other/a.safetensors", false},
        {"other/evidence.json", false},
        {"fifo", false},
        {"src2/x.safetensors", false},
    };
    struct fp8q_guard_list guard = {0};
    struct fp8q_error err;
    assert_int_equal(mkdir("src", 0777) | mkdir("src/sub", 0777) | mkdir("other", 0777), 0);
    assert_int_equal(mkdir("src2", 0777), 0);
    put("src/a.safetensors", "a");
    put("src/README.md", "r");
    put("src/sub/deep", "d");
    put("calib", "c");
    put("outside", "o");
    assert_int_equal(link("src/a.safetensors", "hard"), 0);
    assert_int_equal(symlink("src/a.safetensors", "soft"), 0);
    assert_int_equal(symlink("src", "dir-link"), 0);
    assert_int_equal(mkfifo("fifo", 0666), 0);

    assert_int_equal(fp8q_guard_add(&guard, "src", "the source", &err), FP8Q_OK);
    assert_int_equal(fp8q_guard_add(&guard, "src/a.safetensors", "a shard", &err), FP8Q_OK);
    assert_int_equal(fp8q_guard_add(&guard, "calib", "the calibration", &err), FP8Q_OK);
    assert_int_equal(fp8q_guard_add(&guard, "absent", "the policy", &err), FP8Q_OK);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        err = (struct fp8q_error){0};
        int status = fp8q_guard_check(&guard, table[i].path, &err);
        if (status != (table[i].refused ? FP8Q_E_ARG : FP8Q_OK))
            fail_msg("%s: %d %s", table[i].path, status, err.message);
        if (table[i].refused)
            assert_string_equal(err.id, "output-is-input");
    }

    /* Two outputs of one name, under any spelling.  */
    assert_int_equal(check("other/new", &guard, &err), FP8Q_OK);
    assert_int_equal(check("other/../other/new", &guard, &err), FP8Q_E_ARG);
    assert_string_equal(err.id, "output-twice");
    assert_int_equal(check("other/newer", &guard, &err), FP8Q_OK);
    assert_int_equal(check("outside", &guard, &err), FP8Q_OK);
    assert_int_equal(symlink("../outside", "other/link"), 0);
    assert_int_equal(check("other/link", &guard, &err), FP8Q_E_ARG);
    assert_int_equal(check("/dev/null", &guard, &err), FP8Q_OK);
    assert_int_equal(check("/dev/null", &guard, &err), FP8Q_OK);

    const char *path, *what;
    assert_int_equal(fp8q_guard_find_below(&guard, "src", &path, &what, &err), FP8Q_OK);
    assert_string_equal(what, "the source");
    assert_int_equal(fp8q_guard_find_below(&guard, "other", &path, &what, &err), FP8Q_OK);
    assert_null(path);
    assert_int_equal(fp8q_guard_find_below(&guard, ".", &path, &what, &err), FP8Q_OK);
    assert_non_null(path);
    fp8q_guard_reset(&guard);
}

static void test_lies_in(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool inside;
    } table[] = {{"src", true},         {"src/", true},       {"src/out", true},
                 {"src/out/", true},    {"src/a/b/c/", true}, {"src/../x", false},
                 {"x/../src/y", true},  {"link/out//", true}, {"srcx", false},
                 {".", false},          {"/", false},         {"src/.", true},
                 {"./src/new/..", true}};
    struct stat st;
    assert_int_equal(mkdir("src", 0777) | mkdir("x", 0777) | symlink("src", "link"), 0);
    assert_int_equal(stat("src", &st), 0);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        bool inside;
        assert_int_equal(fp8q_lies_in(table[i].path, &st, &inside, NULL), FP8Q_OK);
        if (inside != table[i].inside)
            fail_msg("%s", table[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, enter, leave),
        cmocka_unit_test_setup_teardown(test_refused, enter, leave),
        cmocka_unit_test_setup_teardown(test_written_into, enter, leave),
        cmocka_unit_test_setup_teardown(test_abandoned, enter, leave),
        cmocka_unit_test_setup_teardown(test_orphans, enter, leave),
        cmocka_unit_test_setup_teardown(test_replaced, enter, leave),
        cmocka_unit_test_setup_teardown(test_guard, enter, leave),
        cmocka_unit_test_setup_teardown(test_lies_in, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
