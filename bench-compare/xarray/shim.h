/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's words, as far as lib/xarray.c and linux/xarray.h use them, in user space.
 *
 * What they cost here and there:
 *  - A spinlock is a word that is tested before it is swapped, with a pause between; the kernel's
 *    queued spinlock is fair and costs a waiter less memory traffic from some eight threads on. With
 *    XA_LOCK_MUTEX it is a pthread mutex instead. Nothing switches interrupts or preemption off.
 *  - rcu_read_lock() is a compiler barrier, as in a kernel without preemption.
 *  - call_rcu() keeps what is to be freed until the thread's phase ends; see variant.c.
 *  - Nodes come from a cache for each thread, as SLUB keeps one for each CPU.
 *  - Debugging (lockdep, sparse, XA_DEBUG) is off, as in a distribution's kernel.
 */
#ifndef SHIM_H
#define SHIM_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* The configuration of a distribution's kernel for 64-bit machines. */
#define CONFIG_64BIT 1
#define CONFIG_XARRAY_MULTI 1
#define CONFIG_BASE_SMALL 0
/* 1 for an option that is 1, 0 for one that is not there. */
#define SHIM_OPTION_1 0,
#define SHIM_SECOND(skip, value, ...) value
#define SHIM_CHOSEN(junk) SHIM_SECOND(junk 1, 0, 0)
#define SHIM_PASTED(value) SHIM_CHOSEN(SHIM_OPTION_##value)
#define IS_ENABLED(option) SHIM_PASTED(option)

/* Words for readers and checkers of the kernel's source. */
#define __rcu
#define __force
#define __bitwise
#define __must_check
#define __must_hold(lock)
#define __acquires(lock)
#define __releases(lock)
#define __user
#define __maybe_unused __attribute__((unused))
#define noinline __attribute__((noinline))
#define EXPORT_SYMBOL(name)
#define EXPORT_SYMBOL_GPL(name)
#define lockdep_is_held(lock) 1
#define might_alloc(gfp) ((void)(gfp))
#define fallthrough __attribute__((fallthrough))

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#define READ_ONCE(place) (*(const volatile __typeof__(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))
#define barrier() __asm__ volatile("" ::: "memory")
#define WARN_ON(condition) ({ bool wrong_ = !!(condition); if (unlikely(wrong_)) abort(); wrong_; })
#define WARN_ON_ONCE(condition) WARN_ON(condition)
#define BUG_ON(condition) ((void)WARN_ON(condition))
#define BUG() abort()
#define pr_info(...) fprintf(stderr, __VA_ARGS__)
#define pr_cont(...) fprintf(stderr, __VA_ARGS__)
#ifndef container_of
#define container_of(member_at, type, member) \
	((type *)((char *)(member_at) - offsetof(type, member)))
#endif
#define max(one, other) \
	({ __typeof__(one) a_ = (one); __typeof__(other) b_ = (other); a_ > b_ ? a_ : b_; })
#define min(one, other) \
	({ __typeof__(one) a_ = (one); __typeof__(other) b_ = (other); a_ < b_ ? a_ : b_; })

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned int gfp_t;
#define __GFP_NOWARN 0x1u
#define __GFP_ACCOUNT 0x2u
#define __GFP_DIRECT_RECLAIM 0x4u
#define __GFP_BITS_SHIFT 25
#define GFP_NOWAIT 0u
#define GFP_KERNEL __GFP_DIRECT_RECLAIM
static inline bool gfpflags_allow_blocking(gfp_t gfp)
{
	return gfp & __GFP_DIRECT_RECLAIM;
}

/* Linux keeps small errors in pointers. */
#define MAX_ERRNO 4095
static inline bool IS_ERR_VALUE(unsigned long value)
{
	return value >= (unsigned long)-MAX_ERRNO;
}

/* A list that only ever is empty: no user of these arrays tracks nodes. */
struct list_head {
	struct list_head *next, *prev;
};
static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}
static inline bool list_empty(const struct list_head *list)
{
	return READ_ONCE(list->next) == list;
}

/* Bits. Every bitmap of the XArray is the 64 bits of a node, so sizes are at most one word. */
#define BITS_PER_LONG 64
#define BITS_PER_BYTE 8
#define BIT(nr) (1UL << (nr))
#define DIV_ROUND_UP(what, by) (((what) + (by) - 1) / (by))
#define BITS_TO_LONGS(bits) DIV_ROUND_UP(bits, BITS_PER_LONG)
#define round_up(what, to) ((((what) - 1) | ((__typeof__(what))(to) - 1)) + 1)
#define round_down(what, to) ((what) & ~((__typeof__(what))(to) - 1))
static inline unsigned long __ffs(unsigned long word)
{
	return (unsigned long)__builtin_ctzl(word);
}
static inline bool test_bit(unsigned long nr, const unsigned long *word)
{
	return READ_ONCE(*word) >> nr & 1;
}
static inline void __set_bit(unsigned long nr, unsigned long *word)
{
	*word |= BIT(nr);
}
static inline void __clear_bit(unsigned long nr, unsigned long *word)
{
	*word &= ~BIT(nr);
}
static inline bool __test_and_set_bit(unsigned long nr, unsigned long *word)
{
	bool was = *word >> nr & 1;

	*word |= BIT(nr);
	return was;
}
static inline bool __test_and_clear_bit(unsigned long nr, unsigned long *word)
{
	bool was = *word >> nr & 1;

	*word &= ~BIT(nr);
	return was;
}
static inline unsigned long word_mask(unsigned long first, unsigned long end)
{
	unsigned long below = end >= BITS_PER_LONG ? ~0UL : BIT(end) - 1;

	return first >= BITS_PER_LONG ? 0 : below & ~0UL << first;
}
static inline bool bitmap_empty(const unsigned long *word, unsigned int bits)
{
	return !(*word & word_mask(0, bits));
}
static inline void bitmap_fill(unsigned long *word, unsigned int bits)
{
	*word = word_mask(0, bits);
}
static inline void bitmap_clear(unsigned long *word, unsigned int first, unsigned int bits)
{
	*word &= ~word_mask(first, first + bits);
}
static inline unsigned long find_next_bit(const unsigned long *word, unsigned long bits,
					  unsigned long first)
{
	unsigned long left = *word & word_mask(first, bits);

	return left ? __ffs(left) : bits;
}

#ifdef XA_LOCK_MUTEX
typedef pthread_mutex_t spinlock_t;
#define __SPIN_LOCK_UNLOCKED(name) PTHREAD_MUTEX_INITIALIZER
#define spin_lock_init(lock) ((void)pthread_mutex_init(lock, NULL))
#define spin_lock(lock) ((void)pthread_mutex_lock(lock))
#define spin_trylock(lock) (pthread_mutex_trylock(lock) == 0)
#define spin_unlock(lock) ((void)pthread_mutex_unlock(lock))
#else
typedef struct {
	unsigned int held;
} spinlock_t;
#define __SPIN_LOCK_UNLOCKED(name) { 0 }
static inline void spin_lock_init(spinlock_t *lock)
{
	lock->held = 0;
}
static inline bool spin_trylock(spinlock_t *lock)
{
	return !__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE);
}
static inline void spin_pause(void)
{
#if defined(__x86_64__)
	__asm__ volatile("pause");
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
static inline void spin_lock(spinlock_t *lock)
{
	while (unlikely(!spin_trylock(lock)))
		while (__atomic_load_n(&lock->held, __ATOMIC_RELAXED))
			spin_pause();
}
static inline void spin_unlock(spinlock_t *lock)
{
	__atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}
#endif
#define DEFINE_SPINLOCK(name) spinlock_t name = __SPIN_LOCK_UNLOCKED(name)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_irqsave(lock, flags) ((flags) = 0, spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))
#define spin_lock_nested(lock, depth) spin_lock(lock)
#define spin_lock_bh_nested(lock, depth) spin_lock(lock)
#define spin_lock_irq_nested(lock, depth) spin_lock(lock)
#define spin_lock_irqsave_nested(lock, flags, depth) spin_lock_irqsave(lock, flags)

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};
#define rcu_read_lock() barrier()
#define rcu_read_unlock() barrier()
#define rcu_dereference_raw(place) READ_ONCE(place)
#define rcu_dereference_check(place, condition) READ_ONCE(place)
#define rcu_dereference_protected(place, condition) (place)
#define rcu_assign_pointer(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(place, value) WRITE_ONCE(place, value)
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));

struct kmem_cache;
struct list_lru;
void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, gfp_t gfp);
void kmem_cache_free(struct kmem_cache *cache, void *object);

#endif
