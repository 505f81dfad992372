/* SPDX-License-Identifier: Apache-2.0
 *
 * support.c - shared by the test programs.
 */
#include "support/support.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/path.h"
#include "base/dir.h"

void assert_ok(int status, const struct fp8q_error *err)
{
    if (status != FP8Q_OK)
        fail_msg("status %d: %s", status, err ? err->message : "(no message)");
}

void assert_failed(int status, enum fp8q_status expected, const struct fp8q_error *err,
                   const char *part)
{
    if (status != (int)expected)
        fail_msg("status %d, expected %d: %s", status, (int)expected, err ? err->message : "");
    if (err && !strstr(err->message, part))
        fail_msg("message \"%s\" lacks \"%s\"", err->message, part);
}

const char *data_path(const char *fmt, ...)
{
    static _Thread_local char paths[4][4096];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 4];
    int n = snprintf(path, sizeof(paths[0]), "%s/", FP8Q_TEST_DATA);
    va_list args;
    va_start(args, fmt);
    vsnprintf(path + n, sizeof(paths[0]) - (size_t)n, fmt, args);
    va_end(args);
    return path;
}

char *temp_dir_make(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = fp8q_join(base ? base : "/tmp", "fp8q-test-XXXXXX");
    if (!dir || !mkdtemp(dir))
        fail_msg("cannot make a temporary directory");
    return dir;
}

void temp_dir_remove(char *dir)
{
    struct fp8q_error err = {0};
    assert_ok(fp8q_remove_tree(dir, &err), &err);
    free(dir);
}

uint64_t test_seed(void)
{
    const char *given = getenv("FP8Q_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("FP8Q_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* Layout: [guard page][whole pages that hold the data][guard page].  */
static size_t pages_for(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page + (size == 0 ? page : 0);
}

uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

void *guard_alloc(size_t size, enum guard_side side)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = pages_for(size);
    char *base = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED || mprotect(base + page, inner, PROT_READ | PROT_WRITE) != 0)
        fail_msg("cannot make a guard page");
    return base + page + (side == GUARD_AFTER ? inner - size : 0);
}

void guard_free(void *data, size_t size, enum guard_side side)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = pages_for(size);
    char *base = (char *)data - (side == GUARD_AFTER ? inner - size : 0) - page;
    munmap(base, inner + 2 * page);
}
