// fiber.h -- a scalar program that can be put aside and taken up again.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace twin {

class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // body must let no exception out.
  void start(std::function<void()> body);
  void resume();  // from outside; returns when the body yields or ends
  void yield();   // from inside
  bool finished() const { return finished_; }

 private:
  static void enter(unsigned high, unsigned low);
  std::function<void()> body_;
  ucontext_t inside_, outside_;
  void* stack_ = nullptr;
  bool finished_ = true;
};

}  // namespace twin
