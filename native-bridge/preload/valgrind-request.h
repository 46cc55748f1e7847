/* Requests to valgrind, as made by its memcheck.h (3.0 and later), which this does not need. On a
 * real processor they are a few instructions without effect. */
#ifndef IWARPD_VALGRIND_REQUEST_H
#define IWARPD_VALGRIND_REQUEST_H

#include <stdint.h>

/* 'M' 'C', and the number of memcheck's request. */
#define MEMCHECK_MAKE_DEFINED_IF_ADDRESSABLE 0x4d43000bul

/* Marks the memory as initialised, whatever memcheck has seen written to it, except parts that the
 * program cannot access. */
static inline void valgrind_make_defined(uint64_t start, uint64_t length) {
  volatile uint64_t request[] = {MEMCHECK_MAKE_DEFINED_IF_ADDRESSABLE, start, length, 0, 0, 0};
#if defined(__x86_64__)
  uint64_t result = 0;
  __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi\n\t"
                   "xchgq %%rbx, %%rbx"
                   : "+d"(result)
                   : "a"(request)
                   : "cc", "memory");
#elif defined(__aarch64__)
  __asm__ volatile("mov x3, #0; mov x4, %0\n\t"
                   "ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61\n\t"
                   "orr x10, x10, x10"
                   :
                   : "r"(request)
                   : "cc", "memory", "x3", "x4");
#else
  (void)request;
#endif
}

#endif
