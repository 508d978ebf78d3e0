/* A test-and-test-and-set lock around one word: each release wakes every waiter's line. It collapses. */
#include "known.h"

struct Account {
    uint32_t lock ALIGNED;
    u64 balance ALIGNED;
};

static struct Account account;

static inline __attribute__((always_inline)) void spin_lock(uint32_t *lock)
{
    for (;;) {
        uint32_t open = 0;
        while (__atomic_load_n(lock, __ATOMIC_RELAXED) != 0)
            relax();
        if (__atomic_compare_exchange_n(lock, &open, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
    }
}

static inline __attribute__((always_inline)) void spin_unlock(uint32_t *lock)
{
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

static NOINLINE void deposit(void)
{
    spin_lock(&account.lock);
    account.balance++;
    spin_unlock(&account.lock);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        deposit();
        private_work(me, 100);
    }
}

int main(int count, char **words)
{
    arguments(count, words, 200);
    run_threads(body);
    return result("balance", account.balance, operations * threads_wanted);
}
