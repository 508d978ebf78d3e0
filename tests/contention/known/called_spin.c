/*
 * A thread waits for another in a loop that calls a function of the program, which looks at the flag in a way that
 * no compiler's pass sees. Of the loop nothing is seen but that a function begins and ends.
 */
#include "known.h"

static volatile u64 flag;

/* A leaf without an access that is seen is not told of at all. */
static NOINLINE u64 look_inside(void)
{
    u64 value;
    __asm__ volatile("mov %1, %0" : "=r"(value) : "m"(flag));
    return value;
}

static NOINLINE u64 look(void)
{
    return look_inside() + 1;
}

static void body(unsigned me)
{
    if (me == 0) {
        private_work(me, 1000);
        __asm__ volatile("movq $1, %0" : "=m"(flag));
    }
    while (look() == 1)
        ;
}

int main(int count, char **words)
{
    arguments(count, words, 1);
    run_threads(body);
    return result("flag", flag, 1);
}
