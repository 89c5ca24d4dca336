#include "hspmd/runtime/strided.h"

#include <algorithm>

#include "hspmd/runtime/transport/reduce.h"

namespace hspmd {
namespace {

template <typename T>
void run_typed(const StridedPull& pull, Reduction reduction, void* into, const PullSources& sources) {
  T* mine = static_cast<T*>(into);
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
    reduce<T>(reduction, mine + here, {sources.scratch, count}, static_cast<std::size_t>(pull.run));
    std::size_t l = index.size();
    while (l > 0 && ++index[l - 1] == pull.extents[l - 1]) index[--l] = 0;
    if (l == 0) return;
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
      run_typed<float>(pull, reduction, mine, sources);
      return;
    case ElementType::kFp64:
      run_typed<double>(pull, reduction, mine, sources);
      return;
    case ElementType::kInt32:
      run_typed<std::int32_t>(pull, reduction, mine, sources);
      return;
  }
}

}  // namespace hspmd
