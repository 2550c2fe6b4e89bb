#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace quire::kv {

BlockHash KeyedBlockHash(uint64_t key) {
  return [key](uint64_t parent, std::span<const TokenId> tokens) {
    uint64_t hash = base::Mix64(key ^ parent);
    size_t i = 0;
    for (; i + 1 < tokens.size(); i += 2) {
      const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 |
                            static_cast<uint32_t>(tokens[i + 1]);
      hash = base::Mix64(hash ^ pair);
    }
    if (i < tokens.size()) hash = base::Mix64(hash ^ static_cast<uint32_t>(tokens[i]));
    return hash;
  };
}

PrefixIndex::PrefixIndex(Options options)
    : options_(std::move(options)),
      blocks_(options_.blocks),
      tokens_(static_cast<size_t>(options_.blocks) * options_.block_tokens),
      frames_(static_cast<size_t>(options_.blocks) * options_.groups, base::kNoIndex),
      buckets_(std::bit_ceil(static_cast<size_t>(options_.blocks) + 1), base::kNoIndex),
      links_(options_.blocks) {
  QUIRE_CHECK(options_.hash != nullptr);
  for (int32_t i = options_.blocks - 1; i >= 0; --i) unused_.PushFront(links_, i);
}

uint64_t PrefixIndex::RootHash(const CacheKey& key) const {
  // Salts are hashed like tokens, four bytes at a time; lengths differ in the last word.
  uint64_t hash = static_cast<uint64_t>(static_cast<uint32_t>(key.adapter)) << 32 | key.salt.size();
  for (size_t i = 0; i < key.salt.size(); ++i) {
    const TokenId byte = static_cast<unsigned char>(key.salt[i]);
    hash = options_.hash(hash, std::span(&byte, 1));
  }
  return options_.hash(hash, {});
}

std::optional<BlockId> PrefixIndex::FindRoot(const CacheKey& key) const {
  const uint64_t hash = RootHash(key);
  for (int32_t i = Bucket(hash); i != base::kNoIndex; i = blocks_[i].bucket_next) {
    const Block& block = blocks_[i];
    if (block.root == base::kNoIndex || block.hash != hash) continue;
    const RootKey& root = root_keys_[block.root];
    if (root.adapter == key.adapter && root.salt == key.salt) return BlockId{i};
  }
  return std::nullopt;
}

std::optional<BlockId> PrefixIndex::NewBlock(uint64_t hash, std::optional<BlockId> parent) {
  if (unused_.empty()) return std::nullopt;
  const BlockId id{unused_.front()};
  unused_.Remove(links_, id.value);
  Block& block = At(id);
  block = Block{};
  block.hash = hash;
  block.used = true;
  if (parent) {
    block.parent = parent->value;
    block.depth = At(*parent).depth + 1;
    At(*parent).children.PushFront(links_, id.value);
  }
  block.bucket_next = std::exchange(Bucket(hash), id.value);
  ++used_;
  ++version_;
  return id;
}

std::optional<BlockId> PrefixIndex::AddRoot(const CacheKey& key) {
  if (std::optional<BlockId> known = FindRoot(key)) return known;
  const std::optional<BlockId> id = NewBlock(RootHash(key), std::nullopt);
  if (!id) return std::nullopt;
  if (free_root_keys_.empty()) {
    free_root_keys_.push_back(static_cast<int32_t>(root_keys_.size()));
    root_keys_.emplace_back();
  }
  At(*id).root = free_root_keys_.back();
  free_root_keys_.pop_back();
  RootKey& root = root_keys_[At(*id).root];
  root.salt.assign(key.salt);
  root.adapter = key.adapter;
  return id;
}

std::span<const TokenId> PrefixIndex::tokens(BlockId block) const {
  const size_t n = options_.block_tokens;
  return std::span(tokens_).subspan(block.value * n, n);
}

std::optional<BlockId> PrefixIndex::Find(BlockId parent, std::span<const TokenId> wanted) const {
  const uint64_t hash = options_.hash(At(parent).hash, wanted);
  for (int32_t i = Bucket(hash); i != base::kNoIndex; i = blocks_[i].bucket_next) {
    const Block& block = blocks_[i];
    if (block.hash != hash || block.parent != parent.value) continue;
    if (std::ranges::equal(tokens(BlockId{i}), wanted)) return BlockId{i};
  }
  return std::nullopt;
}

std::optional<PrefixIndex::Partial> PrefixIndex::FindPartial(
    BlockId parent, std::span<const TokenId> wanted,
    base::FunctionRef<bool(Partial)> usable) const {
  std::optional<Partial> best;
  int candidates = 0;
  for (int32_t i = At(parent).children.front();
       i != base::kNoIndex && candidates < kPartialCandidates;
       i = base::IndexList::Next(links_, i), ++candidates) {
    const std::span<const TokenId> have = tokens(BlockId{i});
    const auto equal = std::ranges::mismatch(have, wanted).in1 - have.begin();
    const Partial partial{BlockId{i}, static_cast<int>(equal)};
    if (partial.tokens > (best ? best->tokens : 0) && usable(partial)) best = partial;
  }
  return best;
}

std::optional<BlockId> PrefixIndex::Add(BlockId parent, std::span<const TokenId> tokens) {
  QUIRE_CHECK_EQ(static_cast<int>(tokens.size()), options_.block_tokens);
  const std::optional<BlockId> id = NewBlock(options_.hash(At(parent).hash, tokens), parent);
  if (!id) return std::nullopt;
  std::ranges::copy(tokens,
                    tokens_.begin() + static_cast<ptrdiff_t>(id->value) * options_.block_tokens);
  return id;
}

void PrefixIndex::Unpin(BlockId block) {
  QUIRE_CHECK_GT(At(block).pins, 0);
  --At(block).pins;
  EraseWhileUnneeded(block);
}

std::optional<FrameId> PrefixIndex::frame(BlockId block, int group) const {
  const int32_t frame = frames_[static_cast<size_t>(block.value) * options_.groups + group];
  if (frame == base::kNoIndex) return std::nullopt;
  return FrameId{frame};
}

void PrefixIndex::SetFrame(BlockId block, int group, FrameId frame) {
  int32_t& slot = frames_[static_cast<size_t>(block.value) * options_.groups + group];
  QUIRE_CHECK_EQ(slot, base::kNoIndex);
  slot = frame.value;
  ++At(block).frames;
  ++version_;
}

void PrefixIndex::ClearFrame(BlockId block, int group) {
  int32_t& slot = frames_[static_cast<size_t>(block.value) * options_.groups + group];
  QUIRE_CHECK_NE(slot, base::kNoIndex);
  slot = base::kNoIndex;
  --At(block).frames;
  ++version_;
  EraseWhileUnneeded(block);
}

std::optional<BlockId> PrefixIndex::parent(BlockId block) const {
  if (At(block).parent == base::kNoIndex) return std::nullopt;
  return BlockId{At(block).parent};
}

std::optional<BlockId> PrefixIndex::newest_child(BlockId block) const {
  if (At(block).children.empty()) return std::nullopt;
  return BlockId{At(block).children.front()};
}

void PrefixIndex::EraseWhileUnneeded(BlockId id) {
  for (;;) {
    Block& block = At(id);
    if (block.frames > 0 || block.pins > 0 || !block.children.empty()) return;
    int32_t* link = &Bucket(block.hash);
    while (*link != id.value) link = &blocks_[*link].bucket_next;
    *link = block.bucket_next;
    const int32_t parent = block.parent;
    if (parent == base::kNoIndex) {
      free_root_keys_.push_back(block.root);
    } else {
      blocks_[parent].children.Remove(links_, id.value);
    }
    block = Block{};
    unused_.PushFront(links_, id.value);
    --used_;
    ++version_;
    if (parent == base::kNoIndex) return;
    id = BlockId{parent};
  }
}

void PrefixIndex::ForEach(base::FunctionRef<void(BlockId)> visit) const {
  for (int32_t i = 0; i < options_.blocks; ++i) {
    if (blocks_[i].used) visit(BlockId{i});
  }
}

void PrefixIndex::CheckInvariants() const {
  int used = 0;
  int roots = 0;
  std::vector<int> children(blocks_.size(), 0);
  ForEach([&](BlockId id) {
    const Block& block = At(id);
    ++used;
    int frames = 0;
    for (int g = 0; g < options_.groups; ++g) frames += frame(id, g).has_value();
    QUIRE_CHECK_EQ(frames, block.frames);
    QUIRE_CHECK(block.frames > 0 || block.pins > 0 || !block.children.empty());
    if (block.parent == base::kNoIndex) {
      ++roots;
      const RootKey& root = root_keys_[block.root];
      QUIRE_CHECK(FindRoot({root.salt, root.adapter}) == id);
      QUIRE_CHECK_EQ(block.depth, 0);
      return;
    }
    QUIRE_CHECK(blocks_[block.parent].used);
    QUIRE_CHECK_EQ(block.depth, blocks_[block.parent].depth + 1);
    QUIRE_CHECK(Find(BlockId{block.parent}, tokens(id)) == id);
    ++children[block.parent];
  });
  QUIRE_CHECK_EQ(used, used_);
  QUIRE_CHECK_EQ(used + unused_.size(), options_.blocks);
  QUIRE_CHECK_EQ(roots + free_root_keys_.size(), root_keys_.size());
  ForEach([&](BlockId id) { QUIRE_CHECK_EQ(children[id.value], At(id).children.size()); });
}

}  // namespace quire::kv
