// Collectives over any ordered list of ranks, on one host or several; group.h says when they go in two levels. All
// ranks of the group call the same one, in the same order. T is float, double or std::int32_t.
//
//   n ranks on H hosts, B bytes      one host                    several: a host receives
//   all_reduce                       direct_all_reduce           2B(H-1)/H
//   reduce_scatter                   direct_reduce_scatter       B(H-1)/H
//   all_gather                       direct_all_gather           B(H-1)/H
//   all_to_all                       direct_all_to_all           what its ranks get (one level)
//   broadcast                        direct_broadcast            B, once
//   barrier                          direct_barrier              -
//
// Sums are taken in a fixed order, each by one rank alone or by all alike, so that a run repeats bit by bit and all
// ranks hold the same bits. Parts have any sizes, 0 too; all ranks name the same ones.
#pragma once

#include <span>

#include "hspmd/runtime/transport/group.h"

namespace hspmd {

// In place: data becomes the reduction of all ranks' data.
template <typename T>
void all_reduce(Group& group, std::span<T> data, Reduction reduction);

// `mine` becomes part me() of the reduction; it may be that part of data.
template <typename T>
void reduce_scatter(Group& group, std::span<const T> data, std::span<const std::size_t> parts, std::span<T> mine,
                    Reduction reduction);

// In place: rank p brings part p of data, and gets the others.
template <typename T>
void all_gather(Group& group, std::span<const std::size_t> parts, std::span<T> data);

// Part p of `from` goes to rank p; part p of `into` comes from it.
template <typename T>
void all_to_all(Group& group, std::span<const T> from, std::span<const std::size_t> from_parts, std::span<T> into,
                std::span<const std::size_t> into_parts);

// Data becomes that of the rank at place `root`.
template <typename T>
void broadcast(Group& group, std::span<T> data, int root);

// Returns once all ranks have called it.
void barrier(Group& group);

}  // namespace hspmd
