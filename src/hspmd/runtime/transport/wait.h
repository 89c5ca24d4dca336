// How a wait ends: with what it waits for, by an abort, or by a time-out. Never not at all.
//
//   AbortFlag abort;                                       one a generation; any thread may raise it
//   wait_until([&] { return messages.done(ticket); }, abort, timeout, {rank, "receive", "x", 4096}, peer);
//
// A wait spins briefly, then yields: more ranks than cores are no disaster.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace hspmd {

// What a wait is for; the texts must outlive it.
struct WaitSite {
  int rank = 0;
  const char* action = "";
  const char* tensor = "";
  std::int64_t bytes = 0;
};

inline constexpr int kNobody = -1;  // the peer of a wait for nobody in particular

// Once raised it stays so; the first reason stays.
class AbortFlag {
 public:
  void raise(const std::string& reason);
  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex reason_lock_;
  std::string reason_;
};

// Throws the RuntimeFailure of a wait: rank, action, peer, tensor, bytes, and why.
[[noreturn]] void fail_wait(const WaitSite& site, int peer, const std::string& reason);
[[noreturn]] void fail_timed_out(const WaitSite& site, int peer, std::chrono::duration<double> timeout);

// Returns once ready() does; throws RuntimeFailure on abort or time-out. What ready() throws passes through.
template <typename Ready>
void wait_until(Ready ready, const AbortFlag& abort, std::chrono::duration<double> timeout, const WaitSite& site,
                int peer) {
  constexpr int kSpins = 200;          // then the core goes to somebody else
  constexpr int kYieldsPerClock = 64;  // reading the clock at every yield would cost more than the yield
  for (int spin = 0; spin < kSpins; ++spin) {
    if (ready()) return;
  }
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < kYieldsPerClock; ++i) {
      if (ready()) return;
      if (abort.raised()) fail_wait(site, peer, "aborted: " + abort.reason());
      sched_yield();
    }
    if (std::chrono::steady_clock::now() - start > timeout) fail_timed_out(site, peer, timeout);
  }
}

}  // namespace hspmd
