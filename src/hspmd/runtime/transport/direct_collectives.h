// Collectives among the ranks of one host, over each other's memory. All ranks of the team call the same one, in the
// same order. T is float, double or std::int32_t. Each source file says its steps and bytes.
//
//   n ranks, B bytes          a rank reads           a rank writes        meets
//   direct_all_reduce         B                      B                    2     (small: nB, B, 1)
//   direct_reduce_scatter     n own parts            own part             2     (small: 1)
//   direct_all_gather         B - own part           B - own part         2     (small: 1)
//   direct_all_to_all         what it gets           what it gets         2
//   direct_broadcast          B                      B                    1, the root 2
//   direct_barrier            -                      -                    1
//
// Sums are taken in the order of the places, each by one rank alone (small ones by all alike), so that a run repeats
// bit by bit and all ranks hold the same bits. Parts have any sizes, 0 too; all ranks name the same ones. Failures:
// RuntimeFailure of the wait that failed; the data are then undefined.
#pragma once

#include <span>

#include "hspmd/annotation/annotation.h"
#include "hspmd/runtime/transport/team.h"

namespace hspmd {

// In place: data becomes the reduction of all ranks' data.
template <typename T>
void direct_all_reduce(Team& team, std::span<T> data, Reduction reduction);

// `mine` becomes part me() of the reduction; it may be that part of data.
template <typename T>
void direct_reduce_scatter(Team& team, std::span<const T> data, std::span<const std::size_t> parts, std::span<T> mine,
                           Reduction reduction);

// In place: rank p brings part p of data, and gets the others.
template <typename T>
void direct_all_gather(Team& team, std::span<const std::size_t> parts, std::span<T> data);

// Part p of `from` goes to rank p; part p of `into` comes from it. At most kMaxTeam ranks.
template <typename T>
void direct_all_to_all(Team& team, std::span<const T> from, std::span<const std::size_t> from_parts, std::span<T> into,
                       std::span<const std::size_t> into_parts);

// Data becomes that of the rank at place `root`.
template <typename T>
void direct_broadcast(Team& team, std::span<T> data, int root);

// Returns once all ranks have called it.
void direct_barrier(Team& team);

}  // namespace hspmd
