/* Transactions: read two accounts through I/O, move money between them, commit. */
#include "oltp.h"

#define TASKS_EACH 4
#define BUCKETS 64
#define ACCOUNTS 1024

struct account {
    uint64_t balance;
    uint32_t pins;
    uint32_t version;
};

/* One part of the buffer cache's table; its lock is beside what it guards. */
struct bucket {
    spinlock_t lock;
    uint32_t hits;
    struct account *accounts;
};

/* Of the whole server, read by all and written by all. */
struct server {
    uint64_t accounts_mask;
    uint32_t read_only;
    uint64_t transactions;
    uint64_t wanted;
};

static struct server server;
static struct bucket *buckets;
static struct account *accounts;

static uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
    return number ^ (number >> 31);
}

static NOINLINE void move_one(uint64_t row, int64_t amount)
{
    struct bucket *bucket = &buckets[row % BUCKETS];
    spin_lock(&bucket->lock);
    struct account *account = &bucket->accounts[row / BUCKETS];
    account->pins++;
    account->balance += (uint64_t)amount;
    account->version++;
    account->pins--;
    bucket->hits++;
    spin_unlock(&bucket->lock);
}

/* One step of a task until it sleeps. */
static NOINLINE void run_task(struct task *task, unsigned me)
{
    uint64_t random = mix(task->number * 1000003 + task->transactions);
    switch (task->state) {
    case BEGIN: {
        struct request *request = request_alloc(me);
        request->task = task;
        request->sector = random;
        task->state = READ;
        aio_submit(request);
        block_submit(request, me);
        break;
    }
    case READ: {
        if (server.read_only)
            abort();
        uint64_t from = random & server.accounts_mask, to = (random >> 20) & server.accounts_mask;
        move_one(from, -5);
        move_one(to, 5);
        task->state = COMMITTED;
        log_commit(task);
        break;
    }
    case COMMITTED:
        task->transactions++;
        task->state = BEGIN;
        if (__atomic_add_fetch(&server.transactions, 1, __ATOMIC_RELAXED) >= server.wanted)
            finish();
        else
            try_to_wake_up(task, me);
        break;
    }
}

static void *processor_main(void *argument)
{
    unsigned me = (unsigned)(uintptr_t)argument;
    while (!finished()) {
        bool worked = block_interrupt(me);
        struct task *task = schedule(me);
        if (task != NULL)
            run_task(task, me);
        else if (!worked)
            idle_wait(me);
        run_timers(me);
    }
    return NULL;
}

int main(int count, char **words)
{
    static pthread_t threads[PROCESSORS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t each = count > 1 ? strtoull(words[1], NULL, 10) : 200;
    /* One is left to the log's writer, where there are several. */
    processors = count > 2 ? (unsigned)atoi(words[2]) : (unsigned)(cores > 2 ? cores - 1 : cores);
    if (processors == 0 || processors > PROCESSORS_MAX) {
        fprintf(stderr, "processors: 1 to %d\n", PROCESSORS_MAX);
        return 2;
    }
    server.wanted = each * processors;
    server.accounts_mask = ACCOUNTS - 1;
    accounts = calloc(ACCOUNTS, sizeof(struct account));
    buckets = calloc(BUCKETS, sizeof(struct bucket));
    for (unsigned row = 0; row < ACCOUNTS; row++)
        accounts[row].balance = 1000000;
    for (unsigned which = 0; which < BUCKETS; which++)
        buckets[which].accounts = &accounts[which * (ACCOUNTS / BUCKETS)];
    sched_init();
    timer_init();
    slab_init();
    aio_init();
    block_init();
    log_init();
    struct task *tasks = calloc((size_t)processors * TASKS_EACH, sizeof(struct task));
    for (unsigned number = 0; number < processors * TASKS_EACH; number++) {
        tasks[number].number = number;
        tasks[number].home = number % processors;
        try_to_wake_up(&tasks[number], number % processors);
    }
    log_start();
    for (unsigned me = 0; me < processors; me++)
        pthread_create(&threads[me], NULL, processor_main, (void *)(uintptr_t)me);
    for (unsigned me = 0; me < processors; me++)
        pthread_join(threads[me], NULL);
    log_stop();
    uint64_t sum = 0;
    for (unsigned row = 0; row < ACCOUNTS; row++)
        sum += accounts[row].balance;
    printf("processors %u transactions %llu io %llu records %llu\n", processors,
           (unsigned long long)server.transactions, (unsigned long long)aio_events(),
           (unsigned long long)log_records());
    return sum == 1000000ull * ACCOUNTS && server.transactions >= server.wanted ? 0 : 1;
}
