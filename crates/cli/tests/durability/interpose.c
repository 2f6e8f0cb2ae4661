/*
 * Runs a command some of whose system calls wait for an answer, so that a test decides what becomes of each: it happens, it fails,
 * or it writes less than it was given. A filter in the kernel (seccomp user notification, Linux 5.5) hands the calls over, so that
 * calls which do not go through the C library are seen too.
 *
 *     interpose CALL,CALL,... STDOUT STDERR COMMAND ARGUMENT...
 *
 *     stdout   started PID            the command is about to start
 *              call ID NAME PATH      a call waits; of a rename, the new name
 *              exited CODE            the end
 *              killed SIGNAL          or this one
 *     stdin    ID go                  the call happens
 *              ID fail ERRNO          it fails
 *              ID short BYTES         only so many bytes of a pwrite64 are written
 *
 * When stdin ends, so does the command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS_MAX = 32, PATH_BYTES = 4096, NOTE_BYTES = 4096 };

/* What a call is about: the file of a descriptor, or a path in memory. */
enum subject { BY_DESCRIPTOR, BY_PATH };

struct call {
    const char *name;
    int number;
    enum subject subject;
    int argument; /* which argument that is */
};

static const struct call CALLS[] = {
    {"fallocate", SYS_fallocate, BY_DESCRIPTOR, 0},
    {"ftruncate", SYS_ftruncate, BY_DESCRIPTOR, 0},
    {"pread64", SYS_pread64, BY_DESCRIPTOR, 0},
    {"pwrite64", SYS_pwrite64, BY_DESCRIPTOR, 0},
    {"fsync", SYS_fsync, BY_DESCRIPTOR, 0},
    {"fdatasync", SYS_fdatasync, BY_DESCRIPTOR, 0},
    {"flock", SYS_flock, BY_DESCRIPTOR, 0},
    {"openat", SYS_openat, BY_PATH, 1},
    {"renameat", SYS_renameat, BY_PATH, 3},
    {"renameat2", SYS_renameat2, BY_PATH, 3},
    {"unlinkat", SYS_unlinkat, BY_PATH, 1},
#ifdef SYS_rename
    {"open", SYS_open, BY_PATH, 0},
    {"rename", SYS_rename, BY_PATH, 1},
    {"unlink", SYS_unlink, BY_PATH, 0},
#endif
};
enum { CALLS_COUNT = sizeof CALLS / sizeof CALLS[0] };

/* Notes of the kernel: it may know longer ones than these headers. */
static union { struct seccomp_notif note; char room[NOTE_BYTES]; } received;
static union { struct seccomp_notif_resp note; char room[NOTE_BYTES]; } answer;

/* Notes that wait for an answer. */
static struct seccomp_notif waiting[CALLS_MAX];

static void die(const char *what) {
    fprintf(stderr, "interpose: %s: %s\n", what, strerror(errno));
    exit(125);
}

static const struct call *find(int number) {
    for (int i = 0; i < CALLS_COUNT; i++)
        if (CALLS[i].number == number) return &CALLS[i];
    return NULL;
}

/* Makes the listed calls of this process and what it becomes wait; returns the descriptor that hears of them. */
static int install(char *names) {
    struct sock_filter filter[2 * CALLS_COUNT + 2];
    unsigned short count = 0;
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *name = strtok(names, ","); name; name = strtok(NULL, ","))
        for (int i = 0; i < CALLS_COUNT && count + 2 < 2 * CALLS_COUNT + 2; i++) {
            if (strcmp(CALLS[i].name, name) != 0) continue;
            filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].number, 0, 1);
            filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
        }
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {count, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (listener < 0) die("seccomp");
    return listener;
}

/* Hands a descriptor through a socket. */
static void send_descriptor(int channel, int descriptor) {
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
    if (sendmsg(channel, &message, 0) < 0) die("sendmsg");
}

static int receive_descriptor(int channel) {
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    char byte;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) <= 0 || !CMSG_FIRSTHDR(&message)) exit(125);
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

static void redirect(const char *path, int flags, int target) {
    int file = open(path, flags, 0666);
    if (file < 0 || dup2(file, target) < 0) die(path);
    close(file);
}

/* The child: becomes the command. */
static void become(int channel, char **words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    redirect("/dev/null", O_RDONLY, 0);
    redirect(words[2], O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(words[3], O_WRONLY | O_CREAT | O_TRUNC, 2);
    int listener = install(words[1]);
    send_descriptor(channel, listener);
    close(listener);
    execvp(words[4], words + 4);
    die(words[4]);
}

/* Reads a string of another process; as much of it as can be read. */
static void read_string(pid_t process, unsigned long long place, char *out, size_t room) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/mem", process);
    int memory = open(name, O_RDONLY | O_CLOEXEC);
    size_t count = 0;
    while (memory >= 0 && count + 1 < room && pread(memory, out + count, 1, place + count) == 1 && out[count]) count++;
    out[count] = 0;
    if (memory >= 0) close(memory);
}

/* Tells the test of a call that waits. */
static void announce(const struct seccomp_notif *note) {
    char path[PATH_BYTES] = "";
    const struct call *call = find(note->data.nr);
    unsigned long long argument = note->data.args[call->argument];
    if (call->subject == BY_PATH) {
        read_string(note->pid, argument, path, sizeof path);
    } else {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/fd/%d", note->pid, (int)argument);
        ssize_t length = readlink(name, path, sizeof path - 1);
        path[length < 0 ? 0 : length] = 0;
    }
    printf("call %llu %s %s\n", (unsigned long long)note->id, call->name, path);
}

static void receive(int listener) {
    memset(&received, 0, sizeof received);
    /* Fails where the process died or was interrupted in between. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &received) != 0) return;
    for (int i = 0; i < CALLS_MAX; i++)
        if (waiting[i].id == 0) {
            waiting[i] = received.note;
            announce(&received.note);
            return;
        }
    errno = ENOSPC;
    die("calls that wait");
}

/* Writes the first bytes of what the process gave to pwrite64, in its stead. */
static ssize_t write_short(const struct seccomp_notif *note, size_t bytes) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd/%d", note->pid, (int)note->data.args[0]);
    int file = open(name, O_WRONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "/proc/%d/mem", note->pid);
    int memory = open(name, O_RDONLY | O_CLOEXEC);
    if (bytes > note->data.args[2]) bytes = note->data.args[2];
    char *data = malloc(bytes + 1);
    ssize_t count = -1;
    if (file >= 0 && memory >= 0 && data && pread(memory, data, bytes, note->data.args[1]) == (ssize_t)bytes)
        count = pwrite(file, data, bytes, note->data.args[3]);
    if (count < 0) die("a short write");
    free(data);
    close(file);
    close(memory);
    return count;
}

static void reply(int listener, const char *line) {
    unsigned long long id;
    long number = 0;
    char verb[16];
    if (sscanf(line, "%llu %15s %ld", &id, verb, &number) < 2) exit(125);
    for (int i = 0; i < CALLS_MAX; i++) {
        if (waiting[i].id != id) continue;
        memset(&answer, 0, sizeof answer);
        answer.note.id = id;
        if (strcmp(verb, "fail") == 0)
            answer.note.error = -number;
        else if (strcmp(verb, "short") == 0)
            answer.note.val = write_short(&waiting[i], number);
        else
            answer.note.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        /* Fails where the process died or was interrupted in between. */
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        waiting[i].id = 0;
        return;
    }
}

/* Answers what stands in stdin; several lines may come at once. */
static void reply_all(int listener, pid_t child) {
    static char text[PATH_BYTES];
    static size_t filled;
    ssize_t count = read(0, text + filled, sizeof text - 1 - filled);
    if (count <= 0) {
        kill(child, SIGKILL);
        exit(125);
    }
    filled += count;
    text[filled] = 0;
    char *line = text, *end;
    for (; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        reply(listener, line);
    }
    filled = strlen(line);
    memmove(text, line, filled + 1);
}

int main(int count, char **words) {
    int channel[2];
    if (count < 5 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) return 125;
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) become(channel[1], words);
    close(channel[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int listener = receive_descriptor(channel[0]);
    int end = syscall(SYS_pidfd_open, child, 0);
    if (end < 0) die("pidfd_open");
    printf("started %d\n", child);
    struct pollfd sources[] = {{listener, POLLIN, 0}, {0, POLLIN, 0}, {end, POLLIN, 0}};
    while (!(sources[2].revents & POLLIN)) {
        if (poll(sources, 3, -1) < 0 && errno != EINTR) die("poll");
        if (sources[0].revents & POLLIN) receive(listener);
        if (sources[0].revents & POLLHUP) sources[0].fd = -1;
        if (sources[1].revents & (POLLIN | POLLHUP)) reply_all(listener, child);
    }
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    if (WIFEXITED(status)) printf("exited %d\n", WEXITSTATUS(status));
    else printf("killed %d\n", WTERMSIG(status));
    return 0;
}
