/* SPDX-License-Identifier: Apache-2.0
 *
 * path.c - paths as text.
 */
#include "base/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

char *fp8q_join(const char *dir, const char *name)
{
    size_t a = strlen(dir), b = strlen(name);
    bool slash = a > 0 && dir[a - 1] != '/';

    char *path = malloc(a + slash + b + 1);
    if (!path)
        return NULL;

    memcpy(path, dir, a);
    if (slash)
        path[a] = '/';
    memcpy(path + a + slash, name, b + 1);
    return path;
}

char *fp8q_dir_of(const char *path)
{
    size_t len = (size_t)(fp8q_basename(path) - path);
    return len ? strndup(path, len) : strdup(".");
}

char *fp8q_join_unique(const char *dir, const char *name)
{
    uint64_t number = 0;
    struct timespec now;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number)) {
        clock_gettime(CLOCK_REALTIME, &now); /* before the system has gathered any randomness */
        number = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec << 16 ^ (uint64_t)getpid();
    }

    char *path = fp8q_join(dir, name);
    size_t len = path ? strlen(path) : 0;
    char *longer = path ? realloc(path, len + 20) : NULL;
    if (!longer) {
        free(path);
        return NULL;
    }

    snprintf(longer + len, 20, ".%016llx", (unsigned long long)number);
    return longer;
}

bool fp8q_stays_inside(const char *relative)
{
    if (*relative == '\0' || *relative == '/')
        return false;

    for (const char *part = relative; *part; part += strcspn(part, "/"), part += *part == '/')
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;

    return true;
}

const char *fp8q_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
