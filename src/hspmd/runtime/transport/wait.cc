#include "hspmd/runtime/transport/wait.h"

#include "hspmd/base/errors.h"

namespace hspmd {

void AbortFlag::raise(const std::string& reason) {
  const std::lock_guard lock(reason_lock_);
  if (raised()) return;
  reason_ = reason;
  raised_.store(true, std::memory_order_release);
}

std::string AbortFlag::reason() const {
  const std::lock_guard lock(reason_lock_);
  return reason_;
}

void fail_wait(const WaitSite& site, int peer, const std::string& reason) {
  FailureSite failure{site.rank, site.action, std::nullopt, site.tensor, site.bytes};
  if (peer != kNobody) failure.peer = peer;
  throw RuntimeFailure(failure, reason);
}

void fail_timed_out(const WaitSite& site, int peer, std::chrono::duration<double> timeout) {
  fail_wait(site, peer, fmt::format("timed out after {} s", timeout.count()));
}

}  // namespace hspmd
