// Waits that end. A wait spins briefly, then gives its core to somebody else (more ranks than cores are no disaster),
// and ends by what it waits for, by an abort, or by a time-out; the latter two throw RuntimeFailure, which says rank,
// action, peer, tensor and bytes:
//
//   [rank 0] exchange, peer 1, tensor model.layers.1.input.grad, 768 bytes: timed out after 60 s
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace hspmd {

// What a wait is for; the texts must outlive it.
struct WaitSite {
  int rank = 0;
  const char* action = "";
  const char* tensor = "";
  std::int64_t bytes = 0;
};

// Raised once, for good; the first reason stays. Any thread may raise it.
class AbortFlag {
 public:
  void raise(const std::string& reason);
  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex lock_;
  std::string reason_;
};

// Throws the failure of a wait that was for `peer`, if for one.
[[noreturn]] void fail_wait(const WaitSite& site, std::optional<int> peer, const std::string& reason);
[[nodiscard]] std::string timed_out(std::chrono::duration<double> timeout);

struct WaitLimits {
  const AbortFlag* abort = nullptr;
  std::chrono::duration<double> timeout{60};
};

// `ready` is asked again and again; it may make progress itself.
template <typename Ready>
void wait_until(Ready ready, const WaitLimits& limits, const WaitSite& site, std::optional<int> peer) {
  constexpr int kSpins = 200;
  constexpr int kYieldsPerClock = 64;  // reading the clock at every yield would cost more than the yield
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return;
  }
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < kYieldsPerClock; ++i) {
      if (ready()) return;
      if (limits.abort->raised()) fail_wait(site, peer, "aborted: " + limits.abort->reason());
      sched_yield();
    }
    if (std::chrono::steady_clock::now() - start > limits.timeout) fail_wait(site, peer, timed_out(limits.timeout));
  }
}

}  // namespace hspmd
