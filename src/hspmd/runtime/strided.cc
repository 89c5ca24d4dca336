#include "hspmd/runtime/strided.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hspmd {
namespace {

template <typename T, Reduction kOp>
void combine(T* mine, const void* const* buffers, std::size_t count, std::int64_t n) {
  const auto source = [&](std::size_t s) { return static_cast<const T*>(buffers[s]); };
  if (count == 0) {
    std::fill_n(mine, n,
                kOp == Reduction::kSum                 ? T{0}
                : std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                       : std::numeric_limits<T>::lowest());
    return;
  }
  if (count == 1) {
    if (mine != source(0)) std::memcpy(mine, source(0), static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  // Always in the order of the sources, so that a run repeats bit by bit.
  constexpr std::int64_t kBlock = 1024;  // stays in the first cache over all sources
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = std::min(n, begin + kBlock);
    const T* a = source(0);
    const T* b = source(1);
    for (std::int64_t i = begin; i < end; ++i) mine[i] = kOp == Reduction::kSum ? a[i] + b[i] : std::max(a[i], b[i]);
    for (std::size_t s = 2; s < count; ++s) {
      const T* c = source(s);
      for (std::int64_t i = begin; i < end; ++i)
        mine[i] = kOp == Reduction::kSum ? mine[i] + c[i] : std::max(mine[i], c[i]);
    }
  }
}

template <typename T, Reduction kOp>
void run_typed(const StridedPull& pull, T* mine, const PullSources& sources) {
  const std::size_t count = pull.devices.size();
  InlineVector<std::int64_t, kMaxRank> index(pull.extents.size(), 0);
  while (true) {
    std::int64_t here = pull.offsets[0];
    for (std::size_t l = 0; l < index.size(); ++l) here += index[l] * pull.strides[0][l];
    for (std::size_t s = 0; s < count; ++s) {
      std::int64_t there = pull.offsets[s + 1];
      for (std::size_t l = 0; l < index.size(); ++l) there += index[l] * pull.strides[s + 1][l];
      sources.scratch[s] = static_cast<const T*>(sources.buffers[s]) + there;
    }
    combine<T, kOp>(mine + here, sources.scratch, count, pull.run);
    std::size_t l = index.size();
    while (l > 0 && ++index[l - 1] == pull.extents[l - 1]) index[--l] = 0;
    if (l == 0) return;
  }
}

template <typename T>
void run_reduction(const StridedPull& pull, Reduction reduction, void* mine, const PullSources& sources) {
  if (reduction == Reduction::kSum) {
    run_typed<T, Reduction::kSum>(pull, static_cast<T*>(mine), sources);
  } else {
    run_typed<T, Reduction::kMax>(pull, static_cast<T*>(mine), sources);
  }
}

std::vector<std::int64_t> row_major(const Box& box) {
  std::vector<std::int64_t> strides(box.size());
  std::int64_t step = 1;
  for (std::size_t d = box.size(); d-- > 0;) {
    strides[d] = step;
    step *= box[d].size();
  }
  return strides;
}

}  // namespace

StridedPull make_strided(const Pull& pull) {
  StridedPull made;
  std::vector<const Piece*> pieces = {&pull.into};
  for (const Source& source : pull.sources) {
    pieces.push_back(&source.piece);
    made.devices.push_back(source.device);
  }
  const std::size_t rank = pull.box.size();
  std::vector<std::vector<std::int64_t>> strides;
  for (const Piece* piece : pieces) {
    strides.push_back(row_major(piece->box));
    std::int64_t offset = piece->offset;
    for (std::size_t d = 0; d < rank; ++d) offset += (pull.box[d].begin - piece->box[d].begin) * strides.back()[d];
    made.offsets.push_back(offset);
  }
  // Trailing dims that are contiguous in every buffer make one run.
  made.run = 1;
  std::size_t outer = rank;
  while (outer > 0) {
    const bool contiguous =
        std::all_of(strides.begin(), strides.end(), [&](const auto& s) { return s[outer - 1] == made.run; });
    if (!contiguous && pull.box[outer - 1].size() != 1) break;
    made.run *= pull.box[outer - 1].size();
    --outer;
  }
  made.strides.resize(pieces.size());
  for (std::size_t d = 0; d < outer; ++d) {
    if (pull.box[d].size() == 1) continue;
    made.extents.push_back(pull.box[d].size());
    for (std::size_t b = 0; b < pieces.size(); ++b) made.strides[b].push_back(strides[b][d]);
  }
  return made;
}

void run_strided(const StridedPull& pull, ElementType type, Reduction reduction, void* mine,
                 const PullSources& sources) {
  switch (type) {
    case ElementType::kFp32:
      run_reduction<float>(pull, reduction, mine, sources);
      return;
    case ElementType::kFp64:
      run_reduction<double>(pull, reduction, mine, sources);
      return;
    case ElementType::kInt32:
      run_reduction<std::int32_t>(pull, reduction, mine, sources);
      return;
  }
}

}  // namespace hspmd
