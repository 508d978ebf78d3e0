/* A ticket lock: fair, but all waiters read the word that the holder writes. It collapses. */
#include "known.h"

struct Ticket {
    uint32_t next;
    uint32_t serving;
};

struct Account {
    struct Ticket lock ALIGNED;
    u64 balance ALIGNED;
};

static struct Account account;

static inline __attribute__((always_inline)) void ticket_lock(struct Ticket *lock)
{
    uint32_t mine = __atomic_fetch_add(&lock->next, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&lock->serving, __ATOMIC_ACQUIRE) != mine)
        relax();
}

static inline __attribute__((always_inline)) void ticket_unlock(struct Ticket *lock)
{
    uint32_t serving = __atomic_load_n(&lock->serving, __ATOMIC_RELAXED);
    __atomic_store_n(&lock->serving, serving + 1, __ATOMIC_RELEASE);
}

static NOINLINE void deposit(void)
{
    ticket_lock(&account.lock);
    account.balance++;
    ticket_unlock(&account.lock);
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
