/* A thread waits for a word in code that the pass did not touch: only the watchdog can end it. */
#include "known.h"

static uint32_t go;

static NOINLINE __attribute__((no_sanitize("thread"))) void spins_unseen(void)
{
    while (*(volatile uint32_t *)&go == 0)
        __asm__ volatile("pause");
}

static void body(unsigned me)
{
    if (me == 0) {
        spins_unseen();
    } else {
        private_work(me, 10000);
        __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
    }
}

int main(void)
{
    threads_wanted = 2;
    operations = 1;
    run_threads(body);
    return result("go", go, 1);
}
