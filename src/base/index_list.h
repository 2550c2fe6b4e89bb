// IndexList: a doubly linked list whose links live in an array beside the elements.
//
// The elements are the indices 0..n-1 of some array; an IndexLinks holds the links of all of them,
// several lists may share it (an element is in at most one of them at a time). Every operation but
// the iteration is O(1) and nothing allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace quire::base {

inline constexpr int32_t kNoIndex = -1;

// The links of the elements 0..size-1.
class IndexLinks {
 public:
  explicit IndexLinks(int32_t size) : links_(size) {}

 private:
  friend class IndexList;
  struct Link {
    int32_t prev = kNoIndex;
    int32_t next = kNoIndex;
  };
  std::vector<Link> links_;
};

class IndexList {
 public:
  bool empty() const { return size_ == 0; }
  int32_t size() const { return size_; }
  int32_t front() const { return front_; }  // kNoIndex when empty
  int32_t back() const { return back_; }    // kNoIndex when empty
  static int32_t Next(const IndexLinks& links, int32_t index) { return links.links_[index].next; }

  void PushFront(IndexLinks& links, int32_t index) { Link(links, kNoIndex, index, front_); }
  void PushBack(IndexLinks& links, int32_t index) { Link(links, back_, index, kNoIndex); }

  // `next` must be in this list.
  void InsertBefore(IndexLinks& links, int32_t next, int32_t index) {
    Link(links, links.links_[next].prev, index, next);
  }

  // `index` must be in this list.
  void Remove(IndexLinks& links, int32_t index) {
    auto& link = links.links_[index];
    (link.prev == kNoIndex ? front_ : links.links_[link.prev].next) = link.next;
    (link.next == kNoIndex ? back_ : links.links_[link.next].prev) = link.prev;
    link = {};
    --size_;
  }

 private:
  void Link(IndexLinks& links, int32_t prev, int32_t index, int32_t next) {
    links.links_[index] = {prev, next};
    (prev == kNoIndex ? front_ : links.links_[prev].next) = index;
    (next == kNoIndex ? back_ : links.links_[next].prev) = index;
    ++size_;
  }

  int32_t front_ = kNoIndex;
  int32_t back_ = kNoIndex;
  int32_t size_ = 0;
};

}  // namespace quire::base
