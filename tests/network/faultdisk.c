/* A disk that fails on command, for processes that are started with LD_PRELOAD.
 *
 * EDN_FAULT_ROOT      only files below this folder are concerned
 * EDN_FAULT_CONTROL   a file whose lines say what fails now: CALL ACTION SUFFIX [SKIP]
 *                       CALL    write, sync, truncate or any
 *                       ACTION  EIO or ENOSPC: the call fails
 *                               tear: (write) half of the bytes are written, then the process is killed
 *                               lose: (sync) the last write is overwritten with zeros, then the process is killed
 *                       SUFFIX  how the file's name ends; * is any
 *                       SKIP    so many matching calls of this process pass first
 * EDN_FAULT_CAPACITY  bytes that all files below the folder may have together; statvfs reports what is left
 *
 * Build: gcc -shared -fPIC -O1 -o faultdisk.so faultdisk.c -ldl
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long passed;
static __thread struct { char path[PATH_MAX]; off_t offset; size_t size; } last;

static int below(int fd, char *path) {
    const char *root = getenv("EDN_FAULT_ROOT");
    char link[64];
    if (root == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    size_t depth = strlen(root);
    return strncmp(path, root, depth) == 0 && path[depth] == '/';
}

static int ends(const char *path, const char *suffix) {
    size_t a = strlen(path), b = strlen(suffix);
    return strcmp(suffix, "*") == 0 || (a >= b && strcmp(path + a - b, suffix) == 0);
}

/* What becomes of a call: the action's name in `action`, or 0. */
static int ordered(const char *call, const char *path, char *action) {
    const char *control = getenv("EDN_FAULT_CONTROL");
    char text[2048], *line, *rest = text;
    if (control == NULL) return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (length <= 0) return 0;
    text[length] = 0;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char name[16], what[16], suffix[128];
        long skip = 0;
        if (sscanf(line, "%15s %15s %127s %ld", name, what, suffix, &skip) < 3) continue;
        if (strcmp(name, call) != 0 && strcmp(name, "any") != 0) continue;
        if (!ends(path, suffix)) continue;
        if (__sync_add_and_fetch(&passed, 1) <= skip) continue;
        strcpy(action, what);
        return 1;
    }
    return 0;
}

static int failing(const char *call, int fd, char *path, char *action) {
    int saved = errno, found = below(fd, path) && ordered(call, path, action);
    errno = saved;
    return found;
}

static int refuse(const char *action) {
    errno = strcmp(action, "ENOSPC") == 0 ? ENOSPC : EIO;
    return -1;
}

/* -- capacity ------------------------------------------------------------------------------------------ */

static long long used(const char *folder) {
    long long total = 0;
    DIR *open = opendir(folder);
    struct dirent *entry;
    if (open == NULL) return 0;
    while ((entry = readdir(open)) != NULL) {
        char path[PATH_MAX];
        struct stat found;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path) continue;
        if (lstat(path, &found) != 0) continue;
        total += S_ISDIR(found.st_mode) ? used(path) : (long long)found.st_size;
    }
    closedir(open);
    return total;
}

static long long left(void) {
    const char *capacity = getenv("EDN_FAULT_CAPACITY");
    if (capacity == NULL) return LLONG_MAX;
    long long room = atoll(capacity) - used(getenv("EDN_FAULT_ROOT"));
    return room < 0 ? 0 : room;
}

/* Whether a file may grow to `end`. */
static int fits(int fd, off_t end) {
    struct stat found;
    char path[PATH_MAX];
    int saved = errno, good = 1;
    if (getenv("EDN_FAULT_CAPACITY") != NULL && below(fd, path) && fstat(fd, &found) == 0 && end > found.st_size)
        good = end - found.st_size <= left();
    errno = saved;
    return good;
}

static int report(struct statvfs *found, const char *path) {
    const char *root = getenv("EDN_FAULT_ROOT");
    char real[PATH_MAX];
    if (root == NULL || getenv("EDN_FAULT_CAPACITY") == NULL || realpath(path, real) == NULL) return 0;
    if (strncmp(real, root, strlen(root)) != 0) return 0;
    found->f_frsize = found->f_bsize = 4096;
    found->f_blocks = (fsblkcnt_t)(atoll(getenv("EDN_FAULT_CAPACITY")) / 4096);
    found->f_bavail = found->f_bfree = (fsblkcnt_t)(left() / 4096);
    return 0;
}

int statvfs(const char *path, struct statvfs *found) {
    int code = NEXT(statvfs)(path, found);
    return code == 0 ? report(found, path) : code;
}

int statvfs64(const char *path, struct statvfs64 *found) {
    int code = NEXT(statvfs64)(path, found);
    return code == 0 ? report((struct statvfs *)found, path) : code;
}

/* -- calls --------------------------------------------------------------------------------------------- */

static ssize_t positioned(int fd, const void *bytes, size_t size, off_t offset) {
    char path[PATH_MAX], action[16];
    if (failing("write", fd, path, action)) {
        if (strcmp(action, "tear") == 0) {
            syscall(SYS_pwrite64, fd, bytes, size / 2, offset);
            kill(getpid(), SIGKILL);
            pause();
        }
        if (strcmp(action, "lose") != 0) return refuse(action);
    }
    if (!fits(fd, offset + (off_t)size)) return refuse("ENOSPC");
    ssize_t done = syscall(SYS_pwrite64, fd, bytes, size, offset);
    if (done > 0 && getenv("EDN_FAULT_CONTROL") != NULL) {
        int saved = errno;
        if (below(fd, last.path)) last.offset = offset, last.size = (size_t)done;
        errno = saved;
    }
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    return positioned(fd, bytes, size, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    return positioned(fd, bytes, size, offset);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    char path[PATH_MAX], action[16];
    if (failing("write", fd, path, action) && strcmp(action, "tear") != 0 && strcmp(action, "lose") != 0)
        return refuse(action);
    if (getenv("EDN_FAULT_CAPACITY") != NULL) {
        int saved = errno;
        off_t here = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
        errno = saved;
        if (here >= 0 && !fits(fd, here + (off_t)size)) return refuse("ENOSPC");
    }
    return syscall(SYS_write, fd, bytes, size);
}

static int synced(int fd, long number) {
    char path[PATH_MAX], action[16];
    if (failing("sync", fd, path, action)) {
        if (strcmp(action, "lose") == 0) {
            static char zeros[1 << 16];
            if (strcmp(last.path, path) == 0 && last.size <= sizeof zeros)
                syscall(SYS_pwrite64, fd, zeros, last.size, last.offset);
            kill(getpid(), SIGKILL);
            pause();
        }
        return refuse(action);
    }
    return (int)syscall(number, fd);
}

int fsync(int fd) { return synced(fd, SYS_fsync); }

int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

static int cut(int fd, off_t size) {
    char path[PATH_MAX], action[16];
    if (failing("truncate", fd, path, action)) return refuse(action);
    if (!fits(fd, size)) return refuse("ENOSPC");
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size) { return cut(fd, size); }

int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

static int allocated(int fd, off_t offset, off_t size) {
    char path[PATH_MAX], action[16];
    if (failing("write", fd, path, action) && strcmp(action, "tear") != 0 && strcmp(action, "lose") != 0) {
        refuse(action);
        return errno;
    }
    if (!fits(fd, offset + size)) return ENOSPC;
    return (int)syscall(SYS_fallocate, fd, 0, offset, size) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t offset, off_t size) { return allocated(fd, offset, size); }

int posix_fallocate64(int fd, off64_t offset, off64_t size) { return allocated(fd, offset, size); }
