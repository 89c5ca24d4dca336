#include "hspmd/runtime/transport/rendezvous.h"

#include <utility>

namespace hspmd {

int AbortSubscribers::add(AbortCallback callback) {
  const std::lock_guard guard(lock_);
  if (reason_) {
    callback(*reason_);
    return next_++;
  }
  callbacks_[next_] = std::move(callback);
  return next_++;
}

void AbortSubscribers::remove(int subscription) {
  const std::lock_guard guard(lock_);
  callbacks_.erase(subscription);
}

void AbortSubscribers::tell(const std::string& reason) {
  const std::lock_guard guard(lock_);
  if (reason_) return;
  reason_ = reason;
  for (const auto& [subscription, callback] : callbacks_) callback(reason);
}

}  // namespace hspmd
