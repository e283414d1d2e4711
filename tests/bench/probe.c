// The program that runs in the measured containers, and the clock of whoever starts them. Static, so that nothing but the
// kernel comes before its first instruction. All times are nanoseconds of CLOCK_BOOTTIME, written as "NAME TIME\n".
//
//   (as process 1)          says "first", then switches the machine off: the bare kernel's own time
//   probe first [FILE]      says "first", into FILE when there is one, and ends
//   probe stay              says "first" and stays until SIGTERM
//   probe rename FROM TO    says "start", then renames a file
//   probe run PROGRAM ...   says "start", then becomes that program
//   probe kill PID SOCKET COUNT TEXT
//                           says "start", kills PID, and says "first" when GET /pods on SOCKET holds TEXT COUNT times
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void say(int fd, const char *name) {
    struct timespec now;
    char line[64];
    clock_gettime(CLOCK_BOOTTIME, &now);
    int length = snprintf(line, sizeof line, "%s %lld%09ld\n", name, (long long)now.tv_sec, now.tv_nsec);
    if (write(fd, line, length) != length) _exit(3);
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

// How often `text` is in the answer to GET /pods; -1 when there is none.
static int count_in_pods(const char *path, const char *text) {
    static char answer[1 << 20];
    static const char request[] = "GET /pods HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = 0;
    ssize_t got = 0;
    int found = -1, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && write(fd, request, sizeof request - 1) > 0) {
        while (length < sizeof answer - 1 && (got = read(fd, answer + length, sizeof answer - 1 - length)) > 0) length += got;
        answer[length] = 0;
        found = 0;
        for (char *at = answer; (at = strstr(at, text)); at += strlen(text)) found++;
    }
    close(fd);
    return found;
}

int main(int count, char **args) {
    const char *mode = count > 1 ? args[1] : "";
    if (getpid() == 1 && strcmp(mode, "first") && strcmp(mode, "stay")) {
        say(1, "first");
        reboot(RB_POWER_OFF);
    }
    if (!strcmp(mode, "first")) {
        int fd = count > 2 ? open(args[2], O_WRONLY | O_CLOEXEC) : 1;
        say(fd, "first");
        return count > 2 ? fsync(fd) : 0;
    }
    if (!strcmp(mode, "stay")) {
        say(1, "first");
        signal(SIGTERM, leave);
        for (;;) pause();
    }
    if (!strcmp(mode, "rename") && count == 4) {
        say(1, "start");
        return rename(args[2], args[3]) ? 1 : 0;
    }
    if (!strcmp(mode, "run") && count > 2) {
        say(1, "start");
        execvp(args[2], args + 2);
        return 127;
    }
    if (!strcmp(mode, "kill") && count == 6) {
        say(1, "start");
        if (kill(atoi(args[2]), SIGKILL)) return 1;
        while (count_in_pods(args[3], args[5]) < atoi(args[4])) usleep(5000);
        say(1, "first");
        return 0;
    }
    return 2;
}
