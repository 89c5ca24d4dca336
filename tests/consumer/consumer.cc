#include <hspmd/hspmd.h>

#include <iostream>

int main() {
  const hspmd::Annotation from = hspmd::parse_annotation("{0-1: Px2}");
  const hspmd::Annotation to = hspmd::parse_annotation("{0-1: Dx2}");

  const hspmd::CommPlan plan = hspmd::resolve(from, to, {10, 6}, hspmd::Cluster::uniform(2));

  std::cout << hspmd::to_string(plan) << hspmd::llama_preset("tiny").parameters() << " parameters\n";
  return plan.bytes == 480 ? 0 : 1;
}
