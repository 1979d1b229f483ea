/* Makes fsync and fdatasync take SLOW_FLUSH_MS longer, for "make demo-slow". Flushes wait for each other, as on a hard disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int slow_flush(long call, int file)
{
    const char *delay = getenv("SLOW_FLUSH_MS");
    long milliseconds = delay ? atol(delay) : 0;
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    Dl_info library;
    int disk = -1, result, error;

    /* All processes lock one file, this library. */
    if (dladdr((void *)slow_flush, &library))
        disk = open(library.dli_fname, O_RDONLY | O_CLOEXEC);
    if (disk != -1)
        while (flock(disk, LOCK_EX) == -1 && errno == EINTR)
            ;
    result = syscall(call, file);
    error = errno;
    while (nanosleep(&rest, &rest) == -1 && errno == EINTR)
        ;
    if (disk != -1)
        close(disk);
    errno = error;
    return result;
}

int fsync(int file)
{
    return slow_flush(SYS_fsync, file);
}

int fdatasync(int file)
{
    return slow_flush(SYS_fdatasync, file);
}
