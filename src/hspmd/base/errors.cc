#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

std::string describe(const FailureSite& site, const std::string& reason) {
  std::string text = fmt::format("[rank {}] {}", site.rank, site.action);
  if (site.peer) text += fmt::format(", peer {}", *site.peer);
  if (!site.tensor.empty()) text += fmt::format(", tensor {}", site.tensor);
  if (site.bytes) text += fmt::format(", {} bytes", *site.bytes);
  return text + ": " + reason;
}

}  // namespace

RuntimeFailure::RuntimeFailure(FailureSite site, const std::string& reason)
    : Error(describe(site, reason)), site_(std::move(site)) {}

void check_internal(bool holds, const char* promise) {
  if (!holds) throw InternalError(fmt::format("[internal] {} must hold; please report this", promise));
}

}  // namespace hspmd
