/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c - runs a command and prints its largest resident set in KiB on standard output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage used;
    int status;
    if (argc < 2)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        dup2(2, 1); /* what it prints is not part of the answer */
        execv(argv[1], argv + 1);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0)
        return 1;
    printf("%ld\n", used.ru_maxrss);
    return 0;
}
