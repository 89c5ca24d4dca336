// What a stranger's project does with an installed HSPMD.
#include <hspmd/hspmd.h>

#include <cstdio>

int main() {
  using namespace hspmd;
  const CommPlan plan = resolve(parse_annotation("{0-1: Px2}"), parse_annotation("{0-1: Dx2}"), {4, 4}, Cluster::uniform(2));
  std::puts(to_string(plan).c_str());
  return plan.stages.front().groups.front().kind == CommKind::kAllReduce ? 0 : 1;
}
