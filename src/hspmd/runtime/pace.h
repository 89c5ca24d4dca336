// Pace: the clock of a device that only takes time. Work moves it on; what others must see happens when real time has
// come so far.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace hspmd {

class Pace {
 public:
  // The device works for so long.
  void pass(double seconds) {
    const auto now = std::chrono::steady_clock::now();
    until_ = std::max(until_, now) +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    constexpr auto kWorthASleep = std::chrono::microseconds(200);
    if (until_ - now > kWorthASleep) settle();
  }
  // Waits until the device's clock is reached.
  void settle() const { std::this_thread::sleep_until(until_); }

 private:
  std::chrono::steady_clock::time_point until_;
};

}  // namespace hspmd
