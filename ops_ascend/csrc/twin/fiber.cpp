#include "twin/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace twin {
namespace {

constexpr size_t kStackBytes = 1 << 20;
constexpr size_t kGuardBytes = 1 << 16;  // a whole page on every host

}  // namespace

Fiber::Fiber() {
  stack_ = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(stack_, kGuardBytes, PROT_NONE);
}

Fiber::~Fiber() { munmap(stack_, kGuardBytes + kStackBytes); }

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  finished_ = false;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = static_cast<char*>(stack_) + kGuardBytes;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = &outside_;
  const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext hands over only ints
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned>(uint64_t{self} >> 32), static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(uint64_t{high} << 32 | low));
  self->body_();
  self->finished_ = true;
}

void Fiber::resume() { swapcontext(&outside_, &inside_); }
void Fiber::yield() { swapcontext(&inside_, &outside_); }

}  // namespace twin
