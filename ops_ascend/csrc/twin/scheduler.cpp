#include "twin/scheduler.h"

namespace twin {
namespace {

constexpr uint32_t actor_bit(int slot, int pipe) { return 1u << (slot * kActorsPerCore + pipe); }

constexpr uint32_t core_bits(int slot) { return ((1u << kPipes) - 1) << (slot * kActorsPerCore); }

constexpr uint32_t pipe_bits(int pipe) {
  return actor_bit(0, pipe) | actor_bit(1, pipe) | actor_bit(2, pipe);
}

}  // namespace

uint64_t Scheduler::next() {  // splitmix64
  random_ += 0x9e3779b97f4a7c15u;
  uint64_t z = random_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

void Scheduler::change_policy() {
  constexpr int kPolicies = 8;
  favoured_ = starved_ = 0;
  const uint64_t random = next();
  const int slot = static_cast<int>(random >> 8 & 0xff) % kCoresPerBlock;
  const int pipe = static_cast<int>(random >> 16 & 0xff) % kPipes;
  switch (random % kPolicies) {
    case 0:
      break;  // any
    case 1:
      starved_ = actor_bit(slot, pipe);
      break;  // one queue stalls
    case 2:
      favoured_ = actor_bit(slot, pipe);
      break;  // one queue runs far ahead
    case 3:
      starved_ = core_bits(slot);
      break;  // one core lags
    case 4:
      favoured_ = core_bits(slot);
      break;  // one core runs far ahead
    case 5:
      favoured_ = pipe_bits(0);
      break;  // queues fill before anything runs
    case 6:
      starved_ = pipe_bits(0);
      break;  // program order, nearly
    case 7:
      starved_ = pipe_bits(pipe) | pipe_bits(0);
      break;  // one kind of queue stalls on every core
  }
  picks_left_ = 20 + static_cast<int>(random >> 24 & 0xff);
}

int Scheduler::pick(uint32_t runnable) {
  if (picks_left_-- <= 0) change_policy();
  uint32_t choice = runnable;
  if ((choice & ~starved_) != 0) choice &= ~starved_;
  if ((choice & favoured_) != 0) choice &= favoured_;
  for (auto skip = static_cast<int>(next() % static_cast<uint64_t>(__builtin_popcount(choice))); skip > 0;
       --skip) {
    choice &= choice - 1;
  }
  return __builtin_ctz(choice);
}

int Scheduler::burst(bool scalar_program) { return 1 + static_cast<int>(next() % (scalar_program ? 32 : 6)); }

}  // namespace twin
