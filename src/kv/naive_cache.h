// NaiveCache: what KvCache should do, written with maps of whole token lists and no regard for
// time. The random test runs both side by side.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace quire::kv {

class NaiveCache {
 public:
  // A frame: of a published block (its whole prefix names it), or private to a lease and its forks.
  struct Name {
    int group = 0;
    std::string salt;
    std::vector<TokenId> prefix;  // published: all tokens up to the end of the block
    int64_t private_id = 0;       // else
    auto operator<=>(const Name&) const = default;
  };
  struct Holding {
    std::string salt;
    std::vector<TokenId> tokens;  // committed
    int reserved = 0;
    bool publishes = true;
    std::vector<int> first_block;           // [groups]
    std::vector<std::vector<Name>> frames;  // [groups][blocks]; left the window unsealed: no frame
    std::vector<std::map<int, std::vector<Name>>> tails;  // [groups] by block
  };
  struct Hit {
    int tokens = 0;
    std::optional<std::vector<TokenId>> source;  // prefix of the block to copy from
  };

  explicit NaiveCache(const KvCacheOptions& options) : options_(options) {}

  int leased() const {
    return static_cast<int>(
        std::ranges::count_if(frames_, [](const auto& f) { return Held(f.second); }));
  }
  int cached() const { return static_cast<int>(order_.size()); }
  int copies() const { return static_cast<int>(copies_.size()); }

  // The longest hit, found by trying all lengths.
  Hit Match(const std::vector<TokenId>& tokens, const std::string& salt) const {
    const int block = options_.block_tokens;
    for (int length = static_cast<int>(tokens.size()) - 1; length > 0; --length) {
      if (!WindowsCached(tokens, salt, length)) continue;
      if (Residual() > 0 && length % Residual() != 0) continue;
      if (length % block == 0) return {length, std::nullopt};
      if (const auto source = Source(tokens, salt, length)) return {length, source};
    }
    return {};
  }

  bool FitsReserve(const std::vector<TokenId>& tokens, const std::string& salt, const Hit& hit,
                   int length) const {
    int needed = 0;
    for (int g = 0; g < Groups(); ++g) {
      for (int b = hit.tokens / options_.block_tokens; b < Blocks(length); ++b) {
        needed += HasBody(g, b, length);
        needed += HasTail(b, length) ? options_.groups[g].tail_frames : 0;
      }
      for (const Name& name : HitFrames(tokens, salt, hit, g)) needed += !Held(frames_.at(name));
      if (hit.source) {
        const auto it = frames_.find(Name{g, salt, *hit.source, 0});
        needed += it != frames_.end() && !Held(it->second);
      }
    }
    return needed <= Available();
  }

  Holding Reserve(const std::vector<TokenId>& tokens, const std::string& salt, const Hit& hit,
                  int length) {
    Holding holding;
    holding.salt = salt;
    holding.publishes = options_.prefix_caching == PrefixCaching::kOn;
    holding.tokens.assign(tokens.begin(), tokens.begin() + hit.tokens);
    const int full = hit.tokens / options_.block_tokens;
    holding.tails.resize(Groups());
    for (int g = 0; g < Groups(); ++g) {
      holding.first_block.push_back(FirstBlock(g, hit.tokens));
      holding.frames.emplace_back(Sinks(g) ? std::min(1, full) : full);
      int b = holding.first_block.back();
      for (const Name& name : HitFrames(tokens, salt, hit, g)) {
        Hold(name).references++;
        holding.frames[g][b++] = name;
      }
    }
    std::vector<std::optional<Name>> sources(Groups());
    for (int g = 0; g < Groups() && hit.source; ++g) {
      if (Sinks(g) && full > 0) continue;
      sources[g] = Name{g, salt, *hit.source, 0};
      Hold(*sources[g]).pins++;
    }
    Grow(holding, length, length);
    for (int g = 0; g < Groups() && hit.source; ++g) {
      if (!sources[g]) continue;
      Copy(*sources[g], holding.frames[g][full]);
      frames_.at(*sources[g]).pins--;
    }
    return holding;
  }

  int ToExtend(const Holding& holding, int length, int unverified) const {
    if (length <= static_cast<int>(holding.tokens.size())) return 0;
    int needed = 0;
    for (int g = 0; g < Groups(); ++g) {
      for (int b = holding.first_block[g]; b < Blocks(length); ++b) {
        needed += HasBody(g, b, length) && b >= static_cast<int>(holding.frames[g].size());
        if (HasTail(b, length - unverified) && !holding.tails[g].contains(b)) {
          needed += options_.groups[g].tail_frames;
        }
      }
      needed += static_cast<int>(SharedPart(holding, g).size());
    }
    return needed;
  }
  bool FitsExtend(const Holding& holding, int length, int unverified) const {
    return ToExtend(holding, length, unverified) <= Available();
  }

  void Extend(Holding& holding, int length, int unverified) {
    const int committed = static_cast<int>(holding.tokens.size());
    for (int g = 0; g < Groups() && length > committed; ++g) {
      for (Name* part : SharedPart(holding, g)) {
        const Name copy = NewFrame(g);
        Copy(*part, copy);
        Drop(*part);
        *part = copy;
      }
    }
    if (length > committed) Grow(holding, length, length - unverified);
  }

  void Commit(Holding& holding, const std::vector<TokenId>& tokens) {
    const size_t block = options_.block_tokens;
    const int before = Sealed(static_cast<int>(holding.tokens.size()));
    const int sealed = Sealed(static_cast<int>(tokens.size()));
    holding.tokens = tokens;
    for (int b = before; holding.publishes && b < sealed; ++b) {
      const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + (b + 1) * block);
      for (int g = 0; g < Groups(); ++g) {
        if (b < holding.first_block[g] || (Sinks(g) && b > 0)) continue;
        Name& own = holding.frames[g][b];
        const Name published{g, holding.salt, prefix, 0};
        if (frames_.contains(published)) {
          Hold(published).references++;
          Drop(own);
        } else {
          frames_[published] = frames_.at(own);
          frames_.erase(own);
        }
        own = published;
      }
    }
    for (int g = 0; g < Groups(); ++g) {
      const int first = FirstBlock(g, static_cast<int>(tokens.size()));
      DropTails(holding, g, [&](int b) { return b < std::max(first, sealed); });
      for (int& b = holding.first_block[g]; b < first; ++b) {
        if (b < static_cast<int>(holding.frames[g].size())) Drop(holding.frames[g][b]);
      }
    }
  }

  void Truncate(Holding& holding, int length) {
    for (int g = 0; g < Groups(); ++g) {
      auto& frames = holding.frames[g];
      for (int b = static_cast<int>(frames.size()) - 1; b >= 0 && !HasBody(g, b, length); --b) {
        if (b >= holding.first_block[g]) Drop(frames.back());
        frames.pop_back();
      }
      DropTails(holding, g, [&](int b) { return b >= Blocks(length); });
    }
    holding.reserved = length;
  }

  Holding Fork(const Holding& from) {
    Holding holding = from;
    const int length = static_cast<int>(from.tokens.size());
    holding.reserved = length;
    for (int g = 0; g < Groups(); ++g) {
      auto& frames = holding.frames[g];
      while (!frames.empty() && !HasBody(g, static_cast<int>(frames.size()) - 1, length)) {
        frames.pop_back();
      }
      for (size_t b = holding.first_block[g]; b < frames.size(); ++b) {
        frames_.at(frames[b]).references++;
      }
      std::erase_if(holding.tails[g], [&](const auto& t) { return t.first >= Blocks(length); });
      for (const auto& [b, tail] : holding.tails[g]) {
        for (const Name& name : tail) frames_.at(name).references++;
      }
    }
    return holding;
  }

  void Release(Holding& holding) {
    int blocks = 0;
    for (int g = 0; g < Groups(); ++g) DropTails(holding, g, [](int) { return true; });
    for (const auto& frames : holding.frames)
      blocks = std::max(blocks, static_cast<int>(frames.size()));
    for (int b = blocks - 1; b >= 0; --b) {
      for (int g = 0; g < Groups(); ++g) {
        if (b >= holding.first_block[g] && b < static_cast<int>(holding.frames[g].size())) {
          Drop(holding.frames[g][b]);
        }
      }
    }
  }

  // Frames that only this holding keeps from being free or cached.
  int FreedByRelease(const Holding& holding) const {
    int freed = 0;
    const auto count = [&](const Name& name) {
      freed += frames_.at(name).references == 1 && frames_.at(name).pins == 0;
    };
    for (int g = 0; g < Groups(); ++g) {
      for (size_t b = holding.first_block[g]; b < holding.frames[g].size(); ++b) {
        count(holding.frames[g][b]);
      }
      for (const auto& [b, tail] : holding.tails[g]) std::ranges::for_each(tail, count);
    }
    return freed;
  }

  bool SharesPart(const Holding& holding, const Holding& other) const {
    const size_t b = holding.tokens.size() / options_.block_tokens;
    if (holding.tokens.size() % options_.block_tokens == 0) return false;
    for (int g = 0; g < Groups(); ++g) {
      if (Residual() > 0) {
        const auto own = holding.tails[g].find(static_cast<int>(b));
        const auto theirs = other.tails[g].find(static_cast<int>(b));
        if (own == holding.tails[g].end() || theirs == other.tails[g].end()) continue;
        if (!own->second.empty() && own->second == theirs->second) return true;
      } else if (b < holding.frames[g].size() && b < other.frames[g].size() &&
                 static_cast<int>(b) >= other.first_block[g] &&
                 holding.frames[g][b] == other.frames[g][b]) {
        return true;
      }
    }
    return false;
  }

  void CopiesDone() {
    auto copies = std::exchange(copies_, {});
    std::ranges::stable_sort(copies, {}, [](const auto& c) { return c.first.prefix.size(); });
    for (const auto& [from, to] : copies) {
      --frames_.at(from).pins;
      LetGo(from, options_.groups[from.group].window_tokens ? Place::kLast : Place::kBeforeParent);
      --frames_.at(to).pins;
      LetGo(to, Place::kLast);
    }
  }

  void DropCached() {
    while (!order_.empty()) Evict();
  }

 private:
  struct Frame {
    int references = 0;
    int pins = 0;
  };

  static bool Held(const Frame& frame) { return frame.references > 0 || frame.pins > 0; }
  int Groups() const { return static_cast<int>(options_.groups.size()); }
  int Blocks(int tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  int Residual() const { return options_.residual_tokens; }
  bool Sinks(int group) const { return options_.groups[group].blocks == GroupBlocks::kFirst; }
  // Leading blocks whose residual group is complete.
  int Sealed(int tokens) const {
    if (Residual() == 0) return tokens / options_.block_tokens;
    return tokens / Residual() * Residual() / options_.block_tokens;
  }
  // Whether block b of a sequence of `length` tokens has a frame in the group, or tail frames.
  bool HasBody(int group, int b, int length) const {
    if (Sinks(group) && b > 0) return false;
    return Residual() == 0 ? b < Blocks(length) : b < Sealed(length);
  }
  bool HasTail(int b, int length) const { return Residual() > 0 && b >= Sealed(length); }

  void DropTails(Holding& holding, int group, auto which) {
    auto& tails = holding.tails[group];
    for (auto it = tails.begin(); it != tails.end();) {
      if (!which(it->first)) {
        ++it;
        continue;
      }
      for (const Name& name : it->second) Drop(name);
      it = tails.erase(it);
    }
  }

  int Available() const { return options_.frames - leased(); }

  // Tokens the query at `position` sees start in this block.
  int FirstBlock(int group, int position) const {
    const auto window = options_.groups[group].window_tokens;
    return window ? std::max(0, position - *window + 1) / options_.block_tokens : 0;
  }

  Name Published(int group, const std::vector<TokenId>& tokens, const std::string& salt,
                 int block) const {
    const auto end = tokens.begin() + static_cast<ptrdiff_t>(block + 1) * options_.block_tokens;
    return Name{group, salt, {tokens.begin(), end}, 0};
  }

  bool WindowsCached(const std::vector<TokenId>& tokens, const std::string& salt,
                     int length) const {
    for (int g = 0; g < Groups(); ++g) {
      for (int b = FirstBlock(g, length); b < length / options_.block_tokens; ++b) {
        if (Sinks(g) && b > 0) continue;
        if (!frames_.contains(Published(g, tokens, salt, b))) return false;
      }
    }
    return true;
  }

  std::optional<std::vector<TokenId>> Source(const std::vector<TokenId>& tokens,
                                             const std::string& salt, int length) const {
    const size_t size = static_cast<size_t>(Blocks(length)) * options_.block_tokens;
    for (const auto& [name, frame] : frames_) {
      if (name.group != 0 || name.salt != salt || name.prefix.size() != size) continue;
      if (!std::equal(tokens.begin(), tokens.begin() + length, name.prefix.begin())) continue;
      bool everywhere = true;
      for (int g = 0; g < Groups(); ++g) {
        if (Sinks(g) && Blocks(length) > 1) continue;
        everywhere &= frames_.contains(Name{g, salt, name.prefix, 0});
      }
      if (everywhere) return name.prefix;
    }
    return std::nullopt;
  }

  std::vector<Name> HitFrames(const std::vector<TokenId>& tokens, const std::string& salt,
                              const Hit& hit, int group) const {
    std::vector<Name> names;
    for (int b = FirstBlock(group, hit.tokens); b < hit.tokens / options_.block_tokens; ++b) {
      if (!Sinks(group) || b == 0) names.push_back(Published(group, tokens, salt, b));
    }
    return names;
  }

  Frame& Hold(const Name& name) {
    std::erase(order_, name);
    return frames_.at(name);
  }

  // The frames of the partly filled block, if others hold them too.
  std::vector<Name*> SharedPart(const Holding& holding, int group) const {
    auto& own = const_cast<Holding&>(holding);
    const int b = static_cast<int>(holding.tokens.size()) / options_.block_tokens;
    std::vector<Name*> parts;
    if (holding.tokens.size() % options_.block_tokens == 0) return parts;
    if (Residual() == 0 && !(Sinks(group) && b > 0)) {
      parts.push_back(&own.frames[group][b]);
    } else if (Residual() > 0 && !Sinks(group)) {
      for (Name& name : own.tails[group].at(b)) parts.push_back(&name);
    }
    if (!parts.empty() && frames_.at(*parts[0]).references == 1) parts.clear();
    return parts;
  }

  void Grow(Holding& holding, int length, int certain) {
    for (int g = 0; g < Groups(); ++g) {
      auto& frames = holding.frames[g];
      for (int b = static_cast<int>(frames.size()); HasBody(g, b, length); ++b) {
        frames.push_back(b < holding.first_block[g] ? Name{} : NewFrame(g));
      }
      for (int b = holding.first_block[g]; b < Blocks(length); ++b) {
        if (!HasTail(b, certain) || holding.tails[g].contains(b)) continue;
        std::vector<Name> tail;
        for (int i = 0; i < options_.groups[g].tail_frames; ++i) tail.push_back(NewFrame(g));
        if (!tail.empty()) holding.tails[g][b] = tail;
      }
    }
    holding.reserved = std::max(holding.reserved, length);
  }

  Name NewFrame(int group) {
    if (static_cast<int>(frames_.size()) == options_.frames) Evict();
    const Name name{group, "", {}, ++last_private_};
    frames_[name] = {1, 0};
    return name;
  }

  void Evict() {
    const Name oldest = order_.front();
    const bool whole = !options_.groups[oldest.group].window_tokens;
    for (int g = 0; g < Groups(); ++g) {
      if (g != oldest.group && !whole) continue;
      const Name name{g, oldest.salt, oldest.prefix, 0};
      if (whole) UnpublishBelow(name);
      if (!frames_.contains(name)) continue;
      QUIRE_CHECK(!Held(frames_.at(name)));
      std::erase(order_, name);
      frames_.erase(name);
    }
  }

  // What is left of an evicted block's descendants is the source of a copy and belongs to nobody.
  void UnpublishBelow(const Name& evicted) {
    const auto frames = frames_;
    for (const auto& [name, frame] : frames) {
      if (name.group != evicted.group || name.salt != evicted.salt ||
          name.prefix.size() <= evicted.prefix.size() ||
          !std::equal(evicted.prefix.begin(), evicted.prefix.end(), name.prefix.begin())) {
        continue;
      }
      QUIRE_CHECK_EQ(frame.references, 0);
      if (!Held(frame)) {
        std::erase(order_, name);
        frames_.erase(name);
        continue;
      }
      const Name anonymous{name.group, "", {}, ++last_private_};
      frames_[anonymous] = frame;
      frames_.erase(name);
      for (auto& copy : copies_) {
        if (copy.first == name) copy.first = anonymous;
      }
    }
  }

  void Copy(const Name& from, const Name& to) {
    ++frames_.at(from).pins;
    ++frames_.at(to).pins;
    copies_.emplace_back(from, to);
  }

  void Drop(const Name& name) {
    --frames_.at(name).references;
    LetGo(name, Place::kLast);
  }

  // Where in the order of eviction.
  enum class Place { kLast, kBeforeParent };

  void LetGo(const Name& name, Place wanted) {
    if (Held(frames_.at(name))) return;
    if (name.prefix.empty()) {
      frames_.erase(name);
      return;
    }
    auto place = order_.end();
    if (wanted == Place::kBeforeParent) {
      Name parent = name;
      parent.prefix.resize(parent.prefix.size() - options_.block_tokens);
      place = std::ranges::find(order_, parent);
    }
    order_.insert(place, name);
  }

  KvCacheOptions options_;
  std::map<Name, Frame> frames_;
  std::vector<Name> order_;  // cached, next to be evicted first
  std::vector<std::pair<Name, Name>> copies_;
  int64_t last_private_ = 0;
};

}  // namespace quire::kv
