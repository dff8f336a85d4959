/* Faults for a real binary: preloaded (LD_PRELOAD), steered through a file it
 * maps. See lib.rs for what it does and for the layout of that file, which the
 * two share: a change here is a change there.
 *
 * Order of locks: there is one. What writes to a tracked file holds it, so a
 * power cut sees each write whole or not at all; syncs do not hold it while
 * the disk works.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#undef open
#undef openat

/* ---- the control file ---------------------------------------------------- */

#define MAGIC 0x31534c5455414651ull
#define WORDS 2048
enum { W_MAGIC, W_PID, W_SEED, W_CLOCK_MS, W_UNDO, W_CUT, W_CUTS, W_UNDONE, W_UNSYNCED, W_RULES, W_READ, W_WRITTEN, W_HOLD, W_HELD };
enum { UNDO_PAGES = 1, UNDO_NAMES = 2, UNDO_SOME = 4, NO_SYNC = 8 };
enum { CALLS_AT = 64, CALL_WORDS = 4, RULES_AT = 256, RULE_WORDS = 16, RULES = 64 };
enum { N_CALLS, N_OURS, N_BYTES, N_FAILED };
enum { R_ARMED, R_CALL, R_FILES, R_ACTION, R_VALUE, R_SKIP, R_COUNT, R_PPM, R_MATCHED, R_FIRED };
enum { FAIL, SHORT, DELAY, CUT_BEFORE, CUT_AFTER };
enum {
    C_OPEN, C_CREATE, C_READ, C_WRITE, C_SYNC, C_TRUNCATE, C_RENAME, C_UNLINK,
    C_LINK, C_ACCEPT, C_RECV, C_SEND, C_CLOCK
};
enum { SEGMENT = 1, SPARE = 2, RUN = 4, DIRECTORY = 8, OTHER = 16, SOCKET = 32, OUTSIDE = 64 };

/* No other part of the server uses it. */
#define HOLD_SIGNAL (SIGRTMIN + 7)

static volatile uint64_t *words;
static volatile int active;
static char data_dir[PATH_MAX];
static size_t data_len;

static uint64_t get(int at) { return __atomic_load_n(&words[at], __ATOMIC_ACQUIRE); }
static void set(int at, uint64_t to) { __atomic_store_n(&words[at], to, __ATOMIC_RELEASE); }
static uint64_t add(int at, uint64_t by) { return __atomic_fetch_add(&words[at], by, __ATOMIC_ACQ_REL); }

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "faults: no %s\n", name);
        abort();
    }
    return found;
}
#define REAL(type, name, ...)                                        \
    static type (*real_##name)(__VA_ARGS__);                         \
    static type (*get_##name(void))(__VA_ARGS__) {                   \
        if (!real_##name) real_##name = (type(*)(__VA_ARGS__))real(#name); \
        return real_##name;                                          \
    }
REAL(int, open64, const char *, int, ...)
REAL(int, openat64, int, const char *, int, ...)
REAL(int, close, int)
REAL(ssize_t, read, int, void *, size_t)
REAL(ssize_t, pread64, int, void *, size_t, off64_t)
REAL(ssize_t, readv, int, const struct iovec *, int)
REAL(ssize_t, write, int, const void *, size_t)
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
REAL(ssize_t, writev, int, const struct iovec *, int)
REAL(int, fsync, int)
REAL(int, fdatasync, int)
REAL(int, ftruncate64, int, off64_t)
REAL(int, rename, const char *, const char *)
REAL(int, unlink, const char *)
REAL(int, unlinkat, int, const char *, int)
REAL(int, link, const char *, const char *)
REAL(int, linkat, int, const char *, int, const char *, int)
REAL(int, mkdirat, int, const char *, mode_t)
REAL(int, accept4, int, struct sockaddr *, socklen_t *, int)
REAL(ssize_t, recvfrom, int, void *, size_t, int, struct sockaddr *, socklen_t *)
REAL(ssize_t, sendto, int, const void *, size_t, int, const struct sockaddr *, socklen_t)
REAL(ssize_t, sendmsg, int, const struct msghdr *, int)
REAL(int, clock_gettime, clockid_t, struct timespec *)
REAL(int, execvp, const char *, char *const *)

/* ---- which files are whose ----------------------------------------------- */

#define FDS (1 << 20)
static struct { unsigned char kind; char *path; } fds[FDS];
static int top_fd;

static pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
static void lock(void) { pthread_mutex_lock(&lock_); }
static void unlock(void) { pthread_mutex_unlock(&lock_); }

static int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* `path` below the data directory, or that itself: its kind; else OUTSIDE. */
static unsigned kind_of_path(const char *path) {
    if (!data_len || strncmp(path, data_dir, data_len) != 0) return OUTSIDE;
    if (path[data_len] == 0 || strcmp(path + data_len, "/") == 0) return DIRECTORY;
    if (path[data_len] != '/') return OUTSIDE;
    const char *name = strrchr(path, '/') + 1;
    if (begins(name, "segment-")) return SEGMENT;
    if (begins(name, "spare-")) return SPARE;
    if (begins(name, "run-")) return RUN;
    return OTHER;
}

/* Makes `path` absolute. */
static const char *absolute(int dir, const char *path, char *into) {
    if (path[0] == '/') return path;
    char base[PATH_MAX];
    if (dir == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return path;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t n = readlink(link, base, sizeof base - 1);
        if (n < 0) return path;
        base[n] = 0;
    }
    int n = snprintf(into, PATH_MAX, "%s/%s", base, path);
    return n < PATH_MAX ? into : path;
}

static unsigned kind_of(int fd) {
    if (fd < 0 || fd >= FDS || !fds[fd].kind) return OUTSIDE;
    return fds[fd].kind;
}

static void know(int fd, unsigned kind, const char *path) {
    if (fd < 0 || fd >= FDS) return;
    lock();
    free(fds[fd].path);
    fds[fd].path = path ? strdup(path) : NULL;
    fds[fd].kind = (unsigned char)kind;
    if (path && fd > top_fd) top_fd = fd;
    unlock();
}

/* ---- what is not synced -------------------------------------------------- */

struct record {
    struct record *older;
    uint64_t seq;
    off64_t off, size; /* where, and the file's length before */
    size_t len, had;   /* bytes written; bytes that were there before */
    int lost;          /* a sync of it failed: no later one makes it durable */
    char old[];
};
struct file {
    struct file *next;
    dev_t dev;
    ino_t ino;
    int fd; /* of our own, for reading what was and writing it back */
    struct record *newest;
};
struct name {
    struct name *older;
    uint64_t seq;
    char *from, *to; /* `from` NULL: `to` was made, or removed if there is `content` */
    char *content;
    size_t len;
};
static struct file *files;
static struct name *names;
static uint64_t seq;

static void drop_records(struct file *file, uint64_t through) {
    struct record **at = &file->newest;
    while (*at) {
        struct record *one = *at;
        if (one->seq <= through && !one->lost) {
            *at = one->older;
            add(W_UNSYNCED, -(uint64_t)one->len);
            free(one);
        } else {
            at = &one->older;
        }
    }
}

static void drop_unused(void) {
    struct file **at = &files;
    while (*at) {
        struct file *one = *at;
        if (one->newest) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        get_close()(one->fd);
        free(one);
    }
}

static struct file *file_of(int fd, int make, off64_t *size) {
    struct stat64 stat;
    if (fstat64(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) return NULL;
    if (size) *size = stat.st_size;
    for (struct file *one = files; one; one = one->next)
        if (one->dev == stat.st_dev && one->ino == stat.st_ino) return one;
    if (!make || stat.st_nlink == 0) return NULL;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = get_open64()(path, O_RDWR | O_CLOEXEC);
    if (own < 0) return NULL;
    struct file *one = calloc(1, sizeof *one);
    one->dev = stat.st_dev, one->ino = stat.st_ino, one->fd = own;
    one->next = files;
    files = one;
    return one;
}

/* Called locked, before `len` bytes at `off` change (or, with the file cut to
 * `off`, everything from there). */
static void remember(int fd, off64_t off, size_t len) {
    off64_t size;
    struct file *file = file_of(fd, 1, &size);
    if (!file) return;
    struct record *one = malloc(sizeof *one + len);
    if (!one) abort();
    size_t had = 0;
    while (had < len) {
        ssize_t n = get_pread64()(file->fd, one->old + had, len - had, off + (off64_t)had);
        if (n <= 0) break;
        had += (size_t)n;
    }
    one->seq = ++seq, one->off = off, one->size = size, one->len = len, one->had = had, one->lost = 0;
    one->older = file->newest;
    file->newest = one;
    add(W_UNSYNCED, len);
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static int undo_page(const struct file *file, off64_t page) {
    if (!(get(W_UNDO) & UNDO_SOME)) return 1;
    return mix(get(W_SEED) ^ mix((uint64_t)file->ino * 1000003 + (uint64_t)page)) & 1;
}

static void put_back(int fd, const char *bytes, size_t len, off64_t off) {
    while (len) {
        ssize_t n = get_pwrite64()(fd, bytes, len, off);
        if (n <= 0) {
            perror("faults: cannot undo");
            abort();
        }
        bytes += n, len -= (size_t)n, off += n;
    }
}

static void undo_record(const struct file *file, const struct record *one) {
    static const char zeros[4096];
    off64_t end = one->off + (off64_t)one->len;
    for (off64_t at = one->off; at < end;) {
        off64_t page = at / 4096, stop = (page + 1) * 4096;
        if (stop > end) stop = end;
        if (undo_page(file, page)) {
            size_t len = (size_t)(stop - at), from = (size_t)(at - one->off);
            size_t known = from < one->had ? one->had - from : 0;
            if (known > len) known = len;
            put_back(file->fd, one->old + from, known, at);
            put_back(file->fd, zeros, len - known, at + (off64_t)known);
            add(W_UNDONE, len);
        }
        at = stop;
    }
    if (undo_page(file, -1)) get_ftruncate64()(file->fd, one->size);
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk) {
    (void)about, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* A name that was made is gone; of a directory all that is in it, as nothing
 * leads there any more. One that was removed is back. */
static void undo_name(const struct name *one) {
    struct stat64 stat;
    if (one->content) {
        int fd = get_open64()(one->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) put_back(fd, one->content, one->len, 0);
    } else if (one->from) {
        get_rename()(one->to, one->from);
    } else if (lstat64(one->to, &stat) == 0 && S_ISDIR(stat.st_mode)) {
        nftw(one->to, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    } else {
        get_unlinkat()(AT_FDCWD, one->to, 0);
    }
}

/* The power goes. Does not return, and no other thread changes anything after. */
static void cut(void) {
    lock();
    uint64_t undo = get(W_UNDO);
    if (undo & UNDO_PAGES)
        for (struct file *file = files; file; file = file->next)
            for (struct record *one = file->newest; one; one = one->older) undo_record(file, one);
    if (undo & UNDO_NAMES)
        for (struct name *one = names; one; one = one->older) undo_name(one);
    add(W_CUTS, 1);
    set(W_CUT, 0);
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* One thread stands still, wherever it is: SIGSTOP stops all. */
static void hold(int signal) {
    int error = errno;
    uint64_t self = (uint64_t)syscall(SYS_gettid);
    struct timespec moment = {0, 500000};
    set(W_HELD, self);
    while (get(W_HOLD) == self) nanosleep(&moment, NULL);
    set(W_HELD, 0);
    errno = error;
    (void)signal;
}

static void *watch(void *unused) {
    uint64_t before = 0;
    for (;;) {
        if (get(W_CUT)) cut();
        uint64_t thread = get(W_HOLD);
        if (thread && thread != before) syscall(SYS_tgkill, (long)getpid(), (long)thread, (long)HOLD_SIGNAL);
        before = thread;
        usleep(500);
    }
    return unused;
}

static void name_changed(const char *from, const char *to) {
    struct name *one = calloc(1, sizeof *one);
    one->seq = ++seq;
    one->from = from ? strdup(from) : NULL;
    one->to = strdup(to);
    one->older = names;
    names = one;
}

static void names_synced(const char *dir, uint64_t through) {
    struct name **at = &names;
    size_t len = strlen(dir);
    while (*at) {
        struct name *one = *at;
        const char *slash = strrchr(one->to, '/');
        if (one->seq <= through && (size_t)(slash - one->to) == len && !strncmp(one->to, dir, len)) {
            *at = one->older;
            free(one->from), free(one->to), free(one->content), free(one);
        } else {
            at = &one->older;
        }
    }
}

/* ---- rules --------------------------------------------------------------- */

struct verdict { int error, few, cut_after; };

static struct verdict judge(int call, unsigned kind) {
    struct verdict verdict = {0, 0, 0};
    int base = CALLS_AT + call * CALL_WORDS;
    add(base + N_CALLS, 1);
    if (kind != OUTSIDE) add(base + N_OURS, 1);
    uint64_t used = get(W_RULES);
    if (used > RULES) used = RULES;
    for (uint64_t n = 0; n < used; n++) {
        int rule = RULES_AT + (int)n * RULE_WORDS;
        if (!get(rule + R_ARMED) || get(rule + R_CALL) != (uint64_t)call) continue;
        uint64_t wanted = get(rule + R_FILES);
        if (wanted ? !(wanted & kind) : kind == OUTSIDE) continue;
        uint64_t match = add(rule + R_MATCHED, 1);
        if (match < get(rule + R_SKIP)) continue;
        uint64_t ppm = get(rule + R_PPM), count = get(rule + R_COUNT);
        if (ppm && mix(get(W_SEED) ^ mix(n * 1000003 + match)) % 1000000 >= ppm) continue;
        if (add(rule + R_FIRED, 1) >= count && count) {
            add(rule + R_FIRED, (uint64_t)-1);
            continue;
        }
        uint64_t value = get(rule + R_VALUE);
        switch (get(rule + R_ACTION)) {
        case FAIL: verdict.error = (int)value; break;
        case SHORT: verdict.few = 1; break;
        case DELAY: usleep((useconds_t)value); break;
        case CUT_BEFORE: cut(); break;
        case CUT_AFTER: verdict.cut_after = 1; break;
        }
    }
    if (verdict.error) add(base + N_FAILED, 1);
    return verdict;
}
static void moved(int call, ssize_t n) {
    if (n > 0) add(CALLS_AT + call * CALL_WORDS + N_BYTES, (uint64_t)n);
}
/* As the kernel counts them: calls named read and write, on whatever. */
static void counted(int word, ssize_t n) {
    if (n > 0) add(word, (uint64_t)n);
}
#define REFUSE_IF(v) if ((v).error) { errno = (v).error; return -1; }
/* The power goes with the call done and what it answers still unknown. */
#define DONE(v, result) do { if ((v).cut_after) cut(); return (result); } while (0)
static size_t some(struct verdict v, size_t n) { return v.few ? (n + 1) / 2 : n; }

/* ---- files --------------------------------------------------------------- */

static int opened(int dir, const char *path, int flags, mode_t mode) {
    if (!active) return get_openat64()(dir, path, flags, mode);
    char room[PATH_MAX];
    const char *full = absolute(dir, path, room);
    unsigned kind = kind_of_path(full);
    struct verdict v = judge(flags & O_CREAT ? C_CREATE : C_OPEN, kind);
    REFUSE_IF(v);
    if (kind == OUTSIDE) {
        int fd = get_openat64()(dir, path, flags, mode);
        if (fd >= 0 && fd < FDS && fds[fd].kind) know(fd, 0, NULL);
        DONE(v, fd);
    }
    lock();
    int fresh = (flags & O_CREAT) && access(full, F_OK) != 0;
    int fd = get_openat64()(dir, path, flags, mode);
    int error = errno;
    if (fd >= 0 && fresh && (get(W_UNDO) & UNDO_NAMES)) name_changed(NULL, full);
    unlock();
    if (fd >= 0) {
        struct stat64 stat;
        if (fstat64(fd, &stat) == 0 && S_ISDIR(stat.st_mode)) kind = DIRECTORY;
        know(fd, kind, full);
    }
    errno = error;
    DONE(v, fd);
}

static mode_t mode_of(int flags, va_list list) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
}
#define OPEN(name)                                        \
    int name(const char *path, int flags, ...) {          \
        va_list list;                                     \
        va_start(list, flags);                            \
        mode_t mode = mode_of(flags, list);               \
        va_end(list);                                     \
        return opened(AT_FDCWD, path, flags, mode);       \
    }
#define OPENAT(name)                                      \
    int name(int dir, const char *path, int flags, ...) { \
        va_list list;                                     \
        va_start(list, flags);                            \
        mode_t mode = mode_of(flags, list);               \
        va_end(list);                                     \
        return opened(dir, path, flags, mode);            \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    if (active && fd >= 0 && fd < FDS && fds[fd].kind) know(fd, 0, NULL);
    return get_close()(fd);
}

/* Reads and writes of a socket are RECV and SEND, whatever they are called. */
static int reading(unsigned kind) { return kind == SOCKET ? C_RECV : C_READ; }
static int writing(unsigned kind) { return kind == SOCKET ? C_SEND : C_WRITE; }

ssize_t read(int fd, void *into, size_t n) {
    if (!active) return get_read()(fd, into, n);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(reading(kind), kind);
    REFUSE_IF(v);
    ssize_t done = get_read()(fd, into, kind == OUTSIDE ? n : some(v, n));
    moved(reading(kind), done), counted(W_READ, done);
    DONE(v, done);
}

static ssize_t pread_(int fd, void *into, size_t n, off64_t off) {
    if (!active) return get_pread64()(fd, into, n, off);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(C_READ, kind);
    REFUSE_IF(v);
    ssize_t done = get_pread64()(fd, into, kind == OUTSIDE ? n : some(v, n), off);
    moved(C_READ, done), counted(W_READ, done);
    DONE(v, done);
}
ssize_t pread(int fd, void *into, size_t n, off_t off) { return pread_(fd, into, n, off); }
ssize_t pread64(int fd, void *into, size_t n, off64_t off) { return pread_(fd, into, n, off); }

ssize_t readv(int fd, const struct iovec *parts, int count) {
    if (!active) return get_readv()(fd, parts, count);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(reading(kind), kind);
    REFUSE_IF(v);
    ssize_t done = v.few && count > 0 ? get_read()(fd, parts[0].iov_base, some(v, parts[0].iov_len))
                                      : get_readv()(fd, parts, count);
    moved(reading(kind), done), counted(W_READ, done);
    DONE(v, done);
}

static int tracked(unsigned kind) {
    return kind != OUTSIDE && kind != SOCKET && kind != DIRECTORY && (get(W_UNDO) & UNDO_PAGES);
}

/* `off` < 0: where the file stands. */
static ssize_t written(int fd, const void *bytes, size_t n, off64_t off) {
    ssize_t done;
    unsigned kind = kind_of(fd);
    struct verdict v = judge(writing(kind), kind);
    REFUSE_IF(v);
    if (kind != OUTSIDE) n = some(v, n);
    int track = tracked(kind);
    if (track) {
        lock();
        off64_t at = off;
        if (at < 0) {
            int flags = fcntl(fd, F_GETFL);
            at = lseek64(fd, 0, flags >= 0 && (flags & O_APPEND) ? SEEK_END : SEEK_CUR);
        }
        remember(fd, at, n);
    }
    done = off < 0 ? get_write()(fd, bytes, n) : get_pwrite64()(fd, bytes, n, off);
    int error = errno;
    if (track) unlock();
    moved(writing(kind), done), counted(W_WRITTEN, done);
    errno = error;
    DONE(v, done);
}
ssize_t write(int fd, const void *bytes, size_t n) {
    return active ? written(fd, bytes, n, -1) : get_write()(fd, bytes, n);
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t off) {
    return active ? written(fd, bytes, n, off) : get_pwrite64()(fd, bytes, n, off);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t off) {
    return active ? written(fd, bytes, n, off) : get_pwrite64()(fd, bytes, n, off);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!active) return get_writev()(fd, parts, count);
    unsigned kind = kind_of(fd);
    /* A file takes its first part: a short write, which is allowed. */
    if (tracked(kind) && count > 0) return written(fd, parts[0].iov_base, parts[0].iov_len, -1);
    struct verdict v = judge(writing(kind), kind);
    REFUSE_IF(v);
    ssize_t done = v.few && count > 0 ? get_write()(fd, parts[0].iov_base, some(v, parts[0].iov_len))
                                      : get_writev()(fd, parts, count);
    moved(writing(kind), done), counted(W_WRITTEN, done);
    DONE(v, done);
}

static int synced(int fd, int data) {
    unsigned kind = kind_of(fd);
    lock();
    uint64_t through = seq;
    unlock();
    struct verdict v = judge(C_SYNC, kind);
    if (v.error) {
        lock();
        /* What was only interrupted is tried again, and may come right. */
        struct file *file = v.error == EINTR ? NULL : file_of(fd, 0, NULL);
        if (file)
            for (struct record *one = file->newest; one; one = one->older) one->lost = 1;
        unlock();
        errno = v.error;
        return -1;
    }
    int result = 0;
    if (!(get(W_UNDO) & NO_SYNC)) result = data ? get_fdatasync()(fd) : get_fsync()(fd);
    int error = errno;
    if (result == 0 && kind != OUTSIDE) {
        lock();
        struct file *file = file_of(fd, 0, NULL);
        if (file) drop_records(file, through);
        drop_unused();
        if (kind == DIRECTORY && fd < FDS && fds[fd].path) names_synced(fds[fd].path, through);
        unlock();
    } else if (result == 0 && (get(W_UNDO) & UNDO_NAMES)) {
        /* Perhaps the directory that the data directory is in. */
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof path - 1);
        if (n > 0) {
            path[n] = 0;
            lock();
            names_synced(path, through);
            unlock();
        }
    }
    errno = error;
    DONE(v, result);
}
int fsync(int fd) { return active ? synced(fd, 0) : get_fsync()(fd); }
int fdatasync(int fd) { return active ? synced(fd, 1) : get_fdatasync()(fd); }

static int truncated(int fd, off64_t len) {
    if (!active) return get_ftruncate64()(fd, len);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(C_TRUNCATE, kind);
    REFUSE_IF(v);
    int track = tracked(kind);
    if (track) {
        lock();
        struct stat64 stat;
        off64_t size = fstat64(fd, &stat) == 0 ? stat.st_size : len;
        remember(fd, len, size > len ? (size_t)(size - len) : 0);
    }
    int result = get_ftruncate64()(fd, len);
    int error = errno;
    if (track) unlock();
    errno = error;
    DONE(v, result);
}
int ftruncate(int fd, off_t len) { return truncated(fd, len); }
int ftruncate64(int fd, off64_t len) { return truncated(fd, len); }

/* A file of at most `most` bytes that is about to lose its name, as it is now; NULL
 * for any other. */
static struct name *as_it_is(const char *path, off64_t most) {
    int fd = get_open64()(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat64 stat;
    struct name *one = NULL;
    if (fd >= 0 && fstat64(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size <= most) {
        one = calloc(1, sizeof *one);
        one->to = strdup(path);
        one->content = malloc((size_t)stat.st_size + 1);
        while (one->len < (size_t)stat.st_size) {
            ssize_t n = get_pread64()(fd, one->content + one->len, (size_t)stat.st_size - one->len, (off64_t)one->len);
            if (n <= 0) break;
            one->len += (size_t)n;
        }
    }
    if (fd >= 0) get_close()(fd);
    return one;
}

/* Called locked. What `gone` says comes back unless the directory is synced. */
static void name_lost(struct name *gone) { gone->seq = ++seq, gone->older = names, names = gone; }

static void forget(struct name *gone) {
    if (gone) free(gone->to), free(gone->content), free(gone);
}

int rename(const char *from, const char *to) {
    if (!active) return get_rename()(from, to);
    char one[PATH_MAX], two[PATH_MAX];
    from = absolute(AT_FDCWD, from, one), to = absolute(AT_FDCWD, to, two);
    unsigned kind = kind_of_path(from);
    struct verdict v = judge(C_RENAME, kind);
    REFUSE_IF(v);
    enum { REPLACED = 16 << 20 };
    int names_too = kind != OUTSIDE && (get(W_UNDO) & UNDO_NAMES);
    struct name *gone = names_too ? as_it_is(to, REPLACED) : NULL;
    lock();
    int result = get_rename()(from, to);
    int error = errno;
    if (gone && result == 0)
        name_lost(gone);
    else
        forget(gone);
    if (result == 0 && kind != OUTSIDE) {
        if (names_too) name_changed(from, to);
        for (int fd = 0; fd <= top_fd; fd++)
            if (fds[fd].path && strcmp(fds[fd].path, from) == 0) {
                free(fds[fd].path);
                fds[fd].path = strdup(to);
                fds[fd].kind = (unsigned char)kind_of_path(to);
            }
    }
    unlock();
    errno = error;
    DONE(v, result);
}

/* A removed file that is not small is gone at once, name and content, power cut
 * or not; a small one comes back if its directory was not synced. */
static int unlinked(int dir, const char *path, int flags) {
    enum { SMALL = 4096 };
    char room[PATH_MAX];
    const char *full = absolute(dir, path, room);
    unsigned kind = kind_of_path(full);
    struct verdict v = judge(C_UNLINK, kind);
    REFUSE_IF(v);
    struct name *gone = kind == OUTSIDE || flags || !(get(W_UNDO) & UNDO_NAMES) ? NULL : as_it_is(full, SMALL);
    lock();
    int result = get_unlinkat()(dir, path, flags);
    int error = errno;
    if (gone && result == 0)
        name_lost(gone);
    else
        forget(gone);
    unlock();
    errno = error;
    DONE(v, result);
}
int unlink(const char *path) { return active ? unlinked(AT_FDCWD, path, 0) : get_unlink()(path); }
int unlinkat(int dir, const char *path, int flags) {
    return active ? unlinked(dir, path, flags) : get_unlinkat()(dir, path, flags);
}
/* A call that gave `to` a name: it may be undone. */
static void named(int result, const char *to) {
    int error = errno;
    if (result == 0 && kind_of_path(to) != OUTSIDE && (get(W_UNDO) & UNDO_NAMES)) {
        lock();
        name_changed(NULL, to);
        unlock();
    }
    errno = error;
}
static int linked(int dir, const char *from, int to_dir, const char *to, int flags) {
    char room[PATH_MAX], to_room[PATH_MAX];
    struct verdict v = judge(C_LINK, kind_of_path(absolute(dir, from, room)));
    REFUSE_IF(v);
    int result = get_linkat()(dir, from, to_dir, to, flags);
    named(result, absolute(to_dir, to, to_room));
    DONE(v, result);
}
int link(const char *from, const char *to) {
    return active ? linked(AT_FDCWD, from, AT_FDCWD, to, 0) : get_link()(from, to);
}
int linkat(int dir, const char *from, int to_dir, const char *to, int flags) {
    return active ? linked(dir, from, to_dir, to, flags) : get_linkat()(dir, from, to_dir, to, flags);
}

/* Directories are made by no rule's leave: only that the name is undone. */
static int made(int dir, const char *path, mode_t mode) {
    if (!active) return get_mkdirat()(dir, path, mode);
    char room[PATH_MAX];
    int result = get_mkdirat()(dir, path, mode);
    named(result, absolute(dir, path, room));
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int dir, const char *path, mode_t mode) { return made(dir, path, mode); }

/* ---- sockets ------------------------------------------------------------- */

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags) {
    if (!active) return get_accept4()(fd, address, len, flags);
    struct verdict v = judge(C_ACCEPT, SOCKET);
    REFUSE_IF(v);
    int got = get_accept4()(fd, address, len, flags);
    if (got >= 0) know(got, SOCKET, NULL);
    DONE(v, got);
}
int accept(int fd, struct sockaddr *address, socklen_t *len) { return accept4(fd, address, len, 0); }

ssize_t recvfrom(int fd, void *into, size_t n, int flags, struct sockaddr *from, socklen_t *len) {
    if (!active) return get_recvfrom()(fd, into, n, flags, from, len);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(C_RECV, kind);
    REFUSE_IF(v);
    ssize_t done = get_recvfrom()(fd, into, some(v, n), flags, from, len);
    moved(C_RECV, done);
    DONE(v, done);
}
ssize_t recv(int fd, void *into, size_t n, int flags) { return recvfrom(fd, into, n, flags, NULL, NULL); }

ssize_t sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to, socklen_t len) {
    if (!active) return get_sendto()(fd, bytes, n, flags, to, len);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(C_SEND, kind);
    REFUSE_IF(v);
    ssize_t done = get_sendto()(fd, bytes, some(v, n), flags, to, len);
    moved(C_SEND, done);
    DONE(v, done);
}
ssize_t send(int fd, const void *bytes, size_t n, int flags) { return sendto(fd, bytes, n, flags, NULL, 0); }

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    if (!active) return get_sendmsg()(fd, message, flags);
    unsigned kind = kind_of(fd);
    struct verdict v = judge(C_SEND, kind);
    REFUSE_IF(v);
    ssize_t done = get_sendmsg()(fd, message, flags);
    moved(C_SEND, done);
    DONE(v, done);
}

/* ---- the wall clock ------------------------------------------------------ */

static void shifted(struct timespec *time, int64_t ms) {
    time->tv_sec += ms / 1000;
    time->tv_nsec += ms % 1000 * 1000000;
    if (time->tv_nsec < 0) time->tv_nsec += 1000000000, time->tv_sec--;
    if (time->tv_nsec >= 1000000000) time->tv_nsec -= 1000000000, time->tv_sec++;
}
int clock_gettime(clockid_t which, struct timespec *into) {
    int result = get_clock_gettime()(which, into);
    if (!active || result != 0 || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return result;
    add(CALLS_AT + C_CLOCK * CALL_WORDS + N_CALLS, 1);
    shifted(into, (int64_t)get(W_CLOCK_MS));
    return 0;
}
int gettimeofday(struct timeval *restrict into, void *restrict zone) {
    (void)zone;
    struct timespec time;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    into->tv_sec = time.tv_sec, into->tv_usec = time.tv_nsec / 1000;
    return result;
}
time_t time(time_t *into) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

/* A wait until a moment of the wall clock, which the kernel knows by its own:
 * the allocator's thread waits so, the server's by the monotonic clock. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* Of x86-64 there is an older one, which takes other condition variables. */
    if (!real_wait) *(void **)&real_wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_wait) *(void **)&real_wait = real("pthread_cond_timedwait");
    struct timespec then = *until;
    if (active) shifted(&then, -(int64_t)get(W_CLOCK_MS));
    return real_wait(cond, mutex, &then);
}

/* ---- the beginning ------------------------------------------------------- */

static const char *const VARIABLES[] = {"LD_PRELOAD", "QUINTET_FAULTS", "QUINTET_FAULTS_DATA"};
static char *given[3];

/* A server that begins again in its own process is under the same faults. */
int execvp(const char *file, char *const args[]) {
    if (active && (uint64_t)getpid() == get(W_PID))
        for (int at = 0; at < 3; at++) setenv(VARIABLES[at], given[at], 1);
    return get_execvp()(file, args);
}

static void in_child(void) { active = 0; }

__attribute__((constructor)) static void begin(void) {
    const char *control = getenv("QUINTET_FAULTS"), *dir = getenv("QUINTET_FAULTS_DATA");
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (!control || !dir || n < 0 || strlen(dir) >= sizeof data_dir) return;
    exe[n] = 0;
    /* A wrapper that starts the server, or whatever else: not meant. */
    if (strcmp(strrchr(exe, '/') + 1, "quintet") != 0) return;
    int fd = get_open64()(control, O_RDWR | O_CLOEXEC);
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "faults: cannot map %s\n", control);
        abort();
    }
    get_close()(fd);
    words = at;
    if (get(W_MAGIC) != MAGIC) {
        fprintf(stderr, "faults: %s is not a control file\n", control);
        abort();
    }
    strcpy(data_dir, dir);
    data_len = strlen(data_dir);
    while (data_len && data_dir[data_len - 1] == '/') data_dir[--data_len] = 0;
    /* Scripts and other children live without. */
    for (int at = 0; at < 3; at++) {
        const char *value = getenv(VARIABLES[at]);
        given[at] = strdup(value ? value : "");
        unsetenv(VARIABLES[at]);
    }
    set(W_UNSYNCED, 0);
    set(W_CUT, 0);
    set(W_HELD, 0);
    struct sigaction held = {.sa_handler = hold, .sa_flags = SA_RESTART};
    sigaction(HOLD_SIGNAL, &held, NULL);
    set(W_PID, (uint64_t)getpid());
    pthread_atfork(NULL, NULL, in_child);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL) == 0) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    active = 1;
}
