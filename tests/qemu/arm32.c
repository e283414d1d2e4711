/* A 32-bit ARM program: its C library's start, a thread, the clock and a refused call. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mount.h>
#include <time.h>

static void *work(void *arg) { return arg; }

int main(void) {
    pthread_t thread;
    void *result = NULL;
    struct timespec pause = {0, 1000000}, now;
    if (pthread_create(&thread, NULL, work, &pause) || pthread_join(thread, &result) || result != &pause) return 1;
    if (nanosleep(&pause, NULL) || clock_gettime(CLOCK_REALTIME, &now)) return 2;
    if (mount("x", "/tmp", "tmpfs", 0, NULL) == 0 || errno != EPERM) return 3;
    printf("%d bits\n", (int)sizeof(void *) * 8);
    return 0;
}
