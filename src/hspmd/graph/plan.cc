#include "hspmd/graph/plan.h"

#include <algorithm>
#include <string_view>

namespace hspmd {
namespace {

constexpr std::string_view kGather = ".gather";

const Annotation* lookup(const std::map<std::string, const Annotation*>& layouts, const std::string& name) {
  const auto found = layouts.find(name);
  return found == layouts.end() ? nullptr : found->second;
}

}  // namespace

Plan::Plan(const Plan& other) {
  for (const auto& [name, annotation] : other.tensors_) set_tensor(name, *annotation);
  for (const auto& [name, annotation] : other.reshards_) set_reshard(name, *annotation);
}

Plan& Plan::operator=(const Plan& other) {
  Plan copy(other);
  *this = std::move(copy);
  return *this;
}

const Annotation* Plan::intern(const Annotation& annotation) {
  constexpr std::size_t kRecent = 24;  // the kinds of layout in one layer
  const std::size_t recent = std::min(pool_.size(), kRecent);
  const auto found = std::find(pool_.end() - static_cast<std::ptrdiff_t>(recent), pool_.end(), annotation);
  if (found != pool_.end()) return &*found;
  pool_.push_back(annotation);
  return &pool_.back();
}

void Plan::set_tensor(const std::string& name, const Annotation& annotation) {
  tensors_[name] = intern(annotation);
}
void Plan::set_reshard(const std::string& name, const Annotation& annotation) {
  reshards_[name] = intern(annotation);
}

const Annotation* Plan::leaf(const std::string& name) const {
  if (const Annotation* exact = lookup(tensors_, name)) return exact;
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos) return nullptr;
  const std::string tensor = name.substr(0, slash);
  if (const Annotation* master = lookup(tensors_, tensor + "/master")) return master;
  return lookup(tensors_, tensor);
}

const Annotation* Plan::reshard(const std::string& name) const {
  if (const Annotation* exact = lookup(reshards_, name)) return exact;
  if (!name.ends_with(kGather)) return nullptr;
  return lookup(tensors_, name.substr(0, name.size() - kGather.size()));
}

bool operator==(const Plan& a, const Plan& b) {
  const auto same = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& p, const auto& q) { return p.first == q.first && *p.second == *q.second; });
  };
  return same(a.tensors_, b.tensors_) && same(a.reshards_, b.reshards_);
}

}  // namespace hspmd
