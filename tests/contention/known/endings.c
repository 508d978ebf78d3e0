/*
 * Ends in an unusual way, by its first argument: `child`, a thread forks and the child returns from its
 * routine; `signal`, a timer's signal, which nobody handles, comes while all threads are at work.
 */
#include "known.h"
#include <sys/time.h>
#include <sys/wait.h>

#define IN_CHILD 7

static pid_t parent;

/* The last thread's end is an `exit`, which calls this. */
static void at_exit(void)
{
    if (getpid() != parent)
        _exit(IN_CHILD);
}

static void *forks(void *status)
{
    pid_t child = fork();
    if (child > 0 && waitpid(child, status, 0) != child)
        abort();
    return NULL;
}

static int in_a_child(void)
{
    pthread_t thread;
    int status = 0;
    parent = getpid();
    atexit(at_exit);
    pthread_create(&thread, NULL, forks, &status);
    pthread_join(thread, NULL);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != IN_CHILD) {
        fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
        return 1;
    }
    return 0;
}

static void body(unsigned me)
{
    for (;;)
        private_work(me, 1000);
}

static int by_a_signal(void)
{
    /* The second is for the test: it ends a process that does not end by the first. */
    struct itimerval soon = { .it_value.tv_usec = 20000 };
    struct itimerval late = { .it_value.tv_sec = 10 };
    setitimer(ITIMER_VIRTUAL, &late, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    threads_wanted = 4;
    operations = 1;
    run_threads(body);
    return 1;
}

int main(int count, char **words)
{
    return count > 1 && strcmp(words[1], "child") == 0 ? in_a_child() : by_a_signal();
}
