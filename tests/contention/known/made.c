/* Eight counters on one line, made by C++'s `operator new`. -DLIBRARY defines it, as a C++ library without frame pointers
   does; -DALONE loads that library for itself alone, if its argument names it. */
#include <stddef.h>
#include <stdlib.h>

void *_Znwm(size_t size);
void *_ZnwmSt11align_val_t(size_t size, size_t align);

#ifdef LIBRARY
__attribute__((optimize("omit-frame-pointer"))) void *_Znwm(size_t size) {
    void *made = malloc(size);
    if (!made)
        abort();
    return made;
}

/* Aligned: a C++ library keeps an argument in the register of the frame pointer. */
__asm__(".text\n.globl _ZnwmSt11align_val_t\n.type _ZnwmSt11align_val_t, @function\n_ZnwmSt11align_val_t:\n"
        "push %rbp\nmov %rsi, %rbp\nxchg %rdi, %rsi\ncall aligned_alloc@PLT\npop %rbp\nret\n");
#else
#include <dlfcn.h>
#include <pthread.h>

struct session { unsigned long hits[8]; };
struct aligned { unsigned long hits[8]; };

static struct session *session;
static struct aligned *aligned;

static void *worker(void *argument) {
    for (int i = 0; i < 1000; i++)
        __atomic_fetch_add(&session->hits[(long)argument], 1, __ATOMIC_RELAXED),
            __atomic_fetch_add(&aligned->hits[(long)argument], 1, __ATOMIC_RELAXED);
    return NULL;
}

static __attribute__((noinline)) void open_session(void) {
    struct session *made = _Znwm(sizeof *made);
    session = made;
}

static __attribute__((noinline)) void open_aligned(void) {
    struct aligned *made = _ZnwmSt11align_val_t(sizeof *made, 64);
    aligned = made;
}

int main(int count, char **words) {
    pthread_t threads[8];
#ifdef ALONE
    if (count > 1 && !dlopen(words[1], RTLD_NOW | RTLD_LOCAL))
        return 1;
#else
    (void)count, (void)words;
#endif
    open_session();
    open_aligned();
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
#endif
