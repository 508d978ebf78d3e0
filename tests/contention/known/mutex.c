/* One pthread mutex for all. A plateau; the wait and the hold of `account.lock` are in virtual time. */
#include "known.h"

struct Account {
    pthread_mutex_t lock ALIGNED;
    u64 balance ALIGNED;
};

static struct Account account = { .lock = PTHREAD_MUTEX_INITIALIZER };

static NOINLINE void deposit(unsigned me)
{
    pthread_mutex_lock(&account.lock);
    account.balance++;
    private_work(me, 10);
    pthread_mutex_unlock(&account.lock);
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
