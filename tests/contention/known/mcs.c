/* The lock of Mellor-Crummey and Scott 1991: each waiter reads its own line. A plateau. */
#include "known.h"

struct Node {
    struct Node *next;
    uint32_t waiting;
} ALIGNED;

struct Account {
    struct Node *tail ALIGNED;
    u64 balance ALIGNED;
};

static struct Account account;
static struct Node nodes[THREADS_MAX];

static inline __attribute__((always_inline)) void mcs_lock(struct Node **tail, struct Node *mine)
{
    __atomic_store_n(&mine->next, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&mine->waiting, 1, __ATOMIC_RELAXED);
    struct Node *before = __atomic_exchange_n(tail, mine, __ATOMIC_ACQ_REL);
    if (before == NULL)
        return;
    __atomic_store_n(&before->next, mine, __ATOMIC_RELEASE);
    while (__atomic_load_n(&mine->waiting, __ATOMIC_ACQUIRE))
        relax();
}

static inline __attribute__((always_inline)) void mcs_unlock(struct Node **tail, struct Node *mine)
{
    struct Node *after = __atomic_load_n(&mine->next, __ATOMIC_ACQUIRE);
    if (after == NULL) {
        struct Node *expected = mine;
        if (__atomic_compare_exchange_n(tail, &expected, NULL, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            return;
        while ((after = __atomic_load_n(&mine->next, __ATOMIC_ACQUIRE)) == NULL)
            relax();
    }
    __atomic_store_n(&after->waiting, 0, __ATOMIC_RELEASE);
}

static NOINLINE void deposit(unsigned me)
{
    mcs_lock(&account.tail, &nodes[me]);
    account.balance++;
    mcs_unlock(&account.tail, &nodes[me]);
}

static void body(unsigned me)
{
    for (u64 turn = 0; turn < operations; turn++) {
        deposit(me);
        private_work(me, 100);
    }
}

int main(int count, char **words)
{
    arguments(count, words, 200);
    run_threads(body);
    return result("balance", account.balance, operations * threads_wanted);
}
