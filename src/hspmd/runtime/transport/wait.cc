#include "hspmd/runtime/transport/wait.h"

#include "hspmd/base/errors.h"

namespace hspmd {

void AbortFlag::raise(const std::string& reason) {
  {
    const std::lock_guard lock(lock_);
    if (!raised()) reason_ = reason;
  }
  raised_.store(true, std::memory_order_release);
}

std::string AbortFlag::reason() const {
  const std::lock_guard lock(lock_);
  return reason_;
}

void fail_wait(const WaitSite& site, std::optional<int> peer, const std::string& reason) {
  throw RuntimeFailure({site.rank, site.action, peer, site.tensor, site.bytes}, reason);
}

std::string timed_out(std::chrono::duration<double> timeout) {
  return fmt::format("timed out after {} s", timeout.count());
}

}  // namespace hspmd
