/*
 * The processor's own counter, read by instructions, and the signal that an analyser may need to stand in for
 * it. Threads take turns on one counter and time themselves with `rdtsc`; then the program does with SIGSEGV
 * all that a program may, and makes children in every way, each of which reads a clock. Prints what the
 * instructions said: under the analyser the same in each run of a seed.
 */
#include "known.h"
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <x86intrin.h>

extern char **environ;

static u64 shared;
static u64 spent;

static pthread_key_t key;

/* The C library calls it when a thread has left its routine. */
static void at_end(void *value)
{
    if (value != &key || __rdtsc() == 0)
        abort();
}

static void body(unsigned me)
{
    unsigned where;
    pthread_setspecific(key, &key);
    u64 before = __rdtsc();
    for (u64 n = 0; n < operations; n++) {
        __atomic_fetch_add(&shared, 1, __ATOMIC_RELAXED);
        private_work(me, 10);
    }
    __atomic_fetch_add(&spent, __rdtscp(&where) - before, __ATOMIC_RELAXED);
    if ((where & 0xfff) >= sysconf(_SC_NPROCESSORS_ONLN))
        abort();
}

static void expect(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "counter: %s\n", what);
        exit(1);
    }
}

static u64 now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The counter goes on as the clock does: 10 ms of sleep are as many cycles in two measurements. */
static void goes_with_the_clock(void)
{
    double rates[2];
    for (int n = 0; n < 2; n++) {
        u64 time = now(), cycles = __rdtsc();
        usleep(10000);
        rates[n] = (double)(__rdtsc() - cycles) / (now() - time);
    }
    expect(rates[0] > 0.1 && rates[0] / rates[1] < 1.5 && rates[1] / rates[0] < 1.5, "another clock");
}

static sigjmp_buf out;
static volatile int handled;
static int *volatile nowhere;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    u64 before = __rdtsc();
    handled += number == SIGSEGV && info->si_addr == NULL && __rdtsc() >= before;
    siglongjmp(out, 1);
}

static void on_fault_plain(int number)
{
    handled += number == SIGSEGV;
    siglongjmp(out, 1);
}

static void fault(void)
{
    if (sigsetjmp(out, 1) == 0)
        *nowhere = 1;
}

/* The program's own handlers are called for real faults, with what they asked for, and seen as its own. */
static void handlers(void)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, seen;
    expect(sigaction(SIGSEGV, NULL, &seen) == 0 && seen.sa_handler == SIG_DFL, "a handler at the start");
    sigaction(SIGSEGV, &action, NULL);
    (void)__rdtsc();
    fault();
    fault();
    expect(handled == 2, "the handler with three arguments");
    sigaction(SIGSEGV, NULL, &seen);
    expect(seen.sa_sigaction == on_fault && seen.sa_flags & SA_SIGINFO, "the handler is not seen");
    expect(signal(SIGSEGV, on_fault_plain) == (sighandler_t)on_fault, "the handler before");
    fault();
    expect(handled == 3, "the handler with one argument");
    struct sigaction once = { .sa_handler = on_fault_plain, .sa_flags = SA_RESETHAND };
    sigaction(SIGSEGV, &once, NULL);
    fault();
    sigaction(SIGSEGV, NULL, &seen);
    expect(handled == 4 && seen.sa_handler == SIG_DFL, "the handler that is for once");
    (void)__rdtsc();
}

/* Reading is no fault to those who block all signals. */
static void masks(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)__rdtsc();
    sigprocmask(SIG_BLOCK, &all, NULL);
    (void)__rdtsc();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Each child is this program, with one argument, and ends with 7 after it has read a clock and the counter. */
static int child(void)
{
    u64 time = now();
    return __rdtsc() != 0 && now() >= time ? 7 : 1;
}

static void ended(pid_t number, const char *how)
{
    int status = 0;
    expect(number > 0 && waitpid(number, &status, 0) == number, how);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, how);
}

static void children(char *program)
{
    char *words[] = { program, "child", NULL }, command[4096];
    pid_t number;
    if ((number = fork()) == 0)
        _exit(child());
    ended(number, "fork");
    if ((number = fork()) == 0)
        execv(program, words);
    ended(number, "fork and execv");
    if ((number = vfork()) == 0)
        execle(program, program, "child", NULL, environ);
    ended(number, "vfork and execle");
    expect(posix_spawn(&number, program, NULL, NULL, words, environ) == 0, "posix_spawn");
    ended(number, "posix_spawn");
    snprintf(command, sizeof command, "'%s' child", program);
    expect(WEXITSTATUS(system(command)) == 7, "system");
    FILE *pipe = popen(command, "r");
    expect(pipe != NULL && WEXITSTATUS(pclose(pipe)) == 7, "popen");
    u64 before = __rdtsc();
    expect(__rdtsc() - before < 1000000, "not virtual after a child");
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "child") == 0)
        return child();
    arguments(count, words, 200);
    pthread_key_create(&key, at_end);
    goes_with_the_clock();
    handlers();
    masks();
    run_threads(body);
    expect(shared == operations * threads_wanted, "the sum");
    children(words[0]);
    printf("%llu cycles\n", (unsigned long long)spent);
    return 0;
}
